"""What a backbone is to the rest of Bertine: how it is called, and which of its parts others take.

Shape legend: B sequences, T tokens of the longest, H hidden size, V vocabulary size, E width of the
embeddings.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from bertine.models.config import Config
from bertine.models.encoded import BackboneOutput, PackedRows


class Backbone(nn.Module):
    """Ids to states; the base of every model type's, which fills in what is here.

    The names of the attributes are also those of weights: ``backbone.layers.0.…``.

    Attributes:
        config: its sizes.
        embeddings: what stands before the layers, with the ``word_embeddings``. Trained at the
            lowest rate under ``layer_decay``, not at all under ``freeze_embeddings``.
        layers: in their order. Frozen, compiled, sharded, and given rates one by one.
        pooler: of the first token's state; None: there is none.
        takes_packing: whether `packing` may be given, so that a GPU computes no padding.
    """

    takes_packing: ClassVar[bool] = False

    config: Config
    embeddings: nn.Module
    layers: nn.ModuleList
    pooler: nn.Linear | None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        packing: PackedRows | None = None,
        word_vectors: Tensor | None = None,
    ) -> BackboneOutput:
        """Encode a batch.

        Args:
            input_ids: int64 [B, T], T at most ``config.longest_input``.
            attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
            token_type_ids: int64 [B, T]; None: all 0.
            output_hidden_states: also return every layer's output.
            packing: where the real tokens stand, in place of `attention_mask`: what lies at
                others is not computed (rows that make a round number excepted).
            word_vectors: [B, T, E], read in place of the embeddings of `input_ids`, to see what
                an answer owes to them; for batches without padding.
        """
        raise NotImplementedError

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E]: a tied decoder multiplies with them."""
        raise NotImplementedError

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a batch in operators that a graph for export can hold: without a decision that
        looks at the numbers. The arguments are those of :meth:`forward`."""
        return self(input_ids, attention_mask, token_type_ids, output_hidden_states)
