"""Read and write word2vec files, text and binary, and read those of GloVe and fastText.

A word2vec file begins with a line of two numbers, V and D. Each word is followed by a space and its
D numbers: as decimal numbers on a line of text (``.txt``, ``.vec``), or as little-endian fp32
(``.bin``), after which the program writes a line break and others nothing (word2vec.c, Mikolov et
al. 2013). fastText's ``.vec`` is such text; GloVe's text lacks the first line (Pennington et al.
2014). All may be compressed as a whole (``.gz``, ``.zst``, ``.xz``) for reading, as published ones
are.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bertine.contrib.recognize import file_format
from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file
from bertine.core.process import check_memory
from bertine.core.text import briefly, is_number
from bertine.data.streams import COMPRESSIONS, check_encoding, open_stream, text_begin

#: Most bytes of a word.
MAX_WORD = 4096
#: The first line: V and D.
_HEADER = re.compile(rb"\s*(\d{1,12})[ \t]+(\d{1,6})\s*")
#: The first bytes of a fastText model.
_FASTTEXT = (793712314).to_bytes(4, "little")
#: Bytes that do not occur in a line of text.
_NO_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f]")
#: Most characters of a number in a line of text.
_MAX_NUMBER = 64
#: Most numbers per word if there is no header; the longest first line follows from it.
_MAX_DIMENSIONS = 10_000
#: Most bytes unpacked from one compressed byte, and the size that is always accepted: numbers of
#: vectors expand at most fourfold.
_MOST_UNPACKED, _ALWAYS_UNPACKED = 100, 1 << 26
#: Bytes read at once; and the count of numbers after which memory is checked, doubled each time.
_BLOCK, _NUMBERS = 1 << 20, 1 << 24

#: What a reader of one format yields: the bytes of a word, and its numbers [D].
_Rows = Iterator[tuple[bytes, np.ndarray]]


def check_written(path: Path | str) -> None:
    """Refuse to write a compressed file.

    Raises:
        BertineError: `path` is one, by its name.
    """
    if Path(path).suffix.lower() in COMPRESSIONS and file_format(path) is not None:
        raise BertineError(
            f"{path}: compressed vectors are read, but not written; leave out {Path(path).suffix}"
        )


def read_vectors(path: Path | str) -> tuple[list[str], np.ndarray, list[str]]:
    """Read a file of word2vec's, GloVe's or fastText's: V words, their vectors fp32 [V, D], and
    notes. Whether it is text or binary is detected from its first row, or else its suffix.

    Duplicate words keep their first vector, and bytes that are not UTF-8 become U+FFFD; words that
    are empty or contain a blank, as in some GloVe and fastText files, are left out. The notes count
    all of these.

    Raises:
        BertineError: another suffix; no vectors by the first line; a file shorter or longer than it
            states; an invalid or infinite number; a word that is too long.
    """
    path = Path(path)
    kind = file_format(path)
    if kind is None:
        raise BertineError(
            f"{path}: is not known as word vectors; give a folder that bertine word2vec wrote, or "
            "a file .bin, .txt or .vec in word2vec's formats, as it is or compressed (.gz); unpack "
            "an archive (.zip) first"
        )
    with open_stream(path) as stream:
        size = path.stat().st_size
        if path.suffix.lower() in COMPRESSIONS:
            size = max(_MOST_UNPACKED * size, _ALWAYS_UNPACKED)
        handle = _Bounded(stream.reader, size, path)
        first = _first_line(handle, path)
        table = _Table(path)
        if header := _HEADER.fullmatch(first):
            words, dimensions = int(header[1]), int(header[2])
            # One character for a word, and a space and a digit for each number; fp32 numbers have
            # more bytes.
            if not words or not dimensions or words * (1 + 2 * dimensions) > size:
                raise BertineError(
                    f"{path}: says {words:,} words of {dimensions:,} numbers, which do not fit "
                    f"into its {path.stat().st_size:,} bytes; it is cut short or damaged"
                )
            memory = 4 * words * dimensions
            check_memory(f"{path}: {words:,} vectors of {dimensions:,} numbers", memory)
            begin = handle.readline(_longest(dimensions))
            read = _text_rows if _is_text(begin, dimensions, kind) else _binary_rows
            table.fill(read(handle, begin, path, dimensions, words))
        else:
            table.fill(_text_rows(handle, first, path, _dimensions(first, path), None))
        return table.finish()


class _Bounded:
    """A stream of at most a given number of bytes.

    Raises:
        BertineError: while reading, there are more.
    """

    def __init__(self, reader: BinaryIO, most: int, path: Path) -> None:
        self._reader, self._most, self._path, self._given = reader, most, path, 0

    def readline(self, limit: int) -> bytes:
        return self._counted(self._reader.readline(limit))

    def read(self, size: int) -> bytes:
        return self._counted(self._reader.read(size))

    def _counted(self, data: bytes) -> bytes:
        self._given += len(data)
        if self._given > self._most:
            raise BertineError(
                f"{self._path}: unpacks to more than {self._most:,} bytes, which no vectors do; "
                "unpack it yourself if it is what it should be"
            )
        return data


def _first_line(handle: _Bounded, path: Path) -> bytes:
    """Read the first line, without a byte order mark.

    Raises:
        BertineError: it is the first line of another kind of file.
    """
    first = handle.readline(_longest(_MAX_DIMENSIONS))
    if first.startswith(_FASTTEXT):
        raise BertineError(
            f"{path}: is a model of fastText's, with vectors of parts of words; give the file .vec "
            "that is published beside it"
        )
    if first.startswith((b"PK\x03\x04", b"\x80\x02")):
        raise BertineError(
            f"{path}: is PyTorch's weights, or a zip archive; give the folder of the model, or "
            "unpack the archive and give the file of word vectors in it"
        )
    return text_begin(first, path)


def _longest(dimensions: int) -> int:
    return MAX_WORD + dimensions * _MAX_NUMBER


def _dimensions(first: bytes, path: Path) -> int:
    """Return how many numbers follow the word on the first line, if there is no header.

    Raises:
        BertineError: it is not a word with its numbers. A word and one number are ambiguous.
    """
    dimensions = sum(1 for _ in takewhile(is_number, reversed(first.split()[1:])))
    if dimensions < 2 or not first.endswith(b"\n"):
        raise BertineError(
            f"{path}: does not begin with a line of two numbers, how many words and how many "
            "numbers of each, nor with a word and its numbers divided by blanks; is it in "
            f"word2vec's format? It begins with {briefly(first.decode(errors='replace'))}"
        )
    return dimensions


def _is_text(line: bytes, dimensions: int, kind: str) -> bool:
    """Return whether the first row is text: a word and its numbers; if it is neither that nor
    clearly binary, the suffix decides."""
    try:
        _row(line, "", dimensions)
    except BertineError:
        return kind == "text" and not _NO_TEXT.search(line)
    return True


class _Table:
    """The words of a file and their vectors so far, and the counts for the notes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._words: dict[str, None] = {}
        self._values = array("f")
        self._damaged: list[bytes] = []
        self._number = self._twice = self._left_out = 0

    def fill(self, rows: _Rows) -> None:
        """Read all rows.

        Raises:
            BertineError: a word or its vector is invalid, or memory is too small.
        """
        looked_at = _NUMBERS
        for raw, vector in rows:
            if self._takes(raw, vector):
                self._values.frombytes(vector.tobytes())
            if len(self._values) >= looked_at:
                looked_at *= 2
                check_memory(f"{self._path}: the table of vectors", 4 * looked_at)

    def _takes(self, raw: bytes, vector: np.ndarray) -> bool:
        """Record a word, and return whether its vector is kept."""
        self._number += 1
        if len(raw) > MAX_WORD:
            raise BertineError(f"{self._path}: word {self._number:,} is too long")
        word = raw.decode(errors="replace")
        # Any Unicode blank: no text format and no line of ours could represent it.
        if word.split() != [word]:
            self._left_out += 1
            return False
        if "\ufffd" in word and raw != word.encode():
            self._damaged.append(raw)
        if not np.isfinite(vector).all():
            raise BertineError(
                f"{self._path}: {briefly(word)} has a number that is not finite; take it out"
            )
        if word in self._words:
            self._twice += 1
            return False
        self._words[word] = None
        return True

    def finish(self) -> tuple[list[str], np.ndarray, list[str]]:
        """Return the words, their vectors and the notes.

        Raises:
            BertineError: no word is left; they are in another encoding than UTF-8.
        """
        notes = []
        if self._damaged:
            whole = (word.encode() for word in self._words if "\ufffd" not in word)
            lines = (word + b"\n" for word in chain(whole, self._damaged))
            check_encoding(self._path, self._path, lines, readable=False)
            count = plural(len(self._damaged), "word")
            notes.append(f"{count} with invalid UTF-8, replaced by U+FFFD")
        if self._twice:
            notes.append(f"{plural(self._twice, 'word')} came twice; the first vector is kept")
        if self._left_out:
            notes.append(f"{plural(self._left_out, 'word')} with a blank inside, left out")
        if not self._words:
            raise BertineError(
                f"{self._path}: has no words without blanks ({', '.join(notes)}); are there more "
                "numbers in a line than its first line says?"
            )
        values = np.frombuffer(self._values, dtype=np.float32)
        return list(self._words), values.reshape(len(self._words), -1), notes


