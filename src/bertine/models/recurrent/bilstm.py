"""A BiLSTM over the states of a frozen model: the tagger of BERT's paper, section 5.3, which can
also read them again at its output, as ELMo's has it (Peters et al. 2018), and a classifier of
texts.

Shape legend: B sentences, W words of the longest, S states of a word (layers that are read), H
hidden size of the model, U units of both directions, K tags or outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bertine.models.recurrent.crf import LinearChainCrf
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

    def penalty(self) -> Tensor:
        """Compute the sum of the squared weights, before their softmax: the higher its factor in
        the loss, the nearer the layers stay to their mean (section 3.3)."""
        return self.weights.square().sum()


class BiLstmStates(nn.Module):
    """The states of a bidirectional LSTM of some layers over words.

    Args:
        hidden_size: H.
        num_states: S.
        concatenate: join the S states of a word; else their weighted sum.
        lstm_size: units of each direction; the paper of BERT says 768.
        lstm_layers: that paper says 2.
        dropout: on what goes into each layer and comes out of the last.
        mix_output: join another weighted sum of the S states to what comes out (ELMo's section
            5.2).
        mix_input: read their weighted sum; else the first of the S states alone, which are the
            words by themselves where all layers are read.

    Attributes:
        size: U + H with `mix_output`, else U.
    """

    def __init__(
        self,
        hidden_size: int,
        num_states: int,
        *,
        concatenate: bool = False,
        lstm_size: int = 768,
        lstm_layers: int = 2,
        dropout: float = 0.5,
        mix_output: bool = False,
        mix_input: bool = True,
    ) -> None:
        super().__init__()
        if concatenate and not mix_input:
            raise ValueError("states are joined, or the first of them is read alone, not both")
        without_mix = concatenate or num_states == 1 or not mix_input
        self.mix = None if without_mix else LayerMix(num_states)
        self._first_alone = not mix_input
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(
            hidden_size * (num_states if concatenate else 1),
            lstm_size,
            lstm_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if lstm_layers > 1 else 0.0,
        )
        self.output_mix = LayerMix(num_states) if mix_output else None
        self.size = 2 * lstm_size + (hidden_size if mix_output else 0)

    def read(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Read every word.

        Args:
            states: fp32 [B, W, S, H].
            lengths: int64 [B] on the CPU, words of each sentence, each at least 1.

        Returns:
            fp32 [B, W, `size`], after dropout; those at padding have no meaning.
        """
        read = states[:, :, :1] if self._first_alone else states
        x = read.flatten(2) if self.mix is None else self.mix(read)
        packed = pack_padded_sequence(
            self.dropout(x), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(run_lstm(self.lstm, packed), batch_first=True)
        if self.output_mix is not None:
            out = torch.cat([out.float(), self.output_mix(states)], -1)
        dropped: Tensor = self.dropout(out)
        return dropped

    def penalty(self) -> Tensor | None:
        """Compute the sum of the squared weights of the layers, at the input and at the output;
        None where nothing is summed."""
        mixes = [mix for mix in (self.mix, self.output_mix) if mix is not None]
        return torch.stack([mix.penalty() for mix in mixes]).sum() if mixes else None

    def layer_weights(self) -> dict[str, list[float]]:
        """Return the weights of the layers that were learned: softmax, then the factor, by where
        they are summed."""
        mixes = {"input": self.mix, "output": self.output_mix}
        return {
            name: [*mix.weights.softmax(0).tolist(), float(mix.factor.detach())]
            for name, mix in mixes.items()
            if mix is not None
        }


class BiLstmTagger(BiLstmStates):
    """A BiLSTM and a linear layer over words.

    Args:
        hidden_size: H.
        num_states: S.
        num_labels: K.
        crf: None; or the chain that the logits are scores of, whose most probable tags are then
            the answer.
        options: those of :class:`BiLstmStates`.
    """

    def __init__(
        self,
        hidden_size: int,
        num_states: int,
        num_labels: int,
        *,
        crf: LinearChainCrf | None = None,
        **options: Any,
    ) -> None:
        super().__init__(hidden_size, num_states, **options)
        self.out = nn.Linear(self.size, num_labels)
        self.crf = crf

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Score every word.

        Args:
            states: fp32 [B, W, S, H].
            lengths: int64 [B] on the CPU, words of each sentence, each at least 1.

        Returns:
            Logits [B, W, K]; those at padding have no meaning.
        """
        logits: Tensor = self.out(self.read(states, lengths))
        return logits


class BiLstmClassifier(BiLstmStates):
    """A BiLSTM over the words of a text, the maximum of each unit over the words, and a linear
    layer; of pairs u, v, |u - v| and u · v of both texts' vectors (Conneau et al. 2017, as in the
    baselines of GLUE, Wang et al. 2018).

    Args:
        hidden_size: H.
        num_states: S.
        num_outputs: K.
        width: texts of an example, 1 or 2.
        options: those of :class:`BiLstmStates`.
    """

    def __init__(
        self,
        hidden_size: int,
        num_states: int,
        num_outputs: int,
        *,
        width: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(hidden_size, num_states, **options)
        self.width = width
        self.out = nn.Linear(self.size * (1 if width == 1 else 4), num_outputs)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Score every example.

        Args:
            states: fp32 [B, W, S, H], the texts of an example side by side.
            lengths: int64 [B] on the CPU, words of each text, each at least 1.

        Returns:
            [B / width, K].
        """
        words = self.read(states, lengths)
        there = torch.arange(words.shape[1]) < lengths[:, None]
        vectors = words.masked_fill(~there[:, :, None].to(words.device), -torch.inf).amax(1)
        if self.width == 2:
            u, v = vectors[0::2], vectors[1::2]
            vectors = torch.cat([u, v, (u - v).abs(), u * v], -1)
        outputs: Tensor = self.out(vectors)
        return outputs
