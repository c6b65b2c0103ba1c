"""Read a sentencepiece ``.model`` file without `sentencepiece`.

The file is one protobuf message (google/sentencepiece, ``sentencepiece_model.proto``): its field 1
comes once for each piece, 2 says how the pieces were learnt, 3 how text is normalized. Fields that
have no bearing on the ids are passed over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertine.errors import BertineError
from bertine.files import os_errors, read_bounded

#: Kinds of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

#: The pieces of bytes, where there are any.
BYTES = frozenset(f"<0x{value:02X}>" for value in range(256))

#: Bytes of a file; XLM-R's has five million.
_MAX_BYTES = 64 * 2**20
#: Pieces of a file, and characters of one.
_MAX_PIECES, _MAX_CHARACTERS = 2**21, 1024

#: What field 3 of the second part calls the models.
_MODELS = {1: "Unigram", 2: "BPE", 3: "a list of words", 4: "a list of characters"}


@dataclass(frozen=True)
class Piece:
    """A piece of the vocabulary; its place is its id.

    Attributes:
        text: ``▁`` stands for the space before a word.
        score: the logarithm of its probability.
        kind: :data:`NORMAL` and so on.
    """

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class ModelFile:
    """What a ``.model`` file says.

    Attributes:
        pieces: the vocabulary.
        charsmap: the table of replacements of the normalization; empty: there is none.
        falls_back: whether a character that no piece has is written with the pieces of its bytes.
    """

    pieces: tuple[Piece, ...]
    charsmap: bytes
    falls_back: bool


class _Malformed(Exception):
    """These bytes are no protobuf message."""


def read_model_file(file: Path) -> ModelFile:
    """Read a ``.model`` file of a Unigram tokenizer.

    Raises:
        BertineError: it cannot be read, is truncated or something else, or is of another model
            than Unigram or of one that treats spaces in another way.
    """
    with os_errors(file, "loading the tokenizer"):
        raw = read_bounded(file, _MAX_BYTES)
    if len(raw) > _MAX_BYTES:
        raise BertineError(f"{file}: has more than {_MAX_BYTES:,} bytes, so is no tokenizer")
    pieces: list[Piece] = []
    trainer = normalizer = b""
    try:
        for field, value in _fields(raw):
            if field == 1:
                pieces.append(_piece(_bytes(value)))
                if len(pieces) > _MAX_PIECES:
                    raise _Malformed("too many pieces")
            elif field == 2:
                trainer += _bytes(value)
            elif field == 3:
                normalizer += _bytes(value)
        learnt, reading = dict(_fields(trainer)), dict(_fields(normalizer))
    except _Malformed as error:
        raise BertineError(
            f"{file}: truncated, or not a sentencepiece model ({error}); copy or download it again"
        ) from error
    if not pieces:
        raise BertineError(f"{file}: not a sentencepiece model (it has no pieces)")
    model = learnt.get(3, 1)
    if model != 1:
        name = _MODELS.get(model if isinstance(model, int) else 0, "another model")
        raise BertineError(
            f"{file}: its model is {name}, not Unigram; Bertine reads Unigram models of "
            "sentencepiece"
        )
    of_bytes = {piece.text for piece in pieces if piece.kind == BYTE}
    falls_back = bool(learnt.get(35, 0) or of_bytes)
    if falls_back and of_bytes != BYTES:
        raise BertineError(
            f"{file}: falls back to bytes, but the pieces of its bytes are not <0x00> to <0xFF>; "
            "copy or download it again"
        )
    # What the library cannot do, with the value that the message has where nothing is said.
    for wrong, what in (
        (learnt.get(24, 0), "puts spaces behind words"),
        (not reading.get(3, 1), "puts no space before a text"),
        (not reading.get(4, 1), "keeps several spaces in a row"),
        (not reading.get(5, 1), "leaves spaces as they are"),
    ):
        if wrong:
            raise BertineError(f"{file}: {what}, which Bertine does not; give another tokenizer")
    charsmap = reading.get(2, b"")
    return ModelFile(tuple(pieces), charsmap if isinstance(charsmap, bytes) else b"", falls_back)


def _piece(raw: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for field, value in _fields(raw):
        if field == 1:
            try:
                text = _bytes(value).decode("utf-8")
            except UnicodeDecodeError as error:
                raise _Malformed("a piece is not UTF-8") from error
        elif field == 2:
            if not isinstance(value, bytes) or len(value) != 4:
                raise _Malformed("a score is none")
            (score,) = struct.unpack("<f", value)
        elif field == 3:
            kind = value if isinstance(value, int) else 0
    if not text or len(text) > _MAX_CHARACTERS or not math.isfinite(score) or not 1 <= kind <= BYTE:
        raise _Malformed("a piece is damaged")
    return Piece(text, score, kind)


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise _Malformed("a field is of another type")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: number, and an integer or bytes (Protocol Buffers, encoding).

    Raises:
        _Malformed: it is none, or ends inside a field.
    """
    place, end = 0, len(raw)
    while place < end:
        tag, place = _varint(raw, place)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _Malformed("a field has no number")
        if wire == 0:
            value, place = _varint(raw, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(raw, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise _Malformed(f"a field is of the type {wire}")
        if size > end - place:
            raise _Malformed("it ends inside a field")
        yield number, raw[place : place + size]
        place += size


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    """Read an integer of seven bits a byte; returns it and the place behind it."""
    value = 0
    for number in range(10):
        if place + number >= len(raw):
            raise _Malformed("it ends inside a number")
        byte = raw[place + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, place + number + 1
    raise _Malformed("a number is too long")
