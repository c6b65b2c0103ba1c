"""Texts are ordered by what the model says of them, in the shapes that common clients read."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import toys
from bertine.hub.model_directory import load_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.predictor import Predictor
from bertine.serving.compat import relevant_label

from .conftest import Client, running
from .models import write_task_model

QUERY = "the cat"
TEXTS = [toys.sentence(topic, "small") for topic in toys.TOPICS] + ["", "the soup", "the soup"]


def by_pairs(model: Path, label: str) -> list[float]:
    predictor = Predictor.load(model, "cpu", "fp32")
    answers = predictor.predict([(QUERY, text) for text in TEXTS])
    return [answer.to_json(True)["probabilities"][label] for answer in answers]


def order(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda at: -scores[at])


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_ordered_by_the_label_that_says_relevant(
    path: str, ask: Client, models: dict[str, Path]
) -> None:
    expected = by_pairs(models["pairs"], "same")
    documents: list[Any] = [TEXTS[0], *({"text": text, "title": "x"} for text in TEXTS[1:])]
    # Cohere's client sends keys of its own.
    body = {"query": QUERY, "documents": documents, "model": "pairs", "max_tokens_per_doc": 9}
    answer = ask(path, body)
    assert answer.status == 200, answer.body
    assert answer.json["model"] == "pairs"
    assert answer.json["usage"]["total_tokens"] > len(TEXTS)
    results = answer.json["results"]
    assert [each["index"] for each in results] == order(expected)
    for each in results:
        assert each["relevance_score"] == pytest.approx(expected[each["index"]], abs=1e-4)
        assert set(each) == {"index", "relevance_score", "pieces_cut"}


def test_the_best_few_with_their_texts(ask: Client, models: dict[str, Path]) -> None:
    expected = by_pairs(models["pairs"], "other")
    body = {"query": QUERY, "documents": TEXTS, "model": "pairs", "label": "other", "top_n": 2}
    results = ask("/rerank", {**body, "return_documents": True}).json["results"]
    assert [each["index"] for each in results] == order(expected)[:2]
    assert [each["document"] for each in results] == [
        {"text": TEXTS[each["index"]]} for each in results
    ]


def test_the_shape_of_text_embeddings_inference(ask: Client, models: dict[str, Path]) -> None:
    expected = by_pairs(models["pairs"], "same")
    body = {"query": QUERY, "texts": TEXTS, "model": "pairs", "truncate": True}
    answer = ask("/rerank", {**body, "return_text": True}).json
    assert [each["index"] for each in answer] == order(expected)
    assert [each["text"] for each in answer] == [TEXTS[each["index"]] for each in answer]
    raw = ask("/rerank", {**body, "raw_scores": True}).json
    assert [each["index"] for each in raw] == order(expected)
    for each in raw:
        probability = expected[each["index"]]
        log_odds = math.log(probability / (1 - probability))
        assert each["score"] == pytest.approx(log_odds, abs=0.02)
        assert set(each) == {"index", "score"}


def test_vectors_order_by_their_cosine(ask: Client, models: dict[str, Path]) -> None:
    vectors = Embedder.load(models["fill-mask"], normalize=True, precision="fp32").embed(
        [QUERY, *TEXTS]
    )
    cosines = (vectors[1:] @ vectors[0]).tolist()
    answer = ask("/rerank", {"query": QUERY, "documents": TEXTS, "model": "fill-mask"}).json
    found = {each["index"]: each["relevance_score"] for each in answer["results"]}
    there = [at for at, text in enumerate(TEXTS) if text]
    assert sorted(found) == there
    assert [found[at] for at in there] == pytest.approx([cosines[at] for at in there], abs=1e-4)
    scores = [each["relevance_score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    last = [each["index"] for each in answer["results"] if each["index"] >= len(TEXTS) - 2]
    assert last == sorted(last)  # equal texts keep their order


@pytest.mark.parametrize("model", ["pairs", "fill-mask"])
def test_equal_texts_come_in_the_order_of_the_request(ask: Client, model: str) -> None:
    texts = TEXTS * 3
    random.Random(0).shuffle(texts)
    results = ask("/rerank", {"query": QUERY, "documents": texts, "model": model}).json["results"]
    for text in TEXTS:
        places = [each["index"] for each in results if texts[each["index"]] == text]
        assert places == sorted(places)
        scores = {each["relevance_score"] for each in results if each["index"] in places}
        assert len(scores) == (text != "" or model == "pairs")


def test_what_is_without_text_has_no_place(ask: Client) -> None:
    """Of vectors an empty document; of a model of pairs one whose query is empty too."""
    body: dict[str, Any] = {"query": QUERY, "documents": ["", "the soup", " ", "\u200b"]}

    def places(**changed: str) -> list[int]:
        results = ask("/rerank", {**body, **changed}).json["results"]
        return sorted(each["index"] for each in results)

    assert places(model="fill-mask") == [1]
    assert places(model="pairs") == [0, 1, 2, 3]
    assert places(model="pairs", query=" ") == [1]
    answer = ask("/rerank", {**body, "model": "fill-mask", "documents": [""]})
    assert answer.json["results"] == []
    answer = ask("/rerank", {**body, "model": "fill-mask", "query": " "})
    assert (answer.status, answer.message) == (422, "query: is empty; give a text")


def test_rank_fields_say_what_of_an_object_is_read(ask: Client) -> None:
    """As Cohere's client sends them; without them it is the key `text`."""
    body = {"query": QUERY, "model": "pairs"}
    objects = [{"title": text, "text": "soup", "year": 7} for text in TEXTS]
    for fields, texts in (
        (["title"], TEXTS),
        (["title", "text", "none"], [f"{text}\nsoup" for text in TEXTS]),
    ):
        given = ask("/rerank", {**body, "documents": objects, "rank_fields": fields})
        assert given.json == ask("/rerank", {**body, "documents": texts}).json


