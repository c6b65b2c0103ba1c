"""Plan the steps of a table, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.options.experiments import PaperOptions
from bertine.papers.model_steps import Texts, grown_step, model_steps, snapshot_step
from bertine.papers.steps import Step
from bertine.papers.table import MEASURES, Measure, PaperTable, TableRow
from bertine.training.pretraining.pretrain import architecture_of

#: The default arguments of a fine-tuning run of a table.
_FINETUNE: dict[str, Any] = {"save_best": False, "frozen": False, "calibrate": False}

#: The default arguments of a BiLSTM on frozen states: with the paper's size and its usual dropout
#: of a half, it learns nothing from small sets of tagged words.
_FEATURES: dict[str, Any] = {
    "lstm_size": 128,
    "dropout": 0.2,
    "learning_rate": 3e-3,
    "epochs": 15,
}


@dataclass(frozen=True)
class Cell:
    """A cell of the table, with the steps that its scores come from, one a seed."""

    row: str
    column: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The plan of a table.

    Attributes:
        steps: by their names, each after those that it needs.
        cells: of the table.
        left_out: columns without data, with the places where the data were searched.
        parameters: the number of parameters of the model of each row.
    """

    steps: Mapping[str, Step]
    cells: tuple[Cell, ...]
    left_out: Mapping[str, str]
    parameters: Mapping[str, int] = field(default_factory=dict)

    def levels(self) -> list[list[Step]]:
        """Return the steps in groups, each of which needs only those before it."""
        level: dict[str, int] = {}
        for name, step in self.steps.items():
            level[name] = 1 + max((level[other] for other in step.needs), default=-1)
        groups: list[list[Step]] = [[] for _ in range(1 + max(level.values(), default=-1))]
        for name, step in self.steps.items():
            groups[level[name]].append(step)
        return groups


def plan_of(
    table: PaperTable, corpus: list[Path], data: Path | None, options: PaperOptions
) -> Plan:
    """Plan a table.

    Args:
        corpus: texts, or one token store.
        data: the folder of labelled data; None: only columns that need none are run.

    Raises:
        BertineError: an invalid size; no such row or column; no column has its data.
    """
    rows = _chosen(table, options)
    texts = Texts(corpus, options)
    steps: dict[str, Step] = {}
    columns, left_out = _columns(table, data, texts, options)
    parameters: dict[str, int] = {}
    cells = []
    needed = [*rows, *_before(table, rows)]
    for row in (*table.runs, *table.rows):
        if row.name not in needed:
            continue
        if row.weights is not None:
            parameters[row.name] = architecture_of(row.weights).num_parameters
        elif row.snapshot_of is not None:
            parameters[row.name] = parameters[row.snapshot_of]
            if row.share != 1:
                taken = snapshot_step(row, table, options)
                steps[taken.name] = taken
        else:
            made = model_steps(row, table, texts, options)
            parameters[row.name] = made.parameters
            if row.grown:
                grown, parameters[row.name] = grown_step(row, options)
                steps[grown.name] = grown
            if row.model_of is None:
                steps |= {step.name: step for step in (*made.before, made.step)}
    for row in table.rows:
        if row.name not in rows:
            continue
        for column, place in columns.items():
            runs = _scoring(row, column, place, texts, options)
            steps |= {step.name: step for step in runs}
            names = [step.name for step in runs]
            if MEASURES[column].verb == "pretrain":
                names = [row.pretrained]
            cells.append(Cell(row.name, column, tuple(names)))
    return Plan(steps, tuple(cells), left_out, parameters)


def _chosen(table: PaperTable, options: PaperOptions) -> list[str]:
    """Return the names of the wanted rows.

    Raises:
        BertineError: there is no such row.
    """
    known = [row.name for row in table.rows if row.weights is not None or not table.given]
    for name in options.rows or ():
        if name not in known:
            raise BertineError(f"{table.name} has no row {name!r}; it has {', '.join(known)}")
    return [name for name in known if options.rows is None or name in options.rows]


