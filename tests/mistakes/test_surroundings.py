"""What is around a command: closed streams, signals, little memory, what killed processes left."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertine.core.files import atomic_dir, atomic_file
from bertine.core.process import prepared_process
from bertine.core.workers import environment
from mistakes.commands import one_line


def started(*arguments: object, shell: str = 'exec "$@"') -> subprocess.Popen[str]:
    """``bertine`` in a process of its own, begun by a line of the shell."""
    command = [sys.executable, "-m", "bertine", *map(str, arguments)]
    return subprocess.Popen(
        ["sh", "-c", shell, "sh", *command],
        env=environment(1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_during_embed_leaves_nothing(
    made: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    out = tmp_path / "out" / "vectors.npy"
    # Under nohup SIGHUP is ignored, which a new process inherits.
    before = signal.signal(number, signal.SIG_DFL)
    process = started("embed", made / "model", "--input", "-", "--output", out)
    signal.signal(number, before)
    assert process.stdin is not None
    process.stdin.write("the old cat\n")  # and no end
    process.stdin.flush()
    deadline = time.monotonic() + 100
    while not list(tmp_path.glob("out/.vectors.npy.tmp-*")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == status
    assert said.splitlines()[-1] == "bertine: terminated"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp437", "utf-8"])
def test_a_console_in_any_encoding_gets_every_line(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", written)
    with prepared_process():
        print("a → 好 \udce9", flush=True)
    shown = written.buffer.getvalue().decode(encoding)
    assert shown.startswith("a → 好" if encoding == "utf-8" else r"a \u2192 \u597d")
    assert shown.endswith("\\udce9\n")


@pytest.mark.slow
def test_standard_streams_that_are_closed(made: Path, tmp_path: Path) -> None:
    table = made / "train.csv"
    predict = ["predict", made / "classifier", "--input", table, "--precision", "fp32"]
    process = started(*predict, shell='exec "$@" >&-')
    assert "standard output is closed" in one_line(process.communicate()[1])
    assert process.returncode == 2
    process = started("predict", made / "classifier", "--input", "-", shell='exec "$@" <&-')
    assert "the file is empty" in one_line(process.communicate()[1])
    out = tmp_path / "out.csv"
    process = started(*predict, "--output", out, shell='exec "$@" <&- >&- 2>&-')
    process.communicate()
    assert process.returncode == 0
    assert out.read_text().count("\n") == table.read_text().count("\n")


@pytest.mark.slow
def test_little_address_space_is_one_line(made: Path) -> None:
    process = started("inspect", made / "model", shell='ulimit -v 500000; exec "$@"')
    assert "the address space is limited to 512.0 MB" in one_line(process.communicate()[1])
    assert process.returncode == 2


def test_what_a_killed_process_left_goes_and_what_is_held_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    child = os.fork()
    if child == 0:
        with atomic_file(path), atomic_dir(tmp_path / "folder") as folder:
            (folder / "half").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(tmp_path.glob(".*.tmp-*"))) == 2
    other = tmp_path / ".other.tmp-01234567"
    other.touch()
    with atomic_file(path) as held, atomic_dir(tmp_path / "folder") as folder:
        (folder / "whole").touch()
        assert list(tmp_path.glob(".file.tmp-*")) == [held]
        assert list(tmp_path.glob(".folder.tmp-*")) == [folder]
        held.write_text("first")
        with atomic_file(path) as second:  # what another one still writes is let be
            second.write_text("second")
        assert held.read_text() == "first"
    assert path.read_text() == "first"
    assert [each.name for each in (tmp_path / "folder").iterdir()] == ["whole"]
    assert sorted(each.name for each in tmp_path.glob(".*")) == [other.name]
