"""ELMo's published files: ``options.json`` and weights in HDF5.

What the options say is compared with the shapes in the weights before any of them is read. A tensor
must lie in the file itself, as numbers without a compression that could make much of little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertine.errors import BertineError
from bertine.files import os_errors, read_json_object
from bertine.models.elmo.bilm import DIRECTIONS, BidirectionalLm
from bertine.models.elmo.characters import NUM_CHARACTERS
from bertine.models.elmo.config import ElmoConfig
from bertine.outside import reading_outside
from bertine.packages import require_packages
from bertine.strict_json import COUNT, FLAG, NUMBER, TEXT, check_shape
from bertine.system.memory import check_memory

#: What the published names of the two files end with.
OPTIONS, WEIGHTS = "options.json", ".hdf5"

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

#: The gates in the order of the file, by their places in ours.
_GATES = (0, 2, 1, 3)


@dataclass(frozen=True)
class PublishedFiles:
    """A folder's two files.

    Attributes:
        options: the JSON.
        weights: the HDF5.
    """

    options: Path
    weights: Path


def published_files(folder: Path) -> PublishedFiles | None:
    """Return the two files of an ELMo in `folder`; None where it has none.

    Raises:
        BertineError: it has several of a kind.
    """
    if not folder.is_dir():
        return None
    with os_errors(folder, "looking at it"):
        names = sorted(entry.name for entry in folder.iterdir())
    options = [name for name in names if name.endswith(OPTIONS)]
    weights = [name for name in names if name.endswith(WEIGHTS)]
    if len(weights) > 1:  # vectors may stand beside them
        weights = [name for name in weights if name.endswith("weights" + WEIGHTS)] or weights
    if not options or not weights:
        return None
    for kind, found in (("options", options), ("weights", weights)):
        if len(found) > 1:
            raise BertineError(
                f"{folder}: has several files of {kind} ({', '.join(found[:4])}); leave one there"
            )
    return PublishedFiles(folder / options[0], folder / weights[0])


def read_options(path: Path) -> ElmoConfig:
    """Read the sizes of a published ELMo.

    Raises:
        BertineError: a key is missing or of the wrong type; a size is impossible; the characters
            are not the published ones.
    """
    values = read_json_object(path)
    check_shape(values, _SHAPE, path)
    lstm, characters = values["lstm"], values["char_cnn"]
    # 261 is what a model has in training, where no place is empty.
    if characters["n_characters"] not in (NUM_CHARACTERS - 1, NUM_CHARACTERS):
        raise BertineError(
            f"{path}: char_cnn.n_characters is {characters['n_characters']}, but characters are "
            f"the {NUM_CHARACTERS} published ones here"
        )
    filters = characters["filters"]
    if any(len(entry) != 2 for entry in filters):
        raise BertineError(f"{path}: char_cnn.filters must be pairs: width and number of filters")
    try:
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
    except BertineError as error:
        raise BertineError(f"{path}: {error}") from error


def read_published(files: PublishedFiles) -> BidirectionalLm:
    """Read a published ELMo.

    Raises:
        BertineError: ``h5py`` is not installed; the options are not of an ELMo; the weights are
            damaged, or of other sizes than the options say.
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
                bias[cells : 2 * cells] += 1.0  # the program adds it as it runs
                yield f"{name}.bias", bias
                yield f"{name}.weight_hr", get(f"{group}/W_P_0", cells, size).T


def _our_gates(x: Tensor) -> Tensor:
    """x [4 S, …], its gates in the order of TensorFlow. Returns them in that of PyTorch."""
    parts = x.chunk(4)
    return torch.cat([parts[at] for at in _GATES])


def _tensor(file: Any, path: Path, options: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    """Read one tensor in fp32.

    Raises:
        BertineError: it is not there, or leads out of the file; is compressed, of another shape or
            not of numbers; has a number that is none.
    """
    import h5py

    place = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if link is None:
            raise BertineError(f"{path}: has no tensor {name}, which {options.name} asks for")
        if not isinstance(link, h5py.HardLink):
            raise BertineError(f"{path}: {name} is a link to elsewhere, which is not followed")
        place = place[part]
    if not isinstance(place, h5py.Dataset) or place.is_virtual or place.external:
        raise BertineError(f"{path}: {name} is not an array of this file")
    if place.shape != shape:
        raise BertineError(
            f"{path}: tensor {name} has shape {list(place.shape or ())}, but {options.name} asks "
            f"for {list(shape)}"
        )
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
