"""The one Batch: what loaders make and models take, in pre-training and in fine-tuning.

Shape legend: B sequences in the batch, T tokens of the longest one (the rest is padding).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bertine.data.unpadded import Packing, packing


@dataclass
class Batch:
    """The inputs of a model, and what the objective or task compares the outputs with.

    Attributes:
        input_ids: int64 [B, T], padded on the right with the tokenizer's ``[PAD]`` id.
        attention_mask: bool [B, T], True where there is a real token.
        token_type_ids: int64 [B, T], 0 for segment A and padding, 1 for segment B.
        targets: what the loss needs, by name. Pre-training: ``mlm_positions`` int64 [P]
            (indices into the flattened [B*T] tokens), ``mlm_labels`` int64 [P], what another
            corruption says of these places, and those of other kinds, named alike;
            ``next_sentence_label`` int64 [B] (0 = next, 1 = random) or ``sentence_order_label``
            int64 [B] (0 = in order, 1 = swapped).
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
        """Return the batch on `device`."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def packed(self) -> Batch:
        """Return the batch with its `packing`, worked out from the mask on the host."""
        return dataclasses.replace(self, packing=packing(self.attention_mask))

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked memory: copies of it to a GPU are not waited for."""
        return self._mapped(Tensor.pin_memory)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        packing = self.packing
        return Batch(
            change(self.input_ids),
            change(self.attention_mask),
            change(self.token_type_ids),
            {name: change(value) for name, value in self.targets.items()},
            self.rows,
            packing and Packing(change(packing.real), change(packing.ends), packing.longest),
        )

    def tensors(self) -> list[Tensor]:
        """Return all tensors that it holds."""
        tensors = [self.input_ids, self.attention_mask, self.token_type_ids, *self.targets.values()]
        return tensors if self.packing is None else [*tensors, self.packing.real, self.packing.ends]
