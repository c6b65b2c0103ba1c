"""The server answers what the predictor answers, for every task, alone and in company."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import toys
from bertine.core.errors import BertineError
from bertine.hub.model_directory import load_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.fill_mask import fill_mask
from bertine.inference.predictor import Predictor
from bertine.options.inference import ServeOptions
from bertine.serving.address import Limits
from bertine.serving.handles import ModelHandle
from bertine.serving.schemas import example_body, sample_text
from bertine.tasks import TASKS

from .conftest import ON_CPU, Client, running

SENTENCE = toys.sentence("cat", "old")
LONG = " ".join(toys.sentence(topic, "small") for topic in toys.TOPICS)
TEXTS: dict[str, list[Any]] = {
    "text": [SENTENCE, "", LONG, "soup"],
    "pairs": [[SENTENCE, "the soup"], [LONG, LONG]],
    "regression": [SENTENCE, LONG],
    "multi-label": [SENTENCE, LONG],
    "choice": [["the cat", "sleeps", "boils"], ["the soup", "boils", "barks", "cools", "swims"]],
    "spans": [["the cat", LONG], ["where is the soup", SENTENCE]],
    "tagging": [SENTENCE, ["the", "small", "cat"], LONG],
}


def given(text: Any) -> Any:
    return tuple(text) if isinstance(text, list) else text


@pytest.mark.parametrize("kind", ["text", "pairs", "choice", "spans"])
def test_texts_may_come_by_the_names_of_their_columns(
    kind: str, ask: Client, models: dict[str, Path]
) -> None:
    columns = Predictor.load(models[kind], "cpu", "fp32").task.text_columns
    texts = TEXTS[kind]
    parts = [[text] if isinstance(text, str) else text for text in texts]
    named = [dict(zip(columns, part, strict=False)) for part in parts]
    named[0]["id"] = "7"  # another key is left out, as in Python
    if kind == "choice":
        texts, named = texts[:1], named[:1]  # names there are for as many choices as in training
    expected = ask("/predict", {"texts": texts, "model": kind})
    answer = ask(
        "/predict", {"texts": [dict(reversed(each.items())) for each in named], "model": kind}
    )
    assert answer.status == expected.status == 200
    assert answer.json["predictions"] == expected.json["predictions"]
    whole = ask("/explain", {"text": parts[0], "model": kind})
    assert ask("/explain", {"text": named[0], "model": kind}).json == whole.json


@pytest.mark.parametrize("kind", TEXTS)
def test_predictions_are_those_of_the_predictor(
    kind: str, ask: Client, models: dict[str, Path]
) -> None:
    predictor = Predictor.load(models[kind], "cpu", "fp32")
    expected = predictor.predict([given(text) for text in TEXTS[kind]])
    body = {"texts": TEXTS[kind], "model": kind, "all_probabilities": True}
    answer = ask("/predict", body)
    assert answer.status == 200, answer.body
    assert answer.json["model"] == kind
    assert answer.json["task"] == predictor.task.name
    found = answer.json["predictions"]
    assert len(found) == len(expected)
    for each, wanted in zip(found, expected, strict=True):
        assert each.get("empty", False) == wanted.empty
        if wanted.empty:
            assert each["label"] is each["probability"] is each["probabilities"] is None
        elif kind in ("text", "pairs"):
            assert each["label"] == wanted.label
            assert each["probabilities"] == pytest.approx(wanted.probabilities, abs=1e-5)
        elif kind == "regression":
            assert each["score"] == pytest.approx(wanted.score, abs=1e-5)
        elif kind == "multi-label":
            assert each["labels"] == list(wanted.labels)
            assert each["probabilities"] == pytest.approx(wanted.probabilities, abs=1e-5)
        elif kind == "choice":
            assert each["choice"] == wanted.choice
            assert each["label"] == "abcd"[wanted.choice]  # as the training file writes it
            assert each["probabilities"] == pytest.approx(list(wanted.probabilities), abs=1e-5)
        elif kind == "spans":
            assert (each["answer"], each["start"]) == (wanted.answer, wanted.start)
            assert [a["answer"] for a in each["n_best"]] == [a.text for a in wanted.n_best]
        else:
            assert each["tags"] == list(wanted.tags)
            assert [e["text"] for e in each["entities"]] == [e.text for e in wanted.entities]
            assert [e["probability"] for e in each["entities"]] == pytest.approx(
                [e.probability for e in wanted.entities], abs=1e-5
            )
    for each, text in zip(found, TEXTS[kind], strict=True):
        if kind == "spans" and each["start"] is not None:
            assert text[1][each["start"] : each["end"]] == each["answer"]
        if kind == "tagging" and isinstance(text, str):
            assert [text[w["start"] : w["end"]] for w in each["words"]] == text.split()


@pytest.mark.slow
def test_many_at_once_get_the_answers_of_one_by_one(ask: Client) -> None:
    topics = list(toys.TOPICS)
    texts = [toys.sentence(topics[n % 8], toys.ADJECTIVES[n % 4]) for n in range(40)]

    def one(text: str) -> Any:
        body = {"texts": [text], "model": "text", "all_probabilities": True}
        return ask("/predict", body).json["predictions"][0]

    alone = [one(text) for text in texts]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(one, texts * 3))
    for found, wanted in zip(together, alone * 3, strict=True):
        assert found["probabilities"] == pytest.approx(wanted["probabilities"], abs=2e-5)
    sizes = ask.service.metrics.batch_requests.labels("text")
    assert sizes._sum.get() > sum(bucket.get() for bucket in sizes._buckets)  # more than one each


def test_without_a_name_the_first_that_can_answers(ask: Client) -> None:
    assert ask("/predict", {"texts": [SENTENCE]}).json["model"] == "text"
    assert ask("/fill-mask", {"texts": ["the [MASK]"]}).json["model"] == "fill-mask"


def test_masks_are_filled(ask: Client, models: dict[str, Path]) -> None:
    text = "the [MASK] cat sleeps in the [MASK] ."
    expected = fill_mask(load_model(models["fill-mask"]), text, top_k=3)
    answer = ask("/fill-mask", {"texts": ["the [MASK]", text], "top_k": 3})
    assert answer.status == 200
    found = answer.json["filled"][1]
    assert [mask["start"] for mask in found["masks"]] == [mask.start for mask in expected]
    assert all(text[mask["start"] : mask["end"]] == "[MASK]" for mask in found["masks"])
    for mask, wanted in zip(found["masks"], expected, strict=True):
        assert [c["token"] for c in mask["candidates"]] == [c.token for c in wanted.candidates]
        assert [c["probability"] for c in mask["candidates"]] == pytest.approx(
            [c.probability for c in wanted.candidates], abs=1e-5
        )


def mean_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    loaded = load_model(folder)
    rows = []
    for text in texts:
        longest = (loaded.task and loaded.task.max_length) or 40
        ids = loaded.tokenizer.encode(text, max_length=longest).input_ids
        with torch.no_grad():
            rows.append(loaded.model.backbone(torch.tensor([ids])).last_hidden_state[0].mean(0))
    return torch.stack(rows).numpy()


def longest_of(ask: Client, kind: str) -> int:
    """The longest text that the model makes a vector of, in pieces."""
    embedder = ask.service.models[kind].embedder
    assert embedder is not None
    return embedder.max_length


@pytest.mark.parametrize("kind", ["text", "tagging", "fill-mask"])
def test_vectors_are_means_of_the_last_layer(
    kind: str, ask: Client, models: dict[str, Path]
) -> None:
    texts = [SENTENCE, "", LONG]
    expected = mean_vectors(models[kind], texts)
    answer = ask("/embed", {"texts": texts, "model": kind}).json
    assert answer["dimensions"] == 32
    pieces = len(LONG.split())
    assert answer["pieces_cut"] == [0, 0, pieces + 2 - min(pieces + 2, longest_of(ask, kind))]
    np.testing.assert_allclose(answer["vectors"], expected, atol=2e-5)
    unit = ask("/embed", {"texts": texts, "model": kind, "normalize": True}).json["vectors"]
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected / lengths, atol=2e-5)
    # As clients of Text Embeddings Inference ask and are answered.
    for inputs, vectors in ((texts, unit), (texts[0], unit[:1])):
        plain = ask("/embed", {"inputs": inputs, "model": kind, "truncate": None}).json
        np.testing.assert_allclose(plain, vectors, atol=2e-5)
    # Shorter vectors have length 1 where that is asked for, and always for OpenAI's clients.
    short = expected[:, :7]
    cut = ask("/embed", {"texts": texts, "model": kind, "dimensions": 7}).json
    assert cut["dimensions"] == 7
    np.testing.assert_allclose(cut["vectors"], short, atol=2e-5)
    rows = ask("/v1/embeddings", {"input": texts, "model": kind, "dimensions": 7}).json["data"]
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    np.testing.assert_allclose([row["embedding"] for row in rows], short / lengths, atol=2e-5)


@pytest.mark.parametrize("kind", ["text", "tagging", "fill-mask"])
def test_vectors_take_no_second_copy_of_the_weights(kind: str, ask: Client) -> None:
    served = ask.service.models[kind]
    embedder, predictor = served.embedder, served.predictor
    assert embedder is not None
    assert served.model is not None
    assert embedder.model is served.model.model
    if predictor is not None:
        assert predictor.model is served.model.model
        assert ask("/embed", {"texts": ["the cat"], "model": kind}).status == 200
        assert embedder.encoder.engine is predictor.engine  # both are in fp32


def write_modules(folder: Path, *kinds: str, **settings: Any) -> Path:
    """A model directory of sentence-transformers."""
    toys.write_model(folder)
    modules = [
        {"name": str(n), "type": f"sentence_transformers.models.{kind}", "path": path}
        for n, (kind, path) in enumerate([("Transformer", ""), *((k, f"{k}") for k in kinds)])
    ]
    (folder / "Pooling").mkdir()
    (folder / "Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def test_what_sentence_transformers_says_of_vectors_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {
        "cut": write_modules(
            tmp_path / "cut",
            "Pooling",
            truncate_dim=12,
            prompts={"query": "the "},
            default_prompt_name="query",
        ),
        "dense": write_modules(tmp_path / "dense", "Pooling", "Dense"),
    }
    expected = Embedder.load(folders["cut"], precision="fp32").embed(["cat", LONG])
    with running(folders) as client:
        body = {"input": ["cat", LONG], "model": "cut", "dimensions": 12}
        found = client("/v1/embeddings", body).json
        assert found["usage"]["prompt_tokens"] == 4 + 8
        wanted = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose([e["embedding"] for e in found["data"]], wanted, atol=2e-5)
        described = client("/v1/models").json["data"]
        assert [each["dimensions"] for each in described] == [12, 32]
        # Vectors that would be other ones are not offered, and that is said.
        assert "embed" not in described[1]["operations"]
        assert client("/embed", {"texts": ["cat"], "model": "dense"}).status == 422
        assert client("/fill-mask", {"texts": ["[MASK]"], "model": "dense"}).status == 200
    assert "dense: no vectors: " in capsys.readouterr().err


def test_prompts_are_chosen_by_name_or_by_what_texts_are(tmp_path: Path) -> None:
    prompts = {"query": "the ", "passage": "a small ", "clustering": "old "}
    folder = write_modules(tmp_path / "m", "Pooling", prompts=prompts, default_prompt_name="query")
    plain = Embedder.load(folder, precision="fp32", prompt="", normalize=True)
    expected = {name: plain.embed(text + "cat") for name, text in (prompts | {"": ""}).items()}
    with running({"m": folder}) as client:
        assert client("/v1/models").json["data"][0]["prompts"] == list(prompts)
        for keys, name in (
            ({}, "query"),
            ({"prompt_name": "passage"}, "passage"),
            ({"prompt_name": ""}, ""),
            ({"prompt_name": None}, "query"),
        ):
            for body in ({"texts": ["cat"], "normalize": True}, {"inputs": "cat"}):
                found = client("/embed", body | keys).json
                vector = found[0] if isinstance(found, list) else found["vectors"][0]
                np.testing.assert_allclose(vector, expected[name], atol=2e-5)
        for keys, name in (
            ({}, "query"),
            ({"prompt_name": "clustering"}, "clustering"),
            ({"input_type": "search_query"}, "query"),
            ({"input_type": "search_document"}, "passage"),
            ({"input_type": "passage"}, "passage"),
            ({"input_type": "clustering"}, "clustering"),
            ({"input_type": "classification"}, "query"),  # it has none for that: its default
        ):
            found = client("/v1/embeddings", {"input": "cat", "model": "m"} | keys).json
            np.testing.assert_allclose(found["data"][0]["embedding"], expected[name], atol=2e-5)
        scores = client("/rerank", {"query": "cat", "documents": ["cat"]}).json["results"]
        cosine = expected["query"] @ expected["passage"]
        assert scores[0]["relevance_score"] == pytest.approx(cosine, abs=2e-5)
        wrong = client("/embed", {"texts": ["cat"], "prompt_name": "passsage"})
        assert wrong.status == 422
        assert wrong.message == (
            "prompt_name: the model 'm': there is no prompt 'passsage'; there are: query, passage, "
            "clustering"
        )
        wrong = client("/v1/embeddings", {"input": "cat", "model": "m", "input_type": "image"})
        assert wrong.message.startswith("input_type: Input should be 'query', 'search_query'")


def test_prompts_that_cannot_be_put_are_refused_by_name_only(tmp_path: Path) -> None:
    folder = write_modules(tmp_path / "m", "Pooling", prompts={"clustering": "old "})
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    (folder / "Pooling" / "config.json").write_text(json.dumps(pooling))
    with running({"m": folder}) as client:
        body = {"texts": ["cat"]}
        wrong = client("/embed", {**body, "prompt_name": "clustering"})
        assert wrong.status == 422
        assert wrong.message.startswith("prompt_name: the model 'm': its pooling leaves the prompt")
        assert str(tmp_path) not in wrong.message
        plain = client("/v2/embed", body).json["embeddings"]
        # Cohere's clients must say what texts are.
        assert client("/v2/embed", {**body, "input_type": "clustering"}).json["embeddings"] == plain


def test_a_directory_of_sentence_transformers_may_have_the_weights_in_a_folder_of_its_own(
    tmp_path: Path,
) -> None:
    folder = write_modules(tmp_path / "pet", "Pooling")
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [each for each in folder.iterdir() if each.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(inner / file.name)
    text = (folder / "modules.json").read_text()
    (folder / "modules.json").write_text(text.replace('"path": ""', '"path": "0_Transformer"'))
    served = ModelHandle.load("pet", folder, ServeOptions(**ON_CPU), Limits())
    assert served.embedder is not None
    assert served.model is not None
    assert served.embedder.model is served.model.model
    assert served.embedder.max_length == 8
    expected = Embedder.load(folder, precision="fp32").embed([LONG])
    (found,) = served.operations["embed"]([LONG])
    np.testing.assert_allclose(found.vector, expected[0], atol=2e-5)
    # Without the modules' word nobody knows where the weights are.
    (inner / "sentence_bert_config.json").write_text('{"unheard_of": 1}')
    with pytest.raises(BertineError, match="unheard_of"):
        ModelHandle.load("pet", folder, ServeOptions(**ON_CPU), Limits())


def test_openais_clients_are_answered(ask: Client, models: dict[str, Path]) -> None:
    texts = [SENTENCE, "the soup"]
    plain = ask("/v1/embeddings", {"input": texts, "model": "text", "user": "somebody"})
    assert plain.status == 200
    found = plain.json
    assert found["object"] == "list"
    assert [each["index"] for each in found["data"]] == [0, 1]
    tokens = len(SENTENCE.split()) + 2 + 4
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    expected = mean_vectors(models["text"], texts)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose([e["embedding"] for e in found["data"]], expected, atol=2e-5)
    packed = ask(
        "/v1/embeddings", {"input": "the soup", "model": "text", "encoding_format": "base64"}
    ).json["data"]
    row = np.frombuffer(base64.b64decode(packed[0]["embedding"]), "<f4")
    np.testing.assert_allclose(row, expected[1], atol=2e-5)
    # As LiteLLM sends it.
    null = ask("/v1/embeddings", {"input": texts, "model": "text", "encoding_format": None})
    assert null.json == found


def test_coheres_clients_are_answered(ask: Client, models: dict[str, Path]) -> None:
    texts = [SENTENCE, LONG]
    expected = Embedder.load(models["text"], precision="fp32", normalize=True).embed(texts)
    # Keys of its own, as its client sends them.
    body = {"texts": texts, "model": "text", "input_type": "search_query", "images": None}
    plain = ask("/v1/embed", {**body, "truncate": "END"}).json
    assert plain["response_type"] == "embeddings_floats"
    np.testing.assert_allclose(plain["embeddings"], expected, atol=2e-5)
    for path, keys in (("/v1/embed", {"embedding_types": ["float", "base64"]}), ("/v2/embed", {})):
        found = ask(path, body | keys).json
        assert found["response_type"] == "embeddings_by_type"
        np.testing.assert_allclose(found["embeddings"]["float"], expected, atol=2e-5)
        for row, encoded in zip(expected, found["embeddings"].get("base64", []), strict=False):
            vector = np.frombuffer(base64.b64decode(encoded), dtype="<f4")
            np.testing.assert_allclose(vector, row, atol=2e-5)
    short = ask("/v2/embed", {**body, "output_dimension": 8}).json["embeddings"]["float"]
    wanted = expected[:, :8] / np.linalg.norm(expected[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(short, wanted, atol=2e-5)
    for keys, said in (
        ({"truncate": "NONE"}, "texts[1]: is "),
        ({"truncate": "START"}, "truncate: Input should be 'NONE' or 'END'"),
        ({"embedding_types": ["int8"]}, "embedding_types[0]: Input should be 'float' or 'base64'"),
        ({"input_type": "image"}, "input_type: Input should be 'query'"),
        ({"output_dimension": 33}, "dimensions: the model's vectors have 32 numbers"),
    ):
        answer = ask("/v2/embed", body | keys)
        assert answer.status == 422
        assert said in answer.message


def test_models_tell_what_they_can(ask: Client) -> None:
    listed = {each["id"]: each for each in ask("/v1/models").json["data"]}
    assert listed["text"]["labels"] == ["animal", "dish"]
    assert listed["text"]["operations"] == ["attention", "embed", "explain", "predict"]
    assert listed["fill-mask"]["task"] == "fill-mask"
    assert listed["choice"]["max_choices"] == 4
    assert listed["spans"]["text_columns"] == ["question", "context"]


def test_state(ask: Client) -> None:
    assert ask("/health").json == {"status": "ok"}
    assert ask("/ready").json == {"status": "ready"}


def test_metrics_count_answers_and_batches(ask: Client) -> None:
    def value(name: str) -> float:
        lines = ask("/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name + " "))

    answered = 'bertine_requests_total{code="200",path="/predict"}'
    inputs = 'bertine_inputs_total{model="regression",operation="predict"}'
    before = value(answered), value(inputs)
    ask("/predict", {"texts": [SENTENCE] * 5, "model": "regression"})
    assert (value(answered), value(inputs)) == (before[0] + 1, before[1] + 5)
    # What clients make up gets no series of its own.
    ask("/some/path/nobody/knows")
    text = ask("/metrics").body.decode()
    assert "nobody" not in text
    assert 'path="other"' in text
    assert "process_resident_memory_bytes" in text


def test_the_openapi_tells_the_bounds_and_loads_nothing(ask: Client) -> None:
    api = json.loads(ask("/openapi.json").body)
    assert set(api["paths"]) == {
        *("/predict", "/fill-mask", "/embed", "/v1/embed", "/v2/embed", "/v1/embeddings"),
        *("/search", "/explain", "/attention"),
        *("/", "/rerank", "/v1/rerank", "/v2/rerank"),
        *("/health", "/ready", "/metrics", "/drift", "/v1/models", "/v1/models/{model}"),
    }
    texts = api["components"]["schemas"]["FillMaskRequest"]["properties"]["texts"]
    assert (texts["maxItems"], texts["items"]["maxLength"]) == (256, 20000)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_are_whole_in_themselves(path: str, ask: Client) -> None:
    answer = ask(path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")
    text = answer.body.decode()
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "innerHTML" not in text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


def test_openai_takes_2048_texts_and_leaves_room_for_others(ask: Client) -> None:
    texts = [f"the {'old ' * (n % 5)}cat" for n in range(2048)]
    answer = ask("/v1/embeddings", {"input": texts, "model": "text"})
    assert answer.status == 200
    rows = answer.json["data"]
    assert [row["index"] for row in rows] == list(range(2048))
    single = ask("/v1/embeddings", {"input": texts[2047], "model": "text"}).json["data"][0]
    assert rows[2047]["embedding"] == pytest.approx(single["embedding"], abs=1e-5)
    too_many = ask("/v1/embeddings", {"input": [*texts, "one more"], "model": "text"})
    assert too_many.status == 422
    assert "at most 2048 items" in too_many.message


def test_one_model_is_described_by_its_name(ask: Client) -> None:
    listed = ask("/v1/models").json["data"]
    assert ask(f"/v1/models/{listed[1]['id']}").json == listed[1]
    missing = ask("/v1/models/txet")
    assert missing.status == 404
    assert missing.message == "there is no model 'txet' here; did you mean 'text'?"
    counted = ask("/metrics").body.decode()
    assert 'path="/v1/models/{model}"' in counted
    assert "txet" not in counted


def test_the_example_of_every_path_and_model_is_answered(ask: Client) -> None:
    api = json.loads(ask("/openapi.json").body)
    tried = 0
    for path, methods in api["paths"].items():
        if "post" in methods and path != "/search":  # this server has no collection
            body = methods["post"]["requestBody"]["content"]["application/json"]["example"]
            answer = ask(path, body)
            assert answer.status == 200, (path, answer.message)
            tried += 1
    assert tried == 12
    for model in ask("/v1/models").json["data"]:
        if "predict" in model["operations"]:
            assert ask("/predict", example_body("/predict", model)).status == 200


def test_a_pretrained_model_answers_for_pairs_and_still_fills_masks(
    ask: Client, models: dict[str, Path]
) -> None:
    pairs = [[SENTENCE, "the soup"], [LONG, LONG]]
    expected = Predictor.load(models["fill-mask"], "cpu", "fp32").predict([*map(tuple, pairs)])
    body = {"texts": pairs, "model": "fill-mask", "all_probabilities": True}
    answer = ask("/predict", body).json
    assert answer["task"] == "pretraining"
    for ours, theirs in zip(answer["predictions"], expected, strict=True):
        assert ours["probabilities"] == pytest.approx(theirs.probabilities, abs=1e-5)
        assert set(ours["probabilities"]) == {"IsNext", "NotNext"}
    assert ask("/v1/models/fill-mask").json["text_columns"] == ["sentence1", "sentence2"]
    assert ask("/explain", {"text": "the [MASK]", "model": "fill-mask"}).status == 200


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (["joy", "anger"], "cancelled"),
        (["Sports", "DistContext"], "team"),
        (["1", "2"], "book"),
        (["a", "b"], ""),
    ],
)
def test_the_example_fits_the_labels(labels: list[str], word: str) -> None:
    text = sample_text("text", labels, 1, 0, False)
    assert isinstance(text, str)
    assert word in text
    assert sample_text("text", labels, 1, 0, True) != text  # a model of Chinese gets Chinese


def test_the_page_has_a_form_for_every_task() -> None:
    """Titles of the tabs, and the views that fields and answers come from."""
    page = (files("bertine.serving") / "static" / "index.html").read_text(encoding="utf-8")
    titles = re.search(r"const titles = \{(.*?)\};", page, re.S)
    assert titles is not None
    names = set(re.findall(r'"?([\w-]+)"?: "', titles[1]))
    views = set(re.findall(r'^  "?([\w-]+)"?: \{$', page, re.M))
    shown = {"text": "label", "regression": "label", "multi-label": "label", "seq2seq": "written"}
    assert names >= TASKS.keys() | {"fill-mask", "embed"}
    assert {shown.get(name, name) for name in names} == views


def test_costs_decide_and_their_errors_name_the_model(
    models: dict[str, Path], tmp_path: Path
) -> None:
    labels = Predictor.load(models["text"], "cpu", "fp32").task.labels
    rows = [[float(true != guess) for guess in labels[:-1]] + [-1.0] for true in labels]
    lines = [",".join(["true", *labels])]
    lines += [",".join([label, *map(str, row)]) for label, row in zip(labels, rows, strict=True)]
    costs = tmp_path / "costs.csv"
    costs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with running({"text": models["text"]}, options=ServeOptions(cost_matrix=costs)) as client:
        answer = client("/predict", {"texts": TEXTS["text"]})
        given = [found["label"] for found in answer.json["predictions"]]
        assert given == [labels[-1], None, *[labels[-1]] * 2]  # the second text is empty
    costs.write_text("true,car\ncar,0\n", encoding="utf-8")
    with (
        pytest.raises(BertineError, match=r"text: .*costs.csv: the column 'car' is not one"),
        running({"text": models["text"]}, options=ServeOptions(cost_matrix=costs)),
    ):
        pass
    with (
        pytest.raises(BertineError, match="text: coverage needs a model that was fine-tuned"),
        running({"text": models["text"]}, options=ServeOptions(coverage=0.9)),
    ):
        pass


def test_unsure_answers_are_null(models: dict[str, Path]) -> None:
    chosen = {name: models[name] for name in ("text", "choice")}
    with running(chosen, options=ServeOptions(abstain_below=1.0)) as client:
        for name in chosen:
            answer = client("/predict", {"texts": TEXTS[name], "model": name})
            assert answer.status == 200, answer.body
            for found in answer.json["predictions"]:
                assert found["label"] is None
                assert found.get("empty") or 0 < found["probability"] < 1
                assert found.get("choice") is None
    with (
        pytest.raises(BertineError, match="regression: abstain_below is for models that choose"),
        running({"regression": models["regression"]}, options=ServeOptions(abstain_below=0.5)),
    ):
        pass


def test_numbers_that_are_none_are_an_error_of_one_line(tmp_path: Path) -> None:
    """Weights that are finite, and overflow when they are computed with."""
    folder = toys.write_classifier(tmp_path / "m")
    state = load_file(folder / "model.safetensors")
    broken = next(name for name in reversed(state) if name.endswith("output.LayerNorm.weight"))
    state[broken] = torch.full_like(state[broken], 3e38)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    body = {"texts": ["the cat sat"]}
    with running({"m": folder}) as client:
        asked = {"/predict": body, "/embed": body, "/v1/embeddings": {"input": "the cat"}}
        asked["/explain"] = {"text": "the cat sat"}
        for path, content in asked.items():
            answer = client(path, {"model": "m", **content})
            assert (answer.status, "NaN or infinite" in answer.message) == (422, True), path


def test_cut_pieces_are_counted(ask: Client) -> None:
    pieces = len(LONG.split())
    answer = ask("/predict", {"texts": [SENTENCE, LONG], "model": "text"}).json
    assert [each["pieces_cut"] for each in answer["predictions"]] == [0, pieces - 14]
    # Contexts are read in windows; of the question pieces are lost, once and not in each window.
    answer = ask("/predict", {"texts": [[LONG, LONG]], "model": "spans"}).json
    assert answer["predictions"][0]["pieces_cut"] == pieces - 10


def test_a_text_that_the_vocabulary_does_not_know_is_flagged(ask: Client) -> None:
    texts = [SENTENCE, "ไม่ดีเลย เสียเวลา"]
    answer = ask("/predict", {"texts": texts, "model": "text"}).json
    assert [found.get("unknown") for found in answer["predictions"]] == [None, 1.0]
    answer = ask("/embed", {"texts": texts, "model": "text"}).json
    assert answer["unknown"] == [0.0, 1.0]
    answer = ask("/embed", {"texts": texts[:1], "model": "text"}).json
    assert "unknown" not in answer
