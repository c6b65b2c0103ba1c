"""Parquet tables are read as the others are."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertine.core.errors import BertineError
from bertine.data.examples import find_splits, read_examples
from bertine.data.parquet import write_parquet
from bertine.data.tables import Table
from bertine.options.data import DataConfig


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_rows_are_those_of_the_same_csv(tmp_path: Path) -> None:
    texts, labels = ["ä, b", "two\nlines", "c\0d"], [1, 0, 1]
    path = write(tmp_path / "train.parquet", {"text": texts, "label": labels})
    examples = read_examples(path)
    assert [item.texts for item in examples.items] == [("ä, b",), ("two\nlines",), ("cd",)]
    assert [item.label for item in examples.items] == ["1", "0", "1"]
    assert any("1 NUL byte was removed" in note for note in examples.notes)
    assert find_splits(tmp_path).train == path
    with pytest.raises(BertineError, match=r"train.parquet:3: a NUL byte in a text; remove"):
        read_examples(path, DataConfig(strict=True))


def test_a_gap_of_pandas_is_no_label_and_no_number_of_json(tmp_path: Path) -> None:
    columns = {"text": ["a", "b"], "label": [1.0, float("nan")], "x": [float("nan"), float("inf")]}
    path = write(tmp_path / "train.parquet", columns)
    examples = read_examples(path)
    assert [item.label for item in examples.items] == ["1.0"]
    assert any("1 row has no label in 'label' and was left out" in note for note in examples.notes)
    with pytest.raises(BertineError, match=r"parquet:2: the label 'label' is null; every row"):
        read_examples(path, DataConfig(strict=True))
    with Table(path) as table:
        assert [row.values["x"] for row in table] == [None, "inf"]


def test_bytes_are_texts_whose_writer_did_not_say_so(tmp_path: Path) -> None:
    columns = {"text": ["hé".encode(), b"x\xff"], "label": [b"a", b"b"]}
    examples = read_examples(write(tmp_path / "train.parquet", columns))
    assert [(item.texts, item.label) for item in examples.items] == [
        (("hé",), "a"),
        (("x",), "b"),
    ]
    assert any("1 byte that is not valid UTF-8" in note for note in examples.notes)
    assert any("(U+FFFD) were left out of 1 row (line 2)" in note for note in examples.notes)


def test_texts_that_are_no_utf8_are_mended_and_counted(tmp_path: Path) -> None:
    """Arrow does not look: some writers put other bytes into columns of texts."""
    offsets, content = pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"\xfflab")
    texts = pa.StringArray.from_buffers(2, offsets, content)
    words = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts)
    path = write(tmp_path / "train.parquet", {"text": texts, "label": ["a", "b"], "words": words})
    with Table(path) as table:
        rows = [row.values for row in table]
        assert [row["text"] for row in rows] == ["\ufffdl", "ab"]
        assert [row["words"] for row in rows] == [["\ufffdl"], ["ab"]]
        assert "2 bytes that are not valid UTF-8" in table.stats.notes("t")[0]
    with (
        Table(path, strict=True) as table,
        pytest.raises(
            BertineError,
            match=r"train\.parquet:1: invalid UTF-8 \(byte 0xff, 0 bytes",
        ),
    ):
        list(table)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    arrays = [pa.array(["a"]), pa.array(["b"]), pa.array(["c"])]
    table = pa.Table.from_arrays(arrays, names=["text", "text", "label"])
    pq.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(BertineError, match=r"parquet: two columns are called 'text'; rename one"):
        read_examples(tmp_path / "train.parquet")


def test_values_of_other_kinds_are_told(tmp_path: Path) -> None:
    day = datetime.date(2020, 1, 2)
    path = write(
        tmp_path / "a.pq", {"text": ["x", None], "day": [day, day], "many": [["a"], ["b", "c"]]}
    )
    with Table(path) as table:
        rows = list(table)
        assert rows[1].values == {"text": None, "day": "2020-01-02", "many": ["b", "c"]}
        assert table.text(rows[1], "text") == ""
        with pytest.raises(BertineError, match=r"a.pq:2: 'many' is a list, but must be a text"):
            table.text(rows[1], "many")
    with pytest.raises(BertineError, match=r"there is no column 'txt' \(did you mean 'text'\?\)"):
        Table(path, wanted=["txt"])


def test_what_is_no_parquet_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"text,label\n")
    with pytest.raises(BertineError, match=r"a.parquet: is damaged, cut short") as caught:
        Table(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(BertineError, match=r"b.parquet"):
        Table(tmp_path / "b.parquet")
    write(path, {"text": ["x"]})
    with pytest.raises(BertineError, match="is Parquet by its name; leave out format='csv'"):
        Table(path, format="csv")


def test_times_that_python_cannot_hold_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    times = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns"))
    far = pa.array([253_402_300_800 + 86_400, 0], pa.timestamp("s"))  # the year 10000
    pq.write_table(pa.table({"text": ["a", "b"], "at": times, "far": far}), path)
    with Table(path, wanted=["text"]) as table:
        first, second = (row.values for row in table)
    assert first["at"] == "2023-11-14 22:13:20.123456789"
    assert first["far"].startswith("10000-01-02")
    assert (second["text"], second["at"]) == ("b", None)
    assert second["far"].startswith("1970-01-01")


def test_what_parquet_cannot_hold_is_one_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text('{"text": "a", "\\ud800": 1}\n', encoding="utf-8")
    with pytest.raises(BertineError, match=r"name the output \.jsonl"):
        write_parquet(rows, tmp_path / "out.parquet", ["text"])


@pytest.mark.parametrize(
    "values",
    [
        [1, "one"],
        [1, None, "one"],
        [2**53 + 1, None, None, 0.5],  # which a float column would round
        [2**70],
        [[1], None, ["x"]],
        [{"a": 1}, None, {"a": "x"}],
        [{}, None],
        [[["key", 1]]],
        [{"\ud800": 1}],
    ],
)
def test_values_without_a_common_type_are_written_as_json(
    values: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertine.data.parquet._WRITTEN_ROWS", 2)
    rows, out = tmp_path / "rows", tmp_path / "out.parquet"
    rows.write_text("".join(json.dumps({"n": at, "x": v}) + "\n" for at, v in enumerate(values)))
    assert write_parquet(rows, out, ["n", "x"]) == ["x"]
    found = pq.read_table(out).to_pylist()
    assert [row["n"] for row in found] == list(range(len(values)))
    read = [None if row["x"] is None else json.loads(row["x"]) for row in found]
    assert read == values


def test_long_rows_are_written_in_small_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertine.data.parquet._WRITTEN_CHARACTERS", 1000)
    rows, out = tmp_path / "rows", tmp_path / "out.parquet"
    given = [{"text": "x" * (400 + at), "n": at} for at in range(7)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in given), encoding="utf-8")
    write_parquet(rows, out, ["text", "n"])
    assert pq.read_table(out).to_pylist() == given
    assert pq.ParquetFile(out).metadata.num_row_groups == 3
