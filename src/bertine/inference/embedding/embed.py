"""Write a vector for every text of a table: ``embed``."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertine.core.console import logger, plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import listing
from bertine.data.in_memory import TableLike, as_source
from bertine.data.parquet import is_parquet
from bertine.data.tables import TableRow
from bertine.inference.answer_files import TextReport, pace
from bertine.inference.compute import unmeasured_threads
from bertine.inference.embedding.collection import VectorTable
from bertine.inference.embedding.embedder import Embedder, empty_texts, unknown_text
from bertine.inference.embedding.vector_files import (
    DTYPES,
    VectorMetadata,
    VectorPart,
    VectorWriter,
    as_dtype,
    check_vector_file,
    hashed,
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
    unused,
)
from bertine.options.inference import EmbedOptions
from bertine.options.vectors import VectorOptions
from bertine.options.verbs import takes_options
from bertine.tokenization.sentences import iter_sentences

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
        passages: the number of passages of the texts; None: texts were not divided.
        kept: how many vectors were taken from the earlier file; None: there was none.
        dropped: how many texts of the earlier file are gone.
    """

    dimensions: int = 0
    dtype: str = "fp32"
    precision: str = "fp32"
    agreement: Cosines | None = None
    compared: int = 0
    passages: int | None = None
    kept: int | None = None
    dropped: int = 0

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        count = self.rows if self.passages is None else self.passages
        inside = "" if self.passages is None else f" in {plural(self.passages, 'passage')}"
        lines = [
            f"embedded {plural(self.rows, 'row')}{inside} {pace(self.rows, self.seconds)}; "
            f"{self.dimensions} numbers each, {self.dtype}"
        ]
        if self.kept is not None:
            lines.append(
                f"{plural(self.kept, 'vector')} kept, {count - self.kept:,} computed, "
                f"{self.dropped:,} dropped"
            )
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
    if options.passages and not is_parquet(output):
        raise BertineError(f"{output}: {option('passages', True)} is for .parquet; name one")
    input = as_source(input, "input")
    dtype, kind = options.dtype, DTYPES[options.dtype]
    earlier = _earlier(output) if is_parquet(output) else None
    size = bytes_to_come(input)
    if options.batch_invariant:
        how: dict[str, Any] = {"precision": options.precision, "batch_invariant": True}
    else:
        how = unmeasured(model, size, options.device, options.precision)
        if options.precision == "auto" and earlier is not None and earlier.precision != "int8":
            # Measured again, it might be another; and for a few new texts measuring takes longer.
            how = {"precision": earlier.precision, "threads": unmeasured_threads()}
    embedder = Embedder.opened(model, **VectorOptions.of(options).values(), **how)
    if options.passages and embedder.limit is None:
        raise BertineError(
            f"{embedder.name or 'the model'}: reads texts of any length; name the most of a "
            f"passage ({option('max_length')}), or leave out {option('passages', True)}"
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
    made = VectorMetadata.of(embedder, dtype=dtype, rows=0)
    kept = None if earlier is None else KeptVectors.of(output, earlier, made)
    tokens = embedder.pooling.tokens
    most = CHUNK_CHARACTERS_OF_TOKENS if tokens else CHUNK_CHARACTERS
    digest, written = hashlib.sha256(), 0
    with open_texts(input, options) as (table, column):
        number = unused("document", table.columns, "embedded_") if options.passages else ""
        columns = [*table.columns, *filter(None, [number])]
        with (
            open_vector_writer(output, columns, report.dimensions, kind, tokens) as writer,
            text_progress("embed", input, table.layout, show=show_progress) as advance,
        ):
            for rows, texts in text_chunks(table, column, most):
                count = len(rows)
                if options.passages:
                    rows, texts = _in_passages(embedder, rows, column, number, report.rows)
                _embed_chunk(embedder, table.name, rows, texts, writer, report, kept)
                report.rows += count
                digest.update(hashed(texts))
                written += len(texts)
                advance(count)
            writer.origin = replace(
                made,
                rows=written,
                texts=digest.hexdigest(),
                named="" if isinstance(model, Embedder) else str(model),
                text_column=column,
                document_column=number,
            )
        report.notes = embedder.notes() + table.stats.notes(table.name)
        report.passages = written if options.passages else None
    if kept is not None:
        report.kept, report.dropped = kept.taken, int(kept.copies.sum())
    report.seconds = time.monotonic() - started
    return report


def _sample(features: Sequence[Any]) -> list[Any]:
    """Choose evenly spaced texts to compute in fp32 too: at most `_COMPARED`, and fewer of a
    short table, since fp32 takes several times as long."""
    most = min(_COMPARED, max(_LEAST_COMPARED, len(features) // 10), len(features))
    return [features[at * len(features) // most] for at in range(most)]


def _earlier(output: Path | str) -> VectorMetadata | None:
    """Return how the vectors of an earlier file were made; None: there is none, it is not one of
    texts' vectors, or it cannot be read, which is said."""
    try:
        origin = VectorMetadata.read(output) if Path(output).exists() else None
    except BertineError as error:
        logger.info(f"{error}; all vectors are computed anew")
        return None
    return None if origin is None or "tokens" in origin.pooling else origin


@dataclass
class KeptVectors:
    """The vectors of an earlier file, to be used again for the same texts.

    Attributes:
        rows: the number of the first row with each text, by the fingerprint of that.
        vectors: [N, D], on disk.
        copies: how often the text of each of these rows is there, [N]; 0 once it is used again.
        taken: how many vectors were used.
    """

    rows: dict[bytes, int]
    vectors: np.ndarray
    copies: np.ndarray
    taken: int = 0

    @classmethod
    def of(cls, path: Path | str, origin: VectorMetadata, made: VectorMetadata) -> Self | None:
        """Open the file `path`, made as `origin` says; None, with a note: its vectors are not those
        that would be `made` now."""
        try:
            if other := origin.differing(made):
                raise BertineError(f"{path}: was made with another {listing(other)}")
            table = VectorTable(path)
            rows, copies = dict[bytes, int](), np.zeros(table.rows, dtype=np.int64)
            digest, seen = hashlib.sha256(), 0
            for texts in table.texts():
                digest.update(hashed(texts))
                for row, text in enumerate(texts, seen):
                    copies[rows.setdefault(_fingerprint(text), row)] += 1
                seen += len(texts)
            if digest.hexdigest() != origin.texts:
                raise BertineError(f"{path}: was changed since its vectors were made")
        except BertineError as error:
            logger.info(f"{error}; all vectors are computed anew")
            return None
        return cls(rows, table.vectors, copies)

    def row(self, text: str) -> int | None:
        """Return the row with the vector of a text, and note that it is used; None: there is
        none."""
        row = self.rows.get(_fingerprint(text))
        if row is not None:
            self.copies[row] = 0
            self.taken += 1
        return row


def _fingerprint(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _embed_chunk(
    embedder: Embedder,
    source: str,
    rows: Sequence[TableRow],
    texts: Sequence[str],
    writer: VectorWriter,
    report: EmbedReport,
    kept: KeptVectors | None,
) -> None:
    """Compute and write one chunk, and count what is in it, but not its rows, in `report`."""
    features = embedder.features(texts)
    known = [None if kept is None else kept.row(text) for text in texts]
    new = [feature for feature, row in zip(features, known, strict=True) if row is None]
    if new and not report.compared:
        sample = _sample(new)
        report.agreement, report.compared = embedder.agreement(sample), len(sample)
    kind = DTYPES[report.dtype]
    vectors: list[np.ndarray]
    pieces: list[list[str]] | None = None
    if embedder.pooling.tokens:
        vectors = [as_dtype(item, kind) for item in embedder.run_tokens(features)]
        pieces = [embedder.pieces(feature) for feature in features]
    else:
        computed = iter(as_dtype(embedder.run(new), kind) if new else ())
        vectors = [
            next(computed) if kept is None or row is None else kept.vectors[row] for row in known
        ]
    writer.write(VectorPart(source, rows, vectors, pieces))
    report.count(0, features, texts, [row.line for row in rows])
    report.count_empty(rows[at].line for at in empty_texts(embedder, texts))


# Passages: long texts divided at the ends of sentences.


def _in_passages(
    embedder: Embedder, rows: Sequence[TableRow], column: str, number: str, before: int
) -> tuple[list[TableRow], list[str]]:
    """Divide the rows whose texts are too long, and return the rows of all passages, and these.

    Args:
        embedder: decides how long a passage may be.
        rows: the rows of documents.
        column: the column of their texts, which has the passage then.
        number: the column that gets the number of the document.
        before: the number of documents before them.
    """
    texts = [str(row.values[column] or "") for row in rows]
    divided: list[TableRow] = []
    passages: list[str] = []
    for at, (row, feature) in enumerate(zip(rows, embedder.features(texts), strict=True)):
        long = feature.num_truncated > 0
        for passage in _passages(embedder, texts[at]) if long else [texts[at]]:
            values = {**row.values, column: passage, number: before + at + 1}
            divided.append(TableRow(row.line, values))
            passages.append(passage)
    return divided, passages


def _passages(embedder: Embedder, text: str) -> list[str]:
    """Divide a text into passages of about the same length, of whole sentences where these are not
    too long themselves."""
    empty = len(embedder.features("")[0].input_ids)
    room = max(1, embedder.max_length - empty)
    units = list(_fitting(embedder, list(iter_sentences(text, spaces=True)), room))
    total = sum(size for _, size in units)
    target = total / -(-total // room)
    passages, used = [""], 0
    for unit, size in units:
        if passages[-1] and (used + size > room or used >= target):
            passages.append("")
            used = 0
        passages[-1] += unit
        used += size
    return [passage.strip() for passage in passages]


def _fitting(embedder: Embedder, units: Sequence[str], room: int) -> Iterator[tuple[str, int]]:
    """Yield parts of a text and their numbers of pieces; those with more than `room` are halved, if
    possible at a space."""
    own = len(embedder.encoder.features([""])[0].input_ids)
    for unit, feature in zip(units, embedder.encoder.features(units), strict=True):
        size = len(feature.input_ids) + feature.num_truncated - own
        if size <= room or len(unit) < 2:
            yield unit, max(1, size)
            continue
        middle = len(unit) // 2
        space = unit.rfind(" ", 1, middle + 1)
        at = space if space > 0 else middle
        yield from _fitting(embedder, [unit[:at], unit[at:]], room)
