"""Files of Unigram tokenizers that are damaged, hostile or of something else: one line each."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

import unigrams
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram_files import check_charsmap, read_model_file
from unigrams import BYTE, CONTROL, NORMAL, blob, model_bytes, number


def bad_files() -> dict[str, tuple[bytes, str]]:
    good = unigrams.albert_bytes()
    several = {"model is BPE, not Unigram": 2, "a list of words, not": 3, "a list of characters": 4}
    return {
        "empty": (b"", "it has no pieces"),
        "text": (b"the cat sat on the mat\n", "truncated, or not a sentencepiece model"),
        "json": (b'{"model": 1}', "truncated, or not a sentencepiece model"),
        "zip": (b"PK\x03\x04" + bytes(100), "not a sentencepiece model"),
        "truncated": (good[:-30], "truncated, or not"),
        "in a piece": (good[:101], "truncated, or not"),
        "score": (blob(1, blob(1, b"a") + blob(2, b"abc")), "a score is no number"),
        "infinite": (model_bytes([("a", float("inf"), NORMAL)]), "a piece is damaged"),
        "not utf-8": (blob(1, blob(1, b"\xff")), "a piece is not UTF-8"),
        "varint": (b"\x08" + b"\xff" * 12, "has more than 64 bits"),
        "specials": (model_bytes([("a", 0.0, NORMAL)]), "neither ALBERT's special tokens"),
        "xlnet": (
            model_bytes([*unigrams.FAIRSEQ_SPECIALS, ("<cls>", 0.0, CONTROL)]),
            "neither ALBERT's special tokens",
        ),
        "no bytes": (
            unigrams.deberta_bytes(trainer=number(35, 1)),
            "falls back to bytes, but the pieces of its bytes are not <0x00> to <0xFF>",
        ),
        "one byte": (model_bytes([("<0x00>", 0.0, BYTE)]), "falls back to bytes, but"),
        "suffix": (unigrams.albert_bytes(trainer=number(24, 1)), "puts spaces behind words"),
        "no prefix": (unigrams.albert_bytes(normalizer=number(3, 0)), "no space before a text"),
        "spaces": (unigrams.albert_bytes(normalizer=number(4, 0)), "keeps several spaces"),
        "charsmap": (unigrams.albert_bytes(charsmap=b"abc"), "precompiled_charsmap. is damaged"),
        **{
            message: (model_bytes(unigrams.ALBERT_SPECIALS, model=model), message)
            for message, model in several.items()
        },
    }


@pytest.mark.parametrize("name", bad_files())
def test_model_files_that_cannot_be_used_are_one_line_errors(tmp_path: Path, name: str) -> None:
    raw, message = bad_files()[name]
    file = tmp_path / "spiece.model"
    file.write_bytes(raw)
    with pytest.raises(BertineError, match=message) as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)
    assert str(file) in str(error.value)


def test_damaged_model_files_end_in_no_traceback(tmp_path: Path) -> None:
    good, draw = unigrams.albert_bytes(), generator(0, "damage")
    problems: list[str] = []
    for _ in range(300):
        raw = bytearray(good)
        for place in draw.integers(len(raw), size=int(draw.integers(1, 4))):
            raw[place] = int(draw.integers(256))
        (tmp_path / "spiece.model").write_bytes(raw[: int(draw.integers(1, 2 * len(raw)))])
        try:
            Tokenizer.load(tmp_path).encode("the cat 1,")
        except BertineError as error:
            problems.append(str(error))
    assert len(problems) > 100
    assert not any("\n" in problem for problem in problems)


def test_a_file_that_is_cut_anywhere_is_not_whole(tmp_path: Path) -> None:
    """Between two pieces, too, where what is left is a message as protobuf has it."""
    raw = model_bytes([*unigrams.FAIRSEQ_SPECIALS, ("▁the", -1.0, NORMAL), ("a", -2.0, NORMAL)])
    file = tmp_path / "sentencepiece.bpe.model"
    file.write_bytes(raw)
    assert len(read_model_file(file).pieces) == 5
    for size in range(len(raw)):
        file.write_bytes(raw[:size])
        with pytest.raises(BertineError, match=r"model: (truncated|not a sentencepiece model)"):
            read_model_file(file)


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        (b"", ""),
        (number(4, 60), "has 57 pieces, but 60 were learnt; is it whole?"),
        (number(4, 50), ""),  # pieces that somebody has added
        (number(4, 60) + number(33, 0), ""),  # as many as there were
        (number(4, 0), ""),  # nobody says
    ],
)
def test_fewer_pieces_than_were_learnt_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trainer: bytes, said: str
) -> None:
    file = tmp_path / "spiece.model"
    file.write_bytes(unigrams.fairseq_bytes(trainer=trainer))
    assert len(read_model_file(file).pieces) == 57
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) == bool(err)


def table(units: list[int], texts: bytes) -> bytes:
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "its size is wrong"),
        (struct.pack("<I", 400) + bytes(8), "its size is wrong"),
        (table([0] * 256, b"\xff"), "its texts are not UTF-8"),
        (table([1 << 10] * 2, b""), "a node leads out of it"),
        (table([1 << 10 | 1 << 8, 1 << 31, *[0] * 254], b"abc\0"), ""),
        (table([1 << 10 | 1 << 8, 1 << 31 | 9, *[0] * 254], b"abc\0"), "a leaf leads to no text"),
        (
            table([1 << 10 | 1 << 8, 1 << 31 | 1, *[0] * 254], "é\0".encode()),
            "a leaf leads to no text",
        ),
    ],
)
def test_tables_of_replacements_are_checked(raw: bytes, message: str) -> None:
    if not message:
        check_charsmap(raw, "file")
        return
    with pytest.raises(BertineError, match=message):
        check_charsmap(raw, "file")


def change_of(path: str, new: Any) -> Any:
    def change(value: dict[str, Any]) -> None:
        *keys, last = path.split("/")
        for key in keys:
            value = value[int(key) if isinstance(value, list) else key]
        value[int(last) if isinstance(value, list) else last] = new

    return change


STEP = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SLOW = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "a"}
TABLE = base64.b64encode(table([1 << 10] * 2, b"")).decode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_of("model/vocab", {}), "must be a list of pieces"),
        (change_of("model/vocab/7", ["a"]), "entry 7 of vocab is"),
        (change_of("model/vocab/7", ["a", "b"]), "entry 7 of vocab is"),
        (change_of("model/vocab/7/0", "the same"), None),
        (change_of("model/vocab/7/0", ","), "are not 0.."),
        (change_of("model/vocab/4/0", "[MUSK]"), "has neither ALBERT's .<pad> <unk> .CLS"),
        (change_of("model/unk_id", None), "unk_id is None, but must be the number of a piece"),
        (change_of("model/unk_id", 7), "but must be that of <unk>"),
        (change_of("model/byte_fallback", 1), "byte_fallback is 1, but must be true or false"),
        (change_of("normalizer", STEP), "its normalizer has the step Replace"),
        (change_of("normalizer", SLOW), "its normalizer has the step Replace"),
        (change_of("normalizer", {"type": "Prepend", "prepend": "x"}), "has the step Prepend"),
        (change_of("normalizer", {"type": "Sequence", "normalizers": 3}), "must be a list of at"),
        (
            change_of("normalizer", {"type": "Precompiled", "precompiled_charsmap": TABLE}),
            "a node leads out of it",
        ),
        (
            change_of("normalizer", {"type": "Precompiled", "precompiled_charsmap": "é"}),
            "is not base64",
        ),
        (change_of("normalizer", None), None),
        (change_of("pre_tokenizer", None), "pre_tokenizer is missing, not WhitespaceSplit and"),
        (change_of("pre_tokenizer/pretokenizers", [{"type": "Digits"}]), "is Digits, not"),
        (change_of("pre_tokenizer/pretokenizers/1/replacement", "_"), "its Metaspace must put"),
        (change_of("pre_tokenizer/pretokenizers/1/prepend_scheme", "first"), "its Metaspace must"),
    ],
)
def test_tokenizer_files_that_cannot_be_used_are_one_line_errors(
    tmp_path: Path, albert: Tokenizer, change: Any, message: str | None
) -> None:
    albert.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    change(value)
    file.write_text(json.dumps(value))
    if message is None:
        assert Tokenizer.load(tmp_path).vocab_size == albert.vocab_size
        return
    with pytest.raises(BertineError, match=message) as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)
