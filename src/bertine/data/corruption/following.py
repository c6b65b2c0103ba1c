"""Batches for causal language modelling: nothing is hidden, and what follows each token is its
target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertine.data.batch import Batch
from bertine.data.corruption.base import Draws, idle_options
from bertine.data.corruption.padded import Padder
from bertine.data.instances.instance import Instance
from bertine.options.instances import InstanceSettings

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


class FollowingTokens:
    """The text as it is, and for each token but the last of its sequence the one behind it.

    Args:
        tokenizer: that of the instances.
        settings: say their format.
    """

    def __init__(self, tokenizer: Tokenizer, settings: InstanceSettings) -> None:
        self._padder = Padder(tokenizer, settings.input_format)
        self._idle = idle_options(settings)

    def warnings(self, samples: Iterable[tuple[Sequence[Instance], Draws]]) -> list[str]:
        """List the options that do nothing: those of masks."""
        return [
            f"{name}: does nothing with objective clm, which hides no tokens" for name in self._idle
        ]

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch; nothing in it is random.

        Its targets: ``clm_positions`` int64 [P], the places of the tokens that another one
        follows, and ``clm_labels`` int64 [P], the tokens that do.
        """
        padded = self._padder.pad(instances)
        followed = np.zeros_like(padded.real)
        followed[:, :-1] = padded.real[:, 1:]
        positions = np.flatnonzero(followed)
        return padded.batch(
            padded.input_ids,
            clm_positions=positions,
            clm_labels=padded.input_ids.reshape(-1)[positions + 1],
        )
