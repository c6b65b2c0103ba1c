"""Fit baselines that predict a label, several labels, a number or a choice from texts.

They are the most frequent label, tf-idf features, and the vectors of the model before training; of
multiple choice also the place and the length of a choice.

Shape legend: N examples, K labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch

from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples
from bertine.inference.baselines.linear import (
    ChoiceTargets,
    ClassTargets,
    LabelTargets,
    Matrix,
    NgramFeatures,
    NumberTargets,
    Targets,
    fit_linear,
    grouped_log_softmax,
    log_softmax,
    sigmoid,
)
from bertine.inference.compute import Engine
from bertine.inference.embedding.vectors import PooledTexts, unit
from bertine.models.config_file import read_sentence_modules
from bertine.models.heads import Model
from bertine.models.pooling import Pooling
from bertine.tasks.answer import compact
from bertine.tasks.base import Features, Task
from bertine.tasks.choice import ChoicePrediction, MultipleChoice
from bertine.tasks.classification import Prediction, TextClassification
from bertine.tasks.metrics import official_score
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.whole_text import Score, TextRegression
from bertine.tokenization.tokenizer import Tokenizer

# Frozen vectors: the vectors of texts by a model before training, which show its prior knowledge.
#
# Shape legend: N texts, H hidden size.

#: The default pooling.
MEAN = Pooling()
#: The maximum of multiplications and additions for the vectors of the training examples on a CPU
#: (some seconds to a minute), and on a GPU.
_CPU_WORK, _GPU_WORK = 5e12, 1e15
#: Below this number of tokens the model itself computes: an engine first packs weights and
#: measures.
_FEW_TOKENS = 30_000


class TextFeatures(Protocol):
    """The interface of features of texts."""

    def matrix(self, texts: Sequence[Sequence[str]]) -> Matrix:
        """Compute the features fp32 [N, D] of N texts or pairs of texts."""
        ...


@dataclass(frozen=True)
class FrozenEncoder:
    """A model before training, with the pooling that makes a vector of a text.

    Attributes:
        model: the model, on its device. It is put into evaluation mode while it computes.
        tokenizer: the tokenizer of the model.
        max_length: maximum pieces of a text; longer texts are cut.
        pooling: the mean of the last states, or as a directory of sentence-transformers says.
        dtype: the type to compute in.
    """

    model: Model
    tokenizer: Tokenizer
    max_length: int
    pooling: Pooling = MEAN
    dtype: torch.dtype = torch.float32

    def affordable(self, texts: Sequence[Sequence[str]]) -> int:
        """Count how many of `texts`, from the first on, fit into the time limit."""
        on_cpu = next(self.model.parameters()).device.type == "cpu"
        work_of_token = 2.0 * self.model.backbone.weights_of_passes()
        tokens = (_CPU_WORK if on_cpu else _GPU_WORK) / work_of_token
        lengths = np.zeros(len(texts), dtype=np.int64)
        for column in zip(*texts, strict=True):
            encoded = self.tokenizer.encode_arrays(list(column), max_length=self.max_length)
            lengths += [len(ids) for ids, _, _ in encoded]
        return int(np.searchsorted(np.cumsum(lengths), tokens, side="right"))

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Compute the vectors of texts, fp32 [N, H]; repeated texts are computed once."""
        different = list(dict.fromkeys(texts))
        encoded = self.tokenizer.encode_arrays(different, max_length=self.max_length)
        features = [Features(ids, types, row) for row, (ids, types, _) in enumerate(encoded)]
        place = {text: at for at, text in enumerate(different)}
        table = np.stack(self.run(features)).astype(np.float32)
        return cast(np.ndarray, table[[place[text] for text in texts]])

    def run(
        self, features: Sequence[Features], pooling: Pooling | None = None
    ) -> Sequence[np.ndarray]:
        """Compute the vector of each of `features`, with another `pooling` if one is given; with
        ``tokens`` fp32 [n, H] each."""
        pooled = PooledTexts(pooling or self.pooling, self.model.config.longest_input)
        computing, pad_id = self.computing(features), self.tokenizer.pad_token_id
        return pooled.run(computing, features, pad_id=pad_id, dtype=self.dtype)

    def computing(self, features: Sequence[Features]) -> Model | Engine:
        """Return the faster one for this number of features: an engine for the CPU, or the
        model."""
        tokens = sum(len(feature.input_ids) for feature in features)
        if next(self.model.parameters()).device.type != "cpu" or tokens <= _FEW_TOKENS:
            return self.model
        return Engine(self.model, precision="bf16" if self.dtype == torch.bfloat16 else "fp32")

    def matrix(self, texts: Sequence[Sequence[str]]) -> Matrix:
        """Compute the features, fp32 [N, D]: for single texts their vectors; for pairs u, v, |u -
        v| and u · v (elementwise)."""
        columns = [self.vectors([row[at] for row in texts]) for at in range(len(texts[0]))]
        return columns[0] if len(columns) == 1 else pair_features(*columns)