def test_documents_come_back_with_all_their_keys(ask: Client) -> None:
    """Their ids, as Cohere returns them."""
    objects = [{"id": "A1", "title": "the soup"}, {"id": "A2", "title": QUERY}, QUERY]
    body = {"query": QUERY, "model": "fill-mask", "documents": objects, "rank_fields": ["title"]}
    results = ask("/rerank", {**body, "return_documents": True}).json["results"]
    assert {each["index"]: each["document"] for each in results} == {
        0: {"text": "the soup", "id": "A1", "title": "the soup"},
        1: {"text": QUERY, "id": "A2", "title": QUERY},
        2: {"text": QUERY},
    }


def test_more_documents_than_are_computed_together(ask: Client, models: dict[str, Path]) -> None:
    many = [TEXTS[at % len(TEXTS)] for at in range(600)]
    answer = ask("/rerank", {"query": QUERY, "documents": many, "model": "pairs"})
    assert answer.status == 200, answer.body
    assert sorted(each["index"] for each in answer.json["results"]) == list(range(600))


def test_mistakes_say_what_to_do(ask: Client) -> None:
    body: dict[str, Any] = {"query": QUERY, "documents": TEXTS}
    for changed, message in (
        ({"documents": None}, "documents: give the texts as 'documents'"),
        ({"texts": TEXTS}, "documents: give the texts as 'documents'"),
        ({"model": "pairs", "label": "so"}, "there is no 'so' in the model; it has same, other"),
        ({"model": "fill-mask", "label": "a"}, "compares vectors and has no labels; leave it out"),
        ({"model": "tagging"}, "has no rerank; ask pairs"),
        ({"documents": []}, "documents"),
        ({"documents": [{"body": "x"}]}, "documents[0]: has no text"),
        ({"documents": [{"text": "x"}], "rank_fields": ["a", "b"]}, "[0]: has no a or b"),
        ({"documents": [{"text": 7}]}, "documents[0]: text must be text"),
        ({"documents": ["a", {"text": "x" * 100_000}]}, "documents[1]: more than"),
        ({"top_n": 0}, "top_n"),
    ):
        answer = ask("/rerank", body | changed)
        assert answer.status == 422, (changed, answer.body)
        assert message in answer.message
    for changed, param in (
        ({"model": "pairs", "label": "so"}, "label"),
        ({"model": "fill-mask", "label": "a"}, "label"),
        ({"documents": [{"text": "x" * 100_000}]}, "documents"),
    ):
        error = ask("/rerank", body | changed).json["error"]
        assert error["param"] == param


@pytest.mark.parametrize(
    ("labels", "relevant"),
    [
        (("0", "1"), "1"),
        (("entailment", "not_entailment"), "entailment"),
        (("contradiction", "entailment", "neutral"), "entailment"),
        (("not_equivalent", "equivalent"), "equivalent"),
        (("fits", "not fits"), "fits"),
        (("Yes", "No"), "Yes"),
        (("red", "green"), None),
        (("0", "1", "2", "3"), None),
        (("true", "relevant"), None),
        ((), None),
    ],
)
def test_the_label_that_says_relevant(labels: tuple[str, ...], relevant: str | None) -> None:
    assert relevant_label(labels) == relevant


def test_a_published_cross_encoder_orders_by_its_one_output(
    models: dict[str, Path], tmp_path: Path
) -> None:
    # What others publish has no bertine.json, so nobody says that it reads pairs.
    folder = tmp_path / "cross"
    write_task_model(folder, "regression", seed=3)
    (folder / "bertine.json").unlink()
    transformers = pytest.importorskip("transformers")
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = load_model(folder).tokenizer
    expected = []
    for text in TEXTS:
        encoded = tokenizer.encode(QUERY, text)
        with torch.no_grad():
            output = network(
                torch.tensor([encoded.input_ids]),
                token_type_ids=torch.tensor([encoded.token_type_ids]),
            )
        expected.append(float(output.logits[0, 0]))
    with running({"cross": folder}) as ask:
        results = ask("/rerank", {"query": QUERY, "documents": TEXTS}).json["results"]
        alone = ask("/predict", {"texts": [TEXTS[0]]})
        assert alone.status == 200
    found = {each["index"]: each["relevance_score"] for each in results}
    assert [found[at] for at in range(len(TEXTS))] == pytest.approx(expected, abs=1e-4)
    assert [each["index"] for each in results[:1]] == order(expected)[:1]


def test_probabilities_of_both_orders_differ(ask: Client, models: dict[str, Path]) -> None:
    """The query is the first text of the pair, as in training."""
    predictor = Predictor.load(models["pairs"], "cpu", "fp32")
    swapped = predictor.predict([(TEXTS[0], QUERY)])[0].to_json(True)["probabilities"]["same"]
    body = {"query": QUERY, "documents": TEXTS[:1], "model": "pairs"}
    (found,) = ask("/rerank", body).json["results"]
    assert not np.isclose(found["relevance_score"], swapped, atol=1e-4)
