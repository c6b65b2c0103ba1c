"""Find the texts of a file that are nearest to one or more queries by cosine: ``similar``."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import Report, ReportOf, plural
from bertine.core.contrib import job_of_model, kind_of_model
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import cut
from bertine.data.in_memory import InMemoryTable, Source, TableLike, as_source
from bertine.data.lines import LINE_COLUMN, TableLayout, first_numbers, named_kind
from bertine.data.streams import ambiguous_column_error
from bertine.data.tables import Table
from bertine.data.writer import TableWriter, check_output, json_text, open_writer
from bertine.inference.embedding.collection import tolerance_of
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.encoder import nothing_to_compare
from bertine.inference.embedding.index import (
    COLUMNS,
    NearestRows,
    Neighbours,
    TextRow,
    cosines_with,
    found_column_names,
    id_before,
    query_column_names,
)
from bertine.inference.embedding.search import QUERIES, Search
from bertine.inference.embedding.vectors import unit
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
from bertine.options.verbs import takes_options
from bertine.reports.html import Figure, Figures, Page, PageTable, Section
from bertine.reports.plots import heat_map
from bertine.tokenization.documents import USUAL_TEXT_COLUMNS

# Many queries: their texts are read from a table, and their nearest rows shown or written to a
# file.

#: The usual name of the column of queries, tried before those of texts.
QUERY_COLUMN = "query"


@dataclass(repr=False)
class BatchSearch(ReportOf[Neighbours]):
    """The nearest rows of several queries.

    Attributes:
        items: the nearest rows of each query; empty where they are written to a file.
        queries: the number of queries.
        notes: notes on what was cut, or repaired in the input.
        output: the file that they are written to; None: none.
    """

    items: list[Neighbours] = field(default_factory=list)
    queries: int = 0
    notes: list[str] = field(default_factory=list)
    output: Path | str | None = None

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of an output file in a form for ``pandas.DataFrame``: those of
        :meth:`~bertine.inference.embedding.index.Neighbours.records`."""
        return [row for number, item in enumerate(self.items, 1) for row in item.records(number)]

    def lines(self) -> list[str]:
        """Return each query as text, with its nearest rows below."""
        if self.output is not None:
            where = "" if str(self.output) == "-" else f": {self.output}"
            return [f"answered {plural(self.queries, 'query')}{where}", *self.notes]
        lines: list[str] = []
        for item in self.items:
            query = id_before(item.columns, f"  {' '.join(item.query.split())}")
            lines += [query.strip(), *(f"  {line}" for line in item.lines())]
        return lines + self.notes


def read_queries(
    query: str | Sequence[str] | None, queries: Path | str | TableLike | None
) -> tuple[list[TextRow], list[str]]:
    """Return the queries, and notes on what was repaired in their table.

    Args:
        query: a text, or several; None: those of `queries`.
        queries: a table of them, with a column ``query``, ``text``, ``sentence``, or a single one.

    Raises:
        BertineError: there is no query, or the table cannot be read.
    """
    notes: list[str] = []
    hint = ""
    if queries is None:
        texts = [query] if isinstance(query, str) else [] if query is None else list(query)
        for number, item in enumerate(texts):
            if not isinstance(item, str):
                raise BertineError(f"query[{number}] is {item!r}, but must be a text")
        given = [TextRow(text) for text in texts]
    else:
        with Table(as_source(queries, "queries")) as table:
            column = _query_column(table)
            given = [TextRow(table.text(row, column), other_columns(row, column)) for row in table]
            layout = table.layout
        notes = table.stats.notes(table.name)
        usual = (QUERY_COLUMN, *USUAL_TEXT_COLUMNS)
        if layout.kind in ("csv", "tsv") and column.strip().lower() not in usual:
            hint = (
                f"its first line, {column!r}, was read as the header; if that is a query, write "
                f"{QUERY_COLUMN!r} on a line above it"
            )
            notes.append(f"{table.name}: {hint}")
    if not given:
        where = "" if queries is None else f"{table.name}: "
        raise BertineError(f"{where}there is no query; {hint or 'give at least one'}")
    return given, notes


def _query_column(table: Table) -> str:
    """Choose the column of the queries.

    Raises:
        BertineError: no column is recognized.
    """
    if table.layout.kind == "text":
        return LINE_COLUMN
    single = table.columns if len(table.columns) == 1 else ()
    for usual in (QUERY_COLUMN, *USUAL_TEXT_COLUMNS, *single):
        if usual in table.columns:
            return usual
    raise ambiguous_column_error(
        table.name, table.columns, "queries", f"the name {QUERY_COLUMN!r} in its header"
    )


