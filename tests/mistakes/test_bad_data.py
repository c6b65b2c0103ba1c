"""Labelled data that are wrong in all ways: one line that names the place, and nothing left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tagged
import toys
from bertine import finetune as finetuned
from bertine import predict
from mistakes.commands import Fails
from squad_files import toy_squad

#: A file that no task can read, and what is said of it.
UNREADABLE = [
    (b"", "the file is empty"),
    (b"\xef\xbb\xbf", "the file is empty"),
    ("text,label\nx,a\n".encode("utf-16"), "UTF-16"),
    ("text,label\nx,a\n".encode("utf-16-le"), "is not UTF-8 but looks like UTF-16 without a mark"),
    (b"PK\x03\x04\x14\0\x06\0", "is a zip archive, as Excel's workbooks"),
]
TABLES = [
    *(("csv", content, said) for content, said in UNREADABLE),
    ("csv", b"\n\n\n", "the file is empty"),
    ("csv", b"text,label\n", "has a header, but no rows"),
    ("csv", b"text,label\r\n", "has a header, but no rows"),
    ("csv", b"text,label,text\na,b,c\n", ":1: two columns are called 'text'; rename one"),
    ("csv", b"text,label\rthe cat,a\rthe dog,b\r", ":1: the lines end with \\r alone"),
    ("csv", b"text,label\na,x\nb\n", ":3: 1 cell where the header has 2"),
    ("csv", b"text,label\na, \nb,\n", "no row has a label in the column 'label'"),
    ("csv", b'text,label\na,x\n"b,y\nc,z\n', ":3: not valid csv ("),
    ("csv", b"text,kind\na,x\n", "cannot tell which column holds the label"),
    ("csv", b"text,label\na,x\nb,x\n", "holds only the label 'x'; classification needs at least"),
    ("txt", b"some text\nmore text\n", "its first line is not a header"),
    ("jsonl", b'{"text": "a", "label": 1}\n{"text": 5, "label": 2}\n', ":2: 'text' is a number"),
    ("jsonl", b'{"text": "a", "label": null}\n{"text": "b"}\n', "no row has a label in the"),
    ("jsonl", b'{"text": "a", "text": "b", "label": 1}\n', ":1: the key 'text' is there twice in"),
    ("json", b'[\n {"text": "a", "label": "x"}\n\n', ":4: not valid JSON: between the items of a"),
    ("json", b'[["a", "x"]]\n', ":1: a list, but each line, or each item of a list, must be one"),
    ("parquet", b"PAR1 is not all", "is damaged, cut short or of another kind"),
]
QUIZ = b"question,choice0,choice1,label\nd,e,f,0\ng,h,i,0\nj,k,l,0\n"


def finetune(made: Path, tmp_path: Path, task: str, data: Path) -> list[object]:
    given = ["--model", made / "model", "--data", data, "--out", tmp_path / "run", "--epochs", 1]
    return ["finetune", *task.split(), *given]


@pytest.mark.parametrize(("suffix", "content", "said"), TABLES)
def test_tables(
    made: Path, tmp_path: Path, fails: Fails, suffix: str, content: bytes, said: str
) -> None:
    path = tmp_path / f"train.{suffix}"
    path.write_bytes(content)
    commands = [finetune(made, tmp_path, "text", path)]
    if "only the label" not in said:
        commands.append(["evaluate", made / "classifier", "--data", path, "--precision", "fp32"])
    for command in commands:
        message = fails(*command)
        assert str(path) in message
        if command[0] == "finetune" or "cannot tell" not in said:
            assert said in message


@pytest.mark.parametrize(
    ("task", "name", "content", "said"),
    [
        *(("tagging", "train.conll", content, said) for content, said in UNREADABLE),
        ("tagging", "train.conll", b"-DOCSTART- -X- O O\n\n", "has no words"),
        ("tagging", "train.conll", b"the\ncat\n", "column 1 would be the word and its tag"),
        ("tagging", "train.conll", b"the O\ncat O O\n", ":2: 3 columns (separated by spaces)"),
        ("tagging", "train.conll", b"the\tO\ncat\t\n", ":2: the tag is empty"),
        ("tagging", "train.jsonl", b'{"words": ["a", "b"], "tags": ["O"]}\n', ":1: 2 words (words"),
        ("tagging", "train.jsonl", b'{"words": ["a"], "tags": "O"}\n', ":1: 'tags' must be a list"),
        (
            "tagging",
            "train.jsonl",
            b'{"words": ["a"], "tags": [1]}\n',
            ":1: 'tags' holds numbers, a",
        ),
        (
            "regression",
            "train.csv",
            b"text,label\na,1\nb,nan\nc,2\nd,3\n",
            ":3: the score is 'nan', but must be a number",
        ),
        (
            "regression",
            "train.csv",
            b'text,label\na,1\nb,"1,5"\nc,2\nd,3\n',
            ":3: the score is '1,5', but must be a number",
        ),
        (
            "regression",
            "train.csv",
            b"text,label\na,1\nb,1.0\nc,1\n",
            "every row has the same score",
        ),
        ("multi-label", "train.csv", b"text,label\na,x\nb,x\n", "holds 1 different labels"),
        (
            "multi-label --label-columns x y",
            "train.csv",
            b"text,x,y\na,1,0\nb,yes,0\n",
            ":3: 'x' is 'yes', but a column of a label must hold 0 or 1",
        ),
        (
            "multi-label --label-columns text y",
            "train.csv",
            b"text,x,y\na,1,0\n",
            "the column 'text' is taken for the label and for a text",
        ),
        ("text --label-column text", "train.csv", b"text,x\na,1\n", "for the label and for a text"),
        (
            "text --text-columns text text",
            "train.csv",
            b"text,label\na,1\n",
            "'text' is named twice",
        ),
        (
            "choice",
            "train.csv",
            QUIZ + b"a,b,c,2\n",
            ":5: the label is '2', but must be the number",
        ),
        ("choice", "train.csv", QUIZ + b"a,,c,1\n", ":5: the choice 'choice0' is empty, but one"),
        ("squad", "train-v1.1.json", b'{"data": [', ":1:11: not valid JSON ("),
        (
            "squad",
            "train-v1.1.json",
            b'{"data": [{"paragraphs": 1}]}',
            "data[0]: 'paragraphs' is a",
        ),
        ("squad", "train-v1.1.txt", b"{}", "is not called .json"),
        ("spans", "train.csv", b"question,context,answer\n", "has a header, but no rows"),
        (
            "spans",
            "train.csv",
            b"question,context,answer\na,b,c\n",
            "no question has an answer that",
        ),
        (
            "spans",
            "train.csv",
            b"question,context,answer,answer_start\na,b,b,later\n",
            ":2: answer_start is 'later', but must be a whole number",
        ),
    ],
)
def test_data_of_other_tasks(
    made: Path, tmp_path: Path, fails: Fails, task: str, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    command = finetune(made, tmp_path, task.split()[0], path)
    message = fails(*command, *task.split()[1:])
    assert said in message
    assert str(path) in message


@pytest.mark.parametrize(
    "task", ["text", "regression", "multi-label", "choice", "tagging", "spans"]
)
def test_a_folder_in_the_place_of_a_file(
    made: Path, tmp_path: Path, fails: Fails, task: str
) -> None:
    folder = tmp_path / "train.csv"
    folder.mkdir()
    assert str(folder) in fails(*finetune(made, tmp_path, task, folder))
    (folder / "train.csv").mkdir()
    assert str(folder) in fails(*finetune(made, tmp_path, task, folder))
    message = fails("predict", made / "classifier", "--input", folder, "--output", tmp_path / "out")
    assert f"{folder}: Is a directory" in message
    assert str(folder) in fails("evaluate", made / "classifier", "--data", folder)


def test_what_is_said_in_vain(made: Path, tmp_path: Path, fails: Fails) -> None:
    """Options that cannot apply to what the data are."""
    plain = tmp_path / "in.txt"
    plain.write_text("the old cat\n")
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"text": "the old cat", "label": "animal"}\n')
    classifier = made / "classifier"
    out = ["--output", tmp_path / "out", "--precision", "fp32"]
    said = fails("predict", classifier, "--input", plain, *out, "--text-column", "body")
    assert "in.txt: is plain text (no header with body)" in said
    vectors = ["embed", made / "model", "--input", plain, "--output", tmp_path / "out.npy"]
    said = fails(*vectors, "--text-column", "body")
    assert (
        "in.txt: is plain text (no header with body), a text on each line; leave out --text" in said
    )
    said = fails("predict", classifier, "--input", lines, *out, "--no-quotes")
    assert "in.jsonl: is JSON lines, which has no quotes around cells" in said
    assert "no quotes" in fails("evaluate", classifier, "--data", lines, "--quotes")
    store = ["evaluate", made / "model", "--data", made / "store"]
    for given in (["--label-column", "x"], ["--strict"]):
        said = fails(*store, *given)
        assert f"{given[0]} is for labelled examples" in said
        assert "store is a token store" in said


def test_labels_that_are_floats_elsewhere(made: Path, tmp_path: Path, fails: Fails) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.csv").write_text("text,label\nthe cat,0\nthe dog,1\na cat,0\na dog,1\n")
    (data / "dev.csv").write_text("text,label\nthe cat,0.0\n")
    message = fails(*finetune(made, tmp_path, "text", data))
    assert "dev.csv:2: unknown label '0.0' (did you mean '0'?); the known ones are 0, 1" in message


def test_labels_that_are_one_number_are_warned_of(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"the {word},{label}" for word in ("cat", "dog", "cow") for label in ("0", "1", "1.0")]
    path = tmp_path / "train.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    quick: dict[str, Any] = {"epochs": 1, "max_length": 16, "precision": "fp32"}
    finetuned("text", model=made / "model", data=path, out=tmp_path / "run", **quick)
    said = " ".join(capsys.readouterr().err.split())
    assert "the labels '1' (line 3) and '1.0' (line 4) are the same number, but are told" in said


def test_damage_that_is_mended_is_told(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A byte order mark, Windows' line ends, NUL bytes, empty texts, bytes that are no UTF-8."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"\xef\xbb\xbftext,n\r\nthe\0 cat,1\r\n,2\r\n\xff soup,3\r\n")
    quiet: dict[str, Any] = {"precision": "fp32", "show_progress": False}
    report = predict(made / "classifier", path, tmp_path / "out.csv", **quiet)
    told = "\n".join(report.lines())
    assert "1 of 3 texts are empty" in told
    assert "1 NUL byte was removed" in told
    assert "1 byte that is not valid UTF-8" in told
    rows = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "text,n,label,probability"
    assert rows[1].startswith("the cat,1,")


def test_offsets_beyond_the_context_and_long_questions_are_told(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = toy_squad(12)
    first, *_ = content["data"]
    asked = first["paragraphs"][0]["qas"]
    asked[0]["answers"][0]["answer_start"] = 10**12
    asked[1]["answers"][0]["answer_start"] = -5
    asked[2]["answers"] = [{"text": "nowhere", "answer_start": 10**12}]
    asked[2]["question"] = "the cat " * 50
    path = tmp_path / "train-v1.1.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    limits = {"max_length": 32, "max_question_length": 10, "doc_stride": 8, "max_answer_length": 4}
    quick: dict[str, Any] = {"epochs": 1, "precision": "fp32", **limits}
    out = tmp_path / "run"
    finetuned("squad", model=made / "model", data=path, out=out, **quick)
    said = " ".join(capsys.readouterr().err.split())
    assert "2 of 36 gold answers are not where answer_start says" in said
    assert "1 of 36 gold answers are not in their context" in said
    listed = json.loads((out / "not_aligned.json").read_text(encoding="utf-8"))
    assert {each["id"] for each in listed} == {"0-0-0", "0-0-1", "0-0-2"}
    report = predict(out, path, tmp_path / "answers.json", precision="fp32", show_progress=False)
    assert "1 of 36 questions were cut at 10 pieces" in "\n".join(report.lines())


def test_a_search_reads_before_it_runs(made: Path, tmp_path: Path, fails: Fails) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,label\na,x\nb\n")
    given = ["--model", made / "model", "--data", path, "--out", tmp_path / "search"]
    message = fails("search", "text", *given, "--epochs", 1, "--restarts", 1)
    assert f"{path}:3: 1 cell where the header has 2" in message


@pytest.mark.slow
def test_a_tagger_on_what_is_no_words(made: Path, tmp_path: Path, fails: Fails) -> None:
    data = tagged.write_columns(tmp_path / "train.conll", 24)
    quick: dict[str, Any] = {"epochs": 1, "max_length": 16, "precision": "fp32"}
    tagger = tmp_path / "tagger"
    finetuned("tagging", model=made / "model", data=data, out=tagger, **quick)
    for name, content, said in (
        ("in.conll", b"", "the file is empty"),
        ("in.jsonl", b'{"words": "a b"}\n{"words": [1]}\n', ":2: 'words' must be a list of texts"),
        ("in.jsonl", b'{"words": ["a"]}\n[]\n', ":2: a list, but each line, or each item"),
        ("in.jsonl", b'{"words": [], "words": []}\n', ":1: the key 'words' is there twice in"),
        ("in.parquet", b"PAR1", "is damaged, cut short or of another kind"),
        ("in.conll", "a O\n".encode("utf-16"), "UTF-16"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        given = ["--input", path, "--output", tmp_path / "out", "--precision", "fp32"]
        message = fails("predict", tagger, *given)
        assert f"{path}" in message
        assert said in message
    half = tmp_path / "half.jsonl"
    half.write_text('{"words": ["the", "\\ud800"]}\n{"words": ["\\u00e9"]}\n')
    report = predict(tagger, half, tmp_path / "out", precision="fp32", show_progress=False)
    assert f"{half}: 1 byte that is not valid UTF-8" in "\n".join(report.notes)
    dev = tmp_path / "dev.jsonl"
    dev.write_text(json.dumps({"words": toys.sentence("cat", "old").split(), "tags": ["O"] * 7}))
    message = fails("evaluate", tagger, "--data", dev)
    assert f"{dev}:1: 8 words (words), but 7 tags (tags)" in message
