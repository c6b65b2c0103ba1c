"""Score answers against the truth, as the field and the GLUE leaderboard do.

An undefined score (one class only, a constant answer) is 0, without a warning. For one label per
example they are computed here, by counting: importing scikit-learn takes longer than training
with a few labels, and a matrix of thousands of labels takes much memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bertine.core.errors import BertineError


def classification_scores(
    truth: Sequence[str], guesses: Sequence[str], labels: Sequence[str]
) -> dict[str, float]:
    """Compute accuracy, macro_f1 and matthews (the multi-class form of Gorodkin 2004 for more than
    two classes); with two labels also f1, that of the second one.

    Args:
        truth: N true labels.
        guesses: N predicted ones.
        labels: all labels, in the order of the head's outputs.
    """
    answered = sorted({*truth, *guesses})
    ids = {label: number for number, label in enumerate(answered)}
    true = np.array([ids[label] for label in truth], dtype=np.int64)
    guess = np.array([ids[label] for label in guesses], dtype=np.int64)
    right, actual, given = (
        np.bincount(numbers, minlength=len(answered)).astype(np.float64)
        for numbers in (true[true == guess], true, guess)
    )
    f1 = 2 * right / (actual + given)
    count = len(truth)
    scores = {"accuracy": float(right.sum() / count), "macro_f1": float(f1.mean())}
    if len(labels) == 2:
        second = ids.get(labels[1])
        scores["f1"] = 0.0 if second is None else float(f1[second])
    spread = (count**2 - actual @ actual) * (count**2 - given @ given)
    agreement = right.sum() * count - actual @ given
    scores["matthews"] = float(agreement / np.sqrt(spread)) if spread else 0.0
    return scores


def regression_scores(
    truth: Sequence[float] | np.ndarray, guesses: Sequence[float] | np.ndarray
) -> dict[str, float]:
    """Compute pearson and spearman (average ranks for ties), mean squared and mean absolute error.

    A correlation with a constant is undefined and counts as 0.

    Args:
        truth: N true scores.
        guesses: N predicted ones.
    """
    from scipy import stats

    true, guess = np.asarray(truth, dtype=np.float64), np.asarray(guesses, dtype=np.float64)
    varied = len(true) > 1 and np.ptp(true) > 0 and np.ptp(guess) > 0
    errors = guess - true
    return {
        "pearson": float(stats.pearsonr(true, guess).statistic) if varied else 0.0,
        "spearman": float(stats.spearmanr(true, guess).statistic) if varied else 0.0,
        "mean_squared_error": float(np.mean(errors**2)),
        "mean_absolute_error": float(np.mean(np.abs(errors))),
    }


def mean_log_loss(probabilities: Sequence[float] | np.ndarray) -> float:
    """Compute the mean cross-entropy, in nats, from the `probabilities` of the true labels."""
    return float(-np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)).mean())


def mean_cross_entropy(wanted: np.ndarray, given: np.ndarray) -> float:
    """Compute the mean over N of the cross-entropy, in nats, of the probabilities `given` with
    respect to the `wanted` ones, both fp64 [N, K]."""
    logs = np.log(np.maximum(given, np.finfo(np.float64).tiny))
    return float(-(wanted * logs).sum(-1).mean())


def official_score(metrics: Mapping[str, float], names: Sequence[str]) -> float:
    """Compute the single score of a task: the mean of its metrics `names`, as in GLUE.

    Raises:
        BertineError: no names are given, or one is not among the metrics.
    """
    for name in names:
        if name not in metrics:
            raise BertineError(f"there is no score {name!r}; there are {', '.join(metrics)}")
    if not names:
        raise BertineError("a task without metrics has no score")
    return sum(metrics[name] for name in names) / len(names)