def check_search_output(output: Path | str, read: Mapping[str, object]) -> None:
    """Refuse an output of another format, or one that is also an input, before anything is
    computed.

    Args:
        read: the inputs, by the name of the argument.

    Raises:
        BertineError: the output is such a file.
    """
    if str(output) == "-":
        return
    check_output(output)
    for name, source in read.items():
        with contextlib.suppress(OSError):  # one of them does not exist
            if isinstance(source, Path | str) and Path(output).samefile(source):
                raise BertineError(f"{output}: is the file of {name}; name another for the answers")
    if named_kind(output) is None:
        raise BertineError(
            f"{output}: nearest rows are csv, tsv, JSON lines or Parquet; name the output .csv, "
            ".tsv, .jsonl or .parquet"
        )


@dataclass
class SearchWriter:
    """A writer of nearest rows.

    Attributes:
        writer: the writer of the file.
        lost: for each column that is not in the file, the number of rows that have it: keys of JSON
            lines may change from row to row.
    """

    writer: TableWriter
    lost: Counter[str] = field(default_factory=Counter)

    def write(self, number: int, neighbours: Neighbours) -> None:
        """Write the nearest rows of query number `number`, from 1."""
        whole = self.writer.layout.kind == "jsonl"
        for values in neighbours.records(number):
            if "text" not in self.writer.columns:
                del values["text"]
            if not whole:
                self.lost.update(values.keys() - set(self.writer.columns))
                values = {name: _cell(values.get(name)) for name in self.writer.columns}
            self.writer.write(values)

    def notes(self) -> list[str]:
        """Return notes on columns that were left out."""
        return [
            f"the column {name!r} of {plural(rows, 'row')} is left out, as the first row of its "
            "table has none; write .jsonl"
            for name, rows in sorted(self.lost.items())
        ]


def _cell(value: Any) -> str | None:
    """Return a value as text: JSON for lists, objects and truth values."""
    return value if value is None or isinstance(value, str) else json_text(value)


@contextlib.contextmanager
def open_batch_search(
    output: Path | str, *, texts: Sequence[str] | None, queries: Sequence[str]
) -> Iterator[SearchWriter]:
    """Open a file of nearest rows.

    Args:
        output: a file whose suffix names the format; JSON lines for ``-``.
        texts: the other columns of the texts; None: there are no texts.
        queries: the other columns of the queries.

    Raises:
        BertineError: the file cannot be written; a text in tsv needs quotes.
    """
    kind = "jsonl" if str(output) == "-" else named_kind(output)
    assert kind is not None
    layout = TableLayout(kind, {"csv": ",", "tsv": "\t"}.get(kind, ""), kind == "csv")
    asked = [*query_column_names(queries).values()]
    first = COLUMNS[:-1] if texts is None else COLUMNS
    columns = [*first, *found_column_names(texts or [], asked).values(), *asked]
    with open_writer(output, layout, columns) as writer:
        yield SearchWriter(writer)


