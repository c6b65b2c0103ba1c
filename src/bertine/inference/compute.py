"""Run models over features in batches, and choose the precision and the threads on a CPU.

The choice is measured when a model is loaded: outputs in bf16 and in 8 bits are compared with fp32
on sample inputs, and batches are timed. :class:`Engine` keeps the weights packed in the chosen
precision; :func:`run_features` runs a model or an engine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bertine.core.cpu import cores
from bertine.core.errors import BertineError
from bertine.core.names import AnswerPrecision
from bertine.core.process import keep_freed_memory
from bertine.core.rng import generator
from bertine.core.spin_count import adapt_spin_count
from bertine.corpora.batch import Batch, check_batch, restore_order, token_budget_batches
from bertine.families.modernbert import ModernEncoder
from bertine.fast.backbone import PackedBackbone, PackedModel, PlainBackbone
from bertine.fast.int8 import LayerRanges, RangeObserver
from bertine.fast.kernel import KernelBackbone, can_compute
from bertine.fast.layers import PaddedRows
from bertine.fast.modern import PackedModern
from bertine.models.config import Config
from bertine.models.encoder import Backbone, Encoder, each_text_alone
from bertine.models.heads import GuessesWords, Model
from bertine.models.matmul_timing import best_of
from bertine.models.precision import (
    allowed_threads,
    autocast,
    cpu_has_int8,
    cpu_words,
    fastest_threads,
    finite,
    rates_for,
    seconds_by_threads,
    using_threads,
)
from bertine.models.torch_private import has_byte_products
from bertine.tasks.base import Features
from bertine.tokenization.base import run_together
from bertine.tokenization.tokenizer import Tokenizer

# Sample inputs for comparing precisions: sentences, and pieces of the vocabulary.

#: Of many kinds: statements, questions, exclamations, messages, numbers, names, one word. With a
#: vocabulary of another language they become letters and unknown words, so there are also inputs of
#: the vocabulary's own pieces.
TEXTS = (
    "The committee will meet again on Thursday, 14 March, to decide about the bridge.",
    "i cant believe how happy this little song makes me feel after such an awful week",
    "A slow, clumsy film with two good actors who deserve better.",
    "Who wrote the letter that was found in the library in 1894?",
    "yes",
    "Shares of the company fell 7.5% to $31.20 after the report, while rivals gained.",
    "Mix the flour with 200 g of butter, add an egg and leave it in the fridge for an hour.",
    "Dr. Okafor of the University of Lagos does not agree; her own results say the opposite.",
    "What a view! We walked for six hours and saw nobody but a shepherd and his dogs.",
    "Never buying from them again, the zip broke on the first day and nobody answers.",
    "In mathematics, a group is a set with an operation that is associative, has an identity "
    "element and an inverse for every element; the integers with addition are an example.",
    "RT @someone: new version is out!!! see https://example.org/news :) #release",
    "The old man sat by the window and watched the rain, as he had done every evening since the "
    "boats had gone; he did not light the lamp, and when his daughter came in with the bread he "
    "asked her, without turning his head, whether anyone had been seen on the road from the town.",
    "If the pump does not start, check the fuse (F3), then call the number on the label.",
    "feeling a bit anxious and a bit hopeful about tomorrow",
    "It was neither as good as the critics said nor as bad as my brother had warned me.",
)

#: The lengths in pieces of these drawn inputs.
_PIECES = (8, 16, 24, 32)


def sample_inputs(tokenizer: Tokenizer, max_length: int) -> list[list[int]]:
    """Return the ids of :data:`TEXTS` and of pieces drawn from the vocabulary, with special tokens,
    cut at `max_length`. Always the same for a tokenizer."""
    encoded = [*tokenizer.encode_plain(TEXTS), *_drawn_pieces(tokenizer)]
    return [_with_ends(ids, tokenizer, max_length) for ids in encoded]


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Return :data:`TEXTS`, and texts of pieces drawn from the vocabulary. Always the same for a
    tokenizer."""
    drawn = [run_together(tokenizer.names[i] for i in ids) for ids in _drawn_pieces(tokenizer)]
    return [*TEXTS, *drawn]


