"""The server searches a collection: the nearest texts with their columns, what is refused, and what
happens when the file is replaced."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.inference.embedding.collection import Collection
from bertine.inference.embedding.embedder import Embedder
from bertine.options.inference import ServeOptions

from .conftest import Client, running

_ROWS: list[dict[str, Any]] = [
    {"id": f"t{at}", "kind": "animal" if at < 4 else "dish", "text": toys.sentence(topic, "old")}
    for at, topic in enumerate(toys.TOPICS)
]
_ROWS += [{"id": "none", "kind": "dish", "text": ""}]
QUERY = toys.sentence("dog", "small")


def embedded(model: Path, rows: list[dict[str, Any]], to: Path) -> Path:
    with toys.one_thread():
        bertine.embed(model, rows, to, precision="fp32", device="cpu", show_progress=False)
    return to


@pytest.fixture(scope="module")
def docs(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedded(models["fill-mask"], _ROWS, tmp_path_factory.mktemp("docs") / "docs.parquet")


@pytest.fixture(scope="module")
def searched(models: dict[str, Path], docs: Path) -> Iterator[Client]:
    """A server whose second model made the vectors."""
    served = {"text": models["text"], "vectors": models["fill-mask"]}
    with running(served, options=ServeOptions(collection=docs), max_texts=4) as client:
        yield client


@pytest.mark.parametrize("where", [None, "kind = dish or id = t1"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_rows_are_those_of_the_collection(
    searched: Client, models: dict[str, Path], docs: Path, where: str | None, hybrid: bool
) -> None:
    queries = [QUERY, "soup"]
    embedder = Embedder.load(models["fill-mask"], device="cpu", precision="fp32")
    expected = Collection.open(docs, embedder).search(queries, top=3, where=where, hybrid=hybrid)
    answer = searched("/search", {"queries": queries, "top": 3, "where": where, "hybrid": hybrid})
    assert answer.status == 200, answer.body
    assert (answer.json["model"], answer.json["compared"]) == ("vectors", expected[0].rows)
    for found, nearest in zip(answer.json["results"], expected, strict=True):
        assert found["pieces_cut"] == 0
        assert len(found["rows"]) == 3
        for row, other in zip(found["rows"], nearest.found, strict=True):
            assert (row["row"], row["text"], row["columns"]) == (
                other.row, other.text, other.columns,
            )  # fmt: skip
            assert row["score"] == pytest.approx(other.score, abs=1e-5)


def test_the_example_of_the_api_reference_is_answered(searched: Client) -> None:
    path = searched("/openapi.json").json["paths"]["/search"]["post"]
    body = path["requestBody"]["content"]["application/json"]["example"]
    answer = searched("/search", body)
    assert answer.status == 200, answer.body
    assert len(answer.json["results"][0]["rows"]) == body["top"]


def test_one_query_may_be_asked_alone(searched: Client) -> None:
    found = searched("/search", {"query": QUERY, "where": "kind = animal"}).json
    assert found == searched("/search", {"queries": [QUERY], "where": "kind = animal"}).json
    assert {row["columns"]["kind"] for row in found["results"][0]["rows"]} == {"animal"}
    assert len(found["results"][0]["rows"]) == found["compared"] == 4
    assert searched("/search", {"query": QUERY, "where": "kind = car"}).json["compared"] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "query: give the texts as 'query' (or 'queries', not both)"),
        ({"query": "the", "queries": ["cat"]}, "query: give the texts as 'query'"),
        ({"query": " "}, "query: is empty; give a text"),
        ({"queries": ["the cat", ""]}, "queries[1]: is empty; give a text"),
        ({"queries": ["the"] * 5}, "queries: "),
        ({"query": "the", "top": 0}, "top: "),
        ({"queries": ["the"] * 2, "top": 1025}, "top: at most 2048 rows are given"),
        ({"query": "the", "where": "colour = red"}, "there is no column 'colour'"),
        ({"query": "the", "where": "kind ="}, "is no condition"),
        ({"query": "the", "where": "x" * 10_001}, "where: "),
        ({"query": "the", "model": "text"}, "the model 'text' is for 'text' and has no search"),
        ({"query": "the", "filter": "x"}, "filter: unknown key"),
    ],
)
def test_mistakes_are_told(searched: Client, body: dict[str, Any], message: str) -> None:
    answer = searched("/search", body)
    assert answer.status == 422
    assert message in answer.message


def test_a_server_without_a_collection_says_how_to_have_one(ask: Client) -> None:
    answer = ask("/search", {"query": "the cat"})
    assert answer.status == 422
    assert answer.message == "this server has no collection; start it with collection FILE"


def test_a_collection_of_another_model_is_refused(models: dict[str, Path], docs: Path) -> None:
    with (
        pytest.raises(BertineError, match=r"docs\.parquet: was made with another model"),
        running({"text": models["text"]}, options=ServeOptions(collection=docs)),
    ):
        pass


def test_a_new_file_takes_the_place_of_the_old_one_and_a_damaged_one_does_not(
    models: dict[str, Path], docs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Path(shutil.copy(docs, tmp_path / "docs.parquet"))
    new = {"id": "new", "kind": "dish", "text": QUERY}

    def best(client: Client) -> str:
        answer = client("/search", {"query": QUERY, "top": 1}).json
        return str(answer["results"][0]["rows"][0]["columns"]["id"])

    with running({"vectors": models["fill-mask"]}, options=ServeOptions(collection=kept)) as client:
        assert best(client) != "new"
        kept.write_bytes(b"no Parquet")
        deadline = time.monotonic() + 20
        while "is searched on" not in caplog.text:
            assert best(client) != "new"
            assert time.monotonic() < deadline
        other = embedded(models["fill-mask"], [*_ROWS, new], tmp_path / "other.parquet")
        other.replace(kept)
        while best(client) != "new":
            assert time.monotonic() < deadline
