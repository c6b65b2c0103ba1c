"""Work that is shared out to processes: every job is done once, a process that is lost is told and
replaced, and what the teller raises ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertine.core import workers
from bertine.core.errors import BertineError

PROGRAM = """
import json, os, sys, time
from bertine.core.workers import serve

def start():
    def work(line, say):
        job = json.loads(line)
        print("a word of its own")  # not to be taken for a message
        if job == "die":
            os.kill(os.getpid(), 9)
        if job == "leave":
            os._exit(3)
        say(progress=job)
        if job == "wrong":
            say(error="it is wrong")
        else:
            say(done=[job, os.environ.get("SLOT"), os.environ["OMP_NUM_THREADS"]])
    return work

serve(start)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "toy_worker.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return ["toy_worker"]


def done(
    jobs: list[Any], program: list[str], processes: int, **options: Any
) -> dict[int, list[dict[str, Any]]]:
    """What was said of each job."""
    told: dict[int, list[dict[str, Any]]] = {number: [] for number in range(len(jobs))}
    workers.run_processes(
        [json.dumps(job) for job in jobs],
        program,
        lambda number, message: told[number].append(message),
        processes,
        **options,
    )
    return told


def test_every_job_is_done_once(program: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 5)
    slots = [{"SLOT": "a"}, {"SLOT": "b"}]
    told = done([1, 2, 3, 4, 5], program, 2, more=lambda slot: slots[slot])
    for number, messages in told.items():
        assert messages[0] == {"progress": number + 1}
        (last,) = messages[1:]
        assert last["done"][0] == number + 1
        assert last["done"][1] in ("a", "b")
        assert last["done"][2] == "2"  # of five cores


def test_jobs_are_begun_in_the_order_that_is_wanted(program: list[str]) -> None:
    begun: list[int] = []

    def told(number: int, message: dict[str, Any]) -> None:
        if "done" in message:
            begun.append(number)

    workers.run_processes(["1", "2", "3"], program, told, 1, order=[2, 0, 1])
    assert begun == [2, 0, 1]


def test_a_process_that_is_lost_is_told_and_replaced(program: list[str]) -> None:
    told = done(["die", "wrong", "leave", "well"], program, 1)
    assert "by signal 9" in told[0][-1]["lost"]
    assert told[1][-1] == {"error": "it is wrong"}
    assert "status 3" in told[2][-1]["lost"]
    assert told[3][-1]["done"][0] == "well"


def test_what_the_teller_raises_ends_the_work(program: list[str]) -> None:
    heard: list[int] = []

    def told(number: int, message: dict[str, Any]) -> None:
        heard.append(number)
        if "error" in message:
            raise BertineError(message["error"])

    with pytest.raises(BertineError, match="it is wrong"):
        workers.run_processes(['"wrong"', '"well"', '"well"'], program, told, 1)
    assert set(heard) == {0}


def test_a_program_that_cannot_be_started_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "sys", type("sys", (), {"executable": "/no/such/program"}))
    with pytest.raises(BertineError, match="give fewer processes") as error:
        done([1], ["x"], 1)
    assert "\n" not in str(error.value)


SLOW = """
import os, signal, sys, time
from pathlib import Path
from bertine.core import workers
from bertine.core.workers import serve

FOLDER = Path(sys.argv[1])

def start():
    def work(line, say):
        (FOLDER / str(os.getpid())).touch()
        time.sleep(60)
    return work

if len(sys.argv) == 2:
    serve(start)
else:
    # A shell may have started the tests with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program = ["slow_worker", str(FOLDER)]
    workers.run_processes(["1", "2", "3"], program, lambda *_: None, 2)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_running(number: signal.Signals, tmp_path: Path) -> None:
    """Whether they are ended (Ctrl-C) or end by themselves (the process that asked is gone)."""
    (tmp_path / "slow_worker.py").write_text(SLOW)
    begun = tmp_path / "begun"
    begun.mkdir()
    paths = [str(tmp_path), str(Path(workers.__file__).parents[2])]
    asking = subprocess.Popen(
        [sys.executable, "-m", "slow_worker", str(begun), "ask"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(list(begun.iterdir())) == 2)
        asking.send_signal(number)
        asking.wait(20)
    finally:
        asking.kill()
        asking.wait()
    pids = [int(path.name) for path in begun.iterdir()]
    assert len(pids) == 2  # the third job was not begun
    wait_until(lambda: not any(map(is_running, pids)))


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
