"""A model may have a prompt for queries and one for the texts among which is searched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertine.inference.embedding.embed as embed_module
import bertine.inference.embedding.similar as similar_module
from bertine.core.errors import BertineError
from bertine.inference.embedding.embedder import Embedder

TEXTS = ["the cat sat on the mat", "a good dog", "soup"]
SETTINGS: dict[str, Any] = {"precision": "fp32", "show_progress": False}


def prompted(source: Path, folder: Path, include: bool = True, **settings: Any) -> Path:
    """A directory of sentence-transformers with prompts."""
    shutil.copytree(source, folder)
    modules = [
        {"type": f"sentence_transformers.models.{name}", "path": path}
        for name, path in (("Transformer", ""), ("Pooling", "1"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1").mkdir()
    pooling = {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": include}
    (folder / "1" / "config.json").write_text(json.dumps(pooling))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def cosines(model: Path, asked: str, before: str) -> list[float]:
    """Of the prompted query with the prompted texts, in the order of these."""
    embedder = Embedder.load(model, prompt="", precision="fp32", normalize=True)
    vectors = embedder.embed([asked + "a cat", *(before + text for text in TEXTS)])
    found: list[float] = (vectors[1:] @ vectors[0]).tolist()
    return found


@pytest.mark.parametrize(
    ("settings", "named", "prompts"),
    [
        ({"query": "the ", "passage": "a "}, {}, ("the ", "a ")),
        ({"search_query": "the ", "search_document": "a "}, {}, ("the ", "a ")),
        ({"query": "the ", "document": ""}, {}, ("the ", "")),
        ({"query": "the ", "passage": "a "}, {"prompt": "query"}, ("the ", "the ")),
        ({"query": "the ", "passage": "a "}, {"prompt": ""}, ("", "")),
        ({"query": "the ", "passage": "a "}, {"query_prompt": "passage"}, ("a ", "a ")),
        ({"x": "the ", "y": "a "}, {}, ("", "")),
        ({"x": "the ", "y": "a "}, {"prompt": "x", "query_prompt": "y"}, ("a ", "the ")),
        ({"x": "the ", "y": "a "}, {"query_prompt": "y"}, ("a ", "")),
    ],
)
def test_queries_and_texts_have_their_own(
    settings: dict[str, str],
    named: dict[str, str],
    prompts: tuple[str, str],
    pretrained: Path,
    tmp_path: Path,
) -> None:
    model = prompted(pretrained, tmp_path / "m", prompts=settings)
    found = similar_module.similar("a cat", {"text": TEXTS}, model=model, **named, **SETTINGS)
    expected = cosines(model, *prompts)
    assert [each.score for each in found] == pytest.approx(
        [expected[each.row - 1] for each in found], abs=1e-5
    )


def test_ready_vectors_have_the_prompt_of_texts(pretrained: Path, tmp_path: Path) -> None:
    model = prompted(pretrained, tmp_path / "m", prompts={"query": "the ", "passage": "a "})
    vectors = tmp_path / "v.npy"
    embed_module.embed(model, {"text": TEXTS}, vectors, **SETTINGS)
    note = f"before the texts of {vectors} stands '', before the query 'the '"
    assert similar_module.similar("a cat", vectors, model=model, **SETTINGS).notes == [note]
    embed_module.embed(model, {"text": TEXTS}, vectors, prompt="passage", **SETTINGS)
    expected = cosines(model, "the ", "a ")
    for named in ({}, {"prompt": "query"}, {"query_prompt": "query"}):
        found = similar_module.similar("a cat", vectors, model=model, **named, **SETTINGS)
        assert [each.score for each in found] == pytest.approx(
            [expected[each.row - 1] for each in found], abs=1e-5
        )
        assert found.notes == []
    with pytest.raises(BertineError, match="has vectors already, and their prompt; leave out pro"):
        similar_module.similar(
            "a cat", vectors, model=model, prompt="passage", query_prompt="query", **SETTINGS
        )
    with pytest.raises(BertineError, match="there is no prompt 'passsage'; there are: query, pa"):
        similar_module.similar("a cat", vectors, model=model, query_prompt="passsage", **SETTINGS)


def test_an_embedder_gives_one_with_another_prompt(pretrained: Path, tmp_path: Path) -> None:
    model = prompted(
        pretrained, tmp_path / "m", prompts={"query": "the ", "p": "a "}, default_prompt_name="p"
    )
    embedder = Embedder.load(model, precision="fp32")
    plain = embedder.with_prompt("")
    assert (embedder.prompt, plain.prompt) == ("a ", "")
    assert embedder.with_prompt("p") is embedder
    assert plain.encoder is embedder.encoder  # the weights are shared
    np.testing.assert_allclose(plain.embed("a cat"), embedder.embed("cat"), atol=1e-6)
    np.testing.assert_allclose(
        embedder.with_prompt("query").embed("cat"), plain.embed("the cat"), atol=1e-6
    )
    assert Embedder.load(pretrained).prompts.texts == {}
    with pytest.raises(BertineError, match="there is no prompt 'x'; there are: query, p"):
        embedder.with_prompt("x")
    # Its own settings hold in a search, but for what is said of the queries.
    found = similar_module.similar("cat", {"text": ["a cat"]}, model=plain, **SETTINGS)
    assert found[0].score < 0.9999
    asked: dict[str, Any] = {"model": plain, "query_prompt": "p", **SETTINGS}
    assert similar_module.similar("cat", {"text": ["a cat"]}, **asked)[0].score > 0.9999
