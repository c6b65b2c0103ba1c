"""Texts of a trained task of which some have a label, all, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertine.core.errors import BertineError
from bertine.datasets.transfer_set import read_transfer_set
from bertine.options.data import DataConfig
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.whole_text import TextRegression

TEXT = TextClassification(("no", "yes"), ("review",), "stars")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labels_of(task: Task[Any], path: Path, **reading: Any) -> tuple[list[Any], list[Any]]:
    data = read_transfer_set(task, path, DataConfig(**reading))
    both = [item.label for item in data.train.items], [i.label for i in data.validation.items]
    assert len(data.held_out) == len(both[1])
    return both


def test_held_out_examples_have_labels_where_some_have(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"review": f"text {n}", "stars": ["no", "yes", None, ""][n % 4]} for n in range(80)
    ]
    path = write(tmp_path / "some.jsonl", rows)
    data = read_transfer_set(TEXT, path, DataConfig())
    assert sorted(item.label or "" for item in data.validation.items) == ["no", "no", "yes", "yes"]
    assert sum(item.label is None for item in data.train.items) == 40
    texts = [row["review"] for row in rows]
    order = [item.texts[0] for item in data.train.items]
    assert order == [text for n, text in enumerate(texts) if n not in data.held_out]
    assert [texts[n] for n in data.held_out] == [i.texts[0] for i in data.validation.items]


@pytest.mark.parametrize(
    ("labels", "others", "judged"), [(99, 100, 10), (100, 200, 10), (99, 98, 10)]
)
def test_few_labels_are_kept_for_training(
    tmp_path: Path, labels: int, others: int, judged: int
) -> None:
    rows: list[dict[str, Any]] = [
        {"review": f"text {n}", "stars": ["no", "yes"][n % 2] if n < labels else ""}
        for n in range(labels + others)
    ]
    train, held = labels_of(TEXT, write(tmp_path / "some.jsonl", rows))
    assert len(held) == judged
    few = labels < min(100, others)
    assert held.count(None) == (judged if few else 0)
    assert len(train) - train.count(None) == labels - (0 if few else judged)


def test_without_labels_any_tenth_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(f"text {n}\n" for n in range(50)))
    train, held = labels_of(TEXT, tmp_path / "t.txt")
    assert (len(train), len(held)) == (45, 5)
    assert set(train + held) == {None}
    other = write(tmp_path / "o.jsonl", [{"text": f"text {n}"} for n in range(50)])
    assert labels_of(TEXT, other) == (train, held)


def test_columns_of_the_training_or_of_usual_names(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": ["no", "yes"][n % 2]} for n in range(40)]
    path = write(tmp_path / "usual.jsonl", rows)
    train, held = labels_of(TEXT, path)
    assert None not in train + held
    rows = [{"t": f"text {n}", "l": "no"} for n in range(20)]
    named = write(tmp_path / "named.jsonl", rows)
    assert set(labels_of(TEXT, named, text_columns="t", label_column="l")[0]) == {"no"}
    assert set(labels_of(TEXT, named, text_columns="t")[0]) == {None}
    with pytest.raises(BertineError, match="cannot tell which column holds the text"):
        labels_of(TEXT, named)
    with pytest.raises(BertineError, match="there is no column 'x'"):
        labels_of(TEXT, named, text_columns="t", label_column="x")
    with pytest.raises(BertineError, match=r"2 text columns \(t, l\), but the teacher takes 1"):
        labels_of(TEXT, named, text_columns=["t", "l"])


@pytest.mark.parametrize(
    ("name", "header"), [("some.txt", "Satz\tKlasse"), ("some.csv", "Satz;Klasse,neu")]
)
def test_named_columns_tell_a_header_and_its_separator(
    tmp_path: Path, name: str, header: str
) -> None:
    path = tmp_path / name
    rows = [f"text {n}{header[4]}yes" for n in range(80)]
    path.write_text("\n".join([header, *rows]) + "\n")
    train, held = labels_of(TEXT, path, text_columns="Satz")
    assert (len(train), {*held}) == (72, {None})


def test_plain_text_is_for_single_texts(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one\ntwo\nthree\n")
    pairs = TextClassification(("no", "yes"), ("a", "b"), "label")
    with pytest.raises(BertineError, match=r"is plain text, .* but the teacher takes a and b"):
        labels_of(pairs, tmp_path / "t.txt")


def test_a_validation_file_is_judged_on_where_it_has_labels(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [{"review": "a"}] * 10)
    write(tmp_path / "dev.jsonl", [{"review": "b", "stars": "no"}, {"review": "c", "stars": ""}])
    data = read_transfer_set(TEXT, tmp_path, DataConfig())
    assert (len(data.train), len(data.validation), data.held_out) == (10, 1, ())
    assert "1 row without a label is not judged on" in data.validation.notes[-1]
    with pytest.raises(BertineError, match="has validation examples of its own"):
        read_transfer_set(TEXT, tmp_path, DataConfig(split_seed=1))


def test_scores_sets_and_choices(tmp_path: Path) -> None:
    scores = TextRegression(("text",), "price")
    rows: list[dict[str, Any]] = [
        {"text": f"t {n}", "price": n if n % 2 else None} for n in range(40)
    ]
    train, held = labels_of(scores, write(tmp_path / "s.jsonl", rows))
    assert train.count(None) == 20
    assert None not in held
    many = MultiLabel(("a", "b"), ("text",), "tags")
    rows = [{"text": f"t {n}", "tags": ["a|b", ""][n % 2]} for n in range(40)]
    train, held = labels_of(many, write(tmp_path / "m.jsonl", rows))
    assert None not in train + held  # no label is a set of labels, too
    bare = write(tmp_path / "b.jsonl", [{"text": f"t {n}"} for n in range(40)])
    assert set(labels_of(many, bare)[0]) == {None}
    choice = MultipleChoice(("text",), ("choice1", "choice2"), "label")
    rows = [
        {"text": "t", "choice1": "x", "choice2": f"y {n}", "label": [0, ""][n % 2]}
        for n in range(40)
    ]
    train, held = labels_of(choice, write(tmp_path / "c.jsonl", rows))
    assert train.count(None) == 20
    rows = [{name: row[name] for name in ("text", "choice1", "choice2")} for row in rows]
    assert set(labels_of(choice, write(tmp_path / "d.jsonl", rows))[0]) == {None}
