"""Keep the folder of a search: what is done, and the weights that may be chosen. One search at a
time.

OUT/
  search.json     what is searched for, every run that is done, the table, the choice
  search.html     the same as a page, with the spread as a plot
  batch16-lr3e-5-epochs3-seed0/ …   the runs, as `finetune` leaves them
  logs/           what runs in other processes printed
  model/          the model directory of the best run
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import atomic_dir, lock_folder, os_errors, read_json_object, write_json
from bertine.options.names import option
from bertine.taskinfo import TaskInfo
from bertine.training.loop.checkpoint import remove_leftovers
from bertine.training.run import refuse_changes
from bertine.training.search.grid import Trial
from bertine.training.search.table import TABLE, SearchResult, SearchRun, best_of

_WEIGHTS = "model.safetensors"


@dataclasses.dataclass(frozen=True)
class SearchFolder:
    """The folder of a search, opened by :meth:`open`.

    Attributes:
        path: the folder.
        settings: what the search is, besides its grid.
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
        """Begin a search in `path`, or find how far it was. No other process may do so meanwhile.

        A folder in which nothing was done in the end is removed, if it was made here.

        Raises:
            BertineError: something else is there; or a search, and `resume` is False, or it was
                begun with other settings; or another process is at it.
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
        """Remove the traces of a search that came to nothing."""
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
        """Read the runs that came to an end, by name, and the metrics they were judged by."""
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
        """Return the file that a run in another process prints to, and to which the traceback of
        an error goes."""
        return self.path / "logs" / f"{trial.name}.log"

    def write(self, result: SearchResult) -> None:
        """Write what is known so far."""
        write_json(self.path / TABLE, {"settings": self.settings, **result.to_dict()})

    def has_weights(self, trial: Trial) -> bool:
        """Tell whether the weights of a run are there."""
        return (self.run(trial) / "model" / _WEIGHTS).exists()

    def keep_weights(self, runs: Collection[SearchRun], needed: Collection[str]) -> None:
        """Remove the weights of the runs whose names are not `needed`; the rest of their folders,
        scores and logs, stays."""
        for run in runs:
            if run.name not in needed:
                with os_errors(self.run(run.trial), "removing its weights"):
                    (self.run(run.trial) / "model" / _WEIGHTS).unlink(missing_ok=True)

    def take_model(self, result: SearchResult) -> None:
        """Make ``model/`` the model directory of the best run, with a word in its ``bertine.json``
        on how it was chosen. The weights are there once: the two are names of one file."""
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
    """List the runs whose weights may still be chosen, by name: the best run of each setting that
    is not done yet, and the best run of the best of those that are."""
    recorded = {run.name for run in runs}
    unfinished = {trial.setting for trial in planned if trial.name not in recorded}
    finished = [run for run in runs if run.trial.setting not in unfinished]
    groups = [
        finished,
        *([r for r in runs if r.trial.setting == setting] for setting in unfinished),
    ]
    return {best.name for best in map(best_of, groups) if best is not None}
