"""Fit the baselines of a task and score them by the metrics of the model."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any, cast

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.published import PublishedName, cached_model
from bertine.core.rng import generator
from bertine.data.entities import Sentence, Sentences
from bertine.data.examples import Examples
from bertine.data.squad import SpanExamples
from bertine.datasets.readers import Sets
from bertine.hub.model_directory import load_model
from bertine.inference.baselines.linear import ClassTargets, Matrix
from bertine.inference.baselines.texts import (
    VECTOR_STRENGTHS,
    Answers,
    FrozenEncoder,
    choice_frozen_vectors,
    choice_ngrams,
    frozen_vectors,
    linear,
    longest,
    majority,
    most_frequent_place,
    ngrams,
    pooling_of,
    scaled,
)
from bertine.inference.train_overlap import reload_training_examples
from bertine.models.pooling import Pooling
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.report import BaselineScore
from bertine.tasks.seq2seq import TextToText, WrittenText
from bertine.tasks.span_scores import SpanPrediction
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagged_words import Tags, WordFeatures
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression

# Baselines for tagging: the most frequent tag of each word, a linear model on the form and the
# neighbours of a word, and one on the states of a frozen model.

#: The number of hashed features, and the penalties that are tried.
_HASHED = 2**17
_STRENGTHS = (0.1, 1.0, 10.0)


def frequent_tags(task: Tagging, train: Sentences) -> Answers:
    """Predict the tag that a word has most often in training; for unknown words the most frequent
    tag."""
    of_word: dict[str, Counter[str]] = defaultdict(Counter)
    of_all: Counter[str] = Counter()
    for item in train.items:
        for word, tag in zip(item.words, item.tags or (), strict=True):
            of_word[word.lower()][tag] += 1
            of_all[tag] += 1
    usual = of_all.most_common(1)[0][0]
    best = {word: tags.most_common(1)[0][0] for word, tags in of_word.items()}

    def answers(examples: Any) -> list[Any]:
        return [
            Tags(
                tuple(best.get(word.lower(), usual) for word in item.words),
                (1.0,) * len(item.words),
            )
            for item in cast(Sentences, examples).items
        ]

    return answers


def word_features(task: Tagging, train: Sentences) -> Answers:
    """Fit logistic regression on the word, its beginning, end and shape, and on its neighbours."""
    from sklearn.feature_extraction import FeatureHasher

    hasher = FeatureHasher(_HASHED, input_type="string", dtype=np.float32, alternate_sign=False)

    def features(sentences: Sentences) -> Matrix:
        rows = (_seen(item.words, at) for item in sentences.items for at in range(len(item.words)))
        return hasher.transform(rows).tocsr()

    return _linear(task, train, features, _STRENGTHS)


def frozen_states(task: Tagging, train: Sentences, encoder: FrozenEncoder) -> Answers:
    """Fit logistic regression on the last state of each word's first piece."""

    def features(sentences: Sentences) -> np.ndarray:
        # `featurize` adds notes to the sentences; these are reported elsewhere, once.
        notes, met = list(sentences.notes), sentences.met
        windows = cast(Sequence[WordFeatures], task.featurize(sentences, encoder.tokenizer))
        sentences.notes[:], sentences.met = notes, met
        starts = np.concatenate([[0], np.cumsum([len(item.words) for item in sentences.items])])
        width = encoder.model.config.hidden_size
        table = np.zeros((int(starts[-1]), width), np.float32)
        states = encoder.run(windows, Pooling(("tokens",)))
        for entry, window in zip(states, windows, strict=True):
            table[starts[window.row] + window.words] = entry[window.positions]
        return table

    return _linear(task, train, scaled(features), VECTOR_STRENGTHS)


def _linear(
    task: Tagging,
    train: Sentences,
    features: Callable[[Sentences], Matrix],
    strengths: Sequence[float],
) -> Answers:
    ids = [
        task.label_id(tag, train.source, word)
        for item in train.items
        for word, tag in zip(item.words, item.tags or (), strict=True)
    ]
    targets = ClassTargets(np.array(ids, dtype=np.int64), len(task.labels))

    def read(scores: np.ndarray, sentences: Sentences) -> list[Any]:
        best = [task.labels[at] for at in scores.argmax(-1).tolist()]
        predictions, begin = [], 0
        for item in sentences.items:
            tags = tuple(best[begin : begin + len(item.words)])
            predictions.append(Tags(tags, (1.0,) * len(tags)))
            begin += len(item.words)
        return predictions

    return linear(train, targets, features, strengths, read)


