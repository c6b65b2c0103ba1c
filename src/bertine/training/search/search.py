"""Do a grid of fine-tuning runs with several seeds, and choose among them: ``search``.

The paper's protocol (Devlin et al. 2018, sections 4.1 and A.3): a few batch sizes, learning rates
and numbers of epochs, random restarts if runs are unstable, the choice by the dev set.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bertine.core.console import human_time, logger, plural
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, os_errors, write_json
from bertine.core.model_folders import locate
from bertine.core.names import TaskName, option
from bertine.core.task_info import TaskInfo
from bertine.data.in_memory import DataParts, TableLike, as_data
from bertine.data.languages import model_for
from bertine.data.writer import write_given
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import has_validation, read_labelled
from bertine.hub.model_directory import load_config
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.declare import free_in, names_of
from bertine.options.experiments import SearchOptions
from bertine.options.finetuning import FinetuneOptions
from bertine.options.verbs import takes_options
from bertine.reports.run_files import read_begun
from bertine.training.computing import names_one_task
from bertine.training.defaults import TrainingPlan
from bertine.training.experiment import Experiment, Job
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.learner import final_of, seen_of
from bertine.training.job_folder import JobFolder
from bertine.training.search.table import (
    PAGE,
    PAPER_GRID,
    TABLE,
    SearchGrid,
    SearchResult,
    SearchRun,
    Trial,
    best_of,
    grid_around,
    search_page,
)

# The folder of a search: its finished runs, and the weights that may be chosen. One search at a
# time.
#
# OUT/
#   search.json                      the settings, every finished run, the table, the choice
#   search.html                      the same as a page, with the spread as a plot
#   batch16-lr3e-5-epochs3-seed0/ …  the runs, as `finetune` leaves them
#   logs/                            the output of runs in other processes
#   model/                           the model directory of the best run

#: The work of a run, for an experiment.
DO_RUN = "bertine.training.search.search:do_run"


def needed_weights(runs: Collection[SearchRun], planned: Collection[Trial]) -> set[str]:
    """Return the names of the runs whose weights may still be chosen: the best run of each
    unfinished setting, and the best run of the best finished setting."""
    recorded = {run.name for run in runs}
    unfinished = {trial.setting for trial in planned if trial.name not in recorded}
    finished = [run for run in runs if run.trial.setting not in unfinished]
    groups = [
        finished,
        *([r for r in runs if r.trial.setting == setting] for setting in unfinished),
    ]
    return {best.name for best in map(best_of, groups) if best is not None}


#: Arguments of `finetune` that a search has in the plural, or decides itself.
_OWN = names_of(FinetuneOptions, not_in="search")
#: Options that may differ when a search is resumed: they do not change what is computed.
_FREE = free_in("search", [FinetuneOptions])
_JOB = JobFolder("search", TABLE, scraps=("logs/*", "data/*"))
#: The default seed of the held-out split: the same in all runs.
_SPLIT_SEED = 0


@takes_options(FinetuneOptions, but=_OWN)
def search(
    task: TaskName,
    *,
    model: Path | str | None = None,
    data: Path | str | TableLike,
    out: Path | str,
    grid: SearchOptions,
    **options: Any,
) -> SearchResult:
    """Fine-tune with every combination of batch size, learning rate and epochs, with several seeds
    each, and choose on the validation examples (paper, sections 4.1 and A.3).

    Each run is one of :func:`~bertine.finetune`, in its own folder in `out`. The setting with the
    best mean over its seeds is chosen, without the runs that collapsed to one answer; its best run
    gives the model. The table is also written to ``out/search.json``, and with the spread as a plot
    to ``out/search.html``.

    Args:
        task, model, data: as for `finetune`; for GLUE one task, by `glue_task`.
        out: the folder of the search; the model directory is ``out/model``.
        grid: the settings, and how the runs are executed.
        options: as for `finetune`, the same for all runs.

    Returns:
        The table and the choice. A run that failed is named in `failed`, with the reason; the
        others are done nevertheless.

    Raises:
        BertineError: an empty list or an invalid value; what `finetune` raises for a run that
            cannot begin, because then none can; `out` holds something else, or a search that is not
            to be resumed, or was begun with other settings.
    """
    if launched():
        raise BertineError("search starts its own processes; start it without torchrun")
    if isinstance(data, DatasetSplits):
        raise BertineError(
            "a search reads the examples again for each of its runs; give it a path or a table"
        )
    source = as_data(data)
    options["split_seed"] = grid.split_seed
    processes, ray, paper_grid = grid.processes, grid.ray, grid.paper_grid
    if not names_one_task(task, options["glue_task"]):
        raise BertineError("a search is over one task of GLUE; name it with glue_task (--task RTE)")
    otherwise = PAPER_GRID
    whole = paper_grid or None not in (grid.batch_sizes, grid.learning_rates, grid.epochs)
    if model is None or not whole:
        tuning = FinetuneOptions(**options)
        labelled = read_labelled(task, source, DataConfig.of(tuning, DEFAULTS, seed=_SPLIT_SEED))
        model = model or model_for(labelled.train.items)
        if not whole:
            built, count = labelled.make_task(), len(labelled.train)
            otherwise = grid_around(TrainingPlan.of(tuning, load_config(model), count, built))
    wanted = SearchGrid.of(grid, otherwise)
    # If all machines see the same paths, these must not depend on the working directory.
    place: Callable[[Any], str] = os.path.abspath if ray is not None else str
    changed = FinetuneOptions(**options).changed()
    if paper_grid and options["save_best"] is None and options["patience"] is None:
        changed["save_best"] = False  # the paper uses the weights of the last epoch
    settings = {"task": task, "split_seed": _SPLIT_SEED}
    settings |= {key: value for key, value in sorted(changed.items()) if key not in _FREE}
    with _JOB.open(out, settings, grid.resume) as table:
        doing = _Search(Path(out), settings, wanted, place, grid.keep_models, table)
        # Each run reads them again, possibly in another process.
        if isinstance(source, DataParts) and source.published:
            where = source.name
        elif isinstance(source, str | Path):
            where = place(source)
        else:
            where = place(write_given(source, doing.folder / "data"))
        arguments = {"task": task, "model": place(locate(model)), "data": where, **changed}
        return doing.finish(
            json.loads(json.dumps(arguments)), Experiment(processes, ray, options["device"])
        )


def do_run(arguments: dict[str, Any], split_seed: int) -> dict[str, Any]:
    """Do a run, or resume it, and return the results that the search keeps.

    Args:
        arguments: of :func:`~bertine.finetune`, as JSON.
        split_seed: the seed of the held-out split if the data has no validation examples and the
            arguments give no seed.
    """
    folder = Path(arguments["out"])
    config = DataConfig(glue_task=arguments.get("glue_task"))
    if "split_seed" not in arguments and not has_validation(
        arguments["task"], arguments["data"], config
    ):
        arguments = {**arguments, "split_seed": split_seed}
    # The table compares the runs; baselines would be the same for all.
    result = finetune(**arguments, baselines=False, resume=True)
    settings = read_begun(folder / "run.json")[0]
    judged_on = "" if result.origin is None else result.origin.fingerprint
    return {
        "score": result.score,
        "metrics": result.metrics,
        "metric_names": list(result.metric_names),
        "collapsed": bool(final_of(folder).get("collapsed", False)),
        "elapsed": result.elapsed,
        "examples": f"{settings['examples_fingerprint']} {judged_on}",
        "weights": settings["weights_fingerprint"],
        "seen": seen_of(folder),
    }


class _Search:
    """A search in progress.

    Args:
        folder: its folder.
        settings: of the search, except its grid.
        grid: the settings to try.
        place: converts a path to the form that a run gets.
        keep_models: whether the weights of all runs are kept.
        table: what an earlier process has recorded.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        grid: SearchGrid,
        place: Callable[[Any], str],
        keep_models: bool,
        table: dict[str, Any],
    ) -> None:
        self.folder, self._settings = folder, settings
        self._place, self._keep_models = place, keep_models
        try:
            known = [SearchRun.from_dict(run) for run in table.get("runs", ())]
            self._metric_names = tuple(map(str, table.get("metric_names", ())))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BertineError(
                f"{folder / TABLE}: damaged, or no table of a search ({error!r})"
            ) from error
        self._runs = {run.name: run for run in known if run.failed is None}
        wanted = grid.trials
        # Runs that were done before with other values of the grid stay in the table.
        others = [run.trial for run in self._runs.values() if run.trial not in wanted]
        self._planned = [*wanted, *others]
        logger.info(f"search: {grid}")
        before = sum(trial.name in self._runs for trial in wanted)
        logger.info(
            f"{plural(len(wanted), 'run')} of {plural(len(grid.settings), 'setting')}"
            + (f", {before} of them done before" if before else "")
            + (f"; {plural(len(others), 'run')} with other values before" if others else "")
        )

    def finish(self, arguments: dict[str, Any], experiment: Experiment) -> SearchResult:
        """Do the unfinished runs, and choose; `arguments` are those of all runs, as JSON."""
        glue_task = arguments.get("glue_task")
        self._task = arguments["task"] + ("" if glue_task is None else f"/{glue_task}")
        planned = {trial.name: trial for trial in self._planned}

        def job(name: str) -> Job:
            given = {**arguments, "out": self._place(self.folder / name)}
            given |= {**dataclasses.asdict(planned[name].setting), "seed": planned[name].seed}
            log = self._place(self.folder / "logs" / f"{name}.log")
            return Job(DO_RUN, {"arguments": given, "split_seed": _SPLIT_SEED}, log)

        def on_end(name: str, message: dict[str, Any]) -> None:
            run = self._ended(planned[name], message)
            if run.failed is not None:
                logger.warning(_line(run))
            elif not experiment.here:
                logger.info(_line(run))

        tried: set[str] = set()
        while names := [name for name in self._missing() if name not in tried]:
            tried.update(names)
            for name in self._runs.keys() & set(names):
                logger.info(f"{name}: its weights are gone, so it is done again")
                shutil.rmtree(self.folder / name, ignore_errors=True)
            experiment.run({name: job(name) for name in names}, on_end)
        result = self._result()
        _take_model(result)
        self._let_go()
        if self._keep_models:
            done = [run for run in result.runs if run.failed is None]
            gone = sum(not self._weights(run.name).exists() for run in done)
            if gone:
                result.notes.append(
                    f"{plural(gone, 'run')} of {len(done)} had no weights to keep: they were done "
                    f"before, without {option('keep_models', True)}"
                )
        self._write(result)
        search_page(result).write(self.folder / PAGE)
        return result

    def _write(self, result: SearchResult) -> None:
        write_json(self.folder / TABLE, {"settings": self._settings, **result.to_dict()})

    def _weights(self, name: str) -> Path:
        return self.folder / name / "model" / "model.safetensors"

    def _missing(self) -> list[str]:
        """List the runs to do: the unfinished ones; if there are none, one whose weights are needed
        and missing."""
        names = [trial.name for trial in self._planned]
        needed = needed_weights(self._in_order(), self._planned)
        return [name for name in names if name not in self._runs] or [
            name for name in names if name in needed and not self._weights(name).exists()
        ]

    def _ended(self, trial: Trial, message: dict[str, Any]) -> SearchRun:
        """Record the result of a run.

        Raises:
            BertineError: it could not even begin, so that no other can.
        """
        if message.get("mistake") and not (self.folder / trial.name / "run.json").exists():
            raise BertineError(message["error"])
        if "done" in message:
            run = SearchRun.done(trial, message["done"])
            self._metric_names = tuple(message["done"]["metric_names"])
            self._check_same(run)
        else:
            reason = message["error"] if "error" in message else message["lost"]
            run = SearchRun(trial, failed=reason)
        self._runs[trial.name] = run
        self._write(self._result())
        self._let_go()
        return run

    def _let_go(self) -> None:
        """Remove the weights of runs that can no longer be chosen; the rest of their folders,
        scores and logs, is kept."""
        if not self._keep_models:
            for name in self._runs.keys() - needed_weights(self._in_order(), self._planned):
                with os_errors(self.folder / name, "removing its weights"):
                    self._weights(name).unlink(missing_ok=True)

    def _check_same(self, run: SearchRun) -> None:
        """Refuse to compare runs on other examples, or from another model."""
        for other in self._runs.values():
            same_seed = other.trial.seed == run.trial.seed
            if other.failed is not None or run.failed is not None:
                continue
            if other.examples != run.examples or (same_seed and other.weights != run.weights):
                what = "examples" if other.examples != run.examples else "model"
                raise BertineError(
                    f"{self.folder}: the {what} of {run.name} and {other.name} are not the "
                    "same, so their scores cannot be compared; choose another folder"
                )

    def _in_order(self) -> list[SearchRun]:
        return [self._runs[trial.name] for trial in self._planned if trial.name in self._runs]

    def _result(self) -> SearchResult:
        return SearchResult(self.folder, self._task, self._metric_names, self._in_order())


