"""Baselines of answers that are parts of a context: no answer at all, its first words, and the
words around which those of the question stand."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from bertine.inference.baselines.texts import Answers
from bertine.records.span_examples import SpanExamples
from bertine.tasks.spans.decoding import SpanPrediction

_WORD = re.compile(r"\w+")
#: Words on each side of an answer that are looked at.
_AROUND = 12
#: Lengths of answers, in words, that are tried.
_LENGTHS = (1, 2, 3, 4)


def no_answer(train: SpanExamples) -> Answers:
    """Answer every question with none."""
    return lambda examples: [SpanPrediction("", None, 1.0, None, ()) for _ in examples.items]


def first_words(train: SpanExamples) -> Answers:
    """Answer with as many of the context's first words as the answers in training have, in the
    middle."""
    lengths = [
        len(_WORD.findall(item.label.answers[0]))
        for item in train.items
        if item.label is not None and item.label.answers
    ]
    count = max(1, int(np.median(lengths))) if lengths else 1

    def choose(question: str, context: str, words: list[re.Match[str]]) -> tuple[int, int]:
        return words[0].start(), words[min(count, len(words)) - 1].end()

    return _answering(choose)


def sliding_window(train: SpanExamples) -> Answers:
    """Answer with the words that are not in the question, around which the question's rare words
    stand closest (a sliding window, Richardson et al. 2013)."""
    contexts = {item.texts[1] for item in train.items}
    seen: Counter[str] = Counter()
    for context in contexts:
        seen.update({match[0].lower() for match in _WORD.finditer(context)})
    rarity = {word: math.log(1 + len(contexts) / count) for word, count in seen.items()}
    unseen = math.log(1 + len(contexts))

    def choose(question: str, context: str, words: list[re.Match[str]]) -> tuple[int, int]:
        asked = {match[0].lower() for match in _WORD.finditer(question)}
        names = [match[0].lower() for match in words]
        rare = np.array([rarity.get(name, unseen) for name in names])
        there = np.array([name in asked for name in names])
        shares = 1.0 / np.arange(1, _AROUND + 1)
        kernel = np.concatenate([shares[::-1], [0.0], shares])
        near = np.convolve(np.where(there, rare, 0.0), kernel)[_AROUND : _AROUND + len(names)]
        # What answers is rare itself, is near what is asked, and is not in the question.
        value = np.where(there, -10.0, near * np.sqrt(rare))
        best = (-math.inf, 0, 0)
        for length in _LENGTHS:
            if length > len(names):
                break
            sums = np.convolve(value, np.ones(length), "valid") / length**0.9
            at = int(sums.argmax())
            best = max(best, (float(sums[at]), at, at + length - 1))
        return words[best[1]].start(), words[best[2]].end()

    return _answering(choose)


def _answering(
    choose: Callable[[str, str, list[re.Match[str]]], tuple[int, int]],
) -> Answers:
    """Answer with the part of each context that `choose` names; no answer where there is no
    word."""

    def answers(examples: Any) -> list[Any]:
        predictions = []
        for item in examples.items:
            question, context = item.texts
            words = list(_WORD.finditer(context))
            if not words:
                predictions.append(SpanPrediction("", None, 1.0, None, ()))
                continue
            begin, end = choose(question, context, words)
            predictions.append(SpanPrediction(context[begin:end], begin, 1.0, None, ()))
        return predictions

    return answers
