"""Byte-level BPE: id for id what `transformers` gives, and what GPT-2's published code gives.

`transformers` stands on the same library as Bertine; :func:`published_ids` shares no code with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from itertools import islice, pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertine.tokenization.byte_bpe import ALPHABET
from bertine.tokenization.documents import Corpus
from bertine.tokenization.tokenizer import Tokenizer
from roberta import FIXTURES

transformers = pytest.importorskip("transformers")
regex = pytest.importorskip("regex")

GOLDEN = json.loads((FIXTURES / "roberta-ids.json").read_text(encoding="utf-8"))
TEXTS: list[str] = GOLDEN["texts"]
#: Real texts, many more than the package carries.
DATA = Path(
    os.environ.get("BERTINE_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data")
)
MASK = tokenizers.AddedToken("<mask>", lstrip=True)

#: What decides where a text is divided, and special tokens.
PARTS = st.sampled_from(
    [
        *(" ", "  ", "\n", "\t", " \n", "\u00a0", "\u3000", "\x1c", "\x85", "'s", "'re", "'", "a1"),
        *("<mask>", " <mask>", "<s>", "</s>", "<pad>", "the", " the", "é", "e\u0301", "中", "😀"),
    ]
)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MIXED = st.lists(st.one_of(PARTS, ANYTHING), max_size=12).map("".join)


@pytest.fixture(scope="module")
def ours(roberta: Path) -> Tokenizer:
    return Tokenizer.load(roberta)


@pytest.fixture(scope="module")
def theirs(roberta: Path):
    return transformers.RobertaTokenizer.from_pretrained(roberta, mask_token=MASK)


@pytest.fixture(scope="module")
def published_ids(roberta: Path) -> Callable[[str], list[int]]:
    """The algorithm of openai/gpt-2, ``encoder.py``, over RoBERTa's ids."""
    ids = json.loads((roberta / "vocab.json").read_text(encoding="utf-8"))
    lines = (roberta / "merges.txt").read_text(encoding="utf-8").split("\n")[1:-1]
    ranks = {tuple(line.split()): rank for rank, line in enumerate(lines)}
    pattern = regex.compile(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    character = {byte: char for char, byte in ALPHABET.items()}

    @cache
    def pieces(word: str) -> list[str]:
        parts = list(word)
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
            if best not in ranks:
                break
            merged, at = [], 0
            while at < len(parts):
                if tuple(parts[at : at + 2]) == best:
                    merged.append("".join(best))
                    at += 2
                else:
                    merged.append(parts[at])
                    at += 1
            parts = merged
        return parts

    def encode(text: str) -> list[int]:
        found: list[int] = []
        for word in pattern.findall(text):
            found += (ids[p] for p in pieces("".join(character[b] for b in word.encode())))
        return found

    return encode


def test_ids_are_those_that_were_written_down(ours: Tokenizer) -> None:
    assert [each.input_ids for each in ours.encode_batch(TEXTS)] == GOLDEN["ids"]
    assert [ids[1:-1] for ids in GOLDEN["ids"]] == ours.encode_plain(TEXTS)
    pairs = ours.encode_arrays(TEXTS, TEXTS[::-1], max_length=33)
    assert [ids.tolist() for ids, _, _ in pairs] == GOLDEN["pairs_of_33"]
    assert ours.encode("Hello world").input_ids == [0, 31414, 232, 2]


def test_the_alphabet_is_that_of_the_published_code(ours: Tokenizer) -> None:
    assert set(ALPHABET) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert [ALPHABET[c] for c in "Ġ!ÿĊ"] == [0x20, 0x21, 0xFF, 0x0A]
    assert sorted(ALPHABET.values()) == list(range(256))


def test_ids_and_offsets_of_texts(ours: Tokenizer, theirs) -> None:
    want = theirs(TEXTS, return_offsets_mapping=True)
    got = ours.encode_batch(TEXTS)
    assert [each.input_ids for each in got] == want["input_ids"]
    assert [each.offsets for each in got] == want["offset_mapping"]


@pytest.mark.parametrize("max_length", [None, 4, 5, 9, 10, 33])
def test_pairs_are_cut_as_there(ours: Tokenizer, theirs, max_length: int | None) -> None:
    others = TEXTS[::-1]
    cut = "longest_first" if max_length else False
    want = theirs(TEXTS, others, truncation=cut, max_length=max_length)["input_ids"]
    got = ours.encode_batch(TEXTS, others, max_length=max_length)
    assert [each.input_ids for each in got] == want
    arrays = ours.encode_arrays(TEXTS, others, max_length=max_length)
    assert [ids.tolist() for ids, _, _ in arrays] == want
    for (_, segments, lost), each in zip(arrays, got, strict=True):
        assert segments.tolist() == each.token_type_ids
        assert lost == each.num_truncated


@settings(max_examples=100, deadline=None)
@given(MIXED)
def test_ids_and_offsets_on_random_unicode(ours: Tokenizer, theirs, text: str) -> None:
    want = theirs(text, return_offsets_mapping=True)
    got = ours.encode(text)
    assert got.input_ids == want["input_ids"]
    assert got.offsets == want["offset_mapping"]
    assert ours.encode_plain([text])[0] == got.input_ids[1:-1]


# Scripts whose letters, numbers and marks all versions of Unicode know.
STABLE = st.one_of(
    st.characters(min_codepoint=9, max_codepoint=0x24F),
    st.characters(min_codepoint=0x391, max_codepoint=0x3A1),
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5),
    st.sampled_from("\u2003\u3000\u2028。，“”—…é😀½²٣"),
)


