"""Distribute jobs to processes of this machine or over a Ray cluster.

A job is a line of JSON; its messages are JSON objects: ``done`` with the result, ``error`` with
the reason, ``lost`` if the worker is gone, and any progress messages in between. What the jobs are
(parts of a token store, runs of a search) is up to the callers.

Workers are plain subprocesses that end with their stdin, and so with the process that started
them, however that ended. (Not `multiprocessing`: it would run the user's own program again in each
process, and leaves its processes behind when the first is killed.)
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bertine.core.cpu import cores
from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.names import option

#: Called with a job's number and each of its messages.
OnMessage = Callable[[int, dict[str, Any]], None]
#: Sends a message about a job, given as keywords.
Say = Callable[..., None]
#: Does the job of a line, and finally sends ``done=…`` or ``error=…``.
Work = Callable[[str, Say], None]

#: The keys of a job's last message.
_ENDS = ("done", "error")


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a process that uses `threads` threads and can import this
    Bertine."""
    home = str(Path(__file__).parents[2])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    # `tokenizers` and `rensa` parallelize by the former.
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "RAYON_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }


def serve(start: Callable[[], Work]) -> None:
    """Do the jobs that arrive on stdin, one per line, until stdin ends, even in the middle of a
    job.

    Args:
        start: creates the function that does the jobs; called once.
    """
    # Only messages go to the parent process; prints go to stderr.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()

    def say(**message: Any) -> None:
        try:
            out.write(json.dumps(message) + "\n")
            out.flush()
        except OSError:
            os._exit(0)

    work = start()
    while True:
        work(lines.get(), say)


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Append everything that this process writes to stderr to the file `path`."""
    with os_errors(path, "writing it"):
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    before = os.dup(2)
    try:
        sys.stderr.flush()
        os.dup2(log, 2)
        yield
        sys.stderr.flush()
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(log)


class _Pool:
    """The started processes, all of which end with :meth:`stop`."""

    def __init__(self, program: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", *program]
        self._workers: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self.stopped = False

    def start(self, environment: dict[str, str]) -> subprocess.Popen[str]:
        with (
            self._lock,
            os_errors(sys.executable, f"starting a process; give fewer {option('processes')}"),
        ):
            if self.stopped:
                raise BertineError("stopped")
            worker = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                env=environment,
                # Ctrl-C goes to this process, which then ends the others.
                process_group=0,
            )
            self._workers.append(worker)
            return worker

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            for worker in self._workers:
                worker.kill()

    def close(self) -> None:
        self.stop()
        for worker in self._workers:
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def run_processes(
    jobs: Sequence[str],
    program: Sequence[str],
    receive: OnMessage,
    processes: int,
    *,
    order: Sequence[int] | None = None,
    more: Callable[[int], dict[str, str]] = lambda _: {},
) -> None:
    """Run `jobs` in this many processes, which share the cores.

    Args:
        jobs: one line of JSON each.
        program: the module that does them with :func:`serve`, and its arguments.
        receive: called with every message of a job, from several threads, never two at a time. The
            last message has ``done``, ``error`` or ``lost``: its process has ended, and the text
            says how; another process replaces it. An exception in `receive` ends the whole run
            after the jobs in progress.
        processes: number of processes; each takes the next job when it is free.
        order: the job numbers in the order in which they start; None: as given.
        more: (a process's number) → further variables for its environment.

    Raises:
        BertineError: a process cannot be started. Also the exception of `receive` for the first
            job for which it raised one.
    """
    waiting = list(reversed(range(len(jobs)) if order is None else order))
    threads = max(cores() // processes, 1)
    lock = threading.Lock()
    errors: dict[int, BaseException] = {}
    pool = _Pool(program)

    def start(slot: int) -> subprocess.Popen[str]:
        return pool.start({**environment(threads), **more(slot)})

    def work(slot: int, worker: subprocess.Popen[str]) -> None:
        while True:
            with lock:
                if not waiting or errors:
                    return
                number = waiting.pop()
            try:
                if _ask(worker, jobs[number], number, receive, lock, pool):
                    continue
                with lock:
                    over = not waiting or bool(errors)
                if over or pool.stopped:
                    return
                worker = start(slot)
            except BaseException as error:
                with lock:
                    errors[number] = error
                return

    try:
        workers = [start(slot) for slot in range(processes)]
        hands = [threading.Thread(target=work, args=pair) for pair in enumerate(workers)]
        for hand in hands:
            hand.start()
        try:
            for hand in hands:
                # With a timeout, because a wait without one cannot be interrupted on every system.
                while hand.is_alive():
                    hand.join(0.5)
        except BaseException:
            with lock:
                waiting.clear()
            pool.stop()
            for hand in hands:
                hand.join()
            raise
    finally:
        pool.close()
    if errors:
        raise errors[min(errors)]


def _ask(
    worker: subprocess.Popen[str],
    job: str,
    number: int,
    receive: OnMessage,
    lock: threading.Lock,
    pool: _Pool,
) -> bool:
    """Run the job in `worker`; return whether the worker can take another job."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    with contextlib.suppress(OSError):  # a dead worker sends nothing below
        worker.stdin.write(job + "\n")
        worker.stdin.flush()
    for line in worker.stdout:
        message: dict[str, Any] = json.loads(line)
        with lock:
            receive(number, message)
        if any(key in message for key in _ENDS):
            return True
    status = worker.wait()
    if not pool.stopped:
        how = f"by signal {-status}" if status < 0 else f"status {status}"
        with lock:
            receive(
                number,
                {
                    "lost": f"the process that worked on it was ended ({how}; killed for want of "
                    "memory?)"
                },
            )
    return False


def run_ray(
    jobs: Sequence[str],
    work: Callable[..., dict[str, Any]],
    receive: OnMessage,
    address: str,
    *,
    given: Sequence[Any] = (),
    order: Sequence[int] | None = None,
    resources: Callable[[Any], dict[str, float]] = lambda _: {"num_cpus": 1},
) -> None:
    """Run `jobs` as tasks of a Ray cluster.

    Args:
        jobs: one line of JSON each.
        work: (a job, `given`) → its last message; a function of a module.
        receive: called with the last message of each job, which has ``done``, ``error`` or
            ``lost``. An exception in it ends the whole run at once.
        address: the cluster's address (``auto``, ``host:6379``), or ``local``: one is started here.
        given: further argument of `work`.
        order: the job numbers in the order in which they start; None: as given.
        resources: (the module `ray`) → the needs of a task, as options of a Ray task.

    Raises:
        BertineError: Ray is not installed, is already in use, or cannot be reached. Also the
            exception of `receive`.
    """
    with _ray(address) as ray:
        task = ray.remote(max_retries=3, **resources(ray))(work)
        waiting: dict[Any, int] = {}
        # A few more than can run at a time: a million parts are not submitted at once.
        room = 2 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
        upcoming = iter(range(len(jobs)) if order is None else order)
        while True:
            while len(waiting) < room:
                number = next(upcoming, -1)
                if number < 0:
                    break
                waiting[task.remote(jobs[number], *given)] = number
            if not waiting:
                return
            for reference in ray.wait(list(waiting), num_returns=1)[0]:
                number = waiting.pop(reference)
                try:
                    message = ray.get(reference)
                except ray.exceptions.RayError as error:
                    message = {"lost": " ".join(str(error).split())[:300]}
                receive(number, message)


@contextlib.contextmanager
def _ray(address: str) -> Iterator[Any]:
    """Yield the module `ray`, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        raise BertineError("Ray is not installed; install it with: pip install ray") from error
    if ray.is_initialized():
        raise BertineError("Ray is in use in this program; run this in one of its own")
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        if address == "local":
            # Only names go through its object store, so it need not reserve memory for it.
            options |= {"include_dashboard": False, "object_store_memory": 100 << 20}
            ray.init(address="local", num_cpus=cores(), **options)
        else:
            ray.init(address=address, **options)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise BertineError(
            f"{option('ray', address)}: no Ray cluster there ({reason[:200]})"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
