"""Hold, query, read and write word vectors, in memory and as a folder.

The folder has ``word2vec.json`` (facts about the vectors), ``words.txt`` (a word per line, in
UTF-8) and ``vectors.safetensors``: ``vectors`` fp32 [V, D] and, if known, ``counts`` int64 [V].

Shape legend: V words, D numbers of a vector.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from bertine.contrib.recognize import SETTINGS, is_word_vectors
from bertine.contrib.word2vec.files import (
    MAX_WORD,
    check_written,
    file_format,
    read_vectors,
    write_vectors,
)
from bertine.core.console import Report, Shown, plural
from bertine.core.errors import BertineError, naming
from bertine.core.files import (
    atomic_dir,
    check_regular,
    check_replaceable,
    os_errors,
    read_json_object,
    write_json,
)
from bertine.core.foreign_files import open_tensors
from bertine.core.names import ActivationName, option
from bertine.core.scores import ranking

# Words: split text into the words that have vectors.

#: Ideographs and kana, which are words by themselves, as they are written without spaces.
_CHARACTERS = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_INSIDE = rf"[^\W{_CHARACTERS}]+"
_WORD = re.compile(rf"[{_CHARACTERS}]|{_INSIDE}(?:['\u2019]{_INSIDE})*")


def words_of(text: str, *, lowercase: bool) -> list[str]:
    """Split `text` into words: runs of letters, digits and ``_``, with apostrophes between them;
    each Chinese character and each kana is a word by itself. Punctuation is left out."""
    return _WORD.findall(text.lower() if lowercase else text)


WORDS, TENSORS = "words.txt", "vectors.safetensors"
#: Version of the folder's format; other versions are refused.
_FORMAT = 1
#: Rows compared at once.
_ROWS = 1 << 14


@dataclass(frozen=True)
class WordNeighbour:
    """A word near another, with its cosine, at most 1."""

    word: str
    score: float


@dataclass(frozen=True, repr=False)
class NearestWords(Report):
    """The words nearest to some words.

    Attributes:
        query: the word or words of the query.
        nearest: best first.
        notes: words of the query that have no vector.
    """

    query: str
    nearest: list[WordNeighbour]
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return one line for each: cosine, word."""
        return [f"{item.score:7.4f}  {item.word}" for item in self.nearest] + self.notes


