"""Read a folder with one of Google's TensorFlow checkpoints.

It has ``bert_config.json``, ``bert_model.ckpt.index`` and ``.data-…``, the files that
google-research/bert, albert and similar projects publish and write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertine.contrib.tensorflow.bundle import INDEX_SUFFIX, Bundle, is_table
from bertine.contrib.tensorflow.variables import (
    VARIABLES,
    Gelu,
    VariablePlace,
    Variables,
    is_left_out,
    plain_name,
)
from bertine.core.errors import BertineError
from bertine.core.files import read_bounded, read_json_object
from bertine.core.text import briefly
from bertine.hub.weights import TOKENIZER_SETTINGS
from bertine.models.config import Config
from bertine.models.config_file import CONFIG, ConfigFile
from bertine.models.family import Family, family_of

#: Configuration files of Google's programs → the possible model types: the first one with a key of
#: its own there, else the last.
CONFIGS = {
    "bert_config.json": ("mobilebert", "bert"),
    "albert_config.json": ("albert",),
    "xlnet_config.json": ("xlnet",),
}
#: The file that names the newest of several checkpoints, and its first line.
_NEWEST, _NEWEST_LINE = "checkpoint", re.compile(rb'model_checkpoint_path: "([^"\n]{1,4096})"')
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
#: The most files of a folder that are examined.
_MOST_FILES = 1000


def tensorflow_config(folder: Path) -> Path | None:
    """Return the configuration in a folder of Google's; None if there is none.

    It has the published name, or is the only file whose name begins like it
    (``bert_config_large.json``).
    """
    for name in CONFIGS:
        if (folder / name).is_file():
            return folder / name
    others = [
        path for name in CONFIGS for path in folder.glob(f"{name.removesuffix('.json')}*.json")
    ]
    return others[0] if len(others) == 1 else None


def tensorflow_index(folder: Path) -> Path | None:
    """Return the index of the checkpoint in `folder`; if there are several, that of the one in the
    file ``checkpoint``; None if there is none.

    Raises:
        BertineError: there are several, and no file names the newest.
    """
    indexes = sorted(folder.glob(f"*{INDEX_SUFFIX}"))
    if len(indexes) < 2:
        return indexes[0] if indexes else None
    if (folder / _NEWEST).is_file():
        match = _NEWEST_LINE.match(read_bounded(folder / _NEWEST, 1 << 20))
        name = match[1].decode("utf-8", "replace").rpartition("/")[2] if match else ""
        if (chosen := folder / f"{name}{INDEX_SUFFIX}") in indexes:
            return chosen
    names = ", ".join(path.name for path in indexes[:3])
    raise BertineError(
        f"{folder}: holds {len(indexes)} checkpoints ({names}{', …' if len(indexes) > 3 else ''}), "
        f"and no file {_NEWEST!r} that names one of them; leave the one that is meant"
    )


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint of Google's: its index is read and checked, its data are not yet.

    Attributes:
        file: its configuration.
        config: the values in it, with the activation resolved.
        family: of its model type.
        variables: the names of that type's variables.
        bundle: the tensors.
        places: of the variables of the model, by their names.
        left_out: the names of the others.
        gelu: the meaning of "gelu"; None if the configuration has another activation.
        unknown: unknown keys of the configuration, which were not read.
    """

    file: Path
    config: Config
    family: Family
    variables: Variables
    bundle: Bundle
    places: dict[str, VariablePlace]
    left_out: list[str]
    gelu: Gelu | None
    unknown: tuple[str, ...]

    @classmethod
    def holds(cls, folder: Path) -> bool:
        """Return whether `folder` has a configuration of Google's or the files of a checkpoint;
        where it has a ``config.json``, an index."""
        if (folder / CONFIG).exists():
            return any(folder.glob(f"*.ckpt*{INDEX_SUFFIX}"))
        return tensorflow_config(folder) is not None or any(folder.glob("*.data-*-of-*"))

    @classmethod
    def described_in(cls, folder: Path) -> Path:
        """Return the file that describes the model, for messages."""
        return tensorflow_config(folder) or folder / CONFIG

    @classmethod
    def made(cls, path: Path) -> bool:
        """Return whether `path` is a file of a checkpoint, or the prefix of their names."""
        prefix = path.name.removesuffix(INDEX_SUFFIX).partition(".data-")[0]
        return bool(prefix) and path.with_name(prefix + INDEX_SUFFIX).is_file()

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Open the checkpoint in `folder`.

        Raises:
            BertineError: there is none, or it is of an unsupported kind; the configuration is a
                ``config.json``; it or the index is damaged; it belongs to another network.
        """
        if (folder / CONFIG).exists():
            raise BertineError(
                f"{folder}: has a TensorFlow checkpoint, which is read with the "
                f"{' or '.join(CONFIGS)} that belongs to it, not with {CONFIG}; give that file its "
                "name back"
            )
        file = tensorflow_config(folder)
        if file is None:
            raise BertineError(
                f"{folder}: has a TensorFlow checkpoint, but no {' or '.join(CONFIGS)}; copy it, "
                "and the vocabulary, from the folder of the model that was trained on"
            )
        family, variables, config, unknown = _read_config(file)
        index = tensorflow_index(folder)
        if index is None:
            raise _no_checkpoint(folder, file)
        bundle = Bundle(index)
        places, left_out = _sorted(bundle, family, variables)
        gelu = None
        if config.hidden_act == "gelu":
            gelu = variables.gelu(config, any("/" in name for name in left_out))
            config = config.replace(hidden_act=gelu.name)
        return cls(file, config, family, variables, bundle, places, left_out, gelu, unknown)

    @cached_property
    def settings(self) -> ConfigFile:
        """The configuration in the form of a ``config.json``."""
        return ConfigFile(self.config, "", (), unknown=self.unknown)

    def files(self) -> list[Path]:
        """Return the index and the data files."""
        return self.bundle.files()

    def entries(self) -> Iterator[tuple[str, tuple[int, ...], str]]:
        """Yield the canonical name, the shape under that name and the dtype of each tensor of the
        model."""
        for variable, place in self.places.items():
            entry = self.bundle.entries[variable]
            shape = entry.shape[::-1] if place.transposed else entry.shape
            for name, number in place.parts(entry.shape, self.config.num_hidden_layers):
                yield name, shape if number is None else shape[1:], entry.dtype

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by their canonical names. Tensors that are not transposed share memory
        with the file.

        Raises:
            BertineError: a data file is missing, cut short or damaged.
        """
        result: dict[str, Tensor] = {}
        for variable, place in self.places.items():
            tensor = torch.from_numpy(np.asarray(self.bundle.array(variable)))
            if place.transposed and tensor.dim() == 2:
                tensor = tensor.t().contiguous()
            for name, number in place.parts(tuple(tensor.shape), self.config.num_hidden_layers):
                result[name] = tensor if number is None else tensor[number]
        words = result.get("embeddings.word_embeddings.weight")
        width = self.config.hidden_size
        if words is not None and words.dim() == 2 and words.shape[1] == width:
            for module in self.variables.identities:
                result.setdefault(f"{module}.weight", torch.eye(width))
                result.setdefault(f"{module}.bias", torch.zeros(width))
        return result

    def line(self, *, lowercase: bool) -> str:
        """Describe in one line what was chosen and left out."""
        facts = [f"Google's {self.config.title}, {len(self.places)} tensors"]
        if self.left_out:
            slots = dict.fromkeys(name.rpartition("/")[2] for name in self.left_out)
            facts.append(f"left out: {', '.join(slots)} ({len(self.left_out)} tensors)")
        if self.gelu is not None:
            other = "gelu_new" if self.gelu.name == "gelu" else "gelu"
            facts.append(f"gelu {self.gelu.why} (else: bertine convert --hidden-act {other})")
        folder = self.file.parent
        if (folder / "vocab.txt").is_file() and not (folder / TOKENIZER_SETTINGS).is_file():
            # The program itself needs --do_lower_case, and checks it by the published folders'
            # names; the vocabulary answers the same for all five of them and for any other.
            case = (
                "lower-cased, as vocab.txt has no capitals" if lowercase else "cased, as vocab.txt"
            )
            facts.append(f"text {case} (else: do_lower_case in a {TOKENIZER_SETTINGS})")
        return f"{self.bundle.index.name}: {'; '.join(facts)}"


