"""Search a collection that is kept: the Parquet file of texts and vectors that ``embed`` writes."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.foreign_files import reading_outside
from bertine.core.names import AnswerPrecision, option
from bertine.core.scores import COARSE_ROUNDING, ROUNDING
from bertine.core.text import briefly
from bertine.data.parquet import batches_of, opened, plain_rows
from bertine.data.streams import require_columns
from bertine.data.writer import json_text
from bertine.inference.embedding.embedder import Embedder, empty_texts
from bertine.inference.embedding.index import NearestRows, Neighbours, TextRow, search_all
from bertine.inference.embedding.vector_files import DTYPES, VectorMetadata, hashed, written_name
from bertine.inference.embedding.vectors import unit
from bertine.inference.embedding.words import WordIndex, joined
from bertine.inference.rows import unmeasured
from bertine.tasks.base import Features
from bertine.tokenization.documents import choose_text_column

# Conditions on the columns of a row, such as ``lang = de and year >= 2020``.

_NAME = r"""("[^"]*"|'[^']*'|[^\s"'()=<>!,]++)"""
_COMPARISON = re.compile(
    rf"\s*{_NAME}\s*(?:([!<>]?=|<|>)\s*{_NAME}|in\s*\(((?:\s*{_NAME}\s*,)*\s*{_NAME})\s*\))"
    r"\s*(and\s|or\s|$)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?\d{1,30}(\.\d{1,30})?(e[-+]?\d{1,2})?", re.IGNORECASE)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Comparison(NamedTuple):
    """A comparison of a column with values, one of which must fit.

    A number without quotes is compared as a number, anything else as text. A missing value, or one
    that is no number where one is asked for, is only unequal.

    Attributes:
        column: the name of the column.
        sign: ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        values: the values, as they are written.
    """

    column: str
    sign: str
    values: list[str]

    def fits(self, value: Any) -> bool:
        """Return whether a value of the column fits."""
        return any(self._fits(value, text) for text in self.values)

    def _fits(self, own: Any, text: str) -> bool:
        other: Any = _number(text)
        if other is not None:
            own = _number(own.strip()) if isinstance(own, str) else own
            known = isinstance(own, int | float) and not isinstance(own, bool)
        else:
            own = own if own is None or isinstance(own, str) else json_text(own)
            other, known = _unquoted(text), own is not None
        return _SIGNS[self.sign](own, other) if known else self.sign == "!="


def alternatives(condition: str) -> list[list[Comparison]]:
    """Parse a condition: ``column = value`` or ``column in (a, b)``, joined by ``and`` and ``or``,
    with quotes around what has spaces.

    Returns:
        What ``or`` joins: lists of comparisons that must all fit.

    Raises:
        BertineError: it is no condition.
    """
    result, at, more = [list[Comparison]()], 0, "and"
    while more:
        match = _COMPARISON.match(condition, at)
        if match is None:
            raise BertineError(
                f"{briefly(condition)} is no condition at {briefly(condition[at:].strip(), 20)}; "
                "write column = value, != < <= > >= or column in (a, b), joined by and, or, with "
                "quotes around what has spaces"
            )
        if more == "or":
            result.append([])
        column, sign, value, several = match.group(1, 2, 3, 4)
        values = [value] if sign else [name[0] for name in re.finditer(_NAME, several)]
        result[-1].append(Comparison(_unquoted(column), sign or "=", values))
        at, more = match.end(), match.group(match.lastindex or 0).strip().lower()
    return result


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


def _number(text: str) -> int | float | None:
    match = _NUMBER.fullmatch(text)
    return None if match is None else float(text) if match[1] or match[2] else int(text)


# The file: texts, columns and vectors of its rows.


