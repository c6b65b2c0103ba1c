"""Which tensors of ours are several matrices of the published models, joined along rows."""

from __future__ import annotations

from torch import Tensor, nn

#: The end of the names of joined queries, keys and values (:mod:`bertine.models.layers`).
_JOINED, _JOINED_PARTS = ("qkv.weight", "qkv.bias"), 3


def parts_of(model: nn.Module) -> dict[Tensor, int]:
    """Return the joined parameters of `model`, with the number of equal parts of their rows."""
    return {
        parameter: _JOINED_PARTS
        for name, parameter in model.named_parameters()
        if name.endswith(_JOINED)
    }
