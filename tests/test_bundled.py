"""The models in the package: their names work wherever a folder does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

import bertine
from bertine.core.errors import BertineError
from bertine.core.model_folders import locate

FOLDER = locate("bertine-en")


@pytest.mark.parametrize("name", ["bertine-en", "bertine-zh"])
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


def test_the_bert_is_small_and_has_both_heads() -> None:
    folder = locate("bertine-bert")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 6_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("Creative Commons", "recipes/bert", "not good for", "sha256", "bertine-bert"):
        assert word in card
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    assert config["hidden_dropout_prob"] == 0.1


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
        BertineError,
        match=r"does not exist.*bertine-en, bertine-zh, bertine-bert come with",
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


def test_it_knows_some_english() -> None:
    """Enough that weights which were mixed up would show."""
    best = bertine.fill_mask("bertine-en", "He was born in the United [MASK].")[0].candidates
    assert best[0].token in ("states", "kingdom")


def test_it_knows_some_chinese() -> None:
    best = bertine.fill_mask("bertine-zh", "中华人民共和[MASK]的首都是北京。")[0].candidates
    assert best[0].token == "国"


@pytest.mark.parametrize(
    ("first", "following", "other"),
    [
        ("the man went to the store", "he bought a gallon of milk", "penguins are flightless"),
        ("他于1950年出生在上海。", "后来他到北京大学学习物理。", "这种鱼生活在热带海域。"),
    ],
)
def test_it_knows_what_comes_next(first: str, following: str, other: str) -> None:
    """BERT's paper has the English example (appendix A.1)."""
    answers = bertine.Predictor.load("bertine-bert").predict([(first, following), (first, other)])
    assert [answer.label for answer in answers] == ["IsNext", "NotNext"]
