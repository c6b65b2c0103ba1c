"""Update word vectors by skip-gram or CBOW with negative sampling, some hundred words at a time.

The loss is the paper's (Mikolov et al. 2013, "Distributed Representations of Words and Phrases and
their Compositionality", equation 4): for each pair of a word and one of its context ``log σ(v·u)``,
and for each of K negatives ``log σ(-v·u)``, summed and maximized by plain gradient steps. The
published program processes one pair at a time, with vectors; here a chunk of L words is three
matrix products, following Ji et al. 2016 ("Parallelizing Word2Vec in Shared and Distributed
Memory"): all words against all of the chunk and its margins, of which the pairs of a window count,
and all words against N negatives shared by the chunk, each with the weight K/N, so that the
expected gradient is the same.

Shape legend: V words, D numbers of a vector, M chunks, L words of a chunk, W the largest window, B
= M·L words of a batch, N negatives of a chunk, K negatives of a pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertine.core.names import WordVectorModel
from bertine.core.rng import generator

# Sampling: the words that stay, the windows around them, and the negatives.
#
# Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their
# Compositionality", sections 2.2 and 2.3; where the published program (word2vec.c) differs, it is
# followed.

#: Separates documents, in place of a word.
BREAK = -1
#: Words sampled at once; windows do not extend beyond.
BLOCK = 1 << 18


def keep_probabilities(counts: np.ndarray, threshold: float) -> np.ndarray:
    """Compute the probability fp64 [V] that an occurrence of each word stays: with f its share of
    all words and t the threshold, ``(sqrt(f / t) + 1) * t / f``, at most 1 (word2vec.c; the paper
    has ``sqrt(t / f)``). A threshold of 0 keeps all."""
    if not threshold:
        return np.ones(len(counts))
    share = counts / counts.sum()
    return np.minimum(1.0, (np.sqrt(share / threshold) + 1) * threshold / share)


def negative_probabilities(counts: np.ndarray, exponent: float) -> np.ndarray:
    """Compute the distribution fp64 [V] of negatives: counts to the power `exponent`, 0.75 in the
    paper."""
    weights = counts.astype(np.float64) ** exponent
    return weights / weights.sum()


@dataclass(frozen=True)
class BlockDraws:
    """The random draws for a block of text.

    Attributes:
        words: int64 [n], those kept, and `BREAK` between documents.
        windows: int64 [n], words to each side, evenly from 1 to the largest.
        negatives: int64 [chunks, N], by their distribution.
    """

    words: np.ndarray
    windows: np.ndarray
    negatives: np.ndarray


@dataclass(frozen=True)
class Sampler:
    """The source of all random draws, by seed, epoch and block.

    Attributes:
        keep: fp64 [V], see :func:`keep_probabilities`.
        negatives: fp64 [V], see :func:`negative_probabilities`.
        window: most words to each side.
        chunk: words that share their negatives.
        shared: N, negatives of a chunk.
        seed: the seed of the run.
    """

    keep: np.ndarray
    negatives: np.ndarray
    window: int
    chunk: int
    shared: int
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_upto", np.cumsum(self.negatives))
        object.__setattr__(self, "_kept", np.append(self.keep, 1.0))  # BREAK, the last, stays

    def draw(self, ids: np.ndarray, epoch: int, block: int) -> BlockDraws:
        """Draw for the block number `block` of an epoch, whose words are `ids` int32 [n]."""
        draws = generator(self.seed, "word2vec", epoch, block)
        words = ids[draws.random(len(ids)) < self._kept[ids]].astype(np.int64)  # type: ignore[attr-defined]
        windows = draws.integers(1, self.window + 1, len(words))
        chunks = -(-len(words) // self.chunk)
        places = draws.random((chunks, self.shared))
        upto = self._upto  # type: ignore[attr-defined]
        negatives = np.searchsorted(upto, places * upto[-1], side="right")
        return BlockDraws(words, windows, np.minimum(negatives, len(upto) - 1))


def blocks(ids: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the parts of a text's `ids` that are sampled at once, with their numbers."""
    for number, start in enumerate(range(0, len(ids), BLOCK)):
        yield number, np.asarray(ids[start : start + BLOCK])


