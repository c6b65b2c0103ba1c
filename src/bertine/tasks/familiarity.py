"""Judge how much a text is like the labelled examples of a model's training.

A text far from all of them gets a label all the same, often with a high probability. Here the
distance of its vector to the nearest mean vector of a label is compared with those of labelled
texts that the model was not trained on. The familiarity is the share of these that are at least as
strange (a conformal p-value: Vovk, Gammerman and Shafer 2005, "Algorithmic learning in a random
world"; Bates et al. 2023, arXiv 2104.08279). Of texts like the held-out ones, a share of p at most
has a familiarity of p or less.

Shape legend: N texts, K labels, H hidden size, B sequences of a batch.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertine.core.names import later
from bertine.core.rng import generator
from bertine.corpora.batch import Batch
from bertine.tasks.base import Features, Task, pooled
from bertine.tasks.calibration import LEAST_EXAMPLES

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from bertine.models.heads import Model
    from bertine.models.pooling import Pooling
else:
    later(globals(), "torch models.pooling:Pooling")

#: The most tokens of training examples whose vectors are computed, and the most held-out texts that
#: are kept: with more of either, answers change little.
_MOST_TOKENS, _MOST_HELD = 1 << 16, 999
#: The most numbers of all means together; models with more labels get no familiarity.
_MOST_NUMBERS = 1 << 20
#: The largest number of 8 bits.
_BYTE = 127


class WithVectors:
    """A task for running features whose outputs are those of `task` and the vectors that its head
    reads, from the same pass: fp32 [B, K + H]. Where the head reads no vector, it is the mean of
    the states."""

    def __init__(self, task: Task[Any]) -> None:
        self._task = task

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        """Pad features into one batch."""
        return self._task.collate(features, pad_id)

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """Compute the task's outputs and the vectors."""
        encoded = self._task.encode(model, batch)
        logits = self._task.outputs(model, batch, encoded).float()
        reads = model.family.heads[self._task.head].reads
        if reads == "pooled" and not model.config.has_pooler:
            vectors = encoded.pooler_output
            assert vectors is not None, "the head has read it"
        elif reads in ("pooled", "first"):
            vectors = encoded.first_token  # what a pooler computes from it tells less
        else:
            mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
            vectors = Pooling()(encoded, mask)
        return torch.cat([logits, vectors.float()], -1)


@dataclass(frozen=True, eq=False)
class Familiarity:
    """What is kept of the training to judge new texts.

    Attributes:
        center: the mean vector, fp32 [H].
        means: int8 [K, H], the directions in which the mean vectors of the labels lie from it; only
            the ratios of a row's numbers count.
        held_out: fp32, sorted: how strange the held-out texts are.
    """

    center: np.ndarray
    means: np.ndarray
    held_out: np.ndarray

    @classmethod
    def fit(
        cls,
        run: Callable[[list[Features]], Sequence[np.ndarray]],
        train: Sequence[Features],
        held: Sequence[Features],
        num_labels: int,
    ) -> Familiarity | None:
        """Compute the means of some labelled training texts, and how strange held-out texts are.

        Args:
            run: computes what :class:`WithVectors` returns.
            train, held: the features of labelled texts.
            num_labels: K.

        Returns:
            None if there are fewer than 50 held-out texts, or too many labels.
        """
        kept = [feature for feature in held if feature.label is not None]
        texts = len({feature.row for feature in kept})
        chosen, labels = _some_of_each(train)
        if texts < LEAST_EXAMPLES or not chosen:
            return None
        vectors = np.stack(run(chosen))[:, num_labels:]
        if num_labels * vectors.shape[1] > _MOST_NUMBERS:
            return None
        center = vectors.mean(0).astype(np.float16).astype(np.float32)
        apart = _unit(vectors - center)
        rows = np.stack([apart[labels == label].mean(0) for label in np.unique(labels)])
        scale = np.maximum(abs(rows).max(1, keepdims=True), 1e-12) / _BYTE
        fitted = cls(center, np.rint(rows / scale).astype(np.int8), np.zeros(0, np.float32))
        held_out = np.stack(pooled(run(kept), kept))[:, num_labels:]
        strange = fitted.strangeness(held_out)
        if len(strange) > _MOST_HELD:
            draw = generator(0, "held-out texts of familiarity")
            strange = strange[draw.permutation(len(strange))[:_MOST_HELD]]
        return cls(fitted.center, fitted.means, np.sort(strange))

    def strangeness(self, vectors: np.ndarray) -> np.ndarray:
        """Compute how strange texts are, fp32 [N], from their vectors [N, H]: 1 minus the cosine
        to the nearest mean."""
        means = _unit(self.means.astype(np.float32))
        return np.asarray(1 - (_unit(vectors - self.center) @ means.T).max(1), dtype=np.float32)

    def of(self, vectors: np.ndarray) -> np.ndarray:
        """Return the familiarity of texts, fp64 [N], above 0 and at most 1."""
        strange = self.strangeness(vectors)
        count = len(self.held_out)
        at_least = count - np.searchsorted(self.held_out, strange, side="left")
        return np.asarray((1 + at_least) / (count + 1), dtype=np.float64)

    def to_dict(self) -> dict[str, str]:
        """Return JSON values: the bytes of the arrays, as base64."""
        return {
            "center": array_text(self.center.astype("<f2")),
            "means": array_text(self.means),
            "held_out": array_text(self.held_out.astype("<f4")),
        }

    @classmethod
    def from_facts(cls, facts: Any, hidden_size: int) -> Familiarity | None:
        """Read the result of :meth:`to_dict`; return None for anything else."""
        try:
            center = text_array(facts["center"], "<f2").astype(np.float32)
            means = text_array(facts["means"], "i1").reshape(-1, hidden_size)
            held_out = text_array(facts["held_out"], "<f4").astype(np.float32)
        except (TypeError, KeyError, ValueError, binascii.Error):
            return None
        whole = len(center) == hidden_size and len(means) and len(held_out) >= LEAST_EXAMPLES
        finite = np.isfinite(center).all() and np.isfinite(held_out).all()
        return cls(center, means, np.sort(held_out)) if whole and finite else None


def _some_of_each(features: Sequence[Features]) -> tuple[list[Features], np.ndarray]:
    """Choose labelled features evenly from all labels, in an order that is drawn, as long as the
    number of tokens allows; return them and the numbers of their labels."""
    seen: Counter[int] = Counter()
    turns: list[tuple[int, int, int]] = []
    for at in generator(0, "texts of familiarity").permutation(len(features)).tolist():
        number = label_number(features[at])
        if number is not None:
            turns.append((seen[number], at, number))
            seen[number] += 1
    chosen: list[Features] = []
    labels: list[int] = []
    tokens = 0
    for _, at, number in sorted(turns):
        tokens += len(features[at].input_ids)
        if chosen and tokens > _MOST_TOKENS:
            break
        chosen.append(features[at])
        labels.append(number)
    return chosen, np.array(labels, dtype=np.int64)


def label_number(feature: Features) -> int | None:
    """Return the number of the label of a text, of several the most probable; None: it has none."""
    label = feature.label
    if label is None:
        return None
    return int(label.argmax() if isinstance(label, np.ndarray) else label)


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def array_text(values: np.ndarray) -> str:
    """Return the bytes of an array as base64."""
    return base64.b64encode(values.tobytes()).decode()


def text_array(text: str, kind: str) -> np.ndarray:
    """Return an array of a `kind` of number from :func:`array_text`."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
