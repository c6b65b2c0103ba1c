"""Fine-tune through scikit-learn's interface: estimators that take lists of texts.

They can be cloned, searched over, put at the end of a pipeline and pickled. They run the same
fine-tuning as ``bertine finetune``, with the same names and results, in memory.
"""

from __future__ import annotations

import difflib
import functools
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bertine.core.console import log_all, logger, plural, quietly
from bertine.core.errors import BertineError
from bertine.core.names import ClassWeights, LongText, Precision, ScheduleName, TaskName
from bertine.core.text import Index, briefly
from bertine.data.examples import Example, Examples
from bertine.datasets.check import names_of_labels
from bertine.datasets.own_data import DatasetSplits
from bertine.hub.model_directory import save_model
from bertine.inference.predictor import Predictor
from bertine.models.precision import resolve_device
from bertine.options.data import DataConfig
from bertine.options.declare import MOST, shared_values
from bertine.options.finetuning import FewShotOptions, TextOptions
from bertine.options.verbs import keeping_generators
from bertine.tasks import task_class
from bertine.tasks.unknown_text import UnknownText
from bertine.training.finetuning.finetune import few_shot, finetune
from bertine.training.finetuning.learner import Learner

# Input checks: texts, or pairs of texts, and a label for each.

#: NumPy's type of an array of texts and a NaN, which becomes the text "nan".
_TEXTS_WITH_A_NAN = np.dtype("<U32")


class InputError(BertineError, ValueError):
    """The error for invalid texts or labels of an estimator; scikit-learn's callers expect a
    ValueError."""


