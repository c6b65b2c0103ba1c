"""Format text for the terminal, report progress on stderr, and show results in Python."""

from __future__ import annotations

import html
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeVar

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from bertine.core import cpu
from bertine.core.errors import BertineError
from bertine.core.strict_json import Jsonable
from bertine.core.text import printable, shortened, visible

# Progress in a notebook: one bar that is redrawn in place.
#
# A kernel (Jupyter, Colab, VS Code) has no terminal: printed text is appended to the cell's output.
# But a kernel can replace an output, which the bar uses. It needs no widgets and no scripts, and a
# saved notebook keeps its last state.

#: Seconds between two redraws of a bar.
_EVERY = 0.25
_NUMBERS = "font-variant-numeric: tabular-nums"


def in_notebook() -> bool:
    """Return whether this process is a notebook kernel. Imports nothing."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookProgress(Progress):
    """A progress display whose bars are one cell output that is redrawn in place.

    The columns of the base class are not used. The task fields ``facts`` and ``ends`` are those of
    :func:`bertine.core.console.progress`.
    """

    _handle: Any = None
    _shown = float("-inf")

    def start(self) -> None:
        self.refresh()

    def stop(self) -> None:
        if self._handle is not None:
            self._show()

    def refresh(self) -> None:
        """Show the current state, at most four times a second."""
        if not self.disable and self.tasks and time.monotonic() - self._shown >= _EVERY:
            self._show()

    def update(self, task_id: TaskID, **values: Any) -> None:
        super().update(task_id, **values)
        self.refresh()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self.refresh()

    def _show(self) -> None:
        display = import_module("IPython.display").display  # there is one in every kernel

        self._shown = time.monotonic()
        tasks = [task for task in self.tasks if task.visible]
        shown = {
            "text/html": "".join(map(_html, tasks)),
            "text/plain": "\n".join(map(_line, tasks)),
        }
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def seconds_left(task: Task) -> float | None:
    """Estimate the seconds until a task is done, from its field ``ends`` or else from its mean
    speed so far; None if unknown."""
    ends = task.fields.get("ends")
    if ends is None or task.finished:
        return task.time_remaining
    return max(0.0, ends - time.monotonic())


def clock(seconds: float) -> str:
    """Format 3725.4 seconds as "1:02:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:d}:{minutes:02d}:{rest:02d}"


def _words(task: Task) -> list[str]:
    """Return the amount done, the time taken and the time left."""
    words = []
    if task.total is not None:
        words.append(f"{task.percentage:.0f}% ({task.completed:,.0f} of {task.total:,.0f})")
    taken = task.finished_time if task.finished else task.elapsed
    words.append(clock(taken or 0.0))
    left = seconds_left(task)
    if left is not None and not task.finished:
        words.append(f"left {clock(left)}")
    return words


def _facts(task: Task) -> str:
    return "  ".join(map(visible, task.fields.get("facts", ())))


def _line(task: Task) -> str:
    facts = _facts(task)
    return "  ".join([visible(task.description), *_words(task), *([facts] if facts else [])])


def _html(task: Task) -> str:
    """Return HTML of a bar with its figures, and the facts below it."""
    # A bar without a value has an unknown end.
    value = "" if task.total is None else f'value="{task.completed:g}" max="{task.total:g}" '
    facts = html.escape(_facts(task))
    below = f'<div style="opacity: 0.75; white-space: pre-wrap">{facts}</div>' if facts else ""
    return (
        f'<div style="{_NUMBERS}">{html.escape(visible(task.description))} '
        f'<progress {value}style="width: 16em; vertical-align: middle"></progress> '
        f"{html.escape('  '.join(_words(task)))}{below}</div>"
    )


#: Notes, warnings and progress, never mixed with the results on stdout. If a command has several
#: processes, only the first one prints.
#: In a notebook they are plain lines below the cell: front ends mark stderr as an alarm, and each
#: print of Rich would become a separate output.
_NOTEBOOK = in_notebook()
#: A program started by a cell (``%%bash``) prints to a pipe. The kernel asks it for colours
#: (``FORCE_COLOR``), from which Rich wrongly concludes that it may move the cursor, too.
_FROM_A_CELL = "JPY_PARENT_PID" in os.environ and sys.stderr is not None and not sys.stderr.isatty()
console = Console(
    stderr=not _NOTEBOOK,
    highlight=False,
    quiet=not cpu.is_main(),
    force_jupyter=False,
    force_terminal=False if _NOTEBOOK or _FROM_A_CELL else None,
)


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """Suppress notes and progress if `quiet` or inside another such block; warnings are still
    printed."""
    token = _quiet.set(quiet or _quiet.get())
    try:
        yield
    finally:
        _quiet.reset(token)


