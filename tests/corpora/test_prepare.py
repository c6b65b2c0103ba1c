from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest

from bertine.core.errors import BertineError
from bertine.corpora import parts as module
from bertine.corpora.parts import cut_sentence
from bertine.corpora.prepare import prepare
from bertine.corpora.store import TokenStore
from bertine.tokenization.sentences import split_sentences
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "cat", "dog", "sat", "on", "mat", "it", "was", "red", "and", "ran", "home"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    made = Tokenizer.from_vocab(
        [*SPECIAL_TOKENS, *WORDS, *LETTERS, *(f"##{c}" for c in LETTERS), ".", "!", ",", "猫", "。"]
    )
    (tmp_path / "tokenizer").mkdir()
    made.save(tmp_path / "tokenizer")
    return Tokenizer.load(tmp_path / "tokenizer")


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return tmp_path


def story(number: int, sentences: int = 8) -> str:
    words = (WORDS[(number * 7 + i * 5) % len(WORDS)] for i in range(sentences * 6))
    return " ".join(
        " ".join(next(words) for _ in range(6)).capitalize() + "." for _ in range(sentences)
    )


def test_a_store_holds_the_sentences_of_the_documents(folder: Path, tokenizer: Tokenizer):
    texts = [story(i) for i in range(30)]
    (folder / "corpus.txt").write_text("\n\n".join(texts))
    report = prepare(folder / "corpus.txt", tokenizer=folder / "tokenizer", out=folder / "store")
    store = TokenStore.open(folder / "store", tokenizer)
    store.verify()
    assert store.num_documents == 30
    for number, text in enumerate(texts):
        document = store.document(number)
        expected = tokenizer.encode_plain(split_sentences(text))
        assert document.input_ids.tolist() == list(chain.from_iterable(expected))
        assert document.sentence_lengths.tolist() == [len(ids) for ids in expected]
    assert report.manifest == store.manifest
    assert store.manifest["tokenizer_fingerprint"] == tokenizer.fingerprint
    text = "\n".join(report.lines())
    assert "30 documents, 240 sentences" in text
    assert "MB/s" in text


