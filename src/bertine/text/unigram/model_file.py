"""Read a sentencepiece ``.model`` file without `sentencepiece`.

The file is one protobuf message (google/sentencepiece, ``sentencepiece_model.proto``): its field 1
comes once for each piece, 2 says how the pieces were learnt, 3 how text is normalized. Fields that
have no bearing on the ids are passed over. A file that is cut between two pieces is a whole message
too; but 2 and 3 come behind the pieces, so both must be there.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

from bertine.errors import BertineError
from bertine.files import os_errors, read_bounded
from bertine.protobuf import fields
from bertine.terminal.console import warn

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


def read_model_file(file: Path) -> ModelFile:
    """Read a ``.model`` file of a Unigram tokenizer.

    Fewer pieces than were learnt are warned of: some were taken out, or lost.

    Raises:
        BertineError: it cannot be read, is truncated or something else, or is of another model
            than Unigram or of one that treats spaces in another way.
    """
    with os_errors(file, "loading the tokenizer"):
        raw = read_bounded(file, _MAX_BYTES)
    if len(raw) > _MAX_BYTES:
        raise BertineError(f"{file}: has more than {_MAX_BYTES:,} bytes, so is no tokenizer")
    pieces: list[Piece] = []
    trainer: bytes | None = None
    normalizer: bytes | None = None
    try:
        for field, value in fields(raw):
            if field == 1:
                pieces.append(_piece(_bytes(value)))
                if len(pieces) > _MAX_PIECES:
                    raise ValueError("too many pieces")
            elif field == 2:
                trainer = (trainer or b"") + _bytes(value)
            elif field == 3:
                normalizer = (normalizer or b"") + _bytes(value)
        if pieces and (trainer is None or normalizer is None):
            raise ValueError(f"it ends after {len(pieces):,} pieces")
        learnt, reading = dict(fields(trainer or b"")), dict(fields(normalizer or b""))
    except ValueError as error:
        raise BertineError(
            f"{file}: truncated, or not a sentencepiece model ({error}); copy or download it again"
        ) from error
    if not pieces:
        raise BertineError(f"{file}: not a sentencepiece model (it has no pieces)")
    count = learnt.get(4, 0)
    if isinstance(count, int) and len(pieces) < count and learnt.get(33, 1):
        warn(f"{file}: has {len(pieces):,} pieces, but {count:,} were learnt; is it whole?")
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
    for field, value in fields(raw):
        if field == 1:
            try:
                text = _bytes(value).decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError("a piece is not UTF-8") from error
        elif field == 2:
            if not isinstance(value, int) or value >= 1 << 32:
                raise ValueError("a score is no number of 32 bits")
            (score,) = struct.unpack("<f", value.to_bytes(4, "little"))
        elif field == 3:
            kind = value if isinstance(value, int) else 0
    if not text or len(text) > _MAX_CHARACTERS or not math.isfinite(score) or not 1 <= kind <= BYTE:
        raise ValueError("a piece is damaged")
    return Piece(text, score, kind)


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field is of another type")
    return value
