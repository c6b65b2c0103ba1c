"""Tokenize text in bounded memory, and cache the pieces of words.

19 of 20 words of English text are among the hundred thousand most frequent earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bertine.tokenization.base import Kind

import tokenizers  # isort: skip
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

# Encoder: text to pieces by the `tokenizers` library in bounded memory: many texts in batches, a
# long one in parts, cut where no piece crosses.

#: The ids of a text's pieces, and the characters (begin, end) of each.
Pieces = tuple[list[int], list[tuple[int, int]]]

# Limits of one call of `tokenizers`. It needs some hundred bytes of memory per character.
_TEXTS_AT_A_TIME = 4096
_CHARS_AT_A_TIME = 1 << 20
_CHARS_OF_A_PART = 1 << 16

_SURROGATES = re.compile(r"[\ud800-\udfff]")


class ChunkedEncoder:
    """A wrapper of the library `tokenizers` for texts of any number and length, in bounded memory.

    Args:
        kind: the kind of tokenizer, which determines where texts may be cut.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind, self._cut = kind, kind.cut

    def encode(self, texts: Sequence[str], *, offsets: bool = True) -> Iterator[Pieces]:
        """Yield the pieces of each text in turn, without special tokens, not truncated; the offsets
        are empty unless asked for."""
        backend, prepared = self._kind.encoder, self._kind.prepared
        encode = backend.encode_batch if offsets else backend.encode_batch_fast
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for batch in self._batches(texts):
            strings = [part for part, _, _ in batch]
            if not offsets:
                strings = [self._shortened(part) for part in strings]
            try:
                encodings = encode(prepared(strings), add_special_tokens=False)
            except TypeError:
                # Lone surrogates, which UTF-8 cannot encode.
                strings = [_SURROGATES.sub("\ufffd", part) for part in strings]
                encodings = encode(prepared(strings), add_special_tokens=False)
            for encoding, (part, begin, ends) in zip(encodings, batch, strict=True):
                if begin == 0:
                    ids = encoding.ids
                    spans = self._spans(encoding, part) if offsets else []
                else:
                    ids += encoding.ids
                    if offsets:
                        first = len(spans)
                        spans += [(a + begin, b + begin) for a, b in self._spans(encoding, part)]
                        # The space at the start of a part does not belong to its first piece,
                        # though the library may take it for the one put before a text.
                        if part[0] == " " and spans[first:] and spans[first][0] == begin:
                            spans[first] = begin + 1, max(begin + 1, spans[first][1])
                if ends:
                    yield ids, spans

    def _spans(self, encoding: tokenizers.Encoding, part: str) -> list[tuple[int, int]]:
        return self._kind.spans(encoding.ids, encoding.offsets, part)

    def _batches(self, texts: Sequence[str]) -> Iterator[list[tuple[str, int, bool]]]:
        """Yield (part of a text, position of its first character, whether it is the last part of
        its text) in batches of bounded size. Nearly every text is one part."""
        batch: list[tuple[str, int, bool]] = []
        size = 0
        for text in texts:
            for part, begin in self._cuts(text):
                batch.append((part, begin, begin + len(part) == len(text)))
                size += len(part)
                if len(batch) >= _TEXTS_AT_A_TIME or size >= _CHARS_AT_A_TIME:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _cuts(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield `text` in parts of about `_CHARS_OF_A_PART` characters, cut where no piece
        crosses."""
        begin = 0
        while len(text) - begin > _CHARS_OF_A_PART:
            match = self._cut.search(text, begin + _CHARS_OF_A_PART)
            if match is None or match.end() == len(text):
                break
            yield text[begin : match.end()], begin
            begin = match.end()
        yield (text[begin:] if begin else text), begin

    def _shortened(self, part: str) -> str:
        return part if len(part) <= 2 * _CHARS_OF_A_PART else self._kind.shortened(part)


#: Most cached words, and most characters of one.
_REMEMBERED, _LONGEST = 1 << 17, 40

#: Words tokenized as one text, with a special token between them: for `tokenizers` a text costs as
#: much as ten words.
_WORDS_OF_A_TEXT = 64

Ids = npt.NDArray[np.int32]

#: Converts texts to the ids of each.
Encode = Callable[[Sequence[str]], list[list[int]]]


class _Numbers(dict[str, int]):
    """Numbers of words; a new word gets the next number and is added to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[str] = []
        self.count = 0

    def __missing__(self, word: str) -> int:
        number = self[word] = self.count
        self.count += 1
        self.fresh.append(word)
        return number


class _Growing:
    """An array that grows at its end; it is copied only when its size has doubled: a server that
    meets a new word with every text would otherwise copy megabytes each time.

    Attributes:
        size: number of elements.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._room, self.size = values, len(values)

    @property
    def values(self) -> npt.NDArray[Any]:
        """All elements; not a copy."""
        return self._room[: self.size]

    def extend(self, more: npt.NDArray[Any]) -> None:
        end = self.size + len(more)
        if end > len(self._room):
            room = np.zeros(max(end, 2 * len(self._room)), self._room.dtype)
            room[: self.size] = self.values
            self._room = room
        self._room[self.size : end] = more
        self.size = end


class WordCache:
    """A cache of the pieces of words, each tokenized once. Not thread-safe.

    When it is full, rare words are dropped. Memory is bounded: about 40 MB, plus the words of one
    call.

    Args:
        encode: tokenizes texts, without special tokens.
        separator: a special token that `encode` recognizes in a text and that does not change the
            pieces of its neighbours.
        separator_id: its id.
    """

    def __init__(self, encode: Encode, separator: str, separator_id: int) -> None:
        self._encode = encode
        self._separator, self._separator_id = separator, separator_id
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        # By the number of a word: the offset of its pieces, their count, and the word's count.
        self._starts = _Growing(np.zeros(0, np.int64))
        self._lengths = _Growing(np.zeros(0, np.int64))
        self._uses = _Growing(np.zeros(0, np.int64))
        self._pieces = _Growing(np.zeros(0, np.int32))

    def encode(self, words: Sequence[Sequence[str]]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return the pieces of the words of some texts.

        Returns:
            int32 [pieces], of all texts in order; int64 [texts], the number of each.
        """
        counts = np.fromiter(map(len, words), np.int64, len(words))
        if len(self._numbers) > _REMEMBERED or self._pieces.size > 8 * _REMEMBERED:
            self._forget()
        numbers = np.fromiter(
            map(self._numbers.__getitem__, chain.from_iterable(words)), np.int32, int(counts.sum())
        )
        fresh, self._numbers.fresh = self._numbers.fresh, []
        if fresh:
            try:
                self._learn(fresh)
            except BaseException:
                self._clear()  # discard numbers without pieces
                raise
        uses = self._uses.values
        if len(numbers) < len(uses) // 8:
            np.add.at(uses, numbers, 1)  # faster than np.bincount over all words for a short text
        else:
            uses += np.bincount(numbers, minlength=len(uses))
        ends = np.concatenate([[0], np.cumsum(self._lengths.values[numbers])])
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
        """Return the pieces of the words with these numbers."""
        lengths = self._lengths.values[numbers]
        shift = self._starts.values[numbers] - (np.cumsum(lengths) - lengths)
        pieces: Ids = self._pieces.values[np.repeat(shift, lengths) + np.arange(int(lengths.sum()))]
        return pieces

    def _learn(self, words: list[str]) -> None:
        """Tokenize new words, whose numbers are the next ones."""
        alone = [len(word) > _LONGEST or self._separator in word for word in words]
        short = [word for word, by_itself in zip(words, alone, strict=True) if not by_itself]
        texts = [
            self._separator.join(short[i : i + _WORDS_OF_A_TEXT])
            for i in range(0, len(short), _WORDS_OF_A_TEXT)
        ]
        separator = [self._separator_id]
        encoded = self._encode(texts)
        flat = np.fromiter(chain.from_iterable(chain(ids, separator) for ids in encoded), np.int32)
        ends = np.flatnonzero(flat == self._separator_id)
        lone = self._encode(
            [word for word, by_itself in zip(words, alone, strict=True) if by_itself]
        )
        lengths = np.zeros(len(words), np.int64)
        starts = np.zeros(len(words), np.int64)
        is_alone = np.array(alone)
        lengths[~is_alone] = np.diff(ends, prepend=-1) - 1
        lengths[is_alone] = [len(ids) for ids in lone]
        begin = self._pieces.size
        starts[~is_alone] = begin + ends - lengths[~is_alone]
        # The pieces of single words, after the others.
        starts[is_alone] = begin + len(flat) + np.cumsum(lengths[is_alone]) - lengths[is_alone]
        self._pieces.extend(flat)
        self._pieces.extend(np.fromiter(chain.from_iterable(lone), np.int32))
        self._starts.extend(starts)
        self._lengths.extend(lengths)
        self._uses.extend(np.zeros(len(words), np.int64))

    def _forget(self) -> None:
        """Keep the half of the words that came most often, and reset their counts."""
        names = list(self._numbers)
        old = np.fromiter(self._numbers.values(), np.int64, len(names))
        kept = np.sort(np.argsort(-self._uses.values[old], kind="stable")[: _REMEMBERED // 2])
        pieces = self._gathered(old[kept])
        lengths = self._lengths.values[old[kept]]
        self._numbers = _Numbers()
        for place in kept.tolist():
            self._numbers[names[place]] = self._numbers.count
            self._numbers.count += 1
        self._pieces, self._lengths = _Growing(pieces), _Growing(lengths)
        self._starts = _Growing(np.cumsum(lengths) - lengths)
        self._uses = _Growing(np.zeros(len(lengths), np.int64))
