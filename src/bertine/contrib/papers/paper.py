"""Run a table of a paper at any scale: ``paper``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.contrib.options import GivenWeights, PaperOptions, PaperScale
from bertine.contrib.papers.model_steps import (
    Texts,
    elmo_size,
    grown_step,
    model_steps,
    sizes_of,
    snapshot_step,
)
from bertine.contrib.papers.steps import Step, read_record
from bertine.contrib.papers.table import (
    MEASURES,
    PAGE,
    TABLE,
    Measure,
    PaperResult,
    PaperTable,
    TableRow,
    paper_page,
    read_table,
    with_weights,
)
from bertine.core.console import human_count, human_time, logger, plural
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import write_json
from bertine.core.names import option
from bertine.options.verbs import takes_options
from bertine.reports.run_files import read_log
from bertine.training.experiment import Experiment
from bertine.training.job_folder import JobFolder
from bertine.training.pretraining.pretrain import architecture_of

# Plan the steps of a table, in their order.

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
    result: dict[str, Path | None] = {}
    left_out: dict[str, str] = {}
    for name in table.columns:
        if options.columns is not None and name not in options.columns:
            continue
        measure = MEASURES[name]
        if not measure.data:
            if measure.verb == "blimp" or texts.has_held_out:
                result[name] = None
            else:
                left_out[name] = f"needs {option('held_out')}"
        elif data is None:
            left_out[name] = f"needs {option('data')}"
        elif (place := measure.find(data)) is not None:
            result[name] = place
        else:
            left_out[name] = f"there is no {measure.data[0]} in {data}"
    if not result:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise BertineError(f"{table.name}: no column can be run ({reasons})")
    return result, left_out


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


#: Options of the scale that may change when a table is resumed: more seeds are more runs.
_FREE = ("seeds",)
_JOB = JobFolder("table", TABLE)


@takes_options()
def paper(
    name: str,
    *,
    out: Path | str,
    corpus: Path | str | Sequence[Path | str] | None = None,
    data: Path | str | None = None,
    options: PaperOptions,
) -> PaperResult:
    """Run a table of a paper, and compare the scores with the published ones.

    The text is prepared, each row is pre-trained for the same time, and fine-tuned on each column's
    task with several seeds.

    Args:
        name: of the table, such as ``"bert-5"``.
        out: the folder of the table. The result is ``out/paper.json``, and as a page
            ``out/paper.html``.
        corpus: texts, as for ``prepare``, of which some documents are held out; or one token store.
            None: for a table of given weights.
        data: a folder with the labelled data of the columns: ``glue/`` with a folder for each task,
            ``squad/``, ``swag/``, ``race/``, ``ner/``, ``sib200/``, ``ocnli/``. Columns without
            data are left out, with a note. None: only columns that need none are run.
        options: the values of the other arguments.

    Returns:
        The scores. A step that failed is named in ``failed``; the others are done nevertheless.

    Raises:
        BertineError: there is no such table, row or column; no column can be run; `out` holds
            something else, or a table that is not to be resumed, or of other settings.
    """
    if launched():
        raise BertineError("paper starts its own processes; start it without torchrun")
    table = read_table(name)
    out = Path(out).absolute()
    if table.given:
        if not options.weights:
            raise BertineError(f"{name}: fine-tunes weights; give them with {option('weights')}")
        table = with_weights(table, options.weights)
    else:
        said = f"{name}: pre-trains its rows;"
        for given in GivenWeights.of(options).changed():
            raise BertineError(f"{said} {option(given)} is for tables of given weights")
        if corpus is None:
            raise BertineError(f"{said} give the texts with {option('corpus')}")
    listed = [corpus] if isinstance(corpus, str | Path) else list(corpus or ())
    texts = [Path(path) for path in listed]
    for path in texts:
        if not path.exists():
            raise BertineError(f"{path}: no such file or folder; give the texts to train on")
    labelled = None if data is None else Path(data)
    if labelled is not None and not labelled.is_dir():
        raise BertineError(f"{labelled}: no such folder; give the folder of the labelled data")
    plan = plan_of(table, texts, labelled, options)
    scale = PaperScale.of(options).values()
    settings = {"table": name, **{key: v for key, v in scale.items() if key not in _FREE}}
    with _JOB.open(out, settings, options.resume):
        for which in options.rerun or ():
            _remove(plan, table, out, which)
        return _Running(table, plan, out, options, settings).finish()


def _remove(plan: Plan, table: PaperTable, out: Path, which: str) -> None:
    """Remove the results of a row, or of a cell as ROW/COLUMN, and of everything that depends on
    them.

    Raises:
        BertineError: there is no such row or column.
    """
    row, _, column = which.partition("/")
    if row not in [item.name for item in table.rows] or (column and column not in table.columns):
        rows = ", ".join(item.name for item in table.rows)
        raise BertineError(
            f"{table.name} has no cell {which!r}; its rows are {rows}, its columns "
            f"{', '.join(table.columns)}"
        )
    if column:
        cells = [cell for cell in plan.cells if (cell.row, cell.column) == (row, column)]
        chosen = {name for cell in cells for name in cell.steps}
    else:
        own = re.compile(rf"(pretrained|begun|finetuned|scored)/{re.escape(row)}(/|$)")
        chosen = {name for name in plan.steps if own.match(name)}
    # Each step comes after those that it needs.
    for step in plan.steps.values():
        if chosen.intersection(step.needs):
            chosen.add(step.name)
    for name in chosen:
        (out / f"{name}.json").unlink(missing_ok=True)
        shutil.rmtree(out / name, ignore_errors=True)


@dataclass
class _Running:
    """A table in progress."""

    _table: PaperTable
    _plan: Plan
    _out: Path
    _options: PaperOptions
    _settings: dict[str, Any]
    _records: dict[str, dict[str, Any]] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)

    def finish(self) -> PaperResult:
        """Do the unfinished steps, and write the result."""
        steps = self._plan.steps
        for name, step in steps.items():
            record = read_record(step, self._out)
            if record is not None:
                self._records[name] = record
        logger.info(
            f"{self._table.name}: {plural(len(steps), 'step')}"
            + (f", {len(self._records)} of them done before" if self._records else "")
        )
        for name, why in self._plan.left_out.items():
            logger.warning(f"{name} is left out: {why}")
        waiting = {name: steps[name].job(self._out) for name in steps if name not in self._records}
        where = Experiment(self._options.processes, self._options.ray, cores=1)
        where.run(waiting, self._ended)
        return self._result()

    def _ended(self, name: str, message: dict[str, Any]) -> None:
        if "done" in message:
            self._records[name] = message["done"]
            logger.info(f"{name}: done in {human_time(message['done']['seconds'])}")
        else:
            self._failed[name] = message["error"] if "error" in message else message["lost"]
            logger.warning(f"{name} failed: {self._failed[name]}")
        self._result()

    def _result(self) -> PaperResult:
        """Return the current result, and write it."""
        scores: dict[str, dict[str, list[float]]] = {}
        for cell in self._plan.cells:
            measure = MEASURES[cell.column]
            hit = [
                record["result"]["scores"].get(measure.score)
                for name in cell.steps
                if (record := self._records.get(name)) is not None
            ]
            # The scores of all restarts of a grid are in one step.
            values = [one for item in hit for one in (item if isinstance(item, list) else [item])]
            of_row = scores.setdefault(cell.row, {})
            of_row[cell.column] = [float(value) for value in values if value is not None]
        columns = dict.fromkeys(cell.column for cell in self._plan.cells)
        result = PaperResult(
            table=self._table,
            out=self._out,
            columns=tuple(columns),
            scores=scores,
            scale=self._scale(),
            parameters=self._plan.parameters,
            seconds=sum(record["seconds"] for record in self._records.values()),
            failed=dict(self._failed),
            left_out=self._plan.left_out,
            curves={
                run.name: curve
                for run in self._table.runs or self._table.rows
                if (curve := self._curve(run.name))[1]
            },
        )
        write_json(self._out / TABLE, {"settings": self._settings, **result.to_dict()})
        paper_page(result).write(self._out / PAGE)
        return result

    def _scale(self) -> str:
        """Describe the scale at which the table is run."""
        options = self._options
        tokens = [
            record["result"]["final"].get("tokens")
            for name, record in self._records.items()
            if name.startswith("pretrained/")
        ]
        seen = [int(value) for value in tokens if value]
        sizes = {elmo_size(row, options) or sizes_of(options) for row in self._table.rows}
        text = "here: " if self._table.given else f"here: {' and '.join(sorted(sizes))}, "
        if seen:
            few, many = human_count(min(seen)), human_count(max(seen))
            text += f"{few if few == many else f'{few} to {many}'} tokens of pre-training a row, "
        verbs = {MEASURES[cell.column].verb for cell in self._plan.cells}
        if verbs & {"finetune", "feature_based"}:
            text += f"{plural(options.seeds, 'seed')} of fine-tuning, "
        elif "time" in verbs:
            text += f"{options.seeds} times, "
        text = text.removesuffix(", ")
        return f"{text}; in the paper: {self._table.scale}" if self._table.scale else text

    def _curve(self, row: str) -> tuple[list[int], list[float]]:
        lines = [
            line
            for line in read_log(self._out / "pretrained" / row / "log.jsonl", mend=True)
            if isinstance(line.get("loss"), int | float)
        ]
        return [int(line["step"]) for line in lines], [float(line["loss"]) for line in lines]
