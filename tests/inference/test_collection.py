"""A collection that is kept: only what is new is computed, and it is searched with conditions, by
vectors and by words."""

from __future__ import annotations

import logging
import operator
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bertine.inference.embedding.collection as collection_module
import bertine.inference.rows as rows_module
from bertine.core.errors import BertineError
from bertine.core.text import briefly
from bertine.inference.embedding.collection import Collection, alternatives
from bertine.inference.embedding.embed import EmbedReport, embed
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.similar import similar
from bertine.inference.embedding.words import WordIndex
from processes import forked
from tolerance import assert_close, network_terms

from .conftest import WORDS
from .test_predictor import random_texts

QUIET: dict[str, Any] = {"show_progress": False}


@pytest.fixture(scope="module")
def embedder(pretrained: Path) -> Embedder:
    return Embedder.load(pretrained, precision="fp32")


@pytest.fixture(autouse=True)
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "CHUNK_ROWS", 7)


def rows_of(texts: list[str], first: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": f"n{at}", "lang": ("en", "de", "fr")[at % 3], "year": 2000 + at, "text": text}
        for at, text in enumerate(texts, first)
    ]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each call of the model has computed."""
    counts: list[int] = []
    run = Embedder.run

    def counted(self: Embedder, features: Any, on_batch: Any = None) -> np.ndarray:
        counts.append(len(features))
        return run(self, features, on_batch)

    monkeypatch.setattr(Embedder, "run", counted)
    return counts


@pytest.fixture
def docs(tmp_path: Path, embedder: Embedder) -> Path:
    embed(embedder, rows_of(random_texts(30)), tmp_path / "docs.parquet", **QUIET)
    return tmp_path / "docs.parquet"


def counts(report: EmbedReport) -> tuple[int | None, int, int]:
    return report.kept, report.rows - (report.kept or 0), report.dropped


BEFORE = ["a cat", "the dog", "a mat", "very good", "the cat sat", "a dog ran", "bad film", "a cat"]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (BEFORE, (8, 0, 0)),
        (BEFORE[::-1], (8, 0, 0)),
        (["good", *BEFORE[1:]], (7, 1, 0)),  # the other "a cat" is there
        ([*BEFORE[:3], "bad", *BEFORE[4:]], (7, 1, 1)),
        (BEFORE[2:5], (3, 0, 5)),
        ([*BEFORE, *BEFORE, "ran", "ran"], (16, 2, 0)),
        (["ran"], (0, 1, 8)),
    ],
)
def test_only_what_is_new_is_computed(
    now: list[str],
    expected: tuple[int, int, int],
    embedder: Embedder,
    tmp_path: Path,
    computed: list[int],
) -> None:
    kept, fresh = tmp_path / "kept.parquet", tmp_path / "fresh.parquet"
    table = {"id": list(range(100, 100 + len(now))), "text": now}
    first = embed(embedder, {"text": BEFORE}, kept, **QUIET)
    assert first.kept is None
    computed.clear()
    report = embed(embedder, table, kept, **QUIET)
    assert counts(report) == expected
    assert sum(computed) == expected[1]
    assert any(
        line.endswith(f" kept, {expected[1]} computed, {expected[2]} dropped")
        for line in report.lines()
    )
    embed(embedder, table, fresh, **QUIET)
    ours, anew = pq.read_table(kept).to_pydict(), pq.read_table(fresh).to_pydict()
    assert (ours["id"], ours["text"]) == (anew["id"], anew["text"]) == (table["id"], now)
    assert_close(np.float32(ours["vector"]), np.float32(anew["vector"]), terms=network_terms(2, 32))
    if now:
        assert similar(now[-1], kept, model=embedder, **QUIET)[0].text == now[-1]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"pooling": "cls"}, "was made with another pooling; all"),
        ({"normalize": True, "dtype": "fp16"}, "was made with another normalize and dtype; all"),
        ({"max_length": 9}, "was made with another max_length; all"),
        ("deep", "was made with another model; all"),
        ("edited", "of these in another order; embed them again; all"),
        ("damaged", "docs.parquet: is damaged, cut short"),
    ],
)
def test_vectors_of_another_kind_are_not_kept(
    how: Any,
    said: str,
    docs: Path,
    pretrained: Path,
    deep: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if how == "edited":  # by a program that keeps the metadata
        table = pq.read_table(docs)
        about = pq.ParquetFile(docs).metadata.metadata
        pq.write_table(table.slice(1).replace_schema_metadata(about), docs)
    elif how == "damaged":
        docs.write_bytes(docs.read_bytes()[:-9])
    settings = how if isinstance(how, dict) else {}
    model = deep if how == "deep" else pretrained
    with caplog.at_level(logging.INFO, "bertine"):
        report = embed(model, rows_of(random_texts(30)), docs, **settings, **QUIET)
    assert report.kept is None
    notes = [line for line in caplog.messages if "all vectors are computed anew" in line]
    assert len(notes) == 1
    assert said in notes[0]
    assert similar("a cat", docs, **QUIET).rows == 30


def test_the_precision_of_a_file_is_not_measured_again(docs: Path, pretrained: Path) -> None:
    embedder = Embedder.load(pretrained, precision="bf16")
    embed(embedder, rows_of(random_texts(30)), docs, **QUIET)
    report = embed(pretrained, rows_of([*random_texts(30), "a new cat"]), docs, **QUIET)
    assert (report.precision, report.kept) == ("bf16", 30)


def killed_at_the_second_chunk(model: str, texts: list[str], output: str) -> None:
    rows_module.CHUNK_ROWS = 7
    embedder = Embedder.load(model, precision="fp32", threads=1)
    run, done = embedder.run, list[int]()

    def dies(features: Any, on_batch: Any = None) -> np.ndarray:
        done.append(1)
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(features, on_batch)

    embedder.run = dies  # type: ignore[method-assign]
    embed(embedder, {"text": texts}, output, **QUIET)


@pytest.mark.slow
def test_a_killed_run_leaves_the_file_before(pretrained: Path, docs: Path) -> None:
    before, texts = docs.read_bytes(), random_texts(30, seed=1)
    process = forked(killed_at_the_second_chunk, str(pretrained), texts, str(docs))
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert docs.read_bytes() == before
    assert len([*docs.parent.iterdir()]) == 2  # what the process had written
    embed(pretrained, {"text": texts}, docs, **QUIET)
    assert [path.name for path in docs.parent.iterdir()] == ["docs.parquet"]


def test_the_model_is_recorded(
    pretrained: Path, deep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was named, with the settings of the vectors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").symlink_to(pretrained)
    rows = [{"id": 1, "more": "x", "body": "a cat"}, {"id": 2, "more": "y", "body": "the dog"}]
    how: dict[str, Any] = {"text_column": "body", "pooling": "max", "layer": 1, **QUIET}
    for name in ("docs.parquet", "docs.npy"):
        embed("m", rows, name, **how)
    result = similar("the dog", "docs.parquet", **QUIET)[0]
    assert (result.row, result.text, result.columns) == (2, "the dog", {"id": 2, "more": "y"})
    assert result.score == pytest.approx(1.0)
    assert similar("the dog", "docs.npy", **QUIET)[0].row == 2
    (tmp_path / "m").unlink()
    with pytest.raises(BertineError, match=r"docs.parquet: records that m made its vectors, which"):
        similar("the dog", "docs.parquet", **QUIET)
    (tmp_path / "m").symlink_to(deep)
    with pytest.raises(BertineError, match=r"docs.parquet: was made with another model \(m\)"):
        Collection.open("docs.parquet")
    with pytest.raises(BertineError, match="input: does not name a model; name one"):
        similar("the dog", rows, text_column="body", **QUIET)


# Conditions.

VALUES = [
    {"lang": "de", "year": 2021, "note": "a b", "right": True},
    {"lang": "en", "year": "2019", "note": "", "right": False},
    {"lang": "de", "year": None, "note": "it's", "right": None},
    {"lang": None, "year": 1999.5, "note": "no number", "right": True},
]


def fulfilled(condition: str, values: dict[str, Any]) -> bool:
    return any(
        all(part.fits(values[part.column]) for part in parts) for parts in alternatives(condition)
    )


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("lang = de", [0, 2]),
        ("lang='de'", [0, 2]),
        ("lang != de", [1, 3]),
        ("lang in (de, 'en')", [0, 1, 2]),
        ("year IN(2019,2021)", [0, 1]),
        ("year >= 2019", [0, 1]),
        ("year < 2e3", [3]),
        ("year != 2019", [0, 2, 3]),
        ("year = '2019'", [1]),
        ("note > b", [2, 3]),
        ("note < 3", []),
        ("right = true AND lang = de", [0]),
        ("lang = de and year > 0 and note = 'a b'", [0]),
        ('"note" = "it\'s"', [2]),
        ("note = ''", [1]),
    ],
)
def test_conditions(condition: str, rows: list[int]) -> None:
    assert [at for at, values in enumerate(VALUES) if fulfilled(condition, values)] == rows


@pytest.mark.parametrize(
    ("condition", "at"),
    [
        ("", ""),
        ("lang", "lang"),
        ("lang is de", "lang is de"),
        ("lang = de and ", ""),
        ("lang = de and year =", "year ="),
        ("lang = de or", "lang = de or"),
        ("city = New York", "city = New York"),
        ("lang = 'de", "lang = 'de"),
        ("lang in de", "lang in de"),
        ("lang in (de, en", "lang in (de, en"),
        ("langin (de)", "langin (de)"),
        ("lang = deand year = 1", "lang = deand year = …"),
        ("a=" + "(" * 100_000, "a=(((((((((((((((((…"),
    ],
)
def test_what_is_no_condition_is_one_line(condition: str, at: str) -> None:
    with pytest.raises(BertineError) as error:
        alternatives(condition)
    assert f" is no condition at {briefly(at, 20)}; write" in str(error.value)
    assert len(str(error.value)) < 300


SIGNS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WRITTEN = [*SIGNS, *"(),'\" ", "and", "in", "lang", "de", "7"]


@given(st.text(max_size=15) | st.lists(st.sampled_from(WRITTEN), max_size=12).map(" ".join))
@example("year > 9" + "9" * 400)
@example("a" * 10_000)
@example("a in (" + "b," * 5_000)
def test_any_text_is_a_condition_or_one_line(text: str) -> None:
    try:
        parts = [part for parts in alternatives(text) for part in parts]
    except BertineError:
        return
    assert {part.fits(value) for part in parts for value in (None, "de", 7, True)} <= {True, False}
    assert all(part.sign in SIGNS and part.values for part in parts)


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from([*SIGNS]), st.integers(-2, 2)),
        min_size=1,
        max_size=4,
    ),
    st.fixed_dictionaries({name: st.integers(-2, 2) for name in "xyz"}),
)
def test_conditions_mean_what_they_mean_in_python(
    asked: list[tuple[str, str, int]], row: dict[str, int]
) -> None:
    written = [f"{column}{sign}{number}" for column, sign, number in asked]
    expected = [SIGNS[sign](row[column], number) for column, sign, number in asked]
    for own in (row, {name: f" {number}" for name, number in row.items()}):
        assert fulfilled(" and ".join(written), own) == all(expected)
        assert fulfilled(" or ".join(written), own) == any(expected)


# Searching.


def test_conditions_choose_the_rows(docs: Path, embedder: Embedder) -> None:
    chosen = similar("a cat", docs, model=embedder, top=30, where="lang = de", **QUIET)
    everything = similar("a cat", docs, model=embedder, top=30, **QUIET)
    assert [item.row for item in chosen] == [
        item.row for item in everything if item.columns["lang"] == "de"
    ]
    assert "10 of 30 rows match 'lang = de'" in chosen.notes
    assert len(similar("a cat", docs, model=embedder, where="lang = xx", **QUIET)) == 0
    many = similar(["a cat", "soup"], docs, model=embedder, top=2, where="year < 2002", **QUIET)
    assert [{item.row for item in result} for result in many] == [{1, 2}, {1, 2}]
    with pytest.raises(BertineError, match=r"no column 'langs' \(did you mean 'lang'\?\)"):
        similar("a cat", docs, model="nowhere", where="langs = de", **QUIET)
    for name, value in (("where", "lang = de"), ("where", ""), ("hybrid", True)):
        given: dict[str, Any] = {name: value, "model": embedder, **QUIET}
        with pytest.raises(BertineError, match=f"input: {name} is for a .parquet that"):
            similar("a cat", {"text": ["a cat"]}, **given)
        with pytest.raises(BertineError, match=f"{name} is for vectors of whole texts"):
            similar("a cat", docs, word="cat", **given)


@pytest.mark.parametrize("where", [None, "lang in (de, fr)"])
def test_words_and_vectors_are_joined_by_reciprocal_ranks(
    where: str | None, docs: Path, embedder: Embedder
) -> None:
    query, rows = "a very good film", rows_of(random_texts(30))
    among = [at for at, row in enumerate(rows) if where is None or row["lang"] != "en"]
    among = [at for at in among if rows[at]["text"]]
    asked: dict[str, Any] = {"model": embedder, "where": where, "top": 30, **QUIET}
    by_vectors = [item.row - 1 for item in similar(query, docs, **asked)]
    by_words = [
        row for row, _ in WordIndex(row["text"] for row in rows).search(query, 30, np.array(among))
    ]
    assert len(by_vectors) == len(among) > len(by_words) > 3
    sums = {
        row: sum(
            1 / (61 + ranking.index(row)) for ranking in (by_vectors, by_words) if row in ranking
        )
        for row in among
    }
    result = similar(query, docs, **asked, hybrid=True)
    expected = sorted(sums, key=lambda row: (-sums[row], row))
    assert [item.row - 1 for item in result] == expected
    assert [item.score for item in result] == pytest.approx([sums[row] for row in expected])
    alone = [similar("soup", docs, **asked, hybrid=hybrid)[0].row for hybrid in (True, False)]
    assert alone[0] == alone[1]  # a word that no text has


@pytest.mark.parametrize("queries", ["a cat", [], ["a cat", " "]])
def test_queries_are_a_list_of_texts(queries: Any, docs: Path, embedder: Embedder) -> None:
    collection = Collection.open(docs, embedder)
    with pytest.raises(BertineError, match="; give a list of texts, none of them empty"):
        collection.search(queries)
    with pytest.raises(BertineError, match="top is 0, but must be at least 1"):
        collection.search(["a cat"], top=0)


def test_threads_share_a_collection(docs: Path, embedder: Embedder) -> None:
    """And it stays as it was opened when the file is replaced."""
    collection = Collection.open(docs, embedder)
    queries, results = random_texts(8, seed=3), dict[int, list[Any]]()
    queries = [query or "a" for query in queries]
    expected = [
        similar(query, docs, model=embedder, hybrid=True, where="year < 2020", **QUIET).found
        for query in queries
    ]
    embed(embedder, {"text": ["another"]}, docs, **QUIET)

    def search(at: int) -> None:
        answers = collection.search([queries[at]], where="year < 2020", hybrid=True)
        results[at] = [item.found for item in answers]

    threads = [threading.Thread(target=search, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at in range(8):
        rows = [[item.row for item in one] for one in (results[at][0], expected[at])]
        assert rows[0] == rows[1]


def test_a_file_without_its_vectors_is_one_line(docs: Path, embedder: Embedder) -> None:
    table, about = pq.read_table(docs), pq.ParquetFile(docs).metadata.metadata

    def write(vectors: Any) -> None:
        other = table.drop_columns(["vector"])
        other = other if vectors is None else other.append_column("vector", vectors)
        pq.write_table(other.replace_schema_metadata(about), docs)

    lists = table["vector"].to_pylist()
    of_width = pa.list_(pa.float32(), 32)
    for vectors in (
        None,
        pa.array(["a vector"] * 30),
        pa.array([[1.0] * 31] * 30, pa.list_(pa.float32(), 31)),
        pa.array([*lists[:7], None, *lists[8:]], of_width),
    ):
        write(vectors)
        with pytest.raises(BertineError, match=r"parquet: ('vector' is not 32 numbers|is dam)"):
            similar("a cat", docs, model=embedder, **QUIET)
    write(pa.array([*lists[:7], [None] * 32, *lists[8:]], of_width))
    with pytest.raises(BertineError, match=r"docs.parquet: the vector of row 8 has a number that"):
        similar("a cat", docs, model=embedder, **QUIET)
    pq.write_table(table, docs)  # by another program
    assert "nothing says which model" in similar("a cat", docs, model=embedder, **QUIET).notes[0]
    with pytest.raises(BertineError, match="does not say how its vectors were made"):
        Collection.open(docs, embedder)


# Passages.


def long_text(draw: np.random.Generator, sentences: int) -> str:
    words = [word for word in WORDS if word.isalpha()]
    return " ".join(
        " ".join(draw.choice(words, size=draw.integers(1, 12))).capitalize() + "."
        for _ in range(sentences)
    )


def test_long_texts_are_divided_at_sentences(
    pretrained: Path, embedder: Embedder, tmp_path: Path, computed: list[int]
) -> None:
    draw = np.random.default_rng(0)
    texts = [long_text(draw, count) for count in (1, 9, 30, 2)]
    texts += ["", "cat " * 99 + "dog", "c" * 300]  # no sentences, and no words
    path = tmp_path / "docs.parquet"
    report = embed(embedder, rows_of(texts), path, passages=True, **QUIET)
    rows = pq.read_table(path).to_pylist()
    assert (report.rows, report.passages, report.cut) == (7, len(rows), 0)
    assert f"embedded 7 rows in {len(rows)} passages in " in report.lines()[0]
    for number, text in enumerate(texts, 1):
        parts = [row["text"] for row in rows if row["document"] == number]
        assert re.sub(r"\s", "", "".join(parts)) == re.sub(r"\s", "", text)
        if number < 5:
            assert all(part.endswith(".") for part in parts)
            sizes = [len(ids) for ids in embedder.tokenizer.encode_plain(parts)]
            assert len(sizes) <= 1 + 1.5 * sum(sizes) / 38
    assert [row["id"] for row in rows] == [f"n{row['document'] - 1}" for row in rows]

    # A text is changed at its end, and one gone: all other passages are kept.
    computed.clear()
    texts[2] += " Good."
    again = embed(embedder, rows_of([texts[1], *texts[2:]]), path, passages=True, **QUIET)
    assert sum(computed) <= 2
    assert again.kept == pq.read_table(path).num_rows - sum(computed)
    with pytest.raises(BertineError, match=r"v.npy: passages=True is for .parquet"):
        embed(embedder, {"text": texts}, tmp_path / "v.npy", passages=True, **QUIET)


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_best_passage_stands_for_its_document(
    hybrid: bool, embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection_module, "_DEPTH", 2)  # so that more have to be looked through
    draw = np.random.default_rng(1)
    texts = [long_text(draw, count) for count in (12, 1, 20, 6, 1, 9)]
    path = tmp_path / "docs.parquet"
    embed(embedder, rows_of(texts), path, passages=True, **QUIET)
    passages = pq.read_table(path, columns=["text", "document"]).to_pylist()
    query = passages[len(passages) // 2]["text"]
    result = similar(query, path, model=embedder, top=6, hybrid=hybrid, **QUIET)
    assert sorted(item.row for item in result) == [1, 2, 3, 4, 5, 6]
    assert result[0].text == query
    assert all({"text": item.text, "document": item.row} in passages for item in result)
    assert all("document" not in item.columns for item in result)
    assert result[0].columns["id"] == f"n{result[0].row - 1}"
    if not hybrid:
        best: dict[int, float] = {}
        everything = embedder.embed([query, *(item["text"] for item in passages)])
        everything /= np.linalg.norm(everything, axis=1, keepdims=True)
        for item, score in zip(passages, everything[1:] @ everything[0], strict=True):
            best[item["document"]] = max(best.get(item["document"], -1), float(score))
        assert {item.row: item.score for item in result} == pytest.approx(best, abs=1e-4)


def test_long_texts_are_shown_by_their_beginning(embedder: Embedder) -> None:
    text = "the cat " * 100
    result = similar("a cat", {"text": [text]}, model=embedder, **QUIET)
    assert result[0].text == text
    assert result.lines()[0].endswith("the cat …") or result.lines()[0].endswith("…")
    assert len(result.lines()[0]) < 230


def test_a_file_is_not_embedded_into_itself(docs: Path, pretrained: Path) -> None:
    before = docs.read_bytes()
    with pytest.raises(BertineError, match="is the file of the texts; name another"):
        embed(pretrained, docs, docs, **QUIET)
    assert docs.read_bytes() == before
