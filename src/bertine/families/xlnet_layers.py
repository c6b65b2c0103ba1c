"""Define XLNet's config, and build its layers: attention in one stream or two.

Shape legend: B sequences, T tokens of the longest, M of the memory, K = M + T, P places to predict
in a sequence, H hidden size, A heads, D = H / A; N rows that are computed; R offsets; S segments.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.models.config import LARGEST, Config
from bertine.models.dropout import StreamDropout, dropout_add
from bertine.models.embeddings import Numbers, WordEmbeddings
from bertine.models.encoder import BackboneOutput, PackedRows, RowBackbone, last_tokens, layout_of
from bertine.models.layers import RowLayout, activation, init_weights, softmax, truncated_normal_

# XLNet (Yang et al. 2019, arXiv 1906.08237): BERT's layers with relative positions, relative
# segments and a memory (those of Transformer-XL, Dai et al. 2019, arXiv 1901.02860), trained to
# guess words in any order.
#
# What differs from BERT, in the paper and in the published code (zihangdai/xlnet,
# ``modeling.py``):
#
# - Neither positions nor token types among the embeddings, no norm behind them, and no biases in
#   the products of the attention.
# - A sequence is ``A <sep> B <sep> <cls>``: what stands for the whole is its last token.
#   Classifiers have a dense layer with tanh of their own, and there is no pooler.
# - Dropout within the feed-forward and behind the last layer too.
# - Pre-training has a second stream of states, for the places that are guessed.


#: The number of segments: the first text, the second, the last token of a sequence.
SEGMENTS = 3


@dataclass(frozen=True)
class XlnetConfig(Config):
    """Sizes and rates of an XLNet; the defaults are those of xlnet-base-cased.

    Attributes:
        clamp_len: offsets between tokens beyond it count as this one; below 1: all are told apart.

    ``max_position_embeddings`` is the longest input here, as in pre-training; there are no
    embeddings of positions, and any number may stand in its place. Its ``hidden_act`` is the form
    with tanh, which the published code calls "gelu".

    Raises:
        BertineError: as of :class:`bertine.models.config.Config`, and an odd width.
    """

    model_type: ClassVar[str] = "xlnet"
    title: ClassVar[str] = "XLNet"
    token_types: ClassVar[bool] = False
    positions: ClassVar[str] = "relative: the attention reads how far apart two tokens are"
    reads_last: ClassVar[bool] = True
    #: The attention asks whether two tokens are of one text.
    num_segments = 2
    #: The last token is of neither text.
    num_segment_ids = SEGMENTS
    #: What is pooled has no weights.
    has_pooler = False

    vocab_size: int = 32000
    hidden_act: str = "gelu_new"
    classifier_dropout: float = 0.1
    type_vocab_size: int = 0
    pad_token_id: int = 5
    clamp_len: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % 2:
            raise BertineError(
                f"hidden_size is {self.hidden_size}, but must be even: half of it are the sines of "
                "positions, and half the cosines"
            )
        if self.clamp_len > LARGEST:
            raise BertineError(f"clamp_len is {self.clamp_len}, but must be at most {LARGEST:,}")

    @property
    def num_parameters(self) -> int:
        width, inner = self.hidden_size, self.intermediate_size
        attention = 5 * width * width + 5 * width
        layer = attention + 2 * width * inner + inner + width + 4 * width
        return (self.vocab_size + 1) * width + self.num_hidden_layers * layer


# Relative positions: encoded as waves, and scores by offset mapped to pairs.
#
# Shape legend: T attending tokens, K attended tokens (those of the memory, then the T), R the
# T + K - 1 offsets between them, H hidden size.

#: The fewest rows to compute to either side; larger numbers are powers of two.
_LEAST = 512


def waves(queries: int, keys: int, width: int, clamp: int, *, like: Tensor) -> Tensor:
    """Return the encoding of each offset of an attending token from the attended one: the sines of
    all frequencies, then the cosines (Dai et al. 2019, arXiv 1901.02860, section 3.3;
    zihangdai/xlnet, ``positional_embedding``).

    Args:
        queries: T, the last of the K tokens.
        keys: K.
        width: H, an even number.
        clamp: offsets beyond it count as this one; below 1: all are distinct.
        like: a tensor on the device to use.

    Returns:
        fp32 [R, H], of the offsets K - 1, K - 2, … 1 - T.
    """
    longest = max(keys, _LEAST)
    reach = 1 << (longest - 1).bit_length()
    table = _table(reach, width, clamp, str(like.device))
    return table.narrow(0, reach - (keys - 1), queries + keys - 1)


@functools.lru_cache(maxsize=8)
def _table(reach: int, width: int, clamp: int, device: str) -> Tensor:
    """Return the encodings of the offsets `reach` down to -`reach`, [2 reach + 1, H]."""
    # Cached: not an inference tensor, which training could not use.
    with torch.inference_mode(False), torch.device("cpu"):
        offsets = torch.arange(reach, -reach - 1, -1, dtype=torch.float32)
        if clamp > 0:
            offsets = offsets.clamp(-clamp, clamp)
        frequencies = 1 / torch.pow(10000, torch.arange(0, width, 2).float() / width)
        angles = offsets[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], -1).to(device)


def by_pairs(scores: Tensor, keys: int) -> Tensor:
    """Return [..., T, K] from `scores` [..., T, R], whose rows hold a score for every offset from
    K - 1 down to 1 - T. No data moves: each row begins one place earlier than the one before."""
    queries, offsets = scores.shape[-2:]
    if queries == 1:
        return scores
    flat = scores.flatten(-2)[..., queries - 1 : queries - 1 + queries * (offsets - 1)]
    return flat.unflatten(-1, (queries, offsets - 1))[..., :keys]


def rows_of_pairs(places: Tensor, queries: int, keys: int) -> Tensor:
    """Return which of the R offset rows belongs to each pair of an attending and an attended token.

    Args:
        places: int64 [...], the places of the attending tokens among the T.
        queries: T.
        keys: K.

    Returns:
        int64 [..., K].
    """
    return (queries - 1 - places)[..., None] + torch.arange(keys, device=places.device)


@dataclass(frozen=True)
class Relations:
    """The relations of the pairs of tokens in a batch, which all layers read.

    Attributes:
        waves: [1, R, H], the encodings of the offsets; [2, R, H]: the second are those of a text
            that is read backwards.
        backwards: int64 [B], which of the two a sequence uses; None: all use the first.
        queries: [B, T, S], one-hot, the segment of an attending token; None: all tokens are of one.
        keys: [B, K, S], the same for the attended tokens.
        hidden: bool [B, 1 or T, K], what a token of the text may not attend to; None: nothing.
        hidden_from_guesses: bool [B, P, K], the same for the places to predict.
        places: int64 [B, P], their indices.
        in_graph: whether a graph is traced for export.
    """

    waves: Tensor
    backwards: Tensor | None = None
    queries: Tensor | None = None
    keys: Tensor | None = None
    hidden: Tensor | None = None
    hidden_from_guesses: Tensor | None = None
    places: Tensor | None = None
    in_graph: bool = False


@dataclass(frozen=True)
class _Keys:
    """The attended side of a layer: keys with their segments, and values."""

    content: Tensor  # [A, B, K, D + S]
    values: Tensor  # [A, B, K, D]
    offsets: Tensor  # [1 or 2, A, R, D]


class RelativeAttention(nn.Module):
    """Multi-head attention whose scores are sums of three: by content, by offset, and by whether
    both tokens are of one segment (Yang et al. 2019, arXiv 1906.08237, section 2.4 and appendix
    A.2; zihangdai/xlnet, ``modeling.py: rel_attn_core``).

    ``qkv.weight`` is [3H, H]; no product has a bias, but queries have one for each of the three.
    """

    def __init__(self, config: XlnetConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        self.std = config.initializer_range
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.offsets = nn.Linear(size, size, bias=False)
        self.out = nn.Linear(size, size, bias=False)
        of_heads = (self.heads, self.head_size)
        self.content_bias = nn.Parameter(torch.empty(of_heads))
        self.offset_bias = nn.Parameter(torch.empty(of_heads))
        self.segment_bias = nn.Parameter(torch.empty(of_heads))
        self.segments = nn.Parameter(torch.empty(2, *of_heads))
        self.dropout = StreamDropout(config.attention_probs_dropout_prob)

    def reset_parameters(self) -> None:
        """Draw the biases of queries and the segment vectors, like the matrices."""
        for tensor in (self.content_bias, self.offset_bias, self.segment_bias, self.segments):
            truncated_normal_(tensor, self.std)

    def forward(
        self, x: Tensor, layout: RowLayout, relations: Relations, memory: Tensor | None = None
    ) -> Tensor:
        """Compute the attention of the text, before the output's dropout.

        Args:
            x: [N, H].
            layout: of the rows.
            relations: of the pairs.
            memory: [B, M, H], further states to attend to.

        Returns:
            [N, H].
        """
        queries, keys = self._projected(x, layout, relations, memory)
        return self._content(queries, keys, layout, relations)

    def two_streams(
        self,
        x: Tensor,
        guesses: Tensor,
        layout: RowLayout,
        relations: Relations,
        memory: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Compute the attention of the text and that of the places to predict. These attend to the
        text and know their own position, but not their own token (section 2.3).

        Args:
            guesses: [B * P, H].

        Returns:
            [N, H] and [B * P, H], before the output's dropout.
        """
        assert relations.places is not None
        assert relations.hidden_from_guesses is not None
        queries, keys = self._projected(x, layout, relations, memory)
        read = self._content(queries, keys, layout, relations)
        b, p = relations.places.shape
        size = guesses.shape[-1]
        q = nn.functional.linear(guesses, self.qkv.weight[:size])
        q = q.view(b, p, self.heads, self.head_size).permute(2, 0, 1, 3)
        segments = relations.queries
        if segments is not None:
            index = relations.places[..., None].expand(-1, -1, segments.shape[-1])
            segments = segments.gather(1, index)
        scores = self._scores(q, keys, segments)
        rows = rows_of_pairs(relations.places, layout.length, keys.content.shape[2])
        by_offset = self._by_offset(q, keys, relations.backwards)
        scores = scores + by_offset.gather(-1, rows.expand(self.heads, -1, -1, -1))
        hidden = relations.hidden_from_guesses
        mixed = self._mixed(scores, keys, hidden)
        # A row without any key gets 0: the mean of all values would include its own token.
        mixed = mixed.masked_fill(hidden.all(-1, keepdim=True), 0.0)
        return read, self.out(mixed.permute(1, 2, 0, 3).reshape(b * p, size))

    def scores_of(self, x: Tensor, relations: Relations) -> Tensor:
        """Map x [B, T, H] to the scores [B, A, T, T], without terms that are equal for all tokens
        that a token attends to."""
        b, t, _ = x.shape
        layout = RowLayout(b, t)
        queries, keys = self._projected(x.flatten(0, 1), layout, relations, None)
        return self._of_text(queries, keys, relations).transpose(0, 1)

    def _projected(
        self, x: Tensor, layout: RowLayout, relations: Relations, memory: Tensor | None
    ) -> tuple[Tensor, _Keys]:
        """Return the queries of the text, [A, B, T, D], and the attended side."""
        b, t = layout.sequences, layout.length
        qkv = layout.pad(self.qkv(x)).view(b, t, 3, self.heads, self.head_size)
        q, k, v = qkv.permute(2, 3, 0, 1, 4)
        if memory is not None:
            size = memory.shape[-1]
            of_memory = nn.functional.linear(memory, self.qkv.weight[size:])
            of_memory = of_memory.view(b, -1, 2, self.heads, self.head_size)
            before = of_memory.permute(2, 3, 0, 1, 4).to(k.dtype)
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        if relations.keys is not None:
            marks = relations.keys.to(k.dtype).expand(self.heads, -1, -1, -1)
            k = torch.cat([k, marks], -1)
        offsets = self.offsets(relations.waves.to(x.dtype))
        of_heads = offsets.view(*offsets.shape[:2], self.heads, self.head_size)
        return q, _Keys(k, v, of_heads.permute(0, 2, 1, 3))

    def _content(
        self, queries: Tensor, keys: _Keys, layout: RowLayout, relations: Relations
    ) -> Tensor:
        """Return the attention of the text, [N, H]."""
        scores = self._of_text(queries, keys, relations)
        mixed = self._mixed(scores, keys, relations.hidden)
        b, t = layout.sequences, layout.length
        return self.out(layout.unpad(mixed.permute(1, 2, 0, 3).reshape(b, t, -1)))

    def _of_text(self, queries: Tensor, keys: _Keys, relations: Relations) -> Tensor:
        """Return the scores of the text, [A, B, T, K]."""
        count = keys.content.shape[2]
        by_offset = self._by_offset(queries, keys, relations.backwards)
        if relations.in_graph:
            places = torch.arange(queries.shape[2], device=queries.device)
            rows = rows_of_pairs(places, queries.shape[2], count)
            moved = by_offset.gather(-1, rows.expand(*by_offset.shape[:2], -1, -1))
        else:
            moved = by_pairs(by_offset, count)
        return self._scores(queries, keys, relations.queries) + moved

    def _scores(self, queries: Tensor, keys: _Keys, segments: Tensor | None) -> Tensor:
        """Return the scores by content and by segment, [..., K], of queries [A, B, …, D].

        Whether two tokens are of one segment is a product too: a query gets a column for each
        segment, which holds, in that of its own segment, the score of equal segments minus that of
        different ones; a key has a 1 in the column of its segment.
        """
        q = self._asked(queries, self.content_bias)
        if segments is not None:
            same = self._of_heads(self.segments[0] - self.segments[1], q)
            worth = (self._asked(queries, self.segment_bias) * same).sum(-1, keepdim=True)
            q = torch.cat([q, worth * segments.to(q.dtype)], -1)
        return q @ keys.content.transpose(-1, -2)

    def _by_offset(self, queries: Tensor, keys: _Keys, backwards: Tensor | None) -> Tensor:
        """Return the scores of every offset, [A, B, …, R]."""
        q = self._asked(queries, self.offset_bias)
        if backwards is None:
            # One matrix for all sequences: one product for each head.
            scores = q.flatten(1, 2) @ keys.offsets[0].transpose(-1, -2)
            return scores.unflatten(1, queries.shape[1:3])
        of_rows = keys.offsets.index_select(0, backwards).transpose(0, 1)
        return q @ of_rows.transpose(-1, -2)

    def _asked(self, queries: Tensor, bias: Tensor) -> Tensor:
        """Return the queries of a product with their bias, over the root of D."""
        return (queries + self._of_heads(bias, queries)) * self.head_size**-0.5

    def _of_heads(self, parameter: Tensor, like: Tensor) -> Tensor:
        """Return a parameter [A, D] in the type of `like`, in a shape that fits queries."""
        return parameter[:, None, None].to(like.dtype)

    def _mixed(self, scores: Tensor, keys: _Keys, hidden: Tensor | None) -> Tensor:
        """Return the values weighted by scores [A, B, …, K]: [A, B, …, D]."""
        if hidden is not None:
            # Not minus infinity: a row without any key would be NaN.
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return self.dropout(softmax(scores)).to(keys.values.dtype) @ keys.values


