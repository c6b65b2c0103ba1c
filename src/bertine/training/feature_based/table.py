"""The table of the paper's section 5.3: its rows, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.terminal.console import human_time
from bertine.terminal.shown import Shown

#: The results, in the folder of the runs.
TABLE = "feature-based.json"
FINE_TUNING = "fine-tuning"


@dataclass(frozen=True)
class StatesRow:
    """A row of the table: which states are read (of an encoder of L layers; 0 are the embeddings),
    and whether they are joined or summed."""

    title: str
    layers: Callable[[int], list[int]]
    concatenate: bool = False


#: The rows in the paper's order, by the names of the command line.
ROWS: dict[str, StatesRow] = {
    "embeddings": StatesRow("embeddings", lambda count: [0]),
    "second-to-last": StatesRow("second-to-last hidden", lambda count: [max(0, count - 1)]),
    "last": StatesRow("last hidden", lambda count: [count]),
    "sum-last-four": StatesRow("weighted sum last four hidden", lambda count: _last(count, 4)),
    "concat-last-four": StatesRow("concat last four hidden", lambda count: _last(count, 4), True),
    "sum-all": StatesRow("weighted sum all layers", lambda count: _last(count, count)),
}


#: The row of vectors of words, which is there where such vectors are given.
WORD_VECTORS = "word-vectors"
_STATIC = StatesRow("vectors of words", lambda count: [0])


def row_of(name: str) -> StatesRow:
    """Return the row called `name`; not that of fine-tuning."""
    return _STATIC if name == WORD_VECTORS else ROWS[name]


def _last(count: int, wanted: int) -> list[int]:
    return list(range(max(1, count - wanted + 1), count + 1))


@dataclass(repr=False)
class FeatureBasedReport(Shown):
    """The table.

    Attributes:
        rows: for each row its ``validation`` (and ``test``) metrics, ``best`` (the highest main
            metric of an epoch on the validation sentences) and ``seconds``.
        metric: the name of the main metric, ``f1`` or ``accuracy``.
        folder: of the runs.
        notes: what else to know.
    """

    rows: dict[str, dict[str, Any]]
    metric: str
    folder: Path
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a row each: the main metric, times 100, on the validation and test sentences."""
        titles = {
            name: "fine-tuning" if name == FINE_TUNING else row_of(name).title for name in self.rows
        }
        width = max(len(titles[name]) for name in self.rows)
        test = any("test" in row for row in self.rows.values())
        head = f"{'':{width}}  {'dev ' + self.metric:>9}" + ("  test " + self.metric) * test
        lines = [head]
        for name, row in self.rows.items():
            line = f"{titles[name]:{width}}  {100 * row['validation'][self.metric]:>9.2f}"
            if "test" in row:
                line += f"  {100 * row['test'][self.metric]:>{5 + len(self.metric)}.2f}"
            lines.append(f"{line}  {human_time(row['seconds'])}")
        return [*lines, *self.notes, f"results: {self.folder / TABLE}"]

    def to_dict(self) -> dict[str, Any]:
        return {"metric": self.metric, "rows": self.rows, "notes": self.notes}


def chosen_rows(rows: Sequence[str] | None) -> list[str]:
    """Return the names of the wanted rows, in the paper's order."""
    known = [FINE_TUNING, *ROWS]
    for name in rows or ():
        if name not in known:
            raise BertineError(f"there is no row {name!r}; there are {', '.join(known)}")
    return [name for name in known if rows is None or name in rows]
