"""Training a vocabulary of byte-level BPE."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import regex
import transformers

import bertine
from bertine.core.errors import BertineError
from bertine.tokenization.byte_bpe import ALPHABET, FIRST_TOKENS
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.vocab import train_vocab

from .conftest import SENTENCES


def merges(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    assert lines[0] == "#version: 0.2"
    return [(first, second) for first, second in (line.split(" ") for line in lines[1:-1])]


def test_it_is_laid_out_as_roberta_and_opens_everywhere(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = train_vocab(corpus, out, kind="byte-bpe", vocab_size=360)
    tokenizer = Tokenizer.load(out)
    assert tokenizer.kind == report.kind == "byte-bpe"
    assert tuple(tokenizer.tokens[:4]) == FIRST_TOKENS
    assert set(tokenizer.tokens[4:260]) == set(ALPHABET)
    assert tokenizer.tokens[-1] == "<mask>"
    assert tokenizer.vocab_size == report.size == 360
    assert len(merges(out)) == 360 - 261
    assert not report.lowercase
    assert report.unknown_share == 0
    assert "of 256 bytes (byte-level BPE)" in "\n".join(report.lines())
    assert {path.name for path in out.iterdir()} == (
        {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"}
    )
    texts = [*SENTENCES, "never seen: ёлка \u0000 \n 日本", "a <mask> b"]
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    ours = tokenizer.encode_batch(texts, texts[::-1])
    assert theirs(texts, texts[::-1])["input_ids"] == [each.input_ids for each in ours]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_plain(texts[:-1])] == texts[:-1]
    # What is there is replaced, by either kind.
    train_vocab(corpus, out, vocab_size=300)
    assert Tokenizer.load(out).kind == "wordpiece"
    assert not (out / "merges.txt").exists()


def test_each_merge_is_of_the_pair_that_is_there_most_often(corpus: Path, tmp_path: Path) -> None:
    """Counted by hand, over the words of the text."""
    train_vocab(corpus, tmp_path / "out", kind="byte-bpe", vocab_size=340)
    pattern = regex.compile(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    character = {byte: char for char, byte in ALPHABET.items()}
    lines = corpus.read_text(encoding="utf-8").split("\n")[:-1]
    seen = [line for number, line in enumerate(lines, 1) if number % 50]  # the others are held out
    words = Counter(
        tuple(character[byte] for byte in word.encode())
        for line in seen
        for word in pattern.findall(line)
    )
    for merge in merges(tmp_path / "out"):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        assert pairs[merge] == max(pairs.values())
        merged: Counter[tuple[str, ...]] = Counter()
        for word, times in words.items():
            parts: list[str] = []
            for part in word:
                if parts and (parts[-1], part) == merge:
                    parts[-1] += part
                else:
                    parts.append(part)
            merged[tuple(parts)] += times
        words = merged


def test_pieces_are_counted_by_words(tmp_path: Path) -> None:
    file = tmp_path / "c.txt"
    lines = ['"Cat," the cat said; the cat sat.', "你好 the 2 cats", "Cat!"]
    file.write_text("\n".join(lines * 200) + "\n", encoding="utf-8")
    report = train_vocab(file, tmp_path / "out", kind="byte-bpe", vocab_size=270)
    tokenizer = Tokenizer.load(tmp_path / "out")
    held = [(lines * 200)[number - 1] for number in range(50, 601, 50)]
    words = {lines[0]: 7, lines[1]: 5, lines[2]: 1}  # Chinese characters are words
    assert set(held) == set(lines)
    assert report.held_out_words == sum(words[line] for line in held)
    pieces = [piece for ids in tokenizer.encode_plain(held) for piece in ids]
    marks = sum(tokenizer.names[i].strip('#",;.!␣') == "" for i in pieces)
    assert report.fertility == pytest.approx((len(pieces) - marks) / report.held_out_words)


def test_a_model_learns_with_it(corpus: Path, tmp_path: Path) -> None:
    documents = "\n\n".join("\n".join(SENTENCES) for _ in range(6))
    corpus.write_text(documents, encoding="utf-8")
    bertine.train_vocab(corpus, tmp_path / "vocab", kind="byte-bpe", vocab_size=400)
    bertine.prepare(corpus, tokenizer=tmp_path / "vocab", out=tmp_path / "store")
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "bert",
                "vocab_size": 400,
                "hidden_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 16,
                "max_position_embeddings": 64,
            }
        )
    )
    bertine.pretrain(
        tmp_path / "store",
        model=tmp_path / "config.json",
        out=tmp_path / "run",
        objective="mlm",
        input_format="full-sentences",
        whole_word_mask=True,
        steps=3,
        batch_size=4,
        max_seq_length=32,
    )
    (mask,) = bertine.fill_mask(tmp_path / "run", "the <mask> keeper", top_k=3)
    assert mask.start == 4
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert config["pad_token_id"] == 1
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model").mask_token_id


def test_it_cannot_be_extended(corpus: Path, tmp_path: Path) -> None:
    train_vocab(corpus, tmp_path / "old", kind="byte-bpe", vocab_size=300)
    with pytest.raises(BertineError, match="is byte-level BPE; only WordPiece"):
        train_vocab(corpus, tmp_path / "new", extend=tmp_path / "old", vocab_size=400)


def test_encoded_data_and_endless_lines_do_not_shape_it(tmp_path: Path) -> None:
    file = tmp_path / "c.txt"
    file.write_text("\n".join(["the cat sat"] * 50 + ["q9" * 100_000] * 3) + "\n", encoding="utf-8")
    report = train_vocab(file, tmp_path / "out", kind="byte-bpe", vocab_size=400)
    assert report.size < 400
    assert f"only {report.size} of the 400 tokens asked for" in "\n".join(report.lines())
    assert ("q", "9") not in merges(tmp_path / "out")
    assert ("Ġ", "cat") in merges(tmp_path / "out") or ("Ġca", "t") in merges(tmp_path / "out")
