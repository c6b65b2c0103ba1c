"""Fine-tuning as scikit-learn knows it: what the estimators have in common.

They can be cloned, searched over, put at the end of a pipeline and pickled. What they do is
``bertine finetune`` with the same names and numbers, in memory.
"""

from __future__ import annotations

import difflib
import functools
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bertine.datasets.data_look import names_of_labels
from bertine.datasets.labelled import Labelled
from bertine.errors import BertineError
from bertine.estimators.texts import InputError, labels_of, texts_of, weights_of
from bertine.inference.predictor import Predictor
from bertine.modeldir import save_model
from bertine.models.precision import resolve_device
from bertine.names import LongText, Precision, ScheduleName, TaskName
from bertine.options.fields import MOST
from bertine.options.verbs import keeping_generators
from bertine.records.examples import Example, Examples
from bertine.tasks import task_class
from bertine.tasks.options import TableOptions
from bertine.tasks.unknown_text import UnknownText
from bertine.terminal.console import quietly, warn
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.learner import Learner

#: The columns of an estimator's examples: one text, or two.
_COLUMNS = ("text", "text_pair")
LABEL = "label"
#: What messages call the examples: scikit-learn's name of them.
_SOURCE = "X"
_FOLDER = "model"
#: Parameters that `finetune` is given as they are.
_OF_FINETUNE = (
    *("model", "epochs", "batch_size", "max_length", "learning_rate", "warmup_ratio", "schedule"),
    *("layer_decay", "freeze_layers", "freeze_embeddings", "weight_decay", "dropout", "device"),
    "precision",
)
#: Steps: a run that is thrown away is not resumed.
_NEVER = MOST

#: New weights and dropout come from streams that a process has once: of fits in several threads
#: (joblib's "threading") each waits for its turn, and gives what it gives by itself.
_one_at_a_time = threading.Lock()


Estimator = TypeVar("Estimator", bound="BertEstimator")


@dataclass(kw_only=True, eq=False, repr=False)
class BertEstimator(BaseEstimator):
    """The base of classifier and regressor; see there.

    The parameters are attributes under their names, as scikit-learn asks for.
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
        labels: Sequence[str],
        weights: np.ndarray,
        build: Any,
    ) -> None:
        """Fine-tune on N texts with their labels; those with the weight 0 are left out.

        Args:
            texts: of one or two strings each.
            labels: N, as a file has them.
            weights: fp64 [N]; only how they relate to each other matters.
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
            LABEL,
            [
                Example(texts[row], labels[row], row + 1, weight=weight)
                for row, weight in enumerate((weights / weights[weights > 0].mean()).tolist())
                if weight
            ],
        )
        for note in names_of_labels(task_class(self._task), train):
            warn(note)
        none: Examples[Example] = Examples(_SOURCE, columns, LABEL)
        labelled = Labelled(lambda longest: build(train, longest), train, none)
        temporary = tempfile.TemporaryDirectory(prefix="bertine-fit-")
        quiet, kept = quietly(not self.verbose), keeping_generators()
        with temporary as folder, quiet, kept, _one_at_a_time:
            result = self._trained(labelled, Path(folder) / "run" if self.out is None else self.out)
            self.predictor_ = Predictor.load(result.model, self.device, self.precision)

    def _trained(self, labelled: Labelled, out: Path | str) -> Learner:
        """Fine-tune on `labelled` texts, in the folder `out`."""
        return finetune(
            self._task,
            data=labelled,
            out=out,
            **{name: getattr(self, name) for name in _OF_FINETUNE},
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
        unknown = UnknownText(self.predictor_.tokenizer)
        unknown.count(features, texts)
        for note in (*self.predictor_.task.notes(features), *unknown.lines_for_answers()):
            warn(f"{_SOURCE}: {note}")
        return answers

    def _texts(self, X: Any) -> list[tuple[str, ...]]:
        """Return the texts of `X`, one or two a row.

        Raises:
            InputError: `X` is not texts.
        """
        return texts_of(X)

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters, and of a fitted estimator the files of its model directory as
        bytes: nothing that a later version of PyTorch could not read."""
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


def hinting(estimator: type[Estimator]) -> type[Estimator]:
    """Name the nearest parameter where an unknown one is given: scikit-learn's are not all called
    as `finetune` calls them."""
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
    """Return the files of the model directory that `predictor` is saved as."""
    save_model(folder, predictor.model, predictor.tokenizer, task=predictor.task.task_info())
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
