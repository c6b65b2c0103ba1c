"""Labels in Parquet as the `datasets` library stores them: numbers, with names beside the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.data.examples import read_examples
from bertine.data.label_sets import labels_in, read_label_sets
from bertine.datasets.multiple_choice import read_choices
from bertine.options.data import DataConfig

NAMES = ["old", "new"]
QUIET: dict[str, Any] = {"precision": "fp32", "show_progress": False}
FAST: dict[str, Any] = {"max_length": 16, "epochs": 3, "batch_size": 8, "learning_rate": 3e-3}


def class_label(names: list[str]) -> dict[str, Any]:
    return {"_type": "ClassLabel", "names": names}


def write(path: Path, feature: Any = None, /, **columns: list[Any]) -> Path:
    """`feature`: of the column ``label``; None: the table alone."""
    table = pa.table(columns)
    if feature is not None:
        told = {"info": {"features": {"label": feature, "text": {"dtype": "string"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(told)})
    pq.write_table(table, path)
    return path


def labels(path: Path, **how: Any) -> list[str | None]:
    return [item.label for item in read_examples(path, **how).items]


def test_names_are_the_labels_and_said_to_be(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", class_label(NAMES), text=["x", "y", "z"], label=[1, 0, 1])
    read = read_examples(path)
    assert [item.label for item in read.items] == ["new", "old", "new"]
    assert len(read.notes) == 1
    assert "'label' stand for the names that the file gives with them" in read.notes[0]
    assert read.notes[0].endswith("the labels: old, new")
    known = read_examples(path, known=("new", "old", "older"))
    assert [item.label for item in known.items] == ["new", "old", "new"]
    assert known.notes == []
    plain = write(tmp_path / "b.parquet", text=["x", "y", "z"], label=[1, -1, 1])
    assert labels(plain) == ["1", "-1", "1"]
    write(path, class_label(NAMES), text=["x"], label=["new"])
    assert labels(path) == ["new"]
    assert read_examples(path).notes == []


def test_numbers_where_the_names_are_not_known(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", class_label(NAMES), text=["x", "y"], label=[1, 0])
    read = read_examples(path, known=("0", "1"))
    assert [item.label for item in read.items] == ["1", "0"]
    assert "(old, new) are none of the known labels, so the numbers" in read.notes[0]
    scores = read_examples(path, known=())
    assert [item.label for item in scores.items] == ["1", "0"]
    assert scores.notes == []


def test_minus_one_is_no_label(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, class_label(NAMES), text=["x", "y", "z"], label=[1, -1, 0])
    for known, found in ((None, ["new", "old"]), ((), ["1", "0"])):
        read = read_examples(path, known=known)
        assert [item.label for item in read.items] == found
        assert "1 of 3 rows have no label ('label' is -1) and were left out" in read.notes[-1]
    assert labels(path, known=("-1", "0", "1")) == ["1", "-1", "0"]
    write(path, class_label(NAMES), text=["x", "y"], label=[-1, -1])
    with pytest.raises(BertineError, match=r"a\.parquet: no row has a label: 'label' is -1 in al"):
        read_examples(path)
    write(path, class_label(NAMES), text=["x", "y"], label=[0, 2])
    with pytest.raises(BertineError, match=r"a\.parquet:2: 'label' holds 2, but its names are tho"):
        read_examples(path)
    write(path, class_label(NAMES), text=["x", "y"], label=[0, None])
    assert [item.label for item in read_examples(path).items] == ["old"]
    with pytest.raises(BertineError, match=r"a\.parquet:2: the label 'label' is null"):
        read_examples(path, DataConfig(strict=True))


@pytest.mark.parametrize(
    "feature",
    [
        [class_label(NAMES)],
        {"_type": "Sequence", "feature": class_label(NAMES)},
        {"_type": "List", "feature": class_label(NAMES)},
    ],
)
def test_lists_of_many_labels_hold_names(tmp_path: Path, feature: Any) -> None:
    path = write(tmp_path / "a.parquet", feature, text=["x", "y", "z"], label=[[1, 0], [], [1]])
    read, _ = read_label_sets(path)
    assert [labels_in(item.label or "") for item in read.items] == [["new", "old"], [], ["new"]]
    assert any("are the labels: old, new" in note for note in read.notes)
    read, _ = read_label_sets(path, known=("0", "1"))
    assert [labels_in(item.label or "") for item in read.items] == [["1", "0"], [], ["1"]]


def test_choices_are_named_by_their_place(tmp_path: Path) -> None:
    """A name such as "1" of the first choice is no number from 0 on."""
    path = write(
        tmp_path / "a.parquet",
        class_label(["1", "2"]),
        text=["x", "y", "z"],
        choice1=["a"] * 3,
        choice2=["b"] * 3,
        label=[0, 1, -1],
    )
    read, choices = read_choices(path)
    assert choices == ("choice1", "choice2")
    assert [item.label for item in read.items] == ["0", "1"]
    assert [note for note in read.notes if "no label" not in note] == []


@pytest.mark.takes(4)
def test_a_model_of_names_and_one_of_numbers(model: Path, tmp_path: Path) -> None:
    """One learns the names from Parquet, the other numbers from csv; both read the same file."""
    texts = [toys.sentence("cat", NAMES[row % 2]) for row in range(32)]
    numbers = [row % 2 for row in range(32)]
    data = write(tmp_path / "train.parquet", class_label(NAMES), text=texts, label=numbers)
    bertine.finetune("text", model=model, data=data, out=tmp_path / "named", **FAST)
    answer = bertine.Predictor.load(tmp_path / "named", precision="fp32").predict_one(texts[1])
    # In the order of the file, not of the alphabet: of the second one is the score f1.
    assert list(answer.probabilities) == NAMES
    report = bertine.evaluate(tmp_path / "named", data, **QUIET)
    assert report.num_examples == 32

    plain = tmp_path / "plain"
    plain.mkdir()
    rows = [f"{text},{number}" for text, number in zip(texts, numbers, strict=True)]
    (plain / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    # The file to judge on has names for the same numbers.
    write(plain / "dev.parquet", class_label(NAMES), text=texts, label=numbers)
    bertine.finetune("text", model=model, data=plain, out=tmp_path / "numbers", **FAST)
    same = bertine.evaluate(tmp_path / "numbers", data, **QUIET)
    assert same.num_examples == 32
    assert any("so the numbers are taken" in note for note in same.notes)


# Names that the user gives


def named(path: Path, names: list[str] = NAMES, **how: Any) -> list[str | None]:
    return labels(path, config=DataConfig(label_names=names), **how)


def test_numbers_get_the_names_that_are_given(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nx,1\ny,0\nz,1.0\nw,\n")
    assert named(path) == ["new", "old", "new"]
    read = read_examples(path, DataConfig(label_names=NAMES))
    assert read.class_names == ("old", "new")
    # Names take the place of those that a file gives.
    typed = write(tmp_path / "a.parquet", class_label(["a", "b"]), text=["x", "y"], label=[1, 0])
    assert named(typed) == ["new", "old"]
    # What is judged on may have names already, and lack a label.
    path.write_text("text,label\nx,1\ny,new\n")
    assert named(path, known=["new", "old"]) == ["new", "new"]


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        ("x,0\ny,1\nz,2\n", NAMES, r":4: 'label' holds 2, but its names are those of 0 to 1"),
        ("x,0\ny,1\n", [*NAMES, "newest"], r"label_names has 3 names, .* but no row has 2 in 'lab"),
        ("x,1\ny,2\n", [*NAMES, "newest"], r"label_names has 3 names, .* but no row has 0 in 'lab"),
        ("x,0\ny,good\n", NAMES, r":3: 'label' holds 'good', but label_names is for the numbers 0"),
        ("x,0\ny,0.5\n", NAMES, r":3: 'label' holds '0.5', but label_names is for the numbers 0"),
        ("x,0\ny,1\n", ["old", " old"], "label_names must be two names or more, all different"),
    ],
)
def test_names_that_do_not_fit_are_refused(
    rows: str, names: list[str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"text,label\n{rows}")
    with pytest.raises(BertineError, match=message):
        named(path, names)


def test_a_model_knows_the_numbers_of_its_names(model: Path, tmp_path: Path) -> None:
    rows = toys.write_labelled(tmp_path / "names.csv").read_text()
    numbers = tmp_path / "numbers.csv"
    numbers.write_text(rows.replace(",animal", ",0").replace(",dish", ",1"))
    options = {**FAST, "epochs": 1, "baselines": False, "frozen": False}
    learner = bertine.finetune(
        "text", model=model, data=numbers, out=tmp_path / "run", **options,
        label_names=["animal", "dish"],
    )  # fmt: skip
    assert learner.predictor.labels == ["animal", "dish"]
    scores = [learner.validate(tmp_path / f"{name}.csv").metrics for name in ("names", "numbers")]
    assert scores[0] == scores[1]
    plain = bertine.finetune("text", model=model, data=numbers, out=tmp_path / "plain", **options)
    assert plain.predictor.labels == ["0", "1"]
    # The table has the names, in their order.
    report = plain.validate(numbers, class_names=["animal", "dish"], worst=1)
    lines = [line.split()[0] for line in report.lines()]
    assert lines[(at := lines.index("label")) + 1 : at + 3] == ["animal", "dish"]
    assert report.worst[0].label in ("animal", "dish")
    assert plain.validate().labels == ("0", "1")
    turned = learner.validate(class_names=["dish", "animal"])
    lines = [line.split()[0] for line in turned.lines()]
    assert lines[(at := lines.index("label")) + 1 : at + 3] == ["dish", "animal"]
    assert turned.per_label == learner.validate().per_label
    for names in (["dish"], ["dish", "dish"], ["dish", "cat"]):
        with pytest.raises(BertineError, match=f"class_names are {names[0]}"):
            learner.validate(class_names=names)
