"""Distil a model into a table of static vectors: ``distill static``.

The method is that of model2vec of Minish Lab: the teacher computes the vector of each piece of the
vocabulary alone, the vectors are reduced to their principal components, and frequent pieces get low
weights. If there are texts, the table then learns from the teacher's vectors of them
("tokenlearn").
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.contrib.options import StaticOptions, StaticPrecision
from bertine.contrib.recognize import static_folder
from bertine.contrib.static_vectors.table import (
    StaticEncoder,
    StaticModel,
    StaticTable,
    save_static,
)
from bertine.core.console import Shown, human_bytes, human_time, logger, plural, progress
from bertine.core.contrib import refuse_contrib
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, check_replaceable
from bertine.core.names import PlainFormat, option
from bertine.data.entities import split_words
from bertine.data.in_memory import InMemoryTable, Source, TableLike, as_source, reads_again
from bertine.data.streams import COMPRESSIONS
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.rows import open_texts, text_chunks, text_progress
from bertine.options.inference import PlainTexts
from bertine.tasks.base import Features
from bertine.tokenization.base import bare
from bertine.tokenization.tokenizer import Tokenizer

# Speed: how many times as fast as its teacher a table of vectors is.

#: The number of texts that both compute, and the number of turns.
_TEXTS, _TURNS = 256, 3


def times_as_fast(ours: Embedder, teacher: Embedder, texts: Sequence[str]) -> float | None:
    """Measure the speed on some of `texts`, different ones in each turn, by the texts per second of
    each; None if there are no texts."""
    if not texts:
        return None
    seconds = {id(model): 0.0 for model in (ours, teacher)}
    for model in (ours, teacher):
        model.embed(texts[-1:])  # fills caches that the first call creates
    for turn in range(_TURNS):
        sample = list(texts[turn * _TEXTS : (turn + 1) * _TEXTS])
        for model in (ours, teacher) if sample else ():
            started = time.perf_counter()
            model.embed(sample)
            seconds[id(model)] += time.perf_counter() - started
    return seconds[id(teacher)] / max(seconds[id(ours)], 1e-9)


# Weights of pieces: frequent pieces say little about the topic of a text, so they get low weights.
#
# The smooth inverse frequency of Arora et al. 2017 ("A Simple but Tough-to-Beat Baseline for
# Sentence Embeddings", section 3): a / (a + p), with p the probability of the piece. If frequencies
# are not known, they are estimated from the rank in the vocabulary (Zipf), as model2vec does:
# vocabularies begin with the most frequent pieces.
#
# Shape legend: V pieces of the vocabulary.

_UNUSED = re.compile(r"\[unused\d+\]")


def ranked_pieces(tokens: Sequence[str], special_ids: Collection[int]) -> np.ndarray:
    """Return the ids int64 [n] of pieces in descending order of frequency, estimated from their
    places in the vocabulary.

    Special tokens and BERT's ``[unused7]`` are left out: no text has them. Single characters that
    are not ASCII come last: vocabularies list all of them at the beginning, even rare ones.
    """
    own = [
        row
        for row, token in enumerate(tokens)
        if row not in special_ids and not _UNUSED.fullmatch(token)
    ]
    rare = [len(bare(tokens[row])) == 1 and not tokens[row].isascii() for row in own]
    order = np.array(own, np.int64)
    last = np.array(rare, bool)
    return np.concatenate([order[~last], order[last]])


def smooth_inverse(probabilities: np.ndarray, coefficient: float) -> np.ndarray:
    """Compute coefficient / (coefficient + probability), fp32 [V]."""
    weights = coefficient / (coefficient + probabilities)
    return np.asarray(weights, dtype=np.float32)


# Principal components of the vectors.
#
# Shape legend: N vectors, H numbers of each, D components.

#: The number of vectors that are converted to fp64 at once.
_ROWS = 1 << 14


@dataclass(frozen=True)
class Components:
    """The directions in which vectors differ most, in descending order.

    Attributes:
        mean: fp32 [H], of the vectors.
        directions: fp32 [H, D], orthogonal, each of length 1.
        explained: the share of the vectors' variance that they keep, 0 to 1.
    """

    mean: np.ndarray
    directions: np.ndarray
    explained: float

    @classmethod
    def of(cls, vectors: np.ndarray, dimensions: int) -> Components:
        """Compute the `dimensions` first components of `vectors` fp32 [N, H]; at most H."""
        mean = vectors.mean(0, dtype=np.float64)
        width = vectors.shape[1]
        covariance = np.zeros((width, width))
        for start in range(0, len(vectors), _ROWS):
            part = vectors[start : start + _ROWS].astype(np.float64) - mean
            covariance += part.T @ part
        values, directions = np.linalg.eigh(covariance)
        values, directions = np.clip(values[::-1], 0, None), directions[:, ::-1]
        kept = directions[:, : min(dimensions, width)]
        # The signs are arbitrary; this makes them the same on each machine.
        largest = kept[np.abs(kept).argmax(0), np.arange(kept.shape[1])]
        kept = kept * np.where(largest < 0, -1.0, 1.0)
        total = float(values.sum())
        explained = float(values[: kept.shape[1]].sum()) / total if total else 1.0
        return cls(mean.astype(np.float32), kept.astype(np.float32), explained)

    def __call__(self, vectors: np.ndarray, mean: np.ndarray | None = None) -> np.ndarray:
        """Project `vectors` fp32 [N, H] on the components, fp32 [N, D], after their own `mean`, if
        it is given, is subtracted."""
        shift = self.mean if mean is None else mean
        result: np.ndarray = (vectors - shift) @ self.directions
        return result


# Piece vectors: each piece alone through the teacher.
#
# Shape legend: V pieces of the vocabulary, H numbers of the teacher's vector.

#: The number of pieces that are computed at a time.
_PIECES = 8192


def piece_vectors(
    teacher: Embedder, tokenizer: Tokenizer, *, show_progress: bool = True
) -> np.ndarray:
    """Compute the teacher's vector of each piece by itself, between its special tokens.

    Args:
        teacher: its vocabulary is that of `tokenizer`, or the beginning of it.
        tokenizer: of the table; what it has beyond the teacher's vocabulary are words, which the
            teacher reads in its own pieces.

    Returns:
        fp32 [V, H]; zeros for special tokens.
    """
    table = np.zeros((tokenizer.vocab_size, teacher.dimensions), np.float32)
    inputs = inputs_of(teacher.tokenizer, tokenizer)
    with progress(show=show_progress) as bar:
        job = bar.add_task("pieces through the teacher", total=len(inputs))
        for start in range(0, len(inputs), _PIECES):
            part = inputs[start : start + _PIECES]
            rows = [feature.row for feature in part]
            table[rows] = teacher.run(part, on_batch=lambda done: bar.advance(job, done))
    return table


def inputs_of(own: Tokenizer, tokenizer: Tokenizer) -> Sequence[Features]:
    """Return the teacher's inputs for each piece that is not special."""
    known = own.vocab_size
    features = []
    for row, token in enumerate(tokenizer.tokens):
        if row in tokenizer.special_ids:
            continue
        pieces = [row] if row < known else own.parts_of(token)
        ids, types = own.template.wrap(np.array(pieces, np.int32))
        features.append(Features(ids, types, row))
    return features


