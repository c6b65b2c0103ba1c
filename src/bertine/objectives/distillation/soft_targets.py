"""Soft targets: a teacher's probabilities, at a temperature (Hinton et al. 2015, section 2).

The loss is the divergence of the student's distribution from the teacher's, times the square of the
temperature, by which gradients do not get smaller where it is higher. It differs from their
cross-entropy by the entropy of the teacher, which has no gradient, and is 0 where both agree.

Shape legend: P targets, V classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _SumDivergence(torch.autograd.Function):
    """The sum of the divergences of many rows over many classes; the gradient takes the memory of
    the student's logits, and the teacher's are made a block of rows at a time."""

    #: Logits of a block: as many rows as have about so many, 64 MB in fp32. A tied decoder is read
    #: once a block, so smaller ones would cost time.
    BLOCK = 1 << 24

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, wanted: Callable[[slice], Tensor], temperature: float
    ) -> tuple[Tensor, Tensor]:
        total = logits.new_zeros((), dtype=torch.float32)
        agreed = torch.zeros((), dtype=torch.int64, device=logits.device)
        size = max(1, _SumDivergence.BLOCK // logits.shape[1])
        for start in range(0, logits.shape[0], size):
            rows = slice(start, start + size)
            theirs, ours = wanted(rows).float(), logits[rows].float()
            agreed += (theirs.argmax(-1) == ours.argmax(-1)).sum()
            log_theirs = torch.log_softmax(theirs / temperature, -1)
            log_ours = torch.log_softmax(ours / temperature, -1)
            probs = log_theirs.exp()
            total += (probs * (log_theirs - log_ours)).sum() * temperature**2
            logits[rows] = log_ours.exp_().sub_(probs).mul_(temperature)
        # Not as the input that it is: what autograd is to keep is a tensor of its own.
        ctx.save_for_backward(logits.detach())
        ctx.mark_non_differentiable(agreed)
        return total, agreed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        if grad.device.type != "cpu":
            return grad * grads[0], None, None
        # A number, not a bf16 tensor: 1 / count would be rounded to eight bits.
        return grad.mul_(float(grads[0])), None, None


def sum_divergence(
    logits: Tensor, wanted: Callable[[slice], Tensor], temperature: float
) -> tuple[Tensor, Tensor]:
    """Sum over P of the divergence of a student from its teacher, over a large vocabulary.

    Args:
        logits: of the student, float [P, V]; they hold the gradient afterwards.
        wanted: (some of the rows) → the teacher's logits for them [p, V], without gradient.
        temperature: that the logits of both are divided by.

    Returns:
        The sum, times the square of the temperature, in nats (fp32 scalar, differentiable), and
        for how many of the targets both have the same best guess (int64 scalar).
    """
    total, agreed = _SumDivergence.apply(logits, wanted, temperature)
    return total, agreed


def divergences(logits: Tensor, log_wanted: Tensor, temperature: float) -> Tensor:
    """Return the divergence of each row over few classes, times the square of the temperature.

    Args:
        logits: of the student, [P, V]; -inf for what cannot be.
        log_wanted: fp32 [P, V], the logarithms of the teacher's probabilities, at temperature 1
            and up to a constant for each row: logits, or logarithms of probabilities; -inf for
            what is impossible.
        temperature: see :func:`sum_divergence`.

    Returns:
        fp32 [P], in nats.
    """
    theirs = torch.log_softmax(log_wanted.float() / temperature, -1)
    ours = F.log_softmax(logits.float() / temperature, -1)
    # Where the teacher's probability is 0 so is its part, whatever the logarithms are.
    possible = theirs > float("-inf")
    gaps = torch.where(possible, theirs.masked_fill(~possible, 0.0) - ours, 0.0)
    return (theirs.exp() * gaps).sum(-1) * temperature**2


def binary_divergences(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Return the divergence of each decision between yes and no, times the square of the
    temperature: fp32, in the shape of both.

    Args:
        logits: of the student, before the sigmoid.
        wanted: those of the teacher.
    """
    theirs, ours = wanted.float() / temperature, logits.float() / temperature
    probs = theirs.sigmoid()
    cross = F.binary_cross_entropy_with_logits(ours, probs, reduction="none")
    own = F.binary_cross_entropy_with_logits(theirs, probs, reduction="none")
    return (cross - own) * temperature**2
