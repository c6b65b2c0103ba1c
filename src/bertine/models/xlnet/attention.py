"""Attention with relative positions and relative segments, in one stream or in two.

Shape legend: B sequences, T tokens of the longest, M of the memory, K = M + T, P places that are
guessed in a sequence, H hidden size, A heads, D = H / A; N rows that are computed; R offsets; S
segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertine.models.dropout import StreamDropout, dropout_add
from bertine.models.initial import truncated_normal_
from bertine.models.layers import RowLayout, activation, softmax
from bertine.models.xlnet.positions import by_pairs, rows_of_pairs

if TYPE_CHECKING:
    from bertine.models.xlnet.config import XlnetConfig


@dataclass(frozen=True)
class Relations:
    """What the layers know of the pairs of tokens in a batch.

    Attributes:
        waves: [1, R, H], the encodings of the offsets; [2, R, H]: also those of a text that is
            read backwards, as the second.
        backwards: int64 [B], which of the two a sequence reads; None: all the first.
        queries: [B, T, S], 1 for the segment that a looking token is of; None: all tokens are of
            one.
        keys: [B, K, S], the same of what is looked at.
        hidden: bool [B, 1 or T, K], what a token of the text may not look at; None: all may be.
        hidden_from_guesses: bool [B, P, K], the same for the places that are guessed.
        places: int64 [B, P], where these stand.
        in_graph: written out for a graph.
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
    """What a layer looks at: keys with their segments, and values."""

    content: Tensor  # [A, B, K, D + S]
    values: Tensor  # [A, B, K, D]
    offsets: Tensor  # [1 or 2, A, R, D]


class RelativeAttention(nn.Module):
    """Multi-head attention whose scores are sums of three: of what a token looks for and what the
    other one is, of that and of the offset between them, and of whether both are of one segment
    (Yang et al. 2019, arXiv 1906.08237, section 2.4 and appendix A.2; zihangdai/xlnet,
    ``modeling.py: rel_attn_core``).

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
        """Draw the biases of queries and what segments are like, as the matrices are drawn."""
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
            memory: [B, M, H], states that are looked at besides.

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
        """Compute the attention of the text and that of the places that are guessed: these look
        at the text, and know their own place and not what stands there (section 2.3).

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
        # What has nothing to look at gets no value: the mean of all has its own token among them.
        mixed = mixed.masked_fill(hidden.all(-1, keepdim=True), 0.0)
        return read, self.out(mixed.permute(1, 2, 0, 3).reshape(b * p, size))

    def scores_of(self, x: Tensor, relations: Relations) -> Tensor:
        """x [B, T, H]. Returns the scores [B, A, T, T], but for what is the same for all that a
        token looks at."""
        b, t, _ = x.shape
        layout = RowLayout(b, t)
        queries, keys = self._projected(x.flatten(0, 1), layout, relations, None)
        return self._of_text(queries, keys, relations).transpose(0, 1)

    def _projected(
        self, x: Tensor, layout: RowLayout, relations: Relations, memory: Tensor | None
    ) -> tuple[Tensor, _Keys]:
        """Return the queries of the text, [A, B, T, D], and what is looked at."""
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
        """Return what the text reads, [N, H]."""
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

        Whether two tokens are of one segment is a product too: what that is worth to the looking
        one, less what it is worth not to be, stands at the place of its segment, beside the
        query; and beside a key a 1 at the place of its own.
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
        """Return a parameter [A, D] in the type and for the shape of queries."""
        return parameter[:, None, None].to(like.dtype)

    def _mixed(self, scores: Tensor, keys: _Keys, hidden: Tensor | None) -> Tensor:
        """Return the values as they are mixed by scores [A, B, …, K]: [A, B, …, D]."""
        if hidden is not None:
            # Not minus infinity: of a row without any place to look at nothing would be a number.
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return self.dropout(softmax(scores)).to(keys.values.dtype) @ keys.values


class XlnetLayer(nn.Module):
    """This attention and a feed-forward with dropout inside, each followed by dropout, residual and
    layer norm."""

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
        """x [N, H]; the arguments are those of the attention. Returns [N, H]."""
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
        """Compute what stands behind the attention of x, both [N, H]."""
        x = dropout_add(attended, x, self.dropout, self.training)
        x = self.attention_norm(x).to(x.dtype)
        inner = self.down(self.inner_dropout(self.act(self.up(x))))
        x = dropout_add(inner, x, self.dropout, self.training)
        return self.output_norm(x).to(x.dtype)
