"""Compare a model's answers in a lower precision with those in fp32, in words for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bertine.inference.compute.samples import sample_texts
from bertine.inference.files.given_texts import Text
from bertine.inference.tagging import TaggedText
from bertine.tasks.base import Task
from bertine.tasks.choice import ChoicePrediction, MultipleChoice
from bertine.tasks.spans.decoding import SpanPrediction
from bertine.tasks.tagging.task import Tagging
from bertine.tasks.texts.multi_label import LabelSet
from bertine.tasks.texts.regression import Score
from bertine.terminal.console import counted
from bertine.text.tokenizer import Tokenizer

Answer = Callable[[Sequence[Text]], list[Any]]


def answer_agreement(task: Task[Any], tokenizer: Tokenizer, answer: Answer, exact: Answer) -> str:
    """Say for how many sample inputs `answer` and `exact` agree, e.g. "the same label as in fp32
    for 20 of 20 sample texts". For a regression: how far the scores are apart at most.

    Args:
        task: of the model; says what its inputs are made of.
        tokenizer: of the model; some samples are made of its vocabulary.
        answer: a predictor in the lower precision.
        exact: the same model in fp32.
    """
    given = sample_questions(task, sample_texts(tokenizer))
    ours, theirs = answer(given), exact(given)
    if theirs and isinstance(theirs[0], Score):
        farthest = max(abs(a.score - b.score) for a, b in zip(ours, theirs, strict=True))
        return f"scores within {farthest:.2g} of those in fp32 for {len(given)} sample texts"
    if theirs and isinstance(theirs[0], TaggedText):
        tags = [
            one == other
            for a, b in zip(ours, theirs, strict=True)
            for one, other in zip(a.tags, b.tags, strict=True)
        ]
        words = counted(len(tags), "word")
        return f"the same tag as in fp32 for {sum(tags):,} of {words} of sample texts"
    same = sum(_decided(a) == _decided(b) for a, b in zip(ours, theirs, strict=True))
    return f"the same {_noun(theirs)} as in fp32 for {same} of {len(given)} sample texts"


def sample_questions(task: Task[Any], texts: Sequence[str]) -> list[Text]:
    """Inputs of the kind that `task` takes, one for each of `texts`: single texts, pairs, or a
    text with as many choices as the task has."""
    columns = len(task.text_columns)
    if isinstance(task, Tagging) or columns == 1:
        return list(texts)
    if not isinstance(task, MultipleChoice):
        columns = 2
    return [
        tuple(texts[(at + shift) % len(texts)] for shift in range(columns))
        for at in range(len(texts))
    ]


def _decided(answer: Any) -> Any:
    """What an answer comes down to, without its probabilities."""
    if isinstance(answer, LabelSet):
        return frozenset(answer.labels)
    if isinstance(answer, SpanPrediction):
        return answer.answer
    return answer.label


def _noun(answers: Sequence[Any]) -> str:
    kinds = {LabelSet: "labels", ChoicePrediction: "choice", SpanPrediction: "answer"}
    return kinds.get(type(answers[0]), "label") if answers else "label"
