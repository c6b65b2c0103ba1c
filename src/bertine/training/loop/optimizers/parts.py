"""Which tensors of ours are several matrices of the published models, joined along rows."""

from __future__ import annotations

from torch import Tensor, nn

#: Names of modules that are several of one shape, and how many (:mod:`bertine.models.layers`).
_JOINED = {"qkv": 3, "qk": 2}


def parts_of(model: nn.Module) -> dict[Tensor, int]:
    """Return the joined parameters of `model`, with the number of equal parts of their rows."""
    return {
        parameter: _JOINED[module]
        for name, parameter in model.named_parameters()
        if (module := name.rpartition(".")[0].rpartition(".")[2]) in _JOINED
    }
