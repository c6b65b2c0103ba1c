"""What is Bertine's own in byte-level BPE: names of pieces, words, long texts, files and errors."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.tokenization import word_cache
from bertine.tokenization.base import bare, goes_on, run_together
from bertine.tokenization.byte_bpe import ALPHABET, FIRST_TOKENS, ByteBpe
from bertine.tokenization.tokenizer import Tokenizer

#: A vocabulary of bytes and a few merges.
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("c", "a"), ("ca", "t"), ("Ġ", "cat")]
TOKENS = [*FIRST_TOKENS, *ALPHABET, *("".join(pair) for pair in MERGES), "<mask>"]
IDS = {token: index for index, token in enumerate(TOKENS)}

PARTS = st.sampled_from(
    [
        " ",
        "  ",
        "\n",
        " \n ",
        "\u00a0",
        "\x1c",
        "'s",
        "a1",
        "1a",
        "，",
        "。",
        "中",
        "<mask>",
        "</s>",
    ]
)
ANYTHING = st.text(max_size=6)  # with lone surrogates
MIXED = st.lists(st.one_of(PARTS, ANYTHING), max_size=20).map("".join)


@pytest.fixture
def small() -> Tokenizer:
    return Tokenizer(ByteBpe.build(IDS, MERGES, add_prefix_space=False, source="test"), "test")


@pytest.fixture(scope="module")
def published(roberta: Path) -> Tokenizer:
    return Tokenizer.load(roberta)


@pytest.fixture(scope="module")
def prefixed(published: Tokenizer) -> Tokenizer:
    """It reads a text as if a space stood before it."""
    value = json.loads(published.backend.to_str())
    value["pre_tokenizer"]["add_prefix_space"] = True
    return Tokenizer(ByteBpe.from_json(Path("t.json"), value, {}), "t.json")


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.tokens[i] for i in tokenizer.encode_plain([text])[0]]


def test_pieces_ids_and_specials(small: Tokenizer) -> None:
    assert small.kind == "byte-bpe"
    assert pieces(small, "the cat <mask>s.") == ["the", "Ġcat", "<mask>", "s", "."]
    encoding = small.encode("the", "cat the")
    assert [small.tokens[i] for i in encoding.input_ids] == (
        ["<s>", "the", "</s>", "</s>", "cat", "Ġthe", "</s>"]
    )
    assert encoding.token_type_ids == [0, 0, 0, 0, 1, 1, 1]
    assert encoding.special_tokens_mask == [1, 0, 1, 1, 0, 0, 1]
    assert encoding.offsets == [(0, 0), (0, 3), (0, 0), (0, 0), (0, 3), (4, 7), (0, 0)]
    assert (small.cls_token_id, small.pad_token_id, small.sep_token_id) == (0, 1, 2)
    assert (small.unk_token_id, small.mask_token_id) == (3, len(TOKENS) - 1)
    assert small.special_ids == {0, 1, 2, 3, len(TOKENS) - 1}
    assert small.mask_text == "<mask>"
    assert not any([small.lowercase, small.strip_accents, small.split_chinese])
    with pytest.raises(BertineError, match=r"no room for <s> and </s>; give at least 4"):
        small.encode("a", "b", max_length=3)


def test_a_piece_goes_on_unless_it_begins_with_a_space(published: Tokenizer) -> None:
    text = 'The unbelievably "good" cat, don\'t <mask> 你.'
    ids = published.encode(text).input_ids
    names = [published.names[i] for i in ids]
    goes = [bool(published.continues[i]) for i in ids]
    assert goes == [goes_on(name) for name in names]
    assert names[:2] == ["<s>", "##The"]  # nothing marks the first word of a text
    assert published.name_at(ids[1], True) == "The"
    assert {"##good", "##,", "##'t", "<mask>"} <= set(names)
    assert not any(published.continues[i] for i in published.special_ids)
    shown = run_together(names[1:-1])
    assert shown.startswith('The unbelievably "good" cat, don\'t <mask> ')
    assert not published.continues[published.token_to_id("Ġthe")]
    for token, name in {"Ġ": "␣", "Ċ": "##\\n", "Ġthe": "the", "the": "##the"}.items():
        assert published.names[published.token_to_id(token)] == name


def test_a_piece_is_put_where_the_mask_and_its_space_were(small: Tokenizer) -> None:
    begins, goes = IDS["Ġcat"], IDS["cat"]

    def filled(text: str, index: int) -> str:
        encoding = small.encode(text)
        start, end = encoding.offsets[encoding.input_ids.index(small.mask_token_id)]
        assert text[start:end] == "<mask>"
        return small.put_piece(text, start, end, index)

    assert filled("the <mask>.", begins) == "the cat."
    assert filled("the <mask>.", goes) == "thecat."
    assert filled("<mask>.", begins) == filled("<mask>.", goes) == "cat."
    assert filled("(<mask>)", begins) == "( cat)"
    assert filled("the  <mask>", begins) == "the  cat"


@settings(max_examples=100, deadline=None)
@given(MIXED)
def test_decoding_gives_a_text_back(published: Tokenizer, text: str) -> None:
    ids = published.encode_plain([text])[0]
    special = any(index in published.special_ids for index in ids)
    if not special:
        expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        # A lone surrogate is U+FFFD; a pair of them, which Python keeps apart, is two.
        if not any("\ud800" <= c <= "\udfff" for c in text):
            assert published.decode(ids) == text == expected
        assert published.decode(ids).count("\ufffd") >= text.count("\ufffd")


@settings(max_examples=100, deadline=None)
@given(MIXED)
def test_offsets_are_characters_in_order_and_without_gaps(published: Tokenizer, text: str) -> None:
    """Every character is a piece's, but for the white space before words."""
    encoding = published.encode(text)
    spans = encoding.offsets[1:-1]
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    for (start, end), (after, behind) in pairwise(spans):
        assert start <= after
        assert end <= behind
        # Several pieces may share a character, of which each has some bytes.
        assert after >= end or (start, end) == (after, behind) or after == end - 1
    held = {place for start, end in spans for place in range(start, end)}
    assert all(text[place].isspace() for place in range(len(text)) if place not in held)


