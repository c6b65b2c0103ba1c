"""ELMo's model directory: ``config.json`` and ``model.safetensors``, and of one with a softmax
``vocab.txt``, its words. There is none of Hugging Face's; the keys are the fields of
:class:`~bertine.models.elmo.config.ElmoConfig`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.files import atomic_dir, read_bounded, read_json_object, write_json, write_text
from bertine.interop.config_file import CONFIG
from bertine.interop.elmo.published import PublishedFiles, published_files, read_published
from bertine.interop.weights import SAFETENSORS, read_weights
from bertine.model_folders import locate
from bertine.models.elmo.bilm import BidirectionalLm
from bertine.models.elmo.config import ElmoConfig
from bertine.models.elmo.softmax import WordSoftmax
from bertine.strict_json import COUNT, FLAG, NUMBER, TEXT, check_shape
from bertine.system.memory import check_memory
from bertine.terminal.text import briefly

#: The words of the softmax, one a line, and how the model was trained.
WORDS, ABOUT_TRAINING = "vocab.txt", "bertine.json"

_SOFTMAX = "softmax."
_MOST_BYTES = 1 << 30
_SHAPE: dict[str, Any] = {
    "max_characters": COUNT,
    "character_size": COUNT,
    "filters": [[COUNT]],
    "activation": TEXT,
    "num_highway_layers": COUNT,
    "num_hidden_layers": COUNT,
    "lstm_size": COUNT,
    "projection_size": COUNT,
    "cell_clip": NUMBER,
    "projection_clip": NUMBER,
    "skip_connections": FLAG,
    "word_splitting": TEXT,
    "dropout": NUMBER,
    "vocab_size": COUNT,
}


@dataclass(frozen=True)
class LoadedElmo:
    """What a folder of an ELMo holds.

    Attributes:
        model: in fp32 on the CPU, in evaluation mode.
        softmax: what it was trained with; None: it has none.
        words: of the softmax.
        source: what the weights were read from.
        training: how it was trained, for the reader; {}: not known.
    """

    model: BidirectionalLm
    softmax: WordSoftmax | None
    words: list[str]
    source: Path
    training: dict[str, Any] = field(default_factory=dict)


def elmo_folder(path: str | Path) -> Path | None:
    """Return the folder of an ELMo that `path` is or names, or that the run's folder `path` holds;
    None where that is something else, or nothing.

    Raises:
        BertineError: a ``config.json`` that cannot be read, or several published files of a kind.
    """
    folder = locate(path)
    for place in (folder, folder / "model"):
        if (place / CONFIG).is_file():
            values = read_json_object(place / CONFIG)
            return place if values.get("model_type") == ElmoConfig.model_type else None
    return folder if published_files(folder) else None


def read_elmo_config(path: Path) -> ElmoConfig:
    """Read a ``config.json``.

    Raises:
        BertineError: a key is unknown, missing or of the wrong type; a size is impossible.
    """
    values = read_json_object(path)
    values.pop("model_type", None)
    if unknown := sorted(values.keys() - _SHAPE.keys()):
        raise BertineError(
            f"{path}: {briefly(unknown[0])} is no key of an ELMo; known: {', '.join(_SHAPE)}"
        )
    check_shape(values, _SHAPE, path)
    if any(len(entry) != 2 for entry in values["filters"]):
        raise BertineError(f"{path}: filters must be pairs: width and number of filters")
    values["filters"] = tuple((width, count) for width, count in values["filters"])
    try:
        return ElmoConfig(**values)
    except BertineError as error:
        raise BertineError(f"{path}: {error}") from error


def save_elmo(
    out: Path | str,
    model: BidirectionalLm,
    softmax: WordSoftmax | None = None,
    words: Sequence[str] = (),
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write a model directory; an existing `out` is replaced as a whole, or stays as it was.

    Args:
        softmax: what the model was trained with, its `words` being written too; None: neither.
        training: how it was trained.
    """
    state: dict[str, Tensor] = dict(model.state_dict())
    if softmax is not None:
        state |= {_SOFTMAX + name: tensor for name, tensor in softmax.state_dict().items()}
    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in state.items()
    }
    config = dataclasses.replace(model.config, vocab_size=len(words) if softmax else 0)
    with atomic_dir(out) as folder:
        write_json(folder / CONFIG, {"model_type": config.model_type, **config.to_dict()})
        save_file(tensors, folder / SAFETENSORS, metadata={"format": "pt"})
        if softmax is not None:
            write_text(folder / WORDS, "".join(f"{word}\n" for word in words))
        if training is not None:
            write_json(folder / ABOUT_TRAINING, {"task": "language model", "training": training})


