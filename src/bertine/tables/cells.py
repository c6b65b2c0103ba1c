"""The lines of csv and tsv, split into cells."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.tables.layout import TableLayout, strip_newline
from bertine.tables.lines import MAX_LINE_BYTES, TableLines
from bertine.tables.streams import open_stream

#: Lines of one row of csv, whose cells may hold line breaks. A quote that is not closed has more.
_MOST_LINES_OF_A_ROW = 100_000
#: The same where it is not known whether there are quotes at all.
_MOST_LINES_TRIED = 200
#: Bytes that are read at once.
_BLOCK = 1 << 20
#: A cell of tsv that is quoted, whole; and one by itself.
_QUOTED = re.compile(rb'(?<![^\t\n])"[^"]*+(?:""[^"]*+)*+"(?=[\t\r\n]|\Z)')
_QUOTED_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')

csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


def split_cells(
    first: str, lines: TableLines, layout: TableLayout
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of the header and of every row that is not blank.

    Args:
        first: the line that was read already, to tell the layout.
        lines: those after it.
        layout: whether there are quotes, and what separates cells.

    Raises:
        BertineError: quotes are not closed or not doubled.
    """
    if not layout.quotes:
        for line in chain([first], lines):
            line = strip_newline(line)
            if line:
                cells = line.split(layout.delimiter)
                if '""' in line:
                    lines.count_quoted(sum(map(_looks_quoted, cells)))
                yield lines.number, cells
            else:
                lines.skip_blank()
        return
    before = lines.number - 1  # `first` may not be the first line of the file
    start = 1

    def bounded() -> Iterator[str]:
        """Yield the lines, as long as they can be those of one row."""
        for line in chain([first], lines):
            if reader.line_num - start + 2 > _MOST_LINES_OF_A_ROW:  # with this line
                raise BertineError(
                    f"{lines.name}:{lines.number - _MOST_LINES_OF_A_ROW}: a quoted cell goes "
                    f"on for more than {_MOST_LINES_OF_A_ROW:,} lines; close or double the quotes, "
                    f'or read with {option("quotes", False)} if " is an ordinary character'
                )
            yield line

    reader = csv.reader(bounded(), delimiter=layout.delimiter, doublequote=True, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BertineError(
                f"{lines.name}:{before + start}: not valid csv ({error}); double the quotes inside "
                f'a cell, or read with {option("quotes", False)} if " is an ordinary character'
            ) from error
        if cells:
            yield before + start, cells
        else:
            lines.skip_blank()


def _looks_quoted(cell: str) -> bool:
    return '""' in cell[1:-1] and _QUOTED_CELL.fullmatch(cell) is not None


def needs_quotes(path: Path) -> bool:
    """Tell whether a tsv file can be read with quotes around cells alone: so all of its rows have
    the cells of the header, and every quote is a part of a quoted cell; without, one row has more
    or fewer, or all names in the header have quotes. pandas and Excel quote a cell that holds a
    tab, a line break or a quote; R quotes all texts."""
    with open_stream(path) as stream:
        if not _begins_quoted(stream.reader):
            return False
    with open_stream(path) as stream:
        first = stream.reader.readline(MAX_LINE_BYTES)
        header = first.count(b"\t")
        all_quoted = b"" not in first.split(b"\t") and not _QUOTED.sub(b"", first).strip()
        if header == 0 or not (all_quoted or _has_quotes(stream.reader, header)):
            return False
    with open_stream(path) as stream:
        held, lines = b"", 0
        while line := stream.reader.readline(MAX_LINE_BYTES):
            if not held and b'"' not in line:
                if line.strip(b"\r\n") and line.count(b"\t") != header:
                    return False
                continue
            held, lines = held + line, lines + 1
            rest = _QUOTED.sub(b"", held)
            if b'"' not in rest:
                if rest.count(b"\t") != header:
                    return False
                held, lines = b"", 0
            elif lines > _MOST_LINES_TRIED or len(held) > MAX_LINE_BYTES:
                return False
        return not held


def _begins_quoted(reader: BinaryIO) -> bool:
    """Tell, fast, whether any cell begins with a quote."""
    last = b"\n"
    while block := reader.read(_BLOCK):
        block = last + block
        if b'\t"' in block or b'\n"' in block:
            return True
        last = block[-1:]
    return False


def _has_quotes(reader: BinaryIO, tabs: int) -> bool:
    """Tell whether lines have quotes, and one of them another number of tabs."""
    quotes = other = False
    while line := reader.readline(MAX_LINE_BYTES):
        quotes = quotes or b'"' in line
        other = other or (line.count(b"\t") != tabs and bool(line.strip(b"\r\n")))
        if quotes and other:
            return True
    return False