def test_words_of_characters_have_their_places(published: Tokenizer) -> None:
    text = "Naïve  CAFÉ\u0301s — 你好 <mask> 😀 end"
    encoding = published.encode("first", text)
    begin = encoding.token_type_ids.index(1)
    found = [text[a:b] for a, b in encoding.offsets[begin:-1]]
    assert found[-1] == "end"
    assert "<mask>" in found
    assert "😀" in found
    assert "".join(dict.fromkeys(found)).replace(" ", "").startswith("Naïve")
    assert not any(piece.startswith(" ") for piece in found)


@settings(max_examples=100, deadline=None)
@given(MIXED)
def test_no_piece_crosses_a_place_to_cut(
    published: Tokenizer, prefixed: Tokenizer, text: str
) -> None:
    for tokenizer in (published, prefixed):
        ends = [match.end() for match in tokenizer._bounded._cut.finditer(text)]
        parts = [text[a:b] for a, b in pairwise([0, *ends, len(text)])]
        whole = tokenizer.encode(text).input_ids[1:-1]
        assert [i for part in parts for i in tokenizer.encode(part).input_ids[1:-1]] == whole
        assert tokenizer.encode_plain([text]) == [whole]


@pytest.mark.slow
def test_a_text_in_parts_is_that_of_the_whole(
    published: Tokenizer, prefixed: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "Élan <mask> vital, unbelievable;  e\u0301 中文字。x.</s> don't\n a1b2 " * 40 + "q" * 3000
    )
    for tokenizer in (published, prefixed):
        whole = tokenizer.encode(text)
        with monkeypatch.context() as patch:
            patch.setattr(word_cache, "_CHARS_OF_A_PART", 7)
            patch.setattr(word_cache, "_CHARS_AT_A_TIME", 50)
            assert len(list(tokenizer._bounded._cuts(text))) > 100
            assert tokenizer.encode(text) == whole
        assert tokenizer.encode_plain([text, "short", "", text])[3] == whole.input_ids[1:-1]


@pytest.mark.slow
def test_a_million_letters_without_a_space(published: Tokenizer) -> None:
    text = "ab1," * 250_000
    assert published.decode(published.encode_plain([text])[0]) == text


