"""Sentences in windows: what of a sentence, and of those around it, is read as one input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from bertine.records.sentences import Sentence
from bertine.tasks.base import Features
from bertine.tasks.tagging.word_pieces import WordPieces
from bertine.tasks.windows import Window
from bertine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class WordFeatures(Features):
    """A window of a sentence, ready to be padded into a batch; `row` is the sentence.

    Attributes:
        positions: int32 [w], the token that predicts each of the window's words, its first piece.
        words: int32 [w], which words of the sentence these are.
        tags: int64 [w], the ids of their tags; None when unknown.
        num_words: of the whole sentence.
    """

    positions: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    words: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    tags: np.ndarray | None = None
    num_words: int = 0


def sentence_bounds(
    items: Sequence[Sentence], document_context: bool
) -> Iterator[tuple[int, Sentence, int, int]]:
    """(row, sentence, first and after the last row that may be read with it): of its document, with
    `document_context` and where the file tells documents; else the sentence alone."""
    row = 0
    for document, group in groupby(items, key=lambda item: item.document):
        low, members = row, list(group)
        whole = document_context and document is not None
        for item in members:
            yield row, item, *((low, low + len(members)) if whole else (row, row + 1))
            row += 1


def word_window(
    row: int,
    item: Sentence,
    window: Window,
    sentence: int,
    pieces: WordPieces,
    tags: np.ndarray | None,
    tokenizer: Tokenizer,
) -> WordFeatures:
    """The features of one `window` of a sentence.

    Args:
        row: of the sentence.
        item: the sentence.
        sentence: the number of its first word among all words of `pieces`.
        tags: int64 [W], the ids of the tags of its W words; None when unknown.
    """
    ids, starts = pieces.read(window.begin, window.end)
    input_ids, segments = tokenizer.template.wrap(ids)
    (begin,) = tokenizer.template.one.starts([len(ids)])
    read = np.asarray(pieces.lengths[window.first : window.last], np.int32) > 0
    words = np.arange(window.first - sentence, window.last - sentence, dtype=np.int32)[read]
    offset = window.first - window.begin
    positions = starts[offset : offset + len(read)][read] + begin
    return WordFeatures(
        input_ids.astype(np.int32),
        segments,
        row=row,
        positions=positions.astype(np.int32),
        words=words,
        tags=None if tags is None else tags[words],
        num_words=len(item.words),
    )
