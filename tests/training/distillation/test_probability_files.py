"""Distilling from a file of another model's answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.training.distillation.teacher_on_task import Distilled
from distilling import SHORT, rows_of, texts, write_rows


@pytest.mark.slow
@pytest.mark.parametrize("form", ["columns", "dictionary", "list"])
def test_a_file_of_probabilities_teaches(
    teacher: Path, base: Path, labelled: Path, tmp_path: Path, form: str
) -> None:
    """As `bertine predict` writes it, or in JSON; the student is as good as with the model."""
    train = shutil.copy(labelled / "train.csv", tmp_path / "train.csv")
    file = tmp_path / "theirs.csv"
    bertine.predict(teacher, input=train, output=file, all_probabilities=True)
    more: dict[str, Any] = {}
    if form != "columns":
        answers = [
            {label: float(row[f"probability_{label}"]) for label in ("animal", "dish")}
            for row in rows_of(file)
        ]
        file = tmp_path / "theirs.jsonl"
        values = answers if form == "dictionary" else [list(a.values()) for a in answers]
        more = {} if form == "dictionary" else {"labels": ["animal", "dish"]}
        file.write_text("".join(json.dumps({"probs": value}) + "\n" for value in values))
    result = bertine.distill(
        tmp_path / "train.csv",
        probabilities=file,
        student=base,
        label_weight=0.0,
        out=tmp_path / "run",
        **{**SHORT, "epochs": 4, "learning_rate": 2e-3},
        **more,
    )
    assert result.metrics["accuracy"] > 0.9
    assert result.teacher.metrics["accuracy"] > 0.9
    assert result.teacher.agreement is not None
    assert result.teacher.times_as_fast is None


@pytest.mark.slow
def test_certain_probabilities_are_labels(base: Path, labelled: Path, tmp_path: Path) -> None:
    """One for the label and nothing for the others: the same losses as with labels."""
    rows = rows_of(labelled / "train.csv")
    soft = [
        {
            "text": row["text"],
            "animal": int(row["label"] == "animal"),
            "dish": int(row["label"] == "dish"),
        }
        for row in rows
    ]
    file = write_rows(tmp_path / "soft.csv", soft)
    options: dict[str, Any] = {**SHORT, "log_every": 1, "split_seed": 1}
    train = shutil.copy(labelled / "train.csv", tmp_path / "train.csv")
    runs = {}
    for name, weight in (("soft", 0.0), ("hard", 1.0)):
        bertine.distill(
            Path(train),
            probabilities=file,
            labels=["animal", "dish"],
            student=base,
            label_weight=weight,
            temperature=1.0,
            out=tmp_path / name,
            **options,
        )
        runs[name] = [line["loss"] for line in toys.log(tmp_path / name) if "loss" in line]
    assert runs["soft"] == pytest.approx(runs["hard"], rel=1e-3, abs=1e-4)


def labels_of_row(row: dict[str, str]) -> list[str]:
    return [row["label"], *(["old"] if "old" in row["text"] else [])]


def many_labels(folder: Path, separator: str | None) -> Path:
    """A table with the labels of each text in one column, or a column for each label."""
    rows = rows_of(texts(folder))
    for row in rows:
        names = labels_of_row(row)
        if separator is None:
            row |= {name: str(int(name in names)) for name in ("animal", "dish", "old")}
            del row["label"]
        else:
            row["label"] = separator.join(names)
    return write_rows(folder / "many.csv", rows)


@pytest.mark.slow
@pytest.mark.parametrize("separator", [";", None])
def test_a_file_of_any_number_of_labels_teaches(
    base: Path, tmp_path: Path, separator: str | None
) -> None:
    """Called as `bertine predict` calls them; those of a row sum to anything."""
    data = many_labels(tmp_path, separator)
    answers = [
        {
            f"probability_{label}": 0.95 if label in wanted else 0.05
            for label in ("animal", "dish", "old")
        }
        for wanted in map(labels_of_row, rows_of(texts(tmp_path)))
    ]
    result = bertine.distill(
        data,
        probabilities=write_rows(tmp_path / "theirs.csv", answers),
        teacher_task="multi-label",
        label_separator=separator,
        student=base,
        out=tmp_path / "s",
        **{**SHORT, "epochs": 12, "learning_rate": 2e-3},
    )
    assert isinstance(result, Distilled)
    assert result.teacher.metrics["micro_f1"] == 1.0
    assert result.teacher.labelled == 58
    assert result.validate(data).metrics["micro_f1"] > 0.85
    loaded = bertine.load_model(tmp_path / "s").task
    assert loaded is not None
    assert (loaded.name, loaded.labels) == ("multi-label", ("animal", "dish", "old"))
    chances = [
        answer.probabilities for answer in result.predict([row["text"] for row in rows_of(data)])
    ]
    assert all(min(each.values()) > 0.01 for each in chances)


@pytest.mark.slow
def test_a_file_of_scores_teaches(base: Path, tmp_path: Path) -> None:
    """Of texts without labels: the student scores as the file does."""
    rows = rows_of(texts(tmp_path))
    data = write_rows(tmp_path / "bare.csv", [{"text": row["text"]} for row in rows])
    scores = [{"score": 500.0 + 100.0 * (row["label"] == "dish")} for row in rows]
    result = bertine.distill(
        data,
        probabilities=write_rows(tmp_path / "theirs.csv", scores),
        teacher_task="regression",
        student=base,
        out=tmp_path / "s",
        **{**SHORT, "epochs": 10, "learning_rate": 3e-3},
    )
    assert isinstance(result, Distilled)
    assert result.teacher.judged_by_teacher
    assert result.metrics["pearson"] > 0.9
    assert result.metrics["mean_absolute_error"] < 30


def test_answers_of_another_task_are_one_line(base: Path, tmp_path: Path) -> None:
    data = texts(tmp_path)
    file = tmp_path / "theirs.csv"

    def refused(match: str, rows: list[dict[str, Any]], **options: Any) -> None:
        write_rows(file, rows)
        given: dict[str, Any] = {"probabilities": file, "student": base, **SHORT, **options}
        with pytest.raises(BertineError, match=match) as error:
            bertine.distill(data, out=tmp_path / "s", **given)
        assert "\n" not in str(error.value)

    both = [{"animal": 0.9, "dish": 0.8}] * 64
    named: dict[str, Any] = {"labels": ["animal", "dish"]}
    refused("theirs.csv:2: the columns of the labels sum to 1.7 .*teacher_task", both, **named)
    many: dict[str, Any] = {"teacher_task": "multi-label"}
    refused(
        "theirs.csv:2: 'dish' is '1.8', but must be a probability",
        [{"animal": 0.9, "dish": 1.8}] * 64,
        **named,
        **many,
    )
    score: dict[str, Any] = {"teacher_task": "regression"}
    refused(
        "cannot tell which column holds the score; name it with probability_column", both, **score
    )
    refused(
        "theirs.csv:2: 'score' is 'high', but must be a number", [{"score": "high"}] * 64, **score
    )
    refused(
        "labels is for probabilities, but .* is to have scores",
        [{"score": 1}] * 64,
        **named,
        **score,
    )
    refused("label_separator is for teacher_task='multi-label', but", both, label_separator=";")
    with pytest.raises(BertineError, match="teacher_task is for probabilities"):
        bertine.distill(data, teacher=base, teacher_task="regression", out=tmp_path / "s")
