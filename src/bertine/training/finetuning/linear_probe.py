"""Fit only the head of a task, on the states of an unchanged encoder (a linear probe).

For very few labels this is the strong choice: a linear model fitted to convergence, its penalty
chosen by cross-validation, can hardly overfit. The result is an ordinary model directory: the head
of the published architecture computes exactly that linear model. A classifier reads
``tanh(pooler)``; the pooler becomes such a small multiple of the scaled states that tanh is linear
within the rounding of fp32, and the classifier reverses the factor. If a head has gelu in the place
of tanh, its slope near 0 is a half; if it has a ReLU, the states are shifted to where it is linear,
and the classifier shifts them back; if it has a norm, that becomes a factor
(:mod:`bertine.families.fitted_heads`). Pairs of texts have a head specific to this package, on the
vectors of both and on how much of each text is in the other
(:class:`bertine.models.heads.PairHead`); the weight of a piece in that share is higher if fewer of
the training texts have it (inverse document frequency: Sparck Jones 1972).

The second part decides whether such a head replaces the trained model.

Shape legend: N inputs, H hidden size, K outputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import nn

from bertine.core.console import human_time, logger
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.scores import beyond_error, score_text
from bertine.corpora.batch import Batch
from bertine.families.fitted_heads import (
    add_mean_layer,
    has_mean_layer,
    make_linear,
    takes_mean_layer,
)
from bertine.families.modernbert import ModernHead
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
from bertine.inference.baselines.texts import FrozenEncoder, Scaling, pooling_of
from bertine.inference.compute import run_features
from bertine.models.heads import (
    PAIR_CLASSIFIER,
    Model,
    PairHead,
    VectorHead,
    texts_apart,
)
from bertine.models.pooling import Pooling
from bertine.options.finetuning import OF_TRAINING, FinetuneOptions
from bertine.tasks.base import Features, Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.metrics import official_score
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.report import HEAD_ALONE, EvaluationReport
from bertine.tasks.tagged_words import WordFeatures
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.defaults import FEW_CLASSES
from bertine.training.finetuning.setup import Prepared, probe_variant

#: The penalties to choose from.
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
#: The linear range of an activation: the factor on the scaled states (which are rarely above 8)
#: before it, the amount added to them, and the slope there. tanh(x) = x within 2e-7 of itself for
#: |x| below 1e-3, and the shift keeps states on the linear side of ReLU.
_LINEAR = {torch.tanh: (2.0**-13, 0.0, 1.0), F.relu: (1.0, 32.0, 1.0)}
#: The same for gelu and similar functions: half of x, within 1e-5 of it.
_HALF = (2.0**-17, 0.0, 0.5)
#: The factor on the two shares in common, relative to other scaled features, so that the penalty
#: has almost no effect on them. On held-out training examples of STS-B, with the vectors of
#: a ModernBERT trained for an hour, 3, 10 and 30 were equally good, and better than 1
#: (docs/hour.md).
_SHARES_FACTOR = 10.0
#: Options of training with values that switch something off, so that they are accepted here.
_HARMLESS = (("save_best", False), ("lm_weight", 0))
#: The most words that are used: a tagger's states take 4 H bytes each.
_MOST_WORDS = 200_000


def fits_alone(task: Task[Any], model: Model) -> bool:
    """Return whether the head for `task` of `model` can be fitted alone. On BERT's layers the
    published heads can be made linear; this package's own heads, which read the vectors of texts,
    are linear, and fit any model that has them."""
    if takes_mean_layer(model.backbone):
        return True
    return task.vector_head in model.family.heads


def _finds_nothing(task: Task[Any]) -> bool:
    """Return whether no head for `task` learns from states that were not trained for it."""
    return _targets.dispatch(type(task)) is _targets.dispatch(object)


def check_frozen(task: Task[Any], options: FinetuneOptions, model: Model) -> None:
    """Refuse options that are incompatible with fitting only the head.

    Raises:
        BertineError: the task's head cannot learn from states that were not trained for it; the
            layers of `model` are not BERT's, and the task is not about whole texts; an option of
            training is given; several processes were started.
    """
    if not fits_alone(task, model):
        raise BertineError(
            f"frozen fits no head for the task {task.name!r} on the layers of a "
            f"{model.config.title}; leave it out"
        )
    if _finds_nothing(task):
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
class LinearProbe:
    """The result of fitting only the head.

    Attributes:
        seconds: the duration.
        cross_validated: the task's metrics of the heads' answers to training examples that they had
            not seen, in the cross-validation that chose the penalty; empty for words and choices.
        count: the number of these examples.
    """

    seconds: float
    cross_validated: dict[str, float]
    count: int


def fit_linear_probe(
    prepared: Prepared,
    dtype: torch.dtype,
    strengths: Sequence[float] = STRENGTHS,
    *,
    evenly: bool = False,
) -> LinearProbe:
    """Fit the head of the prepared model, in place. The encoder is unchanged, except for an added
    layer that computes the mean of all states, if the head reads [CLS].

    Args:
        prepared: the model on its device, and the training features.
        dtype: to compute states in.
        strengths: the penalties from which cross-validation chooses. An encoder that was trained on
            the same examples has seen those that are left out: then pass a single penalty.
        evenly: scale all numbers of the vectors of single texts by the same factor, so that these
            have length 1 on average, not each number by its own. For an encoder that was trained by
            the directions of vectors, the directions carry information.

    Raises:
        BertineError: see :func:`check_frozen`.
    """
    begun = time.perf_counter()
    task, model = prepared.task, prepared.loaded.model
    features = prepared.features
    by_token = _reads_tokens(model, task)
    pooling = pooling_of(prepared.model)
    pairs = PAIR_CLASSIFIER in model.heads
    read = Pooling(pooling.modes)
    if takes_mean_layer(model.backbone) and not by_token and not pairs:
        read = Pooling(("cls",))
    # The head of a model that had one fitted before reads such a layer already.
    if read != Pooling(pooling.modes) and not has_mean_layer(model):
        shared = model.config.shares_layers
        add_mean_layer(model)
        logger.info("frozen: one more layer on top of the encoder computes the mean of all states")
        if shared:
            count = model.num_parameters()
            logger.info(
                f"frozen: so that it can be, layers no longer share weights: {count:,} parameters"
            )
    encoder = FrozenEncoder(model, prepared.loaded.tokenizer, task.max_length, dtype=dtype)
    if pairs:
        states, scaling = _pairs(encoder, task, features)
    else:
        states = _states(encoder, by_token, features, read)
        scaling = Scaling(states)
        if evenly:
            scaling.deviation[:] = max(1e-9, float(np.linalg.norm(scaling.deviation)))
    targets = _targets(task, features)
    with threadpool_limits(1, user_api="blas"):
        fitted = fit_linear(scaling(states), targets, strengths)
    _set(model, task, scaling, fitted, states, read)
    seconds = time.perf_counter() - begun
    counted = {"piece_weights"}  # counted in the texts, not fitted
    parts = sum(p.numel() for n, p in model.heads[task.head].named_parameters() if n not in counted)
    several = by_token or isinstance(targets, ChoiceTargets)
    metrics, count = ({}, 0) if several else _cross_validated(prepared, fitted)
    known = [name for name in prepared.metric_names if name in metrics]
    judged = ", ".join(f"{name} {metrics[name]:.4f}" for name in known)
    logger.info(
        f"frozen: a head of {parts:,} parameters fitted on {len(states):,} "
        f"{'words' if by_token else 'inputs'} in {human_time(seconds)} (inverse "
        f"regularization strength C = {fitted.strength:g}"
        f"{', chosen by cross-validation' if len(strengths) > 1 else ''}"
        f"{': ' if judged else ''}{judged})"
    )
    return LinearProbe(seconds, metrics, count)


def _cross_validated(prepared: Prepared, fitted: LinearModel) -> tuple[dict[str, float], int]:
    """Return the metrics of the answers to the left-out examples, and their number."""
    task = prepared.task
    if fitted.left_out is None:
        return {}, 0
    _, rows, scores = fitted.left_out
    features = [prepared.features[row] for row in rows.tolist()]
    outputs = scores[:, 0] if scores.shape[1] == 1 else scores
    answers = task.decode(list(outputs), features)
    items = prepared.data.train.items
    labels = [items[row].label for row in dict.fromkeys(feature.row for feature in features)]
    return task.report(answers, labels).metrics, len(labels)


class _PairVectors:
    """The vectors of pairs, as a task for running features: all inputs of the head on pairs."""

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
    """Return the head's input for each pair, fp32 [N, 4 D + 3], and its scaling; set the weight of
    each piece for the shares in common."""
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
    """Compute weights of pieces: the fewer of the training texts have a piece, the higher.

    Args:
        tokenizer: its special tokens, including the unknown one, have weight 0.
        features: of N pairs.

    Returns:
        fp32 [V]: the logarithm of (2 N + 1) / (n + 1), with n the number of texts that have the
        piece.
    """
    texts = np.zeros(vocab_size)
    for feature in features:
        ids, types = np.asarray(feature.input_ids), np.asarray(feature.token_type_ids)
        for segment in (0, 1):
            texts[np.unique(ids[types == segment])] += 1
    weights = np.log((2 * len(features) + 1) / (np.minimum(texts, 2 * len(features)) + 1))
    weights[list(tokenizer.special_ids)] = 0.0
    return weights.astype(np.float32)


def _reads_tokens(model: Model, task: Task[Any]) -> bool:
    """Return whether the head reads the states of tokens, one for each word."""
    return model.family.heads[task.head].reads == "tokens"


def _states(
    encoder: FrozenEncoder, by_token: bool, features: Sequence[Features], pooling: Pooling
) -> np.ndarray:
    """Return the head's input for each example, fp32 [N, H], or with `by_token` for each word."""
    if not by_token:
        return np.stack(encoder.run(features, pooling))
    vectors = encoder.run(_words_of(features), Pooling(("tokens",)))
    windows = cast(Sequence[WordFeatures], _words_of(features))
    return np.concatenate(
        [states[window.positions] for states, window in zip(vectors, windows, strict=True)]
    )


