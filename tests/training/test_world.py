"""What a process makes of the place that its launcher gave it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from bertine.core import cpu
from bertine.core.errors import BertineError
from bertine.training import distributed as world_module
from bertine.training.distributed import DistContext, all_ranks, join


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As the second of four processes on a machine of 8 cores; nobody is there to talk to."""
    place = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    for name, value in (place | {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(world_module.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(world_module.dist, "get_backend_config", lambda: "cpu:gloo,cuda:nccl")
    return monkeypatch


def test_only_a_launcher_makes_several(started: pytest.MonkeyPatch) -> None:
    assert cpu.launched()
    assert not cpu.is_main()
    started.delenv("MASTER_PORT")  # some schedulers set RANK and WORLD_SIZE for their own ends
    assert not cpu.launched()
    assert cpu.is_main()
    assert cpu.local_processes() == 1
    started.setenv("MASTER_PORT", "1")
    assert cpu.local_processes() == 4
    started.setenv("WORLD_SIZE", "1")
    assert not cpu.launched()


@pytest.mark.parametrize(
    ("given", "by_user", "expected"),
    [(None, False, 2), ("1", False, 2), ("1", True, None), ("3", True, None), ("3", False, None)],
)
def test_processes_share_the_cores(
    started: pytest.MonkeyPatch, given: str | None, by_user: bool, expected: int | None
) -> None:
    """torchrun sets OMP_NUM_THREADS to 1 of its own accord; what a user says stays."""
    chosen: list[int] = []
    started.setattr(torch, "set_num_threads", chosen.append)
    started.setattr(world_module, "_set_by_user", lambda: by_user)
    if given is None:
        started.delenv("OMP_NUM_THREADS", raising=False)
    else:
        started.setenv("OMP_NUM_THREADS", given)
    found = join("cpu")
    assert chosen == ([] if expected is None else [expected])
    assert (found.rank, found.size, found.main, found.device.type) == (1, 4, False, "cpu")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_what_the_user_said_is_in_the_launchers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getppid", os.getpid)  # this process in the launcher's place
    own = Path("/proc/self/environ").read_bytes().split(b"\0")
    said = any(entry.startswith(b"OMP_NUM_THREADS=") for entry in own)
    # What torchrun itself adds does not show there, as this does not.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert world_module._set_by_user() == said


def test_each_process_takes_a_gpu_of_its_own(started: pytest.MonkeyPatch) -> None:
    taken: list[torch.device] = []
    started.setattr(world_module, "resolve_device", lambda name: torch.device(name or "cuda"))
    started.setattr(torch.cuda, "set_device", taken.append)
    started.setattr(torch.cuda, "device_count", lambda: 4)
    assert join(None).device == torch.device("cuda", 1)
    assert taken == [torch.device("cuda", 1)]
    with pytest.raises(BertineError, match="a GPU of its own"):
        join("cuda:0")
    started.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(BertineError, match="4 processes on a machine with 2 GPUs"):
        join("cuda")


def test_a_group_is_left_by_whoever_made_it(started: pytest.MonkeyPatch) -> None:
    """A program that has a process group of its own goes on to use it."""
    left: list[str] = []
    started.setattr(world_module, "_leave", lambda: left.append("the group"))
    verb = all_ranks(lambda: join("cpu").size)
    assert verb() == 4
    assert left == []
    there = iter([False, True])  # before and after it is made
    started.setattr(world_module.dist, "is_initialized", lambda: next(there))
    started.setattr(world_module.dist, "init_process_group", lambda *_, **__: None)
    started.setattr(world_module.dist, "PrefixStore", lambda *_: None)
    started.setattr(cpu, "store", lambda: None)
    started.setattr(world_module, "_made", False)  # and so again when the test is over
    assert verb() == 4
    assert left == ["the group"]


def test_a_group_that_does_not_fit_is_told(started: pytest.MonkeyPatch) -> None:
    started.setattr(world_module.dist, "get_backend_config", lambda: "cuda:nccl")
    with pytest.raises(BertineError, match=r"no backend for cpu \(cuda:nccl\); make it with"):
        join("cpu")


def test_a_process_by_itself_asks_nobody() -> None:
    alone = DistContext()
    assert alone.main
    assert alone.any(True)
    assert not alone.any(False)
    assert alone.from_main(1.5) == 1.5
    assert alone.gather({"a": 1}) == [{"a": 1}]
    assert alone.alone(lambda: (1, "b")) == (1, "b")
