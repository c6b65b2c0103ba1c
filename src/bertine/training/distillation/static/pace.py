"""How many times as fast a table of vectors is as its teacher."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bertine.inference.embedding.embedder import Embedder

#: Texts that both compute, and how often, in turns.
_TEXTS, _TURNS = 256, 3


def times_as_fast(ours: Embedder, teacher: Embedder, texts: Sequence[str]) -> float | None:
    """Measure on some of `texts`, other ones in each turn, by the texts that each computed in a
    second; None: there are none."""
    if not texts:
        return None
    seconds = {id(model): 0.0 for model in (ours, teacher)}
    for model in (ours, teacher):
        model.embed(texts[-1:])  # what is made at the first call
    for turn in range(_TURNS):
        sample = list(texts[turn * _TEXTS : (turn + 1) * _TEXTS])
        for model in (ours, teacher) if sample else ():
            started = time.perf_counter()
            model.embed(sample)
            seconds[id(model)] += time.perf_counter() - started
    return seconds[id(teacher)] / max(seconds[id(ours)], 1e-9)
