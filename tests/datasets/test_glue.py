"""GLUE's official files: every layout is read, damage is counted, mistakes are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.datasets.glue import (
    AVERAGED,
    GLUE,
    find_glue_labelled,
    find_glue_test,
    glue_tasks_in,
    read_glue,
    read_glue_file,
    read_glue_test,
)
from bertine.datasets.readers import read_evaluation, read_labelled
from bertine.options.data import DataConfig
from glue_files import write_glue


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


@pytest.mark.parametrize("name", AVERAGED)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_layout_is_read(name: str, end: str, tmp_path: Path) -> None:
    task = GLUE[name]
    write_glue(tmp_path, task.folder, end=end)
    for data in (tmp_path, tmp_path / task.folder):
        train, sets = read_glue(data, task)
        assert len(train) == 24
        assert train.notes == []
        assert {word: len(examples) for word, examples in sets.items()} == (
            {"": 24, "mismatched": 24} if name == "MNLI" else {"": 24}
        )
        first = train.items[0]
        assert len(first.texts) == len(task.text_columns)
        # An uneven quote is a character, and neither \r nor a header is in the text.
        assert first.texts[0].strip() == '"the old cat sleeps in the sofa .'
        labels = {item.label for item in train.items}
        if task.regression:
            assert all(0 <= float(label or "nan") <= 5 for label in labels)
        else:
            assert labels == set(task.labels)
        for path in find_glue_test(data, task).values():
            indices, examples = read_glue_test(path, task)
            assert indices == [str(number) for number in range(24)]
            assert len(examples.items[3].texts) == len(task.text_columns)
            assert examples.items[0].texts[0].startswith('"the old cat')


def test_labels_and_metrics_are_the_official_ones() -> None:
    assert {name: (task.labels, task.metrics) for name, task in GLUE.items()} == {
        "CoLA": (("0", "1"), ("matthews",)),
        "SST-2": (("0", "1"), ("accuracy",)),
        "MRPC": (("0", "1"), ("f1", "accuracy")),
        "STS-B": ((), ("pearson", "spearman")),
        "QQP": (("0", "1"), ("f1", "accuracy")),
        "MNLI": (("contradiction", "entailment", "neutral"), ("accuracy", "mismatched_accuracy")),
        "QNLI": (("entailment", "not_entailment"), ("accuracy",)),
        "RTE": (("entailment", "not_entailment"), ("accuracy",)),
        "WNLI": (("0", "1"), ("accuracy",)),
        "AX": (("contradiction", "entailment", "neutral"), ("matthews",)),
    }
    assert len(AVERAGED) == 9


def test_damaged_rows_are_counted_and_named(tmp_path: Path) -> None:
    path = write_glue(tmp_path, "QQP") / "QQP" / "train.tsv"
    with open(path, "a", encoding="utf-8") as handle:
        handle.write("99\t1\t2\tonly one question ?\n")
        handle.write("100\t1\t2\ta ?\tb ?\tc ?\t1\n")
    examples = read_glue_file(path, GLUE["QQP"])
    assert len(examples) == 24
    assert examples.notes == [
        f"{path}: 2 damaged rows were left out, with more or fewer cells than there are columns "
        "(lines 26, 27)"
    ]


def test_rows_without_a_gold_label_are_counted(tmp_path: Path) -> None:
    path = write_glue(tmp_path, "MNLI") / "MNLI" / "dev_matched.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2] = lines[2].rpartition("\t")[0] + "\t-"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    examples = read_glue_file(path, GLUE["MNLI"])
    assert len(examples) == 23
    assert examples.notes == [f"{path}: 1 row without a gold label left out (line 3)"]


def test_empty_texts_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("sentence\tlabel\n\t1\nfine\t0\n", encoding="utf-8")
    examples = read_glue_file(path, GLUE["SST-2"])
    assert examples.notes == [f"{path}: 1 of 2 texts are empty (line 2)"]


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("RTE", "sentence\tlabel\nfine\t1\n", r"train.tsv: there is no column 'sentence1'"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tyes\n", "unknown label 'yes' in the"),
        (
            "RTE",
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t\n",
            "tsv:2: the label 'label' is",
        ),
        ("CoLA", "sentence\tlabel\nfine\t1\n", "no row has the 4 columns and the label of GLUE's"),
        ("SST-2", "sentence\tlabel\n", "no row has the 2 columns"),
        ("SST-2", "", "the file is empty"),
    ],
)
def test_what_is_no_file_of_the_task_is_said(
    task: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(BertineError, match=message):
        read_glue(tmp_path, GLUE[task])


def test_folders_that_are_not_glue_are_said(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="nowhere: no such folder"):
        read_glue(tmp_path / "nowhere", GLUE["RTE"])
    with pytest.raises(BertineError, match=r"expected RTE/train\.tsv in it, or"):
        read_glue(tmp_path, GLUE["RTE"])
    with pytest.raises(BertineError, match=r"no folder of a GLUE task .* such as CoLA/train.tsv"):
        glue_tasks_in(tmp_path)
    write_glue(tmp_path, "RTE", but=("train.tsv",))
    with pytest.raises(BertineError, match=r"has no train.tsv to train on"):
        read_glue(tmp_path, GLUE["RTE"])
    write_glue(tmp_path, "MNLI", but=("dev_mismatched.tsv",))
    with pytest.raises(BertineError, match=r"has dev_matched.tsv, but no dev_mismatched.tsv"):
        read_glue(tmp_path, GLUE["MNLI"])


def test_ax_is_a_test_of_a_model_for_mnli(data: Path) -> None:
    with pytest.raises(BertineError, match="has nothing to train on; fine-tune MNLI"):
        read_glue(data, GLUE["AX"])
    path = data / "diagnostic" / "diagnostic-full.tsv"
    found = find_glue_labelled(path, GLUE["MNLI"])
    assert found == (GLUE["AX"], {"": path})
    assert len(read_glue_file(path, GLUE["AX"])) == 24
    assert find_glue_labelled(path, GLUE["RTE"]) is None


@pytest.mark.parametrize("folder", ["", "AX", "diagnostic"])
def test_ax_may_lie_there_as_the_site_gives_it_out_alone(
    folder: str, data: Path, tmp_path: Path
) -> None:
    path = tmp_path / folder / "AX.tsv"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(data / "diagnostic" / "diagnostic.tsv", path)
    assert find_glue_test(tmp_path, GLUE["AX"]) == {"AX.tsv": path}
    assert find_glue_test(tmp_path, GLUE["CoLA"], required=False) == {}
    kind = GLUE["MNLI"]
    task = kind.kind.from_examples(read_glue(data, kind)[0], max_length=32, **kind.settings)
    for place in (tmp_path, path):
        with pytest.raises(BertineError, match=r"AX\.tsv: is the test file of AX, which has"):
            read_evaluation(task, place)


def test_a_model_remembers_what_it_is_judged_by(data: Path) -> None:
    for name in AVERAGED:
        kind, (train, _) = GLUE[name].kind, read_glue(data, GLUE[name])
        info = kind.from_examples(train, max_length=32, **GLUE[name].settings).task_info()
        assert info.labels == GLUE[name].labels
        assert info.metrics == GLUE[name].metrics
        assert info.dataset == f"glue/{name}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("index\tsentence\n0\ta\none\tb\n", "the index is 'one', but must be a whole number"),
        ("index\tsentence\n0\ta\n0\tb\n", "the index 0 is there twice"),
        ("index\tsentence\n0\ta\tb\n", "3 cells where the header has 2"),
        ("id\tsentence\n0\ta\n", "there is no column 'index'"),
    ],
)
def test_a_test_file_needs_every_row(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(BertineError, match=message):
        read_glue_test(tmp_path / "test.tsv", GLUE["CoLA"])


def test_the_test_file_of_another_task_is_not_taken(data: Path) -> None:
    """CoLA's and SST-2's have the same columns: nothing else would say so."""
    assert find_glue_test(data / "SST-2", GLUE["SST-2"]) == {
        "SST-2.tsv": data / "SST-2" / "test.tsv"
    }
    with pytest.raises(BertineError, match=r"has no SST-2/test\.tsv"):
        find_glue_test(data / "CoLA", GLUE["SST-2"])
    assert find_glue_test(data / "RTE", GLUE["WNLI"], required=False) == {}


def test_mnli_is_not_judged_on_half_of_its_dev_sets(tmp_path: Path) -> None:
    """Of other tasks a tenth of the training examples is held out where there is no dev file."""
    without = ("dev.tsv", "dev_matched.tsv", "dev_mismatched.tsv")
    for name in ("MNLI", "RTE"):
        write_glue(tmp_path, name, but=without)
    with pytest.raises(BertineError, match=r"judged on dev_matched\.tsv and dev_mismatched\.tsv"):
        read_labelled("glue", tmp_path, DataConfig(glue_task="MNLI"))
    read = read_labelled("glue", tmp_path, DataConfig(glue_task="RTE"))
    assert (len(read.train), len(read.validation)) == (22, 2)
