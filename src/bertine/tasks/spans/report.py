"""The result of evaluating span extraction, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertine.records.span_examples import Gold
from bertine.tasks.calibration import Reliability
from bertine.tasks.report import TaskReport
from bertine.tasks.spans.chinese import mostly_chinese
from bertine.tasks.spans.decoding import SpanPrediction
from bertine.tasks.spans.metrics import answer_scores, best_threshold
from bertine.tasks.worst import worst_lines
from bertine.terminal.console import counted

_BY_CHARACTER = "most answers are Chinese: scored character by character, as CMRC 2018 is"


@dataclass(repr=False)
class SpanReport(TaskReport):
    """The scores of answers to questions.

    Attributes:
        metrics: exact_match and f1, as fractions of 1; where questions may have no answer also
            ``has_answer_…`` and ``no_answer_…``, over the two kinds apart.
        num_examples: questions.
        num_answerable: of them those that have an answer.
        null_threshold: above these null odds no answer was given; None where the model always
            answers.
        tuned: whether the threshold was tuned on these very questions.
        best_threshold: the one that would give the best F1 here, and that F1; None where the
            model always answers.
        collapsed: whether all questions, or none, were said to have no answer, though there are
            both kinds.
        in_chinese: whether the scores are those of CMRC 2018: most gold answers are Chinese.
        reliability: how often answers match exactly, by their probability; None: not known.
    """

    metrics: dict[str, float]
    num_examples: int
    num_answerable: int
    null_threshold: float | None = None
    tuned: bool = False
    best_threshold: tuple[float, float] | None = None
    collapsed: bool = False
    in_chinese: bool = False
    reliability: Reliability | None = None

    facts = (
        *("num_examples", "num_answerable", "metrics", "null_threshold", "tuned"),
        *("best_threshold", "majority_share", "collapsed", "in_chinese"),
        "reliability",
    )

    @property
    def majority_share(self) -> float | None:
        """The share of questions that have no answer: what always giving none would get."""
        silent = self.num_examples - self.num_answerable
        return silent / self.num_examples if silent else None

    def lines(self) -> list[str]:
        """Return scores beside what always giving no answer would get, the threshold, how far
        probabilities are off, a collapse."""
        lines = [self.headline(counted(self.num_examples, "question"), self.metrics)]
        if self.majority_share is not None:
            lines.append(f"always saying that there is no answer: {self.majority_share:.2%}")
            if self.null_threshold is None:
                lines.append(
                    "the model was trained on questions that all have an answer, and always gives "
                    "one"
                )
        if self.null_threshold is not None and self.tuned:
            lines.append(f"null threshold {self.null_threshold:.4f}, tuned on these questions")
        elif self.null_threshold is not None:
            line = f"null threshold {self.null_threshold:.4f}, from the model"
            if self.best_threshold is not None:
                threshold, score = self.best_threshold
                line += f"; the best for these questions is {threshold:.4f}, with f1 {score:.2%}"
            lines.append(line)
        if self.reliability is not None and self.reliability.bins:
            lines.append(self.reliability.line())
        if self.collapsed:
            lines.append(
                "collapsed: the model gives an answer to every question, or to none; train again "
                "with another seed, a lower learning rate or more epochs"
            )
        return lines + self.notes + worst_lines(self.worst)


def span_report(
    predictions: Sequence[SpanPrediction],
    labels: Sequence[Gold],
    *,
    unanswerable: bool,
    null_threshold: float | None,
) -> SpanReport:
    """Score N predictions against N gold answers.

    Args:
        predictions: decided by `null_threshold`, or, where that is None, anyhow.
        labels: what is known of the answers.
        unanswerable: whether the model may give no answer.
        null_threshold: of the model; None: it is tuned here, for the best F1.
    """
    pairs = list(zip(predictions, labels, strict=True))
    in_chinese = mostly_chinese(answer for gold in labels for answer in gold.answers)
    best = _best_threshold(pairs, in_chinese) if unanswerable else None
    tuned = best is not None and null_threshold is None
    if best is not None and tuned:
        null_threshold = best[0]
        pairs = [(prediction.decided(best[0]), gold) for prediction, gold in pairs]
    scores = np.array([_scores(prediction.answer, gold, in_chinese) for prediction, gold in pairs])
    answerable = np.array([gold.answerable for _, gold in pairs])
    metrics = _means("", scores)
    if any(gold.v2 for _, gold in pairs):
        metrics |= _means("has_answer_", scores[answerable])
        metrics |= _means("no_answer_", scores[~answerable])
    silent = np.array([not prediction.answer for prediction, _ in pairs])
    both = bool(answerable.any() and not answerable.all())
    return SpanReport(
        metrics,
        len(pairs),
        int(answerable.sum()),
        null_threshold=null_threshold if unanswerable else None,
        tuned=tuned,
        best_threshold=best,
        collapsed=unanswerable and both and bool(silent.all() or not silent.any()),
        in_chinese=in_chinese,
        notes=[_BY_CHARACTER] if in_chinese else [],
        reliability=Reliability.of(
            [prediction.probability for prediction, _ in pairs], scores[:, 0] == 1.0
        ),
    )


def _best_threshold(
    pairs: Sequence[tuple[SpanPrediction, Gold]], in_chinese: bool
) -> tuple[float, float] | None:
    """Find the null threshold with the best F1, and that; None without null odds."""
    odds = [prediction.null_odds for prediction, _ in pairs if prediction.null_odds is not None]
    if len(odds) < len(pairs):
        return None
    spans = [prediction.best_span for prediction, _ in pairs]
    answered = [
        _scores(span.text if span else "", gold, in_chinese)[1]
        for span, (_, gold) in zip(spans, pairs, strict=True)
    ]
    silent = [_scores("", gold, in_chinese)[1] for _, gold in pairs]
    return best_threshold(odds, answered, silent)


def _scores(answer: str, gold: Gold, in_chinese: bool) -> tuple[float, float]:
    return answer_scores(answer, gold.answers, v2=gold.v2, in_chinese=in_chinese)


def _means(prefix: str, scores: np.ndarray) -> dict[str, float]:
    """Average scores [N, 2]; nothing where there are none."""
    if not len(scores):
        return {}
    exact, f1 = scores.mean(0).tolist()
    return {f"{prefix}exact_match": exact, f"{prefix}f1": f1}
