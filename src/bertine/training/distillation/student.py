"""Build a student from layers of its teacher, or with other sizes or weights.

DistilBERT is initialized with every other layer of its teacher, with the embeddings and the head
(Sanh et al. 2019, section 3; transformers,
``research_projects/distillation/scripts/extract_distilbert.py``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import FAMILIES, TokenTypesOfTeacher, option
from bertine.hub.model_directory import load_config
from bertine.hub.weights import check_fits
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.models.precision import seeded
from bertine.objectives.distillation import PROJECTIONS, new_projections
from bertine.training.pretraining.pretrain import architecture_of, has_weights

#: Sizes that must equal those of the teacher if its weights are used.
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads")
#: Fields of a config that a student of another type does not take from the teacher.
_OWN_FIELDS = ("num_hidden_layers", "type_vocab_size", "max_position_embeddings")


@dataclass(frozen=True)
class StudentPlan:
    """The plan of a student.

    Attributes:
        config: its sizes; the vocabulary is the teacher's.
        layers: the teacher's layers that it is initialized with, counted from 0; None: its weights
            are its own.
        folder: the model directory that it is initialized with; None: there is none.
        source: the model directory that `layers` come from; None: the teacher.
        fresh: whether random weights were asked for.
    """

    config: Config
    layers: tuple[int, ...] | None
    folder: Path | str | None = None
    source: Path | str | None = None
    fresh: bool = False

    def line(self, teacher: Config | None) -> str:
        """Describe how the student is initialized."""
        config = self.config
        size = f"{config.title}, {plural(config.num_hidden_layers, 'layer')} of "
        size += f"{config.hidden_size}"
        if self.folder is not None:
            return f"student: {size}, begins as {self.folder}"
        if self.fresh:
            return f"student: {size}, begins with random weights"
        if self.layers is None:
            return f"student: {size}, begins with random weights: its sizes are not the teacher's"
        chosen = " ".join(map(str, self.layers))
        if self.source is not None:
            return f"student: {size}, begins as layers {chosen} of {self.source}"
        count = "" if teacher is None else f" {teacher.num_hidden_layers}"
        return f"student: {size}, begins as layers {chosen} of the teacher's{count}"


def every_other(layers: int, wanted: int | None = None) -> tuple[int, ...]:
    """Return which of `layers` layers a student is initialized with: evenly spaced, including the
    first and the last; 0 2 4 7 9 11 of 12, as published.

    Args:
        wanted: how many; None: half of them, rounded up.
    """
    count = -(-layers // 2) if wanted is None else wanted
    if count == 1:
        return (0,)
    return tuple(round(number * (layers - 1) / (count - 1)) for number in range(count))


def plan_student(
    teacher: Config,
    student: Path | str | None,
    layers: Sequence[int] | None,
    *,
    fresh_weights: bool = False,
) -> StudentPlan:
    """Choose the sizes and the initial weights of a student.

    Args:
        teacher: the teacher's config.
        student: a model type ("distilbert"), a preset, a ``config.json``, or a model directory;
            None: the teacher's type.
        layers: of the teacher, counted from 0; None: every other one.
        fresh_weights: start from random weights, not from these layers.

    Raises:
        BertineError: no such preset, type, file or folder; a layer that the teacher does not have,
            or the same one twice; layers, or random weights, for a student that does not allow
            them.
    """
    if fresh_weights:
        if layers is not None:
            raise BertineError(
                f"{option('layers')} and {option('fresh_weights', True)} say different things of "
                "the first weights; leave one of them out"
            )
        plan = plan_student(teacher, student, None)
        if plan.folder is not None:
            raise BertineError(
                f"{student}: has weights of its own; leave out {option('fresh_weights', True)}, or "
                "name a model type, a preset or its config.json"
            )
        return dataclasses.replace(plan, layers=None, fresh=True)
    _check_layers(teacher, layers)
    if student is not None and str(student) not in FAMILIES and has_weights(student):
        if layers is not None:
            raise BertineError(
                f"{student}: has weights of its own, so it takes no layers of the teacher; leave "
                f"out {option('layers')}, or name a model type or a preset"
            )
        return StudentPlan(load_config(student), None, student)
    if student is None or str(student) in FAMILIES:
        config = teacher if student is None else _of_type(teacher, str(student))
        chosen = every_other(teacher.num_hidden_layers) if layers is None else tuple(layers)
        return StudentPlan(config.with_layers(len(chosen)), chosen)
    config = architecture_of(student)
    config = config.replace(vocab_size=teacher.vocab_size, pad_token_id=teacher.pad_token_id)
    differing = [name for name in _SIZES if getattr(config, name) != getattr(teacher, name)]
    if config.longest_input > teacher.longest_input:
        differing.append("max_position_embeddings")
    if not differing and config.num_hidden_layers <= teacher.num_hidden_layers:
        count = config.num_hidden_layers
        if layers is not None and len(layers) != count:
            raise BertineError(
                f"{option('layers')} names {plural(len(layers), 'layer')}, but {student} has "
                f"{count}"
            )
        even = every_other(teacher.num_hidden_layers, count)
        return StudentPlan(config, even if layers is None else tuple(layers))
    if layers is not None:
        what = differing[0] if differing else "num_hidden_layers"
        raise BertineError(
            f"{student}: has another {what} than the teacher ({getattr(config, what)}, not "
            f"{getattr(teacher, what)}), so it cannot begin as layers of it; leave out "
            f"{option('layers')}"
        )
    return StudentPlan(config, None)


def _check_layers(teacher: Config, layers: Sequence[int] | None) -> None:
    count = teacher.num_hidden_layers
    if layers is None:
        return
    if not layers:
        raise BertineError(f"{option('layers')} names no layer of the teacher")
    for number in layers:
        if not 0 <= number < count:
            raise BertineError(
                f"{option('layers')} names layer {number}, but the teacher has 0 to {count - 1}"
            )
    if len(set(layers)) != len(layers):
        raise BertineError(f"{option('layers')} names a layer of the teacher twice")


def _of_type(teacher: Config, name: str) -> Config:
    """Return the teacher's config converted to the model type `name`."""
    family = family_of(name)
    kind = family.config
    if teacher.model_type == name:
        return teacher
    # Fields without a key in the type's config.json are the same in all models of the type.
    fields = {field.name for field in dataclasses.fields(kind)} - family.keys.absent
    shared = {
        field: value
        for field, value in teacher.to_dict().items()
        if field in fields and field not in _OWN_FIELDS
    }
    if "embedding_size" in fields:
        # If the teacher has no such size, embeddings are as wide as its states.
        shared.setdefault("embedding_size", teacher.hidden_size)
    types = 0
    if kind.token_types:
        # If the teacher has no token types, take the usual number.
        types = teacher.type_vocab_size or next(iter(family.presets.values())).type_vocab_size
    try:
        made = kind(**shared, type_vocab_size=types)
        positions = teacher.longest_input + made.first_position
        return made.replace(max_position_embeddings=positions)
    except BertineError as error:
        raise BertineError(
            f"{option('student')} {name}: a model of this type cannot have the teacher's sizes "
            f"({error}); give a preset or a config.json"
        ) from error


