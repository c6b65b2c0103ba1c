"""Measure how the quality of several training methods depends on the number of labels.

The verb is ``learning_curve``.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from bertine.core.console import human_time, logger, plural, quietly
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import write_json
from bertine.core.names import CurveWay, option
from bertine.core.rng import generator
from bertine.core.text import briefly
from bertine.data.examples import Examples
from bertine.data.in_memory import Data, TableLike, as_data
from bertine.data.languages import model_for
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import has_validation, read_labelled
from bertine.hub.model_directory import load_config, load_model
from bertine.inference.baselines.texts import (
    Answers,
    FrozenEncoder,
    frozen_vectors,
    ngrams,
    pooling_of,
)
from bertine.inference.train_overlap import overlap_notes, rows_known_by
from bertine.models.precision import resolve_device
from bertine.options.data import DataConfig
from bertine.options.experiments import LearningCurveOptions
from bertine.options.verbs import takes_options
from bertine.tasks.metrics import official_score
from bertine.training.finetuning.finetune import few_shot, finetune
from bertine.training.finetuning.setup import fitting
from bertine.training.job_folder import JobFolder
from bertine.training.learning_curve.result import CURVE, PAGE, Cell, LearningCurve, curve_page

# Draws: the numbers of labels of the points of a curve, and the examples of each draw.

#: A number of labels is left out if the number of all labels is less than this many times as large.
_APART = 1.3


def sizes_of_curve(
    labels: Sequence[Sequence[str]], least: int, growth: float, most: int | None, seed: int = 0
) -> list[int | None]:
    """Return the numbers of labels of each class, ascending.

    Args:
        labels: of each example.
        least: the first number.
        growth: the factor from one to the next.
        most: examples in the largest draw; None: all.
        seed: of the draws.

    Returns:
        The numbers; None at the end: all examples, if `most` allows it.
    """
    sizes: list[int | None] = []
    counts = Counter(name for item in labels for name in item)
    limit = len(labels) if most is None else min(most, len(labels))
    size = float(least)
    while True:
        item = round(size)
        total = len(draw_examples(labels, item, seed, 0))
        enough = item >= max(counts.values(), default=0)
        if enough or total * (_APART if limit == len(labels) else 1.0) > limit:
            break
        if item not in sizes:
            sizes.append(item)
        size *= growth
    return sizes if limit < len(labels) else [*sizes, None]


def draw_examples(
    labels: Sequence[Sequence[str]],
    size: int | None,
    seed: int,
    number: int,
    most: int | None = None,
) -> list[int]:
    """Draw examples until each label has `size` of them, or all that exist; or until there are
    `most`, because with several labels an example one draw needs more examples than another.

    A larger draw of the same seed and number contains all examples of the smaller ones.

    Returns:
        Their indices, ascending.
    """
    if size is None:
        return list(range(len(labels)))
    counts: Counter[str] = Counter()
    chosen: list[int] = []
    order = generator(seed, "draws of a learning curve", number).permutation(len(labels))
    for at in order.tolist():
        if len(chosen) == most:
            break
        if any(counts[name] < size for name in labels[at]):
            counts.update(labels[at])
            chosen.append(at)
    return sorted(chosen)


# Ways: how each method is trained on a draw, and how it predicts.

#: The ways, the cheapest first.
WAYS: tuple[CurveWay, ...] = ("tf-idf", "frozen", "few-shot", "finetune")


class Trainer:
    """The trainer of all ways of a curve.

    Args:
        model: the model directory to start from.
        labelled: all training examples, and the task that they describe.
        options: of the curve.
    """

    def __init__(
        self, model: Path | str, labelled: DatasetSplits, options: LearningCurveOptions
    ) -> None:
        self._model, self._labelled, self._name = model, labelled, options.task
        names = ("max_length", "device", "precision")
        self._given = {name: getattr(options, name) for name in names}
        wanted = labelled.max_length if options.max_length is None else options.max_length
        self.max_length = fitting(wanted, model, load_config(model))
        self.task = labelled.make_task(self.max_length)

    @cached_property
    def _encoder(self) -> FrozenEncoder:
        loaded = load_model(self._model, heads={})
        loaded.model.to(resolve_device(self._given["device"]))
        return FrozenEncoder(
            loaded.model, loaded.tokenizer, self.max_length, pooling_of(self._model)
        )

    def train(
        self, way: CurveWay, train: Examples[Any], out: Path, seed: int
    ) -> tuple[Answers, float]:
        """Train a method on a draw; `out` is the folder of a run, for the ways that have one.
        Labels are weighted by their frequency in the draw, not in the file.

        Returns:
            A function that answers examples; the seconds of training.
        """
        data = replace(
            self._labelled,
            train=train,
            validation=replace(train, items=[]),
            others={},
            settings={**self._labelled.settings, "labels": self.task.labels},
        )
        task = data.make_task(self.max_length)
        if way == "tf-idf":
            return _timed(lambda: ngrams(task, train, weighted=True))
        if way == "frozen":
            encoder = self._encoder
            return _timed(lambda: frozen_vectors(task, train, encoder, weighted=True))
        arguments: dict[str, Any] = {
            "model": self._model,
            "data": data,
            "out": out,
            "seed": seed,
            **self._given,
        }
        if way == "few-shot":
            learner = few_shot(task=self._name, **arguments)
        else:
            learner = finetune(self._name, **arguments, baselines=False, frozen=False)
        predictor = learner.predictor  # loaded now
        return lambda examples: predictor.run(examples)[0], learner.elapsed


def _timed(fit: Callable[[], Answers]) -> tuple[Answers, float]:
    """Fit a linear model in one thread, which is the fastest, and measure the time."""
    began = time.perf_counter()
    with threadpool_limits(1, user_api="blas"):
        answer = fit()
    return answer, time.perf_counter() - began


#: Options that may change when a curve is resumed: existing cells are kept, and more are trained.
_FREE = frozenset({"resume", "methods", "repeats", "max_labels", "device"})
_JOB = JobFolder("learning curve", CURVE)


@takes_options()
def learning_curve(
    *,
    model: Path | str | None = None,
    data: Path | str | TableLike,
    out: Path | str,
    options: LearningCurveOptions,
) -> LearningCurve:
    """Measure the scores from few labels to all, in four ways with several draws each: tf-idf with
    logistic regression, the model's vectors with logistic regression, ``few_shot``, ``finetune``.

    Args:
        model: as for :func:`bertine.finetune`.
        data: labelled texts, or pairs of texts, as for :func:`bertine.finetune`.
        out: the folder of the curve: ``learning-curve.json``, and ``learning-curve.html`` with the
            plot. Each cell is written as soon as it is trained and evaluated, so that a curve that
            was stopped can be resumed.
        options: the values of the other arguments.

    Returns:
        The curve, with the recommended method and the expected gain of twice as many labels.

    Raises:
        BertineError: what reading the data raises; too few labels for one point; a model that
            cannot be trained; `out` holds something else, a curve that is not to be resumed, or one
            with other settings.
    """
    if launched():
        raise BertineError("learning-curve trains in one process; start it without torchrun")
    data = as_data(data)
    if model is None:
        model = model_for(_split(data, options, frozenset()).train.items)
    known = rows_known_by(model)
    labelled = _split(data, options, known)
    curve = _Curve(Trainer(model, labelled, options), labelled, Path(out).absolute(), options)
    curve.result.notes = overlap_notes(labelled.train.items, labelled.validation.items, known)
    settings = {
        "examples_fingerprint": labelled.train.fingerprint(),
        "test_examples_fingerprint": labelled.validation.fingerprint(),
        "weights_fingerprint": load_model(model, heads={}).model.fingerprint(),
        **{name: value for name, value in options.changed().items() if name not in _FREE},
    }
    with _JOB.open(curve.out, settings, options.resume) as table:
        curve.train(settings, table)
        curve_page(curve.result).write(curve.out / PAGE)
        return curve.result


def _split(data: Data, options: LearningCurveOptions, known: frozenset[int]) -> DatasetSplits:
    """Read training and test examples; if there is no file of test examples, some that are not
    `known` are held out."""
    config = DataConfig.of(options, DataConfig(whole=True))
    labelled = read_labelled(options.task, data, config)
    train, test = labelled.train, labelled.validation
    if not has_validation(options.task, data, config):
        stratify = len({item.label for item in train.items}) < len(train)
        train, test = train.hold_out(
            options.test_share, options.seed, stratify=stratify, known=known
        )
    if len(test) > options.most_tested:
        order = generator(options.seed, "test examples").permutation(len(test))
        chosen = sorted(order[: options.most_tested].tolist())
        logger.info(f"{test.source}: judged on {len(chosen):,} of {len(test):,} examples")
        test = replace(test, items=[test.items[at] for at in chosen])
    return replace(labelled, train=train, validation=test, others={})


class _Curve:
    """A curve in progress.

    Attributes:
        result: the current result.
    """

    def __init__(
        self, trainer: Trainer, labelled: DatasetSplits, out: Path, options: LearningCurveOptions
    ) -> None:
        self._trainer, self._options, self.out = trainer, options, out
        self.train_examples, self.test = labelled.train, labelled.validation
        task = trainer.task
        self._labels = [task.names_in(item.label) for item in self.train_examples.items]
        self._sizes = sizes_of_curve(
            self._labels,
            options.min_labels,
            options.growth_factor,
            options.max_labels,
            options.seed,
        )
        self._ways = self._wanted(task)
        if not self._sizes:
            raise BertineError(
                f"{self.train_examples.source}: {options.min_labels} labels of each class are more "
                f"than {option('max_labels')} allows; choose a smaller {option('min_labels')}"
            )
        names = task.task_info().metrics or (task.primary_metric,)
        source = self.train_examples.source
        self.result = LearningCurve([], tuple(names), len(self.test), source, out)

    def _wanted(self, task: Any) -> list[CurveWay]:
        """Return the requested ways, the cheapest first; without few-shot if a label has too few
        examples for it."""
        given = self._options.methods
        asked = WAYS if given is None else (given,) if isinstance(given, str) else tuple(given)
        for way in asked:
            if way not in WAYS:
                raise BertineError(
                    f"{option('methods')} {briefly(way)} is not known; choose {', '.join(WAYS)}"
                )
        ways = [way for way in WAYS if way in asked]
        counts = Counter(name for item in self._labels for name in item)
        rare = [label for label in task.labels if counts[label] < 2]
        if rare and "few-shot" in ways:
            ways.remove("few-shot")
            logger.warning(
                f"few-shot is left out: the label {briefly(rare[0])} has fewer than 2 training "
                "examples"
            )
        if not ways:
            raise BertineError("no way is left to learn by")
        return ways

    @property
    def _run(self) -> Path:
        return self.out / "run"

    def _plan(self) -> list[tuple[int | None, int, CurveWay]]:
        """Return the cells of the curve, the smallest first, so that there are results soon. With
        all examples there is only one draw, because all would be equal."""
        return [
            (size, draw, way)
            for size in self._sizes
            for draw in range(1 if size is None else self._options.repeats)
            for way in self._ways
        ]

    def train(self, settings: dict[str, Any], table: dict[str, Any]) -> None:
        """Train and evaluate the cells that are missing in the `table` of an earlier process."""
        file, result = self.out / CURVE, self.result
        shutil.rmtree(self._run, ignore_errors=True)  # of a process that was killed
        try:
            result.cells = [Cell.from_dict(values) for values in table.get("cells", ())]
        except (KeyError, TypeError, ValueError) as error:
            raise BertineError(
                f"{file}: is damaged ({error!r}); choose another folder for the curve"
            ) from error
        known = {(cell.size, cell.draw, cell.way) for cell in result.cells}
        plan = self._plan()
        waiting = [cell for cell in plan if cell not in known]
        logger.info(
            f"{plural(len(self.train_examples), 'training example')}, "
            f"{plural(len(self.test), 'test example')}; {plural(len(plan), 'model')} to train"
            + (f", {len(plan) - len(waiting)} there already" if len(waiting) < len(plan) else "")
        )
        for number, (size, draw, way) in enumerate(waiting, start=1):
            cell = self._cell(size, draw, way)
            result.cells.append(cell)
            write_json(file, {"settings": settings, **result.to_dict()})
            logger.info(
                f"{number} of {len(waiting)}: {way} with {cell.num_labels:,} labels: "
                f"{cell.score:.1%} ({human_time(cell.train_seconds)})"
            )
        write_json(file, {"settings": settings, **result.to_dict()})

    def _cell(self, size: int | None, draw: int, way: CurveWay) -> Cell:
        chosen = draw_examples(
            self._labels, size, self._options.seed, draw, self._options.max_labels
        )
        train: Examples[Any] = self.train_examples
        train = replace(train, items=[train.items[at] for at in chosen])
        try:
            with quietly():
                answer, trained = self._trainer.train(
                    way, train, self._run, self._options.seed + draw
                )
                began = time.perf_counter()
                answers: Sequence[Any] = answer(self.test)
                seconds = time.perf_counter() - began
        finally:
            shutil.rmtree(self._run, ignore_errors=True)
        metrics = self._trainer.task.judge(answers, self.test).metrics
        score = official_score(metrics, self.result.metric_names)
        return Cell(way, size, draw, len(train), score, metrics, trained, seconds)