class VectorTable:
    """A Parquet file of texts with vectors, as it was when it was opened. Threads may share it.

    Attributes:
        path: its path.
        origin: how the vectors were made.
        text_column: the column of the texts.
        columns: the other columns, without those of the vectors and of the number of a document.
        rows: the number of texts, N.
        vectors: [N, D], mapped from a temporary file, so that memory does not hold them.
        documents: the number of each text's document from 1, int64 [N]; None: every text is one.
    """

    def __init__(self, path: Path | str, text_column: str | None = None) -> None:
        """
        Args:
            path: the file.
            text_column: the column of the texts; None: the one recorded, else ``text``,
                ``sentence``, or the only one.

        Raises:
            BertineError: the file cannot be read, does not say how its vectors were made, lacks
                one, or has other texts than they were made of.
        """
        origin = VectorMetadata.read(path)
        if origin is None:
            raise BertineError(
                f"{path}: does not say how its vectors were made; write it with 'bertine embed'"
            )
        self.path, self.origin = Path(path), origin
        with opened(path) as file:
            names, document = file.schema_arrow.names, origin.document_column
            vector = written_name("vector", names)
            others = [name for name in names if name != vector]
            with reading_outside(path):
                self._table = file.read(columns=others)
            self.vectors = self._mapped(file, vector)
        named = text_column or origin.text_column or None
        self.text_column, self.rows = choose_text_column(str(path), others, named), len(self._table)
        self.columns = [name for name in others if name not in (self.text_column, document)]
        self.documents = np.asarray(self._table[document]) if document else None
        self.fulfilling = lru_cache(16)(self._fulfilling)
        digest = hashlib.sha256()
        for texts in self.texts():
            digest.update(hashed(texts))
        if origin.texts not in ("", digest.hexdigest()):
            raise BertineError(
                f"{path}: its vectors were made of other texts, or of these in another order; "
                "embed them again"
            )

    def _mapped(self, file: Any, name: str) -> np.ndarray:
        """Copy the vectors to a file without a name, and map it.

        Raises:
            BertineError: a row has none, or one of another width.
        """
        import pyarrow as pa

        shape, kind = (len(self._table), self.origin.dimensions), DTYPES[self.origin.dtype]
        wanted = pa.list_(pa.from_numpy_dtype(kind), shape[1])
        with os_errors(tempfile.gettempdir(), "writing to it"), tempfile.TemporaryFile() as handle:
            for batch in batches_of(file, self.path, columns=[name]):
                lists: Any = dict(zip(batch.schema.names, batch.columns, strict=True)).get(name)
                if getattr(lists, "type", None) != wanted or lists.null_count:
                    raise BertineError(
                        f"{self.path}: {name!r} is not {shape[1]} numbers in each row; embed the "
                        "texts again"
                    )
                handle.write(np.asarray(lists.flatten()).tobytes())
            handle.flush()
            return np.memmap(handle, kind, "r", shape=shape) if shape[0] else np.empty(shape)

    def texts(self) -> Iterator[list[str]]:
        """Yield the texts, in parts."""
        for part in self._table[self.text_column].chunks:
            yield ["" if text is None else text for text in part.to_pylist()]

    def _fulfilling(self, condition: str) -> np.ndarray:
        """Return whether each row fulfils a condition (:func:`alternatives`), [N].

        Raises:
            BertineError: it is no condition, or names a column that is not there.
        """
        parsed = alternatives(condition)
        named = [*dict.fromkeys(part.column for parts in parsed for part in parts)]
        require_columns(str(self.path), [self.text_column, *self.columns], named)
        rows = plain_rows(self._table.select(named), self.path)
        fulfilled = (
            any(all(part.fits(row[part.column]) for part in parts) for parts in parsed)
            for row in rows
        )
        return np.fromiter(fulfilled, dtype=bool, count=self.rows)

    def take(self, rows: np.ndarray) -> dict[int, TextRow]:
        """Return the rows numbered `rows` int64 [N], from 0, with their texts and columns."""
        taken, document = {}, self.origin.document_column
        some = plain_rows(self._table.take(rows), self.path)
        for number, row in zip(rows.tolist(), some, strict=True):
            text = row.pop(self.text_column)
            taken[number] = TextRow(text or "", row, row.pop(document, None))
        return taken


# The search: by vectors, or by vectors and words.

#: The least number of rows of a ranking that are joined, or looked through for other documents.
_DEPTH = 100


