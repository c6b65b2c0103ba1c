"""Keep what was answered about texts in a file that is whole after every answer.

The file has the columns of the texts' table, the labels, and a column of notes once there is one,
in the order of labelling. One label is written as it is. Several are joined by ``|``, or are a list
in JSON lines; none of them is an empty cell. Entities are a list of objects with start, end and
label, counted in code points. ``bertine finetune text``, ``multi-label`` and ``tagging`` read them.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertine.core.errors import BertineError
from bertine.core.files import atomic_file
from bertine.core.names import option
from bertine.core.text import briefly, row_at
from bertine.data.examples import row_texts
from bertine.data.label_sets import SEPARATORS, parsed_list
from bertine.data.lines import TableLayout
from bertine.data.tables import Table, TableRow
from bertine.data.writer import TableWriter, check_output, json_text
from bertine.inference.rows import unused
from bertine.labelling.pool import Pool, Texts, label_of

#: What a text gets: a label, any number of them, or labels of marked words.
Kind = Literal["one", "several", "spans"]
#: The label of a text to which none of the others belongs.
NONE = "none of these"
#: The layouts of the file, by its suffix.
_LAYOUTS = {
    ".csv": TableLayout("csv", ",", True),
    ".tsv": TableLayout("tsv", "\t"),
    ".jsonl": TableLayout("jsonl"),
}
#: Most characters of the name of a class.
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Answer:
    """What was answered about a text.

    Attributes:
        labels: its label, or its labels.
        spans: begin, end and label of the marked words, in code points.
        note: a note on it.
    """

    labels: tuple[str, ...] = ()
    spans: tuple[tuple[int, int, str], ...] = ()
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The labels, or those of the spans."""
        return self.labels or tuple(label for _, _, label in self.spans)


def check_label(name: str, kind: Kind) -> str:
    """Return the name of a class without the blanks around it.

    Raises:
        BertineError: it is empty, very long, has a damaged or a control character, or one that
            separates several labels.
    """
    name = " ".join(name.split())
    if not name or len(name) > _LONGEST_NAME or not name.isprintable() or "\ufffd" in name:
        raise BertineError(
            f"{briefly(name)} is no name for a label; give one of at most {_LONGEST_NAME} "
            "characters that can be printed"
        )
    if kind == "several" and any(sign in name for sign in SEPARATORS):
        raise BertineError(f"{briefly(name)}: where a text has several labels, no name has , ; |")
    return name


