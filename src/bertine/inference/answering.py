"""The one way from examples to answers: features, the model's outputs, predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bertine.inference.compute.running import Computing, run_batch, run_features
from bertine.records.examples import Examples
from bertine.tasks.base import Task
from bertine.tasks.features import Features
from bertine.tasks.unknown_text import with_flags
from bertine.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class PreparedExamples:
    """A set of examples and what a model reads of them.

    Attributes:
        examples: N of them.
        features: one or more of each example, in their order.
    """

    examples: Examples[Any]
    features: Sequence[Features]

    @property
    def costs(self) -> list[int]:
        """Tokens of each feature."""
        return [len(feature.input_ids) for feature in self.features]

    @property
    def pieces_cut(self) -> list[int]:
        """Pieces of each example that the model does not read."""
        cut = [0] * len(self.examples)
        for feature in self.features:
            cut[feature.row] += feature.num_truncated
        return cut


@dataclass(frozen=True)
class Answering:
    """A model with a task, which answers. Training, evaluation, prediction and the server all go
    through its three steps.

    Attributes:
        computing: the model, or an engine made of it.
        task: says what is computed and how it is decided.
        tokenizer: of the model.
        dtype: that a model computes in; an engine has its own.
        alone: whether each input is computed by itself, and its outputs have the same bits
            whatever others there are.
    """

    computing: Computing
    task: Task[Any]
    tokenizer: Tokenizer
    dtype: torch.dtype = torch.float32
    alone: bool = False

    def prepare(
        self, examples: Examples[Any], features: Sequence[Features] | None = None
    ) -> PreparedExamples:
        """Tokenize examples, unless their `features` have been made before."""
        if features is None:
            features = self.task.featurize(examples, self.tokenizer)
        return PreparedExamples(examples, features)

    def compute(
        self,
        features: Sequence[Features],
        *,
        max_tokens: int | None = None,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[np.ndarray]:
        """Compute the outputs for `features`; the arguments are those of
        :func:`~bertine.inference.compute.running.run_features`."""
        return run_features(
            self.computing,
            self.task,
            features,
            pad_id=self.tokenizer.pad_token_id,
            dtype=self.dtype,
            max_tokens=max_tokens,
            alone=self.alone,
            on_batch=on_batch,
        )

    def compute_batch(self, features: Sequence[Features]) -> list[np.ndarray]:
        """Compute the outputs for features that are one batch already."""
        pad_id = self.tokenizer.pad_token_id
        return run_batch(
            self.computing,
            self.task,
            features,
            pad_id=pad_id,
            dtype=self.dtype,
            alone=self.alone,
        )

    def finish(self, prepared: PreparedExamples, outputs: Sequence[np.ndarray]) -> list[Any]:
        """Decide: outputs for the features → the answer to each example, flagged where the
        vocabulary knows little of the text, or there is none."""
        predictions = self.task.decode(outputs, prepared.features)
        answers = self.task.answers(prepared.examples, predictions)
        texts = [item.texts for item in prepared.examples.items]
        return with_flags(answers, texts, prepared.features, self.tokenizer)

    def answer(self, examples: Examples[Any]) -> tuple[list[Any], Sequence[Features]]:
        """Prepare, compute and finish; return the answers and the features."""
        prepared = self.prepare(examples)
        return self.finish(prepared, self.compute(prepared.features)), prepared.features