def _drawn_pieces(tokenizer: Tokenizer) -> list[list[int]]:
    """Draw ids of pieces of the vocabulary, a list for each number of `_PIECES`; none where it has
    only special tokens."""
    ordinary = [
        number for number in range(tokenizer.vocab_size) if number not in tokenizer.special_ids
    ]
    if not ordinary:
        return []
    draw = generator(0, "sample pieces")
    return [[ordinary[i] for i in draw.integers(0, len(ordinary), size=n)] for n in _PIECES]


def _with_ends(ids: Sequence[int], tokenizer: Tokenizer, max_length: int) -> list[int]:
    frame = tokenizer.template.one
    return frame.join([ids[: max(0, max_length - frame.added())]])


PRECISIONS = ("auto", "fp32", "bf16", "int8")

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

# Precision and threads: chosen by measurements when a model is loaded.

#: The relative distance of outputs from fp32 up to which ``"auto"`` chooses a precision. bf16 has
#: half a hundredth to one hundredth, 8 bits two to six hundredths; precisions that break a model
#: have tenths and more.
TOLERANCE = {"bf16": 0.05, "int8": 0.1}

#: Generated sample inputs: how many, and of how many tokens.
_SAMPLES, _SAMPLE_LENGTHS = 24, (8, 40)


#: More threads take longer to start than they save on a text or two.
_MOST_THREADS = 8

#: Tokens of the batches that are timed.
_PROBED = 256


@dataclass
class PrecisionCheck:
    """A comparison of outputs in a lower precision with those in fp32.

    Attributes:
        precision: the precision that was chosen.
        inputs: how many sample inputs were compared.
        differences: for each precision that was tried, ||low - fp32|| / ||fp32|| of the last hidden
            states of all tokens.
        notes: why a precision was not chosen, or not tried.
        seconds: the time of the check.
    """

    precision: str = "fp32"
    inputs: int = 0
    differences: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """List why a precision was not chosen, then the one that was."""
        return [*self.notes, f"computing in {self.precision}"]


def why_not_int8() -> str | None:
    """Explain why products of 8-bit integers are not available here; None: they are."""
    if not cpu_has_int8():
        return "this CPU has no instructions for 8-bit products (VNNI, AMX)"
    if not torch.backends.mkldnn.is_available():
        return "this build of PyTorch is without oneDNN"
    if not has_byte_products():
        return "this version of PyTorch has no 8-bit products that are exact on this CPU"
    return None


def check_precision(name: str) -> None:
    """Refuse an unknown precision.

    Raises:
        BertineError: the precision is unknown.
    """
    if name not in PRECISIONS:
        raise BertineError(f"precision {name!r} is not known; choose {', '.join(PRECISIONS)}")


def unmeasured_choice(
    precision: AnswerPrecision, threads: int | None
) -> tuple[AnswerPrecision, int]:
    """Return the precision and the threads where neither may depend on measurements: fp32 for
    ``"auto"``."""
    chosen = unmeasured_threads() if threads is None else threads
    return "fp32" if precision == "auto" else precision, chosen


def unmeasured_threads() -> int:
    """Return the number of threads where it is not measured."""
    return min(torch.get_num_threads(), cores(), _MOST_THREADS)


def choose(
    backbone: Backbone,
    precision: str,
    samples: Sequence[Sequence[int]] | None = None,
) -> tuple[PackedBackbone | PlainBackbone, PrecisionCheck | None]:
    """Pack `backbone` in a precision. One with other layers than those of BERT and ModernBERT is
    not packed, and is computed in bf16 or fp32.

    ``"auto"`` chooses bf16 if it is clearly faster than fp32 here, 8 bits if the CPU supports them
    and they are faster than bf16, each if outputs stay close to those in fp32; else fp32. A named
    precision is used however large its error is; the check records the difference.

    Raises:
        BertineError: an unknown precision, or one that this machine cannot compute in.
    """
    check_precision(precision)
    adapt_spin_count()
    # A subclass may have another attention than the packed layers.
    if type(backbone) not in (Encoder, ModernEncoder):
        return _choose_plain(backbone, precision, samples)
    pack = PackedModern if isinstance(backbone, ModernEncoder) else PackedBackbone
    if precision == "fp32":
        return pack(backbone, torch.float32), None
    began = time.perf_counter()
    check = PrecisionCheck()
    reason = why_not_int8()
    if precision == "int8" and reason:
        raise BertineError(f"precision 'int8': {reason}; choose bf16 or fp32")
    inputs = [*samples] if samples else dummy_inputs(backbone.config)
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
            if name == "int8":
                packed = _in_bytes(pack, backbone, ranges)
            else:
                packed = pack(backbone, _TYPES[name])
            difference = check.differences[name] = _difference(packed, inputs, expected)
        except RuntimeError as error:
            # oneDNN knows more about the CPU than its flags show here.
            why = (str(error).splitlines() or [type(error).__name__])[0]
            reason = f"this machine cannot compute in it ({why})"
            if precision != "auto":
                raise BertineError(f"precision {name!r}: {reason}; choose fp32") from error
            check.notes.append(f"{name} is not used: {reason}")
            continue
        reason = None
        if precision == "auto" and difference > TOLERANCE[name]:
            reason = _too_far(name, difference)
        elif precision == "auto" and name == "int8":
            layer = packed.float_layer(backbone, _TYPES[rival])
            if _slower(packed, layer, _TYPES[rival]):
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
    inputs = [*samples] if samples else dummy_inputs(backbone.config)
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


