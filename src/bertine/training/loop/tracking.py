"""What a run leaves to read: a JSON-lines log always, TensorBoard files by option."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from bertine.files import os_errors, write_text
from bertine.options.names import option
from bertine.packages import require_packages
from bertine.runs.log import read_log


class Tracker:
    """Writes one JSON object a line to ``log.jsonl`` in the run's folder.

    A line is written whole and flushed. On resume, lines after the checkpoint's step are cut
    away, so that the log of a resumed run is that of an undisturbed one.
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
        """Make sure that a power cut leaves what was logged so far."""
        with os_errors(self.path, "writing the log"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        # What could not be written was told when it was logged.
        with contextlib.suppress(OSError):
            self._file.close()
        if self._board is not None:
            self._board.close()


class NoTracker(Tracker):
    """For a process that does not write."""

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
    """Raise a :class:`BertineError` where TensorBoard's files cannot be written."""
    require_packages(option("tensorboard", True), ["tensorboard"])


def _tensorboard(folder: Path, resume_step: int) -> Any:
    require_tensorboard()
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=resume_step + 1)
