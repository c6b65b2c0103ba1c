"""Progress in a notebook: one bar that changes in its place.

A kernel (Jupyter, Colab, VS Code) has no terminal: what is printed becomes output of the cell, line
after line. It can replace an output that it has shown, though, and that is what a bar does here. No
widgets and no scripts are needed, and the last state stays in the saved notebook.
"""

from __future__ import annotations

import html
import sys
import time
from importlib import import_module
from typing import Any

from rich.progress import Progress, Task, TaskID

from bertine.terminal.text import visible

#: Seconds between two states of a bar.
_EVERY = 0.25
_NUMBERS = "font-variant-numeric: tabular-nums"


def in_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook. Imports nothing."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookProgress(Progress):
    """A display of bars that are one output of the cell, which changes in its place.

    The columns of its base are not used. A task's fields ``facts`` and ``ends`` are those of
    :func:`bertine.terminal.console.progress`.
    """

    _handle: Any = None
    _shown = float("-inf")

    def start(self) -> None:
        self.refresh()

    def stop(self) -> None:
        if self._handle is not None:
            self._show()

    def refresh(self) -> None:
        """Show the state of now, at most four times a second."""
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
    """Return the seconds until a task is done: by its field ``ends``, where it has one, else by its
    mean speed so far; None where that is unknown."""
    ends = task.fields.get("ends")
    if ends is None or task.finished:
        return task.time_remaining
    return max(0.0, ends - time.monotonic())


def clock(seconds: float) -> str:
    """Write 3725.4 seconds as "1:02:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:d}:{minutes:02d}:{rest:02d}"


def _words(task: Task) -> list[str]:
    """Return how much is done, how long that took, and how long the rest will take."""
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
    """Return a bar with its words, and the facts below it."""
    # A bar without a value is one whose end is unknown.
    value = "" if task.total is None else f'value="{task.completed:g}" max="{task.total:g}" '
    facts = html.escape(_facts(task))
    below = f'<div style="opacity: 0.75; white-space: pre-wrap">{facts}</div>' if facts else ""
    return (
        f'<div style="{_NUMBERS}">{html.escape(visible(task.description))} '
        f'<progress {value}style="width: 16em; vertical-align: middle"></progress> '
        f"{html.escape('  '.join(_words(task)))}{below}</div>"
    )
