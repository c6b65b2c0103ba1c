"""The nearest texts are those of the highest cosines, from texts or from vectors made before."""

from __future__ import annotations

import json
import os
import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertine.inference.embedding.index as nearest_module
import bertine.inference.embedding.similar as similar_module
import bertine.inference.rows as rows_module
from bertine.core.errors import BertineError
from bertine.core.scores import ROUNDING, ranking
from bertine.data.tables import Table
from bertine.inference.embedding.embed import embed
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.index import NearestRows, search_all
from bertine.inference.embedding.similar import similar
from bertine.inference.embedding.vectors import word_span

from .test_predictor import random_texts


@pytest.fixture(scope="module")
def embedder(pretrained: Path) -> Embedder:
    return Embedder.load(pretrained, precision="fp32")


@pytest.fixture(autouse=True)
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "CHUNK_ROWS", 7)
    monkeypatch.setattr(nearest_module, "BLOCK_ROWS", 6)
    monkeypatch.setattr(nearest_module, "_LEAST_SPAN", 10)


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def test_texts_and_their_vectors_give_the_nearest(embedder: Embedder, tmp_path: Path) -> None:
    texts = random_texts(40, seed=5)
    texts[11] = texts[30] = "the cat sat on the mat"
    vectors = embedder.embed(["the cat sat on the mat", *texts]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[1:] @ vectors[0]
    order = ranking(cosines, 9)
    source = write(tmp_path / "in.txt", texts)
    found = similar("the cat sat on the mat", source, model=embedder, top=9, show_progress=False)
    assert found.rows == 40
    assert [each.text for each in found.found] == [texts[row] for row in order]
    assert [each.score for each in found.found] == pytest.approx(cosines[order], abs=1e-5)
    assert [each.row for each in found.found[:2]] == [11 + 1, 30 + 1]
    assert found.lines()[9:] == found.notes
    assert found.notes[0].startswith("3 of 40 texts are empty (lines ")
    assert found.notes[0].endswith(") and are not compared")
    assert found.lines()[0].endswith(texts[order[0]])

    embed(embedder, source, tmp_path / "v.npy", show_progress=False)
    in_memory = {"id": list(range(40)), "text": texts}
    rows = [{"text": text} for text in texts]
    for table in (in_memory, rows):
        answer = similar(
            "the cat sat on the mat", table, model=embedder, top=9, show_progress=False
        )
        assert [replace(each, columns={}) for each in answer] == found.found
    again = similar(
        "the cat sat on the mat",
        tmp_path / "v.npy",
        model=embedder,
        texts=in_memory,
        top=9,
        show_progress=False,
    )
    assert [each.text for each in again.found] == [each.text for each in found.found]
    with pytest.raises(BertineError, match="input is an int, but must be a path, a pandas"):
        similar("the cat", 5, model=embedder)
    again = similar(
        "the cat sat on the mat",
        tmp_path / "v.npy",
        model=embedder,
        texts=source,
        top=9,
        show_progress=False,
    )
    assert [(e.row, e.text) for e in again.found] == [(e.row, e.text) for e in found.found]
    numbers = similar("the cat sat on the mat", tmp_path / "v.npy", model=embedder, top=1)
    assert numbers.found[0].text is None
    assert numbers.found[0].row == found.found[0].row


def test_equal_texts_come_in_the_order_of_their_rows(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands beside them, is computed together, and by how many threads."""
    texts = [*random_texts(20, seed=6), "the cat sits"] * 3
    draw, expected = random.Random(0), None
    for chunk, threads in ((5, 1), (7, 2), (63, 1)):
        draw.shuffle(texts)
        monkeypatch.setattr(rows_module, "CHUNK_ROWS", chunk)
        embedder = Embedder.load(pretrained, precision="fp32", threads=threads)
        source = write(tmp_path / f"{chunk}.txt", texts)
        answer = similar("the cat sat", source, model=embedder, top=20, show_progress=False)
        found = [(each.text, each.row) for each in answer.found]
        for text in dict(found):
            rows = [row for other, row in found if other == text]
            assert rows == [row for row, other in enumerate(texts, 1) if other == text][: len(rows)]
        expected = expected or [text for text, _ in found]
        assert [text for text, _ in found] == expected


def test_fewer_rows_than_asked_for(embedder: Embedder, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", ["a cat", "a dog"])
    found = similar("a dog", source, model=embedder, show_progress=False)
    assert [each.text for each in found.found] == ["a dog", "a cat"]
    assert found.found[0].score == pytest.approx(1.0)
    assert found.found[0].score <= 1.0


def test_empty_texts_are_counted(embedder: Embedder, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", ["a cat", "", "  "])
    found = similar("a dog", source, model=embedder, show_progress=False)
    assert found.notes == ["2 of 3 texts are empty (lines 2, 3) and are not compared"]
    assert [each.text for each in found.found] == ["a cat"]


@pytest.mark.parametrize("kind", ["npy", "parquet", "jsonl"])
def test_empty_texts_of_stored_vectors_are_not_compared(
    kind: str, pretrained: Path, embedder: Embedder, tmp_path: Path
) -> None:
    """As those of a table of texts: blank ones, and those of which the tokenizer makes nothing."""
    texts = ["", "a cat", "", " ", "\u200b", "a dog", *[""] * 12, "the cat sat"]
    table, vectors = {"text": texts}, tmp_path / f"v.{kind}"
    embed(pretrained, table, vectors, precision="fp32", show_progress=False)
    if kind == "npy":  # those of empty texts would be the nearest
        stored = np.load(vectors)
        stored[[not text.strip("\u200b ") for text in texts]] = embedder.embed("a dog sat")
        np.save(vectors, stored)
    asked = {"model": embedder, "show_progress": False, "texts": table if kind == "npy" else None}
    found = similar("a dog sat", vectors, **asked)
    of_texts = similar("a dog sat", table, model=embedder, show_progress=False)
    assert [(each.row, each.text) for each in found] == [(each.row, each.text) for each in of_texts]
    assert sorted(each.row for each in found) == [2, 6, 19]
    empty = "indices 0, 2, 3, " if kind == "npy" else "lines 1, 3, 4, "
    assert found.notes[-1].startswith(f"16 of 19 texts are empty ({empty}")
    again = similar(["a dog sat", "a cat"], vectors, **asked)
    assert [each.row for each in again[0]] == [each.row for each in found]


def test_texts_that_are_read_but_once_may_be_empty_where_none_of_them_is_near(
    pretrained: Path, embedder: Embedder, tmp_path: Path
) -> None:
    texts = ["a cat", "", "a dog"]
    embed(pretrained, {"text": texts}, tmp_path / "v.npy", precision="fp32", show_progress=False)
    asked = {"model": embedder, "show_progress": False}

    def found(top: int) -> list[str | None]:
        read, write = os.pipe()
        os.write(write, "".join(f"{text}\n" for text in texts).encode())
        os.close(write)
        pipe = f"/dev/fd/{read}"
        try:
            nearest = similar("a cat", tmp_path / "v.npy", texts=pipe, top=top, **asked)
            return [each.text for each in nearest]
        finally:
            os.close(read)

    assert found(1) == ["a cat"]
    with pytest.raises(BertineError, match="some of its texts are empty, so it has to be read"):
        found(3)


def test_each_query_has_a_place_among_the_answers(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similar_module, "QUERIES", 2)
    asked = ["a cat", "a dog", " ", "", "the cat"]  # a whole part of them is empty
    found = similar(asked, {"text": ["a cat", "a dog"]}, model=embedder, show_progress=False)
    assert [each.query for each in found] == asked
    assert [len(each) for each in found] == [2, 2, 0, 0, 2]


def test_mistakes_are_one_line(embedder: Embedder, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", ["a cat", "a dog"])
    vectors = tmp_path / "v.npy"
    np.save(vectors, np.ones((2, 7), dtype=np.float32))
    with pytest.raises(BertineError, match="vectors have 7 numbers, but the model's have 32"):
        similar("a", vectors, model=embedder)
    np.save(vectors, np.ones((3, 32), dtype=np.float16))
    with pytest.raises(BertineError, match=r"in.txt: has 2 texts, but .*v.npy has 3 vectors"):
        similar("a", vectors, model=embedder, texts=source)
    with pytest.raises(BertineError, match=r"texts is for a .npy of vectors"):
        similar("a", source, model=embedder, texts=source)
    in_vain: dict[str, Any] = {"text_column": "t", "format": "csv", "quotes": False, "strict": True}
    for name, value in in_vain.items():
        with pytest.raises(BertineError, match=rf"v.npy: is vectors without texts, so {name} has"):
            similar("a", vectors, model=embedder, **{name: value})
    vectors.write_bytes(b"no array")
    with pytest.raises(BertineError, match=r"v.npy: is damaged, .* an array of numbers"):
        similar("a", vectors, model=embedder)
    with open(vectors, "wb") as handle:
        np.savez(handle, np.ones((2, 32), dtype=np.float32))
    with pytest.raises(BertineError, match=r"v.npy: is damaged, .* an array of numbers"):
        similar("a", vectors, model=embedder)
    np.save(vectors, np.ones((3, 32), dtype=np.int64))
    with pytest.raises(BertineError, match="must have a vector of real numbers in each row"):
        similar("a", vectors, model=embedder)
    with pytest.raises(BertineError, match="top is 0"):
        similar("a", source, model=embedder, top=0)
    with pytest.raises(BertineError, match=r"no.npy: No such file"):
        similar("a", tmp_path / "no.npy", model=embedder)


def test_a_word_is_compared_as_it_stands_in_each_text(pretrained: Path, tmp_path: Path) -> None:
    """Its pieces' vectors, their mean, at its first place."""
    texts = [
        "a good cat sat",
        "the dog ran",
        "the films ran. Cats, and the Cat sat on the cat",
        "the cat sat on the mat",
    ]
    source = write(tmp_path / "in.txt", texts)
    arguments: dict[str, Any] = {"precision": "fp32", "show_progress": False}
    query = "the cat sat on the mat"
    found = similar(query, source, model=pretrained, word="cat", **arguments)
    tokens = Embedder.load(pretrained, precision="fp32", pooling="tokens")

    def vector(text: str, begin: int) -> np.ndarray:
        rows = tokens.embed_tokens(text)
        row = next(at for at, (a, _) in enumerate(rows.offsets) if a == begin and at)
        made: np.ndarray = rows.vectors[row] / np.linalg.norm(rows.vectors[row])
        return made

    asked = vector(query, 4)
    scores = {
        row: float(vector(texts[row - 1], texts[row - 1].lower().index(" cat ") + 1) @ asked)
        for row in (1, 3, 4)
    }
    assert {each.row: each.score for each in found.found} == pytest.approx(scores, abs=1e-5)
    assert found.found[0].row == 4
    assert found.found[-1].score < 0.99
    assert found.notes == ["1 text without the word 'cat', left out"]
    # Of several pieces the mean.
    tokenized = tokens.tokenizer.encode("films").input_ids
    assert len(tokenized) > 3
    whole = similar(
        "films ran",
        write(tmp_path / "f.txt", ["films ran"]),
        model=pretrained,
        word="films",
        **arguments,
    )
    assert whole.found[0].score == pytest.approx(1, abs=1e-5)


def test_the_uses_of_a_word_are_drawn(pretrained: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", ["a good cat", "the dog", "an old <cat>"])
    page = tmp_path / "cat.html"
    found = similar("the cat", source, model=pretrained, word="cat", html=page, show_progress=False)
    assert found.notes[-1] == f"page: {page}"
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 1
    assert "an old &lt;cat&gt;" in html
    table = [float(cell) for cell in re.findall(r'<td class="number"[^>]*>([\d.]+)<', html)]
    cosines = np.array(table).reshape(3, 3)
    np.testing.assert_allclose(np.diag(cosines), 1.0)
    np.testing.assert_allclose(cosines, cosines.T)
    np.testing.assert_allclose(cosines[0, 1:], [row.score for row in found], atol=0.006)
    with pytest.raises(BertineError, match="html draws the uses of a word"):
        similar("the cat", source, model=pretrained, html=page)


def test_mistakes_with_a_word(pretrained: Path, tmp_path: Path) -> None:
    texts = write(tmp_path / "in.txt", ["the cat sat"])
    for query, settings, message in (
        ("the dog", {"word": "cat"}, "'the dog' is without the word 'cat'"),
        ("the cat", {"word": " "}, "is empty; give a word"),
        ("the cat", {"word": "cat", "pooling": "max"}, "pooling is for whole texts"),
    ):
        with pytest.raises(BertineError, match=message):
            similar(query, texts, model=pretrained, **settings)
    with pytest.raises(BertineError, match="word is for texts"):
        similar("the cat", tmp_path / "v.npy", model=pretrained, word="cat")


def test_many_queries_give_what_each_alone_gives(embedder: Embedder, tmp_path: Path) -> None:
    texts = random_texts(40, seed=5)
    source = write(tmp_path / "in.txt", texts)
    embed(embedder, source, tmp_path / "v.npy", show_progress=False)
    queries = random_texts(9, seed=6)
    queries = [query or "a cat" for query in queries]
    options: dict[str, Any] = {"model": embedder, "top": 3, "show_progress": False}
    alone = [similar(query, source, **options) for query in queries]
    for where in (source, tmp_path / "v.npy"):
        several = similar(queries, where, **options)
        assert several.queries == 9
        for one, other in zip(alone, several.items, strict=True):
            assert [each.row for each in one.found] == [each.row for each in other.found]
            scores = [each.score for each in other.found]
            assert [each.score for each in one.found] == pytest.approx(scores, abs=1e-5)
    assert several.items[2].query == queries[2]
    assert several.lines()[0] == " ".join(queries[0].split())
    table = similar(None, source, queries={"query": queries, "id": list(range(9))}, **options)
    assert [item.found for item in table.items] == [
        item.found for item in similar(queries, source, **options).items
    ]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_nearest_rows_are_written(embedder: Embedder, tmp_path: Path, suffix: str) -> None:
    source = write(tmp_path / "in.txt", random_texts(12, seed=2))
    queries = write(tmp_path / "queries.txt", ["a cat", "the dog, it ran"])
    output = tmp_path / f"near.{suffix}"
    report = similar(
        queries=queries, input=source, model=embedder, top=2, output=output, show_progress=False
    )
    assert report.lines()[0] == f"answered 2 queries: {output}"
    assert report.items == []
    with Table(output) as table:
        rows = [row.values for row in table]
    assert [(int(row["query_row"]), int(row["rank"])) for row in rows] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]
    one = similar("the dog, it ran", source, model=embedder, top=1, show_progress=False)
    assert rows[2]["query"] == "the dog, it ran"
    assert int(rows[2]["row"]) == one.found[0].row
    assert rows[2]["text"] == one.found[0].text
    assert float(rows[2]["score"]) == pytest.approx(one.found[0].score, abs=1e-5)


def test_mistakes_with_several_queries(embedder: Embedder, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", ["a cat", "a dog"])
    with pytest.raises(BertineError, match="give either a query or a table of queries"):
        similar(input=source, model=embedder)
    with pytest.raises(BertineError, match="give either a query or a table of queries"):
        similar("a cat", source, queries=source, model=embedder)
    with pytest.raises(BertineError, match="there is no query"):
        similar([], source, model=embedder)
    with pytest.raises(BertineError, match="query must be a text, a list of texts or None"):
        similar(["a cat", 5], source, model=embedder)
    with pytest.raises(BertineError, match=r"near.xyz: nearest rows are csv, tsv, JSON lines or P"):
        similar("a cat", source, model=embedder, output=tmp_path / "near.xyz")
    header = tmp_path / "q.csv"
    header.write_text("id,question\n1,a cat\n")
    with pytest.raises(BertineError, match="cannot tell which column holds the queries"):
        similar(queries=header, input=source, model=embedder)
    with pytest.raises(BertineError, match="word takes one query"):
        similar(["a cat", "a dog"], source, model=embedder, word="cat")


def test_an_answer_does_not_replace_what_was_read(embedder: Embedder, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text\na cat\na dog\n")
    queries = tmp_path / "queries.csv"
    queries.write_text("query\na cat\n")
    link = tmp_path / "link.csv"
    link.symlink_to(source)
    for output, read in ((source, "input"), (queries, "queries"), (link, "input")):
        before = output.read_text()
        with pytest.raises(BertineError, match=rf"csv: is the file of {read}; name another"):
            similar(queries=queries, input=source, model=embedder, output=output)
        assert output.read_text() == before


def test_queries_of_one_column(embedder: Embedder, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", ["a cat", "a dog"])
    queries = tmp_path / "queries.csv"
    queries.write_text("the first cat\nthe second cat\n")
    report = similar(queries=queries, input=source, model=embedder, show_progress=False)
    assert report.queries == 1
    assert any("its first line, 'the first cat', was read as the header" in n for n in report.notes)
    queries.write_text("the only cat\n")
    with pytest.raises(
        BertineError, match="there is no query; its first line, 'the only cat', was"
    ):
        similar(queries=queries, input=source, model=embedder)
    queries.write_text("Query\nthe first cat\nthe second cat\n")
    report = similar(queries=queries, input=source, model=embedder, show_progress=False)
    assert (report.queries, report.notes) == (2, [])
    array = np.array(["the first cat", "the second cat"])
    again = similar(array, source, model=embedder, show_progress=False)
    assert [each.found for each in again.items] == [each.found for each in report.items]


def test_options_that_do_not_go_together(
    embedder: Embedder, pretrained: Path, tmp_path: Path
) -> None:
    source = write(tmp_path / "in.txt", ["a cat", "a dog"])
    with pytest.raises(BertineError, match="several queries need texts to search among; name them"):
        similar(queries=source, model=embedder)
    for name in ("texts", "index"):
        with pytest.raises(BertineError, match=f"{name} is for vectors of whole texts; leave it o"):
            similar("a cat", source, model=embedder, word="cat", **{name: tmp_path})
    with pytest.raises(BertineError, match=r"in.txt: no text has the word 'mouse'"):
        similar("a mouse", source, model=pretrained, word="mouse", show_progress=False)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_a_row_that_is_no_vector_is_named(
    number: float, embedder: Embedder, tmp_path: Path
) -> None:
    table = np.ones((40, 32), dtype=np.float32)
    table[33, 4] = number
    np.save(tmp_path / "v.npy", table)
    with pytest.raises(BertineError, match=r"v.npy: the vector of row 34 has a number that"):
        similar("a cat", tmp_path / "v.npy", model=embedder, show_progress=False)


def test_a_stopped_search_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_module, "cores", lambda: 2)
    vectors, done = np.ones((6_000, 2), dtype=np.float32), []

    def stops(count: int) -> None:
        done.append(count)
        if len(done) == 1:
            raise KeyboardInterrupt
        time.sleep(0.01)  # the part that was stopped ends by itself; the other one has to notice

    with pytest.raises(KeyboardInterrupt):
        search_all(NearestRows(1, 3), np.ones((1, 2), dtype=np.float32), vectors, stops)
    assert len(done) < 100  # of the other part's 500 blocks
    done.clear()
    vectors[3_001] = np.nan
    with pytest.raises(BertineError, match="row 3,002 has a number that is NaN"):
        search_all(
            NearestRows(1, 3),
            np.ones((1, 2), dtype=np.float32),
            vectors,
            lambda count: (done.append(count), time.sleep(0.01))[1],
        )
    assert len(done) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-0.4, 0.4)),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 12),
    st.integers(1, 7),
)
def test_of_equal_scores_the_earlier_row_comes_first(
    scores: list[tuple[float, float]], top: int, part: int
) -> None:
    """Equal but for rounding."""
    noisy = np.array([score + noise * ROUNDING for score, noise in scores], dtype=np.float32)
    nearest = NearestRows(1, top)
    for start in range(0, len(scores), part):
        nearest.add(noisy[None, start : start + part])
    best = sorted(range(len(scores)), key=lambda row: (-scores[row][0], row))[:top]
    assert nearest.rows[0].tolist() == best
    assert nearest.scores[0].tolist() == noisy[best].tolist()
    assert nearest.seen == len(scores)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_nothing(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    vectors = rng.integers(-2, 3, size=(83, 3)).astype(np.float32)  # many are equal
    asked = np.eye(3, dtype=np.float32)
    monkeypatch.setattr(nearest_module, "cores", lambda: threads)
    nearest, done = NearestRows(3, 9), []
    search_all(nearest, asked, vectors, done.append)
    norms = np.linalg.norm(vectors, axis=1)
    cosines = (vectors / np.where(norms > 0, norms, 1)[:, None]) @ asked.T
    for query in range(3):
        best = np.argsort(-cosines[:, query].round(6), kind="stable")[:9]
        assert nearest.rows[query].tolist() == best.tolist()
    assert nearest.seen == sum(done) == 83


def test_what_is_found_keeps_the_columns_of_its_table(embedder: Embedder, tmp_path: Path) -> None:
    """Ids and all others, of the texts and of the queries, in every format."""
    texts = {"id": ["A1", "A2"], "text": ["a cat", "the dog ran"], "score": [5, 7]}
    rows = [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]
    asked = [{"id": "Q7", "query": "the dog ran", "row": 3}]
    options: dict[str, Any] = {"model": embedder, "top": 1, "show_progress": False}
    expected = {"query_row": 1, "query": "the dog ran", "rank": 1, "row": 2, "score": 1.0}
    expected |= {"text": "the dog ran", "id": "A2", "found_score": 7}
    expected |= {"query_id": "Q7", "query_query_row": 3}
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "in.csv").write_text("id,text,score\nA1,a cat,5\nA2,the dog ran,7\n")
    embed(embedder, texts, tmp_path / "v.npy", show_progress=False)
    tables: list[dict[str, Any]] = [
        {"input": texts},
        {"input": tmp_path / "in.jsonl"},
        {"input": tmp_path / "v.npy", "texts": rows},
    ]
    for table, place in zip(tables, ("[1]", "2", "[1]"), strict=True):
        found = similar(queries=asked, **table, **options)
        assert found.items[0].found[0].index == 1
        assert found.records() == [expected]
        assert list(found.records()[0]) == list(expected)
        assert [line.split() for line in found.lines()[:2]] == [
            ["Q7", "the", "dog", "ran"],
            ["1.0000", place, "A2", "the", "dog", "ran"],
        ]
    one = similar("the dog ran", tmp_path / "in.csv", **options)
    assert dict(one[0].columns) == {"id": "A2", "score": "7"}
    for suffix in ("csv", "tsv", "jsonl", "parquet"):
        output = tmp_path / f"near.{suffix}"
        similar(queries=asked, input=texts, output=output, **options)
        with Table(output) as table:
            read = [row.values for row in table]
        plain = suffix in ("csv", "tsv")
        assert read == [{k: str(v) for k, v in expected.items()} if plain else expected]


