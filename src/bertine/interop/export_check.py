"""Check that what was exported answers as the model does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bertine.interop.export import INPUTS, task_head
from bertine.models.backbone import each_text_alone
from bertine.models.encoded import TextInputs
from bertine.models.heads import texts_apart
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.rng import generator

#: Inputs of the graph, by name: int64 [B, T] each.
Inputs = Mapping[str, np.ndarray]
#: Runs what was exported: inputs → its outputs, in their order.
Runner = Callable[[Inputs], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Difference:
    """The difference of what an exported file gives from what the model in PyTorch gives, fp32.

    Attributes:
        largest: the largest difference of two numbers, padding left out.
        scale: the largest number of the model's.
        cosine: the lowest cosine of two rows of numbers (a text's vector or logits, a token's).
        same: the share of rows whose largest number is at the same place; None where a row is one
            number.
    """

    largest: float
    scale: float
    cosine: float
    same: float | None

    def text(self, vectors: bool) -> str:
        """Describe it; of `vectors` with the cosine, of logits with the share of equal answers."""
        text = f"largest difference {self.largest:.2g} of {self.scale:.2g}"
        if vectors:
            return f"{text}, cosine at least {self.cosine:.6f}"
        return text if self.same is None else f"{text}, same answer {self.same:.1%}"


def example_inputs(
    model: Model,
    ends: tuple[Sequence[int], Sequence[int]],
    special: frozenset[int],
    max_length: int,
) -> list[Inputs]:
    """Make batches to compare on: one short text; texts of different lengths with padding; the
    longest.

    Args:
        ends: ids of the special tokens before a text and behind it; between them stand pieces
            drawn evenly from all.
        special: ids that are not drawn.
        max_length: of a text.
    """
    draw = generator(0, "export check")
    config = model.config
    usual = np.array([index for index in range(config.vocab_size) if index not in special])
    batches: list[Inputs] = []
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


def expected_outputs(model: Model, pooling: Pooling | None, inputs: Inputs) -> list[np.ndarray]:
    """Compute what `model` gives, as it does for prediction, in fp32: see
    :class:`~bertine.interop.export.ExportModule` for what these are."""
    ids, mask, types = (torch.from_numpy(inputs[name]) for name in INPUTS)
    batch = TextInputs(ids, mask, types)
    with each_text_alone(model), torch.inference_mode():
        every = pooling is not None and pooling.needs_all_layers
        if pooling is not None:
            return [pooling(model.encode(batch, all_states=every), mask).numpy()]
        name = task_head(model)
        assert name is not None
        if model.config.heads[name].reads == "texts":
            batch = texts_apart(batch)
        logits = model.read(name, model.encode(batch), texts=batch)
        return [part.numpy() for part in logits.unbind(-1)] if name == "spans" else [logits.numpy()]


def compare(
    model: Model, pooling: Pooling | None, batches: Sequence[Inputs], run: Runner
) -> Difference:
    """Compare what `run` gives with what `model` gives, over all of `batches`."""
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
            elif expected.shape == mask.shape:  # the scores of every token: a row is a text
                expected, actual = np.where(mask, expected, 0), np.where(mask, actual, 0)
            # Of NumPy: a number that is none stays, where Python's max would lose it.
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


def onnx_runner(path: Path) -> Runner:
    """Load an ONNX file, to be run on the CPU with onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))


def torch_runner(path: Path) -> Runner:
    """Load a ``.pt2``, to be run with PyTorch."""
    module = torch.export.load(path).module()

    def run(inputs: Inputs) -> list[np.ndarray]:
        with torch.inference_mode():
            outputs = module(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        return [output.numpy() for output in outputs]

    return run
