"""A model that is trained further is not judged on rows that it was trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.core.task_info import TaskInfo
from bertine.data.examples import KNOWN, ROWS, count_known, row_numbers, rows_as_facts
from bertine.datasets.readers import read_labelled
from bertine.inference.train_overlap import rows_known_by
from bertine.options.data import DataConfig
from bertine.options.finetuning import FinetuneOptions
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.setup import prepare

FAST: dict[str, Any] = {"epochs": 1, "max_length": 16, "precision": "fp32", "frozen": False}
WITH_BASELINES = True
SEEN = "the model that training begins with was trained on"


def write(path: Path, numbers: Sequence[int]) -> Path:
    """Rows of different texts, an animal or a dish in turn."""
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = [
        f"{toys.sentence([*toys.TOPICS][n % 8], 'old')} {n},{'animal' if n % 8 < 4 else 'dish'}"
        for n in numbers
    ]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


def scores_of(learner: Learner) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((learner.model.parent / "scores.json").read_text())
    return values


@pytest.mark.takes(8)
def test_rows_of_a_chain_of_models_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = toys.write_model(tmp_path / "model")

    def trained(model: Path, data: Path, name: str, **more: Any) -> Learner:
        return bertine.finetune(
            "text", model=model, data=data, out=tmp_path / name, **{**FAST, **more}
        )

    first = trained(base, write(tmp_path / "a.csv", range(80)), "m1", baselines=False)
    known = rows_known_by(tmp_path / "m1")
    assert len(known) == 72
    # Again on the same rows in another order, with another seed: the same are held out.
    again = write(tmp_path / "b.csv", [*range(79, -1, -1)])
    second = trained(first.model, again, "m2", seed=5, baselines=False)
    assert second.report is not None
    assert second.report.num_examples == 8
    assert "the validation examples are others" in capsys.readouterr().err
    assert rows_known_by(second.model) == known
    # On other rows, and then on those of the first, beside which there is a validation file.
    third = trained(second.model, write(tmp_path / "c.csv", range(80, 160)), "m3", baselines=False)
    assert rows_known_by(third.model) > known
    write(tmp_path / "d" / "train.csv", range(200, 240))
    dev = write(tmp_path / "d" / "dev.csv", range(40))
    capsys.readouterr()
    fourth = trained(third.model, dev.parent, "m4", baselines=True)
    seen = scores_of(fourth)["seen"]
    assert 30 <= seen <= 40
    said = capsys.readouterr().err
    assert f"warning: {SEEN}" in said
    assert any(line.startswith(f"note: {SEEN}") for line in fourth.lines())
    assert not any("a baseline wins" in line for line in fourth.lines())
    assert not any(each["may_win"] for each in scores_of(fourth)["baselines"])
    assert SEEN.lower() in (tmp_path / "m4" / "report.html").read_text(encoding="utf-8").lower()
    assert "was trained on" in (fourth.model / "README.md").read_text(encoding="utf-8")
    # What is converted or saved again knows them, too.
    bertine.convert(fourth.model, tmp_path / "converted")
    assert rows_known_by(tmp_path / "converted") == rows_known_by(fourth.model)
    note = bertine.evaluate(fourth.model, dev, show_progress=False).notes[0]
    assert note.startswith("note: the model was trained on")


def test_fresh_weights_know_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = toys.write_model(tmp_path / "model")
    data = write(tmp_path / "a.csv", range(24))
    named: dict[str, Any] = {**FAST, "baselines": False, "data": data}
    one = bertine.finetune("text", model=base, out=tmp_path / "one", **named)
    capsys.readouterr()
    bertine.finetune("text", model=one.model, out=tmp_path / "two", fresh_weights=True, **named)
    assert "was trained on" not in capsys.readouterr().err


@pytest.mark.parametrize(("begun", "held"), [(None, "none"), ({}, "some"), ({KNOWN: 72}, "none")])
def test_a_run_that_an_earlier_bertine_began_goes_on_with_its_rows(
    tmp_path: Path, begun: dict[str, Any] | None, held: str
) -> None:
    """It held out whatever rows, those that the model knows among them."""
    model = toys.write_model(tmp_path / "model")
    data = write(tmp_path / "a.csv", range(80))
    known = row_numbers(read_labelled("text", data).train.items)
    facts = {ROWS: rows_as_facts(known)}
    written = json.dumps(TaskInfo("text", training=facts).to_dict())
    (model / "bertine.json").write_text(written, encoding="utf-8")
    prepared = prepare(
        "text",
        data,
        model=model,
        config=DataConfig(seed=5),
        options=FinetuneOptions(max_length=16, seed=5),
        where=torch.device("cpu"),
        judged=False,
        begun=begun,
    )
    seen = count_known(prepared.data.validation.items, known)
    assert (seen > 0) == (held == "some")
