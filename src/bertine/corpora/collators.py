"""Lay out pre-training instances as batches, and choose and mask the tokens to predict.

Tokens are chosen one by one, as whole words, or as runs of either. The replacement of a chosen
token is drawn token by token in all cases.

Whole words are chosen as in the published code (google-research/bert,
``create_pretraining_data.py``, ``do_whole_word_mask``): a word is a token and the pieces after it
that continue it (:attr:`bertine.Tokenizer.continues`); words are taken in a random order until
as many tokens are chosen as without whole words; a word that would exceed this number is skipped.
One point differs: if a segment was cut inside a word, the remaining pieces at its beginning are a
word of their own, while the published code adds them to the word before the [SEP]. So the first
word after a special token is also a word of its own if spaces belong to pieces and nothing marks
its beginning.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from bertine.core.names import InputFormat
from bertine.core.rng import generator, key
from bertine.corpora.batch import Batch
from bertine.corpora.formats import FORMATS, sequence_frame
from bertine.corpora.sequences import Instance
from bertine.options.pretraining import InstanceSettings
from bertine.tokenization.base import Frame

if TYPE_CHECKING:
    from bertine.tokenization.tokenizer import Tokenizer


# Corruptions: they turn instances into a batch, with random numbers.
#
# A format defines the contents of a sequence, a corruption what is done to it: tokens are hidden,
# moved or left out, and the originals become targets. The two share only
# :class:`~bertine.corpora.sequences.Instance`.

#: The options that control which tokens are masked, and how.
MASK_OPTIONS = ("masked_lm_prob", "mask_split", "masking", "whole_word_mask", "ngrams")


def idle_options(settings: InstanceSettings, used: Sequence[str] = ()) -> list[str]:
    """List the mask options that were set, except those in `used`, for a corruption that masks no
    tokens."""
    usual = InstanceSettings()
    return [
        name
        for name in MASK_OPTIONS
        if name not in used and getattr(settings, name) != getattr(usual, name)
    ]


@dataclass(frozen=True)
class Draws:
    """The random numbers of a batch, each a pure function of the seed, purpose and position.

    seed: the seed.
    step: the number of the batch.
    runs: the numbers of its instances, as runs of consecutive ones: (first, count).
    """

    seed: int
    step: int
    runs: tuple[tuple[int, int], ...]

    def of_batch(self, purpose: str) -> np.random.Generator:
        """Return a generator for the batch as a whole, different at every step."""
        return generator(self.seed, purpose, self.step)

    def of_instances(self, purpose: str, count: int) -> npt.NDArray[np.uint64]:
        """Draw `count` words for each instance, uint64 [B, count]: equal whenever the instance with
        that number recurs, in any batch."""
        counters = -(-count // 4)  # Philox gives four words for each value of its counter
        secret = key(self.seed, purpose)
        words = [
            np.random.Philox(key=secret, counter=first * counters).random_raw(size * counters * 4)
            for first, size in self.runs
        ]
        return np.concatenate(words).reshape(-1, counters * 4)[:, :count]


class Collator(Protocol):
    """A function that turns instances into the batch that a model is trained on."""

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch of `instances`; all random numbers come from `draws`."""
        ...


