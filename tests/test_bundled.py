"""The models in the package: their names work wherever a folder does."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertine
from bertine.core.errors import BertineError
from bertine.core.model_folders import locate

FOLDER = locate("bertine-en")
#: The teachers of the students in the package, each with its licence.
TEACHERS = {
    "bertine-en": ("all-MiniLM-L6-v2", "Apache"),
    "bertine-zh": ("multilingual-e5-small", "MIT"),
}


@pytest.mark.parametrize("name", TEACHERS)
def test_what_the_card_says(name: str) -> None:
    card = (locate(name) / "README.md").read_text(encoding="utf-8")
    for word in ("Creative Commons", "recipes/box", *TEACHERS[name], "not good for", "sha256"):
        assert word in card
    assert "±" in card or "interval" in card
    assert f"# {name}" in card


@pytest.mark.parametrize("name", TEACHERS)
def test_the_model_is_a_small_bert(name: str) -> None:
    """With all that a BERT of its own can do: two segments, texts of 512 pieces, masks, and dropout
    for whoever fine-tunes it."""
    config = json.loads((locate(name) / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
    sizes = {"num_hidden_layers": 3, "hidden_size": 384, "type_vocab_size": 2}
    assert sizes.items() <= config.items()
    assert config["max_position_embeddings"] == 512


@pytest.mark.takes(6.0)
@pytest.mark.parametrize("name", TEACHERS)
def test_the_wheel_holds_little_of_it(name: str) -> None:
    """Compressed as in a wheel."""
    files = [file for file in locate(name).rglob("*") if file.is_file()]
    assert sum(len(zlib.compress(file.read_bytes(), 6)) for file in files) <= 12_000_000


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
    theirs = transformers.BertForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(text, return_tensors="pt")
    ids = encoded["input_ids"][0]
    assert ids.tolist() == list(ours.tokenizer.encode(text).input_ids)
    with torch.inference_mode():
        output = theirs(**encoded, output_hidden_states=True)
    probabilities = output.logits[0, ids.tolist().index(tokenizer.mask_token_id)].softmax(-1)
    for candidate in bertine.fill_mask(name, text)[0].candidates:
        assert float(probabilities[tokenizer.convert_tokens_to_ids(candidate.token)]) == (
            pytest.approx(candidate.probability, abs=1e-4)
        )
    vector = bertine.Embedder.load(name, precision="fp32")(text)
    np.testing.assert_allclose(vector, output.hidden_states[-1][0].mean(0), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "asked", "meant", "others"),
    [
        (
            "bertine-en",
            "How do I get my money back?",
            "I want a refund for this order.",
            ("The train to London was late again.", "Penguins are birds that cannot fly."),
        ),
        (
            "bertine-zh",
            "他生病了，去了医院。",
            "医生给病人开了药。",
            ("这部电影很好看。", "火车晚点了两个小时。"),
        ),
    ],
)
def test_its_vectors_say_what_texts_mean(
    name: str, asked: str, meant: str, others: tuple[str, ...]
) -> None:
    """As they come, without fine-tuning: what means the same is nearest."""
    embedder = bertine.Embedder.load(name, precision="fp32", normalize=True)
    query, *rows = embedder([asked, meant, *others])
    nearness = np.stack(rows) @ query
    assert nearness[0] == nearness.max()


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("bertine-en", "He was born in the United [MASK].", {"states", "kingdom"}),
        ("bertine-zh", "中华人民共和[MASK]的首都是北京。", {"国"}),
    ],
)
def test_it_guesses_some_words(name: str, text: str, known: set[str]) -> None:
    """Enough that weights which were mixed up would show."""
    assert known & {candidate.token for candidate in bertine.fill_mask(name, text)[0].candidates}


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