def _seen(words: Sequence[str], at: int) -> Iterator[str]:
    """Name the form of a word and the two words on each side of it."""
    word = words[at]
    lower = word.lower()
    yield "word " + lower
    yield "shape " + _shape(word)
    for length in (1, 2, 3, 4):
        yield f"begins {lower[:length]}"
        yield f"ends {lower[-length:]}"
    for step in (-2, -1, 1, 2):
        there = at + step
        inside = 0 <= there < len(words)
        yield f"{step} {words[there].lower() if inside else '<edge>'}"
        if abs(step) == 1 and inside:
            yield f"{step} shape {_shape(words[there])}"


def _shape(word: str) -> str:
    """Write a word as kinds of characters, repeated kinds once: "McDonald's" → "XxXx'x"."""
    shape = ""
    for character in word[:30]:
        kind = character
        if character.isalpha():
            kind = "X" if character.isupper() else "x"
        elif character.isdigit():
            kind = "0"
        if not shape.endswith(kind):
            shape += kind
    return shape


def fits(sentences: Sequence[Sentence], most_words: int) -> int:
    """Count how many sentences, from the first on, have at most `most_words` words together (at
    least one sentence)."""
    words = np.cumsum([len(item.words) for item in sentences])
    return max(1, int(np.searchsorted(words, most_words, side="right")))


# Baselines for answers that are spans of a context: no answer, the first words, and the words near
# those of the question.

_WORD = re.compile(r"\w+")
#: Words on each side of an answer that are compared with the question.
_AROUND = 12
#: Lengths of answers that are tried, in words.
_LENGTHS = (1, 2, 3, 4)


def no_answer(train: SpanExamples) -> Answers:
    """Predict "no answer" for every question."""
    return lambda examples: [SpanPrediction("", None, 1.0, None, ()) for _ in examples.items]


def first_words(train: SpanExamples) -> Answers:
    """Predict the first words of the context, as many as the median answer in training has."""
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
    """Predict the words that are not in the question and are closest to its rare words (a sliding
    window, Richardson et al. 2013)."""
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
        # An answer is rare itself, near the words of the question, and not in the question.
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
    """Predict the span of each context that `choose` selects; no answer where the context has no
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


# Baseline for generated texts: the beginning of the input text.


def lead_words(train: Examples[Any]) -> Answers:
    """Predict the first words of the input, as many as the median target text in training has."""
    lengths = [len(item.label.split()) for item in train.items if item.label is not None]
    count = max(1, int(statistics.median(lengths))) if lengths else 1
    return lambda examples: [
        WrittenText(" ".join(" ".join(item.texts).split()[:count])) for item in examples.items
    ]


#: Training examples of a baseline, at most: more change little, and a baseline should take seconds.
_MOST = 20_000
_MOST_VECTORS = 10_000
_MOST_CHOICES = 5_000
_MOST_WORDS, _MOST_STATES = 100_000, 30_000


#: A baseline: its name, its training examples, and the function that fits it.
_Planned = tuple[str, Examples[Any], Callable[[], Answers]]


def measure_baselines(
    task: Task[Any],
    train: Examples[Any],
    sets: Mapping[str, Examples[Any]],
    encoder: FrozenEncoder | None = None,
) -> list[BaselineScore]:
    """Fit and score the task's baselines, the simplest first.

    Fitting takes seconds: of many training examples a random sample is used, the same every time.
    Baselines that would take long all the same, with thousands of labels, are left out and named.

    Args:
        task: the task, as the training examples define it.
        train: labelled examples to fit on.
        sets: labelled examples to score on, by the prefix of their metrics; "" for the first set.
        encoder: the model before training; None: no baseline on its vectors.
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
                logger.info(f"baseline {name}: left out: {error}")
                continue
            metrics: dict[str, float] = {}
            for word, judged in sets.items():
                scores = task.judge(answers(judged), judged).metrics
                before = f"{word}_" if word else ""
                metrics |= {before + metric: value for metric, value in scores.items()}
        seconds = time.perf_counter() - begun
        scored.append(BaselineScore(name, metrics, round(seconds, 3), len(examples), count))
        if len(examples) < len(train):
            logger.info(f"baseline {name}: fitted on {len(examples):,} of {len(train):,} examples")
    return scored


@singledispatch
def _planned(task: Any, train: Examples[Any], encoder: FrozenEncoder | None) -> Iterator[_Planned]:
    """Yield the baselines of a task; one that has no part here has none."""
    yield from ()


