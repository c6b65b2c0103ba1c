"""Define GPT-1 and the recurrent models that papers compare with it.

GPT-1 is OpenAI's first model (Radford et al. 2018). Recurrent layers may replace its attention or
follow it: the LSTM that GPT-1 is compared with (section 5: one layer of 2,048 units, everything
else the same), and the BiLSTM that BERT's paper puts on a left-to-right model (Devlin et al. 2018,
section 5.1).

Shape legend: B sequences, T tokens of the longest, H hidden size, S units of a direction; N real
tokens, in the order in which they are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.families.bert import PLAIN_ENCODER, TASK_HEADS
from bertine.models.config import Config
from bertine.models.config_file import ConfigKeys
from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import Embeddings
from bertine.models.encoder import (
    Backbone,
    KeyValues,
    PackedRows,
    RowBackbone,
    last_tokens,
    layout_of,
    same_rows,
)
from bertine.models.family import Family, HeadKind
from bertine.models.heads import BOTH_ORDERS, HEADS, ClassificationHead
from bertine.models.layers import (
    EncoderLayer,
    RowLayout,
    attend,
    init_weights,
    linear,
    set_initial_std,
)
from bertine.models.precision import autocast_dtype
from bertine.models.recurrent import recur
from bertine.models.tensor_names import HeadNames, LayerRows, LayerStack, WeightNames

# Heads: the next word, and classes of a whole text.
#
# Shape legend: B sequences, P places, H hidden size, V vocabulary size, K labels.


class LmHead(nn.Module):
    """The language model's head without weights of its own: the word embeddings as decoder, without
    a bias (Radford et al. 2018, equation 2).

    Attributes:
        vocabulary_tensors: the weights with a place for each word: none.
    """

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {}

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """Map hidden [P, H] and decoder_weight [V, H] to logits [P, V]."""
        return linear(hidden, decoder_weight, None, self.training)


# Writing: each token is read once, and its keys and values are kept.
#
# Shape legend: N prompts, R rows, T tokens that are read now, K tokens that are kept, H hidden
# size, V vocabulary size.


class CausalWriter:
    """Scorer of the next tokens of rows (:class:`bertine.models.generation.NextTokens`).

    Shorter prompts have padding before them, which is masked; positions count real tokens.
    """

    def __init__(self, backbone: CausalBackbone, scores: Callable[[Tensor], Tensor]) -> None:
        """`scores` maps states [R, H] to scores of the vocabulary, [R, V]."""
        self._backbone, self._scores = backbone, scores
        self._kept = [KeyValues() for _ in backbone.layers]
        self._device = backbone.word_weights.device
        # bool [R, K], whether a kept token is real.
        self._real = torch.zeros(0, 0, dtype=torch.bool, device=self._device)

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read N prompts; see :class:`bertine.models.generation.NextTokens`."""
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
        real = torch.zeros(len(prompts), longest, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            real[row, longest - len(prompt) :] = True
        ids, self._real = ids.to(self._device), real.to(self._device)
        places = torch.arange(longest, device=self._device)
        seen = self._real[:, None, :] & (places[:, None] >= places[None, :])
        # Padding attends to itself: a row without any key would be NaN.
        seen |= torch.eye(longest, dtype=torch.bool, device=self._device)
        return self._read(ids, (self._real.cumsum(1) - 1).clamp(min=0), seen)

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Continue chosen rows; see :class:`bertine.models.generation.NextTokens`."""
        if not same_rows(rows, len(self._real)):
            self._real = self._real.index_select(0, rows)
            for kept in self._kept:
                kept.choose(rows)
        positions = self._real.sum(1, keepdim=True)
        self._real = torch.cat([self._real, self._real.new_ones(len(tokens), 1)], 1)
        return self._read(tokens[:, None], positions, self._real[:, None, :])

    def _read(self, ids: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        """Read tokens [R, T] that attend to `seen` [R, T, K]; return the scores after the last."""
        r, t = ids.shape
        embeddings = self._backbone.embeddings
        x = embeddings.word_embeddings(ids) + embeddings.position_embeddings(positions)
        x = x.view(r * t, -1)
        bias = None
        if not bool(seen.all()):
            bias = torch.zeros(seen.shape, dtype=x.dtype, device=x.device)
            bias = bias.masked_fill_(~seen, float("-inf"))[:, None]
        for layer, kept in zip(self._backbone.layers, self._kept, strict=True):
            assert isinstance(layer, EncoderLayer)
            q, k, v = layer.attention.split(x.view(r, t, -1))
            keys, values = kept.add(k, v)
            mixed = attend(q, keys, values, bias, 0.0, training=False)
            mixed = mixed.transpose(1, 2).reshape(r * t, -1)
            x = layer.after(layer.attention.out(mixed), x)
        return self._scores(x.view(r, t, -1)[:, -1]).float()


# Causal backbone: word and position embeddings, and layers with the norm after each part that
# attend only to earlier tokens (Radford et al. 2018, section 3.1;
# openai/finetune-transformer-lm, ``train.py: model``).
#
# Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.


class UnnormedEmbeddings(Embeddings):
    """The sum of word and position embeddings, and dropout, without a norm.

    The original drops elements of the table before the look-up, so that all occurrences of a word
    lose the same ones; here, as in transformers, each place has its own.
    """

    def __init__(self, config: OpenAIGPTConfig) -> None:
        super().__init__(config)
        self.layer_norm: nn.Module = nn.Identity()
        self.dropout = StreamDropout(config.embedding_dropout)


class CausalBackbone(RowBackbone):
    """Embeddings, and layers in which a token attends to itself and to earlier ones. The pooled
    output is the last state of the last real token, without weights."""

    takes_packing = False
    shows_attention = True
    embeddings: Embeddings
    config: OpenAIGPTConfig

    def __init__(self, config: OpenAIGPTConfig) -> None:
        layers = (EncoderLayer(config) for _ in range(config.num_hidden_layers))
        super().__init__(config, UnnormedEmbeddings(config), layers)
        init_weights(self, config.initializer_range)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.encoder.Backbone`. Those
        for later tokens are -inf."""
        chosen = self.layers[layer]
        assert isinstance(chosen, EncoderLayer)
        return chosen.attention.scores(states) + hidden_future(states.shape[1], states)

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[CausalWriter, Sequence[Sequence[int]]]:
        """Return a writer that continues `texts`; see :class:`bertine.models.encoder.Backbone`."""
        return CausalWriter(self, scores), texts

    def _layout(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        packing: PackedRows | None,
        dtype: torch.dtype,
    ) -> RowLayout:
        layout = layout_of(input_ids, attention_mask, packing, dtype)
        return replace(layout, bias=self._causal(layout, input_ids, dtype))

    def _causal(self, layout: RowLayout, input_ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the bias of the scores, [B or 1, 1, T, T]. Padding after the texts needs no mask:
        no token that counts attends to it."""
        bias = layout.bias
        if bias is None:
            device = input_ids.device
            like = torch.empty(0, dtype=autocast_dtype(device.type) or dtype, device=device)
            return hidden_future(layout.length, like)
        future = hidden_future(layout.length, bias)
        if bias.device.type == "cpu" and not bool(torch.isinf(bias[..., 0]).any()):
            return future
        # Padding attends to itself: a row without any key would be NaN.
        both = bias + future
        both.diagonal(dim1=-2, dim2=-1).zero_()
        return both

    def _bias_traced(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        t = attention_mask.shape[1]
        places = torch.arange(t, device=attention_mask.device)
        seen = attention_mask.bool()[:, None, None, :] & (places[:, None] >= places[None, :])
        return (~seen).to(dtype) * torch.finfo(dtype).min

    def _pooled(self, states: Tensor, mask: Tensor | None) -> Tensor | None:
        return last_tokens(states, mask)


def hidden_future(length: int, like: Tensor) -> Tensor:
    """Return the mask of later tokens, [1, 1, T, T], in the type and on the device of `like`: 0 for
    a token itself and earlier ones, -inf for the others."""
    return like.new_full((1, 1, length, length), float("-inf")).triu_(1)


@dataclass(frozen=True, kw_only=True)
class RecurrentLayout(RowLayout):
    """The places of the tokens, and the order in which recurrent layers read them.

    Attributes:
        forwards: int64 [N], indices into the B * T: the first tokens of all sequences, the longest
            sequence first, then the second tokens, and so on.
        backwards: the same from the last tokens on.
        sizes: how many are read in each step.
    """

    forwards: Tensor
    backwards: Tensor
    sizes: tuple[int, ...]


def reading_order(mask: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return the order in which recurrent layers read the real tokens of mask, bool [B, T]; see
    :class:`RecurrentLayout`."""
    lengths = mask.sum(1)
    rank = torch.empty_like(lengths)
    rank[lengths.argsort(descending=True, stable=True)] = torch.arange(
        len(lengths), device=lengths.device
    )
    real = mask.flatten().nonzero()[:, 0]
    sequence = real // mask.shape[1]
    step = (mask.cumsum(1) - 1).flatten()[real]
    from_end = lengths[sequence] - 1 - step
    orders = [real[(at * len(lengths) + rank[sequence]).argsort()] for at in (step, from_end)]
    steps = torch.arange(mask.shape[1], device=mask.device)
    sizes = (lengths[None, :] > steps[:, None]).sum(1)
    return orders[0], orders[1], tuple(size for size in sizes.tolist() if size)


def full_reading_order(
    sequences: int, length: int, device: torch.device
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return :func:`reading_order` for tokens that are all real, on any device, even ``meta``,
    where no mask can be read."""
    places = torch.arange(sequences * length, device=device).view(sequences, length)
    return places.T.flatten(), places.flip(1).T.flatten(), (sequences,) * length


class LstmDirection(nn.Module):
    """An LSTM that reads in one direction. Its matrices are initialized as in PyTorch, with a
    standard deviation of 1 / sqrt(3 S)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.read = nn.Linear(width, 4 * size)
        self.state = nn.Linear(size, 4 * size)
        for matrix in (self.read, self.state):
            set_initial_std(matrix, (3 * size) ** -0.5)

    def forward(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """Map x [N, H], in the order of reading, to states fp32 [N, S]."""
        dtype = autocast_dtype(x.device.type) or x.dtype
        # A device without autocast has none to switch off ("meta", for counting products).
        known = torch.amp.is_autocast_available(x.device.type)
        with torch.autocast(x.device.type if known else "cpu", enabled=False):
            bias = (self.read.bias + self.state.bias).to(dtype)
            gates = linear(x.to(dtype), self.read.weight.to(dtype), bias, self.training)
            return recur(gates, self.state.weight.to(dtype), list(sizes))


class RecurrentLayer(nn.Module):
    """An LSTM in one direction or two, and a linear layer back to the width of the states.

    Args:
        width: H.
        size: S.
        directions: 1 or 2.
        dropout: of the output.
    """

    def __init__(self, width: int, size: int, directions: int, dropout: float) -> None:
        super().__init__()
        self.directions = nn.ModuleList(LstmDirection(width, size) for _ in range(directions))
        self.out = nn.Linear(directions * size, width)
        set_initial_std(self.out, (directions * size) ** -0.5)
        self.dropout = StreamDropout(dropout)

    def forward(self, x: Tensor, layout: RowLayout) -> Tensor:
        """Map x [rows, H] to the same shape; padding has no meaning."""
        assert isinstance(layout, RecurrentLayout)
        places = layout.pad(x).flatten(0, 1)
        orders = (layout.forwards, layout.backwards)
        states = []
        for direction, order in zip(self.directions, orders, strict=False):
            read = direction(places.index_select(0, order), layout.sizes)
            empty = read.new_zeros(len(places), read.shape[1])
            states.append(empty.index_copy(0, order, read))
        out: Tensor = self.dropout(self.out(torch.cat(states, -1)))
        return layout.unpad(out.view(layout.sequences, layout.length, -1))


class RecurrentBackbone(CausalBackbone):
    """GPT-1's embeddings, its layers or LSTMs instead of them, and BiLSTMs above."""

    shows_attention = False
    config: LstmConfig

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config)
        width, dropout = config.hidden_size, config.hidden_dropout_prob
        layers: list[nn.Module] = [
            RecurrentLayer(width, config.lstm_size, 1, dropout)
            if config.lstm_size
            else EncoderLayer(config)
            for _ in range(config.num_hidden_layers)
        ]
        layers += [RecurrentLayer(width, width, 2, dropout) for _ in range(config.bilstm_layers)]
        self.layers = nn.ModuleList(layers)
        init_weights(self, config.initializer_range)

    # LSTMs have no attention; and these models score texts, but write none.
    attention_scores = Backbone.attention_scores
    writer = Backbone.writer

    def _layout(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        packing: PackedRows | None,
        dtype: torch.dtype,
    ) -> RowLayout:
        causal = super()._layout(input_ids, attention_mask, packing, dtype)
        if attention_mask is None:
            sequences, length = input_ids.shape
            forwards, backwards, sizes = full_reading_order(sequences, length, input_ids.device)
        else:
            forwards, backwards, sizes = reading_order(attention_mask.bool())
        fields = {one.name: getattr(causal, one.name) for one in dataclasses.fields(RowLayout)}
        return RecurrentLayout(**fields, forwards=forwards, backwards=backwards, sizes=sizes)

    def _bias_traced(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        raise BertineError(
            f"{self.config.title} cannot be exported: its steps are as many as words"
        )


# OpenAIGPTConfig: the architecture of GPT-1 (Radford et al. 2018, "Improving Language Understanding
# by Generative Pre-Training"), and the published sizes.

#: The published code's activations by their names here: its "gelu" is the form with tanh
#: (``train.py: gelu``).
ACTIVATIONS = ("gelu_new", "relu", "silu")


@dataclass(frozen=True)
class OpenAIGPTConfig(Config):
    """Sizes and rates of a GPT (section 4.1 of the paper; defaults are the published model).

    A token attends to itself and to earlier ones, and there is no norm after the embeddings
    (``train.py: model``, ``block``). The published code's classifier has a bias; transformers' and
    this one have none.

    Attributes:
        embedding_dropout: after the embeddings.

    Raises:
        BertineError: besides what every config refuses, a feed-forward that is not four times as
            wide as the states, or an unknown activation.
    """

    model_type: ClassVar[str] = "openai-gpt"
    title: ClassVar[str] = "GPT-1"
    token_types: ClassVar[bool] = False
    reads_forward: ClassVar[bool] = True
    writes_with: ClassVar[str] = "lm"
    task_lm_weight: ClassVar[float] = 0.5  # section 4.1, "λ was set to 0.5"

    vocab_size: int = 40478
    hidden_act: str = "gelu_new"
    classifier_dropout: float = 0.1
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    embedding_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intermediate_size != 4 * self.hidden_size:
            raise BertineError(
                f"intermediate_size is {self.intermediate_size}, but must be four times "
                f"hidden_size, {4 * self.hidden_size}"
            )
        if self.hidden_act not in ACTIVATIONS:
            raise BertineError(
                f"hidden_act is {self.hidden_act!r}, but {self.title} has only "
                f"{', '.join(ACTIVATIONS)}"
            )

    @property
    def num_segments(self) -> int:
        """Two: separators mark the two texts of a pair."""
        return 2

    @property
    def has_pooler(self) -> bool:
        """False: what is pooled has no weights."""
        return False

    @property
    def num_parameters(self) -> int:
        # There is no norm at the embeddings.
        return super().num_parameters - 2 * self.hidden_size

    def with_dropout(self, p: float | None) -> Self:
        changed = super().with_dropout(p)
        return changed if p is None else changed.replace(embedding_dropout=p)


#: Preset → architecture: the published one, and three of Bertine's own, with the layers and the
#: width of bert-tiny, -mini and -small, for a vocabulary as large as BERT's.
PRESETS: Mapping[str, OpenAIGPTConfig] = {
    "openai-gpt": OpenAIGPTConfig(),
    "gpt-tiny": OpenAIGPTConfig.of_size(2, 128, vocab_size=30522),
    "gpt-mini": OpenAIGPTConfig.of_size(4, 256, vocab_size=30522),
    "gpt-small": OpenAIGPTConfig.of_size(4, 512, vocab_size=30522),
}


# LstmConfig: GPT-1 with LSTMs, which two papers compare their models with.


@dataclass(frozen=True)
class LstmConfig(OpenAIGPTConfig):
    """Sizes and rates of a GPT-1 with LSTMs instead of its layers, or above them. No other program
    has such models.

    Attributes:
        lstm_size: units of the LSTM that replaces each layer; 0: the layers are GPT-1's.
        bilstm_layers: bidirectional layers above them; each direction has as many units as the
            states are wide. Such a model predicts no next token.

    Raises:
        BertineError: besides what GPT-1's config refuses, a number below 0.
    """

    model_type: ClassVar[str] = "gpt-lstm"
    title: ClassVar[str] = "GPT-1 with LSTMs"
    writes_with: ClassVar[str] = ""

    lstm_size: int = 0
    bilstm_layers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lstm_size", "bilstm_layers"):
            if not 0 <= getattr(self, name) <= 10_000:
                raise BertineError(
                    f"{name} is {getattr(self, name)}, but must be between 0 and 10,000"
                )

    # Class variables in other families; here they depend on the layers above.

    @property
    def reads_forward(self) -> bool:  # type: ignore[override]
        """Whether a token's state is independent of later tokens."""
        return not self.bilstm_layers

    @property
    def task_lm_weight(self) -> float:  # type: ignore[override]
        """The weight of next-token prediction in fine-tuning; 0 if the model sees that token."""
        return OpenAIGPTConfig.task_lm_weight if self.reads_forward else 0.0

    @property
    def decoder_passes(self) -> int:
        """How many of the last passes ``num_hidden_layers`` does not count."""
        return self.bilstm_layers

    @property
    def passes(self) -> Sequence[int]:
        """All layers, the bidirectional ones last."""
        return range(self.num_hidden_layers + self.bilstm_layers)

    @property
    def num_parameters(self) -> int:
        width, layers = self.hidden_size, self.num_hidden_layers
        above = self.bilstm_layers * _recurrent(width, width, 2)
        if not self.lstm_size:
            return super().num_parameters + above
        rows = self.vocab_size + self.max_position_embeddings
        return rows * width + layers * _recurrent(width, self.lstm_size, 1) + above

    def with_layer_on_top(self) -> Self:
        """Return the config of a model with one more bidirectional layer."""
        return self.replace(bilstm_layers=self.bilstm_layers + 1)


def _recurrent(width: int, size: int, directions: int) -> int:
    """Count the weights of a layer."""
    of_direction = 4 * size * (width + size + 2)
    return directions * of_direction + directions * size * width + width


_MINI = LstmConfig(
    vocab_size=30522,
    hidden_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=1024,
)

#: Preset → architecture: one layer, whose units have the same ratio to the width as in GPT-1's
#: paper, 2,048 to 768; and gpt-mini with a BiLSTM above it.
LSTM_PRESETS: Mapping[str, LstmConfig] = {
    "lstm-mini": _MINI.replace(num_hidden_layers=1, lstm_size=683),
    "gpt-mini-bilstm": _MINI.replace(bilstm_layers=1),
}


# transformers' format of GPT-1: names of weights and keys of ``config.json``.

#: Activations by their names in ``afn``. "gelu" is the form with tanh there, in transformers too.
_ACTIVATIONS = {"gelu": "gelu_new", "swish": "silu"}


def _flat(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Convert the keys of a file to our fields."""
    width, name = values.get("n_embd"), values.get("afn", "gelu")
    flat = {**values, "afn": _ACTIVATIONS.get(name, name) if isinstance(name, str) else name}
    if isinstance(width, int):
        flat.setdefault("n_inner", 4 * width)
    return flat


def _nested(config: Config) -> Mapping[str, Any]:
    theirs = {ours: name for name, ours in _ACTIVATIONS.items()}
    return {"afn": theirs.get(config.hidden_act, config.hidden_act)}


#: Dropout and a linear layer without a bias, on the pooled output.
_CLASSIFIER = partial(ClassificationHead, bias=False)

FAMILY = Family(
    config=OpenAIGPTConfig,
    heads={
        "lm": HeadKind("rows", lambda *_: LmHead(), "LM head", "LMHeadModel", tied=True),
        # The backbone pools the last token.
        "classifier": replace(HEADS["classifier"], new=_CLASSIFIER),
        "spans": replace(HEADS["spans"], published=False),
        "choice": replace(HEADS["choice"], new=ClassificationHead, suffix="DoubleHeadsModel"),
        BOTH_ORDERS: HeadKind(
            *("pooled", _CLASSIFIER, "classifier of both orders", "ForPairsInBothOrders"),
            published=False,
            named=True,
        ),
    },
    new_backbone=lambda config, _: CausalBackbone(config),
    class_prefix="OpenAIGPT",
    names=WeightNames(
        prefix="transformer.",
        encoder=("tokens_embed.", "positions_embed.", "h."),
        tables=(
            ("backbone.embeddings.word_embeddings.weight", "tokens_embed.weight"),
            ("backbone.embeddings.position_embeddings.weight", "positions_embed.weight"),
        ),
        modules=(),
        layers=("backbone.layers.{}", "h.{}"),
        layer=(
            ("attention.qkv", ("attn.c_attn",)),
            ("attention.out", ("attn.c_proj",)),
            ("attention_norm", ("ln_1",)),
            ("up", ("mlp.c_fc",)),
            ("down", ("mlp.c_proj",)),
            ("output_norm", ("ln_2",)),
        ),
        heads={
            "lm": HeadNames("lm_head"),
            "classifier": HeadNames("", (("out", "score"),)),
            "spans": TASK_HEADS["spans"],
            "choice": HeadNames("multiple_choice_head.summary", (("out", ""),)),
            BOTH_ORDERS: HeadNames(BOTH_ORDERS, (("out", ""),)),
        },
        copies=(("lm_head.weight", "tokens_embed.weight"),),
        transposed=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),
        buffers=(r"h\.\d+\.attn\.bias",),
    ),
    keys=ConfigKeys(
        required=("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"),
        only={
            **{key: rule for key, rule in PLAIN_ENCODER.items() if key != "is_decoder"},
            "summary_type": (("cls_index", "last"), "another place for a classifier to read"),
            "summary_use_proj": ((True,), "a classifier without a layer"),
            "summary_activation": ((None,), "an activation in the classifier"),
            "summary_proj_to_labels": ((True,), "a classifier without outputs"),
            "n_special": ((0, None), "special tokens beside the vocabulary"),
        },
        written={"tie_word_embeddings": True},
        renamed={
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "hidden_act": "afn",
            "hidden_dropout_prob": "resid_pdrop",
            "attention_probs_dropout_prob": "attn_pdrop",
            "embedding_dropout": "embd_pdrop",
            "classifier_dropout": "summary_first_dropout",
            "layer_norm_eps": "layer_norm_epsilon",
        },
        ignored=frozenset({"n_ctx", "predict_special_tokens", "is_decoder"}),
        absent=frozenset({"type_vocab_size"}),
        flatten=_flat,
        nest=_nested,
    ),
    tokenizer="word-bpe",
    objectives=("clm",),
    input_format="running-text",
    presets=PRESETS,
)


# Bertine's format of GPT-1 with LSTMs, which no other program has; the parts of GPT-1 have GPT-1's
# names.


def _layer(directions: int) -> LayerRows:
    """Return the names of a recurrent layer, which are Bertine's own."""
    parts = [
        f"directions.{number}.{part}" for number in range(directions) for part in ("read", "state")
    ]
    return tuple((part, (part,)) for part in (*parts, "out"))


def _of_config(config: LstmConfig) -> LayerRows:
    attention: Any = FAMILY.names.layer
    return _layer(1) if config.lstm_size else attention


_NAMES: WeightNames = replace(
    FAMILY.names,
    encoder=(*FAMILY.names.encoder, "bilstm."),
    layer=_of_config,
    above=(LayerStack("bilstm_layers", "bilstm.{}", _layer(2)),),
)

LSTM_FAMILY = Family(
    config=LstmConfig,
    heads=FAMILY.heads,
    new_backbone=lambda config, _: RecurrentBackbone(config),
    class_prefix="GPTLstm",
    names=_NAMES,
    keys=replace(FAMILY.keys, ours=frozenset({"lstm_size", "bilstm_layers"})),
    tokenizer=FAMILY.tokenizer,
    objectives=("clm",),
    input_format="running-text",
    presets=LSTM_PRESETS,
    published=False,
)
