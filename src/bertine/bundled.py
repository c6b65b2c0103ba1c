"""The models that come with the package: ``bertine-en`` or ``bertine-zh`` in place of a folder's
name."""

from __future__ import annotations

from pathlib import Path

#: Names of the models in the package; each is a model directory with its card, ``README.md``.
BUNDLED = ("bertine-en", "bertine-zh")

_FOLDER = Path(__file__).parent / "weights"


def bundled_folder(name: str) -> Path:
    """Find the folder of the bundled model `name`, whatever is in the current directory."""
    return _FOLDER / name
