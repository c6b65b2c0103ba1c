"""Choosing and hiding the tokens that the masked language model has to guess."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertine.errors import BertineError

#: Where the column is kept in a sorting key.
_LOW_BITS = np.uint64((1 << 20) - 1)


@dataclass(frozen=True)
class MaskedTokens:
    """A batch with some of its tokens hidden.

    Attributes:
        input_ids: int64 [B, T], the batch with the chosen tokens replaced.
        positions: int64 [P], the chosen tokens as ascending indices into the flattened [B*T].
        labels: int64 [P], what was there.
    """

    input_ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def check_masking(
    masked_lm_prob: float,
    max_predictions_per_seq: int | None,
    mask_split: tuple[float, float, float],
) -> None:
    """Refuse rates that mean nothing.

    Raises:
        BertineError: a share is outside its range, or the split does not add up to 1.
    """
    if not 0.0 < masked_lm_prob < 1.0:
        raise BertineError(f"masked_lm_prob is {masked_lm_prob}, but must be between 0 and 1")
    if max_predictions_per_seq is not None and max_predictions_per_seq < 1:
        raise BertineError(
            f"max_predictions_per_seq is {max_predictions_per_seq}, but must be at least 1"
        )
    if len(mask_split) != 3 or min(mask_split) < 0 or abs(sum(mask_split) - 1) > 1e-6:
        raise BertineError(
            f"mask_split is {mask_split}, but must be three shares (masked, random, kept) that "
            "add up to 1"
        )


def mask_tokens(
    input_ids: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    choosable: npt.NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    mask_token_id: int,
    random_ids: npt.NDArray[np.int64],
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int | None = 20,
    mask_split: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> MaskedTokens:
    """Choose and replace tokens (Devlin et al. 2018, section 3.1, Task 1).

    As in the published code, a sequence of n tokens, [CLS] and [SEP] counted, has
    ``max(1, round(masked_lm_prob * n))`` of them chosen without replacement, but not more than
    `max_predictions_per_seq`, nor than can be chosen.

    Args:
        input_ids: [B, T], padded; not changed.
        lengths: [B], tokens of each sequence without padding.
        choosable: [B, T], True where a token may be chosen: no special token, no padding.
        rng: draws 3 numbers a token.
        mask_token_id: replaces a chosen token with probability ``mask_split[0]``.
        random_ids: [R], a uniform one of them replaces it with probability ``mask_split[1]``;
            else it is kept.
        masked_lm_prob: the share of tokens to choose.
        max_predictions_per_seq: the most chosen in a sequence; None for no limit.
        mask_split: masked, random, kept; adds up to 1.
    """
    wanted = np.maximum(1, np.rint(lengths * masked_lm_prob).astype(np.int64))
    if max_predictions_per_seq is not None:
        wanted = np.minimum(wanted, max_predictions_per_seq)
    num_columns = input_ids.shape[1]
    # Sorting random numbers with the column in their low bits gives each row's candidates in a
    # random order. No two keys are equal, so every machine sorts them alike.
    keys = rng.integers(1 << 63, size=input_ids.shape, dtype=np.uint64)
    keys = (keys & ~_LOW_BITS) | np.arange(num_columns, dtype=np.uint64)
    keys[~choosable] = ~np.uint64(0)
    wanted = np.minimum(wanted, choosable.sum(axis=1))
    keys.sort(axis=1)
    columns = (keys[:, : wanted.max(initial=0)] & _LOW_BITS).astype(np.int64)
    taken = np.arange(columns.shape[1]) < wanted[:, None]
    positions = np.sort((np.arange(len(input_ids))[:, None] * num_columns + columns)[taken])

    masked = input_ids.copy()
    flat = masked.reshape(-1)
    labels = flat[positions]
    action = rng.random(len(positions))
    others = random_ids[rng.integers(len(random_ids), size=len(positions))]
    hidden, swapped = mask_split[0], mask_split[0] + mask_split[1]
    flat[positions] = np.where(
        action < hidden, mask_token_id, np.where(action < swapped, others, labels)
    )
    return MaskedTokens(masked, positions, labels)
