"""The texts of a file that are nearest to a text, by the cosine of their vectors."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bertine.errors import BertineError
from bertine.inference.embedding.embedder import Embedder, unit, unknown_text
from bertine.inference.embedding.mean_words import MeanWordEmbedder
from bertine.inference.embedding.nearest import (
    NearestRows,
    Neighbours,
    cosines_with,
    search_all,
)
from bertine.inference.embedding.opened import holds_word_vectors, open_embedder
from bertine.inference.embedding.searches import (
    Searches,
    check_search_output,
    open_searches,
    read_queries,
)
from bertine.inference.embedding.vector_files import open_vectors
from bertine.inference.embedding.vector_index import VectorIndex
from bertine.inference.embedding.vector_origin import VectorOrigin, hashed, origin_path
from bertine.inference.files.few_texts import bytes_to_come, unmeasured
from bertine.inference.files.rows import open_texts, text_chunks, text_progress
from bertine.inference.files.text_report import TextReport
from bertine.options.answering import PlainTexts, SimilarOptions
from bertine.options.names import option
from bertine.options.vectors import VectorOptions
from bertine.options.verbs import takes_options
from bertine.scores import COARSE_ROUNDING, ROUNDING
from bertine.tables.given import GivenTable, Source, TableLike, as_source
from bertine.tables.lines import first_numbers
from bertine.terminal.console import counted, progress
from bertine.word_vectors.vectors import NearestWords

#: Queries that are compared at once.
_QUERIES = 1 << 12


@takes_options()
def similar(
    query: str | Sequence[str] | None = None,
    input: Path | str | TableLike | None = None,
    *,
    model: Embedder | Path | str,
    texts: Path | str | TableLike | None = None,
    queries: Path | str | TableLike | None = None,
    index: Path | str | None = None,
    output: Path | str | None = None,
    top: int = 10,
    show_progress: bool = True,
    options: SimilarOptions,
) -> Neighbours | NearestWords | Searches:
    """Find the rows of a file whose texts are most like `query`: the highest cosines. In bounded
    memory. With vectors of words and no file, find the nearest words.

    Args:
        query: a text, or a list of them, which are searched for at once.
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
        queries: in place of `query` a table of them, in a file or in memory: its column ``query``,
            ``text``, ``sentence``, or the only one.
        index: of a ``.npy`` the folder that :func:`~bertine.index_vectors` made of it: the search
            reads a part of the vectors, and may miss some of the nearest. None: all are compared.
        output: a .csv, .tsv, .jsonl or .parquet file, complete or not there at all, or ``-``: a
            row for each query and each of its nearest rows, with ``query_row``, ``query``,
            ``rank``, ``row``, ``score`` and, where there are texts, ``text``. None: they are
            returned.
        top: how many.
        show_progress: on stderr.
        options: what the other arguments say; the prompt is put before the queries and the texts.

    Returns:
        The nearest rows of the query, or the nearest words; of several queries, or where they are
        written to a file, :class:`~bertine.inference.embedding.searches.Searches`.

    Raises:
        BertineError: no such model; what reading the tables raises; an array of another width than
            the model's vectors, or made with another model, pooling or layer; an index of other
            vectors; a table of texts with another number of rows than the array; how to read texts
            is said of a ``.npy`` alone; more queries than fit into memory, of texts that have no
            vectors yet.
    """
    if top < 1:
        raise BertineError(f"top is {top}, but must be at least 1")
    if (query is None) == (queries is None):
        raise BertineError(f"give either a query or a table of queries ({option('queries')})")
    several = queries is not None or output is not None or not isinstance(query, str)
    if several and input is None:
        raise BertineError(
            f"several queries need texts to search among; name them ({option('input')})"
        )
    if several and options.word is not None:
        raise BertineError(f"{option('word')} takes one query, and its answer is printed; give one")
    if options.word is not None:
        for name, value in (("texts", texts), ("index", index)):
            if value is not None:
                raise BertineError(
                    f"{option(name)} is for vectors of whole texts; leave it out, or "
                    f"{option('word')}"
                )
    if input is None:
        assert isinstance(query, str)
        return _nearest_words(query, model, texts, index, top, options)
    if options.word is not None:
        assert isinstance(query, str)
        return _similar_uses(query, as_source(input, "input"), model, top, options, show_progress)
    search = _Search(
        as_source(input, "input"),
        None if texts is None else as_source(texts, "texts"),
        index,
        top,
        options,
        show_progress,
    )
    if output is not None:
        read = {option("input"): input, option("queries"): queries, option("texts"): texts}
        check_search_output(output, read)
    asked, notes = read_queries(query, queries)
    empty = [number for number, text in enumerate(asked, 1) if not text.strip()]
    if len(empty) == len(asked):
        raise BertineError("the query is empty; give a text")
    if empty:
        one = len(empty) == 1
        which = first_numbers(empty, what="number" if one else "numbers")
        are = "query is empty and has" if one else "queries are empty and have"
        notes.append(f"{len(empty):,} {are} no answer ({which})")
    search.open(model, [text for text in asked if text.strip()])
    if not several:
        nearest = search.nearest(asked)
        return Neighbours(asked[0], nearest.seen, nearest.neighbours(0), [*notes, *search.notes()])
    found = Searches(output=output)
    with ExitStack() as stack:
        write = (
            None
            if output is None
            else stack.enter_context(open_searches(output, with_texts=search.has_texts))
        )
        for start in range(0, len(asked), _QUERIES):
            part = asked[start : start + _QUERIES]
            texts_of_part = [text for text in part if text.strip()]
            if not texts_of_part:
                found.queries += len(part)
                continue
            nearest = search.nearest(texts_of_part)
            places = itertools.count()
            for text in part:
                rows = nearest.neighbours(next(places)) if text.strip() else []
                each = Neighbours(text, nearest.seen, rows)
                found.queries += 1
                if write is None:
                    found.items.append(each)
                else:
                    write(found.queries, each)
    found.notes = [*notes, *search.notes()]
    return found


class _Search:
    """A search for the nearest rows of a table of texts, or of vectors that are there.

    Attributes:
        embedder: that the queries are embedded with; there once the search is open.
    """

    embedder: Embedder

    def __init__(
        self,
        input: Source,
        texts: Source | None,
        index: Path | str | None,
        top: int,
        options: SimilarOptions,
        show_progress: bool,
    ) -> None:
        self._input, self._texts, self._top = input, texts, top
        self._options, self._show = options, show_progress
        self._reading = PlainTexts.of(options)
        self._index_folder = index
        self._index: VectorIndex | None = None
        self._vectors: np.ndarray | None = None
        #: What a person should know, in its order and each once; and what was cut of the queries.
        self._notes: dict[str, None] = {}
        self._cut = self._lost = 0
        self._made_of = ""  # the fingerprint of the texts of the vectors
        self._ready = not isinstance(input, GivenTable) and Path(input).suffix.lower() == ".npy"
        if texts is not None and not self._ready:
            raise BertineError(f"{input}: has its texts in it; texts is for a .npy of vectors")
        if index is not None and not self._ready:
            raise BertineError(
                f"{input}: has no vectors yet; {option('index', index)} is for a .npy of vectors "
                "that 'bertine embed' wrote"
            )
        if self._ready and texts is None:
            for name in self._reading.changed():
                raise BertineError(
                    f"{input}: is vectors without texts, so {name} has nothing to say; leave it "
                    f"out, or name the table they were made of ({option('texts')})"
                )

    @property
    def has_texts(self) -> bool:
        """Whether the rows have texts, and not vectors alone."""
        return not self._ready or self._texts is not None

    def open(self, model: Embedder | Path | str, queries: Sequence[str]) -> None:
        """Load the model, and open the vectors and the index.

        Raises:
            BertineError: see :func:`similar`.
        """
        if not self._ready and len(queries) > _QUERIES:
            raise BertineError(
                f"{len(queries):,} queries are too many to compare with texts that have no vectors "
                "yet; write those with 'bertine embed' first, and name the .npy"
            )
        # Where the vectors are ready, the queries are all that is computed.
        size = sum(map(len, queries)) if self._ready else bytes_to_come(self._input)
        options = self._options
        self.embedder = open_embedder(
            model,
            **VectorOptions.of(options, normalize=None).values(),
            **unmeasured(model, size, options.device, options.precision),
        )
        self._tolerance = _tolerance(self.embedder.precision)
        self._unknown = unknown_text(self.embedder)
        if not self._ready or isinstance(self._input, GivenTable):
            return
        self._vectors = open_vectors(self._input, self.embedder.dimensions)
        origin = VectorOrigin.read(self._input)
        if origin is None:
            self._note(
                [
                    f"{self._input}: its description {origin_path(self._input).name} is missing, "
                    "so nothing says which model made these vectors; those of another one compare "
                    "by chance"
                ]
            )
        else:
            self._made_of = origin.texts
            self._tolerance = _tolerance(origin.precision, origin.dtype)
            self._note(origin.check(self._input, self.embedder, self._vectors.shape))
        if self._index_folder is not None:
            self._index = VectorIndex.read(self._index_folder, self._vectors, self._input)
            self._note(self._index.notes(self._top))

    def _note(self, notes: Sequence[str]) -> None:
        self._notes |= dict.fromkeys(notes)

    def notes(self) -> list[str]:
        """Return what a person should know of the searches so far."""
        embedder = self.embedder
        cut = [
            f"{counted(self._cut, 'long query', 'was', 'were')} cut at {embedder.max_length} "
            f"{embedder.unit}s ({counted(self._lost, embedder.unit)} lost)"
        ]
        unknown = self._unknown and self._unknown.note("queries")
        return [*([unknown] if unknown else []), *(cut if self._cut else []), *self._notes]

    def nearest(self, queries: Sequence[str]) -> NearestRows:
        """Return the nearest rows of the `queries`.

        Raises:
            BertineError: see :func:`similar`.
        """
        asked = self._embedded(queries)
        if self._index is not None:
            nearest = self._index.search(asked, self._top, self._tolerance)
        else:
            nearest = NearestRows(len(queries), self._top, self._tolerance)
            if self._vectors is None:
                self._compare_texts(asked, nearest)
            else:
                # One query is done before a bar could be read.
                with progress(show=self._show and len(queries) > 1) as bar:
                    job = bar.add_task("compare", total=len(self._vectors))
                    search_all(
                        nearest,
                        asked,
                        self._vectors,
                        lambda count: bar.update(job, advance=count),
                        str(self._input),
                    )
        if self._texts is not None:
            assert not isinstance(self._input, GivenTable)
            self._note(_read_texts(nearest, self._texts, self._reading, self._input, self._made_of))
        return nearest

    def _embedded(self, queries: Sequence[str]) -> np.ndarray:
        """Embed the queries, fp32 [Q, D] of length 1, and count what is cut.

        Raises:
            BertineError: none of a query's words has a vector.
        """
        embedder = self.embedder
        features = embedder.features(queries)
        asked = unit(embedder.run(features))
        for query, vector in zip(queries, asked, strict=True):
            if not np.isfinite(vector).all():
                raise BertineError(
                    f"{query!r}: its vector has a number that is NaN or infinite; compute in fp32 "
                    f"({option('precision', 'fp32')})"
                )
        if isinstance(embedder, MeanWordEmbedder):
            for query, vector in zip(queries, asked, strict=True):
                if not vector.any():
                    raise BertineError(f"{query!r}: none of its words has a vector")
        if self._unknown is not None:
            self._unknown.count(features, queries)
        for feature in features:
            self._cut += feature.num_truncated > 0
            self._lost += feature.num_truncated
        return asked

    def _compare_texts(self, asked: np.ndarray, nearest: NearestRows) -> None:
        """Embed the texts of the table and compare them."""
        embedder, source = self.embedder, self._input
        report = TextReport(
            max_length=embedder.max_length, unit=embedder.unit, unknown=unknown_text(embedder)
        )
        with open_texts(source, self._reading) as (table, column):
            with text_progress("compare", source, table.layout, show=self._show) as advance:
                for rows, read in text_chunks(table, column):
                    features = embedder.features(read)
                    report.count(len(rows), features, read, [row.line for row in rows])
                    report.empty += sum(1 for text in read if not text.strip())
                    numbers = nearest.seen + np.arange(len(read))
                    vectors = embedder.run(features)
                    nearest.add(cosines_with(asked, vectors, numbers, table.name), read)
                    advance(len(rows))
            report.notes = table.stats.notes(table.name)
        self._note([*embedder.notes(), *report.warnings()])


def _tolerance(*types: str) -> float:
    """Return the tolerance for cosines of vectors that are computed, and kept, in these types."""
    return ROUNDING if {*types} == {"fp32"} else COARSE_ROUNDING


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
    best = NearestRows(1, top, _tolerance(embedder.precision))
    without = 0
    with open_texts(input, PlainTexts.of(options)) as (table, column):
        with text_progress("compare", input, table.layout, show=show_progress) as advance:
            for rows, read in text_chunks(table, column):
                scores = np.full(len(read), -np.inf, dtype=np.float32)
                for row, vector in enumerate(embedder.word_in(read, word)):
                    if vector is None:
                        without += 1
                        continue
                    number = np.array([best.seen + row])
                    scores[row] = cosines_with(asked[None], vector[None], number, table.name)[0, 0]
                best.add(scores[None], read)
                advance(len(rows))
        notes = table.stats.notes(table.name)
    if without == best.seen:
        raise BertineError(f"{table.name}: no text has the word {word!r}")
    if without:
        notes.append(f"{counted(without, 'text')} without the word {word!r}, left out")
    return Neighbours(query, best.seen, best.neighbours(0), notes)


def _nearest_words(
    query: str,
    model: Embedder | Path | str,
    texts: Path | str | TableLike | None,
    index: Path | str | None,
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
    given = {"texts": texts, "index": index, "word": options.word}
    for name in [
        *PlainTexts.of(options).changed(),
        *(name for name, value in given.items() if value is not None),
    ]:
        raise BertineError(f"{option(name)} is for a file of texts, and there is none")
    embedder = open_embedder(model, **VectorOptions.of(options, normalize=None).values())
    assert isinstance(embedder, MeanWordEmbedder)
    return embedder.vectors.nearest(query, top)


def _read_texts(
    nearest: NearestRows, path: Source, reading: PlainTexts, vectors: Path | str, made_of: str
) -> list[str]:
    """Find the texts of the best rows in the table that the vectors were made of, whose fingerprint
    is `made_of` ("": not known); return what was mended in it."""
    rows = set(np.concatenate(nearest.rows).tolist())
    count, digest = 0, hashlib.sha256()
    with open_texts(path, reading) as (table, column):
        for count, row in enumerate(table, 1):
            text = table.text(row, column)
            digest.update(hashed([text]))
            if count - 1 in rows:
                nearest.texts[count - 1] = text
    if count != nearest.seen:
        raise BertineError(
            f"{path}: has {counted(count, 'text')}, but {vectors} has "
            f"{counted(nearest.seen, 'vector')}; name the table that they were made of"
        )
    if made_of and made_of != digest.hexdigest():
        raise BertineError(
            f"{path}: {vectors} was made of other texts, or of these in another order; embed them "
            "again"
        )
    return table.stats.notes(table.name)
