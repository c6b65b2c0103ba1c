"""In which precision, and with how many threads, a training run computes: measured before its first
step, recorded in ``run.json``, and the same when it is resumed.

Bits depend on both, so a run that goes on does not measure again, however the machine is then.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from bertine.cores.neighbours import OtherPrograms
from bertine.models.precision import cpu_has_bf16, precision_name, rates_for
from bertine.models.products import TOKENS, Product, products_of, seconds_of
from bertine.models.threads import fastest_threads, seconds_by_threads, threads_are_given
from bertine.names import Precision
from bertine.options.names import option
from bertine.terminal.console import counted, say, warn
from bertine.terms import TERMS
from bertine.training.distributed.world import World
from bertine.training.run import Run

#: How many times as fast fewer threads have to be to be taken: bits depend on their number, so that
#: the noise of a measurement must not decide.
_WORTH = 1.25


class Computing(NamedTuple):
    """How a run computes.

    Attributes:
        precision: of its products.
        facts: for the run's settings: ``bf16_speedup``, where it was measured, and ``threads``,
            where they are not as many as PyTorch would take.
    """

    precision: Precision
    facts: dict[str, Any]

    @property
    def threads(self) -> int:
        """How many there are."""
        return int(self.facts.get("threads", torch.get_num_threads()))


def computing_of_run(
    out: Path | str,
    asked: str,
    model: nn.Module,
    *,
    resume: bool,
    world: World,
    tokens: int = TOKENS,
    words: int = 0,
) -> Computing:
    """Return how the run in `out` has computed; of a new run, measure. All processes call this, and
    get what the first one says.

    Args:
        asked: ``"auto"``, ``"fp32"`` or ``"bf16"``.
        tokens, words: of a micro-batch, see :func:`bertine.models.products.products_of`.
    """

    def decide() -> Computing:
        begun = Run.begun(out) if resume else None
        if begun is None or begun.get("precision") not in ("fp32", "bf16"):
            return measured_computing(asked, model, tokens=tokens, words=words)
        return _as_begun(asked, begun, world.device)

    # Not `alone`: who waits there for a first process that has ended waits for ever.
    return Computing(*world.gather(decide() if world.main else None)[0])


def measured_computing(
    asked: str, model: nn.Module, *, tokens: int = TOKENS, words: int = 0
) -> Computing:
    """Measure how to train `model` fastest, where it is, and say what is not as usual."""
    device = next(model.parameters()).device
    rates = rates_for(asked, model, tokens=tokens, words=words)
    precision = precision_name(asked, device, rates)
    facts: dict[str, Any] = {}
    if rates is not None:
        say(rates.line())
        facts["bf16_speedup"] = rates.speedup
    products = products_of(model, tokens, words) if device.type == "cpu" else ()
    usual = torch.get_num_threads()
    if products and usual > 1 and not threads_are_given():
        seconds = _seconds_by_threads(products, precision, usual)
        threads = fastest_threads(seconds, _WORTH)
        if threads < max(seconds):
            ratio = seconds[max(seconds)] / seconds[threads]
            say(f"{counted(threads, 'thread')}: {ratio:.1f} times as fast as {usual} here")
            facts["threads"] = threads
    return Computing(precision, facts)


@functools.cache
def _seconds_by_threads(
    products: tuple[Product, ...], precision: Precision, usual: int
) -> Mapping[int, float]:
    """Measure once a process; `usual` are the threads of PyTorch now. Where other programs hold
    cores, say nothing of fewer threads: they are faster then, but the others may be gone soon."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    others = OtherPrograms(least=0.0)
    seconds = seconds_by_threads(functools.partial(seconds_of, products, dtype))
    return seconds if others.cores_used() is None else {usual: seconds[usual]}


def _as_begun(asked: str, begun: Mapping[str, Any], device: torch.device) -> Computing:
    """Return how a run that is resumed has computed; what was asked for by name stays, and is
    compared with it."""
    facts = {name: begun[name] for name in ("bf16_speedup", "threads") if name in begun}
    if asked != "auto":
        return Computing(precision_name(asked), facts)
    if begun["precision"] == "bf16" and device.type == "cpu" and not cpu_has_bf16():
        warn(
            "the run was started in bf16, for which this processor has no instructions: it goes "
            f"on more slowly; {option('precision', 'fp32')} is for another run, in another folder"
        )
    return Computing(begun["precision"], facts)


def scored_words(counts: Mapping[str, int]) -> int:
    """Return how many tokens of a batch are scored against all words, of the targets by term."""
    return sum(count for name, count in counts.items() if name in TERMS and TERMS[name].words)
