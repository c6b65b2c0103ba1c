"""A run says that other programs use its cores."""

from __future__ import annotations

import pytest
import torch

from bertine.core import spin_count
from bertine.core.spin_count import CpuContention


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A machine of four cores of which this process uses three; its clocks, in seconds."""
    clocks = {"now": 0.0, "all": 0.0, "ours": 0.0, "threads": 4}
    monkeypatch.setattr(spin_count, "busy_seconds", lambda: clocks["all"])
    monkeypatch.setattr(spin_count, "cores", lambda: 4)
    monkeypatch.setattr(spin_count.time, "monotonic", lambda: clocks["now"])
    monkeypatch.setattr(spin_count.time, "process_time", lambda: clocks["ours"])
    monkeypatch.setattr(torch, "get_num_threads", lambda: int(clocks["threads"]))
    return clocks


def pass_time(clocks: dict[str, float], seconds: float, *, ours: float, others: float) -> None:
    clocks["now"] += seconds
    clocks["ours"] += ours * seconds
    clocks["all"] += (ours + others) * seconds


def test_it_is_said_while_they_are_there(machine: dict[str, float]) -> None:
    watched = CpuContention()
    pass_time(machine, 2.0, ours=3.9, others=0.1)
    assert watched.line() is None
    pass_time(machine, 2.0, ours=2.5, others=1.5)
    assert watched.line() == "1.5 of 4 cores"
    pass_time(machine, 0.1, ours=4.0, others=0.0)
    assert watched.line() == "1.5 of 4 cores", "too short a time to tell"
    pass_time(machine, 5.0, ours=4.0, others=0.0)
    assert watched.line() is None


def test_cores_that_the_run_leaves_are_for_others(machine: dict[str, float]) -> None:
    machine["threads"] = 2
    watched = CpuContention()
    pass_time(machine, 2.0, ours=2.0, others=2.0)
    assert watched.line() is None


def test_what_others_did_in_a_pause_does_not_count(machine: dict[str, float]) -> None:
    watched = CpuContention(0.5, 2.0)
    pass_time(machine, 30.0, ours=0.0, others=4.0)
    assert watched.cores_used() is None
    pass_time(machine, 1.0, ours=3.0, others=1.0)
    assert watched.cores_used() == pytest.approx(1.0)
    pass_time(machine, 30.0, ours=0.0, others=0.0)
    assert watched.cores_used() == pytest.approx(1.0), "not known until the next look"
    pass_time(machine, 1.0, ours=4.0, others=0.0)
    assert watched.cores_used() is None


def test_a_step_that_others_make_long_is_no_pause(machine: dict[str, float]) -> None:
    watched = CpuContention(0.5, 1.0)
    pass_time(machine, 5.0, ours=1.0, others=3.0)
    assert watched.cores_used() == pytest.approx(3.0)


def test_where_the_system_does_not_count_nothing_is_said(
    machine: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spin_count, "busy_seconds", lambda: None)
    watched = CpuContention()
    pass_time(machine, 2.0, ours=1.0, others=3.0)
    assert watched.line() is None
