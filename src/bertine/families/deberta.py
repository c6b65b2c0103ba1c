"""Define DeBERTa-v3 (He et al. 2021, arXiv 2111.09543): BERT with disentangled attention.

Differences from BERT, in the papers (He et al. 2020, arXiv 2006.03654, for the attention) and in
the published code (microsoft/DeBERTa):

- The embeddings have neither positions nor token types.
- The attention scores content and relative position separately; far positions share a row ("log
  buckets"). All layers read one table of relative positions through one layer norm.
- There is no pooler. Classifiers have a dense layer with gelu of their own before the last one
  (``ContextPooler``).

The convolution of DeBERTa-v2, absolute positions and other combinations of attention, which
published models of version 3 do not have, are not implemented.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.families.bert import LAYER, PLAIN_ENCODER, SIZES, TABLES, TASK_HEADS, WRITTEN
from bertine.families.xlnet_layers import by_pairs
from bertine.models.config import LARGEST, Config
from bertine.models.config_file import ConfigKeys
from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import WordEmbeddings, new_table
from bertine.models.encoder import RowBackbone
from bertine.models.family import Family
from bertine.models.heads import HEADS, DenseHead
from bertine.models.layers import (
    ACTIVATIONS,
    EncoderLayer,
    RowLayout,
    SelfAttention,
    activation,
    init_weights,
    softmax,
)
from bertine.models.tensor_names import HeadNames, WeightNames

# Relative positions: buckets, exact for near offsets and logarithmic for far ones.
#
# Shape legend: T tokens of a sequence, R rows of the table of relative positions that are used, H
# hidden size, D width of a head.


def bucket(offsets: Tensor, buckets: int, longest: int) -> Tensor:
    """Return the bucket of each offset: the offset itself up to half of `buckets` to either side,
    then a number that grows with its logarithm (He et al. 2021, arXiv 2111.09543; microsoft/
    DeBERTa, ``make_log_bucket_position``).

    Args:
        offsets: int64 [...].
        buckets: to either side; below 1 there are none, and each offset is its own bucket.
        longest: the exclusive bound of offsets.

    Returns:
        int64 [...], with the sign of the offset.
    """
    if buckets < 1:
        return offsets
    half = buckets // 2
    distance = offsets.abs()
    far = distance.clamp(min=half).float()
    # In fp32, as in the published code: the result is rounded up, so the last digit matters.
    ratio = torch.log(far / half) / torch.log(torch.tensor((longest - 1) / half))
    grown = torch.ceil(ratio * (half - 1)).long() + half
    return torch.where(distance <= half, offsets, grown * offsets.sign())


@dataclass(frozen=True)
class RelativePositions:
    """The rows of the table of relative positions that the pairs of a sequence's tokens use.

    Attributes:
        first: the first row that is used.
        count: R, the number of rows used.
        falling: int64 [2 T - 1], the row, counted from `first`, of the offset T - 1, T - 2, …
            1 - T of the attending token from the attended one.
    """

    first: int
    count: int
    falling: Tensor

    @classmethod
    def of(cls, length: int, span: int, buckets: int, longest: int) -> RelativePositions:
        """Return those for a sequence of `length` tokens and a table of 2 * `span` rows."""
        return _positions(length, span, buckets, longest)


@functools.lru_cache(maxsize=1024)
def _positions(length: int, span: int, buckets: int, longest: int) -> RelativePositions:
    # Cached: not an inference tensor, which training could not use.
    with torch.inference_mode(False), torch.device("cpu"):
        rows = table_rows(torch.arange(length - 1, -length, -1), span, buckets, longest)
        first, last = int(rows.min()), int(rows.max())
        return RelativePositions(first, last + 1 - first, rows - first)


def table_rows(offsets: Tensor, span: int, buckets: int, longest: int) -> Tensor:
    """Return the rows of the table of 2 * `span` rows for `offsets`, both int64 [...]."""
    return (bucket(offsets, buckets, longest) + span).clamp(0, 2 * span - 1)


# Disentangled attention: content and position of a token have separate scores.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size, A heads, D = H / A; N rows
# that are computed; R rows of relative positions.


class DisentangledAttention(SelfAttention):
    """Self-attention whose scores are sums of three: content to content, content to relative
    position, relative position to content (He et al. 2020, arXiv 2006.03654, section 3.1).
    Positions are projected by the weights of queries and keys (``share_att_key``)."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.position_dropout = StreamDropout(config.hidden_dropout_prob)
        self.probability_dropout = StreamDropout(config.attention_probs_dropout_prob)

    def forward(  # type: ignore[override]
        self, x: Tensor, layout: RowLayout, rows: Tensor, places: Tensor
    ) -> Tensor:
        """Compute the attention, before the output's dropout.

        Args:
            x: [N, H].
            layout: of the rows.
            rows: [R, H], the embeddings of the relative positions that are used.
            places: their indices: int64 [2 T - 1], the row of the offset T - 1, T - 2, … 1 - T of
                the attending token from the attended one; in a graph [T, T], the row of each
                pair.

        Returns:
            [N, H].
        """
        b, t = layout.sequences, layout.length
        qkv = layout.pad(self.qkv(x)).view(b, t, 3, self.heads, self.head_size)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = self._scores(q, k, rows, places)
        if layout.bias is not None:
            scores = scores + layout.bias
        probabilities = self.probability_dropout(softmax(scores))
        mixed = probabilities.to(v.dtype) @ v
        return self.out(layout.unpad(mixed.transpose(1, 2).reshape(b, t, -1)))

    def scores_of(self, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """Map x [B, T, H] to the scores [B, A, T, T]."""
        qkv = self.qkv(x).view(*x.shape[:2], 3, self.heads, self.head_size)
        q, k, _ = qkv.permute(2, 0, 3, 1, 4)
        return self._scores(q, k, rows, places)

    def _scores(self, q: Tensor, k: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """Map q and k [B, A, T, D] to the scores [B, A, T, T]."""
        scale = (3 * self.head_size) ** -0.5
        q = q * scale
        queries, keys = self._positions(rows)
        if places.dim() == 2:
            index = places.expand(*q.shape[:2], *places.shape)
            by_key = (q @ keys.transpose(-1, -2)).gather(-1, index)
            # Both terms use the row of the pair as the attending token sees it.
            by_query = (k @ queries.transpose(-1, -2)).gather(-1, index.transpose(-1, -2))
        else:
            keys = keys.index_select(1, places)
            queries = queries.index_select(1, places.flip(0))
            by_key = by_pairs(q @ keys.transpose(-1, -2), q.shape[-2])
            by_query = by_pairs(k @ queries.transpose(-1, -2), k.shape[-2])
        return q @ k.transpose(-1, -2) + by_key + by_query.transpose(-1, -2) * scale

    def _positions(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows [R, H] to queries and keys of the positions, [A, R, D] each."""
        size = self.out.in_features
        projected = F.linear(
            self.position_dropout(rows), self.qkv.weight[: 2 * size], self.qkv.bias[: 2 * size]
        )
        parts = projected.view(-1, 2, self.heads, self.head_size).permute(1, 2, 0, 3)
        queries, keys = parts.unbind(0)
        return queries, keys


class DisentangledLayer(EncoderLayer):
    """BERT's layer with this attention."""

    attention: DisentangledAttention

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.attention = DisentangledAttention(config)


class RelativeTable(nn.Module):
    """The embeddings of relative positions, and the norm that all layers read them through."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.embeddings = new_table(2 * config.span, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, dtype: torch.dtype) -> Tensor:
        """Return the table as the layers read it, [2 S, H] of `dtype`."""
        table: Tensor = self.norm(self.embeddings.weight).to(dtype)
        return table


# Backbone: DeBERTa-v3's encoder.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.


class ContentEmbeddings(WordEmbeddings):
    """Word embeddings, and the table of relative positions, which the attention reads."""

    def __init__(self, config: DebertaConfig) -> None:
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        super().__init__(config, norm, config.hidden_dropout_prob)
        self.relative = RelativeTable(config)


class DebertaEncoder(RowBackbone):
    """Embeddings, and layers that read the table of relative positions."""

    takes_packing = False
    shows_attention = True
    embeddings: ContentEmbeddings
    config: DebertaConfig

    def __init__(self, config: DebertaConfig) -> None:
        layers = (DisentangledLayer(config) for _ in range(config.num_hidden_layers))
        super().__init__(config, ContentEmbeddings(config), layers)
        init_weights(self, config.initializer_range)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.encoder.Backbone`."""
        chosen = self.layers[layer]
        assert isinstance(chosen, DisentangledLayer)
        rows, places = self._around(RowLayout(*states.shape[:2]), states)
        return chosen.attention.scores_of(states, rows, places)

    def _around(self, layout: RowLayout, x: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        positions = RelativePositions.of(
            layout.length, config.span, config.position_buckets, config.longest_offset
        )
        rows = self.embeddings.relative(x.dtype).narrow(0, positions.first, positions.count)
        return rows, positions.falling.to(x.device)

    def _around_traced(self, layout: RowLayout, x: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        places = torch.arange(layout.length, device=x.device)
        pairs = table_rows(
            places[:, None] - places[None, :],
            config.span,
            config.position_buckets,
            config.longest_offset,
        )
        return self.embeddings.relative(x.dtype), pairs


@dataclass(frozen=True)
class DebertaConfig(Config):
    """Sizes and rates of a DeBERTa-v3; deberta-v3-base is a preset.

    Attributes:
        position_buckets: buckets of relative positions to either side; below 1: none, each offset
            has a row.
        max_relative_positions: the exclusive bound of offsets; below 1: as
            ``max_position_embeddings``.
        pooler_dropout: before the dense layer of classifiers of texts and of choices.
        pooler_hidden_act: after that layer.

    Raises:
        BertineError: as for :class:`bertine.models.config.Config`.
    """

    model_type: ClassVar[str] = "deberta-v2"
    title: ClassVar[str] = "DeBERTa"
    token_types: ClassVar[bool] = False
    positions: ClassVar[str] = "relative: the attention reads how far apart two tokens are"
    #: Separators mark the two texts of a pair.
    num_segments = 2
    has_pooler = False

    vocab_size: int = 128100
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    position_buckets: int = -1
    max_relative_positions: int = -1
    pooler_dropout: float = 0.0
    pooler_hidden_act: str = "gelu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooler_hidden_act not in ACTIVATIONS:
            raise BertineError(
                f"pooler_hidden_act is {self.pooler_hidden_act!r}, but must be one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        for name in ("position_buckets", "max_relative_positions"):
            if getattr(self, name) > LARGEST:
                raise BertineError(
                    f"{name} is {getattr(self, name)}, but must be at most {LARGEST:,}"
                )
        half = self.position_buckets // 2
        if half < 1 <= self.position_buckets:
            raise BertineError("position_buckets is 1, but must be at least 2, or below 1 for none")
        if self.position_buckets > 0 and self.longest_offset <= half + 1 < self.longest_input:
            raise BertineError(
                f"max_relative_positions is {self.longest_offset}, but must be more than half of "
                f"position_buckets, {half}, and one"
            )

    @property
    def longest_offset(self) -> int:
        """The exclusive bound of offsets."""
        least = self.max_relative_positions
        return least if least > 0 else self.max_position_embeddings

    @property
    def span(self) -> int:
        """S: the table of relative positions has 2 S rows."""
        return self.position_buckets if self.position_buckets > 0 else self.longest_offset

    @property
    def num_parameters(self) -> int:
        width, inner = self.hidden_size, self.intermediate_size
        rows = self.vocab_size + 2 + 2 * self.span + 2
        layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
        return rows * width + self.num_hidden_layers * layer


#: Preset → architecture (the published files).
PRESETS: Mapping[str, DebertaConfig] = {
    "deberta-v3-xsmall": DebertaConfig.of_size(12, 384, position_buckets=256),
    "deberta-v3-small": DebertaConfig.of_size(6, 768, position_buckets=256),
    "deberta-v3-base": DebertaConfig.of_size(12, 768, position_buckets=256),
}


# transformers' format: names of weights and keys of ``config.json``.

_CLASSIFIER = (("dense", "pooler.dense"), ("out", "classifier"))
#: The two kinds of position scores, in both orders and as older files write them.
_BOTH = (["p2c", "c2p"], ["c2p", "p2c"], "p2c|c2p", "c2p|p2c")
#: The settings that our model computes. Without one of these keys transformers uses others.
_VERSION_3 = {
    "relative_attention": ((True,), "absolute positions"),
    "position_biased_input": ((False,), "absolute positions among the embeddings"),
    "share_att_key": ((True,), "projections of their own for positions"),
    "norm_rel_ebd": (("layer_norm",), "relative positions without a norm"),
    "pos_att_type": (_BOTH, "other parts of the attention"),
}
_QKV = ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj")


def _classifier(config: DebertaConfig, num_labels: int) -> DenseHead:
    """Return a head on the first token's state (microsoft/DeBERTa, ``ContextPooler``)."""
    act = activation(config.pooler_hidden_act)
    return DenseHead(config, num_labels, act, first=config.pooler_dropout)


FAMILY = Family(
    config=DebertaConfig,
    heads={
        **{name: kind for name, kind in HEADS.items() if name != "nsp"},
        "classifier": replace(HEADS["classifier"], reads="first", new=_classifier),
        "choice": replace(HEADS["choice"], reads="first", new=_classifier),
    },
    new_backbone=lambda config, _: DebertaEncoder(config),
    class_prefix="DebertaV2",
    names=WeightNames(
        prefix="deberta.",
        tables=(
            *TABLES[:1],
            ("backbone.embeddings.relative.embeddings.weight", "encoder.rel_embeddings.weight"),
        ),
        modules=(
            ("backbone.embeddings.layer_norm", "embeddings.LayerNorm"),
            ("backbone.embeddings.relative.norm", "encoder.LayerNorm"),
        ),
        layers=("backbone.layers.{}", "encoder.layer.{}"),
        layer=(("attention.qkv", _QKV), *LAYER[1:]),
        heads={
            "mlm": HeadNames(
                "lm_predictions.lm_head",
                (("dense", "dense"), ("layer_norm", "LayerNorm")),
                (("bias", "bias"),),
            ),
            "classifier": HeadNames("", _CLASSIFIER),
            **TASK_HEADS,
            "choice": HeadNames("choice_classifier", _CLASSIFIER, published=""),
        },
        left_out={
            "mask_predictions.": "replaced-token head",
            "embeddings.position_embeddings.": "absolute positions",
        },
        # The names of the class with ``legacy``.
        aliases=(
            ("cls.predictions.transform.", "lm_predictions.lm_head."),
            ("cls.predictions.bias", "lm_predictions.lm_head.bias"),
        ),
        copies=(
            ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            ("cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
        ),
    ),
    keys=ConfigKeys(
        required=(*SIZES, *_VERSION_3),
        only={
            **PLAIN_ENCODER,
            **_VERSION_3,
            "conv_kernel_size": ((0, None), "DeBERTa-v2's convolution"),
        },
        written={
            **WRITTEN,
            **{key: allowed[0] for key, (allowed, _) in _VERSION_3.items()},
            # The masked-LM head of the published files.
            "legacy": False,
        },
        renamed={"classifier_dropout": "cls_dropout"},
        # It selects the class that fills masks: both compute the same.
        ignored=frozenset({"legacy", "pooler_hidden_size"}),
    ),
    tokenizer="unigram",
    objectives=("mlm", "mlm-neighbours"),
    input_format="full-sentences",
    presets=PRESETS,
)
