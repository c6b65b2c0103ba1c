"""Live progress of a training run: a bar in a terminal, plain lines in a file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bertine.console import console, human_count, human_time, progress, say

#: Without a terminal, one line at most this often (seconds).
_LINE_EVERY = 10.0


class Display:
    """Shows where a run is. Use as ``with Display.open(...) as display``."""

    def __init__(self, title: str, steps: int, done: int) -> None:
        self.title, self.steps = title, steps
        self._start, self._first, self._last_line = time.monotonic(), done, 0.0
        self._bar = progress("{task.fields[facts]}") if console.is_terminal else None
        if self._bar is not None:
            self._task = self._bar.add_task(title, total=steps, completed=done, facts="")

    @classmethod
    @contextmanager
    def open(cls, title: str, steps: int, done: int = 0) -> Iterator[Display]:
        display = cls(title, steps, done)
        if display._bar is None:
            yield display
        else:
            with display._bar:
                yield display

    def update(self, step: int, facts: dict[str, str] | None = None) -> None:
        """`step` steps are done; `facts` (name → text) replace the ones shown before."""
        text = None if facts is None else "  ".join(f"{k} {v}" for k, v in facts.items())
        if self._bar is not None:
            if text is None:
                self._bar.update(self._task, completed=step)
            else:
                self._bar.update(self._task, completed=step, facts=text)
            return
        now = time.monotonic()
        if text is None or (now - self._last_line < _LINE_EVERY and step < self.steps):
            return
        self._last_line = now
        left = (now - self._start) / max(1, step - self._first) * (self.steps - step)
        say(f"{self.title} {step}/{self.steps}  {text}  left {human_time(left)}")

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        say(message)


def facts_of(entry: dict[str, float]) -> dict[str, str]:
    """The part of a log entry that is worth a place in the terminal."""
    shown: dict[str, str] = {}
    for name in ("loss", "mlm_loss"):
        if name in entry:
            shown[name.replace("_", " ")] = f"{entry[name]:.3f}"
            if name == "mlm_loss" and "unigram_entropy" in entry:
                shown["(unigram entropy"] = f"{entry['unigram_entropy']:.3f})"
    for name in ("mlm_accuracy", "nsp_accuracy", "accuracy"):
        if name in entry:
            shown[name.replace("accuracy", "acc").replace("_", " ")] = f"{entry[name]:.1%}"
    if "tokens_per_second" in entry:
        shown["tok/s"] = human_count(entry["tokens_per_second"])
    if "share_of_ceiling" in entry:
        shown["of the ceiling"] = f"{entry['share_of_ceiling']:.0%}"
    return shown
