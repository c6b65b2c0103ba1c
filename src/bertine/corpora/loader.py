"""Make batches ahead of the training loop, in worker processes.

``batch(step)`` is a pure function, so it has no effect which process makes a batch, and when: a run
has the same bits with any number of workers, and may be resumed with another number.
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

#: Pipe capacity of a worker in bytes: the default holds less than a batch, and the loop would wait
#: while a batch is copied piece by piece.
_WAITING = 1 << 20
#: Most workers by default.
_MOST = 4

#: Data between the processes: arrays, whose bytes go through a pipe. Tensors would use shared
#: memory, of which containers often have little.
_Arrays = dict[str, Any]


def default_workers(device: torch.device | str, processes: int = 1) -> int:
    """Return the default number of workers: none on a CPU, where training uses all cores and a
    worker would slow it down; on a GPU, whose host is mostly idle, at least one, and up to four if
    there are enough cores.

    Args:
        device: where the model computes.
        processes: number of training processes on this machine, which share its cores.
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
    """Yield a function that returns ``batch(step)`` for `start`, ``start + 1``, … in this order.
    With workers, the next batches are made in advance.

    Workers end with the context, or by themselves if the parent process is killed.

    Args:
        batch: a pure function of the step. If processes cannot be forked (on systems other than
            Linux) it is pickled.
        start: the first step.
        steps: the end of the steps, exclusive.
        workers: number of processes; 0 makes each batch on demand, in this one.

    Raises:
        BertineError: `workers` is negative; in the function, an error of ``batch``, or a worker was
            killed.
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
    """Start processes that make the batches of `steps` in turn, each with a pipe of its own, and
    yield the pipes. A process waits when its pipe is full, and ends when the reader is gone.

    There is no lock, thread or queue between the processes, so a fork or a kill cannot leave one
    behind.
    """
    # A fork shares the memory of the store, and needs no "if __name__ ..." in a user's script.
    # The children neither compute in parallel nor print, so the locks and threads of the parent,
    # which a fork does not copy, have no effect.
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    readers: list[Connection] = []
    processes = []
    try:
        for number in range(workers):
            reader, writer = context.Pipe(duplex=False)
            readers.append(reader)
            if sys.platform == "linux":
                with contextlib.suppress(OSError):  # the total per user is limited
                    fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, _WAITING)
            arguments = (batch, steps[number::workers], writer, readers)
            process = context.Process(target=_work, args=arguments, daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 and later warns on every fork of a process with threads.
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
    # This process must not end what belongs to the parent, such as its process group.
    gc.freeze()
    # Ctrl-C goes to all processes of a terminal, and torchrun's SIGTERM to the whole group of the
    # process that it started; the loop handles them, and needs batches until then.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # replaces the inherited handler
    # Only the parent keeps the reading end, so that its end is noticed.
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
