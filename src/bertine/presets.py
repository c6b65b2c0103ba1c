"""The published sizes of BERT, as data, by name.

bert-base and bert-large are those of Devlin et al. 2018 (arXiv 1810.04805, section 3); the
smaller ones are those of Turc et al. 2019 ("Well-Read Students Learn Better", arXiv 1908.08962),
as published beside the original code. Every one has a head for each 64 hidden units and a
feed-forward layer four times as wide as the hidden one.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bertine.errors import BertineError
from bertine.models.config import BertConfig


def _sizes(num_hidden_layers: int, hidden_size: int) -> BertConfig:
    return BertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )


#: Preset name -> architecture. The vocabulary is the published English uncased one's size;
#: pass ``vocab_size`` to :func:`preset` for another.
PRESETS: Mapping[str, BertConfig] = MappingProxyType(
    {
        "bert-tiny": _sizes(2, 128),
        "bert-mini": _sizes(4, 256),
        "bert-small": _sizes(4, 512),
        "bert-medium": _sizes(8, 512),
        "bert-base": _sizes(12, 768),
        "bert-large": _sizes(24, 1024),
    }
)


def preset(name: str, **changes: Any) -> BertConfig:
    """The architecture called `name`, with `changes` to single fields of :class:`BertConfig`.

    Raises:
        BertineError: no such preset, no such field, or a value that cannot be (the message
            names the nearest known name).
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.0)[0]
        raise BertineError(
            f"unknown preset {name!r}; did you mean {near!r}? Presets: {', '.join(PRESETS)}"
        )
    fields = [field.name for field in dataclasses.fields(BertConfig)]
    for key in changes:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)[0]
            raise BertineError(f"preset {name}: unknown key {key!r}; did you mean {near!r}?")
    return PRESETS[name].replace(**changes)
