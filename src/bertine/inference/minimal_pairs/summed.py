"""Scores of sentences that are sums over their pieces.

Shape legend: B sequences, T tokens of the longest, N texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.cores.short_waits import adapt_waiting
from bertine.data.batching import token_budget_batches
from bertine.errors import BertineError
from bertine.inference.compute.engine import Engine
from bertine.inference.compute.running import batch_tokens, device_of, evaluating
from bertine.modeldir import LoadedModel
from bertine.models.encoded import Encoded, TextInputs
from bertine.models.precision import autocast, finite
from bertine.text.template import Frame

#: Texts whose sequences are made at a time, and logits that are computed at once (64 MB in fp32).
_TEXTS, _LOGITS = 1024, 1 << 24


class LogProbability(Protocol):
    """A way to tell how probable a sentence is.

    Attributes:
        title: what is computed, for people.
    """

    title: str

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return the natural logarithm for each text, fp64 [N].

        Args:
            texts: N of them.
            on_batch: called with the number of texts that are done.

        Raises:
            BertineError: a text has no piece, or more than the model takes.
        """
        ...

    def notes(self) -> list[str]:
        """Return what a person should know of the texts that were scored."""
        ...


@dataclass(frozen=True)
class ScoredSequence:
    """A sequence that is computed, and what of it counts.

    Attributes:
        ids: what the model reads; of an encoder and a decoder, what the decoder is to write.
        places: of the tokens whose states are asked.
        targets: the id that is scored at each of them.
        segments: int8, one a token; None: 0.
        read: what an encoder reads before; None: there is none, or the same.
    """

    ids: Sequence[int]
    places: Sequence[int]
    targets: Sequence[int]
    segments: np.ndarray | None = None
    read: Sequence[int] | None = None


class PieceSum:
    """Adds up scores of the pieces of a text, out of one sequence or of several.

    Args:
        loaded: the model, with the head of :attr:`head`.
        frame: what stands around a text.
        dtype: to compute in.
    """

    title: str
    #: The head that gives logits at places.
    head: ClassVar[str]

    def __init__(self, loaded: LoadedModel, frame: Frame, dtype: torch.dtype) -> None:
        self.model, self.tokenizer, self.dtype = loaded.model, loaded.tokenizer, dtype
        self.frame = frame
        #: What computes the states: the model, or its layers packed for a CPU.
        self.encoder = loaded.model
        self._pieces = self._unknown = 0

    def count(self, ids: Sequence[int]) -> int:
        """Count the sequences that a text of these pieces takes."""
        return 1

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        """Make one of the sequences of a text of these pieces."""
        raise NotImplementedError

    def encode(self, sequences: Sequence[ScoredSequence]) -> tuple[Encoded, Tensor]:
        """Compute the states of B sequences.

        Returns:
            The states, and where those of all places are among them, int64 [P].
        """
        encoded = self.encoder.encode(self.padded([one.ids for one in sequences], sequences))
        return encoded, places_of(sequences)

    def notes(self) -> list[str]:
        """Return what a person should know of the texts that were scored."""
        if not self._unknown:
            return []
        return [f"{self._unknown:,} of {self._pieces:,} pieces are unknown to the vocabulary"]

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Score texts; see :class:`LogProbability`."""
        totals = np.zeros(len(texts))
        device = device_of(self.model)
        with evaluating(self.model), autocast(self.dtype, device):
            for first in range(0, len(texts), _TEXTS):
                encoded = self._encoded(texts[first : first + _TEXTS])
                left = [self.count(ids) for ids in encoded]
                asked = [(at, number) for at, most in enumerate(left) for number in range(most)]
                lengths = [len(encoded[at]) + self.frame.added() for at, _ in asked]
                for batch in _batches(lengths, device):
                    chosen = [asked[index] for index in batch]
                    sequences = [self.sequence(encoded[at], number) for at, number in chosen]
                    values = self._values(sequences)
                    done = 0
                    for (at, _), value in zip(chosen, values, strict=True):
                        totals[first + at] += value.sum()
                        left[at] -= 1
                        done += not left[at]
                    if on_batch is not None:
                        on_batch(done)
        return totals

    def pack(self) -> None:
        """Pack the layers on a CPU: the same scores within rounding, in less time."""
        if device_of(self.model).type != "cpu":
            return
        precision = "bf16" if self.dtype == torch.bfloat16 else "fp32"
        self.encoder = Engine(
            self.model,
            precision=precision,
            threads=torch.get_num_threads(),
            max_tokens=batch_tokens(device_of(self.model), None),
        ).model

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return what counts against each of P targets, fp32 [P], by logits [P, V]."""
        return F.cross_entropy(logits.float(), targets, reduction="none")

    def read(self, encoded: Encoded, places: Tensor) -> Tensor:
        """Return the logits at `places`, int64 [P], indices among the B * T tokens."""
        return self.model.read(self.head, encoded, places=places)

    def padded(
        self, rows: Sequence[Sequence[int]], sequences: Sequence[ScoredSequence]
    ) -> TextInputs:
        """Lay ids out side by side, padded on the right, with the segments of `sequences`."""
        device, longest = device_of(self.model), max(map(len, rows))
        ids = torch.full((len(rows), longest), self.model.config.pad_token_id, dtype=torch.int64)
        mask = torch.zeros(ids.shape, dtype=torch.bool)
        types = torch.zeros_like(ids)
        for at, (row, sequence) in enumerate(zip(rows, sequences, strict=True)):
            ids[at, : len(row)] = torch.tensor(row)
            mask[at, : len(row)] = True
            if sequence.segments is not None:
                segments = sequence.segments.astype(np.int64)
                types[at, : len(row)] = torch.from_numpy(segments)
        return TextInputs(ids.to(device), mask.to(device), types.to(device))

    def _values(self, sequences: Sequence[ScoredSequence]) -> list[np.ndarray]:
        """Return the scores of the targets of each of B sequences, fp64 arrays."""
        device = device_of(self.model)
        encoded, at = self.encode(sequences)
        wanted = torch.tensor([target for one in sequences for target in one.targets])
        size = max(1, _LOGITS // self.model.config.vocab_size)
        losses = [
            self.losses(self.read(encoded, here), right)
            for here, right in zip(
                at.to(device).split(size), wanted.to(device).split(size), strict=True
            )
        ]
        values = -finite(torch.cat(losses)).double().cpu().numpy()
        return np.split(values, np.cumsum([len(one.places) for one in sequences])[:-1])

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's pieces, which fit into the frame."""
        longest, unk = self.model.config.longest_input, self.tokenizer.unk_token_id
        encoded = self.tokenizer.encode_plain(texts)
        for text, ids in zip(texts, encoded, strict=True):
            if not ids:
                raise BertineError(f"{text!r}: has no piece of the vocabulary to score")
            if len(ids) + self.frame.added() > longest:
                raise BertineError(
                    f"{text[:60]!r}: has {len(ids)} pieces, but the model takes "
                    f"{longest - self.frame.added()}; shorten it"
                )
            self._pieces += len(ids)
            self._unknown += 0 if unk is None else ids.count(unk)
        return encoded


def places_of(sequences: Sequence[ScoredSequence]) -> Tensor:
    """Return the places that are asked, int64 [P], as indices among the B * T tokens."""
    longest = max(len(one.ids) for one in sequences)
    return torch.tensor(
        [row * longest + place for row, one in enumerate(sequences) for place in one.places]
    )


def _batches(lengths: Sequence[int], device: torch.device) -> Iterator[list[int]]:
    for batch in token_budget_batches(lengths, batch_tokens(device, None)):
        adapt_waiting()
        yield batch
