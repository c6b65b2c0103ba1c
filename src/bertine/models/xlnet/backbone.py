"""The backbone of XLNet: the states of a text, and for pre-training those of places that are
guessed.

Shape legend: B sequences, T tokens of the longest, M of the memory, K = M + T, P places that are
guessed in a sequence, L layers, H hidden size; N rows that are computed; S segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import WordEmbeddings
from bertine.models.encoded import BackboneOutput, PackedRows, last_tokens
from bertine.models.encoder import RowBackbone, layout_of
from bertine.models.initial import init_weights, truncated_normal_
from bertine.models.layers import RowLayout
from bertine.models.xlnet.attention import Relations, XlnetLayer
from bertine.models.xlnet.positions import waves

if TYPE_CHECKING:
    from bertine.models.xlnet.config import XlnetConfig

#: The segments that there are: of the first text, of the second, of the last token of a sequence.
SEGMENTS = 3


@dataclass
class XlnetOutput(BackboneOutput):
    """The output of the backbone.

    Attributes:
        memory: L tensors [B, M + T, H], what each layer has read, of the memory before and of this
            text; no gradient leads into them. None: not asked for.
    """

    memory: tuple[Tensor, ...] | None = None


@dataclass(frozen=True)
class GuessedPlaces:
    """Places of a batch whose words are guessed, and who may look at whom.

    Attributes:
        places: int64 [B, P], where they stand in their sequences; what a sequence has too few of
            is filled with any place, whose state has no meaning.
        hidden: bool [B, T, T], what a token may not look at, the looking one first; see
            :func:`hidden_by_order`. The text's own tokens see themselves all the same, and a place
            that is guessed never does.
    """

    places: Tensor
    hidden: Tensor


def hidden_by_order(order: Tensor) -> Tensor:
    """Return what tokens may not look at where they become known one after the other.

    Args:
        order: int64 [B, T], when each one does; -1: it is known from the beginning.

    Returns:
        bool [B, T, T], the looking token first: what is not known before it.
    """
    return (order[:, None, :] >= 0) & (order[:, None, :] >= order[:, :, None])


class QueryEmbeddings(WordEmbeddings):
    """Word embeddings and dropout, and the vector that every place begins with that is guessed."""

    def __init__(self, config: XlnetConfig) -> None:
        super().__init__(config, nn.Identity(), config.hidden_dropout_prob)
        self.std = config.initializer_range
        self.unknown = nn.Parameter(torch.empty(1, 1, config.hidden_size))

    def reset_parameters(self) -> None:
        """Draw the vector as the embeddings of words are drawn."""
        truncated_normal_(self.unknown, self.std)


class XlnetBackbone(RowBackbone):
    """Embeddings, and layers that know the offsets between tokens and which are of one segment.
    What is pooled is the last state of the last real token, without weights."""

    takes_packing = False
    shows_attention = True
    embeddings: QueryEmbeddings
    config: XlnetConfig

    def __init__(self, config: XlnetConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = QueryEmbeddings(config)
        self.layers = nn.ModuleList(XlnetLayer(config) for _ in range(config.num_hidden_layers))
        self.dropout = StreamDropout(config.hidden_dropout_prob)
        self.pooler = None
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
        """Encode a batch; see :class:`bertine.models.backbone.Backbone`.

        Args:
            memory: L tensors [B, M, H] of an :class:`XlnetOutput`, of the text before: it is
                looked at, as of segment 0.
            memory_mask: bool or 0/1 [B, M], true at what may be looked at of it; None: all.
            output_memory: also return that of the text to come.
            guesses: places that are guessed. The states that are returned are theirs then, [B, P,
                H], and none are pooled; ``hidden_states`` are those of the text.
            backwards: bool [B], the sequences whose text runs backwards, and that of their memory;
                None: there are none.

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
        """Encode a padded batch, written out for a graph."""
        relations = self._relations(input_ids, attention_mask, token_type_ids, in_graph=True)
        x = self.embeddings.traced(input_ids, attention_mask, token_type_ids)
        layout = RowLayout(*input_ids.shape)
        return self._text(x, layout, relations, attention_mask, output_hidden_states)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.backbone.Backbone`."""
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
        """Compute the states of the places that are guessed beside those of the text, whose last
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
        """Say what the layers know of the pairs of tokens.

        Args:
            input_ids: [B, T], of which the shape and the device are asked for.
            mask: [B, T], where there is padding.
            seen: [B, M], true at what may be looked at of the memory; None: there is none.
        """
        b, t = input_ids.shape
        before = 0 if seen is None else seen.shape[1]
        config = self.config
        width, clamp = config.hidden_size, config.clamp_len
        forward = waves(t, before + t, width, clamp, like=input_ids)
        both = forward[None]
        if backwards is not None:
            # The same offsets with the other sign: of the sines alone that changes anything.
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
