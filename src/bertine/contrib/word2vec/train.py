"""Train word2vec's vectors on a corpus: ``word2vec``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertine.contrib.options import Word2VecOptions, WordVectorModel, WordVectorRecipe
from bertine.contrib.word2vec.files import MAX_WORD
from bertine.contrib.word2vec.vectors import WordVectors, check_target, words_of
from bertine.core.console import Report, human_count, human_time, logger, plural, progress
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file, os_errors
from bertine.core.foreign_files import open_tensors
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.text import briefly
from bertine.options.data import CorpusReading
from bertine.options.verbs import takes_options
from bertine.tokenization.documents import Corpus, CorpusStats

# Update word vectors by skip-gram or CBOW with negative sampling, some hundred words at a time.
#
# The loss is the paper's (Mikolov et al. 2013, "Distributed Representations of Words and Phrases
# and their Compositionality", equation 4): for each pair of a word and one of its context ``log
# σ(v·u)``, and for each of K negatives ``log σ(-v·u)``, summed and maximized by plain gradient
# steps. The published program processes one pair at a time, with vectors; here a chunk of L words
# is three matrix products, following Ji et al. 2016 ("Parallelizing Word2Vec in Shared and
# Distributed Memory"): all words against all of the chunk and its margins, of which the pairs of
# a window count, and all words against N negatives shared by the chunk, each with the weight K/N,
# so that the expected gradient is the same.
#
# Shape legend: V words, D numbers of a vector, M chunks, L words of a chunk, W the largest
# window, B = M·L words of a batch, N negatives of a chunk, K negatives of a pair.

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


# Corpus: count its words, then write their numbers to a file.

#: Most different words that are counted; beyond it, the rarest are dropped.
MAX_COUNTED = 10_000_000
#: Numbers written at once.
_WRITTEN = 1 << 20


@dataclass(frozen=True)
class CountedWords:
    """The words of a corpus that get vectors.

    Attributes:
        words: V, most frequent first, ties in the order of their characters.
        counts: int64 [V].
        total: number of words of the corpus.
        different: number of different words.
        forgotten: number of words dropped while counting, because there were too many.
    """

    words: list[str]
    counts: np.ndarray
    total: int
    different: int
    forgotten: int


def count_words(
    corpus: Corpus,
    *,
    lowercase: bool,
    min_count: int,
    max_words: int | None,
    on_document: Callable[[], None],
) -> CountedWords:
    """Count the words of `corpus`; keep those seen at least `min_count` times, and of these the
    `max_words` most frequent.

    Raises:
        BertineError: fewer than two words are left; or an error of reading the corpus.
    """
    counter: Counter[str] = Counter()
    forgotten, least = 0, 1
    for document in corpus:
        counter.update(words_of(document.text, lowercase=lowercase))
        while len(counter) > MAX_COUNTED:
            rare = [word for word, count in counter.items() if count <= least]
            for word in rare:
                del counter[word]
            forgotten, least = forgotten + len(rare), least + 1
        on_document()
    total = sum(counter.values())
    different = len(counter)
    chosen = [
        (count, word)
        for word, count in counter.items()
        if count >= min_count and len(word) * 4 <= MAX_WORD
    ]
    chosen.sort(key=lambda entry: (-entry[0], entry[1]))
    chosen = chosen[:max_words]
    if len(chosen) < 2:
        raise BertineError(
            f"{corpus.paths[0]}: {len(chosen)} of {different:,} different words come "
            f"{min_count} times or more; give more text or a lower {option('min_count')}"
        )
    counts = np.array([count for count, _ in chosen], dtype=np.int64)
    return CountedWords([word for _, word in chosen], counts, total, different, forgotten)


def write_ids(
    corpus: Corpus,
    plural: CountedWords,
    handle: IO[bytes],
    folder: Path,
    *,
    lowercase: bool,
    on_document: Callable[[], None],
) -> np.ndarray:
    """Write the numbers of the words kept to a new file, int32, with `BREAK` after each document.

    Args:
        corpus: the corpus that was counted.
        counted: its words.
        handle: the file, open for writing and reading.
        folder: its folder, for messages.
        lowercase: as in counting.
        on_document: called after each document.

    Returns:
        The numbers, mapped from the file.
    """
    ids = {word: number for number, word in enumerate(plural.words)}
    waiting: list[int] = []
    with os_errors(folder, "writing the numbers of the words"):
        for document in corpus:
            words = words_of(document.text, lowercase=lowercase)
            waiting += [ids[word] for word in words if word in ids]
            waiting.append(BREAK)
            if len(waiting) > _WRITTEN:
                handle.write(np.array(waiting, dtype=np.int32).tobytes())
                waiting.clear()
            on_document()
        handle.write(np.array(waiting, dtype=np.int32).tobytes())
        handle.flush()
    return np.memmap(handle, dtype=np.int32, mode="r")


# Checkpoints of a run, in one file next to its result: ``.NAME.unfinished``.
#
# It holds both tables of vectors, the number of finished blocks, and the settings: a resumed run
# reads and counts the corpus again and compares. The random draws depend only on the seed and the
# block, so no other state is needed.

#: Seconds of training between two checkpoints.
EVERY = 60.0


def checkpoint_path(out: Path) -> Path:
    """Return the checkpoint file of the run whose result is `out`."""
    return out.with_name(f".{out.name}.unfinished")


def text_fingerprint(known: CountedWords, ids: np.ndarray) -> str:
    """Compute the SHA-256 of the words with vectors and of the text, as hex digits."""
    digest = hashlib.sha256("\n".join(known.words).encode("utf-8", "surrogatepass"))
    digest.update(np.ascontiguousarray(ids).data)
    return digest.hexdigest()


def save_checkpoint(
    path: Path, weights: Weights, blocks: int, seconds: float, settings: dict[str, Any]
) -> None:
    """Write the checkpoint file.

    Args:
        blocks: number of finished blocks.
        seconds: seconds of training so far.
        settings: the settings of the run, as JSON.
    """
    message = {"blocks": str(blocks), "seconds": repr(seconds), "settings": json.dumps(settings)}
    with atomic_file(path) as temporary:
        save_file(
            {"words": weights.words, "contexts": weights.contexts}, temporary, metadata=message
        )


def load_checkpoint(path: Path, weights: Weights, settings: dict[str, Any]) -> tuple[int, float]:
    """Load the vectors of the file into `weights`.

    Returns:
        The number of finished blocks, and the seconds of training so far.

    Raises:
        BertineError: the file is damaged, or belongs to a run with other settings or another text.
    """
    with open_tensors(path, "pt", "remove it, and begin anew") as file:
        message = file.metadata() or {}
        before = dict(json.loads(message["settings"]))
        blocks, seconds = int(message["blocks"]), float(message["seconds"])
        tensors = {name: file.get_tensor(name) for name in ("words", "contexts")}
    for name in sorted(before.keys() | settings.keys(), key=lambda name: name == "text"):
        if before.get(name) != settings.get(name):
            differs = f"{name} = {briefly(before.get(name))}, not {briefly(settings.get(name))}"
            if name == "text":
                differs = "another text"
            raise BertineError(
                f"{path}: the run was started with {differs}; resume it with the same, or remove "
                "the file"
            )
    for name, tensor in tensors.items():
        own: torch.Tensor = getattr(weights, name)
        if tensor.shape != own.shape or tensor.dtype != own.dtype:
            raise BertineError(f"{path}: {name} are not what its settings say; remove it")
        own.copy_(tensor)
    return blocks, seconds


_RATES: dict[WordVectorModel, float] = {"skip-gram": 0.025, "cbow": 0.05}
#: The lowest learning rate as a share of the initial one (word2vec.c).
_LOWEST = 1e-4


@dataclass(frozen=True, repr=False)
class Word2VecReport(Report):
    """The result of training word2vec's vectors.

    Attributes:
        out: the folder or file.
        words: number of words with a vector.
        dimensions: numbers of a vector.
        total: number of words of the corpus.
        different: number of different words.
        covered: how many of `total` have a vector.
        forgotten: number of different words dropped while counting, because there were too many.
        words_per_second: words trained on, before occurrences are left out.
        seconds: total time.
        corpus: counts of documents, bytes, repairs and skipped files.
    """

    out: Path
    words: int
    dimensions: int
    total: int
    different: int
    covered: int
    forgotten: int
    words_per_second: float
    seconds: float
    corpus: CorpusStats

    def lines(self) -> list[str]:
        """Return the report for people."""
        lines = [
            *self.corpus.lines(),
            f"{plural(self.words, 'word')} with vectors of {self.dimensions} numbers, which are "
            f"{self.covered / self.total:.2%} of the text's {self.total:,}; "
            f"{self.different - self.words:,} rarer ones have none",
            f"{self.out}: written after {human_time(self.seconds)}, "
            f"{human_count(self.words_per_second)} words a second in training",
        ]
        if self.forgotten:
            lines.insert(
                -1, f"{self.forgotten:,} rare words were forgotten while counting; there are many"
            )
        return lines


@takes_options()
def word2vec(
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    show_progress: bool = True,
    options: Word2VecOptions,
) -> Word2VecReport:
    """Train a vector for each word of a corpus, with negative sampling, on one thread.

    The same corpus, options and seed give the same vectors on the same machine. The corpus is read
    twice; in between, the numbers of its words are in a temporary file next to `out`, four bytes a
    word, so memory holds the vectors and not the text. A checkpoint is written each minute to
    ``.NAME.unfinished`` next to `out`: with `resume`, a stopped or killed run continues, bit for
    bit.

    Args:
        corpus: files and folders, as for :class:`bertine.tokenization.documents.Corpus`.
        out: the folder of the vectors (:class:`bertine.WordVectors`), or a file of word2vec's:
            ``.bin``, ``.txt`` or ``.vec``. Existing vectors are replaced.
        show_progress: on stderr.
        options: the values of the other arguments.

    Returns:
        The report; its `lines()` are for people.

    Raises:
        BertineError: the corpus has an error; too few words are frequent enough; the learning rate
            is too high; `out` is a folder of something else; with `resume`, the stopped run had
            other settings or another text.
    """
    out = Path(out)
    check_target(out)
    started = time.monotonic()
    documents = Corpus(corpus, **CorpusReading.of(options).values())
    documents.check_options()
    recipe = WordVectorRecipe.of(options)
    parent = out.resolve().parent
    with contextlib.ExitStack() as stack:
        with os_errors(out, "writing it"):
            parent.mkdir(parents=True, exist_ok=True)
            # Without a name, so that nothing of it remains, however the process ends.
            scratch = stack.enter_context(tempfile.TemporaryFile(dir=parent))
        display = stack.enter_context(progress(show=show_progress))
        task = display.add_task("counting words", total=documents.size_on_disk)
        known = count_words(
            documents,
            lowercase=options.lowercase,
            min_count=options.min_count,
            max_words=options.max_words,
            on_document=lambda: display.update(task, completed=documents.position),
        )
        stats = documents.stats
        task = display.add_task("numbering words", total=documents.size_on_disk)
        ids = write_ids(
            documents,
            known,
            scratch,
            parent,
            lowercase=options.lowercase,
            on_document=lambda: display.update(task, completed=documents.position),
        )
        began = time.monotonic()
        total = len(ids) * options.epochs
        task = display.add_task("training (words)", total=total)
        weights = Weights(len(known.counts), options.dimensions, options.seed)
        settings = {
            **WordVectorRecipe.of(options).values(),
            "seed": options.seed,
            "text": text_fingerprint(known, ids),
        }
        unfinished = checkpoint_path(out)
        blocks, before = _begun(unfinished, weights, settings, options.resume)
        saved = began
        for done in train_vectors(ids, known.counts, recipe, options.seed, weights, blocks):
            display.update(task, completed=done)
            blocks += 1
            if time.monotonic() - saved >= EVERY and done < total:
                seconds = before + time.monotonic() - began
                save_checkpoint(unfinished, weights, blocks, seconds, settings)
                saved = time.monotonic()
        del ids  # the file is mapped
        trained = before + time.monotonic() - began
        covered = int(known.counts.sum())
        result = _checked(known, weights.words.numpy(), options, covered)
        result.save(out)
        unfinished.unlink(missing_ok=True)
    return Word2VecReport(
        out=out,
        words=len(result),
        dimensions=options.dimensions,
        total=known.total,
        different=known.different,
        covered=covered,
        forgotten=known.forgotten,
        words_per_second=covered * options.epochs / max(trained, 1e-9),
        seconds=time.monotonic() - started,
        corpus=stats,
    )


def _begun(
    path: Path, weights: Weights, settings: dict[str, Any], resume: bool
) -> tuple[int, float]:
    """Return the number of blocks finished by a stopped run, and its seconds of training; load its
    vectors into `weights`.

    Raises:
        BertineError: it had other settings or another text.
    """
    if not path.exists():
        return 0, 0.0
    if not resume:
        logger.info(
            f"{path}: a run that was stopped; beginning anew ({option('resume', True)} goes on)"
        )
        return 0, 0.0
    blocks, seconds = load_checkpoint(path, weights, settings)
    logger.info(f"{path}: going on after {human_time(seconds)} of training")
    return blocks, seconds


def _checked(
    known: CountedWords, vectors: np.ndarray, options: Word2VecOptions, covered: int
) -> WordVectors:
    if not np.isfinite(vectors).all():
        raise BertineError(
            f"the vectors grew beyond all numbers; give a lower {option('learning_rate')}"
        )
    training = {
        **WordVectorRecipe.of(options).values(),
        "learning_rate": options.learning_rate or _RATES[options.method],
        "seed": options.seed,
        "text_words": covered,
    }
    return WordVectors(
        known.words,
        vectors,
        counts=known.counts,
        lowercase=options.lowercase,
        training=training,
    )


def train_vectors(
    ids: np.ndarray,
    counts: np.ndarray,
    recipe: WordVectorRecipe,
    seed: int,
    weights: Weights,
    begin: int = 0,
) -> Iterator[int]:
    """Train vectors on the words of a text, with one thread.

    Args:
        ids: int32 [n], numbers of words and :data:`~bertine.contrib.word2vec.train.BREAK` between
            documents.
        counts: int64 [V].
        recipe: the settings of learning.
        seed: of all random draws.
        weights: the vectors; changed in place.
        begin: number of blocks already finished.

    Yields:
        After each block, how many of `n * epochs` words are done.
    """
    keep = keep_probabilities(counts, recipe.subsample)
    negative = negative_probabilities(counts, recipe.negative_exponent)
    rate = recipe.learning_rate or _RATES[recipe.method]
    staying = counts * keep
    batch = batch_words(
        recipe.method,
        float(staying.max() / staying.sum()),
        float(negative.max()),
        negatives=recipe.negatives,
        window=recipe.window,
        learning_rate=rate,
    )
    chunk, shared = min(CHUNK[recipe.method], batch), SHARED[recipe.method]
    sampler = Sampler(keep, negative, recipe.window, chunk, shared, seed)
    steps = Steps(
        weights, recipe.method, window=recipe.window, negatives=recipe.negatives, batch=batch
    )
    total, done = len(ids) * recipe.epochs, 0
    with torch.inference_mode():
        for epoch in range(recipe.epochs):
            for number, part in blocks(ids):
                if begin:
                    begin, done = begin - 1, done + len(part)
                    continue
                before = torch.get_num_threads()
                torch.set_num_threads(1)
                try:
                    drawn = sampler.draw(part, epoch, number)
                    batches = -(-len(drawn.words) // batch)
                    places = done + torch.arange(batches) * (len(part) / max(1, batches))
                    rates = rate * (1 - places / total).clamp(min=_LOWEST)
                    steps.run(drawn, rates)
                finally:
                    torch.set_num_threads(before)
                done += len(part)
                yield done
