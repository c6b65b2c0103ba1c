"""The sums of losses, right answers and tokens between two lines of a run's log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bertine.objectives.base import Term
from bertine.training.distributed.world import World


@dataclass
class Meter:
    """Sums since the last line of the log.

    Attributes:
        totals: of the losses of each term (fp32 scalars, on the device).
        correct: targets predicted right, for the terms that know it (int64 scalars).
        shares: other numbers of targets, by "term_name" (int64 scalars).
        counts: targets.
        tokens: real tokens.
        seconds: of the steps.
    """

    totals: dict[str, Tensor] = field(default_factory=dict)
    correct: dict[str, Tensor] = field(default_factory=dict)
    shares: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0

    def add(self, terms: dict[str, Term]) -> None:
        """Add the terms of a micro-batch."""
        for name, term in terms.items():
            self.totals[name] = self.totals.get(name, 0) + term.total.detach()
            self.counts[name] = self.counts.get(name, 0) + term.count
            if term.correct is not None:
                self.correct[name] = self.correct.get(name, 0) + term.correct
            for share, number in term.shares.items():
                key = f"{name}_{share}"
                self.shares[key] = self.shares.get(key, 0) + number

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint, as JSON values; a float holds an fp32 number
        exactly."""
        return {
            "totals": {name: float(total) for name, total in self.totals.items()},
            "correct": {name: int(right) for name, right in self.correct.items()},
            "counts": self.counts,
            "tokens": self.tokens,
            "seconds": self.seconds,
            **(
                {"shares": {name: int(number) for name, number in self.shares.items()}}
                if self.shares
                else {}
            ),
        }

    @classmethod
    def restore(cls, state: dict[str, Any], device: torch.device) -> Meter:
        """Return the meter of :meth:`state`."""
        return cls(
            {name: torch.tensor(v, device=device) for name, v in state["totals"].items()},
            {name: torch.tensor(v, device=device) for name, v in state["correct"].items()},
            {name: torch.tensor(v, device=device) for name, v in state.get("shares", {}).items()},
            dict(state["counts"]),
            state["tokens"],
            state["seconds"],
        )

    @classmethod
    def resumed(cls, state: dict[str, Any], world: World, device: torch.device) -> Meter:
        """Return this process's part of a checkpoint's sums: its own where the world is the same,
        so that they go on being added in the same order; else the first process has it all."""
        parts = state.get("meters", [state["meter"]])
        if len(parts) == world.size:
            return cls.restore(parts[world.rank], device)
        meter = cls.restore(state["meter"], device)
        if not world.main:
            for sums in (meter.totals, meter.correct, meter.shares):
                sums.update({name: torch.zeros_like(value) for name, value in sums.items()})
            meter.counts = dict.fromkeys(meter.counts, 0)
        return meter

    @classmethod
    def joined(cls, states: list[dict[str, Any]], device: torch.device) -> Meter:
        """Add up the meters of all processes, from the :meth:`state` of each. Tokens and seconds
        are those of the whole step in every one."""
        first = dict(states[0])
        for name in ("totals", "correct", "counts", *(("shares",) if "shares" in first else ())):
            first[name] = {key: sum(state[name][key] for state in states) for key in first[name]}
        return cls.restore(first, device)

    def means(self, weights: dict[str, float]) -> dict[str, float]:
        """Compute the numbers of a line of the log: the loss, by the `weights` of the terms; loss
        and accuracy of each term that had a target; tokens a second."""
        losses = {k: float(v) / max(1, self.counts[k]) for k, v in self.totals.items()}
        entry = {"loss": sum(weights[k] * v for k, v in losses.items())}
        alone = len(losses) == 1
        if not alone:
            entry |= {f"{k}_loss": v for k, v in losses.items() if self.counts[k]}
        for name, right in self.correct.items():
            if not alone and not self.counts[name]:
                continue
            key = "accuracy" if alone else f"{name}_accuracy"
            entry[key] = float(right) / max(1, self.counts[name])
        for key, number in self.shares.items():
            entry[key] = float(number) / max(1, self.counts[key.partition("_")[0]])
        entry["tokens_per_second"] = self.tokens / max(self.seconds, 1e-9)
        return entry
