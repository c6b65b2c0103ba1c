"""What a backbone is to the rest of Bertine: how it is called, and which of its parts others take.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, V vocabulary
size, E width of the embeddings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import BackboneOutput, PackedRows


class Backbone(nn.Module):
    """Ids to states; the base of every model type's, which fills in what is here.

    The names of the attributes are also those of weights: ``backbone.layers.0.…``.

    Attributes:
        config: its sizes.
        embeddings: what stands before the layers, with the ``word_embeddings``. Trained at the
            lowest rate under ``layer_decay``, not at all under ``freeze_embeddings``.
        layers: those with weights of their own, in their order. Frozen, compiled, sharded, and
            given rates one by one. ``config.passes`` says in which order they are gone through.
        pooler: of the first token's state; None: there is none.
        takes_packing: whether `packing` may be given, so that a GPU computes no padding.
        reads_padding: whether padding beside a real token changes its states (MobileBERT, whose
            tokens are read with their neighbours; its weights were made so). Where that is set to
            False, each text is computed as if it stood alone: so are answers, which must not
            depend on what other texts are in a batch, and graphs.
        shows_attention: whether :meth:`attention_scores` is there.
    """

    takes_packing: ClassVar[bool] = False
    shows_attention: ClassVar[bool] = False
    reads_padding: bool = False

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

    def weights_of_passes(self) -> int:
        """Count the weights of the layers that each token meets: of those that layers share, as
        often as it meets them."""
        passes = list(self.config.passes)
        own = [sum(p.numel() for p in layer.parameters()) for layer in self.layers]
        for name, owner in self.config.tied_modules.items():
            lent = self.get_submodule(owner).parameters()
            own[int(name.split(".")[1])] += sum(p.numel() for p in lent)
        return sum(own[number] for number in passes)

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E]: a tied decoder multiplies with them."""
        raise NotImplementedError

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return what the heads of a layer score each pair of tokens with: before the softmax, in
        which padding is not left out yet, and without dropout.

        Args:
            layer: its number, from 0 on.
            states: [B, T, H], what the layer reads: its entry in ``hidden_states``.
            token_type_ids: int64 [B, T], for a backbone whose attention asks for them; None: all
                0.

        Returns:
            [B, A, T, T], the looking token first; differentiable.

        Raises:
            BertineError: a backbone of this type cannot tell.
        """
        raise BertineError(f"the attention of {self.config.title} cannot be shown")

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[Any, Sequence[Sequence[int]]]:
        """Make what writes texts; for models whose config says ``writes_with``.

        Args:
            scores: turns states [R, H] into those of the next token, [R, V].
            texts: ids of N texts: to go on with, or where an encoder reads them to answer.

        Returns:
            What scores next tokens (:class:`bertine.generation.scores.NextTokens`) for one search,
            and the N prompts that the search begins with.

        Raises:
            BertineError: a backbone of this type writes no texts.
        """
        raise BertineError(f"{self.config.title} writes no texts")

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


@contextlib.contextmanager
def each_text_alone(module: nn.Module) -> Iterator[None]:
    """Let the backbones in `module` read no padding while it is entered."""
    backbones = [part for part in module.modules() if isinstance(part, Backbone)]
    before = [backbone.reads_padding for backbone in backbones]
    for backbone in backbones:
        backbone.reads_padding = False
    try:
        yield
    finally:
        for backbone, reads in zip(backbones, before, strict=True):
            backbone.reads_padding = reads
