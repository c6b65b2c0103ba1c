"""What a lower precision changes is said in answers; scores are computed as in training."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertine.families.bert import BertConfig
from bertine.inference.evaluate import evaluate
from bertine.inference.predictor import Predictor, answer_agreement
from bertine.models import precision as precision_module
from bertine.models.heads import Model
from bertine.models.precision import Rates
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.tokenizer import Tokenizer

TASKS: list[tuple[Task[Any], str]] = [
    (TextClassification(("a", "b"), ("text",), "y", 24), "the same label as in fp32 for 20 of 20"),
    (TextClassification(("a", "b"), ("s", "t"), "y", 24), "the same label as in fp32 for 20 of 20"),
    (MultiLabel(("a", "b"), ("text",), "y", 24), "the same labels as in fp32 for 20 of 20"),
    (MultipleChoice(("q",), ("a", "b", "c"), "y", 24), "the same choice as in fp32 for 20 of 20"),
    (
        SpanExtraction(max_length=40, limits=SpanLimits(max_question_length=8, doc_stride=8)),
        "the same answer as in fp32 for 20 of 20",
    ),
    (TextRegression(("text",), "y", 24), "scores within 0 of those in fp32 for 20"),
    (Tagging(("O", "X"), max_length=24), "the same tag as in fp32 for"),
]


@pytest.mark.parametrize(("task", "said"), TASKS, ids=[type(task).__name__ for task, _ in TASKS])
def test_every_task_says_its_answers(
    task: Task[Any], said: str, config: BertConfig, tokenizer: Tokenizer
) -> None:
    torch.manual_seed(0)
    predictor = Predictor(Model(config, task.heads(config)), tokenizer, task)
    same = answer_agreement(task, tokenizer, predictor.predict, predictor.predict)
    assert same.startswith(said)


def test_answers_that_differ_are_counted(classifier: Path, tokenizer: Tokenizer) -> None:
    predictor = Predictor.load(classifier, "cpu", "fp32")

    def other(texts: Any) -> list[Any]:
        found = predictor.predict(texts)
        return [replace(found[0], label="none of them"), *found[1:]]

    said = answer_agreement(predictor.task, tokenizer, other, predictor.predict)
    assert said == "the same label as in fp32 for 19 of 20 sample texts"


def test_a_predictor_says_the_answers(classifier: Path) -> None:
    rough = Predictor.load(classifier, "cpu", "bf16")
    assert rough.lines()[-1].startswith("computing in bf16: the same label as in fp32 for ")
    assert rough.lines()[-1].endswith(" of 20 sample texts")
    # In fp32 there is nothing to compare.
    assert "sample texts" not in " ".join(Predictor.load(classifier, "cpu", "fp32").lines())


def trained_in(precision: str | None, classifier: Path, folder: Path) -> Path:
    shutil.copytree(classifier, folder)
    path = folder / "bertine.json"
    about = json.loads(path.read_text())
    about["training"] = {} if precision is None else {"precision": precision}
    path.write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize(
    ("recorded", "machine_has_bf16", "expected"),
    [("bf16", True, "bf16"), ("fp32", True, "fp32"), (None, True, "fp32"), ("bf16", False, "fp32")],
)
def test_evaluate_computes_as_trained(
    recorded: str | None,
    machine_has_bf16: bool,
    expected: str,
    classifier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rates = Rates(1e11, 4e11) if machine_has_bf16 else None
    monkeypatch.setattr(precision_module, "rates_for", lambda *_, **__: rates)
    model = trained_in(recorded, classifier, tmp_path / "model")
    data = tmp_path / "data.csv"
    data.write_text("text,label\nthe cat sat,fear\na good film,joy\nthe dog ran,love\n")
    scores = evaluate(model, data, device="cpu").metrics
    assert scores == evaluate(model, data, device="cpu", precision=expected).metrics
    if expected == "fp32":
        assert "computing in" not in capsys.readouterr().err
    else:
        said = capsys.readouterr().err
        assert said.count("bf16: 4.0 times as fast as fp32 here") == 1
        assert "computing in bf16: the same label" in said
