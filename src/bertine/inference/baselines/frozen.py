"""The vectors that a model gives texts before it is trained: what it knows already.

Shape legend: N texts, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch

from bertine.errors import BertineError
from bertine.inference.baselines.linear import Matrix
from bertine.inference.compute.engine import Engine
from bertine.inference.embedding.vectors import PooledTexts
from bertine.interop.sentence_modules import read_sentence_modules
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.tasks.features import Features
from bertine.text.tokenizer import Tokenizer

#: Where nothing else is said.
MEAN = Pooling()
#: Multiplications and additions that the vectors of the training examples may take on a CPU (some
#: seconds to a minute), and on a GPU.
_CPU_WORK, _GPU_WORK = 5e12, 1e15
#: Below so many tokens the model itself computes: an engine first packs and measures.
_FEW_TOKENS = 30_000


class TextFeatures(Protocol):
    """What gives texts features."""

    def matrix(self, texts: Sequence[Sequence[str]]) -> Matrix:
        """Compute the features fp32 [N, D] of N texts or pairs of texts."""
        ...


@dataclass(frozen=True)
class FrozenEncoder:
    """A model as it is before training, and how its states become the vector of a text.

    Attributes:
        model: on its device. It is put into evaluation mode while it computes.
        tokenizer: of the model.
        max_length: pieces of a text; longer ones are cut.
        pooling: the mean of the last states, or as a directory of sentence-transformers says.
        dtype: to compute in.
    """

    model: Model
    tokenizer: Tokenizer
    max_length: int
    pooling: Pooling = MEAN
    dtype: torch.dtype = torch.float32

    @property
    def _work_of_token(self) -> float:
        return 2.0 * self.model.backbone.weights_of_passes()

    def affordable(self, texts: Sequence[Sequence[str]]) -> int:
        """Count how many of `texts`, from the first on, may be computed in the time there is for
        it."""
        on_cpu = next(self.model.parameters()).device.type == "cpu"
        tokens = (_CPU_WORK if on_cpu else _GPU_WORK) / self._work_of_token
        lengths = np.zeros(len(texts), dtype=np.int64)
        for column in zip(*texts, strict=True):
            encoded = self.tokenizer.encode_arrays(list(column), max_length=self.max_length)
            lengths += [len(ids) for ids, _, _ in encoded]
        return int(np.searchsorted(np.cumsum(lengths), tokens, side="right"))

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Compute the vectors fp32 [N, H] of texts; one that is there several times is computed
        once."""
        different = list(dict.fromkeys(texts))
        encoded = self.tokenizer.encode_arrays(different, max_length=self.max_length)
        features = [Features(ids, types, row) for row, (ids, types, _) in enumerate(encoded)]
        place = {text: at for at, text in enumerate(different)}
        table = np.stack(self.run(features)).astype(np.float32)
        return cast(np.ndarray, table[[place[text] for text in texts]])

    def run(
        self, features: Sequence[Features], pooling: Pooling | None = None
    ) -> Sequence[np.ndarray]:
        """Return the vector of each of `features`, with another `pooling` if one is given; of
        ``tokens`` fp32 [n, H] each."""
        pooled = PooledTexts(pooling or self.pooling, self.model.config.longest_input)
        computing, pad_id = self.computing(features), self.tokenizer.pad_token_id
        return pooled.run(computing, features, pad_id=pad_id, dtype=self.dtype)

    def computing(self, features: Sequence[Features]) -> Model | Engine:
        """Return what computes that many `features` fastest: an engine for the CPU, or the
        model."""
        tokens = sum(len(feature.input_ids) for feature in features)
        if next(self.model.parameters()).device.type != "cpu" or tokens <= _FEW_TOKENS:
            return self.model
        return Engine(self.model, precision="bf16" if self.dtype == torch.bfloat16 else "fp32")

    def matrix(self, texts: Sequence[Sequence[str]]) -> Matrix:
        """Compute the features fp32 [N, D]: of single texts their vectors; of pairs u, v, |u - v|
        and u · v by element."""
        columns = [self.vectors([row[at] for row in texts]) for at in range(len(texts[0]))]
        return columns[0] if len(columns) == 1 else pair_features(*columns)


def pooling_of(model_dir: Path | str) -> Pooling:
    """Choose the pooling: as a directory of sentence-transformers says; else the mean of the last
    states, which was better than [CLS], the maximum, and [CLS] beside the mean."""
    try:
        modules = read_sentence_modules(model_dir)
    except BertineError:
        return Pooling()
    if modules is None or modules.refused or not modules.modes or "tokens" in modules.modes:
        return Pooling()
    # Directions say as much as vectors of length 1, which the scaling below undoes.
    return replace(Pooling(), modes=modules.modes, dimensions=modules.dimensions)


def pair_features(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return fp32 [N, 4 D] of vectors [N, D] of two texts, each of length 1, and their cosine."""
    u, v = _unit(u), _unit(v)
    cosine = (u * v).sum(-1, keepdims=True)
    return np.concatenate([u, v, abs(u - v), u * v, cosine], -1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units: np.ndarray = vectors / np.where(norms > 0, norms, 1.0)
    return units


def scaled_vectors(encoder: TextFeatures) -> Callable[[Sequence[Sequence[str]]], Matrix]:
    """Return a function that gives texts the vectors of `encoder`, fp32 [N, D], scaled as the texts
    of its first call need it: call it with the training texts first."""
    scaling: list[Scaling] = []

    def vectors(texts: Sequence[Sequence[str]]) -> Matrix:
        matrix = encoder.matrix(texts)
        if not scaling:
            scaling.append(Scaling(matrix))
        return scaling[0](matrix)

    return vectors


class Scaling:
    """A scaling of dense features to mean 0 and, each of them, variance 1, as `matrix` (fp32 [N,
    D]) has them."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.mean = matrix.mean(0, dtype=np.float64)
        deviation = matrix.std(0, dtype=np.float64)
        self.deviation = np.where(deviation > 1e-9, deviation, 1.0)

    def __call__(self, matrix: np.ndarray) -> np.ndarray:
        return np.asarray((matrix - self.mean) / self.deviation, dtype=np.float32)
