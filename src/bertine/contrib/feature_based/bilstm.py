"""Put a BiLSTM on the states of a frozen model, to tag words or to classify texts.

The tagger is that of BERT's paper, section 5.3; it can also read the states again at its output,
like ELMo's, and score with a CRF (Peters et al. 2018).

Shape legend: B sentences, W words of the longest, S states of a word (layers that are read), H
hidden size of the model, U units of both directions, K tags or outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bertine.models.recurrent import run_lstm

# CRF: a linear-chain conditional random field over the tags of a sentence (Lafferty et al. 2001;
# over a BiLSTM Huang et al. 2015, as in ELMo's tagger of entities): a score for each tag of each
# word, one for each pair of adjacent tags, one for each tag at either end.
#
# Shape legend: B sentences, W words of the longest, K tags.


class LinearChainCrf(nn.Module):
    """The scores of adjacent tags.

    Training uses no rules of tags, but the answer obeys them (as published: Peters et al. 2018,
    appendix, "ensuring that the output tag sequence is valid").

    Args:
        allowed: bool [K, K], which tag may follow which in an answer (row: the first of the two).
        first: bool [K], which tag may come first.

    Attributes:
        transitions: [K, K], from the first tag (row) to the second.
        begins, ends: [K].
    """

    allowed: Tensor
    first: Tensor

    def __init__(self, allowed: Tensor, first: Tensor) -> None:
        super().__init__()
        count = len(first)
        self.transitions = nn.Parameter(torch.zeros(count, count))
        self.begins = nn.Parameter(torch.zeros(count))
        self.ends = nn.Parameter(torch.zeros(count))
        self.register_buffer("allowed", allowed, persistent=False)
        self.register_buffer("first", first, persistent=False)

    def log_partition(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Compute the logarithm of the sum of exp(score) over all sequences of tags.

        Args:
            scores: fp32 [B, W, K].
            lengths: int64 [B], each at least 1.

        Returns:
            fp32 [B].
        """
        state = self.begins + scores[:, 0]
        for place in range(1, scores.shape[1]):
            after = torch.logsumexp(state[:, :, None] + self.transitions, 1) + scores[:, place]
            state = torch.where((place < lengths)[:, None], after, state)
        return torch.logsumexp(state + self.ends, 1)

    def score(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Compute the score of one tag sequence of each sentence.

        Args:
            scores: fp32 [B, W, K].
            tags: int64 [B, W], any at padding.
            lengths: int64 [B].

        Returns:
            fp32 [B].
        """
        places = torch.arange(scores.shape[1], device=scores.device)
        there = places < lengths[:, None]
        own = scores.gather(2, tags[:, :, None]).squeeze(2)
        steps = self.transitions[tags[:, :-1], tags[:, 1:]]
        last = tags.gather(1, lengths[:, None] - 1).squeeze(1)
        return (
            self.begins[tags[:, 0]]
            + torch.where(there, own, 0.0).sum(1)
            + torch.where(there[:, 1:], steps, 0.0).sum(1)
            + self.ends[last]
        )

    def losses(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Compute the negative log-probability of each sentence's tags, fp32 [B]; the arguments are
        those of :meth:`score`."""
        return self.log_partition(scores, lengths) - self.score(scores, tags, lengths)

    @torch.no_grad()
    def best(self, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        """Find the most probable allowed tags of each sentence (Viterbi); ties go to the lower
        number.

        Args:
            scores: fp32 [B, W, K].
            lengths: int64 [B], each at least 1.
        """
        steps = self.transitions.masked_fill(~self.allowed, -torch.inf)
        state = (self.begins + scores[:, 0]).masked_fill(~self.first, -torch.inf)
        came_from = []
        for place in range(1, scores.shape[1]):
            best, before = (state[:, :, None] + steps).max(1)
            state = torch.where((place < lengths)[:, None], best + scores[:, place], state)
            came_from.append(before)
        tags = (state + self.ends).argmax(1).tolist()
        table = torch.stack(came_from, 1).tolist() if came_from else [[]] * len(tags)
        answers = []
        for row, (tag, length) in enumerate(zip(tags, lengths.tolist(), strict=True)):
            path = [tag]
            for place in range(length - 2, -1, -1):
                path.append(table[row][place][path[-1]])
            answers.append(path[::-1])
        return answers


# BiLSTM: over the states of words, with a layer for the scores of tags or of classes.


class LayerMix(nn.Module):
    """The S states of a word → one: their sum, weighted by a learned softmax and a learned factor
    (Peters et al. 2018, equation 1; BERT's paper only says "weighted sum")."""

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_states))
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, states: Tensor) -> Tensor:
        """Map states fp32 [B, W, S, H] to fp32 [B, W, H]."""
        # In bf16, weights that differ by less than a hundredth would be equal.
        with torch.autocast(states.device.type, enabled=False):
            return self.factor * torch.einsum("bwsh,s->bwh", states, self.weights.softmax(0))

    def penalty(self) -> Tensor:
        """Compute the sum of the squared weights, before their softmax: the higher its factor in
        the loss, the nearer the layers stay to their mean (section 3.3)."""
        return self.weights.square().sum()


class BiLstmStates(nn.Module):
    """The states of a bidirectional LSTM with one or more layers over words.

    Args:
        hidden_size: H.
        num_states: S.
        concatenate: concatenate the S states of a word; else use their weighted sum.
        lstm_size: units of each direction; BERT's paper says 768.
        lstm_layers: BERT's paper says 2.
        dropout: on the input of each layer and on the output of the last.
        mix_output: concatenate another weighted sum of the S states to the output (section 5.2 of
            ELMo's paper).
        mix_input: read the weighted sum of the states; else only the first of the S states, which
            are the word embeddings where all layers are read.

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
        None if no layers are mixed."""
        mixes = [mix for mix in (self.mix, self.output_mix) if mix is not None]
        return torch.stack([mix.penalty() for mix in mixes]).sum() if mixes else None

    def layer_weights(self) -> dict[str, list[float]]:
        """Return the learned weights of the layers: softmax, then the factor, by the place where
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
        crf: a chain whose most probable tags are the answer, with the logits as its scores; None:
            each tag alone.
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
    layer; for pairs u, v it reads also |u - v| and u · v of both texts' vectors (Conneau et al.
    2017, as in the baselines of GLUE, Wang et al. 2018).

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
            states: fp32 [B, W, S, H], the texts of an example in adjacent rows.
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
