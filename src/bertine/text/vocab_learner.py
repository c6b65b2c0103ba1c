"""What all that learn a vocabulary have in common: the text that they learn from, in bounded parts,
and how well a vocabulary fits text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.text.corpus import Corpus
from bertine.text.pieces import bare
from bertine.text.tokenizer import Tokenizer
from bertine.text.wordpiece import MAX_CHARS_PER_WORD

#: Held-out text beyond this many characters is trained on after all: the figures are exact enough.
_MAX_HELD_OUT = 8_000_000

#: Longer lines are given to the trainer in parts, so that a line of 50 MB is counted as others are.
LINE_PART = 1 << 16

#: Encoded data and the like: words that nobody writes are not to shape the vocabulary.
_ENDLESS_WORD = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{{MAX_CHARS_PER_WORD + 1},}}")

#: Chinese characters, each of which is a word, and what other scripts write without a break.
WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+")

#: Lines that are measured at a time.
_MEASURED = 1024


@dataclass(frozen=True)
class Quality:
    """Counts of pieces and words of some text. A *word* has a letter or digit; marks do not count.

    Attributes:
        pieces: of the whole text.
        words: in it.
        word_pieces: pieces of its words.
        unknown: pieces that stand for what the vocabulary has not.
        single: pieces of one character among those of words.
    """

    pieces: int
    words: int
    word_pieces: int
    unknown: int
    single: int

    @property
    def fertility(self) -> float:
        """Pieces per word."""
        return self.word_pieces / max(self.words, 1)

    @property
    def unknown_share(self) -> float:
        """Share of unknown pieces."""
        return self.unknown / max(self.pieces, 1)

    @property
    def single_share(self) -> float:
        """Share of single characters among the pieces of words."""
        return self.single / max(self.word_pieces, 1)


class VocabLearner:
    """A learner of the vocabulary of one kind of tokenizer.

    Attributes:
        counts: whether the documents are counted before anything is learnt, by :meth:`count` for
            each and then :meth:`counted`: there is an alphabet to choose, without which characters
            are unknown.
        has_unknown: whether some characters are not in the vocabulary.
        alphabet_size, characters_seen, coverage, full_size: see
            :class:`bertine.text.vocab.VocabReport`; known when all is counted.
    """

    counts: bool = False
    has_unknown: bool = False
    alphabet_size: int
    characters_seen: int
    coverage: float = 1.0
    full_size: int = 0

    def count(self, text: str) -> None:
        """Count what is in a document."""

    def counted(self) -> None:
        """Decide what follows from the counts."""

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        raise NotImplementedError

    def measure(self, tokenizer: Tokenizer, lines: Sequence[str]) -> Quality:
        """Measure the vocabulary on text. A part of a character counts as one."""
        texts = [bare(name) for name in tokenizer.names]
        parts = np.array([self.is_part(token) for token in tokenizer.tokens])
        # Specials in brackets count as words here; in a corpus they are hardly ever met.
        is_word = parts | np.array([any(c.isalnum() for c in text) for text in texts])
        is_single = parts | np.array([len(text) == 1 for text in texts])
        begins_word = is_word & self.marks_word(tokenizer)
        pieces = words = unknown = word_pieces = singles = 0
        for begin in range(0, len(lines), _MEASURED):
            measured = lines[begin : begin + _MEASURED]
            ids, _ = tokenizer.encode_flat(measured)
            pieces += len(ids)
            unknown += int((ids == tokenizer.unk_token_id).sum()) if self.has_unknown else 0
            word_pieces += int(is_word[ids].sum())
            words += self.count_words(measured, begins_word[ids])
            singles += int((is_word & is_single)[ids].sum())
        return Quality(pieces, words, word_pieces, unknown, singles)

    def is_part(self, token: str) -> bool:
        """Tell whether a token is a part of a character."""
        return False

    def marks_word(self, tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
        """Return which pieces stand once in each word, bool [V]: its first ones."""
        return ~tokenizer.continues

    def count_words(self, lines: Sequence[str], begins_word: npt.NDArray[Any]) -> int:
        """Count the words of some lines; `begins_word` says of each of their pieces whether a word
        begins with it."""
        return int(begins_word.sum())


def training_lines(corpus: Corpus, hold_out_every: int, held_out: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each document; one of `hold_out_every` goes to `held_out` instead."""
    number = held_size = 0
    for document in corpus:
        group: list[str] = []
        for line in document.text.split("\n"):
            if not line or line.isspace():
                continue
            number += 1
            due = number % hold_out_every == 0
            if due and held_size < _MAX_HELD_OUT and len(line) <= LINE_PART:
                held_out.append(line)
                held_size += len(line)
                continue
            line = _ENDLESS_WORD.sub(" ", line)
            for begin in range(0, len(line), LINE_PART):
                group.append(line[begin : begin + LINE_PART])
        if group:
            yield group


def first_lines(corpus: Corpus) -> list[str]:
    """Return the beginning of the corpus, as much as would be held out."""
    lines: list[str] = []
    size = 0
    for document in corpus:
        for line in document.text[:_MAX_HELD_OUT].split("\n"):
            lines.append(line)
            size += len(line)
        if size >= _MAX_HELD_OUT:
            break
    return lines
