"""Define ModernBERT (Warner et al. 2024, arXiv 2412.13663): its encoder, heads and file formats.

Section 2.1: rotary positions, layers with attention to all tokens and layers with attention to near
ones in turn, gated feed-forwards, the norm before each part, no biases. The sizes are the published
ones, and small ones of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.text import briefly
from bertine.families.bert import PLAIN_ENCODER, SIZES, TASK_HEADS
from bertine.families.modernbert_layers import (
    GLOBAL,
    LINEAR,
    LOCAL,
    ModernBertConfig,
    ModernLayer,
    Surroundings,
    angles,
    band,
    norm,
)
from bertine.models.config_file import ConfigKeys
from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import WordEmbeddings
from bertine.models.encoder import RowBackbone
from bertine.models.family import Family
from bertine.models.heads import HEADS, PAIR_CLASSIFIER, VECTOR_CLASSIFIER
from bertine.models.layers import RowLayout, activation, init_weights, linear, set_initial_std
from bertine.models.tensor_names import HeadNames, WeightNames

# Heads: each has a dense layer, an activation and a norm before the last layer (transformers,
# ``ModernBertPredictionHead``).
#
# Shape legend: P masked positions, H hidden size, V vocabulary size, K labels.


class PredictionHead(nn.Module):
    """Dense, activation, norm: the layers before the last layer of every head."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.dense = nn.Linear(size, size, bias=config.classifier_bias)
        name = config.classifier_activation
        self.act = nn.Identity() if name == LINEAR else activation(name)
        self.layer_norm = norm(config)
        set_initial_std(self.dense, config.output_std)

    def transform(self, states: Tensor) -> Tensor:
        """Map states [..., H] to [..., H]."""
        return self.layer_norm(self.act(self.dense(states)))


