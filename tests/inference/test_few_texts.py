"""A few texts are computed at once, without measuring first how to compute them fastest."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pytest

import bertine
import toys
from bertine.cli import main
from bertine.inference.rows import bytes_to_come, unmeasured


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_classifier(tmp_path_factory.mktemp("few") / "model")


def given_as_input(monkeypatch: pytest.MonkeyPatch, text: bytes) -> int:
    """A pipe with `text` in it as standard input; its other end, still open."""
    reading, writing = os.pipe()
    os.write(writing, text)
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading, encoding="utf-8"))
    return writing


def test_files_and_ended_pipes_have_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a text\n")
    assert bytes_to_come(file) == 7
    writing = given_as_input(monkeypatch, b"one\ntwo\n")
    assert bytes_to_come("-") is None, "more may come"
    os.close(writing)
    assert bytes_to_come("-") == 8
    assert sys.stdin.read() == "one\ntwo\n", "nothing was taken from the pipe"
    with open(file, encoding="utf-8") as redirected:
        monkeypatch.setattr(sys, "stdin", redirected)
        assert bytes_to_come("-") == 7


def test_other_inputs_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(b"a text\n" * 100_000)
    assert bytes_to_come(tmp_path / "a.txt.gz") is None
    assert bytes_to_come(tmp_path) is None
    assert bytes_to_come(tmp_path / "nowhere") is None
    monkeypatch.setattr(sys, "stdin", None)
    assert bytes_to_come("-") is None


@pytest.mark.parametrize(
    ("size", "precision"), [(None, "auto"), (100_000, "auto"), (100, "bf16"), (100, "fp32")]
)
def test_what_is_said_holds_and_many_texts_are_measured(size: int | None, precision: str) -> None:
    assert unmeasured("model", size, "cpu", precision) == {"precision": precision}


def test_a_few_texts_get_the_answers_of_fp32(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "few.csv"
    table.write_text("text\nthe red fox runs\nwarm soup and bread\n")
    for precision, name in (("auto", "auto.csv"), ("fp32", "fp32.csv")):
        bertine.predict(model, table, tmp_path / name, precision=precision)
    assert (tmp_path / "auto.csv").read_bytes() == (tmp_path / "fp32.csv").read_bytes()
    assert "computing in" not in capfd.readouterr().err, "no precision was compared"
    table.write_text("text\n" + "the red fox runs\n" * 1000)
    bertine.predict(model, table, tmp_path / "many.csv", device="cpu")
    assert "computing in" in capfd.readouterr().err


def test_a_file_that_is_given_as_a_text_is_pointed_out(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.csv").write_text("text\nthe cat\n")
    assert main(["predict", str(model), "new.csv"]) == 0
    hint = "new.csv is answered as a text; to read the file: --input new.csv"
    assert hint in capsys.readouterr().err
    assert main(["predict", str(model), "new.csv", "--text-column", "text"]) == 2
    assert (
        "new.csv is given as a text; to read the file: --input new.csv" in capsys.readouterr().err
    )
    assert main(["predict", str(model), "no such file"]) == 0
    assert "--input" not in capsys.readouterr().err
