"""Find the best answers to questions, score them as SQuAD and CMRC do, and report the scores.

Devlin et al. 2018, sections 4.2 and 4.3: the score of a span is the sum of its start's and its
end's; the best one over all windows with end ≥ start is the answer; and no answer is given if the
null score, that of [CLS] as start and end, exceeds it by more than a threshold. Details that the
paper leaves open follow google-research/bert, ``run_squad.py``: a start counts only in the window
with the most context around it, the length of a span is limited, and the lowest null score of
several windows counts. That code examines the twenty best starts and ends; here all spans are.

Shape legend: T places of a feature's sequence, m pieces of its window.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bertine.core.console import plural
from bertine.core.scores import ranking
from bertine.core.text import visible
from bertine.data.squad import Gold
from bertine.tasks.answer import Answer, json_value, worst_lines
from bertine.tasks.calibration import Reliability
from bertine.tasks.report import EvaluationReport
from bertine.tasks.span_windows import SpanFeatures

# CMRC 2018: exact match and F1 of Chinese answers.
#
# The rules are those of Cui et al. 2019 (arXiv 1810.07366, section 4) and ``cmrc2018_evaluate.py``
# (v5), published with it. Chinese is written without spaces, so by SQuAD's rules, which compare
# words, every answer would be one word.

_CHINESE = re.compile("[\u4e00-\u9fa5]")
#: Syllables of Japanese and Korean: texts with them are not Chinese.
_OTHERS = re.compile("[\u3040-\u30ff\uac00-\ud7a3]")
#: Punctuation that is removed before comparison.
_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
#: A Chinese character, or a run of others.
_RUNS = re.compile("[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")
#: Single units in such a run, as in the published script, which uses NLTK's tokenizer of English.
#: Its rules for contractions (don't) are left out.
_MARKS = re.compile(r"""[;@#$%&?!()\[\]{}<>"–—]|,(?!\d)|(?<!\.)\.\s*$""")


def mostly_chinese(answers: Iterable[str]) -> bool:
    """Return whether more than half of `answers` have a Chinese character, and at most a tenth of
    them a syllable of Japanese or Korean."""
    texts = list(answers)
    chinese = sum(bool(_CHINESE.search(text)) for text in texts)
    others = sum(bool(_OTHERS.search(text)) for text in texts)
    return 2 * chinese > len(texts) and 10 * others <= len(texts)


def without_punctuation(text: str) -> str:
    """Return `text` in lower case, without the ignored punctuation."""
    return text.lower().strip().translate(_PUNCTUATION)


def units(text: str) -> list[str]:
    """Divide `text` into units of comparison: Chinese characters, and words of other scripts."""
    runs = _RUNS.findall(without_punctuation(text))
    return [unit for run in runs for unit in _MARKS.sub(r" \g<0> ", run).split()]


def chinese_exact_match(guess: str, gold: str) -> float:
    """Return 1 if the two are equal except for case and punctuation, else 0."""
    return float(without_punctuation(guess) == without_punctuation(gold))


def chinese_f1(guess: str, gold: str) -> float:
    """Compute the F1 of the longest run of units in both answers; 0 if there is none."""
    guessed, true = units(guess), units(gold)
    same = _longest_common_run(guessed, true)
    return 2 * same / (len(guessed) + len(true)) if same else 0.0


def _longest_common_run(first: list[str], second: list[str]) -> int:
    longest, before = 0, [0] * (len(second) + 1)
    for unit in first:
        # now[j + 1]: the length of the common run that ends at this unit and at second[j].
        now = [0] * (len(second) + 1)
        for at, other in enumerate(second):
            if unit == other:
                now[at + 1] = before[at] + 1
        longest, before = max(longest, *now), now
    return longest


# SQuAD: exact match and F1 as in the two official scorers, or for Chinese as in CMRC 2018's, and
# the threshold for giving no answer.
#
# The sources are Rajpurkar et al. 2016 (arXiv 1606.05250, section 6.1) and 2018 (arXiv 1806.03822).
# The rules are those of ``evaluate-v1.1.py`` and ``evaluate-v2.0.py``; the tests compare with these
# scripts.

_METRICS_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalized(text: str) -> str:
    """Return `text` in lower case, without ASCII punctuation and the words a, an and the, with
    single spaces, for the comparison of answers."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_METRICS_PUNCTUATION)).split())


def exact_match(guess: str, gold: str) -> float:
    """Return 1 if the two are equal when normalized, else 0."""
    return float(normalized(guess) == normalized(gold))


def f1(guess: str, gold: str, *, v2: bool) -> float:
    """Compute the F1 of the words of `guess` among those of `gold`, each as often as it occurs.

    If one of them is empty after normalization, v2.0 compares (1 if both are empty), and v1.1 gives
    0.
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
    """Compute exact match and F1 of `guess`, each against the gold answer with the best score.

    Args:
        guess: the answer; "" for no answer.
        golds: the answers of several people; empty if the question has no answer (v2.0).
        v2: use the rules of v2.0, which leave out gold answers that are empty after normalization,
            and compare with "" if none is left.
        in_chinese: use the rules of CMRC 2018 for non-empty answers.

    Raises:
        ValueError: there are no gold answers, in v1.1.
    """
    if v2:
        golds = [gold for gold in golds if normalized(gold)] or [""]
    if not golds:
        raise ValueError("a question of SQuAD v1.1 has a gold answer")
    if in_chinese and any(golds):
        return (
            max(chinese_exact_match(guess, gold) for gold in golds),
            max(chinese_f1(guess, gold) for gold in golds),
        )
    return (
        max(exact_match(guess, gold) for gold in golds),
        max(f1(guess, gold, v2=v2) for gold in golds),
    )


def best_threshold(
    null_odds: Sequence[float], answered: Sequence[float], silent: Sequence[float]
) -> tuple[float, float]:
    """Find the threshold with the best mean score: questions whose odds are above it get the answer
    "".

    The official script puts the threshold on a question's own odds, and at 0 if every answer is to
    be ""; here it lies between two questions (within 1 of the lower), so that rounding does not
    change an answer, and gives "" for all if that is best. Ties go to the lowest threshold.
    Questions with the same odds stay together.

    Args:
        null_odds: N, the score of no answer minus that of the best span.
        answered: N, the score of each question if its best span is the answer.
        silent: N, the score of each if the answer is "".

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
        if threshold >= high:  # the two are adjacent numbers in fp64
            threshold = low
    return float(threshold), float(totals[best] / len(odds))


#: The odds of a question without any span, such as one with an empty context: a finite number, as
#: JSON has no infinity.
NO_SPAN = 1e9
#: Spans to examine for each listed one, because several may have the same text.
_SPARE = 4


@dataclass(frozen=True, slots=True)
class SpanAnswer:
    """One of the n best answers to a question.

    Attributes:
        text: of the context, from `start` on; "" for no answer.
        start: the character of the context at which it begins; None for no answer.
        probability: among the n best, whose sum is 1.
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
        """The end of its characters in the context, exclusive; None for no answer."""
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
        answer: a part of the context; "" for no answer.
        start: the character of the context at which it begins; None for no answer.
        probability: of the answer among the n best.
        null_odds: the score of no answer minus that of the best span; None for a model that always
            answers.
        n_best: the best answers, the most probable first, each text once; no answer is among them
            if the model may give none.
        abstains: whether the probability is below the bound from which the model should answer;
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
        """The end of its characters in the context, exclusive; None for no answer."""
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
        """The best non-empty answer; None if the context has no span."""
        return next((answer for answer in self.n_best if answer.start is not None), None)

    def decided(self, threshold: float) -> SpanPrediction:
        """Return the prediction with the answer by `threshold`: "" if the null odds are above
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
    """Find the `count` best spans of a window, best first: (score, first piece, last piece); ties
    go to the earlier, then the shorter.

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
        n_best: how many answers are listed at most.
        unanswerable: whether no answer may be given.
        threshold: no answer is given if the null odds are above it.
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
    for place in ranking([score for score, *_ in spans]):  # ties: the earlier window
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


# Report: the result of evaluating span extraction.

_BY_CHARACTER = "most answers are Chinese: scored character by character, as CMRC 2018 is"


@dataclass(repr=False)
class SpanReport(EvaluationReport):
    """The scores of answers to questions.

    Attributes:
        metrics: exact_match and f1, as fractions of 1; if questions may have no answer also
            ``has_answer_…`` and ``no_answer_…``, over the two kinds separately.
        num_examples: number of questions.
        num_answerable: number of those that have an answer.
        null_threshold: the null odds above which no answer was given; None if the model always
            answers.
        tuned: whether the threshold was tuned on these same questions.
        best_threshold: the one that would give the best F1 here, and that F1; None if the model
            always answers.
        collapsed: whether the model answered all questions, or none, though there are both kinds.
        in_chinese: whether the scores are those of CMRC 2018: most gold answers are Chinese.
        reliability: how often answers match exactly, by their probability; None: unknown.
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

    json_keys = (
        *("source", "num_examples", "num_answerable", "metrics", "null_threshold", "tuned"),
        *("best_threshold", "majority_share", "collapsed", "in_chinese", "reliability", "notes"),
    )

    @property
    def majority_share(self) -> float | None:
        """The share of questions without an answer, the score of always giving none."""
        silent = self.num_examples - self.num_answerable
        return silent / self.num_examples if silent else None

    def lines(self) -> list[str]:
        """Return the scores with those of always giving no answer, the threshold, the calibration
        error, and a collapse."""
        lines = [self.headline(plural(self.num_examples, "question"), self.metrics)]
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
        predictions: decided by `null_threshold`, or, if that is None, in any way.
        labels: the gold answers.
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
    """Find the null threshold with the best F1, and that F1; None without null odds."""
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
    """Average scores [N, 2]; return nothing if there are none."""
    if not len(scores):
        return {}
    exact, f1 = scores.mean(0).tolist()
    return {f"{prefix}exact_match": exact, f"{prefix}f1": f1}
