"""Where the states of words come from: an encoder of pieces, an ELMo, or vectors of words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import torch

from bertine.inference.elmo.states import elmo_states
from bertine.inference.embedding.elmo_embedder import ElmoEmbedder
from bertine.inference.word_states import KnownStates, StaticStates, WordStates, word_states
from bertine.modeldir import LoadedModel
from bertine.models.model import weights_fingerprint
from bertine.records.sentences import Sentences
from bertine.records.words import split_words
from bertine.tasks.tagging.task import Tagging
from bertine.terminal.console import human_time, say
from bertine.word_vectors.splitting import words_of
from bertine.word_vectors.vectors import WordVectors


class WordSource(Protocol):
    """A frozen model that gives words states.

    Attributes:
        kind: "encoder", "elmo" or "word-vectors".
        num_layers: L; its layers are 0, the words by themselves, to L.
    """

    kind: str
    num_layers: int

    def fingerprint(self) -> str:
        """Return the SHA-256 of what states depend on, as hex digits."""
        ...

    def words(self, text: str) -> list[str]:
        """Cut a text into words."""
        ...

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the states of the words of `sentences`; what is computed is kept in `folder`, and
        how long it took is said."""
        ...


class EncoderSource:
    """An encoder of pieces; a word's states are those of its first piece.

    Args:
        loaded: the model, on any device.
        windows: the task that says how sentences are cut into windows.
        device, dtype: to compute on and in.
    """

    kind = "encoder"

    def __init__(
        self, loaded: LoadedModel, windows: Tagging, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.num_layers = len(loaded.config.passes)
        self._loaded, self._windows = loaded, windows
        self._device, self._dtype = device, dtype

    def fingerprint(self) -> str:
        """Return that of the backbone."""
        return weights_fingerprint(self._loaded.model.backbone)

    def words(self, text: str) -> list[str]:
        """Cut a text at spaces, with punctuation apart."""
        return [text[begin:end] for begin, end in split_words(text)]

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the states of all layers."""
        began = time.monotonic()
        model = self._loaded.model.to(self._device)
        tokenizer, windows = self._loaded.tokenizer, self._windows
        states = word_states(model, tokenizer, windows, sentences, folder, dtype=self._dtype)
        _say_time(sentences, states, began)
        return states


class ElmoSource:
    """An ELMo, which reads each sentence or text from a state of 0."""

    kind = "elmo"

    def __init__(self, embedder: ElmoEmbedder) -> None:
        self.num_layers = embedder.elmo.config.num_hidden_layers
        self._embedder = embedder

    def fingerprint(self) -> str:
        """Return those of the weights and of how words are read."""
        return " ".join(self._embedder.fingerprints())

    def words(self, text: str) -> list[str]:
        """Cut a text as the model was trained to see it."""
        return self._embedder.words(text)

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the word by itself and the layers of the LSTMs."""
        began = time.monotonic()
        states = elmo_states(self._embedder, sentences, folder)
        _say_time(sentences, states, began)
        return states


class StaticSource:
    """Vectors of words, the only layer that there is."""

    kind = "word-vectors"
    num_layers = 0

    def __init__(self, vectors: WordVectors) -> None:
        self._vectors = vectors

    def fingerprint(self) -> str:
        """Return those of the vectors and of the words."""
        return " ".join(self._vectors.fingerprint())

    def words(self, text: str) -> list[str]:
        """Cut a text as the corpus of the vectors was; marks are left out."""
        return words_of(text, lowercase=self._vectors.lowercase)

    def states(self, sentences: Sentences, folder: Path) -> KnownStates:
        """Return the vectors; say how many words have none."""
        states = StaticStates.of(self._vectors, sentences)
        say(
            f"{sentences.source}: {states.unknown:,} of {states.starts[-1]:,} words have no "
            "vector: zeros"
        )
        return states


def _say_time(sentences: Sentences, states: WordStates, began: float) -> None:
    took = "found" if states.found else f"computed in {human_time(time.monotonic() - began)}"
    say(f"{sentences.source}: the states of {states.starts[-1]} words: {took}")
