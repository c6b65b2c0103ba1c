"""The files of a data folder: found by their names, those that are not used are told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertine.core.errors import BertineError
from bertine.data.examples import find_splits, judged_table, read_examples, unused_note
from bertine.data.tables import Table
from bertine.datasets.readers import read_labelled
from bertine.inference.rows import count_texts


def write(path: Path, content: str = "text,label\na,x\nb,y\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def parquet(path: Path, *texts: str, names: tuple[str, str] = ("text", "label")) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({names[0]: list(texts), names[1]: [0] * len(texts)}), path)
    return path


def test_splits_of_a_folder(tmp_path: Path) -> None:
    train, dev = write(tmp_path / "train.csv"), write(tmp_path / "dev.tsv")
    splits = find_splits(tmp_path)
    assert (splits.train, splits.validation, splits.test) == (train, dev, None)
    assert find_splits(dev).train == dev
    write(tmp_path / "val.csv")
    with pytest.raises(BertineError, match=r"both val\.csv and dev\.tsv could be the validation"):
        find_splits(tmp_path)


def test_missing_and_useless_folders(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="no such file or folder"):
        find_splits(tmp_path / "absent")
    with pytest.raises(BertineError, match=r"found no train, validation or test file .* in it$"):
        find_splits(tmp_path)
    write(tmp_path / "reviews.csv")
    with pytest.raises(BertineError, match=r"in it; it has reviews\.csv$"):
        find_splits(tmp_path)


def test_json_is_found_where_there_is_no_other(tmp_path: Path) -> None:
    lists = write(tmp_path / "train.json", '[{"text": "a", "label": 1}]')
    assert find_splits(tmp_path).train == lists
    assert find_splits(tmp_path, more=(".json",)).train == lists
    table = write(tmp_path / "train.csv")
    assert find_splits(tmp_path).train == table
    assert "train.json is not used" in unused_note(tmp_path, {str(table)})[0]


@pytest.mark.parametrize(
    "names",
    [
        ["train-00000-of-00001.parquet"],
        ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"],
        ["train-00000-of-00001-a09b74b3ef9c3b56.parquet"],
        ["train-00000-of-00002-a0b1.parquet", "train-00001-of-00002-c2d3.parquet"],
        ["data/train-00000-of-00001.parquet"],
        ["plain_text/train-00000-of-00001.parquet"],
        ["train/0000.parquet"],
        ["train/0000.parquet", "train/0001.parquet"],
        ["default/train/0000.parquet"],
        ["data/train.parquet"],
    ],
)
def test_names_of_the_hugging_face_hub(tmp_path: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        parquet(tmp_path / name, f"a{number}", f"b{number}")
    write(tmp_path / "README.md", "# data")
    test = parquet((tmp_path / names[0]).with_name("test-00000-of-00001.parquet"), "c")
    if "/0000" in names[0]:
        test.rename(test.parent.parent / "test.parquet")
    splits = find_splits(tmp_path)
    assert splits.test is not None
    assert splits.validation is None
    assert isinstance(splits.train, Path)
    with Table(splits.train) as table:
        rows = list(table)
    texts = [f"{letter}{number}" for number in range(len(names)) for letter in "ab"]
    assert [row.values["text"] for row in rows] == texts
    assert [row.line for row in rows] == list(range(1, len(rows) + 1))
    assert count_texts(splits.train) == len(texts)
    assert len(read_examples(splits.train)) == len(texts)


def test_parts_that_do_not_fit_are_told(tmp_path: Path) -> None:
    parquet(tmp_path / "train-00000-of-00003.parquet", "a")
    parquet(tmp_path / "train-00002-of-00003.parquet", "b")
    with pytest.raises(BertineError, match=r"has 2 of the 3 parts of train; .*train-00001-of-0000"):
        find_splits(tmp_path)
    parquet(tmp_path / "train-00001-of-00003.parquet", "c", names=("text", "stars"))
    train = find_splits(tmp_path).train
    assert train is not None
    with (
        pytest.raises(BertineError, match=r"00001-of-00003\.parquet: has the columns 'text', '"),
        Table(train) as table,
    ):
        list(table)
    write(tmp_path / "train.csv")
    with pytest.raises(BertineError, match="could be the train part"):
        find_splits(tmp_path)


def test_one_of_several_folders_is_to_be_named(tmp_path: Path) -> None:
    for name in ("cola", "sst2"):
        parquet(tmp_path / name / "train-00000-of-00001.parquet", "a")
    with pytest.raises(BertineError, match="its folders cola, sst2 have training or test files"):
        find_splits(tmp_path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("eval.csv", True),
        ("evaluation.tsv", True),
        ("Validation_2.csv", True),
        ("dev2.jsonl", True),
        ("my-train.csv", True),
        ("train.extra.csv", True),
        ("test.csv", False),
        ("unlabelled.csv", False),
        ("labels.txt", False),
        ("eval.md", False),
    ],
)
def test_files_that_are_not_used_are_told(tmp_path: Path, name: str, told: bool) -> None:
    train = write(tmp_path / "train.csv", "text,label\n" + "a b,x\nc d,y\n" * 8)
    write(tmp_path / name)
    note = f"{tmp_path}: {name} is not used (the files of a data folder are called train, "
    assert [part.startswith(note) for part in unused_note(tmp_path, {str(train)})] == [True] * told
    notes = read_labelled("text", tmp_path).train.notes
    assert any(each.startswith(note) for each in notes) == told
    if name == "eval.csv":
        with pytest.raises(BertineError, match=r"only training data; .*eval\.csv is not used"):
            judged_table(tmp_path)


def test_column_files_that_are_not_used_are_told(tmp_path: Path) -> None:
    train, other = write(tmp_path / "train.conll"), write(tmp_path / "eval.conll")
    assert other.name in unused_note(tmp_path, {str(train)})[0]
