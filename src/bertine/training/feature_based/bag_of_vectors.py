"""The mean of the vectors of a text's words, and logistic regression: no order, no context."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_limits

from bertine.inference.baselines.frozen import pair_features
from bertine.inference.baselines.texts import TextTask, frozen_vectors
from bertine.records.examples import Examples
from bertine.training.feature_based.problems import TextProblem
from bertine.word_vectors.vectors import WordVectors


class MeanVectors:
    """The mean of the vectors of a text's words; of pairs u, v, |u - v|, u · v and the cosine."""

    def __init__(self, vectors: WordVectors) -> None:
        self._vectors = vectors

    def matrix(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Compute fp32 [N, D], of pairs [N, 4 D + 1]; zeros where no word has a vector."""
        columns = [self._vectors.embed([row[at] for row in texts]) for at in range(len(texts[0]))]
        return columns[0] if len(columns) == 1 else pair_features(*columns)


def bag_of_vectors_row(
    vectors: WordVectors, problem: TextProblem, sets: dict[str, Examples[Any]]
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Fit logistic regression (of numbers ridge regression) to the training examples, with the
    penalty that is best in cross-validation, and score it.

    Returns:
        The row of the table, and the answers for each set that was scored.
    """
    began = time.monotonic()
    task = cast(TextTask, problem.task)
    with threadpool_limits(1):
        answered = frozen_vectors(task, sets["train"], MeanVectors(vectors))
        answers = {word: answered(part) for word, part in sets.items() if word != "train"}
    row: dict[str, Any] = {
        word: problem.report(given, sets[word]).metrics for word, given in answers.items()
    }
    row["best"] = row["validation"][problem.metric]
    row["seconds"] = time.monotonic() - began
    return row, answers
