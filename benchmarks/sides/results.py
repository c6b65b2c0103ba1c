"""Results of a benchmark as JSON lines, which several processes share and a later run continues."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Results:
    """Results in a file of JSON lines, found by what they are results of.

    Args:
        path: the file; created with the first result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._claims = path.with_name(f"{path.name}.claims")
        self._held: list[Any] = []

    def claim(self, key: Mapping[str, Any]) -> bool:
        """Whether nobody has the result of `key`, or is at work on it; from now on we are.

        A claim is a lock that ends with the process, so that what a killed process was at is done
        again.
        """
        if any(_matches(line, key) for line in self._lines()):
            return False
        self._claims.mkdir(parents=True, exist_ok=True)
        name = "-".join(str(value).replace("/", "-") for value in key.values())
        lock = (self._claims / name).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        if any(_matches(line, key) for line in self._lines()):  # it came in between
            lock.close()
            return False
        self._held.append(lock)
        return True

    def add(self, result: Mapping[str, Any]) -> None:
        """Append a result."""
        with self._locked() as file:
            file.write(json.dumps(result) + "\n")

    def scores(self, key: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, list[float]]:
        """The scores of each system of `key` over these seeds."""
        found: dict[str, list[float]] = {}
        for line in self._lines():
            if _matches(line, key) and line["seed"] in seeds and "score" in line:
                found.setdefault(line["system"], []).append(line["score"])
        return found

    def find(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result of `key`; None where there is none."""
        return next((line for line in self._lines() if _matches(line, key)), None)

    def _lines(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _matches(line: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    return all(line.get(name) == value for name, value in key.items())
