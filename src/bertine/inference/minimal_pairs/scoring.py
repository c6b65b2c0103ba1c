"""Compute how probable a language model finds a sentence, by the objective of its pre-training.

Shape legend: P places that are scored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.names import MaskedPieces
from bertine.core.spin_count import adapt_spin_count
from bertine.corpora.batch import token_budget_batches
from bertine.families.bart_layers import BartBackbone
from bertine.families.xlnet_layers import GuessedPlaces, XlnetBackbone, hidden_by_order
from bertine.hub.model_directory import LoadedModel
from bertine.inference.compute import Engine, batch_tokens, device_of, evaluating
from bertine.inference.generate import sequence_start
from bertine.models.encoder import Encoded, TextInputs
from bertine.models.precision import autocast, finite, rates_for, resolve_precision
from bertine.tokenization.base import Frame

# Sums over pieces: the common part of the scores.
#
# Shape legend: B sequences, T tokens of the longest, N texts.

#: Texts whose sequences are made at a time, and logits that are computed at once (64 MB in fp32).
_TEXTS, _LOGITS = 1024, 1 << 24


class LogProbability(Protocol):
    """A function that scores how probable sentences are.

    Attributes:
        title: the name of the score, for people.
    """

    title: str

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute the natural logarithm for each text, fp64 [N].

        Args:
            texts: N of them.
            on_batch: called with the number of finished texts.

        Raises:
            BertineError: a text has no piece, or too many for the model.
        """
        ...

    def notes(self) -> list[str]:
        """Return notes on the texts that were scored."""
        ...


def resolved_dtype(precision: str, model: nn.Module) -> torch.dtype:
    """Return the type to compute `model` in on its device; print the choice where it was
    measured."""
    rates = rates_for(precision, model)
    if rates is not None:
        logger.info(rates.line())
    return resolve_precision(precision, next(model.parameters()).device, rates)


@dataclass(frozen=True)
class ScoredSequence:
    """A sequence to compute, with the places that are scored.

    Attributes:
        ids: the input of the model; with an encoder and a decoder, the output of the decoder.
        places: the places of the tokens whose states are needed.
        targets: the id that is scored at each place.
        segments: int8, one a token; None: 0.
        read: the input of the encoder; None: there is no encoder, or its input is `ids`.
    """

    ids: Sequence[int]
    places: Sequence[int]
    targets: Sequence[int]
    segments: np.ndarray | None = None
    read: Sequence[int] | None = None


class PieceSum:
    """The sum of the scores of a text's pieces, from one or several sequences.

    Args:
        loaded: the model, with the head of :attr:`head`.
        dtype: the type to compute in.
        frame: the special tokens around a text; None: those of the model's tokenizer.
    """

    title: str
    #: The head that computes logits at places.
    head: ClassVar[str]

    def __init__(
        self,
        loaded: LoadedModel,
        dtype: torch.dtype = torch.float32,
        frame: Frame | None = None,
    ) -> None:
        self.model, self.tokenizer, self.dtype = loaded.model, loaded.tokenizer, dtype
        self.frame = loaded.tokenizer.template.one if frame is None else frame
        #: The module that computes states: the model, or its layers packed for a CPU.
        self.encoder = loaded.model
        self._pieces = self._unknown = 0

    def count(self, ids: Sequence[int]) -> int:
        """Count the sequences for a text of these pieces."""
        return 1

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        """Build one of the sequences for a text of these pieces."""
        raise NotImplementedError

    def encode(self, sequences: Sequence[ScoredSequence]) -> tuple[Encoded, Tensor]:
        """Compute the states of B sequences.

        Returns:
            The states, and the indices of all places among them, int64 [P].
        """
        encoded = self.encoder.encode(self.padded([one.ids for one in sequences], sequences))
        return encoded, places_of(sequences)

    def notes(self) -> list[str]:
        """Return notes on the texts that were scored."""
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
        """Compute the loss of each of P targets, fp32 [P], from logits [P, V]."""
        return F.cross_entropy(logits.float(), targets, reduction="none")

    def read(self, encoded: Encoded, places: Tensor) -> Tensor:
        """Return the logits at `places`, int64 [P], indices among the B * T tokens."""
        return self.model.read(self.head, encoded, places=places)

    def padded(
        self, rows: Sequence[Sequence[int]], sequences: Sequence[ScoredSequence]
    ) -> TextInputs:
        """Arrange ids as rows, padded on the right, with the segments of `sequences`."""
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
        """Compute the scores of the targets of each of B sequences, fp64 arrays."""
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
    """Return the places that are scored, int64 [P], as indices among the B * T tokens."""
    longest = max(len(one.ids) for one in sequences)
    return torch.tensor(
        [row * longest + place for row, one in enumerate(sequences) for place in one.places]
    )


