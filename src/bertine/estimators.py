"""Fine-tuning as scikit-learn knows it: ``fit``, ``predict``, ``score``.

    >>> from bertine import BertClassifier
    >>> classifier = BertClassifier("my-model").fit(texts, labels)
    >>> classifier.predict(["what an evening"])

They are scikit-learn estimators: they can be cloned, searched over, put at the end of a pipeline
and pickled. What they do is ``bertine finetune`` with the same names and numbers, in memory.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bertine.console import quietly, warn
from bertine.errors import BertineError
from bertine.inference.predictor import Predictor
from bertine.modeldir import save_model
from bertine.models.precision import resolve_device
from bertine.tasks.base import Task
from bertine.tasks.classification import TextClassification
from bertine.tasks.examples import Example, Examples
from bertine.tasks.labelled import Labelled
from bertine.tasks.options import TableOptions
from bertine.tasks.regression import TextRegression
from bertine.training.finetune import finetune

#: The columns of an estimator's examples: one text, or two.
_COLUMNS = ("text", "text_pair")
_LABEL = "label"
#: What messages call the examples: scikit-learn's name of them.
_SOURCE = "X"
_FOLDER = "model"
#: Steps: a run that is thrown away is not gone on with.
_NEVER = sys.maxsize

#: New weights and dropout come from streams that a process has once: of fits in several threads
#: (joblib's "threading") each waits for its turn, and gives what it gives by itself.
_one_at_a_time = threading.Lock()


class InputError(BertineError, ValueError):
    """Texts or labels that an estimator cannot take: scikit-learn's callers expect a ValueError."""


class _BertEstimator(BaseEstimator):
    """What classifier and regressor have in common; see there.

    The parameters are attributes under their names, as scikit-learn asks for.
    """

    _task: ClassVar[str]

    model: Path | str | None
    epochs: int
    batch_size: int
    learning_rate: float
    max_length: int
    schedule: str
    warmup_ratio: float | None
    weight_decay: float
    layer_decay: float
    freeze_layers: int
    freeze_embeddings: bool
    dropout: float | None
    long_text: str
    device: str | None
    precision: str
    random_state: int | np.random.RandomState | None
    out: Path | str | None
    verbose: bool

    predictor_: Predictor

    def _fit(self, texts: list[tuple[str, ...]], labels: Sequence[str], build: Any) -> None:
        """Fine-tune on N texts with their labels.

        Args:
            texts: of one or two strings each.
            labels: N, as a file has them.
            build: (examples, the longest input) → the task.
        """
        if self.model is None:
            raise InputError(
                f"{type(self).__name__} needs a model to start from; name its directory: "
                f"{type(self).__name__}('my-model')"
            )
        TableOptions(long_text=self.long_text)
        columns = _COLUMNS[: len(texts[0])]
        train: Examples[Example] = Examples(
            _SOURCE,
            columns,
            _LABEL,
            [
                Example(each, label, row)
                for row, (each, label) in enumerate(zip(texts, labels, strict=True), 1)
            ],
        )
        none: Examples[Example] = Examples(_SOURCE, columns, _LABEL)
        labelled = Labelled(lambda longest: build(train, longest), train, none)
        temporary = tempfile.TemporaryDirectory(prefix="bertine-fit-")
        with temporary as folder, quietly(not self.verbose), _one_at_a_time:
            result = finetune(
                self._task,
                model=self.model,
                data=labelled,
                out=Path(folder) / "run" if self.out is None else self.out,
                epochs=self.epochs,
                batch_size=self.batch_size,
                max_length=self.max_length,
                learning_rate=self.learning_rate,
                warmup_ratio=self.warmup_ratio,
                schedule=self.schedule,
                layer_decay=self.layer_decay,
                freeze_layers=self.freeze_layers,
                freeze_embeddings=self.freeze_embeddings,
                weight_decay=self.weight_decay,
                dropout=self.dropout,
                device=self.device,
                precision=self.precision,
                seed=self._seed(),
                checkpoint_every=_NEVER if self.out is None else None,
            )
            self.predictor_ = Predictor.load(result.model, self.device, self.precision)

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, int | np.integer):
            return int(state)
        return int(check_random_state(state).randint(2**31 - 1))

    def _answers(self, X: Any) -> list[Any]:
        """The predictions for texts.

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: no texts, or singles where the model was fitted to pairs or the other way
                round.
        """
        check_is_fitted(self, "predictor_")
        texts = self._texts(X)
        width = len(self.predictor_.task.text_columns)
        if texts and len(texts[0]) != width:
            raise InputError(
                f"X has {_number(len(texts[0]))} a row, but {type(self).__name__} was fitted to "
                f"{_number(width)}"
            )
        items = [Example(each, None, row) for row, each in enumerate(texts, 1)]
        columns = self.predictor_.task.text_columns
        examples: Examples[Example] = Examples(_SOURCE, columns, None, items)
        answers, features = self.predictor_.run(examples)
        for note in self.predictor_.task.notes(features):
            warn(f"{_SOURCE}: {note}")
        return answers

    def _texts(self, X: Any) -> list[tuple[str, ...]]:
        """The texts of `X`, one or two a row.

        Raises:
            InputError: `X` is not texts.
        """
        return texts_of(X)

    def __getstate__(self) -> dict[str, Any]:
        """The parameters, and of a fitted estimator the files of its model directory as bytes:
        nothing that a later version of PyTorch could not read."""
        state: dict[str, Any] = dict(super().__getstate__())
        predictor = state.pop("predictor_", None)
        if predictor is not None:
            with tempfile.TemporaryDirectory(prefix="bertine-pickle-") as folder:
                state["_files"] = _files_of(predictor, Path(folder) / _FOLDER)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is None:
            return
        device = self.device
        try:
            resolve_device(device)
        except BertineError as error:
            warn(f"{error}; the estimator computes on what there is")
            device = None
        with tempfile.TemporaryDirectory(prefix="bertine-pickle-") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            self.predictor_ = Predictor.load(folder, device, self.precision)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = True
        return tags