def texts_of(X: Any) -> list[tuple[str, ...]]:
    """Convert N texts to tuples of one, N pairs to tuples of two.

    Args:
        X: a list, array or Series of N strings, or of shape [N, 1] or [N, 2].

    Raises:
        InputError: `X` has another shape, or holds anything but strings.
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


def labels_of(y: Any, count: int) -> np.ndarray:
    """Return `y` as [N], a label for each of `count` texts.

    Raises:
        InputError: there are not as many labels as texts; one is missing, not finite, or of another
            type than the first.
    """
    try:
        # As objects: NumPy would convert all values among texts to texts, a missing label to "nan".
        given = column_or_1d(y if isinstance(y, np.ndarray) else np.asarray(y, object), warn=True)
        labels = column_or_1d(y)
    except ValueError as error:
        raise InputError(f"y must be N labels: {error}") from error
    if len(labels) != count:
        raise InputError(f"X has {plural(count, 'text')}, but y has {plural(len(labels), 'label')}")
    values = given.tolist()
    if labels.dtype == _TEXTS_WITH_A_NAN:
        values = [None if value == "nan" else value for value in values]
    missing = [row for row, label in enumerate(values) if _is_missing(label)]
    if missing:
        raise InputError(
            f"y[{missing[0]}] is missing (NaN, NA, None or an empty text); every text needs a label"
        )
    kinds = [_kind(value) for value in values]
    for row, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise InputError(
                f"y mixes {kinds[0]} (y[0] is {_shown(values[0])}) and {kind} (y[{row}] is "
                f"{_shown(values[row])}); make all labels of one type"
            )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("y holds an infinity; it must be finite")
    if labels.dtype.kind == "f" and all(isinstance(value, bool | int) for value in values):
        # Columns of pandas that may have missing values (Int64, boolean), which NumPy reads as
        # floats.
        labels = np.asarray(values)
    return labels


def weights_of(sample_weight: Any, count: int) -> np.ndarray:
    """Return the weight of each of `count` texts in the loss: fp64 [N]; None: all equal.

    Raises:
        InputError: there are not as many weights as texts; one is not a number, negative or not
            finite; fewer than two are above 0.
    """
    if sample_weight is None:
        return np.ones(count)
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be N numbers: {error}") from error
    if weights.ndim == 0:
        weights = np.full(count, weights)
    if weights.shape != (count,):
        raise InputError(
            f"X has {plural(count, 'text')}, but sample_weight has the shape {weights.shape}"
        )
    for row, weight in enumerate(weights.tolist()):
        if not 0 <= weight < np.inf:
            raise InputError(
                f"sample_weight[{row}] is {weight:g}, but must be a finite number, 0 or more"
            )
    if (some := int(np.count_nonzero(weights))) < 2:
        raise InputError(
            f"sample_weight is zero but for {plural(some, 'text')}; fit needs 2 texts or more"
        )
    return weights / weights.max()


def _kind(label: Any) -> str:
    """Return the kind of a label, in the plural."""
    if isinstance(label, bool | np.bool_):
        return "truth values"
    if isinstance(label, int | float | np.number):
        return "numbers"
    return "texts" if isinstance(label, str) else f"values of type {type(label).__name__}"


def _shown(label: Any) -> str:
    return f"{label!r:.40}"


def _is_missing(label: Any) -> bool:
    """Return whether it is None, NaN, an empty text, or the NA of pandas, whose comparisons are NA:
    using one as a truth value raises a TypeError."""
    if isinstance(label, str):
        return not label.strip()
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


#: The columns of an estimator's examples: one text, or two.
_COLUMNS = ("text", "text_pair")
LABEL = "label"
#: The name of the examples in messages, which is scikit-learn's.
_SOURCE = "X"
_FOLDER = "model"
#: Parameters that are not passed on: the task has them, or the seed is drawn from another one.
_OF_TASK = ("long_text", "class_weights", "focal_gamma", "seed")
#: The ones of the task that few-shot learning has, too.
_OF_BOTH = ("long_text", "class_weights")
#: Steps between checkpoints: a temporary run is never resumed.
_NEVER = MOST

#: New weights and dropout use random streams that are global in a process: fits in several threads
#: (joblib's "threading") run one after the other, and each gives the same result as alone.
_one_at_a_time = threading.Lock()


Estimator = TypeVar("Estimator", bound="BertEstimator")


@dataclass(kw_only=True, eq=False, repr=False)
class BertEstimator(BaseEstimator):
    """The base class of classifier and regressor.

    The parameters are attributes with their names, as scikit-learn requires.
    """

    _task: ClassVar[TaskName]

    model: Path | str | None = field(default=None, kw_only=False)
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    max_length: int = 128
    schedule: ScheduleName = "linear"
    warmup_ratio: float | None = None
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    freeze_layers: int = 0
    freeze_embeddings: bool = False
    dropout: float | None = None
    long_text: LongText = "head"
    device: str | None = None
    precision: Precision = "auto"
    random_state: int | np.random.RandomState | None = 0
    out: Path | str | None = None
    verbose: bool = False

    predictor_: Predictor = field(init=False)

    def _checked(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[list[tuple[str, ...]], np.ndarray, np.ndarray]:
        """Return the texts of `X`, `y` as [N] and the weights as fp64 [N].

        Raises:
            InputError: there are fewer than two, or not as many labels or weights as texts, a
                label that is missing or not finite, or a weight that is negative or not finite.
        """
        name = type(self).__name__
        if y is None:
            raise InputError(f"{name} requires y to be passed, but the target y is None")
        texts = self._texts(X)
        if len(texts) < 2:
            raise InputError(f"{name} needs at least 2 samples, but got n_samples = {len(texts)}")
        return texts, labels_of(y, len(texts)), weights_of(sample_weight, len(texts))

    def _fit(
        self,
        texts: list[tuple[str, ...]],
        y: Sequence[str],
        weights: np.ndarray,
        **settings: Any,
    ) -> None:
        """Fine-tune on N texts with their labels; texts with the weight 0 are left out.

        Args:
            texts: tuples of one or two strings.
            y: N labels, as in a file.
            weights: fp64 [N]; only their ratios matter.
            settings: of the task.
        """
        DataConfig(long_text=self.long_text)
        kind, columns = task_class(self._task), _COLUMNS[: len(texts[0])]
        train: Examples[Example] = Examples(
            _SOURCE,
            columns,
            LABEL,
            [
                Example(texts[row], y[row], Index(row), weight=weight)
                for row, weight in enumerate((weights / weights[weights > 0].mean()).tolist())
                if weight
            ],
        )
        log_all(names_of_labels(kind, train), logger.warning)
        none: Examples[Example] = Examples(_SOURCE, columns, LABEL)
        settings["long_text"] = self.long_text
        labelled = DatasetSplits(kind, train, none, settings=settings)
        temporary = tempfile.TemporaryDirectory(prefix="bertine-fit-")
        quiet, kept = quietly(not self.verbose), keeping_generators()
        with temporary as folder, quiet, kept, _one_at_a_time:
            result = self._trained(labelled, Path(folder) / "run" if self.out is None else self.out)
            self.predictor_ = Predictor.load(result.model, self.device, self.precision)

    def _trained(self, labelled: DatasetSplits, out: Path | str) -> Learner:
        """Fine-tune on `labelled` texts, in the folder `out`."""
        return finetune(
            self._task,
            model=self.model,
            data=labelled,
            out=out,
            **shared_values(TextOptions, self, but=_OF_TASK),
            seed=self._seed(),
            checkpoint_every=_NEVER if self.out is None else None,
        )

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, int | np.integer):
            return int(state)
        return int(check_random_state(state).randint(2**31 - 1))

    def _answers(self, X: Any) -> list[Any]:
        """Return the predictions for texts.

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: no texts, or single texts if the model was fitted to pairs, or the reverse.
        """
        check_is_fitted(self, "predictor_")
        texts = self._texts(X)
        width = len(self.predictor_.task.text_columns)
        if texts and len(texts[0]) != width:
            raise InputError(
                f"X has {_number(len(texts[0]))} a row, but {type(self).__name__} was fitted to "
                f"{_number(width)}"
            )
        items = [Example(item, None, Index(row)) for row, item in enumerate(texts)]
        columns = self.predictor_.task.text_columns
        examples: Examples[Example] = Examples(_SOURCE, columns, None, items)
        answers, features = self.predictor_.run(examples)
        unknown = UnknownText(self.predictor_.tokenizer)
        unknown.count(features, texts)
        for note in (*self.predictor_.task.notes(features), *unknown.lines_for_answers()):
            logger.warning(f"{_SOURCE}: {note}")
        return answers

    def _texts(self, X: Any) -> list[tuple[str, ...]]:
        """Convert `X` to texts, one or two per row.

        Raises:
            InputError: `X` is not texts.
        """
        return texts_of(X)

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and, if fitted, the files of the model directory as bytes: only
        formats that later versions of PyTorch can read."""
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
            logger.warning(f"{error}; the estimator computes on what there is")
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


