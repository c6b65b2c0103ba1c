"""Define BART's config, and build its layers, encoder and decoder as one backbone, and its writer.

The architecture is that of Lewis et al. 2019, section 2.1 (fairseq, ``TransformerModel``).

Shape legend: B sequences, S tokens of the longest that is read, T of the longest that the decoder
reads, H hidden size, N rows that are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.families.gpt import hidden_future
from bertine.models.config import MOST_LAYERS, Config
from bertine.models.dropout import StreamDropout, dropout_add
from bertine.models.embeddings import Numbers, new_table, places_of
from bertine.models.encoder import (
    Backbone,
    BackboneOutput,
    Inputs,
    KeyValues,
    PackedRows,
    layout_of,
    same_rows,
)
from bertine.models.layers import EncoderLayer, RowLayout, activated_linear, attend, init_weights
from bertine.models.precision import autocast_dtype


@dataclass(frozen=True)
class BartConfig(Config):
    """Sizes and rates of a BART (section 2.1 of the paper; defaults are bart-large).

    BERT's layers in the encoder, and in the decoder the same with attention to the encoder's last
    states in the middle; one matrix of word embeddings for both. A task over whole inputs reads
    the decoder's state at the last end of a text (section 3.1). The fields without a prefix are the
    encoder's.

    Attributes:
        activation_dropout: behind the activation of each feed-forward.
        decoder_layers, decoder_attention_heads, decoder_ffn_dim: of the decoder.
        bos_token_id, eos_token_id: what texts begin and end with.
        decoder_start_token_id: what the decoder reads before the first token of a text.
        forced_bos_token_id: what a text that is written begins with in any case; None: what the
            model says.
        forced_eos_token_id: what a text as long as it may be ends with in any case; None: what the
            model says.

    Raises:
        BertineError: besides what every config refuses, heads that do not divide the width in the
            decoder, or the id of a special token that is not in the vocabulary.
    """

    model_type: ClassVar[str] = "bart"
    title: ClassVar[str] = "BART"
    token_types: ClassVar[bool] = False
    encodes_and_decodes: ClassVar[bool] = True
    writes_with: ClassVar[str] = "lm"
    #: Their separators tell the texts of a pair apart.
    num_segments = 2
    #: What is pooled has no weights.
    has_pooler = False

    vocab_size: int = 50265
    hidden_size: int = 1024
    num_attention_heads: int = 16
    intermediate_size: int = 4096
    classifier_dropout: float | None = 0.0
    max_position_embeddings: int = 1024
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 1
    activation_dropout: float = 0.0
    decoder_layers: int = 12
    decoder_attention_heads: int = 16
    decoder_ffn_dim: int = 4096
    bos_token_id: int = 0
    eos_token_id: int = 2
    decoder_start_token_id: int = 2
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim")
        if self.decoder_layers > MOST_LAYERS:
            raise BertineError(
                f"decoder_layers is {self.decoder_layers:,}, but at most {MOST_LAYERS:,} can be "
                "built"
            )
        if self.hidden_size % self.decoder_attention_heads:
            raise BertineError(
                f"hidden_size {self.hidden_size} is not a multiple of decoder_attention_heads "
                f"{self.decoder_attention_heads}"
            )

    @property
    def passes(self) -> range:
        """The layers of the encoder, then those of the decoder."""
        return range(self.num_hidden_layers + self.decoder_layers)

    @property
    def decoder_passes(self) -> int:
        return self.decoder_layers

    @property
    def num_parameters(self) -> int:
        """Count the weights by their formula; positions have two rows more than there are places
        (fairseq, ``LearnedPositionalEmbedding``)."""
        width = self.hidden_size
        attention, norm = 4 * (width * width + width), 2 * width
        tables = (self.vocab_size + 2 * (self.max_position_embeddings + 2)) * width + 2 * norm
        encoder = attention + _feed_forward(width, self.intermediate_size) + 2 * norm
        decoder = 2 * attention + _feed_forward(width, self.decoder_ffn_dim) + 3 * norm
        return tables + self.num_hidden_layers * encoder + self.decoder_layers * decoder

    @property
    def last_token_id(self) -> int:
        return self.eos_token_id

    @property
    def forced_tokens(self) -> tuple[int | None, int | None]:
        return self.forced_bos_token_id, self.forced_eos_token_id

    def of_decoder(self) -> Self:
        """Return the config of an encoder with the sizes of the decoder."""
        return self.replace(
            num_attention_heads=self.decoder_attention_heads,
            intermediate_size=self.decoder_ffn_dim,
        )

    def with_dropout(self, p: float | None) -> Self:
        changed = super().with_dropout(p)
        return changed if p is None else changed.replace(activation_dropout=p)

    def for_vocabulary(self, size: int, *, pad: int, first: int | None, last: int | None) -> Self:
        if last is None:  # a vocabulary whose texts end with nothing keeps the usual ids
            return self.replace(vocab_size=size, pad_token_id=pad)
        return self.replace(
            vocab_size=size,
            pad_token_id=pad,
            bos_token_id=last if first is None else first,
            eos_token_id=last,
            decoder_start_token_id=last,
            forced_bos_token_id=None if self.forced_bos_token_id is None else first,
            forced_eos_token_id=None if self.forced_eos_token_id is None else last,
        )


def _feed_forward(width: int, inner: int) -> int:
    return 2 * width * inner + inner + width


# Layers: BERT's, with dropout inside the feed-forward; the decoder's have attention to another text
# too (Vaswani et al. 2017, section 3.2.3; fairseq, ``TransformerDecoderLayer``).
#
# Shape legend: B sequences, T tokens of the longest, S tokens of the longest that is attended to, H
# hidden size, A attention heads, D = H / A; N rows that are computed, M of the text attended to.


class BartLayer(EncoderLayer):
    """A layer of the encoder."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.inner_dropout = StreamDropout(config.activation_dropout)

    def forward(self, x: Tensor, layout: RowLayout, *around: object) -> Tensor:
        """Map x [N, H] to [N, H]."""
        return self.fed_forward(self.attended(x, layout))

    def attended(self, x: Tensor, layout: RowLayout) -> Tensor:
        """Compute the first half, self-attention: x [N, H] → [N, H]."""
        mixed = self.attention(x, layout)
        return self.closed(mixed, x, self.attention_norm)

    def fed_forward(self, x: Tensor) -> Tensor:
        """Compute the second half, the feed-forward: x [N, H] → [N, H]."""
        inner = self.up(x)
        if self.training and self.inner_dropout.p > 0.0:
            inner = self.down(self.inner_dropout(self.act(inner)))
        else:
            inner = activated_linear(inner, self.act, self.down, self.training)
        return self.closed(inner, x, self.output_norm)

    def closed(self, part: Tensor, x: Tensor, norm: nn.Module) -> Tensor:
        """Apply dropout to `part`, the output of a part of the layer, add the input x of the part,
        and apply the norm: [N, H] each."""
        x = dropout_add(part, x, self.dropout, self.training)
        normed: Tensor = norm(x).to(x.dtype)
        return normed


