"""Unigram tokenizers for tests: files of sentencepiece written byte by byte, and the pieces of a
small vocabulary."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

#: Kinds of pieces in a file.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

#: Whole and parts of words, the longer the likelier, and single characters.
WORDS = [
    "▁the",
    "▁cat",
    "▁sat",
    "▁un",
    "▁",
    "s",
    "ing",
    "ed",
    "able",
    "believ",
    "ca",
    "▁1",
    ",",
    ".",
]
PIECES = [
    *((text, -2.0 - place / 8) for place, text in enumerate(WORDS)),
    *((letter, -7.0 - place / 32) for place, letter in enumerate("abcdefghijklmnopqrtuvwxyz'\"-")),
    *((digit, -8.0) for digit in "0123456789"),
    ("9,", -8.5),
    ("▁19,", -9.0),
]
ALBERT_SPECIALS = [
    *(("<pad>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN), ("[CLS]", 0.0, CONTROL)),
    *(("[SEP]", 0.0, CONTROL), ("[MASK]", 0.0, CONTROL), ("(", 0.0, USER_DEFINED)),
]
DEBERTA_SPECIALS = [
    *(("[PAD]", 0.0, CONTROL), ("[CLS]", 0.0, CONTROL), ("[SEP]", 0.0, CONTROL)),
    ("[UNK]", 0.0, UNKNOWN),
]
FAIRSEQ_SPECIALS = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def blob(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def piece(text: str, score: float, kind: int = NORMAL) -> bytes:
    body = blob(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
    return blob(1, body + (number(3, kind) if kind != NORMAL else b""))


def model_bytes(
    pieces: Iterable[tuple[str, float, int]],
    *,
    model: int = 1,
    charsmap: bytes = b"",
    trainer: bytes = b"",
    normalizer: bytes = b"",
) -> bytes:
    """Return a ``.model`` file."""
    listed = list(pieces)
    unknown = next((n for n, (_, _, kind) in enumerate(listed) if kind == UNKNOWN), 0)
    return (
        b"".join(piece(*each) for each in listed)
        + blob(2, number(3, model) + number(4, len(listed)) + number(40, unknown) + trainer)
        + blob(3, blob(1, b"identity") + blob(2, charsmap) + normalizer)
    )


def albert_bytes(**options: bytes) -> bytes:
    """Return a small file as ALBERT's."""
    return model_bytes([*ALBERT_SPECIALS, *((t, s, NORMAL) for t, s in PIECES)], **options)


def fairseq_bytes(**options: bytes) -> bytes:
    """Return a small file as XLM-R's and CamemBERT's."""
    return model_bytes([*FAIRSEQ_SPECIALS, *((t, s, NORMAL) for t, s in PIECES)], **options)


def deberta_bytes(*, falls_back: bool = False, trainer: bytes = b"") -> bytes:
    """Return a small file as DeBERTa-v3's, with pieces of bytes or without."""
    of_bytes = [(f"<0x{value:02X}>", 0.0, BYTE) for value in range(256)] if falls_back else []
    listed = [*DEBERTA_SPECIALS, *of_bytes, *((t, s, NORMAL) for t, s in PIECES)]
    return model_bytes(listed, trainer=trainer + (number(35, 1) if falls_back else b""))


def write_albert(folder: Path) -> Path:
    (folder / "spiece.model").write_bytes(albert_bytes())
    return folder


def write_fairseq(folder: Path) -> Path:
    (folder / "sentencepiece.bpe.model").write_bytes(fairseq_bytes())
    return folder
