"""Run a table of a paper at any scale: ``paper``."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.core import workers
from bertine.core.console import Shown, aligned, human_count, human_time, logger, plural
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import lock_folder, os_errors, read_json_object, write_json
from bertine.core.names import option
from bertine.options.experiments import PaperOptions, PaperScale
from bertine.options.verbs import takes_options
from bertine.papers.model_steps import elmo_size, sizes_of
from bertine.papers.plan import Plan, plan_of
from bertine.papers.result import PAGE, TABLE, PaperResult, paper_page
from bertine.papers.steps import Step, do_on_ray, do_step, read_record
from bertine.papers.table import MEASURES, PaperTable, read_table, table_names, with_weights
from bertine.reports.run_files import read_log
from bertine.training.run import refuse_changes

# List: the available tables.


@dataclass(repr=False)
class PaperTables(Shown):
    """The available tables.

    Attributes:
        tables: in the order of their names.
    """

    tables: list[PaperTable]

    def lines(self) -> list[str]:
        """Return a line for each table: name, title, number of rows, paper."""
        rows = [[t.name, t.title, f"{len(t.rows)} rows", t.paper] for t in self.tables]
        return aligned(rows, left=(0, 1, 3))


def paper_tables() -> PaperTables:
    """List the tables of the papers that :func:`~bertine.paper` runs."""
    return PaperTables([read_table(name) for name in table_names()])


#: Options of the scale that may change when a table is resumed: more seeds are more runs.
_FREE = ("seeds",)
#: A function of the number of a step and its last message.
_OnEnd = Callable[[int, dict[str, Any]], None]


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
            ``squad/``, ``swag/``, ``ner/``, ``sib200/``, ``ocnli/``. Columns without data are left
            out, with a note. None: only columns that need none are run.
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
    elif options.weights:
        raise BertineError(f"{name}: pre-trains its rows; {option('weights')} is for other tables")
    elif corpus is None:
        raise BertineError(f"{name}: pre-trains its rows; give the texts with {option('corpus')}")
    if options.paper_grid and not table.given:
        raise BertineError(
            f"{name}: pre-trains its rows; {option('paper_grid', True)} is for tables of given "
            "weights"
        )
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
    with _opened(out, settings, options.resume):
        for which in options.rerun or ():
            _remove(plan, table, out, which)
        return _Running(table, plan, out, options, settings).finish()


@contextlib.contextmanager
def _opened(out: Path, settings: dict[str, Any], resume: bool) -> Iterator[None]:
    """Begin a table in `out`, or find its progress; lock the folder against other processes."""
    file = out / TABLE
    if out.exists() and not out.is_dir():
        raise BertineError(f"{out}: is a file; choose another folder for the table")
    if file.exists():
        if not resume:
            raise BertineError(
                f"{out}: holds a table already; add {option('resume', True)} to go on with it, or "
                "choose another folder"
            )
        known = read_json_object(file, lenient=True).get("settings", {})
        refuse_changes(file, "table was begun", known, settings)
    elif out.exists() and any(
        not entry.name.startswith(f".{TABLE}.tmp-") for entry in out.iterdir()
    ):
        raise BertineError(f"{out}: is not empty and holds no table; choose another folder for it")
    with os_errors(out, "writing it"):
        out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out, "another process is at this table; wait for it"):
        if not file.exists():
            write_json(file, {"settings": settings})
        yield


def _remove(plan: Plan, table: PaperTable, out: Path, which: str) -> None:
    """Remove the results of a row, or of a cell as ROW/COLUMN, and of everything that depends on
    them.

    Raises:
        BertineError: there is no such row or column.
    """
    row, _, column = which.partition("/")
    if row not in [each.name for each in table.rows] or (column and column not in table.columns):
        rows = ", ".join(each.name for each in table.rows)
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


class _Running:
    """A table in progress."""

    def __init__(
        self,
        table: PaperTable,
        plan: Plan,
        out: Path,
        options: PaperOptions,
        settings: dict[str, Any],
    ) -> None:
        self._table, self._plan, self._out, self._options = table, plan, out, options
        self._settings = settings
        self._records: dict[str, dict[str, Any]] = {}
        self._failed: dict[str, str] = {}

    def finish(self) -> PaperResult:
        """Do the unfinished steps, level by level, and write the result."""
        for step in self._plan.steps.values():
            record = read_record(step, self._out)
            if record is not None:
                self._records[step.name] = record
        total, known = len(self._plan.steps), len(self._records)
        logger.info(
            f"{self._table.name}: {plural(total, 'step')}"
            + (f", {known} of them done before" if known else "")
        )
        for name, why in self._plan.left_out.items():
            logger.warning(f"{name} is left out: {why}")
        for level in self._plan.levels():
            self._do([step for step in level if step.name not in self._records])
            self._result()
        return self._result()

    def _do(self, steps: list[Step]) -> None:
        """Do the steps of a level."""
        ready = []
        for step in steps:
            missing = [name for name in step.needs if name not in self._records]
            if missing:
                self._failed[step.name] = f"needs {missing[0]}, which failed"
            else:
                ready.append(step)
        # Steps that measure time run alone on the machine.
        self._run([step for step in ready if step.verb != "time"])
        for step in ready:
            if step.verb == "time":
                logger.info(f"--- {step.name}")
                self._ended(step, do_step(step.job(self._out)))

    def _run(self, ready: list[Step]) -> None:
        """Do steps whose requirements are done, one after the other or in parallel."""
        if not ready:
            return
        jobs = [step.job(self._out) for step in ready]

        def on_end(number: int, message: dict[str, Any]) -> None:
            self._ended(ready[number], message)

        options = self._options
        if options.ray is not None:
            workers.run_ray(jobs, do_on_ray, on_end, options.ray)
        elif options.processes > 1 and len(jobs) > 1:
            processes = min(options.processes, len(jobs))
            workers.run_processes(jobs, ["bertine.papers.steps"], on_end, processes)
        else:
            for number, job in enumerate(jobs):
                logger.info(f"--- {ready[number].name}")
                on_end(number, do_step(job))

    def _ended(self, step: Step, message: dict[str, Any]) -> None:
        done = message.get("done")
        if done is None:
            self._failed[step.name] = message.get("error") or message["lost"]
            logger.warning(f"{step.name} failed: {self._failed[step.name]}")
            return
        self._records[step.name] = done
        self._failed.pop(step.name, None)
        logger.info(f"{step.name}: done in {human_time(done['seconds'])}")

    def _result(self) -> PaperResult:
        """Return the current result, and write it."""
        scores: dict[str, dict[str, list[float]]] = {}
        for cell in self._plan.cells:
            measure = MEASURES[cell.column]
            found = [
                record["result"]["scores"].get(measure.score)
                for name in cell.steps
                if (record := self._records.get(name)) is not None
            ]
            # The scores of all restarts of a grid are in one step.
            values = [one for each in found for one in (each if isinstance(each, list) else [each])]
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
