"""The variants that every test of this folder is for; a new one is a line in :data:`VARIANTS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from bertine.core.rng import generator
from bertine.families.mobilebert import NoNorm
from bertine.models.config import Config
from bertine.models.family import Family, config_to_huggingface, family_of
from bertine.models.heads import Model


@dataclass(frozen=True)
class Variant:
    """A model type, and what its tests need to know.

    Attributes:
        model_type: its name.
        preset: the name of a published size.
        sizes: the number of weights of published sizes (embeddings, layers and pooler).
        own: draws what a tiny architecture has besides the sizes that all have.
        head_sizes: of these the sizes of its attention heads are multiples.
        small: what a model of 2 layers x 32, 2 heads, has besides.
        pretrain: options of ``bertine pretrain`` besides those of all.
        vocab: options of ``bertine vocab`` besides those of all.
        fills_masks: the folder of a run whose model fills masks.
    """

    model_type: str
    preset: str
    sizes: dict[str, int]
    own: Callable[[np.random.Generator], dict[str, Any]] = lambda draw: {}
    head_sizes: int = 1
    small: dict[str, Any] = field(default_factory=dict)
    pretrain: tuple[str, ...] = ()
    vocab: tuple[str, ...] = ()
    fills_masks: str = "model"

    @property
    def hides(self) -> bool:
        """Whether words are hidden from it in pre-training, which it can then fill in."""
        return "mlm" in self.family.heads

    def in_transformers(self, head: str) -> bool:
        """Whether transformers has a class for `head`."""
        suffix = self.family.heads[head].suffix
        return hasattr(transformers, self.family.class_prefix + suffix)

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
            "hidden_size": heads * self.head_sizes * int(draw.integers(3, 9)),
            "num_hidden_layers": int(draw.integers(1, 4)),
            "num_attention_heads": heads,
            "intermediate_size": int(draw.integers(10, 60)),
            "hidden_act": ("gelu", "gelu_new", "relu", "gelu")[seed % 4],
            "max_position_embeddings": int(draw.integers(24, 40)),
            "type_vocab_size": types + seed % 2 if types > 1 else types,
            "layer_norm_eps": (1e-12, 1e-5)[seed % 2],
        }
        changes["pad_token_id"] = min(known.pad_token_id, changes["vocab_size"] - 1)
        changes |= self.own(draw)
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
            names.to_huggingface(model.state_dict(), model.config, bool(model.heads)), strict=False
        )
        # The decoder is tied to the word embeddings and the bias, which were loaded.
        copies = {copy for copy, _ in names.copies}
        assert copies.issuperset(key.removeprefix(names.prefix) for key in result.missing_keys)
        assert not result.unexpected_keys
        twin: transformers.PreTrainedModel = other.eval()
        return twin


def modern(draw: np.random.Generator) -> dict[str, Any]:
    """Windows shorter than the texts, and anything else that a ModernBERT may have."""
    biases = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias", "decoder_bias")
    return {
        "num_hidden_layers": int(draw.integers(2, 5)),
        "local_attention": int(draw.integers(2, 12)),
        "global_attn_every_n_layers": int(draw.integers(2, 4)),
        "global_rope_theta": float(draw.integers(50, 200)),
        "local_rope_theta": float(draw.integers(10, 50)),
        "classifier_pooling": ("cls", "mean")[draw.integers(2)],
        **{name: bool(draw.integers(2)) for name in biases},
    }


def albert(draw: np.random.Generator) -> dict[str, Any]:
    """Groups and layers of a group; tests/family/test_albert.py tries more."""
    layers = int(draw.integers(1, 5))
    return {
        "embedding_size": int(draw.integers(4, 20)),
        "num_hidden_layers": layers,
        "num_hidden_groups": int(draw.integers(1, layers + 1)),
        "inner_group_num": int(draw.integers(1, 3)),
    }


def mobile(draw: np.random.Generator) -> dict[str, Any]:
    """All that a MobileBERT may have; tests/models/test_mobilebert.py tries every combination."""
    heads, width = int(draw.integers(1, 5)), int(draw.integers(8, 24))
    narrow, shared = bool(draw.integers(2)), bool(draw.integers(2))
    if not narrow or not shared:  # the one width that transformers computes then
        width = heads * int(draw.integers(3, 9))
    return {
        "num_attention_heads": heads,
        "hidden_size": width,
        "embedding_size": int(draw.integers(2, width)),
        "trigram_input": True,
        "use_bottleneck": narrow,
        "intra_bottleneck_size": heads * int(draw.integers(3, 9)) if shared else width,
        "key_query_shared_bottleneck": shared,
        "num_feedforward_networks": int(draw.integers(1, 4)),
        "normalization_type": ("no_norm", "layer_norm")[int(draw.integers(2))],
        "classifier_activation": bool(draw.integers(2)),
    }


def deberta(draw: np.random.Generator) -> dict[str, Any]:
    """Buckets fewer than a text has tokens, or none."""
    return {"position_buckets": (6, 8, -1)[int(draw.integers(3))]}


def gpt(draw: np.random.Generator) -> dict[str, Any]:
    """Feed-forwards four times as wide, and activations that transformers has too."""
    heads = int(draw.integers(1, 5))
    width = heads * int(draw.integers(3, 9))
    return {
        "num_attention_heads": heads,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "hidden_act": ("gelu_new", "relu", "silu")[draw.integers(3)],
    }


def xlnet(draw: np.random.Generator) -> dict[str, Any]:
    """Offsets that are told apart, or counted alike from one on."""
    return {"clamp_len": (-1, 5)[int(draw.integers(2))]}


def electra(draw: np.random.Generator) -> dict[str, Any]:
    """Embeddings as wide as the states, or not."""
    heads = int(draw.integers(1, 5))
    width = heads * int(draw.integers(3, 9))
    other = int(draw.integers(4, 40))
    return {
        "num_attention_heads": heads,
        "hidden_size": width,
        "embedding_size": width if draw.integers(2) else other,
    }


def bart(draw: np.random.Generator) -> dict[str, Any]:
    """A decoder of other sizes than the encoder."""
    heads, others = int(draw.integers(1, 4)), int(draw.integers(1, 4))
    return {
        "num_attention_heads": heads,
        "hidden_size": heads * others * int(draw.integers(3, 9)),
        "decoder_layers": int(draw.integers(1, 4)),
        "decoder_attention_heads": others,
        "decoder_ffn_dim": int(draw.integers(10, 60)),
    }


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
    "deberta-v2": Variant(
        "deberta-v2",
        "deberta-v3-base",
        {
            "deberta-v3-xsmall": 70_682_112,
            "deberta-v3-small": 141_304_320,
            "deberta-v3-base": 183_831_552,
        },
        own=deberta,
    ),
    "modernbert": Variant(
        "modernbert",
        "modernbert-base",
        {
            "modernbert-base": 149_014_272,
            "modernbert-large": 394_781_696,
            # Ours: 2 to 3% fewer than bert-tiny, -mini and -small.
            "modern-tiny": 4_296_576,
            "modern-mini": 10_978_048,
            "modern-small": 28_280_320,
        },
        own=modern,
        # Of a few tokens, and every other layer.
        small={"local_attention": 8, "global_attn_every_n_layers": 2},
        head_sizes=2,
    ),
    "electra": Variant(
        "electra",
        "electra-small",
        # Those of the discriminators with their head, less the head.
        {
            "electra-small": 13_549_057 - 66_049,
            "electra-base": 109_483_009 - 591_361,
            "electra-large": 335_142_913 - 1_050_625,
        },
        own=electra,
        small={"embedding_size": 24},
        pretrain=("--save-generator",),
        fills_masks="generator",
    ),
    "mobilebert": Variant(
        "mobilebert",
        "mobilebert-uncased",
        # The first without the pooler of 512 * 513 that the released model does not have.
        {
            "mobilebert-uncased": 24_844_544 - 262_656,
            "mobilebert-tiny": 15_485_696,
            "ib-bert-large": 294_467_840,
        },
        own=mobile,
        small={"embedding_size": 16, "intra_bottleneck_size": 16, "hidden_dropout_prob": 0.1},
    ),
    "albert": Variant(
        "albert",
        "albert-base",
        {
            "albert-base": 11_683_584,
            "albert-large": 17_683_968,
            "albert-xlarge": 58_724_864,
            "albert-xxlarge": 222_595_584,
        },
        own=albert,
    ),
    "openai-gpt": Variant(
        "openai-gpt",
        "openai-gpt",
        {"openai-gpt": 116_534_784},
        own=gpt,
        small={"intermediate_size": 128},
    ),
    "bart": Variant(
        "bart",
        "bart-base",
        {
            "bart-base": 139_420_416,
            "bart-large": 406_291_456,
            # Ours, with those of bert-tiny, -mini and -small beside them.
            "bart-tiny": 4_632_832,
            "bart-mini": 12_026_368,
            "bart-small": 31_392_768,
        },
        own=bart,
        small={"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 64},
    ),
    "xlnet": Variant(
        "xlnet",
        "xlnet-base-cased",
        {
            "xlnet-base-cased": 116_718_336,
            "xlnet-large-cased": 360_268_800,
            # Ours: 1 to 2% fewer than bert-tiny, -mini and -small.
            "xlnet-tiny": 4_336_512,
            "xlnet-mini": 11_236_096,
            "xlnet-small": 29_287_936,
        },
        own=xlnet,
        head_sizes=2,
        vocab=("--special-tokens", "xlnet"),
    ),
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
    # Where no norm holds them the states would grow, and the digits of fp32 not reach.
    std = 0.1 if any(isinstance(part, NoNorm) for part in model.modules()) else 0.3
    for name, parameter in model.named_parameters():
        parameter.normal_(std=std, generator=draw)
        if "norm.weight" in name:
            parameter.add_(1.0)
