"""Compare a model's answers in a lower precision with those in fp32, in words for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bertine.inference.compute.samples import sample_texts
from bertine.inference.files.given_texts import Text
from bertine.tasks.answer import Answer
from bertine.tasks.base import Task
from bertine.text.tokenizer import Tokenizer

#: Texts → their answers.
Answerer = Callable[[Sequence[Text]], list[Any]]


def answer_agreement(
    task: Task[Any], tokenizer: Tokenizer, answer: Answerer, exact: Answerer
) -> str:
    """Say for how many sample inputs `answer` and `exact` agree, e.g. "the same label as in fp32
    for 20 of 20 sample texts". For a regression: how far the scores are apart at most.

    Args:
        task: of the model; says what its inputs are made of.
        tokenizer: of the model; some samples are made of its vocabulary.
        answer: a predictor in the lower precision.
        exact: the same model in fp32.
    """
    inputs = task.sample_inputs(sample_texts(tokenizer))
    ours, theirs = answer(inputs), exact(inputs)
    kind: type[Answer] = type(theirs[0])
    return kind.agreement(ours, theirs)
