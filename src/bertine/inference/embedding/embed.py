"""Write a vector for every text of a table: ``embed``."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import logger, plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import listing
from bertine.data.in_memory import TableLike, as_source
from bertine.data.lines import named_kind
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

#: What is said of an earlier file that is not used.
_ANEW = "all vectors are computed anew"


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
    beginnings of the texts (rows + 1 numbers) in ``NAME.offsets.npy``. Parquet records the model
    and the settings of the vectors in itself, the others in a small ``OUTPUT.json``
    (:class:`~bertine.inference.embedding.vector_files.VectorMetadata`); ``similar`` checks them.

    From an earlier Parquet file of the same name the vectors of the texts that are there again are
    kept, if model and settings are the same; what is new or changed is computed, the rest dropped.

    Args:
        model: a model directory; vectors of words (:func:`~bertine.word2vec`), where a text has the
            mean of its words' vectors; or a loaded :class:`~bertine.Embedder`, whose own settings
            then apply.
        input: a csv, tsv, JSON lines, Parquet, .xlsx or plain-text file, or ``-`` for stdin; or a
            table in memory, as for `finetune`.
        output: a .npy, .parquet or .jsonl file, written completely or not at all.
        show_progress: on stderr.
        options: the options described below.

    Raises:
        BertineError: no such model; the table cannot be read; a column is missing; the output is
            another kind of file; numbers that fp16 cannot hold.
    """
    check_vector_file(output)
    if isinstance(model, Path | str) and named_kind(model) in ("csv", "tsv", "jsonl"):
        raise BertineError(f"{model}: is a table, not a model; name it with {option('input')}")
    if options.passages and not is_parquet(output):
        raise BertineError(f"{output}: {option('passages', True)} is for .parquet; name one")
    input = as_source(input, "input")
    paths = [
        path for path in (input, output) if isinstance(path, Path | str) and Path(path).exists()
    ]
    if len(paths) > 1 and os.path.samefile(*paths):
        raise BertineError(f"{output}: is the file of the texts; name another for the vectors")
    dtype, kind = options.dtype, DTYPES[options.dtype]
    earlier = _earlier(output) if is_parquet(output) else None
    size = bytes_to_come(input)
    how = unmeasured(model, size, options.device, options.precision)
    if options.batch_invariant:
        how = {"precision": options.precision, "batch_invariant": True}
    elif options.precision == "auto" and earlier and earlier.origin.precision != "int8":
        # Measured again, it might be another; and for a few new texts measuring takes longer.
        how = {"precision": earlier.origin.precision, "threads": unmeasured_threads()}
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
    made = VectorMetadata.of(embedder, dtype)
    if earlier is not None and (other := earlier.origin.differing(made)):
        logger.info(f"{output}: was made with another {listing(other)}; {_ANEW}")
        earlier = None
    kept = None if earlier is None else KeptVectors(earlier)
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
                    rows = _in_passages(embedder, rows, texts, column, number, report.rows)
                    texts = [row.values[column] for row in rows]
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
        report.kept, report.dropped = kept.taken, kept.left
    report.seconds = time.monotonic() - started
    return report


def _sample(features: Sequence[Any]) -> list[Any]:
    """Choose evenly spaced texts to compute in fp32 too: at most `_COMPARED`, and fewer of a
    short table, since fp32 takes several times as long."""
    most = min(_COMPARED, max(_LEAST_COMPARED, len(features) // 10), len(features))
    return [features[at * len(features) // most] for at in range(most)]


def _earlier(output: Path | str) -> VectorTable | None:
    """Open the file of an earlier call; None: there is none, or it cannot be used, which is
    said."""
    try:
        return VectorTable(output) if Path(output).exists() else None
    except BertineError as error:
        logger.info(f"{error}; {_ANEW}")
        return None


class KeptVectors:
    """The vectors of an earlier file, to be used again for the same texts.

    Attributes:
        taken: how many vectors were used.
    """

    def __init__(self, table: VectorTable) -> None:
        self._vectors, self.taken = table.vectors, 0
        #: The first row of each text, by its fingerprint, and how often the text is there.
        self._rows: dict[bytes, int] = {}
        self._copies = Counter[int]()
        for row, text in enumerate(itertools.chain.from_iterable(table.texts())):
            self._copies[self._rows.setdefault(_fingerprint(text), row)] += 1

    def take(self, text: str) -> np.ndarray | None:
        """Return the vector of a text, [D]; None: there is none."""
        row = self._rows.get(_fingerprint(text))
        if row is None:
            return None
        self._copies[row] = 0
        self.taken += 1
        return np.asarray(self._vectors[row])

    @property
    def left(self) -> int:
        """The number of rows whose texts were not asked for."""
        return self._copies.total()


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
    known = [None if kept is None else kept.take(text) for text in texts]
    new = [feature for feature, vector in zip(features, known, strict=True) if vector is None]
    if new and not report.compared:
        sample = _sample(new)
        report.agreement, report.compared = embedder.agreement(sample), len(sample)
    kind = DTYPES[report.dtype]
    pieces: list[list[str]] | None = None
    if embedder.pooling.tokens:
        vectors = [as_dtype(item, kind) for item in embedder.run_tokens(features)]
        pieces = [embedder.pieces(feature) for feature in features]
    else:
        computed = iter(as_dtype(embedder.run(new), kind) if new else ())
        vectors = [next(computed) if vector is None else vector for vector in known]
    writer.write(VectorPart(source, rows, vectors, pieces))
    report.count(0, features, texts, [row.line for row in rows])
    report.count_empty(rows[at].line for at in empty_texts(embedder, texts))


# Passages: long texts divided at the ends of sentences.


def _in_passages(
    embedder: Embedder,
    rows: Sequence[TableRow],
    texts: Sequence[str],
    column: str,
    number: str,
    before: int,
) -> list[TableRow]:
    """Divide the rows whose texts are too long, and return the rows of all passages.

    Args:
        embedder: decides how long a passage may be.
        rows, texts: documents and their texts.
        column: the column of the texts, which has the passage then.
        number: the column that gets the number of the document.
        before: the number of documents before them.
    """
    parts = zip(rows, texts, embedder.features(texts), strict=True)
    return [
        TableRow(row.line, {**row.values, column: passage, number: at})
        for at, (row, text, feature) in enumerate(parts, before + 1)
        for passage in (_passages(embedder, text) if feature.num_truncated else [text])
    ]


def _passages(embedder: Embedder, text: str) -> list[str]:
    """Divide a text into passages of about the same length, of whole sentences where these are not
    too long themselves."""
    room = max(1, embedder.max_length - len(embedder.features("")[0].input_ids))
    units = list(_fitting(embedder, list(iter_sentences(text, spaces=True)), room))
    total = sum(size for _, size in units)
    passages, used = [""], 0
    for unit, size in units:
        if used and (used + size > room or used >= total / -(-total // room)):
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
        at = max(0, unit.rfind(" ", 1, middle + 1)) or middle
        yield from _fitting(embedder, [unit[:at], unit[at:]], room)
