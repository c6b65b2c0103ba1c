"""Labelled examples: columns found or named, files of a folder, held-out parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertine.errors import BertineError
from bertine.tasks.examples import Example, Examples, find_splits, read_examples


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("header", "texts", "label"),
    [
        ("text;label_name", ("text",), "label_name"),
        ("label,text", ("text",), "label"),
        ("id,sentence1,sentence2,label", ("sentence1", "sentence2"), "label"),
        ("premise\thypothesis\tlabel", ("premise", "hypothesis"), "label"),
    ],
)
def test_usual_columns_are_found(
    tmp_path: Path, header: str, texts: tuple[str, ...], label: str
) -> None:
    row = "".join("x" if c.isalnum() or c == "_" else c for c in header)
    examples = read_examples(write(tmp_path / "a.txt", f"{header}\n{row}\n"))
    assert (examples.text_columns, examples.label_column) == (texts, label)
    assert len(examples.items[0].texts) == len(texts)
    assert examples.items[0].line == 2


def test_named_columns_are_taken_and_missing_ones_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "body,mood,text\nhello,good,no\n")
    examples = read_examples(path, text_columns=["body"], label_column="mood")
    assert examples.items == [Example(("hello",), "good", 2)]
    with pytest.raises(BertineError, match=r"a\.csv: there is no column 'moods' \(did you mean"):
        read_examples(path, label_column="moods")
    with pytest.raises(BertineError, match="cannot tell which column holds the label"):
        read_examples(path)


def test_plain_text_has_no_labels_to_train_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "Just a sentence.\nAnother one.\n")
    with pytest.raises(BertineError, match="its first line is not a header"):
        read_examples(path)


def test_a_header_without_rows_and_a_row_without_label(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="no rows"):
        read_examples(write(tmp_path / "a.csv", "text,label\n"))
    with pytest.raises(BertineError, match=r"b\.csv:3: the label 'label' is empty"):
        read_examples(write(tmp_path / "b.csv", "text,label\na,b\nc,\n"))


def test_empty_texts_are_kept_and_counted(tmp_path: Path) -> None:
    examples = read_examples(write(tmp_path / "a.csv", "text,label\n,x\n  ,y\nc,x\n"))
    assert len(examples) == 3
    assert [note for note in examples.notes if "2 of 3 texts are empty" in note]


def test_json_labels_become_texts(tmp_path: Path) -> None:
    lines = (
        '{"text": "a", "label": 1}\n{"text": "b", "label": true}\n{"text": "c", "label": " x "}\n'
    )
    examples = read_examples(write(tmp_path / "a.jsonl", lines))
    assert [item.label for item in examples.items] == ["1", "true", "x"]


def test_splits_of_a_folder(tmp_path: Path) -> None:
    train, dev = write(tmp_path / "train.csv", "x"), write(tmp_path / "dev.tsv", "x")
    splits = find_splits(tmp_path)
    assert (splits.train, splits.validation, splits.test) == (train, dev, None)
    assert find_splits(dev).train == dev
    write(tmp_path / "val.csv", "x")
    with pytest.raises(BertineError, match=r"both val\.csv and dev\.tsv could be the validation"):
        find_splits(tmp_path)


def test_missing_and_useless_folders(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="no such file or folder"):
        find_splits(tmp_path / "absent")
    with pytest.raises(BertineError, match="found no train, validation or test file"):
        find_splits(tmp_path)


def test_hold_out_parts_examples_for_good() -> None:
    items = [Example((str(i),), "a", i) for i in range(50)]
    examples = Examples("a.csv", ("text",), "label", items)
    kept, held = examples.hold_out(0.2, seed=1)
    assert len(held) == 10
    assert sorted([*kept.items, *held.items], key=lambda item: item.line) == items
    assert [e.line for e in held.items] == sorted(e.line for e in held.items)
    assert examples.hold_out(0.2, seed=1)[1].items == held.items
    assert examples.hold_out(0.2, seed=2)[1].items != held.items
    with pytest.raises(BertineError, match="cannot hold out"):
        examples.hold_out(1.0, seed=1)
