"""Recurrent layers in the place of attention, and above it: the LSTM that GPT-1 is compared with
(Radford et al. 2018, section 5: one layer of 2,048 units, everything else the same), and the BiLSTM
that BERT's paper puts on a model that reads from left to right (Devlin et al. 2018, section 5.1).

Shape legend: B sequences, T tokens of the longest, H hidden size, S units of a direction; N real
tokens, in the order in which they are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.models.causal.backbone import CausalBackbone
from bertine.models.dropout import StreamDropout
from bertine.models.encoded import PackedRows
from bertine.models.initial import init_weights, set_initial_std
from bertine.models.layers import EncoderLayer, RowLayout
from bertine.models.precision import autocast_dtype
from bertine.models.recurrent.lstm import recur

if TYPE_CHECKING:
    from bertine.models.causal.lstm_config import LstmConfig


@dataclass(frozen=True, kw_only=True)
class RecurrentLayout(RowLayout):
    """The places of the tokens, and the order in which recurrent layers read them.

    Attributes:
        forwards: int64 [N], indices among the B * T: the first tokens of all sequences, the longest
            first, then the second ones, and so on.
        backwards: the same from the last tokens on.
        sizes: how many are read in each step.
    """

    forwards: Tensor
    backwards: Tensor
    sizes: tuple[int, ...]


def reading_order(mask: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Compute in which order recurrent layers read the real tokens of mask, bool [B, T]; see
    :class:`RecurrentLayout`."""
    lengths = mask.sum(1)
    rank = torch.empty_like(lengths)
    rank[lengths.argsort(descending=True, stable=True)] = torch.arange(
        len(lengths), device=lengths.device
    )
    real = mask.flatten().nonzero()[:, 0]
    sequence = real // mask.shape[1]
    step = (mask.cumsum(1) - 1).flatten()[real]
    from_end = lengths[sequence] - 1 - step
    orders = [real[(at * len(lengths) + rank[sequence]).argsort()] for at in (step, from_end)]
    steps = torch.arange(mask.shape[1], device=mask.device)
    sizes = (lengths[None, :] > steps[:, None]).sum(1)
    return orders[0], orders[1], tuple(size for size in sizes.tolist() if size)


def full_reading_order(
    sequences: int, length: int, device: torch.device
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Compute :func:`reading_order` where all tokens are real, on any device, also on ``meta``,
    where no mask can be read."""
    places = torch.arange(sequences * length, device=device).view(sequences, length)
    return places.T.flatten(), places.flip(1).T.flatten(), (sequences,) * length


class LstmDirection(nn.Module):
    """An LSTM that reads in one direction. Its matrices are drawn as PyTorch does, of a deviation
    of 1 / sqrt(3 S)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.read = nn.Linear(width, 4 * size)
        self.state = nn.Linear(size, 4 * size)
        for matrix in (self.read, self.state):
            set_initial_std(matrix, (3 * size) ** -0.5)

    def forward(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """x [N, H] in the order of reading. Returns states fp32 [N, S]."""
        dtype = autocast_dtype(x.device.type) or x.dtype
        # A device without autocast has none to switch off ("meta", on which products are counted).
        known = torch.amp.is_autocast_available(x.device.type)
        with torch.autocast(x.device.type if known else "cpu", enabled=False):
            bias = (self.read.bias + self.state.bias).to(dtype)
            gates = F.linear(x.to(dtype), self.read.weight.to(dtype), bias)
            return recur(gates, self.state.weight.to(dtype), list(sizes))


class RecurrentLayer(nn.Module):
    """An LSTM in one direction or two, and a linear layer back to the width of the states.

    Args:
        width: H.
        size: S.
        directions: 1 or 2.
        dropout: on what comes out.
    """

    def __init__(self, width: int, size: int, directions: int, dropout: float) -> None:
        super().__init__()
        self.directions = nn.ModuleList(LstmDirection(width, size) for _ in range(directions))
        self.out = nn.Linear(directions * size, width)
        set_initial_std(self.out, (directions * size) ** -0.5)
        self.dropout = StreamDropout(dropout)

    def forward(self, x: Tensor, layout: RowLayout) -> Tensor:
        """x [rows, H]. Returns the same shape; padding has no meaning."""
        assert isinstance(layout, RecurrentLayout)
        places = layout.pad(x).flatten(0, 1)
        orders = (layout.forwards, layout.backwards)
        states = []
        for direction, order in zip(self.directions, orders, strict=False):
            read = direction(places.index_select(0, order), layout.sizes)
            empty = read.new_zeros(len(places), read.shape[1])
            states.append(empty.index_copy(0, order, read))
        out: Tensor = self.dropout(self.out(torch.cat(states, -1)))
        return layout.unpad(out.view(layout.sequences, layout.length, -1))


class RecurrentBackbone(CausalBackbone):
    """GPT-1's embeddings, its layers or LSTMs in their place, and BiLSTMs above them."""

    shows_attention = False
    config: LstmConfig

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config)
        width, dropout = config.hidden_size, config.hidden_dropout_prob
        layers: list[nn.Module] = [
            RecurrentLayer(width, config.lstm_size, 1, dropout)
            if config.lstm_size
            else EncoderLayer(config)
            for _ in range(config.num_hidden_layers)
        ]
        layers += [RecurrentLayer(width, width, 2, dropout) for _ in range(config.bilstm_layers)]
        self.layers = nn.ModuleList(layers)
        init_weights(self, config.initializer_range)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Refuse: LSTMs have no attention.

        Raises:
            BertineError: always.
        """
        raise BertineError(f"the attention of {self.config.title} cannot be shown")

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[Any, Sequence[Sequence[int]]]:
        """Refuse: it scores texts, but writes none.

        Raises:
            BertineError: always.
        """
        raise BertineError(f"{self.config.title} writes no texts")

    def _layout(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        packing: PackedRows | None,
        dtype: torch.dtype,
    ) -> RowLayout:
        causal = super()._layout(input_ids, attention_mask, packing, dtype)
        if attention_mask is None:
            sequences, length = input_ids.shape
            forwards, backwards, sizes = full_reading_order(sequences, length, input_ids.device)
        else:
            forwards, backwards, sizes = reading_order(attention_mask.bool())
        fields = {one.name: getattr(causal, one.name) for one in dataclasses.fields(RowLayout)}
        return RecurrentLayout(**fields, forwards=forwards, backwards=backwards, sizes=sizes)

    def _bias_traced(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        raise BertineError(
            f"{self.config.title} cannot be exported: its steps are as many as words"
        )
