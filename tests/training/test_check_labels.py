"""Labels that look wrong: those that were changed on purpose are found."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest

import bertine
import toys
from bertine import BertineError
from bertine.cli import main
from bertine.data.examples import read_examples
from bertine.options.data import DataConfig
from bertine.training.label_check import LabelCheck, find_noise

SETTINGS: dict[str, Any] = {
    "epochs": 25,
    "learning_rate": 2e-3,
    "frozen": False,
    "folds": 3,
    "precision": "fp32",
}
#: Rows whose labels are changed.
WRONG = (3, 40, 41, 77, 90, 118)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = toys.write_labelled(tmp_path_factory.mktemp("labels") / "reviews.csv", rows=120)
    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    names = sorted({row[1] for row in rows})
    for number in WRONG:
        rows[number - 1][1] = names[rows[number - 1][1] == names[0]]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def check(data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> LabelCheck:
    with toys.one_thread():
        return bertine.check_labels(
            data, model=model, out=tmp_path_factory.mktemp("check") / "check", **SETTINGS
        )


def test_the_counts_are_those_of_the_paper() -> None:
    """Worked out by hand: the thresholds are the means of their own labels, 0.8 and 0.675."""
    chances = np.array([[0.9, 0.1], [0.7, 0.3], [0.3, 0.7], [0.1, 0.9], [0.85, 0.15], [0.05, 0.95]])
    labels = np.array([0, 0, 1, 1, 1, 1])
    found = find_noise(chances, labels)
    assert found.counts.tolist() == [[1, 0], [1, 3]]
    assert found.suggested.tolist() == [0, 0, 1, 1, 0, 1]
    assert found.suspects.tolist() == [4]
    assert found.log_odds[4] == pytest.approx(np.log(0.15 / 0.85))
    # One of four of label 1, and none of label 0.
    assert found.share == pytest.approx(4 / 6 * 1 / 4)


def test_no_label_is_suggested_that_is_less_probable() -> None:
    """A rare label is never sure of itself, so its threshold is low."""
    draw = np.random.default_rng(0)
    labels = np.array([0] * 180 + [1] * 20)
    first = np.where(labels == 0, draw.uniform(0.5, 1, 200), draw.uniform(0.4, 0.95, 200))
    found = find_noise(np.stack([first, 1 - first], 1), labels)
    numbers = np.arange(200)
    chances = np.stack([first, 1 - first], 1)
    wrong = found.wrong
    assert wrong.any()
    given, other = chances[numbers, labels], chances[numbers, found.suggested]
    assert (other[wrong] > given[wrong]).all()
    assert np.allclose(found.log_odds[wrong], np.log(given / other)[wrong])
    # The joint counts them all the same, as in the paper.
    assert found.counts.sum() > 0


def test_a_label_that_is_all_but_ruled_out_comes_before_one_that_is_a_little_less_probable() -> (
    None
):
    """Of models that are never sure, the differences of probabilities say little."""
    chances = np.array([[0.02, 0.34, 0.32, 0.32], [0.2, 0.6, 0.1, 0.1], [0.3, 0.5, 0.1, 0.1]])
    rest = np.repeat(np.eye(4), 2, axis=0) * 0.2 + 0.2
    found = find_noise(
        np.concatenate([chances, rest]), np.array([0, 0, 0, *np.repeat(range(4), 2)])
    )
    assert found.log_odds[:3].argsort().tolist() == [0, 1, 2]
    assert found.log_odds[0] == pytest.approx(np.log(0.02 / 0.34))
    # What stands in the list, the suggested label, decides its order.
    wide = np.concatenate([[[0.1, 0.5, 0.4]], np.eye(3)[[0, 1, 1, 2]] * [0.5, 0.9, 0.3] + 0.05])
    suggested = find_noise(wide, np.array([0, 0, 1, 1, 2]))
    assert suggested.suggested[0] == 2
    assert suggested.log_odds[0] == pytest.approx(np.log(0.1 / 0.4))
    ruled_out = find_noise(np.array([[0.0, 1.0], [0.9, 0.1], [0.1, 0.9]]), np.array([0, 0, 1]))
    assert np.isfinite(ruled_out.log_odds).all()


@pytest.mark.slow
def test_labels_that_were_changed_are_found(check: LabelCheck, data: Path) -> None:
    lines = {suspect.line - 1 for suspect in check.suspects}
    assert set(WRONG) <= lines
    assert len(lines) <= len(WRONG) + 3
    with open(data, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for suspect in check.suspects:
        row = rows[suspect.line - 2]
        assert (row["text"], row["label"]) == (suspect.texts[0], suspect.label)
        assert suspect.suggested != suspect.label
        assert suspect.suggested_probability > suspect.probability
    odds = [each.probability / each.suggested_probability for each in check.suspects]
    assert odds == sorted(odds)
    assert 0.02 < check.noise.share < 0.12
    assert "look wrong" in check.lines()[0]


@pytest.mark.slow
def test_the_file_is_corrected_and_trained_on(check: LabelCheck, data: Path) -> None:
    with open(check.out / "checked.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    suggested = {int(row["line"]) for row in rows if row["suggested_label"]}
    assert suggested == {suspect.line for suspect in check.suspects}
    stored = json.loads((check.out / "check-labels.json").read_text())
    assert stored["num_examples"] == 120
    assert {each["line"] for each in stored["suspects"]} == suggested
    page = (check.out / "check-labels.html").read_text()
    assert "Labels to look at" in page
    assert check.suspects[0].texts[0] in page
    # As it is, it can be trained on: the columns have the names of the data.
    assert [example.label for example in read_examples(check.out / "checked.csv").items] == [
        row["label"] for row in rows
    ]
    # What was trained is not kept: the parts' probabilities are.
    assert sorted(path.name for path in (check.out / "parts").iterdir()) == [
        f"part-{number}.npy" for number in (1, 2, 3)
    ]


@pytest.mark.slow
def test_a_check_goes_on_and_comes_to_the_same(
    check: LabelCheck, data: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "check"
    settings = {**SETTINGS, "processes": 2}
    again = bertine.check_labels(data, model=model, out=out, **settings)
    assert np.array_equal(again.noise.suggested, check.noise.suggested)
    with pytest.raises(BertineError, match="holds a check already; add resume=True"):
        bertine.check_labels(data, model=model, out=out, **SETTINGS)
    with pytest.raises(BertineError, match="the check was started with folds = 3, not 4"):
        bertine.check_labels(data, model=model, out=out, **{**SETTINGS, "folds": 4}, resume=True)
    kept = {path: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}
    (out / "parts/part-2.npy").unlink()
    with toys.one_thread():
        third = bertine.check_labels(data, model=model, out=out, **SETTINGS, resume=True)
    assert np.array_equal(third.noise.suggested, check.noise.suggested)
    for path, when in kept.items():
        assert (path.stat().st_mtime_ns == when) == (path.name != "part-2.npy")


def test_labels_that_occur_once_are_left_out_and_said(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toys.write_labelled(tmp_path / "few.csv", rows=40)
    with open(data, "a", encoding="utf-8") as file:
        file.write("the odd one,neither\n")
    settings = {**SETTINGS, "folds": 2, "epochs": 1}
    with toys.one_thread():
        found = bertine.check_labels(data, model=model, out=tmp_path / "check", **settings)
    assert "1 label that occurs once is not checked" in capsys.readouterr().err.replace("\n", " ")
    assert len(found.examples) == 40
    # It is in the file all the same: who trains on that loses nothing.
    with open(tmp_path / "check/checked.csv", encoding="utf-8", newline="") as file:
        *_, last = list(csv.DictReader(file))
    assert (last["text"], last["label"], last["suggested_label"]) == ("the odd one", "neither", "")


@pytest.mark.slow
def test_a_file_that_was_corrected_stays(check: LabelCheck, data: Path, model: Path) -> None:
    file = check.out / "checked.csv"
    before = file.read_bytes()
    corrected = before.replace(b"animal", b"dish", 1)
    file.write_bytes(corrected)
    with toys.one_thread():
        bertine.check_labels(data, model=model, out=check.out, **SETTINGS, resume=True)
    assert file.read_bytes() == corrected
    file.write_bytes(before)


def test_columns_of_the_data_keep_their_names(model: Path, tmp_path: Path) -> None:
    """Also those that are called as ours are."""
    data = toys.write_labelled(tmp_path / "few.csv", rows=40)
    data.write_text(data.read_text().replace("text,label", "line,suggested_label", 1))
    settings = {**SETTINGS, "folds": 2, "epochs": 1, "frozen": True}
    del settings["epochs"], settings["learning_rate"]
    columns = {"text_columns": ["line"], "label_column": "suggested_label"}
    with toys.one_thread():
        found = bertine.check_labels(
            data, model=model, out=tmp_path / "check", **columns, **settings
        )
    with open(tmp_path / "check/checked.csv", encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    assert header[:2] == ["line", "suggested_label"]
    assert len(set(header)) == 5
    assert "'suggested_label'" in found.lines()[-1]


def test_pairs_in_a_table_in_memory(model: Path, tmp_path: Path) -> None:
    path = toys.write_pairs(tmp_path / "pairs.csv", rows=48)
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [name for name in rows[0] if name != "label"]
    settings = {**SETTINGS, "folds": 2, "epochs": 1}
    with toys.one_thread():
        found = bertine.check_labels(
            rows, model=model, out=tmp_path / "check", text_columns=texts, label_column="label",
            **settings,
        )  # fmt: skip
    assert len(found.examples) == 48
    assert all(len(each.texts) == 2 for each in found.suspects)
    # Their places are indices.
    for each, stored in zip(found.suspects, found.to_dict()["suspects"], strict=True):
        assert each.texts == tuple(rows[each.line][name] for name in texts)
        assert stored["index"] == each.line
    if found.suspects:
        assert f"index {found.suspects[0].line}" in str(found)
    with open(found.checked, encoding="utf-8", newline="") as file:
        assert [int(row["index"]) for row in csv.DictReader(file)] == [*range(48)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"data": "none.csv"}, "none.csv"),
        ({"label_column": "stars"}, "stars"),
        ({"folds": 1}, "folds is 1, but must be at least 2"),
        ({"folds": 121}, "folds is 121, but there are only 120 examples"),
        ({"model": "no-such-model"}, "no-such-model"),
    ],
)
def test_mistakes_are_said_in_a_line(
    data: Path, model: Path, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    given = {"data": data, "model": model, "out": tmp_path / "check", **SETTINGS, **change}
    with pytest.raises(BertineError, match=told):
        bertine.check_labels(given.pop("data"), **given)
    # Nothing is left that would be in the way of the right call.
    assert not (tmp_path / "check").exists()


@pytest.mark.slow
def test_the_command_prints_what_was_found(
    check: LabelCheck, data: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--folds", "3", "--epochs", "25", "--learning-rate", "2e-3"]
    options += ["--precision", "fp32", "--resume", "--out", str(check.out)]
    assert main(["check-labels", str(data), "--model", str(model), *options]) == 0
    out = capsys.readouterr().out
    assert f"{len(check.suspects)} of 120 labels look wrong" in out
    assert "correct 'label' in" in out


def test_a_workbook_is_corrected_in_a_copy(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    rows = [("id", "text", "label"), (7, "a", "x"), (), (8, "b", "y"), (9, "c", "x"), (9, "d", "y")]
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    examples = read_examples(tmp_path / "a.xlsx")
    chances = np.array([[0.9, 0.1], [0.95, 0.05], [0.9, 0.1], [0.1, 0.9]])
    noise = find_noise(chances, np.array([0, 1, 0, 1]))
    result = LabelCheck(examples, ["x", "y"], noise, chances, tmp_path, every=examples)
    result.write(tmp_path / "a.xlsx", DataConfig())
    assert f"correct 'label' in {tmp_path / 'checked.xlsx'}" in result.lines()[-1]
    values = list(openpyxl.load_workbook(result.checked).active.values)
    assert values[0] == ("id", "text", "label", "suggested_label", "label_probability", "line")
    assert values[3] == (8, "b", "y", "x", 0.05, 4)
    assert values[4] == (9, "c", "x", None, 0.9, 5)
    # Before hours of training, not after them.
    with pytest.raises(BertineError, match=r"checked.xlsx: is always in the same encoding"):
        bertine.check_labels(tmp_path / "a.xlsx", out=tmp_path / "o", output_encoding="cp1252")


def test_a_file_of_windows_is_corrected_as_it_is(tmp_path: Path) -> None:
    """In its encoding, with its other columns, quotes and rows without a label."""
    rows = ["id;text;label", "1;Größe;gut", '"2";Müll;übel', '3;"schön";gut', "4;?;", "5;öde;übel"]
    path, config = tmp_path / "a.csv", DataConfig(encoding="cp1252")
    path.write_bytes("\r\n".join([*rows, ""]).encode("cp1252"))
    examples = read_examples(path, config)
    chances = np.array([[0.9, 0.1], [0.95, 0.05], [0.9, 0.1], [0.1, 0.9]])
    noise = find_noise(chances, np.array([0, 1, 0, 1]))
    result = LabelCheck(examples, ["gut", "übel"], noise, chances, tmp_path, every=examples)
    result.write(path, config)
    raw = result.checked.read_bytes()
    added = ["suggested_label;label_probability;line", ";0.9;2", "gut;0.05;3", ";0.9;4", ";;5"]
    lines = [";".join(both) for both in zip(rows, [*added, ";0.9;6"], strict=True)]
    assert raw.decode("cp1252").split("\r\n") == [*lines, ""]
    result.write(path, config, "utf-8-sig")
    assert result.checked.read_bytes() == b"\xef\xbb\xbf" + raw.decode("cp1252").encode()
