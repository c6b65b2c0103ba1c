"""A BiLSTM over the states of a frozen encoder: the tagger of the paper's section 5.3.

Shape legend: B sentences, W words of the longest, S states of a word (layers that are read), H
hidden size of the encoder, K tags.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bertine.models.recurrent.lstm import run_lstm


class LayerMix(nn.Module):
    """S states of a word → one: their sum, weighted by a learned softmax and a learned factor
    (Peters et al. 2018, equation 1; the paper says "weighted sum" and no more)."""

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_states))
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, states: Tensor) -> Tensor:
        """states fp32 [B, W, S, H]. Returns fp32 [B, W, H]."""
        # bf16 could not tell weights apart that differ by less than a hundredth.
        with torch.autocast(states.device.type, enabled=False):
            return self.factor * torch.einsum("bwsh,s->bwh", states, self.weights.softmax(0))


class BiLstmTagger(nn.Module):
    """Two layers of a bidirectional LSTM and a linear layer, over words.

    Args:
        hidden_size: H.
        num_states: S.
        concatenate: join the S states of a word; else their weighted sum.
        num_labels: K.
        lstm_size: units of each direction; the paper says 768.
        lstm_layers: the paper says 2.
        dropout: on what goes into each layer and comes out of the last.
    """

    def __init__(
        self,
        hidden_size: int,
        num_states: int,
        num_labels: int,
        *,
        concatenate: bool = False,
        lstm_size: int = 768,
        lstm_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.mix = None if concatenate or num_states == 1 else LayerMix(num_states)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(
            hidden_size * (num_states if concatenate else 1),
            lstm_size,
            lstm_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if lstm_layers > 1 else 0.0,
        )
        self.out = nn.Linear(2 * lstm_size, num_labels)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Score every word.

        Args:
            states: fp32 [B, W, S, H].
            lengths: int64 [B] on the CPU, words of each sentence, each at least 1.

        Returns:
            Logits [B, W, K]; those at padding have no meaning.
        """
        x = states.flatten(2) if self.mix is None else self.mix(states)
        packed = pack_padded_sequence(
            self.dropout(x), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(run_lstm(self.lstm, packed), batch_first=True)
        logits: Tensor = self.out(self.dropout(states))
        return logits
