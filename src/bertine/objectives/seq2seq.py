"""Write a text after reading another: what pre-training and fine-tuning of an encoder-decoder have
in common.

A batch has the texts to write among its targets: ``target_ids`` int64 [B, T], padded on the right,
and ``target_mask`` bool [B, T], true at their tokens, special ones among them. The decoder reads
the start token and all of them but the last, and guesses each one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batch import Batch
from bertine.models.encoded import Encoded, TextInputs
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.objectives.base import Term


def count_targets(batch: Batch) -> int:
    """Count the tokens to write."""
    return int(batch.targets["target_mask"].sum())


def encode_and_decode(model: Model, batch: Batch) -> Encoded:
    """Run the encoder on the inputs of `batch` and the decoder on its targets."""
    ids, mask = _targets(batch)
    start = torch.full_like(ids[:, :1], _start_of(model))
    shifted = torch.cat([start, ids[:, :-1]], 1)
    return model.encode(batch, target=TextInputs(shifted, mask))


def written_term(
    model: Model, encoded: Encoded, batch: Batch, label_smoothing: float = 0.0
) -> Term:
    """Compute the cross-entropy of the texts to write.

    Args:
        encoded: what :func:`encode_and_decode` returned.
        label_smoothing: the share of each target that all words have together (Szegedy et al.
            2015, section 7).
    """
    ids, mask = _targets(batch)
    places = mask.flatten().nonzero()[:, 0]
    labels = ids.flatten().index_select(0, places)
    logits = model.read("lm", encoded, places=places)
    if not label_smoothing:
        total, correct = sum_cross_entropy(logits, labels)
        return Term(total, labels.numel(), correct)
    total = F.cross_entropy(
        logits.float(), labels, reduction="sum", label_smoothing=label_smoothing
    )
    return Term(total, labels.numel(), (logits.detach().argmax(-1) == labels).sum())


def _targets(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the ids to write and their mask. On the host, columns that are padding alone are left
    out: of a part of a batch the targets are as wide as those of the whole."""
    ids, mask = batch.targets["target_ids"], batch.targets["target_mask"]
    if mask.device.type == "cpu":
        width = int(mask.sum(1).max())
        ids, mask = ids[:, :width], mask[:, :width]
    return ids, mask


def _start_of(model: Model) -> int:
    """Return the token that the decoder of `model` begins with."""
    start: int = model.config.decoder_start_token_id  # type: ignore[attr-defined]
    return start