def _words_of(features: Sequence[Features]) -> Sequence[Features]:
    """Return the first windows, up to the largest number of words that is used."""
    words = np.cumsum(
        [len(feature.positions) for feature in cast(Sequence[WordFeatures], features)]
    )
    return features[: max(1, int(np.searchsorted(words, _MOST_WORDS, side="right")))]


@singledispatch
def _targets(task: Any, features: Sequence[Any]) -> Targets:
    """Return the targets of a linear model for `features`."""
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
    return ChoiceTargets(np.array(right), np.concatenate([[0], np.cumsum(sizes)]))


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
    """Set the weights of the head so that it computes the fitted scores from `states`, which
    `pooling` produced."""
    head = model.heads[task.head]
    out = head.out
    assert isinstance(out, nn.Linear)
    where = out.weight.device
    weights = fitted.weights / scaling.deviation[:, None]
    bias = fitted.bias - scaling.mean @ weights
    if _reads_tokens(model, task) or isinstance(head, PairHead | VectorHead):
        out.weight.copy_(torch.from_numpy(weights.T).float().to(where))
        out.bias.copy_(torch.from_numpy(bias).float().to(where))
        return
    if isinstance(head, ModernHead):
        scores = torch.from_numpy(states @ weights + bias)
        matrix, added = torch.from_numpy(weights.T), torch.from_numpy(bias)
        make_linear(model, head, pooling, matrix, added, scores)
        return
    # A dense layer and its activation come before `out`: in the head, or the pooler.
    dense, act = getattr(head, "dense", model.backbone.pooler), getattr(head, "act", torch.tanh)
    assert isinstance(dense, nn.Linear)
    factor, moved, slope = _LINEAR.get(act, _HALF)
    scale, shift = factor / scaling.deviation, moved - factor * scaling.mean / scaling.deviation
    dense.weight.copy_(torch.diag(torch.from_numpy(scale)).float().to(where))
    dense.bias.copy_(torch.from_numpy(shift).float().to(where))
    weights = fitted.weights / (factor * slope)
    out.weight.copy_(torch.from_numpy(weights.T).float().to(where))
    out.bias.copy_(torch.from_numpy(fitted.bias - moved * weights.sum(0)).float().to(where))


