"""Embeddings of words with their neighbours.

Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the word embeddings; N
rows that are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import RowEmbeddings, new_table
from bertine.models.layers import RowLayout
from bertine.models.mobilebert.norm import FIXED_EPS, new_norm
from bertine.models.precision import autocast_dtype

if TYPE_CHECKING:
    from bertine.models.mobilebert.config import MobileBertConfig


class TrigramEmbeddings(RowEmbeddings):
    """Word embeddings, with those of the neighbours, projected to the width of the states; then the
    sum with position and segment embeddings, norm, dropout.

    Beyond both ends of the array there is nothing: zeros. A ``[PAD]`` behind the last word is a
    neighbour like any other, unless the caller says which tokens are to be seen. The neighbours
    give it no gradient (transformers; in Google's program they do).
    """

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.trigrams, self.projects = config.trigram_input, config.projects_embeddings
        width = config.embedding_size
        self.word_embeddings = new_table(config.vocab_size, width, config.pad_token_id)
        self.position_embeddings = new_table(config.max_position_embeddings, size)
        self.token_type_embeddings = new_table(config.type_vocab_size, size)
        # Where nothing is projected the published files hold it all the same.
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
        """Compute what the first layer reads.

        Args:
            input_ids: int64 [B, T].
            token_type_ids: int64 [B, T]; None: all 0.
            layout: which rows are computed.
            word_vectors: [B, T, E], in place of the word embeddings of `input_ids`.
            seen: bool or 0/1 [B, T], true at tokens that their neighbours see; None: all are seen.

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

    def traced(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
    ) -> Tensor:
        """Compute the same of all tokens of a padded batch for a graph, in which padding is seen by
        no neighbour. The arguments are [B, T]; returns [B * T, H]."""
        x = self._words(input_ids, None, attention_mask)
        if self.projects:
            x = self.projection(x)
        x = x + self.position_embeddings(torch.arange(input_ids.shape[1], device=x.device))
        types = self.token_type_embeddings
        x = x + (types.weight[0] if token_type_ids is None else types(token_type_ids))
        x = self.norm(x)
        return x.reshape(-1, x.shape[-1])

    def _words(self, input_ids: Tensor, word_vectors: Tensor | None, seen: Tensor | None) -> Tensor:
        """Return what is projected of each token, [B, T, 3 E], or [B, T, E] without neighbours."""
        words = self.word_embeddings(input_ids) if word_vectors is None else word_vectors
        if not self.trigrams:
            return words
        if seen is not None:
            words = words * seen[..., None].to(words.dtype)
        around = F.pad(words, (0, 0, 1, 1))
        return torch.cat([around[:, 2:], words, around[:, :-2]], -1)
