"""Read and write the files of the word2vec program, text and binary; read those of GloVe.

The first begin with a line of two numbers, V and D. Then comes a word and a space and its D
numbers: as decimal numbers on a line of text (``.txt``, ``.vec``), or as little-endian fp32
(``.bin``), after which the program puts a line break and others nothing (word2vec.c, Mikolov et al.
2013). GloVe's text has no such line (Pennington et al. 2014). All may be compressed as a whole when
they are read (``.gz``, ``.zst``, ``.xz``), as published ones are.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bertine.errors import BertineError
from bertine.files import atomic_file
from bertine.system.memory import check_memory
from bertine.tables.streams import COMPRESSIONS, open_stream
from bertine.terminal.console import counted
from bertine.terminal.text import briefly

#: The longest word that is read, in bytes.
MAX_WORD = 4096
#: The formats by the suffix of the file.
FORMATS = {".bin": "binary", ".txt": "text", ".vec": "text"}
#: The first line: V and D.
_HEADER = re.compile(rb"(\d{1,12}) +(\d{1,6}) *\r?\n")
#: The most characters of a number in a line of text.
_MAX_NUMBER = 64
#: The most numbers of a word where no header says how many; the longest first line is that long.
_MAX_DIMENSIONS = 10_000
#: A byte of a compressed file becomes this many at the most (of deflate 1,032; others go beyond,
#: but not with numbers).
_MOST_UNPACKED = 1032
#: Bytes that are read at once.
_BLOCK = 1 << 20

#: What a reader of one format yields: the bytes of a word, and its numbers [D].
_Rows = Iterator[tuple[bytes, np.ndarray]]


def file_format(path: Path | str) -> str | None:
    """Return "binary" or "text" by the suffix of `path`, that of a compression left out; None for
    any other."""
    path = Path(path)
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return FORMATS.get(path.suffix.lower())


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
    """Read a file of word2vec's, text or binary by its suffix, or of GloVe's: V words, their
    vectors fp32 [V, D], and what was mended.

    Words that come twice keep their first vector, and bytes that are no UTF-8 become U+FFFD; both
    are counted in what is said to be mended. So are words with a blank in them, as some of GloVe's
    have, which are left out.

    Raises:
        BertineError: another suffix; no header and no GloVe; a file that is shorter or longer than
            it says; a number that is none or not finite; a word that is too long or empty.
    """
    path = Path(path)
    kind = file_format(path)
    if kind is None:
        raise BertineError(
            f"{path}: is not known as word vectors; give a folder that bertine word2vec wrote, or "
            "a file .bin, .txt or .vec in word2vec's formats, as it is or compressed (.gz)"
        )
    with open_stream(path) as stream:
        handle = stream.reader
        size = path.stat().st_size
        if path.suffix.lower() in COMPRESSIONS:
            size *= _MOST_UNPACKED
        first = handle.readline(64)
        header = _HEADER.fullmatch(first)
        if not header:
            if kind == "text":
                longest = MAX_WORD + _MAX_DIMENSIONS * _MAX_NUMBER
                whole = first if first.endswith(b"\n") else first + handle.readline(longest)
                return _headerless(handle, whole, path)
            raise BertineError(_no_header(path))
        words, dimensions = int(header[1]), int(header[2])
        # A word and a space; of text a digit and a space for each number.
        least = words * (2 + dimensions * (4 if kind == "binary" else 2) - (kind == "text"))
        if not words or not dimensions or least > size:
            raise BertineError(
                f"{path}: says {words:,} words of {dimensions:,} numbers, which do not fit into "
                f"its {size:,} bytes; it is cut short or damaged"
            )
        check_memory(f"{path}: {words:,} vectors of {dimensions:,} numbers", 4 * words * dimensions)
        read = _text_rows if kind == "text" else _binary_rows
        table = np.empty((words, dimensions), dtype=np.float32)
        seen = _Seen(path)
        for raw, vector in read(handle, path, words, dimensions):
            if seen.add(raw, vector):
                table[len(seen.words) - 1] = vector
        return list(seen.words), table[: len(seen.words)], seen.notes()


def _no_header(path: Path) -> str:
    return (
        f"{path}: does not begin with a line of two numbers, how many words and how many numbers "
        "of each; is it in word2vec's format?"
    )


class _Seen:
    """The words of a file so far, and what was mended in them.

    Args:
        path: of the file, for messages.
        blanks: leave out words with a blank in them, where they are else an error.
    """

    def __init__(self, path: Path, *, blanks: bool = False) -> None:
        self.words: dict[str, None] = {}
        self._path, self._blanks = path, blanks
        self._number = self._mended = self._twice = self._left_out = 0

    def add(self, raw: bytes, vector: np.ndarray) -> bool:
        """Take a word, and tell whether its vector is to be kept.

        Raises:
            BertineError: the word or its vector is impossible.
        """
        self._number += 1
        if self._blanks and raw.strip() and len(raw) <= MAX_WORD and raw.split() != [raw]:
            self._left_out += 1
            return False
        if not raw or len(raw) > MAX_WORD or raw.split() != [raw]:
            raise BertineError(
                f"{self._path}: word {self._number:,} is empty, has a blank in it or is too long"
            )
        try:
            word = raw.decode()
        except UnicodeDecodeError:
            word = raw.decode(errors="replace")
            self._mended += 1
        if not np.isfinite(vector).all():
            raise BertineError(f"{self._path}: {briefly(word)} has a number that is not finite")
        if word in self.words:
            self._twice += 1
            return False
        self.words[word] = None
        return True

    def notes(self) -> list[str]:
        """Say what was mended."""
        notes = []
        if self._mended:
            notes.append(f"{counted(self._mended, 'word')} with invalid UTF-8, replaced by U+FFFD")
        if self._twice:
            notes.append(f"{counted(self._twice, 'word')} came twice; the first vector is kept")
        if self._left_out:
            notes.append(f"{counted(self._left_out, 'word')} with a blank inside, left out")
        return notes


def _headerless(
    handle: BinaryIO, first: bytes, path: Path
) -> tuple[list[str], np.ndarray, list[str]]:
    """Read GloVe's text, of which `first` is the first line: it says how many numbers all have."""
    dimensions = len(first.split()) - 1
    if dimensions < 2 or not first.endswith(b"\n"):  # a word and a number might be anything
        raise BertineError(_no_header(path))
    try:
        _numbers(first.split()[1:])
    except ValueError as error:
        raise BertineError(_no_header(path)) from error
    longest = MAX_WORD + dimensions * _MAX_NUMBER
    values = array("f")
    seen = _Seen(path, blanks=True)
    line, number = first, 1
    while line:
        raw, vector = _row(line, f"{path}:{number}", dimensions, longest)
        if seen.add(raw, vector):
            values.frombytes(vector.tobytes())
        line, number = handle.readline(longest), number + 1
    table = np.frombuffer(values, dtype=np.float32).reshape(len(seen.words), dimensions)
    return list(seen.words), table, seen.notes()