# Words: add frequent words of the texts to the vocabulary.

#: A word that occurs less often does not get a vector.
_LEAST = 2


def check_takes_words(tokenizer: Tokenizer) -> None:
    """Raise a BertineError if words cannot be added to the vocabulary."""
    if tokenizer.kind != "wordpiece":
        raise BertineError(
            f"{option('add_words')} is for WordPiece, but this vocabulary is {tokenizer.title}; "
            "leave it out"
        )


def with_words(tokenizer: Tokenizer, words: Counter[str], most: int) -> Tokenizer:
    """Return a tokenizer with added words: the most frequent ones that are split into several
    pieces, appended to its vocabulary.

    Args:
        tokenizer: for WordPiece, which prefers a whole word to its pieces.
        words: how often each occurred.
        most: the most words to add.
    """
    frequent = [word for word, count in words.most_common(10 * most) if count >= _LEAST]
    ids, lengths = tokenizer.encode_flat(frequent)
    unknown = np.zeros(len(frequent), bool)
    unknown[np.repeat(np.arange(len(frequent)), lengths)[ids == tokenizer.unk_token_id]] = True
    known = set(tokenizer.tokens)
    added = [
        word
        for word, length, strange in zip(frequent, lengths.tolist(), unknown.tolist(), strict=True)
        # A word that normalization changes would never be matched again.
        if length > 1 and not strange and word not in known and _stays(tokenizer, word)
    ][:most]
    if not added:
        return tokenizer
    return Tokenizer.from_vocab(
        [*tokenizer.tokens, *added],
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        split_chinese=tokenizer.split_chinese,
    )


