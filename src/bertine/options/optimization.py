"""Options of how the loss is minimized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bertine.names import OptimizerName, ScheduleName
from bertine.options.fields import NOT_KNOWN, OptionGroup, declare

#: The rate that is taken with an optimizer where nobody names one, as a multiple of AdamW's. LAMB's
#: is the share of its size that a matrix moves by; Muon's updates are as large as those of AdamW in
#: the long run, whose first ones are larger (docs/guides/learning-rate.md has what was measured).
USUAL_RATE: Mapping[OptimizerName, float] = {"adamw": 1.0, "lamb": 10.0, "muon": 3.0}


class Rate(OptionGroup):
    """The learning rate."""

    title = "optimizer"

    learning_rate: float | None = declare(
        None,
        "its highest value",
        otherwise="by the width of the model",
        least=0,
        not_in=("search", "lr-find"),
    )


class WarmUp(OptionGroup):
    """Options that say for how long the learning rate rises."""

    title = "optimizer"
    alternatives: ClassVar[tuple[str, ...]] = ("warmup_steps", "warmup_ratio")

    warmup_steps: int | None = declare(
        None,
        "steps with a rising rate",
        otherwise="by `warmup_ratio`",
        least=0,
        not_in=("lr-find",),
    )
    warmup_ratio: float | None = declare(
        None,
        "share of the steps with a rising rate, where `warmup_steps` is not given",
        otherwise="0.1, of one-cycle 0.3",
        least=0,
        most=1,
        not_in=("lr-find",),
    )


class Updates(OptionGroup):
    """Options that say how the weights are updated: AdamW with decoupled decay, or another."""

    title = "optimizer"

    optimizer: OptimizerName = declare(
        "adamw",
        "AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with AdamW for "
        "the rest",
        more="See :mod:`bertine.training.loop.optimizers`.",
        recorded=True,
        unknown=NOT_KNOWN,
    )
    weight_decay: float = declare(0.01, "none on biases and norms", least=0)
    adam_beta1: float = declare(
        0.9, "of AdamW and LAMB: how long the first moment remembers", least=0, below=1
    )
    adam_beta2: float = declare(
        0.999, "of AdamW and LAMB: how long the second moment remembers", least=0, below=1
    )
    adam_epsilon: float = declare(1e-6, "of AdamW and LAMB; as in the paper's code", least=0)
    bias_correction: bool = declare(True, "of AdamW and LAMB; Google's programs have none")
    max_grad_norm: float = declare(
        1.0, "gradients are scaled down to this global norm; 0 does not clip", least=0
    )
    max_tokens_per_micro_batch: int | None = declare(
        None,
        "compute each update in parts of at most so many tokens: the same result in less memory",
        otherwise="by the device",
        least=1,
    )
    schedule: ScheduleName = declare(
        "linear",
        "of the rate after the warm-up; one-cycle: momentum too",
        more="See :mod:`bertine.training.loop.schedule`.",
        not_in=("lr-find",),
        title="schedule and layers",
        unknown=NOT_KNOWN,
    )
    layer_decay: float = declare(
        1.0,
        "the rate of each layer as a share of that of the one above",
        above=0,
        most=1,
        title="schedule and layers",
    )


class DropoutRate(OptionGroup):
    """The rate of the model's dropout."""

    title = "optimizer"

    dropout: float | None = declare(
        None, "on hidden states and attention", otherwise="the model's own rates", least=0, most=1
    )


class Patience(OptionGroup):
    """Options that say when to stop early."""

    title = "schedule and layers"

    patience: int | None = declare(
        None,
        "stop when the task's score on the validation examples was not better for so many epochs, "
        "and save the model of the best",
        more="Unless `save_best` is False.",
        least=1,
        not_in=("lr-find",),
    )