class WordVectors(Shown):
    """Words and their vectors: one for each word, regardless of its context.

    Attributes:
        words: V different words, in the order of the rows.
        vectors: fp32 [V, D].
        counts: int64 [V], the count of each word; None: unknown.
        lowercase: whether texts are lower-cased before their words are looked up.
        training: facts of the training, for the reader; {}: unknown.
        notes: notes on repairs while reading.
    """

    def __init__(
        self,
        words: Sequence[str],
        vectors: np.ndarray,
        *,
        counts: np.ndarray | None = None,
        lowercase: bool = False,
        training: dict[str, Any] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """
        Raises:
            BertineError: the shapes do not match, a word is duplicated, or a number is not finite.
        """
        self.words = list(words)
        self.vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        self.counts, self.lowercase = counts, lowercase
        self.training, self.notes = dict(training or {}), list(notes)
        if not self.words or self.vectors.ndim != 2 or len(self.words) != len(self.vectors):
            raise BertineError(
                f"{len(self.words):,} words, but vectors of the shape {list(self.vectors.shape)}; "
                "each word has a row"
            )
        self._ids = {word: row for row, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise BertineError("a word comes twice among those that have vectors")
        if not np.isfinite(self.vectors).all():
            raise BertineError("vectors have a number that is not finite")

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: str) -> bool:
        return self.row(word) is not None

    def __getitem__(self, word: str) -> np.ndarray:
        """Return the vector fp32 [D] of `word`.

        Raises:
            BertineError: there is none.
        """
        row = self.row(word)
        if row is None:
            raise BertineError(f"{word!r} has no vector among the {len(self):,} words")
        vector: np.ndarray = self.vectors[row]
        return vector

    def lines(self) -> list[str]:
        """Describe the vectors."""
        case = ", of texts in lower case" if self.lowercase else ""
        return [
            f"{plural(len(self), 'word')}, vectors of {self.dimensions} numbers{case}: "
            f"{self.vectors.size:,} parameters"
        ]

    @property
    def dimensions(self) -> int:
        """D, the numbers of a vector."""
        return int(self.vectors.shape[1])

    def row(self, word: str) -> int | None:
        """Return the row of `word`, or of its lower case if only that exists; None if neither
        does."""
        result = self._ids.get(word)
        return self._ids.get(word.lower()) if result is None else result

    def rows_of(self, text: str) -> tuple[np.ndarray, int]:
        """Return the rows int64 [n] of the words of `text`, and the number of words without a
        vector."""
        words = words_of(text, lowercase=self.lowercase)
        rows = [row for row in map(self.row, words) if row is not None]
        return np.array(rows, dtype=np.int64), len(words) - len(rows)

    def embed(self, texts: Sequence[str] | str) -> np.ndarray:
        """Compute the mean of the vectors of each text's words, fp32 [N, D], of one string [D];
        zeros if no word has a vector."""
        if isinstance(texts, str):
            vector: np.ndarray = self.embed([texts])[0]
            return vector
        result = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for at, text in enumerate(texts):
            rows, _ = self.rows_of(text)
            if len(rows):
                result[at] = self.vectors[rows].mean(0)
        return result

    def nearest(self, query: str, top: int = 10) -> NearestWords:
        """Find the words whose vectors are nearest to that of `query` by cosine; for several words,
        to the mean of theirs. Words of the query are left out.

        Raises:
            BertineError: no word of the query has a vector, or `top` is less than 1.
        """
        if top < 1:
            raise BertineError(f"top is {top}, but must be at least 1")
        whole = self.row(query)
        rows, unknown = (np.array([whole]), 0) if whole is not None else self.rows_of(query)
        if not len(rows):
            raise BertineError(
                f"{query!r}: none of its words is among the {len(self):,} with a vector"
                f"{self._hint(query)}"
            )
        asked = self.vectors[rows].mean(0)
        asked = asked / (np.linalg.norm(asked) or 1.0)
        scores = np.empty(len(self), dtype=np.float32)
        for start in range(0, len(self), _ROWS):
            part = self.vectors[start : start + _ROWS]
            norms = np.linalg.norm(part, axis=1)
            scores[start : start + _ROWS] = part @ asked / np.where(norms > 0, norms, 1.0)
        scores[rows] = -np.inf
        order = ranking(scores, min(top, len(self) - len(set(rows.tolist()))))
        notes = [f"{plural(unknown, 'word')} of the query without a vector"] if unknown else []
        near = [WordNeighbour(self.words[at], min(1.0, float(scores[at]))) for at in order.tolist()]
        return NearestWords(query, near, notes)

    def _hint(self, query: str) -> str:
        """Suggest a word that differs from a query in capitals, or in what joins its parts."""
        joined = re.compile(r"[\s_-]+")
        asked = joined.sub("", query).casefold()
        near = next((word for word in self if joined.sub("", word).casefold() == asked), None)
        return "" if near is None or not asked else f"; did you mean {near!r}?"

    def fingerprint(self) -> tuple[str, str]:
        """Compute the SHA-256 of the vectors and of the words, as hex digits."""
        words = "\n".join([str(self.lowercase), *self.words])
        return (
            hashlib.sha256(self.vectors.tobytes()).hexdigest(),
            hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest(),
        )

    def save(self, path: Path | str) -> None:
        """Write the folder, or a word2vec file if `path` ends in ``.bin``, ``.txt`` or ``.vec``.
        Existing vectors are replaced.

        Raises:
            BertineError: `path` holds something else, the format cannot represent a word, or it
                cannot be written.
        """
        check_target(path)
        if file_format(path) is not None and not Path(path).is_dir():
            write_vectors(self.words, self.vectors, path)
            return
        for word in self.words:
            if not word or word.splitlines() != [word]:
                raise BertineError(f"{word!r} cannot stand in a line of {WORDS}")
        with atomic_dir(path) as temporary:
            tensors = {"vectors": self.vectors}
            if self.counts is not None:
                tensors["counts"] = self.counts
            save_file(tensors, temporary / TENSORS)
            text = "".join(f"{word}\n" for word in self.words)
            (temporary / WORDS).write_text(text, encoding="utf-8", newline="")
            write_json(
                temporary / SETTINGS,
                {
                    "format": _FORMAT,
                    "words": len(self),
                    "dimensions": self.dimensions,
                    "lowercase": self.lowercase,
                    "training": self.training,
                },
            )

    @classmethod
    def load(cls, path: Path | str) -> WordVectors:
        """Read a folder of word vectors, or a file of word2vec's or GloVe's: ``.bin``, ``.txt`` or
        ``.vec``, plain or compressed (``.gz``, ``.zst``, ``.xz``).

        Raises:
            BertineError: it is not such a folder or file, or is damaged.
        """
        if Path(path).is_dir():
            return _read_folder(cls, Path(path))
        words, vectors, notes = read_vectors(path)
        return cls(words, vectors, notes=notes)


def check_target(path: Path | str) -> None:
    """Refuse to write vectors to a folder with something else in it, or to a file of no known
    format.

    Raises:
        BertineError: `path` is refused.
    """
    check_written(path)
    if Path(path).is_dir() or file_format(path) is None:
        check_replaceable(path, "folder of word vectors", is_word_vectors)
        if Path(path).is_file():
            raise BertineError(f"{path}: is a file; name a folder, or a .bin, .txt or .vec file")


def _read_folder(cls: type[WordVectors], folder: Path) -> WordVectors:
    values = read_json_object(folder / SETTINGS)
    lowercase, training = values.get("lowercase"), values.get("training", {})
    if values.get("format") != _FORMAT:
        raise BertineError(f"{folder / SETTINGS}: is of another version; train or convert it again")
    if not isinstance(lowercase, bool) or not isinstance(training, dict):
        raise BertineError(f"{folder / SETTINGS}: does not say what the vectors are")
    tensors = _tensors(folder / TENSORS)
    vectors, counts = tensors["vectors"], tensors.get("counts")
    words = _words(folder / WORDS, len(vectors))
    if counts is not None and (counts.shape != (len(words),) or counts.dtype != np.int64):
        raise BertineError(f"{folder / TENSORS}: counts are not a whole number for each word")
    with naming(folder):
        return cls(words, vectors, counts=counts, lowercase=lowercase, training=training)


def _tensors(path: Path) -> dict[str, np.ndarray]:
    with open_tensors(path, "np") as file:
        names = set(file.keys())
        if not {"vectors"} <= names <= {"vectors", "counts"}:
            raise BertineError(f"{path}: must hold the tensor vectors, and counts at most")
        tensors = {name: file.get_tensor(name) for name in names}
    vectors = tensors["vectors"]
    if vectors.ndim != 2 or vectors.dtype != np.float32 or 0 in vectors.shape:
        raise BertineError(f"{path}: vectors must be fp32 numbers in rows and columns")
    return tensors


def _words(path: Path, count: int) -> list[str]:
    """Read `count` words, one per line."""
    check_regular(path)
    words: list[str] = []
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while raw := handle.readline(MAX_WORD + 2):
            if not raw.endswith(b"\n") or len(raw) == 1:
                raise BertineError(
                    f"{path}:{len(words) + 1}: is no word of 1 to {MAX_WORD} bytes with a line's "
                    "end"
                )
            if len(words) == count:
                raise BertineError(f"{path}: has more words than the {count:,} vectors")
            try:
                words.append(raw[:-1].decode())
            except UnicodeDecodeError as error:
                raise BertineError(f"{path}:{len(words) + 1}: is not UTF-8") from error
    if len(words) != count:
        raise BertineError(f"{path}: has {len(words):,} words, but there are {count:,} vectors")
    return words


# Conversion: ``convert``.


@dataclass(frozen=True, repr=False)
class VectorConversion(Report):
    """The result of converting word vectors.

    Attributes:
        output: the folder or file.
        words: the number of words with a vector.
        dimensions: the dimensions of a vector.
        notes: notes on what was repaired while reading.
    """

    output: Path
    words: int
    dimensions: int
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """List what the command prints."""
        return [
            *self.notes,
            f"written to {self.output}: {self.words:,} words, vectors of {self.dimensions} numbers",
        ]


def convert_vectors(
    source: Path | str, output: Path, hidden_act: ActivationName | None
) -> VectorConversion:
    """Write word vectors as a folder or a file.

    Raises:
        BertineError: they cannot be read; an activation is given; `output` is what is read.
    """
    if hidden_act is not None:
        raise BertineError(
            f"{source}: is vectors of words, which have no activation; leave out "
            f"{option('hidden_act', hidden_act)}"
        )
    if output.resolve() == Path(source).resolve():
        raise BertineError(f"{output}: is what is read; choose another ({option('output')})")
    vectors = WordVectors.load(source)
    vectors.save(output)
    return VectorConversion(output, len(vectors), vectors.dimensions, vectors.notes)
