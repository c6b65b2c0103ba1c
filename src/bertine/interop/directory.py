"""What a model directory is: transformers' kind of folder, Google's with a TensorFlow checkpoint,
or OpenAI's with arrays; and the configuration of each."""

from __future__ import annotations

from pathlib import Path

from bertine.interop.config_file import CONFIG, ConfigFile
from bertine.interop.family import read_config
from bertine.interop.openai_files import SHAPES, OpenAIFiles, holds_openai_files
from bertine.interop.tensorflow.bundle import INDEX_SUFFIX
from bertine.interop.tensorflow.checkpoint import Checkpoint, tensorflow_config

#: The weights that transformers writes, a file or an index of its parts: what stands first is read.
#: Google's configuration may be beside old ones.
WEIGHTS = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)

#: The file of transformers' that says how texts are normalized.
TOKENIZER_SETTINGS = "tokenizer_config.json"


def is_tensorflow(folder: Path) -> bool:
    """Tell whether the model directory `folder` is one of Google's."""
    if any((folder / name).exists() for name in (CONFIG, *WEIGHTS)) or not folder.is_dir():
        return False
    return tensorflow_config(folder) is not None or any(folder.glob("*.data-*-of-*"))


def is_openai(folder: Path) -> bool:
    """Tell whether the model directory `folder` is one of OpenAI's, without a configuration."""
    return not (folder / CONFIG).exists() and has_openai_weights(folder)


def has_openai_weights(folder: Path) -> bool:
    """Tell whether OpenAI's arrays are the weights of `folder`: files of other kinds go first."""
    if any((folder / name).exists() for name in WEIGHTS):
        return False
    return holds_openai_files(folder)


def is_model_directory(folder: Path) -> bool:
    """Tell whether `folder` looks like a model directory: whether it says what its model is."""
    return (folder / CONFIG).exists() or is_tensorflow(folder) or is_openai(folder)


def is_of_checkpoint(path: Path) -> bool:
    """Tell whether `path` is what TensorFlow's programs take for a checkpoint: what the names of
    its files begin with, or one of them."""
    prefix = path.name.removesuffix(INDEX_SUFFIX).partition(".data-")[0]
    return bool(prefix) and path.with_name(prefix + INDEX_SUFFIX).is_file()


def settings_file(folder: Path) -> Path:
    """Return the file of a model directory that says what its model is, for messages."""
    if is_tensorflow(folder):
        return tensorflow_config(folder) or folder / CONFIG
    if is_openai(folder):
        return folder / SHAPES
    return folder / CONFIG


def read_settings(folder: Path) -> ConfigFile:
    """Read what the configuration of a model directory says.

    Raises:
        BertineError: as :func:`bertine.interop.family.read_config`,
            :meth:`bertine.interop.tensorflow.checkpoint.Checkpoint.open` and
            :meth:`bertine.interop.openai_files.OpenAIFiles.open`.
    """
    if is_tensorflow(folder):
        return Checkpoint.open(folder).settings
    if is_openai(folder):
        return OpenAIFiles.open(folder).settings
    return read_config(folder / CONFIG)


def origin_line(folder: Path, *, lowercase: bool) -> str | None:
    """Return what is to be said of a folder of Google's or OpenAI's, in one line; else None.

    Args:
        folder: the model directory.
        lowercase: whether its tokenizer lower-cases texts.
    """
    if is_openai(folder):
        return OpenAIFiles.open(folder).line()
    if not is_tensorflow(folder):
        return None
    line = Checkpoint.open(folder).line()
    if not (folder / "vocab.txt").is_file() or (folder / TOKENIZER_SETTINGS).is_file():
        return line
    # The program itself asks for --do_lower_case, and warns by the published folders' names; the
    # vocabulary says the same of all five of them and of any other.
    case = "lower-cased, as vocab.txt has no capitals" if lowercase else "cased, as vocab.txt"
    return f"{line}; text {case} (else: do_lower_case in a {TOKENIZER_SETTINGS})"
