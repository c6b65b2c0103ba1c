"""Labelling without a browser: the file, the order, undo, two windows, and the page's address."""

from __future__ import annotations

import contextlib
import csv
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.data.in_memory import as_source
from bertine.labelling.answers import NONE, Answer, AnswerFile, Kind
from bertine.labelling.pool import label_of, read_pool
from bertine.labelling.session import Session, outlook
from bertine.options.inference import PlainTexts

KINDS = ["cat", "soup"]


def rows_of(count: int = 200) -> list[dict[str, Any]]:
    return [{"id": at, "text": f"{KINDS[at % 2]} {at}"} for at in range(count)]


def vectors_of(count: int = 200) -> np.ndarray:
    """Vectors fp32 [N, 8] of two clusters, as the labels have them."""
    noise = generator(0, "vectors").normal(size=(count, 8)).astype(np.float32)
    noise[:, 0] += np.where(np.arange(count) % 2, 4, -4)
    return noise


@contextlib.contextmanager
def session(
    out: Path, rows: Any = None, kind: Kind = "one", labels: Any = KINDS, vectors: Any = None
) -> Iterator[Session]:
    pool = read_pool(as_source(rows or rows_of(), "texts"), PlainTexts())
    file = AnswerFile(out, pool, "entities" if kind == "spans" else "label", kind)
    known = file.read()
    rows = {texts: at for at, texts in enumerate(pool.rows)}
    answers = {rows[texts]: answer for texts, answer in known.items() if texts in rows}
    for texts in rows:
        file.others.pop(texts, None)
    started = Session(pool, file, labels, answers)
    started.start()
    if vectors is not None:
        started.see(vectors, None)
    try:
        yield started
    finally:
        started.end()
        started.join()
        assert started.fault is None