def _printable_record(record: logging.LogRecord) -> bool:
    """Filter out records that are not shown; escape the control characters of the others and cut
    long messages in the middle."""
    if console.quiet or (_quiet.get() and record.levelno < logging.WARNING):
        return False
    record.msg, record.args = shortened(printable(record.getMessage())), ()
    return True


class TerminalHandler(logging.Handler):
    """A handler that prints notes and warnings to stderr, above a progress bar, if no other handler
    gets them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, with its traceback if it has one; Rich's markup is not interpreted. The
        server's own records go to the handlers of the root, if a program has set some."""
        if record.name != logger.name and logging.root.handlers:
            if not logger.propagate:
                logging.root.handle(record)
            return
        if logger.handlers != [self]:
            return
        text = printable(self.format(record))
        warning = record.levelno >= logging.WARNING
        if warning:
            text = f"{record.levelname.lower()}: {text}"
        console.print(text, style="yellow" if warning else None, markup=False, soft_wrap=True)


#: All notes (``INFO``) and warnings of Bertine. A program may set its level. A handler that it
#: adds gets them in place of the terminal.
logger = logging.getLogger("bertine")
if logger.level == logging.NOTSET:
    logger.setLevel(logging.INFO)
# Not to the root's handlers too, which would print everything twice.
logger.propagate = bool(logger.handlers)
logger.addFilter(_printable_record)
_terminal = TerminalHandler()
logger.addHandler(_terminal)


def log_all(lines: Iterable[str], log: Callable[[str], None] = logger.info) -> None:
    """Log each of `lines`, by default as notes."""
    for line in lines:
        log(line)


def _shows_notes() -> bool:
    return logger.handlers == [_terminal] and not _quiet.get() and logger.isEnabledFor(logging.INFO)


def shows_bars() -> bool:
    """Return whether a bar can be redrawn in place: in a terminal or a notebook, but not in a file
    or if :data:`logger` has another handler."""
    return _shows_notes() and (console.is_terminal or in_notebook())


def progress(*, show: bool = True) -> Progress:
    """Create a live progress display with the estimated time left; it is empty unless `show`.

    A task may have the field ``facts``, texts shown below its bar, and the field ``ends``, the
    :func:`time.monotonic` time of its end if the caller knows it better than the mean speed so far
    does.
    """
    kind = NotebookProgress if in_notebook() else _Progress
    return kind(
        SpinnerColumn(table_column=Column(no_wrap=True)),
        _Description(table_column=Column(no_wrap=True)),
        BarColumn(bar_width=24),  # the only column that shrinks in a narrow terminal
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        _TimeLeft(table_column=Column(no_wrap=True)),
        console=console,
        transient=False,
        disable=not (show and _shows_notes()),
        # Keep results on stdout while a display is live on stderr.
        redirect_stdout=False,
        # Average over all updates kept, not the last half minute: one update may take longer.
        speed_estimate_period=float("inf"),
    )


class _Progress(Progress):
    """Bars with the facts of each task below them, wrapped between facts: a terminal of any width
    shows all facts and the time left."""

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
    """A column for the subject of a bar, often a file name, with markup and control characters
    shown as text."""

    def render(self, task: Task) -> Text:
        return Text(visible(task.description))


class _TimeLeft(TimeRemainingColumn):
    """The time until the task's field ``ends``, if it has one; empty if the end is unknown."""

    def render(self, task: Task) -> Text:
        left = seconds_left(task)
        if task.total is None and task.fields.get("ends") is None:
            return Text("")
        if task.fields.get("ends") is None or task.finished or left is None:
            return Text.assemble("left ", super().render(task))
        return Text.assemble("left ", (clock(left), "progress.remaining"))


def visible_list(texts: Iterable[str]) -> str:
    """List outside texts, each :func:`visible`, separated by commas."""
    return ", ".join(map(visible, texts))


@dataclass(frozen=True)
class LineTable:
    """Properties shared by all lines of a table.

    Attributes:
        left: indices of the left-aligned columns.
        head: whether the first line names the columns.
    """

    left: Sequence[int]
    head: bool


class TableLine(str):
    """A line of :func:`aligned` that keeps its cells, for output with real tables (HTML)."""

    table: LineTable
    number: int
    cells: Sequence[str]