def _stays(tokenizer: Tokenizer, word: str) -> bool:
    """Return whether normalization leaves a word unchanged, and takes it for one word."""
    backend = tokenizer.backend
    normal = backend.normalizer.normalize_str(word)
    parts = backend.pre_tokenizer.pre_tokenize_str(normal)
    return normal == word and len(parts) == 1


# Texts for a table of static vectors: count them, and keep some of them.
#
# Shape legend: V pieces of the vocabulary.

#: The most different words that are counted; above that, those with one occurrence are dropped.
_MOST_WORDS = 1 << 20
#: The most characters of a text that are kept: more than a teacher reads.
_LONGEST = 20_000


@dataclass
class TextCounts:
    """The counts of a table of texts.

    Attributes:
        texts: the number of texts, without empty ones.
        empty: the number of texts without a piece.
        words: how often each of the counted words occurred.
        notes: what was repaired while reading.
    """

    texts: int = 0
    empty: int = 0
    words: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def reading_of(options: StaticOptions, source: Source) -> PlainTexts:
    """Return how the texts are read: in a ``.txt`` each line is one, unless a column is named.

    Raises:
        BertineError: several columns, or a format of files of labels.
    """
    column = options.text_columns
    if column is not None and not isinstance(column, str):
        if len(column) != 1:
            raise BertineError(f"{option('text_columns')}: name one column of texts")
        column = column[0]
    formats: tuple[PlainFormat, ...] = ("csv", "tsv", "jsonl", "text")
    chosen: PlainFormat | None = next((item for item in formats if item == options.format), None)
    if options.format is not None and chosen is None:
        raise BertineError(f"{option('format', options.format)} is not for plain texts")
    if chosen is None and column is None and not isinstance(source, InMemoryTable):
        name = Path(source)
        name = name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name
        chosen = "text" if name.suffix.lower() == ".txt" else None
    return PlainTexts.of(options, text_column=column, format=chosen)


def count_texts(
    source: Source, reading: PlainTexts, tokenizer: Tokenizer, *, words: bool, show: bool = True
) -> tuple[np.ndarray, TextCounts]:
    """Count pieces, texts and, if `words`, words, in bounded memory.

    Returns:
        int64 [V], how often each piece occurred; and the other counts.

    Raises:
        BertineError: what reading the table raises.
    """
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    result = TextCounts()
    with open_texts(source, reading) as (table, column):
        with text_progress("count", source, table.layout, show=show) as advance:
            for rows, texts in text_chunks(table, column):
                ids, lengths = tokenizer.encode_flat(texts)
                counts += np.bincount(ids, minlength=len(counts))
                filled = int((lengths > 0).sum())
                result.texts += filled
                result.empty += len(texts) - filled
                if words:
                    _count_words(result.words, texts, tokenizer.lowercase)
                advance(len(rows))
        result.notes = table.stats.notes(table.name)
    return counts, result


