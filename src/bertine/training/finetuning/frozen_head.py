"""Fitting the head alone, on the states of an encoder that stays as it is (a linear probe).

For very few labels this is the strong choice: a linear model fitted to convergence, its penalty
chosen by cross-validation, can hardly overfit. What is saved is an ordinary model directory: the
head of the published architecture computes exactly that linear model. A classifier reads
``tanh(pooler)``; the pooler becomes so small a multiple of the scaled states that tanh is linear
within the rounding of fp32, and the classifier takes the factor back. Where a head has gelu in
place of tanh, its slope near 0 is a half; where it has a ReLU, the states are moved to where it is
linear, and the classifier moves them back; where it has a norm, that becomes a factor
(:mod:`bertine.models.modern.linear_head`). Pairs of texts have a head of ours, on the vectors of
both and on how much of each text is in the other (:class:`bertine.models.heads.PairHead`); there a
piece counts the more the fewer of the training texts have it (inverse document frequency: Sparck
Jones 1972).

Shape legend: N inputs, H hidden size, K outputs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import nn

from bertine.cores.launch import launched
from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.inference.baselines.frozen import FrozenEncoder, Scaling, pooling_of
from bertine.inference.baselines.linear import (
    ChoiceTargets,
    ClassTargets,
    LabelTargets,
    LinearModel,
    NumberTargets,
    ShareTargets,
    Targets,
    fit_linear,
)
from bertine.inference.compute.running import run_features
from bertine.models.heads import (
    PAIR_CLASSIFIER,
    VECTOR_CLASSIFIER,
    PairHead,
    VectorHead,
    texts_apart,
)
from bertine.models.mean_layer import add_mean_layer, takes_mean_layer
from bertine.models.model import Model
from bertine.models.modern.heads import ModernHead
from bertine.models.modern.linear_head import make_linear
from bertine.models.pooling import Pooling
from bertine.options.finetuning import OF_TRAINING, FinetuneOptions
from bertine.options.names import option
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.features import Features
from bertine.tasks.tagging.task import Tagging
from bertine.tasks.tagging.word_windows import WordFeatures
from bertine.tasks.texts.classification import TextClassification
from bertine.tasks.texts.multi_label import MultiLabel
from bertine.tasks.texts.regression import TextRegression
from bertine.terminal.console import human_time, say
from bertine.text.tokenizer import Tokenizer
from bertine.training.finetuning.setup import Prepared

#: Penalties that are tried.
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
#: Where an activation is linear: by what the scaled states, rarely above 8, are multiplied before
#: it, what is added to them, and its slope there. tanh(x) = x within 2e-7 of itself for |x| below
#: 1e-3, and ReLU never has them on its other side.
_LINEAR = {torch.tanh: (2.0**-13, 0.0, 1.0), F.relu: (1.0, 32.0, 1.0)}
#: The same of gelu and its like: half of x, within 1e-5 of it.
_HALF = (2.0**-17, 0.0, 0.5)
#: How many times as long as other features, scaled, the two shares in common are, so that the
#: penalty leaves them almost alone. On held-out training examples of STS-B, with the vectors of
#: bertine-en, 3, 10 and 30 did equally well, and better than 1 (docs/hour.md).
_SHARES_FACTOR = 10.0
#: What is of training and says that there is none of it.
_HARMLESS = (("save_best", False), ("lm_weight", 0))
#: More words than that are not looked at: a tagger's states take 4 H bytes each.
_MOST_WORDS = 200_000


def fits_alone(task: Task[Any], model: Model) -> bool:
    """Return whether the head for `task` of `model` can be fitted alone: on BERT's layers the
    published heads can be made linear; heads of ours, which read the vectors of texts, are linear,
    and go on any model that has them."""
    if takes_mean_layer(model.backbone):
        return True
    return task.reads_whole_texts and VECTOR_CLASSIFIER in model.config.heads


def check_frozen(task: Task[Any], options: FinetuneOptions, model: Model) -> None:
    """Refuse what does not go with fitting the head alone.

    Raises:
        BertineError: the task's head finds nothing in states that were not trained for it; the
            layers of `model` are not BERT's, and the task is not about whole texts; an option of
            training is given; several processes were started.
    """
    if not fits_alone(task, model):
        raise BertineError(
            f"frozen fits no head for the task {task.name!r} on the layers of a "
            f"{model.config.title}; leave it out"
        )
    if task.reads_questions:
        raise BertineError(
            f"frozen fits the head alone, which finds nothing for the task {task.name!r}; leave it "
            f"out ({option('freeze_layers')} leaves some layers as they are)"
        )
    for name, value in options.changed().items():
        if name in OF_TRAINING and (name, value) not in _HARMLESS:
            raise BertineError(
                f"{name} (--{name.replace('_', '-')}) is of training, but frozen fits the head "
                "alone, at once; leave one of the two out"
            )
    if options.fresh_weights:
        raise BertineError(
            f"{option('fresh_weights', True)} leaves an encoder that knows nothing, of which "
            "frozen trains no layer; leave one of the two out"
        )
    if launched():
        raise BertineError("frozen fits the head in one process; start it without torchrun")


@dataclass(frozen=True)
class FittedHead:
    """The result of fitting the head alone.

    Attributes:
        seconds: that it took.
        cross_validated: the task's metrics of what heads answered to training examples that they
            had not seen, in the cross-validation that chose the penalty; empty for words and
            choices.
        count: of these examples.
    """

    seconds: float
    cross_validated: dict[str, float]
    count: int


def fit_head(
    prepared: Prepared,
    dtype: torch.dtype,
    strengths: Sequence[float] = STRENGTHS,
    *,
    evenly: bool = False,
) -> FittedHead:
    """Fit the head of the prepared model, in place; the encoder stays as it is, but for a layer on
    top that makes the mean of all states, where the head reads [CLS].

    Args:
        prepared: the model on its device, and the training features.
        dtype: to compute states in.
        strengths: of which cross-validation chooses the penalty. An encoder that was trained on
            the same examples has seen those that are left out: then give one.
        evenly: scale all numbers of the vectors of single texts by the same, so that these have
            length 1 on average, in place of each by itself: where an encoder was trained for its
            directions, these mean something.

    Raises:
        BertineError: see :func:`check_frozen`.
    """
    begun = time.perf_counter()
    task, model = prepared.task, prepared.loaded.model
    features = prepared.train.features
    by_token = task.reads_words
    pooling = pooling_of(prepared.start.model)
    pairs = PAIR_CLASSIFIER in model.heads
    read = Pooling(pooling.modes)
    if takes_mean_layer(model.backbone) and not by_token and not pairs:
        read = Pooling(("cls",))
    if read != Pooling(pooling.modes):
        shared = model.config.shares_layers
        add_mean_layer(model)
        say("frozen: a layer on top of the encoder makes the mean of all states")
        if shared:
            count = model.num_parameters()
            say(f"frozen: so that it can be, layers no longer share weights: {count:,} parameters")
    encoder = FrozenEncoder(model, prepared.loaded.tokenizer, task.max_length, dtype=dtype)
    if pairs:
        states, scaling = _pairs(encoder, task, features)
    else:
        states = _states(encoder, task, features, read)
        scaling = Scaling(states)
        if evenly:
            scaling.deviation[:] = max(1e-9, float(np.linalg.norm(scaling.deviation)))
    with threadpool_limits(1, user_api="blas"):
        fitted = fit_linear(scaling(states), _targets(task, features), strengths)
    _set(model, task, scaling, fitted, states, read)
    seconds = time.perf_counter() - begun
    counted = {"piece_weights"}  # in the texts, and not fitted
    parts = sum(p.numel() for n, p in model.heads[task.head].named_parameters() if n not in counted)
    metrics, count = _cross_validated(prepared, fitted)
    known = [name for name in prepared.metric_names if name in metrics]
    judged = ", ".join(f"{name} {metrics[name]:.4f}" for name in known)
    say(
        f"frozen: a head of {parts:,} parameters fitted on {len(states):,} "
        f"{'words' if by_token else 'inputs'} in {human_time(seconds)} (penalty 1/C with C = "
        f"{fitted.strength:g}{', chosen by cross-validation' if len(strengths) > 1 else ''}"
        f"{': ' if judged else ''}{judged})"
    )
    return FittedHead(seconds, metrics, count)


def _cross_validated(prepared: Prepared, fitted: LinearModel) -> tuple[dict[str, float], int]:
    """Return the metrics of the answers to examples that were left out, and their number."""
    task = prepared.task
    if fitted.left_out is None or task.reads_words or task.has_choices:
        return {}, 0
    _, rows, scores = fitted.left_out
    features = [prepared.train.features[row] for row in rows.tolist()]
    outputs = scores[:, 0] if task.single_output else scores
    answers = task.decode(list(outputs), features)
    items = prepared.train.examples.items
    labels = [items[row].label for row in dict.fromkeys(feature.row for feature in features)]
    return task.metrics(answers, labels), len(labels)


class _PairVectors:
    """The vectors of pairs, as a task for running features: all that the head on pairs reads."""

    def __init__(self, task: Task[Any]) -> None:
        self.task = task

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        return self.task.collate(features, pad_id)

    def outputs(self, model: Any, batch: Batch) -> torch.Tensor:
        texts = texts_apart(batch)
        head = model.heads[PAIR_CLASSIFIER]
        return cast(torch.Tensor, head.features(model.encode(texts), texts))


def _pairs(
    encoder: FrozenEncoder, task: Task[Any], features: Sequence[Features]
) -> tuple[np.ndarray, Scaling]:
    """Return what the head reads of each pair, fp32 [N, 4 D + 3], and how that is to be scaled;
    set how much each piece counts in what texts have in common."""
    head = cast(PairHead, encoder.model.heads[PAIR_CLASSIFIER])
    assert head.piece_weights is not None
    weights = piece_weights(encoder.tokenizer, features, encoder.model.config.vocab_size)
    with torch.no_grad():
        head.piece_weights.copy_(torch.from_numpy(weights))
    vectors = run_features(
        encoder.computing(features),
        _PairVectors(task),
        features,
        pad_id=encoder.tokenizer.pad_token_id,
        dtype=encoder.dtype,
    )
    states = np.stack(vectors)
    scaling = Scaling(states)
    scaling.deviation[-2:] /= _SHARES_FACTOR
    return states, scaling


def piece_weights(
    tokenizer: Tokenizer, features: Sequence[Features], vocab_size: int
) -> np.ndarray:
    """Weigh the pieces by how few of the training texts have them.

    Args:
        tokenizer: whose special tokens count nothing, the unknown one among them.
        features: of N pairs.

    Returns:
        fp32 [V]: the logarithm of (2 N + 1) / (n + 1), n the texts that have the piece.
    """
    texts = np.zeros(vocab_size)
    for feature in features:
        ids, types = np.asarray(feature.input_ids), np.asarray(feature.token_type_ids)
        for segment in (0, 1):
            texts[np.unique(ids[types == segment])] += 1
    weights = np.log((2 * len(features) + 1) / (np.minimum(texts, 2 * len(features)) + 1))
    weights[list(tokenizer.special_ids)] = 0.0
    return weights.astype(np.float32)


def _states(
    encoder: FrozenEncoder, task: Task[Any], features: Sequence[Features], pooling: Pooling
) -> np.ndarray:
    """Return what the head reads of each input, fp32 [N, H]; of taggers of each word."""
    if not task.reads_words:
        return np.stack(encoder.run(features, pooling))
    vectors = encoder.run(_words_of(features), Pooling(("tokens",)))
    windows = cast(Sequence[WordFeatures], _words_of(features))
    return np.concatenate(
        [states[window.positions] for states, window in zip(vectors, windows, strict=True)]
    )


def _words_of(features: Sequence[Features]) -> Sequence[Features]:
    """Return the first windows that have no more words than may be looked at."""
    words = np.cumsum(
        [len(feature.positions) for feature in cast(Sequence[WordFeatures], features)]
    )
    return features[: max(1, int(np.searchsorted(words, _MOST_WORDS, side="right")))]


@singledispatch
def _targets(task: Any, features: Sequence[Any]) -> Targets:
    """Return what a linear model is to say of `features`."""
    raise NotImplementedError(f"the task {task.name!r} has no targets of a linear model")


@_targets.register
def _(task: TextClassification, features: Sequence[Features]) -> Targets:
    if isinstance(features[0].label, np.ndarray):
        return ShareTargets(np.stack([feature.label for feature in features]).astype(np.float64))
    ids = np.array([feature.label for feature in features], dtype=np.int64)
    weights = None if task.class_weights is None else np.array(task.class_weights)
    return ClassTargets(ids, len(task.labels), weights)


@_targets.register
def _(task: MultiLabel, features: Sequence[Features]) -> Targets:
    weights = None if task.positive_weights is None else np.array(task.positive_weights)
    chosen = np.stack([feature.label for feature in features])
    return LabelTargets(chosen.astype(np.float64), weights)


@_targets.register
def _(task: TextRegression, features: Sequence[Features]) -> Targets:
    values = np.array([feature.label for feature in features], dtype=np.float64)
    return NumberTargets((values - task.mean) / task.scale)


@_targets.register
def _(task: MultipleChoice, features: Sequence[Features]) -> Targets:
    sizes, right = [], []
    for _, group in groupby(features, key=lambda feature: feature.row):
        marks = [feature.label for feature in group]
        sizes.append(len(marks))
        right.append(marks.index(1.0))
    return ChoiceTargets(np.concatenate([[0], np.cumsum(sizes)]), np.array(right))


@_targets.register
def _(task: Tagging, features: Sequence[Features]) -> Targets:
    tags = [feature.tags for feature in cast(Sequence[WordFeatures], _words_of(features))]
    return ClassTargets(np.concatenate([ids for ids in tags if ids is not None]), len(task.labels))


@torch.no_grad()
def _set(
    model: Model,
    task: Any,
    scaling: Scaling,
    fitted: LinearModel,
    states: np.ndarray,
    pooling: Pooling,
) -> None:
    """Make the head, which reads `states` made by `pooling`, compute the fitted scores."""
    head = model.heads[task.head]
    out = head.out
    assert isinstance(out, nn.Linear)
    where = out.weight.device
    weights = fitted.weights / scaling.deviation[:, None]
    bias = fitted.bias - scaling.mean @ weights
    if task.reads_words or isinstance(head, PairHead | VectorHead):
        out.weight.copy_(torch.from_numpy(weights.T).float().to(where))
        out.bias.copy_(torch.from_numpy(bias).float().to(where))
        return
    if isinstance(head, ModernHead):
        scores = torch.from_numpy(states @ weights + bias)
        matrix, added = torch.from_numpy(weights.T), torch.from_numpy(bias)
        make_linear(model, head, pooling, matrix, added, scores)
        return
    # A dense layer and its activation stand before `out`: in the head, or the pooler.
    dense, act = getattr(head, "dense", model.backbone.pooler), getattr(head, "act", torch.tanh)
    assert isinstance(dense, nn.Linear)
    factor, moved, slope = _LINEAR.get(act, _HALF)
    scale, shift = factor / scaling.deviation, moved - factor * scaling.mean / scaling.deviation
    dense.weight.copy_(torch.diag(torch.from_numpy(scale)).float().to(where))
    dense.bias.copy_(torch.from_numpy(shift).float().to(where))
    weights = fitted.weights / (factor * slope)
    out.weight.copy_(torch.from_numpy(weights.T).float().to(where))
    out.bias.copy_(torch.from_numpy(fitted.bias - moved * weights.sum(0)).float().to(where))
