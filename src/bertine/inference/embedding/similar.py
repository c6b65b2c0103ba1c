"""The texts of a file that are nearest to a text, by the cosine of their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertine.errors import BertineError
from bertine.files import check_regular, os_errors
from bertine.inference.embedding.embedder import Embedder, unit
from bertine.inference.embedding.mean_words import MeanWordEmbedder
from bertine.inference.embedding.opened import holds_word_vectors, open_embedder
from bertine.inference.embedding.vector_origin import VectorOrigin
from bertine.inference.files.few_texts import bytes_to_come, unmeasured
from bertine.inference.files.rows import (
    open_texts,
    text_chunks,
    text_progress,
)
from bertine.inference.files.text_report import TextReport
from bertine.options.answering import PlainTexts, SimilarOptions
from bertine.options.names import option
from bertine.options.vectors import VectorOptions
from bertine.options.verbs import takes_options
from bertine.tables.given import GivenTable, Source, TableLike, as_source
from bertine.terminal.console import counted
from bertine.terminal.shown import Shown
from bertine.word_vectors.vectors import NearestWords

#: Vectors that are read at once.
_ROWS = 1 << 14


@dataclass(frozen=True)
class Neighbour:
    """A row of the file.

    Attributes:
        row: its number among the texts, from 1 on.
        score: the cosine of its vector and the query's, at most 1.
        text: None where only vectors were given.
    """

    row: int
    score: float
    text: str | None


@dataclass(repr=False)
class Neighbours(Shown):
    """The nearest rows, best first; of equals the earlier one first.

    Attributes:
        query: the text that was asked for.
        rows: compared.
        found: the best of them.
        notes: what was cut, or mended in the input.
    """

    query: str
    rows: int
    found: list[Neighbour]
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a line for each: score, row, text."""
        return [
            f"{row.score:7.4f}  {row.row:>{len(str(self.rows))}}"
            + ("" if row.text is None else f"  {' '.join(row.text.split())}")
            for row in self.found
        ] + self.notes