def saved(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    tokenizer.save(folder)
    return json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(normalizer={"type": "NFKC"}), "has a normalizer"),
        (lambda v: v.update(pre_tokenizer=None), "pre_tokenizer is missing, not ByteLevel"),
        (lambda v: v["pre_tokenizer"].update(use_regex=False), "use_regex"),
        (lambda v: v["pre_tokenizer"].update(add_prefix_space="x"), "not a tokenizer"),
        (lambda v: v["model"].update(dropout=0.1), "dropout is 0.1"),
        (lambda v: v["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (lambda v: v["model"].update(ignore_merges=True), "ignore_merges is True"),
        (lambda v: v["model"].update(unk_token="x"), "unk_token is 'x', but must be <unk>"),
        (lambda v: v["model"].update(vocab=[]), "must be an object of ids by token"),
        (lambda v: v["model"]["vocab"].update(zz=1.5), "must be a whole number"),
        (lambda v: v["model"]["vocab"].update(zz=10**12), "not a tokenizer"),
        (lambda v: v["model"]["vocab"].update(zz=9999), "are not 0.."),
        (lambda v: v["model"]["vocab"].pop("<mask>"), "special token <mask>;"),
        (lambda v: v["model"]["vocab"].pop("A"), "lacks 1 of the 256 bytes .A."),
        (lambda v: v.update(added_tokens=[{"id": 1}]), "added_tokens must be"),
        (
            lambda v: v["model"].update(type="WordLevel"),
            "its model is WordLevel, not WordPiece or BPE",
        ),
    ],
)
def test_files_that_cannot_be_used_are_one_line_errors(
    tmp_path: Path, small: Tokenizer, change: Any, message: str
) -> None:
    value = saved(small, tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    change(value)
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(BertineError, match=message) as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ("#version: 0.2\nt h\nt", "merges.txt:3: must hold two tokens"),
        ("t h x", "merges.txt:1: must hold two tokens"),
        ("t zz", "not a tokenizer"),
        (None, "merges.txt"),
    ],
)
def test_merges_that_cannot_be_used_are_one_line_errors(
    tmp_path: Path, merges: str | None, message: str
) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(IDS))
    if merges is not None:
        (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(BertineError, match=message):
        Tokenizer.load(tmp_path / "vocab.json")


def test_a_folder_is_known_by_its_files(tmp_path: Path, small: Tokenizer) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(IDS))
    with pytest.raises(BertineError, match=r"no vocab.txt and no vocab.json with merges.txt"):
        Tokenizer.load(tmp_path)
    lines = [" ".join(pair) for pair in MERGES]
    (tmp_path / "merges.txt").write_bytes("\r\n".join(["#version: 0.2", *lines]).encode())
    for path in (tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"):
        assert Tokenizer.load(path).fingerprint == small.fingerprint
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    assert pieces(Tokenizer.load(tmp_path), "the") == ["Ġthe"]
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": 1}')
    with pytest.raises(BertineError, match="add_prefix_space is 1, but must be true"):
        Tokenizer.load(tmp_path)


def test_the_settings_file_goes_before_the_tokenizer_file(
    tmp_path: Path, small: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(small, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    assert pieces(Tokenizer.load(tmp_path), "the") == ["Ġthe"]
    assert "add_prefix_space True" in " ".join(capsys.readouterr().err.split())


def test_tokens_that_reach_beyond_words_are_found(tmp_path: Path, small: Tokenizer) -> None:
    """Added by others: with spaces inside, or taking those behind them."""
    value = saved(small, tmp_path)
    plain = {"single_word": False, "lstrip": False, "normalized": False, "special": False}
    value["added_tokens"] += [
        {"id": len(TOKENS), "content": "new york", "rstrip": False, **plain},
        {"id": len(TOKENS) + 1, "content": "<x>", "rstrip": True, **plain},
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab_size == len(TOKENS) + 2
    assert pieces(tokenizer, "the new york <x>  cat") == ["the", "Ġ", "new york", "Ġ", "<x>", "cat"]
    assert (
        tokenizer.encode("the new york <x>  cat").input_ids[1:-1]
        == (tokenizer.encode_plain(["the new york <x>  cat"])[0])
    )
    assert [bare(tokenizer.names[i]) for i in (-2, -1)] == ["new york", "<x>"]


def test_it_extends_no_other(small: Tokenizer, published: Tokenizer) -> None:
    assert not published.extends(small)
    assert small.parts_of("Ġthecat") == []


def test_words_are_those_of_the_middle_of_a_text(small: Tokenizer) -> None:
    ids, lengths = small.encode_words(["the", "cat", "cats"])
    assert [small.tokens[i] for i in ids] == ["Ġthe", "Ġcat", "Ġcat", "s"]
    assert lengths.tolist() == [1, 1, 2]
