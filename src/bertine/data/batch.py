"""The one Batch: what loaders make and models take, in pre-training and in fine-tuning.

Shape legend: B sequences in the batch, T tokens of the longest one (the rest is padding).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bertine.data.unpadded import Packing, packing


@dataclass
class Batch:
    """Model inputs, and what the objective or task compares the outputs with.

    Attributes:
        input_ids: int64 [B, T], padded on the right with the tokenizer's ``[PAD]`` id.
        attention_mask: bool [B, T], True where there is a real token.
        token_type_ids: int64 [B, T], 0 for segment A and padding, 1 for segment B.
        targets: what the loss needs, by name. Pre-training: ``mlm_positions`` int64 [P]
            (indices into the flattened [B*T] tokens), ``mlm_labels`` int64 [P], or those of
            another corruption, named alike;
            ``next_sentence_label`` int64 [B] (0 = next, 1 = random).
            Classification: ``labels`` int64 [B]. Multiple choice: ``groups`` int64 [B], the
            number of the example that a sequence is a choice of (:mod:`bertine.data.split`).
        rows: for each sequence, the index of its example in the data set; empty in pre-training.
        packing: where the real tokens stand, for a GPU; None: not asked for (:meth:`packed`).
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    targets: dict[str, Tensor] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    packing: Packing | None = None

    @property
    def num_sequences(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_tokens(self) -> int:
        """Real tokens, padding not counted."""
        return int(self.attention_mask.sum())

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`."""
        return Batch(
            self.input_ids.to(device, non_blocking=True),
            self.attention_mask.to(device, non_blocking=True),
            self.token_type_ids.to(device, non_blocking=True),
            {k: v.to(device, non_blocking=True) for k, v in self.targets.items()},
            self.rows,
            None if self.packing is None else self.packing.to(device),
        )

    def packed(self) -> Batch:
        """The same batch with its `packing`, told from the mask; on the host."""
        return dataclasses.replace(self, packing=packing(self.attention_mask))

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory: copies of it to a GPU are not waited for."""
        return Batch(
            self.input_ids.pin_memory(),
            self.attention_mask.pin_memory(),
            self.token_type_ids.pin_memory(),
            {k: v.pin_memory() for k, v in self.targets.items()},
            self.rows,
            None if self.packing is None else self.packing.pin_memory(),
        )

    def tensors(self) -> list[Tensor]:
        """All that it holds."""
        found = [self.input_ids, self.attention_mask, self.token_type_ids, *self.targets.values()]
        return found if self.packing is None else [*found, self.packing.real, self.packing.ends]
