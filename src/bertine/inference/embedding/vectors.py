"""Define the parts that embedders share: pooled texts, prompts, word spans and cosines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.inference.compute import Computing, run_features
from bertine.inference.embedding.words import UNSPACED
from bertine.models.config_file import SentenceModules, read_sentence_modules
from bertine.models.heads import Model
from bertine.models.pooling import Pooling
from bertine.tasks.base import Features, pad_features

# Word spans: the place of a word in a text.


def word_span(text: str, word: str) -> tuple[int, int] | None:
    """Find the first place of `word` in `text` where it is not part of a longer word, in any case:
    begin and end in characters; None: there is no such place. Letters of Chinese and of other
    scripts without spaces begin and end a word anywhere."""
    letter = rf"[^\W{UNSPACED}]"
    before = "" if re.match(f"[{UNSPACED}]", word) else rf"(?<!{letter})"
    after = "" if re.search(f"[{UNSPACED}]$", word) else rf"(?!{letter})"
    match = re.search(before + re.escape(word) + after, text, re.IGNORECASE)
    return match.span() if match else None


# Cosines: how close vectors are to others of the same texts, as the lowest cosine and percentiles.


@dataclass(frozen=True)
class Cosines:
    """The cosines of pairs of vectors.

    Attributes:
        count: how many pairs were compared.
        lowest: of all cosines.
        percent_1, percent_5: 1% and 5% of the cosines are lower.
        median: half of the cosines are lower.
    """

    count: int
    lowest: float
    percent_1: float
    percent_5: float
    median: float

    @classmethod
    def between(cls, ours: np.ndarray, theirs: np.ndarray) -> Cosines:
        """Compute the cosines of the rows of `ours` and `theirs`, [N, D] each, N at least 1."""
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines = (a * b).sum(1) / np.where(norms > 0, norms, 1.0)
        lowest, one, five, half = np.percentile(cosines, [0, 1, 5, 50]).tolist()
        return cls(len(cosines), lowest, one, five, half)

    def text(self) -> str:
        """Write the cosines in words: "lowest 0.987, 1% below 0.990, 5% below 0.991, median
        0.995"."""
        return (
            f"lowest {self.lowest:.4f}, 1% below {self.percent_1:.4f}, 5% below "
            f"{self.percent_5:.4f}, median {self.median:.4f}"
        )


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors fp32 [N, D] to length 1 in fp32; zeros stay zeros."""
    vectors = vectors.astype(np.float32, copy=False)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)


# Pooled texts: pooling with the two methods of a task that running features needs.
#
# Shape legend: B sequences, T tokens of the longest, D width of a vector.


@dataclass(frozen=True)
class PooledTexts:
    """The part of a task that :func:`~bertine.inference.compute.run_features` needs, for
    vectors.

    Attributes:
        pooling: how the states of tokens become a vector.
        max_length: the number of positions of the model.
    """

    pooling: Pooling
    max_length: int

    def run(
        self,
        computing: Computing,
        features: Sequence[Features],
        *,
        pad_id: int,
        dtype: torch.dtype,
        alone: bool = False,
        on_batch: Callable[[int], None] | None = None,
    ) -> Sequence[np.ndarray]:
        """Compute the vector [D] of each of `features`; with ``tokens`` [n, D]. The arguments are
        those of :func:`~bertine.inference.compute.run_features`."""
        outputs = run_features(
            computing,
            self,
            features,
            pad_id=pad_id,
            dtype=dtype,
            alone=alone,
            on_batch=on_batch,
        )
        return self.decode(outputs, features)

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        """Pad features into one batch."""
        return pad_features(features, pad_id, self.max_length)

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """Encode and pool: fp32 [B, D], with ``tokens`` [B, T, D]."""
        encoded = model.encode(batch, all_states=self.pooling.needs_all_layers)
        # An engine computes no columns that are only padding.
        return self.pooling(encoded, batch.attention_mask[:, : encoded.last_hidden_state.shape[1]])

    def decode(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> Sequence[np.ndarray]:
        """Return the vector [D] of each text; with ``tokens`` [n, D], n being the text's length."""
        if not self.pooling.tokens:
            return outputs
        # A copy; otherwise the padding of every batch would be kept.
        pairs = zip(outputs, features, strict=True)
        return [row[: len(feature.input_ids)].copy() for row, feature in pairs]


#: The usual names of the prompt for queries, and of that for the texts that are searched, in the
#: order in which they are tried.
_QUERIES = ("query", "search_query")
_DOCUMENTS = ("document", "passage", "corpus", "search_document")


@dataclass(frozen=True)
class Prompts:
    """The prompts of a model directory.

    Attributes:
        where: the directory, for messages.
        texts: the texts of the prompts, by name.
        default: the name of the prompt that is used where none is named.
        pooled: whether their pieces count in a vector, as this package does it.
    """

    where: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    pooled: bool = True

    @classmethod
    def of(cls, where: Path | str, modules: SentenceModules | None) -> Prompts:
        """Read the prompts from the `modules` of a directory."""
        if modules is None:
            return cls(str(where))
        return cls(str(where), modules.prompts, modules.default_prompt, modules.include_prompt)

    @classmethod
    def read(cls, where: Path | str) -> Prompts:
        """Read the prompts of a model directory.

        Raises:
            BertineError: its modules cannot be read.
        """
        return cls.of(where, read_sentence_modules(where))

    @property
    def for_queries(self) -> str | None:
        """The name of the prompt for queries; None: there is none, or it cannot be used."""
        return self.for_kind(_QUERIES[0])

    @property
    def for_documents(self) -> str | None:
        """The name of the prompt for texts that are searched; None: there is none, or it cannot be
        used."""
        return self.for_kind(_DOCUMENTS[0])

    def for_kind(self, kind: str) -> str | None:
        """Return the name of the prompt for texts of a kind, named as models or the clients of
        Cohere and NVIDIA name it; None: there is none, or it cannot be used."""
        names = next((names for names in (_QUERIES, _DOCUMENTS) if kind in names), (kind,))
        return next((name for name in names if self.pooled and name in self.texts), None)

    def meant(self) -> tuple[str, str]:
        """Return the default prompts of documents and of queries."""
        if not self.pooled:
            return "", ""
        return self.text(self.for_documents), self.text(self.for_queries)

    def text(self, name: str | None) -> str:
        """Return the prompt of this name, "" for ""; None: the default one, or "".

        Raises:
            BertineError: there is no prompt of this name, or it would be left out of the vectors.
        """
        name = self.default if name is None else name
        if not name:
            return ""
        before = f"{self.where}: " if self.where else ""
        if name not in self.texts:
            known = ", ".join(self.texts) or "none"
            raise BertineError(f"{before}there is no prompt {name!r}; there are: {known}")
        if not self.pooled:
            raise BertineError(
                f"{before}its pooling leaves the prompt out (include_prompt), which is not "
                'computed here; say prompt "" for none'
            )
        return self.texts[name]
