"""Regression: scores in, standardized targets, scores out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples
from bertine.models.heads import Model
from bertine.tasks.whole_text import Score, TextRegression


def examples_of(scores: list[str]) -> Examples:
    items = [
        Example((toys.sentence("cat", "old"),), score, line) for line, score in enumerate(scores, 2)
    ]
    return Examples("train.csv", ("text",), "score", items)


def test_targets_are_standardized_and_answers_are_not() -> None:
    examples = examples_of(["1000", "2000", "3000", "6e3"])
    task = TextRegression.from_examples(examples)
    features = task.featurize(examples, toys.tokenizer())
    targets = task.collate(features, 0).targets["labels"]
    assert targets.dtype == torch.float32
    assert float(targets.mean()) == pytest.approx(0, abs=1e-6)
    assert float(targets.std(correction=0)) == pytest.approx(1)
    answers = task.decode([np.float32(value) for value in targets.tolist()], features)
    assert [answer.score for answer in answers] == pytest.approx([1000, 2000, 3000, 6000])


def test_the_loss_is_the_mean_squared_error_of_the_batch() -> None:
    examples = examples_of(["1", "2", "4"])
    task = TextRegression.from_examples(examples, max_length=24)
    model = Model(toys.config(), task.heads(toys.config())).eval()
    batch = task.collate(task.featurize(examples, toys.tokenizer()), 0)
    with torch.no_grad():
        term = task.terms(model, batch)["classifier"]
        outputs = task.outputs(model, batch)
    expected = ((outputs - batch.targets["labels"]) ** 2).sum()
    assert float(term.total) == pytest.approx(float(expected))
    assert term.count == 3


@pytest.mark.parametrize(("mean", "scale"), [(2.5, 1.5), (1e5, 3e4), (-0.01, 1e-3)])
def test_mean_and_scale_move_into_the_head(mean: float, scale: float) -> None:
    torch.manual_seed(0)
    task = TextRegression(("text",), "score", 24, mean, scale)
    model = Model(toys.config(), task.heads(toys.config())).eval()
    examples = examples_of(["0"])
    features = task.featurize(examples, toys.tokenizer())

    def answer(by: TextRegression) -> float:
        with torch.no_grad():
            outputs = by.outputs(model, by.collate(features, 0))
        return by.decode(list(outputs.numpy()), features)[0].score

    before = answer(task)
    moved = task.finished(model, None)
    assert (moved.mean, moved.scale) == (0.0, 1.0)
    assert answer(moved) == pytest.approx(before, rel=1e-5)


def test_a_large_mean_is_not_rounded_by_bf16() -> None:
    torch.manual_seed(0)
    task = TextRegression(("text",), "score", 24, mean=1e5, scale=10)
    model = Model(toys.config(), task.heads(toys.config())).eval()
    task = task.finished(model, None)
    features = task.featurize(examples_of(["0"]), toys.tokenizer())
    batch = task.collate(features, 0)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = task.outputs(model, batch)
    with torch.no_grad():
        full = task.outputs(model, batch)
    assert low.dtype == torch.float32
    assert float(low) == pytest.approx(float(full), abs=1.0)  # bf16 has steps of 512 there


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (["1", "two"], "train.csv:3: the score is 'two', but must be a number"),
        (["1", "nan"], "train.csv:3: the score is 'nan', but must be a number"),
        (["inf", "1"], "train.csv:2: the score is 'inf', but must be a number"),
        (["3", "3.0"], "train.csv: every row has the same score in the column 'score'"),
    ],
)
def test_bad_scores_are_named(scores: list[str], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        TextRegression.from_examples(examples_of(scores))


def test_the_report_tells_the_mean_and_a_collapse() -> None:
    task = TextRegression()
    report = task.report([Score(2.0)] * 3, ["1", "2", "3"])
    assert report.collapsed
    assert report.variance == pytest.approx(2 / 3)
    text = "\n".join(report.lines())
    assert "always answering the mean, 2: mean_squared_error 0.6667" in text
    assert "collapsed: every prediction is nearly the same number" in text
    assert task.report([Score(2.0), Score(2.001)], ["1", "2"]).collapsed
    assert not task.report([Score(1.0), Score(3.0)], ["1", "2"]).collapsed


def test_scores_are_held_out_though_each_comes_once() -> None:
    examples = examples_of([str(number) for number in range(40)])
    kept, held = examples.hold_out(0.1, 0, stratify=False)
    assert (len(kept), len(held)) == (36, 4)
    with pytest.raises(BertineError, match="no label is there twice"):
        examples.hold_out(0.1, 0)
