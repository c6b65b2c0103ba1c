"""OpenMP libraries are loaded with our settings, and nothing else sees them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bertine.core.cpu import allowed_cores

_OURS = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python without settings but those given."""
    clean = {name: value for name, value in os.environ.items() if name not in _OURS}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**clean, **environment},
    )


def read_by_the_library(code: str, **environment: str) -> dict[str, str]:
    """What GCC's OpenMP library says that it has read when it was loaded."""
    said = run(code, OMP_DISPLAY_ENV="VERBOSE", **environment).stderr
    if "GOMP_SPINCOUNT" not in said:
        pytest.skip("PyTorch's OpenMP library is not GCC's")
    lines = [line.partition("=") for line in said.splitlines() if "=" in line]
    return {name.split()[-1]: value.strip(" '") for name, _, value in lines}


@pytest.mark.slow
def test_gcc_s_library_keeps_its_own_wait_and_others_get_a_short_one() -> None:
    ours = read_by_the_library("import bertine, torch")
    assert ours["GOMP_SPINCOUNT"] == read_by_the_library("import torch")["GOMP_SPINCOUNT"]
    while_imported = run("from bertine.core import cpu; print(cpu.settings()['KMP_BLOCKTIME'])")
    assert while_imported.stdout.strip() == "0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "count"),
    [("GOMP_SPINCOUNT", "77", "77"), ("OMP_WAIT_POLICY", "PASSIVE", "0")],
)
def test_what_the_user_set_stays(name: str, value: str, count: str) -> None:
    read = read_by_the_library("import bertine, torch", **{name: value})
    assert read["GOMP_SPINCOUNT"] == count


@pytest.mark.slow
def test_programs_that_are_started_later_see_nothing_of_it() -> None:
    code = "import os, {}\nprint(*[name for name in os.environ if name in %r])" % (_OURS,)  # noqa: UP031
    assert run(code.format("bertine")).stdout.split() == []
    assert run(code.format("bertine, torch")).stdout.split() == []
    kept = run(code.format("bertine, torch"), GOMP_SPINCOUNT="9", OMP_NUM_THREADS="1")
    assert sorted(kept.stdout.split()) == ["GOMP_SPINCOUNT", "OMP_NUM_THREADS"]


@pytest.mark.slow
@pytest.mark.skipif(allowed_cores() < 2, reason="one core is all that there is")
def test_a_quota_limits_the_threads_from_the_beginning() -> None:
    """As in a small container on a large machine."""
    code = """
from bertine.core import cpu
cpu.cpu_quota = lambda: 0.4
import os, torch
print(torch.get_num_threads(), "OMP_NUM_THREADS" in os.environ)
"""
    assert run(code).stdout == "1 False\n"
    assert run(code, OMP_NUM_THREADS="2").stdout == "2 True\n"
