"""What clients of Text Embeddings Inference and of Hugging Face's inference API send is answered in
the shapes that they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toys
from bertine.hub.model_directory import load_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.fill_mask import fill_mask
from bertine.inference.predictor import Predictor

from .conftest import Client, running

CAT, SOUP = toys.sentence("cat", "old"), toys.sentence("soup", "small")


def labels(model: Path, text: Any) -> list[dict[str, Any]]:
    """The labels of a text with their probabilities, the best first."""
    answer = Predictor.load(model, "cpu", "fp32").predict([text])[0].to_json(True)
    if "score" in answer:
        return [{"label": "LABEL_0", "score": answer["score"]}]
    found = sorted(answer["probabilities"].items(), key=lambda item: -item[1])
    return [{"label": label, "score": pytest.approx(p, abs=1e-5)} for label, p in found]


@pytest.mark.parametrize(
    ("kind", "inputs", "texts"),
    [
        ("text", CAT, CAT),
        ("text", [CAT, SOUP], [CAT, SOUP]),
        ("text", [[CAT], SOUP], [CAT, SOUP]),
        ("text", [CAT], [CAT]),
        ("multi-label", SOUP, SOUP),
        ("regression", [CAT, SOUP], [CAT, SOUP]),
        ("pairs", [CAT, SOUP], (CAT, SOUP)),  # two texts are one pair where a model takes pairs
        ("pairs", [[CAT, SOUP]], [(CAT, SOUP)]),
        ("pairs", [[CAT, SOUP], [SOUP, CAT]], [(CAT, SOUP), (SOUP, CAT)]),
    ],
)
def test_predict_takes_every_shape_of_inputs(
    kind: str, inputs: Any, texts: Any, ask: Client, models: dict[str, Path]
) -> None:
    alone = not isinstance(texts, list)
    expected = [labels(models[kind], text) for text in ([texts] if alone else texts)]
    body = {"inputs": inputs, "model": kind, "truncate": True, "raw_scores": False}
    answer = ask("/predict", body)
    assert answer.status == 200, answer.message
    assert answer.json == (expected[0] if alone else expected)
    # At the address of a model there is always a list for each.
    assert ask("/", {"inputs": inputs, "model": kind}).json == expected
    applied = {"multi-label": "sigmoid", "regression": "none"}.get(kind, "softmax")
    parameters = {"top_k": 1, "function_to_apply": applied}
    first = ask("/", {"inputs": inputs, "model": kind, "parameters": parameters}).json
    assert first == [each[:1] for each in expected]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/predict", {"inputs": CAT, "texts": [CAT]}, "(or 'inputs', not both)"),
        ("/predict", {"inputs": []}, "inputs: List should have at least 1 item"),
        ("/predict", {"inputs": [[CAT, SOUP, CAT]]}, "inputs[0]: List should have at most 2"),
        ("/predict", {"inputs": [CAT, 7]}, "inputs[1]: Input should be a valid"),
        ("/predict", {"inputs": [[CAT, SOUP]]}, "inputs[0]: has 2 parts; give one text"),
        ("/predict", {"inputs": [CAT], "model": "pairs"}, "inputs[0]: "),
        ("/predict", {"inputs": CAT, "model": "tagging"}, "is for tagging; send texts"),
        ("/predict", {"inputs": [CAT, " "]}, "inputs[1]: is empty, so there is no answer"),
        ("/", {"inputs": ""}, "inputs[0]: is empty, so there is no answer"),
        ("/", {"inputs": {"source_sentence": CAT, "sentences": ["\u200b"]}}, "inputs[1]: is empty"),
        (
            "/",
            {"inputs": {"source_sentence": CAT, "sentences": [CAT * 9]}, "truncate": False},
            "long",
        ),
        ("/", {"inputs": [["the", "cat"]], "model": "tagging"}, "'tagging' takes texts, not pairs"),
        ("/", {"inputs": ["[MASK] a", CAT], "model": "fill-mask"}, "inputs[1]: has no [MASK]"),
        ("/predict", {"inputs": CAT, "raw_scores": True}, "raw_scores: Input should be False"),
        ("/predict", {"inputs": CAT, "truncation_direction": "Left"}, "should be 'right'"),
        ("/predict", {"inputs": CAT * 9, "truncate": False}, "inputs[0]: is "),
        ("/", {"inputs": CAT, "parameters": {"targets": ["a"]}}, "parameters.targets: "),
        ("/", {"inputs": CAT, "parameters": {"function_to_apply": "none"}}, "is softmax; leave"),
        ("/", {"inputs": CAT, "model": "spans"}, "for spans; send a question and its context"),
        ("/", {"inputs": [[CAT, SOUP]], "model": "fill-mask"}, "takes texts, not pairs"),
        ("/", {"inputs": "[MASK] " * 40, "model": "fill-mask"}, "inputs[0]: has "),
        ("/", {"inputs": {"question": "a"}}, "inputs.context: Field required"),
        ("/", {"inputs": {"question": "a", "context": "b"}, "model": "text"}, "answers questions"),
        ("/", {"input": CAT}, "input: unknown key; did you mean 'inputs'?"),
    ],
)
def test_mistakes_are_named(path: str, body: Any, said: str, ask: Client) -> None:
    answer = ask(path, body)
    assert answer.status == 422
    assert said in answer.message


def test_the_texts_that_masks_are_filled_in_are_bounded(ask: Client) -> None:
    """A request of a megabyte must not ask for an answer of a gigabyte."""
    text = "[MASK]" * 10 + " " * 19_000
    body = {"inputs": [text] * 3, "model": "fill-mask", "parameters": {"top_k": 50}}
    answer = ask("/", body)
    assert answer.status == 422
    assert "the filled texts would have" in answer.message
    assert "ask for fewer (parameters.top_k)" in answer.message
    few = ask("/", {**body, "parameters": {"top_k": 1}}).json
    assert [len(each) for each in few] == [10, 10, 10]


def test_entities_and_words(ask: Client, models: dict[str, Path]) -> None:
    answer = Predictor.load(models["tagging"], "cpu", "fp32").predict([CAT])[0].to_json(True)
    found = ask("/", {"inputs": CAT, "model": "tagging"}).json
    assert [(each["entity_group"], each["word"], each["start"], each["end"]) for each in found] == [
        (each["label"], each["text"], each["start"], each["end"]) for each in answer["entities"]
    ]
    body = {"inputs": [CAT], "model": "tagging", "parameters": {"aggregation_strategy": "none"}}
    (words,) = ask("/", body).json
    assert [(each["entity"], each["word"]) for each in words] == [
        (each["tag"], each["word"]) for each in answer["words"] if each["tag"] != "O"
    ]
    for each in [*found, *words]:
        assert CAT[each["start"] : each["end"]] == each["word"]
        assert 0 <= each["score"] <= 1


def test_answers_to_questions(ask: Client, models: dict[str, Path]) -> None:
    question = {"question": "where is the soup", "context": CAT}
    pair = (question["question"], question["context"])
    expected = Predictor.load(models["spans"], "cpu", "fp32").predict([pair])[0].to_json(True)
    found = ask("/", {"inputs": question}).json  # the first model that answers questions
    assert found == {
        "answer": expected["answer"],
        "score": pytest.approx(expected["probability"], abs=1e-5),
        "start": expected["start"] or 0,
        "end": expected["end"] or 0,
    }
    several = ask("/", {"inputs": question, "parameters": {"top_k": 3}}).json
    assert [each["answer"] for each in several] == [
        each["answer"] for each in expected["n_best"][:3]
    ]


def test_a_model_of_pre_training_fills_masks_and_gives_vectors(models: dict[str, Path]) -> None:
    model = models["fill-mask"]
    text = "the [MASK] cat"
    (mask,) = fill_mask(load_model(model), text, top_k=3)
    vectors = Embedder.load(model, precision="fp32", normalize=True).embed([CAT, SOUP])
    with running({"m": model}) as client:
        filled = client("/", {"inputs": text, "parameters": {"top_k": 3}}).json
        assert [(e["token"], e["token_str"], e["sequence"]) for e in filled] == [
            (each.id, each.token, each.text) for each in mask.candidates
        ]
        assert len(client("/", {"inputs": [text, "[MASK] [MASK]"]}).json[1]) == 2
        found = client("/", {"inputs": [CAT, SOUP], "truncate": True}).json
        np.testing.assert_allclose(found, vectors, atol=2e-5)
        one = client("/", {"inputs": CAT, "normalize": True}).json
        np.testing.assert_allclose(one, vectors[:1], atol=2e-5)
        compared = {"source_sentence": CAT, "sentences": [SOUP, CAT]}
        cosines = client("/", {"inputs": compared, "parameters": {}}).json
        assert cosines == pytest.approx([float(vectors[0] @ vectors[1]), 1.0], abs=2e-5)
