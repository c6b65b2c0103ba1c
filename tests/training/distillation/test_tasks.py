"""Distilling on texts of every kind of task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertine
import glue_files
import squad_files
import tagged
import toys
from bertine.data.examples import Examples
from bertine.training.distillation.teacher_on_task import Distilled
from distilling import SHORT, rows_of, texts, write_rows


def pairs(folder: Path) -> Path:
    return toys.write_pairs(folder / "pairs.csv", rows=64)


def scores(folder: Path) -> Path:
    rows = rows_of(texts(folder))
    for number, row in enumerate(rows):
        row["label"] = str(100.0 + 10 * (row["label"] == "dish") + number % 3)
    return write_rows(folder / "scores.csv", rows)


def many(folder: Path) -> Path:
    rows = rows_of(texts(folder))
    for row in rows:
        words = [word for word in toys.ADJECTIVES if word in row["text"]]
        row["label"] = "|".join([row["label"], *words])
    return write_rows(folder / "many.csv", rows)


def choices(folder: Path) -> Path:
    rows = []
    for number, (topic, (verb, place)) in enumerate(list(toys.TOPICS.items()) * 6):
        other = list(toys.TOPICS.values())[(number + 3) % 8][1]
        ends = [place, other] if number % 2 else [other, place]
        row = {"text": f"the {topic} {verb} in the", "choice1": ends[0], "choice2": ends[1]}
        rows.append({**row, "label": str(0 if number % 2 else 1)})
    return write_rows(folder / "choices.csv", rows)


def words(folder: Path) -> Path:
    return tagged.write_columns(folder / "words.conll", count=64)


def questions(folder: Path) -> Path:
    return squad_files.write_squad(folder / "squad", articles=12, dev=4)


KINDS: dict[str, tuple[str, Callable[[Path], Path], dict[str, Any]]] = {
    "text": ("text", texts, {}),
    "pairs": ("text", pairs, {}),
    "regression": ("regression", scores, {}),
    "multi-label": ("multi-label", many, {}),
    "choice": ("choice", choices, {}),
    "tagging": ("tagging", words, {}),
    "spans": ("spans", questions, {"max_length": 60}),
}


@pytest.mark.fast_cases(kind=("text", "tagging"))
@pytest.mark.takes(5)
@pytest.mark.parametrize("kind", KINDS)
def test_every_task_trains_saves_loads_and_predicts(base: Path, tmp_path: Path, kind: str) -> None:
    task, write, more = KINDS[kind]
    data = write(tmp_path)
    options = {**SHORT, **more}
    spans = {"max_question_length": 20} if task == "spans" else {}
    bertine.finetune(task, model=base, data=data, out=tmp_path / "teacher", **options, **spans)  # type: ignore[arg-type]
    result = bertine.distill(
        data,
        teacher=tmp_path / "teacher",
        out=tmp_path / "student",
        hidden_weight=0.1,
        attention_weight=0.1,
        log_every=1,
        **options,
    )
    assert isinstance(result, Distilled)
    log = toys.log(tmp_path / "student")
    losses = [key for key in log[0] if key.endswith("_loss") and not key.startswith("eval")]
    assert losses[1:] == ["soft_loss", "hidden_loss", "attention_loss"]
    lines = "\n".join(result.lines())
    assert "student: " in lines
    assert "times as fast" in lines
    kept = json.loads((tmp_path / "student" / "scores.json").read_text())["teacher"]
    assert kept["metrics"].keys() >= set(result.metric_names)
    assert (kept["agreement"] is None) == (task == "regression")
    loaded = bertine.load_model(tmp_path / "student")
    assert loaded.config.num_hidden_layers == 2
    assert loaded.task is not None
    assert loaded.task.name == task
    known = bertine.load_model(tmp_path / "teacher").task
    assert known is not None
    assert loaded.task.labels == known.labels
    report = bertine.evaluate(tmp_path / "student", data, show_progress=False)
    assert report.metrics.keys() == result.metrics.keys()
    assert result.validate().metrics == result.metrics
    page = bertine.report(tmp_path / "student").path.read_text()
    assert "Beside the teacher" in page
    assert "<h1>Distillation: student</h1>" in page
    assert "Loss on labels" in page


def test_a_teacher_of_glue_takes_the_official_files(base: Path, tmp_path: Path) -> None:
    data = glue_files.write_glue(tmp_path / "glue")
    teacher = tmp_path / "teacher"
    short = {**SHORT, "epochs": 1}
    bertine.finetune("glue", glue_task="MRPC", model=base, data=data, out=teacher, **short)
    result = bertine.distill(data, teacher=teacher, out=tmp_path / "student", **short)
    assert result.teacher.metrics.keys() >= {"accuracy", "f1"}
    assert "f1" in "\n".join(result.teacher.lines(result.metrics, result.metric_names)).lower()
    assert bertine.load_model(tmp_path / "student").task.dataset == "glue/MRPC"  # type: ignore[union-attr]


def test_examples_in_memory(teacher: Path, tmp_path: Path) -> None:
    rows = [{"text": toys.sentence(topic, "old")} for topic in toys.TOPICS] * 4
    result = bertine.distill(rows, teacher=teacher, out=tmp_path / "run", **SHORT)
    assert isinstance(result._labelled.validation, Examples)
    assert len(result.predict(["the old cat sleeps"])) == 1


def test_the_next_command_is_one_of_distilling(
    teacher: Path, labelled: Path, tmp_path: Path
) -> None:
    """A finding names the user's own command, with options that it has."""
    from bertine.reports.findings import Asked
    from bertine.reports.run_files import RunFolder

    bertine.distill(labelled, teacher=teacher, out=tmp_path / "run", **SHORT)
    asked = Asked.of(tmp_path / "run", RunFolder.read(tmp_path / "run").facts())
    command = asked.again(epochs=9, class_weights="balanced")
    words = command.shell.split()
    assert words[:4] == ["bertine", "distill", "task", str(labelled)]
    assert words[words.index("--teacher") + 1] == str(teacher)
    assert words[words.index("--epochs") + 1] == "9"
    assert "--class-weights" not in words
    assert command.python.startswith(f"bertine.distill({str(labelled)!r}, ")
