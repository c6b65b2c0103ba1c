"""Soft labels: the probability of each label in place of one label, in training and in scoring."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.inference.predictor import Predictor
from bertine.tasks.report import ClassificationReport
from distilling import SHORT, rows_of, write_rows

COLUMNS = ["probability_animal", "probability_dish"]


def soft_rows(rows: list[dict[str, str]], high: float) -> list[dict[str, Any]]:
    """The label with this probability, the other one with the rest."""
    return [
        {
            "text": row["text"],
            "probability_animal": high if row["label"] == "animal" else round(1 - high, 6),
            "probability_dish": high if row["label"] == "dish" else round(1 - high, 6),
        }
        for row in rows
    ]


@pytest.mark.takes(4)
def test_soft_labels_that_are_certain_are_labels(
    base: Path, labelled: Path, tmp_path: Path
) -> None:
    (tmp_path / "soft").mkdir()
    for part in ("train", "dev"):
        rows = rows_of(labelled / f"{part}.csv")
        write_rows(tmp_path / "soft" / f"{part}.csv", soft_rows(rows, 1.0))
    options: dict[str, Any] = {**SHORT, "model": base, "frozen": False, "log_every": 1}
    bertine.finetune("text", data=labelled, out=tmp_path / "a", **options)
    learner = bertine.finetune(
        "text",
        data=tmp_path / "soft",
        out=tmp_path / "b",
        probability_columns=COLUMNS,
        **options,
    )
    hard, soft = (
        [line["loss"] for line in toys.log(tmp_path / name) if "loss" in line] for name in "ab"
    )
    assert soft == pytest.approx(hard, rel=1e-4, abs=1e-6)
    assert (
        learner.metrics["accuracy"]
        == bertine.evaluate(tmp_path / "b", labelled).metrics["accuracy"]
    )
    loaded = bertine.load_model(tmp_path / "b")
    assert loaded.task is not None
    assert loaded.task.labels == ("animal", "dish")


@pytest.mark.slow
def test_soft_labels_are_learned_as_they_are(base: Path, labelled: Path, tmp_path: Path) -> None:
    """A model that has learned them is as sure as they are."""
    data = write_rows(tmp_path / "soft.csv", soft_rows(rows_of(labelled / "train.csv"), 0.8))
    learner = bertine.finetune(
        "text",
        model=base,
        data=data,
        out=tmp_path / "run",
        probability_columns=COLUMNS,
        epochs=8,
        learning_rate=2e-3,
        max_length=24,
        frozen=False,
    )
    assert learner.metrics["accuracy"] > 0.95
    answers = learner.predict([row["text"] for row in rows_of(labelled / "dev.csv")])
    sure = sum(answer.probability for answer in answers) / len(answers)
    assert sure == pytest.approx(0.8, abs=0.05)


def test_soft_labels_are_not_for_everything(base: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "s.csv", [{"text": "a", "animal": 0.5, "dish": 0.4}] * 4)

    def refused(match: str, task: Any = "text", **options: Any) -> None:
        with pytest.raises(BertineError, match=match):
            bertine.finetune(
                task,
                model=base,
                data=data,
                out=tmp_path / "out",
                probability_columns=["animal", "dish"],
                **options,
            )

    refused("s.csv:2: the columns of the labels sum to 0.9")
    refused("class_weights is for labels, not for probabilities", class_weights="balanced")
    refused("give label_column or probability_columns", label_column="animal")
    refused("probability_columns is for text", task="regression")


def evaluated(
    run: Path, data: Path, columns: list[str] | None, **options: Any
) -> ClassificationReport:
    report = bertine.evaluate(
        run, data, probability_columns=columns, show_progress=False, **options
    )
    assert isinstance(report, ClassificationReport)
    return report


def test_soft_labels_are_scored_as_they_are(
    teacher: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The most probable label is right or not; the loss is the cross-entropy with all of them."""
    rows = rows_of(labelled / "dev.csv")
    hard = evaluated(teacher, labelled, None)
    certain = write_rows(tmp_path / "certain.csv", soft_rows(rows, 1.0))
    assert evaluated(teacher, certain, COLUMNS).metrics == pytest.approx(hard.metrics)
    data = write_rows(tmp_path / "soft.csv", soft_rows(rows, 0.75))
    report = evaluated(teacher, data, COLUMNS)
    assert report.confusion == hard.confusion
    answers = Predictor.load(teacher, precision="fp32").predict([row["text"] for row in rows])
    losses = []
    for row, answer in zip(rows, answers, strict=True):
        for label, given in answer.probabilities.items():
            losses.append(-(0.75 if label == row["label"] else 0.25) * math.log(given))
    assert report.metrics["loss"] == pytest.approx(sum(losses) / len(rows), rel=1e-3)
    said = "cross-entropy with the probabilities, 0.5623 at the least"
    assert any(said in note for note in report.notes)
    # In whichever order the columns are named.
    assert evaluated(teacher, data, COLUMNS[::-1]).metrics == report.metrics
    assert (
        main(["evaluate", str(teacher), "--data", str(data), "--probability-columns", *COLUMNS])
        == 0
    )
    assert "0.5623 at the least" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_of_soft_labels_knows_their_columns(
    base: Path, labelled: Path, tmp_path: Path
) -> None:
    """Its validation examples are judged as evaluate judges them; a tie is counted."""
    rows = soft_rows(rows_of(labelled / "train.csv"), 0.8)
    rows[3] |= dict.fromkeys(COLUMNS, 0.5)
    data = write_rows(tmp_path / "soft.csv", rows)
    options: dict[str, Any] = {**SHORT, "frozen": False, "probability_columns": COLUMNS}
    learner = bertine.finetune("text", model=base, data=data, out=tmp_path / "run", **options)
    held = learner.validate()
    assert held.metrics == learner.metrics
    assert learner.metrics["loss"] > 0.5
    report = evaluated(tmp_path / "run", data, None)
    assert any("in 1 row two labels or more are equally probable" in note for note in report.notes)
    # Nearly all texts of the held-out rows are in other rows, too.
    assert any("was trained on 119 of these 120 examples" in note for note in report.notes)
    assert report.metrics == evaluated(tmp_path / "run", data, COLUMNS).metrics
    assert evaluated(tmp_path / "run", labelled, None).num_examples == 40