@takes_options()
def similar(
    query: str | Sequence[str] | None = None,
    input: Path | str | TableLike | None = None,
    *,
    model: Embedder | Path | str | None = None,
    texts: Path | str | TableLike | None = None,
    queries: Path | str | TableLike | None = None,
    index: Path | str | None = None,
    output: Path | str | None = None,
    top: int = 10,
    show_progress: bool = True,
    options: SimilarOptions,
) -> Neighbours | Report | BatchSearch:
    """Find the rows of a file whose texts are most similar to `query`: the highest cosines, in
    bounded memory. With vectors of words and no file, find the nearest words.

    Args:
        query: a text, or a list of texts that are searched together.
        input: a table of texts as :func:`~bertine.embed` reads it, or vectors
            (``.npy``, ``.parquet``, ``.jsonl``) that it has written with the same model, pooling
            and layer, which their JSON file records. Or a table in memory, with or
            without such vectors: a pandas or polars frame, an Arrow table, a ``datasets.Dataset``,
            a list of dictionaries, a dictionary of columns. None: the words of the vectors
            themselves.
        model: a model directory; vectors of words (:func:`~bertine.word2vec`), where a text has the
            mean of its words' vectors; or a loaded :class:`~bertine.Embedder`, whose own settings
            then apply. None: the one that made the vectors, by the name that they record.
        texts: for a ``.npy``, the table that it was made from, in a file or in memory; None: rows
            are shown by number.
        queries: a table of queries in place of `query`, in a file or in memory: its column
            ``query``, ``text``, ``sentence``, or the only one.
        index: for a ``.npy``, its index by :func:`~bertine.index_vectors` (a folder): the search
            reads a part of the vectors, and may miss some of the nearest. None: all are compared.
        output: a .csv, .tsv, .jsonl or .parquet file, written completely or not at all, or ``-``: a
            row for each query and each of its nearest rows, with ``query_row``, ``query``,
            ``rank``, ``row``, ``score`` and, where there are texts, ``text`` and the other columns
            of their table; those of the queries' table have ``query_`` before their names. None:
            they are returned.
        top: the number of nearest rows.
        show_progress: on stderr.
        options: the options described below. A model that has prompts for queries and for documents
            (``prompts`` of a directory of sentence-transformers) uses both, unless one is named.

    Returns:
        The nearest rows of the query, or the nearest words; for several queries, or with an output
        file, :class:`~bertine.inference.embedding.similar.BatchSearch`.

    Raises:
        BertineError: no such model; a table cannot be read; an array of another width than the
            model's vectors, or made with another model, pooling or layer; an index of other
            vectors; a table of other texts than the vectors were made from; options for reading
            texts with a ``.npy`` alone; more queries than fit into memory, where texts have no
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
    given = {"texts": texts, "index": index, "query_prompt": options.query_prompt}
    given |= {"where": options.where, "hybrid": options.hybrid or None, "word": options.word}
    if options.html is not None and options.word is None:
        raise BertineError(
            f"{option('html')} draws the uses of a word; name one ({option('word')})"
        )
    of_files = [name for name, value in given.items() if value is not None]
    if options.word is not None and of_files[0] != "word":
        raise BertineError(
            f"{option(of_files[0])} is for vectors of whole texts; leave it out, or "
            f"{option('word')}"
        )
    if input is None or options.word is not None:
        assert isinstance(query, str)
        if model is None:
            raise BertineError(f"name a model ({option('model')})")
        if input is None:
            return _nearest_words(query, model, top, options, of_files)
        return _similar_uses(query, as_source(input, "input"), model, top, options, show_progress)
    sources = as_source(input, "input"), None if texts is None else as_source(texts, "texts")
    in_memory = any(isinstance(source, InMemoryTable) for source in sources)
    search = Search(
        *sources,
        index,
        top,
        options,
        show_progress,
    )
    if output is not None:
        read = {option("input"): input, option("queries"): queries, option("texts"): texts}
        check_search_output(output, read)
    asked, notes = read_queries(query, queries)
    empty = [number for number, item in enumerate(asked, 1) if not item.text.strip()]
    if len(empty) == len(asked):
        raise BertineError("the query is empty; give a text")
    if empty:
        which = first_numbers(empty, what="number" if len(empty) == 1 else "numbers")
        are = plural(len(empty), "query", "is empty and has", "are empty and have")
        notes.append(f"{are} no answer ({which})")
    answered = [(number, row) for number, row in enumerate(asked, 1) if row.text.strip()]
    search.open(model, [row.text for _, row in answered])
    if not several:
        nearest = search.nearest([asked[0].text])
        notes += search.notes()
        rows = nearest.neighbours(0)
        return Neighbours(asked[0].text, nearest.seen, rows, notes, in_memory=in_memory)
    result: dict[int, Neighbours] = {}
    writer: SearchWriter | None = None
    with ExitStack() as stack:
        for start in range(0, len(answered), QUERIES):
            part = answered[start : start + QUERIES]
            nearest = search.nearest([row.text for _, row in part])
            if output is not None and writer is None:
                of_queries = [*dict.fromkeys(name for row in asked for name in row.columns)]
                opened = open_batch_search(output, texts=search.columns, queries=of_queries)
                writer = stack.enter_context(opened)
            for place, (number, row) in enumerate(part):
                rows = nearest.neighbours(place)
                item = Neighbours(row.text, nearest.seen, rows, [], row.columns, in_memory)
                if writer is None:
                    result[number] = item
                else:
                    writer.write(number, item)
    items: list[Neighbours] = []
    for number, row in enumerate(asked if output is None else (), 1):
        none = Neighbours(row.text, nearest.seen, [], columns=row.columns)
        items.append(result.get(number, none))
    notes += [*search.notes(), *([] if writer is None else writer.notes())]
    return BatchSearch(items, len(asked), notes, output)


def _similar_uses(
    query: str,
    input: Source,
    model: Embedder | Path | str,
    top: int,
    options: SimilarOptions,
    show_progress: bool,
) -> Neighbours:
    """Compare a word in the context of the query with the same word in the texts of a table.

    Raises:
        BertineError: the query, or every text, is without the word; a ``.npy`` or a pooling is
            given.
    """
    word = options.word or ""
    if not isinstance(input, InMemoryTable) and Path(input).suffix.lower() == ".npy":
        raise BertineError(f"{input}: is vectors of whole texts; {option('word')} is for texts")
    if options.pooling is not None:
        raise BertineError(f"{option('pooling')} is for whole texts; leave out {option('word')}")
    if not word.strip():
        raise BertineError(f"{option('word')} is empty; give a word of the query")
    settings = VectorOptions.of(options, normalize=None).values()
    kind: Any = job_of_model(model, "vectors")
    if kind is None or "tokens" in kind.takes["pooling"]:
        settings["pooling"] = "tokens"
    how = unmeasured(model, bytes_to_come(input), options.device, options.precision)
    embedder = Embedder.opened(model, **settings, **how)
    own = embedder.word_in([query], word)[0]
    if own is None:
        raise BertineError(f"{query!r} is without the word {word!r}")
    asked = unit(own[None])[0]
    best = NearestRows(1, top, tolerance_of(embedder.precision))
    without = 0
    with open_texts(input, PlainTexts.of(options)) as (table, column):
        with text_progress("compare", input, table.layout, show=show_progress) as advance:
            for rows, read in text_chunks(table, column):
                scores = np.full(len(read), -np.inf, dtype=np.float32)
                for at, vector in enumerate(embedder.word_in(read, word)):
                    if vector is None:
                        without += 1
                        continue
                    number = np.array([best.seen + at])
                    scores[at] = cosines_with(asked[None], vector[None], number, table.name)[0, 0]
                documents = [
                    TextRow(text, other_columns(row, column))
                    for text, row in zip(read, rows, strict=True)
                ]
                best.add(scores[None], documents)
                advance(len(rows))
        notes = table.stats.notes(table.name)
    if without == best.seen:
        raise BertineError(f"{table.name}: no text has the word {word!r}")
    if without:
        notes.append(f"{plural(without, 'text')} without the word {word!r}, left out")
    in_memory = isinstance(input, InMemoryTable)
    result = Neighbours(query, best.seen, best.neighbours(0), notes, in_memory=in_memory)
    if options.html is not None:
        texts = [query, *(row.text or "" for row in result)]
        vectors = unit(np.array(embedder.word_in(texts, word)))
        _page_of_uses(word, texts, vectors @ vectors.T).write(options.html)
        result.notes.append(f"page: {options.html}")
    return result


def _page_of_uses(word: str, texts: Sequence[str], cosines: np.ndarray) -> Page:
    """Make a page of the `cosines` [N, N] of a word as it stands in each of `texts`, the query
    first."""
    numbers = [str(number) for number in range(1, len(texts) + 1)]
    names = [f"{cut(text, 40)}  {n}" for text, n in zip(texts, numbers, strict=True)]
    lowest = float(cosines.min())
    rows = [[f"{cosine:.2f}" for cosine in row] for row in cosines.tolist()]
    picture = Figure(
        f"Cosines of {word!r} in each text",
        heat_map(names, numbers, (cosines - lowest).tolist(), max(1.0 - lowest, 1e-6)),
        "; ".join(f"{name}: {', '.join(row)}" for name, row in zip(names, rows, strict=True)),
        f"The stronger the colour, the more alike: from {lowest:.2f} to 1.00.",
    )
    cells = [[name, *row] for name, row in zip(names, rows, strict=True)]
    table = PageTable(["text", *numbers], cells, range(1, len(texts) + 1))
    section = Section("How alike its uses are", [Figures([picture], 1, wide=True), table])
    return Page(f"{word!r} in context", sections=[section], command="similar")


def _nearest_words(
    query: str,
    model: Embedder | Path | str,
    top: int,
    options: SimilarOptions,
    of_files: Sequence[str],
) -> Report:
    """Compare with the words of the vectors themselves; refuse the options `of_files`.

    Raises:
        BertineError: `model` has no vectors of words; an option about a file is given without a
            file.
    """
    # A model with layers takes long to load, and has no vectors of words.
    if not isinstance(model, Embedder) and kind_of_model(model) is None:
        raise nothing_to_compare()
    for name in [*PlainTexts.of(options).changed(), *of_files]:
        raise BertineError(f"{option(name)} is for a file of texts, and there is none")
    embedder = Embedder.opened(model, **VectorOptions.of(options, normalize=None).values())
    return embedder.encoder.nearest_words(query, top)
