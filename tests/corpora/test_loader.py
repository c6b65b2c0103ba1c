"""Batches made ahead are the batches; workers do not outlive who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.corpora.loader import batches_ahead

STEPS = 9

ORPHANS = """
import os, sys, time
import torch
from bertine.corpora.batch import Batch
from bertine.corpora.loader import batches_ahead

def batch(step):
    os.write(1, b"%d\\n" % os.getpid())  # at once, also where Python does not buffer
    ids = torch.full((64, 512), step)
    return Batch(ids, ids >= 0, ids * 0)

with batches_ahead(batch, 0, 1000, workers=3) as get:
    get(0)
    time.sleep(60)
"""

#: A training process under torchrun holds SIGTERM back until the step is done.
HELD_BACK = """
import os, signal, sys
import torch
from bertine.corpora.batch import Batch
from bertine.corpora.loader import batches_ahead
from bertine.core.errors import BertineError

parent = os.getpid()

def hold(number, frame):
    if os.getpid() == parent:
        print("held back", flush=True)

signal.signal(signal.SIGTERM, hold)

def batch(step):
    if step == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    ids = torch.full((2, 8), step)
    return Batch(ids, ids >= 0, ids * 0)

try:
    with batches_ahead(batch, 0, 40, workers=2) as get:
        for step in range(40):
            if step == 3:
                os.killpg(0, signal.SIGTERM)
            get(step)
except BertineError as error:
    print(error)
"""


def same(one: Batch, other: Batch) -> bool:
    pairs = [
        (one.input_ids, other.input_ids),
        (one.attention_mask, other.attention_mask),
        (one.token_type_ids, other.token_type_ids),
        *((one.targets[name], other.targets[name]) for name in one.targets),
    ]
    return one.targets.keys() == other.targets.keys() and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("loader") / "store")


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("start", [0, 5])
def test_same_batches_with_any_number_of_workers(store: Path, workers: int, start: int) -> None:
    data = toys.pretraining_data(store)
    with batches_ahead(data.batch, start, STEPS, workers=workers) as get:
        for step in range(start, STEPS):
            assert same(get(step), data.batch(step))


def test_leaving_early_ends_the_workers(store: Path) -> None:
    data = toys.pretraining_data(store)
    before = children(os.getpid())

    def interrupted() -> None:
        with batches_ahead(data.batch, 0, 100_000, workers=2) as get:
            get(0)
            assert len(children(os.getpid()) - before) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert children(os.getpid()) <= before


def test_an_error_in_a_worker_is_the_same_error(store: Path) -> None:
    data = toys.pretraining_data(store)

    def batch(step: int) -> Batch:
        if step == 3:
            raise BertineError("document 7 holds the id 99")
        return data.batch(step)

    with batches_ahead(batch, 0, STEPS, workers=2) as get:
        for step in range(3):
            get(step)
        with pytest.raises(BertineError) as caught:
            get(3)
    assert str(caught.value) == "document 7 holds the id 99"


def test_a_killed_worker_is_told_in_one_line(store: Path) -> None:
    data = toys.pretraining_data(store)

    def batch(step: int) -> Batch:
        if step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return data.batch(step)

    def all_of_them() -> None:
        with batches_ahead(batch, 0, STEPS, workers=1) as get:
            for step in range(STEPS):
                get(step)

    with pytest.raises(BertineError, match=r"was killed.*workers=0") as caught:
        all_of_them()
    assert "\n" not in str(caught.value)


def lines_of(script: str, *arguments: str) -> list[str]:
    """What `script` prints; in a session of its own, as torchrun starts a process."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_workers_outlive_a_signal_to_the_whole_group() -> None:
    assert lines_of(HELD_BACK, "-1") == ["held back"]


@pytest.mark.slow
def test_the_others_end_with_a_killed_worker_where_sigterm_is_held_back() -> None:
    first, told = lines_of(HELD_BACK, "20")
    assert first == "held back"
    assert "was killed" in told


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_killed_runs_leave_no_orphans() -> None:
    process = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    workers: set[int] = set()
    while len(workers) < 3:
        workers.add(int(process.stdout.readline()))
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 20
    while alive := {worker for worker in workers if running(worker)}:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.05)


def test_a_negative_number_is_refused(store: Path) -> None:
    data = toys.pretraining_data(store)
    with (
        pytest.raises(BertineError, match="workers is -1"),
        batches_ahead(data.batch, 0, 1, workers=-1),
    ):
        pass


def running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.add(int(stat.parent.name))
    return found