def make_student(
    plan: StudentPlan,
    teacher: Model,
    heads: Callable[[Config], Mapping[str, nn.Module]],
    *,
    seed: int,
    dropout: float | None = None,
    token_types: TokenTypesOfTeacher = "fold",
    with_heads: bool = True,
    with_pooler: bool = True,
) -> tuple[Model, list[str]]:
    """Build the student with its initial weights.

    Args:
        plan: of the student; with ``folder`` see :func:`load_student`.
        teacher: the source of layers, embeddings and heads, if ``plan.layers`` names some.
        heads: creates those of the student, by name, with new weights.
        seed: of the new weights.
        dropout: replaces the config's rates.
        token_types: of a teacher whose student has none: the type of the first segment is added to
            the positions, so that the student starts with the teacher's states of single texts; or
            it is dropped, as published.
        with_heads: also take the heads of the teacher.
        with_pooler: also take its pooler.

    Returns:
        The student, and the names of the weights that are the teacher's.

    Raises:
        BertineError: a part of the student's layers has no counterpart in the teacher's.
    """
    config = plan.config.with_dropout(dropout)
    check_fits("the student", config, trained=True)
    with seeded(seed, "initial weights"):
        student = Model(config, heads(config))
    if plan.layers is None:
        return student, []
    taken = copy_layers(
        student,
        teacher,
        plan.layers,
        token_types,
        with_heads=with_heads,
        with_pooler=with_pooler,
    )
    return student, taken


