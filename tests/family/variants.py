"""The variants that every test of this folder is for; a new one is a line in :data:`VARIANTS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from bertine.interop.family import Family, config_to_huggingface, family_of
from bertine.models.config import Config
from bertine.models.model import Model
from bertine.rng import generator


@dataclass(frozen=True)
class Variant:
    """A model type, and what its tests need to know.

    Attributes:
        model_type: its name.
        preset: the name of a published size.
        sizes: the number of weights of published sizes (embeddings, layers and pooler).
    """

    model_type: str
    preset: str
    sizes: dict[str, int]

    @property
    def family(self) -> Family:
        return family_of(self.model_type)

    def tiny(self, seed: int) -> Config:
        """A tiny architecture with odd sizes, so that no two dimensions can be mixed up unseen."""
        draw = generator(seed, "parity config")
        heads = int(draw.integers(1, 5))
        known = self.family.presets[self.preset]
        types = known.type_vocab_size
        changes: dict[str, Any] = {
            "vocab_size": int(draw.integers(40, 90)),
            "hidden_size": heads * int(draw.integers(3, 9)),
            "num_hidden_layers": int(draw.integers(1, 4)),
            "num_attention_heads": heads,
            "intermediate_size": int(draw.integers(10, 60)),
            "hidden_act": ("gelu", "gelu_new", "relu", "gelu")[seed % 4],
            "max_position_embeddings": int(draw.integers(24, 40)),
            "type_vocab_size": types + seed % 2 if types > 1 else types,
            "layer_norm_eps": (1e-12, 1e-5)[seed % 2],
        }
        changes["pad_token_id"] = min(known.pad_token_id, changes["vocab_size"] - 1)
        fixed = self.family.keys.absent
        return known.replace(**{name: v for name, v in changes.items() if name not in fixed})

    def twin(self, model: Model, labels: int = 2) -> transformers.PreTrainedModel:
        """transformers' model with the weights of `model`, in evaluation mode."""
        values: dict[str, Any] = config_to_huggingface(model.config, heads=model.heads)
        name = values.pop("architectures")[0]
        for key in ("id2label", "label2id", "problem_type", "dtype", "model_type"):
            values.pop(key, None)
        kind = getattr(transformers, name)
        config = kind.config_class(**values, num_labels=labels, attn_implementation="eager")
        other = kind(config)
        names = self.family.names
        result = other.load_state_dict(
            names.to_huggingface(model.state_dict(), model.config), strict=False
        )
        # The decoder is tied to the word embeddings and the bias, which were loaded.
        copies = {copy for copy, _ in names.copies}
        assert copies.issuperset(key.removeprefix(names.prefix) for key in result.missing_keys)
        assert not result.unexpected_keys
        twin: transformers.PreTrainedModel = other.eval()
        return twin


#: By model type.
VARIANTS = {
    "bert": Variant(
        "bert",
        "bert-tiny",
        {"bert-base": 109_482_240, "bert-large": 335_141_888},
    ),
    "roberta": Variant(
        "roberta",
        "roberta-base",
        {"roberta-base": 124_645_632, "roberta-large": 355_359_744},
    ),
    "distilbert": Variant("distilbert", "distilbert-base", {"distilbert-base": 66_362_880}),
    "xlm-roberta": Variant(
        "xlm-roberta",
        "xlm-roberta-base",
        {"xlm-roberta-base": 278_043_648, "xlm-roberta-large": 559_890_432},
    ),
    "camembert": Variant("camembert", "camembert-base", {"camembert-base": 110_621_952}),
}


@torch.no_grad()
def scramble(model: nn.Module, seed: int) -> None:
    """Give random values to everything: initial biases and layer norms would hide a mix-up."""
    draw = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        parameter.normal_(std=0.3, generator=draw)
        if "norm.weight" in name:
            parameter.add_(1.0)
