"""Rows come in chunks: every one once, in order, and no chunk larger than it must be."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bertine.data.lines import TableLayout
from bertine.data.tables import TableRow
from bertine.inference.rows import chunks, count_texts


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


def test_a_line_break_inside_a_cell_ends_no_row(tmp_path: Path) -> None:
    cell = '"two\nlines of ""one"" cell"\n'
    (tmp_path / "in.csv").write_text("text\n" + cell * 100_000)  # of several blocks
    assert count_texts(tmp_path / "in.csv", TableLayout("csv", ",", True)) == 100_000