class Collection:
    """A file of texts and vectors that ``embed`` wrote, for many searches. Threads may share it.

    Attributes:
        table: the file.
        embedder: the embedder of the queries.
        rows: the number of texts; with passages each is one.
        empty: the numbers of the texts that are empty, which are not compared, from 0.
        notes: notes on how the vectors and those of queries differ.
    """

    def __init__(self, table: VectorTable, embedder: Embedder) -> None:
        """
        Args:
            table: the file.
            embedder: the embedder of the queries.

        Raises:
            BertineError: another model made the vectors.
        """
        self.table, self.embedder, self.rows = table, embedder, table.rows
        self.notes = table.origin.check(table.path, embedder, None)
        self._tolerance = tolerance_of(table.origin.precision, table.origin.dtype)
        empty, seen = list[int](), 0
        for texts in table.texts():
            empty += (seen + at for at in empty_texts(embedder, texts))
            seen += len(texts)
        self.empty = np.array(empty, dtype=np.int64)
        self._words: WordIndex | None = None
        self._making = Lock()

    @classmethod
    def open(
        cls,
        path: Path | str,
        model: Embedder | Path | str | None = None,
        *,
        query_prompt: str | None = None,
        device: str | None = None,
        precision: AnswerPrecision = "auto",
    ) -> Collection:
        """Open a file that ``embed`` wrote, and the model that made it.

        Args:
            path: the file, Parquet.
            model: the model, as :func:`~bertine.embed` takes it; None: the one that the file
                records.
            query_prompt: the name of the model's prompt before queries, "" for none; None: its
                prompt for queries, else its default.
            device, precision: see :meth:`bertine.Embedder.load`; an embedder keeps its own.

        Raises:
            BertineError: the file cannot be read, or does not say how its vectors were made; the
                model is not there, or is another one.
        """
        table = VectorTable(path)
        with model_of(path, table.origin, model) as named:
            how = unmeasured(named, 0, device, precision)
            embedder = Embedder.opened(named, **table.origin.settings(), device=device, **how)
        asked = embedder.prompts.for_queries if query_prompt is None else query_prompt
        if asked is not None:
            embedder = embedder.with_prompt(asked)
        return cls(table, embedder)

    def search(
        self,
        queries: Sequence[str],
        *,
        top: int = 10,
        where: str | None = None,
        hybrid: bool = False,
    ) -> list[Neighbours]:
        """Return the nearest rows of each query. Of a document in passages the best one stands for
        it.

        Args:
            queries: a list of texts, none of them empty.
            top: the number of rows.
            where: a condition on the columns, such as ``"lang = de and year >= 2020"``
                (:func:`alternatives`); None: none.
            hybrid: join the ranking by vectors with one by words (BM25). The scores are then sums
                of reciprocal ranks, not cosines.

        Raises:
            BertineError: there is no query, or an empty one; a condition cannot be read, or names
                another column; no word of a query has a vector.
        """
        if isinstance(queries, str) or not queries or not all(text.strip() for text in queries):
            raise BertineError(
                f"queries is {queries!r:.40}; give a list of texts, none of them empty"
            )
        if top < 1:
            raise BertineError(f"top is {top}, but must be at least 1")
        asked = query_vectors(self.embedder, self.embedder.features(queries), queries)
        nearest = self.nearest(asked, queries, top, where, hybrid)
        return [
            Neighbours(query, nearest.seen, nearest.neighbours(at), [*self.notes])
            for at, query in enumerate(queries)
        ]

    def nearest(
        self,
        asked: np.ndarray,
        queries: Sequence[str],
        top: int,
        where: str | None = None,
        hybrid: bool = False,
    ) -> NearestRows:
        """Search as :meth:`search` does, with the vectors of the queries, `asked` fp32 [Q, D] of
        length 1."""
        left_out, seen = self.empty, self.rows
        if where is not None:
            fulfilled = self.table.fulfilling(where)
            seen = int(fulfilled.sum())
            left_out = np.union1d(left_out, np.flatnonzero(~fulfilled))
        there = self.rows - len(left_out)
        deeper = hybrid or self.table.documents is not None
        depth = max(1, min(max(_DEPTH, 4 * top) if deeper else top, there))
        while True:
            best = NearestRows(len(asked), depth, self._tolerance)
            name = str(self.table.path)
            search_all(best, asked, self.table.vectors, name=name, left_out=left_out)
            ranked = [*zip(best.rows, best.scores, strict=True)]
            if hybrid:
                among = np.setdiff1d(np.arange(self.rows), left_out) if len(left_out) else None
                for at, query in enumerate(queries):
                    by_words = self.words.search(query, depth, among)
                    ranked[at] = joined(ranked[at][0].tolist(), [row for row, _ in by_words])
            if (documents := self.table.documents) is not None:
                for at, (rows, scores) in enumerate(ranked):
                    first = np.sort(np.unique(documents[rows], return_index=True)[1])
                    ranked[at] = rows[first], scores[first]
            if depth >= there or all(len(rows) >= top for rows, _ in ranked):
                break
            depth = min(4 * depth, there)
        result = NearestRows(len(asked), top, 0.0 if hybrid else self._tolerance)
        for at, (rows, scores) in enumerate(ranked):
            result.add_rows(at, rows[:top], scores[:top])
        result.seen = seen
        result.documents = self.table.take(np.unique(np.concatenate(result.rows)))
        return result

    @property
    def words(self) -> WordIndex:
        """The index of the words of the texts, made when it is first asked for."""
        with self._making:
            if self._words is None:
                self._words = WordIndex(text for part in self.table.texts() for text in part)
        return self._words


@contextlib.contextmanager
def model_of(
    path: object, origin: VectorMetadata | None, model: Embedder | Path | str | None
) -> Iterator[Embedder | Path | str]:
    """Give the model to open: the one named, else the one recorded with the vectors in `path`.

    Raises:
        BertineError: there is neither; or in the block: the recorded one cannot be opened.
    """
    if model is not None:
        yield model
        return
    if origin is None or not origin.named:
        raise BertineError(f"{path}: does not name a model; name one ({option('model')})")
    try:
        yield origin.named
    except BertineError as error:
        raise BertineError(
            f"{path}: records that {origin.named} made its vectors, which cannot be opened here "
            f"({error}); name the model ({option('model')})"
        ) from error


def query_vectors(
    embedder: Embedder, features: Sequence[Features], queries: Sequence[str]
) -> np.ndarray:
    """Return the vectors of queries, fp32 [Q, D] of length 1.

    Raises:
        BertineError: none of a query's words has a vector; a number is NaN or infinite.
    """
    asked = unit(embedder.run(features))
    for query, vector in zip(queries, asked, strict=True):
        if not np.isfinite(vector).all():
            raise BertineError(
                f"{query!r}: its vector has a number that is NaN or infinite; compute in fp32 "
                f"({option('precision', 'fp32')})"
            )
        if embedder.unit == "word" and not vector.any():
            raise BertineError(f"{query!r}: none of its words has a vector")
    return asked


def tolerance_of(*types: str) -> float:
    """Return the tolerance for cosines of vectors that are computed and stored in these types."""
    return ROUNDING if {*types} == {"fp32"} else COARSE_ROUNDING
