"""Texts on the command line, and what is piped in without an option."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from bertine.cli import main
from bertine.inference.predictor import Predictor
from cli_calls import error_line
from serving.models import write_task_model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in ("text", "pairs", "choice", "spans", "tagging"):
        write_task_model(folder / kind, kind)
    return folder


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """What ``bertine predict`` prints, where stdout is not a terminal."""
    assert main(["predict", *arguments, "--precision", "fp32"]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_text_is_answered_as_a_file_of_it_is(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a cat sat", "the dog ran on"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    expected = rows(capsys, str(models / "text"), "--input", str(tmp_path / "in.txt"))
    assert rows(capsys, str(models / "text"), *texts) == expected
    assert [line.split("\t")[-1] for line in expected] == texts


def test_a_pipe_needs_no_option(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = rows(capsys, str(models / "text"), "a cat sat")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a cat sat\n")))
    assert rows(capsys, str(models / "text")) == expected


def test_several_texts_make_one_example_where_the_model_takes_several(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [json.loads(line) for line in rows(capsys, str(models / "pairs"), *"abcd")]
    assert [(row["premise"], row["hypothesis"]) for row in pairs] == [("a", "b"), ("c", "d")]
    # More choices than in training, and a csv by its name.
    out = tmp_path / "answers.csv"
    assert rows(capsys, str(models / "choice"), *"qabcde", "--output", str(out)) == []
    header, row = out.read_text().splitlines()
    assert header == "question,a,b,c,d,choice 5,choice,probability"
    assert row.startswith("q,a,b,c,d,e,")
    question = ["--question", "who sat", "--context", "a cat sat on the mat"]
    (answer,) = map(json.loads, rows(capsys, str(models / "spans"), *question))
    predictor = Predictor.load(models / "spans", "cpu", "fp32")
    expected = predictor({"question": "who sat", "context": "a cat sat on the mat"})
    assert answer["answer"] == expected.answer
    (tagged,) = map(json.loads, rows(capsys, str(models / "tagging"), "a cat sat"))
    assert tagged["text"] == "a cat sat"


@pytest.mark.slow
def test_a_terminal_shows_readable_lines(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    (line,) = rows(capsys, str(models / "text"), "a cat sat")
    answer = Predictor.load(models / "text", "cpu", "fp32")("a cat sat")
    assert line == f"{answer.label}  {answer.probability:.1%}"
    shown = rows(capsys, str(models / "text"), "a cat\x1b[31m", "the dog", "--all-probabilities")
    assert len(shown) == 6  # each answer, and below it both labels
    assert shown[0].endswith(r"a cat\x1b[31m")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("text", ["a", "--resume"], "--resume is for tables of texts, but texts are given"),
        ("text", ["a", "--input", "f"], "texts are given, so leave out --input"),
        ("text", ["--question", "a", "--context", "b"], "for spans, but the task is 'text'"),
        ("spans", ["--question", "a"], "context is missing; give question and context together"),
        ("pairs", ["a", "b", "c"], "3 texts given, but the model takes 2"),
        ("choice", ["a", "b"], "2 texts given, but the model chooses"),
    ],
)
def test_texts_that_do_not_fit_are_one_line(
    kind: str,
    arguments: list[str],
    said: str,
    models: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said in error_line(capsys, "predict", str(models / kind), *arguments)


def test_nothing_to_predict_is_one_line(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b""))
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert "give a text, --input FILE, or pipe" in error_line(
        capsys, "predict", str(models / "text")
    )


def test_texts_that_the_vocabulary_does_not_know_are_flagged(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": "a cat sat"}\n{"text": "\u0e44\u0e21\u0e48"}\n')
    assert rows(capsys, str(models / "text"), f"--input={source}", f"--output={out}") == []
    found = [json.loads(row).get("unknown") for row in out.read_text().splitlines()]
    assert found == [None, 1.0]
