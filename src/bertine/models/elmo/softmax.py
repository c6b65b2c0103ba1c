"""Scoring the next word: over all words, or over a sample of them (Jean et al. 2015; published
code: TensorFlow's ``sampled_softmax_loss``).

Shape legend: N places, V words of the vocabulary, K sampled words, P width of a state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine import rng
from bertine.models.elmo.config import ElmoConfig


@dataclass(frozen=True)
class SampledWords:
    """Words drawn without repetition, a word of rank r as often as log((r + 2) / (r + 1)) says.

    Attributes:
        ids: int64 [K].
        tries: how many draws it took until K different words were there.
        vocab_size: V.
    """

    ids: Tensor
    tries: int
    vocab_size: int

    def log_expected(self, ids: Tensor) -> Tensor:
        """Return fp32, the logarithm of how often each of the words `ids` is expected in so many
        draws."""
        ranks = ids.double()
        share = torch.log1p(1 / (ranks + 1)) / math.log(self.vocab_size + 1)
        return torch.log(-torch.expm1(self.tries * torch.log1p(-share))).float()


def sample_words(vocab_size: int, count: int, seed: int, *where: int | str) -> SampledWords:
    """Draw `count` different words, frequent ones (of low ids) more often; the same ones at the
    same position `where` under `seed`.

    Raises:
        ValueError: there are not so many words.
    """
    if count > vocab_size:
        raise ValueError(f"{count} words cannot be drawn of {vocab_size}")
    draw = rng.generator(seed, "sampled words", *where)
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        # The inverse of the distribution's sum: log(r + 1) / log(V + 1).
        ranks = np.exp(draw.random(2 * count) * math.log(vocab_size + 1)).astype(np.int64) - 1
        drawn = np.concatenate([drawn, ranks.clip(0, vocab_size - 1)])
        words, first = np.unique(drawn, return_index=True)
        if len(words) >= count:
            order = np.argsort(first)[:count]
            tries = int(first[order[-1]]) + 1
            return SampledWords(torch.from_numpy(words[order]), tries, vocab_size)


class WordSoftmax(nn.Module):
    """A score for each word of the vocabulary; both directions share it."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.projection_size))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        nn.init.normal_(self.weight, 0.0, config.projection_size**-0.5)

    def full_loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the losses fp32 [] of `targets` int64 [N] after states [N, P]."""
        logits = F.linear(states, self.weight, self.bias)
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    def sampled_loss(self, states: Tensor, targets: Tensor, sampled: SampledWords) -> Tensor:
        """Return the sum of the losses fp32 [] against sampled words: scores less the logarithm of
        how often a word is expected in the sample; a sampled word that is the target itself does
        not count."""
        drawn = sampled.ids.to(states.device)
        # Rows that are looked up have a sparse gradient: a table of 800,000 words has few of them.
        rows, which = torch.unique(torch.cat([targets, drawn]), return_inverse=True)
        weight = F.embedding(rows, self.weight, sparse=states.device.type == "cpu")
        bias = self.bias[rows]
        at, others_at = which.split([len(targets), len(drawn)])
        own = (states.float() * weight[at]).sum(-1) + bias[at]
        own = own - sampled.log_expected(targets)
        others = F.linear(states, weight[others_at], bias[others_at]).float()
        others = others - sampled.log_expected(drawn)
        others = others.masked_fill(drawn[None, :] == targets[:, None], float("-inf"))
        return (torch.logsumexp(torch.cat([own[:, None], others], 1), 1) - own).sum()
