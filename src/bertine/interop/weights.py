"""Read the weights of a model folder, whichever of the usual files they are in.

``model.safetensors`` or the shards that ``model.safetensors.index.json`` lists; the old
``pytorch_model.bin`` or its shards, read with ``weights_only=True`` so that no code in them can
run; a TensorFlow checkpoint (:mod:`bertine.interop.tensorflow`) or OpenAI's arrays
(:mod:`bertine.interop.openai_files`), whose tensors have canonical names here.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from bertine.errors import BertineError
from bertine.files import read_json_object
from bertine.interop.directory import WEIGHTS, has_openai_weights, is_tensorflow
from bertine.interop.openai_files import OpenAIFiles
from bertine.interop.tensorflow.checkpoint import Checkpoint
from bertine.outside import open_tensors, reading_outside
from bertine.registry import TENSORFLOW_CONFIGS

SAFETENSORS = WEIGHTS[0]
#: The suffix of files that torch writes.
_OLD = ".bin"
#: Suffixes of weights that other programs write or want, to be named where there is nothing else.
_FOREIGN = (".h5", ".msgpack", ".safetensors", _OLD, ".pt", ".pth", ".ckpt", ".onnx", ".gguf")

#: torch's short names in a safetensors header -> the names people know.
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}

Value = TypeVar("Value")


@dataclass(frozen=True)
class TensorFacts:
    """The shape and dtype of a tensor in a weights file."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights of `folder`, safetensors preferred over the old file.

    Raises:
        BertineError: there are none, or the index of the shards or of a checkpoint is broken.
    """
    if is_tensorflow(folder):
        return Checkpoint.open(folder).files()
    for name in WEIGHTS:
        if (folder / name).exists():
            return _shards(folder / name) if name.endswith(".json") else [folder / name]
    if has_openai_weights(folder):
        return OpenAIFiles.open(folder).files()
    if any(folder.glob("*.ckpt*.index")):
        configs = " or ".join(TENSORFLOW_CONFIGS)
        raise BertineError(
            f"{folder}: has a TensorFlow checkpoint, which is read with the {configs} that belongs "
            "to it, not with config.json; give that file its name back"
        )
    others = sorted(path.name for path in folder.iterdir() if path.suffix in _FOREIGN)
    unread = f"; it has {', '.join(others[:5])}, which Bertine does not read" if others else ""
    raise BertineError(f"{folder}: has no weights; expected {' or '.join(WEIGHTS)}{unread}")


def _shards(index: Path) -> list[Path]:
    """Return the files that the index of a model in parts lists."""
    places = read_json_object(index).get("weight_map")
    names = list(places.values()) if isinstance(places, dict) else []
    # A shard is a file of this folder: a path that leads elsewhere is not followed.
    if not names or any(not isinstance(n, str) or Path(n).name != n for n in names):
        raise BertineError(f"{index}: lists no shards of this folder in weight_map")
    shards = [index.with_name(name) for name in sorted(set(names))]
    for shard in shards:
        if not shard.exists():
            raise BertineError(f"{shard}: missing, but {index.name} lists it")
    return shards


def _read_bin(path: Path) -> dict[str, Tensor]:
    with reading_outside(path):
        with open(path, "rb") as handle:
            if not handle.read(2).startswith((b"PK", b"\x80")):  # of a zip, of the older kind
                raise ValueError("it does not begin as PyTorch's files do")
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise BertineError(
                f"{path}: holds more than tensors, or is cut short; Bertine runs no code out of "
                f"a weights file. Save it again as {SAFETENSORS}"
            ) from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise BertineError(f"{path}: is not a dictionary of tensors by name")
    return dict(state)


def _tensors(
    folder: Path, value_of: Callable[[Any, str], Value], of_tensor: Callable[[Tensor], Value]
) -> dict[str, Value]:
    """Read something of each tensor of `folder`, by the tensor's name in its file.

    Args:
        value_of: (an open safetensors file, name) → what is read.
        of_tensor: the same of a tensor of the old file, which is read as a whole.
    """
    values: dict[str, Value] = {}
    for path in weight_files(folder):
        if path.suffix == _OLD:
            values |= {name: of_tensor(tensor) for name, tensor in _read_bin(path).items()}
            continue
        with open_tensors(path, "pt") as file:
            values |= {name: value_of(file, name) for name in file.keys()}  # noqa: SIM118
    return values


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of `folder`, by their names in the file, on the CPU, in the file's dtypes.

    They may share memory with the file or with each other: copy before writing to them.

    Raises:
        BertineError: no weights, a file cut short or damaged, or one that holds anything but
            tensors.
    """
    if is_tensorflow(folder):
        return Checkpoint.open(folder).tensors()
    if has_openai_weights(folder):
        return OpenAIFiles.open(folder).tensors()
    return _tensors(folder, lambda file, name: file.get_tensor(name), lambda tensor: tensor)


def read_facts(folder: Path) -> dict[str, TensorFacts]:
    """Read the shapes and dtypes of all tensors of `folder`; of a safetensors file only the header
    is read, of a TensorFlow checkpoint only the index.

    Raises:
        BertineError: as :func:`read_weights`.
    """
    if is_tensorflow(folder):
        entries = Checkpoint.open(folder).entries()
        return {name: TensorFacts(entry.shape, entry.dtype) for name, entry in entries}
    if has_openai_weights(folder):
        rows = OpenAIFiles.open(folder).entries()
        return {name: TensorFacts(shape, dtype) for name, shape, dtype in rows}

    def facts(file: Any, name: str) -> TensorFacts:
        part = file.get_slice(name)
        dtype = str(part.get_dtype())
        return TensorFacts(tuple(part.get_shape()), _DTYPES.get(dtype, dtype))

    return _tensors(
        folder,
        facts,
        lambda tensor: TensorFacts(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")),
    )
