"""Predicting a file that was stopped in the middle is resumed: no row lost, none twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq
import pytest
import torch

from bertine.core.errors import BertineError
from bertine.families.bert import BertConfig
from bertine.inference import predict_files
from bertine.inference.predict import predict
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.classification import TextClassification
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tokenization.tokenizer import Tokenizer

from .test_predictor import random_texts


@pytest.fixture(scope="module")
def predictor(classifier: Path) -> Predictor:
    return Predictor.load(classifier, "cpu", "fp32")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(predict_files, "CHUNK_ROWS", 5)
    path = tmp_path / "in.csv"
    texts = [text.replace(",", ".") for text in random_texts(33)]
    rows = [f"{i},{text} {'very ' * (i % 3 * 15)}" for i, text in enumerate(texts)]
    path.write_text("id,text\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def as_workbook(table: Path) -> Path:
    book = openpyxl.Workbook()
    for line in table.read_text(encoding="utf-8").splitlines():
        book.active.append(line.split(","))
    book.save(table.with_suffix(".xlsx"))
    return table.with_suffix(".xlsx")


def cells(path: Path) -> list[Any]:
    return list(openpyxl.load_workbook(path).active.values)


class Stopped(BaseException):
    pass


def stop_after(predictor: Predictor, chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run, done = predictor.run, 0

    def limited(examples: Any) -> Any:
        nonlocal done
        done += 1
        if done > chunks:
            raise Stopped
        return run(examples)

    monkeypatch.setattr(predictor, "run", limited)


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.xlsx"])
@pytest.mark.parametrize("chunks", [0, 1, 4])
def test_stopped_and_gone_on_with(
    predictor: Predictor, table: Path, name: str, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = table.with_name("whole-" + name), table.with_name(name)
    if name == "out.xlsx":
        table = as_workbook(table)
    undisturbed = predict(predictor, table, whole)
    with monkeypatch.context() as patch:
        stop_after(predictor, chunks, patch)
        with pytest.raises(Stopped):
            predict(predictor, table, out)
    folder = table.with_name(f".{name}.unfinished")
    assert not out.exists()
    # The first chunk is committed when the second begins.
    assert folder.exists() == (chunks >= 1)
    if chunks == 4:
        # What a killed process had written but not committed.
        with open(folder / "rows", "a", encoding="utf-8") as handle:
            handle.write("half a ro")
    with monkeypatch.context() as patch:
        if chunks == 4:
            stop_after(predictor, 3, patch)  # 33 rows are 7 chunks, and 4 are done
        report = predict(predictor, table, out, resume=True)
    # A part of a workbook has the time when it was written.
    same = cells if name == "out.xlsx" else Path.read_bytes
    assert same(out) == same(whole)
    assert not folder.exists()
    assert (report.rows, report.cut, report.pieces_lost) == (
        undisturbed.rows,
        undisturbed.cut,
        undisturbed.pieces_lost,
    )
    assert report.cut > 0
    assert report.rows_before == (5 * chunks if chunks else 0)
    if chunks:
        assert any(f"went on after {5 * chunks} rows" in line for line in report.lines())


def as_list(table: Path) -> Path:
    rows = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()]
    text = json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]])
    table.with_suffix(".json").write_text(text, encoding="utf-16")
    return table.with_suffix(".json")


@pytest.mark.parametrize("name", ["out.csv", "out.json"])
def test_tables_in_utf_16_are_resumed(
    predictor: Predictor, table: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = table.with_name("whole-" + name), table.with_name(name)
    if name == "out.json":
        table = as_list(table)
    else:
        table.write_text(table.read_text(encoding="utf-8"), encoding="utf-16")
    predict(predictor, table, whole)
    with monkeypatch.context() as patch:
        stop_after(predictor, 2, patch)
        with pytest.raises(Stopped):
            predict(predictor, table, out)
    assert predict(predictor, table, out, resume=True).rows_before == 10
    assert out.read_bytes() == whole.read_bytes()
    assert whole.read_text(encoding="utf-16").count("probability") == (
        33 if name == "out.json" else 1
    )


@pytest.mark.slow
def test_killed_by_the_system(classifier: Path, table: Path) -> None:
    """A process that ends without a word, as by ``kill -9``."""
    whole, out = table.with_name("whole.csv"), table.with_name("out.csv")
    code = f"""
