"""What the arguments of ``distill`` are for the verbs whose work it shares."""

from __future__ import annotations

from typing import Any, TypeVar

from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.objectives.distillation.maps import (
    ATTENTION,
    HIDDEN,
    MEAN,
    VARIANCE,
    MapLosses,
    uniform_map,
)
from bertine.options.distillation import FOR_TABLES_TOO, ON_TABLES, DistillOptions
from bertine.options.fields import OptionGroup, declared
from bertine.options.names import option
from bertine.training.distillation.student import StudentPlan

Group = TypeVar("Group", bound=OptionGroup)


#: Options of a file in place of a teacher.
OF_FILES = ("probability_column", "labels", "teacher_task", "label_separator")


def part_of(group: type[Group], options: DistillOptions, **others: Any) -> Group:
    """Return the options of another verb: what `options` say where they say anything (None: that
    verb's own default), and `others`."""
    values = {
        entry.name: getattr(options, entry.name)
        for entry in declared(group)
        if getattr(options, entry.name, None) is not None
    }
    return group(**{**values, **others})


def refuse_other_kind(
    options: DistillOptions,
    groups: tuple[type[OptionGroup], ...],
    names: tuple[str, ...],
    *,
    data_are: str,
    meant_for: str,
) -> None:
    """Refuse options that mean nothing for these data.

    Args:
        groups, names: those that mean something for other data only.
        data_are: what the data are.
        meant_for: what they would have to be.

    Raises:
        BertineError: one of them is not as usual.
    """
    known = {entry.name: entry.default for entry in declared(DistillOptions)}
    for name in (*(entry.name for group in groups for entry in declared(group)), *names):
        if name in _SHARED or getattr(options, name) == known[name]:
            continue
        raise BertineError(f"{option(name)} is for distilling {meant_for}, but {data_are}")


def refuse_for_table(options: DistillOptions) -> None:
    """Refuse options that mean nothing for a table of static vectors.

    Raises:
        BertineError: one of them is not as usual.
    """
    meant = {entry.name for group in ON_TABLES for entry in declared(group)} | FOR_TABLES_TOO
    for name in options.changed():
        if name not in meant:
            raise BertineError(
                f"{option(name)} is for training a student, but {option('static')} makes a table "
                "of static vectors; leave one of them out"
            )


#: Options of either kind of data, that a group of one of them has.
_SHARED = ("batch_size", "seed")


def map_losses(options: DistillOptions, plan: StudentPlan, teacher: Config) -> MapLosses | None:
    """Return the terms on hidden and attention maps; None: there are none.

    A student that begins as layers of its teacher follows these; another one follows layers that
    are spread evenly.

    Raises:
        BertineError: there are stages without such a term.
    """
    weights = {
        HIDDEN: options.hidden_weight,
        MEAN: options.hidden_mean_weight,
        VARIANCE: options.hidden_variance_weight,
        ATTENTION: options.attention_weight,
    }
    if not any(weights.values()):
        if options.progressive_steps is not None:
            raise BertineError(
                f"{option('progressive_steps')} trains single layers on {option('hidden_weight')} "
                f"and {option('attention_weight')}, but neither has a weight"
            )
        return None
    layers = plan.layers
    if layers is None:
        layers = uniform_map(plan.config.num_hidden_layers, teacher.num_hidden_layers)
    return MapLosses(options.maps, layers, weights)


def maps_facts(maps: MapLosses) -> dict[str, Any]:
    """Return what a run's settings say of hidden and attention maps."""
    weights = {f"{name}_weight": maps.weights[name] for name in maps.names}
    return {"maps": maps.kind, "followed_layers": list(maps.layers), **weights}
