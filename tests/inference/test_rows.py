"""Rows come in chunks: every one once, in order, and no chunk larger than it must be."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertine.core.errors import BertineError
from bertine.data.lines import TableLayout
from bertine.data.tables import TableRow
from bertine.inference.rows import chunks, count_texts, joined, unused


def size(row: TableRow) -> int:
    return len(row.values["text"])


@pytest.mark.parametrize(("most", "most_rows"), [(10, None), (10, 3), (1, None), (1000, 4)])
def test_chunks_are_bounded_and_lose_no_row(most: int, most_rows: int | None) -> None:
    rows = [TableRow(line, {"text": "x" * (line * 7 % 6)}) for line in range(1, 40)]
    found = list(chunks(iter(rows), size, most, most_rows))
    assert list(itertools.chain.from_iterable(found)) == rows
    for chunk in found:
        assert sum(map(size, chunk[:-1])) < most
        assert len(chunk) <= (most_rows or 39)
    for chunk in found[:-1]:
        assert sum(map(size, chunk)) >= most or len(chunk) == most_rows


def test_no_rows_make_no_chunk() -> None:
    assert list(chunks([], size, 10)) == []


def test_what_is_added_takes_no_name_that_is_there() -> None:
    assert unused("label", ["text"], "new_") == "label"
    assert unused("label", ["label", "new_label"], "new_") == "new_new_label"
    row = TableRow(7, {"text": "a"})
    assert joined("in.csv", row, {"label": 1}) == {"text": "a", "label": 1}
    assert row.values == {"text": "a"}
    with pytest.raises(BertineError, match=r"in\.csv:7: has a key 'text', but the first row has"):
        joined("in.csv", row, {"text": 1})


def test_how_many_texts_are_to_come_is_known_where_it_can_be(tmp_path: Path) -> None:
    table = pa.table({"text": [str(number) for number in range(2500)]})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1000)
    (tmp_path / "in.csv").write_text("text\n" + "a\n" * 6 + "the last")
    (tmp_path / "in.csv.gz").write_bytes(b"packed\n")
    csv = TableLayout("csv", ",", True)
    assert count_texts(tmp_path / "in.parquet", TableLayout("jsonl")) == 2500
    assert count_texts(tmp_path / "in.csv", csv) == 7  # the header is no text
    assert count_texts(tmp_path / "in.csv") == 8
    assert count_texts(tmp_path / "in.csv.gz", csv) is None
    assert count_texts("-", csv) is None


def test_a_line_break_inside_a_cell_ends_no_row(tmp_path: Path) -> None:
    cell = '"two\nlines of ""one"" cell"\n'
    (tmp_path / "in.csv").write_text("text\n" + cell * 100_000)  # of several blocks
    assert count_texts(tmp_path / "in.csv", TableLayout("csv", ",", True)) == 100_000
