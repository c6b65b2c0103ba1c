"""Tables of questions: a row has a question, its context and, where it is known, the answer."""

from __future__ import annotations

import math
from typing import Any

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.records.span_examples import RawQuestion, SpanExamples, span_examples
from bertine.tables.column_names import missing_column, require_columns, untold
from bertine.tables.given import Source
from bertine.tables.table import Table, TableRow

#: The columns, where nobody names others. Where the answer begins and the id may be missing.
TEXT_COLUMNS = ("question", "context")
ANSWER_COLUMNS = ("answer", "answers")
START_COLUMN = "answer_start"
ID_COLUMN = "id"

_Answers = list[tuple[str, int | None]]


def read_span_table(
    path: Source,
    *,
    text_columns: tuple[str, ...] = (),
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
) -> SpanExamples:
    """Read a table of questions with their answers, whole.

    An empty answer says that the context has none; where a table has such a row, it is judged by
    the rules of SQuAD v2.0. ``answer_start`` is the character of the context that the answer
    begins at, counted from 0; where it is not said, the answer is looked for. ``id`` names the
    question; else its line does. In JSON lines the answer may also be null, or several: a list
    of ``{"text": …, "answer_start": …}``, or ``{"text": […], "answer_start": […]}``.

    Args:
        path: csv, tsv or JSON lines, see :class:`~bertine.tables.table.Table`.
        text_columns: of the question and of the context; empty: ``question`` and ``context``.
        label_column: of the answer; None: ``answer`` or ``answers``.

    Raises:
        BertineError: what the table raises; a column is missing; an answer or the place where it
            begins is of the wrong kind; there is no row.
    """
    columns = text_columns or TEXT_COLUMNS
    if len(columns) != 2:
        raise BertineError(f"spans take two text columns, question and context, not {len(columns)}")
    wanted = [*columns, *([label_column] if label_column else [])]
    raws: list[RawQuestion] = []
    with Table(path, format=format, wanted=wanted, quotes=quotes, strict=strict) as table:
        if table.layout.kind == "text":
            raise BertineError(
                f"{table.name}: its first line is not a header with columns for question and "
                "context; add one, or give the format (csv, tsv or jsonl)"
            )
        require_columns(table.name, table.columns, columns)
        label = label_column or next(
            (name for name in ANSWER_COLUMNS if name in table.columns), None
        )
        if label is None:
            raise untold(table.name, table.columns, "answer", option("label_column"))
        for row in table:
            name = row.values.get(ID_COLUMN)
            raws.append(
                RawQuestion(
                    str(row.line if name is None or name == "" else name),
                    row.line,
                    table.text(row, columns[0]),
                    table.text(row, columns[1]),
                    _answers(table, row, label),
                )
            )
        if not raws:
            raise BertineError(f"{table.name}: has a header, but no rows")
        return span_examples(
            table.name,
            (columns[0], columns[1]),
            label,
            raws,
            v2=any(raw.answers is not None and not raw.answers for raw in raws),
            notes=table.stats.notes(table.name),
        )


def _answers(table: Table, row: TableRow, label: str) -> _Answers:
    """Return the answers of a row: none where it is empty."""
    where = f"{table.name}:{row.line}"
    if label not in row.values:
        raise BertineError(missing_column(where, list(row.values), label))
    value = row.values[label]
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str):
        return [(value, _start(where, row.values.get(START_COLUMN)))]
    pairs: list[Any] = []
    if isinstance(value, list):
        pairs = [
            (item.get("text"), item.get("answer_start")) if isinstance(item, dict) else (item, None)
            for item in value
        ]
    elif isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list) and starts is None:
            starts = [None] * len(texts)
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise BertineError(
                f'{where}: {label!r} must have lists "text" and "answer_start" of the same length'
            )
        pairs = list(zip(texts, starts, strict=True))
    else:
        raise BertineError(f"{where}: {label!r} is {value!r}, but must be a text")
    answers: _Answers = []
    for text, start in pairs:
        if not isinstance(text, str):
            raise BertineError(f"{where}: an answer in {label!r} is {text!r}, but must be a text")
        answers.append((text, _start(where, start)))
    return answers


def _start(where: str, value: Any) -> int | None:
    """Return the character an answer begins at; None where that is not said. 12.0 is 12: a column
    with gaps is one of floats to pandas."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, float):
            return None if math.isnan(value) else int(str(value).removesuffix(".0"))
        return int(value.removesuffix(".0") if isinstance(value, str) else value)
    except (ValueError, TypeError):
        raise BertineError(
            f"{where}: {START_COLUMN} is {value!r}, but must be a whole number"
        ) from None
