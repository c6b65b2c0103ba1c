"""Encode words and texts with an ELMo."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.contrib.elmo.files import load_elmo
from bertine.contrib.elmo.model import (
    BidirectionalLm,
    is_cut,
    padded_ids,
)
from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.corpora.batch import restore_order, token_budget_batches
from bertine.inference.embedding.encoder import (
    EncoderOptions,
    OnBatch,
    Takes,
    TextEncoder,
    Vectors,
)
from bertine.models.heads import weights_fingerprint
from bertine.models.pooling import Pooling
from bertine.models.precision import autocast, finite, resolve_device
from bertine.tasks.base import Features

#: The default maximum of words of a text: memory grows with it.
_MOST_WORDS = 4096
#: Words of texts that are computed together, with marks and padding.
_BATCH_WORDS = 2048


@dataclass(frozen=True, slots=True)
class TextWords(Features):
    """The words of a text; ``input_ids`` only counts them.

    Attributes:
        words: the n words.
    """

    words: tuple[str, ...] = ()


class ElmoEncoder(TextEncoder):
    """An ELMo and the pooling that makes vectors of words or texts; without a layer, a word has the
    mean of all layers, which is their mix before a task has weighted it. Each text is read by
    itself, from a state of 0; the model's
    :meth:`~bertine.contrib.elmo.model.BidirectionalLm.layers_of` carries states over.

    Attributes:
        model: the model in evaluation mode, on its device.
    """

    takes: ClassVar[Takes] = {
        "pooling": ("mean", "max", "tokens"),
        "prompt": ("",),
        "dimensions": (),
        "precision": ("fp32", "bf16"),
        "batch_invariant": (),
    }
    unit = "word"

    def __init__(self, model: BidirectionalLm, options: EncoderOptions) -> None:
        """
        Args:
            model: the model, which is moved to the device.
            options: those of :attr:`takes` are checked already.

        Raises:
            BertineError: a layer that the model does not have, or a device that is not there.
        """
        count, layer = model.config.num_hidden_layers, options.layer
        if layer is not None and not -count - 1 <= layer <= count:
            raise BertineError(
                f"layer is {layer}, but the model has layers 1 to {count} (0: the words by "
                f"themselves; from the end: -1 to {-count - 1})"
            )
        self._device = resolve_device(options.device)
        self.model = model.to(self._device).eval()
        self.pooling = Pooling((options.pooling or "mean",), layer, bool(options.normalize))
        self.pooled_layer = layer if layer is None or layer >= 0 else count + 1 + layer
        self.max_length = options.max_length or _MOST_WORDS
        self.precision = "fp32" if options.precision == "auto" else options.precision
        self._shortened = 0

    @classmethod
    def load(cls, path: Path | str, options: EncoderOptions) -> ElmoEncoder:
        """Load an ELMo: a model directory of Bertine's, a run's folder or the two published files.
        It computes with all threads.

        Raises:
            BertineError: the folder cannot be read; an unsupported option.
        """
        loaded = load_elmo(path)
        encoder = cls(loaded.model, options)
        encoder.load_lines = [f"{loaded.source}: {loaded.model.config.num_parameters:,} parameters"]
        return encoder

    @property
    def dimensions(self) -> int:
        return self.model.config.width

    def describe(self) -> str:
        layers = ", mean of all layers" if self.pooling.layer is None else ""
        words = (
            "words are what stands between spaces"
            if self.model.config.word_splitting == "spaces"
            else "punctuation is words of its own"
        )
        return f"{self.pooling.describe()}{layers}; {words}"

    def fingerprints(self) -> tuple[str, str]:
        config = self.model.config
        way = f"elmo characters, {config.max_characters} places, words by {config.word_splitting}"
        return weights_fingerprint(self.model), hashlib.sha256(way.encode()).hexdigest()

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        return self.model.config.word_spans(text)[: self.max_length]

    def features(self, texts: Sequence[str]) -> list[Features]:
        features: list[Features] = []
        places = self.model.config.max_characters
        for row, text in enumerate(texts):
            words = self.model.config.words_of(text)
            cut = max(0, len(words) - self.max_length)
            kept = tuple(words[: self.max_length])
            self._shortened += sum(is_cut(word, places) for word in kept)
            ids, types = np.arange(len(kept), dtype=np.int32), np.zeros(len(kept), np.int8)
            features.append(TextWords(ids, types, row=row, num_truncated=cut, words=kept))
        return features

    def pieces(self, features: Features) -> list[str]:
        return list(_words(features))

    def notes(self) -> list[str]:
        if not self._shortened:
            return []
        return [f"of {plural(self._shortened, 'word')} only the beginning was read"]

    def layers(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Compute all layers of sentences that are already words: fp32 [n, L + 1, D] of each, the
        words without context first."""
        return self._computed(sentences, lambda states: states, self.precision)

    def run(
        self, features: Sequence[Features], on_batch: OnBatch = None, *, exact: bool = False
    ) -> Vectors:
        precision = "fp32" if exact else self.precision
        return self._computed(list(map(_words, features)), self._pooled, precision, on_batch)

    def _computed(
        self,
        sentences: Sequence[Sequence[str]],
        then: Callable[[Tensor], Tensor],
        precision: str,
        on_batch: OnBatch = None,
    ) -> list[np.ndarray]:
        """Compute what `then` makes of the states fp32 [n, L + 1, D] of the n words of each
        sentence, in batches of similar length."""
        lengths = [len(sentence) + 2 for sentence in sentences]
        batches = token_budget_batches(lengths, _BATCH_WORDS)
        results: list[list[np.ndarray]] = []
        for numbers in batches:
            states = self._states([sentences[number] for number in numbers], precision)
            results.append([then(state).cpu().numpy() for state in states])
            if on_batch is not None:
                on_batch(len(numbers))
        return restore_order(batches, results)

    def _states(self, sentences: Sequence[Sequence[str]], precision: str) -> list[Tensor]:
        """Compute fp32 [n, L + 1, D] of the n words of each sentence of one batch."""
        ids, lengths = padded_ids(sentences, self.model.config.max_characters)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        with torch.inference_mode(), autocast(dtype, self._device):
            states, _ = self.model.layers_of(ids.to(self._device), lengths)
        return [
            finite(state[1 : length - 1])
            for state, length in zip(states, lengths.tolist(), strict=True)
        ]

    def _pooled(self, states: Tensor) -> Tensor:
        """Pool states, fp32 [n, L + 1, D], into [D], with ``tokens`` [n, D]; 0 if there are no
        words."""
        layer = self.pooling.layer
        vectors = states.mean(1) if layer is None else states[:, layer]
        if not self.pooling.tokens:
            if not len(vectors):
                vectors = vectors.new_zeros(self.dimensions)
            else:
                vectors = vectors.amax(0) if self.pooling.modes == ("max",) else vectors.mean(0)
        return F.normalize(vectors, dim=-1) if self.pooling.normalize else vectors.clone()


def _words(features: Features) -> tuple[str, ...]:
    assert isinstance(features, TextWords)
    return features.words
