"""Optimizers by name."""

from __future__ import annotations

import torch

from bertine.errors import BertineError
from bertine.models.model import Model
from bertine.names import OptimizerName
from bertine.options.names import option
from bertine.options.optimization import Updates
from bertine.training.loop.optim import AdamW, ClippedOptimizer
from bertine.training.loop.optimizers.lamb import Lamb
from bertine.training.loop.optimizers.muon import Muon

OPTIMIZERS: dict[OptimizerName, type[ClippedOptimizer]] = {
    "adamw": AdamW,
    "lamb": Lamb,
    "muon": Muon,
}


def optimizer_for(model: Model, options: Updates, dtype: torch.dtype) -> ClippedOptimizer:
    """Return the optimizer that `options` describe, of all parameters of `model` that are trained.

    Args:
        dtype: that the run computes in, for Muon's products.
    """
    settings = {
        "weight_decay": options.weight_decay,
        "betas": (options.adam_beta1, options.adam_beta2),
        "eps": options.adam_epsilon,
        "bias_correction": options.bias_correction,
        "layer_decay": options.layer_decay,
    }
    kind = OPTIMIZERS[options.optimizer]
    return kind(model, **settings, **({"dtype": dtype} if kind is Muon else {}))  # type: ignore[arg-type]


def check_whole(options: Updates, shard: bool) -> None:
    """Refuse weights that are divided among processes, where an update needs whole matrices.

    Raises:
        BertineError: they are to be divided.
    """
    if shard and options.optimizer != "adamw":
        raise BertineError(
            f"{option('shard', True)} divides matrices among processes, but the updates of "
            f"{options.optimizer} need them whole; leave it out (replicas), or take "
            f"{option('optimizer', 'adamw')}"
        )
