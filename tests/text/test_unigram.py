"""What is Bertine's own in Unigram: files and their errors, layouts, names of pieces, words,
offsets, long texts."""

from __future__ import annotations

import base64
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unigrams
from bertine.errors import BertineError
from bertine.rng import generator
from bertine.text import bounded
from bertine.text.pieces import goes_on, run_together
from bertine.text.tokenizer import Tokenizer
from bertine.text.unigram.charsmap import check_charsmap
from bertine.text.unigram.layouts import ALBERT, DEBERTA, FAIRSEQ
from unigrams import BYTE, CONTROL, NORMAL, PIECES, UNUSED, blob, model_bytes, number

PARTS = st.sampled_from(
    [
        *(
            " ",
            "  ",
            "\n",
            "\t",
            "\r\n",
            "\u00a0",
            "\u3000",
            "\x1c",
            "\x85",
            "\u200b",
            "''",
            "``",
            "1,",
        ),
        *(
            "[MASK]",
            " [MASK]",
            "</s>",
            "<mask>",
            "the",
            " cat",
            "é",
            "e\u0301",
            "\u0301",
            "中",
            "ﬁ",
            "½",
        ),
        *("▁", "ｶﾞ", "\uff9e", "\u0600", "\u0e33", "है", "İ", "가", "👍🏽"),
    ]
)
ANYTHING = st.text(max_size=6)  # with lone surrogates
MIXED = st.lists(st.one_of(PARTS, ANYTHING), max_size=20).map("".join)


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(unigrams.write_albert(tmp_path_factory.mktemp("albert")))


@pytest.fixture(scope="module")
def xlm_r(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(unigrams.write_fairseq(tmp_path_factory.mktemp("xlm-r")))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.tokens[i] for i in tokenizer.encode_plain([text])[0]]


def test_pieces_ids_and_specials(albert: Tokenizer) -> None:
    assert (albert.kind, albert.title) == ("unigram", "Unigram")
    assert pieces(albert, "The  Cáts [MASK] sat") == ["▁the", "▁cat", "s", "[MASK]", "▁sat"]
    encoding = albert.encode("the", "cat sat")
    assert [albert.tokens[i] for i in encoding.input_ids] == (
        ["[CLS]", "▁the", "[SEP]", "▁cat", "▁sat", "[SEP]"]
    )
    assert encoding.token_type_ids == [0, 0, 0, 1, 1, 1]
    assert encoding.offsets == [(0, 0), (0, 3), (0, 0), (0, 3), (4, 7), (0, 0)]
    assert (albert.pad_token_id, albert.unk_token_id, albert.cls_token_id) == (0, 1, 2)
    assert (albert.sep_token_id, albert.mask_token_id, albert.mask_text) == (3, 4, "[MASK]")
    assert (albert.lowercase, albert.strip_accents, albert.keeps_spaces) == (True, True, False)


def test_a_comma_behind_a_digit_is_a_piece_by_itself(albert: Tokenizer, xlm_r: Tokenizer) -> None:
    """In ALBERT's vocabulary; others take the pieces that they have."""
    assert pieces(albert, "19,") == ["▁1", "9", ","]
    assert pieces(xlm_r, "19,") == ["▁19,"]


def test_user_defined_pieces_are_found_inside_words(albert: Tokenizer) -> None:
    assert pieces(albert, "cat(sat") == ["▁cat", "(", "s", "a", "t"]


def test_fairseq_numbers_the_pieces_anew(xlm_r: Tokenizer, tmp_path: Path) -> None:
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    texts = [text for text, _ in PIECES]
    assert xlm_r.tokens == [*first, *texts, "<mask>"]
    ids = xlm_r.encode("the cat", "sat").input_ids
    assert [xlm_r.tokens[i] for i in ids] == ["<s>", "▁the", "▁cat", "</s>", "</s>", "▁sat", "</s>"]
    assert pieces(xlm_r, "The") == ["▁", "<unk>", "h", "e"]  # it has no capitals, and keeps them
    # CamemBERT's file looks the same; what is beside it tells.
    unigrams.write_fairseq(tmp_path)
    for name, value in (
        ("tokenizer_config.json", {"tokenizer_class": "CamembertTokenizer"}),
        ("tokenizer_config.json", {"tokenizer_class": "CamembertTokenizerFast"}),
        ("config.json", {"model_type": "camembert"}),
    ):
        (tmp_path / name).write_text(json.dumps(value))
        tokenizer = Tokenizer.load(tmp_path)
        begin = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
        assert tokenizer.tokens == [*begin, *texts, "<mask>"]
        assert tokenizer.encode("the").input_ids == [5, 7, 6]
        assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (1, 3)
        (tmp_path / name).unlink()