def _count_words(counter: Counter[str], texts: list[str], lowercase: bool) -> None:
    for text in texts:
        text = text.lower() if lowercase else text
        counter.update(text[begin:end] for begin, end in split_words(text))
    # The rarest words are dropped until half as many are left, so that this happens rarely.
    least = 1
    while len(counter) > (_MOST_WORDS if least == 1 else _MOST_WORDS // 2):
        for word in [word for word, count in counter.items() if count <= least]:
            del counter[word]
        least += 1


def spread_texts(
    source: Source, reading: PlainTexts, tokenizer: Tokenizer, total: int, most: int
) -> list[str]:
    """Return at most `most` of the `total` texts that have pieces, spread evenly over the table."""
    step = max(1.0, total / most)
    kept: list[str] = []
    seen, wanted = 0, 0.0
    with open_texts(source, reading) as (table, column):
        for _, texts in text_chunks(table, column):
            _, lengths = tokenizer.encode_flat(texts)
            for text, length in zip(texts, lengths.tolist(), strict=True):
                if not length:
                    continue
                if seen >= wanted and len(kept) < most:
                    kept.append(text[:_LONGEST])
                    wanted += step
                seen += 1
    return kept


# Fitting: learn a table of vectors from the teacher's vectors of texts, as "tokenlearn" of Minish
# Lab does.
#
# The mean of the vectors of a text's pieces is moved towards the teacher's vector of the text: the
# loss is the squared distance of both at length 1, which is twice (1 - cosine). Pieces that occur
# in no text keep their vectors.
#
# Shape legend: N texts, V pieces of the vocabulary, D numbers of a vector.

#: One in this many texts is held out to check the progress of learning, up to the second number.
_HELD_OUT, _MOST_HELD_OUT = 20, 5000
#: The number of texts that are compared at once.
_COMPARED = 4096


@dataclass(frozen=True)
class PieceTexts:
    """Texts as sequences of pieces.

    Attributes:
        ids: int32 [pieces], of all texts in a row.
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
    """The result of fitting a table.

    Attributes:
        vectors: fp32 [V, D].
        before, after: the mean cosine with the teacher's vectors of the held-out texts.
        held_out: the number of these texts.
        epochs: the passes over the texts until the best table; 0: none was better than before.
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
    """Move the means of texts towards the teacher's vectors.

    Args:
        vectors: fp32 [V, D], to begin with.
        texts: N of them.
        targets: fp32 [N, D], the teacher's vectors; only their directions count.
        epochs: passes over the texts at most; the table that is best on held-out texts is kept, and
            training ends after two passes without a better one.
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
    """Return the mean cosine between the texts' means and `goal` fp32 [n, D]."""
    means = StaticTable(table.detach().numpy()).means(texts.ids, texts.lengths)
    return float(F.cosine_similarity(torch.from_numpy(means), goal).mean())


# The result: a table of static vectors.


@dataclass(frozen=True, repr=False)
class StaticResult(Shown):
    """A table of static vectors, with the facts of its distillation.

    Attributes:
        out: its folder.
        embedder: the table, read from that folder.
        explained: the share of the variance that the principal components keep, 0 to 1.
        explained_of: the vectors of this variance: "pieces" or "texts".
        weights: the weighting of the pieces, in words.
        texts: the number of texts of DATA; 0: there are none.
        fitted: the result of fitting to the teacher; None: the table was not fitted.
        words_added: words of DATA with their own vectors.
        precision: of the numbers in the file.
        times_as_fast: its speed divided by the teacher's, on the same texts in turns; None: there
            were no texts.
        seconds: of the whole distillation.
        notes: what was cut, left out or repaired.
    """

    out: Path
    embedder: Embedder
    explained: float
    explained_of: str
    weights: str
    texts: int
    fitted: Fitted | None
    words_added: int
    precision: StaticPrecision
    times_as_fast: float | None
    seconds: float
    notes: Sequence[str] = field(default_factory=list)

    def embed(self, texts: Sequence[str] | str) -> np.ndarray:
        """Compute the vector of each text, fp32 [N, D]; for a single string fp32 [D]."""
        return self.embedder.embed(texts)

    def lines(self) -> list[str]:
        """Return what the command prints at the end."""
        table = cast(StaticEncoder, self.embedder.encoder).table
        size = sum(item.stat().st_size for item in self.out.iterdir() if item.is_file())
        lines = [
            f"{plural(table.pieces, 'piece')}, vectors of {table.dimensions} numbers, which keep "
            f"{self.explained:.1%} of the variance of the teacher's vectors of "
            f"{self.explained_of}; {self.weights}"
        ]
        if self.words_added:
            lines.append(f"{plural(self.words_added, 'word')} with a vector of their own")
        if self.fitted is not None:
            lines.append(
                f"cosine with the teacher's vectors of {plural(self.fitted.held_out, 'text')} "
                f"held out: {self.fitted.before:.3f}, and {self.fitted.after:.3f} after learning "
                f"({plural(self.fitted.epochs, 'epoch')})"
            )
        lines += self.notes
        if self.times_as_fast is not None:
            lines.append(f"{self.times_as_fast:.0f} times as fast as the teacher")
        return [
            *lines,
            f"made in {human_time(self.seconds)}; {human_bytes(size)} in {self.out}",
        ]

    def next_lines(self) -> list[str]:
        """Return the commands that may be run next."""
        return [
            "next:",
            f"  bertine embed {self.out} --input texts.txt --output vectors.npy",
            f"  bertine serve {self.out}",
        ]


#: The defaults of fitting.
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE = 10, 128, 3e-3
#: With fewer texts, the teacher's vectors are not representative.
_LEAST_TEXTS = 40


def distill_static(
    data: Path | str | TableLike | None, out: Path | str, options: StaticOptions
) -> StaticResult:
    """Distil a table of static vectors, and write its directory.

    Args:
        data: texts; None: the teacher alone.
        out: the model directory.
        options: those of a table; others are ignored.

    Raises:
        BertineError: no teacher, or one that is no encoder; words or counts are asked for without
            texts; texts that cannot be read, or too few; `out` holds something else.
    """
    started = time.monotonic()
    check_replaceable(out, "folder of static vectors", lambda path: static_folder(path) is not None)
    teacher = _teacher(options)
    source = None if data is None else as_source(data, "data")
    for name, asked in (
        ("add_words", options.add_words > 0),
        ("piece_weights", options.piece_weights == "counts"),
    ):
        if asked and source is None:
            raise BertineError(f"{option(name)} counts in texts; name a file of them as DATA")
    if options.add_words:
        check_takes_words(teacher.tokenizer)
    tokenizer, counts, result, kept = teacher.tokenizer, None, TextCounts(), []
    if source is not None:
        _check_read_again(source, options)
        reading = reading_of(options, source)
        counts, result = count_texts(source, reading, tokenizer, words=options.add_words > 0)
        if options.fit_tokens and result.texts < _LEAST_TEXTS:
            raise BertineError(
                f"{data}: has {plural(result.texts, 'text')}, but learning needs {_LEAST_TEXTS}; "
                f"give more, or {option('fit_tokens', False)}"
            )
        if options.add_words:
            tokenizer = with_words(tokenizer, result.words, options.add_words)
            if tokenizer is not teacher.tokenizer:
                counts, _ = count_texts(source, reading, tokenizer, words=False)
        if options.fit_tokens:
            kept = spread_texts(source, reading, tokenizer, result.texts, options.teacher_texts)
    pieces = piece_vectors(teacher, tokenizer)
    ranked = ranked_pieces(tokenizer.tokens, tokenizer.special_ids)
    weights, said = _weights(options, counts, len(pieces), ranked)
    own = np.zeros(len(pieces), bool)
    own[ranked] = True
    mean = pieces[own].mean(0, dtype=np.float64).astype(np.float32)
    fitted: Fitted | None = None
    if kept:
        vectors = _teacher_vectors(teacher, kept)
        components = Components.of(vectors, options.dimensions)
        table = components(pieces, mean) * weights[:, None]
        table[~own] = 0
        fitted = _fit(table, tokenizer, teacher, kept, components(vectors), options)
        table = fitted.vectors
    else:
        components = Components.of(pieces[own], options.dimensions)
        table = components(pieces) * weights[:, None]
        table[~own] = 0
    words_added = tokenizer.vocab_size - teacher.tokenizer.vocab_size
    facts = {
        "teacher": teacher.name,
        "apply_pca": int(table.shape[1]),
        "sif_coefficient": None if options.piece_weights == "none" else options.sif_coefficient,
        "explained_variance": round(components.explained, 6),
        "weights": said,
        "data_path": Path(data).name if isinstance(data, str | Path) else None,
        "texts": result.texts or None,
        "trained_on": len(kept) - fitted.held_out if fitted else None,
        "words_added": words_added or None,
        "cosine_before": fitted and round(fitted.before, 6),
        "cosine_after": fitted and round(fitted.after, 6),
        "seed": options.seed if fitted else None,
    }
    _write(Path(out), table, tokenizer, facts, options)
    embedder = Embedder.load(out)
    return StaticResult(
        out=Path(out),
        embedder=embedder,
        explained=components.explained,
        explained_of="texts" if kept else "pieces",
        weights=said,
        texts=result.texts,
        fitted=fitted,
        words_added=words_added,
        precision=options.table_precision,
        times_as_fast=times_as_fast(embedder, teacher, kept),
        seconds=time.monotonic() - started,
        notes=_notes(result, components, options),
    )


def _teacher(options: StaticOptions) -> Embedder:
    if options.teacher is None:
        raise BertineError(f"whose vectors? Name a model directory with {option('teacher')}")
    refuse_contrib(options.teacher)
    precision = "auto" if options.precision is None else options.precision
    return Embedder.opened(
        options.teacher,
        max_length=options.max_length,
        device=options.device,
        precision=precision if precision in ("auto", "fp32", "bf16") else "fp32",
    )


def _check_read_again(source: Source, options: StaticOptions) -> None:
    """Refuse standard input and pipes if texts are read more than once.

    Raises:
        BertineError: it is one.
    """
    if (options.fit_tokens or options.add_words) and not reads_again(source):
        raise BertineError(
            f"{source}: is read several times, so it must be a file; save it as one, or count "
            f"pieces alone ({option('fit_tokens', False)})"
        )


def _weights(
    options: StaticOptions, counts: np.ndarray | None, pieces: int, ranked: np.ndarray
) -> tuple[np.ndarray, str]:
    """Return the weights of pieces fp32 [V], and their description."""
    kind = options.piece_weights or ("rank" if counts is None else "counts")
    if kind == "none":
        return np.ones(pieces, np.float32), "all pieces weigh the same"
    if kind == "counts" and counts is not None:
        weights = smooth_inverse(counts / max(1, int(counts.sum())), options.sif_coefficient)
        return weights, "pieces frequent in the texts weigh less"
    weights = np.ones(pieces, np.float32)
    # Probabilities proportional to 1 / rank, from rank 2 on.
    shares = 1.0 / np.arange(2, len(ranked) + 2)
    weights[ranked] = smooth_inverse(shares / shares.sum(), options.sif_coefficient)
    return weights, "frequent pieces, by their rank, weigh less"


def _teacher_vectors(teacher: Embedder, texts: list[str]) -> np.ndarray:
    """Compute the teacher's vectors fp32 [N, H] of texts."""
    features = teacher.features(texts)
    with progress() as bar:
        job = bar.add_task("ask the teacher", total=len(features))
        return teacher.run(features, on_batch=lambda done: bar.advance(job, done))


def _fit(
    table: np.ndarray,
    tokenizer: Tokenizer,
    teacher: Embedder,
    texts: list[str],
    targets: np.ndarray,
    options: StaticOptions,
) -> Fitted:
    """Fit the table to the teacher's vectors of `texts`, which both read up to the same length."""
    ids, lengths = tokenizer.encode_flat(texts)
    room = max(1, teacher.max_length - tokenizer.template.added())
    place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # As in the use of the table: unknown pieces have no vector.
    read = (place < room) & (ids != tokenizer.unk_token_id)
    text_of = np.repeat(np.arange(len(texts)), lengths)[read]
    known = np.bincount(text_of, minlength=len(texts))
    if (count := int((known > 0).sum())) < _LEAST_TEXTS:
        raise BertineError(
            f"only {plural(count, 'text', 'has', 'have')} a piece that the teacher knows, but "
            f"learning needs {_LEAST_TEXTS} texts; give more in its language, or "
            f"{option('fit_tokens', False)}"
        )
    return fit_table(
        table,
        PieceTexts(ids[read], known[known > 0].astype(np.int64)),
        targets[known > 0],
        epochs=options.epochs or _EPOCHS,
        batch_size=options.batch_size or _BATCH_SIZE,
        learning_rate=options.learning_rate or _LEARNING_RATE,
        seed=options.seed,
    )


def _write(
    out: Path,
    table: np.ndarray,
    tokenizer: Tokenizer,
    facts: dict[str, Any],
    options: StaticOptions,
) -> None:
    model = StaticModel(
        StaticTable(np.ascontiguousarray(table, np.float32), unk_token_id=tokenizer.unk_token_id),
        tokenizer,
        training={key: value for key, value in facts.items() if value is not None},
    )
    with atomic_dir(out) as temporary:
        save_static(model, temporary, options.table_precision)
    logger.info(f"wrote {out}")


def _notes(counts: TextCounts, components: Components, options: StaticOptions) -> list[str]:
    notes = list(counts.notes)
    if counts.empty:
        notes.append(f"{plural(counts.empty, 'text')} without a piece, left out")
    width = components.directions.shape[1]
    if width < options.dimensions:
        notes.append(f"the teacher's vectors have {width} numbers, so these have no more")
    return notes
