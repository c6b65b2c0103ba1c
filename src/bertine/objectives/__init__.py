"""Look up the objectives of pre-training by name."""

from __future__ import annotations

import torch

from bertine.core.errors import BertineError
from bertine.core.names import OBJECTIVES, InputFormat, implementation
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.objectives.losses import Objective
from bertine.options.pretraining import ObjectiveOptions


def objective(name: str) -> Objective:
    """Return the objective `name`, one of :data:`bertine.core.names.OBJECTIVES`.

    Raises:
        BertineError: there is no such objective.
    """
    if name not in OBJECTIVES:
        raise BertineError(f"objective is {name!r}, but must be one of {', '.join(OBJECTIVES)}")
    chosen: Objective = implementation(OBJECTIVES[name])()
    return chosen


def choose(
    config: Config,
    name: str | None = None,
    input_format: InputFormat | None = None,
    options: ObjectiveOptions | None = None,
) -> tuple[Objective, InputFormat]:
    """Return the objective of pre-training for a model of `config`, and its sequences' format.

    Args:
        name: of the objective; None: the first of the model's family.
        input_format: None: that of the family's paper, if the objective works on it, or else the
            objective's usual one.
        options: of the objective; None: its defaults.

    Raises:
        BertineError: there is no such objective, models of this type do not have it, or it does
            not work on that format.
    """
    family = family_of(config.model_type)
    chosen = objective(family.objectives[0] if name is None else name)
    check_family(chosen, config)
    if options is not None:
        chosen = chosen.configured(options)
    if input_format is None:
        usual = family.input_format
        return chosen, usual if usual in chosen.formats else chosen.formats[0]
    check_format(chosen, input_format)
    return chosen, input_format


def check_format(chosen: Objective, input_format: InputFormat) -> None:
    """Refuse a format that an objective does not work on.

    Raises:
        BertineError: the objective does not work on it.
    """
    if input_format in chosen.formats:
        return
    others = [other for other in OBJECTIVES if input_format in objective(other).formats]
    raise BertineError(
        f"objective {chosen.name} works on input_format {' or '.join(chosen.formats)}, not on "
        f"{input_format}" + (f"; use objective {others[0]} with it" if others else "")
    )


def check_family(chosen: Objective, config: Config) -> None:
    """Refuse an objective that models of this kind are not pre-trained with.

    Raises:
        BertineError: the family of `config` does not have it.
    """
    offered = family_of(config.model_type).objectives
    if chosen.name not in offered:
        raise BertineError(
            f"a model of type {config.model_type} is pre-trained with objective "
            f"{' or '.join(offered)}, not with {chosen.name}"
        )


def objective_of(model: Model) -> Objective | None:
    """Return the first objective of the model's family whose heads it has; None without one."""
    for name in family_of(model.config.model_type).objectives:
        result = objective(name)
        with torch.device("meta"):
            wanted = set(result.heads(model.config))
        if wanted <= set(model.heads):
            return result
    return None
