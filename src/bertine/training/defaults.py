"""Resolve what the options of a training leave open: rate, length, batches, warm-up, checkpoints.

What the user gives goes first, then the recipe of the model's paper, if that is asked for, then the
rules here, by the number of examples and the size of the model. The result is a
:class:`~bertine.training.fit.FitConfig` without open values, which ``run.json`` records. Precision
and threads are measured: :mod:`bertine.training.computing`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from bertine.core.console import logger, plural
from bertine.core.names import FewShotWeights, OptimizerName, Precision, option
from bertine.core.text import exact_rate
from bertine.models.config import Config
from bertine.models.heads import Model
from bertine.models.pooling import Pooling
from bertine.options.finetuning import FewShotOptions, FinetuneOptions, PaperRecipe, paper_recipe
from bertine.options.pretraining import PretrainOptions
from bertine.options.training import USUAL_RATE, Updates
from bertine.options.vectors import SimilarityOptions
from bertine.tasks.base import Task
from bertine.training.fit import FitConfig
from bertine.training.schedules import WARMUP_RATIO, warmup
from bertine.training.step import has_biases


def fit_config(
    options: Updates, steps: int, learning_rate: float, precision: Precision, **others: Any
) -> FitConfig:
    """Return the settings of a training loop.

    Args:
        options: of a verb.
        steps, learning_rate, precision: resolved.
        others: further resolved values; `warmup_ratio` and `checkpoint_every` are used only if the
            options leave them open.

    Raises:
        BertineError: a value is out of range.
    """
    given = options.values()
    ratios = (given.get("warmup_ratio"), others.pop("warmup_ratio", None))
    usual = WARMUP_RATIO[options.schedule]
    ratio = next((share for share in ratios if share is not None), usual)
    resolved = {
        "warmup_steps": warmup(steps, given.get("warmup_steps"), ratio),
        "budget_seconds": None,
        "workers": given.get("workers", 0),
        "compile": None,
        **others,
        "checkpoint_every": given["checkpoint_every"] or others.get("checkpoint_every"),
    }
    return FitConfig.of(
        options, steps=steps, learning_rate=learning_rate, precision=precision, **resolved
    )


# Pre-training.

#: The number of evaluations of a run.
_EVALUATIONS = 20
#: The highest rate with AdamW.
_ADAMW_RATE = 1e-4


def pretraining_config(
    options: PretrainOptions, steps: int, workers: int, device: torch.device, precision: Precision
) -> tuple[FitConfig, int]:
    """Return the settings of the training loop for `steps` steps, and the steps between
    evaluations; warn if the rate rises for most of the steps."""
    rate = options.learning_rate
    config = fit_config(
        options,
        steps,
        _ADAMW_RATE * USUAL_RATE[options.optimizer] if rate is None else rate,
        precision,
        budget_seconds=None if options.hours is None else 3600 * options.hours,
        workers=workers,
        compile=options.compile if device.type == "cuda" else None,
    )
    if config.warmup_steps > steps / 2:
        logger.warning(
            f"the learning rate rises for {config.warmup_steps:,} of {steps:,} steps"
            + (", so it never comes to its height" if config.warmup_steps >= steps else "")
            + f"; 1% to 10% are usual, {option('warmup_steps')} says how many"
        )
    return config, options.evaluate_every or max(1, steps // _EVALUATIONS)


# Fine-tuning.
#
# The papers' recipes (:mod:`bertine.options.finetuning`) were made for BERT-base and data sets of
# thousands of examples. With a few hundred examples they do a few dozen updates, too few to learn
# anything; and small models need higher rates. The rule here follows the number of examples and the
# model's width and depth. It was measured with a model of 384 hidden units on 300 examples
# (``docs/results.md``, "Defaults"; ``benchmarks/defaults.py``); for wider ones, which were not
# available, the rate is the published practice (Devlin et al. 2018, section A.3; Mosbach et al.
# 2021, who fine-tune on little data for 20 epochs).

#: The width whose rate was measured, and that rate, for this number of layers or more. Rates fall
#: with the square of the width: 384 units have 2e-4, 768 have the paper's 5e-5, and 1,024 have
#: 3e-5. With fewer layers they rise: three layers of 384 have 4e-4 (``docs/box.md``).
_WIDTH, _RATE, _LAYERS = 384, 2e-4, 6
#: The highest rate for narrower models; models of more than two layers have at most the second
#: number divided by their number of layers. At 1e-3 models of eight layers of width 170 collapse to
#: one class, and those of four layers do sometimes (``docs/results.md``, "Defaults").
_HIGHEST_RATE, _HIGHEST_RATE_OF_LAYERS = 1e-3, 2e-3
#: The number of passes for `_MANY` examples; for fewer it grows with this power of the ratio.
_MANY, _PASSES, _POWER = 16_000, 3, 0.4
#: The most passes, for any number of examples.
_MOST_PASSES = 25
#: Up to this number of classes, the number has no influence.
FEW_CLASSES = 16
#: Up to this many examples, batches are smaller, so that there are more updates.
_FEW = 4_000


def epochs_for(num_examples: int, num_classes: int = 0) -> int:
    """Return the number of passes over `num_examples` training examples: 3 for 16,000 and more, 9
    for 1,000, 23 for 100; more if there are many classes, because each then has few examples."""
    passes = _PASSES * (_MANY / max(1, num_examples)) ** _POWER
    passes = max(_PASSES, passes) * max(1.0, num_classes / FEW_CLASSES) ** _POWER
    return min(_MOST_PASSES, round(passes))


def rate_for(config: Config) -> float:
    """Return the highest learning rate for the width and depth of a model, with one significant
    digit."""
    rate = min(
        _HIGHEST_RATE,
        _HIGHEST_RATE_OF_LAYERS / config.num_hidden_layers,
        _RATE * (_WIDTH / config.hidden_size) ** 2 * max(1.0, _LAYERS / config.num_hidden_layers),
    )
    return float(f"{rate:.0e}")


@dataclass(frozen=True)
class TrainingPlan:
    """The length of a fine-tuning run, its batch size and its rate.

    Attributes:
        epochs: passes over the training examples.
        batch_size: examples in an update.
        learning_rate: its highest value.
        save_best: whether the weights of the best epoch are saved, not those of the last; None:
            only if the best one is better by more than chance
            (:func:`bertine.core.scores.clearly_better`).
        chosen: whether epochs, batch size or rate come from the rule, not from the user or the
            paper.
        paper: the recipe of the model's paper, if that is asked for.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    save_best: bool | None
    chosen: bool
    paper: PaperRecipe | None = None

    @classmethod
    def of(
        cls, options: FinetuneOptions, config: Config, num_examples: int, task: Task[Any] | None
    ) -> TrainingPlan:
        """Return the plan for a model with the sizes of `config` and `num_examples` training
        examples of a `task`; None: a task without classes."""
        named = "" if task is None else task.task_info().dataset or task.name
        recipe = paper_recipe(config.paper_family, named) if options.paper else None
        usual = recipe or PaperRecipe(
            epochs_for(num_examples, 0 if task is None else task.num_classes),
            16 if num_examples <= _FEW else 32,
            rate_for(config),
        )
        rate = float(f"{usual.learning_rate * USUAL_RATE[options.optimizer]:.2e}")
        given = (options.epochs, options.batch_size, options.learning_rate)
        epochs, size, rate = (
            b if a is None else a
            for a, b in zip(given, (usual.epochs, usual.batch_size, rate), strict=True)
        )
        save_best = False if options.frozen else options.save_best
        if save_best is None and (options.patience is not None or options.paper):
            save_best = options.patience is not None
        chosen = not options.paper and None in given
        return cls(int(epochs), int(size), float(rate), save_best, chosen, recipe)

    def say(self, num_examples: int) -> None:
        """Print the plan, if the rule or a paper chose any of it."""
        if self.paper is not None:
            logger.info(f"as in {self.paper.source}: {self.paper}")
        elif self.chosen:
            logger.info(
                f"{plural(num_examples, 'example')}: {plural(self.epochs, 'epoch')}, batches of "
                f"{self.batch_size}, learning rate {exact_rate(self.learning_rate)} "
                f"(for the settings of the model's paper: {option('paper', True)})"
            )

    def config(
        self,
        options: FinetuneOptions,
        epoch: int,
        device: torch.device,
        precision: Precision,
        contrast: Contrast | None = None,
    ) -> FitConfig:
        """Return the settings of the training loop, with `epoch` steps in an epoch. If the head is
        fitted alone, they are those of the encoder's training before, if there is any."""
        others: dict[str, Any] = {"checkpoint_every": epoch}
        if device.type == "cuda" and options.compile:
            others["compile"] = True
        steps, rate = self.epochs * epoch, self.learning_rate
        if contrast is not None:
            steps, rate = contrast.steps, contrast.learning_rate
        elif options.frozen:
            steps, others["warmup_steps"] = 1, 0
        paper = {} if self.paper is None else dataclasses.asdict(self.paper)
        for name in {"warmup_ratio", "weight_decay", "layer_decay"} - options.changed().keys():
            if paper.get(name) is not None:
                others[name] = paper[name]
        return fit_config(options, steps, rate, precision, **others)


