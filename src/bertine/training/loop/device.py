"""What a GPU needs that a CPU does not: batches sent while it computes, and no looking at its
numbers while it does.

The host only queues work; it waits for the GPU where a line of the log, an evaluation or a
checkpoint is due. Nothing here changes what a CPU does.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.gpu.varlen import has_flash_attention
from bertine.models.model import Model
from bertine.options.names import option


def send(batch: Batch, model: Model, dtype: torch.dtype) -> Batch:
    """Send `batch` to where `model` is. To a GPU: from page-locked memory, on a stream of its own,
    so that the copy passes the products that are still queued; with its packing, if flash attention
    can compute in `dtype` there and the backbone takes it."""
    device = next(model.parameters()).device
    if device.type != "cuda":
        return batch.to(device)
    flash = has_flash_attention(device, dtype, model.config.head_size)
    if flash and model.backbone.takes_packing:
        batch = batch.packed()
    side, current = _side_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(side):
        moved = batch.pin_memory().to(device)
    current.wait_stream(side)
    for tensor in moved.tensors():
        # Made on one stream and used on the other: not to be given away while it is.
        tensor.record_stream(current)
    return moved


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def wait_for(device: torch.device) -> None:
    """Return when all that was queued is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Norms:
    """The norms of a run's gradients: looked at after every step on a CPU; elsewhere when
    something is written, for a look waits for the device.

    Args:
        learning_rate: for the message.
    """

    def __init__(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        self._last: float | Tensor = 0.0
        self._worst: Tensor | None = None

    def add(self, norm: float | Tensor, step: int) -> None:
        """Take the norm of `step` (from 1 on).

        Raises:
            BertineError: it is on the host, and not finite.
        """
        self._last = norm
        if isinstance(norm, Tensor):
            # The maximum of anything and NaN is NaN.
            self._worst = norm if self._worst is None else torch.maximum(self._worst, norm)
        else:
            self.look(step)

    def look(self, step: int) -> float:
        """Return the last norm, after `step` steps.

        Raises:
            BertineError: it is not finite, or one since the last look was not.
        """
        worst = self._last if self._worst is None else self._worst
        self._worst = None
        if not math.isfinite(float(worst)):
            raise BertineError(
                f"step {step}: the gradient is not finite; lower the learning rate "
                f"({self._learning_rate:g}) or use {option('precision', 'fp32')}, then start again "
                "or resume from the last checkpoint"
            )
        return float(self._last)