#: L, the words that share their negatives, which is also N; smaller for cbow, which has one pair
#: for each word, so that less of a product is outside every window.
CHUNK: dict[WordVectorModel, int] = {"skip-gram": 32, "cbow": 16}
SHARED: dict[WordVectorModel, int] = {"skip-gram": 64, "cbow": 16}
#: Most words of a batch.
_LARGEST = 512
#: How often a word's vector may move in one batch, on average, times the rate. All moves start from
#: the same vector: at 8, vectors of words of Wikipedia overshot.
_MOVES = 3.0


def batch_words(
    model: WordVectorModel,
    share: float,
    negative_share: float,
    *,
    negatives: int,
    window: int,
    learning_rate: float,
) -> int:
    """Return B, a multiple of L or a power of 2 below it: smaller if a text has few different
    words, whose vectors would move too often in one batch.

    Args:
        model: "skip-gram" or "cbow".
        share: the share of the most frequent word among the words kept.
        negative_share: the share of the most frequent negative.
        negatives: K.
        window: W.
        learning_rate: the peak.
    """
    # On average a word is in window + 1 contexts. In skip-gram each is a pair with its negatives;
    # cbow has one pair for all of them, and each gets its gradient.
    if model == "skip-gram":
        moves = (window + 1) * (share + negatives * negative_share)
    else:
        moves = (window + 1) * share + share + negatives * negative_share
    moves *= learning_rate
    most = min(_LARGEST, int(_MOVES / max(moves, 1e-12)))
    if most >= CHUNK[model]:
        return most // CHUNK[model] * CHUNK[model]
    return 1 << max(1, most).bit_length() - 1


class Weights:
    """The two vectors of each word: `words` fp32 [V, D], initially uniform from -0.5/D to 0.5/D,
    and `contexts` fp32 [V, D], initially zero (word2vec.c)."""

    def __init__(self, size: int, dimensions: int, seed: int) -> None:
        start = generator(seed, "word2vec weights").random((size, dimensions), dtype="f4")
        self.words = torch.from_numpy((start - 0.5) / dimensions)
        self.contexts = torch.zeros(size, dimensions)


