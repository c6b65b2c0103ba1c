"""What a person sees in the terminal: progress and notes on stderr, results on stdout."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from bertine import launch

#: Notes, warnings and progress. Never mixed into the results on stdout. Of several processes of
#: one command the first alone speaks.
console = Console(stderr=True, highlight=False, quiet=not launch.is_main())


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """Without notes and progress, if `quiet`; warnings are printed all the same."""
    token = _quiet.set(quiet)
    try:
        yield
    finally:
        _quiet.reset(token)


def say(message: str) -> None:
    """Print one note to stderr (rich markup is not interpreted)."""
    if _quiet.get():
        return
    console.print(message, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Print one warning to stderr."""
    console.print(f"warning: {message}", style="yellow", markup=False, soft_wrap=True)


def progress(*, show: bool = True) -> Progress:
    """A live progress display with an estimate of the time left; nothing unless `show`.

    A task may have the field ``facts``, texts that are shown below its bar, and the field
    ``ends``, the time of :func:`time.monotonic` when it will be done, for one who knows better
    than the mean speed so far.
    """
    return _Progress(
        SpinnerColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),  # the one column that gives way in a narrow terminal
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("left"),
        _TimeLeft(table_column=Column(no_wrap=True)),
        console=console,
        transient=False,
        disable=_quiet.get() or not show,
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
            for fact in task.fields.get("facts", ()):
                if lines and len(lines[-1]) + 2 + len(fact) <= self.console.width:
                    lines[-1] += "  " + fact
                else:
                    lines.append("  " + fact)
            yield from map(Text, lines)


class _TimeLeft(TimeRemainingColumn):
    """Until the task's field ``ends``, where it has one."""

    def render(self, task: Task) -> Text:
        ends = task.fields.get("ends")
        if ends is None or task.finished:
            return super().render(task)
        minutes, seconds = divmod(max(0, round(ends - time.monotonic())), 60)
        hours, minutes = divmod(minutes, 60)
        return Text(f"{hours:d}:{minutes:02d}:{seconds:02d}", style="progress.remaining")


#: What ends a line, moves the cursor, or turns the direction of writing.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """A text of a user's, such as a label, for one line of the terminal: line breaks and other
    control characters escaped, as in "a\\nb"."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def visible_list(texts: Iterable[str]) -> str:
    """Such texts one after the other."""
    return ", ".join(map(visible, texts))


def aligned(rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """The lines of a table in the terminal, where Chinese characters take two places.

    Args:
        rows: cells, equally many in each.
        left: the columns that begin at the same place; those of the others, numbers, end there.
    """
    rows = list(rows)
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def cell(at: int, text: str) -> str:
        space = " " * (widths[at] - cell_len(text))
        return text + space if at in left else space + text

    return ["  ".join(cell(at, text) for at, text in enumerate(row)).rstrip() for row in rows]


def counted(count: int, noun: str, one: str = "", more: str = "") -> str:
    """A number of things in words: "1 row", "2 rows"; with what is said of `one` and of `more`,
    "1 row was", "2 rows were"."""
    told = f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
    said = one if count == 1 else more
    return f"{told} {said}" if said else told


def human_count(value: float) -> str:
    """1234567 -> '1.2M'."""
    for limit, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.1f}{suffix}"
    return f"{value:.0f}"


def human_bytes(size: int) -> str:
    """1234567 -> '1.2 MB'."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def human_time(seconds: float) -> str:
    """75 -> '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