class ModernMlmHead(PredictionHead):
    """The masked-LM head; its decoder is the word embedding, and it holds only the bias."""

    @property
    def vocabulary_tensors(self) -> Mapping[str, int]:
        """The weights with a place for each word, and their dimension that counts words."""
        return {} if self.bias is None else {"bias": 0}

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.decoder_bias else None
        init_weights(self, config.initializer_range)

    def reset_parameters(self) -> None:
        """Set the decoder's bias to 0."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """Map hidden [P, H] and decoder_weight [V, H] to logits [P, V]."""
        return linear(self.transform(hidden), decoder_weight, self.bias, self.training)


class ModernHead(PredictionHead):
    """Head for texts, tokens or the ends of a span: dense, activation, norm, dropout, linear
    (transformers, ``ModernBertFor…``)."""

    def __init__(self, config: ModernBertConfig, outputs: int) -> None:
        super().__init__(config)
        self.dropout = StreamDropout(config.classifier_dropout)
        self.out = nn.Linear(config.hidden_size, outputs)
        set_initial_std(self.out, config.hidden_size**-0.5)
        init_weights(self, config.initializer_range)

    def forward(self, states: Tensor) -> Tensor:
        """Map states [..., H] to logits [..., K]."""
        return self.out(self.dropout(self.transform(states)))


# Encoder: word embeddings without positions, layers with the norm before each part, a last norm
# (section 2.1 of the paper).
#
# Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.


class ModernEncoder(RowBackbone):
    """Embeddings, layers, a last norm. The pooled output is the first token's state or the mean of
    the real tokens' states, as ``classifier_pooling`` says, without weights."""

    shows_attention = True
    embeddings: WordEmbeddings
    config: ModernBertConfig

    def __init__(self, config: ModernBertConfig) -> None:
        layers = (ModernLayer(config, number == 0) for number in range(config.num_hidden_layers))
        embeddings = WordEmbeddings(config, norm(config), config.embedding_dropout)
        super().__init__(config, embeddings, layers)
        self.final_norm = norm(config)
        init_weights(self, config.initializer_range)

    def _around(self, layout: RowLayout, x: Tensor) -> tuple[dict[int | None, Surroundings]]:
        around = {
            window: Surroundings.of(layout, self.config.head_size, theta, window, x)
            for window, theta in self.config.rope_thetas.items()
        }
        return (around,)

    def _around_traced(self, layout: RowLayout, x: Tensor) -> tuple[dict[int | None, Surroundings]]:
        places = torch.arange(layout.length, device=x.device)
        assert layout.bias is not None
        real = layout.bias == 0
        around = {}
        for window, theta in self.config.rope_thetas.items():
            bias = layout.bias
            if window is not None:
                near = real & band(layout.length, window, x.device)
                bias = (~near).to(x.dtype) * torch.finfo(x.dtype).min
            by = angles(places, self.config.head_size, theta)
            around[window] = Surroundings(layout, by, window, bias, traced=True)
        return (around,)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.encoder.Backbone`.
        Beyond the window of a local layer they are -inf."""
        chosen = self.layers[layer]
        assert isinstance(chosen, ModernLayer)
        window = self.config.windows[layer]
        places = torch.arange(states.shape[1], device=states.device)
        by = angles(places, self.config.head_size, self.config.rope_thetas[window])
        return chosen.attention.scores(chosen.attention_input(states), by, window)

    def _passed(self, number: int, x: Tensor, layout: RowLayout, around: tuple[Any, ...]) -> Tensor:
        x = self.layers[number](x, around[0][self.config.windows[number]])
        return self.final_norm(x).to(x.dtype) if number == len(self.layers) - 1 else x

    def _pooled(self, states: Tensor, mask: Tensor | None) -> Tensor:
        first = self.config.classifier_pooling == "cls"
        return states[:, 0] if first else mean_of_tokens(states, mask)


def mean_of_tokens(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of the real tokens' states, fp32 [B, H], of states [B, T, H] and mask [B, T]
    (None: all are real)."""
    states = states.float()
    if mask is None:
        return states.mean(1)
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1.0)


#: The settings of the small ones below.
_SMALL: Mapping[str, Any] = {
    "vocab_size": 30522,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "classifier_pooling": "mean",
    "local_attention": 16,
}

#: Preset → architecture: the published ones (table 4 of the paper, the published files), and small
#: ones of Bertine's own with the layers, the width and about the number of weights of bert-tiny,
#: -mini and -small, for a WordPiece vocabulary of BERT's size. Small windows make them learn the
#: most from little text; docs/results.md has the other sizes tried (``benchmarks/modern.py``).
PRESETS: Mapping[str, ModernBertConfig] = {
    "modernbert-base": ModernBertConfig(classifier_pooling="mean"),
    "modernbert-large": ModernBertConfig.of_size(
        28, 1024, intermediate_size=2624, classifier_pooling="mean"
    ),
    "modern-tiny": ModernBertConfig.of_size(2, 128, intermediate_size=336, **_SMALL),
    "modern-mini": ModernBertConfig.of_size(4, 256, intermediate_size=688, **_SMALL),
    "modern-small": ModernBertConfig.of_size(4, 512, intermediate_size=1376, **_SMALL),
}


# transformers' format: names of weights and keys of ``config.json``.

#: The layers before the last layer of every head.
_PREDICTION = (("dense", "head.dense"), ("layer_norm", "head.norm"))
_TASK = (*_PREDICTION, ("out", "classifier"))


def _task_head(name: str) -> HeadNames:
    """Return the names of a task's head, which begins with the layers of the MLM head; transformers
    calls the layers of all heads "head" and "classifier"."""
    return HeadNames(name, _TASK, published="", adopts=_PREDICTION)


#: Kind of layer → our field for the base of its rotary wavelengths, which is also the key in older
#: files.
_THETAS = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}


def _flatten(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Convert ``rope_parameters`` and ``layer_types`` of transformers 5 to our fields, which are
    the keys of the published files."""
    values = dict(values)
    _rotations(path, values)
    types, every = values.get("layer_types"), values.get("global_attn_every_n_layers")
    count = values.get("num_hidden_layers")
    if not isinstance(types, list) or type(count) is not int:
        return values
    if len(types) != count:
        raise BertineError(
            f"{path}: layer_types has {len(types)} layers, but num_hidden_layers is {count}; "
            "correct whichever is wrong"
        )
    # The pattern as one number, since a model that is derived from this one may have more layers:
    # the place of the second global layer, or, without one, the number of layers.
    second = types.index(GLOBAL, 1) if GLOBAL in types[1:] else count
    for number in (every, second):
        if type(number) is int and number >= 1:
            pattern = [LOCAL if layer % number else GLOBAL for layer in range(count)]
            if pattern == types:
                return values | {"layer_types": None, "global_attn_every_n_layers": number}
    return values


def _rotations(path: Path, values: dict[str, Any]) -> None:
    """Replace ``rope_parameters`` by the bases in it.

    Raises:
        BertineError: positions are scaled, or its form is not that of transformers.
    """
    parameters = values.pop("rope_parameters", None)
    if parameters is None:
        return
    if not isinstance(parameters, dict) or not set(parameters) <= set(_THETAS):
        raise BertineError(
            f"{path}: rope_parameters is {briefly(parameters)}, but must be an object of "
            f"{GLOBAL} and {LOCAL}"
        )
    for kind, key in _THETAS.items():
        of_kind = parameters.get(kind)
        if of_kind is None:
            continue
        if not isinstance(of_kind, dict):
            raise BertineError(
                f"{path}: {kind} in rope_parameters is {briefly(of_kind)}, but must be an object "
                "with a rope_theta"
            )
        for name, value in of_kind.items():
            if name == "rope_theta":
                values[key] = value
            elif (name, value) not in (("rope_type", "default"), ("type", "default")):
                raise BertineError(
                    f"{path}: {name} in rope_parameters is {briefly(value)} (scaled positions), "
                    "which Bertine's ModernBERT does not have; only 'default' can be loaded"
                )


def _nest(config: ModernBertConfig) -> Mapping[str, Any]:
    """Return the keys of transformers 5, which are written along with those of older versions."""
    return {
        "layer_types": list(config.kinds),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": getattr(config, key)}
            for kind, key in _THETAS.items()
        },
    }


FAMILY = Family(
    config=ModernBertConfig,
    heads={
        **{name: kind for name, kind in HEADS.items() if name != "nsp"},
        "mlm": replace(HEADS["mlm"], new=lambda config, _: ModernMlmHead(config)),
        # The backbone pools as `classifier_pooling` says.
        "classifier": replace(HEADS["classifier"], new=ModernHead),
        "spans": replace(HEADS["spans"], new=lambda config, _: ModernHead(config, 2)),
        "token_classifier": replace(HEADS["token_classifier"], new=ModernHead),
        "choice": replace(HEADS["choice"], new=ModernHead),
    },
    new_backbone=lambda config, _: ModernEncoder(config),
    class_prefix="ModernBert",
    names=WeightNames(
        prefix="model.",
        encoder=("embeddings.", "layers.", "final_norm."),
        tables=(
            ("backbone.embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight"),
        ),
        modules=(
            ("backbone.embeddings.layer_norm", "embeddings.norm"),
            ("backbone.final_norm", "final_norm"),
        ),
        layers=("backbone.layers.{}", "layers.{}"),
        layer=(
            ("attention_norm", ("attn_norm",)),
            ("attention.qkv", ("attn.Wqkv",)),
            ("attention.out", ("attn.Wo",)),
            ("feed_forward_norm", ("mlp_norm",)),
            ("feed_forward.up", ("mlp.Wi",)),
            ("feed_forward.down", ("mlp.Wo",)),
        ),
        heads={
            "mlm": HeadNames("", _PREDICTION, (("bias", "decoder.bias"),)),
            "classifier": _task_head("text_head"),
            "spans": _task_head("span_head"),
            "token_classifier": _task_head("token_head"),
            "choice": _task_head("choice_head"),
            **{name: TASK_HEADS[name] for name in (VECTOR_CLASSIFIER, PAIR_CLASSIFIER)},
        },
        copies=(("decoder.weight", "embeddings.tok_embeddings.weight"),),
    ),
    keys=ConfigKeys(
        required=SIZES,
        only={
            **PLAIN_ENCODER,
            "rope_scaling": ((None,), "scaled positions"),
            "initializer_cutoff_factor": ((2.0,), "another cut of new weights"),
        },
        # The tokenizer has the special tokens; transformers defaults to the published ids.
        written={
            **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
            "tie_word_embeddings": True,
        },
        renamed={
            "hidden_act": "hidden_activation",
            "hidden_dropout_prob": "mlp_dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "layer_norm_eps": "norm_eps",
        },
        ignored=frozenset(
            (
                *("cls_token_id", "deterministic_flash_attn", "reference_compile"),
                *("repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index"),
                "layer_norm_eps",  # in published files, which are read by norm_eps
            )
        ),
        absent=frozenset({"type_vocab_size"}),
        flatten=_flatten,
        nest=_nest,
    ),
    tokenizer="byte-bpe",
    objectives=("mlm", "mlm-neighbours"),
    input_format="full-sentences",
    presets=PRESETS,
)
