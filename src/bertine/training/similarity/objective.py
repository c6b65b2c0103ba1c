"""What training on pairs of texts minimizes, and the batch that it is computed of.

Shape legend: P pairs, N further wrong answers, B = 2 P + N texts, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.names import PairLossName
from bertine.objectives.base import Term
from bertine.tasks.features import Features, pad_features, text_number
from bertine.training.loop.step import CPU_MICRO_BATCH, GPU_MICRO_BATCH
from bertine.training.similarity.encoding import encode_in_parts
from bertine.training.similarity.ranking import order_loss, ranking_losses, right_as_well

#: What a text of a batch is.
FIRST, SECOND, NEGATIVE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, and what is known of them.

    Attributes:
        first, second: the texts; of a ranking a question and the answer that is right.
        negatives: answers that are wrong.
        score: how alike the two are, for losses that learn scores; None: not known.
        group: a number that pairs have in common whose texts are all right for one another, such as
            that of a label; None: none.
    """

    first: Features
    second: Features
    negatives: tuple[Features, ...] = ()
    score: float | None = None
    group: int | None = None


@dataclass(frozen=True)
class PairLoss:
    """A loss of pairs of texts.

    Attributes:
        name: ``ranking``: the second text of a pair is to be nearer to the first one than all other
            second texts and all negatives of the batch (:func:`.ranking.ranking_losses`);
            ``cosent``: the cosines of pairs are to be in the order of their scores
            (:func:`.ranking.order_loss`); ``cosine``: the squared difference of cosine and score.
        scale: what cosines are multiplied by, of the first two.
        symmetric: of ``ranking``: the first text is also to be the nearest to the second one.
        lengths: so many of the first numbers of a vector are to do as well as all of them (Kusupati
            et al. 2022, arXiv 2205.13147, section 3); the losses of these and of all numbers count
            alike. Empty: all numbers.
    """

    name: PairLossName = "ranking"
    scale: float = 20.0
    symmetric: bool = False
    lengths: tuple[int, ...] = ()

    def all_lengths(self, whole: int) -> tuple[int, ...]:
        """Return the lengths whose losses count, for vectors of `whole` numbers."""
        return (whole, *(n for n in dict.fromkeys(self.lengths) if n != whole))

    def of(self, vectors: Tensor, batch: Batch) -> dict[str, Term]:
        """Compute the loss of the `vectors` fp32 [B, D] of a batch of :func:`pair_batch`."""
        lengths = self.all_lengths(vectors.shape[1])
        losses = [self._of(F.normalize(vectors[:, :n], dim=-1), batch) for n in lengths]
        total = torch.stack([loss for loss, _ in losses]).mean()
        count = int((batch.targets["side"] == FIRST).sum())
        return {self.name: Term(total, count, correct=losses[0][1])}

    def _of(self, vectors: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the sum of the losses of unit vectors, and how many pairs are right."""
        side, same = batch.targets["side"], batch.targets["same"]
        first, second = vectors[side == FIRST], vectors[side == SECOND]
        if self.name != "ranking":
            cosines, scores = (first * second).sum(1), batch.targets["scores"][side == FIRST]
            if self.name == "cosine":
                return (cosines - scores).square().sum(), None
            # One number for the whole batch; the step divides by the number of pairs.
            return order_loss(cosines, scores, self.scale) * len(first), None
        other = side == NEGATIVE
        cosines = first @ torch.cat([second, vectors[other]]).T
        groups, ours, theirs = (
            batch.targets[name][side == which]
            for name, which in (("group", FIRST), ("same", FIRST), ("same", SECOND))
        )
        known = right_as_well(groups, ours, theirs, same[other])
        total, correct = ranking_losses(cosines, known, self.scale)
        if self.symmetric:
            back = right_as_well(groups, theirs, ours, theirs[:0])
            total = (total + ranking_losses(cosines[:, : len(first)].T, back, self.scale)[0]) / 2
        return total, correct

    def check(self, pairs: Sequence[Pair]) -> None:
        """Refuse pairs that this loss cannot learn from.

        Raises:
            BertineError: it learns scores, and a pair has none.
        """
        if self.name != "ranking" and any(pair.score is None for pair in pairs):
            raise BertineError(f"the loss {self.name!r} learns scores, which these pairs have not")


@dataclass(frozen=True)
class PairObjective:
    """A :class:`PairLoss` as :func:`~bertine.training.loop.fit.fit` minimizes it.

    Attributes:
        loss: of vectors.
        pooling: from the tokens of a text to its vector.
        max_tokens: that are computed at once, padding counted; None: what suits the device.
    """

    loss: PairLoss
    pooling: Pooling
    max_tokens: int | None = None

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.loss.name: int((batch.targets["side"] == FIRST).sum())}

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        kind = batch.input_ids.device.type
        most = self.max_tokens or (CPU_MICRO_BATCH if kind == "cpu" else GPU_MICRO_BATCH)

        def encode(part: Batch) -> Tensor:
            return self.pooling(self.encode(model, part), part.attention_mask)

        return self.loss.of(encode_in_parts(encode, batch, most), batch)

    def encode(self, model: Model, batch: Batch) -> Encoded:
        return model.encode(batch, all_states=self.pooling.needs_all_layers)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        return self.loss.of(self.pooling(encoded, batch.attention_mask), batch)


def pair_batch(pairs: Sequence[Pair], pad_id: int, max_length: int) -> Batch:
    """Pad the texts of `pairs` into one batch: all first ones, all second ones, all negatives.

    Its targets have an entry for each text: ``side``, what it is; ``same``, a number that is equal
    for equal texts; ``group`` and ``scores`` of its pair; ``groups``, the same for all, since they
    are computed together (:mod:`bertine.data.split`).
    """
    sides = [
        (FIRST, [(pair.first, pair) for pair in pairs]),
        (SECOND, [(pair.second, pair) for pair in pairs]),
        (NEGATIVE, [(text, pair) for pair in pairs for text in pair.negatives]),
    ]
    listed = [(side, text, pair) for side, texts in sides for text, pair in texts]
    batch = pad_features([text for _, text, _ in listed], pad_id, max_length)
    batch.rows = []
    columns: dict[str, list[Any]] = {
        "side": [side for side, _, _ in listed],
        "same": [text_number(text) for _, text, _ in listed],
        "group": [-1 if pair.group is None else pair.group for _, _, pair in listed],
        "groups": [0] * len(listed),
    }
    batch.targets = {name: torch.tensor(values) for name, values in columns.items()}
    scores = [0.0 if pair.score is None else pair.score for _, _, pair in listed]
    batch.targets["scores"] = torch.tensor(scores, dtype=torch.float32)
    return batch
