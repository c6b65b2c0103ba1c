"""Corrupt sequences for the objectives plm (XLNet) and denoising (BART).

The first part follows Yang et al. 2019, arXiv 1906.08237, sections 2.2, 2.3 and 2.6, and the
published code (zihangdai/xlnet, ``data_utils.py``: ``_sample_mask``, ``_local_perm``).

No mask hides a token: a predicted token is visible only to those that are predicted after it. All
others are known from the beginning, except special tokens, which become known at a random time like
the predicted ones, but are not predicted themselves.

Tokens are predicted in runs of whole words, within a context that is not predicted. One pass goes
over the text: a length of n words is drawn with a probability proportional to 1/n, then a context
of `context` times as many tokens, a random part of it before the run and the rest after it. If the
text ends before there are enough, single tokens are added. This differs from the published code in
two points: there are never more than requested (a run is cut), and a run may reach the end of the
text.

Shape legend: B sequences in the batch, T tokens of the longest one, P guessed tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertine.core.errors import BertineError
from bertine.core.names import InputFormat, option
from bertine.corpora.batch import Batch
from bertine.corpora.collators import (
    Draws,
    ForeignId,
    PaddingCollator,
    idle_options,
    starts_of_words,
)
from bertine.corpora.sequences import Instance
from bertine.options.pretraining import DenoisingOptions, InstanceSettings, PermutationOptions

if TYPE_CHECKING:
    from bertine.tokenization.tokenizer import Tokenizer


#: The format whose sequences have text before and after them.
_WITH_MEMORY: InputFormat = "full-sentences"


class PermutedLMCollator:
    """The corruption of XLNet: some tokens of each sequence are predicted in a random order.

    Args:
        tokenizer: determines which ids are special.
        settings: of the sequences.
        options: which tokens are predicted, and in which order; None: as in the paper.

    Attributes:
        memory_length: see :class:`bertine.corpora.collators.ReadsAround`.

    Raises:
        BertineError: a memory is requested, but the format has no text around a sequence.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: InstanceSettings,
        options: PermutationOptions | None = None,
    ) -> None:
        self.options = options or PermutationOptions()
        self.memory_length = self.options.memory_length
        if self.memory_length and settings.input_format != _WITH_MEMORY:
            raise BertineError(
                f"{option('memory_length', self.memory_length)} needs "
                f"{option('input_format', _WITH_MEMORY)}, whose sequences follow each other in the "
                f"text; the format is {settings.input_format}"
            )
        self._pad, self._vocab_size = tokenizer.pad_token_id, tokenizer.vocab_size
        self._padder = PaddingCollator(tokenizer, settings.input_format)
        self._is_ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        self._is_ordinary[list(tokenizer.special_ids)] = False
        self._is_around = np.zeros(tokenizer.vocab_size, np.bool_)
        frame = self._padder.frame
        self._is_around[[*frame.before, *frame.between, *frame.after]] = True
        self._is_continuation = tokenizer.continues
        self._idle = idle_options(settings)

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List the options without effect: those of masks."""
        return [
            f"{name}: does nothing with objective plm, which hides tokens by their order alone"
            for name in self._idle
        ]

    def sides(self, count: int) -> list[int]:
        """Return the side of the memory of each instance: before it, or after one that is read from
        its end."""
        return [1 if turned else -1 for turned in self._backwards(count).tolist()]

    def _backwards(self, count: int) -> npt.NDArray[np.bool_]:
        """Return which of `count` instances are read from their end, bool [count]."""
        backwards = np.zeros(count, np.bool_)
        if self.options.both_directions:
            backwards[(count + 1) // 2 :] = True
        return backwards

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch.

        Its targets: ``plm_positions`` int64 [P], the positions of the predicted tokens, as
        ascending indices into the flattened [B*T], and ``plm_labels`` int64 [P], these tokens;
        ``guessing_order`` int64 [B, T], when each token becomes known, -1 from the beginning;
        ``backwards`` bool [B], which sequences are read from their end, with both directions;
        with a memory ``memory_ids`` int64 [B, M] and ``memory_mask`` bool [B, M], the additional
        text that is read, its last token last.
        """
        options, rng = self.options, draws.of_batch("permutation")
        backwards = self._backwards(len(instances))
        if options.both_directions:
            instances = [
                _reversed(instance) if turned else instance
                for instance, turned in zip(instances, backwards.tolist(), strict=True)
            ]
        padded = self._padder.pad(instances)
        choosable = self._is_ordinary[padded.input_ids] & padded.real
        continues = padded.continues(self._is_continuation)
        if backwards.any():
            # In a text read from its end, a piece continues the word if the one before it does so
            # in the order of the text.
            moved = np.zeros_like(continues)
            moved[:, 1:] = continues[:, :-1]
            continues = np.where(backwards[:, None], moved, continues)
        guessed = choose_spans(
            choosable,
            starts_of_words(choosable, continues),
            np.maximum(1, np.rint(padded.lengths * options.predict_ratio)).astype(np.int64),
            rng,
            longest=options.longest_span,
            context=options.span_context,
        )
        timed = guessed | (self._is_around[padded.input_ids] & padded.real)
        order = draw_order(timed, rng, options.permuted_length)
        positions = np.flatnonzero(guessed)
        targets = {"guessing_order": order, **self._memory(instances)}
        if options.both_directions:
            targets["backwards"] = backwards
        return padded.batch(
            padded.input_ids,
            plm_positions=positions,
            plm_labels=padded.input_ids.reshape(-1)[positions],
            **targets,
        )

    def _memory(self, instances: Sequence[Instance]) -> dict[str, npt.NDArray[Any]]:
        """Lay out the texts around the instances, right-aligned; empty if there are none."""
        texts = [instance.context for instance in instances if instance.context is not None]
        longest = max(map(len, texts), default=0)
        if not longest:
            return {}
        ids = np.full((len(texts), longest), self._pad, np.int64)
        for row, text in enumerate(texts):
            ids[row, longest - len(text) :] = text
        if ids.max() >= self._vocab_size:
            raise ForeignId
        lengths = np.array([len(text) for text in texts])
        mask = np.arange(longest) >= longest - lengths[:, None]
        return {"memory_ids": ids, "memory_mask": mask}


