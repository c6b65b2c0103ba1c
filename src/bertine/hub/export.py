"""Write a model as a graph that runs without Bertine, in ONNX or as a PyTorch program.

The exported module is an :class:`ExportModule`: the same layers and weights, with attention over
padded batches in plain operators, since skipping padding depends on values, which a graph cannot
branch on. Batch size and length stay variable.

Shape legend: B sequences, T tokens of the longest, H hidden size, K labels, D width of a vector.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.models.encoder import Encoded, Inputs, TextInputs, each_text_alone
from bertine.models.heads import Model, texts_apart
from bertine.models.pooling import Pooling

#: Inputs of the graph, int64 [B, T] each.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: ONNX's operator set: the one that PyTorch's exporter is written for, and that every runtime since
#: 2023 (onnxruntime 1.14) knows.
OPSET = 18
#: ONNX's version of the file format that was current with this operator set.
_IR_VERSION = 8
#: An ONNX file holds less than 2 GB; larger models have their weights in a second file.
_ONE_FILE = 1_900_000_000

#: The heads that are exported.
_HEADS = (
    *("classifier", "vector_classifier", "choice", "pair_classifier", "token_classifier", "spans"),
)


def task_head(model: Model) -> str | None:
    """Return the name of a model's head for a task; None if it has none."""
    return next((name for name in _HEADS if name in model.heads), None)


def output_names(model: Model, pooling: Pooling | None) -> tuple[str, ...]:
    """Return the names of the outputs of an :class:`ExportModule`."""
    if pooling is not None:
        return ("token_vectors",) if pooling.tokens else ("vectors",)
    return ("start_logits", "end_logits") if "spans" in model.heads else ("logits",)


class ExportModule(Model):
    """A model's answers as one graph.

    Args:
        model: in fp32 on the CPU, in evaluation mode; its weights are shared.
        pooling: return the texts' vectors; None: the outputs of the model's head.

    Raises:
        BertineError: there is neither `pooling` nor a head of a task.
    """

    def __init__(self, model: Model, pooling: Pooling | None) -> None:
        nn.Module.__init__(self)
        self.config, self.backbone, self.pooling = model.config, model.backbone, pooling
        self.head_name = ""
        if pooling is not None:
            pooling.check(model.config)
        elif name := task_head(model):
            self.head_name = name
            self.heads = nn.ModuleDict({name: model.heads[name]})
        else:
            raise BertineError("the model has no head of a task; name a pooling to export vectors")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        """Compute the answers.

        Args:
            input_ids, attention_mask, token_type_ids: int64 [B, T]; the mask is 1 at real tokens
                and 0 at padding, on the right.

        Returns:
            For a task the logits: [B, K] of texts and of multiple choice (K = 1, a sequence for
            each choice), [B, T, K] of tagging, two of [B, T] (start, end) of spans. Otherwise the
            vectors [B, D], or [B, T, D] of tokens.
        """
        batch = TextInputs(input_ids, attention_mask, token_type_ids)
        if self.pooling is not None:
            encoded = self.encode(batch, all_states=self.pooling.needs_all_layers)
            return (self.pooling(encoded, attention_mask),)
        if self.family.heads[self.head_name].reads == "texts":
            batch = texts_apart(batch)
        logits = self.read(self.head_name, self.encode(batch), texts=batch)
        if self.head_name == "spans":
            return (logits[..., 0], logits[..., 1])
        return (logits,)

    def encode(
        self,
        inputs: Inputs,
        *,
        all_states: bool = False,
        word_vectors: Tensor | None = None,
        target: Inputs | None = None,
    ) -> Encoded:
        """Run the backbone over padded batches; see
        :meth:`bertine.models.encoder.Backbone.traced`."""
        assert inputs.attention_mask is not None
        return self.backbone.traced(
            inputs.input_ids, inputs.attention_mask, inputs.token_type_ids, all_states
        )


