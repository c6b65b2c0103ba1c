"""Labelled examples: columns found or named, files of a folder, held-out parts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples, find_splits, read_examples
from bertine.options.data import DataConfig


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
    examples = read_examples(path, DataConfig(text_columns=["body"], label_column="mood"))
    assert examples.items == [Example(("hello",), "good", 2)]
    with pytest.raises(BertineError, match=r"a\.csv: there is no column 'moods' \(did you mean"):
        read_examples(path, DataConfig(label_column="moods"))
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
        read_examples(write(tmp_path / "b.csv", "text,label\na,b\nc,\n"), DataConfig(strict=True))


def test_empty_texts_are_kept_and_counted(tmp_path: Path) -> None:
    examples = read_examples(write(tmp_path / "a.csv", "text,label\n,x\n  ,y\nc,x\n"))
    assert len(examples) == 3
    assert [note for note in examples.notes if "2 of 3 texts are empty" in note]


def test_pairs_that_lack_a_text_are_told_by_line(tmp_path: Path) -> None:
    rows = "".join(f"x{n},{'y' if n % 4 == 0 else ''},{n % 2}\n" for n in range(1, 17))
    path = write(tmp_path / "a.csv", f"text,text_pair,label\n{rows},z,1\n , ,0\n")
    notes = read_examples(path).notes
    assert f"{path}: 1 of 18 texts are empty (line 19)" in notes
    assert f"{path}: 1 of 18 rows have no text in 'text' (line 18)" in notes
    assert any(
        "12 of 18 rows have no text in 'text_pair' (lines 2, 3, 4, 6" in note for note in notes
    )


@pytest.mark.parametrize(
    ("name", "content", "known", "labels"),
    [
        ("a.csv", "text,label\na,True\nb,False\n", None, ["True", "False"]),
        ("a.csv", "text,label\na,True\nb,FALSE\n", ["false", "true"], ["true", "false"]),
        ("a.csv", "text,label\na,true\nb,False\n", ["True", "False"], ["True", "False"]),
        ("a.csv", "text,label\na, True\nb,true\n", ["True", "true"], ["True", "true"]),
        ("a.csv", "text,label\na,True\nb,x\n", ["yes", "no"], ["True", "x"]),
        ("a.jsonl", '{"text": "a", "label": true}\n', None, ["true"]),
        ("a.jsonl", '{"text": "a", "label": true}\n', ["False", "True"], ["True"]),
        ("a.jsonl", '{"text": "a", "label": "TRUE"}\n', ["false", "true"], ["true"]),
        ("a.jsonl", '{"text": "a", "label": true}\n', ["no", "yes"], ["true"]),
        ("a.csv", "text,label\na,1\n", ["True", "False"], ["1"]),
    ],
)
def test_truth_values_are_the_labels_that_are_known(
    tmp_path: Path, name: str, content: str, known: list[str] | None, labels: list[str]
) -> None:
    examples = read_examples(write(tmp_path / name, content), known=known)
    assert [item.label for item in examples.items] == labels


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("a.csv", "text,label\na,x\nb,Gr\ufffdn\n".encode()),
        ("a.csv", "text,label\nüü,x\nb,".encode() + b"gr\xffn\n"),
        ("a.tsv", "text\tlabel\nüü\tx\nb\t".encode() + b"gr\xffn\n"),
        ("a.jsonl", b'{"text": "a", "label": "x"}\n{"text": "b", "label": "gr\\ud800n"}\n'),
    ],
)
def test_a_damaged_label_is_an_error_with_its_row(tmp_path: Path, name: str, raw: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(BertineError, match=r":[23]: the label in 'label' is '[gG]r.n', with a "):
        read_examples(path)
    # A text to be written is no class.
    assert len(read_examples(path, known=())) == 2


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


def test_every_label_stays_in_training_and_is_held_out_in_its_share() -> None:
    labels = ["a"] * 60 + ["b"] * 30 + ["rare"] + ["c"] * 9
    items = [Example((str(i),), label, i) for i, label in enumerate(labels)]
    examples = Examples("a.csv", ("text",), "label", items)
    for seed in range(20):
        kept, held = examples.hold_out(0.1, seed=seed)
        assert {item.label for item in kept.items} == {"a", "b", "c", "rare"}
        counts = [sum(item.label == label for item in held.items) for label in "abc"]
        assert sum(counts) == 10
        assert 5 <= counts[0] <= 7
        assert 2 <= counts[1] <= 4
    alone = Examples("a.csv", ("text",), "label", items[60:61] + items[-1:])
    # A column of numbers of rows is likely not the one that was meant.
    with pytest.raises(BertineError, match="twice in the column 'label'; name another one with"):
        alone.hold_out(0.5, seed=0)


def test_one_column_may_be_given_as_a_string(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "review,stars\nfine,5\n")
    examples = read_examples(path, DataConfig(text_columns="review", label_column="stars"))
    assert examples.text_columns == ("review",)


def test_compressed_files_are_splits_too(tmp_path: Path) -> None:
    packed = gzip.compress(b"text,label\nfine,good\n")
    (tmp_path / "train.csv.gz").write_bytes(packed)
    write(tmp_path / "dev.csv", "text,label\nbad,bad\n")
    splits = find_splits(tmp_path)
    assert splits.train == tmp_path / "train.csv.gz"
    assert splits.validation == tmp_path / "dev.csv"
    assert read_examples(tmp_path / "train.csv.gz").items[0].texts == ("fine",)


def test_the_same_examples_have_the_same_fingerprint(tmp_path: Path) -> None:
    rows = "text,label\nfine,good\nbad,bad\n"
    first = read_examples(write(tmp_path / "a.csv", rows)).fingerprint()
    assert read_examples(write(tmp_path / "b.csv", rows)).fingerprint() == first
    for other in (rows.replace("fine", "Fine"), rows.replace("good", "bad")):
        assert read_examples(write(tmp_path / "b.csv", other)).fingerprint() != first
