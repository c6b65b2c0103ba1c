"""Choose the precision and the number of threads of a training run.

Both are measured before the first step and recorded in ``run.json``. The result depends on them bit
by bit, so a resumed run takes the recorded values and does not measure again, even if the machine
is busier.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from bertine.core.console import logger, plural
from bertine.core.loss_names import TERMS
from bertine.core.names import Precision, option
from bertine.core.spin_count import CpuContention, adapt_spin_count
from bertine.models.matmul_timing import TOKENS, Product, products_of, seconds_of
from bertine.models.precision import (
    cpu_has_bf16,
    fastest_threads,
    precision_name,
    rates_for,
    seconds_by_threads,
    threads_are_given,
)
from bertine.options.verbs import check_types, resolved_signature
from bertine.training.distributed import DistContext
from bertine.training.run_folder import Run

# Arguments: functions that several verbs use for their arguments.

Verb = TypeVar("Verb", bound=Callable[..., Any])


def with_options_of(other: Callable[..., Any], but: frozenset[str]) -> Callable[[Verb], Verb]:
    """Add the keyword arguments of `other`, except those in `but`, to a verb, with the same names
    and defaults.

    The verb's signature shows them, and the verb gets all of them in its last parameter,
    ``**options``. An argument that neither function has is a TypeError. Types are checked
    (:func:`~bertine.options.verbs.check_types`).
    """

    def wrap(verb: Verb) -> Verb:
        own = inspect.signature(verb)
        mine = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        known = {parameter.name for parameter in mine}
        theirs = [
            parameter
            for parameter in resolved_signature(other).parameters.values()
            if parameter.name not in known | but
        ]
        signature = own.replace(parameters=[*mine, *theirs])

        @functools.wraps(verb)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)  # refuses arguments that neither has
            bound.apply_defaults()
            return verb(*bound.args, **bound.kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return check_types(call)  # type: ignore[return-value]

    return wrap


def names_one_task(task: str, glue_task: str | None) -> bool:
    """Return whether `task`, or for GLUE its `glue_task`, names one task and not all of GLUE."""
    return task != "glue" if glue_task is None else glue_task.lower() != "all"


#: A smaller number of threads is chosen only if it is at least this many times as fast: results
#: depend on the number bit by bit, so the noise of a measurement must not decide.
_WORTH = 1.25


class Computing(NamedTuple):
    """The precision and threads of a run.

    Attributes:
        precision: of its products.
        facts: for the run's settings: ``bf16_speedup``, if it was measured, and ``threads``, if the
            number differs from PyTorch's default.
    """

    precision: Precision
    facts: dict[str, Any]

    @property
    def threads(self) -> int:
        """The number of threads."""
        return int(self.facts.get("threads", torch.get_num_threads()))


def computing_of_run(
    out: Path | str,
    asked: str,
    resume: bool,
    model: nn.Module,
    world: DistContext,
    tokens: int = TOKENS,
    words: int = 0,
) -> Computing:
    """Return the recorded precision and threads of the run in `out`; for a new run, measure them.
    All processes call this, and get the result of the first one.

    Args:
        asked: ``"auto"``, ``"fp32"`` or ``"bf16"``.
        tokens, words: of a batch, which the processes divide; see
            :func:`bertine.models.matmul_timing.products_of`.
    """

    def decide() -> Computing:
        parts, begun = world.size, Run.begun(out) if resume else None
        if begun is None or begun.get("precision") not in ("fp32", "bf16"):
            own = max(1, tokens // parts)
            return measured_computing(asked, model, tokens=own, words=words // parts)
        return _as_begun(asked, begun, world.device)

    # Not `alone`: a process that waits there for a first process that has ended waits for ever.
    return Computing(*world.gather(decide() if world.main else None)[0])


def measured_computing(
    asked: str, model: nn.Module, *, tokens: int = TOKENS, words: int = 0
) -> Computing:
    """Measure how `model` trains fastest, on its device, and print deviations from the defaults."""
    adapt_spin_count()
    device = next(model.parameters()).device
    rates = rates_for(asked, model, tokens=tokens, words=words)
    precision = precision_name(asked, device, rates)
    facts: dict[str, Any] = {}
    if rates is not None:
        logger.info(rates.line())
        facts["bf16_speedup"] = rates.speedup
    products = products_of(model, tokens, words) if device.type == "cpu" else ()
    usual = torch.get_num_threads()
    if products and usual > 1 and not threads_are_given():
        seconds = _seconds_by_threads(products, precision, usual)
        threads = fastest_threads(seconds, _WORTH)
        if threads < max(seconds):
            ratio = seconds[max(seconds)] / seconds[threads]
            logger.info(f"{plural(threads, 'thread')}: {ratio:.1f} times as fast as {usual} here")
            facts["threads"] = threads
    return Computing(precision, facts)


@functools.cache
def _seconds_by_threads(
    products: tuple[Product, ...], precision: Precision, usual: int
) -> Mapping[int, float]:
    """Measure the seconds by number of threads, once a process; `usual` is PyTorch's number now.
    While other programs use cores, leave out smaller numbers: they are faster then, but the other
    programs may end soon."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    others = CpuContention(least=0.0)
    seconds = seconds_by_threads(functools.partial(seconds_of, products, dtype))
    return seconds if others.cores_used() is None else {usual: seconds[usual]}


def _as_begun(asked: str, begun: Mapping[str, Any], device: torch.device) -> Computing:
    """Return the recorded precision and threads of a run that is resumed; a precision that is asked
    for by name is compared with the recorded one."""
    facts = {name: begun[name] for name in ("bf16_speedup", "threads") if name in begun}
    if asked != "auto":
        return Computing(precision_name(asked), facts)
    if begun["precision"] == "bf16" and device.type == "cpu" and not cpu_has_bf16():
        logger.warning(
            "the run was started in bf16, for which this processor has no instructions: it goes "
            f"on more slowly; {option('precision', 'fp32')} is for another run, in another folder"
        )
    return Computing(begun["precision"], facts)


def scored_words(counts: Mapping[str, int]) -> int:
    """Return how many tokens of a batch are scored against all words, from the targets by term."""
    return sum(count for name, count in counts.items() if name in TERMS and TERMS[name].words)
