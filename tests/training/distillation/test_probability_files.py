"""Distilling from a file of what another model holds likely."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from distilling import SHORT, rows_of, write_rows


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
