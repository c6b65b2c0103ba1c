"""Pre-training in phases of different lengths, as one sequence of batches.

The paper trains with short sequences for nine tenths of the steps and with long ones for the
last tenth, to learn the positions that only those have (Devlin et al. 2018, appendix A.2).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from bertine.data.batch import Batch
from bertine.data.instances.pretraining import PretrainingData
from bertine.errors import BertineError
from bertine.options.instances import InstanceSettings

#: Sequences that are made to tell how many tokens a batch has: lengths of sentence pairs scatter
#: by a half, their mean over so many by 2%.
_PROBES = 1024


class PhasedData:
    """The batches of one data set after another, each from its own beginning.

    Args:
        phases: at least one data set, in their order.
        shares: of all steps that each has; they add up to 1.
        steps: of all phases together.

    Attributes:
        starts: for each phase, the number of its first step.
    """

    def __init__(
        self, phases: Sequence[PretrainingData], shares: Sequence[float], steps: int
    ) -> None:
        if steps < 1:
            raise BertineError(f"steps is {steps}, but must be at least 1")
        self.phases, self.shares, self.steps = list(phases), list(shares), steps
        ends = [round(sum(self.shares[: i + 1]) * steps) for i in range(len(self.phases))]
        self.starts = [0, *ends[:-1]]

    def batch(self, step: int) -> Batch:
        """Return the batch of `step`, counted over all phases; see :class:`PretrainingData`."""
        phase = max(i for i, start in enumerate(self.starts) if start <= step)
        return self.phases[phase].batch(step - self.starts[phase])

    def counts(self, done: int) -> list[int]:
        """Return how many of the first `done` steps each phase has."""
        ends = [*self.starts[1:], self.steps]
        return [
            max(0, min(done, end) - start) for start, end in zip(self.starts, ends, strict=True)
        ]

    @property
    def epochs(self) -> float:
        """How often all steps together see the corpus, about."""
        counts = self.counts(self.steps)
        return sum(
            count * phase.batch_size / phase.instances_per_epoch
            for phase, count in zip(self.phases, counts, strict=True)
        )

    def describe(self) -> dict[str, Any]:
        """Return what a run's log should say of its data; of lengths and sizes, the first phase's,
        and of later phases what differs."""
        facts = self.phases[0].describe()
        if len(self.phases) > 1:
            facts["phase_starts"] = self.starts[1:]
            facts["phase_lengths"] = [phase.max_seq_length for phase in self.phases]
            facts["phase_batch_sizes"] = [phase.batch_size for phase in self.phases]
        return facts

    def warnings(self) -> list[str]:
        """Return what a person should know before the run begins; empty when all is well."""
        without = [
            f"of {self.steps} steps none is left for sequences of {phase.max_seq_length} tokens; "
            "give them a larger share, or the run more steps"
            for phase, count in zip(self.phases, self.counts(self.steps), strict=True)
            if count == 0
        ]
        lines = [line for phase in self.phases for line in phase.warnings()]
        return list(dict.fromkeys(without + lines))


def steps_for_tokens(
    tokens: int, phases: Sequence[PretrainingData], shares: Sequence[float]
) -> int:
    """Return the number of steps that see about so many real tokens, each phase having its share of
    the steps."""
    return max(1, round(tokens / tokens_per_step(phases, shares)))


def tokens_per_step(phases: Sequence[PretrainingData], shares: Sequence[float]) -> float:
    """Return the mean number of real tokens in a step, each phase having its share of the steps."""
    mean = 0.0
    for phase, share in zip(phases, shares, strict=True):
        probes = math.ceil(_PROBES / phase.batch_size)
        mean += share * sum(phase.batch(i).num_tokens for i in range(probes)) / probes
    return mean


def predictions(masked_lm_prob: float, max_seq_length: int) -> int:
    """Return the most predictions in a sequence that the paper's recipe gives for a length: 20 for
    128 and 77 for 512 (google-research/bert, README)."""
    return math.ceil(masked_lm_prob * max_seq_length)


def at_length(settings: InstanceSettings, max_seq_length: int) -> InstanceSettings:
    """Return `settings` for a phase of this length, with as many predictions as its full sequence
    has."""
    limit = settings.max_predictions_per_seq
    if limit is None:
        limit = predictions(settings.masked_lm_prob, max_seq_length)
    return dataclasses.replace(
        settings, max_seq_length=max_seq_length, max_predictions_per_seq=limit
    )