# Fallback: the head alone on an unchanged encoder, as an alternative to the model whose weights
# were all trained.
#
# With few labels a linear model on the vectors of a good encoder can be better than any training of
# all weights: above all for pairs of texts, which such an encoder can compare without having seen a
# single label, while a model that reads both as one input must first learn to; and for many classes
# with few examples each (``docs/results.md``, "Defaults").

#: With up to this many training examples of each class, and many classes, the head alone is usually
#: better (``docs/results.md``, "Defaults").
_FEW_OF_A_CLASS = 30
#: With more pairs than this, the head alone is fitted only if its baseline indicates that it is
#: worthwhile: training all weights is usually better there, and computing the vectors takes long.
_FEW_PAIRS = 10_000


@dataclass(frozen=True)
class ProbeFallback:
    """The head alone, fitted in addition to the trained model.

    Attributes:
        prepared: the run with this head.
        report: its evaluation on the validation examples.
        fitted: the result of fitting it.
        better: whether it is to be saved in place of the trained model.
    """

    prepared: Prepared
    report: EvaluationReport
    fitted: LinearProbe
    better: bool


def probe_fallback(
    prepared: Prepared,
    trained: EvaluationReport,
    baselines: Sequence[Mapping[str, Any]],
    judge: Callable[[Prepared], EvaluationReport],
    *,
    dtype: torch.dtype,
) -> ProbeFallback | None:
    """Fit the head alone if it may be better than the trained model.

    Args:
        prepared: the run, its model trained.
        trained: the evaluation of that model on the validation examples.
        baselines: of the run, as in ``scores.json``.
        judge: evaluates a run's model on the validation examples.
        dtype: to compute in.

    Returns:
        The head alone; None if the user has chosen one of the two models or how pairs are read, or
        if the head cannot be fitted, or is not expected to be better.
    """
    options, names = prepared.options, prepared.metric_names
    chosen = options.frozen is not None or options.fresh_weights or prepared.plan.paper is not None
    chosen |= options.pairs != "joined"
    chosen |= prepared.task.focal_gamma > 0  # not in a head fitted alone
    chosen |= not fits_alone(prepared.task, prepared.loaded.model)
    if chosen or _finds_nothing(prepared.task) or not set(names) <= set(trained.metrics):
        return None
    scores = [baseline["metrics"] for baseline in baselines if baseline.get("name") == HEAD_ALONE]
    extra: Mapping[str, float] = scores[0] if scores else {}
    if not set(names) <= set(extra):
        return None
    own, count = official_score(trained.metrics, names), len(prepared.data.validation)
    examples = len(prepared.data.train)
    pairs = len(prepared.task.text_columns) == 2
    expected = pairs or few_of_many(prepared.task.num_classes, examples)
    if not (expected and examples <= _FEW_PAIRS):
        promised = official_score(extra, names)
        if not alone_is_better(names[0], promised, own, count, expected=expected):
            return None
    try:
        other = probe_variant(prepared)
    except BertineError as error:
        logger.warning(f"the head alone was not tried, as the model cannot be read again: {error}")
        return None
    fitted = fit_linear_probe(other, dtype)
    report = judge(other)
    # With many classes of few examples each, heads fitted without a fifth of these are far worse.
    # And if the encoder was trained on the examples before, the left-out ones are not new to it.
    left_out = fitted.count if prepared.task.num_classes <= FEW_CLASSES else 0
    left_out = 0 if prepared.seen_in_training else left_out
    score = score_of_head(report.metrics, count, fitted.cross_validated, left_out, names)
    if not alone_is_better(names[0], score, own, count, expected=expected):
        logger.info(
            f"the head alone is no better: {score_text(names[0], score)} against "
            f"{score_text(names[0], own)}; the trained model is saved"
        )
        return ProbeFallback(other, report, fitted, better=False)
    more = " and on training examples that were left out" if left_out else ""
    better = "better" if score > own else "as good, within chance, and mostly the better one"
    logger.info(
        "the head alone, on the model's vectors as they were before training, is "
        f"{better}: {score_text(names[0], score)} on the validation examples{more}, against "
        f"{score_text(names[0], own)} on the validation examples; it is saved in place of the "
        f"trained model ({option('frozen', False)} saves that one)"
    )
    return ProbeFallback(other, report, fitted, better=True)