def dummy_inputs(config: Config) -> list[list[int]]:
    """Draw inputs evenly from the vocabulary's own pieces. They are no language, but their
    activations reach as far as those of texts, and a little further."""
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
        for row, item in enumerate(part):
            ids[row, : len(item)] = torch.tensor(item)
            mask[row, : len(item)] = True
        yield ids, mask


@torch.inference_mode()
def _reference(
    backbone: Backbone, inputs: Sequence[Sequence[int]]
) -> tuple[list[Tensor], list[LayerRanges]]:
    """Compute the last hidden states [n, H] of the real tokens in fp32, and record the ranges of
    the layers' inputs."""
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
        # A single text is computed by other code paths.
        alone = packed(ids[:1], mask[:1]).last_hidden_state[0, : int(mask[0].sum())]
        for ours, theirs in ((states, right), (alone, right[: len(alone)])):
            wrong += float((ours - theirs).square().sum())
            size += float(theirs.square().sum())
    difference = (wrong / max(size, 1e-30)) ** 0.5
    return difference if np.isfinite(difference) else float("inf")


def _in_bytes(
    pack: type[PackedBackbone], backbone: Backbone, ranges: Sequence[LayerRanges]
) -> PackedBackbone:
    """Pack a backbone in 8 bits, for the compiled kernel where there is one; with AMX, which it
    does not use, oneDNN's products may be faster."""
    if pack is not PackedBackbone or not can_compute(backbone.config):
        return pack(backbone, torch.int8, ranges)
    packed = KernelBackbone(backbone, ranges)
    if "amx_int8" in cpu_words():
        other = pack(backbone, torch.int8, ranges)
        if _slower(packed, other.layers[0], torch.float32):
            return other
    return packed


def _slower(packed: PackedBackbone, rival: Any, dtype: torch.dtype) -> bool:
    """Return whether the first layer takes longer than `rival`, whose input is of `dtype`."""
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

    ours, theirs = best_of(
        [partial(seconds, packed.layers[0], x), partial(seconds, rival, x.to(dtype))]
    )
    return ours > theirs


