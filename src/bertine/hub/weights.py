"""Read the weights and settings of model folders, check them, and load them into models."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertine.core.console import Shown
from bertine.core.contrib import registered
from bertine.core.errors import BertineError
from bertine.core.files import read_json, read_json_object
from bertine.core.foreign_files import open_array, open_tensors, reading_outside
from bertine.core.names import implementation
from bertine.core.process import check_memory
from bertine.core.text import briefly
from bertine.families.gpt import OpenAIGPTConfig
from bertine.models.config import LARGEST, MOST_LAYERS, Config
from bertine.models.config_file import CONFIG, ConfigFile
from bertine.models.family import Family, family_of, read_config
from bertine.models.heads import Model
from bertine.models.layers import init_weights
from bertine.models.precision import seeded
from bertine.models.tensor_names import WeightNames

# Read the weights of the first GPT as openai/finetune-transformer-lm publishes them.
#
# A folder has ``params_shapes.json`` and ``params_0.npy`` to ``params_9.npy``. The arrays
# together are one row of numbers, cut anywhere; the shapes describe its contents: positions,
# words, and for each layer c_attn, c_proj, ln_1, c_fc, c_proj, ln_2, matrices [1, inputs,
# outputs], each with its bias (``train.py``, where ``model/params_`` is read). The number of
# attention heads is in no file: the program has 12, of 64 numbers each.

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
    def holds(cls, folder: Path) -> bool:
        """Return whether the weights of `folder` are OpenAI's files."""
        return cls.described_in(folder).is_file()

    @classmethod
    def described_in(cls, folder: Path) -> Path:
        """Return the file that describes the model."""
        return folder / SHAPES

    @classmethod
    def made(cls, path: Path) -> bool:
        """Return False: arrays have names of their own, which say nothing."""
        return False

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

    def line(self, *, lowercase: bool) -> str:
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


# Model folders: transformers' kind, and those of other programs: OpenAI's arrays, and what contrib
# reads; and the configuration of each.

#: The weights that transformers writes, one file or an index of its parts; the first that exists is
#: read. Google's configuration may be next to old ones.
WEIGHTS = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)

#: The file of transformers that defines the normalization of texts.
TOKENIZER_SETTINGS = "tokenizer_config.json"


class ForeignWeights(Protocol):
    """The weights of a folder in files of another program, opened and not yet read; their tensors
    have canonical names."""

    @classmethod
    def holds(cls, folder: Path) -> bool:
        """Return whether `folder`, which has none of :data:`WEIGHTS`, has these files."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the files of `folder`.

        Raises:
            BertineError: a file is damaged, or of another network.
        """

    @classmethod
    def described_in(cls, folder: Path) -> Path:
        """Return the file of `folder` that describes the model, for messages."""

    @classmethod
    def made(cls, path: Path) -> bool:
        """Return whether `path` is one of these files, or the prefix of their names."""

    @property
    def settings(self) -> ConfigFile:
        """The configuration."""

    def files(self) -> list[Path]:
        """Return all files."""

    def tensors(self) -> dict[str, Tensor]:
        """Read all tensors."""

    def entries(self) -> Iterator[tuple[str, tuple[int, ...], str]]:
        """Yield the name, shape and dtype of each tensor."""

    def line(self, *, lowercase: bool) -> str:
        """Describe the folder in one line; `lowercase`: whether its tokenizer lower-cases texts."""


def _readers() -> list[type[ForeignWeights]]:
    """Return what reads the files of other programs: of contrib, and OpenAI's."""
    return [*map(implementation, registered("WEIGHTS").values()), OpenAIFiles]


def _foreign(folder: Path) -> type[ForeignWeights] | None:
    """Return what reads the weights of `folder` where another program wrote them; else None."""
    if not folder.is_dir() or any((folder / name).exists() for name in WEIGHTS):
        return None
    return next((reader for reader in _readers() if reader.holds(folder)), None)


def _described(folder: Path) -> type[ForeignWeights] | None:
    """Return what reads `folder` where another program wrote its configuration too; else None."""
    return None if (folder / CONFIG).exists() else _foreign(folder)


def is_model_directory(folder: Path) -> bool:
    """Return whether `folder` looks like a model directory: whether a file describes its model."""
    return (folder / CONFIG).exists() or _foreign(folder) is not None