def _take_model(result: SearchResult) -> None:
    """Make ``model/`` the model directory of the best run, and add to its ``bertine.json`` how it
    was chosen. The weights are stored once: the two names are hard links to one file."""
    best, chosen = result.best, result.chosen
    if best is None or chosen is None:
        return
    source = result.out / best.name / "model"
    with atomic_dir(result.out / "model") as folder:
        for file in sorted(source.iterdir()):
            try:
                os.link(file, folder / file.name)
            except OSError:  # no hard links on this file system
                shutil.copyfile(file, folder / file.name)
        info = TaskInfo.read(source / "bertine.json")
        choice = {
            "run": best.name,
            "chosen_among_runs": len(result.runs),
            "chosen_among_settings": len(result.rows),
            "chosen_on": "the mean score on the validation examples; judge the model on others",
            "mean_of_setting": chosen.mean,
            "standard_deviation_of_setting": chosen.deviation,
        }
        info = dataclasses.replace(info, training={**info.training, "search": choice})
        write_json(folder / "bertine.json", info.to_dict())


def _line(run: SearchRun) -> str:
    """Describe the result of a run in one line."""
    if run.failed is not None:
        return f"{run.name}: failed: {run.failed}"
    ended = f"{run.name}: {100 * (run.score or 0.0):.2f} in {human_time(run.elapsed)}"
    return f"{ended}; collapsed to one answer" if run.collapsed else ended
