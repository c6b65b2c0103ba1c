"""The contrastive training of a run's encoder: its batches, its length, its rate."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, cast

from bertine.inference.baselines.frozen import pooling_of
from bertine.models.config import Config
from bertine.models.model import Model
from bertine.names import FewShotWeights
from bertine.scores import exact_rate
from bertine.tasks.base import Task
from bertine.terminal.console import counted, say
from bertine.training.few_shot.batches import LabelBatches
from bertine.training.few_shot.contrast import Contrast, ContrastiveLoss, labels_of
from bertine.training.few_shot.pairs import count_pairs
from bertine.training.loop.fit import FitConfig, fit
from bertine.training.loop.freezing import has_biases, only_biases_trained
from bertine.training.loop.schedule import warmup
from bertine.training.run import Run

if TYPE_CHECKING:
    from bertine.training.finetuning.setup import Prepared

#: Texts in a batch.
BATCH_SIZE = 32
#: Batches: at least, at most, and between these so many passes over the examples.
LEAST_STEPS, MOST_STEPS, PASSES = 30, 500, 20
#: From so many examples on all weights are trained; with fewer only biases and layer norms, which
#: can learn what a task is about, but not its few texts by heart (``docs/results.md``, "A few
#: labels of each class").
_MANY = 256
#: The rates of models 384 wide. That of biases and layer norms grows from the first number, with so
#: many examples or fewer, to the second; of wider models it is lower by the inverse of the width.
_FEW = 32
_RATE_OF_BIASES, _HIGHEST_OF_BIASES = 2e-3, 5e-3
#: That of all weights grows with the number of examples as well, so many times at most. For models
#: of other widths it changes by the inverse square, but is never above the third number for few
#: examples and the fourth for many. At a high rate the vectors forget what they knew, which costs
#: more than is gained with 32 examples, and less with 300.
_WIDTH, _RATE_OF_ALL, _HIGHEST_OF_ALL, _HIGHEST_OF_MANY, _MOST_TIMES = 384, 2e-5, 1e-4, 5e-4, 10
#: The penalty of the head (scikit-learn's C) on vectors of length 1, and on what is compared of
#: pairs, each number of which is scaled. Cross-validation cannot choose it: the encoder has seen
#: the examples that are left out.
_STRENGTH, _STRENGTH_OF_PAIRS = 30.0, 1e-2
_CHECKPOINT_EVERY = 100
_WORDS = {"biases": "biases and layer norms", "all": "all weights"}


def steps_for(num_examples: int, batch_size: int) -> int:
    """Return the number of batches for so many examples."""
    steps = round(PASSES * num_examples / batch_size)
    return min(MOST_STEPS, max(LEAST_STEPS, steps))


def weights_for(model: Model, num_examples: int, *, pairs: bool = False) -> FewShotWeights:
    """Return which weights of a model are trained on so many examples: all, too, where its layers
    have no biases, and of pairs of texts, which little is gained from anyway."""
    few = num_examples < _MANY
    return "biases" if few and not pairs and has_biases(model) else "all"


def contrast_rate(config: Config, num_examples: int, trained: FewShotWeights) -> float:
    """Return the highest learning rate for a model of this width, so many examples and the weights
    that are trained, with one significant digit."""
    times = max(1.0, num_examples / _FEW)
    if trained == "biases":
        rate = min(_HIGHEST_OF_BIASES, times * _RATE_OF_BIASES)
        rate *= min(1.0, _WIDTH / config.hidden_size)
    else:
        rate = min(_HIGHEST_OF_ALL, _RATE_OF_ALL * (_WIDTH / config.hidden_size) ** 2)
        rate = min(_HIGHEST_OF_MANY, min(_MOST_TIMES, times) * rate)
    return float(f"{rate:.0e}")


def plan_contrast(
    prepared: Prepared,
    *,
    steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    trained_weights: FewShotWeights | None = None,
) -> Contrast:
    """Return how the encoder of a run is trained, by rule where nothing is said, and print it with
    the number of possible pairs."""
    task: Any = prepared.task
    model = prepared.loaded.model
    size = batch_size or BATCH_SIZE
    count = len(prepared.train.features)
    trained = trained_weights or weights_for(model, count, pairs=task.takes_pairs)
    contrast = Contrast(
        steps=steps or steps_for(count, size),
        batch_size=size,
        learning_rate=contrast_rate(prepared.loaded.config, count, trained)
        if learning_rate is None
        else learning_rate,
        trained_weights=trained,
        pooling=pooling_of(prepared.start.model),
    )
    say(count_pairs(labels_of(prepared.train.features, len(task.labels))).line())
    say(
        f"contrastive training of {_WORDS[trained]}: {counted(contrast.steps, 'step')} with up to "
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


def facts_of(contrast: Contrast, prepared: Prepared) -> dict[str, Any]:
    """Return what the diagnosis of a run's report must know of contrastive training."""
    count = len(prepared.train.features)
    return {
        "verb": "few-shot",
        "usual_learning_rate": contrast_rate(
            prepared.loaded.config, count, contrast.trained_weights
        ),
        "usual_rate_factor": _RATE_OF_BIASES / _RATE_OF_ALL
        if contrast.trained_weights == "biases"
        else 1.0,
    }


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
    some = contrast.trained_weights == "biases"
    with only_biases_trained(loaded.model) if some else contextlib.nullcontext():
        fit(loaded.model, loss, batches.batch, config, run, title="few-shot")