class CrossAttention(nn.Module):
    """Multi-head attention from one text to another; keys and values are one product.

    ``kv.weight`` is [2H, H]: the rows of the key, then the value projection.
    """

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_size = config.head_size
        self.dropout = config.attention_probs_dropout_prob
        self.q = nn.Linear(config.hidden_size, config.hidden_size)
        self.kv = nn.Linear(config.hidden_size, 2 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, layout: RowLayout, memory: Tensor, there: RowLayout) -> Tensor:
        """Attend from x [N, H] to `memory` [M, H], whose layout is `there`: [N, H], before the
        output's dropout."""
        q = self._by_head(layout.pad(self.q(x)))
        keys, values = self.keys_and_values(memory, there)
        p = self.dropout if self.training else 0.0
        mixed = attend(q, keys, values, there.bias, p, self.training)
        b, t = layout.sequences, layout.length
        out: Tensor = self.out(layout.unpad(mixed.transpose(1, 2).reshape(b, t, -1)))
        return out

    def queries(self, x: Tensor) -> Tensor:
        """Map x [B, T, H] to [B, A, T, D]."""
        return self._by_head(self.q(x))

    def _by_head(self, q: Tensor) -> Tensor:
        return q.view(*q.shape[:2], self.heads, self.head_size).transpose(1, 2)

    def keys_and_values(self, memory: Tensor, there: RowLayout) -> tuple[Tensor, Tensor]:
        """Compute keys and values of `memory` [M, H]: two of [B, A, S, D]."""
        b, s = there.sequences, there.length
        kv = there.pad(self.kv(memory)).view(b, s, 2, self.heads, self.head_size)
        keys, values = kv.permute(2, 0, 3, 1, 4)
        return keys, values


