"""Many labels: reading, loss, scores, threshold, transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import toys
from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples
from bertine.data.label_sets import joined, read_label_sets
from bertine.hub.model_directory import load_model, save_model
from bertine.models.heads import Model
from bertine.options.data import DataConfig
from bertine.tasks.base import values_of
from bertine.tasks.multi_label import MultiLabel


def examples_of(sets: list[list[str]]) -> Examples:
    items = [
        Example((toys.sentence("cat", "old"),), joined(labels), line)
        for line, labels in enumerate(sets, 2)
    ]
    return Examples("train.csv", ("text",), "labels", items)


SETS = [["a", "b"], [], ["c"], ["b", "c"]]
TABLE = np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 1]], dtype=np.float32)


def test_separated_labels_are_read_and_the_separator_is_said(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text('text,labels\none,"a; b"\ntwo,\nthree,b;b\n', encoding="utf-8")
    examples, separator = read_label_sets(path)
    assert separator == ";"
    assert [item.label for item in examples.items] == [joined(["a", "b"]), "", "b"]
    notes = "\n".join(examples.notes)
    assert "taken to be separated by ';'" in notes
    assert "1 of 3 rows have no label" in notes
    examples, separator = read_label_sets(path, DataConfig(label_separator="/"))
    assert [item.label for item in examples.items] == ["a; b", "", "b;b"]


def test_a_column_for_each_label_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [
        {"text": "x", "a": 1, "b": True, "c": 0},
        {"text": "y", "a": "0", "b": None, "c": ""},
        {"text": "z", "a": 0.0, "b": False, "c": "1"},
        {"text": "w", "a": 0, "b": 1, "c": 1.0},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    examples, _ = read_label_sets(path, DataConfig(label_columns=["a", "b", "c"]))
    task = MultiLabel.from_examples(examples, labels=["a", "b", "c"])
    features = task.featurize(examples, toys.tokenizer())
    assert np.array_equal(task.collate(features, 0).targets["labels"].numpy(), TABLE)
    path.write_text('{"text": "x", "a": 1, "b": "perhaps"}\n', encoding="utf-8")
    with pytest.raises(BertineError, match=r"train.jsonl:1: 'b' is 'perhaps', but a column of a"):
        read_label_sets(path, DataConfig(label_columns=["a", "b"]))
    with pytest.raises(BertineError, match="not both"):
        read_label_sets(path, DataConfig(label_columns=["a", "b"], label_column="a"))


def test_lists_in_json_lines_need_no_separator(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "x", "labels": ["a|b", "c"]}\n{"text": "y", "labels": []}\n')
    examples, _ = read_label_sets(path)
    assert [item.label for item in examples.items] == [joined(["a|b", "c"]), ""]
    path.write_text('{"text": "x", "labels": [3, 27]}\n{"text": "y", "labels": []}\n')
    examples, _ = read_label_sets(path)
    assert [item.label for item in examples.items] == [joined(["3", "27"]), ""]
    path.write_text('{"text": "x", "labels": ["a", null]}\n')
    with pytest.raises(BertineError, match=r"train.jsonl:1: 'labels' holds null, but a list of"):
        read_label_sets(path)


@pytest.mark.parametrize(
    ("cell", "labels"), [("\"['a', 'b']\"", ["a", "b"]), ('"[1, 2]"', ["1", "2"]), ("[]", [])]
)
def test_lists_written_as_texts_are_lists(cell: str, labels: list[str], tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(f"text,labels\none,a\ntwo,{cell}\n", encoding="utf-8")
    examples, _ = read_label_sets(path)
    assert [item.label for item in examples.items] == ["a", joined(labels)]
    assert any("lists that are written as texts" in note for note in examples.notes)
    examples, _ = read_label_sets(path, DataConfig(label_separator="/"))
    assert [item.label for item in examples.items] == ["a", cell.strip('"')]


@pytest.mark.parametrize(
    ("sets", "labels", "message"),
    [
        ([["a"], ["a"]], None, r"the column 'labels' holds 1 different labels"),
        ([["a"], ["bb"]], ["a", "b"], r"train.csv:3: unknown label 'bb' \(did you mean 'b'\?\)"),
        ([["a"]], ["a", "a", "b"], "the label 'a' is given twice"),
    ],
)
def test_bad_labels_are_named(
    sets: list[list[str]], labels: list[str] | None, message: str
) -> None:
    with pytest.raises(BertineError, match=message):
        MultiLabel.from_examples(examples_of(sets), labels=labels)


def computed(task: MultiLabel, examples):
    """A model with random weights, the batch of all examples, its logits and the loss."""
    torch.manual_seed(0)
    settings = toys.config(initializer_range=0.3)
    model = Model(settings, task.heads(settings)).eval()
    batch = task.collate(task.featurize(examples, toys.tokenizer()), 0)
    with torch.no_grad():
        logits = task.outputs(model, batch).double().numpy()
        term = task.terms(model, batch)["classifier"]
    return model, batch, logits, term


def test_the_focal_loss_is_written_out() -> None:
    examples = examples_of(SETS)
    task = MultiLabel(("a", "b", "c"), max_length=24, focal_gamma=1.5)
    _, _, logits, term = computed(task, examples)
    p = 1 / (1 + np.exp(-logits))
    true = np.where(TABLE > 0.5, p, 1 - p)
    assert float(term.total) == pytest.approx(-((1 - true) ** 1.5 * np.log(true)).sum(), rel=1e-5)
    assert term.count == 12


def test_a_label_that_all_have_keeps_a_weight() -> None:
    """Of presence: without one there would be no loss of it, and its answers were chance."""
    examples = examples_of([["a"], ["a", "b"], ["a"]])
    task = MultiLabel(("a", "b", "c"), max_length=24)
    assert task.balanced(examples) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_written_out_and_transformers(weighted: bool, tmp_path: Path) -> None:
    examples = examples_of(SETS)
    task = MultiLabel.from_examples(examples, max_length=24)
    assert task.labels == ("a", "b", "c")
    if weighted:
        # a is there once and lacking three times, b and c are there twice.
        assert task.balanced(examples) == (3.0, 1.0, 1.0)
        task = MultiLabel(task.labels, max_length=24, positive_weights=task.balanced(examples))
    model, batch, logits, term = computed(task, examples)
    p = 1 / (1 + np.exp(-logits))
    weights = np.array([3.0, 1.0, 1.0]) if weighted else 1.0
    expected = -(weights * TABLE * np.log(p) + (1 - TABLE) * np.log(1 - p)).sum()
    assert float(term.total) == pytest.approx(expected, rel=1e-5)
    assert term.count == task.counts(batch)["classifier"] == 12
    if weighted:
        return
    save_model(tmp_path / "m", model, toys.tokenizer(), task=task.task_info())
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    assert theirs.config.problem_type == "multi_label_classification"
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
    with torch.no_grad():
        output = theirs(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask.long(),
            token_type_ids=batch.token_type_ids,
            labels=batch.targets["labels"],
        )
    np.testing.assert_allclose(logits, output.logits.numpy(), rtol=1e-5, atol=1e-5)
    assert float(term.total) / term.count == pytest.approx(float(output.loss), rel=1e-5)

    theirs.save_pretrained(tmp_path / "theirs")
    toys.tokenizer().save(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert loaded.task is not None
    assert loaded.task.name == "multi-label"
    assert loaded.task.labels == ("a", "b", "c")


def test_answers_and_scores_at_a_threshold() -> None:
    examples = examples_of(SETS)
    task = MultiLabel(("a", "b", "c"), threshold=0.3)
    features = task.featurize(examples, toys.tokenizer())
    p = np.array([[0.9, 0.29, 0.1], [0.2, 0.1, 0.31], [0.1, 0.2, 0.8], [0.2, 0.7, 0.9]])
    answers = task.decode([*np.log(p / (1 - p))], features)
    assert [answer.labels for answer in answers] == [("a",), ("c",), ("c",), ("b", "c")]
    assert answers[0].probabilities == pytest.approx({"a": 0.9, "b": 0.29, "c": 0.1})
    labels = [item.label or "" for item in examples.items]
    report = task.report(answers, labels)
    # By hand: 4 right, 1 wrong, 1 missed; F1 of a 1, of b 2/3, of c 4/5.
    assert report.metrics["micro_f1"] == pytest.approx(2 * 4 / (2 * 4 + 1 + 1))
    assert report.metrics["macro_f1"] == pytest.approx((1 + 2 / 3 + 4 / 5) / 3)
    assert report.metrics["accuracy"] == 0.5
    truth = TABLE > 0.5
    assert report.metrics["loss"] == pytest.approx(-np.log(np.where(truth, p, 1 - p)).mean())
    assert report.per_label["b"] == pytest.approx(
        {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2, "predicted": 1}
    )
    assert not report.collapsed
    assert any(line.startswith("c ") for line in report.lines())
    assert values_of(task.output_columns(False), answers[3]) == {"labels": "b|c"}
    same = task.decode([np.array([-9.0, -9.0, -9.0])] * 4, features)
    assert task.report(same, labels).collapsed
