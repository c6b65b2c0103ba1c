"""Put the special tokens around one text and around two.

A model reads its texts between special tokens: BERT ``[CLS] a [SEP] b [SEP]``, RoBERTa ``<s> a
</s></s> b </s>``, GPT-1 ``_start_ a _delimiter_ b _classify_``, XLNet ``a <sep> b <sep> <cls>``. A
:class:`Template` says where they stand. Whoever needs a sequence, its length, its segments or the
place of a text in it asks the template, and counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Segments = npt.NDArray[np.int8]
T = TypeVar("T")


@dataclass(frozen=True)
class Frame:
    """The special tokens of a sequence that is made of a number of texts.

    Attributes:
        before: ids in front of the first text.
        between: ids between two texts that follow each other.
        after: ids behind the last text.
        marks: the segment of each of these ids and of each text, in the order of the sequence;
            None: 0 throughout.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    marks: tuple[int, ...] | None = None

    def added(self, texts: int = 1) -> int:
        """Count the special tokens of a sequence of `texts` texts."""
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def starts(self, lengths: Sequence[int]) -> list[int]:
        """Return the place of each text's first piece in a sequence of texts of these lengths."""
        places, place = [], len(self.before)
        for length in lengths:
            places.append(place)
            place += length + len(self.between)
        return places

    def arrays(
        self, dtype: npt.DTypeLike = np.int32
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return :attr:`before`, :attr:`between` and :attr:`after` as arrays."""
        before, between, after = (
            np.array(ids, dtype) for ids in (self.before, self.between, self.after)
        )
        return before, between, after

    def join(self, texts: Sequence[Sequence[int]]) -> list[int]:
        """Return the ids of a sequence of texts."""
        ids = list(self.before)
        for number, text in enumerate(texts):
            ids += self.between if number else ()
            ids += text
        return ids + list(self.after)

    def lay(self, texts: Sequence[Sequence[T]], special: T) -> list[T]:
        """Return a sequence of values: those of each text's pieces, and `special` in the place of
        each special token."""
        values = [special] * len(self.before)
        for number, text in enumerate(texts):
            values += [special] * (len(self.between) if number else 0)
            values += text
        return values + [special] * len(self.after)

    def segments(self, lengths: Sequence[int]) -> Segments:
        """Return the segment (token type) of each place of a sequence of texts of these lengths."""
        total = sum(lengths) + self.added(len(lengths))
        if self.marks is None:
            return np.zeros(total, np.int8)
        return np.repeat(np.array(self.marks, np.int8), self.lay([[n] for n in lengths], 1))


@dataclass(frozen=True)
class Template:
    """The places of the special tokens of a vocabulary; each None is a text.

    Segments are counted for every template, whether or not a model reads them: 0 is the first text
    with the special tokens before and behind it, 1 begins at the first piece of the second text.
    (So of RoBERTa's two separators both belong to the first text.) A model that has them otherwise
    names them.

    Attributes:
        single: the sequence of one text.
        pair: the sequence of two texts.
        separator: stands between two stretches of running text, the end of one document and the
            beginning of the next, in a sequence of pre-training; None: nothing does.
        single_segments: the segment of each entry of `single`; None: as above.
        pair_segments: the segment of each entry of `pair`; None: as above.

    Raises:
        ValueError: there is not one text in `single`, not two in `pair`, or not a segment for each
            entry.
    """

    single: tuple[int | None, ...]
    pair: tuple[int | None, ...]
    separator: int | None = None
    single_segments: tuple[int, ...] | None = None
    pair_segments: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for entries, segments, texts in (
            (self.single, self.single_segments, 1),
            (self.pair, self.pair_segments, 2),
        ):
            if entries.count(None) != texts:
                raise ValueError(f"{entries} has {entries.count(None)} texts, not {texts}")
            if segments is not None and len(segments) != len(entries):
                raise ValueError(f"{len(segments)} segments, but {len(entries)} entries")

    @property
    def sums_up_at_end(self) -> bool:
        """Whether nothing stands before a text, so that the token whose state stands for the whole
        sequence is the last one, and not the first."""
        return self.single[0] is None

    @cached_property
    def one(self) -> Frame:
        """The special tokens around one text."""
        place = self.single.index(None)
        return Frame(
            _ids(self.single[:place]), (), _ids(self.single[place + 1 :]), self.single_segments
        )

    @cached_property
    def two(self) -> Frame:
        """The special tokens around two texts."""
        first = self.pair.index(None)
        second = self.pair.index(None, first + 1)
        marks = self.pair_segments or (0,) * second + (1,) * (len(self.pair) - second)
        before, after = _ids(self.pair[:first]), _ids(self.pair[second + 1 :])
        return Frame(before, _ids(self.pair[first + 1 : second]), after, marks)

    @cached_property
    def running(self) -> Frame:
        """The special tokens around running text of one document or of several, all of it one
        segment."""
        between = () if self.separator is None else (self.separator,)
        return Frame(self.one.before, between, self.one.after)

    def frame(self, texts: int) -> Frame:
        """Return :attr:`one` or :attr:`two`."""
        return self.one if texts == 1 else self.two

    def added(self, texts: int = 1) -> int:
        """Count the special tokens around one text or two."""
        return self.frame(texts).added(texts)

    def wrap(self, first: Ids, second: Ids | None = None) -> tuple[Ids, Segments]:
        """Put the special tokens around one text or two.

        Args:
            first: the ids of a text's pieces.
            second: those of the second text of a pair.

        Returns:
            The ids of the sequence, int32, and its segments, int8.
        """
        if second is None:
            before, _, after = self._around_one
            ids = np.concatenate((before, first, after))
            if self.single_segments is None:
                return ids, np.zeros(len(ids), np.int8)
            return ids, self.one.segments((len(first),))
        before, between, after = self._around_two
        ids = np.concatenate((before, first, between, second, after))
        if self.pair_segments is None:
            segments = np.zeros(len(ids), np.int8)
            segments[len(before) + len(first) + len(between) :] = 1
            return ids, segments
        return ids, self.two.segments((len(first), len(second)))

    @cached_property
    def _around_one(self) -> tuple[Ids, Ids, Ids]:
        return self.one.arrays()

    @cached_property
    def _around_two(self) -> tuple[Ids, Ids, Ids]:
        return self.two.arrays()


def _ids(entries: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(index for index in entries if index is not None)
