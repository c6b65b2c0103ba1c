"""How probable ELMo's two language models find a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from bertine.cores.short_waits import adapt_waiting
from bertine.data.batching import token_budget_batches
from bertine.errors import BertineError
from bertine.interop.elmo.directory import LoadedElmo
from bertine.models.elmo.bilm import DIRECTIONS
from bertine.models.elmo.characters import BEGIN, END, UNKNOWN, character_ids
from bertine.models.precision import autocast
from bertine.records.words import split_words

#: Words of sentences that are computed together, and logits at once (64 MB in fp32).
_BATCH_WORDS, _LOGITS = 2048, 1 << 24


class BothWaysProbability:
    """The log-probability of a sentence forwards and that backwards, added: what ELMo is trained to
    raise (Peters et al. 2018, section 3.1). Each sentence begins with a state of 0; its end counts
    as a word, and words that the softmax does not have count as ``<UNK>``.

    Raises:
        BertineError: the model has no softmax.
    """

    title = "log-probability forwards and backwards, added"

    def __init__(self, elmo: LoadedElmo, dtype: torch.dtype = torch.float32) -> None:
        if elmo.softmax is None:
            raise BertineError(
                f"{elmo.source}: has no softmax over words, so it gives sentences no probability; "
                "published files have none"
            )
        self.elmo, self.softmax, self.dtype = elmo.model.eval(), elmo.softmax, dtype
        self._ids = {word: number for number, word in enumerate(elmo.words)}
        for mark in (BEGIN, END, UNKNOWN):
            if mark not in self._ids:
                raise BertineError(f"{elmo.source}: its words lack {mark}")
        self._words = self._unknown = 0

    def notes(self) -> list[str]:
        if not self._unknown:
            return []
        return [
            f"{self._unknown:,} of {self._words:,} words are not among the "
            f"{len(self._ids):,} of the softmax and count as {UNKNOWN}"
        ]

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return the natural logarithm for each text, fp64 [N].

        Raises:
            BertineError: a text has no word.
        """
        sentences = [self._split(text) for text in texts]
        totals = np.zeros(len(texts))
        lengths = [len(words) + 2 for words in sentences]
        for batch in token_budget_batches(lengths, _BATCH_WORDS):
            adapt_waiting()
            totals[batch] = self._scores([sentences[at] for at in batch])
            if on_batch is not None:
                on_batch(len(batch))
        return totals

    def words_of(self, text: str) -> list[str]:
        """Return the words of a text, as the model was trained to see them."""
        if self.elmo.config.word_splitting == "spaces":
            return text.split()
        return [text[begin:end] for begin, end in split_words(text)]

    def _split(self, text: str) -> list[str]:
        words = self.words_of(text)
        if not words:
            raise BertineError(f"{text!r}: has no word to score")
        self._words += len(words)
        self._unknown += sum(word not in self._ids for word in words)
        return words

    def _scores(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return fp64 [B]."""
        places, device = self.elmo.config.max_characters, self.softmax.weight.device
        lengths = torch.tensor([len(words) + 2 for words in sentences])
        ids = torch.ones(len(sentences), int(lengths.max()), places, dtype=torch.int64)
        known = torch.zeros(ids.shape[:2], dtype=torch.int64)
        unknown = self._ids[UNKNOWN]
        for row, words in enumerate(sentences):
            whole = [BEGIN, *words, END]
            ids[row, : len(whole)] = torch.from_numpy(character_ids(whole, places))
            known[row, : len(whole)] = torch.tensor([self._ids.get(w, unknown) for w in whole])
        # Every word but the mark that a direction begins with is foretold by the state before it.
        owner = torch.repeat_interleave(torch.arange(len(sentences)), lengths - 1)
        first = torch.cumsum(lengths - 1, 0) - (lengths - 1)
        step = torch.arange(len(owner)) - first[owner]
        half = self.elmo.config.projection_size
        totals = np.zeros(len(sentences))
        with torch.inference_mode(), autocast(self.dtype, device):
            layers, _ = self.elmo.layers_of(ids.to(device), lengths)
            for number, direction in enumerate(DIRECTIONS):
                states = layers[:, :, -1, number * half : (number + 1) * half]
                forward = direction == DIRECTIONS[0]
                at, target = (step, step + 1) if forward else (step + 1, step)
                values = self._log_probabilities(states[owner, at], known[owner, target])
                np.add.at(totals, owner.numpy(), values)
        return totals

    def _log_probabilities(self, states: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
        size = max(1, _LOGITS // len(self._ids))
        losses = [
            F.cross_entropy(
                F.linear(here, self.softmax.weight, self.softmax.bias).float(),
                right,
                reduction="none",
            )
            for here, right in zip(
                states.split(size), targets.to(states.device).split(size), strict=True
            )
        ]
        values: np.ndarray = -torch.cat(losses).double().cpu().numpy()
        return values
