"""A backbone for answers whose layers cannot be packed: it computes as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bertine.models.backbone import Backbone
from bertine.models.encoded import BackboneOutput


class PlainBackbone(nn.Module):
    """`backbone` in evaluation mode, called like a
    :class:`bertine.models.fast.backbone.PackedBackbone`.

    Args:
        backbone: on the CPU. Its weights are shared, its mode is not; for bf16 those of linear
            layers are copied.
        dtype: to compute in: torch.float32, or torch.bfloat16 by autocast.
    """

    def __init__(self, backbone: Backbone, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = backbone.config, dtype
        self.batch_tokens: int | None = None
        shared = {id(parameter): parameter for parameter in backbone.parameters()}
        self._backbone = copy.deepcopy(backbone, shared).eval()
        self._backbone.reads_padding = False
        if dtype == torch.bfloat16:
            _cast_linears(self._backbone)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a batch; see :class:`bertine.models.backbone.Backbone`. States are fp32."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            found: BackboneOutput = self._backbone(
                input_ids, attention_mask, token_type_ids, output_hidden_states
            )
        pooled, states = found.pooler_output, found.hidden_states
        return BackboneOutput(
            found.last_hidden_state.float(),
            None if pooled is None else pooled.float(),
            None if states is None else tuple(state.float() for state in states),
        )

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[Any, Sequence[Sequence[int]]]:
        """Make what writes texts; see :class:`bertine.models.backbone.Backbone`."""
        if self.dtype != torch.bfloat16:
            return self._backbone.writer(scores, texts)
        with torch.autocast("cpu", torch.bfloat16):
            writer, starts = self._backbone.writer(scores, texts)
        return _WriterInBf16(writer), starts

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E]."""
        return self._backbone.word_weights


class _WriterInBf16:
    """A writer that computes in bf16."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            scores: Tensor = self._writer.start(prompts)
        return scores

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            scores: Tensor = self._writer.advance(rows, tokens)
        return scores


def _cast_linears(backbone: nn.Module) -> None:
    """Give the linear layers of `backbone` weights in bf16 of their own: autocast would make the
    same ones anew in every batch, which costs a small batch most of its time."""
    for part in backbone.modules():
        if isinstance(part, nn.Linear):
            part.weight = nn.Parameter(part.weight.detach().bfloat16(), requires_grad=False)
            if part.bias is not None:
                part.bias = nn.Parameter(part.bias.detach().bfloat16(), requires_grad=False)