def _batches(lengths: Sequence[int], device: torch.device) -> Iterator[list[int]]:
    for batch in token_budget_batches(lengths, batch_tokens(device, None)):
        adapt_spin_count()
        yield batch


#: The text before a sentence where nothing marks the beginning of running text.
_END_OF_SENTENCE = "."


class ForwardProbability(PieceSum):
    """The log-probability of a sentence from left to right, for a model that predicts the next
    token: the sum over its pieces, each given those before it.

    The sentence follows the tokens with which the sequences in training began, or where these are
    not known, those of its kind; where there are none (GPT-1) a full stop, after which sentences
    begin there, so that the first piece counts too.
    """

    title = "log-probability, each piece after those before it"
    head = "lm"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        before = sequence_start(loaded)
        before = before or tuple(loaded.tokenizer.encode_plain([_END_OF_SENTENCE])[0])
        super().__init__(loaded, dtype, Frame(before, (), ()))

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        row, begins = self.frame.join([ids]), len(self.frame.before)
        # The last token predicts nothing that is scored.
        return ScoredSequence(row, range(begins - 1, len(row) - 1), ids)


class PseudoLikelihood(PieceSum):
    """The pseudo-log-likelihood of a sentence, for a model that predicts masked tokens: each piece
    is masked in turn, and the log-probabilities of the true pieces are added (Salazar et al. 2020,
    equation 1). Special tokens are not scored.

    The first pieces of a long word are easy to predict from those after them, so that rare words
    look probable. With `masked_pieces` ``"rest-of-word"`` the later pieces of the same word are
    masked with a piece, so that a word is predicted from its beginning (Kauf and Ivanova 2023, "A
    Better Way to Do Masked Language Model Scoring", PLL-word-l2r).

    Raises:
        BertineError: the vocabulary has no mask.
    """

    title = "pseudo-log-likelihood, each piece masked in turn"
    head = "mlm"

    def __init__(
        self,
        loaded: LoadedModel,
        dtype: torch.dtype = torch.float32,
        masked_pieces: MaskedPieces = "one",
    ) -> None:
        super().__init__(loaded, dtype)
        self._mask = self.tokenizer.require_mask("the pseudo-log-likelihood")
        self._continues = None
        if masked_pieces == "rest-of-word":
            self._continues = self.tokenizer.continues
            self.title = f"{self.title} with those of its word behind it"
        self.pack()

    def count(self, ids: Sequence[int]) -> int:
        return len(ids)

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        row, place = self.frame.join([ids]), len(self.frame.before) + number
        row[place] = self._mask
        if self._continues is not None:
            behind = itertools.takewhile(self._continues.__getitem__, ids[number + 1 :])
            for at, _ in enumerate(behind, place + 1):
                row[at] = self._mask
        return ScoredSequence(row, [place], [ids[number]], self.frame.segments([len(ids)]))


