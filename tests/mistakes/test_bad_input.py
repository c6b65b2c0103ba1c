"""What a user can get wrong ends with one line that names it, exit status 2, and nothing left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
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
    assert answers.read_text(encoding="utf-8").count("\n") == 2
    message = fails("evaluate", made / "classifier", "--data", table, "--strict")
    assert f"{table}:2" in message


@pytest.mark.slow
def test_a_line_of_50_megabytes(
    made: Path, tmp_path: Path, fails: Fails, works: Callable[..., str]
) -> None:
    """A corpus may have one: it is read in parts, and they are counted. A table may not."""
    corpus = tmp_path / "long.txt"
    corpus.write_text(toys.corpus_text(4) + "\n\n" + "the old cow grazes " * (50_000_000 // 19))
    said = works("prepare", corpus, "--tokenizer", made / "tokenizer", "--out", tmp_path / "out")
    assert "cut into pieces" in said
    shutil.rmtree(tmp_path / "out")
    table = tmp_path / "long.csv"
    table.write_text("text,label\nthe cow,animal\n" + "x" * 50_000_000 + ",dish\n")
    corpus.unlink()
    for command in (
        finetune(made / "model", table, tmp_path / "run"),
        ["predict", made / "classifier", "--input", table, "--output", tmp_path / "answers.csv"],
        ["evaluate", made / "classifier", "--data", table],
    ):
        assert f"{table}:3" in fails(*command)


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


@pytest.mark.parametrize("missing", SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token(
    made: Path, tmp_path: Path, fails: Fails, missing: str
) -> None:
    vocab = tmp_path / "vocab.txt"
    tokens = [token for token in (*SPECIAL_TOKENS, *toys.WORDS) if token != missing]
    vocab.write_text("\n".join(tokens) + "\n")
    out = tmp_path / "store"
    message = fails("prepare", made / "corpus.txt", "--tokenizer", vocab, "--out", out)
    assert missing in message
    assert str(vocab) in message


def test_an_id_outside_the_vocabulary(made: Path, tmp_path: Path, fails: Fails) -> None:
    # In the store: what another program wrote, or a disk that forgets.
    store = tmp_path / "store"
    store.mkdir()
    words = toys.tokenizer()
    wrong = words.vocab_size + 7
    with toys.DocumentWriter(store, vocab_size=256) as writer:
        for _ in range(4):
            writer.append(np.full(12, wrong), np.full(3, 4), np.array([3]))
        writer.finish({"tokenizer_fingerprint": words.fingerprint, "language": "en"})
    toys.tokenizer_folder(store / "tokenizer")
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["vocab_size"] = words.vocab_size
    (store / "manifest.json").write_text(json.dumps(manifest))
    counts = np.load(store / "unigram_counts.npy")
    np.save(store / "unigram_counts.npy", counts[: words.vocab_size])
    message = fails(*pretrain(store, made / "model", tmp_path / "run"))
    assert f"holds the id {wrong}, but the vocabulary has {words.vocab_size}" in message
    assert str(store) in message
    # In the model: fewer rows than the tokenizer has pieces.
    model = tmp_path / "model"
    shutil.copytree(made / "classifier", model)
    config = json.loads((model / "config.json").read_text())
    config["vocab_size"] -= 3
    (model / "config.json").write_text(json.dumps(config))
    message = fails("predict", model, "--input", made / "train.csv")
    assert "do not belong together" in message


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


@pytest.mark.parametrize("length", [0, 5, 200, -1, -100])
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


def test_a_truncated_checkpoint(
    made: Path, tmp_path: Path, fails: Fails, works: Callable[..., str]
) -> None:
    command = [*pretrain(made / "store", made / "model", tmp_path / "run"), "--checkpoint-every", 1]
    works(*command)
    shutil.rmtree(tmp_path / "run" / "model")
    file = tmp_path / "run" / "checkpoints" / "step-00000002" / "model.safetensors"
    os.truncate(file, 100)
    assert str(file) in fails(*command, "--resume")


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


@pytest.mark.parametrize(
    ("line", "nearest"),
    [("learning_rat: 1e-3", "learning_rate"), ("batch-sise: 3", "batch_size")],
)
def test_an_unknown_configuration_key_is_answered_with_the_nearest(
    made: Path, tmp_path: Path, fails: Fails, line: str, nearest: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"steps: 3\n{line}\n")
    command = pretrain(made / "store", made / "model", tmp_path / "run")
    message = fails(*command, "--config", file)
    assert str(file) in message
    assert f"did you mean '{nearest}'?" in message
    option = f"--{line.split(':')[0].replace('_', '-')}"
    message = fails(*command, option, "3")
    assert f"did you mean '--{nearest.replace('_', '-')}'?" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--adam-beta2", "1"], "adam_beta2"),
        (["--dropout", "1"], "hidden_dropout_prob"),
        (["--masked-lm-prob", "0"], "masked_lm_prob"),
        (["--learning-rate", "fast"], "learning-rate"),
        (["--tokens", "100"], "one of --steps, --tokens and --hours"),
        (["--steps", "0"], "steps"),
    ],
)
def test_impossible_settings_start_no_run(
    made: Path, tmp_path: Path, fails: Fails, options: list[str], message: str
) -> None:
    command = pretrain(made / "store", made / "model", tmp_path / "run")
    assert message in fails(*command, *options)