def exported_program(module: ExportModule, max_length: int) -> torch.export.ExportedProgram:
    """Trace `module` for any batch and any length from 2 to `max_length`.

    The source locations of its code lines are removed.
    """
    shape = (3, min(max_length, 7))
    ids = torch.ones(shape, dtype=torch.int64)
    mask = torch.ones(shape, dtype=torch.int64)
    mask[0, -1] = 0
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    length = torch.export.Dim("length", min=2, max=max_length)
    shapes = {name: {0: batch, 1: length} for name in INPUTS}
    with torch.no_grad(), _quiet():
        program = torch.export.export(
            module, (ids, mask, torch.zeros_like(ids)), dynamic_shapes=shapes, strict=False
        )
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def write_torch(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write a program as PyTorch does (``.pt2``): its graph as JSON, its weights as raw numbers.

    The example inputs, the only pickled part of such a file, are left out.
    """
    program.example_inputs = None
    with _quiet():
        torch.export.save(program, path)


def write_onnx(program: torch.export.ExportedProgram, path: Path, outputs: tuple[str, ...]) -> None:
    """Write a program as ONNX; the axes are called batch and length.

    Weights of more than 1.9 GB go to a second file of the same name with the suffix ``.data``.
    """
    with _quiet():
        graph = torch.onnx.export(
            program,
            (),
            input_names=list(INPUTS),
            output_names=list(outputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        assert graph is not None
        size = sum(tensor.nbytes for tensor in program.state_dict.values())
        graph.save(str(path), external_data=size > _ONE_FILE)
    _tidy(path)


def _tidy(path: Path) -> None:
    """Name the variable axes, and remove data for the exporter only: traces of its source lines,
    and intermediate shapes, which contradict those that quantizing infers."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    names: dict[str, str] = {}
    for value in model.graph.input:
        axes = value.type.tensor_type.shape.dim
        names |= {axes[0].dim_param: "batch", axes[1].dim_param: "length"}
    for value in (*model.graph.input, *model.graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = names.get(axis.dim_param, axis.dim_param)
    del model.graph.value_info[:]
    for part in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    # Features of newer file formats are not used, and older runtimes refuse these formats.
    model.ir_version = _IR_VERSION
    onnx.save(model, str(path))


def quantize_onnx(source: Path, target: Path) -> None:
    """Write an ONNX model with the weights of its products in int8, with a scale for each output,
    and activations quantized at run time (onnxruntime's dynamic quantization). The embeddings are
    int8 too. The head computes in fp32, as in the engines: it is small, and where it reads vectors
    with their differences and a cosine, one scale for all of them loses the small ones."""
    import onnx

    nodes = onnx.load(str(source), load_external_data=False).graph.node
    head = [node.name for node in nodes if any(name.startswith("heads.") for name in node.input)]
    with _quiet():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            str(source),
            str(target),
            # A product with a bias is first split in two; the first one gets that name.
            nodes_to_exclude=[*head, *(f"{name}_MatMul" for name in head)],
            weight_type=QuantType.QInt8,
            per_channel=True,
            # Seven bits: before VNNI (AVX2) two products of eight bits are added in sixteen, which
            # overflows, and the graph should give the same answers on every machine.
            reduce_range=True,
            use_external_data_format=source.with_name(source.name + ".data").exists(),
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' notes for their developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# Comparison: check that the exported file answers like the model.

#: Inputs of the graph, by name: int64 [B, T] each.
GraphInputs = Mapping[str, np.ndarray]
#: Runs an exported file: inputs → its outputs, in order.
Runner = Callable[[GraphInputs], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Difference:
    """The difference between the outputs of an exported file and those of the model in PyTorch,
    fp32.

    Attributes:
        largest: the largest absolute difference, without padding.
        scale: the largest absolute number of the model's.
        cosine: the lowest cosine of two rows of numbers (a text's vector or logits, a token's).
        same: the share of rows whose largest number is at the same index; None if a row is one
            number.
    """

    largest: float
    scale: float
    cosine: float
    same: float | None

    def text(self, vectors: bool) -> str:
        """Describe it: for `vectors` with the cosine, for logits with the share of equal ones."""
        text = f"largest difference {self.largest:.2g} of {self.scale:.2g}"
        if vectors:
            return f"{text}, cosine at least {self.cosine:.6f}"
        return text if self.same is None else f"{text}, same answer {self.same:.1%}"


def example_inputs(
    model: Model,
    ends: tuple[Sequence[int], Sequence[int]],
    special: frozenset[int],
    max_length: int,
) -> list[GraphInputs]:
    """Return batches to compare on: one short text; texts of different lengths with padding; the
    longest possible text.

    Args:
        ends: ids of the special tokens before and after a text; between them are pieces drawn
            uniformly from all.
        special: ids that are not drawn.
        max_length: of a text.
    """
    draw = generator(0, "export check")
    config = model.config
    usual = np.array([index for index in range(config.vocab_size) if index not in special])
    batches: list[GraphInputs] = []
    before, after = ends
    least = max(1, len(before) + len(after))
    several = (least, least + 1, min(17, max_length), min(9, max_length))
    for lengths in ((least,), several, (max_length, 5)):
        shape = (len(lengths), max(lengths))
        ids = np.full(shape, config.pad_token_id, dtype=np.int64)
        mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, length in enumerate(np.minimum(lengths, shape[1]).tolist()):
            ids[row, :length] = draw.choice(usual, length)
            ids[row, : len(before)] = before
            ids[row, length - len(after) : length] = after
            mask[row, :length] = 1
            if config.type_vocab_size > 1:
                types[row, length // 2 : length] = 1
        batches.append(dict(zip(INPUTS, (ids, mask, types), strict=True)))
    return batches


def expected_outputs(
    model: Model, pooling: Pooling | None, inputs: GraphInputs
) -> list[np.ndarray]:
    """Compute the outputs of `model` as in prediction, in fp32; see
    :class:`~bertine.hub.export.ExportModule`."""
    ids, mask, types = (torch.from_numpy(inputs[name]) for name in INPUTS)
    batch = TextInputs(ids, mask, types)
    with each_text_alone(model), torch.inference_mode():
        every = pooling is not None and pooling.needs_all_layers
        if pooling is not None:
            return [pooling(model.encode(batch, all_states=every), mask).numpy()]
        name = task_head(model)
        assert name is not None
        if model.family.heads[name].reads == "texts":
            batch = texts_apart(batch)
        logits = model.read(name, model.encode(batch), texts=batch)
        return [part.numpy() for part in logits.unbind(-1)] if name == "spans" else [logits.numpy()]


def compare(
    model: Model, pooling: Pooling | None, batches: Sequence[GraphInputs], run: Runner
) -> Difference:
    """Compare the outputs of `run` with those of `model`, over all of `batches`."""
    cosines: list[np.ndarray] = []
    same: list[np.ndarray] = []
    largest = scale = 0.0
    for inputs in batches:
        mask = inputs["attention_mask"].astype(bool)
        outputs = zip(expected_outputs(model, pooling, inputs), run(inputs), strict=True)
        for expected, actual in outputs:
            expected, actual = np.asarray(expected), np.asarray(actual)
            assert expected.shape == actual.shape, (expected.shape, actual.shape)
            if expected.shape[:2] == mask.shape and expected.ndim == 3:
                expected, actual = expected[mask], actual[mask]
            elif expected.shape == mask.shape:  # one score per token: a row is a text
                expected, actual = np.where(mask, expected, 0), np.where(mask, actual, 0)
            # NumPy's maximum keeps NaN, which Python's max would lose.
            largest = float(np.maximum(largest, np.abs(expected - actual).max()))
            scale = float(np.maximum(scale, np.abs(expected).max()))
            cosines.append(_cosines(expected, actual))
            if expected.shape[-1] > 1:
                same.append(expected.argmax(-1) == actual.argmax(-1))
    return Difference(
        largest,
        scale,
        float(np.concatenate(cosines).min()),
        float(np.concatenate(same).mean()) if same else None,
    )


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (a * b).sum(-1) / np.where(norms > 0, norms, 1.0)


def torch_runner(path: Path) -> Runner:
    """Load a ``.pt2`` to run with PyTorch."""
    module = torch.export.load(path).module()

    def run(inputs: GraphInputs) -> list[np.ndarray]:
        with torch.inference_mode():
            outputs = module(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        return [output.numpy() for output in outputs]

    return run
