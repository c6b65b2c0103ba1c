"""The contrastive training of a run's encoder: its batches, its length, its rate."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

from bertine.inference.baselines.frozen import pooling_of
from bertine.models.config import Config
from bertine.scores import exact_rate
from bertine.tasks.base import Task
from bertine.terminal.console import counted, say
from bertine.training.few_shot.batches import LabelBatches
from bertine.training.few_shot.contrast import Contrast, ContrastiveLoss, labels_of
from bertine.training.few_shot.pairs import count_pairs
from bertine.training.loop.fit import FitConfig, fit
from bertine.training.loop.schedule import warmup
from bertine.training.run import Run

if TYPE_CHECKING:
    from bertine.training.finetuning.setup import Prepared

#: Texts in a batch.
BATCH_SIZE = 32
#: Batches: at least, at most, and between these so many passes over the examples.
LEAST_STEPS, MOST_STEPS, PASSES = 30, 500, 20
#: The rate of models 384 wide; of others by the inverse square of the width, and never higher than
#: the second number.
_RATE, _HIGHEST_RATE, _WIDTH = 2e-5, 1e-4, 384
#: That is for so many examples or fewer. For more it grows with their number, so many times at
#: most, and never beyond the third number: at a high rate the vectors forget what they knew, which
#: costs more than is gained with 32 examples, and less with 300 (``docs/results.md``, "A few labels
#: of each class").
_FEW, _MOST_TIMES, _HIGHEST_OF_MANY = 32, 10, 5e-4
#: The penalty of the head (scikit-learn's C) on vectors of length 1, and on what is compared of
#: pairs, each number of which is scaled. Cross-validation cannot choose it: the encoder has seen
#: the examples that are left out.
_STRENGTH, _STRENGTH_OF_PAIRS = 30.0, 1e-2
_CHECKPOINT_EVERY = 100


def steps_for(num_examples: int, batch_size: int) -> int:
    """Return the number of batches for so many examples."""
    steps = round(PASSES * num_examples / batch_size)
    return min(MOST_STEPS, max(LEAST_STEPS, steps))


def contrast_rate(config: Config, num_examples: int) -> float:
    """Return the highest learning rate for a model of this width and so many examples, with one
    significant digit."""
    times = min(_MOST_TIMES, max(1.0, num_examples / _FEW))
    rate = min(_HIGHEST_RATE, _RATE * (_WIDTH / config.hidden_size) ** 2)
    return float(f"{min(_HIGHEST_OF_MANY, times * rate):.0e}")


def plan_contrast(
    prepared: Prepared,
    *,
    steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
) -> Contrast:
    """Return how the encoder of a run is trained, by rule where nothing is said, and print it with
    the number of possible pairs."""
    task: Any = prepared.task
    size = batch_size or BATCH_SIZE
    count = len(prepared.train.features)
    contrast = Contrast(
        steps=steps or steps_for(count, size),
        batch_size=size,
        learning_rate=contrast_rate(prepared.loaded.config, count)
        if learning_rate is None
        else learning_rate,
        pooling=pooling_of(prepared.start.model),
    )
    say(count_pairs(labels_of(prepared.train.features, len(task.labels))).line())
    say(
        f"contrastive training: {counted(contrast.steps, 'step')} with up to "
        f"{counted(size, 'text')} each, learning rate {exact_rate(contrast.learning_rate)}"
    )
    return contrast


def config_of(contrast: Contrast, config: FitConfig) -> FitConfig:
    """Return how the contrastive loss is minimized, from how the run's would be."""
    every = config.checkpoint_every
    return dataclasses.replace(
        config,
        steps=contrast.steps,
        learning_rate=contrast.learning_rate,
        warmup_steps=warmup(contrast.steps, None, 0.1),
        checkpoint_every=_CHECKPOINT_EVERY if every is None else every,
    )


def strengths_after(task: Task[Any]) -> tuple[float, ...]:
    """Return the penalty of the head on an encoder that was trained on the same examples."""
    return (_STRENGTH_OF_PAIRS if task.takes_pairs else _STRENGTH,)


def train_encoder(prepared: Prepared, config: FitConfig, run: Run) -> None:
    """Train the encoder of `prepared` in place, or go on with it; the log and the checkpoints go to
    the folder of `run`."""
    contrast, task, loaded = prepared.contrast, prepared.task, prepared.loaded
    assert contrast is not None
    pad_id = loaded.tokenizer.pad_token_id
    features = prepared.train.features
    batches = LabelBatches(
        features,
        labels_of(features, len(cast(Any, task).labels)),
        lambda chosen: task.collate(chosen, pad_id),
        batch_size=contrast.batch_size,
        seed=config.seed,
    )
    loss = ContrastiveLoss(task, contrast)
    fit(loaded.model, loss, batches.batch, config, run, title="few-shot")