def _before(table: PaperTable, rows: list[str]) -> list[str]:
    """Return the rows whose models those of `rows` are initialized with, or are distilled from."""
    before: list[str] = []
    waiting = list(rows)
    while waiting:
        row = table.row(waiting.pop())
        others = [
            name
            for name in (row.teacher, row.begins_with, row.model_of, row.snapshot_of)
            if name is not None
        ]
        before += others
        waiting += others
    return before


def _columns(
    table: PaperTable, data: Path | None, texts: Texts, options: PaperOptions
) -> tuple[dict[str, Path | None], dict[str, str]]:
    """Return the places of the data of each column, and the columns without data."""
    for name in options.columns or ():
        if name not in table.columns:
            raise BertineError(
                f"{table.name} has no column {name!r}; it has {', '.join(table.columns)}"
            )
    found: dict[str, Path | None] = {}
    left_out: dict[str, str] = {}
    for name in table.columns:
        if options.columns is not None and name not in options.columns:
            continue
        measure = MEASURES[name]
        if not measure.data:
            if measure.verb == "blimp" or texts.has_held_out:
                found[name] = None
            else:
                left_out[name] = f"needs {option('held_out')}"
        elif data is None:
            left_out[name] = f"needs {option('data')}"
        elif (place := measure.find(data)) is not None:
            found[name] = place
        else:
            left_out[name] = f"there is no {measure.data[0]} in {data}"
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise BertineError(f"{table.name}: no column can be run ({reasons})")
    return found, left_out


def _scoring(
    row: TableRow, column: str, place: Path | None, texts: Texts, options: PaperOptions
) -> list[Step]:
    """Return the steps that score the model of a row for a column; none if its pre-training has
    done it, or if the model cannot be scored in this way."""
    measure = MEASURES[column]
    name = f"{row.name}/{column.replace(' ', '-')}"
    given: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    needs: tuple[str, ...] = ()
    if row.weights is None:
        made = row.begun if row.grown else row.pretrained
        inside["model"], needs = f"{made}/model", (made,)
    else:
        # The name of a model in the package is not a path.
        there = Path(row.weights).exists()
        given["model"] = str(Path(row.weights).absolute()) if there else row.weights
    if measure.verb == "pretrain":
        return []
    if measure.verb == "blimp":
        if not row.guesses_words:
            return []
        return [Step(f"scored/{name}", "blimp", measure.arguments, given, inside, needs)]
    if measure.verb == "pairs":
        if not row.answers_pairs:
            return []
        before, of_user, of_table = texts.of(row, "store")
        given |= {key: path for key, path in of_user.items() if key == "held_out"}
        inside |= {key: path for key, path in of_table.items() if key == "held_out"}
        needs += tuple(step.name for step in before if step.name == inside.get("held_out"))
        arguments = dict(measure.arguments)
        if options.max_seq_length is not None:
            # Positions beyond those of pre-training have never been trained.
            arguments["max_seq_length"] = options.max_seq_length
        return [Step(f"scored/{name}", "pairs", arguments, given, inside, needs)]
    assert place is not None
    given["data"] = str(place.absolute())
    if measure.verb == "time":
        arguments = {**measure.arguments, "turns": options.seeds}
        return [Step(f"scored/{name}", "time", arguments, given, inside, needs)]
    return _training(f"finetuned/{name}", row, measure, given, inside, needs, options)


def _training(
    name: str,
    row: TableRow,
    measure: Measure,
    given: Mapping[str, Any],
    inside: Mapping[str, Any],
    needs: tuple[str, ...],
    options: PaperOptions,
) -> list[Step]:
    """Return the runs of a cell that trains for its task, one a seed."""
    own = row.arguments.get("feature_based")
    verb = "finetune" if measure.verb == "finetune" and own is None else "feature_based"
    arguments = {**_FEATURES, **measure.arguments, **(own or {})}
    if verb == "finetune":
        arguments = {**_FINETUNE, **measure.arguments, **row.arguments.get("finetune", {})}
    if options.epochs is not None:
        arguments["epochs"] = options.epochs
    if options.paper_grid:
        arguments |= {"restarts": options.seeds, "score": measure.score}
        return [Step(f"{name}/grid", "search", arguments, given, inside, needs)]
    return [
        Step(f"{name}/seed-{seed}", verb, {**arguments, "seed": seed}, given, inside, needs)
        for seed in range(options.seeds)
    ]
