"""Batches for replaced-token detection: tokens are hidden for the generator, and what it needs to
put others in their place goes with them (Clark et al. 2020, arXiv 2003.10555, section 2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from bertine.data.batch import Batch
from bertine.data.corruption.base import Draws
from bertine.data.corruption.masked import TokenMasking
from bertine.data.instances.instance import Instance


class TokenReplacing(TokenMasking):
    """The corruption of ELECTRA: tokens are hidden as for masked language modelling, no special
    ones among them (google-research/electra, ``get_candidates_mask``).

    One thing differs from the published code: there a token may be chosen twice, which makes the
    hidden ones fewer; here each is chosen once.
    """

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        """Make the batch.

        Its targets, besides those of masking: ``mlm_draws`` float64 [P] in [0, 1), by which the
        generator's token is drawn, anew at every step; ``rtd_positions`` int64 [N], all real
        tokens, and ``rtd_labels`` int64 [N], what stands there in the text.
        """
        batch = super().__call__(instances, draws)
        positions, labels = batch.targets["mlm_positions"], batch.targets["mlm_labels"]
        original = batch.input_ids.flatten().index_copy(0, positions, labels)
        real = batch.attention_mask.flatten().nonzero()[:, 0]
        numbers = draws.of_batch("generator samples").random(len(positions))
        added = {
            "mlm_draws": torch.from_numpy(numbers),
            "rtd_positions": real,
            "rtd_labels": original[real],
        }
        return dataclasses.replace(batch, targets=batch.targets | added)
