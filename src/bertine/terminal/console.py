"""What a person sees in the terminal: progress and notes on stderr, results on stdout."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from bertine.cores import launch
from bertine.terminal.notebook import NotebookProgress, clock, in_notebook, seconds_left
from bertine.terminal.text import printable, shortened, visible

#: Notes, warnings and progress. Never mixed into the results on stdout. Of several processes of
#: one command the first alone speaks.
#: In a notebook they are plain lines below the cell: a frontend shows stderr as an alarm, and of
#: each thing that Rich prints there it makes an output of its own.
_NOTEBOOK = in_notebook()
#: A program that a cell has started (``%%bash``) prints into a pipe. The kernel asks it for colours
#: (``FORCE_COLOR``), from which Rich concludes that it may move the cursor, too.
_FROM_A_CELL = "JPY_PARENT_PID" in os.environ and sys.stderr is not None and not sys.stderr.isatty()
console = Console(
    stderr=not _NOTEBOOK,
    highlight=False,
    quiet=not launch.is_main(),
    force_jupyter=False,
    force_terminal=False if _NOTEBOOK or _FROM_A_CELL else None,
)


#: What a program may do with the notes and warnings: its level leaves out what is below, and its
#: handlers, where it has some, get them in place of the terminal.
log = logging.getLogger("bertine")
if log.level == logging.NOTSET:
    log.setLevel(logging.INFO)

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """Print no notes and no progress, if `quiet` or within another such; warnings are printed all
    the same."""
    token = _quiet.set(quiet or _quiet.get())
    try:
        yield
    finally:
        _quiet.reset(token)


def say(message: str) -> None:
    """Print one note to stderr (rich markup is not interpreted, control characters are shown)."""
    if not _quiet.get():
        _tell(logging.INFO, message)


def warn(message: str) -> None:
    """Print one warning to stderr, like :func:`say`."""
    _tell(logging.WARNING, message)


def _tell(level: int, message: str) -> None:
    if console.quiet or not log.isEnabledFor(level):
        return
    if log.handlers:
        log.log(level, "%s", shortened(printable(message)))
        return
    warning = level == logging.WARNING
    text = shortened(printable(f"warning: {message}" if warning else message))
    console.print(text, style="yellow" if warning else None, markup=False, soft_wrap=True)


def _shows_notes() -> bool:
    return not (_quiet.get() or log.handlers) and log.isEnabledFor(logging.INFO)


def shows_bars() -> bool:
    """Tell whether a bar can change in its place: in a terminal or a notebook, not in a file or
    where :data:`log` has the lines."""
    return _shows_notes() and (console.is_terminal or in_notebook())


def progress(*, show: bool = True) -> Progress:
    """Make a live progress display with an estimate of the time left; nothing unless `show`.

    A task may have the field ``facts``, texts that are shown below its bar, and the field
    ``ends``, the time of :func:`time.monotonic` when it will be done, for one who knows better
    than the mean speed so far.
    """
    kind = NotebookProgress if in_notebook() else _Progress
    return kind(
        SpinnerColumn(table_column=Column(no_wrap=True)),
        _Description(table_column=Column(no_wrap=True)),
        BarColumn(bar_width=24),  # the one column that gives way in a narrow terminal
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        _TimeLeft(table_column=Column(no_wrap=True)),
        console=console,
        transient=False,
        disable=not (show and _shows_notes()),
        # Results on stdout stay on stdout, also while a display is live on stderr.
        redirect_stdout=False,
        # Of all updates that are kept, not of the last half minute: one may take longer.
        speed_estimate_period=float("inf"),
    )


class _Progress(Progress):
    """Bars, and below them the facts of each task, broken between two facts where a line is
    full: a terminal of any width shows all of them, and the time left."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            lines: list[str] = []
            for fact in map(printable, task.fields.get("facts", ())):
                if lines and len(lines[-1]) + 2 + len(fact) <= self.console.width:
                    lines[-1] += "  " + fact
                else:
                    lines.append("  " + fact)
            yield from map(Text, lines)


class _Description(ProgressColumn):
    """What a bar is about, often a file: neither markup nor control characters count."""

    def render(self, task: Task) -> Text:
        return Text(visible(task.description))


class _TimeLeft(TimeRemainingColumn):
    """Until the task's field ``ends``, where it has one; nothing where nobody knows the end."""

    def render(self, task: Task) -> Text:
        left = seconds_left(task)
        if task.total is None and task.fields.get("ends") is None:
            return Text("")
        if task.fields.get("ends") is None or task.finished or left is None:
            return Text.assemble("left ", super().render(task))
        return Text.assemble("left ", (clock(left), "progress.remaining"))


def visible_list(texts: Iterable[str]) -> str:
    """List texts from outside, each :func:`visible`, with commas between them."""
    return ", ".join(map(visible, texts))


@dataclass(frozen=True)
class LineTable:
    """The properties that the lines of a table have in common.

    Attributes:
        left: the columns that are set left-aligned.
        head: whether the first line names the columns.
    """

    left: Sequence[int]
    head: bool


class TableLine(str):
    """A line of :func:`aligned` that knows its cells, for places that have real tables."""

    table: LineTable
    number: int
    cells: Sequence[str]


def aligned(
    rows: Iterable[Sequence[str]], left: Sequence[int] = (0,), *, head: bool = False
) -> list[str]:
    """Return the lines of a table in the terminal, where Chinese characters take two places.

    Args:
        rows: cells, equally many in each.
        left: the columns that begin at the same place; those of the others, numbers, end there.
        head: whether the first row names the columns.
    """
    rows = list(rows)
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    table, lines = LineTable(left, head), list[str]()

    def padded(column: int, text: str) -> str:
        space = " " * (widths[column] - cell_len(text))
        return text + space if column in left else space + text

    for number, row in enumerate(rows):
        line = TableLine(
            "  ".join(padded(column, text) for column, text in enumerate(row)).rstrip()
        )
        line.table, line.number, line.cells = table, number, row
        lines.append(line)
    return lines


def counted(count: int, noun: str, one: str = "", more: str = "") -> str:
    """Return a number of things in words: "1 row", "2 rows"; with what is said of `one` and of
    `more`, "1 row was", "2 rows were"."""
    words = f"1 {noun}" if count == 1 else f"{count:,} {_plural(noun)}"
    said = one if count == 1 else more
    return f"{words} {said}" if said else words


def _plural(noun: str) -> str:
    """Return the regular plural of an English noun."""
    if noun.endswith("epoch"):  # spoken with a k
        return f"{noun}s"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def human_count(value: float) -> str:
    """Write 1234567 as '1.2M'."""
    for limit, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.1f}{suffix}"
    return f"{value:.0f}"


def human_bytes(size: int) -> str:
    """Write 1234567 as '1.2 MB'."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def human_time(seconds: float) -> str:
    """Write 75 as '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
