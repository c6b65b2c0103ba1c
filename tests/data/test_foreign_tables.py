"""Tables as other programs write them: Excel, pandas, APIs; and what is no table at all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bertine.core.errors import BertineError
from bertine.data.tables import Table
from bertine.data.writer import open_writer
from bertine.inference.rows import count_texts
from bertine.tokenization.documents import Corpus


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def error_of(path: Path) -> str:
    with pytest.raises(BertineError) as caught, Table(path) as table:
        list(table)
    return str(caught.value)


def rows_of(path: Path) -> list[dict[str, Any]]:
    with Table(path) as table:
        return [row.values for row in table]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "sep=;\ntext;label\none;x\n"),
        ("a.csv", '"sep=;"\r\ntext;label\r\none;x\r\n'),
        ("a.tsv", "sep=\t\ntext\tlabel\none\tx\n"),
        ("a.txt", "sep=\t\ntext\tlabel\none\tx\n"),
        ("a.csv", "SEP=\t\ntext\tlabel\none\tx\n"),
        ("a.csv", "sep=|\ntext|label\none|x\n"),
        ("a.dat", "sep=,\ntext,label\none,x\n"),
        ("a.csv", "\ufeffsep=;\ntext;label\none;x\n"),
    ],
)
def test_a_line_may_name_the_separator(tmp_path: Path, name: str, content: str) -> None:
    with Table(write(tmp_path / name, content)) as table:
        assert [(row.line, row.values) for row in table] == [(3, {"text": "one", "label": "x"})]


def test_columns_without_a_name_are_kept_and_written_again(tmp_path: Path) -> None:
    """As in the best-known data set of spam."""
    path = write(tmp_path / "spam.csv", "v1,v2,,,\nham,one,,,\nspam,two,more,,x\n")
    with Table(path, wanted=["v2"]) as table:
        rows = [row.values for row in table]
        assert [row["v2"] for row in rows] == ["one", "two"]
        assert list(rows[1].values()) == ["spam", "two", "more", "", "x"]
    with open_writer(tmp_path / "out.csv", table.layout, table.columns) as writer:
        for row in rows:
            writer.write(row)
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes()
    assert "two columns are called 'v1'" in error_of(write(path, "v1,v1,,\na,b,,\n"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '[{"text": "one"}, {"text": "two"}]'),
        ("a.json", '[\n  {\n    "text": "one"\n  },\n  {\n    "text": "two"\n  }\n]\n'),
        ("a.json", '\ufeff[{"text": "one"},\n{"text": "two"}]\n\n'),
        ("a.jsonl", '[{"text": "one"}, {"text": "two"}]\n'),
        ("a.dat", '[ {"text": "one"},{"text": "two"} ]'),
        ("a.dat", '[\n{"text": "one"},{"text": "two"}]'),
        ("a.json", '{"text": "one"}\n{"text": "two"}\n'),
    ],
)
def test_a_list_of_json_is_a_table(tmp_path: Path, name: str, content: str) -> None:
    with Table(write(tmp_path / name, content)) as table:
        assert [row.values for row in table] == [{"text": "one"}, {"text": "two"}]
        assert table.columns == ["text"]
        assert count_texts(tmp_path / name, table.layout) in (2, None)


@pytest.mark.parametrize(
    ("content", "quoted"),
    [
        ('text\tlabel\n"a\nb"\tx\n', True),
        ('text\tlabel\r\n"a\r\n\r\nb ""c"""\tx\r\nd\ty\r\n', True),
        ('text\tlabel\n"a\tb"\tx\nc\t"d"\n', True),
        ('text\tlabel\n"a\nb"\t"x"', True),
        ('text\tlabel\n"a" ""b""\tx\n', False),  # no cell is quoted
        ('text\tlabel\n"He said\tx\nand left."\ty\n', False),  # each row fits as it stands
        ('text\tlabel\n"a"\tx\n"b"\ty\n', False),
        ('text\tlabel\n"a\nb" c\tx\n', False),  # text behind a quote
        ('text\tlabel\n"a\nb"\tx\ny\n', False),  # a row is damaged all the same
        ('text\tlabel\n"a\nb\tx\n', False),  # not closed
        ("text\tlabel\na\tx\nb\n", False),
        ('text\n"a\nb"\n', False),  # one column: anything fits
    ],
)
def test_tsv_that_can_be_read_with_quotes_alone_is(
    tmp_path: Path, content: str, quoted: bool
) -> None:
    path = write(tmp_path / "a.tsv", content.encode())
    with Table(path, skip_damaged=True) as table:
        rows = list(table)
    assert (table.layout.quotes, table.stats.quoted) == (quoted, quoted)
    if quoted:
        assert not table.stats.damaged
        assert any('" quotes cells' in note for note in table.stats.notes("a"))
        with Table(path, quotes=True) as table:
            assert [row.values for row in table] == [row.values for row in rows]


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        ('"text"\t"label"\n"a cat"\t"x"\n"a ""dog"""\t"y"\n', ["a cat", 'a "dog"']),
        ('"text"\t"label"\r\n"a cat"\t1\r\n"b"\t2\r\n', ["a cat", "b"]),
        ('"text"\t"label"\n5" nails\tx\n', None),
    ],
)
def test_tsv_whose_header_is_quoted_is_read_with_quotes(
    tmp_path: Path, content: str, cells: list[str] | None
) -> None:
    """As R writes it."""
    path = tmp_path / "a.tsv"
    path.write_bytes(content.encode())
    with Table(path) as table:
        if cells is None:  # it can not be read so
            assert table.columns == ['"text"', '"label"']
        else:
            assert [row.values["text"] for row in table] == cells


def test_cells_of_tsv_that_look_quoted_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"say ""yes"""\tx\n"b"\tx\n""\tx\n')
    with Table(path) as table:
        assert [row.values["text"] for row in table] == ['"say ""yes"""', '"b"', '""']
    assert "a: 1 cell looks quoted" in table.stats.notes("a")[0]
    assert "quotes=True takes them off" in table.stats.notes("a")[0]
    lost = write(tmp_path / "b.tsv", 'text\tlabel\n"a\nb" c\tx\n')
    assert "if cells are quoted, read with quotes=True" in error_of(lost)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"PK\x03\x04\x14\0", "is a zip archive, as workbooks (.xlsx) are"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "is an old Excel workbook (.xls)"),
        (b"PAR1\x15\x04", "is Parquet, whatever its name says; name it .parquet"),
        (b"\x1f\x8b\x08", "is compressed with gzip, whatever its name says; add .gz to its name"),
        (b"\xfd7zXZ\x00", "is compressed with xz"),
        (b"%PDF-1.7", "is a PDF"),
        (b"\x89PNG\r\n", "is a picture"),
        (b"\x80\x04\x95\x10", "is a pickle"),
    ],
)
def test_what_is_no_text_is_told(tmp_path: Path, begin: bytes, said: str) -> None:
    for name in ("a.csv", "a.jsonl", "a.txt", "a.json"):
        path = write(tmp_path / name, begin + bytes(range(256)) * 4)
        assert f"{path}: {said}" in error_of(path)
        with pytest.raises(BertineError, match=re.escape(f"{path}: {said}")):
            list(Corpus(path))


def test_names_of_such_files_may_be_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "PAR1,text\nPK,BZh\n")
    assert rows_of(path) == [{"PAR1": "PK", "text": "BZh"}]