class DecoderLayer(BartLayer):
    """A layer of the decoder: the written text attends to itself, then to the read text."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.cross = CrossAttention(config)
        self.cross_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, layout: RowLayout, *around: object) -> Tensor:
        """Map x [N, H] to [N, H]; `around` is the last states [M, H] of the text that was read, and
        their layout."""
        memory, there = around
        assert isinstance(memory, Tensor)
        assert isinstance(there, RowLayout)
        x = self.attended(x, layout)
        x = self.closed(self.cross(x, layout, memory, there), x, self.cross_norm)
        return self.fed_forward(x)


# Writing: the text to read is encoded once, and each written token is read once; keys and values of
# both are kept.
#
# Shape legend: N texts, R rows, S tokens of the longest text, T tokens that are read now, K tokens
# that are kept, A attention heads, D size of a head, H hidden size, V vocabulary size.


class Seq2SeqWriter:
    """Scorer of the next tokens of rows (:class:`bertine.models.generation.NextTokens`), each of
    which answers one of the texts that were read.

    Args:
        backbone: in evaluation mode.
        scores: maps states [R, H] to scores of the vocabulary, [R, V].
        texts: ids of N texts, at least one token each.
    """

    def __init__(
        self,
        backbone: BartBackbone,
        scores: Callable[[Tensor], Tensor],
        texts: Sequence[Sequence[int]],
    ) -> None:
        self._backbone, self._scores = backbone, scores
        device = backbone.word_weights.device
        lengths = torch.tensor([len(text) for text in texts])
        real = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = torch.full(real.shape, backbone.config.pad_token_id)
        ids[real] = torch.tensor([token for text in texts for token in text])
        mask = None if bool(real.all()) else real.to(device)
        memory, layout = backbone.encode_text(ids.to(device), mask)
        self._layers: list[DecoderLayer] = []
        #: Of each layer, the keys and values of the texts, [R, A, S, D].
        self._there: list[tuple[Tensor, Tensor]] = []
        for layer in backbone.decoder_layers:
            assert isinstance(layer, DecoderLayer)
            self._layers.append(layer)
            self._there.append(layer.cross.keys_and_values(memory, layout))
        #: [R, 1, 1, S], added to the scores of attention to the texts; None: nothing.
        self._bias = layout.bias
        self._kept = [KeyValues() for _ in self._layers]
        self._count, self._read_so_far = len(texts), 0

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read the first tokens of the decoder; see :class:`bertine.models.generation.NextTokens`.

        Raises:
            ValueError: the prompts differ in length, or are not as many as the texts.
        """
        if len(prompts) != self._count or len({len(prompt) for prompt in prompts}) != 1:
            raise ValueError("a decoder begins with as many tokens for each text")
        return self._read(torch.tensor(prompts, device=self._backbone.word_weights.device))

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Continue chosen rows; see :class:`bertine.models.generation.NextTokens`."""
        if not same_rows(rows, self._count):
            for kept in self._kept:
                kept.choose(rows)
            self._there = [
                (keys.index_select(0, rows), values.index_select(0, rows))
                for keys, values in self._there
            ]
            if self._bias is not None:
                self._bias = self._bias.index_select(0, rows)
            self._count = len(rows)
        return self._read(tokens[:, None])

    def _read(self, ids: Tensor) -> Tensor:
        """Read tokens [R, T] after those that are kept; return the scores after the last."""
        r, t = ids.shape
        backbone, layout = self._backbone, RowLayout(r, t)
        words = backbone.embeddings.words(ids, layout)
        x = backbone.decoder_embeddings.placed(words, layout, self._read_so_far)
        bias = None
        if t > 1:
            seen = torch.ones(t, self._read_so_far + t, dtype=torch.bool, device=x.device)
            hidden = ~seen.tril_(self._read_so_far)
            bias = torch.zeros(hidden.shape, dtype=x.dtype, device=x.device)
            bias = bias.masked_fill_(hidden, float("-inf"))[None, None]
        for layer, kept, there in zip(self._layers, self._kept, self._there, strict=True):
            q, k, v = layer.attention.split(x.view(r, t, -1))
            keys, values = kept.add(k, v)
            mixed = _joined(attend(q, keys, values, bias, 0.0, training=False))
            x = layer.closed(layer.attention.out(mixed), x, layer.attention_norm)
            q = layer.cross.queries(x.view(r, t, -1))
            mixed = _joined(attend(q, *there, self._bias, 0.0, training=False))
            x = layer.closed(layer.cross.out(mixed), x, layer.cross_norm)
            x = layer.fed_forward(x)
        self._read_so_far += t
        return self._scores(x.view(r, t, -1)[:, -1]).float()


def _joined(mixed: Tensor) -> Tensor:
    """Concatenate the heads of [R, A, T, D]: [R * T, H]."""
    return mixed.transpose(1, 2).reshape(mixed.shape[0] * mixed.shape[2], -1)


#: Rows of the position embeddings before that of the first position, which are never read (fairseq,
#: ``padding_idx + 1``).
OFFSET = 2


class PlacedWords(nn.Module):
    """Position embeddings, layer norm and dropout over word vectors. Positions count the places of
    a sequence."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.position_embeddings = new_table(config.max_position_embeddings + OFFSET, size)
        self.layer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = StreamDropout(config.hidden_dropout_prob)

    def placed(self, words: Tensor, layout: RowLayout, first: int = 0) -> Tensor:
        """Return the first layer's input for the word vectors [N, H] at the places of `layout`; the
        first place of a sequence has the position `first`."""
        begin, table = OFFSET + first, self.position_embeddings.weight
        if layout.real is None:
            length, width = layout.length, words.shape[-1]
            x = words.view(-1, length, width) + table[begin : begin + length]
            x = x.view(-1, width)
        else:
            x = words + self.position_embeddings(layout.real % layout.length + begin)
        x = self.layer_norm(x)
        # From here on the residual stream is in the compute type: half the memory traffic.
        placed: Tensor = self.dropout(x.to(autocast_dtype(x.device.type) or x.dtype))
        return placed


