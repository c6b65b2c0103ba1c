"""Explanations over HTTP: words with their places, for every task, in small pieces of work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import toys
from bertine.inference.predictor import Predictor
from bertine.options.inference import ServeOptions
from bertine.serving.batcher import ComputedBatch

from .conftest import Client, running

SENTENCE = toys.sentence("cat", "old")
CHOICES = ["who sleeps", SENTENCE, toys.sentence("soup", "warm")]
METHODS = ("leave-one-out", "integrated-gradients")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "kind",
    ["text", "pairs", "regression", "multi-label", "choice", "spans", "tagging", "fill-mask"],
)
def test_every_task_is_explained_by_words(kind: str, method: str, ask: Client) -> None:
    parts = ["the old [MASK] sleeps"]
    if kind in ("pairs", "spans"):
        parts.append(SENTENCE)
    if kind == "choice":
        parts = CHOICES
    answer = ask("/explain", {"model": kind, "text": parts, "method": method})
    assert answer.status == 200, answer.body
    found = answer.json
    assert found["method"] == method
    assert any(word["contribution"] != 0 for word in found["words"])
    for word in found["words"]:
        assert parts[word["part"]][word["start"] : word["end"]] == word["word"]
    words = [word["word"] for word in found["words"]]
    # A [MASK] has nothing to say; a tagger reads it as words like any other.
    mask = ["[", "MASK", "]"] if kind == "tagging" else []
    if kind in ("text", "regression", "multi-label", "fill-mask", "tagging"):
        assert words == ["the", "old", *mask, "sleeps"]
    if method == "integrated-gradients":
        total = sum(word["contribution"] for word in found["words"])
        difference = found["score"] - found["baseline"]
        assert abs(total - difference) <= max(0.11, 0.051 * abs(difference))
    if kind == "spans":
        assert found["answer"] in SENTENCE


def test_the_nearest_examples_stand_beside(models: dict[str, Path], tmp_path: Path) -> None:
    model, data = tmp_path / "model", tmp_path / "examples.csv"
    shutil.copytree(models["text"], model)
    labels = Predictor.load(model, "cpu", "fp32").task.labels
    rows = [f"{SENTENCE},{labels[0]}", f"the soup boils,{labels[1]}"]
    data.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    options = ServeOptions(nearest_examples=2, examples=data)
    with running({"text": model}, options=options) as client:
        found = client("/explain", {"text": "the soup boils"}).json
        assert [near["texts"] for near in found["nearest"]] == [["the soup boils"], [SENTENCE]]
        assert found["nearest"][0]["label"] == labels[1]
        assert found["nearest"][0]["similarity"] == pytest.approx(1.0, abs=1e-4)
        (info,) = client("/v1/models").json["data"]
        assert "nearest" not in info["operations"]


def test_the_answer_is_that_of_predict_and_python(ask: Client, models: dict[str, Path]) -> None:
    predictor = Predictor.load(models["text"], "cpu", "fp32")
    for topic in toys.TOPICS:
        text = toys.sentence(topic, "warm")
        prediction = ask("/predict", {"texts": [text], "model": "text"}).json["predictions"][0]
        found = ask("/explain", {"text": text, "model": "text"}).json
        assert found["answer"] == prediction["label"]
        assert found["probability"] == pytest.approx(prediction["probability"], abs=1e-4)
        ours = predictor.explain(text)
        assert [w["word"] for w in found["words"]] == [w.word for w in ours.words]
        assert [w["contribution"] for w in found["words"]] == pytest.approx(
            [w.contribution for w in ours.words], abs=1e-3
        )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": "a", "pair": "b"}, "this model takes one text"),
        ({"text": ["a"], "model": "pairs"}, "this model takes two texts"),
        ({"text": ["who", "the cat"], "model": "choice"}, "takes 3 or more"),
        ({"text": " ", "model": "text"}, "there is no word"),
        ({"text": "the cat", "model": "fill-mask"}, "has no [MASK]"),
        ({"text": "the cat", "method": "lime"}, "leave-one-out"),
        ({"text": "the cat", "label": "a", "model": "regression"}, "no labels"),
        ({"text": ["a " * 900, "b " * 900], "model": "pairs"}, "at most 2000 are explained"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    body: dict[str, object], message: str, ask: Client
) -> None:
    answer = ask("/explain", {"model": "text", **body})
    assert answer.status == 422
    assert message in answer.json["error"]["message"]


def test_long_texts_are_cut_and_counted(ask: Client) -> None:
    found = ask("/explain", {"text": "cat " * 99, "model": "text"}).json
    assert len(found["words"]) == 14
    assert found["pieces_cut"] == 85


@pytest.mark.parametrize("method", METHODS)
def test_others_are_answered_between_the_parts_of_an_explanation(method: str, ask: Client) -> None:
    """No batch is larger than those of other requests, so none is held up for long."""
    batcher = ask.service.batchers["text"]
    seen: list[ComputedBatch] = []
    before, batcher.on_batch = batcher.on_batch, seen.append
    try:
        text = toys.sentence("cat", "old")
        assert ask("/explain", {"text": text, "model": "text", "method": method}).status == 200
    finally:
        batcher.on_batch = before
    assert len(seen) >= 2
    assert max(done.tokens for done in seen) <= ask.service.limits.max_batch_tokens


def test_explaining_leaves_the_model_as_it_was(ask: Client) -> None:
    body = {"texts": [SENTENCE], "model": "text", "all_probabilities": True}
    before = ask("/predict", body).json
    ask("/explain", {"text": SENTENCE, "model": "text", "method": "integrated-gradients"})
    loaded = ask.service.models["text"].model
    assert loaded is not None
    assert all(parameter.grad is None for parameter in loaded.model.parameters())
    assert ask("/predict", body).json == before


def test_another_label_can_be_asked_about(ask: Client) -> None:
    body = {"text": SENTENCE, "model": "text"}
    both = [ask("/explain", {**body, "label": label}).json for label in ("animal", "dish")]
    assert [each["answer"] for each in both] == ["animal", "dish"]
    # Of two labels what speaks for one speaks against the other.
    for one, other in zip(both[0]["words"], both[1]["words"], strict=True):
        assert one["contribution"] == pytest.approx(-other["contribution"], abs=1e-4)
