"""The texts that a table of static vectors is made with: counted, and some of them kept.

Shape legend: V pieces of the vocabulary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertine.errors import BertineError
from bertine.inference.files.rows import open_texts, text_chunks, text_progress
from bertine.names import PlainFormat
from bertine.options.answering import PlainTexts
from bertine.options.distillation import DistillOptions
from bertine.options.names import option
from bertine.records.words import split_words
from bertine.tables.given import GivenTable, Source
from bertine.tables.streams import COMPRESSIONS
from bertine.text.tokenizer import Tokenizer

#: Different words that are counted; where there are more, those that came once are forgotten.
_MOST_WORDS = 1 << 20
#: Characters of a text that are kept: more than a teacher reads.
_LONGEST = 20_000


@dataclass
class TextCounts:
    """What was counted in a table of texts.

    Attributes:
        texts: how many, empty ones left out.
        empty: texts without a piece.
        words: of the words that were counted, how often each came.
        notes: what was mended while it was read.
    """

    texts: int = 0
    empty: int = 0
    words: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def reading_of(options: DistillOptions, source: Source) -> PlainTexts:
    """Return how the texts are read: of a ``.txt`` each line is one, unless a column is named.

    Raises:
        BertineError: several columns, or a format of files of labels.
    """
    column = options.text_columns
    if column is not None and not isinstance(column, str):
        if len(column) != 1:
            raise BertineError(f"{option('text_columns')}: name one column of texts")
        column = column[0]
    formats: tuple[PlainFormat, ...] = ("csv", "tsv", "jsonl", "text")
    chosen: PlainFormat | None = next((each for each in formats if each == options.format), None)
    if options.format is not None and chosen is None:
        raise BertineError(f"{option('format', options.format)} is not for plain texts")
    if chosen is None and column is None and not isinstance(source, GivenTable):
        name = Path(source)
        name = name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name
        chosen = "text" if name.suffix.lower() == ".txt" else None
    return PlainTexts(
        text_column=column, format=chosen, quotes=options.quotes, strict=options.strict
    )


def count_texts(
    source: Source, reading: PlainTexts, tokenizer: Tokenizer, *, words: bool, show: bool = True
) -> tuple[np.ndarray, TextCounts]:
    """Count pieces, texts and, where it is asked for, words, in bounded memory.

    Returns:
        int64 [V], how often each piece came; and what else was counted.

    Raises:
        BertineError: what reading the table raises.
    """
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    found = TextCounts()
    with open_texts(source, reading) as (table, column):
        with text_progress("count", source, table.layout, show=show) as advance:
            for rows, texts in text_chunks(table, column):
                ids, lengths = tokenizer.encode_flat(texts)
                counts += np.bincount(ids, minlength=len(counts))
                filled = int((lengths > 0).sum())
                found.texts += filled
                found.empty += len(texts) - filled
                if words:
                    _count_words(found.words, texts, tokenizer.lowercase)
                advance(len(rows))
        found.notes = table.stats.notes(table.name)
    return counts, found


def _count_words(counter: Counter[str], texts: list[str], lowercase: bool) -> None:
    for text in texts:
        text = text.lower() if lowercase else text
        counter.update(text[begin:end] for begin, end in split_words(text))
    # The rarest are forgotten until half as many are left, so that this is rarely to be done.
    least = 1
    while len(counter) > (_MOST_WORDS if least == 1 else _MOST_WORDS // 2):
        for word in [word for word, count in counter.items() if count <= least]:
            del counter[word]
        least += 1


def spread_texts(
    source: Source, reading: PlainTexts, tokenizer: Tokenizer, total: int, most: int
) -> list[str]:
    """Return at most `most` of the `total` texts that have pieces, spread evenly over the table."""
    step = max(1.0, total / most)
    kept: list[str] = []
    seen, wanted = 0, 0.0
    with open_texts(source, reading) as (table, column):
        for _, texts in text_chunks(table, column):
            _, lengths = tokenizer.encode_flat(texts)
            for text, length in zip(texts, lengths.tolist(), strict=True):
                if not length:
                    continue
                if seen >= wanted and len(kept) < most:
                    kept.append(text[:_LONGEST])
                    wanted += step
                seen += 1
    return kept