def _row(line: bytes, place: str, dimensions: int) -> tuple[bytes, np.ndarray]:
    """Split a line of text, at spaces or tabs, into a word and its numbers.

    Raises:
        BertineError: it is not such a line.
    """
    fields = line.rsplit(None, dimensions)
    if len(fields) == dimensions and line[:1].isspace():
        fields.insert(0, b"")  # the word is empty
    if len(fields) != dimensions + 1 or (
        len(line) == _longest(dimensions) and not line.endswith(b"\n")
    ):
        raise BertineError(f"{place}: must be a word and {dimensions:,} numbers, divided by blanks")
    try:
        with np.errstate(over="ignore"):  # overflow gives infinity, which is refused
            numbers = np.array([float(item) for item in fields[1:]], dtype=np.float32)
        return fields[0].strip(), numbers
    except ValueError as error:
        odd = next(item for item in fields[1:] if not is_number(item)).decode("utf-8", "replace")
        raise BertineError(f"{place}: {briefly(odd)} is no number; write it as 0.1") from error


def _text_rows(
    handle: _Bounded, begin: bytes, path: Path, dimensions: int, words: int | None
) -> _Rows:
    """Yield the rows of text, of which `begin` is the first line; `words` is their number, or None
    if unknown."""
    number = 0
    more: Callable[[], bytes] = lambda: handle.readline(_longest(dimensions))  # noqa: E731
    for at, line in enumerate(chain([begin], iter(more, b"")), 1 if words is None else 2):
        if not line.strip():
            continue
        number += 1
        if words is not None and number > words:
            raise BertineError(
                f"{path}:{at}: there is more than the {words:,} words it says; correct that number "
                "in its first line"
            )
        yield _row(line, f"{path}:{at}", dimensions)
    if words is not None and number < words:
        raise BertineError(
            f"{path}: the file says {words:,} words, but ends after {number:,}; it is cut short"
        )


