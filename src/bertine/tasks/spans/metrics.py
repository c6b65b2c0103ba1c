"""Exact match and F1 of answers, as SQuAD's two official scorers compute them, or for Chinese that
of CMRC 2018, and the threshold below which an answer is kept.

Rajpurkar et al. 2016 (arXiv 1606.05250, section 6.1) and 2018 (arXiv 1806.03822). The rules are
those of ``evaluate-v1.1.py`` and ``evaluate-v2.0.py``; the tests compare with the scripts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bertine.tasks.spans import chinese

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalized(text: str) -> str:
    """Return `text` in lower case, without ASCII punctuation and the words a, an and the, with
    single spaces: what two answers are compared by."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(guess: str, gold: str) -> float:
    """Return 1 if the two are the same when normalized, else 0."""
    return float(normalized(guess) == normalized(gold))


def f1(guess: str, gold: str, *, v2: bool) -> float:
    """Compute the F1 of the words of `guess` among those of `gold`, each as often as it occurs.

    Where nothing is left of one of them, v2.0 compares (1 if nothing is left of both), and v1.1
    gives 0.
    """
    guessed, true = normalized(guess).split(), normalized(gold).split()
    if v2 and not (guessed and true):
        return float(guessed == true)
    same = sum((Counter(guessed) & Counter(true)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(guessed), same / len(true)
    return (2 * precision * recall) / (precision + recall)


def answer_scores(
    guess: str, golds: Sequence[str], *, v2: bool, in_chinese: bool = False
) -> tuple[float, float]:
    """Compute exact match and F1 of `guess`, each against the gold answer that suits it best.

    Args:
        guess: the answer; "" says that there is none.
        golds: the answers of several people; none where the question has no answer (v2.0).
        v2: by the rules of v2.0, which leave out gold answers of which nothing remains when they
            are normalized, and compare with "" where none is left.
        in_chinese: by the rules of CMRC 2018 where there is an answer.

    Raises:
        ValueError: no gold answers, in v1.1.
    """
    if v2:
        golds = [gold for gold in golds if normalized(gold)] or [""]
    if not golds:
        raise ValueError("a question of SQuAD v1.1 has a gold answer")
    if in_chinese and any(golds):
        return (
            max(chinese.exact_match(guess, gold) for gold in golds),
            max(chinese.f1(guess, gold) for gold in golds),
        )
    return (
        max(exact_match(guess, gold) for gold in golds),
        max(f1(guess, gold, v2=v2) for gold in golds),
    )


def best_threshold(
    null_odds: Sequence[float], answered: Sequence[float], silent: Sequence[float]
) -> tuple[float, float]:
    """Find the threshold with the best mean score: of questions whose odds are above it, "" is the
    answer.

    The official script puts the threshold on a question's own odds, and where everything is to
    be "" at 0; here it lies between two questions (within 1 of the lower), so that a rounding
    does not turn an answer, and says "" to all where that is best. Of equal scores the lowest
    threshold is taken. Questions with the same odds stay together.

    Args:
        null_odds: N, the score of no answer less that of the best span.
        answered: N, the score of each question if its best span is the answer.
        silent: N, the score of each if "" is.

    Returns:
        The threshold and the mean score.

    Raises:
        ValueError: there are no questions.
    """
    if not len(null_odds):
        raise ValueError("a threshold needs questions")
    odds = np.asarray(null_odds, dtype=np.float64)
    order = np.argsort(odds, kind="stable")
    odds = odds[order]
    gains = (np.asarray(answered, dtype=np.float64) - np.asarray(silent, dtype=np.float64))[order]
    # totals[k]: the k questions with the lowest odds are answered.
    totals = np.concatenate([[0.0], np.cumsum(gains)]) + float(np.sum(silent))
    apart = np.concatenate([[True], odds[1:] > odds[:-1], [True]])
    best = int(np.argmax(np.where(apart, totals, -np.inf)))
    if best == 0:
        threshold = odds[0] - 1.0
    elif best == len(odds):
        threshold = odds[-1] + 1.0
    else:
        low, high = odds[best - 1], odds[best]
        threshold = min((low + high) / 2, low + 1.0)
        if threshold >= high:  # the two are neighbours in fp64
            threshold = low
    return float(threshold), float(totals[best] / len(odds))
