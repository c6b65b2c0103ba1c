"""In which precision and with how many threads to compute: measured when a model is loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertine.cores.launch import cores
from bertine.errors import BertineError
from bertine.models.backbone import Backbone
from bertine.models.config import Config
from bertine.models.encoder import Encoder
from bertine.models.fast.backbone import PackedBackbone
from bertine.models.fast.int8 import LayerRanges, RangeObserver
from bertine.models.fast.modern import PackedModern
from bertine.models.fast.plain import PlainBackbone
from bertine.models.fast.rows import PaddedRows
from bertine.models.fast.torch_private import has_byte_products
from bertine.models.modern.encoder import ModernEncoder
from bertine.models.precision import cpu_has_int8, rates_for
from bertine.models.products import best_of
from bertine.models.threads import fastest_threads, seconds_by_threads
from bertine.names import AnswerPrecision
from bertine.rng import generator

PRECISIONS = ("auto", "fp32", "bf16", "int8")

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

#: How far outputs may be from fp32, relative to their size, for ``"auto"`` to choose a precision.
#: bf16 comes to half a hundredth to one hundredth, 8 bits to two to six hundredths; those that
#: break a model to tens.
TOLERANCE = {"bf16": 0.05, "int8": 0.1}

#: Sample inputs that are made up: how many, and of how many tokens.
_SAMPLES, _SAMPLE_LENGTHS = 24, (8, 40)


#: More threads take longer to begin than they save on a text or two.
_MOST_THREADS = 8

#: Tokens of the batches that are timed.
_PROBED = 256


@dataclass
class PrecisionCheck:
    """A comparison of outputs in a lower precision with those in fp32.

    Attributes:
        precision: what was chosen.
        inputs: how many sample inputs were compared.
        differences: by precision that was tried, ||low - fp32|| / ||fp32|| of the last hidden
            states of all their tokens.
        notes: why a precision was not chosen, or not tried.
        seconds: that the check took.
    """

    precision: str = "fp32"
    inputs: int = 0
    differences: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """Return what a person reads: why a precision was not chosen, then the one that was."""
        return [*self.notes, f"computing in {self.precision}"]


def why_not_int8() -> str | None:
    """Say why products of 8-bit integers cannot be had here; None: they can."""
    if not cpu_has_int8():
        return "this CPU has no instructions for 8-bit products (VNNI, AMX)"
    if not torch.backends.mkldnn.is_available():
        return "this build of PyTorch is without oneDNN"
    if not has_byte_products():
        return "this version of PyTorch has no 8-bit products that are exact on this CPU"
    return None


def check_precision(name: str) -> None:
    """Refuse a precision that is not known.

    Raises:
        BertineError: it is not.
    """
    if name not in PRECISIONS:
        raise BertineError(f"precision {name!r} is not known; choose {', '.join(PRECISIONS)}")


def unmeasured_choice(
    precision: AnswerPrecision, threads: int | None
) -> tuple[AnswerPrecision, int]:
    """Return the precision and the threads where neither may depend on what is measured: fp32 for
    ``"auto"``."""
    chosen = unmeasured_threads() if threads is None else threads
    return "fp32" if precision == "auto" else precision, chosen


def unmeasured_threads() -> int:
    """Return the threads to compute with where they are not measured."""
    return min(torch.get_num_threads(), cores(), _MOST_THREADS)


def choose(
    backbone: Backbone,
    precision: str,
    samples: Sequence[Sequence[int]] | None = None,
) -> tuple[PackedBackbone | PlainBackbone, PrecisionCheck | None]:
    """Pack `backbone` in a precision. One whose layers are neither BERT's nor ModernBERT's stays
    as it is, and is computed in bf16 or fp32.

    ``"auto"`` takes bf16 if it is measured to be clearly faster than fp32 here, 8 bits if the CPU
    has them and they are faster than that, each if outputs stay close to those in fp32; else fp32.
    A precision that is named is taken however far its outputs are; the check has the difference.

    Raises:
        BertineError: an unknown precision, or one that this machine cannot compute in.
    """
    check_precision(precision)
    if not isinstance(backbone, Encoder | ModernEncoder):
        return _choose_plain(backbone, precision, samples)
    pack = PackedModern if isinstance(backbone, ModernEncoder) else PackedBackbone
    if precision == "fp32":
        return pack(backbone, torch.float32), None
    began = time.perf_counter()
    check = PrecisionCheck()
    reason = why_not_int8()
    if precision == "int8" and reason:
        raise BertineError(f"precision 'int8': {reason}; choose bf16 or fp32")
    inputs = [*samples] if samples else made_up(backbone.config)
    check.inputs = len(inputs)
    expected, ranges = _reference(backbone, inputs)
    tried: list[str] = [precision] if precision != "auto" else []
    if precision == "auto":
        if reason:
            check.notes.append(f"int8 is not used: {reason}")
        else:
            tried.append("int8")
        rates = rates_for("auto", backbone)
        if rates is not None and rates.precision == "bf16":
            tried.append("bf16")
        elif rates is not None:
            check.notes.append(rates.line())
    rival = "bf16" if "bf16" in tried else "fp32"
    for name in tried:
        try:
            packed = pack(backbone, torch.int8 if name == "int8" else torch.bfloat16, ranges)
            difference = check.differences[name] = _difference(packed, inputs, expected)
        except RuntimeError as error:
            # oneDNN knows more of the CPU than its flags say here.
            why = (str(error).splitlines() or [type(error).__name__])[0]
            reason = f"this machine cannot compute in it ({why})"
            if precision != "auto":
                raise BertineError(f"precision {name!r}: {reason}; choose fp32") from error
            check.notes.append(f"{name} is not used: {reason}")
            continue
        reason = None
        if precision == "auto" and difference > TOLERANCE[name]:
            reason = _too_far(name, difference)
        elif precision == "auto" and name == "int8" and _slower(packed, backbone, _TYPES[rival]):
            reason = f"it is slower than {rival} here"
        if reason is None:
            check.precision = name
            break
        check.notes.append(f"{name} is not used: {reason}")
    else:
        packed = pack(backbone, torch.float32)
    check.seconds = time.perf_counter() - began
    return packed, check


def _choose_plain(
    backbone: Backbone, precision: str, samples: Sequence[Sequence[int]] | None
) -> tuple[PlainBackbone, PrecisionCheck | None]:
    """Choose between bf16 and fp32 for a backbone that cannot be packed."""
    if precision == "int8":
        title = backbone.config.title
        raise BertineError(f"precision 'int8': {title} has none; choose bf16 or fp32")
    exact = PlainBackbone(backbone, torch.float32)
    if precision == "fp32":
        return exact, None
    began = time.perf_counter()
    rates = rates_for(precision, backbone)
    if precision == "auto" and (rates is None or rates.precision == "fp32"):
        return exact, None if rates is None else PrecisionCheck(notes=[rates.line()])
    low = PlainBackbone(backbone, torch.bfloat16)
    inputs = [*samples] if samples else made_up(backbone.config)
    with torch.inference_mode():
        expected = [exact(ids, mask).last_hidden_state[mask] for ids, mask in _padded(inputs)]
    difference = _difference(low, inputs, expected)
    check = PrecisionCheck("bf16", len(inputs), {"bf16": difference})
    if precision == "auto" and difference > TOLERANCE["bf16"]:
        check.precision = "fp32"
        check.notes.append(f"bf16 is not used: {_too_far('bf16', difference)}")
    check.seconds = time.perf_counter() - began
    return (low if check.precision == "bf16" else exact), check


def _too_far(name: str, difference: float) -> str:
    return (
        f"its outputs are too far from those in fp32 ({difference:.1%} in the last layer; "
        f"at most {TOLERANCE[name]:.0%} is accepted)"
    )


def made_up(config: Config) -> list[list[int]]:
    """Make up inputs of the vocabulary's own pieces, drawn evenly; nothing of a language, but they
    reach as far as texts do, and a little further."""
    draw = generator(0, "samples of precision")
    low, high = _SAMPLE_LENGTHS
    high = max(1, min(high, config.longest_input))
    lengths = np.linspace(min(low, high), high, _SAMPLES).astype(int)
    return [draw.integers(0, config.vocab_size, size=n).tolist() for n in lengths.tolist()]


def _padded(inputs: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Pad eight inputs at a time: ids int64 [B, T] and mask bool [B, T]."""
    ordered = sorted(inputs, key=len)
    for start in range(0, len(ordered), 8):
        part = ordered[start : start + 8]
        ids = torch.zeros(len(part), len(part[-1]), dtype=torch.int64)
        mask = torch.zeros(ids.shape, dtype=torch.bool)
        for row, each in enumerate(part):
            ids[row, : len(each)] = torch.tensor(each)
            mask[row, : len(each)] = True
        yield ids, mask


