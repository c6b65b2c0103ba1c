"""GPT-1 with LSTMs as Bertine writes it; no other program has it. What it has in common with GPT-1
is called as there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bertine.interop.family import Family
from bertine.interop.names import LayerRows, LayerStack, WeightNames
from bertine.interop.openai_gpt import FAMILY as GPT
from bertine.models.causal.lstm_config import PRESETS, LstmConfig


def _layer(directions: int) -> LayerRows:
    """Return the names of a recurrent layer, which are ours."""
    parts = [
        f"directions.{number}.{part}" for number in range(directions) for part in ("read", "state")
    ]
    return tuple((part, (part,)) for part in (*parts, "out"))


def _of_config(config: LstmConfig) -> LayerRows:
    attention: Any = GPT.names.layer
    return _layer(1) if config.lstm_size else attention


_NAMES: WeightNames = replace(
    GPT.names,
    encoder=(*GPT.names.encoder, "bilstm."),
    layer=_of_config,
    above=(LayerStack("bilstm_layers", "bilstm.{}", _layer(2)),),
)

FAMILY = Family(
    config=LstmConfig,
    class_prefix="GPTLstm",
    names=_NAMES,
    keys=replace(GPT.keys, ours=frozenset({"lstm_size", "bilstm_layers"})),
    tokenizer=GPT.tokenizer,
    objectives=("clm",),
    input_format="running-text",
    presets=PRESETS,
    published=False,
)
