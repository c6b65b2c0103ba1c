"""What a request may say; what is not taken is told in one line."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from pydantic import ValidationError

from bertine.serving.address import Limits
from bertine.serving.app import request_schemas

from .conftest import BODY, Client


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/predict", {"texts": ["a"] * 5}, "texts: List should have at most 4 items"),
        ("/predict", {"texts": ["a" * 51]}, "texts[0]: String should have at most 50"),
        ("/predict", {"texts": []}, "texts: List should have at least 1 item"),
        ("/predict", {"texts": "a"}, "texts: Input should be a valid list"),
        ("/predict", {"texts": [7]}, "texts[0]: Input should be a valid string"),
        ("/predict", {}, "texts: give the texts as 'texts' (or 'inputs', not both)"),
        ("/predict", {"text": ["a"]}, "text: unknown key; did you mean 'texts'?"),
        ("/predict", {"texts": ["a"], "modle": "x"}, "modle: unknown key; did you mean 'model'?"),
        ("/predict", {"texts": [["a", "b"]]}, "texts[0]: has 2 parts; give one text (text)"),
        ("/predict", {"texts": ["a", ["b", "a" * 51]]}, "texts[1][1]: String should have at most"),
        ("/predict", {"texts": ["a", ["b", 7]]}, "texts[1][1]: Input should be a valid string"),
        ("/predict", {"texts": [[]]}, "texts[0]: List should have at least 1 item"),
        ("/predict", {"texts": [{"txt": "a"}]}, "texts[0]: there is no column 'text' (did you"),
        ("/predict", {"texts": [{"text": 7}]}, "texts[0].text: Input should be a valid string"),
        ("/predict", {"texts": [{}]}, "texts[0]: Value should have at least 1 item"),
        ("/predict", {"texts": [{str(n): "a" for n in range(65)}]}, "texts[0]: has more than 64"),
        ("/explain", {"text": {"txt": "a"}}, "text: there is no column 'text' (did you mean"),
        ("/embed", {"texts": [7], "model": 1}, "valid string (and 1 more)"),
        ("/embed", {"texts": ["a"], "a-b": 1}, "a-b: unknown key; this path takes texts, model"),
        ("/embed", {"texts": ["a"], "Normalise": 1}, "unknown key; did you mean 'normalize'?"),
        ("/embed", {}, "texts: give the texts as 'texts' (or 'inputs', not both)"),
        ("/embed", {"texts": ["a"], "inputs": "a"}, "(or 'inputs', not both)"),
        ("/embed", {"inputs": ["a", 7]}, "inputs[1]: Input should be a valid string"),
        ("/embed", {"inputs": "a " * 25, "truncate": False}, "inputs[0]: is "),
        ("/v1/embeddings", {"inputs": "a", "model": "text"}, "did you mean 'input'?"),
        ("/predict", {"texts": ["a"], "model": "fill-mask"}, "give a list of 2 texts (sentence1, "),
        ("/fill-mask", {"texts": ["[MASK]"], "model": "text"}, "has no fill-mask; ask fill-mask"),
        ("/fill-mask", {"texts": ["no mask"]}, "texts[0]: has no [MASK]"),
        ("/fill-mask", {"texts": ["[MASK] [MASK] [MASK]"]}, "has 3 [MASK], but at most 2"),
        ("/fill-mask", {"texts": ["[MASK]"], "top_k": 51}, "top_k: Input should be less"),
        ("/explain", {"text": "a" * 21}, "text: String should have at most 20"),
        ("/explain", {"text": "a", "pair": "b", "model": "text"}, "this model takes one text"),
        ("/attention", {"text": "a", "layer": 9}, "layer is 9, but the model has 0 to 1"),
        ("/v1/embeddings", {"input": [[1, 2]], "model": "text"}, "input: token ids are not taken"),
        ("/v1/embeddings", {"input": [1, 2], "model": "text"}, "input: token ids are not taken"),
        ("/v1/embeddings", {"input": ["a", 2], "model": "text"}, "input[1]: Input should be"),
        ("/v1/embeddings", {"input": 7, "model": "text"}, "input: Input should be a valid string"),
        ("/v1/embeddings", {"input": [], "model": "text"}, "input: List should have at least 1"),
        (
            "/v1/embeddings",
            {"input": ["a"] * 5, "model": "text"},
            "input: List should have at most",
        ),
        (
            "/v1/embeddings",
            {"input": "a", "model": "text", "dimensions": 33},
            "dimensions: the model's vectors have 32 numbers, and 33 are asked for",
        ),
    ],
)
def test_what_is_not_taken_is_said_in_one_line(
    path: str, body: Any, said: str, tight: Client
) -> None:
    answer = tight(path, body)
    assert answer.status == 422
    assert said in answer.message
    assert answer.message.count("more)") == said.count("more)")  # each mistake is counted once


def test_what_is_at_fault_is_named_for_programs_too(
    tight: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for path, body, named in (
        ("/predict", {"texts": ["a", ["b", 7]]}, "texts[1][1]"),
        ("/predict", {"texts": ["a"], "model": "x"}, "model"),
        ("/v1/embeddings", {"input": "a", "model": "text", "dimensions": 33}, "dimensions"),
        ("/predict", {"texts": ["a"], "\n\ud801": 1}, None),
        ("/predict", b"{", None),
    ):
        assert tight(path, body).json["error"]["param"] == named
    assert "a fault" not in caplog.text  # the client's mistakes are not the server's


def test_the_first_of_many_mistakes_is_enough(tight: Client) -> None:
    # A megabyte holds half a million of them: to list them all would hold everybody up.
    schemas = request_schemas(Limits())
    for schema, key in ((schemas["predict"], "texts"), (schemas["embed"], "texts")):
        many = dict.fromkeys(map(str, range(9000)), 0)
        for wrong in ([0] * 200, [["a"] * 10 + [0] * 9000] * 20, [many] * 20):
            with pytest.raises(ValidationError) as found:
                schema.model_validate({key: wrong})
            assert found.value.error_count() <= 3
    answer = tight("/predict", {f"key{n}": n for n in range(100)})
    assert answer.status == 422
    assert "has 100 keys" in answer.message


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["the cat"], "texts[0]: give a list of 3 to 5 texts: question, then the choices"),
        ([["q", "a", "b"], ["q", "a"]], "texts[1]: give a list of 3 to 5 texts"),
        ([["q", "a", "b", "c", "d", "e"]], "texts[0]: give a list of 3 to 5 texts"),
        ([["q", " ", "b"]], "texts[0]: has an empty choice"),
    ],
)
def test_choices_are_checked(texts: Any, said: str, ask: Client) -> None:
    answer = ask("/predict", {"texts": texts, "model": "choice"})
    assert answer.status == 422
    assert said in answer.message


def test_which_text_has_no_room_for_its_masks_is_said(ask: Client) -> None:
    answer = ask("/fill-mask", {"texts": ["the [MASK]", "[MASK] " + "cat " * 38]})
    assert answer.status == 422
    assert answer.message == ("texts[1]: has 41 pieces, but the model takes 40; shorten it")


def test_windows_count_as_inputs(ask: Client) -> None:
    texts = [["the cat", "the small dog barks . " * 200]] * 20
    answer = ask("/predict", {"texts": texts, "model": "spans"})
    assert answer.status == 422
    assert "inputs, but at most 512 are taken at a time" in answer.message
    one = ask("/predict", {"texts": texts[:1], "model": "spans"})
    assert one.status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 1900,
        b'{"texts": ["a"]} x',
        b'{"texts": ["\\ud800"]}',
        b'{"texts": ["\xed\xa0\x80"]}',
        b'{"texts": [NaN]}',
        b'{"texts": ["[MASK]"], "top_k": 1e999}',
        b'{"texts": ["[MASK]"], "top_k": ' + b"9" * 1500 + b"}",
        b'{"texts": ["[MASK]"], "top_k": -Infinity}',
        b'{"\\ud800": 1}',
        b'{"texts": {"a": ' * 100,
    ],
)
def test_what_is_no_json_is_422(body: bytes, tight: Client) -> None:
    for path in ("/predict", "/fill-mask", "/embed", "/v1/embeddings", "/explain", "/attention"):
        answer = tight(path, body)
        assert answer.status == 422, answer.body
        assert answer.message


@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "\x1b[2J", "\u202e", "\ufffe", "𝕬" * 20, "e\u0301" * 20, " " * 50]
)
def test_strange_texts_are_texts(text: str, tight: Client) -> None:
    for path in ("/predict", "/embed"):
        assert tight(path, {"texts": [text], "model": "text"}).status == 200


def test_other_paths_methods_and_types(tight: Client) -> None:
    assert "/docs" in tight("/nowhere").message
    assert tight("/nowhere").status == 404
    assert tight("/predict").status == 405
    assert tight("/predict", {"texts": ["a"], "model": "x"}).status == 404
    wrong = tight("/predict", BODY, **{"Content-Type": "text/plain"})
    assert wrong.status == 415
    assert "application/json" in wrong.message
    named = tight("/predict", BODY, **{"Content-Type": "application/json; charset=utf-8"})
    assert named.status == 200
    packed = tight("/predict", gzip.compress(BODY), **{"Content-Encoding": "gzip"})
    assert packed.status == 415
    assert "without a Content-Encoding" in packed.message


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/health", "/ready", "/metrics"])
def test_what_can_be_had_can_be_asked_after(path: str, tight: Client) -> None:
    # Those that only look whether a server is there ask with HEAD.
    there, asked = tight(path, method="HEAD"), tight(path)
    assert (there.status, there.body) == (200, b"")
    for name in ("content-type", "content-length") if path != "/metrics" else ("content-type",):
        assert there.headers[name] == asked.headers[name]
    assert tight("/predict", method="HEAD").status == 405


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        *(("/embeddings", "/v1/embeddings"), ("//v1/embeddings", "/v1/embeddings")),
        *(
            ("///v1///embeddings", "/v1/embeddings"),
            ("//embed", "/embed"),
            ("//predict", "/predict"),
        ),
        *(("/chat/completions", ""), ("/embedding", ""), ("/v1/predict", ""), ("/%2f", "")),
    ],
)
def test_a_path_that_is_nearly_one_of_ours_is_corrected(
    path: str, meant: str, tight: Client
) -> None:
    answer = tight(path, {"input": "a"})
    assert answer.status == 404
    hint = f"send it to {meant}; " if meant else ""
    assert answer.message == f"not found: {hint}/docs lists the paths"
