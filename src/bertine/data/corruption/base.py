"""What turns instances into a batch, and the random numbers that it takes.

A format says what a sequence is made of, a corruption what is done to it: tokens are hidden,
moved or left out, and what was there becomes a target. The two know nothing of each other but
:class:`~bertine.data.instances.instance.Instance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from bertine.data.batch import Batch
from bertine.data.instances.instance import Instance
from bertine.options.instances import InstanceSettings
from bertine.rng import generator, key

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


#: Options that say which tokens are hidden behind masks, and how.
MASK_OPTIONS = ("masked_lm_prob", "mask_split", "masking", "whole_word_mask", "ngrams")


def idle_options(settings: InstanceSettings, used: Sequence[str] = ()) -> list[str]:
    """List the options of masks that were set, but for those `used` by what hides no tokens behind
    masks."""
    usual = InstanceSettings()
    return [
        name
        for name in MASK_OPTIONS
        if name not in used and getattr(settings, name) != getattr(usual, name)
    ]


@dataclass(frozen=True)
class Draws:
    """The random numbers of a batch, each a pure function of the seed, purpose and position.

    Attributes:
        seed: of all of them.
        step: the number of the batch.
        runs: the numbers of its instances, as runs of consecutive ones: (first, how many).
    """

    seed: int
    step: int
    runs: tuple[tuple[int, int], ...]

    def of_batch(self, purpose: str) -> np.random.Generator:
        """Return a generator for the batch as a whole: other numbers at every step."""
        return generator(self.seed, purpose, self.step)

    def of_instances(self, purpose: str, count: int) -> npt.NDArray[np.uint64]:
        """Draw `count` words for each instance, uint64 [B, count]: the same ones whenever the
        instance of that number comes again, in whichever batch."""
        counters = -(-count // 4)  # Philox gives four words for each value of its counter
        secret = key(self.seed, purpose)
        words = [
            np.random.Philox(key=secret, counter=first * counters).random_raw(size * counters * 4)
            for first, size in self.runs
        ]
        return np.concatenate(words).reshape(-1, counters * 4)[:, :count]


class Corruption(Protocol):
    """A way to turn instances into the batch that a model is trained on."""

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch of `instances`; all that is random comes from `draws`."""
        ...


@runtime_checkable
class WarningCorruption(Corruption, Protocol):
    """A corruption that can tell when its settings come to little."""

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List what a person should know before a run begins, seen on the first batches, which
        are made only as far as they are asked for."""
        ...


@runtime_checkable
class ReadsAround(Corruption, Protocol):
    """A corruption that wants the text beside its instances, as their ``context``.

    Attributes:
        memory_length: so many tokens of it at the most; 0: none.
    """

    memory_length: int

    def sides(self, count: int) -> Sequence[int]:
        """Tell of each of `count` instances on which side: -1 before it, 1 behind it."""
        ...


#: Makes a corruption for the sequences of a tokenizer: a class of them, or an objective's method.
MakeCorruption = Callable[["Tokenizer", InstanceSettings], Corruption]
