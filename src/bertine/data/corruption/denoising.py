"""Corrupt texts that a model is to restore: the five ways of BART (Lewis et al. 2019, section 2.2),
by themselves or one after the other.

Of each document in a sequence, in this order: its sentences are permuted; spans become one mask
each (text infilling); tokens become the mask one by one; tokens are deleted; the text is rotated.
Special tokens stay where they are, so what is done to one document does not reach into the next.
What differs from the published code (facebookresearch/fairseq, ``DenoisingDataset``):

- Sentences are those of the token store, where that code cuts at full stops, and all sentences of a
  sequence change their order with a probability, where it permutes a share of them.
- Spans never overlap or touch, so there is a mask for each. Where the share asks for so many that
  they have to touch, they do. Of whole words (by option) the lengths are counted in words, as in
  that code; else in tokens.
- Masks that are put in (spans of length 0) never make a text longer than it was, so that it fits
  the model.

All is drawn from the batch's numbers, sequence by sequence: a pure function of seed and step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertine.data.batch import Batch
from bertine.data.corruption.base import Draws, idle_options
from bertine.data.corruption.padded import Padder
from bertine.data.instances.instance import Instance
from bertine.options.instances import InstanceSettings
from bertine.options.objectives import DenoisingOptions

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer

Ids = npt.NDArray[Any]


class TextCorruption:
    """Corrupted texts, and the texts as they were for targets.

    Args:
        tokenizer: says which ids are special, and has the mask.
        settings: of the sequences; whether spans are of whole words.
        options: which corruptions, and how much of each.

    Raises:
        BertineError: the vocabulary has no mask.
    """

    def __init__(
        self, tokenizer: Tokenizer, settings: InstanceSettings, options: DenoisingOptions
    ) -> None:
        self.options = options
        self._mask = tokenizer.require_mask("denoising")
        self._padder = Padder(tokenizer, settings.input_format)
        self._continues = tokenizer.continues if settings.whole_word_mask else None
        self._idle = idle_options(settings, used=("whole_word_mask",))

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List the options that do nothing, and say so when nothing is corrupted."""
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
        """Tell which tokens of a document go on with a word; None: each is a unit by itself."""
        if self._continues is None:
            return None
        if instance.goes_on is not None:
            return instance.goes_on[number]
        known: npt.NDArray[np.bool_] = self._continues[instance.segments[number]]
        return known


def _share_of(share: float, length: int, seen: dict[str, float], name: str) -> int:
    """Return how many of the next `length` tokens of a sequence make up its `share`: what rounding
    leaves over goes on to the next document."""
    before = round(seen[name])
    seen[name] += share * length
    return round(seen[name]) - before


def permuted(ends: Sequence[int], numbers: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the places of a text's tokens with its sentences in a random order, all orders alike.

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

    Lengths are drawn until they make up the count; what the last one has too much is cut off. The
    spans stand at random places, all arrangements without touching spans alike; masks for those
    of length 0 stand at random places among what is left.

    Args:
        ids: [N].
        count: tokens in spans, N at most.
        mask: the id of the mask.
        mean: of the Poisson distribution of the lengths.
        goes_on: bool [N], which tokens go on with the word before; spans are then of whole words,
            lengths count them, and so does the share of words that is replaced. None: of tokens.

    Returns:
        What is left, with the masks; not longer than N.
    """
    starts = np.arange(len(ids)) if goes_on is None else _starts_of_words(goes_on)
    units = len(starts)
    wanted = count if goes_on is None else round(count * units / max(1, len(ids)))
    if not wanted:
        return ids
    lengths, zeros = span_lengths(wanted, mean, numbers)
    free = units - int(lengths.sum())
    # Where the kept units leave as many gaps, each span has one of its own.
    touching = len(lengths) > free + 1
    gaps = np.sort(numbers.choice(free + 1, len(lengths), replace=touching))
    begins = gaps + np.cumsum(lengths) - lengths
    edges = np.append(starts, len(ids))
    first, behind = edges[begins], edges[begins + lengths]
    hidden = np.zeros(len(ids) + 1, np.int64)
    np.add.at(hidden, first, 1)
    np.add.at(hidden, behind, -1)
    kept = np.cumsum(hidden[:-1]) == 0
    # A mask where each span begins: kept tokens and these stay, in their order.
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
    """Draw lengths from a Poisson distribution until they add up to `count`; the last one is cut
    to it. Returns those above 0, and how many were 0."""
    drawn = np.zeros(0, np.int64)
    while drawn.sum() < count:
        drawn = np.append(drawn, numbers.poisson(mean, size=int(count / mean) + 8))
    totals = np.cumsum(drawn)
    last = int(np.searchsorted(totals, count))
    drawn = drawn[: last + 1].copy()
    drawn[-1] -= int(totals[last]) - count
    return drawn[drawn > 0], int((drawn == 0).sum())


def masked(ids: Ids, count: int, numbers: np.random.Generator, *, mask: int) -> Ids:
    """Replace `count` random tokens of a text by the mask, those that are masks already aside
    (token masking)."""
    if not count:
        return ids
    usual = np.flatnonzero(ids != mask)
    result = ids.astype(np.int64)
    result[numbers.choice(usual, min(count, len(usual)), replace=False)] = mask
    return result


def deleted(ids: Ids, count: int, numbers: np.random.Generator) -> Ids:
    """Leave out `count` random tokens of a text, but not the last one that is left (token
    deletion)."""
    count = min(count, len(ids) - 1)
    return ids if count <= 0 else np.delete(ids, numbers.choice(len(ids), count, replace=False))


def rotated(ids: Ids, numbers: np.random.Generator) -> Ids:
    """Let a text begin with any of its tokens, all alike; what stood before it follows its end
    (document rotation)."""
    return np.roll(ids, -int(numbers.integers(len(ids))))


def _starts_of_words(goes_on: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return where words begin, the first token in any case."""
    begins = ~goes_on
    begins[0] = True
    return np.flatnonzero(begins)
