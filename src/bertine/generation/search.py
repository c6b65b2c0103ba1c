"""The one way into the search."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bertine.generation.beams import write_beams
from bertine.generation.paths import OnToken, write_paths
from bertine.generation.scores import NextTokens, Written
from bertine.generation.settings import SearchSettings


@torch.inference_mode()
def search(
    model: NextTokens,
    prompts: Sequence[Sequence[int]],
    settings: SearchSettings,
    *,
    numbers: Sequence[int] | None = None,
    on_token: OnToken | None = None,
) -> list[list[Written]]:
    """Find what comes behind each of N prompts.

    The same for a prompt whatever stands beside it, up to the last bits of its scores: draws are
    keyed by the seed, the prompt's number, the sequence and the step.

    Args:
        model: scores the next tokens; in evaluation mode.
        prompts: tokens, at least one each, of any lengths. All of them, and the tokens that come
            behind them, must have room in the model.
        settings: how tokens are chosen, and what ends a sequence.
        numbers: of the prompts, for what is drawn; None: 0, 1, 2, …
        on_token: called with each token as soon as it is sure, by sequence; not with beams.

    Returns:
        For each prompt its sequences, as many as are asked for: of beams the best first, and fewer
        where the rules leave fewer.
    """
    if not prompts:
        return []
    if settings.choosing.beams > 1:
        return write_beams(model, prompts, settings)
    numbers = range(len(prompts)) if numbers is None else numbers
    return write_paths(model, prompts, settings, numbers, on_token)
