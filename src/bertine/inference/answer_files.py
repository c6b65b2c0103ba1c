"""Write tables of answers that can be resumed after a stop, and count what a model has read.

While the output ``answers.csv`` is written, the folder ``.answers.csv.unfinished`` holds the rows
so far (``rows``) and ``journal.json``: how many rows of the input are answered, how many bytes of
``rows`` these are, and everything that the answers depend on. After each chunk the rows are synced
first and the journal is replaced second. Bytes behind those of the journal belong to unfinished
rows and are cut off when the work is resumed: no row is lost, and none is written twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from bertine.core.console import Shown, human_time, logger, plural, visible_list
from bertine.core.errors import BertineError
from bertine.core.files import (
    atomic_file,
    lock_handle,
    os_errors,
    read_json_object,
    sha256_file,
    sync_path,
    write_json,
)
from bertine.core.names import option
from bertine.data.lines import TableLayout, first_numbers
from bertine.data.tables import Table, TableRow
from bertine.data.writer import TableWriter, check_output, convert_rows, is_converted, open_rows
from bertine.tasks.base import Features, cut_at
from bertine.tasks.unknown_text import UnknownText


@dataclass
class ResumableTable:
    """A table of rows that is being written to a file and can be resumed.

    Attributes:
        folder: the folder of the rows so far and of the journal.
        handle: the file of the rows.
        writer: writes a row to it.
        identity: everything that the rows depend on, by name.
        rows_done: rows of the input whose answers an earlier process has written.
        counts: the counts of the earlier process.
    """

    folder: Path
    handle: TextIO
    writer: TableWriter
    identity: Callable[[], dict[str, Any]]
    rows_done: int
    counts: dict[str, int]

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return _as_json(self.identity())

    def write(self, values: dict[str, Any], row: TableRow | None = None) -> None:
        """Write one row; see :meth:`~bertine.data.writer.TableWriter.write`."""
        self.writer.write(values, row)

    def commit(self, rows: int, counts: dict[str, int]) -> None:
        """Make the rows written so far durable.

        Args:
            rows: rows of the input that are answered so far.
            counts: whole numbers with which the next process continues.
        """
        self.handle.flush()
        os.fsync(self.handle.fileno())
        size = self.handle.buffer.tell()
        journal = {"format": 1, "rows": rows, "bytes": size, "counts": counts, "of": self._identity}
        write_json(self.folder / "journal.json", journal)


@contextlib.contextmanager
def open_resumable_table(
    output: Path,
    layout: TableLayout,
    columns: Sequence[str],
    identity: Callable[[], dict[str, Any]],
    *,
    resume: bool,
    source: Table,
) -> Iterator[ResumableTable]:
    """Open a :class:`ResumableTable` that becomes the file `output` when it is complete.

    After an exception the folder is kept if a chunk was committed, else it is removed.

    Args:
        output: the file; an existing one is replaced at the end.
        layout, columns: the layout and the columns of the rows.
        identity: everything that the rows depend on, by name, as JSON values. Called once, and only
            when there is something to commit or to compare.
        resume: continue from the rows that an earlier process has left; begin where there are none.
        source: the table whose rows are answered.

    Raises:
        BertineError: the format is one that cannot be written, another process is writing the
            table, or the rows left belong to another input, model, precision or setting.
    """
    check_output(output)
    target = Path(os.path.realpath(output))
    folder = target.with_name(f".{target.name}.unfinished")
    with os_errors(output, "writing it"), contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        stack.callback(os.close, lock)  # which unlocks it
        lock_handle(
            lock, f"{output}: another process is writing it; wait for it, or choose another output"
        )
        journal = folder / "journal.json"
        # A process may end just after its rows have become the output; the journal is still there
        # then.
        there = resume and journal.exists() and (folder / "rows").exists()
        left = _read_journal(journal) if there else None
        if left is not None:
            _compare(output, left["of"], _as_json(identity()))
        elif journal.exists():
            if not resume:
                logger.info(f"{output}: rows that an earlier process has left are dropped")
            journal.unlink()
        rows = folder / "rows"
        handle = stack.enter_context(open_rows(rows, output, layout, "r+" if left else "w"))
        if left is not None:
            if handle.seek(0, os.SEEK_END) < left["bytes"]:
                raise BertineError(f"{folder}: is damaged (rows are missing); predict anew")
            handle.truncate(left["bytes"])
            handle.seek(left["bytes"])
        try:
            yield ResumableTable(
                folder,
                handle,
                TableWriter(handle, layout, columns, header=left is None, source=source),
                identity,
                left["rows"] if left else 0,
                left["counts"] if left else {},
            )
            handle.flush()
            os.fsync(handle.fileno())
            if is_converted(output, layout):
                with atomic_file(output) as temporary:
                    convert_rows(rows, temporary, output, layout, columns)
            else:
                os.replace(rows, target)
                sync_path(target.parent)
        except BaseException:
            if journal.exists():
                logger.info(
                    f"{output}: the rows answered so far are kept; {option('resume', True)} goes on"
                )
            else:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def input_identity(path: str | Path) -> dict[str, Any]:
    """Identify a file by its size and a hash of its bytes, which takes far less time than the
    answers."""
    with os_errors(path, "reading it"):
        size = Path(path).stat().st_size
    return {"bytes": size, "sha256": sha256_file(path)}


def _read_journal(file: Path) -> dict[str, Any]:
    """Read the journal of an earlier process.

    Raises:
        BertineError: the file is damaged.
    """
    journal = read_json_object(file, lenient=True)
    whole = (
        isinstance(journal.get("of"), dict)
        and isinstance(journal.get("counts"), dict)
        and all(type(journal.get(key)) is int and journal[key] >= 0 for key in ("bytes", "rows"))
    )
    if not whole:
        raise BertineError(f"{file}: damaged; leave out {option('resume', True)} to begin anew")
    return journal


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value as it is after a round trip through JSON, where tuples become lists."""
    read: dict[str, Any] = json.loads(json.dumps(value))
    return read