def pooling_of(model_dir: Path | str) -> Pooling:
    """Choose the pooling: that of a sentence-transformers directory, else the mean of the last
    states, which was better than [CLS], the maximum, and [CLS] joined with the mean."""
    try:
        modules = read_sentence_modules(model_dir)
    except BertineError:
        return Pooling()
    if modules is None or modules.refused or not modules.modes or "tokens" in modules.modes:
        return Pooling()
    # Directions carry as much as vectors of length 1, which the scaling below would undo.
    return replace(Pooling(), modes=modules.modes, dimensions=modules.dimensions)


def pair_features(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Compute fp32 [N, 4 D + 1] from the vectors [N, D] of two texts, each scaled to length 1:
    both, their difference and product, and the cosine, as
    :class:`bertine.models.heads.PairHead` does."""
    u, v = unit(u), unit(v)
    cosine = (u * v).sum(-1, keepdims=True)
    return np.concatenate([u, v, abs(u - v), u * v, cosine], -1)


def scaled(features: Callable[[Any], np.ndarray]) -> Callable[[Any], np.ndarray]:
    """Scale the dense features that a function returns, as measured on those of its first call:
    call it with the training examples first."""
    scaling: list[Scaling] = []

    def scaled_features(examples: Any) -> np.ndarray:
        matrix = features(examples)
        if not scaling:
            scaling.append(Scaling(matrix))
        return scaling[0](matrix)

    return scaled_features


class Scaling:
    """A scaling of dense features to mean 0 and variance 1 each, as measured on `matrix` (fp32 [N,
    D])."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.mean = matrix.mean(0, dtype=np.float64)
        deviation = matrix.std(0, dtype=np.float64)
        self.deviation = np.where(deviation > 1e-9, deviation, 1.0)

    def __call__(self, matrix: np.ndarray) -> np.ndarray:
        return np.asarray((matrix - self.mean) / self.deviation, dtype=np.float32)


# Baselines of single texts and pairs: the most frequent answer, n-grams, frozen vectors.

#: Examples → the task's predictions for them.
Answers = Callable[[Examples[Any]], list[Any]]
#: The penalties that are tried, for tf-idf and for vectors.
NGRAM_STRENGTHS = (0.1, 1.0, 10.0, 100.0)
VECTOR_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
#: The maximum of scores of the training examples, and of weights, for a model that is fitted in
#: seconds to a minute and in a gigabyte.
_MOST_SCORES, _MOST_WEIGHTS = 10_000_000, 10_000_000

TextTask = TextClassification | MultiLabel | TextRegression


@singledispatch
def targets_of(task: Any, examples: Examples[Example], *, weighted: bool = False) -> Targets:
    """Return the targets of a linear model for labelled examples; numbers have mean 0 and variance
    1. `weighted`: with the weights that the task has in training."""
    values = numbers_of(examples)
    return NumberTargets((values - values.mean()) / (values.std() or 1.0))


@targets_of.register
def _(task: TextClassification, examples: Examples[Example], *, weighted: bool = False) -> Targets:
    ids = [task.target(item.label, examples.source, item.line) for item in examples.items]
    weights = task.class_weights if weighted else None
    return ClassTargets(
        np.array(ids, dtype=np.int64),
        len(task.labels),
        None if weights is None else np.array(weights),
    )


@targets_of.register
def _(task: MultiLabel, examples: Examples[Example], *, weighted: bool = False) -> Targets:
    sets = [task.target(item.label, examples.source, item.line) for item in examples.items]
    weights = task.positive_weights if weighted else None
    return LabelTargets(
        np.stack([entry for entry in sets if entry is not None]).astype(np.float64),
        None if weights is None else np.array(weights),
    )


def numbers_of(examples: Examples[Example]) -> np.ndarray:
    """Return the scores of labelled examples, fp64 [N]."""
    return np.array([float(item.label or "nan") for item in examples.items])


@singledispatch
def answers_of(task: Any, scores: np.ndarray, train: Examples[Example]) -> list[Any]:
    """Turn the scores fp64 [N, K] of a linear model into the task's predictions; for a regression
    the scores [N, 1] are numbers with mean 0 and variance 1."""
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
    """Predict the most frequent label; of several labels those that most examples have, or the most
    frequent one; of numbers the mean."""
    targets = targets_of(task, train)
    if isinstance(targets, ClassTargets):
        counts = np.bincount(targets.values, minlength=targets.outputs)
        scores = np.log(np.maximum(counts, 0.5))
    elif isinstance(targets, LabelTargets):
        share = np.clip(targets.values.mean(0), 1e-3, 1 - 1e-3)
        scores = np.log(share) - np.log1p(-share)
        threshold = cast(MultiLabel, task).threshold
        if share.max() < threshold:
            # An empty set of labels has no score; the most frequent label has one.
            scores[scores.argmax()] = np.log(threshold) - np.log1p(-threshold) + 1e-6
    else:
        scores = np.zeros(1)
    return lambda examples: answers_of(task, np.tile(scores, (len(examples), 1)), train)


def ngrams(task: TextTask, train: Examples[Example], *, weighted: bool = False) -> Answers:
    """Fit logistic regression (ridge regression for numbers) on tf-idf of words and characters.
    `weighted`: with the weights that the task has in training."""
    texts = [item.texts for item in train.items]
    # A pair has four times as many features.
    weights = 2 * len(texts[0]) ** 2 * max(1, len(task.labels))
    features = NgramFeatures(texts, max(1, _MOST_WEIGHTS // weights))
    return _linear(task, train, features.matrix, NGRAM_STRENGTHS, weighted)


def frozen_vectors(
    task: TextTask, train: Examples[Example], encoder: TextFeatures, *, weighted: bool = False
) -> Answers:
    """Fit logistic regression (ridge regression for numbers) on the vectors of a frozen model.
    `weighted`: with the weights that the task has in training."""
    return _linear(task, train, scaled(encoder.matrix), VECTOR_STRENGTHS, weighted)


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

    def score(scores: np.ndarray, examples: np.ndarray) -> float:
        labels = [train.items[at].label or "" for at in examples.tolist()]
        typed: Task[Any] = task
        report = typed.report(answers_of(task, scores, train), labels)
        return official_score(report.metrics, judged)

    # The lowest loss often belongs to a nearly constant prediction: enough for the accuracy, but
    # worthless for Matthews or F1.
    by_loss = targets.outputs == 1 or judged == ("accuracy",)
    return linear(
        train,
        targets,
        lambda examples: features([item.texts for item in examples.items]),
        strengths,
        lambda scores, examples: answers_of(task, scores, train),
        score=None if by_loss else score,
    )


def linear(
    train: Any,
    targets: Targets,
    features: Callable[[Any], Matrix],
    strengths: Sequence[float],
    read: Callable[[np.ndarray, Any], list[Any]],
    score: Callable[[np.ndarray, np.ndarray], float] | None = None,
) -> Answers:
    """Fit a linear model on the features of examples; see
    :func:`~bertine.inference.baselines.linear.fit_linear`. `read` turns the scores [M, K] of
    examples into predictions."""
    model = fit_linear(features(train), targets, strengths, score=score)
    return lambda examples: read(model.scores(features(examples)), examples)


# Multiple choice: a fixed place, the longest choice, and features that a choice shares with the
# given text.
#
# Shape legend: N examples, M choices of all of them together.

#: The probability of the one answer that is given, below 1 so that a loss is finite.
_SURE = 0.97
Pairs = Sequence[tuple[str, str]]


def most_frequent_place(task: MultipleChoice, train: Examples[Example]) -> Answers:
    """Predict the choice at the place that is right most often in training."""
    _, targets = _pairs(task, train)
    counts = Counter(targets.values.tolist())

    def answers(examples: Examples[Any]) -> list[Any]:
        _, here = _pairs(task, examples)
        places = np.concatenate([np.arange(n) for n in np.diff(here.starts)])
        scores = np.log([counts[int(place)] + 0.5 for place in places])
        return _decided(task, scores, here.starts)

    return answers


def longest(task: MultipleChoice, train: Examples[Example]) -> Answers:
    """Predict the choice with the most characters: authors of tests put more into the right one."""

    def answers(examples: Examples[Any]) -> list[Any]:
        pairs, here = _pairs(task, examples)
        lengths = np.array([float(len(choice)) for _, choice in pairs])
        best = np.zeros(len(lengths))
        for low, high in pairwise(here.starts):
            best[low + lengths[low:high].argmax()] = np.log(_SURE / (1 - _SURE))
        return _decided(task, best, here.starts)

    return answers


def choice_ngrams(task: MultipleChoice, train: Examples[Example]) -> Answers:
    """Fit a linear model among the choices, on tf-idf of each choice with the given text."""
    features = NgramFeatures(_pairs(task, train)[0])
    return _choices_linear(task, train, features.matrix, NGRAM_STRENGTHS)


def choice_frozen_vectors(
    task: MultipleChoice, train: Examples[Example], encoder: FrozenEncoder
) -> Answers:
    """Fit a linear model among the choices, on the vectors of each choice and of the given text."""
    return _choices_linear(task, train, scaled(encoder.matrix), VECTOR_STRENGTHS)


def _choices_linear(
    task: MultipleChoice,
    train: Examples[Example],
    features: Callable[[Pairs], Matrix],
    strengths: Sequence[float],
) -> Answers:
    return linear(
        train,
        _pairs(task, train)[1],
        lambda examples: features(_pairs(task, examples)[0]),
        strengths,
        lambda scores, examples: _decided(task, scores[:, 0], _pairs(task, examples)[1].starts),
    )


def _pairs(
    task: MultipleChoice, examples: Examples[Example]
) -> tuple[list[tuple[str, str]], ChoiceTargets]:
    """Return (given text, choice) for all choices of all examples, and the right ones."""
    pairs: list[tuple[str, str]] = []
    starts, right = [0], []
    for item in examples.items:
        choices = task.choices_of(item, examples.source)
        prompt = " ".join(item.texts[: len(task.prompt_columns)])
        pairs += [(prompt, choice) for choice in choices]
        starts.append(len(pairs))
        right.append(task.right_of(item, examples.source) or 0)
    return pairs, ChoiceTargets(np.array(right, dtype=np.int64), np.array(starts))


def _decided(task: MultipleChoice, scores: np.ndarray, starts: np.ndarray) -> list[Any]:
    """Turn scores, fp64 [M], into the prediction for each example."""
    shares = np.exp(grouped_log_softmax(scores, starts))
    predictions = []
    for low, high in pairwise(starts.tolist()):
        best = int(shares[low:high].argmax())
        predictions.append(
            ChoicePrediction(best, tuple(shares[low:high].tolist()), task.label_of(best))
        )
    return predictions