def usual_plan(
    config: Config, num_examples: int, task: Task[Any], optimizer: OptimizerName = "adamw"
) -> dict[str, Any]:
    """Return the width of a model and the plan without any option, with which the diagnosis of a
    run's report compares."""
    plan = TrainingPlan.of(FinetuneOptions(optimizer=optimizer), config, num_examples, task)
    return {
        "hidden_size": config.hidden_size,
        "usual_epochs": plan.epochs,
        "usual_batch_size": plan.batch_size,
        "usual_learning_rate": plan.learning_rate,
    }


# Few-shot: contrastive training of the encoder, before its head is fitted alone.

#: Texts in a batch.
BATCH_SIZE = 32
#: Batches: at least, at most, and between these the number of passes over the examples.
LEAST_STEPS, MOST_STEPS, PASSES = 30, 500, 20
#: With at least this many examples all weights are trained; with fewer, only biases and layer
#: norms, which can learn what a task is about, but cannot memorize its few texts
#: (``docs/results.md``, "A few labels of each class").
_ALL_WEIGHTS = 256
#: The rates for models of width 384. That of biases and layer norms grows from the first number, at
#: this many examples or fewer, to the second; for wider models it falls with the inverse of the
#: width.
_FEW_LABELS = 32
_RATE_OF_BIASES, _HIGHEST_OF_BIASES = 2e-3, 5e-3
#: The rate for all weights also grows with the number of examples, at most by the last factor. For
#: models of other widths it changes with the inverse square, but never exceeds the second number
#: for few examples and the third for many. At a high rate the vectors forget what was learned in
#: pre-training, which costs more than it gains with 32 examples, and less with 300.
_RATE_OF_ALL, _HIGHEST_OF_ALL, _HIGHEST_OF_MANY, _MOST_TIMES = 2e-5, 1e-4, 5e-4, 10