import os, signal
from bertine import predict
from bertine.inference import predict_files
from bertine.inference.predictor import Predictor
predict_files.CHUNK_ROWS = 5
predictor = Predictor.load({str(classifier)!r}, "cpu", "fp32", threads=1)
run, done = predictor.run, []
def killed(examples):
    done.append(1)
    if len(done) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(examples)
predictor.run = killed
predict(predictor, {str(table)!r}, {str(out)!r}, show_progress=False)
"""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    journal = json.loads((table.with_name(".out.csv.unfinished") / "journal.json").read_text())
    assert journal["rows"] == 15
    predict(classifier, table, whole, device="cpu", precision="fp32")
    report = predict(classifier, table, out, device="cpu", precision="fp32", resume=True)
    assert report.rows_before == 15
    assert out.read_bytes() == whole.read_bytes()


def test_only_the_same_is_gone_on_with(
    predictor: Predictor,
    classifier: Path,
    pair_classifier: Path,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = table.with_name("out.csv")
    with monkeypatch.context() as patch:
        stop_after(predictor, 2, patch)
        with pytest.raises(Stopped):
            predict(predictor, table, out)
    with pytest.raises(BertineError, match="begun with another setting"):
        predict(predictor, table, out, resume=True, all_probabilities=True)
    pairs = Predictor.load(pair_classifier, "cpu", "fp32")
    with pytest.raises(BertineError, match="begun with another model and another setting"):
        predict(pairs, table, out, resume=True, text_columns=["id", "text"])
    rough = Predictor.load(classifier, "cpu", "bf16")
    with pytest.raises(BertineError, match=r"begun with another precision \(float32\);"):
        predict(rough, table, out, resume=True)
    with open(table, "a", encoding="utf-8") as handle:
        handle.write("99,good cat\n")
    with pytest.raises(BertineError, match="begun with another input"):
        predict(predictor, table, out, resume=True)
    # Without the word it begins anew.
    report = predict(predictor, table, out)
    assert (report.rows, report.rows_before) == (34, 0)
    assert not table.with_name(".out.csv.unfinished").exists()
    for input, output in (("-", out), (table, "-")):
        with pytest.raises(BertineError, match="resume is for an input and an output that are"):
            predict(predictor, input, output, resume=True)


def test_what_is_kept_and_what_is_dropped_is_told(
    predictor: Predictor,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = table.with_name("out.csv")
    with monkeypatch.context() as patch:
        stop_after(predictor, 2, patch)
        with pytest.raises(Stopped):
            predict(predictor, table, out, show_progress=False)
    assert "so far are kept; resume=True goes on" in capsys.readouterr().err
    assert predict(predictor, table, out, show_progress=False).rows == 33
    assert "an earlier process has left are dropped" in capsys.readouterr().err
    predict(predictor, table, out, show_progress=False)
    assert "dropped" not in capsys.readouterr().err


def test_a_change_in_the_middle_of_a_long_input_is_seen(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_files, "CHUNK_ROWS", 2)
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    rows = [f"{'x' * (1 << 20)},good cat\n" for _ in range(4)]
    table.write_text("id,text\n" + "".join(rows), encoding="utf-8")
    with monkeypatch.context() as patch:
        stop_after(predictor, 1, patch)
        with pytest.raises(Stopped):
            predict(predictor, table, out)
    rows[2] = rows[2].replace("good", "very")
    table.write_text("id,text\n" + "".join(rows), encoding="utf-8")
    with pytest.raises(BertineError, match="begun with another input"):
        predict(predictor, table, out, resume=True)


def test_stopped_just_after_the_rows_became_the_output(
    predictor: Predictor, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = table.with_name("out.csv")

    def stopped(*args: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("bertine.inference.answer_files.sync_path", stopped)
        with pytest.raises(Stopped):
            predict(predictor, table, out)
    whole = out.read_bytes()
    folder = table.with_name(".out.csv.unfinished")
    assert (folder / "journal.json").exists()
    assert predict(predictor, table, out, resume=True).rows == 33
    assert out.read_bytes() == whole
    assert not folder.exists()


def test_two_processes_do_not_write_the_same_file(
    predictor: Predictor, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = table.with_name("out.csv")
    run = predictor.run

    def meanwhile(examples: Any) -> Any:
        monkeypatch.setattr(predictor, "run", run)
        with pytest.raises(BertineError, match="another process is writing it"):
            predict(predictor, table, out)
        return run(examples)

    monkeypatch.setattr(predictor, "run", meanwhile)
    assert predict(predictor, table, out).rows == 33


def test_a_header_that_cannot_be_written_leaves_nothing(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = TextClassification(("a\tb", "c"), ("text",), "label", 24)
    predictor = Predictor(Model(config, task.heads(config)), tokenizer, task)
    source = tmp_path / "in.tsv"
    source.write_text("id\ttext\n1\tgood cat\n")
    with pytest.raises(BertineError, match="cannot be written without quotes"):
        predict(predictor, source, tmp_path / "out.tsv", all_probabilities=True)
    assert [path.name for path in tmp_path.iterdir()] == ["in.tsv"]


def test_parquet_out_keeps_types(predictor: Predictor, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    rows: list[dict[str, Any]] = [
        {"text": "good cat", "n": None, "tags": ["a"]},
        {"text": "bad dog", "n": 2, "tags": []},
        {"text": "", "n": 2.5, "more": True},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    predict(predictor, source, out)
    found = pq.read_table(out).to_pylist()
    answers = predictor.predict([row["text"] for row in rows])
    assert list(found[0]) == ["text", "n", "tags", "label", "probability", "more", "empty"]
    assert [row["n"] for row in found] == [None, 2.0, 2.5]
    assert [row["tags"] for row in found] == [["a"], [], None]
    assert [row["more"] for row in found] == [None, None, True]
    assert [row["label"] for row in found] == [*(each.label for each in answers[:2]), None]
    assert [row["empty"] for row in found] == [None, None, True]
    # And Parquet to Parquet.
    again = tmp_path / "again.parquet"
    predict(predictor, out, again)
    assert pq.read_table(again).column_names[-3:-1] == [
        "predicted_label",
        "predicted_probability",
    ]


def test_where_there_is_no_answer_there_is_no_place(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = SpanExtraction(max_length=24, limits=SpanLimits(max_question_length=8))
    torch.manual_seed(5)
    predictor = Predictor(Model(config, task.heads(config)), tokenizer, task)
    source = tmp_path / "in.csv"
    source.write_text("question,context\nthe cat,the cat sat\nthe dog,\n")
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        predict(predictor, source, tmp_path / name)
    answers = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert answers[0]["end"] - answers[0]["start"] == len(answers[0]["answer"])
    assert (answers[1]["answer"], answers[1]["start"], answers[1]["end"]) == ("", None, None)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == answers
    assert (tmp_path / "out.csv").read_text().splitlines()[2] == "the dog,,,,,0.0"


def test_parquet_out_of_values_without_a_common_type(
    predictor: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    source.write_text('{"text": "good", "x": 1}\n{"text": "bad", "x": "one"}\n')
    predict(predictor, source, out)
    assert pq.read_table(out).column("x").to_pylist() == ["1", '"one"']
    assert "no Parquet type holds all values of 'x', so they are" in capsys.readouterr().err