class _Best:
    """The rows with the highest scores so far."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.scores = np.empty(0, dtype=np.float32)
        self.rows = np.empty(0, dtype=np.int64)
        self.texts: dict[int, str] = {}
        self.seen = 0

    def add(self, scores: np.ndarray, texts: Sequence[str] | None = None) -> None:
        """Add the scores [N] of the next N rows."""
        rows = np.arange(self.seen, self.seen + len(scores))
        merged = np.concatenate([self.scores, scores])
        numbers = np.concatenate([self.rows, rows])
        # Stable: of equals the row that came first stays first.
        order = np.argsort(-merged, kind="stable")[: self._top]
        self.scores, self.rows = merged[order], numbers[order]
        if texts is not None:
            self.texts = {
                row: texts[row - self.seen] if row >= self.seen else self.texts[row]
                for row in self.rows.tolist()
            }
        self.seen += len(scores)


@takes_options()
def similar(
    query: str,
    input: Path | str | TableLike | None = None,
    *,
    model: Embedder | Path | str,
    texts: Path | str | TableLike | None = None,
    top: int = 10,
    show_progress: bool = True,
    options: SimilarOptions,
) -> Neighbours | NearestWords:
    """Find the rows of a file whose texts are most like `query`: the highest cosines. In bounded
    memory. With vectors of words and no file, find the nearest words.

    Args:
        query: a text.
        input: a table of texts as :func:`~bertine.embed` reads it, or a ``.npy``
            that it has written with the same model, pooling and layer, which the JSON file beside
            it records. Or a table in memory: a pandas or polars frame, an Arrow table, a
            ``datasets.Dataset``, a list of dictionaries, a dictionary of columns. None: the words
            of the vectors themselves.
        model: a model directory, vectors of words (:func:`~bertine.word2vec`), of which a text
            gets the mean of its words', or a loaded :class:`~bertine.Embedder`, whose
            own settings then hold.
        texts: of a ``.npy``, the table that it was made of, in a file or in memory; None: rows
            are shown by number.
        top: how many.
        show_progress: on stderr.
        options: what the other arguments say; the prompt is put before the query and the texts.

    Raises:
        BertineError: no such model; what reading the table raises; an array of another width than
            the model's vectors, or made with another model, pooling or layer; a table of texts
            with another number of rows than the array; how to read texts is said of a ``.npy``
            alone.
    """
    if top < 1:
        raise BertineError(f"top is {top}, but must be at least 1")
    if input is None:
        return _nearest_words(query, model, texts, top, options)
    if options.word is not None:
        return _similar_uses(query, as_source(input, "input"), model, top, options, show_progress)
    input = as_source(input, "input")
    texts = None if texts is None else as_source(texts, "texts")
    ready = not isinstance(input, GivenTable) and Path(input).suffix.lower() == ".npy"
    if texts is not None and not ready:
        raise BertineError(f"{input}: has its texts in it; texts is for a .npy of vectors")
    reading = PlainTexts.of(options)
    if ready and texts is None:
        for name in reading.changed():
            raise BertineError(
                f"{input}: is vectors without texts, so {name} has nothing to say; leave it "
                f"out, or name the table they were made of ({option('texts')})"
            )
    # Where the vectors are ready, the query is all that is computed.
    size = len(query) if ready else bytes_to_come(input)
    embedder = open_embedder(
        model,
        **VectorOptions.of(options, normalize=None).values(),
        **unmeasured(model, size, options.device, options.precision),
    )
    asked = unit(embedder.embed([query]))[0]
    if isinstance(embedder, MeanWordEmbedder) and not asked.any():
        raise BertineError(f"{query!r}: none of its words has a vector")
    best = _Best(top)
    notes = []
    cut = embedder.features([query])[0].num_truncated
    if cut:
        notes.append(
            f"the query was cut at {embedder.max_length} {embedder.unit}s "
            f"({counted(cut, embedder.unit)} lost)"
        )
    if ready and not isinstance(input, GivenTable):
        vectors = _opened(input, embedder.dimensions)
        origin = VectorOrigin.read(input)
        if origin is not None:
            notes += origin.check(input, embedder, vectors.shape)
        for start in range(0, len(vectors), _ROWS):
            part = np.asarray(vectors[start : start + _ROWS], dtype=np.float32)
            best.add(unit(part) @ asked)
        if texts is not None:
            notes += _read_texts(best, texts, reading, input)
    else:
        report = TextReport(max_length=embedder.max_length, unit=embedder.unit)
        with open_texts(input, reading) as (table, column):
            with text_progress("compare", input, table.layout, show=show_progress) as advance:
                for rows, read in text_chunks(table, column):
                    features = embedder.features(read)
                    report.count(len(rows), features)
                    report.empty += sum(1 for text in read if not text.strip())
                    best.add(unit(embedder.run(features)) @ asked, read)
                    advance(len(rows))
            report.notes = table.stats.notes(table.name)
        notes += embedder.notes() + report.warnings()
    neighbours = [
        Neighbour(row + 1, min(1.0, score), best.texts.get(row))
        for row, score in zip(best.rows.tolist(), best.scores.tolist(), strict=True)
    ]
    return Neighbours(query, best.seen, neighbours, notes)


def _similar_uses(
    query: str,
    input: Source,
    model: Embedder | Path | str,
    top: int,
    options: SimilarOptions,
    show_progress: bool,
) -> Neighbours:
    """Compare a word as it stands in the query with the same word in the texts of a table.

    Raises:
        BertineError: the query, or every text, is without the word; a ``.npy``; a pooling.
    """
    word = options.word or ""
    if not isinstance(input, GivenTable) and Path(input).suffix.lower() == ".npy":
        raise BertineError(f"{input}: is vectors of whole texts; {option('word')} is for texts")
    if options.pooling is not None:
        raise BertineError(f"{option('pooling')} is for whole texts; leave out {option('word')}")
    if not word.strip():
        raise BertineError(f"{option('word')} is empty; give a word of the query")
    settings = VectorOptions.of(options, normalize=None).values()
    if not holds_word_vectors(model):
        settings["pooling"] = "tokens"
    embedder = open_embedder(
        model,
        **settings,
        **unmeasured(model, bytes_to_come(input), options.device, options.precision),
    )
    own = embedder.word_in([query], word)[0]
    if own is None:
        raise BertineError(f"{query!r} is without the word {word!r}")
    asked = unit(own[None])[0]
    best = _Best(top)
    without = 0
    with open_texts(input, PlainTexts.of(options)) as (table, column):
        with text_progress("compare", input, table.layout, show=show_progress) as advance:
            for rows, read in text_chunks(table, column):
                scores = np.full(len(read), -np.inf, dtype=np.float32)
                for row, vector in enumerate(embedder.word_in(read, word)):
                    if vector is not None:
                        scores[row] = unit(vector[None])[0] @ asked
                without += int(np.isinf(scores).sum())
                best.add(scores, read)
                advance(len(rows))
        notes = table.stats.notes(table.name)
    if without:
        notes.append(f"{counted(without, 'text')} without the word {word!r}, left out")
    neighbours = [
        Neighbour(row + 1, min(1.0, score), best.texts.get(row))
        for row, score in zip(best.rows.tolist(), best.scores.tolist(), strict=True)
        if score > -np.inf
    ]
    return Neighbours(query, best.seen, neighbours, notes)


def _nearest_words(
    query: str,
    model: Embedder | Path | str,
    texts: Path | str | TableLike | None,
    top: int,
    options: SimilarOptions,
) -> NearestWords:
    """Compare with the words of the vectors themselves.

    Raises:
        BertineError: `model` is none of words; something is said of a file, and there is none.
    """
    if not holds_word_vectors(model):
        raise BertineError(
            f"nothing to compare with; give the texts ({option('input')}), or vectors of words as "
            "the model"
        )
    given = [*(["texts"] if texts is not None else []), *(["word"] if options.word else [])]
    for name in [*PlainTexts.of(options).changed(), *given]:
        raise BertineError(f"{option(name)} is for a file of texts, and there is none")
    embedder = open_embedder(model, **VectorOptions.of(options, normalize=None).values())
    assert isinstance(embedder, MeanWordEmbedder)
    return embedder.vectors.nearest(query, top)


def _opened(path: Path | str, dimensions: int) -> np.ndarray:
    """Open the vectors of a ``.npy`` [N, D], on disk.

    Raises:
        BertineError: it is not an array of numbers, or of another width than `dimensions`.
    """
    check_regular(path)
    with os_errors(path, "reading it"):
        try:
            table = np.lib.format.open_memmap(path, mode="r")
        except OSError:
            raise
        except Exception as error:  # of many kinds: NumPy reads the header as Python
            raise BertineError(f"{path}: is not an array of numbers that NumPy reads") from error
    if table.ndim != 2 or table.dtype.kind != "f":
        raise BertineError(
            f"{path}: is an array {list(table.shape)} of {table.dtype}, but must have a vector "
            "of real numbers in each row"
        )
    if table.shape[1] != dimensions:
        raise BertineError(
            f"{path}: its vectors have {table.shape[1]} numbers, but the model's have "
            f"{dimensions}; name the model that made them"
        )
    return table


def _read_texts(best: _Best, path: Source, reading: PlainTexts, vectors: Path | str) -> list[str]:
    """Find the texts of the best rows in the table that the vectors were made of; what was mended
    in it."""
    rows = set(best.rows.tolist())
    count = 0
    with open_texts(path, reading) as (table, column):
        for count, row in enumerate(table, 1):
            if count - 1 in rows:
                best.texts[count - 1] = table.text(row, column)
    if count != best.seen:
        raise BertineError(
            f"{path}: has {counted(count, 'text')}, but {vectors} has "
            f"{counted(best.seen, 'vector')}; name the table that they were made of"
        )
    return table.stats.notes(table.name)