class AnswerFile:
    """The file of the answers.

    Args:
        path: a .csv, .tsv or .jsonl file.
        pool: the texts, whose columns the file has.
        label_column: the column of the labels.
        kind: what a text gets.

    Attributes:
        others: answers that are kept in the file, about texts that are not asked.

    Raises:
        BertineError: the name says no such format; it is the file of the texts, or a .tsv cannot
            hold them; the columns of texts and labels are the same.
    """

    def __init__(self, path: Path | str, pool: Pool, label_column: str, kind: Kind) -> None:
        self.path, self.kind, self._pool = Path(path), kind, pool
        check_output(path)
        if self.path.suffix.lower() not in _LAYOUTS:
            raise BertineError(f"{path}: name the file of labels .csv, .tsv or .jsonl")
        if Path(pool.name).exists() and self.path.exists() and self.path.samefile(pool.name):
            raise BertineError(
                f"{path}: is the file of the texts, of which only those with labels would be "
                f"left; name another with {option('out')}"
            )
        self.label_column = label_column
        if self.label_column in pool.text_columns:
            raise BertineError(f"{pool.name}: {self.label_column!r} is a column of texts")
        self.note_column = unused("note", [*pool.columns, label_column], "label_")
        self._layout = _LAYOUTS[self.path.suffix.lower()]
        if self._layout.kind == "tsv":
            cells = (value for row in pool.rows.values() if row for value in row.values.values())
            if any(sign in str(cell) for cell in cells for sign in "\t\r\n"):
                raise BertineError(
                    f"{path}: a text has a tab or a line break; name it .csv or .jsonl"
                )
        self._lines: dict[Texts, tuple[Answer, str]] = {}
        self._rows: dict[Texts, Mapping[str, Any]] = {}
        self.others: dict[Texts, Answer] = {}
        self._noted, self._stamp = False, self._stamped()

    def answer(self, row: TableRow, source: str) -> Answer:
        """Return what a row says.

        Raises:
            BertineError: its labels cannot be read.
        """
        value, note = row.values.get(self.label_column), row.values.get(self.note_column)
        note = note if isinstance(note, str) else ""
        try:
            if self.kind == "spans":
                items = json.loads(value or "[]") if isinstance(value, str) else value or []
                spans = ((one["start"], one["end"], one["label"]) for one in items)
                return Answer(
                    spans=tuple((int(a), int(b), check_label(c, "spans")) for a, b, c in spans),
                    note=note,
                )
            if self.kind == "one":
                return Answer((check_label(label_of(value), "one"),), note=note)
            if isinstance(value, str):
                parts = parsed_list(value)
                value = value.split("|") if parts is None else parts
            names = (check_label(str(name), "several") for name in value or () if str(name).strip())
            return Answer(tuple(dict.fromkeys(names)), note=note)
        except (BertineError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise BertineError(
                f"{row_at(source, row.line)}: {self.label_column!r} is {briefly(value)}, which is "
                "not as it is written here"
            ) from error

    def read(self) -> dict[Texts, Answer]:
        """Read what was answered before; empty if there is no file.

        Raises:
            BertineError: it has other columns.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            return {}
        answers: dict[Texts, Answer] = {}
        with Table(self.path) as table:
            wanted = {*self._pool.columns, self.label_column}
            lacking = sorted(wanted - {*table.columns})
            other = sorted({*table.columns} - wanted - {self.note_column})
            if lacking or (other and self._layout.kind != "jsonl"):
                what = f"no column {lacking[0]!r}" if lacking else f"a column {other[0]!r}"
                raise BertineError(
                    f"{self.path}: is there and has {what}, so it is not the file of the labels of "
                    f"{self._pool.name}; name another with {option('out')}"
                )
            for row in table:
                if self.kind == "one" and row.values[self.label_column] in (None, ""):
                    continue
                texts = row_texts(table, row, self._pool.text_columns)
                answers[texts] = self.answer(row, table.name)
                self._rows[texts] = row.values
        self.others = dict(answers)
        return answers

    def write(self, answers: Iterable[tuple[Texts, Answer]]) -> None:
        """Write all answers in place of those that are there.

        Raises:
            BertineError: it cannot be written, or another program has changed it since.
        """
        answers = [*answers, *self.others.items()]
        if self._stamped() != self._stamp:
            raise BertineError(
                f"{self.path}: was changed by another program, and is left as it is; end this one "
                "with Ctrl-C and start it again, which reads what is there"
            )
        noted = any(answer.note for _, answer in answers)
        if noted != self._noted:
            self._noted = noted
            self._lines.clear()
        columns = [*dict.fromkeys([*self._pool.columns, self.label_column])]
        columns += [self.note_column] * noted
        text = io.StringIO()
        writer = TableWriter(text, self._layout, columns)
        for texts, answer in answers:
            known = self._lines.get(texts)
            if known is not None and known[0] is answer:
                text.write(known[1])
                continue
            begin = text.tell()
            row = self._pool.rows.get(texts)
            values = {**self._rows.get(texts, {}), **(row.values if row else {})}
            values.pop(self.note_column, None)
            added = {self.label_column: self._value(answer)}
            if noted:
                added[self.note_column] = answer.note
            writer.write({**dict.fromkeys(columns), **values, **added})
            text.seek(begin)
            self._lines[texts] = answer, text.read()
        with atomic_file(self.path) as temporary:
            temporary.write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
        self._stamp = self._stamped()

    def _value(self, answer: Answer) -> Any:
        """Return the labels as they are written."""
        if self.kind == "one":
            return answer.labels[0]
        if self.kind == "several":
            return list(answer.labels) if self._layout.kind == "jsonl" else "|".join(answer.labels)
        keys = ("start", "end", "label")
        spans = [dict(zip(keys, span, strict=True)) for span in sorted(answer.spans)]
        return spans if self._layout.kind == "jsonl" else json_text(spans)

    def _stamped(self) -> tuple[int, int, int] | None:
        """Return what differs once a file is written again; None: there is none."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