def _read_config(file: Path) -> tuple[Family, Variables, Config, tuple[str, ...]]:
    """Read a configuration of Google's, with its activation unresolved; return also the unknown
    keys."""
    values = read_json_object(file)
    types = next(
        types for name, types in CONFIGS.items() if file.name.startswith(name.removesuffix(".json"))
    )
    keys = [VARIABLES[kind].key for kind in types]
    chosen = next((kind for kind, key in zip(types, keys, strict=True) if key in values), types[-1])
    family, variables = family_of(chosen), VARIABLES[chosen]
    config, unknown = family.keys.read(file, {**variables.defaults, **values}, family.config)
    return family, variables, config, unknown


def _sorted(
    bundle: Bundle, family: Family, variables: Variables
) -> tuple[dict[str, VariablePlace], list[str]]:
    """Sort the tensors of a checkpoint: return the places of the model's, and the names of those
    that are left out.

    Raises:
        BertineError: it has others.
    """
    places: dict[str, VariablePlace] = {}
    left_out, unknown = [], []
    for variable in bundle.entries:
        name = plain_name(variable)
        place = variables.place(name)
        if place is not None:
            places[variable] = place
        elif is_left_out(name):
            left_out.append(name)
        else:
            unknown.append(name)
    if unknown:
        listed = ", ".join(briefly(name) for name in unknown[:4])
        listed += f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        whose = variables.stranger(unknown) or _other_family(unknown)
        network = f"another network ({whose})" if whose else "another network"
        raise BertineError(
            f"{bundle.index}: has variables that Google's {family.config.title} does not have: "
            f"{listed}; it is of {network}, which Bertine does not have under this configuration"
        )
    held = {place.name for place in places.values()}
    if variables.summary and variables.classifier not in held:
        for variable, place in list(places.items()):
            if place.name.startswith(variables.summary):
                left_out.append(plain_name(variable))
                del places[variable]
    if len({place.name for place in places.values()}) < len(places):
        raise BertineError(
            f"{bundle.index}: has a variable twice, under two names; save the checkpoint again "
            "with each variable once"
        )
    if not places:
        raise BertineError(
            f"{bundle.index}: has no variable of Google's {family.config.title}, which "
            f"{tensorflow_config(bundle.index.parent)} describes; give the checkpoint of that model"
        )
    return places, left_out


