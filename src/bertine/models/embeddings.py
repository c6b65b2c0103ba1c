"""Embed words, positions and, if the model type has any, segments.

Shape legend: B sequences, T tokens of the longest, E width of the embeddings (that of the hidden
states, H, except in variants that say otherwise); N rows that are computed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertine.models.config import Config
from bertine.models.dropout import StreamDropout
from bertine.models.precision import autocast_dtype

#: The positions and the segments by which a model knows the tokens of a text, int64 [B, T] each;
#: None: it has no such numbers.
Numbers = tuple[Tensor | None, Tensor | None]


class RowEmbeddings(nn.Module):
    """The part of a :class:`bertine.models.encoder.RowBackbone` before its layers."""

    word_embeddings: nn.Embedding

    def traced(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
    ) -> Tensor:
        """Compute the first layer's input for all tokens of a padded batch, with explicit
        operations for a graph. The arguments are [B, T]; returns [B * T, H]."""
        embedded: Tensor = self(input_ids, token_type_ids)
        return embedded

    def numbers_of(self, input_ids: Tensor, token_type_ids: Tensor) -> Numbers:
        """Return the rows of the tables of positions and of segments that each token of a text
        without padding gets."""
        return None, None


class WordEmbeddings(RowEmbeddings):
    """Word embeddings, a norm and dropout, for models that have positions in their attention.

    Args:
        config: gives the vocabulary and the width.
        norm: the layer norm, or an identity.
        dropout: its rate.
    """

    def __init__(self, config: Config, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.word_embeddings = new_table(config.vocab_size, config.hidden_size)
        self.layer_norm = norm
        self.dropout = StreamDropout(dropout)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        real: Tensor | None = None,
        word_vectors: Tensor | None = None,
    ) -> Tensor:
        """Return the first layer's input, [N, H]; the arguments are those of :class:`Embeddings`,
        types are ignored."""
        if word_vectors is None:
            ids = input_ids.reshape(-1)
            x = self.word_embeddings(ids if real is None else ids[real])
        else:
            x = word_vectors.reshape(-1, word_vectors.shape[-1])
        x = self.layer_norm(x)
        # As in BERT: from here on the residual stream is in the compute type.
        return self.dropout(x.to(autocast_dtype(x.device.type) or x.dtype))


class Embeddings(RowEmbeddings):
    """The sum of word, position and segment embeddings, then layer norm and dropout, and, if the
    config has one, a projection to the width of the layers (ALBERT, Lan et al. 2019, section 3.1;
    ELECTRA's published code).

    If the first token's position is 0, positions count the places of a sequence. Otherwise they
    count its real tokens from ``config.first_position`` on, and padding has the position
    ``pad_token_id`` (fairseq, ``make_positions``). If there is only one segment, all tokens have
    it; if there is none (``type_vocab_size`` 0), nothing is added for it.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.embedding_width
        self.first, self.pad = config.first_position, config.pad_token_id
        self.one_segment = config.type_vocab_size < 2
        self.word_embeddings = new_table(config.vocab_size, size)
        self.position_embeddings = new_table(config.max_position_embeddings, size)
        types = config.type_vocab_size
        self.token_type_embeddings = new_table(types, size) if types else None
        self.layer_norm: nn.Module = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = StreamDropout(config.hidden_dropout_prob)
        projects = config.projects_embeddings
        self.projection = nn.Linear(size, config.hidden_size) if projects else None

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        real: Tensor | None = None,
        word_vectors: Tensor | None = None,
    ) -> Tensor:
        """Look up, add, normalize and project: [N, H]; the arguments are those of
        :meth:`unprojected`."""
        x = self.unprojected(input_ids, token_type_ids, real, word_vectors)
        return x if self.projection is None else self.projection(x)

    def unprojected(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        real: Tensor | None = None,
        word_vectors: Tensor | None = None,
    ) -> Tensor:
        """Look up, add and normalize, without the projection to the width of the layers, so that
        two stacks of layers of different widths can share the result.

        Args:
            input_ids, token_type_ids: int64 [B, T].
            real: int64 [N], indices of the tokens to compute; None: all.
            word_vectors: [B, T, E], in place of the word embeddings of `input_ids` (not together
                with `real`).

        Returns:
            [N, E].
        """
        length, table = input_ids.shape[1], self.position_embeddings
        if self.one_segment:
            token_type_ids = None
        if word_vectors is not None:
            x = word_vectors + table.weight[self.first : self.first + length]
        elif real is None:
            x = self.word_embeddings(input_ids)
            if self.first == 0:
                x = x + table.weight[:length]
            else:
                x = x + table(self._counted(input_ids))
        else:
            flat = input_ids.reshape(-1)[real]
            if self.first == 0:
                positions = real % length
            else:
                positions = self._counted(input_ids).reshape(-1)[real]
            x = self.word_embeddings(flat) + table(positions)
            if token_type_ids is not None:
                token_type_ids = token_type_ids.reshape(-1)[real]
        types = self.token_type_embeddings
        if types is not None:
            x = x + (types.weight[0] if token_type_ids is None else types(token_type_ids))
        x = x.reshape(-1, x.shape[-1])
        x = self.layer_norm(x)
        # From here on the residual stream is in the compute type: half the memory traffic.
        return self.dropout(x.to(autocast_dtype(x.device.type) or x.dtype))

    def traced(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
    ) -> Tensor:
        """Compute the embeddings of all tokens of a batch without padding before them, with
        explicit operations for a graph. The arguments are [B, T]; returns [B * T, H]."""
        b, t = input_ids.shape
        places = torch.arange(self.first, self.first + t, device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.position_embeddings(places)
        types = None if self.one_segment else token_type_ids
        segments = self.token_type_embeddings
        if segments is not None:
            x = x + (segments.weight[0] if types is None else segments(types))
        x = self.layer_norm(x.reshape(b * t, -1))
        return x if self.projection is None else self.projection(x)

    def numbers_of(self, input_ids: Tensor, token_type_ids: Tensor) -> Numbers:
        positions = self._counted(input_ids) if self.first else places_of(input_ids)
        if self.token_type_embeddings is None:
            return positions, None
        types = torch.zeros_like(input_ids) if self.one_segment else token_type_ids
        return positions, types

    def _counted(self, input_ids: Tensor) -> Tensor:
        """Return the positions of `input_ids` [B, T], counted over real tokens."""
        real = input_ids != self.pad
        return real.cumsum(1) * real + self.pad

    def places(self) -> Tensor:
        """Return the position embeddings in the order of places, for a sequence without padding
        before or within it, [longest_input, E]."""
        return self.position_embeddings.weight[self.first :]


def places_of(input_ids: Tensor, first: int = 0) -> Tensor:
    """Return the places of the tokens `input_ids` [B, T] in their sequences, counted from `first`,
    int64 [B, T]."""
    return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids) + first


def new_table(rows: int, size: int, no_gradient: int | None = None) -> nn.Embedding:
    """Return a new ``nn.Embedding`` [rows, size], whose row `no_gradient` gets no gradient from
    look-ups. On the meta device its weights get no values: PyTorch would draw them with functions
    whose import takes more than a second."""
    meta = torch.empty(0).is_meta
    weight = torch.empty(rows, size) if meta else None
    return nn.Embedding(rows, size, no_gradient, _weight=weight)