def test_probabilities_that_do_not_fit_the_model_are_refused(
    teacher: Path, base: Path, tmp_path: Path
) -> None:
    def refused(match: str, row: dict[str, Any], columns: list[str], **options: Any) -> None:
        data = write_rows(tmp_path / "s.csv", [{"text": "a", **row}] * 4)
        with pytest.raises(BertineError, match=match) as error:
            evaluated(teacher, data, columns, **options)
        assert "\n" not in str(error.value)

    fit = {"animal": 0.5, "dish": 0.5}
    refused("s.csv: there is no column 'dish'", {"animal": 0.5, "dash": 0.5}, ["animal", "dish"])
    refused(
        "are those of 'animal', 'plant', but the model's labels are 'animal', 'dish'",
        {"animal": 0.5, "plant": 0.5},
        ["animal", "plant"],
    )
    refused("s.csv:2: the columns .* sum to 0.9", {"animal": 0.5, "dish": 0.4}, ["animal", "dish"])
    refused("not both", {**fit, "label": "dish"}, ["animal", "dish"], label_column="label")
    data = write_rows(tmp_path / "n.csv", [{"text": f"cat {n}", "label": n} for n in range(20)])
    scores = tmp_path / "scores"
    bertine.finetune("regression", model=base, data=data, out=scores, frozen=True, max_length=24)
    with pytest.raises(BertineError, match=r"probability_columns is for text, but the task is"):
        evaluated(scores, tmp_path / "s.csv", ["animal", "dish"])