def choose_spans(
    choosable: npt.NDArray[np.bool_],
    first: npt.NDArray[np.bool_],
    wanted: npt.NDArray[np.int64],
    rng: np.random.Generator,
    *,
    longest: int,
    context: int,
) -> npt.NDArray[np.bool_]:
    """Choose runs of words in each sequence.

    Args:
        choosable: bool [B, T], true where a token may be chosen.
        first: bool [B, T], true where a word of such tokens begins.
        wanted: int64 [B], tokens to choose; fewer if there are no more.
        rng: draws the lengths, the contexts, and the single tokens at the end.
        longest: most words of a run.
        context: number of tokens not chosen for each word of a run.

    Returns:
        bool [B, T].
    """
    shares = 1.0 / np.arange(1, longest + 1)
    shares /= shares.sum()
    chosen = np.zeros_like(choosable)
    length = choosable.shape[1]
    # Not one draw per run: the largest possible number, for all sequences at once.
    draws = int(wanted.max(initial=1))
    sizes = rng.choice(longest, size=(len(wanted), draws), p=shares) + 1
    before = rng.random((len(wanted), draws))
    order = rng.random(choosable.shape)
    for row in range(len(wanted)):
        places = np.flatnonzero(first[row]).tolist()
        # After the last position a word begins that does not count.
        closed = np.append(~choosable[row], True)
        left = min(int(wanted[row]), int(choosable[row].sum()))
        at = 0
        for words, share in zip(sizes[row].tolist(), before[row].tolist(), strict=True):
            around = words * context
            ahead = int(share * around)
            number = int(np.searchsorted(places, at + ahead))
            if not left or number == len(places):
                break
            begin = places[number]
            end = places[number + words] if number + words < len(places) else length
            # A run does not cross a special token.
            end = min(end, begin + int(closed[begin:].argmax()), begin + left)
            chosen[row, begin:end] = True
            left -= end - begin
            at = end + around - ahead
        if left:
            free = np.flatnonzero(choosable[row] & ~chosen[row])
            chosen[row, free[np.argsort(order[row, free], kind="stable")[:left]]] = True
    return chosen


def draw_order(
    timed: npt.NDArray[np.bool_], rng: np.random.Generator, permuted_length: int | None
) -> npt.NDArray[np.int64]:
    """Draw the times at which tokens become known.

    Args:
        timed: bool [B, T], true for tokens with a random time; the others are known from the
            beginning.
        rng: of the batch.
        permuted_length: tokens permuted among themselves: those of each stretch of this length are
            known before those of the next. None: all of a sequence.

    Returns:
        int64 [B, T], -1 for tokens known from the beginning; numbers in a sequence are distinct.
    """
    rows, length = timed.shape
    keys = rng.random((rows, length))
    if permuted_length is not None:
        keys += np.arange(length) // permuted_length
    ranks = np.empty((rows, length), np.int64)
    np.put_along_axis(ranks, keys.argsort(1, kind="stable"), np.arange(length)[None], 1)
    return np.where(timed, ranks, -1)