class BertClassifier(ClassifierMixin, _BertEstimator):
    """A classifier of texts, or of pairs of texts, by fine-tuning a BERT (Devlin et al. 2018,
    section 4.1).

    Args:
        model: the model directory to start from, pre-trained.
        epochs: passes over the texts.
        batch_size: texts a step.
        learning_rate: the highest of the schedule.
        max_length: pieces of an input, special tokens included; longer ones are cut, which is
            warned of.
        schedule, warmup_ratio, weight_decay, layer_decay, freeze_layers, freeze_embeddings,
            dropout, long_text: see :func:`bertine.finetune`.
        class_weights: ``"balanced"``: every class counts the same in the loss; None: every text
            does.
        focal_gamma: of the focal loss: what is predicted well already counts less; 0:
            cross-entropy.
        device: as PyTorch calls it; None: the GPU if there is one.
        precision: ``"auto"``, ``"fp32"`` or ``"bf16"``. ``"auto"`` trains in bf16 where the machine
            is fast at it, and answers on a CPU in bf16 or 8 bits where a check at loading finds the
            outputs close to fp32; ``predictor_.precision_check`` says what it found.
        random_state: decides the new head, the order and dropout: the same number gives the same
            weights. None: another each time.
        out: a new folder that keeps the run (log, report, ``out/model``); None: nothing is kept
            on disk.
        verbose: print progress.

    Attributes:
        classes_: [K], sorted; the columns of :meth:`predict_proba`.
        predictor_: the fitted model, a :class:`bertine.Predictor`.
    """

    _task = TextClassification.name

    classes_: np.ndarray

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        epochs: int = 3,
        batch_size: int = 32,
        learning_rate: float = 5e-5,
        max_length: int = 128,
        schedule: str = "linear",
        warmup_ratio: float | None = None,
        weight_decay: float = 0.01,
        layer_decay: float = 1.0,
        freeze_layers: int = 0,
        freeze_embeddings: bool = False,
        dropout: float | None = None,
        long_text: str = "head",
        class_weights: str | None = None,
        focal_gamma: float = 0.0,
        device: str | None = None,
        precision: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        out: Path | str | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.schedule = schedule
        self.warmup_ratio = warmup_ratio
        self.weight_decay = weight_decay
        self.layer_decay = layer_decay
        self.freeze_layers = freeze_layers
        self.freeze_embeddings = freeze_embeddings
        self.dropout = dropout
        self.long_text = long_text
        self.class_weights = class_weights
        self.focal_gamma = focal_gamma
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.out = out
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Fine-tune on labelled texts.

        Args:
            X: N texts (a list, an array, a Series of strings), or pairs of them: [N, 2].
            y: [N], their classes: strings, whole numbers or truth values.

        Raises:
            InputError: not texts, another number of labels, fewer than two classes.
            BertineError: what :func:`bertine.finetune` raises.
        """
        texts, y = _checked(self, X, y)
        try:
            check_classification_targets(y)
            classes, ids = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise InputError(
                "y mixes classes of several types, which have no order; make all of them strings "
                "or all of them whole numbers"
            ) from error
        if len(classes) < 2:
            raise InputError(
                f"y has 1 class, {classes.tolist()[0]!r}; a classifier needs at least two classes"
            )
        names = [str(name) for name in classes.tolist()]
        TableOptions(class_weights=self.class_weights, focal_gamma=self.focal_gamma)

        def build(train: Examples[Example], longest: int) -> Task[Any]:
            task = TextClassification(tuple(names), train.text_columns, _LABEL, longest)
            weights = task.balanced(train) if self.class_weights else None
            return dataclasses.replace(
                task,
                class_weights=weights,
                focal_gamma=self.focal_gamma,
                long_text=self.long_text,
            )

        self._fit(texts, [names[number] for number in ids.tolist()], build)
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each text: [N], of the type of `classes_`."""
        chosen = self.predict_proba(X).argmax(-1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class for each text: fp64 [N, K], the columns as in `classes_`.

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: `X` is not texts like those of `fit`.
        """
        rows = [list(answer.probabilities.values()) for answer in self._answers(X)]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.classes_))


class BertRegressor(RegressorMixin, _BertEstimator):
    """A number for a text, or a pair of texts, by fine-tuning a BERT (Devlin et al. 2018, section
    4.1). Scores are standardized for training, so their size does not matter.

    The arguments and attributes are those of :class:`BertClassifier`, without classes and their
    weights.
    """

    _task = TextRegression.name

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        epochs: int = 3,
        batch_size: int = 32,
        learning_rate: float = 5e-5,
        max_length: int = 128,
        schedule: str = "linear",
        warmup_ratio: float | None = None,
        weight_decay: float = 0.01,
        layer_decay: float = 1.0,
        freeze_layers: int = 0,
        freeze_embeddings: bool = False,
        dropout: float | None = None,
        long_text: str = "head",
        device: str | None = None,
        precision: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        out: Path | str | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.schedule = schedule
        self.warmup_ratio = warmup_ratio
        self.weight_decay = weight_decay
        self.layer_decay = layer_decay
        self.freeze_layers = freeze_layers
        self.freeze_embeddings = freeze_embeddings
        self.dropout = dropout
        self.long_text = long_text
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.out = out
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Fine-tune on texts with a number each.

        Args:
            X: N texts (a list, an array, a Series of strings), or pairs of them: [N, 2].
            y: [N], finite numbers.

        Raises:
            InputError: not texts, another number of scores, one that is no finite number, all the
                same.
            BertineError: what :func:`bertine.finetune` raises.
        """
        texts, y = _checked(self, X, y)
        try:
            scores = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"y must be numbers: {error}") from error
        if np.ptp(scores) == 0:
            raise InputError(f"all of y is {scores[0]:g}; there is nothing to learn")

        def build(train: Examples[Example], longest: int) -> Task[Any]:
            task = TextRegression.from_examples(train, max_length=longest)
            return dataclasses.replace(task, long_text=self.long_text)

        self._fit(texts, [repr(score) for score in scores.tolist()], build)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The number of each text: fp64 [N].

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: `X` is not texts like those of `fit`.
        """
        return np.array([answer.score for answer in self._answers(X)], dtype=np.float64)


def texts_of(X: Any) -> list[tuple[str, ...]]:
    """N texts as tuples of one, N pairs as tuples of two.

    Args:
        X: a list, array or Series of N strings, or of shape [N, 1] or [N, 2].

    Raises:
        InputError: `X` has another shape, or holds something else than strings.
    """
    if isinstance(X, str):
        raise InputError("X is one text; put it in a list")
    try:
        table = np.asarray(X, dtype=object)
    except ValueError as error:
        raise InputError(f"X must be N texts or N pairs of texts: {error}") from error
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or (len(table) and table.shape[1] not in (1, 2)):
        raise InputError(
            f"X has the shape {np.shape(table)}, but must be N texts, [N], or N pairs, [N, 2]"
        )
    rows = [tuple(row) for row in table.tolist()]
    for number, row in enumerate(rows):
        for text in row:
            if not isinstance(text, str):
                raise InputError(
                    f"X[{number}] holds {text!r}, of type {type(text).__name__}; this estimator "
                    "takes texts (str)"
                )
    return rows


def _checked(estimator: _BertEstimator, X: Any, y: Any) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """The texts of `X`, and `y` as [N].

    Raises:
        InputError: there are fewer than two, or not as many labels as texts, or a label that is
            missing or not finite.
    """
    name = type(estimator).__name__
    if y is None:
        raise InputError(f"{name} requires y to be passed, but the target y is None")
    texts = estimator._texts(X)
    if len(texts) < 2:
        raise InputError(f"{name} needs at least 2 samples, but got n_samples = {len(texts)}")
    labels = column_or_1d(y, warn=True)
    if len(labels) != len(texts):
        raise InputError(f"X has {len(texts)} texts, but y has {len(labels)} labels")
    missing = [row for row, label in enumerate(labels.tolist()) if _is_missing(label)]
    if missing:
        raise InputError(f"y[{missing[0]}] is missing (NaN, NA or None); every text needs a label")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("y holds an infinity; it must be finite")
    return texts, labels


def _is_missing(label: Any) -> bool:
    """Whether it is None, NaN, or the NA of pandas, which is equal to nothing and unequal to
    nothing either: it raises a TypeError when asked."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def _number(texts: int) -> str:
    return "one text" if texts == 1 else f"{texts} texts"


def _files_of(predictor: Predictor, folder: Path) -> dict[str, bytes]:
    """The files of the model directory that `predictor` is saved as."""
    save_model(folder, predictor.model, predictor.tokenizer, task=predictor.task.task_info())
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
