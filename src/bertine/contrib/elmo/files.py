"""Read and write ELMo's files: the published ones, and Bertine's model directory.

The published files are ``options.json`` and weights in HDF5. The options are compared with the
shapes in the weights before any weights are read. A tensor must lie in the file itself, as numbers
without compression, which could expand a small file without limit.

A model directory has ``config.json``, ``model.safetensors`` and, with a softmax, its words in
``vocab.txt``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bertine.contrib.elmo.model import (
    DIRECTIONS,
    NUM_CHARACTERS,
    BidirectionalLm,
    ElmoConfig,
    WordSoftmax,
)
from bertine.contrib.recognize import PublishedFiles, elmo_folder, published_files
from bertine.core.console import plural
from bertine.core.errors import BertineError, naming, require_packages
from bertine.core.files import (
    atomic_dir,
    read_bounded,
    read_json_object,
    write_json,
    write_text,
)
from bertine.core.foreign_files import reading_outside
from bertine.core.process import check_memory
from bertine.core.strict_json import COUNT, FLAG, NUMBER, TEXT, check_shape
from bertine.core.text import briefly
from bertine.hub.weights import SAFETENSORS, check_same_shape, read_weights
from bertine.inference.convert import Conversion, names_in
from bertine.models.config_file import CONFIG

_SHAPE: dict[str, Any] = {
    "lstm": {
        "dim": COUNT,
        "projection_dim": COUNT,
        "n_layers": COUNT,
        "cell_clip": NUMBER,
        "proj_clip": NUMBER,
        "use_skip_connections?": FLAG,
    },
    "char_cnn": {
        "embedding": {"dim": COUNT},
        "filters": [[COUNT]],
        "n_highway?": COUNT,
        "n_characters": COUNT,
        "max_characters_per_token": COUNT,
        "activation": TEXT,
    },
}

#: The gates in the order of the file, by their indices in ours.
_GATES = (0, 2, 1, 3)


def read_options(path: Path) -> ElmoConfig:
    """Read the sizes of a published ELMo.

    Raises:
        BertineError: a key is missing or of the wrong type; a size is impossible; the characters
            are not the published ones.
    """
    values = read_json_object(path)
    check_shape(values, _SHAPE, path)
    lstm, characters = values["lstm"], values["char_cnn"]
    # 261 is the number in training, where no place is empty.
    if characters["n_characters"] not in (NUM_CHARACTERS - 1, NUM_CHARACTERS):
        raise BertineError(
            f"{path}: char_cnn.n_characters is {characters['n_characters']}, but characters are "
            f"the {NUM_CHARACTERS} published ones here"
        )
    filters = characters["filters"]
    if any(len(entry) != 2 for entry in filters):
        raise BertineError(f"{path}: char_cnn.filters must be pairs: width and number of filters")
    with naming(path):
        return ElmoConfig(
            max_characters=characters["max_characters_per_token"],
            character_size=characters["embedding"]["dim"],
            filters=tuple((width, count) for width, count in filters),
            activation=characters["activation"],
            num_highway_layers=characters.get("n_highway") or 0,
            num_hidden_layers=lstm["n_layers"],
            lstm_size=lstm["dim"],
            projection_size=lstm["projection_dim"],
            cell_clip=float(lstm["cell_clip"]),
            projection_clip=float(lstm["proj_clip"]),
            skip_connections=bool(lstm.get("use_skip_connections")),
        )


def read_published(files: PublishedFiles) -> BidirectionalLm:
    """Read a published ELMo.

    Raises:
        BertineError: ``h5py`` is not installed; the options are not those of an ELMo; the weights
            are damaged, or differ in size from the options.
    """
    require_packages("reading ELMo's published weights", ["h5py"])
    config = read_options(files.options)
    check_memory(
        f"{files.options}: a model of {config.num_parameters:,} parameters",
        4 * config.num_parameters,
    )
    with torch.device("meta"):
        model = BidirectionalLm(config)
    state = {
        name: tensor.contiguous() for name, tensor in _read_all(files.weights, files.options, model)
    }
    model.load_state_dict(state, assign=True)
    return model.float().eval()


def _read_all(path: Path, options: Path, model: BidirectionalLm) -> Iterator[tuple[str, Tensor]]:
    """Read all tensors under our names."""
    import h5py

    config = model.config
    ours = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    with reading_outside(path), h5py.File(path, "r") as file:

        def get(name: str, *shape: int) -> Tensor:
            return _tensor(file, path, options, name, shape)

        yield "words.characters.weight", get("char_embed", *ours["words.characters.weight"])
        for number, (width, count) in enumerate(config.filters):
            kernel = get(f"CNN/W_cnn_{number}", 1, width, config.character_size, count)
            yield f"words.filters.{number}.weight", kernel[0].permute(2, 1, 0)
            yield f"words.filters.{number}.bias", get(f"CNN/b_cnn_{number}", count)
        wide = config.num_filters
        for number in range(config.num_highway_layers):
            for part in ("carry", "transform"):
                name = f"words.highways.{number}.{part}"
                group = f"CNN_high_{number}"
                yield f"{name}.weight", get(f"{group}/W_{part}", wide, wide).T
                yield f"{name}.bias", get(f"{group}/b_{part}", wide)
        size, cells = config.projection_size, config.lstm_size
        yield "words.projection.weight", get("CNN_proj/W_proj", wide, size).T
        yield "words.projection.bias", get("CNN_proj/b_proj", size)
        for at, direction in enumerate(DIRECTIONS):
            for number in range(config.num_hidden_layers):
                group = f"RNN_{at}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
                name = f"{direction}_layers.{number}"
                kernel = _our_gates(get(f"{group}/W_0", 2 * size, 4 * cells).T)
                yield f"{name}.weight_ih", kernel[:, :size]
                yield f"{name}.weight_hh", kernel[:, size:]
                bias = _our_gates(get(f"{group}/B", 4 * cells)).clone()
                bias[cells : 2 * cells] += 1.0  # the program adds it at run time
                yield f"{name}.bias", bias
                yield f"{name}.weight_hr", get(f"{group}/W_P_0", cells, size).T


def _our_gates(x: Tensor) -> Tensor:
    """Reorder the gates of x [4 S, …] from TensorFlow's order to PyTorch's."""
    parts = x.chunk(4)
    return torch.cat([parts[at] for at in _GATES])


def _tensor(file: Any, path: Path, options: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    """Read one tensor in fp32.

    Raises:
        BertineError: it is missing, or leads out of the file; is compressed, has another shape or
            is not numeric; has a value that is not finite.
    """
    import h5py

    place = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if link is None:
            raise BertineError(f"{path}: has no tensor {name}, which {options.name} asks for")
        if not isinstance(link, h5py.HardLink):
            raise BertineError(f"{path}: {name} is a link to another place; links are not followed")
        place = place[part]
    if not isinstance(place, h5py.Dataset) or place.is_virtual or place.external:
        raise BertineError(f"{path}: {name} is not an array of this file")
    check_same_shape(path, name, place.shape or (), shape, options.name)
    if place.dtype.kind != "f" or place.dtype.itemsize not in (2, 4, 8):
        raise BertineError(f"{path}: tensor {name} has numbers of the type {place.dtype}")
    if place.compression is not None or place.chunks is not None:
        raise BertineError(
            f"{path}: tensor {name} is in pieces or compressed, which published weights are not"
        )
    values = place[...].astype(np.float32)
    if not np.isfinite(values).all():
        raise BertineError(f"{path}: tensor {name} has numbers that are not finite")
    return torch.from_numpy(values)


# Model directory: ``config.json`` and ``model.safetensors``, and with a softmax its words in
# ``vocab.txt``. Hugging Face has no such type; the keys are the fields of
# :class:`~bertine.contrib.elmo.model.ElmoConfig`.

#: The words of the softmax, one per line, and the facts about the training.
WORDS, ABOUT_TRAINING = "vocab.txt", "bertine.json"

_SOFTMAX = "softmax."
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class LoadedElmo:
    """The contents of an ELMo's folder.

    Attributes:
        model: in fp32 on the CPU, in evaluation mode.
        softmax: the one that it was trained with; None: it has none.
        words: of the softmax.
        source: the file that the weights were read from.
        training: how it was trained, for readers; {}: unknown.
    """

    model: BidirectionalLm
    softmax: WordSoftmax | None
    words: list[str]
    source: Path
    training: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Describe the model: its layers, its words, its weights by part."""
        config, counts = self.model.config, Counter[str]()
        for name, weight in self.model.named_parameters():
            counts[name.partition(".")[0].replace("_", " ")] += weight.numel()
        counts["softmax"] = sum(p.numel() for p in self.softmax.parameters()) if self.softmax else 0
        vocabulary = f"a softmax of {len(self.words):,} words" if self.words else "no softmax"
        by_part = ", ".join(f"{part} {count:,}" for part, count in counts.items() if count)
        return [
            f"architecture: {config.title}, {plural(config.num_hidden_layers, 'LSTM')} of "
            f"{config.lstm_size:,} cells in each direction, states of {config.width:,}; words by "
            f"{config.num_filters:,} filters over characters, {vocabulary}",
            f"parameters: {sum(counts.values()):,} ({by_part})",
            f"weights: {self.source.name}, {self.source.stat().st_size / 1e6:.1f} MB",
        ]


