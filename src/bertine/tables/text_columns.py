"""Which column of a table of single texts holds the text."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.options.names import option
from bertine.tables.table import require_columns, untold

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
        BertineError: the named column is not there, or none can be told. Lists the columns.
    """
    if named is not None:
        require_columns(where, columns, [named])
        return named
    for usual in (*USUAL_TEXT_COLUMNS, *(columns if len(columns) == 1 else ())):
        if usual in columns:
            return usual
    raise untold(where, columns, "text", option("text_column"))
