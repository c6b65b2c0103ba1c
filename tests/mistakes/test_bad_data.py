"""Labelled data that are wrong in all ways: one line that names the place, and nothing left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertine import predict
from mistakes.commands import Fails

#: Of each kind of file one that is wrong; tests/data has the others.
TABLES = [
    ("csv", b"", "the file is empty"),
    ("csv", b"text,label\r\n", "has a header, but no rows"),
    ("csv", b"text,label\na,x\nb\n", ":3: 1 cell where the header has 2"),
    ("csv", b"text,kind\na,x\n", "cannot tell which column holds the label"),
    ("csv", b"text,label\na,x\nb,x\n", "holds only the label 'x'; classification needs at least"),
    ("txt", b"some text\nmore text\n", "its first line is not a header"),
    ("jsonl", b'{"text": "a", "label": 1}\n{"text": 5, "label": 2}\n', ":2: 'text' is a number"),
    ("json", b'[\n {"text": "a", "label": "x"}\n\n', ":4: not valid JSON: between the items of a"),
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
        ("tagging", "train.conll", b"the\tO\ncat\t\n", ":2: the tag is empty"),
        (
            "regression",
            "train.csv",
            b"text,label\na,1\nb,nan\nc,2\n",
            ":3: the score is 'nan', but",
        ),
        ("multi-label", "train.csv", b"text,label\na,x\nb,x\n", "holds 1 different labels"),
        ("text --label-column text", "train.csv", b"text,x\na,1\n", "for the label and for a text"),
        (
            "choice",
            "train.csv",
            QUIZ + b"a,b,c,2\n",
            ":5: the label is '2', but must be the number",
        ),
        ("squad", "train-v1.1.json", b'{"data": [', ":1:11: not valid JSON ("),
        ("spans", "train.csv", b"question,context,answer\na,b,c\n", "no question has an answer"),
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
    rows = (tmp_path / "out.csv").read_bytes().split(b"\r\n")
    assert rows[0] == b"\xef\xbb\xbftext,n,label,probability"
    assert rows[1].startswith(b"the\0 cat,1,")
    assert rows[3].startswith(b"\xff soup,3,")
