"""Find the models that come with the package: ``bertine-en`` or ``bertine-zh`` in place of a
folder's name."""

from __future__ import annotations

from pathlib import Path

#: Names of the models in the package; each is a model directory with its card, ``README.md``.
BUNDLED = ("bertine-en", "bertine-zh")

_FOLDER = Path(__file__).parent / "weights"


def bundled_folder(name: str) -> Path:
    """Find the folder of the bundled model `name`, whatever is in the current directory."""
    return _FOLDER / name


def locate(model: Path | str) -> Path:
    """Find a model by name: the folder of the bundled model that `model` names; else `model`.

    What is called so in the current directory goes first: a folder of one's own is never hidden.
    """
    path = Path(model)
    if str(model) in BUNDLED and not path.exists():
        return bundled_folder(str(model))
    return path
