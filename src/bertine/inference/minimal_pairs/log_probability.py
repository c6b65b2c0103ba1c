"""How probable a language model finds a sentence.

Shape legend: B sequences, T tokens of the longest, P places that are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.cores.short_waits import adapt_waiting
from bertine.data.batching import token_budget_batches
from bertine.data.instances.formats import FORMATS
from bertine.errors import BertineError
from bertine.inference.compute.running import batch_tokens, device_of, evaluating
from bertine.interop.family import family_of
from bertine.modeldir import LoadedModel
from bertine.models.encoded import TextInputs
from bertine.models.model import Model
from bertine.models.precision import autocast
from bertine.text.template import Frame

#: Texts whose sequences are made at a time, and logits that are computed at once (64 MB in fp32).
_TEXTS, _LOGITS = 1024, 1 << 24
#: What stands before a sentence where nothing marks the beginning of running text.
_END_OF_SENTENCE = "."


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


class _PieceProbability:
    """Sums over the pieces of a text."""

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype) -> None:
        self.model, self.tokenizer, self.dtype = loaded.model, loaded.tokenizer, dtype
        self._pieces = self._unknown = 0

    def notes(self) -> list[str]:
        if not self._unknown:
            return []
        return [f"{self._unknown:,} of {self._pieces:,} pieces are unknown to the vocabulary"]

    def _encoded(self, texts: Sequence[str], frame: Frame) -> list[list[int]]:
        """Return the ids of each text's pieces, which fit into `frame`."""
        longest, unk = self.model.config.longest_input, self.tokenizer.unk_token_id
        encoded = self.tokenizer.encode_plain(texts)
        for text, ids in zip(texts, encoded, strict=True):
            if not ids:
                raise BertineError(f"{text!r}: has no piece of the vocabulary to score")
            if len(ids) + frame.added() > longest:
                raise BertineError(
                    f"{text[:60]!r}: has {len(ids)} pieces, but the model takes "
                    f"{longest - frame.added()}; shorten it"
                )
            self._pieces += len(ids)
            self._unknown += 0 if unk is None else ids.count(unk)
        return encoded


class ForwardProbability(_PieceProbability):
    """The log-probability of a sentence from left to right, for a model that guesses the next
    token: the sum over its pieces, each after those before it.

    Before it stands what the model's running text begins with; where that is nothing (GPT-1) a full
    stop, behind which sentences begin there, so that the first piece counts too.
    """

    title = "log-probability, each piece after those before it"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, dtype)
        form = FORMATS[family_of(loaded.config.model_type).input_format]
        before = () if form.bare else self.tokenizer.template.running.before
        before = before or tuple(self.tokenizer.encode_plain([_END_OF_SENTENCE])[0])
        self._frame = Frame(before, (), ())

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        model, begins = self.model, len(self._frame.before)
        totals = np.zeros(len(texts))
        device = device_of(model)
        with evaluating(model), autocast(self.dtype, device):
            for first, part in _parts(texts):
                rows = [self._frame.join([ids]) for ids in self._encoded(part, self._frame)]
                for batch in _batches([len(row) for row in rows], device):
                    sequences = [rows[at] for at in batch]
                    # The last token says nothing of what is scored.
                    places = [range(begins - 1, len(ids) - 1) for ids in sequences]
                    targets = [ids[begins:] for ids in sequences]
                    values = _log_probabilities(model, "lm", sequences, places, targets)
                    for at, value in zip(batch, values, strict=True):
                        totals[first + at] = value.sum()
                    if on_batch is not None:
                        on_batch(len(batch))
        return totals


class PseudoLikelihood(_PieceProbability):
    """The pseudo-log-likelihood of a sentence, for a model that guesses hidden tokens: each piece
    is masked in turn, and the logarithms of the probabilities of what was there are added (Salazar
    et al. 2020, equation 1). Special tokens are not scored.

    Raises:
        BertineError: the vocabulary has no mask.
    """

    title = "pseudo-log-likelihood, each piece masked in turn"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, dtype)
        self._frame = self.tokenizer.template.one
        self._mask = self.tokenizer.require_mask("the pseudo-log-likelihood")

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        model, begins = self.model, len(self._frame.before)
        totals = np.zeros(len(texts))
        device = device_of(model)
        with evaluating(model), autocast(self.dtype, device):
            for first, part in _parts(texts):
                encoded = self._encoded(part, self._frame)
                rows = [self._frame.join([ids]) for ids in encoded]
                hidden = [
                    (at, place) for at, ids in enumerate(encoded) for place in range(len(ids))
                ]
                for batch in _batches([len(rows[at]) for at, _ in hidden], device):
                    sequences, places, targets = [], [], []
                    for at, place in (hidden[number] for number in batch):
                        ids = list(rows[at])
                        targets.append([ids[begins + place]])
                        ids[begins + place] = self._mask
                        sequences.append(ids)
                        places.append([begins + place])
                    segments = [
                        self._frame.segments([len(ids) - self._frame.added()]) for ids in sequences
                    ]
                    values = _log_probabilities(model, "mlm", sequences, places, targets, segments)
                    for number, value in zip(batch, values, strict=True):
                        totals[first + hidden[number][0]] += value.sum()
                if on_batch is not None:
                    on_batch(len(part))
        return totals


def _parts(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield some texts at a time, with the number of the first."""
    for first in range(0, len(texts), _TEXTS):
        yield first, texts[first : first + _TEXTS]


def _batches(lengths: Sequence[int], device: torch.device) -> Iterator[list[int]]:
    for batch in token_budget_batches(lengths, batch_tokens(device, None)):
        adapt_waiting()
        yield batch


def _log_probabilities(
    model: Model,
    head: str,
    sequences: Sequence[Sequence[int]],
    places: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    segments: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Return the log-probabilities of `targets` at `places` of each of B sequences, fp64 arrays.

    Args:
        head: gives logits at places.
        segments: of each sequence's tokens; None: 0.
    """
    device, longest = device_of(model), max(map(len, sequences))
    pad = model.config.pad_token_id
    ids = torch.full((len(sequences), longest), pad, dtype=torch.int64)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    types = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = True
        if segments is not None:
            types[row, : len(sequence)] = torch.from_numpy(segments[row].astype(np.int64))
    inputs = TextInputs(ids.to(device), mask.to(device), types.to(device))
    encoded = model.encode(inputs)
    at = torch.tensor([row * longest + p for row, own in enumerate(places) for p in own])
    wanted = torch.tensor([target for own in targets for target in own])
    size = max(1, _LOGITS // model.config.vocab_size)
    losses: list[Tensor] = []
    for here, right in zip(at.to(device).split(size), wanted.to(device).split(size), strict=True):
        logits = model.read(head, encoded, places=here)
        losses.append(F.cross_entropy(logits.float(), right, reduction="none"))
    values = -torch.cat(losses).double().cpu().numpy()
    return np.split(values, np.cumsum([len(own) for own in places])[:-1])
