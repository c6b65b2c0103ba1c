"""Training vocabularies of other kinds than WordPiece: that they repeat, what they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bertine
from bertine.core.errors import BertineError
from bertine.core.names import TokenizerKind
from bertine.tokenization.vocab import train_vocab


@pytest.mark.parametrize(
    ("kind", "size", "vocabulary"),
    [("byte-bpe", 500, ["vocab.json", "merges.txt"]), ("unigram", 110, [])],
)
def test_the_same_corpus_gives_the_same_vocabulary_in_another_process(
    corpus: Path, tmp_path: Path, kind: TokenizerKind, size: int, vocabulary: list[str]
) -> None:
    train_vocab(corpus, tmp_path / "a", kind=kind, vocab_size=size)
    code = (
        f"from bertine.tokenization.vocab import train_vocab; train_vocab({str(corpus)!r}, "
        f"{str(tmp_path / 'b')!r}, kind={kind!r}, vocab_size={size})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    for name in ("tokenizer.json", "tokenizer_config.json", *vocabulary):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("byte-bpe", {"lowercase": True}, "lowercase does not go with byte-level BPE"),
        ("byte-bpe", {"strip_accents": True}, "strip_accents does not go"),
        ("byte-bpe", {"limit_alphabet": 50}, "limit_alphabet does not go"),
        ("byte-bpe", {"extend": "x"}, "extend is for WordPiece"),
        ("byte-bpe", {"vocab_size": 261}, "give at least 262"),
        ("bytebpe", {}, "kind is 'bytebpe', but must be one of wordpiece, byte-bpe"),
        ("unigram", {"extend": "x"}, "extend is for WordPiece vocabularies; train a new one of U"),
        ("unigram", {"vocab_size": 6}, "too small for the special tokens; give at least 7"),
        ("unigram", {"vocab_size": 30}, r"vocab_size 30 is too small for the \d+ characters"),
        (
            *("unigram", {"vocab_size": 30, "limit_alphabet": 40}),
            "too small for an alphabet of 36 characters; give at least 42",
        ),
    ],
)
def test_options_that_do_not_go_with_a_kind_are_refused(
    corpus: Path, tmp_path: Path, kind: TokenizerKind, options: dict[str, object], message: str
) -> None:
    with pytest.raises(BertineError, match=message):
        bertine.train_vocab(corpus, tmp_path / "out", kind=kind, **{"vocab_size": 300, **options})
    assert not (tmp_path / "out").exists()
