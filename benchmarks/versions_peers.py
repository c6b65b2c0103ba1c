"""The two versions that ``versions.py`` compares: how each is loaded, and asked to work for a turn.

A version is measured from outside, by its public verbs in a worker (``versions_job.py``), by its
server, or by commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from contention import environment
from serve import drive, processor_seconds, server

HERE = Path(__file__).resolve().parent
#: Of the server.
CLIENTS = 64
#: Prints how long the import takes, without the start of Python: by the clock, by the processor.
IMPORT = """
import time
began, used = time.perf_counter(), time.process_time()
import bertine
print(time.perf_counter() - began, time.process_time() - used)
"""


class Peer(NamedTuple):
    """A version: its sources, and the folder for what it makes."""

    name: str
    sources: Path
    folder: Path


@dataclass(frozen=True)
class Turn:
    """What one version did while the other waited.

    Attributes:
        pieces: the units of each piece of work, and the seconds that they took.
        processor: seconds that the processor worked for it, what is not timed included.
    """

    pieces: list[tuple[float, float]]
    processor: float

    @property
    def units(self) -> float:
        return sum(units for units, _ in self.pieces)

    def speed(self, processor: bool) -> float:
        """Units a second, by the clock or by the processor's time."""
        if processor:
            return self.units / self.processor
        return self.units / sum(seconds for _, seconds in self.pieces)

    @property
    def best(self) -> float:
        """Units a second in the best piece."""
        return max(units / seconds for units, seconds in self.pieces)


#: Works for at least so many seconds.
Measure = Callable[[float], Turn]


class Loaded(NamedTuple):
    """A version that is ready to work; `precision`: in which its model answers, if it has one."""

    measure: Measure
    precision: str = ""


def surroundings(peer: Peer, threads: int | None) -> dict[str, str]:
    """The environment of a version's processes."""
    told = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {**environment(), "PYTHONPATH": str(peer.sources), **told}


@contextlib.contextmanager
def worker(peer: Peer, work: str, threads: int | None) -> Iterator[Loaded]:
    """A process that is warm and works when it is asked to."""
    script, count = str(HERE / "versions_job.py"), threads or torch.get_num_threads()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", script, work, str(peer.folder), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=surroundings(peer, threads),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        send, receive = process.stdin, process.stdout

        def answer() -> str:
            if line := receive.readline():
                return line
            errors.seek(0)
            said = "".join(errors.readlines()[-20:])
            raise SystemExit(f"{work} of {peer.name} ({peer.sources}) has failed:\n{said}")

        def measure(seconds: float) -> Turn:
            send.write(f"{seconds}\n")
            send.flush()
            return Turn(*json.loads(answer()))

        try:
            yield Loaded(measure, answer().removeprefix("ready").strip())
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def served(peer: Peer, threads: int | None) -> Iterator[Loaded]:
    """A server in a process of its own; the clients are in this one. It is told the precision that
    the model would choose, so that this is known."""
    with worker(peer, "classifier", threads) as classifier:
        precision = classifier.precision
    content = (peer.folder.parent / "texts.json").read_text(encoding="utf-8")
    asked: list[str] = json.loads(content)
    model = peer.folder / "classifier" / "model"
    options = ["--max-connections", "1024", "--precision", precision]
    with server(model, threads, options, peer.sources) as (port, process):

        def measure(seconds: float) -> Turn:
            used = processor_seconds(process)
            load, took = asyncio.run(drive(port, asked, CLIENTS, seconds))
            if set(load.codes) != {200}:
                raise SystemExit(f"serve of {peer.name}: answers by status {dict(load.codes)}")
            return Turn([(load.codes[200], took)], processor_seconds(process) - used)

        measure(1.0)
        yield Loaded(measure, precision)


def children_seconds() -> float:
    """How long processes that this one started, and that have ended, have computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def commands(peer: Peer, work: str, threads: int | None) -> Iterator[Loaded]:
    """A process for each piece of work, from its start to its end; of an import what it says."""
    told = ["-c", IMPORT] if work == "import" else ["-m", "bertine", "--help"]
    command, around = [sys.executable, "-P", *told], surroundings(peer, threads)

    def once() -> tuple[float, float]:
        began, before = time.perf_counter(), children_seconds()
        done = subprocess.run(command, capture_output=True, text=True, env=around)
        took, used = time.perf_counter() - began, children_seconds() - before
        if done.returncode:
            raise SystemExit(f"{work} of {peer.name} has failed:\n{done.stderr}")
        if work == "import":
            took, used = map(float, done.stdout.split())
        return took, used

    def measure(seconds: float) -> Turn:
        began = time.perf_counter()
        runs = [once()]
        while time.perf_counter() - began < seconds:
            runs.append(once())
        return Turn([(1.0, took) for took, _ in runs], sum(used for _, used in runs))

    once()  # what is compiled is kept, and files are in the system's cache
    yield Loaded(measure)


def opened(peer: Peer, work: str, threads: int | None) -> AbstractContextManager[Loaded]:
    """Load a version for a work."""
    if work == "serve":
        return served(peer, threads)
    return (commands if work in ("import", "help") else worker)(peer, work, threads)
