"""Search for the nearest rows of a table of texts, or of a file of vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertine.core.console import logger, plural, progress
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.data.in_memory import InMemoryTable, Source, reads_again
from bertine.data.parquet import is_parquet
from bertine.data.tables import Table
from bertine.inference.answer_files import TextReport
from bertine.inference.embedding.collection import (
    Collection,
    VectorTable,
    model_of,
    query_vectors,
    tolerance_of,
)
from bertine.inference.embedding.embedder import Embedder, empty_texts, unknown_text
from bertine.inference.embedding.index import (
    NO_ROWS,
    NearestRows,
    TextRow,
    VectorIndex,
    cosines_with,
    search_all,
)
from bertine.inference.embedding.vector_files import (
    VectorMetadata,
    hashed,
    metadata_path,
    open_vectors,
    vector_column,
    vectors_of,
)
from bertine.inference.embedding.vectors import Prompts
from bertine.inference.rows import (
    bytes_to_come,
    open_texts,
    other_columns,
    text_chunks,
    text_progress,
    unmeasured,
)
from bertine.options.inference import PlainTexts, SimilarOptions
from bertine.options.vectors import VectorOptions

#: Queries that are compared at once.
QUERIES = 1 << 12
#: The note on empty texts.
_OF_EMPTY = "are not compared"


class Search:
    """One search for the nearest rows of a table of texts, or of existing vectors.

    Attributes:
        embedder, asking: the embedders of the texts and of the queries; set once the search is
            open.
        columns: the other columns of the texts, set by the first search; None: there are no texts.
    """

    embedder: Embedder
    asking: Embedder
    columns: list[str] | None = None
    _collection: Collection | None = None

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
        #: Rows of the vectors whose texts are empty, once the texts were read; they are not
        #: compared.
        self._empty = NO_ROWS
        #: Notes for the user, in their order and each once; and what was cut from the queries.
        self._notes: dict[str, None] = {}
        self._cut = self._lost = 0
        self._origin: VectorMetadata | None = None
        #: The column of the table with vectors; None: there is none.
        self._column: str | None = None
        self._ready = not isinstance(input, InMemoryTable) and Path(input).suffix.lower() == ".npy"
        if texts is not None and not self._ready:
            raise BertineError(f"{input}: has its texts in it; texts is for a .npy of vectors")
        if index is not None and not self._ready:
            raise BertineError(
                f"{input}: is no .npy; {option('index', index)} is for one that 'bertine embed' "
                "wrote"
            )
        if self._ready and texts is None:
            for name in self._reading.changed():
                raise BertineError(
                    f"{input}: is vectors without texts, so {name} has nothing to say; leave it "
                    f"out, or name the table they were made of ({option('texts')})"
                )

    def open(self, model: Embedder | Path | str | None, queries: Sequence[str]) -> None:
        """Load the model, and open the vectors and the index.

        Raises:
            BertineError: see :func:`similar`.
        """
        kept = is_parquet(self._input) and Path(str(self._input)).is_file()
        if kept:
            self._origin = VectorMetadata.read(str(self._input))
            kept = self._origin is not None and "tokens" not in self._origin.pooling
        for name in ("where", "hybrid"):
            if getattr(self._options, name) not in (None, False) and not kept:
                raise BertineError(
                    f"{self._input}: {option(name)} is for a .parquet that 'bertine embed' wrote"
                )
        if kept:
            reading = self._reading
            Table(self._input, format=reading.format, quotes=reading.quotes).close()  # refuses them
            table = VectorTable(str(self._input), reading.text_column)
            if self._options.where is not None:
                table.fulfilling(self._options.where)  # before the model is loaded, if it is wrong
        elif not self._ready and reads_again(self._input):
            with open_texts(self._input, self._reading) as (given, _):
                first = next(iter(given), None)
                self._column = None if first is None else vector_column(given.columns, first)
        ready = self._ready or kept or self._column is not None
        if not ready and len(queries) > QUERIES:
            raise BertineError(
                f"{len(queries):,} queries are too many to compare with texts that have no vectors "
                "yet; write those with 'bertine embed' first, and name the .npy"
            )
        if ready and not isinstance(self._input, InMemoryTable):
            self._origin = VectorMetadata.read(self._input)
        # Where the vectors exist, only the queries are computed.
        size = sum(map(len, queries)) if ready else bytes_to_come(self._input)
        with model_of(self._input, self._origin, model) as named:
            self._load(named, ready, size)
        self._tolerance = tolerance_of(self.embedder.precision)
        self._unknown = unknown_text(self.embedder)
        if self._ready:
            self._vectors = open_vectors(Path(str(self._input)), self.embedder.dimensions)
        if kept:
            self._collection = Collection(table, self.asking)
            self.columns = table.columns
            self._note(self._collection.notes)
        elif ready:
            self._check_origin()
        if self._index_folder is not None:
            assert self._vectors is not None
            self._index = VectorIndex.read(self._index_folder, self._vectors, str(self._input))
            self._note(self._index.notes(self._top))

    def _load(self, model: Embedder | Path | str, ready: bool, size: int | None) -> None:
        """Load the model with its prompts: one for the texts, and one for the queries.

        Args:
            model: as :func:`~bertine.similar` takes it.
            ready: whether the texts have vectors already.
            size: bytes of text to compute.

        Raises:
            BertineError: the model cannot be loaded; there is no such prompt.
        """
        options = self._options
        prompt, asked = options.prompt, options.query_prompt
        if prompt is None and not isinstance(model, Embedder):
            prompts = Prompts.read(model)
            prompt = prompts.for_documents
            asked = prompts.for_queries if asked is None else asked
            if asked is None and prompt is not None:
                asked = prompts.default or ""
        if ready and asked is not None:
            if options.prompt is not None:
                raise BertineError(
                    f"{self._input}: has vectors already, and their prompt; leave out "
                    f"{option('prompt', options.prompt)}"
                )
            prompt = asked
        settings = VectorOptions.of(options, normalize=None).values() | {"prompt": prompt}
        recorded = {} if self._origin is None else self._origin.settings()
        settings |= {name: value for name, value in recorded.items() if settings[name] is None}
        how = unmeasured(model, size, options.device, options.precision)
        self.embedder = self.asking = embedder = Embedder.opened(model, **settings, **how)
        if asked is not None:
            self.asking = embedder.with_prompt(asked)
        if self.asking is not embedder:
            logger.info(f"before the queries: {self.asking.prompt!r}")

    def _check_origin(self) -> None:
        """Check that the vectors were made with the same model, or note that their origin is
        unknown.

        Raises:
            BertineError: another model, pooling or layer.
        """
        source = self._input
        if self._origin is None:
            why = "is in memory"
            if not isinstance(source, InMemoryTable):
                why = f"its description {metadata_path(source).name} is missing"
            says = "so nothing says which model made these vectors; those of another one compare by"
            self._note([f"{source}: {why}, {says} chance"])
            return
        self._tolerance = tolerance_of(self._origin.precision, self._origin.dtype)
        shape = None if self._vectors is None else self._vectors.shape
        self._note(self._origin.check(str(source), self.asking, shape))

    def _note(self, notes: Sequence[str]) -> None:
        self._notes |= dict.fromkeys(notes)

    def notes(self) -> list[str]:
        """Return the notes on the searches so far."""
        embedder = self.embedder
        cut = [
            f"{plural(self._cut, 'long query', 'was', 'were')} cut at {embedder.max_length} "
            f"{embedder.unit}s ({plural(self._lost, embedder.unit)} lost)"
        ]
        unknown = self._unknown and self._unknown.note("queries")
        return [*([unknown] if unknown else []), *(cut if self._cut else []), *self._notes]

    def nearest(self, queries: Sequence[str]) -> NearestRows:
        """Return the nearest rows of the `queries`.

        Raises:
            BertineError: see :func:`similar`.
        """
        asked = self._embedded(queries)
        if self._collection is not None:
            return self._in_collection(self._collection, asked, queries)
        if self._vectors is None:
            return self._compare_table(asked)
        while True:
            nearest = self._compare_vectors(asked, self._vectors)
            if self._texts is None or not self._read_texts(nearest, self._texts):
                return nearest
            if not reads_again(self._texts):
                raise BertineError(
                    f"{self._texts}: some of its texts are empty, so it has to be read again, "
                    "which is possible with a file only; write it to one"
                )

    def _in_collection(
        self, collection: Collection, asked: np.ndarray, queries: Sequence[str]
    ) -> NearestRows:
        """Search a collection, and note what is not compared."""
        where = self._options.where
        nearest = collection.nearest(asked, queries, self._top, where, self._options.hybrid)
        if where:
            self._note([f"{nearest.seen:,} of {plural(collection.rows, 'row')} match {where!r}"])
        report = TextReport(rows=collection.rows, of_empty=_OF_EMPTY)
        report.count_empty((collection.empty + 1).tolist())
        self._note(report.warnings())
        return nearest

    def _compare_vectors(self, asked: np.ndarray, vectors: np.ndarray) -> NearestRows:
        """Compare with the vectors of a ``.npy``, or look them up in their index."""
        if self._index is not None:
            return self._index.search(asked, self._top, self._tolerance, self._empty)
        nearest = NearestRows(len(asked), self._top, self._tolerance)
        # A single query is done before a bar could be read.
        with progress(show=self._show and len(asked) > 1) as bar:
            job = bar.add_task("compare", total=len(vectors))
            search_all(
                nearest,
                asked,
                vectors,
                lambda count: bar.update(job, advance=count),
                str(self._input),
                self._empty,
            )
        return nearest

    def _embedded(self, queries: Sequence[str]) -> np.ndarray:
        """Embed the queries, fp32 [Q, D] of length 1, and count what is cut.

        Raises:
            BertineError: none of a query's words has a vector.
        """
        embedder = self.asking
        features = embedder.features(queries)
        asked = query_vectors(embedder, features, queries)
        if self._unknown is not None:
            self._unknown.count(features, queries)
        for feature in features:
            self._cut += feature.num_truncated > 0
            self._lost += feature.num_truncated
        return asked

    def _compare_table(self, asked: np.ndarray) -> NearestRows:
        """Compare with the rows of the table: with their vectors, or the vectors of their texts."""
        nearest = NearestRows(len(asked), self._top, self._tolerance)
        embedder, source, digest = self.embedder, self._input, hashlib.sha256()
        report = TextReport(
            max_length=embedder.max_length,
            unit=embedder.unit,
            unknown=unknown_text(embedder),
            of_empty=_OF_EMPTY,
        )
        with open_texts(source, self._reading) as (table, column):
            with text_progress("compare", source, table.layout, show=self._show) as advance:
                for rows, read in text_chunks(table, column):
                    if self._column is not None:
                        vectors = vectors_of(table.name, rows, self._column, embedder.dimensions)
                        digest.update(hashed(read))
                        report.rows += len(rows)
                    else:
                        if not reads_again(source) and vector_column(table.columns, rows[0]):
                            raise BertineError(
                                f"{table.name}: has vectors in it, which are read from a file "
                                "only; write it to one"
                            )
                        features = embedder.features(read)
                        report.count(len(rows), features, read, [row.line for row in rows])
                        vectors = embedder.run(features)
                    empty = empty_texts(embedder, read)
                    report.count_empty(rows[at].line for at in empty)
                    numbers = nearest.seen + np.arange(len(read))
                    documents = [
                        TextRow(text, other_columns(row, column, self._column))
                        for text, row in zip(read, rows, strict=True)
                    ]
                    cosines = cosines_with(asked, vectors, numbers, table.name)
                    cosines[:, empty] = np.nan
                    nearest.add(cosines, documents)
                    advance(len(rows))
            self.columns = [name for name in table.columns if name not in (column, self._column)]
            report.notes = table.stats.notes(table.name)
        if self._column is not None:
            self._check_texts(table.name, nearest.seen, digest.hexdigest())
        self._note([*embedder.notes(), *report.warnings()])
        return nearest

    def _read_texts(self, nearest: NearestRows, path: Source) -> bool:
        """Read the texts of the best rows from the table that the vectors were made from.

        Returns:
            Whether some of these rows are empty, and so should not have been compared.

        Raises:
            BertineError: it is another table, or cannot be read.
        """
        rows = {*np.concatenate(nearest.rows).tolist()}
        empty: list[int] = []
        report, digest = TextReport(of_empty=_OF_EMPTY), hashlib.sha256()
        with open_texts(path, self._reading) as (table, column):
            for some, read in text_chunks(table, column):
                digest.update(hashed(read))
                blank = empty_texts(self.embedder, read)
                report.count_empty(some[at].line for at in blank)
                empty += (report.rows + at for at in blank)
                for number, (row, text) in enumerate(zip(some, read, strict=True), report.rows):
                    if number in rows:
                        nearest.documents[number] = TextRow(text, other_columns(row, column))
                report.rows += len(some)
            self.columns = [name for name in table.columns if name != column]
            report.notes = table.stats.notes(table.name)
        if report.rows != nearest.seen:
            raise BertineError(
                f"{path}: has {plural(report.rows, 'text')}, but {self._input} has "
                f"{plural(nearest.seen, 'vector')}; name the table that they were made of"
            )
        self._check_texts(str(path), report.rows, digest.hexdigest())
        self._note(report.warnings())
        self._empty = np.array(empty, dtype=np.int64)
        return not rows.isdisjoint(empty)

    def _check_texts(self, name: str, rows: int, made_of: str) -> None:
        """Check that the vectors were made from these texts.

        Args:
            name: the name of the table of texts.
            rows: its number of rows.
            made_of: the fingerprint of its texts.

        Raises:
            BertineError: the texts or their order differ.
        """
        origin = self._origin
        if origin is not None and (rows, made_of) != (origin.rows, origin.texts or made_of):
            of = "its vectors were" if name == str(self._input) else f"{self._input} was"
            raise BertineError(
                f"{name}: {of} made of other texts, or of these in another order; embed them again"
            )
