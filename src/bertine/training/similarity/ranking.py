"""Losses of vectors of pairs of texts, each as a sum over the pairs.

Shape legend: P pairs, N further wrong answers, C = P + N candidates, D numbers of a vector.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def ranking_losses(scores: Tensor, known: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Compute how improbable the right one of all candidates is: the cross-entropy of a softmax
    over
    cosines (van den Oord et al. 2018, section 2.3; Henderson et al. 2017, section 4).

    Args:
        scores: fp32 [P, C], cosines; the right candidate of pair i is i.
        known: bool [P, C], candidates that are left out, since they are right too.
        scale: what cosines are multiplied by.

    Returns:
        Their sum, fp32 scalar, and how many pairs have the right one first, int64 scalar.
    """
    logits = (scores * scale).masked_fill(known, float("-inf"))
    right = torch.arange(len(scores), device=scores.device)
    total = F.cross_entropy(logits, right, reduction="sum")
    return total, (logits.argmax(1) == right).sum()


def order_loss(cosines: Tensor, scores: Tensor, scale: float) -> Tensor:
    """Compute how far the order of cosines is from that of the scores: the logarithm of 1 plus the
    sum of exp(scale (cos j - cos i)) over all i, j with score i above score j (CoSENT: Huang et al.
    2024, IEEE/ACM TASLP 32). In a batch of equal scores it is 0.

    Args:
        cosines, scores: fp32 [P].

    Returns:
        fp32 scalar, of the whole batch.
    """
    differences = scale * (cosines[None, :] - cosines[:, None])
    wrong = differences.masked_fill(scores[:, None] <= scores[None, :], float("-inf")).flatten()
    return torch.logsumexp(torch.cat([wrong.new_zeros(1), wrong]), 0)


def right_as_well(groups: Tensor, firsts: Tensor, seconds: Tensor, others: Tensor) -> Tensor:
    """Tell which candidates are right beside a pair's own: those of its group; the same text as its
    first or second one; the second texts of pairs with the same first text.

    Args:
        groups: int64 [P], -1 where there is none.
        firsts, seconds: int64 [P], numbers that are equal where texts are.
        others: int64 [N], those of the further candidates.

    Returns:
        bool [P, P + N]; a pair's own candidate is False.
    """
    candidates = torch.cat([seconds, others])
    known = (seconds[:, None] == candidates[None, :]) | (firsts[:, None] == candidates[None, :])
    count = len(firsts)
    same = (groups[:, None] == groups[None, :]) & (groups >= 0)[:, None]
    known[:, :count] |= (firsts[:, None] == firsts[None, :]) | same
    own = torch.arange(count, device=known.device)
    known[own, own] = False
    return known
