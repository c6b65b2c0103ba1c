"""Search a collection that is kept: the Parquet file of texts and vectors that ``embed`` writes."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.names import AnswerPrecision, option
from bertine.core.scores import COARSE_ROUNDING, ROUNDING
from bertine.core.text import briefly
from bertine.data.parquet import batches_of, opened, plain_rows, rows_of
from bertine.data.streams import require_columns
from bertine.data.writer import json_text
from bertine.inference.embedding.embedder import Embedder, empty_texts
from bertine.inference.embedding.index import NearestRows, Neighbours, TextRow, search_all
from bertine.inference.embedding.vector_files import (
    VectorMetadata,
    hashed,
    no_vector,
    written_names,
)
from bertine.inference.embedding.vectors import unit
from bertine.inference.embedding.words import WordIndex, joined
from bertine.inference.rows import unmeasured
from bertine.tasks.base import Features
from bertine.tokenization.documents import choose_text_column

# Conditions on the columns of a row, such as ``lang = de and year >= 2020``.

#: A condition: whether the values of a row, by column, fulfil it.
Condition = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<mark>[!<>]=|[=<>(),])|(?P<word>[^\s"'()=<>!,]+)|$)"""
)
_NUMBER = re.compile(r"[-+]?\d{1,30}(\.\d{1,30})?(e[-+]?\d{1,2})?", re.IGNORECASE)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Most characters of a condition; each parenthesis and each "not" is a call within a call.
_LONGEST, _DEEPEST = 10_000, 50


