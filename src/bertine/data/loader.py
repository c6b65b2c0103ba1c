"""Batches made ahead of the training loop, by processes of their own.

``batch(step)`` is a pure function, so which process makes a batch, and when, changes nothing: a
run has the same bits with any number of workers, and may be resumed with another number.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import torch

from bertine.cores.launch import cores
from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.options.names import option

#: Batches that are asked for ahead, for each worker: one in the making, one waiting.
_AHEAD = 2
#: The most workers that are started unasked.
_MOST = 4

#: What travels between the processes: arrays, whose bytes go through a pipe. Tensors would go
#: through shared memory, of which a container often has little.
_Arrays = dict[str, Any]

#: In a worker: the function that it was started for.
_batch: Callable[[int], Batch] | None = None


def default_workers(device: torch.device | str, processes: int = 1) -> int:
    """How many workers pay where nobody says: none on a CPU, where training uses all cores and a
    worker would take from it what it gives; on a GPU, whose host has little else to do, one at
    least, and up to four where the cores are there.

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
    pool = _pool(batch, workers)
    waiting: deque[tuple[int, Future[_Arrays]]] = deque()
    upcoming = start

    def ask() -> None:
        nonlocal upcoming
        while upcoming < steps and len(waiting) < _AHEAD * workers:
            waiting.append((upcoming, pool.submit(_make, upcoming)))
            upcoming += 1

    def get(step: int) -> Batch:
        if not waiting or waiting[0][0] != step:
            raise ValueError(f"step {step} is not the next one")
        try:
            made = _unpacked(waiting.popleft()[1].result())
            ask()
        except BrokenProcessPool as error:
            raise BertineError(
                f"step {step + 1}: a process that makes batches was killed, perhaps for want of "
                f"memory; go on with {option('resume', True)}, and {option('workers', 0)} or a "
                f"smaller batch"
            ) from error
        return made

    try:
        ask()
        yield get
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _pool(batch: Callable[[int], Batch], workers: int) -> ProcessPoolExecutor:
    # A fork shares the memory of the store, and needs no "if __name__ ..." in a user's script.
    # The children neither compute in parallel nor print, so that locks and threads of the
    # parent, which a fork does not carry over, do not matter.
    method = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context(method),
        initializer=_begin,
        initargs=(batch,),
    )
    with warnings.catch_warnings():
        # Python 3.12 and later warn of every fork in a process that has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(_nothing).result()  # all workers of a forking pool start with the first task
    return pool


def _nothing() -> None:
    pass


def _begin(batch: Callable[[int], Batch]) -> None:
    """In a worker: get ready."""
    global _batch
    _batch = batch
    # Ctrl-C goes to all processes of a terminal, and torchrun's SIGTERM to the whole group of the
    # process that it started; the loop decides what comes of them, and needs batches until then.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent's handler came along; the pool ends what is left of it by this signal.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _make(step: int) -> _Arrays:
    assert _batch is not None
    batch = _batch(step)
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