def hinting(estimator: type[Estimator]) -> type[Estimator]:
    """Suggest the nearest parameter if an unknown one is given: scikit-learn's names often differ
    from those of `finetune`."""
    init = estimator.__init__

    @functools.wraps(init)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        known = [parameter.name for parameter in fields(self) if parameter.init]
        for name in named.keys() - {*known}:
            near = difflib.get_close_matches(name, known, n=1)
            kind = type(self).__name__
            hint = f"did you mean {near[0]!r}?" if near else f"help({kind}) lists them"
            raise TypeError(f"{kind} has no parameter {name!r}; {hint}")
        init(self, *given, **named)

    estimator.__init__ = checked  # type: ignore[method-assign]
    return estimator


def _number(texts: int) -> str:
    return "one text" if texts == 1 else f"{texts} texts"


def _files_of(predictor: Predictor, folder: Path) -> dict[str, bytes]:
    """Return the files of the model directory in which `predictor` is saved."""
    save_model(folder, predictor.model, predictor.tokenizer, task=predictor.task.task_info())
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# Classifier of texts for scikit-learn.
#
# >>> from bertine import BertClassifier
# >>> classifier = BertClassifier("my-model").fit(texts, labels)
# >>> classifier.predict(["what an evening"])


@hinting
@dataclass(kw_only=True, eq=False, repr=False)
class BertClassifier(ClassifierMixin, BertEstimator):
    """A classifier of texts, or of pairs of texts, by fine-tuning a BERT (Devlin et al. 2018,
    section 4.1).

    Args:
        model: the pre-trained model to start from; None: as for :func:`bertine.finetune`.
        epochs: passes over the texts; None: more passes over fewer texts.
        batch_size: texts per step; None: 16, or 32 with more than 4,000 texts.
        learning_rate: the peak of the schedule; None: by the width of the model.
        max_length: most pieces of an input, special tokens included; longer ones are cut, with a
            warning.
        schedule, warmup_ratio, weight_decay, layer_decay: see :func:`bertine.finetune`.
        freeze_layers, freeze_embeddings, dropout, long_text: see :func:`bertine.finetune`.
        class_weights: ``"balanced"``: every class has the same total weight in the loss;
            a dictionary: the weight of each class's texts, 1 for missing classes; None: all texts
            have the same weight.
        focal_gamma: gamma of the focal loss: confident correct predictions count less; 0:
            cross-entropy.
        few_shot: learn like :func:`bertine.few_shot`, from a few labels of each class; of the other
            training parameters only `batch_size` and `learning_rate` apply (None: by the width of
            the model and the number of texts).
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
        precision: ``"auto"``, ``"fp32"`` or ``"bf16"``. ``"auto"`` trains in bf16 where that is
            measured to be clearly faster, and predicts on a CPU in bf16 or 8 bits if that is
            faster and a check at loading finds the outputs close to fp32;
            ``predictor_.precision_check`` has the result.
        random_state: seed of the new head, the order and dropout: the same number gives the same
            weights. None: a different one each time.
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

    def _trained(self, labelled: DatasetSplits, out: Path | str) -> Learner:
        if not self.few_shot:
            return super()._trained(labelled, out)
        given = shared_values(FewShotOptions, self, but=_OF_TASK)
        defaults = {entry.name: entry.default for entry in fields(self)}
        for name, value in shared_values(TextOptions, self, but=(*given, *_OF_BOTH)).items():
            if value != defaults[name]:
                raise InputError(f"{name} is of fine-tuning, which few_shot is not; leave it out")
        return few_shot(model=self.model, data=labelled, out=out, seed=self._seed(), **given)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune on labelled texts.

        Args:
            X: N texts (a list, an array, a Series of strings), or pairs of them: [N, 2].
            y: [N], their classes: strings, whole numbers or truth values.
            sample_weight: [N], the weight of each text in the loss: weight 2 equals two copies,
                weight 0 leaves the text out; None: all equal.

        Raises:
            InputError: not texts; another number of labels or weights than texts; a label that is
                missing (None, NaN); labels of several types; fewer than two classes; a weight that
                is negative or not finite, or belongs to an unknown class; weights of texts
                with `few_shot`.
            BertineError: an error of :func:`bertine.finetune`.
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
        class_weights: Any = self.class_weights
        by_label = isinstance(class_weights, Mapping)
        DataConfig(class_weights=None if by_label else class_weights, focal_gamma=self.focal_gamma)
        if by_label:
            by_class = _weights_of(classes.tolist(), class_weights)
            shares = weights / weights[weights > 0].mean()
            total = sum((shares * np.array(by_class)[ids])[weights > 0].tolist())
            if not total:
                raise InputError(
                    "every text has the weight 0, by class_weights or sample_weight; give one more"
                )
            count = int(np.count_nonzero(weights))
            class_weights = tuple(weight * count / total for weight in by_class)
        self._fit(
            texts,
            [names[number] for number in ids.tolist()],
            weights,
            labels=names,
            class_weights=class_weights,
            focal_gamma=self.focal_gamma,
        )
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
        InputError: there is no such class, or a weight is negative or not a finite number.
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


# Regressor of texts for scikit-learn.


@hinting
class BertRegressor(RegressorMixin, BertEstimator):
    """A regressor of texts, or of pairs of texts, by fine-tuning a BERT (Devlin et al. 2018,
    section 4.1). Scores are standardized for training, so their scale has no effect.

    The arguments and attributes are those of :class:`BertClassifier`, without classes and their
    weights.
    """

    _task = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune on texts with one number each.

        Args:
            X: N texts (a list, an array, a Series of strings), or pairs of them: [N, 2].
            y: [N], finite numbers.
            sample_weight: see :meth:`BertClassifier.fit`.

        Raises:
            InputError: not texts, another number of scores or weights, one that is not a finite
                number, a negative weight, or scores that are all equal.
            BertineError: an error of :func:`bertine.finetune`.
        """
        texts, y, weights = self._checked(X, y, sample_weight)
        try:
            scores = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"y must be numbers: {error}") from error
        some = scores[weights > 0]
        if np.ptp(some) == 0:
            raise InputError(f"all of y is {some[0]:g}; there is nothing to learn")

        self._fit(texts, [repr(score) for score in scores.tolist()], weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the number of each text: fp64 [N].

        Raises:
            NotFittedError: `fit` has not been called.
            InputError: `X` is not texts like those of `fit`.
        """
        return np.array([answer.score for answer in self._answers(X)], dtype=np.float64)


# A pickle names a class by its module. Earlier versions had the classes in modules of their own.
sys.modules.update(
    {f"{__name__}.{name}": sys.modules[__name__] for name in ("classifier", "regressor")}
)
