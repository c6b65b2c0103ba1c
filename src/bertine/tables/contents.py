"""Recognize files that are no text, whatever they are called, by their first bytes."""

from __future__ import annotations

from pathlib import Path

from bertine.errors import BertineError

_CSV = "save it as csv (UTF-8)"
_RENAME = "name it"
#: The first bytes of files that are met under the names of text, what they are, and what to do.
_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive, as Excel's workbooks (.xlsx) are", f"{_CSV}, or unpack it"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook (.xls)", _CSV),
    (b"PAR1\x15", "Parquet", f"{_RENAME} .parquet"),
    (b"ARROW1\0\0", "an Arrow file", "convert it to Parquet, csv or JSON lines"),
    (b"\x1f\x8b", "compressed with gzip", "add .gz to its name"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "add .zst to its name"),
    (b"\xfd7zXZ\x00", "compressed with xz", "add .xz to its name"),
    (b"BZh91AY&SY", "compressed with bzip2", "unpack it, or compress with gzip"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"Rar!\x1a\x07", "a rar archive", "unpack it"),
    (b"%PDF-", "a PDF", "give its text"),
    (b"{\\rtf", "a document in RTF", "save it as text (UTF-8)"),
    (b"SQLite format 3\0", "a SQLite database", "export the table as csv"),
    (b"\x89HDF", "HDF5", "convert it to Parquet, csv or JSON lines"),
    (b"\x93NUMPY", "an array of NumPy's", "write the texts as csv or JSON lines"),
    (b"\x80\x04\x95", "a pickle", "write the texts as csv or JSON lines"),
    (b"\x89PNG", "a picture", "give text"),
)


def refuse_binary(head: bytes, path: Path | str) -> None:
    """Refuse a file that is no text.

    Args:
        head: its first bytes.
        path: for the message.

    Raises:
        BertineError: it is none; says what it is and what to do.
    """
    for begin, what, how in _BEGINNINGS:
        if head.startswith(begin):
            raise BertineError(f"{path}: is {what}, whatever its name says; {how}")
