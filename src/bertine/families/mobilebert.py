"""Define MobileBERT and IB-BERT, its teacher: layers whose width differs from that of the states.

Differences from BERT, in the paper (Sun et al. 2020, arXiv 2004.02984) and in the published code
(google-research, ``mobilebert/modeling.py``):

- Word embeddings are narrow: those of the next word, the word and the previous word are
  concatenated and projected to the width of the states ("embedding factorization").
- A linear layer maps the states to each layer's own width, and another one maps them back
  ("bottleneck"). Inside, MobileBERT is narrow and its teacher wide; between layers, the states of
  both have the same width, so that the one can learn from the other.
- A layer has several feed-forwards in a row, and an element-wise scale and shift may replace the
  layer norm ("stacked feed-forward networks", "operational optimizations").
- The MLM head's decoder is as wide as the states: it has the word embeddings and further columns
  of its own (``run_pretraining.py``, ``extra_output_weights``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.families.bert import BERT_HEADS, DECODER_COPIES, PLAIN_ENCODER, SIZES, TABLES, WRITTEN
from bertine.models.config import MOST_LAYERS, Config
from bertine.models.config_file import ConfigKeys
from bertine.models.dropout import StreamDropout, dropout_add
from bertine.models.embeddings import Numbers, RowEmbeddings, new_table, places_of
from bertine.models.encoder import RowBackbone
from bertine.models.family import Family
from bertine.models.heads import HEADS, WITHOUT_POOLER, MlmHead
from bertine.models.layers import (
    RowLayout,
    activated_linear,
    activation,
    attend,
    init_weights,
    linear,
    varlen_attention,
)
from bertine.models.precision import autocast_dtype
from bertine.models.tensor_names import LayerRows, WeightNames

# Norms: MobileBERT's replacement of the layer norm.

#: The ε of two of the layer norms, after the embeddings and after the last feed-forward, which do
#: not follow ``layer_norm_eps`` in transformers.
FIXED_EPS = 1e-5


class NoNorm(nn.Module):
    """The layer norm's element-wise scale and shift, without the norm (paper, "operational
    optimizations").

    Args:
        size: of the vectors.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the shift to 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., F] to [..., F]."""
        return torch.addcmul(self.bias.to(x.dtype), x, self.weight.to(x.dtype))


def new_norm(config: MobileBertConfig, size: int, eps: float | None = None) -> nn.Module:
    """Return the layer norm or its replacement; `eps` takes precedence over that of the config."""
    if config.normalization_type == "no_norm":
        return NoNorm(size)
    return nn.LayerNorm(size, eps=config.layer_norm_eps if eps is None else eps)


# Head: the one that fills masks.
#
# Shape legend: P places, H hidden size, E width of the word embeddings, V vocabulary size.


class WideMlmHead(MlmHead):
    """The masked-LM head with a decoder as wide as the states: the word embeddings and further
    columns of its own."""

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {"bias": 0, "extra.weight": 1}

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.dense = nn.Linear(size, size)
        self.layer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        # [H - E, V], as the published files have it.
        columns = size - config.embedding_size
        self.extra = nn.utils.skip_init(nn.Linear, config.vocab_size, columns, bias=False)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """Map hidden [P, H] and decoder_weight [V, E] to logits [P, V]."""
        hidden = self.layer_norm(self.act(self.dense(hidden)))
        width = decoder_weight.shape[1]
        logits = linear(hidden[:, :width], decoder_weight, self.bias, self.training)
        return torch.addmm(logits, hidden[:, width:], self.extra.weight)


# Embeddings: words with their neighbours.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the word
# embeddings; N rows that are computed.


class TrigramEmbeddings(RowEmbeddings):
    """Word embeddings, concatenated with those of the neighbours and projected to the width of the
    states; then the sum with position and segment embeddings, norm, dropout.

    Beyond both ends of the array the neighbours are zeros. A ``[PAD]`` after the last word is a
    neighbour like any other, unless the caller gives `seen`. No gradient flows through the
    neighbours (transformers; in Google's program it does).
    """

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.trigrams, self.projects = config.trigram_input, config.projects_embeddings
        width = config.embedding_size
        self.word_embeddings = new_table(config.vocab_size, width, config.pad_token_id)
        self.position_embeddings = new_table(config.max_position_embeddings, size)
        self.token_type_embeddings = new_table(config.type_vocab_size, size)
        # The published files hold it even where nothing is projected.
        self.projection = nn.Linear(config.embedded_width, size)
        self.norm = new_norm(config, size, FIXED_EPS)
        self.dropout = StreamDropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        layout: RowLayout,
        word_vectors: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> Tensor:
        """Compute the first layer's input.

        Args:
            input_ids: int64 [B, T].
            token_type_ids: int64 [B, T]; None: all 0.
            layout: which rows are computed.
            word_vectors: [B, T, E], in place of the word embeddings of `input_ids`.
            seen: bool or 0/1 [B, T], true at tokens that count as neighbours; None: all do.

        Returns:
            [N, H].
        """
        x = layout.unpad(self._words(input_ids, word_vectors, seen))
        length, real = layout.length, layout.real
        if self.projects:
            x = self.projection(x)
        if real is None:
            places = self.position_embeddings.weight[:length].repeat(layout.sequences, 1)
        else:
            places = self.position_embeddings(real % length)
        x = x + places
        types = self.token_type_embeddings
        if token_type_ids is None:
            x = x + types.weight[0]
        else:
            flat = token_type_ids.reshape(-1)
            x = x + types(flat if real is None else flat[real])
        x = self.norm(x)
        # As in BERT: from here on the residual stream is in the compute type.
        return self.dropout(x.to(autocast_dtype(x.device.type) or x.dtype))

    def numbers_of(self, input_ids: Tensor, token_type_ids: Tensor) -> Numbers:
        return places_of(input_ids), token_type_ids

    def traced(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
    ) -> Tensor:
        """Compute the same for all tokens of a padded batch in a graph, where padding is no
        neighbour. The arguments are [B, T]; returns [B * T, H]."""
        x = self._words(input_ids, None, attention_mask)
        if self.projects:
            x = self.projection(x)
        x = x + self.position_embeddings(torch.arange(input_ids.shape[1], device=x.device))
        types = self.token_type_embeddings
        x = x + (types.weight[0] if token_type_ids is None else types(token_type_ids))
        x = self.norm(x)
        return x.reshape(-1, x.shape[-1])

    def _words(self, input_ids: Tensor, word_vectors: Tensor | None, seen: Tensor | None) -> Tensor:
        """Return the input of the projection, [B, T, 3 E], or [B, T, E] without neighbours."""
        words = self.word_embeddings(input_ids) if word_vectors is None else word_vectors
        if not self.trigrams:
            return words
        if seen is not None:
            words = words * seen[..., None].to(words.dtype)
        around = F.pad(words, (0, 0, 1, 1))
        return torch.cat([around[:, 2:], words, around[:, :-2]], -1)


# Layers: they work at a width of their own.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size, I width within a layer, A
# attention heads, D = I / A; N rows that are computed.


class BottleneckAttention(nn.Module):
    """Multi-head self-attention whose queries and keys may have another input than the values.
    ``qk.weight`` is [2 I, …]: the rows of the query, then of the key projection.
    """

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        inner = config.attention_width
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        self.dropout = config.attention_probs_dropout_prob
        self.qk = nn.Linear(config.query_width, 2 * inner)
        self.value = nn.Linear(config.value_width, inner)
        self.out = nn.Linear(inner, inner)

    def forward(self, queries: Tensor, values: Tensor, layout: RowLayout) -> Tensor:
        """Attend: queries [N, …] are the input of queries and keys, values [N, …] that of values.
        Returns [N, I], before the output's dropout."""
        p = self.dropout if self.training else 0.0
        qk, v = self.qk(queries), self.value(values)
        if layout.ends is not None:
            q, k = qk.view(-1, 2, self.heads, self.head_size).unbind(1)
            v = v.view(-1, self.heads, self.head_size)
            mixed = varlen_attention(q, k, v, layout.ends, layout.longest, p)
            return self.out(mixed.flatten(1))
        q, k = self._by_head(layout.pad(qk), 2).unbind(0)
        (v,) = self._by_head(layout.pad(v), 1).unbind(0)
        mixed = attend(q, k, v, layout.bias, p, self.training)
        return self.out(layout.unpad(mixed.transpose(1, 2).flatten(2)))

    def scores(self, queries: Tensor) -> Tensor:
        """Map queries [B, T, …] to q k' / sqrt(D), [B, A, T, T]."""
        q, k = self._by_head(self.qk(queries), 2).unbind(0)
        return q @ k.transpose(-1, -2) * self.head_size**-0.5

    def _by_head(self, x: Tensor, parts: int) -> Tensor:
        """Return [B, T, parts * I] as [parts, B, A, T, D]."""
        b, t, _ = x.shape
        return x.view(b, t, parts, self.heads, self.head_size).permute(2, 0, 3, 1, 4)


class FeedForward(nn.Module):
    """Linear, activation, linear; then dropout, residual and norm.

    Args:
        config: of the backbone.
        dropout: its rate.
        eps: of a layer norm; None: that of the config.
    """

    def __init__(self, config: MobileBertConfig, dropout: float, eps: float | None) -> None:
        super().__init__()
        inner = config.attention_width
        self.dropout = dropout
        self.up = nn.Linear(inner, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, inner)
        self.norm = new_norm(config, inner, eps)
        self.act = activation(config.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [N, I] to [N, I]."""
        fed = activated_linear(self.up(x), self.act, self.down, self.training)
        x = dropout_add(fed, x, self.dropout, self.training)
        return self.norm(x).to(x.dtype)


class Entrance(nn.Module):
    """The map from a layer's input to the layer's own width: linear and norm."""

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.attention_width)
        self.norm = new_norm(config, config.attention_width)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., H] to [..., I]."""
        x = self.linear(x)
        return self.norm(x).to(x.dtype)


class Exit(nn.Module):
    """The map back: linear, dropout, the layer's input added, norm."""

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        self.dropout = config.hidden_dropout_prob
        self.linear = nn.Linear(config.attention_width, config.hidden_size)
        self.norm = new_norm(config, config.hidden_size)

    def forward(self, inner: Tensor, x: Tensor) -> Tensor:
        """Map inner [N, I] and x [N, H] to [N, H]."""
        x = dropout_add(self.linear(inner), x, self.dropout, self.training)
        return self.norm(x).to(x.dtype)


class BottleneckLayer(nn.Module):
    """A layer of MobileBERT: entrance, attention, feed-forwards, exit (paper, figure 1)."""

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        narrow, count = config.use_bottleneck, config.num_feedforward_networks
        self.reads_entered = narrow and config.use_bottleneck_attention
        # Within a bottleneck there is no dropout of hidden states.
        self.dropout = 0.0 if narrow else config.hidden_dropout_prob
        self.entrance = Entrance(config) if narrow else None
        shared = narrow and config.key_query_shared_bottleneck
        self.shared = Entrance(config) if shared else None
        self.attention = BottleneckAttention(config)
        self.attention_norm = new_norm(config, config.attention_width)
        stacked = [FeedForward(config, 0.0, None) for _ in range(count - 1)]
        self.feed_forwards = nn.ModuleList([*stacked, FeedForward(config, self.dropout, FIXED_EPS)])
        self.exit = Exit(config) if narrow else None

    def queries(self, x: Tensor) -> Tensor:
        """Return the input of queries and keys; x [..., H] is the layer's input."""
        if self.reads_entered:
            assert self.entrance is not None
            entered: Tensor = self.entrance(x)
            return entered
        return x if self.shared is None else self.shared(x)

    def forward(self, x: Tensor, layout: RowLayout) -> Tensor:
        """Map x [N, H] to [N, H]."""
        entered = x if self.entrance is None else self.entrance(x)
        if self.reads_entered:
            attended = self.attention(entered, entered, layout)
        else:
            attended = self.attention(self.queries(x), x, layout)
        inner = dropout_add(attended, entered, self.dropout, self.training)
        inner = self.attention_norm(inner).to(inner.dtype)
        for feed_forward in self.feed_forwards:
            inner = feed_forward(inner)
        return inner if self.exit is None else self.exit(inner, x)


# Backbone: that of MobileBERT and of its teacher.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the word
# embeddings, A attention heads; N rows that are computed.


class MobileBert(RowBackbone):
    """Trigram embeddings, bottleneck layers and, on request, the pooler, if the config has an
    activation for it."""

    shows_attention = True
    embeddings: TrigramEmbeddings

    def __init__(self, config: MobileBertConfig, add_pooler: bool = True) -> None:
        size = config.hidden_size
        layers = (BottleneckLayer(config) for _ in range(config.num_hidden_layers))
        super().__init__(config, TrigramEmbeddings(config), layers)
        has_pooler = add_pooler and config.classifier_activation
        self.pooler = nn.Linear(size, size) if has_pooler else None
        self.pools_first = not config.classifier_activation
        self.reads_padding = config.trigram_input
        init_weights(self, config.initializer_range)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.encoder.Backbone`."""
        chosen = self.layers[layer]
        assert isinstance(chosen, BottleneckLayer)
        return chosen.attention.scores(chosen.queries(states))

    def _embedded(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        layout: RowLayout,
        word_vectors: Tensor | None,
    ) -> Tensor:
        seen = None if self.reads_padding else attention_mask
        return self.embeddings(input_ids, token_type_ids, layout, word_vectors, seen)

    def _pooled(self, states: Tensor, mask: Tensor | None) -> Tensor | None:
        return states[:, 0] if self.pools_first else super()._pooled(states, mask)


@dataclass(frozen=True)
class MobileBertConfig(Config):
    """Sizes and rates of a MobileBERT or an IB-BERT. The defaults are those of transformers' class;
    the published models are presets.

    Attributes:
        embedding_size: E.
        trigram_input: whether a token's neighbours are read with it.
        use_bottleneck: whether layers have a width of their own, ``intra_bottleneck_size``.
        intra_bottleneck_size: I, if they have.
        use_bottleneck_attention: whether queries, keys and values all come from the layer's input
            at its own width.
        key_query_shared_bottleneck: whether queries and keys come from a second projection of the
            layer's input, and values from the input itself. Otherwise all three come from the
            input; with ``use_bottleneck_attention`` the projection exists but is not used.
        num_feedforward_networks: of a layer.
        normalization_type: "no_norm" or "layer_norm", except the MLM head's.
        classifier_activation: whether the pooled output is computed by dense and tanh; otherwise
            it is the first token's state.

    Raises:
        BertineError: as for :class:`bertine.models.config.Config`.
    """

    model_type: ClassVar[str] = "mobilebert"
    title: ClassVar[str] = "MobileBERT"

    hidden_size: int = 512
    num_hidden_layers: int = 24
    num_attention_heads: int = 4
    intermediate_size: int = 512
    hidden_act: str = "relu"
    hidden_dropout_prob: float = 0.0
    embedding_size: int = 128
    trigram_input: bool = True
    use_bottleneck: bool = True
    intra_bottleneck_size: int = 128
    use_bottleneck_attention: bool = False
    key_query_shared_bottleneck: bool = True
    num_feedforward_networks: int = 4
    normalization_type: str = "no_norm"
    classifier_activation: bool = True

    def __post_init__(self) -> None:
        self._check_sizes("embedding_size", "intra_bottleneck_size", "num_feedforward_networks")
        super().__post_init__()
        if self.embedding_size > self.hidden_size:
            raise BertineError(
                f"embedding_size is {self.embedding_size}, but must be at most hidden_size, which "
                f"is {self.hidden_size}"
            )
        if self.num_hidden_layers * self.num_feedforward_networks > MOST_LAYERS:
            raise BertineError(
                f"num_feedforward_networks is {self.num_feedforward_networks:,} in each of "
                f"{self.num_hidden_layers:,} layers, but at most {MOST_LAYERS:,} together can be "
                "built"
            )
        if self.normalization_type not in ("no_norm", "layer_norm"):
            raise BertineError(
                f"normalization_type is {self.normalization_type!r}, but must be no_norm or "
                "layer_norm"
            )

    @property
    def attention_field(self) -> str:
        return "intra_bottleneck_size" if self.use_bottleneck else "hidden_size"

    @property
    def embedding_width(self) -> int:
        return self.embedding_size

    @property
    def embedded_width(self) -> int:
        """The width of the projection's input: E, or 3 E with the neighbours."""
        return self.embedding_size * (3 if self.trigram_input else 1)

    @property
    def projects_embeddings(self) -> bool:
        return self.embedded_width != self.hidden_size or self.trigram_input

    @property
    def query_width(self) -> int:
        """The width of the input of queries and keys. (transformers always uses the width I for the
        layer, so where queries come from the states it computes only models with I = H.)"""
        projected = self.use_bottleneck_attention or self.key_query_shared_bottleneck
        return self.attention_width if projected else self.hidden_size

    @property
    def value_width(self) -> int:
        """The width of the input of values."""
        return self.attention_width if self.use_bottleneck_attention else self.hidden_size

    @property
    def has_pooler(self) -> bool:
        """Whether the pooled output is made by dense and tanh."""
        return self.classifier_activation

    @property
    def num_parameters(self) -> int:
        width, inner, feed = self.hidden_size, self.attention_width, self.intermediate_size
        rows = self.max_position_embeddings + self.type_vocab_size
        words = self.vocab_size * self.embedding_size
        embeddings = words + (rows + self.embedded_width + 3) * width
        projected = 2 * self.query_width + self.value_width + inner + 4  # with their biases
        layer = projected * inner + 2 * inner
        layer += self.num_feedforward_networks * (2 * inner * feed + feed + 3 * inner)
        if self.use_bottleneck:
            entering = (width + 3) * inner
            layer += entering * (2 if self.key_query_shared_bottleneck else 1)
            layer += (inner + 3) * width
        pooler = width * width + width if self.has_pooler else 0
        return embeddings + self.num_hidden_layers * layer + pooler


_MOBILE = MobileBertConfig(classifier_activation=False)

#: Preset → architecture, as in the files of the published code (``mobilebert/config``): the
#: released MobileBERT, its smaller version, and the teacher, whose "gelu" is the form with tanh.
#: Keys that a file lacks have that program's defaults, which are not transformers'.
PRESETS: Mapping[str, MobileBertConfig] = {
    "mobilebert-uncased": _MOBILE,
    "mobilebert-tiny": _MOBILE.replace(
        use_bottleneck_attention=True,
        key_query_shared_bottleneck=False,
        num_feedforward_networks=2,
    ),
    "ib-bert-large": MobileBertConfig(
        intermediate_size=4096,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.1,
        intra_bottleneck_size=1024,
        key_query_shared_bottleneck=False,
        num_feedforward_networks=1,
        normalization_type="layer_norm",
    ),
}


# transformers' format: names of weights and keys of ``config.json``.


def _layer(config: MobileBertConfig) -> LayerRows:
    """Return the names of a layer's modules: all feed-forwards but the last are numbered."""
    last = config.num_feedforward_networks - 1
    prefixes = [f"ffn.{number}." for number in range(last)] + [""]
    return (
        ("entrance.linear", ("bottleneck.input.dense",)),
        ("entrance.norm", ("bottleneck.input.LayerNorm",)),
        ("shared.linear", ("bottleneck.attention.dense",)),
        ("shared.norm", ("bottleneck.attention.LayerNorm",)),
        ("attention.qk", ("attention.self.query", "attention.self.key")),
        ("attention.value", ("attention.self.value",)),
        ("attention.out", ("attention.output.dense",)),
        ("attention_norm", ("attention.output.LayerNorm",)),
        *(
            (f"feed_forwards.{number}.{ours}", (f"{prefix}{theirs}",))
            for number, prefix in enumerate(prefixes)
            for ours, theirs in (
                ("up", "intermediate.dense"),
                ("down", "output.dense"),
                ("norm", "output.LayerNorm"),
            )
        ),
        ("exit.linear", ("output.bottleneck.dense",)),
        ("exit.norm", ("output.bottleneck.LayerNorm",)),
    )


FAMILY = Family(
    config=MobileBertConfig,
    heads={
        **HEADS,
        "mlm": replace(HEADS["mlm"], new=lambda config, _: WideMlmHead(config)),
    },
    new_backbone=MobileBert,
    class_prefix="MobileBert",
    names=WeightNames(
        prefix="mobilebert.",
        tables=TABLES,
        modules=(
            ("backbone.embeddings.projection", "embeddings.embedding_transformation"),
            ("backbone.embeddings.norm", "embeddings.LayerNorm"),
            ("backbone.pooler", "pooler.dense"),
        ),
        layers=("backbone.layers.{}", "encoder.layer.{}"),
        layer=_layer,
        heads={
            **BERT_HEADS,
            "mlm": replace(
                BERT_HEADS["mlm"], tensors=(("bias", "bias"), ("extra.weight", "dense.weight"))
            ),
        },
        copies=DECODER_COPIES,
    ),
    keys=ConfigKeys(
        required=SIZES,
        only=PLAIN_ENCODER,
        written=WRITTEN,
        # transformers computes it from the others, and writes it.
        ignored=frozenset({"true_hidden_size"}),
    ),
    tokenizer="wordpiece",
    objectives=("mlm-nsp", "mlm", "mlm-neighbours"),
    input_format="segment-pair",
    presets=PRESETS,
    without_pooler=WITHOUT_POOLER,
    pretraining=frozenset({"mlm", "nsp"}),
)
