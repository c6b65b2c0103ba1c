"""Deciding by cost: the label whose expected cost, under the probabilities of all labels, is least
(Elkan 2001, "The foundations of cost-sensitive learning", section 1.2; leaving a text to people at
a cost of its own is the rule of Chow 1970, doi 10.1109/TIT.1970.1054406).

Shape legend: N answers, K labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertine.errors import BertineError
from bertine.tables.table import Table, TableRow
from bertine.tasks.labels import known_labels
from bertine.terminal.console import visible_list
from bertine.terminal.text import briefly

#: The column with the cost of giving no answer.
NO_ANSWER = "(no answer)"


@dataclass(frozen=True)
class Costs:
    """What answers cost.

    Attributes:
        table: [K][K], by the true label and the answer, in the order of the task's labels.
        no_answer: [K], of giving no answer, by the true label; None: every text is answered.
        source: the file they come from, for messages.
    """

    table: tuple[tuple[float, ...], ...]
    no_answer: tuple[float, ...] | None = None
    source: str = ""

    @classmethod
    def read(cls, path: Path | str, labels: Sequence[str]) -> Costs:
        """Read a csv or tsv whose header has the labels, and may have ``(no answer)``, after the
        name of the first column, which has the true label of each row.

        Raises:
            BertineError: a label is missing, unknown or given twice, among the rows or the columns;
                a cost is no number; what reading the table raises.
        """
        source = str(path)
        rows: dict[str, TableRow] = {}
        with Table(path) as table:
            names = table.columns
            if len(names) < 2:
                raise BertineError(
                    f"{source}: has one column; the first is to have the true label of each row, "
                    f"the others are named as the labels: {visible_list(labels)}"
                )
            first, columns = names[0], names[1:]
            _check(source, "column", columns, [*labels, NO_ANSWER], labels)
            for row in table:
                label = table.label(row, first)
                if label in rows:
                    raise BertineError(f"{source}:{row.line}: a second row of the label {label!r}")
                rows[label] = row
                if len(rows) > len(labels):
                    break
            _check(source, "row", list(rows), labels, labels)
            numbers = {
                label: {name: _number(source, row, name) for name in columns}
                for label, row in rows.items()
            }
        return cls(
            tuple(tuple(numbers[true][answer] for answer in labels) for true in labels),
            tuple(numbers[true][NO_ANSWER] for true in labels) if NO_ANSWER in columns else None,
            source,
        )

    def decide(self, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose the label of least expected cost for each row of probabilities, fp64 [N, K]; of
        equal ones the most probable.

        Returns:
            The labels, int64 [N], and whether no answer would cost less, bool [N].
        """
        expected = probabilities @ np.array(self.table)
        least = expected.min(1, keepdims=True)
        cheapest = expected <= least + 1e-12 * (1 + np.abs(least))
        best = np.where(cheapest, probabilities, -1.0).argmax(1)
        if self.no_answer is None:
            return best, np.zeros(len(best), dtype=bool)
        return best, probabilities @ np.array(self.no_answer) < least[:, 0]

    def mean(self, truth: np.ndarray, answers: np.ndarray, left_open: np.ndarray) -> float:
        """Compute the mean cost of answers, int64 [N], to texts with the labels `truth`, int64
        [N], of which some are left open, bool [N]."""
        paid = np.array(self.table)[truth, answers]
        if self.no_answer is not None:
            paid = np.where(left_open, np.array(self.no_answer)[truth], paid)
        return float(paid.mean())


def _check(
    source: str, what: str, names: Sequence[str], allowed: Sequence[str], wanted: Sequence[str]
) -> None:
    for name in names:
        if name not in allowed:
            hint = known_labels(name, tuple(wanted))
            raise BertineError(f"{source}: the {what} {briefly(name)} is none of the labels{hint}")
    for label in wanted:
        if label not in names:
            raise BertineError(f"{source}: there is no {what} for the label {label!r}; add one")


def _number(source: str, row: TableRow, column: str) -> float:
    value = row.values.get(column)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise BertineError(
            f"{source}:{row.line}: the cost under {column!r} is {briefly(value)}, but must be a "
            "number"
        )
    return number
