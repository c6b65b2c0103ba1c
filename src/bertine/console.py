"""What a person sees in the terminal: progress and notes on stderr, results on stdout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

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


def progress(*columns: str, show: bool = True) -> Progress:
    """A live progress display with an estimate of the time left; nothing unless `show`.

    `columns` are extra text fields of the task, e.g. ``"{task.fields[loss]}"``.
    """
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        *(TextColumn(column) for column in columns),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=False,
        disable=_quiet.get() or not show,
        # Results on stdout stay on stdout, also while a display is live on stderr.
        redirect_stdout=False,
    )


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
    told = f"{count} {noun}" if count == 1 else f"{count} {noun}s"
    said = one if count == 1 else more
    return f"{told} {said}" if said else told


def human_count(value: float) -> str:
    """1234567 -> '1.2M'."""
    for limit, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.1f}{suffix}"
    return f"{value:.0f}"


def human_time(seconds: float) -> str:
    """75 -> '1 min 15 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
