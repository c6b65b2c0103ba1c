"""A corpus as the words of sentences, read in both directions.

Shape legend: W words of the corpus with one mark for each sentence; B rows, T places of a window.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bertine.errors import BertineError
from bertine.models.elmo.characters import BEGIN, END
from bertine.models.elmo.characters import UNKNOWN as UNKNOWN
from bertine.names import WordSplitting
from bertine.records.words import split_words
from bertine.text.corpus import Corpus
from bertine.text.sentences import iter_sentences

#: The first words of every vocabulary, as published.
SPECIAL = (BEGIN, END, UNKNOWN)


@dataclass(frozen=True)
class WordCorpus:
    """The sentences of a corpus, in their order.

    Attributes:
        types: the different words.
        words: int32, of all sentences one after the other, indices of `types`.
        ends: int64, where each sentence ends in `words`.
        documents: int64, how many sentences there are up to the end of each document.
        notes: what was mended or left out.
    """

    types: list[str]
    words: np.ndarray
    ends: np.ndarray
    documents: np.ndarray
    notes: list[str]

    def fingerprint(self) -> str:
        """Return the SHA-256 of all words and where sentences and documents end."""
        digest = hashlib.sha256("\n".join(self.types).encode("utf-8", "replace"))
        for part in (self.words, self.ends, self.documents):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @property
    def num_targets(self) -> int:
        """W: every word is a target, and the end of every sentence."""
        return len(self.words) + len(self.ends)


def read_words(corpus: Corpus, splitting: WordSplitting, language: str = "en") -> WordCorpus:
    """Read a corpus: with "spaces" each line is a sentence and words stand between spaces; with
    "punctuation" documents are divided into sentences, and these into words.

    Raises:
        BertineError: what reading the corpus raises; it has no words.
    """
    number: dict[str, int] = {}
    words, ends, documents = array("i"), array("q"), array("q")
    for document in corpus:
        for sentence in _sentences(document.text, splitting, language):
            if sentence:
                words.extend(number.setdefault(word, len(number)) for word in sentence)
                ends.append(len(words))
        documents.append(len(ends))
    if not len(words):
        raise corpus.no_text()
    return WordCorpus(
        list(number),
        np.array(words, dtype=np.int32),
        np.array(ends, dtype=np.int64),
        np.array(documents, dtype=np.int64),
        corpus.stats.lines()[1:],
    )


def _sentences(text: str, splitting: WordSplitting, language: str) -> Iterator[list[str]]:
    # A mark that stands in the text itself would be read as the end of a sentence.
    if splitting == "spaces":
        for line in text.split("\n"):
            yield [word for word in line.split() if word not in SPECIAL]
        return
    for sentence in iter_sentences(text, language):
        yield [sentence[begin:end] for begin, end in split_words(sentence)]


def vocabulary_of(corpus: WordCorpus, min_count: int, most: int | None) -> list[str]:
    """Return the words of a softmax: the three marks, then by how often they are there, as sampling
    wants them.

    Args:
        min_count: rarer words are left out.
        most: words at the most, the marks among them; None: all.

    Raises:
        BertineError: no word is left.
    """
    counts = np.bincount(corpus.words, minlength=len(corpus.types))
    order = sorted(np.flatnonzero(counts >= min_count), key=lambda at: (-counts[at], at))
    kept = order if most is None else order[: max(0, most - len(SPECIAL))]
    if not kept:
        raise BertineError(
            f"no word is there {min_count} times, so the vocabulary is empty; lower min_count or "
            "give more text"
        )
    return [*SPECIAL, *(corpus.types[at] for at in kept)]


@dataclass(frozen=True)
class Windows:
    """A step's words, for one direction.

    Attributes:
        inputs: int64 [T, B], indices of a corpus's types; -1 the begin of a sentence, -2 its end.
        targets: int64 [T, B], ids of the vocabulary.
    """

    inputs: np.ndarray
    targets: np.ndarray


def stream_of(
    corpus: WordCorpus, ids: np.ndarray, sentences: np.ndarray, direction: str
) -> tuple[np.ndarray, np.ndarray]:
    """Lay sentences end to end in one direction.

    Args:
        ids: int64, the id of each type of the corpus.
        sentences: int64, their numbers in the order to read.

    Returns:
        Inputs (types; -1 and -2 the ends of sentences) and targets (ids), int64 [W] of these
        sentences.
    """
    starts = np.concatenate([[0], corpus.ends[:-1]])
    forward = direction == "forward"
    lengths = corpus.ends[sentences] - starts[sentences]
    # Each sentence takes its words and one place: the mark it begins with as it is read.
    offsets = np.concatenate([[0], np.cumsum(lengths + 1)])
    inputs = np.empty(offsets[-1], dtype=np.int64)
    targets = np.empty(offsets[-1], dtype=np.int64)
    owner = np.repeat(np.arange(len(sentences)), lengths + 1)
    place = np.arange(offsets[-1]) - offsets[:-1][owner]
    first = starts[sentences][owner]
    last = first + lengths[owner] - 1

    def word(at: np.ndarray) -> np.ndarray:
        inside = (at >= 0) & (at < lengths[owner])
        where = first + at if forward else last - at
        return np.where(inside, corpus.words[np.where(inside, where, 0)], -3)

    inputs[:] = np.where(place == 0, -1 if forward else -2, word(place - 1))
    following = word(place)
    end = SPECIAL.index(END if forward else BEGIN)
    targets[:] = np.where(following == -3, end, ids[np.maximum(following, 0)])
    return inputs, targets


def rows_of(length: int, rows: int) -> list[tuple[int, int]]:
    """Divide a stream into about equal rows, longer ones first; begin and end of each."""
    parts = [len(part) for part in np.array_split(np.arange(length), min(rows, length))]
    return list(pairwise(np.concatenate([[0], np.cumsum(parts)]).tolist()))
