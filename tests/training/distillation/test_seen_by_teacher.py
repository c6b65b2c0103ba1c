"""A teacher's score on texts that it was trained on is not taken for one on new texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from distilling import SHORT, rows_of, write_rows

FAST: dict[str, Any] = {**SHORT, "epochs": 1}


def table(path: Path, labels: int = 100) -> Path:
    """A hundred different texts, of which so many have a label."""
    rows = []
    for number in range(100):
        topic = [*toys.TOPICS][number % 8]
        label = ["animal", "dish"][number % 2] if number < labels else ""
        rows.append({"text": f"{toys.sentence(topic, 'old')} {number}", "label": label})
    return write_rows(path, rows)


def trained(base: Path, data: Path, out: Path) -> Path:
    bertine.finetune("text", model=base, data=data, out=out, baselines=False, **FAST)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_rows_of_the_teachers_training_are_counted(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    """Wherever its file is: its directory knows them."""
    data = table(tmp_path / "all.csv")
    teacher = trained(base, data, tmp_path / "teacher")
    if not there:
        data = data.rename(tmp_path / "moved.csv")
    capsys.readouterr()
    same = bertine.distill(data, teacher=teacher, out=tmp_path / "same", **FAST)
    assert same.teacher.seen == 0
    assert "was trained on" not in capsys.readouterr().err
    # Another seed holds out rows that the teacher has not seen all the same.
    other = bertine.distill(data, teacher=teacher, out=tmp_path / "other", split_seed=7, **FAST)
    assert (other.teacher.seen, other.teacher.judged) == (0, 10)

    folder = tmp_path / "data"
    folder.mkdir()
    rows = rows_of(data)
    write_rows(folder / "train.csv", rows[:60])
    write_rows(folder / "dev.csv", rows[60:])
    capsys.readouterr()
    beside = bertine.distill(folder, teacher=teacher, out=tmp_path / "beside", **FAST)
    assert beside.teacher.seen > 30
    line = f"was trained on {beside.teacher.seen} of these 40 validation examples"
    assert line in capsys.readouterr().err
    assert line in "\n".join(beside.lines())
    page = bertine.report(tmp_path / "beside").path.read_text()
    assert f"was trained on {beside.teacher.seen} of the 40 validation examples" in page
