"""Compare what ``config.json`` asks for with the weights' file and the memory, before any of it is
built: ten million layers would be built for hours, and a matrix that is too large ends in an error
of the allocator, or in the end of another process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from bertine.errors import BertineError
from bertine.interop.config_file import CONFIG
from bertine.interop.family import Family
from bertine.models.config import Config
from bertine.system.memory import check_memory

#: Bytes of a parameter in fp32; for training, its gradient and AdamW's two moments as well.
_FP32, _TRAINED = 4, 16


class HasShape(Protocol):
    """A tensor, or what is known of one."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def check_against_weights(
    source: Path,
    tensors: Mapping[str, HasShape],
    config: Config,
    family: Family,
    described_in: str = CONFIG,
) -> None:
    """Refuse a configuration whose sizes are not those of the weights.

    Args:
        source: the weights' file, for messages.
        tensors: by their canonical names.
        config: what config.json says.
        family: of its type.
        described_in: the name of that file, for messages.

    Raises:
        BertineError: there are fewer layers, or groups of them, or a size is another one.
    """
    names = family.names
    for name, shape in names.sizes(config).items():
        if name in tensors and tuple(tensors[name].shape) != shape:
            raise BertineError(
                f"{source}: tensor {name} has shape {list(tensors[name].shape)}, but "
                f"{described_in} asks for {list(shape)}"
            )
    places = list(names.layer_numbers(tensors))
    for at, (name, count) in enumerate(config.layer_counts.items()):
        there = 1 + max((place[at] for place in places), default=-1)
        if there < count:
            key = family.keys.key(name)
            kind = "groups of layers" if at + 1 < len(config.layer_counts) else "layers"
            raise BertineError(
                f"{source}: has {there} {kind}, but {key} in {described_in} is {count}; a tensor "
                "of every layer must be there"
            )
    for stack in names.above:
        there = 1 + max((place for (place,) in names.layer_numbers(tensors, stack)), default=-1)
        if there < (count := getattr(config, stack.count)):
            raise BertineError(
                f"{source}: has {there} layers {stack.canonical}, but {stack.count} in "
                f"{described_in} is {count}; a tensor of every layer must be there"
            )


def check_fits(where: str | Path, config: Config, *, trained: bool = False) -> None:
    """Refuse a model that is larger than the memory.

    Args:
        where: the file or preset that `config` is from, for the message.
        config: the sizes.
        trained: whether all of its weights are to be trained, which takes four times as much.

    Raises:
        BertineError: it is.
    """
    count = config.num_parameters
    doing = "to be trained " if trained else ""
    check_memory(
        f"{where}: a model of {count:,} parameters {doing}",
        count * (_TRAINED if trained else _FP32),
    )
