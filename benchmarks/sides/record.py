"""The results so far, in a file that a later run goes on with."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.core.files import read_json, write_json


@dataclass
class Record:
    """What has been measured. Several processes may write to one file, each its own tasks.

    Attributes:
        path: written after each result; None: nowhere.
        tasks: of each task its ``settings``; its ``speed``, lists of seconds by system; and its
            ``runs``, by seed and system.
        machines: that had a part in it.
    """

    path: Path | None
    tasks: dict[str, dict[str, Any]]
    machines: list[dict[str, Any]]

    @classmethod
    def open(cls, path: Path | None, machine: dict[str, Any]) -> Record:
        """The record in `path`, empty where there is no such file."""
        found: dict[str, Any] = read_json(path) if path and path.exists() else {}
        try:
            machines = [*found.get("machines", []), machine]
            return cls(path, dict(found.get("tasks", {})), machines)
        except (AttributeError, TypeError, ValueError):
            raise SystemExit(f"{path}: holds no results of this benchmark") from None

    def check(self, task: str, settings: dict[str, Any]) -> None:
        """Whether what is there of `task` was measured with these settings; SystemExit if not."""
        there = self.tasks.setdefault(task, {"settings": settings, "speed": {}, "runs": {}})
        for name, value in settings.items():
            if there["settings"].get(name) != value:
                raise SystemExit(
                    f"{self.path}: {task} was measured with {name} "
                    f"{there['settings'].get(name)!r}, and this run has {value!r}; name another "
                    "file with --resume"
                )

    def speed(self, task: str) -> dict[str, Any]:
        """The seconds by system; empty where they have not been measured."""
        found: dict[str, Any] = self.tasks[task]["speed"]
        return found

    def run(self, task: str, seed: int, system: str) -> dict[str, Any] | None:
        """A finished run of `system`."""
        found: dict[str, Any] | None = self.tasks[task]["runs"].get(str(seed), {}).get(system)
        return found

    def add_speed(self, task: str, seconds: dict[str, Any]) -> None:
        with self._shared():
            self.tasks[task]["speed"] = seconds

    def add_run(self, task: str, seed: int, system: str, result: dict[str, Any]) -> None:
        with self._shared():
            self.tasks[task]["runs"].setdefault(str(seed), {})[system] = result

    def runs(self, task: str, system: str, seeds: list[int]) -> list[dict[str, Any]]:
        """The finished runs of `system` over these seeds."""
        found = (self.run(task, seed, system) for seed in seeds)
        return [run for run in found if run is not None]

    @contextlib.contextmanager
    def _shared(self) -> Iterator[None]:
        """Add to what the file holds by now, while nobody else does."""
        if self.path is None:
            yield
            return
        with self.path.with_name(f"{self.path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists():
                found = read_json(self.path)
                mine, self.tasks = self.tasks, dict(found["tasks"])
                for name, task in mine.items():
                    self.tasks.setdefault(name, task)
                others = found.get("machines", [])
                self.machines = [*others, *(own for own in self.machines if own not in others)]
            yield
            write_json(self.path, {"machines": self.machines, "tasks": self.tasks})