@runtime_checkable
class WarningCollator(Collator, Protocol):
    """A corruption that can warn about settings with little effect."""

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List notes for the user before a run begins, from the first batches, which are made only
        on demand."""
        ...


@runtime_checkable
class ReadsAround(Collator, Protocol):
    """A corruption that reads the text around its instances, as their ``context``.

    Attributes:
        memory_length: most tokens of it; 0: none.
    """

    memory_length: int

    def sides(self, count: int) -> Sequence[int]:
        """Return the side for each of `count` instances: -1 before it, 1 after it."""
        ...


#: Creates a corruption for a tokenizer's sequences: a class of corruptions, or an objective's
#: method.
MakeCorruption = Callable[["Tokenizer", InstanceSettings], Collator]


# Layout: put special tokens around instances, and pad them to arrays.
#
# Shape legend: B sequences, T tokens of the longest one.


@dataclass(frozen=True)
class PaddedInstances:
    """A batch of instances with their special tokens, padded on the right.

    Attributes:
        input_ids: int64 [B, T].
        lengths: int64 [B], number of real tokens.
        real: bool [B, T], True for tokens, False for padding.
        token_type_ids: int64 [B, T], the segments; 0 in the padding.
        goes_on: bool [B, T], which pieces continue the word before; None: the vocabulary decides.
        labels: the labels of the instances, int64 [B], by the name of the target; empty if they
            have none.
    """

    input_ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    real: npt.NDArray[np.bool_]
    token_type_ids: npt.NDArray[np.int64]
    labels: Mapping[str, npt.NDArray[np.int64]]
    goes_on: npt.NDArray[np.bool_] | None = None

    def continues(self, of_vocabulary: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which tokens continue the word before, bool [B, T].

        Args:
            of_vocabulary: bool [V], which pieces do so in any place
                (:attr:`bertine.Tokenizer.continues`).
        """
        return of_vocabulary[self.input_ids] if self.goes_on is None else self.goes_on

    def batch(self, input_ids: npt.NDArray[np.int64], **targets: npt.NDArray[Any]) -> Batch:
        """Make a batch with other `input_ids` of the same shape; the labels of the instances follow
        `targets`."""
        return Batch(
            torch.from_numpy(input_ids),
            torch.from_numpy(self.real),
            torch.from_numpy(self.token_type_ids),
            {name: torch.from_numpy(value) for name, value in {**targets, **self.labels}.items()},
        )


class ForeignId(ValueError):
    """The error for an id in an instance that is not in the vocabulary."""


class PaddingCollator:
    """A layout of the instances of one format as arrays.

    Args:
        tokenizer: provides the special tokens and the padding.
        input_format: of the instances, one of `bertine.corpora.formats.FORMATS`.
    """

    def __init__(self, tokenizer: Tokenizer, input_format: InputFormat) -> None:
        self.frame = sequence_frame(input_format, tokenizer.template)
        self.pad_token_id = tokenizer.pad_token_id
        self._vocab_size = tokenizer.vocab_size
        self._label = FORMATS[input_format].label
        self._neighbours = FORMATS[input_format].neighbours
        self._changes = list(_changes(self.frame))

    def pad(self, instances: Sequence[Instance]) -> PaddedInstances:
        """Lay out `instances`.

        Raises:
            ForeignId: one of their ids is not in the vocabulary.
        """
        before, between, after = self.frame.arrays(instances[0].segments[0].dtype)
        pieces: list[npt.NDArray[Any]] = []
        sizes: list[int] = []
        for instance in instances:
            behind, size = before, 0
            for segment in instance.segments:
                pieces += (behind, segment)
                size += len(behind) + len(segment)
                behind = between
            pieces.append(after)
            sizes.append(size + len(after))
        ids = np.concatenate(pieces)
        if ids.max() >= self._vocab_size:
            raise ForeignId
        lengths = np.array(sizes)
        column = np.arange(lengths.max())
        real = column < lengths[:, None]
        input_ids = np.full(real.shape, self.pad_token_id, np.int64)
        input_ids[real] = ids
        types = np.zeros(real.shape, np.int64)
        for special, texts, mark in self._changes:
            starts = [special + sum(map(len, instance.segments[:texts])) for instance in instances]
            np.copyto(types, mark, where=real & (column >= np.array(starts)[:, None]))
        labels = {}
        if self._label is not None:
            answers = [instance.label for instance in instances]
            labels[self._label.target] = np.array(answers, np.int64)
        if self._neighbours:
            labels["groups"] = np.arange(len(instances)) // 2
        goes_on = self._words(instances, real)
        return PaddedInstances(input_ids, lengths, real, types, labels, goes_on)

    def _words(
        self, instances: Sequence[Instance], real: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_] | None:
        """Lay out which pieces continue a word, if the instances define it."""
        if instances[0].goes_on is None:
            return None
        goes_on = np.zeros(real.shape, np.bool_)
        goes_on[real] = np.concatenate(
            [
                np.array(self.frame.lay(list(map(list, instance.goes_on or ())), False), np.bool_)
                for instance in instances
            ]
        )
        return goes_on