def test_json_lines_and_batches_smaller_than_a_document(
    folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    texts = [story(i, 40) for i in range(10)]
    lines = [json.dumps({"body": text}) for text in texts]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    whole = prepare(
        folder / "corpus.jsonl",
        tokenizer=folder / "tokenizer",
        out=folder / "a",
        text_column="body",
    )
    monkeypatch.setattr(module, "BATCH_CHARACTERS", 100)
    pieces = prepare(
        folder / "corpus.jsonl",
        tokenizer=folder / "tokenizer",
        out=folder / "b",
        text_column="body",
    )
    assert whole.manifest == pieces.manifest


def test_a_csv_makes_the_store_that_json_lines_make(folder: Path):
    texts = [story(i, 3) for i in range(12)]
    rows = [f'{number},"{text}"\n' for number, text in enumerate(texts)]
    (folder / "a.csv").write_text("id,body\n" + "".join(rows) + "13,\n")
    (folder / "a.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    options = {"tokenizer": folder / "tokenizer", "text_column": "body"}
    table = prepare(folder / "a.csv", out=folder / "a", **options)
    lines = prepare(folder / "a.jsonl", out=folder / "b", **options)
    assert table.manifest["shards"] == lines.manifest["shards"]
    assert table.manifest["num_documents"] == 12
    assert "1 document without text skipped" in table.lines()


def test_what_is_dropped_is_counted_and_printed(folder: Path):
    control = "\u200b\u200e"  # removed by normalization: text without a token
    (folder / "c.txt").write_text(f"The cat.\n{control}\nIt sat.\n\n{control}\n\nThe dog.\n")
    report = prepare(folder / "c.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    assert report.manifest["num_documents"] == 2
    assert report.manifest["num_sentences"] == 3
    text = "\n".join(report.lines())
    assert "documents without a token, dropped: 1" in text
    assert "sentences without a token, dropped: 2" in text


def test_an_endless_sentence_is_cut_and_counted(folder: Path, tokenizer: Tokenizer):
    endless = "cat " * 40_000
    (folder / "c.txt").write_text(f"{endless}\n\nThe dog sat. It ran.\n")
    report = prepare(folder / "c.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    document = TokenStore.open(folder / "s").document(0)
    assert document.input_ids.tolist() == [tokenizer.token_to_id("cat")] * 40_000
    assert len(document.sentence_lengths) == 3
    assert any(
        re.match("sentences longer than .* cut into pieces: 1", line) for line in report.lines()
    )


def test_cutting_a_sentence_loses_nothing():
    assert cut_sentence("ab cd ef", 8) == ["ab cd ef"]
    assert cut_sentence("aaaa bb cccc", 8) == ["aaaa bb ", "cccc"]
    assert cut_sentence("a" * 20, 8) == ["a" * 8, "a" * 8, "a" * 4]


def test_text_that_the_vocabulary_does_not_know_is_warned_of(folder: Path):
    (folder / "c.txt").write_text(f"{story(0)}\n\nΜία γάτα. Ένας σκύλος. Δύο γάτες.\n")
    report = prepare(folder / "c.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    assert f"{report.unknown_share:.0%} of the tokens are unknown" in report.warnings[0]
    assert "bertine vocab" in report.warnings[0]
    (folder / "c.txt").write_text("Μία γάτα.\n\nΜία γάτα.\n")
    report = prepare(folder / "c.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    # One piece after the other the same, but for the full stops.
    assert f"{report.unigram_entropy:.3f}" == "0.637"


def test_a_corpus_without_any_token_leaves_nothing(folder: Path):
    (folder / "c.txt").write_text("\u200b\n\n\u200b\n")
    with pytest.raises(BertineError, match="no document with text"):
        prepare(folder / "c.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    assert {p.name for p in folder.iterdir()} == {"c.txt", "tokenizer"}


def test_a_failure_leaves_the_old_store_and_nothing_else(folder: Path):
    (folder / "good.txt").write_text("\n\n".join(story(i) for i in range(5)))
    (folder / "bad.txt").write_bytes(b"The cat.\n\nThe \xff\xfe dog.\n")
    prepare(folder / "good.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    before = TokenStore.open(folder / "s").manifest
    with pytest.raises(BertineError, match=r"bad\.txt"):
        prepare(
            [folder / "good.txt", folder / "bad.txt"],
            tokenizer=folder / "tokenizer",
            out=folder / "s",
            strict=True,
        )
    TokenStore.open(folder / "s").verify()
    assert TokenStore.open(folder / "s").manifest == before
    assert {p.name for p in folder.iterdir()} == {"good.txt", "bad.txt", "tokenizer", "s"}


def test_a_full_disk_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "c.txt").write_text("\n\n".join(story(i) for i in range(50)))
    real = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda path, mode: real("/dev/full", mode))
    with pytest.raises(BertineError, match="the disk is full") as error:
        prepare(folder / "c.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    assert "\n" not in str(error.value)
    assert not (folder / "s").exists()


def test_an_earlier_store_is_not_read_as_text(folder: Path):
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("\n\n".join(story(i) for i in range(3)))
    given = {"tokenizer": folder / "tokenizer", "out": folder / "texts" / "store"}
    prepare(folder / "texts", **given)
    with pytest.raises(BertineError, match="store: lies in a folder of the corpus"):
        prepare(folder / "texts", **given)
    prepare(folder / "texts" / "a.txt", **given)


def test_a_language_without_rules_starts_nothing(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "c.txt").write_text("\n\n".join(story(i) for i in range(3)))
    made = {"tokenizer": folder / "tokenizer", "out": folder / "s"}
    with pytest.raises(BertineError, match=r"'klingon'; name the nearest of am, ar, .*, zh"):
        prepare(folder / "c.txt", language="klingon", **made)
    assert {p.name for p in folder.iterdir()} == {"c.txt", "tokenizer"}
    prepare(folder / "c.txt", language="gsw", **made)
    assert "'gsw' are split by the rules of 'de'" in capsys.readouterr().err


def test_one_document_is_warned_of(folder: Path):
    (folder / "c.txt").write_text(story(0))
    report = prepare(folder / "c.txt", tokenizer=folder / "tokenizer", out=folder / "s")
    assert "one document only" in report.warnings[0]
