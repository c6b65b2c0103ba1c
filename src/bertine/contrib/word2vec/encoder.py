"""Encode texts as the means of their words' vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from bertine.contrib.word2vec.vectors import NearestWords, WordVectors
from bertine.inference.embedding.encoder import EncoderOptions, TableEncoder, Takes
from bertine.tasks.base import Features


class WordEncoder(TableEncoder):
    """Words with one vector each.

    Attributes:
        vectors: the vectors of words.
    """

    takes: ClassVar[Takes] = {**TableEncoder.takes, "dimensions": ()}
    unit = "word"

    def __init__(self, vectors: WordVectors, options: EncoderOptions) -> None:
        super().__init__(normalize=bool(options.normalize), max_length=options.max_length)
        self.vectors = vectors
        self.load_lines = vectors.notes

    @classmethod
    def load(cls, path: Path | str, options: EncoderOptions) -> WordEncoder:
        """Load a folder or a file of word vectors.

        Raises:
            BertineError: it is damaged.
        """
        return cls(WordVectors.load(path), options)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimensions(self) -> int:
        return self.vectors.dimensions

    def fingerprints(self) -> tuple[str, str]:
        return self.vectors.fingerprint()

    def features(self, texts: Sequence[str]) -> list[Features]:
        features = []
        for row, text in enumerate(texts):
            ids, _ = self.vectors.rows_of(text)
            kept = ids[: self.max_length].astype(np.int32)
            cut = len(ids) - len(kept)
            features.append(Features(kept, np.zeros(len(kept), np.int8), row, num_truncated=cut))
        return features

    def means(self, features: Sequence[Features]) -> np.ndarray:
        result = np.zeros((len(features), self.dimensions), dtype=np.float32)
        for at, feature in enumerate(features):
            if len(feature.input_ids):
                result[at] = self.vectors.vectors[feature.input_ids].mean(0)
        return result

    def fixed_vector(self, word: str) -> np.ndarray:
        return self.vectors[word]

    def nearest_words(self, query: str, top: int) -> NearestWords:
        return self.vectors.nearest(query, top)