@settings(max_examples=200, deadline=None)
@given(st.text(STABLE, max_size=40))
def test_ids_are_those_of_the_published_algorithm(
    ours: Tokenizer, published_ids: Callable[[str], list[int]], text: str
) -> None:
    # The algorithm knows no special tokens, whose names in a text are these tokens here.
    assume(not any(token in text for token in ("<s>", "</s>", "<pad>", "<unk>", "<mask>")))
    assert ours.encode_plain([text])[0] == published_ids(text)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [False, True])
def test_each_opens_what_the_other_saves(
    tmp_path: Path, roberta: Path, ours: Tokenizer, prefix: bool
) -> None:
    theirs = transformers.RobertaTokenizer.from_pretrained(
        roberta, mask_token=MASK, add_prefix_space=prefix
    )
    theirs.save_pretrained(tmp_path / "theirs")
    again = Tokenizer.load(tmp_path / "theirs")
    want = theirs(TEXTS, TEXTS[::-1], return_offsets_mapping=True)
    assert [each.input_ids for each in again.encode_batch(TEXTS, TEXTS[::-1])] == want["input_ids"]
    assert [ids[1:-1] for ids in theirs(TEXTS)["input_ids"]] == again.encode_plain(TEXTS)
    assert (again.fingerprint == ours.fingerprint) is not prefix
    (tmp_path / "ours").mkdir()
    again.save(tmp_path / "ours", model_max_length=512)
    for kind in (transformers.AutoTokenizer, transformers.RobertaTokenizer):
        opened = kind.from_pretrained(tmp_path / "ours")
        got = opened(TEXTS, TEXTS[::-1], return_offsets_mapping=True)
        assert got["input_ids"] == want["input_ids"]
        assert got["offset_mapping"] == want["offset_mapping"]
        assert (opened.mask_token_id, opened.pad_token_id) == (50264, 1)
        assert opened.model_max_length == 512
    (tmp_path / "ours" / "tokenizer.json").unlink()  # vocab.json and merges.txt are left
    assert Tokenizer.load(tmp_path / "ours").fingerprint == again.fingerprint


def test_decode_equals_transformers(ours: Tokenizer, theirs) -> None:
    for ids in GOLDEN["ids"]:
        for skip in (True, False):
            want = theirs.decode(ids, skip_special_tokens=skip)
            assert ours.decode(ids, skip_special_tokens=skip) == want


@pytest.mark.slow
def test_gpt2_has_one_special_token(tmp_path: Path, roberta: Path) -> None:
    """Its merges over its own order of ids: bytes, merges, ``<|endoftext|>``."""
    lines = (roberta / "merges.txt").read_text(encoding="utf-8").split("\n")[1:-1]
    tokens = [*ALPHABET, *("".join(line.split()) for line in lines), "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_bytes((roberta / "merges.txt").read_bytes())
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    assert [each.input_ids for each in ours.encode_batch(TEXTS)] == theirs(TEXTS)["input_ids"]
    want = theirs(TEXTS, TEXTS[::-1])["input_ids"]
    assert [each.input_ids for each in ours.encode_batch(TEXTS, TEXTS[::-1])] == want
    assert (ours.mask_token_id, ours.unk_token_id, ours.mask_text) == (None, None, "")
    assert ours.special_ids == {50256}
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert opened(TEXTS)["input_ids"] == theirs(TEXTS)["input_ids"]


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "corpus").is_dir(), reason=f"no texts in {DATA}")
def test_thousands_of_real_paragraphs(
    ours: Tokenizer, theirs, published_ids: Callable[[str], list[int]]
) -> None:
    def paragraphs(name: str, number: int) -> list[str]:
        lines = (
            line
            for document in Corpus(DATA / "corpus" / name)
            for line in document.text.split("\n")
            if line.strip()
        )
        return list(islice(lines, number))

    tweets = (DATA / "emotion" / "val.txt").read_text(encoding="utf-8").split("\n")[:1000]
    texts = [
        *paragraphs("wiki-2.jsonl.zst", 2500),
        *paragraphs("books-2.jsonl.zst", 1500),
        *paragraphs("wiki-zh.jsonl.zst", 500),
        *tweets,
    ]
    assert len(texts) > 5000
    want = theirs(texts, return_offsets_mapping=True)
    got = ours.encode_batch(texts)
    assert [each.input_ids for each in got] == want["input_ids"]
    assert [each.offsets for each in got] == want["offset_mapping"]
    flat = ours.encode_plain(texts)
    assert flat == [ids[1:-1] for ids in want["input_ids"]]
    assert [ours.decode(ids) for ids in flat] == texts
    assert [ours.encode_plain([text])[0] for text in texts[::10]] == flat[::10]
    assert [published_ids(text) for text in texts[::4]] == flat[::4]
    for max_length in (None, 32, 129):
        cut = "longest_first" if max_length else False
        pairs = theirs(texts, texts[::-1], truncation=cut, max_length=max_length)["input_ids"]
        arrays = ours.encode_arrays(texts, texts[::-1], max_length=max_length)
        assert [ids.tolist() for ids, _, _ in arrays] == pairs
