"""Read the texts to label, each once, and compute their vectors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import human_time, logger, plural, progress
from bertine.core.errors import BertineError
from bertine.core.text import listing
from bertine.data.examples import Example, open_table, row_texts
from bertine.data.in_memory import Source
from bertine.data.languages import model_for
from bertine.data.tables import TableRow
from bertine.data.workbooks import shown
from bertine.inference.embedding.collection import VectorTable
from bertine.inference.embedding.embed import KeptVectors
from bertine.inference.embedding.embedder import Embedder, empty_texts
from bertine.inference.embedding.vector_files import VectorMetadata
from bertine.inference.rows import open_texts, unmeasured
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import LabellingOptions, PlainTexts
from bertine.options.vectors import VectorOptions

#: Texts whose vectors are computed between two movements of the bar.
_AT_ONCE = 512
#: Computing is worth a line from so many seconds on.
_LONG = 2.0
#: A text, or the two of a pair.
Texts = tuple[str, ...]


@dataclass
class Pool:
    """The texts of a table, each once.

    Attributes:
        name: the name of the table.
        columns: its columns.
        text_columns: those of the texts.
        rows: the first row of each text; None: it is not in the table.
        labelled: the texts that have a label in the table, with their rows.
        notes: notes on what was left out or repaired.
    """

    name: str
    columns: list[str]
    text_columns: tuple[str, ...]
    rows: dict[Texts, TableRow | None]
    labelled: list[tuple[Texts, TableRow]]
    notes: list[str] = field(default_factory=list)


def label_of(value: Any) -> str:
    """Return the single label that a cell has."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return value.strip() if isinstance(value, str) else shown(value)


def read_pool(
    source: Source, reading: PlainTexts, label: str = "label", pair: Sequence[str] = ()
) -> Pool:
    """Read a table of texts, or of pairs of texts in two columns; `label` is the column of labels,
    if there is one.

    Raises:
        BertineError: the table cannot be read, has no texts, or a column is missing.
    """
    rows: dict[Texts, TableRow | None] = {}
    labelled: list[tuple[Texts, TableRow]] = []
    count = 0
    with contextlib.ExitStack() as stack:
        if pair:
            columns = tuple(pair)
            table = stack.enter_context(
                open_table(source, DataConfig.of(reading, DEFAULTS), columns)
            )
        else:
            table, column = stack.enter_context(open_texts(source, reading))
            columns = (column,)
        for row in table:
            texts = row_texts(table, row, columns)
            rows.setdefault(texts, row)
            count += 1
            if label in row.values and table.has_label(row, label):
                labelled.append((texts, row))
        notes = table.stats.notes(table.name)
    if not rows:
        raise BertineError(f"{table.name}: there are no texts")
    if len(rows) < count:
        again = plural(count - len(rows), "text")
        notes.append(f"{table.name}: {again} more than once, asked once")
    return Pool(table.name, list(table.columns), columns, rows, labelled, notes)


class PoolVectors:
    """The vectors of the texts of a pool, which it relieves of texts without content.

    Args:
        model: a model directory, or a loaded embedder; None: the best one for the language.
        pool: the texts.
        options: how they are computed, and the file of those that are there.

    Raises:
        BertineError: no such model; the vectors of the file are of another model, or other
            settings.
    """

    def __init__(
        self, model: Embedder | Path | str | None, pool: Pool, options: LabellingOptions
    ) -> None:
        table = None if options.vectors is None else VectorTable(options.vectors)
        precision = options.precision if table is None else table.origin.precision
        if model is None:
            model = model_for([Example(texts) for texts in pool.rows])
        size = sum(map(len, (text for texts in pool.rows for text in texts)))
        how = unmeasured(model, size, options.device, precision)
        self.embedder = Embedder.opened(model, **VectorOptions.of(options).values(), **how)
        self._kept = None
        if table is not None:
            made = VectorMetadata.of(self.embedder, table.origin.dtype)
            if other := table.origin.differing(made):
                raise BertineError(f"{table.path}: was made with another {listing(other)}")
            self._kept = KeptVectors(table)
        every = list(pool.rows)
        parts = (empty_texts(self.embedder, list(part)) for part in zip(*every, strict=True))
        blank = {at for part in parts for at in part}
        for at in blank:
            del pool.rows[every[at]]
        if blank:
            pool.notes.append(f"{plural(len(blank), 'text')} without content left out")
        if not pool.rows:
            raise BertineError(f"{pool.name}: no text has any content")
        self._pool = pool

    def of_labels(self, labels: Sequence[str]) -> np.ndarray | None:
        """Return the vectors of the names of classes, fp32 [K, D]; None: there are no names, or
        pairs, to which they cannot be compared."""
        if not labels or len(self._pool.text_columns) > 1:
            return None
        return self.embedder.embed([label.replace("_", " ") for label in labels])

    def of_texts(self, *, show: bool, advance: Callable[[int, int], None]) -> np.ndarray:
        """Return the vectors of the texts, fp32 [N, D], or of pairs, [N, 2D]: how far the two
        vectors are apart in each direction, and their product. Those in the file are not computed.

        Args:
            show: a bar on stderr.
            advance: called with the number of vectors so far and that of all; may raise.
        """
        every = list(self._pool.rows)
        distinct = list(dict.fromkeys(text for texts in every for text in texts))
        vectors = np.zeros((len(distinct), self.embedder.dimensions), dtype=np.float32)
        new = []
        for row, text in enumerate(distinct):
            if self._kept is None or (vector := self._kept.take(text)) is None:
                new.append(row)
            else:
                vectors[row] = vector
        began = time.monotonic()
        with progress(show=show) as bar:
            job = bar.add_task("embed", total=len(new))
            for begin in range(0, len(new), _AT_ONCE):
                advance(begin, len(new))
                part = new[begin : begin + _AT_ONCE]
                vectors[part] = self.embedder.embed([distinct[row] for row in part])
                bar.update(job, completed=begin + len(part))
        seconds = time.monotonic() - began
        if show and seconds > _LONG:
            speed = f"{len(new) / seconds:,.0f} a second"
            logger.info(f"vectors of {plural(len(new), 'text')}: {human_time(seconds)} ({speed})")
        if len(self._pool.text_columns) == 1:
            return vectors
        places = {text: row for row, text in enumerate(distinct)}
        first, second = (
            vectors[[places[text] for text in part]] for part in zip(*every, strict=True)
        )
        return np.concatenate([np.abs(first - second), first * second], axis=1)
