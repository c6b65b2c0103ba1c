"""Byte-level BPE whose special tokens are called as BERT's, in the layout of ModernBERT's file:
special tokens, runs of spaces and unused places beside the vocabulary, NFC before all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.tokenization import word_cache
from bertine.tokenization.byte_bpe import ALPHABET
from bertine.tokenization.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = [
    "The cat sleeps in the sofa, doesn't it?",
    "two  spaces,   three    four\n\n  and\tlines",
    "e\u0301 is é, and \u212b an angstrom; naïve 猫 🐱",
    "a [MASK] here, one  [MASK] there[SEP] [unused12]a1",
    "mail |||IP_ADDRESS||| and <|endoftext|> 1a2b 3,000.5",
    "",
    " ",
    " leading and trailing ",
]
PARTS = st.sampled_from(
    [
        *(" ", "  ", "   ", "\n", "\t", "the", " cat", "'s", "a1", "1,", "[MASK]", " [MASK]"),
        *("[CLS]", "[unused3]", "|||IP_ADDRESS|||", "e\u0301", "\u0301", "é", "\u212b", "中"),
        *("😀", "\u00a0"),
    ]
)
MIXED = st.lists(
    st.one_of(PARTS, st.text(st.characters(exclude_categories=["Cs"]), max_size=6)), max_size=14
).map("".join)


def write_published_layout(folder: Path, merges: list[tuple[str, str]]) -> Path:
    """Write a tokenizer.json as ModernBERT's is laid out, with these merges."""
    tokens = ["<|padding|>", "<|endoftext|>", *ALPHABET, *("".join(pair) for pair in merges)]
    # The first place was given to another token.
    vocab = {token: number for number, token in enumerate(dict.fromkeys(tokens), 1)}
    vocab = {"|||IP_ADDRESS|||": 0, **vocab}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["|||IP_ADDRESS|||", "<|padding|>"])
    backend.add_tokens([AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)])
    backend.add_tokens(["|||EMAIL_ADDRESS|||"])
    backend.add_special_tokens(["<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    backend.add_tokens([AddedToken(f"[unused{n}]", normalized=True) for n in range(20)])
    ids = {name: backend.token_to_id(name) for name in ("[CLS]", "[SEP]")}
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=list(ids.items()),
    )
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 8192,
        **names,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, roberta: Path) -> Path:
    lines = (roberta / "merges.txt").read_text(encoding="utf-8").split("\n")[1:3001]
    merges = [(first, second) for first, second in (line.split(" ") for line in lines if line)]
    return write_published_layout(tmp_path_factory.mktemp("modern") / "published", merges)


@pytest.fixture(scope="module")
def ours(published: Path) -> Tokenizer:
    return Tokenizer.load(published)


@pytest.fixture(scope="module")
def theirs(published: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(published)


def test_ids_and_special_tokens_are_those_of_transformers(ours: Tokenizer, theirs: Any) -> None:
    assert ours.kind == "byte-bpe"
    assert ours.mask_text == "[MASK]"
    assert (ours.cls_token_id, ours.sep_token_id, ours.pad_token_id, ours.mask_token_id) == (
        *(theirs.cls_token_id, theirs.sep_token_id, theirs.pad_token_id, theirs.mask_token_id),
    )
    for text in TEXTS:
        assert ours.encode(text).input_ids == theirs(text)["input_ids"]
        assert ours.encode_plain([text])[0] == (theirs(text, add_special_tokens=False)["input_ids"])
    pair = ours.encode(TEXTS[0], TEXTS[1])
    assert pair.input_ids == theirs(TEXTS[0], TEXTS[1])["input_ids"]
    assert (pair.token_type_ids[0], pair.token_type_ids[-1]) == (0, 1)


@settings(max_examples=100, deadline=None)
@given(MIXED)
def test_any_text_has_the_ids_and_offsets_of_the_file(
    ours: Tokenizer, theirs: Any, text: str
) -> None:
    encoding = theirs(text, return_offsets_mapping=True)
    assert ours.encode(text).input_ids == encoding["input_ids"]
    # By words that are remembered, and without.
    for _ in range(2):
        flat, _ = ours.encode_flat([text, text])
        assert flat.tolist() == 2 * encoding["input_ids"][1:-1]


def test_a_long_text_has_the_same_pieces_in_parts(
    ours: Tokenizer, theirs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(TEXTS) * 20
    expected = theirs(text, add_special_tokens=False)["input_ids"]
    monkeypatch.setattr(word_cache, "_CHARS_OF_A_PART", 7)
    assert ours.encode_plain([text])[0] == expected


def test_what_is_saved_is_read_alike_here_and_in_transformers(
    ours: Tokenizer, theirs: Any, tmp_path: Path
) -> None:
    ours.save(tmp_path, one_type=True)
    again, opened = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again.fingerprint == ours.fingerprint
    for text in TEXTS:
        expected = theirs(text)
        assert again.encode(text).input_ids == expected["input_ids"]
        assert opened(text)["input_ids"] == expected["input_ids"]
        assert set(opened(text)) == {"input_ids", "attention_mask"}
    assert opened.mask_token == "[MASK]"
    # A model that has two types is given them.
    ours.save(tmp_path)
    pair = transformers.AutoTokenizer.from_pretrained(tmp_path)(TEXTS[0], TEXTS[4])
    assert pair["token_type_ids"] == ours.encode(TEXTS[0], TEXTS[4]).token_type_ids


def test_a_vocabulary_with_such_special_tokens_is_trained(tmp_path: Path) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    report = bertine.train_vocab(
        corpus, tmp_path / "vocab", kind="byte-bpe", special_tokens="bert", vocab_size=400
    )
    assert report.kind == "byte-bpe"
    tokenizer = Tokenizer.load(tmp_path / "vocab")
    assert tokenizer.tokens[:4] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    assert tokenizer.tokens[-1] == "[MASK]"
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "vocab")
    for text in TEXTS:
        assert opened(text)["input_ids"] == tokenizer.encode(text).input_ids
    (tmp_path / "vocab" / "tokenizer.json").unlink()  # the other files say the same
    assert Tokenizer.load(tmp_path / "vocab").fingerprint == tokenizer.fingerprint


def test_special_tokens_are_chosen_for_byte_level_bpe_and_unigram_alone(tmp_path: Path) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt")

    def refused(message: str, **options: Any) -> None:
        with pytest.raises(BertineError, match=message):
            bertine.train_vocab(corpus, tmp_path / "vocab", vocab_size=400, **options)

    refused("special_tokens is for byte-level BPE and Unigram", special_tokens="bert")
    refused("'xlnet' is not for .* roberta or bert", kind="byte-bpe", special_tokens="xlnet")
    refused("'bert' is not for .* albert or xlnet", kind="unigram", special_tokens="bert")
