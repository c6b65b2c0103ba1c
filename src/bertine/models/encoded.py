"""What goes into a backbone and what comes out of it.

Shape legend: B sequences, T tokens of the longest, H hidden size, P places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class PackedRows(Protocol):
    """Which rows a GPU computes, worked out on the host: :class:`bertine.data.unpadded.Packing`."""

    @property
    def real(self) -> Tensor: ...
    @property
    def ends(self) -> Tensor: ...
    @property
    def longest(self) -> int: ...


class Inputs(Protocol):
    """The part of a batch that a model reads: :class:`bertine.data.batch.Batch`."""

    @property
    def input_ids(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor | None: ...
    @property
    def token_type_ids(self) -> Tensor | None: ...
    @property
    def packing(self) -> PackedRows | None: ...


@dataclass
class TextInputs:
    """The inputs of a model without targets.

    Attributes:
        input_ids: int64 [B, T].
        attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
        token_type_ids: int64 [B, T]; None: all 0.
        packing: where the real tokens stand, for a GPU.
    """

    input_ids: Tensor
    attention_mask: Tensor | None = None
    token_type_ids: Tensor | None = None
    packing: PackedRows | None = None


class Encoded(Protocol):
    """The output of a backbone, under the names of transformers. A backbone for answers may
    compute the last layer only when it is asked for."""

    @property
    def last_hidden_state(self) -> Tensor:
        """[B, T, H]; what stands at padding has no meaning. T may be smaller than that of the
        inputs where columns are padding alone."""
        ...

    @property
    def pooler_output(self) -> Tensor | None:
        """[B, H], what the family pools for tasks over whole inputs; None without a pooler."""
        ...

    @property
    def hidden_states(self) -> tuple[Tensor, ...] | None:
        """The embedding output and that of each layer that is gone through
        (``config.passes``), one tensor more than those, [B, T, H]; None unless asked for."""
        ...

    @property
    def first_token(self) -> Tensor:
        """[B, H], the last state of each sequence's first token."""
        ...

    def rows(self, places: Tensor) -> Tensor:
        """Return the last states at `places`, int64 [P], indices among the B * T tokens of the
        inputs: [P, H]."""
        ...


@dataclass
class BackboneOutput:
    """The output of a backbone, all of it at hand; see :class:`Encoded`."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None

    @property
    def first_token(self) -> Tensor:
        return self.last_hidden_state[:, 0]

    def rows(self, places: Tensor) -> Tensor:
        return self.last_hidden_state.flatten(0, 1).index_select(0, places)


def last_tokens(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the states of the last real token of each sequence.

    Args:
        states: [B, T, H].
        mask: bool or 0/1 [B, T], true at real tokens; T may be larger than that of the states by
            columns of padding. None: there is no padding.

    Returns:
        [B, H].
    """
    if mask is None:
        return states[:, -1]
    length = states.shape[1]
    places = torch.arange(1, length + 1, device=states.device)
    last = (mask[:, :length].long() * places).argmax(1)
    return states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1]))[:, 0]


def with_types(inputs: Inputs) -> Tensor:
    """Return the token types of `inputs`; zeros where it has none."""
    types = inputs.token_type_ids
    return torch.zeros_like(inputs.input_ids) if types is None else types
