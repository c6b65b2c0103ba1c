"""While other programs use the cores, threads wait shortly; results stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertine.core import spin_count
from bertine.core.cpu import allowed_cores
from bertine.core.spin_count import ShortWaits

_GIVEN = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY", "OMP_WAIT_POLICY")
_TASKS = Path("/proc/self/task")

needs_libgomp = pytest.mark.skipif(
    spin_count._libgomp() is None or allowed_cores() < 2 or not _TASKS.is_dir(),
    reason="needs GCC's OpenMP library, two cores and Linux",
)


class Others:
    """Other programs that come and go as the test says."""

    cores: float | None = None

    def cores_used(self) -> float | None:
        return self.cores


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def waits(others: Others, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShortWaits]:
    """Of a user who has said nothing, with as many threads as there are cores."""
    for name in _GIVEN:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(min(allowed_cores(), 4))
    waits = ShortWaits()
    monkeypatch.setattr(waits, "_others", others)
    yield waits
    others.cores = None
    waits.adapt()
    torch.set_num_threads(before)


def threads() -> int:
    """Of this process, by the system's count."""
    return len(list(_TASKS.iterdir()))


@needs_libgomp
def test_an_idle_team_is_there_while_others_are(waits: ShortWaits, others: Others) -> None:
    torch.ones(300, 300) @ torch.ones(300, 300)  # this thread's own team
    before = threads()
    waits.adapt()
    assert not waits.on
    assert threads() == before
    others.cores = 1.0
    for _ in range(3):
        waits.adapt()
        assert waits.on
        assert threads() >= before + 2  # one of Python's, and at least one of its team
    others.cores = None
    waits.adapt()
    assert not waits.on
    for _ in range(200):  # the system takes the ended threads away a little later
        if threads() == before:
            break
        time.sleep(0.01)
    assert threads() == before


@needs_libgomp
def test_results_are_the_same_bits(waits: ShortWaits, others: Others) -> None:
    """A few steps of training, half of them beside other programs."""

    def trained(crowded: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(
            torch.nn.Linear(96, 384), torch.nn.GELU(), torch.nn.LayerNorm(384)
        )
        optimizer = torch.optim.AdamW(layers.parameters(), 1e-3)
        for step in range(8):
            others.cores = 1.0 if crowded and step % 4 >= 2 else None
            waits.adapt()
            assert waits.on == (others.cores is not None)
            layers(torch.randn(512, 96)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return torch.cat([each.detach().flatten() for each in layers.parameters()])

    assert torch.equal(trained(crowded=True), trained(crowded=False))


@pytest.mark.parametrize("name", _GIVEN)
def test_what_the_user_said_about_waiting_stays(
    waits: ShortWaits, others: Others, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    others.cores = 1.0
    waits.adapt()
    assert not waits.on


def test_nothing_is_done_where_it_is_of_no_use(
    waits: ShortWaits, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.cores = 1.0
    torch.set_num_threads(1)
    waits.adapt()
    assert not waits.on, "one thread waits for nobody"
    torch.set_num_threads(2)
    monkeypatch.setattr(spin_count, "_libgomp", lambda: None)
    waits.adapt()
    assert not waits.on, "another library of OpenMP"


@pytest.mark.slow
@needs_libgomp
def test_a_process_ends_with_an_idle_team() -> None:
    code = """
import torch
from bertine.core.spin_count import ShortWaits
waits = ShortWaits()
waits._others.cores_used = lambda: 1.0
torch.set_num_threads(2)
waits.adapt()
print(waits.on)
"""
    clean = {name: value for name, value in os.environ.items() if name not in _GIVEN}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