class BartEmbeddings(PlacedWords):
    """The encoder's embeddings, with the word embeddings of both sides."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.word_embeddings = new_table(config.vocab_size, config.hidden_size)

    def words(self, ids: Tensor, layout: RowLayout) -> Tensor:
        """Look up ids [B, T]: [N, H]."""
        flat = ids.reshape(-1)
        vectors: Tensor = self.word_embeddings(flat if layout.real is None else flat[layout.real])
        return vectors


class BartBackbone(Backbone):
    """An encoder and a decoder. Unless it gets a text of its own, the decoder reads the same text
    with the start token before it and without its last token, so that its states are those of
    tokens that know the whole text and predict themselves (section 3.1).

    The states are the decoder's. ``hidden_states`` are the encoder's embeddings and layers, then
    the decoder's layers. The pooled output is the decoder's state at the last end of a text. As in
    the published code, the decoder attends to everything before a token, even padding: padding
    belongs after a text.
    """

    config: BartConfig
    embeddings: BartEmbeddings

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = BartEmbeddings(config)
        self.decoder_embeddings = PlacedWords(config)
        below, above = config.num_hidden_layers, config.of_decoder()
        self.layers = nn.ModuleList(BartLayer(config) for _ in range(below))
        self.layers.extend(DecoderLayer(above) for _ in range(config.decoder_layers))
        self.pooler = None
        init_weights(self, config.initializer_range)

    @property
    def word_weights(self) -> Tensor:
        return self.embeddings.word_embeddings.weight

    def numbers_of(self, input_ids: Tensor, token_type_ids: Tensor) -> Numbers:
        return places_of(input_ids, OFFSET), None

    @property
    def encoder_layers(self) -> list[nn.Module]:
        """The layers of the encoder."""
        return list(self.layers)[: self.config.num_hidden_layers]

    @property
    def decoder_layers(self) -> list[nn.Module]:
        """The layers of the decoder."""
        return list(self.layers)[self.config.num_hidden_layers :]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        packing: PackedRows | None = None,
        word_vectors: Tensor | None = None,
        target: Inputs | None = None,
    ) -> BackboneOutput:
        """Encode a batch, and decode it; see :class:`bertine.models.encoder.Backbone`.

        Args:
            target: ids that the decoder reads, with a mask or without; None: the text itself.

        Raises:
            ValueError: `word_vectors` for a batch with padding, or with a `target`.
        """
        assert packing is None
        dtype = self.word_weights.dtype
        layout = layout_of(input_ids, attention_mask, None, dtype)
        if word_vectors is not None and (layout.real is not None or target is not None):
            raise ValueError("word_vectors are for batches without padding or target")
        if word_vectors is None:
            words = self.embeddings.words(input_ids, layout)
        else:
            words = word_vectors.reshape(-1, word_vectors.shape[-1])
        states = self._read(words, layout)
        if target is None:
            ids, mask = self.shifted(input_ids), attention_mask
        else:
            ids, mask = target.input_ids, target.attention_mask
        written = self._layout_of_decoder(ids, mask, dtype)
        if word_vectors is None:
            words = self.embeddings.words(ids, written)
        else:
            start = self.embeddings.word_embeddings(ids[:, :1])
            shifted = torch.cat([start, word_vectors[:, :-1]], 1)
            words = shifted.reshape(-1, word_vectors.shape[-1])
        last, above = self._write(words, written, states[-1], layout)
        if output_hidden_states:
            all_states = tuple(map(layout.pad, states)) + tuple(map(written.pad, above))
        else:
            all_states = None
        pooled = self._pooled(last, input_ids, attention_mask) if target is None else None
        return BackboneOutput(last, pooled, all_states)

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        b, t = input_ids.shape
        dtype = self.word_weights.dtype
        lowest = torch.finfo(dtype).min
        # Not minus infinity: a runtime may compute a row of only padding, which would be 0 / 0.
        hidden = (1.0 - attention_mask.to(dtype))[:, None, None, :] * lowest
        layout = RowLayout(b, t, bias=hidden)
        places = torch.arange(t, device=input_ids.device)
        future = (places[:, None] < places[None, :]).to(dtype)[None, None] * lowest
        states = self._read(self.embeddings.words(input_ids, layout), layout)
        written = RowLayout(b, t, bias=future)
        words = self.embeddings.words(self.shifted(input_ids), written)
        last, above = self._write(words, written, states[-1], layout)
        all_states = tuple(map(layout.pad, states)) + tuple(map(written.pad, above))
        pooled = self._pooled(last, input_ids, attention_mask)
        return BackboneOutput(last, pooled, all_states if output_hidden_states else None)

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[Seq2SeqWriter, Sequence[Sequence[int]]]:
        """Return a writer that answers `texts`, each from the start token on; see
        :class:`bertine.models.encoder.Backbone`."""
        start = [self.config.decoder_start_token_id]
        return Seq2SeqWriter(self, scores, texts), [start] * len(texts)

    def encode_text(
        self, input_ids: Tensor, attention_mask: Tensor | None
    ) -> tuple[Tensor, RowLayout]:
        """Run only the encoder on ids [B, S]: its last states, [N, H], and their layout."""
        layout = layout_of(input_ids, attention_mask, None, self.word_weights.dtype)
        return self._read(self.embeddings.words(input_ids, layout), layout)[-1], layout

    def shifted(self, input_ids: Tensor) -> Tensor:
        """Return ids [B, T] shifted by one place, after the start token."""
        first = torch.arange(input_ids.shape[1], device=input_ids.device) == 0
        return input_ids.roll(1, 1).masked_fill(first, self.config.decoder_start_token_id)

    def _read(self, words: Tensor, layout: RowLayout) -> list[Tensor]:
        """Run the encoder: the first layer's input and the outputs of all layers, [N, H] each."""
        states = [self.embeddings.placed(words, layout)]
        for layer in self.encoder_layers:
            states.append(layer(states[-1], layout))
        return states

    def _write(
        self, words: Tensor, layout: RowLayout, memory: Tensor, there: RowLayout
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the decoder: its last states [B, T, H], and the outputs of its layers, [N, H]
        each."""
        x = self.decoder_embeddings.placed(words, layout)
        states = []
        for layer in self.decoder_layers:
            x = layer(x, layout, memory, there)
            states.append(x)
        return layout.pad(x), states

    def _layout_of_decoder(self, ids: Tensor, mask: Tensor | None, dtype: torch.dtype) -> RowLayout:
        """Choose the rows of the decoder to compute. It attends to everything before a token, so
        padding there is computed too."""
        if mask is not None and ids.device.type == "cpu" and not bool(mask[:, 0].all()):
            mask = None
        layout = layout_of(ids, mask, None, dtype)
        computed = autocast_dtype(ids.device.type) or dtype
        like = torch.empty(0, dtype=computed, device=ids.device)
        return replace(layout, bias=hidden_future(layout.length, like))

    def _pooled(self, states: Tensor, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return the states [B, H] at the last end of each text; without an end, those at its last
        token."""
        places = torch.arange(1, input_ids.shape[1] + 1, device=input_ids.device)
        ends = (input_ids == self.config.eos_token_id) * (places + input_ids.shape[1])
        real = places if mask is None else mask.long() * places
        last = torch.maximum(ends, real.expand_as(ends)).argmax(1)
        return states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1]))[:, 0]
