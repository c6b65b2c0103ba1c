"""Fit the baselines of a task, and judge them as the model is judged."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from threadpoolctl import threadpool_limits

from bertine.errors import BertineError
from bertine.inference.baselines import answers_in_text, choices, tags, written
from bertine.inference.baselines.frozen import FrozenEncoder
from bertine.inference.baselines.texts import (
    Answers,
    TextTask,
    frozen_vectors,
    majority,
    ngrams,
)
from bertine.records.examples import Examples
from bertine.records.sentences import Sentences
from bertine.records.span_examples import SpanExamples
from bertine.rng import generator
from bertine.tasks.base import Task
from bertine.tasks.baseline_scores import BaselineScore
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.spans.task import SpanExtraction
from bertine.tasks.tagging.task import Tagging
from bertine.terminal.console import say

#: Training examples of a baseline, at most: more change little, and a baseline is to take seconds.
_MOST = 20_000
_MOST_VECTORS = 10_000
_MOST_CHOICES = 5_000
_MOST_WORDS, _MOST_STATES = 100_000, 30_000


#: A baseline: its name, its training examples, and what fits it.
_Planned = tuple[str, Examples[Any], Callable[[], Answers]]


def measure_baselines(
    task: Task[Any],
    train: Examples[Any],
    sets: Mapping[str, Examples[Any]],
    encoder: FrozenEncoder | None = None,
) -> list[BaselineScore]:
    """Fit and score the task's baselines, the simplest first.

    Fitting takes seconds: of many training examples a random part is taken, the same every time,
    and what takes long all the same, with thousands of labels, is left out and named.

    Args:
        task: that the training examples describe.
        train: labelled examples to fit to.
        sets: labelled examples to judge on, by the word before the names of their metrics; ""
            is before those of the first.
        encoder: the model as it is before training; None: no baseline on its vectors.
    """
    scored = []
    count = len(next(iter(sets.values())))
    for name, examples, fit in _planned(task, train, encoder):
        begun = time.perf_counter()
        # Products as small as these are slower with several threads than with one.
        with threadpool_limits(1, user_api="blas"):
            try:
                answers = fit()
            except BertineError as error:
                say(f"baseline {name}: left out: {error}")
                continue
            metrics: dict[str, float] = {}
            for word, judged in sets.items():
                scores = task.judge(answers(judged), judged).metrics
                before = f"{word}_" if word else ""
                metrics |= {before + metric: value for metric, value in scores.items()}
        seconds = time.perf_counter() - begun
        scored.append(BaselineScore(name, metrics, round(seconds, 3), len(examples), count))
        if len(examples) < len(train):
            say(f"baseline {name}: fitted on {len(examples):,} of {len(train):,} examples")
    return scored


def _planned(
    task: Task[Any], train: Examples[Any], encoder: FrozenEncoder | None
) -> Iterator[_Planned]:
    if task.has_choices:
        yield from _of_choices(cast(MultipleChoice, task), train, encoder)
    elif task.reads_words:
        yield from _of_tags(cast(Tagging, task), cast(Sentences, train), encoder)
    elif task.reads_questions:
        spans = cast(SpanExamples, train)
        if cast(SpanExtraction, task).unanswerable:
            yield "no answer", train, lambda: answers_in_text.no_answer(spans)
        yield "first words", train, lambda: answers_in_text.first_words(spans)
        yield "sliding window", train, lambda: answers_in_text.sliding_window(spans)
    elif task.writes:
        yield "first words", train, lambda: written.first_words(train)
    else:
        yield from _of_texts(cast(TextTask, task), train, encoder)


def _of_texts(
    task: TextTask, train: Examples[Any], encoder: FrozenEncoder | None
) -> Iterator[_Planned]:
    first = "mean" if task.single_output else "majority"
    yield first, train, lambda: majority(task, train)
    some = _part(train, _MOST)
    yield "tf-idf", some, lambda: ngrams(task, some)
    if encoder is not None:
        few = _part(train, _MOST_VECTORS)
        few = _part(few, encoder.affordable([item.texts for item in few.items]))
        yield "frozen vectors", few, lambda: frozen_vectors(task, few, encoder)


def _of_choices(
    task: MultipleChoice, train: Examples[Any], encoder: FrozenEncoder | None
) -> Iterator[_Planned]:
    yield "majority", train, lambda: choices.most_frequent_place(task, train)
    yield "longest", train, lambda: choices.longest(task, train)
    some = _part(train, _MOST_CHOICES)
    yield "tf-idf", some, lambda: choices.ngrams(task, some)
    if encoder is not None:
        few = _part(train, _MOST_CHOICES // 2)
        few = _part(few, encoder.affordable([(" ".join(item.texts),) for item in few.items]))
        yield "frozen vectors", few, lambda: choices.frozen_vectors(task, few, encoder)


def _of_tags(task: Tagging, train: Sentences, encoder: FrozenEncoder | None) -> Iterator[_Planned]:
    yield "frequent tags", train, lambda: tags.frequent_tags(task, train)
    some = cast(Sentences, _part(train, tags.fits(train.items, _MOST_WORDS)))
    yield "word features", some, lambda: tags.word_features(task, some)
    if encoder is not None:
        few = cast(Sentences, _part(train, tags.fits(train.items, _MOST_STATES)))
        few = cast(Sentences, _part(few, encoder.affordable([item.texts for item in few.items])))
        yield "frozen vectors", few, lambda: tags.frozen_states(task, few, encoder)


def _part(examples: Examples[Any], most: int) -> Examples[Any]:
    """Take at most so many of `examples` (one at least), in their order, the same every time."""
    if len(examples) <= most:
        return examples
    chosen = sorted(generator(0, "baselines").permutation(len(examples))[: max(1, most)].tolist())
    return dataclasses.replace(examples, items=[examples.items[at] for at in chosen])
