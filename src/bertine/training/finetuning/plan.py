"""How long, in which batches and at which rate to fine-tune, where the user does not say.

The papers' recipes (:mod:`bertine.options.paper_recipes`) were made for BERT-base and data sets of
thousands of examples. With a few hundred examples they make a few dozen updates, too few to learn
anything; small models need higher rates. The rule here follows the number of examples and the
model's width. It was measured with a model of 384 hidden units on 300 examples
(``docs/results.md``, "Defaults"; ``benchmarks/defaults.py``); for wider ones, of which none was at
hand, the rate is the published practice (Devlin et al. 2018, section A.3; Mosbach et al. 2021, who
fine-tune on little data for 20 epochs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertine.models.config import Config
from bertine.names import OptimizerName
from bertine.options.fields import like
from bertine.options.finetuning import FinetuneRecipe
from bertine.options.optimization import USUAL_RATE, Patience, Rate, Updates
from bertine.options.paper_recipes import PaperRecipe, paper_recipe
from bertine.options.run import Saving
from bertine.tasks.base import Task

#: The width whose rate was measured, and that rate. Rates fall with the square of the width: 384
#: units have 2e-4, 768 have the paper's 5e-5, and 1,024 have 3e-5.
_WIDTH, _RATE = 384, 2e-4
#: Narrower models are not trained at higher rates than this, and those of more than two layers
#: not at higher ones than the second divided by their number: at 1e-3 eight layers of 170 answer
#: one class, as do four now and then (``docs/results.md``, "Defaults").
_HIGHEST_RATE, _HIGHEST_RATE_OF_LAYERS = 1e-3, 2e-3
#: Passes over `_MANY` examples, and over fewer as many more as their number to this power.
_MANY, _PASSES, _POWER = 16_000, 3, 0.4
#: However few the examples are.
_MOST_PASSES = 25
#: Classes up to which their number makes no difference.
FEW_CLASSES = 16
#: Up to so many examples, smaller batches: each makes an update.
_FEW = 4_000


@dataclass(frozen=True)
class TrainingPlan:
    """The length of a fine-tuning run, its batches and its rate.

    Attributes:
        epochs: passes over the training examples.
        batch_size: examples in an update.
        learning_rate: its highest value.
        save_best: whether the weights of the best epoch are saved, not those of the last; None:
            where the best one is better by more than chance
            (:func:`bertine.intervals.clearly_better`).
        chosen: whether epochs, batch size or rate come from the rule, not from the user or the
            paper.
        paper: the recipe of the model's paper, where that is asked for.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    save_best: bool | None
    chosen: bool
    paper: PaperRecipe | None = None

    def changes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the paper says of the optimizer, but for what is `given`."""
        said = {name: getattr(self.paper, name, None) for name in ("weight_decay", "layer_decay")}
        return {name: v for name, v in said.items() if v is not None and name not in given}


class Wishes(FinetuneRecipe, Rate, Saving, Patience):
    """The wishes of the user for a run's length, batches and rate; None: the rule chooses. See
    :func:`bertine.finetune`."""

    optimizer: OptimizerName = like(Updates, "optimizer")

    def plan(
        self, config: Config, num_examples: int, task: Task[Any] | None = None
    ) -> TrainingPlan:
        """Return the plan for a model with the sizes of `config` and `num_examples` training
        examples of a `task`; None: of one without classes."""
        named = "" if task is None else task.task_info().dataset or task.name
        recipe = paper_recipe(config.paper_family, named) if self.paper else None
        if recipe is not None:
            usual = (recipe.epochs, recipe.batch_size, recipe.learning_rate)
        else:
            batch_size = 16 if num_examples <= _FEW else 32
            usual = (epochs_for(num_examples, classes_of(task)), batch_size, rate_for(config))
        passes, size_of_batch, rate = usual
        usual = (passes, size_of_batch, float(f"{rate * USUAL_RATE[self.optimizer]:.2e}"))
        said = (self.epochs, self.batch_size, self.learning_rate)
        epochs, size, rate = (a if b is None else b for a, b in zip(usual, said, strict=True))
        save_best = self.save_best
        if save_best is None and (self.patience is not None or self.paper):
            save_best = self.patience is not None
        return TrainingPlan(
            int(epochs),
            int(size),
            float(rate),
            save_best,
            chosen=not self.paper and None in said,
            paper=recipe,
        )


def epochs_for(num_examples: int, num_classes: int = 0) -> int:
    """Return the number of passes over so many training examples: 3 over 16,000 and more, 9 over
    1,000, 23 over 100; more where there are many classes, of which each has few of them."""
    passes = _PASSES * (_MANY / max(1, num_examples)) ** _POWER
    passes = max(_PASSES, passes) * max(1.0, num_classes / FEW_CLASSES) ** _POWER
    return min(_MOST_PASSES, round(passes))


def classes_of(task: Task[Any] | None) -> int:
    """Return among how many classes the texts of a task are to be told apart; 0: it has none."""
    return len(getattr(task, "labels", ())) if task is not None and task.reads_whole_texts else 0


def rate_for(config: Config) -> float:
    """Return the highest learning rate for a model of this width and depth, with one significant
    digit."""
    rate = min(
        _HIGHEST_RATE,
        _HIGHEST_RATE_OF_LAYERS / config.num_hidden_layers,
        _RATE * (_WIDTH / config.hidden_size) ** 2,
    )
    return float(f"{rate:.0e}")
