"""Who makes the parts of a token store: this process, several processes, or a Ray cluster.

The processes run this module: ``python -m bertine.data.preparation.part_runners TOKENIZER``. A
part comes in as a line of JSON on stdin; lines of JSON go out on stdout: how far it is, and at its
end that it is done or what was wrong (:mod:`bertine.system.workers`).
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertine.data.preparation.parts import CorpusPart, OnPartProgress, PartProgress, make_part
from bertine.errors import BertineError
from bertine.options.names import option
from bertine.system import workers
from bertine.text.tokenizer import Tokenizer

#: Called with the number of a part and how far it is; None: it is done.
OnProgress = Callable[[int, PartProgress | None], None]

#: Seconds between two messages of a process on how far its part is.
_SECONDS = 0.3


def run_here(parts: Sequence[CorpusPart], tokenizer: Tokenizer, report: OnProgress) -> None:
    """Make `parts` one after the other in this process.

    Raises:
        BertineError: as :func:`bertine.data.preparation.parts.make_part`.
    """
    for number, part in enumerate(parts):
        make_part(part, tokenizer, functools.partial(report, number))
        report(number, None)


def run_processes(
    parts: Sequence[CorpusPart], tokenizer: Path, report: OnProgress, processes: int
) -> None:
    """Make `parts` in so many processes, the largest first.

    Args:
        parts: what to make.
        tokenizer: its folder.
        report: called from several threads, never two at a time.
        processes: how many; each takes the next part when it has done one.

    Raises:
        BertineError: of the first part in which something is wrong; or a process was killed.
            Parts that were done by then stay.
    """
    workers.run_processes(
        [part.to_json() for part in parts],
        [__name__, str(tokenizer)],
        _receiver(parts, report, f"; run again, with fewer {option('processes')}"),
        processes,
        order=_largest_first(parts),
    )


def run_ray(parts: Sequence[CorpusPart], tokenizer: Path, report: OnProgress, address: str) -> None:
    """Make `parts` as tasks of a Ray cluster, one core each.

    All machines must see the corpus and the store's folder under the same paths.

    Args:
        parts: what to make; paths are absolute.
        tokenizer: its folder.
        report: called when a part is done.
        address: of the cluster (``auto``, ``host:6379``), or ``local``: one is started here.

    Raises:
        BertineError: Ray is not installed or not there, or something is wrong with a part.
    """
    workers.run_ray(
        [part.to_json() for part in parts],
        _ray_task,
        _receiver(parts, report),
        address,
        given=[str(tokenizer)],
        order=_largest_first(parts),
    )


def _receiver(parts: Sequence[CorpusPart], report: OnProgress, hint: str = "") -> workers.OnMessage:
    """Return what takes the messages of those that make the parts; `hint` says what to do where
    one of them is lost."""

    def receive(number: int, message: dict[str, Any]) -> None:
        if "lost" in message:
            raise BertineError(f"{parts[number].files[0]}: {message['lost']}{hint}")
        if "error" in message:
            raise BertineError(message["error"])
        report(number, None if "done" in message else PartProgress(**message["progress"]))

    return receive


def _largest_first(parts: Sequence[CorpusPart]) -> list[int]:
    return sorted(range(len(parts)), key=lambda number: (-parts[number].size, number))


def _ray_task(line: str, tokenizer: str) -> dict[str, Any]:
    """Make a part on some machine of a Ray cluster, and return its last message."""
    # The task has one core; `tokenizers` would take all. It counts them when it is first used.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    try:
        return _outcome(line, _loaded(tokenizer))
    except BertineError as error:  # this machine does not see the folder, say
        return {"error": str(error)}


#: Reads a tokenizer, once in each process.
_loaded = functools.lru_cache(1)(Tokenizer.load)


def _outcome(
    line: str, tokenizer: Tokenizer, report: OnPartProgress | None = None
) -> dict[str, Any]:
    """Make the part of a line, and return its last message."""
    try:
        make_part(CorpusPart.from_json(line), tokenizer, report)
    except BertineError as error:
        return {"error": str(error)}
    return {"done": True}


def _maker(tokenizer_folder: str) -> workers.Work:
    """Return what makes parts in a process, with the tokenizer of a folder."""
    tokenizer = Tokenizer.load(tokenizer_folder)
    last = 0.0

    def work(line: str, say: workers.Say) -> None:
        def report(progress: PartProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= _SECONDS:
                last = time.monotonic()
                say(progress=vars(progress))

        say(**_outcome(line, tokenizer, report))

    return work


if __name__ == "__main__":
    workers.serve(lambda: _maker(sys.argv[1]))
