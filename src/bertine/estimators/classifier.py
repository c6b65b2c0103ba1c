"""A classifier of texts for scikit-learn.

>>> from bertine import BertClassifier
>>> classifier = BertClassifier("my-model").fit(texts, labels)
>>> classifier.predict(["what an evening"])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from bertine.datasets.reading import Labelled
from bertine.estimators.base import LABEL, BertEstimator, hinting
from bertine.estimators.texts import InputError
from bertine.names import ClassWeights
from bertine.records.examples import Example, Examples
from bertine.tasks.base import Task
from bertine.tasks.options import TableOptions
from bertine.tasks.texts.classification import TextClassification
from bertine.terminal.text import briefly
from bertine.training.few_shot.few_shot import few_shot
from bertine.training.finetuning.learner import Learner

#: Parameters that `few_shot` is given as they are, and those that it has no use for.
_OF_FEW_SHOT = ("model", "batch_size", "learning_rate", "max_length", "device", "precision")
_NOT_FEW_SHOT = (
    *("epochs", "schedule", "warmup_ratio", "weight_decay", "layer_decay", "freeze_layers"),
    *("freeze_embeddings", "dropout", "focal_gamma"),
)


@hinting
@dataclass(kw_only=True, eq=False, repr=False)
class BertClassifier(ClassifierMixin, BertEstimator):
    """A classifier of texts, or of pairs of texts, by fine-tuning a BERT (Devlin et al. 2018,
    section 4.1).

    Args:
        model: the model directory to start from, pre-trained.
        epochs: passes over the texts; None: more passes over fewer texts.
        batch_size: texts a step; None: 16, or 32 with more than 4,000 texts.
        learning_rate: the highest of the schedule; None: by the width of the model.
        max_length: pieces of an input, special tokens included; longer ones are cut, which is
            warned of.
        schedule, warmup_ratio, weight_decay, layer_decay: see :func:`bertine.finetune`.
        freeze_layers, freeze_embeddings, dropout, long_text: see :func:`bertine.finetune`.
        class_weights: ``"balanced"``: every class counts the same in the loss; a dictionary: of
            each class, how much its texts count, 1 where it has none; None: all texts count the
            same.
        focal_gamma: of the focal loss: what is predicted well already counts less; 0:
            cross-entropy.
        few_shot: learn as :func:`bertine.few_shot` does, for a few labels of each class; of the
            other parameters of training it has `batch_size` and `learning_rate` (None: by the width
            of the model and the number of texts).
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
        precision: ``"auto"``, ``"fp32"`` or ``"bf16"``. ``"auto"`` trains in bf16 where that is
            measured to be clearly faster, and answers on a CPU in bf16 or 8 bits where that is
            faster and a check at loading finds the outputs close to fp32;
            ``predictor_.precision_check`` says what it found.
        random_state: decides the new head, the order and dropout: the same number gives the same
            weights. None: another each time.
        out: a new folder that keeps the run (log, report, ``out/model``); None: nothing is kept
            on disk.
        verbose: print progress.

    Attributes:
        classes_: [K], sorted; the columns of :meth:`predict_proba`.
        predictor_: the fitted model, a :class:`bertine.Predictor`.
    """

    _task = "text"

    class_weights: ClassWeights | Mapping[Any, float] | None = None
    focal_gamma: float = 0.0
    few_shot: bool = False

    classes_: np.ndarray = field(init=False)

    def _trained(self, labelled: Labelled, out: Path | str) -> Learner:
        if not self.few_shot:
            return super()._trained(labelled, out)
        defaults = {entry.name: entry.default for entry in fields(self)}
        for name in _NOT_FEW_SHOT:
            if getattr(self, name) != defaults[name]:
                raise InputError(f"{name} is of fine-tuning, which few_shot is not; leave it out")
        given = {name: getattr(self, name) for name in _OF_FEW_SHOT}
        return few_shot(data=labelled, out=out, seed=self._seed(), **given)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune on labelled texts.

        Args:
            X: N texts (a list, an array, a Series of strings), or pairs of them: [N, 2].
            y: [N], their classes: strings, whole numbers or truth values.
            sample_weight: [N], how much each text counts in the loss: one of weight 2 as if it
                were there twice, one of weight 0 as if it were not there; None: all the same.

        Raises:
            InputError: not texts; another number of labels or weights than texts; a label that is
                missing (None, NaN); labels of several types; fewer than two classes; a weight that
                is no finite number or negative, or of a class that there is not; weights of texts
                with `few_shot`.
            BertineError: what :func:`bertine.finetune` raises.
        """
        if self.few_shot and sample_weight is not None:
            raise InputError("sample_weight is of fine-tuning, which few_shot is not; leave it out")
        texts, y, weights = self._checked(X, y, sample_weight)
        try:
            check_classification_targets(y)
            classes, ids = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise InputError(
                "y holds values that cannot be sorted; make all of them strings or all of them "
                "whole numbers"
            ) from error
        if len(classes) < 2:
            raise InputError(
                f"y has 1 class, {classes.tolist()[0]!r}; a classifier needs at least two classes"
            )
        names = [str(name) for name in classes.tolist()]
        given, by_class = self.class_weights, list[float]()
        if isinstance(given, Mapping):
            by_class, given = _weights_of(classes.tolist(), given), None
        TableOptions(class_weights=given, focal_gamma=self.focal_gamma)

        def build(train: Examples[Example], longest: int) -> Task[Any]:
            task = TextClassification(tuple(names), train.text_columns, LABEL, longest)
            class_weights = task.balanced(train) if given else None
            if by_class:
                total = sum(
                    item.weight * by_class[task.ids[str(item.label)]] for item in train.items
                )
                if not total:
                    raise InputError(
                        "every text has the weight 0, by class_weights or sample_weight; give one "
                        "more"
                    )
                class_weights = tuple(weight * len(train) / total for weight in by_class)
            return replace(
                task,
                class_weights=class_weights,
                focal_gamma=self.focal_gamma,
                long_text=self.long_text,
            )

        self._fit(texts, [names[number] for number in ids.tolist()], weights, build)
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each text: [N], of the type of `classes_`."""
        chosen = self.predict_proba(X).argmax(-1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class for each text: fp64 [N, K], the columns as in
        `classes_`.

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: `X` is not texts like those of `fit`.
        """
        rows = [list(answer.numbers) for answer in self._answers(X)]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.classes_))


def _weights_of(classes: list[Any], weights: Mapping[Any, float]) -> list[float]:
    """Return the weight of each class.

    Raises:
        InputError: there is no such class, or a weight is no finite number, or negative.
    """
    for name, weight in weights.items():
        if name not in classes:
            raise InputError(
                f"class_weights has {name!r}, but the classes of y are {briefly(classes)}"
            )
        if not isinstance(weight, int | float | np.number) or not 0 <= weight < np.inf:
            raise InputError(
                f"class_weights[{name!r}] is {weight!r}, but must be a finite number, 0 or more"
            )
    return [float(weights.get(name, 1.0)) for name in classes]