def measured_threads(packed: PackedBackbone | PlainBackbone) -> int:
    """Measure with how many threads a batch is fastest: one, half of the cores, or all of them; at
    most as many as PyTorch would use (``OMP_NUM_THREADS``)."""
    length = min(32, packed.config.longest_input)
    ids = torch.zeros(max(1, _PROBED // length), length, dtype=torch.int64)

    @torch.inference_mode()
    def seconds() -> float:
        began = time.perf_counter()
        packed(ids).last_hidden_state  # noqa: B018
        return time.perf_counter() - began

    return fastest_threads(seconds_by_threads(seconds))


# Engine: a model for inference on a CPU, with packed weights, hardly any padding and measured
# choices.

#: Tokens in a batch (with padding): few enough that a layer's activations stay in the caches.
BATCH_TOKENS = 768


class Engine:
    """A BERT on the CPU with its weights packed once, in a precision that a check found accurate.

    Threads may share it; each call computes with `threads` threads. Creating one also keeps freed
    memory in the process (:mod:`bertine.core.process`), which saves a tenth of the time.

    Args:
        model: the model, on the CPU. It is not changed, and is not needed afterwards; its word
            embeddings are shared, so it must not be changed later either.
        precision: ``"auto"`` (the fastest whose outputs are close to those in fp32), ``"fp32"``,
            ``"bf16"`` or ``"int8"``.
        threads: the number of threads; None: measured, at most as many as PyTorch would use.
        samples: typical inputs as ids with special tokens: the ranges of 8-bit numbers are fitted
            to them, and outputs are compared on them. None: drawn from the vocabulary.
        max_tokens: maximum tokens of a batch, padding included.

    Attributes:
        precision: ``"fp32"``, ``"bf16"`` or ``"int8"``, the one that was chosen.
        check: the comparison and the reason for this precision; None for fp32, which needs no
            check.
        threads: the number of threads it computes with.
        torch_threads: the number of PyTorch's threads meanwhile.
        config: the config of the model.
        backbone: the packed backbone, called like the model's.
        model: the packed backbone with the model's heads, as a task's ``outputs`` takes it.

    Raises:
        BertineError: unknown precision, a model that is not on the CPU.
    """

    def __init__(
        self,
        model: Model,
        *,
        precision: str = "auto",
        threads: int | None = None,
        samples: Sequence[Sequence[int]] | None = None,
        max_tokens: int = BATCH_TOKENS,
    ) -> None:
        if next(model.parameters()).device.type != "cpu":
            raise BertineError("the engine computes on the CPU; move the model there first")
        if threads is not None and threads < 1:
            raise BertineError(f"threads is {threads}, but must be at least 1")
        keep_freed_memory()
        self.config = model.config
        self.backbone, self.check = choose(model.backbone, precision, samples)
        self.precision = {torch.int8: "int8", torch.bfloat16: "bf16"}.get(
            self.backbone.dtype, "fp32"
        )
        self.model = PackedModel(model, self.backbone)
        if isinstance(self.backbone, KernelBackbone):
            self.threads = self.backbone.threads = threads or unmeasured_threads()
            # PyTorch's threads go on polling for milliseconds, on cores that the kernel's need; so
            # what is not a layer has one, unless it scores all words.
            words = any(isinstance(head, GuessesWords) for head in self.model.heads.values())
            self.torch_threads = self.threads if words else 1
        else:
            self.threads = self.torch_threads = threads or measured_threads(self.backbone)
        # Last, since threads are measured on padded batches of any size.
        self.max_tokens = max_tokens

    @property
    def max_tokens(self) -> int:
        """The maximum tokens of a batch, padding included; may be set. Batches of at least this
        size are computed padded, smaller ones as ``PackedBackbone.batch_tokens`` says."""
        return self._max_tokens

    @max_tokens.setter
    def max_tokens(self, max_tokens: int) -> None:
        self._max_tokens = self.backbone.batch_tokens = max_tokens

    def lines(self) -> list[str]:
        """Return the lines that describe the choices."""
        return [] if self.check is None else self.check.lines()


# Running features: batches of similar length through a model.

#: Tokens in a batch (with padding): on a CPU few enough for the caches, on a GPU enough to fill it.
CPU_TOKENS = 4096
GPU_TOKENS = 65536

Result = TypeVar("Result")

#: A model, or an engine made from one.
Computing = Model | Engine


class Runnable(Protocol):
    """The part of a task that running features needs; pooling has it too."""

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad features into one batch."""
        ...

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """Compute the wanted outputs of the model: [B, ...], one entry a sequence."""
        ...


def run_features(
    model: Computing,
    task: Runnable,
    features: Sequence[Features],
    *,
    pad_id: int,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    alone: bool = False,
    on_batch: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """Compute the task's outputs for each of `features`, fp32 on the host, in their order; those of
    equal texts once.

    Args:
        model: a model on any device, put into evaluation mode and back into the mode it was in; or
            an engine, which computes in its own precision.
        task: defines how to collate and what to compute.
        features: N of them.
        pad_id: the tokenizer's ``[PAD]``.
        dtype: the type to compute in: bf16 (by autocast) or fp32.
        max_tokens: maximum tokens of a batch, padding included; None: by the kind of device.
        alone: compute each of `features` separately, so that the bits of its outputs do not depend
            on the others.
        on_batch: called with the number of features of each finished batch.

    Raises:
        BertineError: a feature has an id or a length that the model has no parameters for; an
            output is not finite.
    """
    if alone:
        max_tokens = 1
    elif max_tokens is None and isinstance(model, Engine):
        max_tokens = model.max_tokens
    elif not isinstance(model, Engine):
        max_tokens = batch_tokens(device_of(model), max_tokens)
    assert max_tokens is not None
    distinct, places = _distinct(features)
    with computing_with(model, dtype):
        results = in_batches(
            distinct, max_tokens, partial(_outputs, model, task, pad_id=pad_id), on_batch
        )
    if on_batch is not None and len(distinct) < len(features):
        on_batch(len(features) - len(distinct))
    return [results[place] for place in places]


def _distinct(features: Sequence[Features]) -> tuple[list[Features], list[int]]:
    """Return the distinct texts of `features`, and for each of `features` its index among them."""
    first: dict[Any, int] = {}
    distinct: list[Features] = []
    places: list[int] = []
    for number, item in enumerate(features):
        # Features of other kinds, and those computed together, are more than their pieces.
        plain = type(item) is Features and item.group is None
        key = (item.input_ids.tobytes(), item.token_type_ids.tobytes()) if plain else number
        place = first.setdefault(key, len(distinct))
        if place == len(distinct):
            distinct.append(item)
        places.append(place)
    return distinct, places


def run_batch(
    model: Computing,
    task: Runnable,
    features: Sequence[Features],
    *,
    pad_id: int,
    dtype: torch.dtype = torch.float32,
    alone: bool = False,
) -> list[np.ndarray]:
    """Compute the same as :func:`run_features` for features that are one batch already."""
    adapt_spin_count()
    with computing_with(model, dtype):
        if alone:
            return [_outputs(model, task, [item], pad_id=pad_id)[0] for item in features]
        return _outputs(model, task, features, pad_id=pad_id)


def _outputs(
    model: Computing, task: Runnable, features: Sequence[Features], *, pad_id: int
) -> list[np.ndarray]:
    """Compute the outputs of one batch, in :func:`computing_with`."""
    computing = model.model if isinstance(model, Engine) else model
    batch = task.collate(features, pad_id)
    check_batch(batch, computing.config)
    if not isinstance(model, Engine):
        batch = batch.to(device_of(model))
    outputs = task.outputs(computing, batch).float().cpu()
    if not bool(outputs.isfinite().all()):
        for row, feature in zip(outputs, features, strict=True):
            finite(row[: len(feature.input_ids)] if row.dim() > 1 else row)  # padding may be none
    return list(outputs.numpy())


def in_batches(
    features: Sequence[Features],
    max_tokens: int,
    compute: Callable[[list[Features]], Sequence[Result]],
    on_batch: Callable[[int], None] | None = None,
) -> list[Result]:
    """Compute `features` in batches of similar length, and return the results in their order.

    Args:
        features: N of them.
        max_tokens: maximum tokens of a batch, padding included.
        compute: called with the features of each batch; returns a result for each.
        on_batch: called with the number of features of each finished batch.
    """
    batches = token_budget_batches([len(feature.input_ids) for feature in features], max_tokens)
    results: list[Sequence[Result]] = []
    for indices in batches:
        adapt_spin_count()
        results.append(compute([features[index] for index in indices]))
        if on_batch is not None:
            on_batch(len(indices))
    return restore_order(batches, results)


def device_of(model: nn.Module) -> torch.device:
    """Return the device that the weights of `model` are on."""
    return next(model.parameters()).device


def batch_tokens(device: torch.device, asked: int | None) -> int:
    """Return the tokens of a batch, padding included: the given number; None: by the kind of
    `device`."""
    if asked is not None:
        return asked
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


@contextlib.contextmanager
def computing_with(model: Computing, dtype: torch.dtype) -> Iterator[None]:
    """Set threads, mode and precision for computing with `model`, and restore them afterwards."""
    if isinstance(model, Engine):
        with torch.inference_mode(), using_threads(model.torch_threads):
            yield
        return
    allowed_threads(torch.get_num_threads())
    with evaluating(model), autocast(dtype, device_of(model)):
        yield


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Compute without dropout and gradients, each text as if it were alone; the mode of `model` is
    restored afterwards."""
    was_training = model.training
    model.eval()
    try:
        with each_text_alone(model), torch.inference_mode():
            yield
    finally:
        model.train(was_training)
