"""The head alone, on an encoder as it was, in place of the model whose weights were all trained.

With few labels a linear model on the vectors of a good encoder can be better than any training of
all weights: most of all for pairs of texts, which such an encoder can compare without having seen a
single label, while a model that reads both as one input must first learn to; and for many classes
with few examples each (``docs/results.md``, "Defaults").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bertine.errors import BertineError
from bertine.intervals import beyond_error
from bertine.options.names import option
from bertine.scores import score_text
from bertine.tasks.baseline_scores import HEAD_ALONE
from bertine.tasks.metrics import official_score
from bertine.tasks.report import EvaluationReport
from bertine.terminal.console import say, warn
from bertine.training.finetuning.frozen_head import FittedHead, fit_head, fits_alone
from bertine.training.finetuning.plan import FEW_CLASSES, classes_of
from bertine.training.finetuning.setup import Prepared, frozen_beside

#: Up to so many training examples of each class, where these are many, the head alone is mostly
#: better (``docs/results.md``, "Defaults").
_FEW_OF_A_CLASS = 30
#: With more pairs than that the head alone is only fitted where its baseline says that it is worth
#: it: training all weights is mostly better there, and vectors take their time.
_FEW_PAIRS = 10_000


@dataclass(frozen=True)
class HeadAlone:
    """The head alone, as it was fitted beside the trained model.

    Attributes:
        prepared: the run with it.
        report: its evaluation on the validation examples.
        fitted: how it was fitted.
        better: whether it is to be saved in place of the trained model.
    """

    prepared: Prepared
    report: EvaluationReport
    fitted: FittedHead
    better: bool


def head_alone_instead(
    prepared: Prepared,
    trained: EvaluationReport,
    baselines: Sequence[Mapping[str, Any]],
    judge: Callable[[Prepared], EvaluationReport],
    *,
    dtype: torch.dtype,
    seed: int,
) -> HeadAlone | None:
    """Fit the head alone where it may be better than the trained model.

    Args:
        prepared: the run, its model trained.
        trained: the evaluation of that model on the validation examples.
        baselines: of the run, as ``scores.json`` has them.
        judge: evaluates a run's model on the validation examples.
        dtype: to compute in.
        seed: of the run.

    Returns:
        The head alone; None where there is none, as the user has said which of the two is wanted or
        how pairs are read, or it cannot be fitted, or does not promise to be better.
    """
    start, names = prepared.start, prepared.metric_names
    chosen = start.frozen is not None or start.fresh_weights or prepared.plan.paper is not None
    chosen |= start.pairs == "apart"
    chosen |= bool(getattr(prepared.task, "focal_gamma", 0.0))  # which the head alone has not
    chosen |= not fits_alone(prepared.task, prepared.loaded.model)
    if chosen or prepared.task.reads_questions or not set(names) <= set(trained.metrics):
        return None
    scores = [baseline["metrics"] for baseline in baselines if baseline.get("name") == HEAD_ALONE]
    beside: Mapping[str, float] = scores[0] if scores else {}
    if not set(names) <= set(beside):
        return None
    own, count = official_score(trained.metrics, names), len(prepared.validation.examples)
    examples = len(prepared.train.examples)
    expected = prepared.task.takes_pairs or few_of_many(classes_of(prepared.task), examples)
    if not (expected and examples <= _FEW_PAIRS):
        promised = official_score(beside, names)
        if not alone_is_better(names[0], promised, own, count, expected=expected):
            return None
    try:
        other = frozen_beside(prepared, seed)
    except BertineError as error:
        warn(f"the head alone was not tried, as the model cannot be read again: {error}")
        return None
    fitted = fit_head(other, dtype)
    report = judge(other)
    # Many classes with few examples each are known far worse without a fifth of these.
    # Of examples that the encoder was trained on before, those left out are none that are new.
    left_out = fitted.count if classes_of(prepared.task) <= FEW_CLASSES else 0
    left_out = 0 if prepared.seen_in_training else left_out
    score = score_of_head(report.metrics, count, fitted.cross_validated, left_out, names)
    if not alone_is_better(names[0], score, own, count, expected=expected):
        say(
            f"the head alone is no better: {score_text(names[0], score)} against "
            f"{score_text(names[0], own)}; the trained model is saved"
        )
        return HeadAlone(other, report, fitted, better=False)
    more = " and on training examples that were left out" if left_out else ""
    better = "better" if score > own else "as good, within chance, and mostly the better one"
    say(
        "the head alone, on the model's vectors as they were before training, is "
        f"{better}: {score_text(names[0], score)} on the validation examples{more}, against "
        f"{score_text(names[0], own)} on the validation examples; it is saved in place of the "
        f"trained model ({option('frozen', False)} saves that one)"
    )
    return HeadAlone(other, report, fitted, better=True)


def score_of_head(
    validation: Mapping[str, float],
    count: int,
    cross_validated: Mapping[str, float],
    left_out: int,
    names: Sequence[str],
) -> float:
    """Return the score of the head alone (the mean of the metrics `names`) on all examples that it
    was not fitted to: the `count` validation examples, and the `left_out` training examples of the
    cross-validation, where there was one. Of a hundred examples ten are held out, which say next to
    nothing about either model; but the head's score on all hundred is well known."""
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
    """Tell whether there are many `classes` and few training `examples` of each."""
    return classes > FEW_CLASSES and examples <= _FEW_OF_A_CLASS * classes


def alone_is_better(
    metric: str, alone: float, trained: float, count: int, *, expected: bool
) -> bool:
    """Tell whether the head alone is to be saved.

    Args:
        metric: the first by which the task is judged.
        alone: the score of the head alone (:func:`score_of_head`).
        trained: the score of the trained model on the validation examples.
        count: of the validation examples.
        expected: whether the head alone is mostly the better one, as with pairs of texts, or many
            classes with few examples each. Then the trained model must be better by more than
            chance to be saved; else the head alone must. The head alone is judged on more examples
            than the trained model is, so the two are not compared example by example as two epochs
            are.
    """
    if math.isnan(trained) or math.isnan(alone):
        return not math.isnan(alone)
    if expected:
        return not beyond_error(metric, trained, alone, count)
    return beyond_error(metric, alone, trained, count)
