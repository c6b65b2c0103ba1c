"""Recognize files of two families in one folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bertine.errors import BertineError
from bertine.interop.config_file import CONFIG
from bertine.interop.family import Family, family_of
from bertine.registry import FAMILIES


def check_same_family(source: Path, names: Iterable[str], family: Family) -> None:
    """Refuse weights of another family than ``config.json`` says.

    Args:
        source: the weights' file, for the message.
        names: of its tensors, as they are in the file.
        family: that of ``config.json``.

    Raises:
        BertineError: no tensor is called as `family` calls those of its layers, but some as
            another one does.
    """
    names = list(names)
    if _has_layers(names, family):
        return
    others = [other for other in map(family_of, FAMILIES) if _has_layers(names, other)]
    # Names without a prefix are those of several families.
    prefixed = [o for o in others if any(name.startswith(o.names.prefix) for name in names)]
    if others := prefixed or others:
        titles = " or ".join(dict.fromkeys(other.config.title for other in others))
        raise BertineError(
            f"{source}: has the weights of a {titles}, but model_type in {CONFIG} is "
            f"{family.config.model_type}; the two files do not belong together"
        )


def _has_layers(names: Iterable[str], family: Family) -> bool:
    table = family.names
    bare = [name.removeprefix(table.prefix) for name in names]
    # Presets of one family may have layers of several kinds.
    return any(table.has_layers(bare, known) for known in family.presets.values())
