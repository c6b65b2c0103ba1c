"""Texts as means of their words' vectors, for the verbs that take an embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertine.errors import BertineError
from bertine.inference.embedding.cosines import Cosines
from bertine.inference.embedding.embedder import Embedder, unit
from bertine.inference.embedding.word_in_text import word_span
from bertine.inference.files.given_texts import Single, checked_singles, several
from bertine.models.pooling import Pooling
from bertine.options.names import option
from bertine.tasks.features import Features
from bertine.terminal.console import counted
from bertine.word_vectors.vectors import WordVectors

#: Words of a text, where nobody says fewer.
_ALL = 1 << 31
#: What an embedder may be told that static vectors have too.
_FITTING: dict[str, tuple[Any, ...]] = {
    "pooling": (None, "mean"),
    "layer": (None, 0),
    "prompt": (None, ""),
    "precision": ("auto", "fp32"),
    "device": (None, "cpu"),
}


class MeanWordEmbedder(Embedder):
    """Words with a vector each, wherever they stand; a text's vector is the mean of its words'.
    Words without one are left out; a text in which none has one gets zeros, and is counted.

    Attributes:
        vectors: of the words.
        normalize: whether a text's vector is brought to length 1.
        empty: texts computed by :meth:`run` in which no word has a vector.
    """

    unit = "word"

    def __init__(
        self, vectors: WordVectors, *, max_length: int | None = None, normalize: bool | None = None
    ) -> None:
        self.vectors, self.normalize = vectors, bool(normalize)
        self.max_length = _ALL if max_length is None else max_length
        self.pooling = Pooling(("mean",), 0, self.normalize)
        self.prompt, self.precision, self.on_cpu = "", "fp32", True
        self.empty = 0
        self.load_lines = [
            *vectors.notes,
            f"vectors of {self.dimensions} numbers: the mean of a text's words, of which "
            f"{len(vectors):,} have one, the same wherever they stand",
        ]

    @classmethod
    def load_words(cls, model: Path | str, **options: Any) -> Self:
        """Load vectors of words, with those of the options of :meth:`bertine.Embedder.load` that
        they have.

        Raises:
            BertineError: an option that vectors of words have none of; the file is damaged.
        """
        for name, values in _FITTING.items():
            if options.get(name) not in (None, *values):
                raise BertineError(
                    f"{model}: is vectors of words, which have no {name} {options[name]!r}; leave "
                    "it out"
                )
        if options.get("dimensions") is not None:
            raise BertineError(
                f"{model}: is vectors of words, whose first numbers say no more than the others; "
                f"leave out {option('dimensions')}"
            )
        embedder = cls(
            WordVectors.load(model),
            max_length=options.get("max_length"),
            normalize=options.get("normalize"),
        )
        embedder.name = Path(model).name
        return embedder

    @property
    def dimensions(self) -> int:
        """D, the numbers of a vector."""
        return self.vectors.dimensions

    def fingerprints(self) -> tuple[str, str]:
        return self.vectors.fingerprint()

    @property
    def pooled_layer(self) -> int | None:
        return 0

    def lines(self) -> list[str]:
        return [f"MeanWordEmbedder {self.name}".rstrip(), *self.load_lines]

    def features(self, texts: Sequence[Single] | Single) -> list[Features]:
        """Return the rows of each text's words; one string is one text."""
        features = []
        for row, text in enumerate(checked_singles(several(texts))):
            ids, _ = self.vectors.rows_of(text)
            kept = ids[: self.max_length].astype(np.int32)
            cut = len(ids) - len(kept)
            features.append(Features(kept, np.zeros(len(kept), np.int8), row, num_truncated=cut))
        return features

    def run(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute vectors fp32 [N, D] of `features`."""
        result = np.zeros((len(features), self.dimensions), dtype=np.float32)
        for at, feature in enumerate(features):
            if len(feature.input_ids):
                result[at] = self.vectors.vectors[feature.input_ids].mean(0)
            else:
                self.empty += 1
        if on_batch is not None:
            on_batch(len(features))
        return unit(result) if self.normalize else result

    def word_in(self, texts: Sequence[Single], word: str) -> list[np.ndarray | None]:
        """Return the word's one vector for each text that has it, None for others.

        Raises:
            BertineError: the word has none.
        """
        vector = self.vectors[word]
        return [
            None if word_span(text, word) is None else vector for text in checked_singles(texts)
        ]

    def agreement(self, features: Sequence[Features]) -> Cosines | None:
        return None

    def notes(self) -> list[str]:
        if not self.empty:
            return []
        return [f"{counted(self.empty, 'text')} without any word that has a vector: zeros"]