def is_of_checkpoint(path: Path) -> bool:
    """Return whether `path` is a file of another program's weights, or the prefix of their
    names."""
    return any(reader.made(path) for reader in _readers())


def settings_file(folder: Path) -> Path:
    """Return the file of a model directory that describes its model, for messages."""
    reader = _described(folder)
    return folder / CONFIG if reader is None else reader.described_in(folder)


def read_settings(folder: Path) -> ConfigFile:
    """Read the configuration of a model directory.

    Raises:
        BertineError: as :func:`bertine.models.family.read_config` and :meth:`ForeignWeights.open`.
    """
    reader = _described(folder)
    return read_config(folder / CONFIG) if reader is None else reader.open(folder).settings


def origin_line(folder: Path, *, lowercase: bool) -> str | None:
    """Describe a folder of another program's in one line; return None for other folders.

    Args:
        folder: the model directory.
        lowercase: whether its tokenizer lower-cases texts.
    """
    reader = _described(folder)
    return None if reader is None else reader.open(folder).line(lowercase=lowercase)


# Weights: read from any of the usual files of a model folder.
#
# These are ``model.safetensors`` or the shards in ``model.safetensors.index.json``; the old
# ``pytorch_model.bin`` or its shards, read with ``weights_only=True`` so that no code in them can
# run; the files of another program (:class:`ForeignWeights`).

SAFETENSORS = WEIGHTS[0]
#: The suffix of files that torch writes.
_OLD = ".bin"
#: Suffixes of other programs' weights, to be named if there is nothing else.
_FOREIGN = (".h5", ".msgpack", ".safetensors", _OLD, ".pt", ".pth", ".ckpt", ".onnx", ".gguf")

#: torch's short names in a safetensors header → the usual names.
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
    if (reader := _foreign(folder)) is not None:
        return reader.open(folder).files()
    for name in WEIGHTS:
        if (folder / name).exists():
            return _shards(folder / name) if name.endswith(".json") else [folder / name]
    others = sorted(path.name for path in folder.iterdir() if path.suffix in _FOREIGN)
    unread = f"; it has {', '.join(others[:5])}, which Bertine does not read" if others else ""
    raise BertineError(f"{folder}: has no weights; expected {' or '.join(WEIGHTS)}{unread}")


def _shards(index: Path) -> list[Path]:
    """Return the files in the index of a model in parts."""
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
            if not handle.read(2).startswith((b"PK", b"\x80")):  # a zip, or the older format
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
    """Read a property of each tensor of `folder`, by the tensor's name in its file.

    Args:
        value_of: (an open safetensors file, name) → the property.
        of_tensor: the same for a tensor of the old file, which is read completely.
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
        BertineError: there are no weights, a file is cut short or damaged, or one holds anything
            other than tensors.
    """
    if (reader := _foreign(folder)) is not None:
        return reader.open(folder).tensors()
    return _tensors(folder, lambda file, name: file.get_tensor(name), lambda tensor: tensor)


def read_facts(folder: Path) -> dict[str, TensorFacts]:
    """Read the shapes and dtypes of all tensors of `folder`, from the header of a safetensors file
    or what another program has in its place.

    Raises:
        BertineError: as for :func:`read_weights`.
    """
    if (reader := _foreign(folder)) is not None:
        rows = reader.open(folder).entries()
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


# Checks before building: ``config.json`` against the weights' file and the memory. Ten million
# layers would take hours to build, and a matrix that is too large ends in an allocator's error, or
# in the end of another process.

#: Bytes of a parameter in fp32; for training, its gradient and AdamW's two moments as well.
_FP32, _TRAINED = 4, 16


