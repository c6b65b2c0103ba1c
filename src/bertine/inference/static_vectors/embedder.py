"""A table of vectors, ready to turn texts into means of their pieces'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertine.errors import BertineError
from bertine.inference.embedding.cosines import Cosines
from bertine.inference.embedding.embedder import Embedder, unit
from bertine.inference.files.given_texts import Single, checked_singles, is_one, several
from bertine.inference.static_vectors.files import StaticModel, load_static
from bertine.models.pooling import Pooling
from bertine.tasks.features import Features
from bertine.terminal.console import counted

#: Pieces of a text, where nobody says fewer.
_ALL = 1 << 31
#: Texts that are computed together.
_TEXTS = 4096
#: What an embedder may be told that a table of vectors has too.
_FITTING: dict[str, tuple[Any, ...]] = {
    "pooling": (None, "mean"),
    "layer": (None, 0),
    "prompt": (None, ""),
    "precision": ("auto", "fp32"),
    "device": (None, "cpu"),
}


class StaticEmbedder(Embedder):
    """Pieces with a vector each, whatever stands around them; a text's vector is the mean of its
    pieces'. It has no special tokens. Threads may share it.

    Attributes:
        table: the vectors.
        tokenizer: of the pieces.
        normalize: whether a text's vector is brought to length 1.
        empty: texts computed in which no piece has a vector: they get zeros.
    """

    def __init__(
        self,
        model: StaticModel,
        *,
        max_length: int | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        name: str = "",
    ) -> None:
        """
        Raises:
            BertineError: an impossible length of texts or of vectors.
        """
        if max_length is not None and max_length < 1:
            raise BertineError(f"max_length is {max_length}, but must be at least 1")
        self.table = model.table if dimensions is None else model.table.first(dimensions)
        self.tokenizer = model.tokenizer
        self.normalize = model.normalize if normalize is None else normalize
        #: Pieces of a text that count; None: all.
        self.limit = max_length or model.max_length
        self.max_length = self.limit or _ALL
        self.pooling = Pooling(("mean",), 0, self.normalize)
        self.prompt, self.precision, self.on_cpu = "", "fp32", True
        self.name, self.empty = name, 0
        self.load_lines = [
            f"vectors of {self.dimensions} numbers: the mean of a text's pieces, of which "
            f"{self.table.pieces:,} have one, the same wherever they stand"
        ]

    #: They are in the order of their principal components.
    trained_shorter = True

    @classmethod
    def load(cls, path: Path | str, **options: Any) -> Self:  # type: ignore[override]
        """Read a directory of static vectors, ours or model2vec's, with those of the options of
        :meth:`bertine.Embedder.load` that they have.

        Raises:
            BertineError: an option that static vectors have none of; the directory is damaged.
        """
        for option, values in _FITTING.items():
            if options.get(option) not in (None, *values):
                raise BertineError(
                    f"{path}: is a table of static vectors, which have no {option} "
                    f"{options[option]!r}; leave it out"
                )
        parts = Path(path).parts
        return cls(
            load_static(path),
            max_length=options.get("max_length"),
            normalize=options.get("normalize"),
            dimensions=options.get("dimensions"),
            name="/".join(parts[-2:] if parts[-1:] == ("model",) else parts[-1:]),
        )

    @property
    def dimensions(self) -> int:
        """D, the numbers of a vector."""
        return self.table.dimensions

    def fingerprints(self) -> tuple[str, str]:
        return self.table.fingerprint(), self.tokenizer.fingerprint

    @property
    def pooled_layer(self) -> int | None:
        return 0

    def lines(self) -> list[str]:
        """Return what its vectors are."""
        return [f"StaticEmbedder {self.name}".rstrip(), *self.load_lines]

    def embed(self, texts: Sequence[Single] | Single) -> np.ndarray:
        """Compute the vector of each text, fp32 [N, D], in their order; of one string fp32 [D].

        Raises:
            BertineError: something that is not a text.
        """
        singles = checked_singles(several(texts))
        result = np.empty((len(singles), self.dimensions), np.float32)
        for start in range(0, len(singles), _TEXTS):
            ids, lengths = self.tokenizer.encode_flat(singles[start : start + _TEXTS])
            if int(lengths.max()) > self.max_length:
                kept = np.minimum(lengths, self.max_length)
                place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
                ids, lengths = ids[place < self.max_length], kept
            result[start : start + len(lengths)] = self._means(ids, lengths)
        return result[0] if is_one(texts) else result

    __call__ = embed

    def features(self, texts: Sequence[Single] | Single) -> list[Features]:
        """Return the pieces of each text, cut to the maximum length; one string is one text.

        Raises:
            BertineError: something that is not a text.
        """
        singles = checked_singles(several(texts))
        ids, lengths = self.tokenizer.encode_flat(singles)
        types = np.zeros(int(lengths.max()) if len(lengths) else 0, np.int8)
        features, start, most = [], 0, self.max_length
        for row, length in enumerate(lengths.tolist()):
            kept = min(length, most)
            features.append(
                Features(ids[start : start + kept], types[:kept], row, None, length - kept)
            )
            start += length
        return features

    def run(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Compute vectors fp32 [N, D] of `features`."""
        if not features:
            return np.zeros((0, self.dimensions), np.float32)
        ids = np.concatenate([feature.input_ids for feature in features])
        lengths = np.fromiter((len(each.input_ids) for each in features), np.int64, len(features))
        vectors = self._means(ids, lengths)
        if on_batch is not None:
            on_batch(len(features))
        return vectors

    def run_batch(self, features: Sequence[Features]) -> np.ndarray:
        return self.run(features)

    def word_in(self, texts: Sequence[Single], word: str) -> list[np.ndarray | None]:
        """
        Raises:
            BertineError: always, as a word has one vector whatever stands around it.
        """
        raise BertineError(
            f"{self.name or 'this model'}: is a table of static vectors, in which {word!r} has the "
            "same vector in every text; compare whole texts"
        )

    def agreement(self, features: Sequence[Features]) -> Cosines | None:
        return None

    def notes(self) -> list[str]:
        if not self.empty:
            return []
        return [f"{counted(self.empty, 'text')} without any piece that has a vector: zeros"]

    def _means(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        vectors = self.table.means(ids, lengths)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.empty += int((norms == 0).sum())
        return unit(vectors) if self.normalize else vectors
