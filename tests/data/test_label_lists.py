"""Several labels in a cell: lists, tuples and sets, also written as texts, and 0 or 1 for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertine.core.errors import BertineError
from bertine.data.in_memory import Source, as_data
from bertine.data.label_sets import labels_in, parsed_list, read_label_sets
from bertine.options.data import DataConfig
from bertine.tasks.multi_label import MultiLabel


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("['x', 'y']", ["x", "y"]),
        ("('x', 'y')", ["x", "y"]),
        ("frozenset({'y', 'x'})", ["x", "y"]),
        ("set()", []),
        ("[]", []),
        ('["x", "caf\\u00e9"]', ["x", "café"]),
        ("array(['a', 'b'], dtype=object)", ["a", "b"]),
        ("tensor([0, 1, 1])", ["0", "1", "1"]),
        ("dict_keys(['a', 'b'])", ["a", "b"]),
        ("good (as [it] is)", None),
        ("[0. 1. 1.]", ["0.", "1.", "1."]),
        ("[very good, bad]", ["very good", "bad"]),
        ("{a,b}", ["a", "b"]),
        ("(none)", None),
        ("[A]|[B]", None),
        ("{'a': 1}", None),
    ],
)
def test_lists_that_are_written_as_texts(text: str, labels: list[str] | None) -> None:
    assert parsed_list(text) == labels


def write_jsonl(folder: Path, cells: list[Any]) -> Source:
    rows = [{"text": f"t{number}", "labels": cell} for number, cell in enumerate(cells)]
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_csv(folder: Path, cells: list[Any]) -> Source:
    path = folder / "train.csv"
    lines = [f't{number},"{cell}"\n' for number, cell in enumerate(cells)]
    path.write_text("text,labels\n" + "".join(lines), encoding="utf-8")
    return path


def in_memory(folder: Path, cells: list[Any]) -> Source:
    data = as_data([{"text": f"t{n}", "labels": cell} for n, cell in enumerate(cells)])
    assert not isinstance(data, str | Path)
    return data  # type: ignore[return-value]


def sets(source: Source, separator: str | None = None, **how: Any) -> list[list[str]]:
    read, _ = read_label_sets(source, DataConfig(label_separator=separator), **how)
    return [labels_in(item.label or "") for item in read.items]


@pytest.mark.parametrize(
    ("write", "cells"),
    [
        (write_jsonl, [[0, 1, 1], [1, 0, 0], [0, 0, 0]]),
        (write_jsonl, [[False, True, True], [True, False, False], None]),
        (write_jsonl, [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        (write_jsonl, ["[0, 1, 1]", "[1, 0, 0]", ""]),
        (write_csv, ["[0, 1, 1]", "[1, 0, 0]", "[0, 0, 0]"]),
        (write_csv, ["[0. 1. 1.]", "[1. 0. 0.]", "[0. 0. 0.]"]),
        (write_csv, ["0,1,1", "1,0,0", "0,0,0"]),
        (write_csv, ["0 1 1", "1 0 0", "0 0 0"]),
        (write_csv, ["011", "100", "000"]),
        (in_memory, [np.array([0, 1, 1]), np.array([1, 0, 0]), np.array([0, 0, 0])]),
        (in_memory, [(0, 1, 1), (1, 0, 0), (0, 0, 0)]),
    ],
)
def test_lists_of_0_and_1_are_one_for_each_label(write: Any, cells: Any, tmp_path: Path) -> None:
    source = write(tmp_path, cells)
    read, by = read_label_sets(source)
    assert [labels_in(item.label or "") for item in read.items] == [["1", "2"], ["0"], []]
    assert read.class_names == ("0", "1", "2")
    assert any("hold 0 or 1 for each of 3 labels" in note for note in read.notes)
    # A model that was trained on such; one that knows names.
    known = ("0", "1", "2")
    assert sets(source, separator=by, known=known, one_hot=True)[0] == ["1", "2"]
    assert sets(source, separator=by, known=("a", "b", "c"))[0] == ["b", "c"]
    with pytest.raises(BertineError, match="must hold 0 or 1 for each of 2 labels, as in training"):
        sets(source, separator=by, known=("0", "1"), one_hot=True)


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        ([[0], [0, 1], [1]], [["0"], ["0", "1"], ["1"]]),
        ([[0, 1], [2]], [["0", "1"], ["2"]]),
        ([[0], [1]], [["0"], ["1"]]),
    ],
)
def test_lists_of_numbers_that_are_labels(cells: Any, labels: Any, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path, cells)
    assert sets(source) == labels
    assert sets(write_jsonl(tmp_path, [[0, 1]]), known=("0", "1")) == [["0", "1"]]


@pytest.mark.parametrize(
    ("cells", "known", "labels"),
    [
        (["100", "101"], ("100", "101", "x"), [["100"], ["101"]]),
        (["a；b\n", "c"], None, [["a", "b"], ["c"]]),
        (["joy\n", "sad\n"], None, [["joy"], ["sad"]]),
        (["科技、互联网", "体育"], ("体育", "科技、互联网"), [["科技、互联网"], ["体育"]]),
    ],
)
def test_known_labels_and_line_ends_are_no_lists(
    tmp_path: Path, cells: list[str], known: tuple[str, ...] | None, labels: list[list[str]]
) -> None:
    assert sets(write_jsonl(tmp_path, cells), known=known) == labels


def test_minus_1_says_that_a_label_is_absent(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path, [[1, -1, -1], [-1, 1, -1]])
    assert sets(source) == [["0"], ["1"]]
    assert sets(write_jsonl(tmp_path, [[1], [-1], [1, -1]])) == [["1"], ["-1"], ["1", "-1"]]


@pytest.mark.parametrize(
    ("cells", "sign"),
    [
        (["x/y", "y/z", "x", "z"], "/"),
        (["x+y", "y", "x"], "+"),
        (["x\ty", "y", "x"], "\t"),
        (["C/C++", "Java", "Go/Rust"], ""),
        (["x", "y"], ""),
    ],
)
def test_what_may_be_several_labels_is_told(tmp_path: Path, cells: list[str], sign: str) -> None:
    read, _ = read_label_sets(write_jsonl(tmp_path, cells))
    said = [note for note in read.notes if "if it is several" in note]
    assert bool(said) == bool(sign)
    assert all(f"label_separator={sign!r}" in note for note in said)


def test_lists_of_0_and_1_must_be_equally_long(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path, [[0, 1, 1], [1, 0, 0], [1, 1]])
    with pytest.raises(BertineError, match=r"train\.jsonl:3: 'labels' holds 2 numbers of 0 and 1"):
        read_label_sets(source)
    with pytest.raises(BertineError, match=r"train\.jsonl:1: 'labels' holds a number, but"):
        read_label_sets(write_jsonl(tmp_path, [[0.5, 1.0], [1.0, 0.0]]))


@pytest.mark.parametrize(
    ("write", "cells"),
    [
        (write_csv, ["{'x', 'y'}", "('x',)", "[]"]),
        (write_csv, ["['x', 'y']", "x", ""]),
        (in_memory, [{"x", "y"}, frozenset("x"), set()]),
        (in_memory, [("x", "y"), ["x"], ()]),
    ],
)
def test_sets_and_tuples_are_what_they_are(write: Any, cells: Any, tmp_path: Path) -> None:
    assert sets(write(tmp_path, cells)) == [["x", "y"], ["x"], []]


def test_brackets_belong_to_labels_where_a_separator_is_named(tmp_path: Path) -> None:
    source = write_csv(tmp_path, ["[A]|[B]", "[A]"])
    with pytest.raises(
        BertineError, match=r"train\.csv:2: 'labels' is '\[A\]\|\[B\]', which looks"
    ):
        read_label_sets(source)
    assert sets(source, separator="|") == [["[A]", "[B]"], ["[A]"]]
    assert sets(source, separator="|", known=("[A]", "[B]")) == [["[A]", "[B]"], ["[A]"]]


def test_labels_that_no_row_has_are_labels(tmp_path: Path) -> None:
    """As columns of 0 and 1 are: the validation file may have them."""
    read, _ = read_label_sets(write_jsonl(tmp_path, [[0, 1, 0], [1, 0, 0]]))
    task = MultiLabel.from_examples(read, labels=read.class_names)
    assert task.labels == ("0", "1", "2")