def _other_family(names: list[str]) -> str:
    """Return the title of the family whose program has all variables of these `names`, or ""."""
    for kind, variables in VARIABLES.items():
        if all(variables.place(name) for name in names):
            return f"Google's {family_of(kind).config.title}"
    return ""


def _no_checkpoint(folder: Path, file: Path) -> BertineError:
    """Return the error that a folder with the configuration `file` has no readable checkpoint."""
    files = [path for path, _ in zip(sorted(folder.iterdir()), range(_MOST_FILES), strict=False)]
    for path in files:
        if match := _DATA.fullmatch(path.name):
            return BertineError(
                f"{path}: has no {match[1]}{INDEX_SUFFIX} beside it, which says what is in it; "
                "copy that file too"
            )
    for path in files:
        if path.is_file() and _ends_as_table(path):
            return BertineError(
                f"{path}: is a checkpoint of TensorFlow's first format (V1), which is not read; "
                "save it again with tf.compat.v1.train.Saver(), which writes "
                f"{path.name}{INDEX_SUFFIX} and {path.name}.data-00000-of-00001"
            )
    return BertineError(
        f"{folder}: has a {file.name}, but no weights; expected those of a TensorFlow checkpoint "
        "(bert_model.ckpt.index and bert_model.ckpt.data-00000-of-00001)"
    )


def _ends_as_table(path: Path) -> bool:
    try:
        with open(path, "rb") as handle:
            handle.seek(max(0, path.stat().st_size - 8))
            return is_table(handle.read(8))
    except OSError:
        return False
