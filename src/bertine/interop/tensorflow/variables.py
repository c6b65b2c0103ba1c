"""What the variables of Google's programs are called, as tables: names of a checkpoint -> canonical
names (:mod:`bertine.interop.names`).

A dense layer's ``kernel`` is [in, out], the transpose of our weight; a norm's ``gamma`` and
``beta`` are its weight and bias.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from bertine.models.config import Config

#: Variable of a module → our name, and whether it is transposed.
_OF_MODULE = {
    "kernel": ("weight", True),
    "bias": ("bias", False),
    "gamma": ("weight", False),
    "beta": ("bias", False),
}
#: What the optimizers of these programs, and TensorFlow's own, keep beside a variable.
_SLOTS = ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1", "LAMB", "LAMB_1", "Momentum")
#: What they keep of the whole: numbers of the run.
_OF_RUN = frozenset(
    ("global_step", "beta1_power", "beta2_power", "loss_scale", "good_steps", "bad_steps")
)
#: What some exports put before every name.
_PREFIX = "module/"

#: Pairs (variable, canonical tensor) that the programs have in common: the embeddings.
EMBEDDING_TABLES = tuple(
    (f"bert/embeddings/{kind}_embeddings", f"embeddings.{kind}_embeddings.weight")
    for kind in ("word", "position", "token_type")
)
#: And the heads that fine-tuning trains.
TASK_TENSORS = (
    ("output_weights", "classifier.weight"),
    ("output_bias", "classifier.bias"),
    ("cls/squad/output_weights", "qa_outputs.weight"),
    ("cls/squad/output_bias", "qa_outputs.bias"),
)


class VariablePlace(NamedTuple):
    """Where a variable belongs.

    Attributes:
        name: its canonical name; of what several layers have, with their number as {}.
        transposed: whether it lies the other way there.
        dimensions: of one layer's part of a variable that several layers have; 0: it is one
            tensor's.
    """

    name: str
    transposed: bool
    dimensions: int = 0

    def parts(self, shape: tuple[int, ...], layers: int) -> list[tuple[str, int | None]]:
        """Return the canonical names of the tensors of a variable of this `shape`, and the number
        of each along its first dimension; None: it is the whole variable."""
        if not self.dimensions:
            return [(self.name, None)]
        if len(shape) == self.dimensions:
            return [(self.name.format(layer), None) for layer in range(layers)]
        return [(self.name.format(layer), layer) for layer in range(min(shape[0], 10_000))]


class Gelu(NamedTuple):
    """What "gelu" means in a checkpoint: the name of that activation here, and why."""

    name: str
    why: str


def tanh_gelu(config: Config, trained_here: bool) -> Gelu:
    """Return what "gelu" means to a program that only ever had the form with tanh."""
    return Gelu("gelu_new", f"with tanh, as in Google's {config.title}")


@dataclass(frozen=True)
class Variables:
    """The variables of Google's program for a model type, and what its configuration says.

    Attributes:
        modules: pairs (scope, canonical module); {} is a number, * any name.
        tensors: pairs (variable, canonical tensor); {} is a number.
        transposed: the same of tensors that lie the other way there.
        stacked: the same of what all layers have in one variable, with the dimensions of a layer's
            part; {} is the layer's number here. Where the variable has no dimension for the layers,
            they all have the same.
        classifier: the canonical name of the bias of a classifier.
        summary: what the canonical names of a layer begin with that the program makes before a
            classifier, also where there is none; "" where it makes none.
        key: of the configuration, which no other program's has; "" where there is none.
        defaults: keys of the configuration that may be lacking, with what they are then, where
            transformers' default is another.
        identities: canonical modules that the program leaves out where they would map a width onto
            itself.
        gelu: (config, whether the checkpoint has an optimizer's state) → what "gelu" means.
        strangers: parts of names that other people's networks have → whose network it is.
    """

    modules: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, str], ...]
    transposed: tuple[tuple[str, str], ...] = ()
    stacked: tuple[tuple[str, str, int], ...] = ()
    classifier: str = "classifier.bias"
    summary: str = ""
    key: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    identities: tuple[str, ...] = ()
    gelu: Callable[[Config, bool], Gelu] = tanh_gelu
    strangers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str, bool]]:
        rows = [
            (f"{scope}/{leaf}", f"{module}.{ours}", transposed)
            for scope, module in self.modules
            for leaf, (ours, transposed) in _OF_MODULE.items()
        ]
        rows += [(variable, tensor, False) for variable, tensor in self.tensors]
        rows += [(variable, tensor, True) for variable, tensor in self.transposed]
        return [
            (
                re.compile(
                    re.escape(name).replace(r"\{\}", r"(\d{1,8})").replace(r"\*", "[^/]{1,200}")
                ),
                canonical,
                transposed,
            )
            for name, canonical, transposed in rows
        ]

    def place(self, variable: str) -> VariablePlace | None:
        """Return where `variable` belongs; None where the program has none of this name."""
        for name, canonical, dimensions in self.stacked:
            if variable == name:
                return VariablePlace(canonical, False, dimensions)
        for pattern, canonical, transposed in self._patterns:
            if match := pattern.fullmatch(variable):
                return VariablePlace(canonical.format(*match.groups()), transposed)
        return None

    def stranger(self, names: Iterable[str]) -> str:
        """Return whose network it is that has variables of these `names`; "" where not known."""
        marks = [
            (mark, whose)
            for name in names
            for mark, whose in self.strangers.items()
            if mark in name
        ]
        return marks[0][1] if marks else ""


def plain_name(variable: str) -> str:
    """Return `variable` without what exports put before it."""
    return variable.removeprefix(_PREFIX)


def is_left_out(variable: str) -> bool:
    """Tell whether `variable` belongs to an optimizer or counts steps, and not to a model."""
    return variable in _OF_RUN or variable.rpartition("/")[2] in _SLOTS