def _binary_rows(handle: _Bounded, begin: bytes, path: Path, dimensions: int, words: int) -> _Rows:
    """Yield `words` rows, of which `begin` are the first bytes."""
    width = 4 * dimensions
    # Each entry (line break, word, space and numbers) is complete, except at the end of the file.
    whole = MAX_WORD + 2 + width
    data, at = begin, 0
    for number in range(1, words + 1):
        while len(data) - at < whole and (more := handle.read(max(_BLOCK, whole))):
            data, at = data[at:] + more, 0
        if data[at : at + 1] == b"\n":
            at += 1
        end = data.find(b" ", at, at + MAX_WORD + 1)
        if end <= at or end + 1 + width > len(data):
            raise BertineError(
                f"{path}: word {number:,} of {words:,} is cut short or damaged; is it a binary "
                "file of word2vec's?"
            )
        yield data[at:end], np.frombuffer(data, dtype="<f4", count=dimensions, offset=end + 1)
        at = end + 1 + width
    if len(data) - at > 1 or handle.read(1):
        raise BertineError(f"{path}: there is more than the {words:,} words it says")


def write_vectors(words: Sequence[str], vectors: np.ndarray, path: Path | str) -> None:
    """Write V words and their vectors fp32 [V, D] to a word2vec file, text or binary by its suffix;
    text has nine digits per number, which restore the same fp32.

    Raises:
        BertineError: another suffix; a word with a blank in it, which the formats cannot hold; the
            file cannot be written.
    """
    check_written(path)
    kind = file_format(path)
    if kind is None:
        raise BertineError(f"{path}: word2vec's files are .bin, .txt or .vec; name one")
    for word in words:
        if word.split() != [word] or len(word.encode()) > MAX_WORD:
            raise BertineError(f"{word!r} cannot stand in a file of word2vec's")
    with atomic_file(path) as temporary, open(temporary, "wb") as handle:
        handle.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors, strict=True):
            if kind == "binary":
                handle.write(word.encode() + b" " + vector.astype("<f4").tobytes() + b"\n")
            else:
                numbers = " ".join(f"{number:.9g}" for number in vector.tolist())
                handle.write(f"{word} {numbers}\n".encode())
