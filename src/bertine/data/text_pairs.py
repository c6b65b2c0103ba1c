"""Read tables of similar texts: pairs, pairs with scores, texts with labels, plain texts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import PairKind, option
from bertine.core.text import briefly, number_in, row_at
from bertine.data.examples import as_columns, open_table
from bertine.data.in_memory import Source, reads_again
from bertine.data.streams import ambiguous_column_error, require_columns
from bertine.data.tables import Table, TableRow
from bertine.options.data import DataConfig

#: The usual names of the two texts, tried in this order.
USUAL_PAIRS = (
    *(("query", name) for name in ("match", "relevant", "positive", "answer", "passage")),
    *(("query", name) for name in ("document", "text")),
    ("anchor", "positive"),
    *(("question", name) for name in ("answer", "passage", "context", "text")),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_A", "sentence_B"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("question1", "question2"),
    ("first", "second"),
    *(("title", name) for name in ("body", "text", "abstract")),
)
#: Names of a pair's first text for which no score is needed: questions and titles.
_ASKING = ("query", "anchor", "question", "title")
_SCORES = ("score", "similarity", "similarity_score", "relatedness_score")
_LABELS = ("label", "class", "category", "topic")
_TEXTS = ("text", "sentence")
_NEGATIVE = "negative"
#: Parts of the name of a column that may mark a pair as not matching. For a title or a question
#: the further names are a subject, as of news.
_JUDGING = ("label", "duplicate", "relevan", "gold", "target", "judg")
_SORTING = ("class", "category", "topic")
#: The description of each kind.
KINDS: dict[PairKind, str] = {
    "pairs": "pairs of a text and its match",
    "scores": "pairs with a score",
    "labels": "texts with a label",
    "texts": "texts alone",
    "sentences": "texts, whose neighbouring sentences are pairs",
}


@dataclass(frozen=True)
class PairColumns:
    """The columns of a table of similar texts.

    Attributes:
        kind: the kind of the rows.
        texts: the single text column, or the two of a pair.
        negatives: columns of further texts, which do not match the first one.
        label: the column of the score or of the label; None if there is none.
    """

    kind: PairKind
    texts: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    label: str | None = None

    def line(self, source: str) -> str:
        """Describe the recognized columns."""
        words = [" + ".join(self.texts)]
        if self.label is not None:
            words.append(self.label)
        if self.negatives:
            words.append(f"wrong ones: {', '.join(self.negatives)}")
        return f"{source}: {KINDS[self.kind]} ({'; '.join(words)})"


@dataclass(frozen=True, slots=True)
class PairRow:
    """A row: its texts, first the one or two of the pair, then those that do not match; and its
    score or its label, if the table has them."""

    line: int
    texts: tuple[str, ...]
    score: float | None = None
    label: str | None = None


def find_pair_columns(
    table: Table,
    config: DataConfig,
    kind: PairKind | None = None,
    negative_columns: Sequence[str] | str | None = None,
) -> PairColumns:
    """Recognize the kind of `table` by the names of its columns, unless it is given.

    Args:
        config: names one or two text columns, and the column of the score or the label.
        kind: the kind; None: two texts and a score are pairs with scores, two texts are pairs, a
            text and a label are texts with labels, and a single text is a plain text.
        negative_columns: None: all whose name begins with ``negative``.

    Raises:
        BertineError: a column is missing or not recognized, or the kind needs other columns.
    """
    names, text_columns, label_column = table.columns, config.text_columns, config.label_column
    asked = [negative_columns] if isinstance(negative_columns, str) else negative_columns
    named = [*(asked or ()), *([label_column] if label_column is not None else [])]
    texts = _text_columns(table, kind, text_columns, named)
    if text_columns is None and kind in ("labels", "texts", "sentences"):
        texts = texts[:1]
    label = label_column
    if label is None and kind not in ("pairs", "texts", "sentences"):
        usual = _SCORES if len(texts) == 2 else _LABELS
        label = next((name for name in usual if name in names and name not in texts), None)
    if label is not None:
        require_columns(table.name, names, [label])
    result = kind or (
        ("scores" if label else "pairs") if len(texts) == 2 else ("labels" if label else "texts")
    )
    if result in ("pairs", "scores") and len(texts) != 2:
        raise BertineError(
            f"{table.name}: {KINDS[result]} need two columns of texts; name them with "
            f"{option('text_columns')}"
        )
    if result in ("labels", "texts", "sentences") and len(texts) != 1:
        raise BertineError(
            f"{table.name}: {KINDS[result]} have one column of texts, not {len(texts)}"
        )
    if result in ("scores", "labels") and label is None:
        what = "score" if result == "scores" else "label"
        raise ambiguous_column_error(table.name, names, what, option("label_column"))
    negatives: list[str] = [*(asked or ())]
    if asked is None and result == "pairs":
        negatives = [name for name in names if name.lower().startswith(_NEGATIVE)]
    if kind is None and label is None and len(texts) == 2:
        _refuse_unsaid(table, texts, negatives)
    require_columns(table.name, names, negatives)
    if negatives and result != "pairs":
        raise BertineError(f"{table.name}: {KINDS[result]} have no columns of wrong texts")
    used = label if result in ("scores", "labels") else None
    return PairColumns(result, texts, tuple(negatives), used)


def _refuse_unsaid(table: Table, texts: Sequence[str], negatives: Sequence[str]) -> None:
    """Refuse two texts with a label column that was not named: some pairs may not match.

    Raises:
        BertineError: there is such a column.
    """
    marks = _JUDGING if texts[0] in _ASKING else (*_JUDGING, *_SORTING)
    for name in table.columns:
        if name in (*texts, *negatives) or not any(mark in name.lower() for mark in marks):
            continue
        raise BertineError(
            f"{table.name}: has two texts and a column {name!r}; if that is a score, say "
            f"{option('label_column', name)}; if every row is a match, "
            f"{option('kind', 'pairs')}, or take the column out of the file"
        )


def _text_columns(
    table: Table,
    kind: PairKind | None,
    named: Sequence[str] | str | None,
    others: Sequence[str],
) -> tuple[str, ...]:
    """Return the columns of the texts, none of which is in `others`."""
    names = [name for name in table.columns if named is not None or name not in others]
    if named is not None:
        listed = (named,) if isinstance(named, str) else tuple(named)
        if len(listed) not in (1, 2) or len({*listed}) != len(listed):
            raise BertineError(f"{option('text_columns')} names one column or two")
        require_columns(table.name, names, listed)
        return listed
    if kind not in ("labels", "texts", "sentences"):
        for pair in USUAL_PAIRS:
            if all(name in names for name in pair):
                return pair
    for usual in _TEXTS:
        if usual in names and kind not in ("pairs", "scores"):
            return (usual,)
    rest = [
        name
        for name in names
        if name not in (*_SCORES, *_LABELS) and not name.lower().startswith(_NEGATIVE)
    ]
    if len(rest) == 1 or (len(rest) == 2 and kind not in ("labels", "texts", "sentences")):
        return tuple(rest)
    raise ambiguous_column_error(table.name, names, "texts", option("text_columns"))


@dataclass
class PairRows:
    """The rows of a table, read one at a time.

    Attributes:
        config, kind, negative_columns: see :func:`find_pair_columns`.
        columns: the recognized columns; known when the table is open.
        left_out: number of rows so far without a text, a score or a label.
        read: number of complete rows so far.
        fixes: notes on fixes to the text; known when all rows are read.
    """

    source: Source
    config: DataConfig = field(default_factory=DataConfig)
    kind: PairKind | None = None
    negative_columns: Sequence[str] | str | None = None
    left_out: int = 0
    read: int = 0
    fixes: list[str] = field(default_factory=list)

    def open_columns(self) -> PairColumns:
        """Find the columns, without reading the rows.

        Raises:
            BertineError: a column is missing or not recognized; the rows come from a pipe, which
                can be read only once.
        """
        if not reads_again(self.source):
            raise BertineError(
                f"{self.source}: is read several times, so it must be a file; save it as one"
            )
        with self._table() as table:
            return self._columns(table)

    def names(self) -> list[str]:
        """Return the names of all columns."""
        with open_table(self.source, self.config, ()) as table:
            return list(table.columns)

    def fingerprint(self) -> str:
        """Compute the SHA-256 of all rows, as hex digits, and count the rows left out."""
        digest = hashlib.sha256()
        for row in self:
            digest.update(repr((row.texts, row.score, row.label)).encode())
        return digest.hexdigest()

    def _table(self) -> Table:
        return open_table(self.source, self.config, as_columns(self.config.text_columns))

    def _columns(self, table: Table) -> PairColumns:
        return find_pair_columns(table, self.config, self.kind, self.negative_columns)

    def __iter__(self) -> Iterator[PairRow]:
        self.left_out = self.read = 0
        with self._table() as table:
            columns = self._columns(table)
            for row in table:
                result = _read(table, row, columns)
                if result is None:
                    if self.config.strict:
                        raise BertineError(
                            f"{row_at(table.name, row.line)}: a text, the score or the label is "
                            "empty"
                        )
                    self.left_out += 1
                else:
                    self.read += 1
                    yield result
            self.fixes = table.stats.notes(table.name)

    def notes(self) -> list[str]:
        """Return notes on rows left out and fixes, when all rows are read."""
        if not self.left_out:
            return self.fixes
        rows = plural(self.left_out, "row", "without", "without")
        return [f"{self.source}: left out {rows} a text, a score or a label", *self.fixes]


def _read(table: Table, row: TableRow, columns: PairColumns) -> PairRow | None:
    texts = []
    for name in columns.texts:
        if row.values.get(name) is None:
            return None
        text = table.text(row, name).strip()
        if not text:
            return None
        texts.append(text)
    for name in columns.negatives:
        texts += _texts_of(table, row, name)
    if columns.label is None:
        return PairRow(row.line, tuple(texts))
    if not table.has_label(row, columns.label):
        return None
    label = table.label(row, columns.label)
    if columns.kind == "labels":
        return PairRow(row.line, tuple(texts), label=label)
    score = number_in(label)
    if not math.isfinite(score):
        raise BertineError(
            f"{row_at(table.name, row.line)}: the score {columns.label!r} is {briefly(label)}, but "
            "must be a number"
        )
    return PairRow(row.line, tuple(texts), score=score)


def _texts_of(table: Table, row: TableRow, name: str) -> list[str]:
    """Return the texts of a cell, which may hold none, one, or a list."""
    value = row.values.get(name)
    if value is None:
        return []
    if isinstance(value, list):
        if not all(isinstance(text, str) for text in value):
            raise BertineError(f"{row_at(table.name, row.line)}: {name!r} must hold texts only")
        return [text.strip() for text in value if text.strip()]
    text = table.text(row, name).strip()
    return [text] if text else []
