"""Baselines of multiple choice: a place, the longest choice, and what a choice shares with what is
given.

Shape legend: N examples, M choices of all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from bertine.inference.baselines.frozen import FrozenEncoder, scaled_vectors
from bertine.inference.baselines.linear import (
    ChoiceTargets,
    Matrix,
    fit_linear,
    grouped_log_softmax,
)
from bertine.inference.baselines.ngrams import NgramFeatures
from bertine.inference.baselines.texts import NGRAM_STRENGTHS, VECTOR_STRENGTHS, Answers
from bertine.records.examples import Example, Examples
from bertine.tasks.choice import ChoicePrediction, MultipleChoice

#: A probability that is not 0, so that a loss is a number.
_SURE = 0.97
Pairs = Sequence[tuple[str, str]]


def most_frequent_place(task: MultipleChoice, train: Examples[Example]) -> Answers:
    """Answer with the choice at the place that is right most often."""
    _, targets = _pairs(task, train)
    counts = Counter(targets.right.tolist())

    def answers(examples: Examples[Any]) -> list[Any]:
        _, here = _pairs(task, examples)
        places = np.concatenate([np.arange(n) for n in np.diff(here.starts)])
        scores = np.log([counts[int(place)] + 0.5 for place in places])
        return _decided(task, scores, here.starts)

    return answers


def longest(task: MultipleChoice, train: Examples[Example]) -> Answers:
    """Answer with the choice with the most characters: writers of tests put more into what is
    right."""

    def answers(examples: Examples[Any]) -> list[Any]:
        pairs, here = _pairs(task, examples)
        lengths = np.array([float(len(choice)) for _, choice in pairs])
        best = np.zeros(len(lengths))
        for low, high in pairwise(here.starts):
            best[low + lengths[low:high].argmax()] = np.log(_SURE / (1 - _SURE))
        return _decided(task, best, here.starts)

    return answers


def ngrams(task: MultipleChoice, train: Examples[Example]) -> Answers:
    """Fit a linear model among the choices, on tf-idf of each with what is given."""
    pairs, _ = _pairs(task, train)
    features = NgramFeatures(pairs)
    return _linear(task, train, features.matrix, NGRAM_STRENGTHS)


def frozen_vectors(
    task: MultipleChoice, train: Examples[Example], encoder: FrozenEncoder
) -> Answers:
    """Fit a linear model among the choices, on the vectors of each and of what is given."""
    return _linear(task, train, scaled_vectors(encoder), VECTOR_STRENGTHS)


def _linear(
    task: MultipleChoice,
    train: Examples[Example],
    features: Callable[[Pairs], Matrix],
    strengths: Sequence[float],
) -> Answers:
    pairs, targets = _pairs(task, train)
    matrix = features(pairs)
    if sparse.issparse(matrix):
        matrix = matrix.tocsr()
    model = fit_linear(matrix, targets, strengths)

    def answers(examples: Examples[Any]) -> list[Any]:
        new, here = _pairs(task, examples)
        return _decided(task, model.scores(features(new))[:, 0], here.starts)

    return answers


def _pairs(
    task: MultipleChoice, examples: Examples[Example]
) -> tuple[list[tuple[str, str]], ChoiceTargets]:
    """Return (what is given, a choice) for all choices of all examples, and which are right."""
    pairs: list[tuple[str, str]] = []
    starts, right = [0], []
    for item in examples.items:
        choices = task.choices_of(item, examples.source)
        prompt = " ".join(item.texts[: len(task.prompt_columns)])
        pairs += [(prompt, choice) for choice in choices]
        starts.append(len(pairs))
        right.append(task.right_of(item, examples.source) or 0)
    return pairs, ChoiceTargets(np.array(starts), np.array(right, dtype=np.int64))


def _decided(task: MultipleChoice, scores: np.ndarray, starts: np.ndarray) -> list[Any]:
    """Decide: scores fp64 [M] → the prediction for each example."""
    shares = np.exp(grouped_log_softmax(scores, starts))
    predictions = []
    for low, high in pairwise(starts.tolist()):
        best = int(shares[low:high].argmax())
        predictions.append(
            ChoicePrediction(best, tuple(shares[low:high].tolist()), task.label_of(best))
        )
    return predictions
