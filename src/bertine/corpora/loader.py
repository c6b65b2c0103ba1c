"""Batches made ahead of the training loop, by processes of their own.

``batch(step)`` is a pure function, so which process makes a batch, and when, changes nothing: a
run has the same bits with any number of workers, and may be resumed with another number.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from bertine.core.cpu import cores
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.corpora.batch import Batch

if sys.platform == "linux":
    import fcntl

#: Bytes of made batches that wait in the pipe of a worker: one of the usual size holds less
#: than a batch, which the loop would then wait for while it is copied piece by piece.
_WAITING = 1 << 20
#: The most workers that are started unasked.
_MOST = 4

#: What travels between the processes: arrays, whose bytes go through a pipe. Tensors would go
#: through shared memory, of which a container often has little.
_Arrays = dict[str, Any]


def default_workers(device: torch.device | str, processes: int = 1) -> int:
    """Return how many workers pay where nobody says: none on a CPU, where training uses all cores
    and a worker would take from it what it gives; on a GPU, whose host has little else to do, one
    at least, and up to four where the cores are there.

    Args:
        device: where the model computes.
        processes: that train on this machine and share its cores.
    """
    if torch.device(device).type == "cpu":
        return 0
    return max(1, min(_MOST, cores() // max(1, processes) - 1))


@contextlib.contextmanager
def batches_ahead(
    batch: Callable[[int], Batch],
    start: int,
    steps: int,
    *,
    workers: int = 0,
) -> Iterator[Callable[[int], Batch]]:
    """Yield a function that gives what ``batch(step)`` gives, for `start`, ``start + 1``, … in
    this order. With workers, the batches of the coming steps are being made meanwhile.

    Workers end with the context; where the process that started them is killed, by themselves.

    Args:
        batch: a pure function of the step. Where processes cannot be forked (on others than
            Linux) it is pickled.
        start: the first step that is asked for.
        steps: none is asked for from this one on.
        workers: processes; 0 makes each batch when it is asked for, in this one.

    Raises:
        BertineError: `workers` is negative; in the function, what ``batch`` raises, and where a
            worker was killed.
    """
    if workers < 0:
        raise BertineError(f"workers is {workers}, but must be at least 0")
    if workers == 0:
        yield batch
        return
    with _processes(batch, range(start, steps), workers) as readers:
        upcoming = start

        def get(step: int) -> Batch:
            nonlocal upcoming
            if step != upcoming or step >= steps:
                raise ValueError(f"step {step} is not the next one")
            try:
                received = readers[(step - start) % workers].recv()
            except (EOFError, OSError) as error:
                raise BertineError(
                    f"step {step + 1}: a process that makes batches was killed, perhaps for want "
                    f"of memory; go on with {option('resume', True)}, and {option('workers', 0)} "
                    f"or a smaller batch"
                ) from error
            if isinstance(received, Exception):
                raise received
            upcoming += 1
            return _unpacked(received)

        yield get


@contextlib.contextmanager
def _processes(
    batch: Callable[[int], Batch], steps: range, workers: int
) -> Iterator[list[Connection]]:
    """Start processes that make the batches of `steps` in turn, each into a pipe of its own, and
    yield what to read from. A full pipe holds its process up; one that nobody reads ends it.

    There is no lock, thread or queue between the processes, so none can be left behind by a fork
    or a kill.
    """
    # A fork shares the memory of the store, and needs no "if __name__ ..." in a user's script.
    # The children neither compute in parallel nor print, so that locks and threads of the
    # parent, which a fork does not carry over, do not matter.
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    readers: list[Connection] = []
    processes = []
    try:
        for number in range(workers):
            reader, writer = context.Pipe(duplex=False)
            readers.append(reader)
            if sys.platform == "linux":
                with contextlib.suppress(OSError):  # a user may have so many bytes in all
                    fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, _WAITING)
            arguments = (batch, steps[number::workers], writer, readers)
            process = context.Process(target=_work, args=arguments, daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 and later warn of every fork in a process that has threads.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            processes.append(process)
            writer.close()
        yield readers
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for reader in readers:
            reader.close()


def _work(
    batch: Callable[[int], Batch], steps: range, writer: Connection, readers: list[Connection]
) -> None:
    """Make the batches of `steps` in this process, and write them."""
    # What the parent had, its process group for one, is not this one's to take down.
    gc.freeze()
    # Ctrl-C goes to all processes of a terminal, and torchrun's SIGTERM to the whole group of the
    # process that it started; the loop decides what comes of them, and needs batches until then.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handler came along
    # The parent alone reads, so that its end is noticed.
    for reader in readers:
        reader.close()
    torch.set_num_threads(1)
    with contextlib.suppress(BrokenPipeError):
        for step in steps:
            try:
                message: _Arrays | Exception = _packed(batch(step))
            except Exception as error:
                message = error
            writer.send(message)


def _packed(batch: Batch) -> _Arrays:
    return {
        "input_ids": batch.input_ids.numpy(),
        "attention_mask": batch.attention_mask.numpy(),
        "token_type_ids": batch.token_type_ids.numpy().astype(np.int8),
        "targets": {name: value.numpy() for name, value in batch.targets.items()},
        "rows": batch.rows,
    }


def _unpacked(arrays: _Arrays) -> Batch:
    return Batch(
        torch.from_numpy(arrays["input_ids"]),
        torch.from_numpy(arrays["attention_mask"]),
        torch.from_numpy(arrays["token_type_ids"].astype(np.int64)),
        {name: torch.from_numpy(value) for name, value in arrays["targets"].items()},
        arrays["rows"],
    )
