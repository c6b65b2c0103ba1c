"""Write a model as a graph that runs without Bertine: ONNX, or a program of PyTorch's.

What is exported is an :class:`ExportModule`: the same layers and weights, with the attention over
padded batches written in plain operators, since whether to leave padding out is decided by looking
at the numbers, which a graph cannot. Batch and length stay open.

Shape legend: B sequences, T tokens of the longest, H hidden size, K labels, D width of a vector.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.models.encoded import Encoded, Inputs, TextInputs
from bertine.models.heads import texts_apart
from bertine.models.model import Model
from bertine.models.pooling import Pooling

#: The file of an exported folder that says what it holds.
ABOUT = "export.json"
#: Inputs of what is exported, int64 [B, T] each.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: ONNX's set of operators: the one that PyTorch's exporter is written in, and that every runtime
#: since 2023 (onnxruntime 1.14) knows.
OPSET = 18
#: ONNX's version of its file format that came with this set of operators.
_IR_VERSION = 8
#: One file holds less than 2 GB of ONNX; what is larger has its weights beside it.
_ONE_FILE = 1_900_000_000

#: The heads that are exported.
_HEADS = (
    *("classifier", "vector_classifier", "choice", "pair_classifier", "token_classifier", "spans"),
)


def task_head(model: Model) -> str | None:
    """Return the name of a model's head for a task; None: it has none."""
    return next((name for name in _HEADS if name in model.heads), None)


def output_names(model: Model, pooling: Pooling | None) -> tuple[str, ...]:
    """Name what an :class:`ExportModule` returns."""
    if pooling is not None:
        return ("token_vectors",) if pooling.tokens else ("vectors",)
    return ("start_logits", "end_logits") if "spans" in model.heads else ("logits",)


class ExportModule(Model):
    """A model's answers as one graph.

    Args:
        model: in fp32 on the CPU, in evaluation mode; its weights are shared.
        pooling: return the texts' vectors; None: what the model's head gives.

    Raises:
        BertineError: there is no `pooling` and no head of a task.
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
            Of a task the logits: [B, K] of texts and of multiple choice (K = 1, a sequence a
            choice), [B, T, K] of tagging, two of [B, T] (start, end) of spans. Else the vectors
            [B, D], or [B, T, D] of tokens.
        """
        batch = TextInputs(input_ids, attention_mask, token_type_ids)
        if self.pooling is not None:
            encoded = self.encode(batch, all_states=self.pooling.needs_all_layers)
            return (self.pooling(encoded, attention_mask),)
        if self.config.heads[self.head_name].reads == "texts":
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
        :meth:`bertine.models.backbone.Backbone.traced`."""
        assert inputs.attention_mask is not None
        return self.backbone.traced(
            inputs.input_ids, inputs.attention_mask, inputs.token_type_ids, all_states
        )


def exported_program(module: ExportModule, max_length: int) -> torch.export.ExportedProgram:
    """Trace `module` for any batch and any length from 2 to `max_length`.

    Where in whose files a line of code stood is left out of it.
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

    The example inputs, the one pickled thing in such a file, are left out.
    """
    program.example_inputs = None
    with _quiet():
        torch.export.save(program, path)


def write_onnx(program: torch.export.ExportedProgram, path: Path, outputs: tuple[str, ...]) -> None:
    """Write a program as ONNX; the axes are called batch and length.

    Weights of more than 1.9 GB stand beside it, in a file of the same name and ``.data``.
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
    """Name the open axes, and leave out what only the exporter cares for: the traces of its source
    lines, and shapes in between, which contradict those that quantizing infers."""
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
    # What newer versions of the file's format brought is not in it, and older runtimes refuse them.
    model.ir_version = _IR_VERSION
    onnx.save(model, str(path))


def quantize_onnx(source: Path, target: Path) -> None:
    """Write an ONNX model with the weights of its products in int8, a scale for each output, and
    activations quantized as they come (onnxruntime's dynamic quantization). The embeddings are
    int8 too. The head computes in fp32, as in the engines: it is small, and where it reads vectors,
    their differences and a cosine side by side, one scale for all of them loses the small ones."""
    import onnx

    nodes = onnx.load(str(source), load_external_data=False).graph.node
    head = [node.name for node in nodes if any(name.startswith("heads.") for name in node.input)]
    with _quiet():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            str(source),
            str(target),
            # A product with a bias is first written as two, the first of which gets that name.
            nodes_to_exclude=[*head, *(f"{name}_MatMul" for name in head)],
            weight_type=QuantType.QInt8,
            per_channel=True,
            # Seven bits: before VNNI (AVX2) two products of eight are added in sixteen bits, which
            # they overflow, and the graph is to answer alike on every machine.
            reduce_range=True,
            use_external_data_format=source.with_name(source.name + ".data").exists(),
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the notes that the exporters write for their own makers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
