"""What is exported is scored on labelled examples beside the model, for every kind of task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine
import glue_files
from bertine.core.errors import BertineError
from bertine.families.bert import BertConfig
from bertine.hub.model_directory import save_model
from bertine.inference.evaluate import evaluate
from bertine.inference.export import export
from bertine.inference.export_graph import MODEL, ExportReport, GraphScores, ScoreDifference
from bertine.models.heads import Model
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.tokenizer import Tokenizer
from cli_calls import error_line

from .test_predictor import random_texts

LABELS = ("fear", "joy", "love")
TASKS: dict[str, Task[Any]] = {
    "text": TextClassification(LABELS, ("text",), "label", 24),
    "windows": TextClassification(LABELS, ("text",), "label", 16, long_text="windows"),
    "pair": TextClassification(LABELS, ("s", "t"), "label", 24),
    "apart": TextClassification(LABELS, ("s", "t"), "label", 24, pair_pooling="mean"),
    "regression": TextRegression(("text",), "score", 24),
    "multi-label": MultiLabel(("a", "b", "c"), ("text",), "labels", 24),
    "choice": MultipleChoice(("text",), ("one", "two"), "label", 24),
    "tagging": Tagging(("O", "B-X", "I-X"), max_length=24),
    "spans": SpanExtraction(max_length=24, limits=SpanLimits(max_question_length=8, doc_stride=4)),
}


def write_model(path: Path, task: Task[Any], config: BertConfig, tokenizer: Tokenizer) -> Path:
    torch.manual_seed(5)
    pooler = task.name not in ("tagging", "spans") and not getattr(task, "pair_pooling", "")
    model = Model(config, task.heads(config), add_pooler=pooler)
    save_model(path, model, tokenizer, task=task.task_info())
    return path


def write_data(path: Path, name: str, rows: int = 45) -> Path:
    """Labelled examples that no model has seen, so that answers are right now and then."""
    draw = np.random.default_rng(1)
    texts, others = random_texts(rows), random_texts(rows)[::-1]
    pairs = list(zip(texts, others, strict=True))
    made: list[dict[str, Any]]
    if name in ("text", "windows"):
        made = [{"text": f"{a} {b}", "label": draw.choice(LABELS)} for a, b in pairs]
    elif name in ("pair", "apart"):
        made = [{"s": a, "t": b, "label": draw.choice(LABELS)} for a, b in pairs]
    elif name == "regression":
        made = [{"text": text, "score": float(draw.normal())} for text in texts]
    elif name == "multi-label":
        made = [{"text": a, "labels": [x for x in "abc" if draw.integers(2)]} for a in texts]
    elif name == "choice":
        made = [
            {"text": a, "one": f"the {b}", "two": f"{b} cat", "label": int(draw.integers(2))}
            for a, b in pairs
        ]
    elif name == "tagging":
        words = [["the", *text.split()] for text in texts]
        made = [{"words": w, "tags": ["B-X", *["O"] * (len(w) - 1)]} for w in words]
    else:
        contexts = [f"{a} cat {b} dog {a} mat" for a, b in pairs]
        made = [
            {"question": "the cat", "context": context, "answer": "dog"} for context in contexts
        ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_the_graph_scores_as_evaluate_scores_the_model(
    name: str, config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model", TASKS[name], config, tokenizer)
    data = write_data(tmp_path / "held.jsonl", name)
    # An ONNX graph of the same kind of head is scored above.
    onnx = name not in ("windows", "pair")
    given: dict[str, Any] = {"int8": True} if onnx else {"format": "torch"}
    report = export(model, tmp_path / "out", data=data, show_progress=False, **given)
    (scores,) = report.scores
    exact, *rest = ["model.onnx", "model.int8.onnx"] if onnx else ["model.pt2"]
    expected = evaluate(model, data, device="cpu", precision="fp32", show_progress=False)
    assert list(scores.metrics) == [MODEL, exact, *rest]
    of_model = dict(scores.metrics[MODEL])
    if "spearman" in of_model:
        # Two answers a digit apart may change places, which a correlation of ranks sees.
        assert of_model["spearman"] == pytest.approx(expected.metrics["spearman"], abs=5e-3)
        of_model["spearman"] = expected.metrics["spearman"]
    assert of_model == pytest.approx(expected.metrics, abs=1e-3)
    assert scores.metrics[exact] == pytest.approx(expected.metrics, abs=1e-3)
    for other in rest:
        assert scores.metrics[other].keys() == expected.metrics.keys()
    assert scores.num_examples == 45
    assert scores.notes == expected.notes
    judged = TASKS[name].task_info().metrics or (TASKS[name].primary_metric,)
    for differences in scores.differences.values():
        assert tuple(differences) == judged
        assert all(each.interval is not None for each in differences.values())
    lines = scores.lines()
    assert lines[0] == f"scores on 45 examples of {data}:"
    shown = [line.split("  ")[0] for line in lines[2 : 4 + len(rest)]]
    assert shown == ["the model", *list(scores.differences)]
    told = [line for line in lines if " against the model: " in line]
    assert [line.split(" ")[0] for line in told] == [exact, *rest]
    if name == "text":
        assert scores.intervals[MODEL] == expected.accuracy_interval
        assert any(line.startswith("95% interval of the accuracy: the model ") for line in lines)
    written = json.loads((tmp_path / "out" / "export.json").read_text())["scores"]
    assert written[0]["metrics"] == scores.metrics
    assert written[0]["data"] == "held.jsonl"


@pytest.mark.slow
def test_programs_of_pytorch_are_scored_on_tables_in_memory(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model", TASKS["text"], config, tokenizer)
    rows = [{"review": text, "mood": "joy"} for text in random_texts(30)]
    asked: dict[str, Any] = {"text_columns": "review", "label_column": "mood"}
    (scores,) = export(model, tmp_path / "out", format="torch", data=rows, **asked).scores
    expected = evaluate(model, rows, device="cpu", precision="fp32", **asked)
    assert scores.metrics["model.pt2"] == pytest.approx(expected.metrics, abs=1e-3)
    assert scores.differences["model.pt2"]["accuracy"] == ScoreDifference(0.0, None)
    assert "model.pt2 against the model: the same accuracy" in scores.lines()


@pytest.mark.slow
def test_each_set_of_examples_has_its_own_scores(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = TextClassification(
        ("contradiction", "entailment", "neutral"),
        ("sentence1", "sentence2"),
        "gold_label",
        24,
        ("accuracy", "mismatched_accuracy"),
        "glue/MNLI",
    )
    model = write_model(tmp_path / "model", task, config, tokenizer)
    data = glue_files.write_glue(tmp_path / "data", "MNLI")
    report = export(model, tmp_path / "out", format="torch", data=data)
    assert [Path(each.source).name for each in report.scores] == [
        "dev_matched.tsv",
        "dev_mismatched.tsv",
    ]
    expected = evaluate(model, data, device="cpu", precision="fp32").metrics
    for each, name in zip(report.scores, ("accuracy", "mismatched_accuracy"), strict=True):
        assert each.judged == ("accuracy",)
        assert each.metrics["model.pt2"]["accuracy"] == pytest.approx(expected[name], abs=1e-3)


def test_differences_in_words() -> None:
    some = ScoreDifference(-0.003, (-0.0062, 0.0002))
    assert some.text("accuracy") == "accuracy -0.30 points (95% interval -0.62 to +0.02)"
    assert some.text("pearson") == "pearson -0.0030 (95% interval -0.0062 to +0.0002)"
    assert ScoreDifference(0.01, None).text("f1") == "f1 +1.00 points"
    assert ScoreDifference(0.0, (0.0, 0.0)).text("f1") == "the same f1"
    assert ScoreDifference(-1e-7, (-2e-7, 1e-7)).text("pearson") == "the same pearson"
    near = ScoreDifference(-1e-7, (-2e-7, 1e-3)).text("pearson")
    assert near == "pearson +0.0000 (95% interval +0.0000 to +0.0010)"
    # As many are right as before, but not the same ones.
    assert ScoreDifference(0.0, (-0.1, 0.1)).text("f1").startswith("f1 +0.00 points (95%")


def test_scores_are_shown_as_a_table() -> None:
    metrics = {MODEL: {"accuracy": 0.9, "loss": 0.25}, "model.onnx": {"accuracy": 0.8, "loss": 0.5}}
    scores = GraphScores("a/held.csv", 10, ("accuracy",), metrics, {}, {}, ["a note"])
    assert ExportReport(Path("out"), "logits", scores=[scores]).lines()[1:] == [
        "scores on 10 examples of a/held.csv:",
        "            accuracy    loss",
        "the model     90.00%  0.2500",
        "model.onnx    80.00%  0.5000",
        "a note",
    ]


def test_wrong_data_end_in_one_line_and_write_nothing(
    classifier: Path,
    pretrained: Path,
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, out = tmp_path / "held.csv", tmp_path / "out"
    data.write_text("text,label\nthe cat,joy\na dog,anger\n")
    for model, given, said in (
        (classifier, ["--data", data], "held.csv:3: unknown label 'anger'"),
        (classifier, ["--data", tmp_path / "none.csv"], "none.csv: "),
        (classifier, ["--data", data, "--label-column", "mood"], "'mood'"),
        (classifier, ["--data", data, "--tag-column", "2"], "is for tagging"),
        (classifier, ["--data", store], "is a token store, which has no labels"),
        (classifier, ["--label-column", "label"], "--label-column is for labelled examples"),
        (classifier, ["--data-format", "csv"], "labelled examples, but --data is not given"),
        (classifier, ["--strict"], "--strict is for labelled examples, but --data"),
        (classifier, ["--data", data, "--pooling", "mean"], "--pooling is for vectors, which"),
        (pretrained, ["--data", data], "is exported to give vectors, which have no labels"),
    ):
        words = ["export", model, "--out", out, "--format", "torch", *given]
        assert said in error_line(capsys, *map(str, words))
        assert not out.exists()
    with pytest.raises(BertineError, match="data is an int, but must be a path"):
        bertine.export(classifier, out, format="torch", data=3)
