"""Show the progress of a training run, and write its log.

Progress is a bar in a terminal or a notebook, and plain lines in a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from bertine.core.console import human_count, human_time, logger, progress, shows_bars
from bertine.core.errors import require_packages
from bertine.core.files import os_errors, write_text
from bertine.core.loss_names import TERMS, terms_among
from bertine.core.names import option
from bertine.reports.run_files import read_log

#: Seconds for which other programs must use cores without a break before that is reported, and must
#: leave them free before their end is reported.
_OTHERS_STAY, _OTHERS_GONE = 5.0, 30.0
#: Where no bar can be shown, print a line at most this often (seconds).
_LINE_EVERY = 10.0


class Display:
    """The display of a run's progress. Use as ``with Display(...) as display``.

    Args:
        title: of the run.
        steps, done: of the whole run, and before this process began.
        work: the amount of work in the first n steps, in any unit; by default all steps are equal.
        latest: the time of :func:`time.monotonic` when the run ends, if its steps have not ended
            before.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        done: int = 0,
        work: Callable[[int], float] = float,
        latest: float = float("inf"),
    ) -> None:
        self.title, self.steps = title, steps
        self._work, self._latest, self._last_line = work, latest, 0.0
        self._kept: dict[str, str] = {}
        self._others_said = False
        self._others_since: float | None = None
        # The first step takes longer than others; until it is done, the time left is unknown.
        self._from: tuple[float, int] | None = None
        self._bar = progress() if shows_bars() else None
        if self._bar is not None:
            self._task = self._bar.add_task(title, total=steps, completed=done)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(
        self, step: int, facts: dict[str, str] | None = None, steps: int | None = None
    ) -> None:
        """Show that `step` steps are done; `facts` (name → text) replace those shown before;
        `steps` replaces the number of steps of the whole run."""
        now = time.monotonic()
        if steps is not None and steps != self.steps:
            self.steps = steps
            if self._bar is not None:
                self._bar.update(self._task, total=steps)
        ends = self._ends(now, step)
        texts = (
            None
            if facts is None
            else [f"{name} {text}" for name, text in (facts | self._kept).items()]
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=step, ends=ends)
            if texts is not None:
                self._bar.update(self._task, facts=texts)
            return
        if texts is None or (now - self._last_line < _LINE_EVERY and step < self.steps):
            return
        self._last_line = now
        left = "" if ends is None else f"  left {human_time(max(0.0, ends - now))}"
        logger.info(f"{self.title} {step}/{self.steps}  {'  '.join(texts)}{left}")

    def _ends(self, now: float, step: int) -> float | None:
        """Return when the run will end, estimated from its steps so far."""
        if self._from is None:
            self._from = (now, step)
        began, first = self._from
        if step == first:
            return None if self._latest == float("inf") else self._latest
        speed = (self._work(step) - self._work(first)) / max(now - began, 1e-9)
        rest = (self._work(self.steps) - self._work(step)) / max(speed, 1e-9)
        return min(now + rest, self._latest)

    def keep(self, name: str, text: str) -> None:
        """Show a fact in addition to those of every update, from the next one on."""
        self._kept[name] = text

    def other_programs(self, busy: str | None) -> None:
        """Report once when other programs begin to use the cores of the run, and once when they
        have ended.

        Args:
            busy: how many cores they use, such as "1.0 of 2 cores"; None: none.
        """
        now = time.monotonic()
        if (busy is not None) == self._others_said:
            self._others_since = None
            return
        if self._others_since is None:
            self._others_since = now
        if now - self._others_since < (_OTHERS_STAY if busy else _OTHERS_GONE):
            return
        self._others_since, self._others_said = None, busy is not None
        if busy is not None:
            self.note(f"other programs use {busy}, so that training takes longer")
        else:
            self.note("other programs have left the cores")

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        logger.info(message)


def facts_of(entry: dict[str, float]) -> dict[str, str]:
    """Return the part of a log entry that is shown in the terminal."""
    shown: dict[str, str] = {}
    # Of several terms the first is the most important one.
    terms = [name for name in entry if name.endswith("_loss")]
    for name in ("loss", *terms[:1]):
        if name in entry:
            shown[name.replace("_", " ")] = f"{entry[name]:.3f}"
    # The entropy of word frequencies is a reference for the loss of predicting words.
    words = [name for name in terms_among(entry) if TERMS[name].words]
    if "unigram_entropy" in entry and words:
        shown[f"{words[0]} loss"] = f"{entry[f'{words[0]}_loss']:.3f}"
    if "unigram_entropy" in entry:
        shown["(unigram entropy"] = f"{entry['unigram_entropy']:.3f})"
    for name in entry:
        if name.endswith("accuracy"):
            shown[name.replace("accuracy", "acc").replace("_", " ")] = f"{entry[name]:.1%}"
    if "tokens_per_second" in entry:
        shown["tok/s"] = human_count(entry["tokens_per_second"])
    # For the short steps of fine-tuning it is not informative; the page has its curve, with an
    # explanation.
    pretraining = "unigram_entropy" in entry or terms_among(entry)
    if "share_of_ceiling" in entry and pretraining:
        shown["of the ceiling"] = f"{entry['share_of_ceiling']:.0%}"
    return shown


# Log: a JSON-lines file always, TensorBoard files by option.


class Tracker:
    """A writer of the log ``log.jsonl`` in the run's folder, one JSON object a line.

    A line is written completely and flushed. On resume, lines after the checkpoint's step are
    removed, so that the log of a resumed run equals that of an uninterrupted run.
    """

    def __init__(self, folder: Path, *, resume_step: int = 0, tensorboard: bool = False) -> None:
        self.path = folder / "log.jsonl"
        kept = [line for line in read_log(self.path, mend=True) if line["step"] <= resume_step]
        if self.path.exists() or not resume_step:
            write_text(self.path, "".join(_line(entry) for entry in kept))
        with os_errors(self.path, "opening the log"):
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(folder, resume_step) if tensorboard else None

    def log(self, entry: dict[str, Any]) -> None:
        """Append `entry`, which has a ``step``; floats also go to TensorBoard."""
        with os_errors(self.path, "writing the log"):
            self._file.write(_line(entry))
            self._file.flush()
        if self._board is not None:
            for name, value in entry.items():
                if isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(name, value, entry["step"])

    def sync(self) -> None:
        """Flush the log to the disk, so that it survives a power cut."""
        with os_errors(self.path, "writing the log"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        # A failure to write was reported when the line was logged.
        with contextlib.suppress(OSError):
            self._file.close()
        if self._board is not None:
            self._board.close()


class NoTracker(Tracker):
    """A tracker for a process that does not write."""

    def __init__(self) -> None:
        pass

    def log(self, entry: dict[str, Any]) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def require_tensorboard() -> None:
    """Raise a :class:`BertineError` if TensorBoard's files cannot be written."""
    require_packages(option("tensorboard", True), ["tensorboard"])


def _tensorboard(folder: Path, resume_step: int) -> Any:
    require_tensorboard()
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=resume_step + 1)
