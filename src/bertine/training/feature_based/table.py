"""The table of the paper's section 5.3, and of ELMo's: its rows, and how they are shown."""

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
    """A row of the table: which states are read (of a model of L layers; 0 are the words by
    themselves), whether they are joined or summed, whether they are summed once more, for the
    output of the BiLSTM, and whether it reads their sum or the words by themselves."""

    title: str
    layers: Callable[[int], list[int]]
    concatenate: bool = False
    mix_output: bool = False
    mix_input: bool = True


#: The rows in the paper's order, by the names of the command line.
ROWS: dict[str, StatesRow] = {
    "embeddings": StatesRow("embeddings", lambda count: [0]),
    "second-to-last": StatesRow("second-to-last hidden", lambda count: [max(0, count - 1)]),
    "last": StatesRow("last hidden", lambda count: [count]),
    "sum-last-four": StatesRow("weighted sum last four hidden", lambda count: _last(count, 4)),
    "concat-last-four": StatesRow("concat last four hidden", lambda count: _last(count, 4), True),
    "sum-all": StatesRow("weighted sum all layers", lambda count: _last(count, count)),
}


#: Rows of all layers, the words by themselves among them, as ELMo's paper has them: summed with
#: learned weights at the input of the BiLSTM, there and at its output, or at the output alone.
MIX_ROWS: dict[str, StatesRow] = {
    "mix": StatesRow("mix of all layers", lambda count: list(range(count + 1))),
    "mix-both": StatesRow(
        "mix at input and output", lambda count: list(range(count + 1)), mix_output=True
    ),
    "mix-output": StatesRow(
        "words at input, mix at output",
        lambda count: list(range(count + 1)),
        mix_output=True,
        mix_input=False,
    ),
}

#: The rows of vectors of words, which are there where such vectors are given: a BiLSTM over them;
#: of texts also their mean.
WORD_VECTORS, BAG_OF_VECTORS = "word-vectors", "bag-of-vectors"
_STATIC = StatesRow("vectors of words", lambda count: [0])
_TITLES = {FINE_TUNING: "fine-tuning", BAG_OF_VECTORS: "mean of vectors of words"}

#: All rows by the kinds of models that have them, in the order of the table; of these the ones
#: that are there where nobody says.
_OF_KINDS: dict[str, tuple[list[str], list[str]]] = {
    "encoder": ([FINE_TUNING, *ROWS, *MIX_ROWS], [FINE_TUNING, *ROWS]),
    "elmo": (
        ["embeddings", "second-to-last", "last", *MIX_ROWS],
        ["embeddings", "second-to-last", "last", "mix", "mix-both"],
    ),
    "word-vectors": ([], []),
}


def row_of(name: str) -> StatesRow:
    """Return the row called `name`; not that of fine-tuning, nor of the mean of vectors."""
    return _STATIC if name == WORD_VECTORS else (ROWS | MIX_ROWS)[name]


def _last(count: int, wanted: int) -> list[int]:
    return list(range(max(1, count - wanted + 1), count + 1))


@dataclass(repr=False)
class FeatureBasedReport(Shown):
    """The table.

    Attributes:
        rows: for each row its ``validation`` (and ``test``) metrics, ``best`` (the highest main
            metric of an epoch on the validation examples), ``layer_weights`` of the mixes (by
            where they stand: the weights, and the factor at the end) and ``seconds``.
        metric: the name of the main metric; of tagging ``f1`` or ``accuracy``.
        folder: of the runs.
        notes: what else to know.
    """

    rows: dict[str, dict[str, Any]]
    metric: str
    folder: Path
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a row each: the main metric, times 100, on the validation and test sentences."""
        titles = {name: _TITLES.get(name) or row_of(name).title for name in self.rows}
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


def chosen_rows(
    rows: Sequence[str] | None, kind: str = "encoder", *, vectors: bool = False, texts: bool = False
) -> list[str]:
    """Return the names of the wanted rows, in the order of the table.

    Args:
        rows: that are asked for; None: those that a model of its kind has.
        kind: of the model, as :class:`~bertine.training.feature_based.sources.WordSource` has it.
        vectors: whether there are vectors of words, whose rows are then among them. Where they are
            not the model itself, these rows are there whatever is asked for.
        texts: whether labels are of texts.

    Raises:
        BertineError: there is no such row, or not of such a model.
    """
    known, usual = _OF_KINDS[kind]
    own = [WORD_VECTORS, *([BAG_OF_VECTORS] if texts else [])] if vectors else []
    for name in rows or ():
        if name not in [*known, *own]:
            raise BertineError(f"there is no row {name!r}; there are {', '.join([*known, *own])}")
    wanted = [name for name in known if name in (usual if rows is None else rows)]
    named = rows is not None and any(name in rows for name in own)
    always = rows is None or (kind != "word-vectors" and not named)
    return wanted + [name for name in own if always or name in (rows or ())]