class _Conditions:
    """Parse a condition: comparisons with ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` and
    ``in (a, b)``, joined by ``and``, ``or``, ``not`` and parentheses.

    A number without quotes is compared as a number, anything else as text. A missing value, or one
    that is no number where one is asked for, fulfils ``!=`` only.

    Attributes:
        columns: the columns that it names.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > _LONGEST:
            raise BertineError(f"a condition has more than {_LONGEST:,} characters; shorten it")
        self._tokens: list[tuple[str, str]] = []
        self._at = at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong(f"{text[at:].strip()[:1]} begins nothing, or is not closed")
            if match.lastgroup is not None:
                self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end() if match.lastgroup is not None else len(text)
        self.columns: list[str] = []
        self.matches = self._any(0)
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at][1]!r} stands behind its end")

    def _wrong(self, reason: str) -> BertineError:
        return BertineError(
            f"{briefly(self._text)} is no condition ({reason}); write column = value, with quotes "
            "around what has spaces, joined by and, or, not"
        )

    def _takes(self, *texts: str) -> str | None:
        """Return the next token, in lower case, and go on, if it is one of `texts`; else None."""
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if kind in ("", "quoted") or text.lower() not in texts:
            return None
        self._at += 1
        return text.lower()

    def _operand(self, what: str) -> tuple[str, bool]:
        """Return a name or a value, and whether it has quotes."""
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "its end")
        if kind in ("", "mark"):
            raise self._wrong(f"{what} is missing before {text}")
        self._at += 1
        return (text[1:-1], True) if kind == "quoted" else (text, False)

    def _any(self, depth: int) -> Condition:
        parts = [self._all(depth)]
        while self._takes("or"):
            parts.append(self._all(depth))
        return lambda row: any(part(row) for part in parts)

    def _all(self, depth: int) -> Condition:
        parts = [self._one(depth)]
        while self._takes("and"):
            parts.append(self._one(depth))
        return lambda row: all(part(row) for part in parts)

    def _one(self, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise self._wrong("it is nested too deeply")
        if self._takes("not"):
            inner = self._one(depth + 1)
            return lambda row: not inner(row)
        if self._takes("("):
            inner = self._any(depth + 1)
            if not self._takes(")"):
                raise self._wrong("a parenthesis is not closed")
            return inner
        column, _ = self._operand("a column")
        self.columns.append(column)
        if self._takes("in"):
            if not self._takes("("):
                raise self._wrong("'in' needs values in parentheses")
            compared = [_compared("=", *self._operand("a value"))]
            while self._takes(","):
                compared.append(_compared("=", *self._operand("a value")))
            if not self._takes(")"):
                raise self._wrong("a parenthesis is not closed")
            return lambda row: any(equal(row.get(column)) for equal in compared)
        comparison = self._takes(*_COMPARISONS)
        if comparison is None:
            raise self._wrong(f"no comparison follows {column!r}")
        fulfils = _compared(comparison, *self._operand("a value"))
        return lambda row: fulfils(row.get(column))


def _compared(comparison: str, text: str, quoted: bool) -> Callable[[Any], bool]:
    """Return the comparison of a value with the one that `text` stands for."""
    compare, otherwise = _COMPARISONS[comparison], comparison == "!="
    if (number := None if quoted else _number(text)) is None:

        def with_text(value: Any) -> bool:
            if isinstance(value, str):
                return compare(value, text)
            return otherwise if value is None else compare(json_text(value), text)

        return with_text

    def with_number(value: Any) -> bool:
        own = _number(value.strip()) if isinstance(value, str) else value
        if isinstance(own, bool) or not isinstance(own, int | float):
            return otherwise
        return compare(own, number)

    return with_number


def _number(text: str) -> int | float | None:
    match = _NUMBER.fullmatch(text)
    return None if match is None else float(text) if match[1] or match[2] else int(text)


# The file: texts, columns and vectors of its rows.


class VectorTable:
    """An open Parquet file of texts with vectors. Threads may share it, and it stays the file that
    was opened when another one takes its name.

    Attributes:
        path: its path.
        origin: how the vectors were made; None: another program has made them.
        text_column: the column of the texts.
        columns: the other columns, without those of the vectors and of the number of a document.
        rows: the number of texts, N.
        vectors: [N, D], mapped from a temporary file.
    """

    def __init__(self, path: Path | str, text_column: str | None = None) -> None:
        """
        Args:
            path: the file.
            text_column: the column of the texts; None: as ``embed`` recorded it, else ``text``,
                ``sentence``, or the only one.

        Raises:
            BertineError: the file cannot be read, or a row has no vector.
        """
        self.path, self.origin = Path(path), VectorMetadata.read(path)
        self._file, self._lock = opened(path), Lock()
        names = list(self._file.schema_arrow.names)
        self._vector = written_names(names)[0]
        if self._vector not in names:
            raise BertineError(f"{path}: has no vectors; write them with 'bertine embed'")
        recorded = "" if self.origin is None else self.origin.text_column
        others = [name for name in names if name != self._vector]
        self.text_column = choose_text_column(str(path), others, text_column or recorded or None)
        self._document = "" if self.origin is None else self.origin.document_column
        self.columns = [name for name in others if name not in (self.text_column, self._document)]
        metadata = self._file.metadata
        sizes = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
        self.rows, self._starts = metadata.num_rows, np.cumsum([0, *sizes])
        #: What was read last: row groups as tables of Arrow, and the rows of conditions.
        self._group = lru_cache(16)(self._read_group)
        self.fulfilling = lru_cache(16)(self._fulfilling)
        self.vectors = self._mapped()

    def _mapped(self) -> np.ndarray:
        """Copy the vectors to a file without a name, and map it, so that memory does not hold them.

        Raises:
            BertineError: a row has no vector, or one of another width.
        """
        import pyarrow.compute as pc

        rows, width, kind = 0, 0, np.dtype(np.float32)
        with os_errors(tempfile.gettempdir(), "writing to it"), tempfile.TemporaryFile() as handle:
            for batch in batches_of(self._file, self.path, columns=[self._vector]):
                column = batch.column(self._vector)
                try:
                    lengths = np.asarray(pc.list_value_length(column).fill_null(-1))
                    numbers = np.asarray(column.flatten())
                    kind = numbers.dtype if numbers.dtype == np.float16 else kind
                    numbers = numbers.astype(kind, copy=False)
                except (ValueError, TypeError, NotImplementedError):  # also those of Arrow
                    raise no_vector(self.path, rows + 1, self._vector, width) from None
                width = width or max(int(lengths[0]), 0)
                if (wrong := np.flatnonzero(lengths != width)).size or not width:
                    at = rows + 1 + int(wrong[0] if wrong.size else 0)
                    raise no_vector(self.path, at, self._vector, width)
                handle.write(numbers.tobytes())
                rows += len(column)
            handle.flush()
            if not rows:
                return np.empty((0, 0), kind)
            return np.memmap(handle, kind, "r", shape=(rows, width))

    def texts(self) -> Iterator[list[str]]:
        """Yield the texts, in parts."""
        with self._lock:
            for batch in batches_of(self._file, self.path, columns=[self.text_column]):
                rows = plain_rows(batch, self.path)
                yield ["" if (text := row[self.text_column]) is None else str(text) for row in rows]

    def documents(self) -> np.ndarray | None:
        """Return the number of each text's document, int64 [N], from 1; None: every text is one."""
        if not self._document:
            return None
        with self._lock:
            rows = rows_of(self._file, self.path, columns=[self._document])
            return np.array([row[self._document] for row in rows], dtype=np.int64)

    def _fulfilling(self, conditions: tuple[str, ...]) -> np.ndarray:
        """Return whether each row fulfils all of some conditions, [N].

        Raises:
            BertineError: one is no condition, or names a column that is not there.
        """
        parsed = [_Conditions(text) for text in conditions]
        known, named = [self.text_column, *self.columns], [n for c in parsed for n in c.columns]
        require_columns(str(self.path), known, named)
        with self._lock:
            rows = rows_of(self._file, self.path, columns=[*dict.fromkeys(named)])
            return np.array([all(one.matches(row) for one in parsed) for row in rows], dtype=bool)

    def take(self, rows: Iterable[int]) -> dict[int, TextRow]:
        """Return the rows of these numbers, from 0, with their texts and columns."""
        taken: dict[int, TextRow] = {}
        numbers = np.unique(np.fromiter(rows, dtype=np.int64))
        groups = np.searchsorted(self._starts, numbers, "right") - 1
        for group in np.unique(groups).tolist():
            some = numbers[groups == group]
            part = self._group(group).take(some - self._starts[group])
            for number, row in zip(some.tolist(), plain_rows(part, self.path), strict=True):
                text = row.pop(self.text_column)
                document = row.pop(self._document, None)
                taken[number] = TextRow("" if text is None else str(text), row, document)
        return taken

    def _read_group(self, group: int) -> Any:
        names = [self.text_column, *self.columns, *filter(None, [self._document])]
        with self._lock:
            return self._file.read_row_group(group, columns=names)


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

    def __init__(self, table: VectorTable, embedder: Embedder, tolerance: float = ROUNDING) -> None:
        """
        Args:
            table: the file.
            embedder: the embedder of the queries, which made the vectors.
            tolerance: cosines that differ by less are equal
                (:func:`~bertine.core.scores.ranking`).

        Raises:
            BertineError: the texts were changed since; the vectors have other dimensions.
        """
        self.table, self.embedder, self._tolerance = table, embedder, tolerance
        self.rows, self.notes = table.rows, list[str]()
        if table.rows and table.vectors.shape[1] != embedder.dimensions:
            raise BertineError(
                f"{table.path}: its vectors have {table.vectors.shape[1]} numbers, but the "
                f"model's have {embedder.dimensions}; name the model that made them, and the same "
                f"{option('dimensions')}"
            )
        digest, empty, seen = hashlib.sha256(), list[int](), 0
        for texts in table.texts():
            digest.update(hashed(texts))
            empty += (seen + at for at in empty_texts(embedder, texts))
            seen += len(texts)
        self.empty = np.array(empty, dtype=np.int64)
        made = table.origin and table.origin.texts
        if made and made != digest.hexdigest():
            raise BertineError(
                f"{table.path}: its vectors were made of other texts, or of these in another "
                "order; embed them again"
            )
        self._documents = table.documents()
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
        if (origin := table.origin) is None:
            raise BertineError(
                f"{path}: does not say how its vectors were made; write it with 'bertine embed'"
            )
        with model_of(path, origin, model) as named:
            embedder = Embedder.opened(
                named, **origin.settings(), device=device, **unmeasured(named, 0, device, precision)
            )
        asked = embedder.prompts.for_queries if query_prompt is None else query_prompt
        if asked is not None:
            embedder = embedder.with_prompt(asked)
        notes = origin.check(path, embedder, None)
        collection = cls(table, embedder, tolerance_of(origin.precision, origin.dtype))
        collection.notes += notes
        return collection

    def search(
        self,
        queries: Sequence[str],
        *,
        top: int = 10,
        where: str | Sequence[str] | None = None,
        hybrid: bool = False,
    ) -> list[Neighbours]:
        """Return the nearest rows of each query. Of a document in passages the best one stands for
        it.

        Args:
            queries: the texts, none of them empty.
            top: the number of rows.
            where: conditions on the columns, such as ``"lang = de and year >= 2020"``; all must be
                fulfilled.
            hybrid: join the ranking by vectors with one by words (BM25). The scores are then sums
                of reciprocal ranks, not cosines.

        Raises:
            BertineError: a condition cannot be read, or names another column; no word of a query
                has a vector.
        """
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
        where: str | Sequence[str] | None = None,
        hybrid: bool = False,
    ) -> NearestRows:
        """Search as :meth:`search` does, with the vectors of the queries, `asked` fp32 [Q, D] of
        length 1."""
        left_out, seen = self.empty, self.rows
        if where := (where,) if isinstance(where, str) else tuple(where or ()):
            fulfilled = self.table.fulfilling(where)
            seen = int(fulfilled.sum())
            left_out = np.union1d(left_out, np.flatnonzero(~fulfilled))
        there = self.rows - len(left_out)
        deeper = hybrid or self._documents is not None
        depth = max(1, min(max(_DEPTH, 4 * top) if deeper else top, there))
        while True:
            found = NearestRows(len(asked), depth, self._tolerance)
            search_all(
                found, asked, self.table.vectors, name=str(self.table.path), left_out=left_out
            )
            ranked = [*zip(found.rows, found.scores, strict=True)]
            if hybrid:
                among = np.setdiff1d(np.arange(self.rows), left_out) if len(left_out) else None
                for at, query in enumerate(queries):
                    by_words = self.words.search(query, depth, among)
                    ranked[at] = joined(ranked[at][0].tolist(), [row for row, _ in by_words])
            ranked = [self._best_passages(rows, scores, top) for rows, scores in ranked]
            if depth >= there or all(len(rows) >= top for rows, _ in ranked):
                break
            depth = min(4 * depth, there)
        result = NearestRows(len(asked), top, 0.0 if hybrid else self._tolerance)
        for at, (rows, scores) in enumerate(ranked):
            result.add_rows(at, rows, scores)
        result.seen = seen
        result.documents = self.table.take(row for rows, _ in ranked for row in rows.tolist())
        return result

    def _best_passages(
        self, rows: np.ndarray, scores: np.ndarray, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the first `top` rows in order, the first of each document."""
        if self._documents is not None:
            _, first = np.unique(self._documents[rows], return_index=True)
            rows, scores = rows[np.sort(first)], scores[np.sort(first)]
        return rows[:top], scores[:top]

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
