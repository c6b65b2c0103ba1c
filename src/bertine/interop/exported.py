"""Folders that ``bertine export`` has written, read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import read_json_object
from bertine.interop.config_file import CONFIG
from bertine.interop.family import read_config
from bertine.models.config import Config
from bertine.models.pooling import Pooling
from bertine.options.names import option
from bertine.strict_json import COUNT, FLAG, NUMBER, TEXT, Shape, check_shape
from bertine.taskinfo import TaskInfo

#: What the folder says of itself.
ABOUT = "export.json"


@dataclass(frozen=True)
class Exported:
    """An exported model.

    Attributes:
        folder: that holds it.
        config: of the model.
        max_length: pieces of a text, special tokens included.
        task: what the logits are for; None: the graph gives vectors.
        pooling: of the vectors, in the graph; None: it gives logits.
        prompt: what is to be put before every text.
        files: of the graph, by precision: "fp32", and "int8" where that was asked for.
        told: how far what a file gives was from the model when it was exported, in words, by file.
    """

    folder: Path
    config: Config
    max_length: int
    task: TaskInfo | None
    pooling: Pooling | None
    prompt: str
    files: Mapping[str, str]
    told: Mapping[str, str]

    def graph(self, precision: str) -> tuple[Path, str]:
        """The file of the graph, and its precision; ``"auto"`` is fp32.

        Raises:
            BertineError: it is not there in that precision.
        """
        name = "fp32" if precision == "auto" else precision
        if name not in self.files:
            hint = f"; export it with {option('int8', True)}" if name == "int8" else ""
            known = " and ".join(self.files)
            raise BertineError(f"{self.folder}: is exported in {known}, not {precision}{hint}")
        return self.folder / self.files[name], name


def is_exported(folder: str | Path) -> bool:
    """Whether `folder` is one that ``bertine export`` has written."""
    return (Path(folder) / ABOUT).is_file()


def read_exported(folder: str | Path) -> Exported:
    """Read all but the graph and the tokenizer.

    Raises:
        BertineError: it was exported for PyTorch; a file is missing or broken.
    """
    folder = Path(folder)
    about = read_json_object(folder / ABOUT)
    check_shape(about, _SHAPE, folder / ABOUT)
    if "task" in about:
        check_shape(about, _TASK_SHAPE, folder / ABOUT)
    if "pooling" in about:
        check_shape(about, _POOLING_SHAPE, folder / ABOUT)
    for key in ("file", "int8_file"):
        if (name := about.get(key)) is not None and Path(name).name != name:
            raise BertineError(f"{folder / ABOUT}: {key} is no file of this folder")
    try:
        files = {"fp32": about["file"]}
        if about.get("int8_file") is not None:
            files["int8"] = about["int8_file"]
        config = read_config(folder / CONFIG).config
        found = Exported(
            folder,
            config,
            about["max_length"],
            _task(about),
            _pooling(about, config),
            about.get("prompt", ""),
            files,
            {name: _told(each, about) for name, each in about["differences"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BertineError(
            f"{folder / ABOUT}: is not as Bertine writes it; export the model again"
        ) from error
    if not str(files["fp32"]).endswith(".onnx"):
        raise BertineError(
            f"{folder}: was exported for PyTorch, which is read as docs/export.md shows; give the "
            "model directory, or export it as ONNX"
        )
    return found


_SHAPE: Shape = {
    "file": TEXT,
    "int8_file?": TEXT,
    "max_length": COUNT,
    "prompt?": TEXT,
    "differences": {},
}
_TASK_SHAPE: Shape = {
    "task": TEXT,
    "labels": [TEXT],
    "text_columns": [TEXT],
    "label_column?": TEXT,
    "metrics?": [TEXT],
    "dataset?": TEXT,
    "settings": {},
}
_POOLING_SHAPE: Shape = {
    "pooling": [TEXT],
    "layer?": NUMBER,
    "normalize": FLAG,
    "dimensions": COUNT,
}


def _told(difference: dict[str, Any], about: dict[str, Any]) -> str:
    if "pooling" in about:
        return f"cosine with fp32 at least {difference['cosine']:.4f}"
    if difference["same"] is not None:
        return f"the same answer as fp32 for {difference['same']:.0%} of the inputs compared"
    return f"at most {difference['largest']:.2g} from fp32"


def _task(about: dict[str, Any]) -> TaskInfo | None:
    if "task" not in about:
        return None
    return TaskInfo(
        about["task"],
        tuple(about["labels"]),
        tuple(about["text_columns"]),
        about.get("label_column"),
        about["max_length"],
        tuple(about.get("metrics", ())),
        about.get("dataset"),
        about["settings"],
    )


def _pooling(about: dict[str, Any], config: Config) -> Pooling | None:
    if "pooling" not in about:
        return None
    whole = Pooling(tuple(about["pooling"]), about["layer"], about["normalize"])
    width = about["dimensions"]
    return whole if whole.width(config) == width else replace(whole, dimensions=width)
