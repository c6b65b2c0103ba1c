"""Write a vector for every text of a table: ``embed``."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import plural
from bertine.core.files import os_errors
from bertine.core.names import option
from bertine.data.in_memory import TableLike, as_source
from bertine.data.tables import TableRow
from bertine.inference.answer_files import TextReport, pace
from bertine.inference.embedding.embedder import Embedder, empty_texts, unknown_text
from bertine.inference.embedding.vector_files import (
    DTYPES,
    VectorMetadata,
    VectorPart,
    VectorWriter,
    as_dtype,
    check_vector_file,
    hashed,
    metadata_path,
    open_vector_writer,
)
from bertine.inference.embedding.vectors import Cosines
from bertine.inference.rows import (
    CHUNK_CHARACTERS,
    bytes_to_come,
    open_texts,
    text_chunks,
    text_progress,
    unmeasured,
)
from bertine.options.inference import EmbedOptions
from bertine.options.vectors import VectorOptions
from bertine.options.verbs import takes_options

#: Texts that are also computed in fp32, to measure the effect of the precision: maximum and
#: minimum.
_COMPARED, _LEAST_COMPARED = 100, 16

#: With tokens a row has some hundred vectors, so a chunk has fewer characters.
CHUNK_CHARACTERS_OF_TOKENS = 1 << 16


@dataclass(repr=False)
class EmbedReport(TextReport):
    """The report of embedding a file.

    Attributes:
        dimensions: the dimensions of a vector.
        dtype: the type of the numbers in the file, "fp32" or "fp16".
        precision: the precision of the computation, "fp32", "bf16" or "int8".
        agreement: the cosines of some texts' vectors with their vectors in fp32; None if the
            precision is fp32.
        compared: how many texts were compared.
    """

    dimensions: int = 0
    dtype: str = "fp32"
    precision: str = "fp32"
    agreement: Cosines | None = None
    compared: int = 0

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [
            f"embedded {plural(self.rows, 'row')} {pace(self.rows, self.seconds)}; "
            f"{self.dimensions} numbers each, {self.dtype}"
        ]
        if self.agreement is not None:
            tokens = "" if self.agreement.count == self.compared else " (their tokens' vectors)"
            lines.append(
                f"computed in {self.precision}; cosine with fp32 over "
                f"{plural(self.compared, 'sample text')}{tokens}: {self.agreement.text()} "
                f"({option('precision', 'fp32')} computes in that)"
            )
        return lines + self.warnings()


@takes_options()
def embed(
    model: Embedder | Path | str,
    input: Path | str | TableLike,
    output: Path | str,
    *,
    show_progress: bool = True,
    options: EmbedOptions,
) -> EmbedReport:
    """Write a vector for every text of a table, in its order, in bounded memory.

    ``.npy``: an array [rows, D], to be opened with ``numpy.load(path, mmap_mode="r")``. Parquet and
    JSON lines: the columns of the input and ``vector``. With the pooling ``tokens`` they have
    ``tokens`` and ``vectors`` instead, and a ``.npy`` has the vectors of all tokens, with the
    beginnings of the texts (rows + 1 numbers) in ``NAME.offsets.npy``. Each file comes with a small
    ``OUTPUT.json`` that has the model's fingerprint and the settings of the vectors
    (:class:`~bertine.inference.embedding.vector_files.VectorMetadata`); ``similar`` checks it.

    Args:
        model: a model directory; vectors of words (:func:`~bertine.word2vec`), where a text has the
            mean of its words' vectors; or a loaded :class:`~bertine.Embedder`, whose own settings
            then apply.
        input: a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin; or a table
            in memory, as for `finetune`.
        output: a .npy, .parquet or .jsonl file, written completely or not at all.
        show_progress: on stderr.
        options: the options described below.

    Raises:
        BertineError: no such model; the table cannot be read; a column is missing; the output is
            another kind of file; numbers that fp16 cannot hold.
    """
    check_vector_file(output)
    input = as_source(input, "input")
    dtype, kind = options.dtype, DTYPES[options.dtype]
    size = bytes_to_come(input)
    embedder = Embedder.opened(
        model,
        **VectorOptions.of(options).values(),
        **(
            {"precision": options.precision, "batch_invariant": True}
            if options.batch_invariant
            else unmeasured(model, size, options.device, options.precision)
        ),
    )
    started = time.monotonic()
    report = EmbedReport(
        dimensions=embedder.dimensions,
        dtype=dtype,
        max_length=embedder.max_length,
        precision=embedder.precision,
        unit=embedder.unit,
        unknown=unknown_text(embedder),
        of_empty="have vectors that say nothing",
    )
    tokens = embedder.pooling.tokens
    most = CHUNK_CHARACTERS_OF_TOKENS if tokens else CHUNK_CHARACTERS
    digest = hashlib.sha256()
    with open_texts(input, options) as (table, column):
        with (
            open_vector_writer(output, table.columns, report.dimensions, kind, tokens) as writer,
            text_progress("embed", input, table.layout, show=show_progress) as advance,
        ):
            for rows, texts in text_chunks(table, column, most):
                _embed_chunk(embedder, table.name, rows, texts, writer, report)
                digest.update(hashed(texts))
                advance(len(rows))
            # The metadata of an earlier file must not describe this one.
            with os_errors(output, "writing it"):
                metadata_path(output).unlink(missing_ok=True)
        origin = VectorMetadata.of(
            embedder, dtype=dtype, rows=report.rows, texts=digest.hexdigest()
        )
        origin.write(output)
        report.notes = embedder.notes() + table.stats.notes(table.name)
    report.seconds = time.monotonic() - started
    return report


def _sample(features: Sequence[Any]) -> list[Any]:
    """Choose evenly spaced texts to compute in fp32 too: at most `_COMPARED`, and fewer of a
    short table, since fp32 takes several times as long."""
    most = min(_COMPARED, max(_LEAST_COMPARED, len(features) // 10), len(features))
    return [features[at * len(features) // most] for at in range(most)]


def _embed_chunk(
    embedder: Embedder,
    source: str,
    rows: Sequence[TableRow],
    texts: Sequence[str],
    writer: VectorWriter,
    report: EmbedReport,
) -> None:
    """Compute and write one chunk, and count it in `report`."""
    features = embedder.features(texts)
    if report.rows == 0:
        sample = _sample(features)
        report.agreement, report.compared = embedder.agreement(sample), len(sample)
    kind = DTYPES[report.dtype]
    vectors: list[np.ndarray]
    pieces: list[list[str]] | None = None
    if embedder.pooling.tokens:
        vectors = [as_dtype(item, kind) for item in embedder.run_tokens(features)]
        pieces = [embedder.pieces(feature) for feature in features]
    else:
        vectors = list(as_dtype(embedder.run(features), kind))
    writer.write(VectorPart(source, rows, vectors, pieces))
    report.count(len(rows), features, texts, [row.line for row in rows])
    report.count_empty(rows[at].line for at in empty_texts(embedder, texts))