def _row(line: bytes, place: str, dimensions: int, longest: int) -> tuple[bytes, np.ndarray]:
    """Divide a line of text into a word and its numbers.

    Raises:
        BertineError: it is none.
    """
    fields = line.strip(b" \r\n").rsplit(b" ", dimensions)
    if len(fields) != dimensions + 1 or (len(line) == longest and line[-1:] != b"\n"):
        raise BertineError(f"{place}: must be a word and {dimensions:,} numbers")
    try:
        return fields[0], _numbers(fields[1:])
    except ValueError as error:
        raise BertineError(f"{place}: {briefly(str(error))}; give numbers") from error


def _numbers(fields: Sequence[bytes]) -> np.ndarray:
    return np.array([float(each) for each in fields], dtype=np.float32)


def _text_rows(handle: BinaryIO, path: Path, words: int, dimensions: int) -> _Rows:
    longest = MAX_WORD + dimensions * _MAX_NUMBER
    for number in range(words):
        place = f"{path}:{number + 2}"
        line = handle.readline(longest)
        if not line.strip():
            raise BertineError(f"{place}: the file says {words:,} words, but ends here")
        yield _row(line, place, dimensions, longest)
    if handle.readline(longest).strip():
        raise BertineError(f"{path}:{words + 2}: there is more than the {words:,} words it says")


def _binary_rows(handle: BinaryIO, path: Path, words: int, dimensions: int) -> _Rows:
    width = 4 * dimensions
    # A line break, a word, a space and its numbers are there whole, but at the end of the file.
    whole = MAX_WORD + 2 + width
    data, at = b"", 0
    for number in range(1, words + 1):
        while len(data) - at < whole and (more := handle.read(max(_BLOCK, whole))):
            data, at = data[at:] + more, 0
        if data[at : at + 1] == b"\n":
            at += 1
        end = data.find(b" ", at, at + MAX_WORD + 1)
        if end < 0 or end + 1 + width > len(data):
            raise BertineError(
                f"{path}: word {number:,} of {words:,} is cut short or damaged; is it a binary "
                "file of word2vec's?"
            )
        yield data[at:end], np.frombuffer(data, dtype="<f4", count=dimensions, offset=end + 1)
        at = end + 1 + width
    if len(data) - at > 1 or handle.read(1):
        raise BertineError(f"{path}: there is more than the {words:,} words it says")


def write_vectors(words: Sequence[str], vectors: np.ndarray, path: Path | str) -> None:
    """Write V words and their vectors fp32 [V, D] to a file of word2vec's, text or binary by its
    suffix; numbers of text with nine digits,
    which give the same fp32 back.

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
