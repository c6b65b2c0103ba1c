"""Unigram on texts: the characters of each piece, words by themselves, long texts in parts."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unigrams
from bertine.tokenization import word_cache
from bertine.tokenization.tokenizer import Tokenizer

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


def test_each_piece_has_its_characters(albert: Tokenizer) -> None:
    text = "The  CÁTS, ''zoo'' (½) ﬁne"
    encoding = albert.encode(text)
    held = [text[a:b] for a, b in encoding.offsets[1:-1]]
    shown = [albert.tokens[i] for i in encoding.input_ids[1:-1]]
    assert held[:5] == ["The", "CÁT", "S", ",", ""]
    assert (held[5], shown[4:6]) == ("''", ["▁", '"'])
    assert held[held.index("ﬁ")] == "ﬁ"


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
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


@pytest.mark.slow
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
    monkeypatch.setattr(word_cache, "_CHARS_OF_A_PART", 7)
    monkeypatch.setattr(word_cache, "_CHARS_AT_A_TIME", 50)
    assert len(list(albert._bounded._cuts(text))) > 60
    assert albert.encode(text) == whole


def test_a_million_letters_without_a_space(albert: Tokenizer) -> None:
    ids = albert.encode_plain(["ab" * 500_000])[0]
    assert len(ids) == 1_000_001


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
