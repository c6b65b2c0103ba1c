"""How many times as fast a table of vectors is as its teacher."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bertine.inference.embedding.embedder import Embedder

#: Texts that both compute, and how often, in turns.
_TEXTS, _TURNS = 256, 3


def times_as_fast(ours: Embedder, teacher: Embedder, texts: Sequence[str]) -> float | None:
    """Measure on some of `texts`, with the fastest of a few turns of each; None: there are none."""
    sample = list(texts[:_TEXTS])
    if not sample:
        return None
    seconds = {id(model): float("inf") for model in (ours, teacher)}
    for _ in range(_TURNS):
        for model in (ours, teacher):
            started = time.perf_counter()
            model.embed(sample)
            seconds[id(model)] = min(seconds[id(model)], time.perf_counter() - started)
    return seconds[id(teacher)] / max(seconds[id(ours)], 1e-9)
