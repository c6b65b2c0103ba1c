"""What stands in the place of a layer norm in MobileBERT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from bertine.models.mobilebert.config import MobileBertConfig

#: The ε of two of the layer norms, after the embeddings and after the last feed-forward, which do
#: not follow ``layer_norm_eps`` in transformers.
FIXED_EPS = 1e-5


class NoNorm(nn.Module):
    """What a layer norm does besides the norm: scale and shift each element (paper, "operational
    optimizations").

    Args:
        size: of what is scaled.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the shift to 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., F]. Returns [..., F]."""
        return torch.addcmul(self.bias.to(x.dtype), x, self.weight.to(x.dtype))


def new_norm(config: MobileBertConfig, size: int, eps: float | None = None) -> nn.Module:
    """Return what stands in a norm's place; `eps` goes before that of the config."""
    if config.normalization_type == "no_norm":
        return NoNorm(size)
    return nn.LayerNorm(size, eps=config.layer_norm_eps if eps is None else eps)
