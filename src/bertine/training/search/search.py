"""Do a grid of fine-tuning runs with several seeds, and choose among them: ``search``.

The paper's protocol (Devlin et al. 2018, sections 4.1 and A.3): a few batch sizes, learning rates
and numbers of epochs, random restarts if runs are unstable, the choice by the dev set.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bertine.core.console import human_time, logger, plural, progress
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, lock_folder, os_errors, read_json_object, write_json
from bertine.core.model_folders import locate
from bertine.core.names import TaskName, option
from bertine.core.task_info import TaskInfo
from bertine.data.in_memory import TableLike, as_data
from bertine.data.writer import write_given
from bertine.datasets.readers import DatasetSplits, read_labelled
from bertine.hub.model_directory import load_config
from bertine.options.declare import free_in, names_of
from bertine.options.experiments import SearchOptions
from bertine.options.finetuning import FinetuneOptions
from bertine.options.verbs import takes_options
from bertine.training.checkpoint import remove_leftovers
from bertine.training.computing import names_one_task, reading_of
from bertine.training.defaults import TrainingPlan
from bertine.training.run_folder import refuse_changes
from bertine.training.search.runs import Jobs, OnEnd, run_here, run_processes, run_ray
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

_WEIGHTS = "model.safetensors"


@dataclasses.dataclass(frozen=True)
class SearchFolder:
    """The folder of a search, opened by :meth:`open`.

    Attributes:
        path: the folder.
        settings: of the search, except its grid.
        known: the runs that were done before.
        metric_names: the metrics by which they were judged.
    """

    path: Path
    settings: dict[str, Any]
    known: dict[str, SearchRun]
    metric_names: tuple[str, ...] = ()

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, settings: dict[str, Any], resume: bool) -> Iterator[SearchFolder]:
        """Begin a search in `path`, or resume it; lock the folder against other processes.

        A folder that is still empty at the end is removed, if it was created here.

        Raises:
            BertineError: something else is in the folder; or a search, and `resume` is False, or it
                was begun with other settings; or another process is using the folder.
        """
        cls._check(path, resume)
        new = not path.exists()
        with os_errors(path, "writing it"):
            path.mkdir(parents=True, exist_ok=True)
        with lock_folder(path, "is being searched by another process; wait for it"):
            remove_leftovers(path)
            settings = json.loads(json.dumps(settings))  # tuples are lists, as in the file
            runs, names = cls._read(path / TABLE, settings)
            try:
                yield cls(path, settings, runs, names)
            finally:
                cls._clear(path, new)

    @classmethod
    def _clear(cls, path: Path, new: bool) -> None:
        """Remove the files of a search without a finished run."""
        if any((entry / "run.json").exists() for entry in path.iterdir()):
            return
        if (path / TABLE).exists() and read_json_object(path / TABLE, lenient=True).get("runs"):
            return
        (path / TABLE).unlink(missing_ok=True)
        shutil.rmtree(path / "logs", ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):  # holds something else
                path.rmdir()

    @staticmethod
    def _check(path: Path, resume: bool) -> None:
        if path.exists() and not path.is_dir():
            raise BertineError(f"{path}: is a file; choose another folder for the search")
        if (path / "run.json").exists():
            raise BertineError(f"{path}: holds a run; choose another folder for the search")
        if (path / TABLE).exists():
            if not resume:
                raise BertineError(
                    f"{path}: holds a search already; add {option('resume', True)} to go on with "
                    "it, or choose another folder"
                )
        elif path.exists() and any(
            not entry.name.startswith(f".{TABLE}.tmp-") for entry in path.iterdir()
        ):
            raise BertineError(
                f"{path}: is not empty and holds no search; choose another folder for it"
            )

    @staticmethod
    def _read(file: Path, settings: dict[str, Any]) -> tuple[dict[str, SearchRun], tuple[str, ...]]:
        """Read the finished runs, by name, and the metrics by which they were judged."""
        if not file.exists():
            return {}, ()
        table = read_json_object(file, lenient=True)
        try:
            old, names = dict(table["settings"]), tuple(map(str, table["metric_names"]))
            runs = [SearchRun.from_dict(run) for run in table["runs"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BertineError(f"{file}: damaged, or no table of a search ({error!r})") from error
        refuse_changes(file, "search was begun", old, settings)
        return {run.name: run for run in runs if run.failed is None}, names

    def run(self, trial: Trial) -> Path:
        """Return the folder of a run."""
        return self.path / trial.name

    def log(self, trial: Trial) -> Path:
        """Return the log file of a run in another process; it also gets the traceback of an
        error."""
        return self.path / "logs" / f"{trial.name}.log"

    def write(self, result: SearchResult) -> None:
        """Write the current results."""
        write_json(self.path / TABLE, {"settings": self.settings, **result.to_dict()})

    def has_weights(self, trial: Trial) -> bool:
        """Return whether the weights of a run exist."""
        return (self.run(trial) / "model" / _WEIGHTS).exists()

    def keep_weights(self, runs: Collection[SearchRun], needed: Collection[str]) -> None:
        """Remove the weights of the runs whose names are not `needed`; the rest of their folders,
        scores and logs, is kept."""
        for run in runs:
            if run.name not in needed:
                with os_errors(self.run(run.trial), "removing its weights"):
                    (self.run(run.trial) / "model" / _WEIGHTS).unlink(missing_ok=True)

    def take_model(self, result: SearchResult) -> None:
        """Make ``model/`` the model directory of the best run, and add to its ``bertine.json`` how
        it was chosen. The weights are stored once: the two names are hard links to one file."""
        best, chosen = result.best, result.chosen
        if best is None or chosen is None:
            return
        source = self.run(best.trial) / "model"
        with atomic_dir(self.path / "model") as folder:
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
#: The default seed of the held-out split: the same in all runs.
_SPLIT_SEED = 0


@takes_options(FinetuneOptions, but=_OWN)
def search(
    task: TaskName,
    *,
    model: Path | str,
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
    if paper_grid or None not in (grid.batch_sizes, grid.learning_rates, grid.epochs):
        otherwise = PAPER_GRID
    else:
        tuning = FinetuneOptions(**options)
        labelled = read_labelled(task, source, seed=_SPLIT_SEED, reading=reading_of(tuning))
        built = labelled.build(labelled.max_length)
        count = len(labelled.train)
        otherwise = grid_around(TrainingPlan.of(tuning, load_config(model), count, built))
    wanted = SearchGrid.of(grid, otherwise)
    # If all machines see the same paths, these must not depend on the working directory.
    place: Callable[[Any], str] = os.path.abspath if ray is not None else str
    changed = FinetuneOptions(**options).changed()
    if paper_grid and options["save_best"] is None and options["patience"] is None:
        changed["save_best"] = False  # the paper uses the weights of the last epoch
    settings = {"task": task, "split_seed": _SPLIT_SEED}
    settings |= {key: value for key, value in sorted(changed.items()) if key not in _FREE}
    with SearchFolder.open(Path(out), settings, grid.resume) as folder:
        if not isinstance(source, str | Path):
            # Each run reads them again, possibly in another process.
            source = write_given(source, folder.path / "data")
        arguments = {"task": task, "model": place(locate(model)), "data": place(source), **changed}
        do: Callable[[Jobs, OnEnd], None] = run_here
        if ray is not None:
            do = partial(run_ray, address=ray, processes=processes)
        elif processes not in (None, 1):
            do = partial(run_processes, processes=processes, device=options["device"])
        return _Search(folder, wanted, arguments, place, grid.keep_models).finish(do)


class _Search:
    """A search in progress.

    Args:
        folder: its folder.
        grid: the settings to try.
        arguments: of all runs, as JSON.
        place: converts a path to the form that a run gets.
        keep_models: whether the weights of all runs are kept.
    """

    def __init__(
        self,
        folder: SearchFolder,
        grid: SearchGrid,
        arguments: dict[str, Any],
        place: Callable[[Any], str],
        keep_models: bool,
    ) -> None:
        self._folder, self._arguments = folder, json.loads(json.dumps(arguments))
        self._place, self._keep_models = place, keep_models
        self._runs = dict(folder.known)
        wanted = grid.trials
        # Runs that were done before with other values of the grid stay in the table.
        others = [run.trial for run in self._runs.values() if run.trial not in wanted]
        self._planned = [*wanted, *others]
        self._metric_names = folder.metric_names
        logger.info(f"search: {grid}")
        before = sum(trial.name in self._runs for trial in wanted)
        logger.info(
            f"{plural(len(wanted), 'run')} of {plural(len(grid.settings), 'setting')}"
            + (f", {before} of them done before" if before else "")
            + (f"; {plural(len(others), 'run')} with other values before" if others else "")
        )

    def job(self, trial: Trial) -> dict[str, Any]:
        """Return a run in the form that :func:`~bertine.training.search.runs.run_one` takes."""
        setting = trial.setting
        return {
            "arguments": {
                **self._arguments,
                "out": self._place(self._folder.run(trial)),
                "batch_size": setting.batch_size,
                "learning_rate": setting.learning_rate,
                "epochs": setting.epochs,
                "seed": trial.seed,
            },
            "split_seed": _SPLIT_SEED,
            "log": self._place(self._folder.log(trial)),
        }

    def finish(self, do: Callable[[Jobs, OnEnd], None]) -> SearchResult:
        """Do the unfinished runs, and choose.

        Args:
            do: does jobs, and calls with the number and the last message of each.
        """
        tried: set[str] = set()
        self._folder.write(self._result())
        while trials := [trial for trial in self._missing() if trial.name not in tried]:
            tried |= {trial.name for trial in trials}
            for trial in trials:
                if trial.name in self._runs:
                    logger.info(f"{trial.name}: its weights are gone, so it is done again")
                    shutil.rmtree(self._folder.run(trial), ignore_errors=True)
            self._do(do, trials)
        result = self._result()
        self._folder.take_model(result)
        self._let_go()
        if self._keep_models:
            done = [run for run in result.runs if run.failed is None]
            gone = sum(not self._folder.has_weights(run.trial) for run in done)
            if gone:
                result.notes.append(
                    f"{plural(gone, 'run')} of {len(done)} had no weights to keep: they were done "
                    f"before, without {option('keep_models', True)}"
                )
        self._folder.write(result)
        search_page(result).write(self._folder.path / PAGE)
        return result

    def _do(self, do: Callable[[Jobs, OnEnd], None], trials: list[Trial]) -> None:
        """Do `trials`. Runs in other processes print nothing, so the number of finished runs is
        shown."""
        with progress(show=do is not run_here) as bar:
            task = bar.add_task("runs", total=len(trials))

            def on_end(number: int, message: dict[str, Any]) -> None:
                run = self._ended(trials[number], message)
                bar.advance(task)
                if do is not run_here:
                    logger.info(_line(run))
                elif run.failed is not None:
                    logger.warning(_line(run))

            do([self.job(trial) for trial in trials], on_end)

    def _missing(self) -> list[Trial]:
        """List the runs to do: the unfinished ones; if there are none, one whose weights are needed
        and missing."""
        missing = [trial for trial in self._planned if trial.name not in self._runs]
        if missing:
            return missing
        needed = needed_weights(self._in_order(), self._planned)
        return [
            trial
            for trial in self._planned
            if trial.name in needed and not self._folder.has_weights(trial)
        ]

    def _ended(self, trial: Trial, message: dict[str, Any]) -> SearchRun:
        """Record the result of a run.

        Raises:
            BertineError: it could not even begin, so that no other can.
        """
        if message.get("mistake"):
            raise BertineError(message["error"])
        if "done" in message:
            run = SearchRun.done(trial, message["done"])
            self._metric_names = tuple(message["done"]["metric_names"])
            self._check_same(run)
        else:
            reason = message["error"] if "error" in message else message["lost"]
            run = SearchRun(trial, failed=reason)
        self._runs[trial.name] = run
        self._folder.write(self._result())
        self._let_go()
        return run

    def _let_go(self) -> None:
        """Remove the weights of runs that can no longer be chosen."""
        if not self._keep_models:
            runs = self._in_order()
            self._folder.keep_weights(runs, needed_weights(runs, self._planned))

    def _check_same(self, run: SearchRun) -> None:
        """Refuse to compare runs on other examples, or from another model."""
        for other in self._runs.values():
            same_seed = other.trial.seed == run.trial.seed
            if other.failed is not None or run.failed is not None:
                continue
            if other.examples != run.examples or (same_seed and other.weights != run.weights):
                what = "examples" if other.examples != run.examples else "model"
                raise BertineError(
                    f"{self._folder.path}: the {what} of {run.name} and {other.name} are not the "
                    "same, so their scores cannot be compared; choose another folder"
                )

    def _in_order(self) -> list[SearchRun]:
        return [self._runs[trial.name] for trial in self._planned if trial.name in self._runs]

    def _result(self) -> SearchResult:
        task = self._arguments.get("glue_task")
        name = self._arguments["task"] if task is None else f"{self._arguments['task']}/{task}"
        return SearchResult(self._folder.path, name, self._metric_names, self._in_order())


def _line(run: SearchRun) -> str:
    """Describe the result of a run in one line."""
    if run.failed is not None:
        return f"{run.name}: failed: {run.failed}"
    ended = f"{run.name}: {100 * (run.score or 0.0):.2f} in {human_time(run.elapsed)}"
    return f"{ended}; collapsed to one answer" if run.collapsed else ended