def steps_for(num_examples: int, batch_size: int) -> int:
    """Return the number of batches for `num_examples` examples."""
    steps = round(PASSES * num_examples / batch_size)
    return min(MOST_STEPS, max(LEAST_STEPS, steps))


def weights_for(model: Model, num_examples: int, *, pairs: bool = False) -> FewShotWeights:
    """Return which weights of a model are trained on `num_examples` examples. All weights are
    trained if the model's layers have no biases; also for pairs of texts, which gain little
    anyway."""
    few = num_examples < _ALL_WEIGHTS
    return "biases" if few and not pairs and has_biases(model) else "all"


def contrast_rate(config: Config, num_examples: int, trained: FewShotWeights) -> float:
    """Return the highest learning rate for the width of this model, the number of examples and the
    trained weights, with one significant digit."""
    times = max(1.0, num_examples / _FEW_LABELS)
    if trained == "biases":
        rate = min(_HIGHEST_OF_BIASES, times * _RATE_OF_BIASES)
        rate *= min(1.0, _WIDTH / config.hidden_size)
    else:
        rate = min(_HIGHEST_OF_ALL, _RATE_OF_ALL * (_WIDTH / config.hidden_size) ** 2)
        rate = min(_HIGHEST_OF_MANY, min(_MOST_TIMES, times) * rate)
    return float(f"{rate:.0e}")


@dataclass(frozen=True)
class Contrast:
    """How the encoder is trained before the head is fitted.

    Attributes:
        steps: batches.
        batch_size: texts in a batch.
        learning_rate: its highest value.
        trained_weights: that are trained, of the encoder.
        pooling: how the states of a text become its vector.
        temperature: of the cosines in the softmax.
    """

    steps: int
    batch_size: int
    learning_rate: float
    trained_weights: FewShotWeights
    pooling: Pooling
    temperature: float = 0.1

    @classmethod
    def of(
        cls, options: FewShotOptions, model: Model, num_examples: int, pooling: Pooling, pairs: bool
    ) -> Contrast:
        """Return the plan for `num_examples` texts, or pairs of texts."""
        size = options.batch_size or BATCH_SIZE
        trained = options.trained_weights or weights_for(model, num_examples, pairs=pairs)
        rate = options.learning_rate
        if rate is None:
            rate = contrast_rate(model.config, num_examples, trained)
        return cls(options.steps or steps_for(num_examples, size), size, rate, trained, pooling)

    def settings(self) -> dict[str, Any]:
        """Return JSON values, for the settings of a run."""
        return {**dataclasses.asdict(self), "pooling": self.pooling.name}

    def usual(self, config: Config, num_examples: int) -> dict[str, Any]:
        """Return what the diagnosis of a run's report compares with."""
        biases = self.trained_weights == "biases"
        return {
            "verb": "few-shot",
            "usual_learning_rate": contrast_rate(config, num_examples, self.trained_weights),
            "usual_rate_factor": _RATE_OF_BIASES / _RATE_OF_ALL if biases else 1.0,
        }


# Vectors of similar texts.

#: The factor on the usual rate for the width of a model.
_SIMILARITY_RATE = 0.1
#: Up to this many rows there are several epochs.
_FEW_ROWS, _EPOCHS = 10_000, 4
#: The most steps between evaluations.
_EVALUATE_EVERY = 1000


def pairs_in_batch(options: SimilarityOptions, kind: str) -> int:
    """Return the batch size for rows of a `kind`."""
    return options.batch_size or (32 if kind == "scores" else 64)


def similarity_config(
    options: SimilarityOptions, model: Config, rows: int, epoch: int, precision: Precision
) -> tuple[FitConfig, int]:
    """Return the settings of the training loop for `rows` rows with `epoch` steps in an epoch, and
    the steps between evaluations."""
    every = options.evaluate_every or min(epoch, _EVALUATE_EVERY)
    epochs = options.epochs or (_EPOCHS if rows <= _FEW_ROWS else 1)
    rate = options.learning_rate
    if rate is None:
        rate = float(f"{rate_for(model) * _SIMILARITY_RATE:.1g}")
    steps = options.steps or epochs * epoch
    config = fit_config(options, steps, rate, precision, checkpoint_every=every)
    return config, every
