"""Find the best answers to a question from the scores of every piece as start and end.

Devlin et al. 2018, sections 4.2 and 4.3: the score of a span is the sum of its start's and its
end's, the best one over all windows with end ≥ start is the answer, and no answer is given where
the null score, that of [CLS] as start and end, exceeds it by more than a threshold. What the
paper leaves open is as in google-research/bert, ``run_squad.py``: a start counts only in the
window that shows most around it, a span has at most so many pieces, and of several windows the
lowest null score counts. That code looks at the twenty best starts and ends; here all spans are.

Shape legend: T places of a feature's sequence, m pieces of its window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bertine.scores import ranking
from bertine.tasks.answer import Answer, json_value
from bertine.tasks.spans.windows import SpanFeatures
from bertine.terminal.console import visible

#: The odds of a question for which there is no span at all, as of an empty context: a number, for
#: JSON has no infinity.
NO_SPAN = 1e9
#: Spans that are looked at for each one that is listed, for several may have the same text.
_SPARE = 4


@dataclass(frozen=True, slots=True)
class SpanAnswer:
    """One of the n best answers to a question.

    Attributes:
        text: of the context, from `start` on; "" says that it has no answer.
        start: the character of the context at which it begins; None where there is no answer.
        probability: among the n best, which sum to 1.
        start_logit: of its first piece, or of [CLS].
        end_logit: of its last piece, or of [CLS].
    """

    text: str
    start: int | None
    probability: float
    start_logit: float
    end_logit: float

    @property
    def end(self) -> int | None:
        """The character of the context before which it ends; None where there is no answer."""
        return None if self.start is None else self.start + len(self.text)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        return {
            "answer": self.text,
            "start": self.start,
            "end": self.end,
            "probability": json_value(self.probability),
        }

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclass(frozen=True, slots=True, repr=False)
class SpanPrediction(Answer):
    """The answer to a question.

    Attributes:
        answer: a part of the context; "" says that it has no answer.
        start: the character of the context at which it begins; None where there is no answer.
        probability: of the answer among the n best.
        null_odds: the score of no answer less that of the best span; None of a model that always
            answers.
        n_best: the best answers, the most probable first, no text twice; no answer is among them
            where the model may give none.
        abstains: whether the probability is below the bound from which on the model is to answer;
            `answer` is then the best guess, and is left open in files and in JSON.
    """

    noun: ClassVar[str] = "answer"
    written: ClassVar[tuple[str, ...]] = ("answer", "start", "end", "probability", "null_odds")
    detailed: ClassVar[tuple[str, ...]] = ("n_best",)
    left_open: ClassVar[tuple[str, ...]] = ("answer", "start", "end")

    answer: str
    start: int | None
    probability: float
    null_odds: float | None
    n_best: tuple[SpanAnswer, ...]
    abstains: bool = False

    @property
    def end(self) -> int | None:
        """The character of the context before which it ends; None where there is no answer."""
        return None if self.start is None else self.start + len(self.answer)

    def own_cells(self) -> tuple[str, str]:
        if self.abstains:
            return f"(unsure; {visible(self.answer) or 'no answer'}?)", f"{self.probability:.1%}"
        return visible(self.answer) or "(no answer)", f"{self.probability:.1%}"

    @property
    def decision(self) -> str:
        return self.answer

    @property
    def place(self) -> tuple[int, int] | None:
        if self.start is None or not self.answer:
            return None
        return self.start, self.start + len(self.answer)

    def chances(self) -> list[tuple[str, float]]:
        return [(answer.text or "(no answer)", answer.probability) for answer in self.n_best]

    @property
    def best_span(self) -> SpanAnswer | None:
        """The best answer that is one; None where the context has nothing to answer with."""
        return next((answer for answer in self.n_best if answer.start is not None), None)

    def decided(self, threshold: float) -> SpanPrediction:
        """Return the same with the answer that `threshold` gives: "" where the null odds are above
        it."""
        best = self.best_span
        if best is None or (self.null_odds is not None and self.null_odds > threshold):
            best = next((answer for answer in self.n_best if answer.start is None), None)
        if best is None:
            return dataclasses.replace(self, answer="", start=None, probability=0.0)
        return dataclasses.replace(
            self, answer=best.text, start=best.start, probability=best.probability
        )


def window_spans(
    logits: np.ndarray, feature: SpanFeatures, max_pieces: int, count: int
) -> list[tuple[float, int, int]]:
    """Find the `count` best spans of a window, best first: (score, first piece, last piece), of
    equal scores the earlier, then the shorter.

    Args:
        logits: fp64 [T, 2], of start and end.
        feature: its window.
        max_pieces: the longest span.
    """
    m = len(feature.offsets)
    if m == 0:
        return []
    starts, ends = logits[feature.first : feature.first + m].T
    starts = np.where(feature.max_context, starts, -np.inf)
    width = min(max_pieces, m)
    padded = np.concatenate([ends, np.full(width - 1, -np.inf)])
    # [m, width]: of the span that begins with piece i and ends with piece i + d.
    scores = starts[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)
    flat = np.where(np.isfinite(scores), scores, -np.inf).reshape(-1)
    return [
        (float(flat[place]), place // width, place // width + place % width)
        for place in ranking(flat, count).tolist()
        if np.isfinite(flat[place])
    ]


def answer_question(
    outputs: Sequence[np.ndarray],
    features: Sequence[SpanFeatures],
    *,
    max_pieces: int,
    n_best: int,
    unanswerable: bool,
    threshold: float,
) -> SpanPrediction:
    """Find the answer to one question.

    Args:
        outputs: [T or more, 2] of each of its windows.
        features: its windows.
        max_pieces: the longest answer.
        n_best: how many answers are listed, at most.
        unanswerable: whether no answer may be given.
        threshold: no answer is given where the null odds are above it.
    """
    spans: list[tuple[float, int, int, int]] = []
    null: tuple[float, float] | None = None
    tables = [np.asarray(output, dtype=np.float64) for output in outputs]
    for number, (table, feature) in enumerate(zip(tables, features, strict=True)):
        table = table[: len(feature.input_ids)]
        nothing = table[feature.nowhere]
        if null is None or nothing.sum() < sum(null):
            null = float(nothing[0]), float(nothing[1])
        spans += [
            (score, number, first, last)
            for score, first, last in window_spans(table, feature, max_pieces, _SPARE * n_best)
        ]
    assert null is not None, "a question has a window"
    answers: dict[str, SpanAnswer] = {}
    for place in ranking([score for score, *_ in spans]):  # of equal scores the earlier window
        _, number, first, last = spans[place]
        if len(answers) == n_best:
            break
        feature, table = features[number], tables[number]
        begin, end = int(feature.offsets[first, 0]), int(feature.offsets[last, 1])
        text = feature.context[begin:end]
        if text and text not in answers:
            start, stop = table[feature.first + first, 0], table[feature.first + last, 1]
            answers[text] = SpanAnswer(text, begin, 0.0, float(start), float(stop))
    listed = list(answers.values())
    odds = None
    if unanswerable:
        odds = sum(null) - listed[0].score if listed else NO_SPAN
        listed.append(SpanAnswer("", None, 0.0, *null))
        listed = [listed[at] for at in ranking([answer.score for answer in listed])]
    prediction = SpanPrediction("", None, 0.0, odds, tuple(_with_probabilities(listed)))
    return prediction.decided(threshold)


def _with_probabilities(answers: Sequence[SpanAnswer]) -> list[SpanAnswer]:
    """Return the answers with the softmax of their scores."""
    if not answers:
        return []
    scores = np.array([answer.score for answer in answers])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    return [
        dataclasses.replace(answer, probability=float(share))
        for answer, share in zip(answers, shares, strict=True)
    ]