def _reversed(instance: Instance) -> Instance:
    """Reverse the text of an instance."""
    goes_on = instance.goes_on
    return instance._replace(
        segments=tuple(ids[::-1] for ids in reversed(instance.segments)),
        documents=instance.documents[::-1],
        goes_on=None if goes_on is None else tuple(marks[::-1] for marks in reversed(goes_on)),
    )


# Denoising: the five corruptions of BART (Lewis et al. 2019, section 2.2), alone or in sequence.
#
# For each document in a sequence, in this order: its sentences are permuted; spans become one mask
# each (text infilling); single tokens become the mask; tokens are deleted; the text is rotated.
# Special tokens stay in place, so the corruption of one document does not extend into the next.
# Differences from the published code (facebookresearch/fairseq, ``DenoisingDataset``):
#
# - Sentences are those of the token store, where that code cuts at full stops; with some
#   probability all sentences of a sequence are permuted, where that code permutes a share of them.
# - Spans never overlap or touch, so there is a mask for each. They touch only if the share requires
#   it. For whole words (an option), lengths are counted in words, as in that code; else in tokens.
# - Inserted masks (spans of length 0) never make a text longer than it was, so that it fits the
#   model.
#
# All random draws come from the batch's numbers, sequence by sequence: a pure function of seed and
# step.

Ids = npt.NDArray[Any]


class DenoisingCollator:
    """The corruption of BART: corrupted texts, with the original texts as targets.

    Args:
        tokenizer: determines which ids are special, and has the mask.
        settings: of the sequences; whether spans consist of whole words.
        options: the corruptions and their rates.

    Raises:
        BertineError: the vocabulary has no mask.
    """

    def __init__(
        self, tokenizer: Tokenizer, settings: InstanceSettings, options: DenoisingOptions
    ) -> None:
        self.options = options
        self._mask = tokenizer.require_mask("denoising")
        self._padder = PaddingCollator(tokenizer, settings.input_format)
        self._continues = tokenizer.continues if settings.whole_word_mask else None
        self._idle = idle_options(settings, used=("whole_word_mask",))

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List the options without effect, and warn if nothing is corrupted."""
        lines = [
            f"{name}: does nothing with objective denoising, which has shares of its own"
            for name in self._idle
        ]
        options = self.options
        if not any(value for name, value in options.values().items() if name.endswith("_share")):
            lines.append("no text is corrupted, so the model learns to copy; set infill_share")
        return lines

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch: the corrupted texts, and of the originals ``target_ids`` int64 [B, T'],
        padded, and ``target_mask`` bool [B, T'], true at their tokens."""
        numbers = draws.of_batch("denoising")
        original = self._padder.pad(instances)
        padded = self._padder.pad([self.corrupted(one, numbers) for one in instances])
        return padded.batch(
            padded.input_ids, target_ids=original.input_ids, target_mask=original.real
        )

    def corrupted(self, instance: Instance, numbers: np.random.Generator) -> Instance:
        """Return an instance with each of its documents corrupted."""
        options = self.options
        permutes = numbers.random() < options.permute_share
        rotates = numbers.random() < options.rotate_share
        segments = []
        seen = dict.fromkeys(("infill", "mask", "delete"), 0.0)
        for number, ids in enumerate(instance.segments):
            goes_on = self._goes_on(instance, number)
            if permutes and instance.sentences is not None:
                order = permuted(instance.sentences[number], numbers)
                ids, goes_on = ids[order], None if goes_on is None else goes_on[order]
            length = len(ids)
            count = _share_of(options.infill_share, length, seen, "infill")
            ids = infilled(
                ids,
                count,
                numbers,
                mask=self._mask,
                mean=options.infill_length,
                goes_on=goes_on,
            )
            ids = masked(
                ids, _share_of(options.mask_share, length, seen, "mask"), numbers, mask=self._mask
            )
            ids = deleted(ids, _share_of(options.delete_share, length, seen, "delete"), numbers)
            segments.append(rotated(ids, numbers) if rotates else ids)
        return Instance(tuple(segments), instance.documents)

    def _goes_on(self, instance: Instance, number: int) -> npt.NDArray[np.bool_] | None:
        """Return which tokens of a document continue a word; None: each is a unit by itself."""
        if self._continues is None:
            return None
        if instance.goes_on is not None:
            return instance.goes_on[number]
        known: npt.NDArray[np.bool_] = self._continues[instance.segments[number]]
        return known


