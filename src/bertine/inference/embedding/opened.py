"""What turns texts into vectors, whatever model it is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bertine.inference.embedding.cosines import Cosines
from bertine.inference.embedding.embedder import Embedder
from bertine.interop.word_models import word_model_of
from bertine.registry import WORD_MODELS
from bertine.terminal.console import say


class PoolingFacts(Protocol):
    """What a file of vectors says of their pooling; see
    :class:`~bertine.models.pooling.Pooling`."""

    @property
    def modes(self) -> tuple[str, ...]: ...
    @property
    def normalize(self) -> bool: ...
    @property
    def dimensions(self) -> int | None: ...
    @property
    def tokens(self) -> bool: ...


class TextEmbedder(Protocol):
    """A model that turns texts into vectors: an :class:`~bertine.Embedder`, or one of words.

    Attributes:
        name: of the folder it was loaded from.
        prompt: what is put before every text.
        max_length: pieces or words of a text; longer ones are cut.
        precision: what it computes in.
        unit: what texts are measured in, "piece" or "word".
        load_lines: what a person should know of how it was loaded.
    """

    name: str
    prompt: str
    max_length: int
    precision: str
    unit: str
    load_lines: list[str]

    @property
    def pooling(self) -> PoolingFacts: ...

    @property
    def dimensions(self) -> int:
        """The numbers of a vector."""
        ...

    @property
    def layer_number(self) -> int | None:
        """Whose states are pooled; 0 are the embeddings. None: several layers'."""
        ...

    def fingerprints(self) -> tuple[str, str]:
        """Return the SHA-256 of the weights and of what makes ids of texts, as hex digits."""
        ...

    def features(self, texts: Sequence[Any]) -> list[Any]:
        """Return what is computed for each text."""
        ...

    def pieces(self, features: Any) -> list[str]:
        """Return the pieces or words that have a vector each."""
        ...

    def shortened(self, features: Sequence[Any]) -> int:
        """Count the words that are not read to their end."""
        ...

    def embed(self, texts: Sequence[Any]) -> np.ndarray:
        """Compute the vector of each text, fp32 [N, D]."""
        ...

    def run(
        self, features: Sequence[Any], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute the vectors of `features`, fp32 [N, D]."""
        ...

    def run_tokens(
        self, features: Sequence[Any], on_batch: Callable[[int], None] | None = None
    ) -> Sequence[np.ndarray]:
        """Compute the vectors of each piece or word, N of fp32 [n, D]."""
        ...

    def agreement(self, features: Sequence[Any]) -> Cosines | None:
        """Compute the cosines with what fp32 gives; None where that is computed in."""
        ...


def open_embedder(model: TextEmbedder | Path | str, **options: Any) -> TextEmbedder:
    """Return `model` if it is an embedder already; else load it with `options`, and say what was
    loaded.

    Raises:
        BertineError: what loading a model of its kind raises.
    """
    if not isinstance(model, str | Path):
        return model
    kind = word_model_of(model)
    if kind is None:
        return Embedder.opened(model, **options)
    module, _, name = WORD_MODELS[kind].partition(":")
    embedder: TextEmbedder = getattr(import_module(module), name).load(model, **options)
    for line in embedder.load_lines:
        say(line)
    return embedder
