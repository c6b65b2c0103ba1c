"""The lines of csv and tsv, split into cells."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.tables.layout import TableLayout, strip_newline
from bertine.tables.lines import MAX_LINE_BYTES, TableLines

#: Lines of one row of csv, whose cells may hold line breaks. A quote that is not closed has more.
_MOST_LINES_OF_A_ROW = 100_000

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
                yield lines.number, line.split(layout.delimiter)
            else:
                lines.skip_blank()
        return
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
                f"{lines.name}:{start}: not valid csv ({error}); double the quotes inside a "
                f'cell, or read with {option("quotes", False)} if " is an ordinary character'
            ) from error
        if cells:
            yield start, cells
        else:
            lines.skip_blank()