def _changes(frame: Frame) -> Iterator[tuple[int, int, int]]:
    """Yield the changes of the segment (token type) within a sequence: the number of special tokens
    and the number of texts before it, and the new segment."""
    texts = frame.starts([1, 1])
    last = 0
    for place, mark in enumerate(frame.marks or ()):
        if mark != last:
            passed = sum(text < place for text in texts)
            yield place - passed, passed, mark
        last = mark


# Causal language modelling: nothing is masked, and each token's successor is its target.


class CausalLMCollator:
    """The unchanged text, with the next token as target of every token but the last of its
    sequence.

    Args:
        tokenizer: that of the instances.
        settings: determine their format.
    """

    def __init__(self, tokenizer: Tokenizer, settings: InstanceSettings) -> None:
        self._padder = PaddingCollator(tokenizer, settings.input_format)
        self._idle = idle_options(settings)

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List the options without effect: those of masks."""
        return [
            f"{name}: does nothing with objective clm, which hides no tokens" for name in self._idle
        ]

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch; nothing in it is random.

        Its targets: ``clm_positions`` int64 [P], the positions of tokens that have a successor, and
        ``clm_labels`` int64 [P], these successors.
        """
        padded = self._padder.pad(instances)
        followed = np.zeros_like(padded.real)
        followed[:, :-1] = padded.real[:, 1:]
        positions = np.flatnonzero(followed)
        return padded.batch(
            padded.input_ids,
            clm_positions=positions,
            clm_labels=padded.input_ids.reshape(-1)[positions + 1],
        )


# N-gram masks of ALBERT: choose runs of neighbouring tokens or words.
#
# As in the paper (Lan et al. 2019, section 4.1, equation 4) and its published code (google-
# research/albert, ``create_pretraining_data.py``): the tokens of a sequence, or its words, are
# visited in a random order. At each a length n is drawn, with a probability proportional to 1/n,
# from those possible there; if n tokens or words would exceed the number still to be chosen,
# shorter runs are tried; a run that overlaps a chosen one is skipped.
#
# It differs in two points. Runs do not cross a special token, where the published code joins the
# end of one segment with the beginning of the next. And if all positions have been visited and too
# few tokens are chosen, the positions are visited again for runs of one: so single tokens always
# reach the requested number, and whole words come as close as they fit.
#
# Shape legend: B sequences in the batch, T tokens of the longest one.

#: The bits of a random number that do not affect the order; a sorting key has the column there.
LOW_BITS = np.uint64((1 << 20) - 1)


