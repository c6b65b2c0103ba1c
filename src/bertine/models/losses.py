"""Compute the cross-entropy over a large vocabulary in few passes over memory, and the focal loss.

Shape legend: P targets, V classes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _SumCrossEntropy(torch.autograd.Function):
    """Sum of cross-entropies; the gradient reuses the memory of the logits, as it is as large.

    The log-sum-exp is computed in fp32 from the (possibly bf16) logits, block by block, so that
    no fp32 copy of all logits exists: a block of rows stays in the cache.
    """

    #: Logits of a block of rows, about: 4 MB in fp32.
    BLOCK = 1 << 20

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        # The gradient for the usual case, a loss that is the mean, so that it needs no further pass
        # over memory.
        ctx.scale = scale = float(torch.tensor(1.0 / max(1, len(labels))))
        total = logits.new_zeros((), dtype=torch.float32)
        correct = torch.zeros((), dtype=torch.int64, device=logits.device)
        size = max(1, _SumCrossEntropy.BLOCK // logits.shape[1])
        for start in range(0, len(labels), size):
            rows = slice(start, min(start + size, len(labels)))
            target = labels[rows, None]
            scores = logits[rows].float()
            highest, picked = scores.amax(-1, True), scores.gather(1, target)
            probs = torch.softmax(scores, -1)
            # The highest score has the probability 1 / sum(exp(score - highest)): a softmax with
            # its logarithm costs half of a logarithmic one whose exponential is taken again.
            losses = highest - picked - probs.amax(-1, True).log_()
            total += (losses if weights is None else losses * weights[rows, None]).sum()
            correct += (picked >= highest).sum()
            probs.scatter_add_(1, target, torch.full_like(picked, -1.0))
            logits[rows] = probs.mul_(scale if weights is None else scale * weights[rows, None])
        logits[len(labels) :] = 0.0
        # Detached, not the input itself: autograd is to keep a separate tensor.
        ctx.save_for_backward(logits.detach())
        ctx.mark_non_differentiable(correct)
        return total, correct

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # In place: the buffer is as large as the logits. Autograd frees it after this pass and
        # refuses a second one.
        (grad,) = ctx.saved_tensors
        # A number, not a bf16 tensor: 1 / count would be rounded to eight bits.
        rest = float(grads[0]) / ctx.scale
        return grad if rest == 1.0 else grad.mul_(rest), None, None


def sum_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum the cross-entropy over P, and count the targets that have the highest logit.

    Args:
        logits: float [P or more, V], rows after the first P are ignored; on a CPU, if a gradient
            is needed, overwritten with it.
        labels: int64 [P], each in [0, V).
        weights: fp32 [P], of each target in the sum; None: 1.

    Returns:
        The sum (fp32 scalar, differentiable) and the number of right targets (int64 scalar). A tie
        for the highest logit counts as right.
    """
    if logits.device.type == "cpu" and torch.is_grad_enabled() and logits.requires_grad:
        return _SumCrossEntropy.apply(logits, labels, weights)
    logits = logits[: len(labels)]
    if weights is not None:
        item = F.cross_entropy(logits.float(), labels, reduction="none")
        return (item * weights).sum(), (logits.argmax(-1) == labels).sum()
    if logits.device.type != "cpu":
        return _device_cross_entropy(logits, labels)
    return _plain_cross_entropy(logits, labels)


def _plain_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.float()
    total = F.cross_entropy(logits, labels, reduction="sum")
    return total, (logits.argmax(-1) == labels).sum()


_device_cross_entropy = _plain_cross_entropy


def compile_cross_entropy() -> None:
    """Compile the cross-entropy of tensors on a GPU for the rest of this process: one pass over the
    logits in each direction, and no copy of them in fp32."""
    global _device_cross_entropy
    _device_cross_entropy = torch.compile(_plain_cross_entropy, dynamic=True)


def focal(losses: Tensor, log_likelihoods: Tensor, gamma: float) -> Tensor:
    """Return the focal loss, summed: targets that are already predicted well count less (Lin et al.
    2017, "Focal Loss for Dense Object Detection", equation 4).

    Args:
        losses: fp32 [...], cross-entropies, weighted or not.
        log_likelihoods: fp32 [...], the log-probability of the true class, at most 0.
        gamma: of ``(1 - p) ** gamma``, the factor of each loss; 0 changes nothing.

    Returns:
        The sum (fp32 scalar).
    """
    # 1 - p from the logarithm: exact near p = 1, where the factor is smallest. Not quite 0, where
    # the gradient of a power below 1 is infinite.
    missing = (-torch.expm1(log_likelihoods)).clamp_min(torch.finfo(torch.float32).tiny)
    return (losses * missing**gamma).sum()
