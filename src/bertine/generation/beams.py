"""Beam search: the most probable sequences found by going on with several at once.

Candidates, ended sequences and the ways to stop are those of transformers (``generation/utils.py:
_beam_search``, version 5), which follow tensor2tensor's and fairseq's.

Shape legend: R rows, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertine.generation.constraints import Constraints
from bertine.generation.scores import NextTokens, Written
from bertine.generation.settings import SearchSettings
from bertine.scores import ranking


@dataclass(frozen=True)
class _Beam:
    """A sequence that goes on: tokens behind the prompt, and their log-probability, an fp32
    number."""

    tokens: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True)
class _Candidate:
    """A beam, by its row, with one more token."""

    log_probability: float
    row: int
    token: int


def write_beams(
    model: NextTokens, prompts: Sequence[Sequence[int]], settings: SearchSettings
) -> list[list[Written]]:
    """Find the best sequences of each prompt; see :func:`bertine.generation.search.search`."""
    choosing = settings.choosing
    searches = [_PromptSearch(list(prompt), settings) for prompt in prompts]
    scores = model.start(prompts)
    device = scores.device
    constraints = Constraints(settings, device)
    going = searches
    for step in range(choosing.max_new_tokens):
        histories = [[*one.prompt, *beam.tokens] for one in going for beam in one.beams]
        scores = constraints.apply(scores.log_softmax(-1), histories, step)
        before = [beam.log_probability for one in going for beam in one.beams]
        scores = scores + torch.tensor(before, device=device)[:, None]
        first = 0
        rows: list[int] = []
        for one in going:
            count = len(one.beams)
            parents = one.advance(scores[first : first + count])
            rows += [first + row for row in parents]
            first += count
        going = [one for one in going if one.beams]
        if not going:
            break
        tokens = [beam.tokens[-1] for one in going for beam in one.beams]
        scores = model.advance(
            torch.tensor(rows, device=device), torch.tensor(tokens, device=device)
        )
    return [one.best() for one in searches]


class _PromptSearch:
    """The search for one prompt.

    Attributes:
        prompt: its tokens.
        beams: the sequences that go on, best first; none once the search has ended.
    """

    def __init__(self, prompt: list[int], settings: SearchSettings) -> None:
        self.prompt = prompt
        self.beams = [_Beam((), 0.0)]
        self._settings, self._choosing = settings, settings.choosing
        self._done: list[Written] = []
        # Beside as many sequences that end there are as many that go on.
        self._candidates = max(2, 1 + len(settings.end_tokens)) * self._choosing.beams

    def advance(self, scores: Tensor) -> list[int]:
        """Go on by one token.

        Args:
            scores: fp32 [R, V], the log-probability of each beam with each token behind it.

        Returns:
            The rows that the beams of now go on from.
        """
        choosing, vocabulary = self._choosing, scores.shape[1]
        flat = scores.flatten().cpu().numpy()
        best = ranking(flat, self._candidates).tolist()  # of equals the lower row, then token
        candidates = [
            _Candidate(float(flat[at]), at // vocabulary, at % vocabulary)
            for at in best
            if flat[at] > -np.inf
        ]
        length = len(self.beams[0].tokens) + 1
        at_limit = length == choosing.max_new_tokens
        ends = [at_limit or c.token in self._settings.end_tokens for c in candidates]
        for candidate, ended in zip(candidates[: choosing.beams], ends, strict=False):
            if ended:
                self._add(candidate, length)
        if not candidates:  # nothing may come any more
            self._done += [self._written(beam, False) for beam in self.beams]
        best = ranking([written.score for written in self._done], choosing.beams)
        self._done = [self._done[at] for at in best]
        open_ones = [c for c, ended in zip(candidates, ends, strict=True) if not ended]
        open_ones = open_ones[: choosing.beams]
        self.beams = [
            _Beam((*self.beams[c.row].tokens, c.token), c.log_probability) for c in open_ones
        ]
        if self._ends(length):
            self.beams = []
        return [c.row for c in open_ones] if self.beams else []

    def best(self) -> list[Written]:
        """Return the sequences found, best first."""
        return self._done[: self._choosing.sequences]

    def _ends(self, length: int) -> bool:
        """Tell whether what goes on is no longer looked at: there are enough sequences, and no
        better one is to be had, as far as the best of now says it."""
        if not self.beams:
            return True
        if len(self._done) < self._choosing.beams:
            return False
        if self._choosing.early_stopping:
            return True
        return self._score(self.beams[0].log_probability, length) <= self._done[-1].score

    def _add(self, candidate: _Candidate, length: int) -> None:
        tokens = self.beams[candidate.row].tokens
        ended = candidate.token in self._settings.end_tokens
        if not ended:
            tokens = (*tokens, candidate.token)
        score = self._score(candidate.log_probability, length)
        self._done.append(Written(tokens, candidate.log_probability, ended, score))

    def _written(self, beam: _Beam, ended: bool) -> Written:
        score = self._score(beam.log_probability, max(1, len(beam.tokens)))
        return Written(beam.tokens, beam.log_probability, ended, score)

    def _score(self, log_probability: float, length: int) -> float:
        """Divide by a power of the length, in fp32."""
        power = np.float32(length**self._choosing.length_penalty)
        return float(np.float32(log_probability) / power)
