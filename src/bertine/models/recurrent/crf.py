"""A linear-chain conditional random field over the tags of a sentence (Lafferty et al. 2001; over a
BiLSTM Huang et al. 2015, as ELMo's tagger of entities has it): a score for each tag of each word,
one for each tag after another, one for each tag at either end.

Shape legend: B sentences, W words of the longest, K tags.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LinearChainCrf(nn.Module):
    """The scores of tags after each other.

    Training knows no rules of tags; the answer keeps them (as published: Peters et al. 2018,
    appendix, "ensuring that the output tag sequence is valid").

    Args:
        allowed: bool [K, K], which tag may follow which in an answer (row: the tag before).
        first: bool [K], which may come first.

    Attributes:
        transitions: [K, K], of the tag before (row) and after.
        begins, ends: [K].
    """

    allowed: Tensor
    first: Tensor

    def __init__(self, allowed: Tensor, first: Tensor) -> None:
        super().__init__()
        count = len(first)
        self.transitions = nn.Parameter(torch.zeros(count, count))
        self.begins = nn.Parameter(torch.zeros(count))
        self.ends = nn.Parameter(torch.zeros(count))
        self.register_buffer("allowed", allowed, persistent=False)
        self.register_buffer("first", first, persistent=False)

    def log_partition(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Compute the logarithm of the sum over all sequences of tags.

        Args:
            scores: fp32 [B, W, K].
            lengths: int64 [B], each at least 1.

        Returns:
            fp32 [B].
        """
        state = self.begins + scores[:, 0]
        for place in range(1, scores.shape[1]):
            after = torch.logsumexp(state[:, :, None] + self.transitions, 1) + scores[:, place]
            state = torch.where((place < lengths)[:, None], after, state)
        return torch.logsumexp(state + self.ends, 1)

    def score(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Compute the score of one sequence of tags of each sentence.

        Args:
            scores: fp32 [B, W, K].
            tags: int64 [B, W], any at padding.
            lengths: int64 [B].

        Returns:
            fp32 [B].
        """
        places = torch.arange(scores.shape[1], device=scores.device)
        there = places < lengths[:, None]
        own = scores.gather(2, tags[:, :, None]).squeeze(2)
        steps = self.transitions[tags[:, :-1], tags[:, 1:]]
        last = tags.gather(1, lengths[:, None] - 1).squeeze(1)
        return (
            self.begins[tags[:, 0]]
            + torch.where(there, own, 0.0).sum(1)
            + torch.where(there[:, 1:], steps, 0.0).sum(1)
            + self.ends[last]
        )

    def losses(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Compute the negative logarithm of the probability of the tags of each sentence, fp32 [B];
        arguments as of :meth:`score`."""
        return self.log_partition(scores, lengths) - self.score(scores, tags, lengths)

    @torch.no_grad()
    def best(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """Find the most probable allowed tags of each sentence (Viterbi); of equals those with the
        lower number.

        Args:
            scores: fp32 [B, W, K].
            lengths: int64 [B], each at least 1.
        """
        steps = self.transitions.masked_fill(~self.allowed, -torch.inf)
        state = (self.begins + scores[:, 0]).masked_fill(~self.first, -torch.inf)
        came_from = []
        for place in range(1, scores.shape[1]):
            best, before = (state[:, :, None] + steps).max(1)
            state = torch.where((place < lengths)[:, None], best + scores[:, place], state)
            came_from.append(before)
        tags = (state + self.ends).argmax(1).tolist()
        table = torch.stack(came_from, 1).tolist() if came_from else [[]] * len(tags)
        answers = []
        for row, (tag, length) in enumerate(zip(tags, lengths.tolist(), strict=True)):
            path = [tag]
            for place in range(length - 2, -1, -1):
                path.append(table[row][place][path[-1]])
            answers.append(path[::-1])
        return answers
