"""Learn a table of vectors from the teacher's vectors of texts, as "tokenlearn" of Minish Lab does.

Each text's mean of its pieces' vectors is turned towards the teacher's vector of the text: the loss
is the squared distance of both at length 1, which is twice (1 - cosine). Pieces that no text has
stay what they were.

Shape legend: N texts, V pieces of the vocabulary, D numbers of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.inference.static_vectors.table import StaticTable
from bertine.terminal.console import progress

#: One in so many texts is held out to see whether learning goes on well, and at most so many.
_HELD_OUT, _MOST_HELD_OUT = 20, 5000
#: Texts that are compared at once.
_COMPARED = 4096


@dataclass(frozen=True)
class PieceTexts:
    """Texts as their pieces.

    Attributes:
        ids: int32 [pieces], of one text after the other.
        lengths: int64 [N], at least 1.
    """

    ids: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: np.ndarray) -> PieceTexts:
        """Return the texts `rows`, int64 [n], in their order."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[rows]
        shift = starts[rows] - (np.cumsum(lengths) - lengths)
        return PieceTexts(
            self.ids[np.repeat(shift, lengths) + np.arange(int(lengths.sum()))], lengths
        )


@dataclass(frozen=True)
class Fitted:
    """What learning came to.

    Attributes:
        vectors: fp32 [V, D].
        before, after: the mean cosine with the teacher's vectors of the texts held out.
        held_out: how many these were.
        epochs: passes over the texts that the best table had seen; 0: none was better than before.
    """

    vectors: np.ndarray
    before: float
    after: float
    held_out: int
    epochs: int


def fit_table(
    vectors: np.ndarray,
    texts: PieceTexts,
    targets: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    show_progress: bool = True,
) -> Fitted:
    """Turn the means of texts towards the teacher's vectors.

    Args:
        vectors: fp32 [V, D], to begin with.
        texts: N of them.
        targets: fp32 [N, D], the teacher's vectors; only their directions count.
        epochs: passes over the texts at most; the table that is best on held-out texts is kept, and
            two passes without a better one are the last.
        batch_size: texts of an update.
        learning_rate: of Adam, for a table whose rows have about length 1; it falls to 0.

    Returns:
        The best table, and the cosines.
    """
    draws = np.random.default_rng(seed)
    order = draws.permutation(len(texts))
    count = max(1, min(_MOST_HELD_OUT, len(texts) // _HELD_OUT))
    held, learned = np.sort(order[:count]), order[count:]
    length = np.sqrt(np.mean(np.square(vectors).sum(1), dtype=np.float64)) or 1.0
    table = torch.from_numpy((vectors / length).astype(np.float32)).requires_grad_()
    goal = F.normalize(torch.from_numpy(np.ascontiguousarray(targets)), dim=1)
    held_texts, held_goal = texts.take(held), goal[torch.from_numpy(held)]
    before = after = _cosine(table, held_texts, held_goal)
    best, best_epoch = vectors, 0
    optimizer = torch.optim.SparseAdam([table], lr=learning_rate)
    steps = -(-len(learned) // batch_size) * epochs
    step = 0
    with progress(show=show_progress) as bar:
        job = bar.add_task("learn from the teacher", total=steps)
        for epoch in range(1, epochs + 1):
            draws.shuffle(learned)
            for start in range(0, len(learned), batch_size):
                rows = learned[start : start + batch_size]
                optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / steps)
                means = _means(table, texts.take(rows), sparse=True)
                cosines = F.cosine_similarity(means, goal[torch.from_numpy(rows)])
                optimizer.zero_grad()
                (2 * (1 - cosines)).mean().backward()
                optimizer.step()
                step += 1
                bar.advance(job, 1)
            cosine = _cosine(table, held_texts, held_goal)
            if cosine > after:
                after, best_epoch = cosine, epoch
                best = table.detach().numpy() * np.float32(length)
            elif epoch - best_epoch >= 2:
                break
    return Fitted(best, before, after, count, best_epoch)


def _means(table: Tensor, texts: PieceTexts, *, sparse: bool = False) -> Tensor:
    offsets = torch.from_numpy(np.cumsum(texts.lengths) - texts.lengths)
    ids = torch.from_numpy(texts.ids.astype(np.int64))
    return F.embedding_bag(ids, table, offsets, mode="mean", sparse=sparse)


def _cosine(table: Tensor, texts: PieceTexts, goal: Tensor) -> float:
    """Return the mean cosine of the texts' means and `goal` fp32 [n, D]."""
    means = StaticTable(table.detach().numpy()).means(texts.ids, texts.lengths)
    return float(F.cosine_similarity(torch.from_numpy(means), goal).mean())