def test_deberta_adds_the_mask_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes())
    tokenizer = Tokenizer.load(tmp_path)
    specials = [text for text, _, _ in unigrams.DEBERTA_SPECIALS]
    assert tokenizer.tokens == [*specials, *(text for text, _ in PIECES), "[MASK]"]
    assert tokenizer.encode("the", "cats").input_ids == [1, 4, 2, 5, 9, 2]
    assert tokenizer.encode("the", "cats").token_type_ids == [0, 0, 0, 1, 1, 1]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 3)
    assert pieces(tokenizer, "the [MASK] Z") == ["▁the", "[MASK]", "▁", "[UNK]"]
    # A file that has the mask keeps it where it is.
    listed = [*unigrams.DEBERTA_SPECIALS, ("[MASK]", 0.0, CONTROL), ("▁the", -1.0, NORMAL)]
    (tmp_path / "spm.model").write_bytes(model_bytes(listed))
    assert Tokenizer.load(tmp_path).mask_token_id == 4


def test_settings_beside_the_file_of_deberta(tmp_path: Path) -> None:
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes())
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"do_lower_case": false, "vocab_type": "spm", "split_by_punct": false}')
    assert pieces(Tokenizer.load(tmp_path), "The") == ["▁", "[UNK]", "h", "e"]
    settings.write_text('{"do_lower_case": true}')
    tokenizer = Tokenizer.load(tmp_path)
    assert (pieces(tokenizer, "The"), tokenizer.lowercase) == (["▁the"], True)
    settings.write_text('{"split_by_punct": true}')
    with pytest.raises(BertineError, match=r"tokenizer_config.json: split_by_punct is true, but"):
        Tokenizer.load(tmp_path)


def test_unknown_characters_become_their_bytes(tmp_path: Path) -> None:
    """Where the file has pieces for bytes, as DeBERTa-v3's has."""
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes(falls_back=True))
    tokenizer = Tokenizer.load(tmp_path)
    text = "the 中é cats"
    encoding = tokenizer.encode(text)
    shown = [tokenizer.tokens[i] for i in encoding.input_ids[1:-1]]
    assert shown == (["▁the", "▁", "<0xE4>", "<0xB8>", "<0xAD>", "<0xC3>", "<0xA9>", "▁cat", "s"])
    assert tokenizer.encode_plain([text]) == [encoding.input_ids[1:-1]]
    assert {encoding.offsets[place] for place in range(3, 8)} == {(4, 6)}
    assert tokenizer.unk_token_id not in encoding.input_ids
    assert tokenizer.decode(encoding.input_ids) == text
    place = tokenizer.token_to_id("<0xE4>")
    assert place is not None
    assert tokenizer.continues[place]
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.decode(again.encode(text).input_ids) == text


def test_a_mask_that_is_only_added_to_the_pieces(tmp_path: Path) -> None:
    """As the classes of transformers write it that read ``spm.model``; the normalization and the
    division are those of its version 4."""
    (tmp_path / "spm.model").write_bytes(unigrams.deberta_bytes())
    ours = Tokenizer.load(tmp_path)
    ours.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    assert value["model"]["vocab"].pop() == ["[MASK]", 0.0]
    steps = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    value["normalizer"] = {"type": "Sequence", "normalizers": steps}
    value["pre_tokenizer"]["pretokenizers"].pop(0)
    file.write_text(json.dumps(value))
    theirs = Tokenizer.load(tmp_path)
    assert theirs.tokens == ours.tokens
    for text in ("  the  cats [MASK] sat ", "19, unbelievable", ""):
        assert theirs.encode(text).input_ids == ours.encode(text).input_ids
        assert theirs.encode_plain([text]) == ours.encode_plain([text])


