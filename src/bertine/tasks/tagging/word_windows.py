"""Sentences in windows: what of a sentence, and of those around it, is read as one input. Each word
is predicted in exactly one window, with words around it as context.

Paper, section 5.3: the words of a document around a sentence help; and a sentence may be longer
than the model. Both are one thing: a window has a *core*, the words that it predicts, and context
on both sides, as much as fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from bertine.records.sentences import Sentence
from bertine.tasks.features import Features
from bertine.tasks.tagging.word_pieces import WordPieces
from bertine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Window:
    """The words from `begin` to before `end` are read, those from `first` to before `last` of
    them predicted."""

    begin: int
    end: int
    first: int
    last: int


def cover(
    lengths: Sequence[int], first: int, last: int, room: int, *, low: int, high: int
) -> list[Window]:
    """Make windows whose cores are, one after the other, the words from `first` to before `last`.

    Where these fit into one window, that is all. Else a core takes half of the room, so that every
    word has about a quarter of it or more as context on each side, but at the ends.

    Args:
        lengths: pieces of each word, none more than `room`.
        first, last: the words to predict, a sentence.
        room: pieces of a window, special tokens not counted.
        low, high: the words that may be read: the sentence itself, or the document around it.
    """
    cores: list[tuple[int, int]] = []
    if sum(lengths[first:last]) <= room:
        cores.append((first, last))
    else:
        begin, size = first, 0
        for word in range(first, last):
            if word > begin and size + lengths[word] > room // 2:
                cores.append((begin, word))
                begin, size = word, 0
            size += lengths[word]
        cores.append((begin, last))
    return [_widened(lengths, core, room, low, high) for core in cores]


def _widened(
    lengths: Sequence[int], core: tuple[int, int], room: int, low: int, high: int
) -> Window:
    """Make the window of a core: words are added at the side with fewer pieces of context, and at
    the other when that side has no more that fit."""
    begin, end = core
    free = room - sum(lengths[begin:end])
    left = right = 0
    while True:
        can_left = begin > low and lengths[begin - 1] <= free
        can_right = end < high and lengths[end] <= free
        if can_left and (left <= right or not can_right):
            begin -= 1
            left += lengths[begin]
            free -= lengths[begin]
        elif can_right:
            right += lengths[end]
            free -= lengths[end]
            end += 1
        else:
            return Window(begin, end, *core)


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
    """Yield (row, sentence, first and after the last row that may be read with it): of its
    document, with `document_context` and where the file tells documents; else the sentence
    alone."""
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
    """Make the features of one `window` of a sentence.

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
