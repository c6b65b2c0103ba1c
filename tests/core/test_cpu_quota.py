"""The limits of control groups are found, wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertine.core import cpu
from bertine.core import process as memory
from bertine.core.cpu import cpu_quota, limiting_groups

#: Lines of ``mountinfo`` that have nothing to do with it.
_OTHERS = "21 1 254:0 / / rw - ext4 /dev/vda rw\n22 1 0:5 / /proc rw - proc proc rw\n"


def process(folder: Path, groups: str, mounts: str) -> Path:
    """A folder as ``/proc/self`` is one."""
    here = folder / "proc"
    here.mkdir()
    (here / "cgroup").write_text(groups)
    (here / "mountinfo").write_text(_OTHERS + mounts)
    return here


def version_2(folder: Path, limits: dict[str, str]) -> str:
    """Groups with ``cpu.max`` below `folder`; the line of their mount."""
    for group, limit in limits.items():
        (folder / "fs" / group).mkdir(parents=True, exist_ok=True)
        (folder / "fs" / group / "cpu.max").write_text(limit + "\n")
    return f"30 23 0:26 / {folder}/fs rw,nosuid - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({"": "150000 100000"}, 1.5),
        ({"": "max 100000"}, None),
        ({"": "max 100000", "pod": "400000 100000", "pod/box": "max 100000"}, 4.0),
        ({"": "300000 100000", "pod": "200000 100000", "pod/box": "50000 20000"}, 2.0),
        ({"": "nonsense", "pod": "1 0", "pod/box": "-5 100000"}, None),
        ({}, None),
    ],
)
def test_the_smallest_limit_on_the_way_up_counts(
    tmp_path: Path, limits: dict[str, str], cores: float | None
) -> None:
    mount = version_2(tmp_path, limits)
    assert cpu_quota(process(tmp_path, "0::/pod/box\n", mount)) == cores


def test_inside_a_container_the_path_may_lie_outside(tmp_path: Path) -> None:
    mount = version_2(tmp_path, {"": "250000 100000"})
    assert cpu_quota(process(tmp_path, "0::/../../other\n", mount)) == 2.5


@pytest.mark.parametrize("root", ["/", "/docker/0a"])
def test_version_1_with_its_own_files(tmp_path: Path, root: str) -> None:
    """The container's own group is mounted, or all are; a folder's name has a space."""
    top = tmp_path / "c groups"
    group = top if root == "/docker/0a" else top / "docker" / "0a"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("150000\n")
    (group / "cpu.cfs_period_us").write_text("50000\n")
    escaped = str(top).replace(" ", "\\040")
    mounts = (
        f"31 23 0:27 {root} {escaped} rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"32 23 0:28 {root} {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
    )
    groups = "4:memory:/docker/0a\n3:cpu,cpuacct:/docker/0a\n0::/\n"
    assert cpu_quota(process(tmp_path, groups, mounts)) == 3.0
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    cpu_quota.cache_clear()
    assert cpu_quota(tmp_path / "proc") is None


def test_memory_has_limits_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = version_2(tmp_path, {"pod/box": "100000 100000"})
    here = process(tmp_path, "0::/pod/box\n", mount)
    (tmp_path / "fs" / "pod" / "memory.max").write_text("3000000\n")
    (tmp_path / "fs" / "pod" / "box" / "memory.max").write_text("max\n")
    monkeypatch.setattr(memory, "limiting_groups", lambda kind: limiting_groups(kind, here))
    assert memory.memory_limit() == 3_000_000


def test_without_proc_there_is_none(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("quota", "cores"), [(None, 8), (0.4, 1), (1.0, 1), (1.5, 2), (8.0, 8), (64.0, 8)]
)
def test_a_part_of_a_core_counts_as_one(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    monkeypatch.setattr(cpu, "allowed_cores", lambda: 8)
    monkeypatch.setattr(cpu, "cpu_quota", lambda: quota)
    assert cpu.cores() == cores
    assert (cpu.quota_line() is None) == (cores == 8)


def test_the_quota_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "allowed_cores", lambda: 64)
    monkeypatch.setattr(cpu, "cpu_quota", lambda: 2.5)
    said = "this container has the time of 2.5 of 64 cores: computing with 3"
    assert cpu.quota_line() == said