class HasShape(Protocol):
    """A tensor, or a description of one."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def check_same_shape(
    source: Path, name: str, shape: Sequence[int], expected: Sequence[int], described_in: str
) -> None:
    """Refuse a tensor `name` of another shape than the file `described_in` says.

    Raises:
        BertineError: it has another one.
    """
    if tuple(shape) != tuple(expected):
        raise BertineError(
            f"{source}: tensor {name} has shape {list(shape)}, but {described_in} asks for "
            f"{list(expected)}"
        )


def check_against_weights(
    source: Path,
    tensors: Mapping[str, HasShape],
    config: Config,
    family: Family,
    described_in: str = CONFIG,
) -> None:
    """Refuse a configuration whose sizes differ from those of the weights.

    Args:
        source: the weights' file, for messages.
        tensors: by their canonical names.
        config: the one in config.json.
        family: of its type.
        described_in: the name of that file, for messages.

    Raises:
        BertineError: there are fewer layers, or groups of them, or another size differs.
    """
    names = family.names
    for name, shape in family.tensor_sizes(config).items():
        if name in tensors:
            check_same_shape(source, name, tensors[name].shape, shape, described_in)
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
        trained: whether all of its weights are trained, which takes four times as much.

    Raises:
        BertineError: it is larger.
    """
    count = config.num_parameters
    doing = "to be trained " if trained else ""
    check_memory(
        f"{where}: a model of {count:,} parameters {doing}",
        count * (_TRAINED if trained else _FP32),
    )


@dataclass(repr=False)
class LoadReport(Shown):
    """A report on the tensors of a file, by their canonical names.

    Attributes:
        config: of the model.
        names: of its family.
        loaded: in the file and in the model.
        new: in the model only: initialized at random.
        dropped: in the file only; they belong to a part that was not asked for.
        adopted: in a new part of the model, with values of another part of the file.
        unexpected: in the file only, and in no known part. Loading refuses such a file.
        notes: head → addition to its name in the lines, e.g. "6 labels".
    """

    config: Config
    names: WeightNames
    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the one line that loading prints: which parts were loaded, new or dropped."""
        parts = [f"loaded {len(self.loaded)} tensors: {self._parts(self.loaded)}"]
        if self.new:
            parts.append(f"new (random): {self._parts(self.new)}")
        if self.adopted:
            parts.append(f"new, with weights from another head: {self._parts(self.adopted)}")
        if self.dropped:
            parts.append(f"dropped: {self._parts(self.dropped, self.notes)}")
        return ["; ".join(parts)]

    def _parts(self, names: Collection[str], notes: Mapping[str, str] | None = None) -> str:
        """List the parts that tensors belong to, each once, in their order: "encoder, pooler"."""
        kinds = family_of(self.config.model_type).heads
        titles = {"encoder": "encoder", "pooler": "pooler"}
        titles |= {name: kind.title for name, kind in kinds.items()}
        titles |= {title: title for title in self.names.dropped.values()}
        held = {self.names.part_of(name) for name in names}
        listed = [
            title + (f" ({notes[part]})" if notes and part in notes else "")
            for part, title in titles.items()
            if part in held
        ]
        return ", ".join(listed) or "none"


def sort_tensors(
    source: Path,
    tensors: dict[str, Tensor],
    model: Model,
    names: WeightNames,
    renew: set[str],
    described_in: str = CONFIG,
) -> tuple[dict[str, Tensor], LoadReport]:
    """Sort the tensors of a file into loaded, new and dropped ones.

    Args:
        source: the file, for messages.
        tensors: in it, by their canonical names.
        model: on the meta device; its shapes are the required ones.
        names: of its family.
        renew: heads not to be loaded.
        described_in: the name of the file that describes the model, for messages.

    Returns:
        The tensors to load, by the same names, and the report.

    Raises:
        BertineError: a tensor belongs to no known part, differs in shape from the model's, holds
            integers, or is missing from a part that the file holds.
    """
    config = model.config
    expected = names.to_canonical(model.state_dict(), config)
    part_of = names.part_of
    wanted = {part_of(name) for name in expected}
    report = LoadReport(config, names)
    for head, kind in model.family.heads.items():
        if not kind.named or head not in names.heads:
            continue
        output = f"{names.heads[head].output()}.weight"
        old, now = tensors.get(output), expected.get(output)
        if old is None:
            continue
        report.notes[head] = f"{old.shape[0]} labels" if old.dim() == 2 else "another shape"
        # Another number of classes with the same hidden size: a head for another task.
        if now is not None and old.dim() == 2 and old.shape[1] == now.shape[1]:
            renew = renew | ({head} if old.shape != now.shape else set())

    keep: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        part = part_of(name)
        if part is None or (part in wanted and part not in renew and name not in expected):
            report.unexpected.append(name)
            continue
        if part not in wanted or part in renew:
            report.dropped.append(name)
            continue
        check_same_shape(source, name, tensor.shape, expected[name].shape, described_in)
        if not tensor.is_floating_point():
            raise BertineError(f"{source}: tensor {name} is {tensor.dtype}, not floating-point")
        if not _is_finite(tensor):
            raise BertineError(
                f"{source}: tensor {name} has a number that is NaN or infinite, so the "
                "model cannot answer; training has diverged, or the file is damaged: take an "
                "earlier one"
            )
        keep[name] = tensor
        report.loaded.append(name)
    if report.unexpected:
        raise BertineError(_unexpected(source, report.unexpected, model, names, described_in))

    partial = {part_of(name) for name in keep} | {"encoder"}
    missing = [name for name in expected if name not in keep]
    for name in missing:
        if part_of(name) in partial:
            count = sum(part_of(other) in partial for other in missing)
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise BertineError(
                f"{source}: tensor {name} is missing{more}; {described_in} says that it must "
                "be there"
            )
    for copy, held in names.tied(config).items():
        if copy in keep and not torch.equal(keep[copy], keep[held]):
            raise BertineError(
                f"{source}: tensor {copy} is not the same as {held}, but {described_in} says they "
                "are shared; a program that does not know its key may have trained them: remove it"
            )
    report.new = [name for name in missing if not names.is_weightless(part_of(name) or "")]
    return keep, report


def _is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers of a tensor are finite in fp32, the type of the computation."""
    values = tensor.float()
    # One pass without a copy; the sum may overflow though no number does.
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def _unexpected(
    source: Path, unexpected: list[str], model: Model, names: WeightNames, described_in: str
) -> str:
    listed = ", ".join(unexpected[:8])
    listed += f" and {len(unexpected) - 8} more" if len(unexpected) > 8 else ""
    copies = {copy for copy, _ in names.copies}
    if not copies.isdisjoint(unexpected):
        return f"{source}: {listed} is not tied to the word embeddings; Bertine's MLM head is"
    title = model.config.title
    return (
        f"{source}: unexpected tensors: {listed}; they are not part of the {title} that "
        f"{described_in} describes. Correct that file, or save the encoder alone with "
        f"transformers' {family_of(model.config.model_type).class_prefix}Model"
    )


