"""Vectors for a file of texts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertine.console import human_time, progress, say
from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.inference.embedder import Embedder
from bertine.inference.vector_files import (
    DTYPES,
    VectorWriter,
    as_dtype,
    check_vector_file,
    open_vector_writer,
)
from bertine.tasks.layout import LINE_COLUMN
from bertine.tasks.parquet import SUFFIXES as PARQUET
from bertine.tasks.tables import Row, Table, require_columns
from bertine.text.streams import COMPRESSIONS

#: Rows are computed in chunks: enough to sort by length, few enough to hold in memory.
CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 1 << 22
#: Of tokens a row is some hundred vectors, so a chunk has fewer characters.
CHUNK_CHARACTERS_OF_TOKENS = 1 << 16
#: Columns that are taken for the text where none is named.
_TEXT_COLUMNS = (LINE_COLUMN, "sentence")


@dataclass
class EmbedReport:
    """What embedding a file did.

    Attributes:
        rows: embedded.
        cut: texts that were longer than the maximum length.
        pieces_lost: pieces cut off from them.
        empty: texts without any text; they have a vector all the same.
        dimensions: numbers of a vector.
        dtype: "fp32" or "fp16", of the file.
        seconds: of wall time.
        max_length: of a text, in pieces.
        precision: "fp32", "bf16" or "int8", what was computed in.
        agreement: the lowest cosine of the first texts' vectors with those that fp32 gives; None
            where fp32 was computed in.
        notes: what was mended in the input.
    """

    rows: int = 0
    cut: int = 0
    pieces_lost: int = 0
    empty: int = 0
    dimensions: int = 0
    dtype: str = "fp32"
    seconds: float = 0.0
    max_length: int = 0
    precision: str = "fp32"
    agreement: float | None = None
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What a person reads in the terminal."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        lines = [
            f"embedded {self.rows} rows in {human_time(self.seconds)} ({rate:.0f} a second); "
            f"{self.dimensions} numbers each, {self.dtype}"
        ]
        if self.agreement is not None:
            lines.append(
                f"computed in {self.precision}: cosine with fp32 at least {self.agreement:.6f} "
                "over the first texts (--precision fp32 computes in that)"
            )
        if self.cut:
            lines.append(
                f"{self.cut} of {self.rows} texts were cut at {self.max_length} pieces "
                f"({self.pieces_lost} pieces lost)"
            )
        if self.empty:
            lines.append(f"{self.empty} of {self.rows} texts are empty")
        return lines + self.notes


def embed(
    model: Embedder | Path | str,
    input: Path | str,
    output: Path | str,
    *,
    pooling: str | None = None,
    layer: int | None = None,
    normalize: bool | None = None,
    dtype: str = "fp32",
    max_length: int | None = None,
    prompt: str | None = None,
    text_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    device: str | None = None,
    precision: str = "auto",
    show_progress: bool = True,
) -> EmbedReport:
    """Write a vector for every text of a table, in its order, in bounded memory.

    ``.npy``: an array [rows, D], to be opened with ``numpy.load(path, mmap_mode="r")``. Parquet and
    JSON lines: the columns of the input and ``vector``. With the pooling ``tokens`` they have
    ``tokens`` and ``vectors`` instead, and a ``.npy`` has the vectors of all tokens, with the
    beginnings of the texts (rows + 1 numbers) in ``NAME.offsets.npy``.

    Args:
        model: a model directory, or a loaded :class:`~bertine.inference.embedder.Embedder`, whose
            own settings then hold.
        input: a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin.
        output: a .npy, .parquet or .jsonl file, complete or not there at all.
        pooling, layer, normalize, max_length, prompt: as in
            :meth:`~bertine.inference.embedder.Embedder.load`.
        dtype: ``"fp32"`` or ``"fp16"``, of the numbers in the file.
        text_column: where the text is; None: ``text``, ``sentence``, or the only column.
        format: of the input; None: told as :class:`~bertine.tasks.tables.Table` does.
        quotes: whether ``"`` quotes cells; None: as usual for the format.
        strict: refuse invalid UTF-8 and NUL bytes instead of mending and counting them.
        device: as PyTorch calls it; None: the GPU if there is one.
        precision: ``"auto"`` (bf16 where the machine is fast at it; the difference that makes is
            told), ``"fp32"``, ``"bf16"``, or on a CPU ``"int8"``.
        show_progress: on stderr.

    Raises:
        BertineError: no such model; what reading the table raises; a column is missing; another
            kind of file; numbers that fp16 cannot hold.
    """
    if dtype not in DTYPES:
        raise BertineError(f"dtype {dtype!r} is not known; choose {', '.join(DTYPES)}")
    check_vector_file(output)
    embedder = opened(
        model,
        pooling=pooling,
        layer=layer,
        normalize=normalize,
        max_length=max_length,
        prompt=prompt,
        device=device,
        precision=precision,
    )
    started = time.monotonic()
    report = EmbedReport(
        dimensions=embedder.dimensions,
        dtype=dtype,
        max_length=embedder.max_length,
        precision=embedder.precision,
    )
    tokens = embedder.pooling.tokens
    wanted = [text_column] if text_column else []
    with Table(input, format=format, wanted=wanted, quotes=quotes, strict=strict) as table:
        column = find_text_column(table, text_column)
        bar = progress()
        bar.disable = not show_progress
        total = count_lines(input) if show_progress else None
        kind = DTYPES[dtype]
        with (
            open_vector_writer(output, table.columns, report.dimensions, kind, tokens) as writer,
            bar,
        ):
            job = bar.add_task("embed", total=total)
            for rows in chunks(table, column, tokens=tokens):
                _embed_chunk(embedder, table, rows, column, writer, report)
                bar.update(job, completed=rows[-1].line)
            bar.update(job, completed=total or report.rows, total=total or report.rows)
        report.notes = table.stats.notes(table.name)
    report.seconds = time.monotonic() - started
    return report


def opened(
    model: Embedder | Path | str,
    *,
    pooling: str | None,
    layer: int | None,
    normalize: bool | None,
    max_length: int | None,
    prompt: str | None,
    device: str | None,
    precision: str,
) -> Embedder:
    """`model` if it is an embedder already; else load it and say what was loaded."""
    if isinstance(model, Embedder):
        return model
    embedder = Embedder.load(
        model,
        pooling=pooling,
        layer=layer,
        normalize=normalize,
        max_length=max_length,
        prompt=prompt,
        device=device,
        precision=precision,
    )
    for line in embedder.load_lines:
        say(line)
    return embedder


def _embed_chunk(
    embedder: Embedder,
    table: Table,
    rows: Sequence[Row],
    column: str,
    writer: VectorWriter,
    report: EmbedReport,
) -> None:
    """Compute and write one chunk, and count it in `report`."""
    texts = [table.text(row, column) for row in rows]
    features = embedder.features(texts)
    if report.rows == 0:
        report.agreement = embedder.agreement(features)
    kind = DTYPES[report.dtype]
    vectors: list[np.ndarray]
    pieces: list[list[str]] | None = None
    if embedder.pooling.tokens:
        names = embedder.tokenizer.tokens
        vectors = [as_dtype(each, kind) for each in embedder.run_tokens(features)]
        pieces = [[names[index] for index in feature.input_ids] for feature in features]
    else:
        vectors = list(as_dtype(embedder.run(features), kind))
    writer.write(rows, vectors, pieces)
    report.rows += len(rows)
    report.cut += sum(1 for feature in features if feature.num_truncated)
    report.pieces_lost += sum(feature.num_truncated for feature in features)
    report.empty += sum(1 for text in texts if not text.strip())


def find_text_column(table: Table, name: str | None) -> str:
    """The column of the text: the one named, ``text``, ``sentence``, or the only one.

    Raises:
        BertineError: it is not there, or none can be told.
    """
    if table.layout.kind == "text":
        return LINE_COLUMN
    if name is not None:
        require_columns(table.name, table.columns, [name])
        return name
    for usual in (*_TEXT_COLUMNS, *(table.columns if len(table.columns) == 1 else ())):
        if usual in table.columns:
            return usual
    raise BertineError(
        f"{table.name}: cannot tell which column holds the text; name it with text_column "
        f"(--text-column); the columns are {', '.join(map(repr, table.columns))}"
    )


def chunks(table: Table, column: str, *, tokens: bool = False) -> Iterator[list[Row]]:
    """The rows of `table` in chunks of bounded size; `tokens`: each token gets a vector."""
    most = CHUNK_CHARACTERS_OF_TOKENS if tokens else CHUNK_CHARACTERS
    chunk: list[Row] = []
    characters = 0
    for row in table:
        chunk.append(row)
        characters += len(table.text(row, column))
        if len(chunk) >= CHUNK_ROWS or characters >= most:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def count_lines(path: str | Path) -> int | None:
    """Lines of a file, for the estimate of the time left; None for what can be read but once, or
    would have to be unpacked."""
    if not Path(path).is_file() or Path(path).suffix.lower() in (*COMPRESSIONS, *PARQUET):
        return None
    count = 0
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            count += block.count(b"\n")
    return count