@torch.no_grad()
def copy_layers(
    student: Model,
    teacher: Model,
    layers: Sequence[int],
    token_types: TokenTypesOfTeacher = "fold",
    *,
    with_heads: bool = True,
    with_pooler: bool = True,
) -> list[str]:
    """Copy to `student` the weights of the teacher's `layers`, of its embeddings and its pooler,
    and of those heads that have the same parts in both; token types as in :func:`make_student`.

    Returns:
        The names of the weights that were copied.

    Raises:
        BertineError: a part of a layer has no counterpart.
    """
    source: dict[str, Tensor] = dict(teacher.state_dict())
    _fit_embeddings(source, student, teacher, token_types)
    for ours, theirs in _kept_weights(student.config, teacher.config, layers).items():
        prefix = f"backbone.layers.{theirs}."
        for name in [name for name in source if name.startswith(prefix)]:
            source[f"student.{ours}.{name.removeprefix(prefix)}"] = source[name]
    own: dict[str, Tensor] = student.state_dict()
    heads = [
        f"heads.{name}."
        for name, module in student.heads.items()
        if with_heads and _same_parts(module, f"heads.{name}.", source)
    ]
    taken = []
    for name, tensor in own.items():
        wanted = name
        inside = name.startswith("backbone.layers.")
        if inside:
            wanted = f"student.{name.removeprefix('backbone.layers.')}"
        if name.startswith("heads.") and not name.startswith(tuple(heads)):
            continue
        if name.startswith("backbone.pooler.") and not with_pooler:
            continue
        weights = source.get(wanted)
        if weights is not None and weights.shape == tensor.shape:
            tensor.copy_(weights)
            taken.append(name)
        elif inside or name.startswith("backbone.embeddings."):
            raise BertineError(
                f"a student of type {student.config.model_type} cannot begin as layers of a "
                f"{teacher.config.title}: {name} has no counterpart of its shape; give one "
                "of the teacher's type or of other sizes, or a model directory to begin from"
            )
    return taken


def _kept_weights(student: Config, teacher: Config, layers: Sequence[int]) -> dict[int, int]:
    """Return, for each layer of weights of a student, the teacher's layer that it is initialized
    with, if the student has `layers` of the teacher. If weights are shared and a layer is used
    several times, the first use counts. The layers of a decoder are the teacher's, one by one."""
    above = teacher.decoder_passes
    below = len(teacher.passes) - above
    inside = below // teacher.num_hidden_layers
    if len(student.passes) != inside * len(layers) + above or student.decoder_passes != above:
        return {}  # the caller reports what has no counterpart
    kept: dict[int, int] = {}
    for number, chosen in enumerate(layers):
        for part in range(inside):
            own = student.passes[number * inside + part]
            kept.setdefault(own, teacher.passes[chosen * inside + part])
    for number in range(above):
        kept[student.passes[inside * len(layers) + number]] = teacher.passes[below + number]
    return kept


def _same_parts(head: nn.Module, prefix: str, source: Mapping[str, Tensor]) -> bool:
    """Return whether `source` has exactly the weights of a head."""
    shapes = {f"{prefix}{name}": value.shape for name, value in head.state_dict().items()}
    theirs = {name: value.shape for name, value in source.items() if name.startswith(prefix)}
    return shapes == theirs


def _fit_embeddings(
    source: dict[str, Tensor], student: Model, teacher: Model, token_types: TokenTypesOfTeacher
) -> None:
    """Fit the teacher's position embeddings to the student's positions, add the token type of the
    first segment if the student has none, and drop what the student has no rows for."""
    places, types = (
        f"backbone.embeddings.{name}.weight"
        for name in ("position_embeddings", "token_type_embeddings")
    )
    own = student.state_dict()
    if places not in own or places not in source or own[places].shape[1] != source[places].shape[1]:
        return
    first, wanted = student.config.first_position, own[places]
    moved = source[places][teacher.config.first_position :][: len(wanted) - first].clone()
    if types in source and types not in own and token_types == "fold":
        moved += source[types][0]
    if len(moved) < len(wanted) - first:
        return  # too few: copy_layers reports it
    rows = wanted.clone()
    rows[first:] = moved
    if first and first == teacher.config.first_position:
        rows[:first] = source[places][:first]
    source[places] = rows


def add_projections(student: Model, teacher: Model, names: list[str], seed: int) -> None:
    """Add the named projections to a student, if its width differs from the teacher's."""
    if names and student.config.hidden_size != teacher.config.hidden_size:
        with seeded(seed, "projections"):
            made = new_projections(names, student.config, teacher.config)
        student.add_module(PROJECTIONS, made)