def starts_of_words(
    choosable: npt.NDArray[np.bool_], continues: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return where a word begins that may be chosen, bool [B, T]; after a token that may not, a
    piece always begins a word."""
    first = choosable.copy()
    first[:, 1:] &= ~(continues[:, 1:] & choosable[:, :-1])
    return first


def choose_runs(
    order: npt.NDArray[np.uint64],
    choosable: npt.NDArray[np.bool_],
    continues: npt.NDArray[np.bool_] | None,
    wanted: npt.NDArray[np.int64],
    longest: int,
) -> npt.NDArray[np.int64]:
    """Choose runs of tokens in each sequence.

    Args:
        order: [B, T], random numbers below 2^63: the order of the places, and in the lowest 20
            bits the length at each.
        choosable: [B, T], True where a token may be chosen.
        choosable: [B, T], True where a token may be chosen.
        continues: [B, T], True where a token continues the word of the token before it: runs then
            consist of whole words. None: of tokens.
        wanted: [B], tokens to choose.
        longest: most tokens or words of a run.

    Returns:
        Ascending flat positions, int64 [P].
    """
    first = choosable if continues is None else starts_of_words(choosable, continues)
    length = order.shape[1]
    sums = np.cumsum(1.0 / np.arange(1, longest + 1))
    limits = [[], *((sums[:most] / sums[most - 1]).tolist() for most in range(1, longest + 1))]
    chosen: list[int] = []
    for row, count in enumerate(wanted.tolist()):
        starts = np.flatnonzero(first[row])
        if not count or not len(starts):
            continue
        # A run continues if the next unit begins right after it.
        open_end = np.flatnonzero(~np.append(choosable[row], False))
        ends = np.minimum(
            np.append(starts[1:], length), open_end[np.searchsorted(open_end, starts)]
        ).tolist()
        places = starts.tolist()
        numbers = order[row, starts]
        keys = (numbers & ~LOW_BITS) | np.arange(len(starts), dtype=np.uint64)
        visits = np.argsort(keys).tolist()
        drawn = ((numbers & LOW_BITS).astype(np.float64) * 2.0**-20).tolist()
        chosen += [
            row * length + column
            for column in _of_one(places, ends, visits, drawn, limits, count, longest)
        ]
    return np.sort(np.array(chosen, dtype=np.int64))


def _of_one(
    starts: Sequence[int],
    ends: Sequence[int],
    visits: Sequence[int],
    drawn: Sequence[float],
    limits: Sequence[Sequence[float]],
    count: int,
    longest: int,
) -> list[int]:
    """Choose `count` columns of one sequence.

    Args:
        starts, ends: of each token or word, its first column and the one after its last.
        visits: their numbers in the order of the visits.
        drawn: for each, a number in [0, 1) that determines the length.
        limits: for each possible number of tokens or words of a run, the cumulative probabilities
            of the lengths.
    """
    taken = [False] * len(starts)
    columns: list[int] = []

    def take(unit: int, size: int) -> None:
        left = count - len(columns)
        while size and ends[unit + size - 1] - starts[unit] > left:
            size -= 1
        if size and not any(taken[unit : unit + size]):
            taken[unit : unit + size] = [True] * size
            columns.extend(range(starts[unit], ends[unit + size - 1]))

    for unit in visits:
        if len(columns) == count:
            return columns
        most = 1
        while (
            most < longest
            and unit + most < len(starts)
            and starts[unit + most] == ends[unit + most - 1]
        ):
            most += 1
        take(unit, 1 + sum(drawn[unit] >= limit for limit in limits[most][:-1]))
    for unit in visits:
        if len(columns) == count:
            break
        take(unit, 1)
    return columns


#: Whether a sequence is masked anew at every step, or in a fixed number of ways that recur.
MASKINGS = ("dynamic", "static")
#: Sequences made to check whether whole words are chosen at the requested rate.
_PROBES = 256


@dataclass(frozen=True)
class MaskedLMCollator:
    """A batch with some of its tokens masked.

    Attributes:
        input_ids: int64 [B, T], the batch with the chosen tokens replaced.
        positions: int64 [P], the chosen tokens as ascending indices into the flattened [B*T].
        labels: int64 [P], the original tokens.
    """

    input_ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


class InstanceDraws:
    """The random numbers of each instance, independent of its batch, for static masking.

    It makes the choices that a :class:`numpy.random.Generator` makes for a batch as a whole, but
    for each sequence from words of its own, so that a sequence has the same masks in any batch.

    Args:
        words: uint64 [B, 2 * W], random; W is at least the number of columns of the batch.
    """

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self._order, self._action = np.split(words, 2, axis=1)

    def order(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        """Return numbers to sort the tokens by, uint64 `shape` [B, T]."""
        return self._order[:, : shape[1]]

    def actions(
        self, positions: npt.NDArray[np.int64], shape: tuple[int, ...], choices: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return for each of the chosen tokens `positions` [P] a number in [0, 1), float64 [P], and
        one in ``range(choices)``, int64 [P]."""
        words = self._action[positions // shape[1], positions % shape[1]]
        uniform = (words >> np.uint64(32)).astype(np.float64) * 2.0**-32
        picked = (words & np.uint64(0xFFFFFFFF)) * np.uint64(choices) >> np.uint64(32)
        return uniform, picked.astype(np.int64)


class TokenMasking:
    """The corruption of BERT and RoBERTa: some tokens of each sequence are masked.

    Dynamic masking draws the tokens to predict anew at every step (Liu et al. 2019, section 4.1);
    static masking repeats the same ones whenever a sequence recurs.

    Args:
        tokenizer: determines which ids are special, and has the mask.
        settings: of the sequences and their masks.
        odds: fp64 [V], above 0: the relative odds of choosing each token within a sequence; None:
            all equal. See :func:`rarer_first`.

    Raises:
        BertineError: a share is out of range, the masking is unknown, or the vocabulary has no
            mask.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: InstanceSettings,
        odds: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self.settings, self._odds = settings, odds
        self.mask_token_id = tokenizer.require_mask("masked language modelling")
        self._padder = PaddingCollator(tokenizer, settings.input_format)
        # The unknown token is special here too: predicting it teaches nothing, and a random
        # replacement should be a word.
        self._is_ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        self._is_ordinary[list(tokenizer.special_ids)] = False
        self._ordinary_ids = np.flatnonzero(self._is_ordinary)
        self._is_continuation = tokenizer.continues

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch, with targets ``mlm_positions`` [P] and ``mlm_labels`` [P]."""
        padded, settings = self._padder.pad(instances), self.settings
        whole_words = settings.whole_word_mask
        masked = mask_tokens(
            padded.input_ids,
            padded.lengths,
            self._is_ordinary[padded.input_ids] & padded.real,
            self._numbers(draws),
            mask_token_id=self.mask_token_id,
            random_ids=self._ordinary_ids,
            continues=padded.continues(self._is_continuation) if whole_words else None,
            odds=None if self._odds is None else self._odds[padded.input_ids],
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            mask_split=settings.mask_split,
            ngrams=settings.ngrams,
        )
        return padded.batch(
            masked.input_ids, mlm_positions=masked.positions, mlm_labels=masked.labels
        )

    def _numbers(self, draws: Draws) -> np.random.Generator | InstanceDraws:
        """Return the random numbers of the step, or of each of its instances."""
        if self.settings.masking != "static":
            return draws.of_batch("masking")
        # Two words per token, for an even number of tokens.
        words = 4 * -(-self.settings.max_seq_length // 2)
        return InstanceDraws(draws.of_instances("static masking", words))

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List notes for the user on the rates."""
        lines = []
        share, length = self.settings.masked_lm_prob, self.settings.max_seq_length
        full, limit = round(share * length), self.settings.max_predictions_per_seq
        if limit is not None and full > limit:
            lines.append(
                f"max_predictions_per_seq {limit} limits a full sequence to "
                f"{limit / length:.1%} predictions instead of "
                f"{share:.0%} ({full} tokens); raise it to {full} or more"
            )
        whole = self.settings.whole_word_mask
        chosen = self._chosen_of_whole_words(samples) if whole else 1.0
        if chosen < 0.9:
            lines.append(
                f"with whole words only {chosen:.0%} as many tokens are predicted as with single "
                "ones: many words have more pieces than are chosen of a sequence; use longer "
                "sequences, a larger vocabulary, or single tokens"
            )
        return lines

    def _chosen_of_whole_words(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> float:
        """Return the ratio of tokens chosen as whole words to tokens chosen one by one, in a few
        hundred sequences."""
        single = copy.copy(self)
        single.settings = dataclasses.replace(self.settings, whole_word_mask=False, ngrams=1)
        words = tokens = seen = 0
        for instances, draws in samples:
            words += self(instances, draws).targets["mlm_labels"].numel()
            tokens += single(instances, draws).targets["mlm_labels"].numel()
            seen += len(instances)
            if seen >= _PROBES:
                break
        return words / max(1, tokens)


def mask_tokens(
    input_ids: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    choosable: npt.NDArray[np.bool_],
    rng: np.random.Generator | InstanceDraws,
    *,
    mask_token_id: int,
    random_ids: npt.NDArray[np.int64],
    continues: npt.NDArray[np.bool_] | None = None,
    odds: npt.NDArray[np.float64] | None = None,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int | None = 20,
    mask_split: Sequence[float] = (0.8, 0.1, 0.1),
    ngrams: int = 1,
) -> MaskedLMCollator:
    """Choose and replace tokens (Devlin et al. 2018, section 3.1, Task 1).

    As in the published code, in a sequence of n tokens, including special ones,
    ``max(1, round(masked_lm_prob * n))`` are chosen without replacement, but at most
    `max_predictions_per_seq` and the number of choosable tokens. With whole words there may be
    fewer, if no word is short enough for the remaining number.

    Args:
        input_ids: [B, T], padded; not changed.
        lengths: [B], tokens of each sequence without padding.
        choosable: [B, T], True where a token may be chosen: not a special token or padding.
        rng: of the batch, draws 3 numbers per token; or the draws of each of its sequences.
        mask_token_id: replaces a chosen token with probability ``mask_split[0]``.
        random_ids: [R], a uniform one of them replaces it with probability ``mask_split[1]``;
            else it is kept.
        continues: [B, T], True where a token continues the word of the token before it; whole words
            are then chosen. None: single tokens.
        odds: fp64 [B, T], above 0: tokens are chosen one after the other, each with a probability
            proportional to its odds among the remaining ones; a whole word has the odds of its
            first piece. None: all equal.
        masked_lm_prob: the share of tokens to choose.
        max_predictions_per_seq: the most chosen in a sequence; None for no limit.
        mask_split: masked, random, kept; adds up to 1.
        ngrams: the most tokens, or whole words, of a run that is chosen together
            (:mod:`bertine.corpora.collators`).
    """
    wanted = np.maximum(1, np.rint(lengths * masked_lm_prob).astype(np.int64))
    if max_predictions_per_seq is not None:
        wanted = np.minimum(wanted, max_predictions_per_seq)
    wanted = np.minimum(wanted, choosable.sum(axis=1))
    order: npt.NDArray[np.uint64]
    if isinstance(rng, InstanceDraws):
        order = rng.order(input_ids.shape)
    else:
        order = rng.integers(1 << 63, size=input_ids.shape, dtype=np.uint64)
    if odds is not None:
        bits = 64 if isinstance(rng, InstanceDraws) else 63
        order = _by_odds(order, bits, odds)
    if ngrams > 1:
        positions = choose_runs(order, choosable, continues, wanted, ngrams)
    elif continues is None:
        positions = _choose_tokens(order, choosable, wanted)
    else:
        positions = _choose_words(order, choosable, continues, wanted)

    masked = input_ids.copy()
    flat = masked.reshape(-1)
    labels = flat[positions]
    if isinstance(rng, InstanceDraws):
        action, picked = rng.actions(positions, input_ids.shape, len(random_ids))
    else:
        action = rng.random(len(positions))
        picked = rng.integers(len(random_ids), size=len(positions))
    hidden, swapped = mask_split[0], mask_split[0] + mask_split[1]
    flat[positions] = np.where(
        action < hidden, mask_token_id, np.where(action < swapped, random_ids[picked], labels)
    )
    return MaskedLMCollator(masked, positions, labels)


def rarer_first(counts: npt.NDArray[np.int64], power: float) -> npt.NDArray[np.float64]:
    """Return the odds with which rarer tokens are chosen more often, fp64 [V]: their `counts` [V],
    at least 1, to the power -`power` (transformers, ``research_projects/distillation``:
    ``mlm_smoothing``, 0.7 there; Lample and Conneau 2019, after word2vec). There the tokens are
    drawn from the whole batch, here from each sequence separately, so that a sequence has the same
    share of them as without odds, and a limit holds."""
    return np.asarray(np.maximum(counts, 1).astype(np.float64) ** -power)


def _by_odds(
    order: npt.NDArray[np.uint64], bits: int, odds: npt.NDArray[np.float64]
) -> npt.NDArray[np.uint64]:
    """Return sorting keys in place of the uniform `order`, integers of this number of `bits`, whose
    first ones are a draw without replacement in proportion to `odds`: times of exponential clocks
    (Efraimidis and Spirakis 2006)."""
    uniform = ((order >> np.uint64(bits - 52)).astype(np.float64) + 0.5) * 2.0**-52
    clocks = -np.log(uniform) / odds
    # The bit patterns of positive floats are in the order of the numbers.
    return clocks.view(np.uint64)


def _shuffled(
    order: npt.NDArray[np.uint64], candidates: npt.NDArray[np.bool_], most: int
) -> npt.NDArray[np.int64]:
    """Return the columns of each row's candidates in a random order, [B, most]; entries after a
    row's last candidate are meaningless."""
    # Sorting random numbers with the column in their low bits: no two keys are equal, so every
    # machine gives the same order.
    keys = (order & ~LOW_BITS) | np.arange(order.shape[1], dtype=np.uint64)
    keys[~candidates] = ~np.uint64(0)
    keys.sort(axis=1)
    return (keys[:, :most] & LOW_BITS).astype(np.int64)


def _choose_tokens(
    order: npt.NDArray[np.uint64],
    choosable: npt.NDArray[np.bool_],
    wanted: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Choose the requested number of tokens in each row: ascending flat positions [P]."""
    num_rows, num_columns = order.shape
    columns = _shuffled(order, choosable, int(wanted.max(initial=0)))
    taken = np.arange(columns.shape[1]) < wanted[:, None]
    return np.sort((np.arange(num_rows)[:, None] * num_columns + columns)[taken])


def _choose_words(
    order: npt.NDArray[np.uint64],
    choosable: npt.NDArray[np.bool_],
    continues: npt.NDArray[np.bool_],
    wanted: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Choose whole words in each row, in a random order, each that still fits: ascending flat
    positions [P] of their tokens."""
    num_rows, num_columns = order.shape
    first = starts_of_words(choosable, continues)
    # Words are numbered through the batch; word_of is right wherever a token may be chosen.
    word_of = np.cumsum(first.reshape(-1)) - 1
    size_of = np.bincount(word_of[choosable.reshape(-1)], minlength=1)
    counts = first.sum(axis=1)
    columns = _shuffled(order, first, int(counts.max(initial=0)))
    real = np.arange(columns.shape[1]) < counts[:, None]
    columns[~real] = 0
    words = word_of[np.arange(num_rows)[:, None] * num_columns + columns]
    chosen = np.zeros(len(size_of), np.bool_)
    left = wanted.copy()
    sizes = np.where(real, size_of[words], 0)
    rows = np.arange(num_rows)
    # Taken in order as long as they fit, words leave room only for smaller ones; so the next round
    # begins with those. Three or four rounds leave nothing.
    while True:
        sizes[sizes > left[rows, None]] = 0
        alive = sizes.any(axis=1)
        if not alive.any():
            break
        if not alive.all():
            rows, sizes, words = rows[alive], sizes[alive], words[alive]
        fits = (sizes > 0) & (np.cumsum(sizes, axis=1) <= left[rows, None])
        chosen[words[fits]] = True
        left[rows] -= np.where(fits, sizes, 0).sum(axis=1)
        sizes[fits] = 0
    return np.flatnonzero(choosable.reshape(-1) & chosen[word_of])


# Replaced-token detection: tokens are masked for the generator, with the numbers needed to draw
# their replacements (Clark et al. 2020, arXiv 2003.10555, section 2).


class TokenReplacing(TokenMasking):
    """The corruption of ELECTRA: tokens are masked as for masked language modelling, except special
    ones (google-research/electra, ``get_candidates_mask``).

    One point differs from the published code: there a token may be chosen twice, which reduces the
    number of masked tokens; here each is chosen once.
    """

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch.

        Its targets, in addition to those of masking: ``mlm_draws`` float64 [P] in [0, 1), with
        which the generator's token is drawn, anew at every step; ``rtd_positions`` int64 [N], all
        real tokens, and ``rtd_labels`` int64 [N], the original tokens.
        """
        batch = super().__call__(instances, draws)
        positions, labels = batch.targets["mlm_positions"], batch.targets["mlm_labels"]
        original = batch.input_ids.flatten().index_copy(0, positions, labels)
        real = batch.attention_mask.flatten().nonzero()[:, 0]
        numbers = draws.of_batch("generator samples").random(len(positions))
        added = {
            "mlm_draws": torch.from_numpy(numbers),
            "rtd_positions": real,
            "rtd_labels": original[real],
        }
        return dataclasses.replace(batch, targets=batch.targets | added)
