"""Look up the published sizes of all families by name."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bertine.core.console import aligned, human_bytes, plural
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


# Sizes, for people.

#: The numbers of parameters in the papers: BERT's (Devlin et al. 2018, section 3), RoBERTa's (Liu
#: et al. 2019; base: fairseq), DistilBERT's (Sanh et al. 2019), XLM-R's (Conneau et al. 2019),
#: ALBERT's (Lan et al. 2019, table 1), ELECTRA's (Clark et al. 2020), MobileBERT's (Sun et al.
#: 2020), ModernBERT's (Warner et al. 2024), GPT-1's (Radford et al. 2019, table 2).
PUBLISHED = {
    **{"bert-base": "110M", "bert-large": "340M", "roberta-base": "125M", "roberta-large": "355M"},
    **{"distilbert-base": "66M", "xlm-roberta-base": "270M", "xlm-roberta-large": "550M"},
    **{"albert-base": "12M", "albert-large": "18M", "albert-xlarge": "60M"},
    **{"albert-xxlarge": "235M", "electra-small": "14M", "electra-base": "110M"},
    **{"electra-large": "335M", "mobilebert-uncased": "25.3M", "mobilebert-tiny": "15.1M"},
    **{"ib-bert-large": "293M", "modernbert-base": "149M", "modernbert-large": "395M"},
    "openai-gpt": "117M",
}


def _preset_of(config: Config) -> str:
    # Pre-training takes both from the vocabulary.
    own = {"vocab_size": config.vocab_size, "pad_token_id": config.pad_token_id}
    for name, preset in PRESETS.items():
        if preset.replace(**own) == config:
            return f" ({name})"
    return ""


def architecture_line(c: Config) -> str:
    """Describe the sizes of a config in one line, with the preset that has them."""
    return (
        f"architecture: {c.title}{_preset_of(c)}, {plural(len(c.passes), 'layer')} of "
        f"{c.hidden_size}, {plural(c.num_attention_heads, 'head')}, "
        f"feed-forward {c.intermediate_size} ({c.hidden_act}), "
        f"{c.longest_input} positions, vocabulary {c.vocab_size:,}"
    )


def describe_presets() -> list[str]:
    """List all presets with their sizes, and the number of parameters in their papers."""
    heads = "preset", "layers", "hidden", "heads", "FFN", "vocabulary", "parameters", "in paper"
    rows: list[tuple[str, ...]] = [heads]
    for name, c in PRESETS.items():
        sizes = (len(c.passes), c.hidden_size, c.num_attention_heads, c.intermediate_size)
        numbers = [f"{size:,}" for size in (*sizes, c.vocab_size, c.num_parameters)]
        rows.append((name, *numbers, PUBLISHED.get(name, "")))
    return [
        *aligned(rows, head=True),
        "parameters: embeddings, layers and pooler, without heads; papers round, or count more",
        "heads: albert-xlarge has 16, as published; by the paper's rule, hidden / 64, it had 32",
    ]


def describe_preset(name: str) -> list[str]:
    """Describe the sizes of a preset, and its parameters by part, without heads; no weights are
    made."""
    config, counts = PRESETS[name], Counter[str]()
    with torch.device("meta"):
        backbone = family_of(config.model_type).new_backbone(config, config.has_pooler)
    for key, weight in backbone.named_parameters():
        part, kind, *_ = key.split(".")
        if part == "layers":
            decodes = int(kind) >= len(config.passes) - config.decoder_passes
            part = "decoder's layers" if decodes else "layers"
        counts[(kind if part == "embeddings" else part).replace("_", " ")] += weight.numel()
    paper = f"; in the paper {PUBLISHED[name]}" if name in PUBLISHED else ""
    return [
        f"preset: {name}, sizes without weights",
        architecture_line(config),
        f"parameters: {config.num_parameters:,} without heads{paper}",
        *(f"  {line}" for line in aligned((part, f"{count:,}") for part, count in counts.items())),
        f"weights: {human_bytes(4 * config.num_parameters)} in fp32",
    ]
