"""Train an encoder contrastively on a few labelled texts: pairs, batches, loss and plan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.core.console import logger, plural
from bertine.core.rng import generator
from bertine.core.text import exact_rate
from bertine.corpora.batch import Batch
from bertine.inference.baselines.texts import pooling_of
from bertine.models.encoder import Encoded
from bertine.models.heads import PAIR_CLASSIFIER, Model, PairHead, texts_apart
from bertine.objectives.losses import LossDefaults, Term
from bertine.options.finetuning import FewShotOptions
from bertine.tasks.base import Task
from bertine.training.defaults import Contrast
from bertine.training.finetuning.setup import Prepared
from bertine.training.fit import FitConfig, fit
from bertine.training.run_folder import Run
from bertine.training.step import only_biases_trained

# Count the pairs that labelled examples make: alike, with a label in common, or not.
#
# Nothing here holds pairs: their number is worked out from how often each label, or set of
# labels, occurs.
#
# Shape legend: N examples, K labels, U different sets of labels.

#: The number of label sets that are compared with all others at once.
_AT_ONCE = 1_024


@dataclass(frozen=True)
class PairCounts:
    """The number of different pairs.

    Attributes:
        alike: pairs of examples with a label in common, or both without any label.
        different: all others.
    """

    alike: int
    different: int

    @property
    def total(self) -> int:
        """All pairs."""
        return self.alike + self.different

    def line(self) -> str:
        """Return the numbers in words."""
        return (
            f"{plural(self.total, 'possible pair')}: {self.alike:,} with a label in common, "
            f"{self.different:,} without; drawn as they are needed"
        )


def count_pairs(chosen: np.ndarray) -> PairCounts:
    """Count the pairs of examples.

    Args:
        chosen: bool [N, K], the labels of each example; with single labels, each row has one.

    Returns:
        The counts, in time N + U^2 and memory N + U.
    """
    kinds, counts = _different_rows(chosen.astype(bool))
    numbers = counts.astype(np.float64)
    of_kinds = kinds.astype(np.float32)
    unlabelled = of_kinds.sum(1) == 0
    alike = 0.0
    for start in range(0, len(kinds), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        shared = of_kinds[part] @ of_kinds.T > 0
        shared |= unlabelled[part, None] & unlabelled[None, :]
        alike += float(numbers[part] @ (shared @ numbers))
    count = len(chosen)
    # Each pair was counted from both sides, and each example with itself.
    same = (round(alike) - count) // 2
    return PairCounts(same, count * (count - 1) // 2 - same)


def _different_rows(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different rows of a table, bool [U, K], and how often each occurs, [U]."""
    packed = np.packbits(chosen, axis=1)
    width = -(-packed.shape[1] // 8)
    # Rows as whole numbers, which are sorted fast.
    numbers = np.zeros((len(packed), 8 * width), dtype=np.uint8)
    numbers[:, : packed.shape[1]] = packed
    keys = numbers.view(np.uint64)
    result = np.unique(
        keys[:, 0] if width == 1 else keys, axis=0, return_index=True, return_counts=True
    )
    return chosen[result[1]], result[2]


# Batches of labelled texts in which any two texts are a pair to learn from.
#
# A batch takes two texts of one label, two of the next, and so on through all labels. Each label's
# texts have their own order, which is drawn again when it has come to its end. So a batch has pairs
# that are alike for any number of labels, and rare labels occur as often as frequent ones. The
# content of a batch is a function of (labels, seed, step) alone.
#
# Shape legend: N examples, K labels.

#: The number of texts of a label that are taken together.
TOGETHER = 2


class LabelBatches:
    """The batches of contrastive training.

    Args:
        features: the features of N inputs.
        chosen: bool [N, K], the labels of each; inputs without a label count as a label of their
            own.
        collate: the task's function features → batch, with the padding id bound.
        batch_size: texts in a batch; one that is drawn twice is taken once, so that with few texts
            a batch is smaller.
        seed: of the random order.
    """

    def __init__(
        self,
        features: Sequence[Any],
        chosen: np.ndarray,
        collate: Callable[[Sequence[Any]], Batch],
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self._features, self._collate = features, collate
        self.batch_size, self.seed = batch_size, seed
        columns = [*chosen.T.astype(bool), ~chosen.astype(bool).any(1)]
        self._members = [result for column in columns if len(result := np.flatnonzero(column))]
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def batch(self, step: int) -> Batch:
        """Return the batch of `step`, counted from 0."""
        return self._collate([self._features[number] for number in self.rows(step)])

    def rows(self, step: int) -> list[int]:
        """Return the indices of the inputs in the batch of `step`, each once."""
        visits = -(-self.batch_size // TOGETHER)
        result: dict[int, None] = {}
        for visit in range(step * visits, (step + 1) * visits):
            round_of_labels, place = divmod(visit, len(self._members))
            label = int(self._order(-1, round_of_labels, len(self._members))[place])
            own = self._members[label]
            for at in range(TOGETHER * round_of_labels, TOGETHER * (round_of_labels + 1)):
                turn, within = divmod(at, len(own))
                result[int(own[self._order(label, turn, len(own))[within]])] = None
        return list(result)[: self.batch_size]

    def _order(self, label: int, turn: int, count: int) -> np.ndarray:
        """Return the order of a label's texts in a pass through them; for label -1, the order of
        the labels. The latest order of each is kept."""
        known = self._orders.get((label, turn))
        if known is None:
            # The pass before may be needed once more, by the batch that ends in this one.
            self._orders.pop((label, turn - 2), None)
            draw = generator(self.seed, "contrastive order", label + 1, turn)
            known = self._orders[label, turn] = draw.permutation(count)
        return known


# Loss: train an encoder so that texts with the same label have vectors close to each other.
#
# The idea of learning from pairs of a few labelled texts is that of SetFit (Tunstall et al. 2022,
# arXiv 2209.11055). SetFit encodes each pair separately; here each text of a batch is encoded once,
# and all pairs of the batch are compared, by the loss of supervised contrastive learning (Khosla et
# al. 2020, arXiv 2004.11362, equation 2): a batch of 32 texts has 496 pairs at the cost of 16.
#
# Shape legend: B inputs in a batch, D numbers of a vector, K labels.


class ContrastiveLoss(LossDefaults):
    """The supervised contrastive loss over a batch.

    Args:
        task: the task of the batches: one label for each input, or any number of them.
        contrast: pooling and temperature.
    """

    name = "contrastive"

    def __init__(self, task: Task[Any], contrast: Contrast) -> None:
        self.task, self.contrast = task, contrast
        self._classes = len(cast(Any, task).labels)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the inputs that share a label with another input in the batch."""
        shared = likeness(self._chosen(batch))
        return {self.name: int((shared.sum(1) > 0).sum())}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Encode the inputs; of pairs, encode both texts separately."""
        return self.task.encode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the loss, in fp32."""
        shared = likeness(self._chosen(batch))
        device_type = encoded.last_hidden_state.device.type
        with torch.autocast(device_type, enabled=False):
            vectors = self._vectors(model, encoded, batch)
            total, count = contrastive_loss(vectors, shared, self.contrast.temperature)
        return {self.name: Term(total, count)}

    def _chosen(self, batch: Batch) -> Tensor:
        """Return the labels of a batch, fp32 [B, K]."""
        labels = batch.targets["labels"]
        if labels.dim() == 1:
            return F.one_hot(labels, self._classes).float()
        return labels.float()

    def _vectors(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the vectors to compare, fp32 [B, D] of length 1."""
        if PAIR_CLASSIFIER not in model.heads:
            mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
            return F.normalize(self.contrast.pooling(encoded, mask).float(), dim=-1)
        head = cast(PairHead, model.heads[PAIR_CLASSIFIER])
        compared = head.features(encoded, texts_apart(batch))
        size = head.pooling.width(model.config)
        # The parts that say how the two texts differ and agree, without the vector of each text.
        parts = (compared[:, 2 * size : 3 * size], compared[:, 3 * size : 4 * size])
        return F.normalize(torch.cat([F.normalize(part, dim=-1) for part in parts], -1), dim=-1)


def likeness(chosen: Tensor) -> Tensor:
    """Return the similarity of the labels of each two inputs.

    Args:
        chosen: fp32 [B, K] of 0 and 1.

    Returns:
        fp32 [B, B]: the number of common labels, as a share of those that either has; 1 if neither
        has any; 0 for an input with itself.
    """
    common = chosen @ chosen.T
    sizes = chosen.sum(1)
    either = sizes[:, None] + sizes[None, :] - common
    shared = torch.where(either > 0, common / either.clamp(min=1.0), torch.ones_like(common))
    return shared.fill_diagonal_(0.0)


def contrastive_loss(vectors: Tensor, shared: Tensor, temperature: float) -> tuple[Tensor, int]:
    """Compute the supervised contrastive loss.

    Args:
        vectors: fp32 [B, D], of length 1.
        shared: fp32 [B, B], the target similarity of each two; 0 on the diagonal.
        temperature: the divisor of cosines.

    Returns:
        The sum over the inputs that have a similar one in the batch, and their number.
    """
    cosines = vectors @ vectors.T / temperature
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    log = F.log_softmax(cosines.masked_fill(itself, -1e9), dim=1)
    weights = shared.sum(1)
    has = weights > 0
    losses = -(shared * log).sum(1)[has] / weights[has]
    return losses.sum(), int(has.sum())


def labels_of(features: Any, classes: int) -> np.ndarray:
    """Return the labels of features, bool [N, K], from label numbers or from 0 and 1 for each
    label."""
    labels = [np.asarray(feature.label) for feature in features]
    if labels[0].ndim:
        return np.stack(labels) > 0.5
    return np.eye(classes, dtype=bool)[np.array(labels, dtype=np.int64)]


# Training: batches, rates and the loop over the encoder.

#: The penalty of the head (scikit-learn's C) for vectors of length 1, and for the features of
#: pairs, each of which is scaled. Cross-validation cannot choose it: the encoder has seen the
#: examples that are left out.
_STRENGTH, _STRENGTH_OF_PAIRS = 30.0, 1e-2
_WORDS = {"biases": "biases and layer norms", "all": "all weights"}


def plan_contrast(prepared: Prepared, options: FewShotOptions) -> Contrast:
    """Return the plan of the encoder's training, and print it with the number of possible pairs."""
    task: Any = prepared.task
    contrast = Contrast.of(
        options,
        prepared.loaded.model,
        len(prepared.features),
        pooling_of(prepared.model),
        len(task.text_columns) == 2,
    )
    logger.info(count_pairs(labels_of(prepared.features, len(task.labels))).line())
    logger.info(
        f"contrastive training of {_WORDS[contrast.trained_weights]}: "
        f"{plural(contrast.steps, 'step')} with up to {plural(contrast.batch_size, 'text')} each, "
        f"learning rate {exact_rate(contrast.learning_rate)}"
    )
    return contrast


def strengths_after(task: Task[Any]) -> tuple[float, ...]:
    """Return the penalty of the head for an encoder that was trained on the same examples."""
    return (_STRENGTH_OF_PAIRS if len(task.text_columns) == 2 else _STRENGTH,)


def train_encoder(prepared: Prepared, config: FitConfig, run: Run) -> None:
    """Train the encoder of `prepared` in place, or resume its training; the log and the checkpoints
    go to the folder of `run`."""
    contrast, task, loaded = prepared.contrast, prepared.task, prepared.loaded
    assert contrast is not None
    pad_id = loaded.tokenizer.pad_token_id
    features = prepared.features
    batches = LabelBatches(
        features,
        labels_of(features, len(cast(Any, task).labels)),
        lambda chosen: task.collate(chosen, pad_id),
        batch_size=contrast.batch_size,
        seed=config.seed,
    )
    loss = ContrastiveLoss(task, contrast)
    some = contrast.trained_weights == "biases"
    with only_biases_trained(loaded.model) if some else contextlib.nullcontext():
        fit(loaded.model, loss, batches.batch, config, run, title="few-shot")
