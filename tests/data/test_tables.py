"""Tables: what is written is read back, and every kind of broken file has its own clear line."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.data.examples import read_examples
from bertine.data.lines import TableLayout
from bertine.data.streams import MissingColumn, require_columns
from bertine.data.tables import Table
from bertine.data.writer import open_writer
from bertine.options.data import DataConfig

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
any_text = st.text(characters, max_size=30)
tsv_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\r"), max_size=30
)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    with Table(path, **options) as table:
        return [row.values for row in table]


def error_of(path: Path | str, **options: Any) -> str:
    with pytest.raises(BertineError) as caught, Table(path, **options) as table:
        list(table)
    message = str(caught.value)
    assert "\n" not in message
    return message


def round_trip(
    path: Path, layout: TableLayout, columns: list[str], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    with open_writer(path, layout, columns) as writer:
        for row in rows:
            writer.write(row)
    return rows_of(path, quotes=layout.quotes or None)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(any_text, any_text), max_size=6),
    delimiter=st.sampled_from([",", ";", "\t"]),
)
def test_csv_round_trip(
    rows: list[tuple[str, str]], delimiter: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.csv"
    values = [{"text": a, "the label": b} for a, b in rows]
    assert (
        round_trip(path, TableLayout("csv", delimiter, True), ["text", "the label"], values)
        == values
    )


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(any_text, max_size=6))
def test_csv_of_one_column_round_trip(
    rows: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "one.csv"
    values = [{"text": text} for text in rows]
    assert round_trip(path, TableLayout("csv", ",", True), ["text"], values) == values


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(tsv_text, tsv_text), max_size=6))
def test_tsv_round_trip(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.tsv"
    values = [{"text": a, "label": b} for a, b in rows]
    assert round_trip(path, TableLayout("tsv", "\t"), ["text", "label"], values) == values


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.dictionaries(any_text, json_values, max_size=4), min_size=1, max_size=5))
def test_jsonl_round_trip(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.jsonl"
    assert round_trip(path, TableLayout("jsonl"), list(rows[0]), rows) == rows


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200), suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".txt"]))
def test_any_bytes_are_rows_or_one_clear_error(
    content: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.getbasetemp() / f"any{suffix}", content)
    outcome: Any
    try:
        outcome = rows_of(path)
    except BertineError as error:
        outcome = str(error)
    assert isinstance(outcome, list) or (outcome.startswith(str(path)) and "\n" not in outcome)


@pytest.mark.parametrize(
    "content",
    [
        "Hello, world.\nSecond; line\n",
        "text, and more of it\nsecond\n",
        "text\nlabel\n",
        "a;b\nc;d\n",
        "One, two, text\n",
    ],
)
def test_plain_text_is_not_taken_for_a_table(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "input.txt", content)
    with Table(path, wanted=["text"]) as table:
        assert table.layout.kind == "text"
        assert [row.values["text"] for row in table] == content.splitlines()


def test_wanted_columns_make_an_unusual_header_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "input.txt", "id\tbody\n1\thello\n")
    assert rows_of(path)[0] == {"text": "id\tbody"}
    assert rows_of(path, wanted=["body"]) == [{"id": "1", "body": "hello"}]


def test_plain_text_keeps_blank_lines_so_that_answers_line_up(tmp_path: Path) -> None:
    path = write(tmp_path / "input.txt", "one\r\n\n three\x85\u2028 \nfour")
    assert [r["text"] for r in rows_of(path)] == ["one", "", " three\x85\u2028 ", "four"]


def test_json_lines_are_told_by_their_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "data.txt", '{"text": "a", "label": 1}\n\n{"text": "b"}\n')
    with Table(path) as table:
        assert table.columns == ["text", "label"]
        assert [row.line for row in table] == [1, 3]
        assert table.stats.blank_lines == 1


def test_stdin_is_read_once_as_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"text,label\na,b\n")))
    assert rows_of("-") == [{"text": "a", "label": "b"}]


@pytest.mark.parametrize(("delimiter", "quoted"), [(";", False), ("\t", False), (",", True)])
def test_csv_from_spreadsheets(tmp_path: Path, delimiter: str, quoted: bool) -> None:
    names = ['"text"', '"label"'] if quoted else ["text", "label"]
    content = f"{delimiter.join(names)}\r\nhello{delimiter}joy\r\n"
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbf" + content.encode())
    assert rows_of(path) == [{"text": "hello", "label": "joy"}]


def test_quotes_in_csv_and_not_in_tsv(tmp_path: Path) -> None:
    csv = write(tmp_path / "a.csv", 'text,label\n"one, ""two""\nthree",x\nfour,y\n')
    with Table(csv) as table:
        rows = list(table)
    assert rows[0].values["text"] == 'one, "two"\nthree'
    assert [row.line for row in rows] == [2, 4]
    tsv = write(tmp_path / "a.tsv", 'text\tlabel\n"one\tx\n')
    assert rows_of(tsv) == [{"text": '"one', "label": "x"}]
    quoted = write(tmp_path / "b.tsv", 'text\tlabel\n"one\ttwo"\tx\n')
    assert rows_of(quoted, quotes=True) == [{"text": "one\ttwo", "label": "x"}]


def test_a_missing_column_is_named_with_the_nearest_and_all(tmp_path: Path) -> None:
    path = write(tmp_path / "reviews.csv", "txt,label\na,b\n")
    message = error_of(path, wanted=["text"])
    assert "reviews.csv" in message
    assert "no column 'text' (did you mean 'txt'?); it has 'txt', 'label'" in message


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"text,label\na,b\nc\n", "a.csv:3: 1 cell where the header has 2"),
        ("a.csv", b"text,label\na,b,c\n", "a.csv:2: 3 cells where the header has 2"),
        ("a.tsv", b"text\tlabel\na\n", "a.tsv:2: 1 cell where the header has 2"),
        ("a.csv", b'text,label\n"a" b,c\n', "a.csv:2: not valid csv"),
        ("a.csv", b'text,label\nx,y\n"never closed,c\n', "a.csv:3: not valid csv"),
        ("a.csv", b"text,text\na,b\n", "two columns are called 'text'"),
        ("a.csv", b"", "a.csv: the file is empty"),
        ("a.csv", b"\n\n", "a.csv: the file is empty"),
        ("a.txt", b"", "a.txt: the file is empty"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "a.jsonl:2: not valid JSON"),
        ("a.jsonl", b'{"text": "a"}\n[1, 2]\n', "a.jsonl:2: a list, but each line, or each item"),
        ("a.jsonl", b"[1, 2]\n", "a.jsonl:1: a number, but each line, or each item of a list"),
        ("a.json", b'[{"a": 1}\n {"a": 2}]\n', "a.json:2: not valid JSON: between the items"),
        ("a.json", b'[{"a": 1},\n {"a": 2},\n', "a.json:3: not valid JSON (Expecting value"),
        ("a.json", b'[{"a": 1},\n {"a" 2}]', "a.json:2: not valid JSON (Expecting ':' delimiter"),
        ("a.json", b'[{"a": 1}] {}', "a.json:1: '{}' stands behind the list of JSON"),
        ("a.json", b"[]", "a.json: the file is empty"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl:1: not valid JSON"),
        (
            "a.jsonl",
            b'{"text": "\\u00e9", "x": ' + b"[" * 900 + b"]" * 900 + b"}\n",
            "a.jsonl:1: lists and objects in each other too deeply",
        ),
        ("a.csv", b"sep=;\n", "a.csv: the file is empty"),
        ("a.csv", b"sep=;\na;b\nc\n", "a.csv:3: 1 cell where the header has 2 (separator ';'"),
    ],
)
def test_broken_tables(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    assert expected in error_of(write(tmp_path / name, content))


def test_a_missing_file_and_an_unknown_format(tmp_path: Path) -> None:
    assert "No such file" in error_of(tmp_path / "absent.csv")
    assert "Is a directory" in error_of(tmp_path)
    path = write(tmp_path / "a.csv", "text\na\n")
    assert "unknown format 'xls'; known: csv, tsv, jsonl, text" in error_of(path, format="xls")
    # The commands take it, for the task tagging.
    assert "columns is that of words, for taggers alone" in error_of(path, format="columns")


def test_a_line_of_50_megabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(b"short\n" + b"x" * 50_000_000 + b"\n")
    assert "long.txt:2: the line is longer than 16 MiB" in error_of(path)


def test_invalid_utf8_and_nul_bytes_are_counted_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"text,label\ncaf\xe9 \xff,a\nx\0y,b\n")
    with Table(path) as table:
        texts = [row.values["text"] for row in table]
    assert texts == ["caf\ufffd \ufffd", "xy"]
    assert (table.stats.invalid_utf8, table.stats.nul) == (2, 1)
    assert len(table.stats.notes("a.csv")) == 2
    assert "a.csv:2: invalid UTF-8 (byte 0xe9, 3 bytes into" in error_of(path, strict=True)
    nul = write(tmp_path / "b.txt", b"one\ntwo\0\n")
    assert "b.txt:2: a NUL byte" in error_of(nul, strict=True)


CHINESE = "物流太慢了，等了一个星期才收到，客服也不回复。"


def test_a_damaged_header_is_said_to_be_that(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Gr\ufffd\ufffde,text\n1,a\n")
    with (
        Table(path) as table,
        pytest.raises(MissingColumn, match="characters of the header are damaged"),
    ):
        require_columns(str(path), table.columns, ["Größe"])


def test_half_a_character_in_json_is_mended_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a\\ud800b"}\n')
    with Table(path) as table:
        assert [row.values["text"] for row in table] == ["a\ufffdb"]
    assert table.stats.invalid_utf8 == 1
    assert "surrogate" in error_of(path, strict=True)


def test_half_a_character_inside_a_list_is_mended_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": [{"text": "x\\ud800"}, "\\udfffy"]}\n')
    with Table(path) as table:
        assert [row.values for row in table] == [{"a": [{"text": "x\ufffd"}, "\ufffdy"]}]
        assert table.stats.invalid_utf8 == 2
    with pytest.raises(BertineError, match="a lone surrogate"):
        rows_of(path, strict=True)


def test_nan_is_no_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": NaN}\n')
    with pytest.raises(BertineError, match=r"a.jsonl: no row has a label in the column 'label'"):
        read_examples(path)
    with pytest.raises(BertineError, match=r"a.jsonl:1: the label 'label' is NaN; every row"):
        read_examples(path, DataConfig(strict=True))


def test_values_of_the_wrong_kind_are_named(tmp_path: Path) -> None:
    content = [{"text": 3, "label": None}, {"label": [1, 2]}, {"text": "a", "label": "  "}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, content)))
    with Table(path) as table:
        rows = list(table)
        for row, method, column, expected in [
            (0, table.text, "text", "a.jsonl:1: 'text' is a number, but must be a text"),
            (0, table.label, "label", "a.jsonl:1: the label 'label' is null"),
            (1, table.text, "text", "a.jsonl:2: there is no column 'text'"),
            (1, table.label, "label", "a.jsonl:2: the label 'label' is a list, but must be one"),
            (2, table.label, "label", "a.jsonl:3: the label 'label' is empty"),
        ]:
            with pytest.raises(BertineError) as caught:
                method(rows[row], column)
            assert expected in str(caught.value)


def test_what_tsv_cannot_hold_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"
    rows = [{"text": "fine"}, {"text": "a\tb"}]
    with pytest.raises(BertineError, match="cannot be written without quotes"):
        round_trip(path, TableLayout("tsv", "\t"), ["text"], rows)
    assert list(tmp_path.iterdir()) == []


def test_plain_text_is_written_so_that_it_can_be_cut_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_writer("-", TableLayout("text"), ["text", "label", "probability"]) as writer:
        writer.write({"text": "a\tb", "label": "joy", "probability": 0.5})
    assert capsys.readouterr().out == "joy\t0.5\ta\tb\n"


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_compressed_tables_are_read_and_cut_off_ones_refused(tmp_path: Path, suffix: str) -> None:
    plain = "text,label\n" + "".join(f"row {i},{i % 2}\n" for i in range(2000))
    pack = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }[suffix]
    packed = pack(plain.encode())
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(packed)
    with Table(path) as table:
        assert table.layout.kind == "csv"
        assert [row.values["text"] for row in table] == [f"row {i}" for i in range(2000)]
    path.write_bytes(packed[:-20])
    with pytest.raises(BertineError, match=r"cut off|damaged"), Table(path) as table:
        list(table)


@pytest.mark.parametrize("name", ["a.parquet.gz", "a.xlsx.gz", "a.csv.zip"])
def test_what_is_no_text_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 text,label\n")
    with pytest.raises(BertineError, match="tables are read as text"):
        Table(tmp_path / name)


def test_compressed_output_is_refused(tmp_path: Path) -> None:
    layout = TableLayout("csv", ",", True)
    with (
        pytest.raises(BertineError, match="not compressed"),
        open_writer(tmp_path / "a.csv.gz", layout, ["text"]),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_refused_before_anything_is_answered(tmp_path: Path) -> None:
    with (
        pytest.raises(BertineError, match="is a folder; name a file in it"),
        open_writer(tmp_path, TableLayout("csv", ",", True), ["a"]),
    ):
        raise AssertionError("it was opened")


def test_a_table_without_a_header_gets_its_columns_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("x\t1\ny\t2\n", encoding="utf-8")
    with Table(path, header=["text", "label"], wanted=["label"]) as table:
        assert table.columns == ["text", "label"]
        assert [row.values for row in table] == [
            {"text": "x", "label": "1"},
            {"text": "y", "label": "2"},
        ]
    with pytest.raises(BertineError, match="no column 'score'"):
        Table(path, header=["text", "label"], wanted=["score"])


def test_damaged_rows_are_left_out_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\nx\t1\nbroken\ny\t2\t3\nz\t4\n", encoding="utf-8")
    with Table(path, skip_damaged=True) as table:
        assert [row.values["text"] for row in table] == ["x", "z"]
        assert table.stats.damaged == [3, 4]
        assert "2 damaged rows were left out" in table.stats.notes("a.tsv")[0]
    with Table(path) as table, pytest.raises(BertineError, match=":3: 1 cell where the header"):
        list(table)


def test_optional_keys_of_json_lines_may_be_missing_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": "x"}\n' * 12 + '{"a": "y", "b": "z"}\n')
    with Table(path, wanted=["a", "b"], optional=["b"]) as table:
        assert [table.text(row, "b") for row in table] == [""] * 12 + ["z"]
        (note,) = table.stats.notes("t")
    assert note.startswith("t: 12 of 13 rows have no key 'b' and are read without it (lines 1, 2, ")
    assert note.endswith("9, 10, …)")
    with pytest.raises(BertineError, match="there is no column 'b'"):
        Table(path, wanted=["a", "b"])
    (tmp_path / "t.csv").write_text("a\nx\n")
    with pytest.raises(BertineError, match="there is no column 'b'"):
        Table(tmp_path / "t.csv", wanted=["a", "b"], optional=["b"])


@pytest.mark.parametrize(("name", "kind"), [("t.jsonl", "JSON lines"), ("t.txt", "plain text")])
def test_quotes_are_not_said_of_what_has_none(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"text": "x"}\n' if "json" in name else "some text\n")
    with pytest.raises(BertineError, match=rf"{name}: is {kind}, which has no quotes around cells"):
        Table(tmp_path / name, quotes=False)


def test_a_first_line_that_is_no_header_is_not_told_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"{number} {'long ' * 99}" for number in range(99)) + "\n")
    message = error_of(path, wanted=["text"])
    assert "there is no column 'text'; it has '0 long long" in message
    assert message.endswith("…', …")
    assert len(message) < 2500


def test_a_key_that_is_there_twice_is_told_as_that_and_not_as_broken_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"text": "a"}\n{"text": "b", "more": {"%s": 1, "k": 2, "%s": 3}}\n' % (("x" * 999,) * 2)
    )
    with Table(path) as table, pytest.raises(BertineError) as raised:
        list(table)
    assert f"rows.jsonl:2: the key '{'x' * 60}…' is there twice in an object; rename" in str(
        raised.value
    )
    assert "not valid JSON" not in str(raised.value)


def test_a_column_that_is_missing_in_another_process_is_told_here() -> None:
    with pytest.raises(MissingColumn) as caught:
        require_columns("a.csv", ["review"], ["text"])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.column) == (str(caught.value), "text")