@_planned.register(TextClassification)
@_planned.register(MultiLabel)
def _whole_texts(
    task: Any, train: Examples[Any], encoder: FrozenEncoder | None, constant: str = "majority"
) -> Iterator[_Planned]:
    """Yield those of a task on whole texts; `constant` is the name of the first one."""
    yield constant, train, lambda: majority(task, train)
    some = _part(train, _MOST)
    yield "tf-idf", some, lambda: ngrams(task, some)
    if encoder is not None:
        few = _part(train, _MOST_VECTORS)
        few = _part(few, encoder.affordable([item.texts for item in few.items]))
        yield "frozen vectors", few, lambda: frozen_vectors(task, few, encoder)


@_planned.register
def _(
    task: TextRegression, train: Examples[Any], encoder: FrozenEncoder | None
) -> Iterator[_Planned]:
    return _whole_texts(task, train, encoder, "mean")


@_planned.register
def _(
    task: SpanExtraction, train: SpanExamples, encoder: FrozenEncoder | None
) -> Iterator[_Planned]:
    if task.unanswerable:
        yield "no answer", train, lambda: no_answer(train)
    yield "first words", train, lambda: first_words(train)
    yield "sliding window", train, lambda: sliding_window(train)


@_planned.register
def _(task: TextToText, train: Examples[Any], encoder: FrozenEncoder | None) -> Iterator[_Planned]:
    yield "first words", train, lambda: lead_words(train)


@_planned.register
def _(
    task: MultipleChoice, train: Examples[Any], encoder: FrozenEncoder | None
) -> Iterator[_Planned]:
    yield "majority", train, lambda: most_frequent_place(task, train)
    yield "longest", train, lambda: longest(task, train)
    some = _part(train, _MOST_CHOICES)
    yield "tf-idf", some, lambda: choice_ngrams(task, some)
    if encoder is not None:
        few = _part(train, _MOST_CHOICES // 2)
        few = _part(few, encoder.affordable([(" ".join(item.texts),) for item in few.items]))
        yield "frozen vectors", few, lambda: choice_frozen_vectors(task, few, encoder)


@_planned.register
def _(task: Tagging, train: Sentences, encoder: FrozenEncoder | None) -> Iterator[_Planned]:
    yield "frequent tags", train, lambda: frequent_tags(task, train)
    some = cast(Sentences, _part(train, fits(train.items, _MOST_WORDS)))
    yield "word features", some, lambda: word_features(task, some)
    if encoder is not None:
        few = cast(Sentences, _part(train, fits(train.items, _MOST_STATES)))
        few = cast(Sentences, _part(few, encoder.affordable([item.texts for item in few.items])))
        yield "frozen vectors", few, lambda: frozen_states(task, few, encoder)


def _part(examples: Examples[Any], most: int) -> Examples[Any]:
    """Draw at most `most` of `examples` (at least one), in their order, the same every time."""
    if len(examples) <= most:
        return examples
    chosen = sorted(generator(0, "baselines").permutation(len(examples))[: max(1, most)].tolist())
    return dataclasses.replace(examples, items=[examples.items[at] for at in chosen])


# Refitting: the baselines of a trained model, fitted again on its training file, if that still
# exists unchanged.


def refit_baselines(
    task: Task[Any],
    facts: Mapping[str, Any],
    sets: Sets,
    dtype: torch.dtype,
    device: torch.device,
) -> list[BaselineScore]:
    """Return the scores of the baselines on `sets`.

    Args:
        task: the task of the model.
        facts: the facts of its training in ``bertine.json``.
        sets: labelled examples, by the prefix of their metrics.
        dtype: the type in which vectors are computed.
        device: the device on which they are computed.

    Raises:
        BertineError: the training examples are not available: they were given in memory, their
            file is gone or has changed since, or the model was trained elsewhere.
    """
    train = reload_training_examples(task.name, facts)
    return measure_baselines(task, train, sets, _encoder(task, facts, dtype, device))


def _encoder(
    task: Task[Any], facts: Mapping[str, Any], dtype: torch.dtype, device: torch.device
) -> FrozenEncoder | None:
    """Return the model that the training began with; None where it no longer exists."""
    start = facts.get("model_path")
    if not isinstance(start, str) or facts.get("fresh_weights"):
        return None
    try:
        # What a record names is read, but never fetched.
        if (name := PublishedName.parse(start)) is not None and (folder := cached_model(name)):
            start = str(folder)
        elif name is not None:
            return None
        loaded = load_model(start, heads={})
        return FrozenEncoder(
            loaded.model.to(device), loaded.tokenizer, task.max_length, pooling_of(start), dtype
        )
    except BertineError:
        return None
