"""A score on the training examples is not taken for one on new texts."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

import bertine
import tagged
import toys
from bertine.core.rng import generator
from bertine.data.examples import row_numbers, rows_as_facts
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_evaluation, read_labelled
from bertine.inference.train_overlap import overlap_note, rows_known
from bertine.options.data import DataConfig
from glue_files import write_glue
from squad_files import write_squad


def data_of(task: str, folder: Path) -> Path:
    """A training file of a task, with nothing beside it."""
    folder.mkdir()
    if task == "glue":
        return write_glue(folder, "RTE") / "RTE" / "train.tsv"
    if task in ("spans", "squad"):
        write_squad(folder, articles=8, dev=2)
        (folder / "dev-v1.1.json").unlink()
        return folder / "train-v1.1.json"
    if task == "tagging":
        return tagged.write_columns(folder / "train.conll", 24)
    file = folder / "train.csv"
    if task == "text":
        return toys.write_labelled(file)
    draw = generator(0, "scores")
    rows = [
        ["text", "label"],
        *([f"the old {topic}", draw.integers(100) / 10] for topic in [*toys.TOPICS] * 4),
    ]
    if task == "choice":
        rows = [["question", "choice0", "choice1", "label"]]
        rows += [[f"the {number} cat", "sleeps", "boils", 0] for number in range(24)]
    elif task == "multi-label":
        labels = ("warm", "cold|wet", "cold")
        rows = [[text, labels[number % 3]] for number, (text, _) in enumerate(rows)]
        rows[0] = ["text", "label"]
    file.write_text("".join(",".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return file


def facts_of(labelled: DatasetSplits, **more: Any) -> dict[str, Any]:
    """What ``bertine.json`` tells of a run on these examples."""
    train = labelled.train
    return {"num_examples": len(train), "examples_fingerprint": train.fingerprint(), **more}


@pytest.mark.parametrize(
    "task", ["text", "regression", "multi-label", "choice", "spans", "squad", "tagging", "glue"]
)
def test_the_training_file_of_every_task_is_known_again(task: str, tmp_path: Path) -> None:
    file = data_of(task, tmp_path / "data")
    config = DataConfig(
        glue_task="RTE" if task == "glue" else None,
        label_separator="|" if task == "multi-label" else None,
        seed=5,
    )
    data = file.parent.parent if task == "glue" else file
    if task == "glue":
        (file.parent / "dev.tsv").unlink()
    labelled = read_labelled(task, data, config)
    (examples,) = read_evaluation(labelled.make_task(128), file).values()
    trained, total = len(labelled.train), len(examples)
    assert 0 < trained < total
    told = f"note: the model was trained on {trained} of these {total} examples; its score on "
    assert (overlap_note(facts_of(labelled, seed=5), examples) or "").startswith(told)
    assert overlap_note(facts_of(labelled, seed=0, split_seed=5), examples)
    assert overlap_note(facts_of(labelled, seed=6), examples) is None
    assert overlap_note(facts_of(labelled), examples) is None
    assert overlap_note({}, examples) is None
    assert overlap_note(facts_of(labelled, seed=5), labelled.validation) is None
    one_less = dataclasses.replace(examples, items=examples.items[:-1])
    assert overlap_note(facts_of(labelled, seed=5), one_less) is None


@pytest.mark.takes(4)
def test_evaluate_says_that_the_examples_are_those_of_the_training(tmp_path: Path) -> None:
    """Whatever the file is called; of others, and of validation examples, nothing is said."""
    model = toys.write_model(tmp_path / "model")
    file = toys.write_labelled(tmp_path / "train.csv", rows=40)
    fast: dict[str, Any] = {"epochs": 1, "max_length": 16, "baselines": False, "precision": "fp32"}
    learner = bertine.finetune("text", model=model, data=file, out=tmp_path / "run", **fast)

    def notes(data: Path) -> list[str]:
        report = bertine.evaluate(tmp_path / "run", data, show_progress=False)
        assert all(note in report.lines() for note in report.notes)
        return [note for note in report.notes if note.startswith("note: the model was trained on")]

    # Two of the four that were held out have texts of training.
    told = "note: the model was trained on 38 of these 40 examples; its score on them says little "
    assert notes(file) == [f"{told}about new texts"]
    copy = tmp_path / "copy.csv"
    shutil.copy(file, copy)
    assert notes(copy) == notes(file)
    assert learner.validate(copy).notes == notes(copy)
    other = tmp_path / "other.csv"
    other.write_text("text,label\nquite another one,animal\nand one more,dish\n", encoding="utf-8")
    assert notes(other) == []

    (tmp_path / "data").mkdir()
    train = toys.write_labelled(tmp_path / "data" / "train.csv", rows=32)
    dev = shutil.copy(other, tmp_path / "data" / "dev.csv")
    bertine.finetune("text", model=model, data=train.parent, out=tmp_path / "run-2", **fast)
    shutil.rmtree(tmp_path / "run")
    shutil.move(tmp_path / "run-2", tmp_path / "run")
    (note,) = notes(train)
    assert "was trained on these 32 examples;" in note
    assert notes(dev) == notes(train.parent) == []


def test_rows_that_are_not_kept_are_read_again_beside_those_that_are(tmp_path: Path) -> None:
    """Of millions they are not; those of the models before may be."""
    data = data_of("text", tmp_path / "data")
    labelled = read_labelled("text", data)
    before = frozenset({1, 2})
    facts = facts_of(labelled, data_path=str(data), seed=0, rows=rows_as_facts((), before))
    assert rows_known("text", facts) == before | row_numbers(labelled.train.items)
    note = overlap_note(facts, labelled.train)
    assert note is not None
    assert f"was trained on these {len(labelled.train)} examples" in note
