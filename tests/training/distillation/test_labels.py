"""Distilling on texts of which some have a label, all or none."""

from __future__ import annotations

from pathlib import Path

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.data.examples import Example, row_numbers
from bertine.inference.train_overlap import rows_known_by
from distilling import SHORT, rows_of, texts, write_rows


@pytest.mark.slow
def test_rows_without_a_label_are_learned_from_the_teacher(
    teacher: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(labelled / "train.csv")
    for number, row in enumerate(rows):
        row["label"] = row["label"] if number % 3 else ""
    data = write_rows(tmp_path / "some.csv", rows)
    result = bertine.distill(data, teacher=teacher, out=tmp_path / "run", **SHORT)
    assert "40 of 112 training examples have no label" in capsys.readouterr().err
    assert (result.teacher.labelled, result.teacher.unlabelled) == (72, 40)
    assert not result.teacher.judged_by_teacher


def test_few_labels_are_all_learned_from(
    teacher: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of each label is enough to begin with: the teacher judges."""
    rows = rows_of(labelled / "train.csv")
    for row in rows[2:]:
        row["label"] = ""
    data = write_rows(tmp_path / "few.csv", rows)
    result = bertine.distill(data, teacher=teacher, out=tmp_path / "run", **SHORT)
    said = capsys.readouterr().err
    assert "all 2 labels are learned from" in said
    assert "12 rows without a label are held out: the validation examples are judged by" in said
    assert (result.teacher.labelled, result.teacher.unlabelled) == (2, 106)
    assert result.teacher.judged_by_teacher
    assert result.metrics["accuracy"] > 0.5
    not_known = row_numbers(Example((row["text"],)) for row in rows) - rows_known_by(result.model)
    assert len(not_known) <= 12
    page = bertine.report(tmp_path / "run").path.read_text()
    assert "The validation examples have no labels: the student is judged by" in page


@pytest.mark.slow
def test_labels_alone_are_fine_tuning(
    teacher: Path, base: Path, labelled: Path, tmp_path: Path
) -> None:
    """With all the weight on the labels the run is that of fine-tuning, bit for bit."""
    options = {**SHORT, "seed": 3}
    bertine.distill(
        labelled, teacher=teacher, student=base, label_weight=1.0, out=tmp_path / "a", **options
    )
    bertine.finetune("text", model=base, data=labelled, frozen=False, out=tmp_path / "b", **options)
    assert toys.same_weights(tmp_path / "a" / "model", tmp_path / "b" / "model")


def test_labels_alone_need_labels(teacher: Path, tmp_path: Path) -> None:
    rows = [{"text": row["text"]} for row in rows_of(texts(tmp_path))]
    with pytest.raises(BertineError, match="label_weight=1 learns from labels alone, but no"):
        bertine.distill(
            write_rows(tmp_path / "bare.csv", rows),
            teacher=teacher,
            out=tmp_path / "s",
            label_weight=1.0,
            **SHORT,
        )
