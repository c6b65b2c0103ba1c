"""Words whose pieces are known already: looked up, and not tokenized again.

English text finds 19 of 20 words among the hundred thousand that came most often before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

#: Words that are remembered, and of how many characters at the most.
_REMEMBERED, _LONGEST = 1 << 17, 40

#: Words that are tokenized as one text, with [SEP] between them: a text costs `tokenizers` as
#: much as ten words.
_WORDS_OF_A_TEXT = 64

Ids = npt.NDArray[np.int32]

#: From texts to the ids of each.
Encode = Callable[[Sequence[str]], list[list[int]]]


class _Numbers(dict[str, int]):
    """A number for every word; one that is new gets the next, and is put on a list."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[str] = []
        self.count = 0

    def __missing__(self, word: str) -> int:
        number = self[word] = self.count
        self.count += 1
        self.fresh.append(word)
        return number


class RememberedWords:
    """The pieces of words, each tokenized once. Not for several threads at a time.

    When there are too many, those that came seldom are forgotten. Memory is bounded: about 40 MB,
    and the words of one call.

    Args:
        encode: tokenizes texts, without special tokens.
        separator_id: of [SEP], which `encode` knows in a text.
    """

    def __init__(self, encode: Encode, separator_id: int) -> None:
        self._encode = encode
        self._separator_id = separator_id
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        # By the number of a word: where its pieces are, how many, how often it came.
        self._starts = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int64)
        self._uses = np.zeros(0, np.int64)
        self._pieces: Ids = np.zeros(0, np.int32)

    def encode(self, words: Sequence[Sequence[str]]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """The pieces of the words of some texts.

        Returns:
            int32 [pieces], all one after the other; int64 [texts], how many each text has.
        """
        counts = np.fromiter(map(len, words), np.int64, len(words))
        if len(self._numbers) > _REMEMBERED or len(self._pieces) > 8 * _REMEMBERED:
            self._forget()
        numbers = np.fromiter(
            map(self._numbers.__getitem__, chain.from_iterable(words)), np.int32, int(counts.sum())
        )
        fresh, self._numbers.fresh = self._numbers.fresh, []
        if fresh:
            try:
                self._learn(fresh)
            except BaseException:
                self._clear()  # numbers without pieces
                raise
        if len(numbers) * 16 < len(self._uses):
            np.add.at(self._uses, numbers, 1)  # without a pass over all that are remembered
        else:
            self._uses += np.bincount(numbers, minlength=len(self._uses))
        ends = np.concatenate([[0], np.cumsum(self._lengths[numbers])])
        ids = self._gathered(numbers)
        for word in fresh:
            if len(word) > _LONGEST:
                del self._numbers[word]
        return ids, np.diff(ends[np.concatenate([[0], np.cumsum(counts)])])

    def __contains__(self, word: str) -> bool:
        return word in self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def _gathered(self, numbers: npt.NDArray[np.integer]) -> Ids:
        """The pieces of the words with these numbers."""
        lengths = self._lengths[numbers]
        shift = self._starts[numbers] - (np.cumsum(lengths) - lengths)
        return self._pieces[np.repeat(shift, lengths) + np.arange(int(lengths.sum()))]

    def _learn(self, words: list[str]) -> None:
        """Tokenize new words, whose numbers are the next ones."""
        alone = [len(word) > _LONGEST or "[SEP]" in word for word in words]
        short = [word for word, by_itself in zip(words, alone, strict=True) if not by_itself]
        texts = [
            "[SEP]".join(short[i : i + _WORDS_OF_A_TEXT])
            for i in range(0, len(short), _WORDS_OF_A_TEXT)
        ]
        separator = [self._separator_id]
        found = self._encode(texts)
        flat = np.fromiter(chain.from_iterable(chain(ids, separator) for ids in found), np.int32)
        ends = np.flatnonzero(flat == self._separator_id)
        lone = self._encode(
            [word for word, by_itself in zip(words, alone, strict=True) if by_itself]
        )
        lengths = np.zeros(len(words), np.int64)
        starts = np.zeros(len(words), np.int64)
        is_alone = np.array(alone)
        lengths[~is_alone] = np.diff(ends, prepend=-1) - 1
        lengths[is_alone] = [len(ids) for ids in lone]
        begin = len(self._pieces)
        starts[~is_alone] = begin + ends - lengths[~is_alone]
        # Of lone words, behind the others.
        starts[is_alone] = begin + len(flat) + np.cumsum(lengths[is_alone]) - lengths[is_alone]
        self._pieces = np.concatenate(
            [self._pieces, flat, np.fromiter(chain.from_iterable(lone), np.int32)]
        )
        self._starts = np.concatenate([self._starts, starts])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._uses = np.concatenate([self._uses, np.zeros(len(words), np.int64)])

    def _forget(self) -> None:
        """Keep the half of the words that came most often, and of them no count."""
        names = list(self._numbers)
        old = np.fromiter(self._numbers.values(), np.int64, len(names))
        kept = np.sort(np.argsort(-self._uses[old], kind="stable")[: _REMEMBERED // 2])
        pieces = self._gathered(old[kept])
        lengths = self._lengths[old[kept]]
        self._numbers = _Numbers()
        for place in kept.tolist():
            self._numbers[names[place]] = self._numbers.count
            self._numbers.count += 1
        self._pieces, self._lengths = pieces, lengths
        self._starts = np.cumsum(lengths) - lengths
        self._uses = np.zeros(len(lengths), np.int64)
