"""bertine-en, the model in the package: its name works wherever a folder does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertine
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.core.model_folders import BUNDLED, locate

FOLDER = locate("bertine-en")


@pytest.mark.parametrize("name", BUNDLED)
def test_what_is_in_the_folder(name: str) -> None:
    folder = locate(name)
    assert (folder / "model.safetensors").stat().st_size <= 16_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("Creative Commons", "recipes/hour", "±", "not good for", "sha256", name):
        assert word in card
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert config["mlp_dropout"] == 0.1
    assert config["architectures"] == ["ModernBertForMaskedLM"]


def test_a_folder_of_ones_own_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("bertine-en") == FOLDER
    (tmp_path / "bertine-en").mkdir()
    assert locate("bertine-en") == Path("bertine-en")
    with pytest.raises(BertineError, match="not a model directory"):
        bertine.load_model("bertine-en")


@pytest.mark.parametrize("name", ["bertine-de", "models/of/mine/bertine-en", "Bertine-en"])
def test_other_names_are_folders(name: str) -> None:
    assert locate(name) == Path(name)
    with pytest.raises(
        BertineError, match=r"does not exist.*bertine-en and bertine-zh come with Bertine"
    ):
        bertine.load_model(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bertine-en", "The capital of France is [MASK], isn't it?"),
        ("bertine-zh", "中华人民共和[MASK]的首都是北京，NBA 不是。"),
    ],
)
def test_transformers_computes_the_same(name: str, text: str) -> None:
    ours, folder = bertine.load_model(name), locate(name)
    theirs = transformers.ModernBertForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(text, return_tensors="pt")
    ids = encoded["input_ids"]
    assert ids[0].tolist() == list(ours.tokenizer.encode(text).input_ids)
    with torch.inference_mode():
        logits = theirs(input_ids=ids, attention_mask=encoded["attention_mask"]).logits[0]
    at = ids[0].tolist().index(tokenizer.mask_token_id)
    best = bertine.fill_mask(name, text)[0].candidates
    probabilities = logits[at].softmax(-1)
    for candidate in best:
        assert float(probabilities[tokenizer.convert_tokens_to_ids(candidate.token)]) == (
            pytest.approx(candidate.probability, abs=1e-4)
        )


@pytest.mark.slow
def test_every_verb_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = "text,label\n" + "".join(
        f"The {'band played a song' if n % 2 else 'river flows to the sea'} {n}.,{'ab'[n % 2]}\n"
        for n in range(40)
    )
    Path("my.csv").write_text(examples)
    Path("texts.txt").write_text("The king of England\n\nA queen of France\n")

    def run(*arguments: str) -> None:
        assert main(list(arguments)) == 0, arguments

    finetune = ("finetune", "text", "--model", "bertine-en", "--data", "my.csv")
    run(*finetune, "--out", "head", "--frozen")
    run(*finetune, "--out", "run", "--epochs", "1")
    assert not (tmp_path / "bertine-en").exists()
    assert bertine.Predictor.load("head").predict(["They sang songs."])[0].label == "b"
    run("fill-mask", "bertine-en", "The [MASK] of England")
    run("inspect", "bertine-en")
    run("embed", "bertine-en", "--input", "my.csv", "--out", "vectors.npy")
    assert np.load("vectors.npy").shape == (40, 256)
    run("similar", "--model", "bertine-en", "--in", "my.csv", "A river")
    run("lr-find", *finetune[1:], "--out", "rates")
    grid = ("--epochs", "5", "--learning-rates", "1e-3", "--batch-sizes", "16", "--restarts", "1")
    run("search", *finetune[1:], "--out", "search", *grid)
    run("vocab", "texts.txt", "--extend", "bertine-en", "--vocab-size", "8193", "--out", "vocab")
    run("prepare", "texts.txt", "--tokenizer", "bertine-en", "--out", "store")
    run(
        "pretrain",
        "store",
        "--model",
        "bertine-en",
        "--out",
        "more",
        "--steps",
        "2",
        "--batch-size",
        "2",
        "--max-seq-length",
        "32",
    )
    run("evaluate", "bertine-en", "--data", "store")
    run("export", "bertine-en", "--out", "program", "--format", "torch")


def test_it_knows_some_english() -> None:
    """Enough that weights which were mixed up would show."""
    best = bertine.fill_mask("bertine-en", "He was born in the United [MASK].")[0].candidates
    assert best[0].token in ("states", "kingdom")


def test_it_knows_some_chinese() -> None:
    best = bertine.fill_mask("bertine-zh", "中华人民共和[MASK]的首都是北京。")[0].candidates
    assert best[0].token == "国"


@pytest.mark.slow
def test_the_chinese_model_learns_a_task(tmp_path: Path) -> None:
    rows = [
        f"{'乐队的新歌很好听' if n % 2 else '这条河流入大海'}{n},{'水乐'[n % 2]}" for n in range(40)
    ]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    learner = bertine.finetune(
        "text", model="bertine-zh", data=tmp_path / "my.csv", out=tmp_path / "out", frozen=True
    )
    assert learner.predictor("这首歌是乐队写的").label == "乐"
