"""How well a vocabulary fits text, and who learns one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bertine.text.tokenizer import Tokenizer


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


class Learner(Protocol):
    """Learns the vocabulary of one kind of tokenizer.

    Attributes:
        counts: whether the documents are counted before anything is learnt, by :meth:`count` for
            each and then :meth:`counted`.
        alphabet_size, characters_seen, coverage, full_size: see
            :class:`bertine.text.vocab.VocabReport`; known when all is counted.
    """

    counts: bool
    alphabet_size: int
    characters_seen: int
    coverage: float
    full_size: int

    def count(self, text: str) -> None:
        """Count what is in a document."""
        ...

    def counted(self) -> None:
        """Decide what follows from the counts."""
        ...

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        ...

    def measure(self, tokenizer: Tokenizer, lines: Sequence[str]) -> Quality:
        """Measure the vocabulary on text."""
        ...
