"""One path for each sequence: the most probable token each time, or one that is drawn.

Shape legend: N prompts, R rows, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bertine.generation.constraints import Constraints
from bertine.generation.scores import NextTokens, Written
from bertine.generation.settings import SearchSettings
from bertine.options.generation import Choosing
from bertine.rng import generator
from bertine.scores import ranking

#: Called with the number of a sequence (prompt by prompt, its sequences one after the other) and a
#: token as soon as it is chosen.
OnToken = Callable[[int, int], None]
#: At a temperature below this (0 included) the most probable token is certain.
_COLD = 1e-6


@dataclass
class _Path:
    """A sequence on its way: its number, what its draws are keyed by, prompt and tokens."""

    number: int
    draws: tuple[int, int]
    history: list[int]
    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    ended: bool = False


def write_paths(
    model: NextTokens,
    prompts: Sequence[Sequence[int]],
    settings: SearchSettings,
    numbers: Sequence[int],
    on_token: OnToken | None = None,
) -> list[list[Written]]:
    """Write the sequences of each prompt, each by itself; see
    :func:`bertine.generation.search.search`."""
    choosing = settings.choosing
    many = choosing.sequences
    paths = [
        _Path(row * many + which, (numbers[row], which), list(prompt))
        for row, prompt in enumerate(prompts)
        for which in range(many)
    ]
    scores = model.start(prompts)
    device = scores.device
    constraints = Constraints(settings, device)
    scores = scores[torch.arange(len(prompts), device=device).repeat_interleave(many)]
    open_paths, state = paths, [path.number // many for path in paths]
    for step in range(choosing.max_new_tokens):
        # What the model says of a token, before rules and temperature.
        log_probabilities = scores.log_softmax(-1)
        scores = constraints.apply(scores, [path.history for path in open_paths], step)
        possible = (scores > float("-inf")).any(1).tolist()
        chosen = _drawn(scores, choosing, open_paths, step) if choosing.sample else scores.argmax(1)
        said = log_probabilities.gather(1, chosen[:, None])[:, 0].tolist()
        going: list[tuple[int, int]] = []
        for row, (path, token) in enumerate(zip(open_paths, chosen.tolist(), strict=True)):
            if not possible[row]:
                continue
            path.log_probability += said[row]
            if token in settings.end_tokens:
                path.ended = True
                continue
            path.tokens.append(token)
            path.history.append(token)
            if on_token is not None:
                on_token(path.number, token)
            going.append((row, token))
        if not going or step + 1 == choosing.max_new_tokens:
            break
        rows = [state[row] for row, _ in going]
        scores = model.advance(
            torch.tensor(rows, device=device),
            torch.tensor([token for _, token in going], device=device),
        )
        open_paths = [open_paths[row] for row, _ in going]
        state = list(range(len(going)))
    written = [
        Written(tuple(path.tokens), path.log_probability, path.ended, path.log_probability)
        for path in paths
    ]
    return [written[first : first + many] for first in range(0, len(written), many)]


def _drawn(scores: Tensor, choosing: Choosing, paths: Sequence[_Path], step: int) -> Tensor:
    """Draw a token for each row: where the running sum of the probabilities, the greatest first,
    passes a number that depends on the seed, the sequence and the step alone."""
    order, probabilities = among(scores, choosing)
    sums = probabilities.double().cumsum(1)
    numbers = [generator(choosing.seed, "generate", *p.draws, step).random() for p in paths]
    points = torch.from_numpy(np.array(numbers)).to(scores.device)[:, None] * sums[:, -1:]
    places = (sums <= points).sum(1, keepdim=True)
    # The last place that has any probability, should rounding lead beyond it.
    last = (probabilities > 0).sum(1, keepdim=True) - 1
    return order.gather(1, torch.minimum(places, last.clamp(min=0)))[:, 0]


def among(scores: Tensor, choosing: Choosing) -> tuple[Tensor, Tensor]:
    """Return what is drawn among (Holtzman et al. 2020, section 3.1; Fan et al. 2018, section 5.4).

    Args:
        scores: fp32 [R, V], -inf at what may not come.

    Returns:
        Tokens int64 [R, C], the most probable first, and their probabilities fp32 [R, C], which
        need not be 1 together.
    """
    top_k = choosing.top_k
    if choosing.temperature < _COLD:
        top_k = 1
    else:
        scores = scores / choosing.temperature
    if top_k is not None and top_k < scores.shape[1]:
        best = np.stack([ranking(row, top_k) for row in scores.cpu().numpy()])
        order = torch.from_numpy(best).to(scores.device)
        scores = scores.gather(1, order)
    else:
        scores, order = scores.sort(dim=1, descending=True, stable=True)
    probabilities = scores.softmax(-1)
    if choosing.top_p < 1.0:
        before = probabilities.cumsum(1) - probabilities
        # The most probable one is among them in any case.
        probabilities = probabilities.masked_fill(before >= choosing.top_p, 0.0)
    return order, probabilities