def _share_of(share: float, length: int, seen: dict[str, float], name: str) -> int:
    """Return how many of the next `length` tokens of a sequence make up its `share`; the rounding
    remainder is carried to the next document."""
    before = round(seen[name])
    seen[name] += share * length
    return round(seen[name]) - before


def permuted(ends: Sequence[int], numbers: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the positions of a text's tokens with its sentences in a uniformly random order.

    Args:
        ends: where each sentence ends, the last one with the text.
    """
    begins = (0, *ends[:-1])
    order = numbers.permutation(len(ends))
    return np.concatenate([np.arange(begins[at], ends[at]) for at in order])


def infilled(
    ids: Ids,
    count: int,
    numbers: np.random.Generator,
    *,
    mask: int,
    mean: float = 3.0,
    goes_on: npt.NDArray[np.bool_] | None = None,
) -> Ids:
    """Replace spans of a text by one mask each (text infilling).

    Lengths are drawn until they add up to the count; the last one is cut to fit. The spans are at
    random positions, all arrangements without touching spans equally likely; masks for those of
    length 0 are at random positions in the rest.

    Args:
        ids: [N].
        count: tokens in spans, at most N.
        mask: the id of the mask.
        mean: of the Poisson distribution of the lengths.
        goes_on: bool [N], which tokens continue the word before; spans then consist of whole words,
            and both lengths and the replaced share count words. None: spans of tokens.

    Returns:
        The remaining tokens with the masks; not longer than N.
    """
    starts = np.arange(len(ids)) if goes_on is None else _starts_of_words(goes_on)
    units = len(starts)
    wanted = count if goes_on is None else round(count * units / max(1, len(ids)))
    if not wanted:
        return ids
    lengths, zeros = span_lengths(wanted, mean, numbers)
    free = units - int(lengths.sum())
    # If the kept units leave enough gaps, each span has one of its own.
    touching = len(lengths) > free + 1
    gaps = np.sort(numbers.choice(free + 1, len(lengths), replace=touching))
    begins = gaps + np.cumsum(lengths) - lengths
    edges = np.append(starts, len(ids))
    first, behind = edges[begins], edges[begins + lengths]
    hidden = np.zeros(len(ids) + 1, np.int64)
    np.add.at(hidden, first, 1)
    np.add.at(hidden, behind, -1)
    kept = np.cumsum(hidden[:-1]) == 0
    # A mask where each span begins: these and the kept tokens stay, in order.
    result = ids.astype(np.int64)
    result[first] = mask
    kept[first] = True
    result = result[kept]
    zeros = min(zeros, len(ids) - len(result))
    places = np.sort(numbers.integers(len(result) + 1, size=zeros))
    return np.insert(result, places, mask)


def span_lengths(
    count: int, mean: float, numbers: np.random.Generator
) -> tuple[npt.NDArray[np.int64], int]:
    """Draw lengths from a Poisson distribution until they add up to `count`; the last one is cut to
    fit. Return the lengths above 0, and the number of zeros."""
    drawn = np.zeros(0, np.int64)
    while drawn.sum() < count:
        drawn = np.append(drawn, numbers.poisson(mean, size=int(count / mean) + 8))
    totals = np.cumsum(drawn)
    last = int(np.searchsorted(totals, count))
    drawn = drawn[: last + 1].copy()
    drawn[-1] -= int(totals[last]) - count
    return drawn[drawn > 0], int((drawn == 0).sum())


def masked(ids: Ids, count: int, numbers: np.random.Generator, *, mask: int) -> Ids:
    """Replace `count` random tokens of a text, other than masks, by the mask (token masking)."""
    if not count:
        return ids
    usual = np.flatnonzero(ids != mask)
    result = ids.astype(np.int64)
    result[numbers.choice(usual, min(count, len(usual)), replace=False)] = mask
    return result


def deleted(ids: Ids, count: int, numbers: np.random.Generator) -> Ids:
    """Delete `count` random tokens of a text, but keep at least one (token deletion)."""
    count = min(count, len(ids) - 1)
    return ids if count <= 0 else np.delete(ids, numbers.choice(len(ids), count, replace=False))


def rotated(ids: Ids, numbers: np.random.Generator) -> Ids:
    """Rotate a text to begin with a uniformly random token; the part before it follows the end
    (document rotation)."""
    return np.roll(ids, -int(numbers.integers(len(ids))))


def _starts_of_words(goes_on: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return where words begin; the first token always does."""
    begins = ~goes_on
    begins[0] = True
    return np.flatnonzero(begins)