def test_keys_that_change_from_row_to_row(embedder: Embedder, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "a cat", "tags": ["x"]}\n{"text": "a dog", "kind": 5}\n')
    options: dict[str, Any] = {"model": embedder, "show_progress": False}
    report = similar(["a cat"], source, output=tmp_path / "near.csv", **options)
    lines = (tmp_path / "near.csv").read_text().splitlines()
    assert lines[0] == "query_row,query,rank,row,score,text,tags"
    assert lines[1].endswith(',a cat,"[""x""]"')
    assert lines[2].endswith(",a dog,")
    assert report.notes == [
        "the column 'kind' of 1 row is left out, as the first row of its table has none; write "
        ".jsonl"
    ]
    assert similar(["a dog"], source, **options).records()[0]["kind"] == 5


@pytest.mark.parametrize(
    ("text", "word", "begin"),
    [
        ("a Cat, catalogued", "cat", 2),
        ("catalogued", "cat", None),
        ("他去银行存钱。", "银行", 2),
        ("用BERT模型", "bert", 1),
        ("用BERTS模型", "bert", None),
    ],
)
def test_a_word_is_found_in_every_script(text: str, word: str, begin: int | None) -> None:
    span = word_span(text, word)
    assert span == (None if begin is None else (begin, begin + len(word)))