def read_elmo_config(path: Path) -> ElmoConfig:
    """Read a ``config.json``.

    Raises:
        BertineError: a key is unknown, missing or of the wrong type; a size is impossible.
    """
    values = read_json_object(path)
    values.pop("model_type", None)
    known = [entry.name for entry in fields(ElmoConfig)]
    if unknown := sorted(values.keys() - known):
        names = ", ".join(known)
        raise BertineError(f"{path}: {briefly(unknown[0])} is no key of an ELMo; known: {names}")
    try:
        if lacking := [name for name in known if name not in values]:
            raise ValueError(f"{lacking[0]} is missing")
        return ElmoConfig.from_dict(values)
    except (BertineError, ValueError) as error:
        raise BertineError(f"{path}: {error}") from error


def save_elmo(
    out: Path | str,
    model: BidirectionalLm,
    softmax: WordSoftmax | None = None,
    words: Sequence[str] = (),
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write a model directory; an existing `out` is replaced completely, or stays unchanged.

    Args:
        softmax: the one that the model was trained with, written with its `words`; None: neither.
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
    """Read an ELMo: Bertine's model directory, a run's folder, or the two published files.

    Raises:
        BertineError: it is not an ELMo; a file is missing or damaged, or does not fit the others;
            the published ones need ``h5py``.
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
        BertineError: one is missing or surplus, has another shape, or has a value that is not
            finite.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    for name in sorted(expected.keys() ^ tensors.keys()):
        what = "lacks" if name in expected else "has, but config.json does not ask for,"
        raise BertineError(f"{source}: {what} the tensor {name}")
    for name, shape in expected.items():
        check_same_shape(source, name, tensors[name].shape, shape, CONFIG)
        if not tensors[name].isfinite().all():
            raise BertineError(f"{source}: tensor {name} has numbers that are not finite")
    module.load_state_dict(dict(tensors), assign=True)


def _read_words(path: Path, count: int) -> list[str]:
    """Read the words of a softmax.

    Raises:
        BertineError: the file is missing, is not UTF-8, repeats a word or has another number of
            words.
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


# Conversion: ``convert``.


def convert_elmo(model: Path | str, output: Path, hidden_act: str | None) -> Conversion:
    """Write an ELMo, published files or a directory of Bertine's, as a model directory of
    Bertine's.

    Raises:
        BertineError: it cannot be read; an activation is given; `output` holds something else.
    """
    if hidden_act is not None:
        raise BertineError(f"{model}: is an ELMo, whose activation is not to be chosen")
    folder = elmo_folder(model)
    assert folder is not None
    there = names_in(folder, output)
    loaded = load_elmo(folder)
    save_elmo(output, loaded.model, loaded.softmax, loaded.words)
    parts = [loaded.model] if loaded.softmax is None else [loaded.model, loaded.softmax]
    published = published_files(folder)
    read = {loaded.source.name, CONFIG, WORDS}
    if published is not None:
        read.add(published.options.name)
    return Conversion(
        output,
        sum(parameter.numel() for part in parts for parameter in part.parameters()),
        [],
        loaded.model.config.activation,
        [name for name in there if name not in read],
    )
