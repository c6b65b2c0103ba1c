"""Compute the losses of training on pairs of texts, and build their batches.

Shape legend: P pairs, N further wrong answers, B = 2 P + N texts, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.core.names import PairLossName
from bertine.corpora.batch import Batch, cut, select
from bertine.models.dropout import stream
from bertine.models.encoder import Encoded
from bertine.models.heads import Model
from bertine.models.pooling import Pooling
from bertine.objectives.losses import Term
from bertine.tasks.base import Features, pad_features, text_number
from bertine.training.step import CPU_MICRO_BATCH, GPU_MICRO_BATCH

# Losses: each is a sum over pairs of texts, computed from their vectors.
#
# Shape legend: P pairs, N further wrong answers, C = P + N candidates, D numbers of a vector.


def ranking_losses(scores: Tensor, known: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Compute the negative log-likelihood of the right candidate among all: the cross-entropy of a
    softmax over cosines (van den Oord et al. 2018, section 2.3; Henderson et al. 2017, section 4).

    Args:
        scores: fp32 [P, C], cosines; the right candidate of pair i is i.
        known: bool [P, C], candidates that are left out, because they are also right.
        scale: the factor on cosines.

    Returns:
        Their sum, fp32 scalar, and the number of pairs whose right candidate ranks first, int64
        scalar.
    """
    logits = (scores * scale).masked_fill(known, float("-inf"))
    right = torch.arange(len(scores), device=scores.device)
    total = F.cross_entropy(logits, right, reduction="sum")
    return total, (logits.argmax(1) == right).sum()


def order_loss(cosines: Tensor, scores: Tensor, scale: float) -> Tensor:
    """Compute how much the order of cosines differs from that of the scores: the logarithm of 1
    plus the sum of exp(scale (cos j - cos i)) over all i, j with score i above score j (CoSENT:
    Huang et al. 2024, IEEE/ACM TASLP 32). For a batch of equal scores it is 0.

    Args:
        cosines, scores: fp32 [P].

    Returns:
        fp32 scalar, of the whole batch.
    """
    differences = scale * (cosines[None, :] - cosines[:, None])
    wrong = differences.masked_fill(scores[:, None] <= scores[None, :], float("-inf")).flatten()
    return torch.logsumexp(torch.cat([wrong.new_zeros(1), wrong]), 0)


def right_as_well(groups: Tensor, firsts: Tensor, seconds: Tensor, others: Tensor) -> Tensor:
    """Return which candidates are right in addition to a pair's own: those of its group; the same
    text as its first or second one; the second texts of pairs with the same first text.

    Args:
        groups: int64 [P], -1 if there is none.
        firsts, seconds: int64 [P], equal numbers for equal texts.
        others: int64 [N], those of the further candidates.

    Returns:
        bool [P, P + N]; a pair's own candidate is False.
    """
    candidates = torch.cat([seconds, others])
    known = (seconds[:, None] == candidates[None, :]) | (firsts[:, None] == candidates[None, :])
    count = len(firsts)
    same = (groups[:, None] == groups[None, :]) & (groups >= 0)[:, None]
    known[:, :count] |= (firsts[:, None] == firsts[None, :]) | same
    own = torch.arange(count, device=known.device)
    known[own, own] = False
    return known


# Encoding in parts: parts of texts of similar length, in bounded memory.
#
# A loss over all pairs of a batch needs all its vectors at once, but not the intermediate
# activations. If a batch has more than one part, the vectors are computed without gradients; the
# loss gives the gradients of the vectors; and with these each part is computed again and
# backpropagated separately (gradient caching: Gao et al. 2021, arXiv 2101.06983, section 3).
#
# Shape legend: B texts, D numbers of a vector.

#: A function from a batch to its vectors fp32 [B, D].
Encode = Callable[[Batch], Tensor]


def encode_in_parts(encode: Encode, batch: Batch, max_tokens: int) -> Tensor:
    """Compute the vectors fp32 [B, D] of `batch`, in parts of at most `max_tokens` tokens, padding
    counted; with gradients if they are enabled.

    Dropout is drawn for each part; it is the same for the same position of the stream.
    """
    lengths = batch.attention_mask.sum(1).cpu()
    parts = cut(lengths, torch.arange(batch.num_sequences), max_tokens)
    if len(parts) == 1:
        return encode(batch)
    if not torch.is_grad_enabled():
        return _forward(encode, batch, parts, stream.position)
    tied = torch.zeros((), device=batch.input_ids.device, requires_grad=True)
    vectors: Tensor = _Cached.apply(tied, encode, batch, parts)
    return vectors


