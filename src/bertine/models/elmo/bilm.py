"""The two language models of ELMo, one reading forwards and one backwards, over the same characters
(Peters et al. 2018, section 3; published code: bilm-tf).

Shape legend: B sequences, T words of the longest, L LSTMs of a direction, S cells, P width of a
state, N words of all sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertine.models.elmo.config import ElmoConfig
from bertine.models.elmo.word_encoder import WordEncoder
from bertine.models.recurrent.projected import ProjectedLstm

#: The directions, by the names of their weights.
DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class LstmStates:
    """What the LSTMs of one direction remember of the words before.

    Attributes:
        states: fp32 [L, B, P].
        cells: fp32 [L, B, S].
    """

    states: Tensor
    cells: Tensor

    @classmethod
    def zero(cls, config: ElmoConfig, sequences: int, device: torch.device) -> LstmStates:
        """Return what is remembered before any word was read."""
        count = config.num_hidden_layers
        return cls(
            torch.zeros(count, sequences, config.projection_size, device=device),
            torch.zeros(count, sequences, config.lstm_size, device=device),
        )


class BidirectionalLm(nn.Module):
    """ELMo: an encoder of words, and LSTMs of two directions over them.

    Attributes:
        config: its sizes.
        words: characters → words.
        forward_layers, backward_layers: L LSTMs each.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.words = WordEncoder(config)
        self.forward_layers = self._layers()
        self.backward_layers = self._layers()

    def _layers(self) -> nn.ModuleList:
        config = self.config
        return nn.ModuleList(
            ProjectedLstm(
                config.projection_size,
                config.lstm_size,
                config.projection_size,
                cell_clip=config.cell_clip,
                projection_clip=config.projection_clip,
            )
            for _ in range(config.num_hidden_layers)
        )

    def read(
        self,
        direction: str,
        x: Tensor,
        sizes: Sequence[int],
        states: LstmStates,
        masks: Sequence[Tensor] | None = None,
    ) -> tuple[list[Tensor], LstmStates]:
        """Read words in one direction, in the order in which they are given.

        Args:
            direction: of :data:`DIRECTIONS`.
            x: [N, P], in the order of :class:`~bertine.models.recurrent.projected.ProjectedLstm`.
            sizes: sequences of each step.
            states: what they begin with; B is at least ``sizes[0]``.
            masks: in training, what each layer's input is multiplied with, L of [N, P].

        Returns:
            L outputs fp32 [N, P], and what the sequences end with.
        """
        layers = self.get_submodule(f"{direction}_layers")
        assert isinstance(layers, nn.ModuleList)
        outputs, hidden, cells = [], [], []
        for number, layer in enumerate(layers):
            if masks is not None:
                x = x * masks[number]
            out, (last, memory) = layer(x, sizes, (states.states[number], states.cells[number]))
            x = out + x if number and self.config.skip_connections else out
            outputs.append(x)
            hidden.append(last)
            cells.append(memory)
        return outputs, LstmStates(torch.stack(hidden), torch.stack(cells))

    def layers_of(
        self,
        ids: Tensor,
        lengths: Tensor,
        states: Sequence[LstmStates] | None = None,
    ) -> tuple[Tensor, list[LstmStates]]:
        """Compute the L + 1 layers of sentences that stand between their marks.

        Args:
            ids: int64 [B, T, C], of characters.
            lengths: int64 [B] on the CPU, words of each, its two marks among them; at least 1.
            states: of both directions, what the sentences before ended with; None: nothing.

        Returns:
            fp32 [B, T, L + 1, 2 P]: the word (twice), and the LSTMs of both directions; those at
            padding are 0. And what both directions end with, in the order of the sentences.
        """
        device, config = ids.device, self.config
        order = torch.argsort(lengths, descending=True, stable=True)
        sizes = _sizes(lengths)
        row, place = _packed(lengths, order, sizes)
        # A word is computed once, however often it is there.
        distinct, which = torch.unique(ids[row, place], dim=0, return_inverse=True)
        words = self.words(distinct).float()[which]
        result = ids.new_zeros(
            *ids.shape[:2], config.num_hidden_layers + 1, config.width, dtype=torch.float32
        )
        result[row, place, 0] = torch.cat([words, words], -1)
        ends: list[LstmStates] = []
        half = config.projection_size
        back = lengths[row] - 1 - place
        for number, direction in enumerate(DIRECTIONS):
            begin = (
                LstmStates.zero(config, len(lengths), device) if states is None else states[number]
            )
            sorted_begin = LstmStates(begin.states[:, order], begin.cells[:, order])
            at = place if number == 0 else back
            x = words if number == 0 else _rows_at(words, row, place, back, lengths, ids.shape[1])
            outputs, end = self.read(direction, x, sizes, sorted_begin)
            for layer, output in enumerate(outputs):
                result[row, at, layer + 1, number * half : (number + 1) * half] = output
            undo = torch.argsort(order)
            ends.append(LstmStates(end.states[:, undo], end.cells[:, undo]))
        return result, ends


def _sizes(lengths: Tensor) -> list[int]:
    """Return how many sequences have a first word, a second, …"""
    steps = torch.arange(int(lengths.max()))
    sizes: list[int] = (lengths[None, :] > steps[:, None]).sum(1).tolist()
    return sizes


def _packed(lengths: Tensor, order: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return of each word its sequence and its place, int64 [N], first words first."""
    row = torch.cat([order[:size] for size in sizes])
    place = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return row, place


def _rows_at(
    words: Tensor, row: Tensor, place: Tensor, back: Tensor, lengths: Tensor, longest: int
) -> Tensor:
    """Return words [N, P] in the order of reading from behind."""
    where = torch.zeros(len(lengths), longest, dtype=torch.int64)
    where[row, place] = torch.arange(len(row))
    return words[where[row, back].to(words.device)]
