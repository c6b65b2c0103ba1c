"""Words whose pieces are known already: looked up, and not tokenized again.

English text finds 19 of 20 words among the hundred thousand that came most often before.
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

# Text to pieces by the `tokenizers` library, in bounded memory: many texts in batches, a long one
# in parts that are cut where no piece crosses.

# Imported after `kind`, which says how `tokenizers` is to use threads.

#: The ids of a text's pieces, and the characters (begin, end) that each comes from.
Pieces = tuple[list[int], list[tuple[int, int]]]

# What is given to `tokenizers` at a time. It takes some hundred bytes of memory a character.
_TEXTS_AT_A_TIME = 4096
_CHARS_AT_A_TIME = 1 << 20
_CHARS_OF_A_PART = 1 << 16

_SURROGATES = re.compile(r"[\ud800-\udfff]")


class ChunkedEncoder:
    """The library `tokenizers` for texts of any number and length, in bounded memory.

    Args:
        kind: the tokenizer; says where texts may be cut.
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
                # Lone surrogates, which UTF-8 cannot hold.
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
                        # The space that a part begins with is none of its first piece, though the
                        # library may take it for one that was put before the text.
                        if part[0] == " " and spans[first:] and spans[first][0] == begin:
                            spans[first] = begin + 1, max(begin + 1, spans[first][1])
                if ends:
                    yield ids, spans

    def _spans(self, encoding: tokenizers.Encoding, part: str) -> list[tuple[int, int]]:
        return self._kind.spans(encoding.ids, encoding.offsets, part)

    def _batches(self, texts: Sequence[str]) -> Iterator[list[tuple[str, int, bool]]]:
        """Yield (part of a text, position of its first character, whether it is the last of its
        text) in batches of bounded size. Nearly every text is one part."""
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


#: Words that are remembered, and of how many characters at the most.
_REMEMBERED, _LONGEST = 1 << 17, 40

#: Words that are tokenized as one text, with a special token between them: a text costs
#: `tokenizers` as much as ten words.
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


class _Growing:
    """An array that grows at its end; what is there is copied when it has doubled, not each time:
    a server that meets a new word with every text would copy megabytes for it.

    Attributes:
        size: how many numbers there are.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._room, self.size = values, len(values)

    @property
    def values(self) -> npt.NDArray[Any]:
        """All of them; no copy."""
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
    """The pieces of words, each tokenized once. Not for several threads at a time.

    When there are too many, those that came seldom are forgotten. Memory is bounded: about 40 MB,
    and the words of one call.

    Args:
        encode: tokenizes texts, without special tokens.
        separator: a special token, which `encode` knows in a text, and which changes nothing in
            the pieces of what stands beside it.
        separator_id: its id.
    """

    def __init__(self, encode: Encode, separator: str, separator_id: int) -> None:
        self._encode = encode
        self._separator, self._separator_id = separator, separator_id
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        # By the number of a word: where its pieces are, how many, how often it came.
        self._starts = _Growing(np.zeros(0, np.int64))
        self._lengths = _Growing(np.zeros(0, np.int64))
        self._uses = _Growing(np.zeros(0, np.int64))
        self._pieces = _Growing(np.zeros(0, np.int32))

    def encode(self, words: Sequence[Sequence[str]]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return the pieces of the words of some texts.

        Returns:
            int32 [pieces], all one after the other; int64 [texts], how many each text has.
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
                self._clear()  # numbers without pieces
                raise
        uses = self._uses.values
        if len(numbers) < len(uses) // 8:
            np.add.at(uses, numbers, 1)  # the time that a short text takes is its own
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
        # Of lone words, behind the others.
        starts[is_alone] = begin + len(flat) + np.cumsum(lengths[is_alone]) - lengths[is_alone]
        self._pieces.extend(flat)
        self._pieces.extend(np.fromiter(chain.from_iterable(lone), np.int32))
        self._starts.extend(starts)
        self._lengths.extend(lengths)
        self._uses.extend(np.zeros(len(words), np.int64))

    def _forget(self) -> None:
        """Keep the half of the words that came most often, and of them no count."""
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
