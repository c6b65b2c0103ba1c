"""Draw tokens from the softmax of logits, by random numbers that are given.

Shape legend: P places, V vocabulary size.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Logits of a block on a CPU, which stays in the cache.
_BLOCK = 1 << 20
#: Probabilities that are added up before sums of them are: 30,000 added one after the other in fp32
#: would be off by more than the rare ones among them.
_GROUP = 128
#: The largest share that is looked for; a share rounded to 1 would be beyond the last token.
_BELOW_ONE = 1.0 - 2.0**-40


@torch.no_grad()
def sample(logits: Tensor, draws: Tensor, temperature: float = 1.0) -> Tensor:
    """Draw a token for each place: where the running sum of its probabilities passes its number.

    The published code adds Gumbel noise and takes the largest, which is the same distribution and
    needs a random number for each word of the vocabulary.

    Args:
        logits: float [P, V]; not changed.
        draws: float64 [P] in [0, 1), a uniform number for each place.
        temperature: that the logits are divided by.

    Returns:
        int64 [P]: a function of the arguments alone, row by row.
    """
    rows = logits.shape[0]
    if logits.device.type == "cpu":
        rows = max(1, _BLOCK // max(1, logits.shape[1]))
    parts = [
        _sample(some, numbers, temperature)
        for some, numbers in zip(logits.split(rows), draws.split(rows), strict=True)
    ]
    return torch.cat(parts) if parts else draws.new_empty(0, dtype=torch.int64)


def _sample(logits: Tensor, draws: Tensor, temperature: float) -> Tensor:
    rows, words = logits.shape
    weights = torch.empty(rows, -(-words // _GROUP) * _GROUP, device=logits.device)
    weights[:, words:] = 0.0
    used = weights[:, :words].copy_(logits)
    used.sub_(used.amax(-1, keepdim=True))
    if temperature != 1.0:
        used.div_(temperature)
    used.exp_()
    groups = weights.unflatten(1, (-1, _GROUP))
    group, share = _find(groups.sum(-1), draws)
    own = groups.gather(1, group[:, None, None].expand(-1, 1, _GROUP))[:, 0]
    token, _ = _find(own, share)
    return group * _GROUP + token


def _find(weights: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Find in each row of `weights`, float [P, N], the place where the running sum passes the part
    `share`, float64 [P] in [0, 1), of the whole; it is never one of weight 0.

    Returns:
        The place, int64 [P], and how far into its weight that is, float64 [P] in [0, 1).
    """
    sums = weights.double().cumsum(-1)
    wanted = share.clamp(0.0, _BELOW_ONE)[:, None] * sums[:, -1:]
    place = torch.searchsorted(sums, wanted, right=True).clamp(max=sums.shape[1] - 1)
    until = sums.gather(1, place)
    before = torch.where(place > 0, sums.gather(1, (place - 1).clamp(min=0)), 0.0)
    return place[:, 0], ((wanted - before) / (until - before))[:, 0]
