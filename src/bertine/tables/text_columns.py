"""Find and read the texts of a table with one text in each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bertine.options.names import option
from bertine.tables.column_names import require_columns, untold
from bertine.tables.streams import Repairs
from bertine.tables.table import Table

#: The usual names of the column, tried in this order.
USUAL_TEXT_COLUMNS = ("text", "sentence")


def choose_text_column(where: str, columns: Sequence[str], named: str | None) -> str:
    """Choose the column that holds the text: the one named, ``text``, ``sentence``, or the only
    one.

    Args:
        where: the table, or a row of it, for messages.
        columns: the names that it has.
        named: by the user; None: nobody has named one.

    Raises:
        BertineError: the named column is not there, or none is recognized. Lists the columns.
    """
    if named is not None:
        require_columns(where, columns, [named])
        return named
    for usual in (*USUAL_TEXT_COLUMNS, *(columns if len(columns) == 1 else ())):
        if usual in columns:
            return usual
    raise untold(where, columns, "text", option("text_column"))


def table_texts(
    path: Path, column: str | None, quotes: bool | None, *, strict: bool, repairs: Repairs
) -> Iterator[tuple[str, int, int]]:
    r"""Read the text of each row; memory holds one row.

    Args:
        path: a csv or tsv file by its name, perhaps compressed.
        column: where the text is; None: ``text``, ``sentence``, or the only column.
        quotes: whether ``"`` quotes cells; None: in csv, but not in tsv.
        strict: refuse invalid UTF-8 and NUL bytes instead of mending and counting them.
        repairs: counts what is mended in the whole table; changed at its end.

    Yields:
        The text (with ``\n`` as the only line end), the line its row starts on, and how many bytes
        of the file on disk have been read.

    Raises:
        BertineError: the column is not there or not recognized; a row has the wrong number of
            cells, broken quotes or a line that is too long; what :class:`Table` raises.
    """
    wanted = [] if column is None else [column]
    with Table(path, wanted=wanted, quotes=quotes, strict=strict) as table:
        column = choose_text_column(table.name, table.columns, column)
        for row in table:
            text = table.text(row, column)
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            yield text, row.line, table.position
        repairs.invalid_utf8 += table.stats.invalid_utf8
        repairs.nul += table.stats.nul_bytes