def score_of_head(
    validation: Mapping[str, float],
    count: int,
    cross_validated: Mapping[str, float],
    left_out: int,
    names: Sequence[str],
) -> float:
    """Return the score of the head alone (the mean of the metrics `names`) on all examples that it
    was not fitted to.

    These are the `count` validation examples, and the `left_out` training examples of the
    cross-validation, if there was one. Of a hundred examples ten are held out, which are almost no
    evidence on either model; but the head's score on all hundred is reliable.
    """
    if not set(names) <= set(validation):
        return math.nan
    score = official_score(validation, names)
    if not left_out or not set(names) <= set(cross_validated):
        return score
    other = official_score(cross_validated, names)
    if math.isnan(score) or math.isnan(other):
        return other if math.isnan(score) else score
    return (count * score + left_out * other) / (count + left_out)


def few_of_many(classes: int, examples: int) -> bool:
    """Return whether there are many `classes` and few training `examples` of each."""
    return classes > FEW_CLASSES and examples <= _FEW_OF_A_CLASS * classes


def alone_is_better(
    metric: str, alone: float, trained: float, count: int, *, expected: bool
) -> bool:
    """Return whether the head alone is to be saved.

    Args:
        metric: the first by which the task is judged.
        alone: the score of the head alone (:func:`score_of_head`).
        trained: the score of the trained model on the validation examples.
        count: of the validation examples.
        expected: whether the head alone is usually better, as for pairs of texts, or many classes
            with few examples each. Then the trained model is saved only if it is better by more
            than chance; otherwise the head alone is saved only if it is better by more than chance.
            The head alone is judged on more examples than the trained model, so the two are not
            compared example by example as two epochs are.
    """
    if math.isnan(trained) or math.isnan(alone):
        return not math.isnan(alone)
    if expected:
        return not beyond_error(metric, trained, alone, count)
    return beyond_error(metric, alone, trained, count)