def test_case_and_accents_are_kept_where_the_settings_say_so(tmp_path: Path) -> None:
    unigrams.write_albert(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = Tokenizer.load(tmp_path)
    assert pieces(cased, "Thé thé")[-1] == "▁the"
    assert (cased.lowercase, cased.strip_accents) == (False, True)
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": true}')
    assert pieces(Tokenizer.load(tmp_path), "THé")[-1] == "<unk>"
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": 1}')
    with pytest.raises(BertineError, match="do_lower_case is 1, but must be true, false or null"):
        Tokenizer.load(tmp_path)


def test_files_of_any_name_are_opened(tmp_path: Path) -> None:
    unigrams.write_albert(tmp_path)
    for name in ("30k-clean.model", "mine.model"):
        file = (tmp_path / "spiece.model").rename(tmp_path / name)
        assert Tokenizer.load(file).kind == "unigram"
        file.rename(tmp_path / "spiece.model")


def test_saving_and_loading_gives_the_same(
    tmp_path: Path, albert: Tokenizer, xlm_r: Tokenizer
) -> None:
    text = "The unbelievable cat (sat)  19, <mask> [MASK] ''quoted'' é½ﬁ"
    for name, tokenizer in (("a", albert), ("x", xlm_r)):
        folder = tmp_path / name
        folder.mkdir()
        tokenizer.save(folder)
        again = Tokenizer.load(folder)
        assert again.fingerprint == tokenizer.fingerprint
        assert again.encode(text, text) == tokenizer.encode(text, text)
        assert again.tokens == tokenizer.tokens
    assert albert.fingerprint != xlm_r.fingerprint


def test_whole_words_of_albert_follow_its_published_rule(albert: Tokenizer) -> None:
    begins = ["▁the", "▁", ",", "9", "'s", "<x>", "–", "€", "(", "中", "a1", "ไ"]
    inside = ["s", "ing", "S", ".com", "a-b", "é", "и"]
    assert not any(map(ALBERT.goes_on, begins))
    assert all(map(ALBERT.goes_on, inside))
    ids = albert.encode("The unbelievable cats, 19 [MASK]").input_ids
    names = [albert.names[i] for i in ids]
    assert names == (
        ["[CLS]", "the", "un", "##believ", "##able", "cat", "##s", ",", "1", "9", "[MASK]", "[SEP]"]
    )
    assert [bool(albert.continues[i]) for i in ids] == [goes_on(name) for name in names]
    assert run_together(names[1:-1]) == "the unbelievable cats , 1 9 [MASK]"


def test_whole_words_of_deberta_follow_its_published_rule() -> None:
    assert not any(map(DEBERTA.goes_on, ["▁the", "▁", ",", "–", "$", "中", "か"]))
    assert all(map(DEBERTA.goes_on, ["s", "é", "1", "...", "<0xE4>", "№", "가"]))


def test_whole_words_of_xlm_r_begin_at_spaces(xlm_r: Tokenizer) -> None:
    assert not any(map(FAIRSEQ.goes_on, ["▁the", "▁", "中", "中文", "か", "ไท"]))
    assert all(map(FAIRSEQ.goes_on, ["s", ",", "é", "1", "가"]))
    assert xlm_r.names[xlm_r.token_to_id(",")] == "##,"
    assert xlm_r.names[xlm_r.token_to_id("▁")] == "␣"


def test_a_piece_is_put_where_the_mask_was(albert: Tokenizer, xlm_r: Tokenizer) -> None:
    for tokenizer in (albert, xlm_r):
        text = f"the {tokenizer.mask_text}."
        encoding = tokenizer.encode(text)
        start, end = encoding.offsets[encoding.input_ids.index(tokenizer.mask_token_id)]
        assert text[start:end] == tokenizer.mask_text
        cat, ing = (tokenizer.token_to_id(token) for token in ("▁cat", "ing"))
        assert tokenizer.put_piece(text, start, end, cat) == "the cat."
        assert tokenizer.put_piece(text, start, end, ing) == "theing."
        assert tokenizer.show(encoding.input_ids[1:-1]) == f"the {tokenizer.mask_text} ."
        assert tokenizer.decode(tokenizer.encode("the cats").input_ids) == "the cats"


def test_each_piece_has_its_characters(albert: Tokenizer) -> None:
    text = "The  CÁTS, ''zoo'' (½) ﬁne"
    encoding = albert.encode(text)
    held = [text[a:b] for a, b in encoding.offsets[1:-1]]
    shown = [albert.tokens[i] for i in encoding.input_ids[1:-1]]
    assert held[:5] == ["The", "CÁT", "S", ",", ""]
    assert (held[5], shown[4:6]) == ("''", ["▁", '"'])
    assert held[held.index("ﬁ")] == "ﬁ"


@settings(max_examples=300, deadline=None)
@given(MIXED)
def test_offsets_are_characters_in_order(albert: Tokenizer, xlm_r: Tokenizer, text: str) -> None:
    for tokenizer in (albert, xlm_r):
        spans = tokenizer.encode(text).offsets[1:-1]
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        for (start, end), (after, behind) in pairwise(spans):
            assert start <= after
            assert end <= behind
            # Pieces share a character where it is made into several (``½``).
            assert after >= end - 1
        held = {place for start, end in spans for place in range(start, end)}
        lost = [text[place] for place in range(len(text)) if place not in held]
        assert not any(c.isalnum() and c.isascii() for c in lost)


@pytest.fixture(scope="module")
def saved_by_others(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """DeBERTa-v3's as the versions 4 and 5 of transformers save it: text is stripped."""
    folder = tmp_path_factory.mktemp("deberta")
    (folder / "spm.model").write_bytes(unigrams.deberta_bytes(falls_back=True))
    Tokenizer.load(folder).save(folder)
    file = folder / "tokenizer.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    value["pre_tokenizer"]["pretokenizers"].pop(0)
    loaded = []
    for left, expression in ((True, " {2,}"), (False, r"\s{2,}|[\n\r\t]")):
        strip = {"type": "Strip", "strip_left": left, "strip_right": True}
        replace = {"type": "Replace", "pattern": {"Regex": expression}, "content": " "}
        steps = [strip, replace] if left else [replace, {"type": "NFC"}, strip]
        value["normalizer"] = {"type": "Sequence", "normalizers": steps}
        file.write_text(json.dumps(value))
        loaded.append(Tokenizer.load(folder))
    return loaded


@settings(max_examples=300, deadline=None)
@given(MIXED)
def test_words_have_the_pieces_of_their_text(
    albert: Tokenizer, xlm_r: Tokenizer, saved_by_others: list[Tokenizer], text: str
) -> None:
    for tokenizer in (albert, xlm_r, *saved_by_others):
        whole = tokenizer.encode(text).input_ids[1:-1]
        assert tokenizer.encode_plain([text]) == [whole]
        ends = [match.end() for match in tokenizer._bounded._cut.finditer(text)]
        parts = [text[a:b] for a, b in pairwise([0, *ends, len(text)])]
        assert [i for part in parts for i in tokenizer.encode(part).input_ids[1:-1]] == whole


def test_every_character_beside_a_space_leaves_words_alone(albert: Tokenizer) -> None:
    texts = [
        f"cat {c}s {c} t{c} \n{c}the"
        for c in map(chr, [*range(0x2100), *range(0x3000, 0x3100), *range(0xFE00, 0x10000)])
    ]
    expected = [each.input_ids[1:-1] for each in albert.encode_batch(texts)]
    assert albert.encode_plain(texts) == expected


def test_a_text_in_parts_is_that_of_the_whole(
    albert: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "The unbelievable [MASK] cats sat;  Zoë 1,999 ''x'' " * 40
    whole = albert.encode(text)
    monkeypatch.setattr(bounded, "_CHARS_OF_A_PART", 7)
    monkeypatch.setattr(bounded, "_CHARS_AT_A_TIME", 50)
    assert len(list(albert._bounded._cuts(text))) > 60
    assert albert.encode(text) == whole


def test_a_million_letters_without_a_space(albert: Tokenizer) -> None:
    ids = albert.encode_plain(["ab" * 500_000])[0]
    assert len(ids) == 1_000_001


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


def test_pieces_that_are_not_used_are_found_in_no_text(tmp_path: Path) -> None:
    listed = [*unigrams.ALBERT_SPECIALS, *((t, s, NORMAL) for t, s in PIECES)]
    listed.append(("▁cats", -0.1, UNUSED))
    (tmp_path / "spiece.model").write_bytes(model_bytes(listed))
    tokenizer = Tokenizer.load(tmp_path)
    assert pieces(tokenizer, "cats cats") == ["▁cat", "s"] * 2
    assert tokenizer.vocab_size == len(listed)


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
        (change_of("model/vocab/7/1", 1e300), "entry 7 of vocab is"),
        (change_of("model/vocab/7/0", "the same"), None),
        (change_of("model/vocab/7/0", ","), "are not 0.."),
        (change_of("model/vocab/4/0", "[MUSK]"), "has neither ALBERT's .<pad> <unk> .CLS"),
        (change_of("model/unk_id", None), "unk_id is None, but must be the number of a piece"),
        (change_of("model/unk_id", 10**9), "unk_id is 1000000000, but must be"),
        (change_of("model/unk_id", 7), "but must be that of <unk>"),
        (change_of("model/byte_fallback", 1), "byte_fallback is 1, but must be true or false"),
        (change_of("model/byte_fallback", True), None),
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


def test_words_that_are_divided_at_the_sign_alone(tmp_path: Path, xlm_r: Tokenizer) -> None:
    """As newer converters write it: without a division at white space."""
    xlm_r.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    value["pre_tokenizer"] = value["pre_tokenizer"]["pretokenizers"][1]
    file.write_text(json.dumps(value))
    value["added_tokens"][-1]["lstrip"] = True
    file.write_text(json.dumps(value))
    other = Tokenizer.load(tmp_path)
    text = "the cat sat, unbelievable <mask> cats"
    assert other.encode(text).offsets == xlm_r.encode(text).offsets
    assert other.encode(text).input_ids == xlm_r.encode(text).input_ids
    assert other.encode_plain(["a  cat "]) == [other.encode("a  cat ").input_ids[1:-1]]