class XlnetLayer(nn.Module):
    """Relative attention and a feed-forward with dropout inside, each followed by dropout, residual
    and layer norm."""

    def __init__(self, config: XlnetConfig) -> None:
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.dropout = config.hidden_dropout_prob
        self.attention = RelativeAttention(config)
        self.attention_norm = nn.LayerNorm(size, eps=eps)
        self.up = nn.Linear(size, inner)
        self.down = nn.Linear(inner, size)
        self.output_norm = nn.LayerNorm(size, eps=eps)
        self.act = activation(config.hidden_act)
        self.inner_dropout = StreamDropout(config.hidden_dropout_prob)

    def forward(
        self, x: Tensor, layout: RowLayout, relations: Relations, memory: Tensor | None = None
    ) -> Tensor:
        """Map x [N, H] to [N, H]; the arguments are those of the attention."""
        return self._behind(x, self.attention(x, layout, relations, memory))

    def two_streams(
        self,
        x: Tensor,
        guesses: Tensor,
        layout: RowLayout,
        relations: Relations,
        memory: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Compute both streams; see :meth:`RelativeAttention.two_streams`."""
        read, guessed = self.attention.two_streams(x, guesses, layout, relations, memory)
        return self._behind(x, read), self._behind(guesses, guessed)

    def _behind(self, x: Tensor, attended: Tensor) -> Tensor:
        """Compute the rest of the layer after the attention of x, both [N, H]."""
        x = dropout_add(attended, x, self.dropout, self.training)
        x = self.attention_norm(x).to(x.dtype)
        inner = self.down(self.inner_dropout(self.act(self.up(x))))
        x = dropout_add(inner, x, self.dropout, self.training)
        return self.output_norm(x).to(x.dtype)


# Backbone: the states of a text and, for pre-training, those of the places to predict.
#
# Shape legend: B sequences, T tokens of the longest, M of the memory, K = M + T, P places to
# predict in a sequence, L layers, H hidden size; N rows that are computed; S segments.


@dataclass
class XlnetOutput(BackboneOutput):
    """The output of the backbone.

    Attributes:
        memory: L tensors [B, M + T, H], the input of each layer, of the memory before and of this
            text, without gradient. None: not asked for.
    """

    memory: tuple[Tensor, ...] | None = None


@dataclass(frozen=True)
class GuessedPlaces:
    """Places of a batch whose words are predicted, and the attention mask of the text.

    Attributes:
        places: int64 [B, P], their indices in the sequences; a sequence with fewer is padded with
            any place, whose state has no meaning.
        hidden: bool [B, T, T], what a token may not attend to, the attending one first; see
            :func:`hidden_by_order`. Tokens of the text attend to themselves in any case, and a
            place to predict never does.
    """

    places: Tensor
    hidden: Tensor


def hidden_by_order(order: Tensor) -> Tensor:
    """Return what tokens may not attend to if they become known one after the other.

    Args:
        order: int64 [B, T], when each one does; -1: it is known from the beginning.

    Returns:
        bool [B, T, T], the attending token first: what is not known before it.
    """
    return (order[:, None, :] >= 0) & (order[:, None, :] >= order[:, :, None])


class QueryEmbeddings(WordEmbeddings):
    """Word embeddings and dropout, and the initial vector of all places to predict."""

    def __init__(self, config: XlnetConfig) -> None:
        super().__init__(config, nn.Identity(), config.hidden_dropout_prob)
        self.std = config.initializer_range
        self.unknown = nn.Parameter(torch.empty(1, 1, config.hidden_size))

    def reset_parameters(self) -> None:
        """Draw the vector like the word embeddings."""
        truncated_normal_(self.unknown, self.std)


class XlnetBackbone(RowBackbone):
    """Embeddings, and layers that use the offsets between tokens and their segments. The pooled
    output is the last state of the last real token, without weights."""

    takes_packing = False
    shows_attention = True
    embeddings: QueryEmbeddings
    config: XlnetConfig

    def __init__(self, config: XlnetConfig) -> None:
        layers = (XlnetLayer(config) for _ in range(config.num_hidden_layers))
        super().__init__(config, QueryEmbeddings(config), layers)
        self.dropout = StreamDropout(config.hidden_dropout_prob)
        init_weights(self, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        packing: PackedRows | None = None,
        word_vectors: Tensor | None = None,
        memory: Sequence[Tensor] | None = None,
        memory_mask: Tensor | None = None,
        output_memory: bool = False,
        guesses: GuessedPlaces | None = None,
        backwards: Tensor | None = None,
    ) -> XlnetOutput:
        """Encode a batch; see :class:`bertine.models.encoder.Backbone`.

        Args:
            memory: L tensors [B, M, H] of an :class:`XlnetOutput`, of the text before, to attend
                to, as segment 0.
            memory_mask: bool or 0/1 [B, M], true where the memory may be attended to; None: all.
            output_memory: also return the memory for the next text.
            guesses: places to predict. Then the returned states are theirs, [B, P, H], without a
                pooled output; ``hidden_states`` are those of the text.
            backwards: bool [B], the sequences whose text, and its memory, run backwards; None:
                none.

        Raises:
            ValueError: `word_vectors` for a batch with padding.
        """
        dtype = self.embeddings.word_embeddings.weight.dtype
        layout = layout_of(input_ids, attention_mask, None, dtype)
        if word_vectors is not None and layout.real is not None:
            raise ValueError("word_vectors are for batches without padding")
        mask = attention_mask if layout.bias is not None else None
        seen = None
        if memory is not None:
            seen = input_ids.new_ones(memory[0].shape[:2]) if memory_mask is None else memory_mask
        relations = self._relations(
            input_ids, mask, token_type_ids, seen=seen, guesses=guesses, backwards=backwards
        )
        x = self.embeddings(input_ids, None, layout.real, word_vectors)
        if guesses is None:
            return self._text(
                x, layout, relations, attention_mask, output_hidden_states, memory, output_memory
            )
        return self._both(x, layout, relations, guesses, output_hidden_states, memory)

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a padded batch with explicit operations for a graph."""
        relations = self._relations(input_ids, attention_mask, token_type_ids, in_graph=True)
        x = self.embeddings.traced(input_ids, attention_mask, token_type_ids)
        layout = RowLayout(*input_ids.shape)
        return self._text(x, layout, relations, attention_mask, output_hidden_states)

    def numbers_of(self, input_ids: Tensor, token_type_ids: Tensor) -> Numbers:
        return None, token_type_ids

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.encoder.Backbone`."""
        chosen = self.layers[layer]
        assert isinstance(chosen, XlnetLayer)
        relations = self._relations(states[..., 0], None, token_type_ids)
        return chosen.attention.scores_of(states, relations)

    def _text(
        self,
        x: Tensor,
        layout: RowLayout,
        relations: Relations,
        mask: Tensor | None,
        output_hidden_states: bool,
        memory: Sequence[Tensor] | None = None,
        output_memory: bool = False,
    ) -> XlnetOutput:
        """Compute the states of the text; x is [N, H]."""
        states = [layout.pad(x)] if output_hidden_states else []
        kept: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            known = None if memory is None else memory[number]
            if output_memory:
                read = layout.pad(x).detach()
                kept.append(read if known is None else torch.cat([known.to(read.dtype), read], 1))
            x = layer(x, layout, relations, known)
            if output_hidden_states:
                states.append(layout.pad(x))
        last = self.dropout(layout.pad(x))
        return XlnetOutput(
            last, last_tokens(last, mask), tuple(states) or None, tuple(kept) or None
        )

    def _both(
        self,
        x: Tensor,
        layout: RowLayout,
        relations: Relations,
        guesses: GuessedPlaces,
        output_hidden_states: bool,
        memory: Sequence[Tensor] | None,
    ) -> XlnetOutput:
        """Compute the states of the places to predict along with those of the text, whose last
        layer nobody reads."""
        b, p = guesses.places.shape
        vector = self.embeddings.unknown.to(x.dtype).expand(b, p, -1).reshape(b * p, -1)
        guessed = self.embeddings.dropout(vector)
        states = [layout.pad(x)] if output_hidden_states else []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, XlnetLayer)
            known = None if memory is None else memory[number]
            x, guessed = layer.two_streams(x, guessed, layout, relations, known)
            if output_hidden_states:
                states.append(layout.pad(x))
        last = self.dropout(guessed.view(b, p, -1))
        return XlnetOutput(last, None, tuple(states) or None)

    def _relations(
        self,
        input_ids: Tensor,
        mask: Tensor | None,
        token_type_ids: Tensor | None,
        *,
        seen: Tensor | None = None,
        guesses: GuessedPlaces | None = None,
        backwards: Tensor | None = None,
        in_graph: bool = False,
    ) -> Relations:
        """Return the relations of the pairs of tokens.

        Args:
            input_ids: [B, T], for its shape and device.
            mask: [B, T], where there is padding.
            seen: [B, M], true where the memory may be attended to; None: there is none.
        """
        b, t = input_ids.shape
        before = 0 if seen is None else seen.shape[1]
        config = self.config
        width, clamp = config.hidden_size, config.clamp_len
        forward = waves(t, before + t, width, clamp, like=input_ids)
        both = forward[None]
        if backwards is not None:
            # The offsets with the other sign: only the sines change.
            signs = torch.ones_like(forward[0])
            signs[: width // 2] = -1.0
            both, backwards = torch.stack([forward, forward * signs]), backwards.long()
        queries = keys = None
        if token_type_ids is not None:
            kinds = torch.arange(SEGMENTS, device=input_ids.device)
            queries = token_type_ids[..., None] == kinds
            # The memory counts as segment 0.
            memory = (kinds == 0).expand(b, before, -1)
            keys = torch.cat([memory, queries], 1) if before else queries
        hidden = None if mask is None else ~mask.bool()[:, None, :]
        from_guesses = places = None
        if guesses is not None:
            places = guesses.places
            hidden = guesses.hidden if hidden is None else guesses.hidden | hidden
            index = places[..., None].expand(-1, -1, t)
            from_guesses = hidden.gather(1, index)
            itself = torch.eye(t, dtype=torch.bool, device=input_ids.device)
            hidden = hidden & ~itself
            from_guesses = from_guesses | itself[places]
        if seen is not None:
            if hidden is None:
                hidden = input_ids.new_zeros(b, 1, t, dtype=torch.bool)
            gone = ~seen.bool()[:, None, :]
            hidden, from_guesses = (
                one if one is None else torch.cat([gone.expand(-1, one.shape[1], -1), one], -1)
                for one in (hidden, from_guesses)
            )
        dropped = self.embeddings.dropout(both)
        return Relations(dropped, backwards, queries, keys, hidden, from_guesses, places, in_graph)
