"""Baselines for a label, many labels or a number of a text or a pair of texts.

Shape legend: N examples, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, cast

import numpy as np

from bertine.errors import BertineError
from bertine.inference.baselines.frozen import TextFeatures, scaled_vectors
from bertine.inference.baselines.linear import (
    ClassTargets,
    LabelTargets,
    LinearModel,
    Matrix,
    NumberTargets,
    Targets,
    fit_linear,
    log_softmax,
    sigmoid,
)
from bertine.inference.baselines.ngrams import NgramFeatures
from bertine.records.examples import Example, Examples
from bertine.tasks.answer import compact
from bertine.tasks.base import Task
from bertine.tasks.metrics import official_score
from bertine.tasks.texts.classification import Prediction, TextClassification
from bertine.tasks.texts.multi_label import MultiLabel
from bertine.tasks.texts.regression import Score, TextRegression

#: Examples → the task's predictions for them.
Answers = Callable[[Examples[Any]], list[Any]]
#: Penalties that are tried, of tf-idf and of vectors.
NGRAM_STRENGTHS = (0.1, 1.0, 10.0, 100.0)
VECTOR_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
#: Scores of the training examples, and weights, of a model that is fitted in seconds to a minute
#: and in a gigabyte.
_MOST_SCORES, _MOST_WEIGHTS = 10_000_000, 10_000_000

TextTask = TextClassification | MultiLabel | TextRegression


def targets_of(task: TextTask, examples: Examples[Example], *, weighted: bool = False) -> Targets:
    """Return what a linear model is to predict of labelled examples; of numbers with mean 0 and
    variance 1. `weighted`: with the weights that the task has in training."""
    return _targets(task, examples, weighted)


@singledispatch
def _targets(task: Any, examples: Examples[Example], weighted: bool) -> Targets:
    values = numbers_of(examples)
    return NumberTargets((values - values.mean()) / (values.std() or 1.0))


@_targets.register
def _(task: TextClassification, examples: Examples[Example], weighted: bool) -> Targets:
    ids = [task.target(item.label, examples.source, item.line) for item in examples.items]
    weights = task.class_weights if weighted else None
    return ClassTargets(
        np.array(ids, dtype=np.int64),
        len(task.labels),
        None if weights is None else np.array(weights),
    )


@_targets.register
def _(task: MultiLabel, examples: Examples[Example], weighted: bool) -> Targets:
    sets = [task.target(item.label, examples.source, item.line) for item in examples.items]
    weights = task.positive_weights if weighted else None
    return LabelTargets(
        np.stack([each for each in sets if each is not None]).astype(np.float64),
        None if weights is None else np.array(weights),
    )


def numbers_of(examples: Examples[Example]) -> np.ndarray:
    """Return the scores of labelled examples, fp64 [N]."""
    return np.array([float(item.label or "nan") for item in examples.items])


@singledispatch
def answers_of(task: Any, scores: np.ndarray, train: Examples[Example]) -> list[Any]:
    """Turn scores fp64 [N, K] of a linear model into the task's predictions; of regression, the
    scores [N, 1] are numbers with mean 0 and variance 1."""
    values = numbers_of(train)
    return [Score(value) for value in (scores[:, 0] * values.std() + values.mean()).tolist()]


@answers_of.register
def _(task: TextClassification, scores: np.ndarray, train: Examples[Example]) -> list[Any]:
    rows = compact(np.exp(log_softmax(scores)))
    best = scores.argmax(-1).tolist()
    return [
        Prediction(task.labels[at], all_labels=task.labels, numbers=row)
        for at, row in zip(best, rows, strict=True)
    ]


@answers_of.register
def _(task: MultiLabel, scores: np.ndarray, train: Examples[Example]) -> list[Any]:
    return task.answers_of(sigmoid(scores))


def majority(task: TextTask, train: Examples[Example]) -> Answers:
    """Answer with the most frequent label; of many labels those that most examples have, or the
    most frequent one; of numbers the mean."""
    targets = targets_of(task, train)
    if isinstance(targets, ClassTargets):
        counts = np.bincount(targets.ids, minlength=targets.outputs)
        scores = np.log(np.maximum(counts, 0.5))
    elif isinstance(targets, LabelTargets):
        share = np.clip(targets.chosen.mean(0), 1e-3, 1 - 1e-3)
        scores = np.log(share) - np.log1p(-share)
        threshold = cast(MultiLabel, task).threshold
        if share.max() < threshold:
            # Saying nothing at all has no score; the most frequent label has one.
            scores[scores.argmax()] = np.log(threshold) - np.log1p(-threshold) + 1e-6
    else:
        scores = np.zeros(1)
    return lambda examples: answers_of(task, np.tile(scores, (len(examples), 1)), train)


def ngrams(task: TextTask, train: Examples[Example], *, weighted: bool = False) -> Answers:
    """Fit logistic regression (of numbers ridge regression) on tf-idf of words and characters.
    `weighted`: with the weights that the task has in training."""
    texts = [item.texts for item in train.items]
    # Of a pair there are four times as many.
    weights = 2 * len(texts[0]) ** 2 * max(1, len(getattr(task, "labels", ())))
    features = NgramFeatures(texts, max(1, _MOST_WEIGHTS // weights))
    return _linear(task, train, features.matrix, NGRAM_STRENGTHS, weighted)


def frozen_vectors(
    task: TextTask, train: Examples[Example], encoder: TextFeatures, *, weighted: bool = False
) -> Answers:
    """Fit logistic regression (of numbers ridge regression) on the vectors of a frozen model.
    `weighted`: with the weights that the task has in training."""
    return _linear(task, train, scaled_vectors(encoder), VECTOR_STRENGTHS, weighted)


def _linear(
    task: TextTask,
    train: Examples[Example],
    features: Callable[[Sequence[Sequence[str]]], Matrix],
    strengths: Sequence[float],
    weighted: bool,
) -> Answers:
    targets, judged = targets_of(task, train, weighted=weighted), task.metric_names
    if len(train) * targets.outputs > _MOST_SCORES:
        raise BertineError(
            f"{targets.outputs:,} labels and {len(train):,} training examples are too many to fit "
            "in seconds"
        )
    matrix = features([item.texts for item in train.items])

    def score(scores: np.ndarray, examples: np.ndarray) -> float:
        labels = [train.items[at].label or "" for at in examples.tolist()]
        typed: Task[Any] = task
        return official_score(typed.metrics(answers_of(task, scores, train), labels), judged)

    # The lowest loss is often that of saying the same of nearly all: enough for the accuracy, but
    # worth nothing as Matthews or F1.
    by_loss = task.single_output or judged == ("accuracy",)
    model: LinearModel = fit_linear(
        matrix,
        targets,
        strengths,
        score=None if by_loss else score,
    )

    def answers(examples: Examples[Example]) -> list[Any]:
        scores = model.scores(features([item.texts for item in examples.items]))
        return answers_of(task, scores, train)

    return answers
