"""What a user can get wrong ends with one line that names it, exit status 2, and nothing left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import toys
from bertine.hub.model_directory import save_model
from bertine.models.heads import Model
from bertine.objectives.losses import MlmNsp
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from mistakes.commands import Fails, corpus_commands, finetune, pretrain

# Corpora


@pytest.mark.parametrize("command", [0, 1])
@pytest.mark.parametrize("kind", ["missing", "empty", "blank", "empty folder", "no text in it"])
def test_a_corpus_that_is_missing_or_empty(
    made: Path, tmp_path: Path, fails: Fails, kind: str, command: int
) -> None:
    corpus = tmp_path / "corpus.txt"
    if kind == "empty":
        corpus.write_bytes(b"")
    elif kind == "blank":
        corpus.write_text("\n \n\n\t\n")
    elif "folder" in kind or "in it" in kind:
        corpus = tmp_path / "folder"
        corpus.mkdir()
        if kind == "no text in it":
            (corpus / "picture.png").write_bytes(b"\x89PNG")
    message = fails(*corpus_commands(made, tmp_path, corpus)[command])
    assert str(corpus) in message


def test_next_sentences_need_two_documents(
    made: Path, tmp_path: Path, fails: Fails, works: Callable[..., str]
) -> None:
    corpus = tmp_path / "one.txt"
    corpus.write_text(toys.corpus_text(1) + "\n")
    store = tmp_path / "store"
    said = works("prepare", corpus, "--tokenizer", made / "tokenizer", "--out", store)
    assert "next-sentence prediction needs two" in said
    message = fails(*pretrain(store, made / "model", tmp_path / "run"))
    assert "two documents" in message or "needs two" in message
    assert str(store) in message


@pytest.mark.parametrize(
    ("content", "mended"),
    [(b"the cow \xff\xfe grazes .\n", "valid UTF-8"), (b"the c\x00ow grazes .\n", "NUL")],
    ids=["utf-8", "nul"],
)
def test_bytes_that_are_no_text_are_counted_or_refused(
    made: Path,
    tmp_path: Path,
    fails: Fails,
    works: Callable[..., str],
    content: bytes,
    mended: str,
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(toys.corpus_text(8).encode() + b"\n\n" + content)
    line = corpus.read_bytes().count(b"\n")
    for command in corpus_commands(made, tmp_path, corpus):
        assert mended in fails(*command, "--strict")
        assert f"{corpus}:{line}" in fails(*command, "--strict")
        said = works(*command)
        assert mended in said
        shutil.rmtree(tmp_path / "out")

    table = tmp_path / "texts.csv"
    table.write_bytes(b"text,label\n" + content.replace(b"\n", b",animal\n"))
    answers = tmp_path / "answers.csv"
    command = ["predict", made / "classifier", "--input", table, "--output", answers]
    assert f"{table}:2" in fails(*command, "--strict")
    assert mended in works(*command)
    assert answers.read_bytes().count(b"\n") == 2
    message = fails("evaluate", made / "classifier", "--data", table, "--strict")
    assert f"{table}:2" in message


# Tokenizers and stores


def test_a_store_of_another_tokenizer(made: Path, tmp_path: Path, fails: Fails) -> None:
    other = Tokenizer.from_vocab([*SPECIAL_TOKENS, *toys.WORDS[::-1]])
    config = toys.config()
    save_model(tmp_path / "model", Model(config, MlmNsp.heads(config)), other)
    message = fails(*pretrain(made / "store", tmp_path / "model", tmp_path / "run"))
    assert "vocabulary is not that of the store" in message
    assert str(made / "store") in message
    # Or the store's own was replaced.
    store = tmp_path / "store"
    shutil.copytree(made / "store", store)
    shutil.rmtree(store / "tokenizer")
    (store / "tokenizer").mkdir()
    other.save(store / "tokenizer")
    assert "made with tokenizer" in fails(*pretrain(store, made / "model", tmp_path / "run"))


def test_more_tokens_than_positions(made: Path, tmp_path: Path, fails: Fails) -> None:
    command = pretrain(made / "store", made / "model", tmp_path / "run")
    message = fails(*command, "--max-seq-length", 64)
    assert "max_seq_length is 64, but the model has positions for 40" in message


# Tables


def test_a_csv_without_the_named_column(made: Path, tmp_path: Path, fails: Fails) -> None:
    table = made / "train.csv"
    out = tmp_path / "out"
    classifier = [made / "classifier", "--text-columns", "txt"]
    for command in (
        [*finetune(made / "model", table, out), "--text-columns", "txt"],
        ["predict", *classifier, "--input", table, "--output", out],
        ["evaluate", *classifier, "--data", table],
    ):
        message = fails(*command)
        assert str(table) in message
        assert "'txt'" in message
        assert "'text'" in message
    message = fails(*finetune(made / "model", table, out), "--label-column", "labl")
    assert "'labl'" in message


def test_an_unseen_label(made: Path, tmp_path: Path, fails: Fails) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(made / "train.csv", data / "train.csv")
    (data / "dev.csv").write_text("text,label\nthe cow .,animal\nthe sofa .,furniture\n")
    for command in (
        ["evaluate", made / "classifier", "--data", data / "dev.csv"],
        finetune(made / "model", data, tmp_path / "run"),
    ):
        message = fails(*command)
        assert f"{data / 'dev.csv'}:3" in message
        assert "'furniture'" in message
        assert "animal" in message


# Models


@pytest.mark.parametrize("length", [0, -1])
def test_a_truncated_safetensors_file(
    made: Path, tmp_path: Path, fails: Fails, length: int
) -> None:
    model = tmp_path / "model"
    shutil.copytree(made / "classifier", model)
    file = model / "model.safetensors"
    os.truncate(file, length if length >= 0 else file.stat().st_size + length)
    for command in (
        ["predict", model, "--input", made / "train.csv", "--output", tmp_path / "answers.csv"],
        ["evaluate", model, "--data", made / "train.csv"],
        ["inspect", model],
        ["fill-mask", model, "the [MASK]"],
        finetune(model, made / "train.csv", tmp_path / "run"),
        pretrain(made / "store", model, tmp_path / "run"),
    ):
        assert str(file) in fails(*command)


def test_folders_that_are_something_else(made: Path, tmp_path: Path, fails: Fails) -> None:
    nowhere = tmp_path / "nowhere"
    for path in (nowhere, made / "store", made / "corpus.txt"):
        assert str(path) in fails("predict", path, "--input", made / "train.csv")
        assert str(path) in fails(*finetune(path, made / "train.csv", tmp_path / "run"))
    assert "is a token store" in fails("fill-mask", made / "store", "the [MASK]")
    for path in (nowhere, made / "model", made / "corpus.txt"):
        assert str(path) in fails(*pretrain(path, made / "model", tmp_path / "run"))
    for path in (nowhere, made / "corpus.txt"):
        assert str(path) in fails("inspect", path)
    assert "fine-tune it first" in fails("predict", made / "model", "--input", made / "train.csv")
    assert "bert-tiny" in fails(*pretrain(made / "store", "bert-tinny", tmp_path / "run"))
    assert "masked-LM head" in fails("fill-mask", made / "classifier", "the [MASK]")


# Settings