class GuessedLikelihood(PieceSum):
    """The pseudo-log-likelihood of a sentence, for a model that predicts tokens in any order
    (XLNet): each piece in turn is the last one in the order, so that it is predicted from its place
    and all other pieces, and the log-probabilities are added. Special tokens are known from the
    beginning and not scored.

    One order for the whole sentence would give a probability, that of Yang et al. 2019, equation 3,
    in one pass. But in training a sixth of a text is predicted from the other five sixths;
    predictions from little or no context were hardly trained (``docs/guides/use-a-model.md`` has
    both).
    """

    title = "pseudo-log-likelihood, each piece guessed by its place and all others"
    head = "plm"

    def count(self, ids: Sequence[int]) -> int:
        return len(ids)

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        row, place = self.frame.join([ids]), len(self.frame.before) + number
        return ScoredSequence(row, [place], [ids[number]], self.frame.segments([len(ids)]))

    def encode(self, sequences: Sequence[ScoredSequence]) -> tuple[Encoded, Tensor]:
        inputs, rows = self.padded([one.ids for one in sequences], sequences), len(sequences)
        device = device_of(self.model)
        places = torch.tensor([[place] for one in sequences for place in one.places], device=device)
        last = torch.full_like(inputs.input_ids, -1).scatter_(1, places, 0)
        encoded = cast(XlnetBackbone, self.model.backbone)(
            inputs.input_ids,
            inputs.attention_mask,
            inputs.token_type_ids,
            guesses=GuessedPlaces(places, hidden_by_order(last)),
        )
        return encoded, torch.arange(rows)


class InfilledLikelihood(PieceSum):
    """The pseudo-log-likelihood of a sentence for a model that writes out a text with holes (BART):
    each word in turn is one mask in the encoder's input, as in text infilling (Lewis et al. 2019,
    section 2.2), and the log-probabilities of its pieces are added, as the decoder writes them
    after the words before.

    With the whole sentence in the encoder's input every word would be a copy; with one mask for the
    whole sentence the sum would be a log-probability, but of a kind of text that training did not
    have (``docs/guides/use-a-model.md`` has figures). As with masked models the sum is not a
    log-probability: the score of a word depends on the words after it too. Special tokens are not
    scored.

    Raises:
        BertineError: the vocabulary has no mask.
    """

    title = "pseudo-log-likelihood, each word in turn one mask to the encoder"
    head = "lm"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, dtype)
        self._mask = self.tokenizer.require_mask("the pseudo-log-likelihood")
        self._continues = self.tokenizer.continues

    def count(self, ids: Sequence[int]) -> int:
        return len(self._edges(ids)) - 1

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        first, behind = self._edges(ids)[number : number + 2]
        begins = len(self.frame.before)
        return ScoredSequence(
            self.frame.join([ids]),
            range(begins + first, begins + behind),
            ids[first:behind],
            read=self.frame.join([[*ids[:first], self._mask, *ids[behind:]]]),
        )

    def encode(self, sequences: Sequence[ScoredSequence]) -> tuple[Encoded, Tensor]:
        read = self.padded([one.read or one.ids for one in sequences], sequences)
        written = self.padded([one.ids for one in sequences], sequences)
        shifted = cast(BartBackbone, self.model.backbone).shifted(written.input_ids)
        target = replace(written, input_ids=shifted)
        return self.model.encode(read, target=target), places_of(sequences)

    def _edges(self, ids: Sequence[int]) -> list[int]:
        """Return where each word begins, and the end of the last."""
        begins = (at for at, index in enumerate(ids) if at == 0 or not self._continues[index])
        return [*begins, len(ids)]


class ReplacedTokens(PieceSum):
    """The replaced-token score of a sentence, for a model that detects replaced tokens (ELECTRA's
    discriminator; Clark et al. 2020, section 2): the sum of the log-probabilities that each piece
    is the original. One pass gives them all. The score is not a probability of the sentence: a
    higher score of one sentence does not lower those of others. Special tokens are not scored."""

    title = (
        "replaced-token scores: log-probabilities that each piece is the text's own, added; no "
        "probability of the sentence"
    )
    head = "rtd"

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        row, begins = self.frame.join([ids]), len(self.frame.before)
        places = range(begins, begins + len(ids))
        return ScoredSequence(row, places, ids, self.frame.segments([len(ids)]))

    def read(self, encoded: Encoded, places: Tensor) -> Tensor:
        """Return the logits at `places`, [P]."""
        return self.model.read(self.head, encoded).flatten().index_select(0, places)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        # The logit is that of "replaced"; its complement is the original token.
        return F.softplus(logits.float())