def written(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def answer(work: Session, count: int) -> None:
    """Answer texts by their first words."""
    for _ in range(count):
        state = work.state()
        question = state["question"]
        work.label(question["row"], state["revision"], [question["texts"][0].split()[0]])


def settle(work: Session) -> None:
    """Wait until all answers are learned from."""
    with work._changed:
        assert work._changed.wait_for(lambda: not work._is_due(), 60)


def test_the_file_is_complete_after_each_answer(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with session(out) as work:
        for count in (1, 2, 3):
            answer(work, 1)
            assert len(written(out)) == count
        state = work.state()
        row = state["question"]["row"]
        work.label(row, state["revision"], note='said "no",\nand more')
    last = written(out)[-1]
    assert (last["text"], last["label"]) == (rows_of()[row]["text"], NONE)
    assert last["note"] == 'said "no", and more'
    assert list(last) == ["id", "text", "label", "note"]


def test_it_goes_on_in_the_same_order(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with session(out) as work:
        answer(work, 30)
    first = written(out)
    with session(out) as work:
        assert work.state()["labelled"] == 30
        answer(work, 5)
    assert written(out)[:30] == first
    assert len({row["id"] for row in written(out)}) == 35


def test_the_file_keeps_what_others_have_put_in(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    mine = {"id": 0, "text": rows_of()[0]["text"], "label": "even", "checked": "by Ada"}
    gone = {"id": 900, "text": "no longer asked", "label": "odd"}
    out.write_text("".join(json.dumps(row) + "\n" for row in (mine, gone)), encoding="utf-8")
    with session(out) as work:
        answer(work, 1)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows[0] == mine
    assert rows[2] == gone
    assert len(rows) == 3


def test_labels_of_a_table_are_read_as_everywhere() -> None:
    labels = ["refund ", "", "  ", None, True, 3, ["other"], float("nan"), "", "later"]
    texts = [*"abcdefgh", "i", "i"]
    table = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    pool = read_pool(as_source(table, "texts"), PlainTexts())
    read = {text: label_of(row.values["label"]) for (text,), row in pool.labelled}
    assert read == {"a": "refund", "e": "true", "f": "3", "g": "other", "i": "later"}


def test_the_accuracy_is_that_of_texts_set_apart(tmp_path: Path) -> None:
    with session(tmp_path / "out.csv", vectors=vectors_of()) as work:
        answer(work, 120)
        settle(work)
        state = work.state()
    assert state["judges"] == 24
    share, low, high = state["accuracy"]
    assert share > 0.9
    assert low < share <= high
    assert [count for count, _ in state["curve"]][:7] == [8, 11, 16, 22, 31, 43, 60]
    assert "by random ones" in state["comparison"]


def test_a_wrong_label_is_shown_and_no_longer_when_it_was_looked_at(tmp_path: Path) -> None:
    with session(tmp_path / "out.csv", vectors=vectors_of()) as work:
        answer(work, 60)
        learned = [row for row in work.answers if not work._apart[row]]
        row, state = learned[5], work.look_again(learned[5])
        right = state["question"]["given"]["labels"][0]
        wrong = next(name for name in KINDS if name != right)
        work.label(row, state["revision"], [wrong])
        work._confirmed.clear()
        answer(work, 10)
        settle(work)
        state = work.state()
        assert [(item["row"], item["other"]) for item in state["suspects"]] == [(row, right)]
        state = work.look_again(row)
        assert not work.label(row, state["revision"], [wrong])["suspects"]


def test_undo_takes_back_and_asks_again(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with session(out) as work:
        answer(work, 2)
        before = work.state()
        answer(work, 1)
        state = work.undo(work.state()["revision"])
        assert state["question"]["row"] == before["question"]["row"]
        assert len(written(out)) == 2
        state = work.skip(state["question"]["row"], state["revision"])
        assert work.undo(state["revision"])["question"]["row"] == before["question"]["row"]
        for _ in range(2):
            state = work.undo(work.state()["revision"])
        assert (state["labelled"], state["undo"]) == (0, False)
        assert "nothing to undo" in work.undo(state["revision"])["message"]


def test_skipped_texts_come_again_at_the_end(tmp_path: Path) -> None:
    with session(tmp_path / "out.csv", rows_of(5)) as work:
        state = work.state()
        skipped = state["question"]["row"]
        work.skip(skipped, state["revision"])
        answer(work, 4)
        state = work.state()
        assert (state["question"]["row"], state["question"]["reason"]) == (skipped, "skipped")
        answer(work, 1)
        assert work.state()["question"] is None


def test_a_window_that_is_behind_overwrites_nothing(tmp_path: Path) -> None:
    with session(tmp_path / "out.csv") as work:
        other = work.state()
        row = other["question"]["row"]
        work.label(row, other["revision"], ["cat"])
        state = work.label(row, other["revision"], ["soup"])
        assert "Another window" in state["message"]
        assert work.answers[row].labels == ("cat",)
        assert state["question"]["row"] != row


def test_a_file_that_another_program_changed_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with session(out) as work:
        answer(work, 2)
        out.write_text("mine")
        with pytest.raises(BertineError, match="changed by another program"):
            answer(work, 1)
        assert out.read_text() == "mine"
        assert work.state()["labelled"] == 2


def test_new_labels_are_added_and_those_taken_back_are_not_shown(tmp_path: Path) -> None:
    with session(tmp_path / "out.csv", labels=[]) as work:
        state = work.state()
        state = work.label(state["question"]["row"], state["revision"], ["  a  bird "])
        assert state["labels"] == [{"name": "a bird", "count": 1}]
        assert work.undo(state["revision"])["labels"] == []
        for name in ("", "x" * 101, "a\x00b"):
            with pytest.raises(BertineError, match="no name for a label"):
                work.label(0, 99, [name])


def test_several_labels_are_read_by_the_task(tmp_path: Path) -> None:
    from bertine.data.label_sets import labels_in, read_label_sets

    for out in (tmp_path / "out.csv", tmp_path / "out.jsonl"):
        with session(out, kind="several") as work:
            state = work.state()
            first = state["question"]["row"]
            state = work.label(first, state["revision"], ["cat", "soup"])
            work.label(state["question"]["row"], state["revision"])
            with pytest.raises(BertineError, match="no name has"):
                work.label(0, 99, ["a|b"])
        examples, _ = read_label_sets(out)
        assert [labels_in(item.label) for item in examples.items] == [["cat", "soup"], []]
        with session(out, kind="several") as work:
            assert work.answers[first] == Answer(("cat", "soup"))


def test_marked_words_are_read_by_the_tagger(tmp_path: Path) -> None:
    from bertine.data.tables import Table
    from bertine.data.tagged_tables import read_rows

    for out in (tmp_path / "out.csv", tmp_path / "out.jsonl"):
        rows = [{"text": "𝕬da wrote to Babbage"}]
        with session(out, rows, "spans") as work:
            state = work.state()
            assert state["question"]["words"][0] == (0, 3)
            with pytest.raises(BertineError, match="over each other"):
                work.label(0, 99, spans=[(0, 3, "who"), (2, 5, "who")])
            work.label(0, state["revision"], spans=[(13, 20, "who"), (0, 3, "who")])
        with Table(out) as table:
            sentences, _ = read_rows(table, None, None)
        assert sentences.items[0].tags == ("B-who", "O", "O", "B-who")
        with session(out, rows, "spans") as work:
            assert work.answers[0].spans == ((0, 3, "who"), (13, 20, "who"))


def test_the_wrong_files_are_refused_in_a_line(tmp_path: Path) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("text,id\nthe cat,1\n", encoding="utf-8")
    other = tmp_path / "other.csv"
    other.write_text("text,label,colour\nthe cat,cat,red\n", encoding="utf-8")
    for out, message in (
        (texts, "is the file of the texts"),
        (other, "no column 'id'"),
        (tmp_path / "out.parquet", r"\.csv, \.tsv or \.jsonl"),
    ):
        with pytest.raises(BertineError, match=message) as refused:
            bertine.label("no model", texts, out)
        assert "\n" not in str(refused.value)
    with pytest.raises(BertineError, match="not both"):
        bertine.label(None, texts, tmp_path / "o.csv", several=True, spans=True)
    empty = tmp_path / "empty.csv"
    empty.write_text("text\n", encoding="utf-8")
    with pytest.raises(BertineError, match="there are no texts"):
        bertine.label(None, empty, tmp_path / "o.csv")


def test_what_more_labels_would_bring() -> None:
    curve = [(round(8 * 1.4**at), 1 - 0.5 / 1.4 ** (at / 2) - 0.001 * (at % 2)) for at in range(9)]
    line, may_stop = outlook(curve, 60)
    assert line.startswith(f"{curve[-1][0]} more labels would bring about +")
    assert not may_stop
    flat = [(count, 0.9 + 0.001 * (count % 2)) for count, _ in curve]
    assert outlook(flat, 60)[1]
    assert not outlook(flat, 40)[1]
    assert outlook(curve, 10) == ("", False)


def test_the_page_needs_its_key_and_a_model_learns_its_labels_and_those_of_the_table(
    tmp_path: Path,
) -> None:
    pytest.importorskip("fastapi")
    model, out = toys.write_model(tmp_path / "model"), tmp_path / "out.csv"
    rows: list[dict[str, Any]] = rows_of(20)
    for row in rows[:8]:
        row["label"] = KINDS[row["id"] % 2]
    results: list[Any] = []
    import bertine.labelling.label as module

    addresses: list[str] = []
    patched = pytest.MonkeyPatch()
    patched.setattr(module.logger, "info", addresses.append)
    given: Any = {"device": "cpu", "precision": "fp32", "then": "few-shot", "labels": KINDS}
    thread = threading.Thread(
        target=lambda: results.append(bertine.label(model, rows, out, show_progress=False, **given))
    )
    thread.start()
    try:
        toys_wait(lambda: any("http" in line for line in addresses))
        address = next(line for line in addresses if "http" in line).split("http://")[1].split()[0]
        host, _, key = address.partition("/#")

        def ask(path: str, body: Any, key: str, **headers: str) -> tuple[int, Any]:
            connection = http.client.HTTPConnection(host, timeout=30)
            with contextlib.closing(connection):
                headers |= {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
                connection.request("POST", path, json.dumps(body), headers)
                response = connection.getresponse()
                return response.status, json.loads(response.read())

        assert ask("/state", {}, "wrong")[0] == 401
        assert ask("/state", {}, key, Host="evil.example")[0] == 421
        status, state = ask("/state", {}, key)
        assert (status, state["labelled"]) == (200, 8)
        row = state["question"]["row"]
        body = {"row": row, "seen": state["revision"], "labels": ["soup"], "spans": [], "note": ""}
        assert ask("/label", {**body, "row": -1}, key)[0] == 422
        assert ask("/label", {**body, "row": 999}, key)[0] == 422
        assert ask("/label", {**body, "note": "x" * (5 << 20)}, key)[0] == 413
        assert ask("/label", body, key)[1]["labelled"] == 9
        assert ask("/finish", {}, key)[0] == 200
    finally:
        thread.join(60)
        patched.undo()
    assert results[0].counts == {"cat": 4, "soup": 5}
    assert [line["label"] for line in written(out)] == [*KINDS * 4, "soup"]
    assert bertine.Predictor.load(results[0].model).labels == KINDS


def toys_wait(condition: Any) -> None:
    """Wait until it holds."""
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come to hold")
