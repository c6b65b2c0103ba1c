"""What is Bertine's own in the tokenizer: truncation, loading, errors, long texts, forks."""

import json
import subprocess
import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.tokenization import word_cache
from bertine.tokenization.base import longest_first
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.wordpiece import SPECIAL_TOKENS

TOKENS = [*SPECIAL_TOKENS, "the", "cat", "sat", "##s", "un", "##able", ".", "中", "a", "b", "c"]

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
#: Characters at which, and around which, a text may be cut.
CUTS = ["[MASK]", " ", "\n", "\u0301", "中", "。", "-", "a", "É", "]", "/"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(TOKENS)


@pytest.fixture(scope="module")
def uncased(published) -> Tokenizer:
    return Tokenizer.load(published["bert-base-uncased"])


def pieces(tokenizer, text):
    return [tokenizer.tokens[i] for i in tokenizer.encode_plain([text])[0]]


def test_pieces_ids_and_specials(tokenizer):
    assert pieces(tokenizer, "The CATS sat. unable 中中 dog") == (
        ["the", "cat", "##s", "sat", ".", "un", "##able", "中", "中", "[UNK]"]
    )
    encoding = tokenizer.encode("the cat", "sat")
    assert [tokenizer.tokens[i] for i in encoding.input_ids] == (
        ["[CLS]", "the", "cat", "[SEP]", "sat", "[SEP]"]
    )
    assert encoding.token_type_ids == [0, 0, 0, 0, 1, 1]
    assert encoding.special_tokens_mask == [1, 0, 0, 1, 0, 1]
    assert encoding.offsets == [(0, 0), (0, 3), (4, 7), (0, 0), (0, 3), (0, 0)]
    assert encoding.num_truncated == 0
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    assert tokenizer.token_to_id("cat") == 6
    assert tokenizer.token_to_id("Cat") is None
    assert tokenizer.decode(encoding.input_ids) == "the cat sat"


def test_offsets_point_at_the_words_of_the_original_text(uncased):
    text = "Naïve  CAFÉ\u0301s — 你好\u200b [MASK] İstanbul e\u0301t\u0301é 😀."
    encoding = uncased.encode("first", text)
    begin = encoding.token_type_ids.index(1)
    found = {
        uncased.tokens[i]: text[a:b]
        for i, (a, b) in zip(encoding.input_ids[begin:-1], encoding.offsets[begin:-1], strict=True)
    }
    assert found["naive"] == "Naïve"
    assert found["cafes"] == "CAFÉ\u0301s"
    assert found["—"] == "—"
    assert found["[MASK]"] == "[MASK]"
    assert found["istanbul"] == "İstanbul"
    assert found["."] == "."


def test_offsets_of_a_text_in_parts_are_those_of_the_whole(uncased, monkeypatch):
    text = (
        "Élan [MASK] vital, unbelievable; e\u0301 中文字。x.[SEP] don't " * 40 + "q" * 3000 + " end"
    )
    whole = uncased.encode(text)
    plain = uncased.encode_plain([text, "short", "", text])
    monkeypatch.setattr(word_cache, "_CHARS_OF_A_PART", 7)
    monkeypatch.setattr(word_cache, "_CHARS_AT_A_TIME", 50)
    assert len(list(uncased._bounded._cuts(text))) > 100
    parts = uncased.encode(text)
    assert parts == whole
    for encoding in (whole, parts):
        assert encoding.input_ids[1:-1] == plain[0] == plain[3]
    assert uncased.encode_plain([text, "short", "", text]) == plain


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased"])
def test_no_piece_crosses_a_place_to_cut(published, name):
    tokenizer = Tokenizer.load(published[name])

    @settings(deadline=None)
    @given(st.lists(st.one_of(st.sampled_from(CUTS), ANY), max_size=30).map("".join))
    def check(text):
        ends = [match.end() for match in tokenizer._bounded._cut.finditer(text)]
        parts = [text[a:b] for a, b in pairwise([0, *ends, len(text)])]
        whole = tokenizer.encode_plain([text])[0]
        assert [i for part in tokenizer.encode_plain(parts) for i in part] == whole

    check()


def test_a_word_of_ten_million_letters_is_unknown(uncased):
    ids = uncased.encode_plain(["a " + "z" * 10_000_000 + " b"])[0]
    assert [uncased.tokens[i] for i in ids] == ["a", "[UNK]", "b"]


def test_batches_keep_the_order_of_many_texts(uncased):
    texts = [f"{'' if i % 7 else 'the '}{i}" for i in range(10_000)]
    batch = uncased.encode_plain(texts)
    for i in (0, 1, 4095, 4096, 4097, 8192, 9999):
        assert batch[i] == uncased.encode_plain([texts[i]])[0]
    assert len(batch) == len(texts)
    assert uncased.encode_plain([]) == []
    assert uncased.encode_batch([]) == []


def cut_as_the_paper(a, b, room):
    """Popping one by one, as the published code describes it."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 130))
def test_longest_first_is_the_papers(a, b, room):
    assert longest_first(a, b, room) == cut_as_the_paper(a, b, room)


def test_truncation_cuts_the_longer_and_is_counted(tokenizer):
    encoding = tokenizer.encode("a a a a a a", "b c", max_length=8)
    assert tokenizer.decode(encoding.input_ids, skip_special_tokens=False) == (
        "[CLS] a a a [SEP] b c [SEP]"
    )
    assert encoding.num_truncated == 3
    assert len(encoding.offsets) == len(encoding.token_type_ids) == 8
    assert encoding.offsets[-3:-1] == [(0, 1), (2, 3)]
    single = tokenizer.encode("a b c", max_length=4)
    assert tokenizer.decode(single.input_ids) == "a b"
    assert single.num_truncated == 1
    assert tokenizer.encode("a b c", max_length=5).num_truncated == 0


def test_max_length_without_room_is_refused(tokenizer):
    with pytest.raises(BertineError, match=r"max_length 2 .* at least 3"):
        tokenizer.encode("a", "b", max_length=2)
    assert tokenizer.encode("a", max_length=2).input_ids == [2, 3]


def test_lone_surrogates_are_dropped_not_fatal(tokenizer):
    encoding = tokenizer.encode("a\ud800 b")
    assert tokenizer.decode(encoding.input_ids) == "a b"
    assert encoding.offsets[2] == (3, 4)


def test_an_id_out_of_range_is_refused(tokenizer):
    for bad in (-1, len(TOKENS)):
        with pytest.raises(BertineError, match=f"token id {bad} is out of range"):
            tokenizer.id_to_token(bad)
        with pytest.raises(BertineError, match=f"token id {bad} is out of range"):
            tokenizer.decode([0, bad])


def test_save_and_load_give_the_same_tokenizer(tmp_path):
    for lowercase, accents, chinese in [
        (True, None, True),
        (False, None, True),
        (True, False, True),
        (False, True, False),
    ]:
        first = Tokenizer.from_vocab(
            TOKENS, lowercase=lowercase, strip_accents=accents, split_chinese=chinese
        )
        first.save(tmp_path)
        text = ["The cát sat 中中 [MASK]"]
        (tmp_path / "tokenizer.json").rename(tmp_path / "aside")
        from_vocabulary = Tokenizer.load(tmp_path)
        (tmp_path / "aside").rename(tmp_path / "tokenizer.json")
        for again in (Tokenizer.load(tmp_path), from_vocabulary):
            assert again.tokens == TOKENS
            assert again.fingerprint == first.fingerprint
            assert again.encode_plain(text) == first.encode_plain(text)


def test_fingerprint_tells_vocabularies_and_settings_apart():
    variants = [
        Tokenizer.from_vocab(TOKENS),
        Tokenizer.from_vocab(TOKENS, lowercase=False),
        Tokenizer.from_vocab(TOKENS, strip_accents=False),
        Tokenizer.from_vocab(TOKENS, split_chinese=False),
        Tokenizer.from_vocab([*TOKENS, "d"]),
        Tokenizer.from_vocab([*TOKENS[:-2], "c", "b"]),
    ]
    assert len({variant.fingerprint for variant in variants}) == len(variants)
    # Accents follow lower case where nothing is said: the same ids, the same fingerprint.
    spelled_out = Tokenizer.from_vocab(TOKENS, strip_accents=True)
    assert spelled_out.fingerprint == variants[0].fingerprint


@pytest.mark.parametrize(
    ("extra", "lowercase"), [([], True), (["<S>", "[Q]"], True), (["Cat"], False), (["É"], True)]
)
def test_case_is_guessed_from_capitals_outside_brackets(tmp_path, extra, lowercase):
    (tmp_path / "vocab.txt").write_text("\n".join([*TOKENS, *extra]) + "\n", encoding="utf-8")
    assert Tokenizer.load(tmp_path).lowercase is lowercase
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not lowercase}))
    assert Tokenizer.load(tmp_path).lowercase is not lowercase


def test_capitals_that_transformers_would_lower_are_told(tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("\n".join([*TOKENS, "Cat"]), encoding="utf-8")
    Tokenizer.load(tmp_path)
    assert capsys.readouterr().err == ""
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    Tokenizer.load(tmp_path)
    assert "vocab.txt: has capitals, so texts keep theirs" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_saved_tokenizer_that_truncates_and_pads_is_freed_of_it(tmp_path, tokenizer):
    tokenizer.save(tmp_path)
    value = json.loads((tmp_path / "tokenizer.json").read_text())
    value["truncation"] = {
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
        "direction": "Right",
    }
    value["padding"] = {
        "strategy": {"Fixed": 4},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    again = Tokenizer.load(tmp_path)
    assert again.encode_plain(["a b c a b c", "a"]) == tokenizer.encode_plain(["a b c a b c", "a"])


def test_the_settings_file_goes_before_the_tokenizer_file(tmp_path, tokenizer, capsys):
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert Tokenizer.load(tmp_path).lowercase is False
    assert "do_lower_case False" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("missing", SPECIAL_TOKENS)
def test_a_missing_special_token_is_named(tmp_path, missing):
    file = tmp_path / "vocab.txt"
    file.write_text("".join(f"{token}\n" for token in TOKENS if token != missing), encoding="utf-8")
    with pytest.raises(BertineError) as error:
        Tokenizer.load(tmp_path)
    assert str(file) in str(error.value)
    assert f"special token {missing};" in str(error.value)


def test_a_token_twice_is_named_with_its_lines(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*TOKENS, "cat"]), encoding="utf-8")
    with pytest.raises(
        BertineError, match=r"vocab.txt: the token 'cat' is there 2 times .lines 7, 17"
    ):
        Tokenizer.load(tmp_path)


def test_a_vocabulary_with_windows_line_ends_is_read(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*TOKENS, ""]).encode())
    assert Tokenizer.load(tmp_path).tokens == TOKENS


def test_bad_folders_are_one_line_errors(tmp_path):
    with pytest.raises(BertineError, match="No such file"):
        Tokenizer.load(tmp_path / "none")
    with pytest.raises(BertineError, match=r"no tokenizer.json and no vocab.txt"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    with pytest.raises(BertineError, match="its pre_tokenizer is missing, not ByteLevel"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordLevel"}}')
    with pytest.raises(BertineError, match="its model is WordLevel, not WordPiece or BPE"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(BertineError, match="not valid JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BertineError, match="not UTF-8"):
        Tokenizer.load(tmp_path / "vocab.txt")


FORK = """
import os, sys
from bertine.tokenization.tokenizer import Tokenizer
tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
texts = ["a a"] * 5000
before = tokenizer.encode_plain(texts)
child = os.fork()
if child == 0:
    os._exit(0 if tokenizer.encode_plain(texts) == before else 1)
sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_worker_neither_hangs_nor_warns():
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_words_by_themselves_have_the_pieces_that_they_have_in_a_text(uncased: Tokenizer) -> None:
    """Whatever character may part two words, or join them: as in the tokenizer of whole texts."""
    parting = [
        chr(point)
        for point in range(0x110000)
        if unicodedata.category(chr(point)) in ("Cc", "Cf", "Zs", "Zl", "Zp")
        or chr(point).isspace()
    ]
    assert len(parting) > 150
    texts = [f"cat{c}dog {c} the{c} {c}mat [MASK]{c}x" for c in parting]
    expected = [uncased.encode(text).input_ids[1:-1] for text in texts]
    for _ in range(2):  # new words, then remembered ones
        assert uncased.encode_plain(texts) == expected
    for text, ids in zip(texts, expected, strict=True):
        assert uncased.encode_plain([text]) == [ids]


def test_what_is_remembered_is_bounded(uncased: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertine.tokenization.word_cache._REMEMBERED", 50)
    texts = [" ".join(f"w{number}x{i}" for i in range(20)) for number in range(30)]
    expected = [uncased.encode(text).input_ids[1:-1] for text in texts]
    assert [uncased.encode_plain([text])[0] for text in texts] == expected
    assert len(uncased._remembered) <= 50 + 20
    uncased.encode_plain(["y" * 200])
    assert "y" * 200 not in uncased._remembered
    for number in range(30):  # what comes often stays, what came once goes
        uncased.encode_plain([" ".join(["often", *(f"v{number}x{i}" for i in range(20))])])
    assert "often" in uncased._remembered
    assert "v0x1" not in uncased._remembered
    assert uncased.encode_plain(["often v0x1"]) == [uncased.encode("often v0x1").input_ids[1:-1]]


def test_arrays_are_what_encodings_hold(uncased: Tokenizer) -> None:
    texts = ["the cat sat on the mat, unbelievably", "", "[MASK] a b", "x " * 30, "日本 cafe\u0301"]
    pairs = ["a dog", "", "two words", "the " * 25, "naive"]
    for seconds in (None, pairs):
        for limit in (None, 3, 4, 9, 20):
            expected = uncased.encode_batch(texts, seconds, max_length=limit)
            found = uncased.encode_arrays(texts, seconds, max_length=limit)
            for encoding, (ids, types, cut) in zip(expected, found, strict=True):
                assert ids.tolist() == encoding.input_ids
                assert types.tolist() == encoding.token_type_ids
                assert cut == encoding.num_truncated
    assert uncased.encode_arrays([]) == []
    with pytest.raises(BertineError, match="no room"):
        uncased.encode_arrays(["a"], max_length=1)
    with pytest.raises(ValueError, match="1 texts, but 2 pairs"):
        uncased.encode_arrays(["a"], ["b", "c"])