def _forward(
    encode: Encode, batch: Batch, parts: list[Tensor], position: tuple[int, ...]
) -> Tensor:
    vectors = []
    for number, rows in enumerate(parts):
        stream.seed(*position, number)
        vectors.append(encode(select(batch, rows)))
    order = torch.cat(parts).to(vectors[0].device)
    joined = torch.cat(vectors)
    return torch.empty_like(joined).index_copy_(0, order, joined)


class _Cached(torch.autograd.Function):
    """Vectors whose parts are computed again, one after the other, in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, tied: Tensor, encode: Encode, batch: Batch, parts: list[Tensor]
    ) -> Tensor:
        ctx.encode, ctx.batch, ctx.parts, ctx.position = encode, batch, parts, stream.position
        kind = tied.device.type
        ctx.autocast = (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        return _forward(encode, batch, parts, ctx.position)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        kind, enabled, dtype = ctx.autocast
        for number, rows in enumerate(ctx.parts):
            stream.seed(*ctx.position, number)
            with torch.enable_grad(), torch.autocast(kind, enabled=enabled, dtype=dtype):
                vectors = ctx.encode(select(ctx.batch, rows))
            vectors.backward(grad[rows.to(grad.device)])
        return None, None, None, None


#: The role of a text in a batch.
FIRST, SECOND, NEGATIVE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, with their score or group.

    Attributes:
        first, second: the texts; for ranking a question and its right answer.
        negatives: wrong answers.
        score: how similar the two are, for losses that learn scores; None: not known.
        group: a number, such as that of a label, shared by pairs whose texts are all right answers
            for each other; None: none.
    """

    first: Features
    second: Features
    negatives: tuple[Features, ...] = ()
    score: float | None = None
    group: int | None = None


@dataclass(frozen=True)
class PairLoss:
    """A loss on pairs of texts.

    Attributes:
        name: ``ranking``: the second text of a pair is to be nearer to the first one than all other
            second texts and all negatives of the batch (:func:`ranking_losses`);
            ``cosent``: the cosines of pairs are to be in the order of their scores
            (:func:`order_loss`); ``cosine``: the squared difference of cosine and score.
        scale: the factor on cosines, for the first two.
        symmetric: for ``ranking``: the first text is also to be the nearest to the second one.
        lengths: numbers of leading dimensions that are to work as well as the whole vector
            (Kusupati et al. 2022, arXiv 2205.13147, section 3); the losses of these and of the
            whole vector have equal weight. Empty: the whole vector only.
    """

    name: PairLossName = "ranking"
    scale: float = 20.0
    symmetric: bool = False
    lengths: tuple[int, ...] = ()

    def all_lengths(self, whole: int) -> tuple[int, ...]:
        """Return the vector lengths whose losses count, for vectors of `whole` numbers."""
        return (whole, *(n for n in dict.fromkeys(self.lengths) if n != whole))

    def of(self, vectors: Tensor, batch: Batch) -> dict[str, Term]:
        """Compute the loss of the `vectors` fp32 [B, D] of a batch of :func:`pair_batch`."""
        lengths = self.all_lengths(vectors.shape[1])
        losses = [self._of(F.normalize(vectors[:, :n], dim=-1), batch) for n in lengths]
        total = torch.stack([loss for loss, _ in losses]).mean()
        count = int((batch.targets["side"] == FIRST).sum())
        return {self.name: Term(total, count, correct=losses[0][1])}

    def _of(self, vectors: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the sum of the losses of unit vectors, and the number of right pairs."""
        side, same = batch.targets["side"], batch.targets["same"]
        first, second = vectors[side == FIRST], vectors[side == SECOND]
        if self.name != "ranking":
            cosines, scores = (first * second).sum(1), batch.targets["scores"][side == FIRST]
            if self.name == "cosine":
                return (cosines - scores).square().sum(), None
            # One number for the whole batch, because the step divides by the number of pairs.
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
    """A :class:`PairLoss` in the form that :func:`~bertine.training.fit.fit` minimizes.

    Attributes:
        loss: of vectors.
        pooling: from the tokens of a text to its vector.
        max_tokens: computed at once, padding counted; None: a value that suits the device.
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

    Its targets have an entry for each text: ``side``, its role; ``same``, an equal number for equal
    texts; ``group`` and ``scores`` of its pair; ``groups``, the same for all, because they are
    computed together (:mod:`bertine.corpora.batch`).
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
