"""Processes that begin quickly: they are forked from a server that has imported what they need
(:mod:`preloaded`). Several of one command, as ``torchrun`` would start them, or one to kill."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["preloaded"])

#: Seconds until a set of processes is said to hang.
PATIENCE = 300


@dataclass
class End:
    """How a process ended: its exit status (negative: the signal), what it gave back (JSON), and
    all that it wrote."""

    status: int | None
    result: Any
    output: str


def forked(target: Callable[..., Any], *given: Any) -> Any:
    """Start a process that calls ``target(*given)``."""
    process = server().Process(target=target, args=given)
    process.start()
    return process


def bertine(arguments: list[str]) -> None:
    """What a forked process of the command line does: all but the imports, and in silence."""
    from bertine.cli import main
    from bertine.core.console import console

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    sys.stdout = sys.stderr = console.file = open(os.devnull, "w")  # noqa: SIM115
    sys.exit(main(arguments))


def server() -> Any:
    """Start the server, if it is not there. Its environment says where modules are: Python 3.11
    hands ``sys.path`` to it and does not look at it there, and what cannot be imported is passed
    over."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forkserver.ensure_running()
    return _context


def _work(
    rank: int, size: int, port: int, folder: str, job: Callable[..., Any], given: dict[str, Any]
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": "2",  # what the user has set
    }
    from bertine.core.console import console

    torch.set_num_threads(1)
    # Forked by a server that reads its signals from a pipe, and to be as if started by a shell.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console.quiet = rank != 0
    with open(Path(folder) / f"output-{rank}", "w", buffering=1) as output:
        console.file = output
        faulthandler.register(signal.SIGUSR1, file=output, all_threads=True)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                result = job(rank, **given)
            except BaseException:
                traceback.print_exc(file=output)
                output.flush()
                os._exit(1)
    (Path(folder) / f"result-{rank}").write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(result if isinstance(result, int) else 0)


def _where_all_are(processes: list[Any], folder: Path) -> str:
    """Have every process write the stacks of its threads, end them, and return what they wrote."""
    for process in processes:
        if process.is_alive():
            os.kill(process.pid, signal.SIGUSR1)
    time.sleep(5)
    for process in processes:
        process.kill()
        process.join()
    return "\n".join(
        f"--- {file.name}\n{file.read_text()}" for file in sorted(folder.glob("output-*"))
    )


def run(size: int, folder: Path, job: Callable[..., Any], **given: Any) -> list[End]:
    """Call ``job(rank, **given)`` in each of `size` processes.

    Args:
        folder: for what they write; made.
        job: a function of a module, that gives JSON; an int is taken as the exit status.
    """
    folder.mkdir(parents=True)
    # The launcher keeps the store, and outlives the processes.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    processes = [forked(_work, rank, size, port, str(folder), job, given) for rank in range(size)]
    ends = []
    for rank, process in enumerate(processes):
        process.join(PATIENCE)
        hung = process.is_alive()
        result, output = folder / f"result-{rank}", folder / f"output-{rank}"
        if hung:
            written = _where_all_are(processes, folder)
            raise AssertionError(f"process {rank} hung; they wrote:\n{written}")
        text = output.read_text() if output.exists() else ""
        ends.append(
            End(
                process.exitcode,
                json.loads(result.read_text()) if result.exists() else None,
                text,
            )
        )
    return ends
