"""Refuse outputs of a model that are not finite: with NaN every comparison is false, so the answer
would be some label with the probability NaN."""

from __future__ import annotations

from torch import Tensor

from bertine.errors import BertineError


def finite(outputs: Tensor) -> Tensor:
    """Return what a model has computed for texts, all of it numbers.

    Raises:
        BertineError: some of it is NaN or infinite.
    """
    if not bool(outputs.isfinite().all()):
        raise BertineError(
            "the model's outputs are NaN or infinite: its weights are damaged or too large "
            " for the precision; compute in fp32, or take an earlier checkpoint"
        )
    return outputs