def load_elmo(path: Path | str) -> LoadedElmo:
    """Read an ELMo: our model directory, a run's folder, or the two published files.

    Raises:
        BertineError: it is none; a file is missing or damaged, or does not fit the others; the
            published ones need ``h5py``.
    """
    folder = elmo_folder(path)
    if folder is None:
        raise BertineError(
            f"{path}: is no ELMo: expected {CONFIG} with model_type "
            f"{ElmoConfig.model_type}, or its published options and weights (.hdf5)"
        )
    if not (folder / CONFIG).is_file():
        files = published_files(folder)
        assert isinstance(files, PublishedFiles)
        return LoadedElmo(read_published(files), None, [], files.weights)
    config = read_elmo_config(folder / CONFIG)
    total = config.num_parameters + config.vocab_size * (config.projection_size + 1)
    check_memory(f"{folder / CONFIG}: a model of {total:,} parameters", 4 * total)
    with torch.device("meta"):
        model = BidirectionalLm(config)
        softmax = WordSoftmax(config) if config.vocab_size else None
    source = folder / SAFETENSORS
    tensors = {name: tensor.float() for name, tensor in read_weights(folder).items()}
    _fill(model, {n: t for n, t in tensors.items() if not n.startswith(_SOFTMAX)}, source)
    words: list[str] = []
    if softmax is not None:
        own = {n[len(_SOFTMAX) :]: t for n, t in tensors.items() if n.startswith(_SOFTMAX)}
        _fill(softmax, own, source)
        words = _read_words(folder / WORDS, config.vocab_size)
    training: Any = {}
    if (folder / ABOUT_TRAINING).is_file():
        training = read_json_object(folder / ABOUT_TRAINING).get("training", {})
    if not isinstance(training, dict):
        raise BertineError(f"{folder / ABOUT_TRAINING}: training must be a JSON object")
    return LoadedElmo(model.eval(), softmax, words, source, training)


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Put tensors into a module on the meta device.

    Raises:
        BertineError: one is missing, is too many, or has another shape or a number that is none.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    for name in sorted(expected.keys() ^ tensors.keys()):
        what = "lacks" if name in expected else "has, but config.json does not ask for,"
        raise BertineError(f"{source}: {what} the tensor {name}")
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise BertineError(
                f"{source}: tensor {name} has shape {list(tensors[name].shape)}, but {CONFIG} "
                f"asks for {list(shape)}"
            )
        if not tensors[name].isfinite().all():
            raise BertineError(f"{source}: tensor {name} has numbers that are not finite")
    module.load_state_dict(dict(tensors), assign=True)


def _read_words(path: Path, count: int) -> list[str]:
    """Read the words of a softmax.

    Raises:
        BertineError: the file is missing, is not UTF-8, has a word twice or another number.
    """
    try:
        words = read_bounded(path, _MOST_BYTES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BertineError(f"{path}: is not UTF-8 ({error.reason})") from error
    words = words[:-1] if words[-1] == "" else words
    if len(words) != count:
        raise BertineError(f"{path}: has {len(words):,} words, but vocab_size is {count:,}")
    if len(set(words)) < count:
        raise BertineError(f"{path}: has a word twice")
    return words