def _compare(output: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    other = [
        f"{name} ({before[name]})" if isinstance(before.get(name), str) else name
        for name in now
        if before.get(name) != now[name]
    ]
    if other:
        raise BertineError(
            f"{output}: cannot be resumed, because it was begun with another "
            f"{' and another '.join(other)}; leave out {option('resume', True)} to begin anew"
        )


# Text reports: counts and warnings of a model's pass over a file of texts.

#: Line numbers of empty texts that are kept for the message.
_LINES = 100


@dataclass(repr=False)
class TextReport(Shown):
    """The counts that every verb reports for a file of texts.

    Attributes:
        rows: rows of the file that the model has read.
        cut: rows with a text longer than the model's maximum length.
        pieces_lost: pieces that were cut off from these rows.
        empty: rows without any text.
        half_empty: pairs that lack one of their texts; they were computed all the same.
        abstained: rows whose answer was left open, and `why_open`.
        seconds: wall time.
        max_length: the maximum length, in pieces.
        cut_texts: the name of the texts that are cut; for spans, the questions.
        unit: what lengths are counted in, "piece" or "word".
        unknown: the counter of pieces that the vocabulary does not know; None: they are not
            counted.
        notes: notes on what was repaired in the input.
        of_empty: how empty texts are treated.
    """

    rows: int = 0
    cut: int = 0
    pieces_lost: int = 0
    empty: int = 0
    half_empty: int = 0
    abstained: int = 0
    seconds: float = 0.0
    max_length: int = 0
    cut_texts: str = "texts"
    unit: str = "piece"
    unknown: UnknownText | None = None
    notes: list[str] = field(default_factory=list)
    of_empty: str = "have no answer"
    why_open: str = "the probability of the best one is too low"
    empty_lines: list[int] = field(default_factory=list)

    def count_empty(self, lines: Iterable[int]) -> None:
        """Count the rows without any text; `lines` are their numbers."""
        numbers = list(lines)
        self.empty += len(numbers)
        self.empty_lines += numbers[: _LINES - len(self.empty_lines)]

    def count(
        self,
        rows: int,
        features: Sequence[Features],
        texts: Sequence[str | Sequence[str]] = (),
        lines: Iterable[int] | None = None,
    ) -> None:
        """Count `rows` rows with their `features` (one or more of each row) and their `texts`, read
        from `lines`."""
        self.rows += rows
        # The choices of one row are separate features.
        self.cut += len({feature.row for feature in features if feature.num_truncated})
        self.pieces_lost += sum(feature.num_truncated for feature in features)
        if self.unknown is not None:
            self.unknown.count(features, texts, lines)

    def warnings(self) -> list[str]:
        """Return one line each for unknown, cut and empty texts, then the notes."""
        lines = [] if self.unknown is None else self.unknown.lines_for_answers()
        if self.cut:
            lines.append(
                f"{self.cut} of {self.rows} "
                + cut_at(self.max_length, self.pieces_lost, self.cut_texts, self.unit)
            )
        if self.empty:
            what = "line" if self.empty == 1 else "lines"
            where = ""
            if self.empty_lines:
                where = f" ({first_numbers(self.empty_lines, self.empty, what)})"
            lines.append(f"{self.empty} of {self.rows} texts are empty{where} and {self.of_empty}")
        if self.half_empty:
            lines.append(f"{self.half_empty} of {self.rows} pairs lack one of their texts")
        if self.abstained:
            share = self.abstained / max(1, self.rows)
            lines.append(
                f"{self.abstained} of {self.rows} have no answer ({share:.1%}): {self.why_open}"
            )
        return lines + self.notes


def pace(count: int, seconds: float, unit: str = "") -> str:
    """Return the time and the speed as text: "in 2.0 s (40 a second)", or with a `unit` "(40 words
    a second)"."""
    rate = count / seconds if seconds else 0.0
    return f"in {human_time(seconds)} ({rate:.0f} {unit + ' ' if unit else ''}a second)"


#: The counts of a report that a process takes over from an earlier one.
_COUNTS = ("rows", "cut", "pieces_lost", "empty", "half_empty", "abstained")
#: Columns that are named in the report; of many labels there are thousands.
_SHOWN = 20


@dataclass(repr=False)
class PredictReport(TextReport):
    """The report of predicting a file.

    Attributes:
        columns: the names of the columns that were added.
        rows_before: the part of `rows` that an earlier process has answered.
    """

    columns: list[str] = field(default_factory=list)
    rows_before: int = 0

    def counts(self) -> dict[str, int]:
        """Return the counts so far, for a process that continues."""
        unknown = {} if self.unknown is None else self.unknown.counts()
        return {name: getattr(self, name) for name in _COUNTS} | unknown

    def go_on(self, table: ResumableTable) -> None:
        """Add the counts of an earlier process."""
        for name in _COUNTS:
            setattr(self, name, table.counts.get(name, 0))
        if self.unknown is not None:
            self.unknown.go_on(table.counts)
        self.rows_before = table.rows_done

    def done(self) -> str:
        """Return what this process has done, and how fast."""
        rows = self.rows - self.rows_before
        return f"predicted {plural(rows, 'row')} {pace(rows, self.seconds)}"

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        more = ", …" * (len(self.columns) > _SHOWN)
        lines = [f"{self.done()}; added {visible_list(self.columns[:_SHOWN])}{more}"]
        if self.rows_before:
            there = plural(self.rows_before, "row", "that was", "that were")
            lines.append(f"went on after {there} there; now {self.rows}")
        return lines + self.warnings()