class Steps:
    """Updates of `weights`.

    Args:
        weights: the weights; changed in place.
        model: "skip-gram" or "cbow".
        window: W.
        negatives: K.
        batch: B.
    """

    def __init__(
        self, weights: Weights, model: WordVectorModel, *, window: int, negatives: int, batch: int
    ) -> None:
        self._weights, self._skip = weights, model == "skip-gram"
        self._window, self._negatives, self._batch = window, negatives, batch
        chunk = self._chunk = min(CHUNK[model], batch)
        # The chunk's words form rows of L columns; the margins of the next chunk span several rows.
        margins = torch.arange(chunk + 2 * window)[None] - torch.arange(chunk)[:, None] - window
        self._distance = margins.abs().masked_fill_(margins == 0, 1 << 30)

    def run(self, drawn: BlockDraws, rates: Tensor) -> None:
        """Apply the updates of one block.

        Args:
            drawn: its words, windows and negatives.
            rates: fp32 [ceil(n / B)], the learning rate of each batch.
        """
        batch, window, chunk = self._batch, self._window, self._chunk
        count = -(-len(drawn.words) // batch) * batch
        words = torch.full((count + 2 * window,), BREAK)
        words[window : window + len(drawn.words)] = torch.from_numpy(drawn.words)
        there = words >= 0
        # Every word has its document's number, and every empty position a number of its own.
        documents = torch.where(there, (~there).cumsum(0), -1 - torch.arange(len(words)))
        windows = torch.zeros(count, dtype=torch.int64)
        windows[: len(drawn.windows)] = torch.from_numpy(drawn.windows)
        negatives = torch.zeros(count // chunk, drawn.negatives.shape[1], dtype=torch.int64)
        negatives[: len(drawn.negatives)] = torch.from_numpy(drawn.negatives)
        words.clamp_(min=0)
        for number, start in enumerate(range(0, count, batch)):
            stop, far = start + batch, start + batch + 2 * window
            near = documents[start:far].unfold(0, chunk + 2 * window, chunk)
            own = documents[start + window : stop + window].view(-1, chunk, 1)
            reach = windows[start:stop].view(-1, chunk, 1)
            pairs = ((self._distance <= reach) & (near[:, None, :] == own)).float()
            chunks = slice(start // chunk, stop // chunk)
            step = self._skip_gram if self._skip else self._cbow
            step(words[start:far], pairs, negatives[chunks], float(rates[number]))

    def _skip_gram(self, words: Tensor, pairs: Tensor, negatives: Tensor, rate: float) -> None:
        """Update skip-gram: words int64 [B + 2W], pairs fp32 [M, L, L + 2W] of 0 and 1, negatives
        int64 [M, N]."""
        weights, chunks = self._weights, len(pairs)
        centres = words[self._window : self._window + self._batch]
        v = weights.words.index_select(0, centres).view(chunks, self._chunk, -1)
        u = self._chunked(weights.contexts.index_select(0, words))
        n = weights.contexts.index_select(0, negatives.view(-1)).view(*negatives.shape, -1)
        # d/dx log σ(x) = σ(-x), and d/dx log σ(-x) = -σ(x).
        right = torch.bmm(v, u.mT).neg_().sigmoid_().mul_(pairs).mul_(rate)
        share = pairs.sum(2, keepdim=True) * (-rate * self._negatives / negatives.shape[1])
        wrong = torch.bmm(v, n.mT).sigmoid_().mul_(share)
        moved = torch.baddbmm(torch.bmm(right, u), wrong, n)
        _add(weights.words, centres, moved.flatten(0, 1))
        margins = self._unchunked(torch.bmm(right.mT, v))
        _add(weights.contexts, words, margins[: len(words)])
        _add(weights.contexts, negatives.view(-1), torch.bmm(wrong.mT, v).flatten(0, 1))

    def _cbow(self, words: Tensor, pairs: Tensor, negatives: Tensor, rate: float) -> None:
        """Update cbow: the mean of the context's vectors predicts the word. Each context vector
        moves by the whole gradient of the mean, not by its share (word2vec.c)."""
        weights, chunks = self._weights, len(pairs)
        centres = words[self._window : self._window + self._batch]
        context = self._chunked(weights.words.index_select(0, words))
        sizes = pairs.sum(2, keepdim=True)
        some = (sizes > 0).float()
        mean = torch.bmm(pairs / sizes.clamp(min=1), context)
        u = weights.contexts.index_select(0, centres).view(chunks, self._chunk, -1)
        n = weights.contexts.index_select(0, negatives.view(-1)).view(*negatives.shape, -1)
        right = (mean * u).sum(2, keepdim=True).neg_().sigmoid_().mul_(some * rate)
        share = some * (-rate * self._negatives / negatives.shape[1])
        wrong = torch.bmm(mean, n.mT).sigmoid_().mul_(share)
        moved = torch.baddbmm(right * u, wrong, n)
        _add(weights.words, words, self._unchunked(torch.bmm(pairs.mT, moved))[: len(words)])
        _add(weights.contexts, centres, (right * mean).flatten(0, 1))
        _add(weights.contexts, negatives.view(-1), torch.bmm(wrong.mT, mean).flatten(0, 1))

    def _chunked(self, rows: Tensor) -> Tensor:
        """View rows fp32 [B + 2W, D] as chunks with their margins, fp32 [M, L + 2W, D], without a
        copy."""
        length, width = self._chunk + 2 * self._window, rows.shape[1]
        chunks = self._batch // self._chunk
        return rows.as_strided((chunks, length, width), (self._chunk * width, width, 1))

    def _unchunked(self, chunks: Tensor) -> Tensor:
        """Sum chunks with margins, fp32 [M, L + 2W, D], where they overlap: fp32 [at least B + 2W,
        D]."""
        count, length, width = chunks.shape
        chunk = self._chunk
        over = -(-length // chunk)
        total = chunks.new_zeros(count + over, chunk, width)
        for part in range(over):
            piece = chunks[:, part * chunk : (part + 1) * chunk]
            total[part : part + count, : piece.shape[1]] += piece
        return total.flatten(0, 1)


def _add(table: Tensor, rows: Tensor, moves: Tensor) -> None:
    """Add moves [n, D] to the rows int64 [n] of `table`; the moves of a repeated row are summed."""
    # index_add_ takes a separate step for every row, this function sorts them.
    table.scatter_add_(0, rows[:, None].expand(-1, table.shape[1]), moves)
