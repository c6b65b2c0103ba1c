"""Read the texts of a Parquet file, one row at a time: each is a document of a corpus."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.outside import reading_outside
from bertine.tables.streams import (
    COMPRESSIONS,
    EncodingCheck,
    Place,
    Repairs,
    decode,
    open_stream,
    reading,
)
from bertine.tables.text_columns import choose_text_column

#: Rows decoded at a time.
_ROWS = 128


def parquet_texts(
    path: Path, column: str | None, *, strict: bool, repairs: Repairs
) -> Iterator[tuple[str, int, int]]:
    r"""Read the text of each row; memory holds some rows.

    Args:
        path: a Parquet file, perhaps compressed as a whole.
        column: where the text is; None: ``text``, ``sentence``, or the only column.
        strict: refuse invalid UTF-8 and NUL bytes instead of mending and counting them.
        repairs: counts what is mended; changed in place.

    Yields:
        The text (with ``\n`` as the only line end; "" for null), the number of its row from 1 on,
        and how many bytes of the file on disk have been read.

    Raises:
        BertineError: the file is damaged; the column is not there, not recognized, or not text.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        stack.enter_context(reading(path))
        size = os.path.getsize(path)
        source: Any = path
        if path.suffix.lower() in COMPRESSIONS:
            # The index of a Parquet file is at its end: it cannot be read as a stream.
            source = stack.enter_context(tempfile.TemporaryFile(prefix="bertine-"))
            with open_stream(path) as stream:
                shutil.copyfileobj(stream.reader, source, 1 << 20)
            source.seek(0)
        with reading_outside(path, "write the file again"):
            # By a buffer, or a row group's whole column would be read, however large it is.
            opened = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
            file = stack.enter_context(opened)
            names = file.schema_arrow.names
            text_column = choose_text_column(str(path), names, column)
            kind = file.schema_arrow.field(text_column).type
            value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            of = pa.types
            # A column without a value in any row of a file may have been written as null.
            texts = (of.is_string, of.is_large_string, of.is_string_view, of.is_null)
            if not any(is_text(value_kind) for is_text in texts):
                raise BertineError(
                    f"{path}: column {text_column!r} is of type {kind}; it must be string"
                )

            def values() -> Iterator[bytes]:
                for batch in file.iter_batches(batch_size=_ROWS, columns=[text_column]):
                    column = batch.column(0)
                    if pa.types.is_dictionary(kind):
                        column = column.dictionary_decode()
                    # As bytes: a writer may have put what is not UTF-8 into a string column.
                    for value in column.cast(pa.large_binary()):
                        yield value.as_py() or b""

            check = EncodingCheck(path, lambda: (value + b"\n" for value in values()))
            for row, raw in enumerate(values(), 1):
                text = decode(raw, Place(path, row, "row"), check, strict=strict, repairs=repairs)
                del raw  # a text may be very large
                yield text, row, size * row // max(file.metadata.num_rows, 1)
                del text
