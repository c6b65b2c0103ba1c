"""How probable a language model finds a sentence, in the way that it was trained.

Shape legend: P places that are scored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.inference.compute.running import device_of
from bertine.inference.minimal_pairs.summed import PieceSum, ScoredSequence, places_of
from bertine.inference.sequence_start import sequence_start
from bertine.modeldir import LoadedModel
from bertine.models.bart.backbone import BartBackbone
from bertine.models.encoded import Encoded
from bertine.models.xlnet.backbone import GuessedPlaces, XlnetBackbone, hidden_by_order
from bertine.names import MaskedPieces
from bertine.text.template import Frame

#: What stands before a sentence where nothing marks the beginning of running text.
_END_OF_SENTENCE = "."


class ForwardProbability(PieceSum):
    """The log-probability of a sentence from left to right, for a model that guesses the next
    token: the sum over its pieces, each after those before it.

    Before it stands what the sequences began with that the model was trained on, or where that is
    not known, what those of its kind do; where that is nothing (GPT-1) a full stop, behind which
    sentences begin there, so that the first piece counts too.
    """

    title = "log-probability, each piece after those before it"
    head = "lm"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        before = sequence_start(loaded)
        before = before or tuple(loaded.tokenizer.encode_plain([_END_OF_SENTENCE])[0])
        super().__init__(loaded, Frame(before, (), ()), dtype)

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        row, begins = self.frame.join([ids]), len(self.frame.before)
        # The last token says nothing of what is scored.
        return ScoredSequence(row, range(begins - 1, len(row) - 1), ids)


class PseudoLikelihood(PieceSum):
    """The pseudo-log-likelihood of a sentence, for a model that guesses hidden tokens: each piece
    is masked in turn, and the logarithms of the probabilities of what was there are added (Salazar
    et al. 2020, equation 1). Special tokens are not scored.

    The first pieces of a long word are easy to guess by those behind them, so that rare words look
    probable. With `masked_pieces` ``"rest-of-word"`` those of the same word behind a piece are
    masked with it, so that a word is guessed from its beginning (Kauf and Ivanova 2023, "A Better
    Way to Do Masked Language Model Scoring", PLL-word-l2r).

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
        super().__init__(loaded, loaded.tokenizer.template.one, dtype)
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
    """The pseudo-log-likelihood of a sentence, for a model that guesses tokens in any order
    (XLNet): each piece in turn is the last that becomes known, so that it is guessed by its place
    and all others, and the logarithms are added. Special tokens are known from the beginning, and
    not scored.

    One order for the whole sentence would give a probability, that of Yang et al. 2019, equation 3,
    in one pass. But in training a sixth of a text is guessed, behind the other five; what is to be
    guessed from little or nothing was hardly ever asked (``docs/guides/use-a-model.md`` has both).
    """

    title = "pseudo-log-likelihood, each piece guessed by its place and all others"
    head = "plm"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, loaded.tokenizer.template.one, dtype)

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
    each word in turn is one mask in what the encoder reads, as in text infilling (Lewis et al.
    2019, section 2.2), and the logarithms of the probabilities of its pieces are added, as the
    decoder writes them behind the words before.

    With the whole sentence before the encoder every word would be a copy; with one mask for all of
    it the sum would be the logarithm of a probability, of a kind of text that training had none of
    (``docs/guides/use-a-model.md`` has figures). As with masked models it is none: what is scored
    of a word depends on the words behind it too. Special tokens are not scored.

    Raises:
        BertineError: the vocabulary has no mask.
    """

    title = "pseudo-log-likelihood, each word in turn one mask to the encoder"
    head = "lm"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, loaded.tokenizer.template.one, dtype)
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
    """The replaced-token scores of a sentence, for a model that detects replaced tokens (ELECTRA's
    discriminator; Clark et al. 2020, section 2): the logarithms of the probabilities that each
    piece is the text's own, added. One pass gives them all. It is no probability of the sentence:
    no other sentence has less of it for that. Special tokens are not scored.
    """

    title = (
        "replaced-token scores: log-probabilities that each piece is the text's own, added; no "
        "probability of the sentence"
    )
    head = "rtd"

    def __init__(self, loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded, loaded.tokenizer.template.one, dtype)

    def sequence(self, ids: Sequence[int], number: int) -> ScoredSequence:
        row, begins = self.frame.join([ids]), len(self.frame.before)
        places = range(begins, begins + len(ids))
        return ScoredSequence(row, places, ids, self.frame.segments([len(ids)]))

    def read(self, encoded: Encoded, places: Tensor) -> Tensor:
        """Return the logits at `places`, [P]."""
        return self.model.read(self.head, encoded).flatten().index_select(0, places)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        # The logit is that of "replaced"; what was not is the text's own.
        return F.softplus(logits.float())
