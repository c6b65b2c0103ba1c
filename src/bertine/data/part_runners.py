"""Who makes the parts of a token store: this process, several processes, or a Ray cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertine.data.parts import Part, PartProgress, make_part
from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.launch import cores
from bertine.text.tokenizer import Tokenizer

#: Called with the number of a part and how far it is; None: it is done.
PartTold = Callable[[int, PartProgress | None], None]


def run_here(parts: Sequence[Part], tokenizer: Tokenizer, told: PartTold) -> None:
    """Make `parts` one after the other in this process.

    Raises:
        BertineError: as :func:`bertine.data.parts.make_part`.
    """
    for number, part in enumerate(parts):
        make_part(part, tokenizer, lambda progress, number=number: told(number, progress))  # type: ignore[misc]
        told(number, None)


def run_processes(parts: Sequence[Part], tokenizer: Path, told: PartTold, processes: int) -> None:
    """Make `parts` in so many processes, the largest first.

    Args:
        parts: what to make.
        tokenizer: its folder.
        told: called from several threads, never two at a time.
        processes: how many; each takes the next part when it has done one.

    Raises:
        BertineError: of the first part in which something is wrong; or a process was killed.
            Parts that were done by then stay.
    """
    queue = sorted(range(len(parts)), key=lambda number: (parts[number].size, -number))
    lock = threading.Lock()
    errors: dict[int, BaseException] = {}
    workers: list[subprocess.Popen[str]] = []

    def stop() -> None:
        for worker in workers:
            worker.kill()

    def work(worker: subprocess.Popen[str]) -> None:
        while True:
            with lock:
                if not queue or errors:
                    return
                number = queue.pop()
            try:
                _ask(worker, parts[number], number, told, lock)
            except BaseException as error:
                with lock:
                    errors[number] = error
                return

    environment = _environment(max(cores() // processes, 1))
    command = [sys.executable, "-m", "bertine.data.part_worker", str(tokenizer)]
    try:
        for _ in range(processes):
            with os_errors(sys.executable, "starting a process; give fewer --processes"):
                workers.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        encoding="utf-8",
                        env=environment,
                        # Ctrl-C is for this process, which then ends the others.
                        process_group=0,
                    )
                )
        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                # With a limit, because a wait without one cannot be interrupted everywhere.
                while thread.is_alive():
                    thread.join(0.5)
        except BaseException:
            with lock:
                queue.clear()
            stop()
            for thread in threads:
                thread.join()
            raise
    finally:
        stop()
        for worker in workers:
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with _ignored():
                        pipe.close()
    if errors:
        raise errors[min(errors)]


def _ask(
    worker: subprocess.Popen[str], part: Part, number: int, told: PartTold, lock: threading.Lock
) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    with _ignored():  # a worker that is gone says nothing below
        worker.stdin.write(part.to_json() + "\n")
        worker.stdin.flush()
    for line in worker.stdout:
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise BertineError(message["error"])
        with lock:
            if "done" in message:
                told(number, None)
                return
            told(number, PartProgress(**message["progress"]))
    status = worker.wait()
    raise BertineError(
        f"{part.files[0]}: the process that worked on it was ended "
        f"({'by signal ' + str(-status) if status < 0 else 'status ' + str(status)}; killed for "
        "want of memory?); run again, with fewer --processes"
    )


class _ignored:
    """Errors of writing to a process that is gone do not matter."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, OSError)


def _environment(threads: int) -> dict[str, str]:
    """The environment of a process that uses so many threads and finds this Bertine."""
    home = str(Path(__file__).parents[2])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    # `tokenizers` and `rensa` share out their work by the former.
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "RAYON_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }


def run_ray(parts: Sequence[Part], tokenizer: Path, told: PartTold, address: str) -> None:
    """Make `parts` as tasks of a Ray cluster, one core each.

    All machines must see the corpus and the store's folder under the same paths.

    Args:
        parts: what to make; paths are absolute.
        tokenizer: its folder.
        told: called when a part is done.
        address: of the cluster (``auto``, ``host:6379``), or ``local``: one is started here.

    Raises:
        BertineError: Ray is not installed or not there, or something is wrong with a part.
    """
    try:
        import ray
    except ImportError as error:
        raise BertineError("Ray is not installed; pip install 'bertine[ray]'") from error
    if ray.is_initialized():
        raise BertineError("Ray is in use in this program; prepare the store in one of its own")
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        if address == "local":
            # Only names go through its object store, for which it would set memory aside.
            options |= {"include_dashboard": False, "object_store_memory": 100 << 20}
            ray.init(address="local", num_cpus=cores(), **options)
        else:
            ray.init(address=address, **options)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise BertineError(f"--ray {address}: no Ray cluster there ({reason[:200]})") from error
    try:
        task = ray.remote(num_cpus=1, max_retries=3)(_ray_task)
        queue = sorted(range(len(parts)), key=lambda number: (-parts[number].size, number))
        waiting: dict[Any, int] = {}
        # A few more than there is room for at a time: a million parts are not sent at once.
        room = 2 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
        upcoming = iter(queue)
        errors: dict[int, str] = {}
        while True:
            while len(waiting) < room and not errors:
                number = next(upcoming, -1)
                if number < 0:
                    break
                waiting[task.remote(parts[number].to_json(), str(tokenizer))] = number
            if not waiting or errors:
                break
            for reference in ray.wait(list(waiting), num_returns=1)[0]:
                number = waiting.pop(reference)
                try:
                    wrong = ray.get(reference)
                except ray.exceptions.RayError as error:
                    wrong = f"{parts[number].files[0]}: {' '.join(str(error).split())[:300]}"
                if wrong is None:
                    told(number, None)
                else:
                    errors[number] = wrong
    finally:
        ray.shutdown()
    if errors:
        raise BertineError(errors[min(errors)])


def _ray_task(line: str, tokenizer: str) -> str | None:
    """Make a part on some machine of a Ray cluster; what is wrong, if something is."""
    # The task has one core; `tokenizers` would take all. It counts them when it is first used.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    try:
        make_part(Part.from_json(line), _loaded(tokenizer))
    except BertineError as error:
        return str(error)
    return None


_tokenizers: dict[str, Tokenizer] = {}


def _loaded(tokenizer: str) -> Tokenizer:
    """The tokenizer, read once in each process."""
    if tokenizer not in _tokenizers:
        _tokenizers.clear()
        _tokenizers[tokenizer] = Tokenizer.load(tokenizer)
    return _tokenizers[tokenizer]