@torch.inference_mode()
def _reference(
    backbone: Backbone, inputs: Sequence[Sequence[int]]
) -> tuple[list[Tensor], list[LayerRanges]]:
    """Compute the last hidden states [n, H] of the real tokens in fp32, and what the layers met
    there."""
    was_training = backbone.training
    backbone.eval()
    try:
        with RangeObserver(backbone) as seen:
            states = [
                backbone(ids, mask).last_hidden_state[mask].float() for ids, mask in _padded(inputs)
            ]
    finally:
        backbone.train(was_training)
    return states, seen.ranges


@torch.inference_mode()
def _difference(
    packed: PackedBackbone | PlainBackbone,
    inputs: Sequence[Sequence[int]],
    expected: Sequence[Tensor],
) -> float:
    wrong = size = 0.0
    for (ids, mask), right in zip(_padded(inputs), expected, strict=True):
        states = packed(ids, mask).last_hidden_state[mask]
        # A text alone is computed in other ways.
        alone = packed(ids[:1], mask[:1]).last_hidden_state[0, : int(mask[0].sum())]
        for ours, theirs in ((states, right), (alone, right[: len(alone)])):
            wrong += float((ours - theirs).square().sum())
            size += float(theirs.square().sum())
    difference = (wrong / max(size, 1e-30)) ** 0.5
    return difference if np.isfinite(difference) else float("inf")


