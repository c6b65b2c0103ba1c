"""Read and write the files of the word2vec program, text and binary.

Both begin with a line of two numbers, V and D. Then comes a word and a space and its D numbers: as
decimal numbers on a line of text (``.txt``, ``.vec``), or as little-endian fp32 (``.bin``), after
which the program puts a line break and others nothing (word2vec.c, Mikolov et al. 2013).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bertine.errors import BertineError
from bertine.files import atomic_file, check_regular, os_errors
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

#: What a reader of one format yields: the bytes of a word, and its numbers [D].
_Rows = Iterator[tuple[bytes, np.ndarray]]


def file_format(path: Path | str) -> str | None:
    """Return "binary" or "text" by the suffix of `path`; None for any other."""
    return FORMATS.get(Path(path).suffix.lower())


def read_vectors(path: Path | str) -> tuple[list[str], np.ndarray, list[str]]:
    """Read a file of word2vec's, text or binary by its suffix: V words, their vectors fp32 [V, D],
    and what was mended.

    Words that come twice keep their first vector, and bytes that are no UTF-8 become U+FFFD; both
    are counted in what is said to be mended.

    Raises:
        BertineError: another suffix; no header; a file that is shorter or longer than it says; a
            number that is none or not finite; a word that is too long or empty.
    """
    kind = file_format(path)
    if kind is None:
        raise BertineError(
            f"{path}: is not known as word vectors; give a folder that bertine word2vec wrote, or "
            "a file .bin, .txt or .vec in word2vec's formats (unpacked)"
        )
    check_regular(path)
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        size = handle.seek(0, 2)
        handle.seek(0)
        header = _HEADER.fullmatch(handle.readline(64))
        if not header:
            raise BertineError(
                f"{path}: does not begin with a line of two numbers, how many words and how many "
                "numbers of each; is it in word2vec's format?"
            )
        words, dimensions = int(header[1]), int(header[2])
        # A word and a space; of text a digit and a space for each number.
        least = words * (2 + dimensions * (4 if kind == "binary" else 2) - (kind == "text"))
        if not words or not dimensions or least > size:
            raise BertineError(
                f"{path}: says {words:,} words of {dimensions:,} numbers, which do not fit into "
                f"its {size:,} bytes; it is cut short or damaged"
            )
        if kind == "text":
            rows = _text_rows(handle.readline, path, words, dimensions)
            return _joined(rows, words, dimensions, path)
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as view:
            rows = _binary_rows(view, handle.tell(), path, words, dimensions)
            return _joined(rows, words, dimensions, path)


def _joined(
    rows: _Rows, words: int, dimensions: int, path: Path | str
) -> tuple[list[str], np.ndarray, list[str]]:
    """Return the words, their vectors and what was mended; what comes twice is left out."""
    table = np.empty((words, dimensions), dtype=np.float32)
    seen: dict[str, None] = {}
    mended = twice = 0
    for number, (raw, vector) in enumerate(rows, 1):
        if not raw or len(raw) > MAX_WORD or raw.split() != [raw]:
            raise BertineError(
                f"{path}: word {number:,} is empty, has a blank in it or is too long"
            )
        try:
            word = raw.decode()
        except UnicodeDecodeError:
            word = raw.decode(errors="replace")
            mended += 1
        if not np.isfinite(vector).all():
            raise BertineError(f"{path}: {briefly(word)} has a number that is not finite")
        if word in seen:
            twice += 1
            continue
        table[len(seen)] = vector
        seen[word] = None
    notes = []
    if mended:
        notes.append(f"{counted(mended, 'word')} with invalid UTF-8, replaced by U+FFFD")
    if twice:
        notes.append(f"{counted(twice, 'word')} came twice; the first vector is kept")
    return list(seen), table[: len(seen)], notes


def _text_rows(
    readline: Callable[[int], bytes], path: Path | str, words: int, dimensions: int
) -> _Rows:
    longest = MAX_WORD + dimensions * _MAX_NUMBER
    for number in range(words):
        place = f"{path}:{number + 2}"
        line = readline(longest)
        if not line.strip():
            raise BertineError(f"{place}: the file says {words:,} words, but ends here")
        fields = line.strip(b" \r\n").rsplit(b" ", dimensions)
        if len(fields) != dimensions + 1 or (len(line) == longest and line[-1:] != b"\n"):
            raise BertineError(f"{place}: must be a word and {dimensions:,} numbers")
        try:
            yield fields[0], np.array([float(each) for each in fields[1:]], dtype=np.float32)
        except ValueError as error:
            raise BertineError(f"{place}: {briefly(str(error))}; give numbers") from error
    if readline(longest).strip():
        raise BertineError(f"{path}:{words + 2}: there is more than the {words:,} words it says")


def _binary_rows(view: mmap.mmap, at: int, path: Path | str, words: int, dimensions: int) -> _Rows:
    width = 4 * dimensions
    for number in range(1, words + 1):
        if view[at : at + 1] == b"\n":
            at += 1
        end = view.find(b" ", at, at + MAX_WORD + 1)
        if end < 0 or end + 1 + width > len(view):
            raise BertineError(
                f"{path}: word {number:,} of {words:,} is cut short or damaged; is it a binary "
                "file of word2vec's?"
            )
        yield view[at:end], np.frombuffer(view[end + 1 : end + 1 + width], dtype="<f4")
        at = end + 1 + width
    if len(view) - at > 1:
        raise BertineError(f"{path}: there is more than the {words:,} words it says")


def write_vectors(words: Sequence[str], vectors: np.ndarray, path: Path | str) -> None:
    """Write V words and their vectors fp32 [V, D] to a file of word2vec's, text or binary by its
    suffix; numbers of text with nine digits,
    which give the same fp32 back.

    Raises:
        BertineError: another suffix; a word with a blank in it, which the formats cannot hold; the
            file cannot be written.
    """
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
