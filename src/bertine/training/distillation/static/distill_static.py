"""``distill --static``: a table of vectors out of a model.

As model2vec of Minish Lab does: each piece of the vocabulary goes through the teacher alone; of the
vectors the principal components are kept; frequent pieces count less. With texts the table then
learns from the teacher's vectors of them ("tokenlearn").
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from bertine.errors import BertineError
from bertine.files import atomic_dir, check_replaceable
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.opened import holds_word_vectors, open_embedder
from bertine.inference.static_vectors.embedder import StaticEmbedder
from bertine.inference.static_vectors.files import StaticModel, save_static
from bertine.inference.static_vectors.table import StaticTable
from bertine.interop.word_models import static_folder, word_model_of
from bertine.options.distillation import DistillOptions
from bertine.options.names import option
from bertine.tables.given import Source, TableLike, as_source, reads_again
from bertine.terminal.console import counted, progress, say
from bertine.text.tokenizer import Tokenizer
from bertine.training.distillation.static.components import Components
from bertine.training.distillation.static.fitting import Fitted, PieceTexts, fit_table
from bertine.training.distillation.static.pace import times_as_fast
from bertine.training.distillation.static.pieces import piece_vectors
from bertine.training.distillation.static.result import StaticResult
from bertine.training.distillation.static.texts import (
    TextCounts,
    count_texts,
    reading_of,
    spread_texts,
)
from bertine.training.distillation.static.weighting import (
    counted_probabilities,
    rank_probabilities,
    ranked_pieces,
    smooth_inverse,
)
from bertine.training.distillation.static.words import check_takes_words, with_words

#: Where nothing else is said.
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE = 10, 128, 3e-3
#: Fewer texts say nothing of the teacher's vectors.
_LEAST_TEXTS = 40


def distill_static(
    data: Path | str | TableLike | None, out: Path | str, options: DistillOptions
) -> StaticResult:
    """Make a table of static vectors, and write its directory.

    Args:
        data: texts; None: the teacher alone.
        out: the model directory.
        options: those of a table; others are not looked at.

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
    tokenizer, counts, found, kept = teacher.tokenizer, None, TextCounts(), []
    if source is not None:
        _check_read_again(source, options)
        reading = reading_of(options, source)
        counts, found = count_texts(source, reading, tokenizer, words=options.add_words > 0)
        if options.learn and found.texts < _LEAST_TEXTS:
            raise BertineError(
                f"{data}: has {counted(found.texts, 'text')}, but learning needs {_LEAST_TEXTS}; "
                f"give more, or {option('learn', False)}"
            )
        if options.add_words:
            tokenizer = with_words(tokenizer, found.words, options.add_words)
            if tokenizer is not teacher.tokenizer:
                counts, _ = count_texts(source, reading, tokenizer, words=False)
        if options.learn:
            kept = spread_texts(source, reading, tokenizer, found.texts, options.teacher_texts)
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
        "texts": found.texts or None,
        "trained_on": len(kept) - fitted.held_out if fitted else None,
        "words_added": words_added or None,
        "cosine_before": fitted and round(fitted.before, 6),
        "cosine_after": fitted and round(fitted.after, 6),
        "seed": options.seed if fitted else None,
    }
    _write(Path(out), table, tokenizer, facts, options)
    embedder = StaticEmbedder.load(out)
    return StaticResult(
        out=Path(out),
        embedder=embedder,
        explained=components.explained,
        explained_of="texts" if kept else "pieces",
        weights=said,
        texts=found.texts,
        fitted=fitted,
        words_added=words_added,
        precision=options.table_precision,
        times_as_fast=times_as_fast(embedder, teacher, kept),
        seconds=time.monotonic() - started,
        notes=_notes(found, components, options),
    )


def _teacher(options: DistillOptions) -> Embedder:
    if options.teacher is None:
        raise BertineError(f"whose vectors? Name a model directory with {option('teacher')}")
    kind = word_model_of(options.teacher)
    if kind is not None or holds_word_vectors(options.teacher):
        what = "vectors of words" if kind is None else f"a model of the type {kind}"
        raise BertineError(
            f"{options.teacher}: is {what}, which has no pieces to be read alone; give an encoder"
        )
    precision = "auto" if options.precision is None else options.precision
    return open_embedder(
        options.teacher,
        max_length=options.max_length,
        device=options.device,
        precision=precision if precision in ("auto", "fp32", "bf16") else "fp32",
    )


def _check_read_again(source: Source, options: DistillOptions) -> None:
    """Refuse standard input and pipes where texts are read more than once.

    Raises:
        BertineError: it is one.
    """
    if (options.learn or options.add_words) and not reads_again(source):
        raise BertineError(
            f"{source}: is read several times, so it must be a file; save it as one, or count "
            f"pieces alone ({option('learn', False)})"
        )


def _weights(
    options: DistillOptions, counts: np.ndarray | None, pieces: int, ranked: np.ndarray
) -> tuple[np.ndarray, str]:
    """Return the weights of pieces fp32 [V], and what they are in words."""
    kind = options.piece_weights or ("rank" if counts is None else "counts")
    if kind == "none":
        return np.ones(pieces, np.float32), "all pieces weigh the same"
    if kind == "counts" and counts is not None:
        weights = smooth_inverse(counted_probabilities(counts), options.sif_coefficient)
        return weights, "pieces frequent in the texts weigh less"
    weights = np.ones(pieces, np.float32)
    weights[ranked] = smooth_inverse(rank_probabilities(len(ranked)), options.sif_coefficient)
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
    options: DistillOptions,
) -> Fitted:
    """Learn the table from the teacher's vectors of `texts`, which both read as far."""
    ids, lengths = tokenizer.encode_flat(texts)
    room = max(1, teacher.max_length - tokenizer.template.added())
    place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # As the table is read: what is unknown has no vector.
    read = (place < room) & (ids != tokenizer.unk_token_id)
    text_of = np.repeat(np.arange(len(texts)), lengths)[read]
    known = np.bincount(text_of, minlength=len(texts))
    if (count := int((known > 0).sum())) < _LEAST_TEXTS:
        raise BertineError(
            f"{counted(count, 'text', 'has', 'have')} a piece that the teacher knows, but learning "
            f"needs {_LEAST_TEXTS}; give texts in its language, or {option('learn', False)}"
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
    options: DistillOptions,
) -> None:
    model = StaticModel(
        StaticTable(np.ascontiguousarray(table, np.float32), unk_token_id=tokenizer.unk_token_id),
        tokenizer,
        training={key: value for key, value in facts.items() if value is not None},
    )
    with atomic_dir(out) as temporary:
        save_static(model, temporary, options.table_precision)
    say(f"wrote {out}")


def _notes(found: TextCounts, components: Components, options: DistillOptions) -> list[str]:
    notes = list(found.notes)
    if found.empty:
        notes.append(f"{counted(found.empty, 'text')} without a piece, left out")
    width = components.directions.shape[1]
    if width < options.dimensions:
        notes.append(f"the teacher's vectors have {width} numbers, so these have no more")
    return notes
