"""The ways of a learning curve: how each is trained on a draw, and how it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from threadpoolctl import threadpool_limits

from bertine.datasets.reading import Labelled
from bertine.inference.baselines.frozen import FrozenEncoder, pooling_of
from bertine.inference.baselines.texts import Answers, frozen_vectors, ngrams
from bertine.modeldir import load_config, load_model
from bertine.models.precision import resolve_device
from bertine.names import CurveWay
from bertine.records.examples import Examples
from bertine.training.few_shot.few_shot import few_shot
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.setup import fitting

#: The cheapest first.
WAYS: tuple[CurveWay, ...] = ("tf-idf", "frozen", "few-shot", "finetune")


@dataclass(frozen=True)
class Trained:
    """A way that has learned from a draw.

    Attributes:
        answer: answers examples with the task's predictions.
        seconds: that training took.
    """

    answer: Answers
    seconds: float


class Trainer:
    """Trains the ways of a curve.

    Args:
        model: the model directory to start from.
        labelled: all training examples, and the task that they describe.
        task: its name.
        max_length: of an input, in pieces; None: as usual.
        device, precision: to compute on and in.
    """

    def __init__(
        self,
        model: Path | str,
        labelled: Labelled,
        task: Any,
        *,
        max_length: int | None,
        device: str | None,
        precision: Any,
    ) -> None:
        self._model, self._labelled, self._name = model, labelled, task
        self._given = {"max_length": max_length, "device": device, "precision": precision}
        wanted = labelled.max_length if max_length is None else max_length
        self.max_length = fitting(wanted, model, load_config(model))
        self.task: Any = labelled.build(self.max_length)

    @cached_property
    def _encoder(self) -> FrozenEncoder:
        loaded = load_model(self._model, heads={})
        loaded.model.to(resolve_device(self._given["device"]))
        return FrozenEncoder(
            loaded.model, loaded.tokenizer, self.max_length, pooling_of(self._model)
        )

    def train(self, way: CurveWay, train: Examples[Any], out: Path, seed: int) -> Trained:
        """Train a way on a draw; `out` is the folder of a run, for the ways that have one. Labels
        are weighed by how often they are in the draw, not in the file."""
        task = self.task.weighed_by(train)
        if way == "tf-idf":
            return _timed(lambda: ngrams(task, train, weighted=True))
        if way == "frozen":
            encoder = self._encoder
            return _timed(lambda: frozen_vectors(task, train, encoder, weighted=True))
        build = self._labelled.build
        data = replace(
            self._labelled,
            build=lambda max_length: cast(Any, build(max_length)).weighed_by(train),
            train=train,
            validation=replace(train, items=[]),
            others={},
        )
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
        return Trained(_answers_of(learner), learner.elapsed)


def _answers_of(learner: Learner) -> Answers:
    """Return what answers examples with the model of a run, which is loaded now."""
    predictor = learner.predictor
    return lambda examples: predictor.run(examples)[0]


def _timed(fit: Callable[[], Answers]) -> Trained:
    """Fit a linear model, in one thread, which is the fastest, and take its time."""
    began = time.perf_counter()
    with threadpool_limits(1, user_api="blas"):
        answer = fit()
    return Trained(answer, time.perf_counter() - began)