def adopt(
    model: Model, tensors: Mapping[str, Tensor], names: WeightNames, report: LoadReport
) -> None:
    """Give new heads the layers that they start with and that belong to another head in the file
    (:attr:`bertine.models.tensor_names.HeadNames.adopts`), as transformers does if both have the
    same name. The report then lists them as adopted; the last layer of the head stays new."""
    for head, module in model.heads.items():
        of_head = names.heads[head]
        state = module.state_dict()
        rows = dict(of_head.rows(head))
        for ours, theirs in of_head.adopts:
            for kind in ("weight", "bias"):
                name, tensor = f"{ours}.{kind}", tensors.get(f"{theirs}.{kind}")
                canonical = rows[f"heads.{head}.{name}"]
                if canonical not in report.new or tensor is None:
                    continue
                if name in state and state[name].shape == tensor.shape:
                    state[name].copy_(tensor)
                    report.new.remove(canonical)
                    report.adopted.append(canonical)


def fill(model: Model, tensors: Mapping[str, Tensor], names: WeightNames, seed: int) -> None:
    """Fill `model` with the loaded tensors (canonical names), and initialize the parts without."""
    weights = names.from_canonical(tensors, model.config)
    parts: dict[str, nn.Module] = {f"heads.{name}": head for name, head in model.heads.items()}
    if model.backbone.pooler is not None:
        parts["backbone.pooler"] = model.backbone.pooler
    for name, part in parts.items():
        if any(key.startswith(name + ".") for key in weights):
            continue
        if any(tensor.is_meta for tensor in (*part.parameters(), *part.buffers())):
            part.to_empty(device="cpu")
        with seeded(seed, "new weights", name):
            init_weights(part, model.config.initializer_range)
    # A copy: the tensors may share memory with the file or with each other.
    whole = torch.contiguous_format
    copies = {
        name: tensor.to(torch.float32, copy=True, memory_format=whole)
        for name, tensor in weights.items()
    }
    model.load_state_dict(copies, strict=False, assign=True)
    empty = [n for n, t in model.state_dict(keep_vars=True).items() if t.is_meta]
    if empty:
        raise RuntimeError(f"weights left without values: {', '.join(empty)}")