def _slower(packed: PackedBackbone, backbone: Backbone, rival: torch.dtype) -> bool:
    """Return whether the first layer takes longer than in `rival`."""
    size, length = packed.config.hidden_size, min(32, packed.config.longest_input)
    rows = PaddedRows(max(1, _PROBED // length), length)
    x = torch.zeros(rows.count, size)
    around = packed.around("before last", x, rows)

    @torch.inference_mode()
    def seconds(layer: Any, x: Tensor) -> float:
        x = x.clone()
        began = time.perf_counter()
        layer(x, around)
        return time.perf_counter() - began

    layer = packed.float_layer(backbone, rival)
    ours, theirs = best_of(
        [partial(seconds, packed.layers[0], x), partial(seconds, layer, x.to(rival))]
    )
    return ours > theirs


def measured_threads(packed: PackedBackbone | PlainBackbone) -> int:
    """Measure with how many threads a batch takes the least time: one, half of the cores, or all of
    them. No more than PyTorch would take (``OMP_NUM_THREADS``)."""
    length = min(32, packed.config.longest_input)
    ids = torch.zeros(max(1, _PROBED // length), length, dtype=torch.int64)

    @torch.inference_mode()
    def seconds() -> float:
        began = time.perf_counter()
        packed(ids).last_hidden_state  # noqa: B018
        return time.perf_counter() - began

    return fastest_threads(seconds_by_threads(seconds))
