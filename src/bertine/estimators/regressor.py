"""A regressor of texts for scikit-learn."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from bertine.estimators.base import BertEstimator, hinting
from bertine.estimators.texts import InputError
from bertine.records.examples import Example, Examples
from bertine.tasks.base import Task
from bertine.tasks.texts.regression import TextRegression


@hinting
class BertRegressor(RegressorMixin, BertEstimator):
    """A number for a text, or a pair of texts, by fine-tuning a BERT (Devlin et al. 2018, section
    4.1). Scores are standardized for training, so their size does not matter.

    The arguments and attributes are those of :class:`BertClassifier`, without classes and their
    weights.
    """

    _task = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune on texts with a number each.

        Args:
            X: N texts (a list, an array, a Series of strings), or pairs of them: [N, 2].
            y: [N], finite numbers.
            sample_weight: see :meth:`BertClassifier.fit`.

        Raises:
            InputError: not texts, another number of scores or weights, one that is no finite
                number, a weight that is negative, scores that are all the same.
            BertineError: what :func:`bertine.finetune` raises.
        """
        texts, y, weights = self._checked(X, y, sample_weight)
        try:
            scores = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"y must be numbers: {error}") from error
        some = scores[weights > 0]
        if np.ptp(some) == 0:
            raise InputError(f"all of y is {some[0]:g}; there is nothing to learn")

        def build(train: Examples[Example], longest: int) -> Task[Any]:
            task = TextRegression.from_examples(train, max_length=longest)
            return dataclasses.replace(task, long_text=self.long_text)

        self._fit(texts, [repr(score) for score in scores.tolist()], weights, build)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the number of each text: fp64 [N].

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: `X` is not texts like those of `fit`.
        """
        return np.array([answer.score for answer in self._answers(X)], dtype=np.float64)
