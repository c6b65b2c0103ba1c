"""Read the weights of the first GPT as openai/finetune-transformer-lm publishes them.

A folder has ``params_shapes.json`` and ``params_0.npy`` to ``params_9.npy``. The arrays together
are one row of numbers, cut anywhere; the shapes describe its contents: positions, words, and for
each layer c_attn, c_proj, ln_1, c_fc, c_proj, ln_2, matrices [1, inputs, outputs], each with its
bias (``train.py``, where ``model/params_`` is read). The number of attention heads is in no file:
the program has 12, of 64 numbers each.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertine.core.console import briefly
from bertine.core.errors import BertineError
from bertine.core.files import read_json
from bertine.core.foreign_files import open_array
from bertine.families.gpt import OpenAIGPTConfig
from bertine.models.config import LARGEST, MOST_LAYERS
from bertine.models.config_file import CONFIG, ConfigFile

SHAPES = "params_shapes.json"
#: The width of an attention head.
_HEAD = 64
#: The most files of a folder of this kind; there are 10.
_MOST_FILES = 10_000
_NAME = re.compile(r"params_(\d{1,4})\.npy")
#: The tensors of a layer, in their order.
_LAYER = tuple(
    f"{module}.{kind}"
    for module in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    for kind in ("weight", "bias")
)


def holds_openai_files(folder: Path) -> bool:
    """Return whether the weights of `folder` are OpenAI's files."""
    return (folder / SHAPES).is_file()


@dataclass(frozen=True)
class OpenAIFiles:
    """A folder of OpenAI's with checked shapes; its numbers are not read yet.

    Attributes:
        folder: the folder.
        shapes: of the tensors, by their canonical names, in their order.
    """

    folder: Path
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def open(cls, folder: Path) -> OpenAIFiles:
        """Open a folder.

        Raises:
            BertineError: the shapes are damaged, or belong to another network.
        """
        path = folder / SHAPES
        listed = read_json(path)
        if not isinstance(listed, list) or len(listed) > 2 + len(_LAYER) * MOST_LAYERS:
            raise BertineError(f"{path}: must hold a list of shapes")
        count, rest = divmod(len(listed) - 2, len(_LAYER))
        if count < 1 or rest:
            raise BertineError(
                f"{path}: has {len(listed)} shapes, but a GPT has 2 and {len(_LAYER)} for each "
                "layer; copy it again"
            )
        names = ["positions_embed.weight", "tokens_embed.weight"]
        names += [f"h.{number}.{name}" for number in range(count) for name in _LAYER]
        shapes = {}
        width = listed[0][-1] if isinstance(listed[0], list) and listed[0] else None
        for name, shape in zip(names, listed, strict=True):
            if not _is_shape(shape) or _expected(name, shape, width) != shape:
                raise BertineError(
                    f"{path}: the shape of {name} is {briefly(shape)}, so it is not a GPT "
                    "checkpoint; copy it again"
                )
            shapes[name] = tuple(shape[1:] if len(shape) == 3 else shape)
        return cls(folder, shapes)

    @property
    def settings(self) -> ConfigFile:
        """The configuration from the shapes, with heads of 64 numbers.

        Raises:
            BertineError: the width is not a multiple of that.
        """
        positions, width = self.shapes["positions_embed.weight"]
        if width % _HEAD:
            raise BertineError(
                f"{self.folder / SHAPES}: the states have {width} numbers, which attention heads "
                f"of {_HEAD} do not divide; say how many there are (n_head) in a {CONFIG}"
            )
        config = OpenAIGPTConfig(
            vocab_size=self.shapes["tokens_embed.weight"][0],
            hidden_size=width,
            num_hidden_layers=(len(self.shapes) - 2) // len(_LAYER),
            num_attention_heads=width // _HEAD,
            intermediate_size=4 * width,
            max_position_embeddings=positions,
        )
        return ConfigFile(config, "OpenAIGPTLMHeadModel", ())

    def line(self) -> str:
        """Describe the folder in one line."""
        config = self.settings.config
        return (
            f"{self.folder}: OpenAI's files, {config.num_hidden_layers} layers of "
            f"{config.hidden_size}; the {config.num_attention_heads} attention heads are in none "
            f"of them (else: n_head in a {CONFIG})"
        )

    def files(self) -> list[Path]:
        """Return the files: the shapes, and the arrays in order.

        Raises:
            BertineError: there is no array, or one of them is missing.
        """
        numbers = sorted(
            int(match[1])
            for path in itertools.islice(self.folder.glob("params_*.npy"), _MOST_FILES)
            if (match := _NAME.fullmatch(path.name))
        )
        for number in range(max(numbers, default=0) + 1):
            if number not in numbers:
                raise BertineError(
                    f"{self.folder / f'params_{number}.npy'}: missing, but {SHAPES} lies beside it"
                )
        arrays = [self.folder / f"params_{number}.npy" for number in numbers]
        return [self.folder / SHAPES, *arrays]

    def tensors(self) -> dict[str, Tensor]:
        """Read all tensors, by their canonical names.

        Raises:
            BertineError: an array is missing or damaged, or the count of numbers differs from the
                shapes.
        """
        arrays = [_read(path) for path in self.files()[1:]]
        wanted = sum(map(math.prod, self.shapes.values()))
        if (held := sum(map(len, arrays))) != wanted:
            raise BertineError(
                f"{self.folder}: the params_*.npy hold {held:,} numbers, but {SHAPES} asks for "
                f"{wanted:,}; copy them again"
            )
        row = torch.from_numpy(np.concatenate(arrays))
        parts = row.split([math.prod(shape) for shape in self.shapes.values()])
        return {
            name: part.view(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def entries(self) -> Iterator[tuple[str, tuple[int, ...], str]]:
        """Yield the name, shape and dtype of each tensor."""
        for name, shape in self.shapes.items():
            yield name, shape, "float32"


def _is_shape(shape: Any) -> bool:
    """Return whether `shape` is up to three reasonable sizes."""
    return (
        isinstance(shape, list)
        and 1 <= len(shape) <= 3
        and all(type(size) is int and 1 <= size <= LARGEST for size in shape)
    )


def _expected(name: str, shape: list[int], width: Any) -> list[int]:
    """Return the shape of a tensor in a network of this width."""
    if name.endswith("embed.weight"):
        return [shape[0], width]
    module, _, kind = name.rpartition(".")
    module = module.partition(".")[2].partition(".")[2]
    if not isinstance(width, int):
        return []
    outputs = {"attn.c_attn": 3 * width, "mlp.c_fc": 4 * width}.get(module, width)
    if kind == "bias" or module.startswith("ln_"):
        return [outputs]
    return [1, 4 * width if module == "mlp.c_proj" else width, outputs]


def _read(path: Path) -> npt.NDArray[np.float32]:
    """Read an array of one dimension."""
    array = open_array(path)
    if array.ndim != 1 or array.dtype != np.float32:
        raise BertineError(f"{path}: is not a row of fp32 numbers; copy it again")
    return array
