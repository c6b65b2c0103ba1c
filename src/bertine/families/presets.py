"""Look up the published sizes of all families by name."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.names import PRESETS as NAMES
from bertine.models.config import Config
from bertine.models.family import family_of


class _Presets(Mapping[str, Config]):
    """The presets; a family is imported when one of its presets is looked up."""

    def __getitem__(self, name: str) -> Config:
        return family_of(NAMES[name]).presets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


#: Preset name → architecture. The vocabulary is that of the published model; pass ``vocab_size``
#: to :func:`preset` for another.
PRESETS: Mapping[str, Config] = _Presets()


def preset(name: str, **changes: Any) -> Config:
    """Return the architecture called `name`, with `changes` to fields of its config.

    Raises:
        BertineError: there is no such preset or field, or a value is impossible (the message
            names the nearest known name).
    """
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.0)[0]
        raise BertineError(
            f"unknown preset {name!r}; did you mean {near!r}? Presets: {', '.join(NAMES)}"
        )
    config = PRESETS[name]
    fields = [field.name for field in dataclasses.fields(config)]
    for key in changes:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)[0]
            raise BertineError(f"preset {name}: unknown key {key!r}; did you mean {near!r}?")
    return config.replace(**changes)