def aligned(
    rows: Iterable[Sequence[str]], left: Sequence[int] = (0,), *, head: bool = False
) -> list[str]:
    """Format a table for the terminal, where Chinese characters are two columns wide.

    Args:
        rows: the cells; all rows have the same length.
        left: the left-aligned columns; the others, numbers, are right-aligned.
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


def plural(count: int, noun: str, one: str = "", more: str = "") -> str:
    """Format a count with its noun: "1 row", "2 rows"; with verbs for one (`one`) and several
    (`more`): "1 row was", "2 rows were"."""
    words = f"1 {noun}" if count == 1 else f"{count:,} {_plural(noun)}"
    said = one if count == 1 else more
    return f"{words} {said}" if said else words


def _plural(noun: str) -> str:
    """Return the regular plural of an English noun."""
    if noun.endswith("epoch"):  # pronounced with a k
        return f"{noun}s"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def human_count(value: float) -> str:
    """Format 1234567 as '1.2M'."""
    for limit, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.1f}{suffix}"
    return f"{value:.0f}"


def human_bytes(size: int) -> str:
    """Format 1234567 as '1.2 MB'."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def human_time(seconds: float) -> str:
    """Format 75 as '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


# Results: plain data that prints itself, and becomes JSON and a page.
#
# A result is a dataclass whose fields users read in Python, with :class:`Report` as its base. Its
# class says only what is its own:
#
# - ``lines()`` returns what its command prints; tables in it come from :func:`aligned`. The base
#   makes text at a prompt of it, and HTML in a notebook.
# - ``json_keys`` names what is written, if that is not every field; the base makes ``to_dict()``
#   of it; what is read again has :class:`~bertine.core.strict_json.Readable` as another base.
# - A function in the same file makes its page. :class:`bertine.reports.html.Page` ends each page
#   with the version and the command.
#
# What holds more than plain data, such as a model, is only :class:`Shown`; parts of results that
# print nothing are only `Jsonable`.

Item = TypeVar("Item")

#: Most lines or table rows shown; the number of the rest is stated.
_MOST = 60
# Only shades of the existing colours, so that light and dark notebooks both work.
_TABLE = "border-collapse: collapse; margin: 0.5em 0; color: inherit; font-size: inherit"
_CELL = "padding: 0.15em 0.8em 0.15em 0; vertical-align: top; text-align: "
_HEAD = "; border-bottom: 1px solid rgba(128, 128, 128, 0.6)"
_TEXT = "white-space: pre-wrap"


class Shown:
    """Base of what is shown as its lines.

    A dataclass with this base needs ``repr=False``: otherwise it gets a ``repr`` of its own.
    """

    __slots__ = ()

    def lines(self) -> list[str]:
        """Return the result as lines for people."""
        raise NotImplementedError

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return True

    def next_lines(self) -> list[str]:
        """Return the commands that may be run next."""
        return []

    def shown_lines(self) -> list[str]:
        """Return the lines that Python shows, if they differ from those that the command prints."""
        return self.lines()

    def __str__(self) -> str:
        return "\n".join(map(printable, _bounded(_lines_of(self))))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return HTML of the lines for notebooks, with real tables."""
        return html_of(_lines_of(self))


class Report(Shown, Jsonable):
    """Base of results that are plain data."""

    __slots__ = ()


class ReportOf(Report, Generic[Item]):
    """Base of results that are a sequence: of the items in one of their fields."""

    __slots__ = ()
    #: The name of that field.
    holds: ClassVar[str] = "items"

    def __len__(self) -> int:
        return len(getattr(self, self.holds))

    def __iter__(self) -> Iterator[Item]:
        return iter(getattr(self, self.holds))

    def __getitem__(self, index: int) -> Item:
        item: Item = getattr(self, self.holds)[index]
        return item


class ShownList(Shown, list[Item]):
    """A list of results that is shown as one table."""

    __slots__ = ()


def html_of(lines: Sequence[str]) -> str:
    """Convert lines for people to HTML: escaped, without scripts or colours.

    Args:
        lines: lines of :func:`bertine.core.console.aligned` become a table.
    """
    return f"<div>{''.join(_blocks(lines))}</div>"


def _lines_of(result: Shown) -> list[str]:
    try:
        return result.shown_lines()
    except (BertineError, OSError) as error:
        # For example, a run's folder may be gone: showing a result must not fail.
        return [f"{type(result).__name__}: {error}"]


def _bounded(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - _MOST
    return list(lines) if rest <= 0 else [*lines[:_MOST], f"… and {rest:,} more lines"]


def _table_of(line: str) -> int:
    """Return a number that identifies the table of a line; 0 for a line outside tables."""
    return id(line.table) if isinstance(line, TableLine) else 0


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    for table, group in groupby(lines, _table_of):
        if table:
            rows = [line for line in group if isinstance(line, TableLine)]
            body = "".join(_row(line) for line in rows[:_MOST])
            yield f'<table style="{_TABLE}">{body}</table>'
            if len(rows) > _MOST:
                yield f"<div>… and {len(rows) - _MOST:,} more rows</div>"
        else:
            text = html.escape(printable("\n".join(_bounded(list(group)))))
            yield f'<div style="{_TEXT}">{text}</div>'


def _row(line: TableLine) -> str:
    table = line.table
    head = table.head and line.number == 0
    tag, more = ("th", _HEAD) if head else ("td", "")
    cells = (
        f'<{tag} style="{_CELL}{"left" if column in table.left else "right"}{more}">'
        f"{html.escape(printable(cell))}</{tag}>"
        for column, cell in enumerate(line.cells)
    )
    return f"<tr>{''.join(cells)}</tr>"
