"""A full disk, a real one: one line that names the file, and nothing half written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import toys
from bertine.cli import main
from mistakes.commands import Fails, corpus_commands, finetune, one_line, pretrain


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """``full_disk(kilobytes)``: a folder on a file system with so much room."""
    mounted: list[Path] = []

    def mount(kilobytes: int) -> Path:
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("no command 'mount' to make a small disk with")
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, keep: int) -> None:
    """Leave `keep` kilobytes free."""
    (disk / "ballast").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - keep * 1024)))


def full(message: str) -> bool:
    return "the disk is full while writing it; free some space and run again" in message


def test_no_room_for_a_vocabulary(
    tmp_path: Path, made: Path, fails: Fails, full_disk: Callable[[int], Path]
) -> None:
    disk = full_disk(100)
    fill(disk, 4)
    out = disk / "vocab"
    message = fails("vocab", made / "corpus.txt", "--out", out, "--vocab-size", 200)
    assert full(message)
    assert str(out) in message or ".vocab.tmp-" in message


@pytest.mark.slow
def test_no_room_for_a_store(
    tmp_path: Path, made: Path, fails: Fails, full_disk: Callable[[int], Path]
) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt", documents=4000)
    disk = full_disk(200)
    tokenizer = ["--tokenizer", made / "tokenizer"]
    assert full(fails("prepare", corpus, *tokenizer, "--out", disk / "store"))
    # A store that is there stays.
    good = disk / "good"
    shutil.copytree(made / "store", good)
    assert full(fails("prepare", corpus, *tokenizer, "--out", good))


@pytest.mark.parametrize("keep", [0, 8])
def test_no_room_for_a_run(
    tmp_path: Path, made: Path, fails: Fails, full_disk: Callable[[int], Path], keep: int
) -> None:
    """Not even for its first file, or for its first checkpoint in the first step."""
    disk = full_disk(100)
    fill(disk, keep)
    command = pretrain(made / "store", made / "model", disk / "run")
    if not keep:
        assert full(fails(*command))
        return
    assert main([str(a) for a in [*command, "--checkpoint-every", 1]]) == 2
    assert leftovers(disk) == []


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if ".tmp-" in path.name]


def test_no_room_for_a_checkpoint_and_then_there_is(
    tmp_path: Path,
    made: Path,
    capsys: pytest.CaptureFixture[str],
    full_disk: Callable[[int], Path],
) -> None:
    """The checkpoint before stays, and the run goes on from it to the same end."""
    size = 3 * (made / "model" / "model.safetensors").stat().st_size // 1024
    disk = full_disk(20 * size)
    fill(disk, int(1.7 * size))
    run = disk / "run"
    command = [
        *pretrain(made / "store", made / "model", run),
        *("--steps", 4, "--checkpoint-every", 1),
    ]
    assert main([str(argument) for argument in command]) == 2
    message = one_line(capsys.readouterr().err)
    assert full(message)
    assert "step-00000002" in message
    assert os.listdir(run / "checkpoints") == ["step-00000001"]
    assert leftovers(disk) == []
    assert not (run / "model").exists()
    (disk / "ballast").unlink()
    assert main([str(argument) for argument in [*command, "--resume"]]) == 0
    whole = [*pretrain(made / "store", made / "model", tmp_path / "whole"), "--steps", 4]
    assert main([str(argument) for argument in whole]) == 0
    assert (run / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model" / "model.safetensors"
    ).read_bytes()
    assert toys.log(run) == toys.log(tmp_path / "whole")


def test_no_room_for_a_model(
    tmp_path: Path,
    made: Path,
    capsys: pytest.CaptureFixture[str],
    full_disk: Callable[[int], Path],
) -> None:
    disk = full_disk(1000)
    fill(disk, 64)
    command = finetune(made / "model", made / "train.csv", disk / "run")
    command += ["--checkpoint-every", 1000]  # more than there are steps
    assert main([str(argument) for argument in command]) == 2
    message = one_line(capsys.readouterr().err)
    assert full(message)
    # The best epoch's checkpoint or the model directory, whichever is first without room.
    assert str(disk / "run") in message
    assert not (disk / "run" / "model").exists()
    assert leftovers(disk) == []


def test_no_room_for_predictions(
    tmp_path: Path, made: Path, fails: Fails, full_disk: Callable[[int], Path]
) -> None:
    table = toys.write_labelled(tmp_path / "texts.csv", rows=4000)
    disk = full_disk(100)
    (disk / "answers.csv").write_text("those of yesterday")
    command = ["predict", made / "classifier", "--input", table, "--output", disk / "answers.csv"]
    message = fails(*command)
    assert full(message)
    assert str(disk / "answers.csv") in message


# As processes, as a shell sees them


@pytest.mark.slow
@pytest.mark.parametrize("case", ["corpus", "weights", "disk"])
def test_from_the_shell(
    made: Path, tmp_path: Path, full_disk: Callable[[int], Path], case: str
) -> None:
    if case == "corpus":
        command = corpus_commands(made, tmp_path, tmp_path / "missing.txt")[1]
    elif case == "weights":
        shutil.copytree(made / "classifier", tmp_path / "model")
        os.truncate(tmp_path / "model" / "model.safetensors", 1000)
        command = ["predict", tmp_path / "model", "--input", made / "train.csv"]
    else:
        disk = full_disk(100)
        fill(disk, 0)
        command = pretrain(made / "store", made / "model", disk / "run")
    before = toys.tree(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "bertine", *map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert toys.tree(tmp_path) == before
