"""Baselines of tagging: the most frequent tag of each word, a linear model on what a word looks
like and stands beside, and one on the states of a frozen model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from bertine.inference.baselines.frozen import FrozenEncoder, Scaling
from bertine.inference.baselines.linear import ClassTargets, Matrix, fit_linear
from bertine.inference.baselines.texts import VECTOR_STRENGTHS, Answers
from bertine.models.pooling import Pooling
from bertine.records.sentences import Sentence, Sentences
from bertine.tasks.tagging.tagged_text import Tags
from bertine.tasks.tagging.task import Tagging
from bertine.tasks.tagging.word_windows import WordFeatures

#: Numbers that names of features are hashed to, and penalties that are tried.
_HASHED = 2**17
_STRENGTHS = (0.1, 1.0, 10.0)


def frequent_tags(task: Tagging, train: Sentences) -> Answers:
    """Answer with the tag that a word has most often in training; of unknown words the most
    frequent one of all."""
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
    scaling: list[Scaling] = []

    def features(sentences: Sentences) -> Matrix:
        # `featurize` adds notes to the sentences, which are said once, elsewhere.
        notes, met = list(sentences.notes), sentences.met
        windows = cast(Sequence[WordFeatures], task.featurize(sentences, encoder.tokenizer))
        sentences.notes[:], sentences.met = notes, met
        starts = np.concatenate([[0], np.cumsum([len(item.words) for item in sentences.items])])
        width = encoder.model.config.hidden_size
        table = np.zeros((int(starts[-1]), width), np.float32)
        states = encoder.run(windows, Pooling(("tokens",)))
        for each, window in zip(states, windows, strict=True):
            table[starts[window.row] + window.words] = each[window.positions]
        if not scaling:
            scaling.append(Scaling(table))
        return scaling[0](table)

    return _linear(task, train, features, VECTOR_STRENGTHS)


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
    model = fit_linear(features(train), targets, strengths)

    def answers(examples: Any) -> list[Any]:
        sentences = cast(Sentences, examples)
        best = model.scores(features(sentences)).argmax(-1).tolist()
        predictions, begin = [], 0
        for item in sentences.items:
            tags = tuple(task.labels[at] for at in best[begin : begin + len(item.words)])
            predictions.append(Tags(tags, (1.0,) * len(tags)))
            begin += len(item.words)
        return predictions

    return answers


def _seen(words: Sequence[str], at: int) -> Iterator[str]:
    """Name what a word looks like, and the two words on each side."""
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
    """Write a word as kinds of characters, repeated ones once: "McDonald's" → "XxXx'x"."""
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
    """Count how many sentences, from the first on, have at most so many words (one at least)."""
    words = np.cumsum([len(item.words) for item in sentences])
    return max(1, int(np.searchsorted(words, most_words, side="right")))
