"""Open the folder of a training run, and decide whether the run can be resumed.

RUN/
  run.json        the resolved settings; versions and machine
  log.jsonl       one object a line
  checkpoints/    step-00001000/ …, complete or absent
  model/          the model directory, when the run is done
"""

from __future__ import annotations

import contextlib
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertine.core.console import logger
from bertine.core.names import __version__, option
from bertine.core.published import PublishedName
from bertine.core.task_info import TaskInfo
from bertine.hub.model_directory import TASK
from bertine.models.precision import using_threads
from bertine.options.declare import free_in, own_of_processes
from bertine.options.finetuning import FinetuneOptions
from bertine.options.pretraining import PretrainOptions
from bertine.options.vectors import SimilarityOptions
from bertine.reports.run_files import DATA, START, read_begun
from bertine.training.checkpoint import checkpoints, remove_torn
from bertine.training.distributed import DistContext
from bertine.training.job_folder import JobFolder

#: The file that marks a folder as that of a run.
_SETTINGS = "run.json"

_TRAINING = (FinetuneOptions, PretrainOptions, SimilarityOptions)
#: Where data and models came from.
_ORIGINS = tuple(
    f"{one}_{what}" for one in ("data", "model", "teacher") for what in ("path", "files")
)
#: Settings that may differ when a run is resumed: they do not change what is computed.
#: The exception is ``split_seed`` if the examples differ: see `refuse_changes`.
_FREE = free_in("run", _TRAINING) | {"held_out_tokens", "bf16_speedup", "threads", *_ORIGINS}
_JOB = JobFolder("run", _SETTINGS, _FREE, scraps=(START, DATA, "tensorboard/*"))

#: Settings that may differ from process to process. The others decide what is computed, or when the
#: processes synchronize: if one evaluated more often than the others, they would wait for it.
_OWN = own_of_processes(_TRAINING) | {*_ORIGINS}


@dataclass(frozen=True)
class Run:
    """The folder of a run, opened by :meth:`open`.

    Attributes:
        folder: the run's folder.
        checkpoint: the checkpoint to resume from; None at the start of a run.
        finished: whether the run had already reached its end.
    """

    folder: Path
    checkpoint: Path | None
    finished: bool

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def environment(self) -> dict[str, Any]:
        """Versions and machine at the start of the run."""
        return read_begun(self.folder / _SETTINGS)[1]

    @property
    def generator(self) -> Path:
        """The model directory of the generator, if one was trained and is kept."""
        return self.folder / "generator"

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        folder: Path | str,
        settings: dict[str, Any],
        resume: bool,
        *,
        world: DistContext | None = None,
        shard: bool = False,
    ) -> Iterator[Run]:
        """Start a run in `folder`, or resume it, and keep all other processes that would train
        there out of the folder until the end.

        Args:
            folder: created if missing, and then removed again if it stays empty.
            settings: everything that decides the result, as JSON values. If they contain
                ``threads``, PyTorch computes with that number until the end.
            resume: resume the run in the folder; if there is none, start one.
            world: the processes of the run, which all call this; only the first one reads the
                folder. A run may be resumed by another number of them.
            shard: whether they divide the weights.

        Raises:
            BertineError: a run exists and `resume` is False; or it was started with other settings
                than these; or not all processes have the same settings; or another process is
                training there.
        """
        folder, world = Path(folder), world or DistContext()
        if shard and world.size == 1:
            logger.warning("shard: this is one process, which has nothing to divide; see torchrun")
        world.same({k: v for k, v in settings.items() if k not in _OWN}, "setting")
        with contextlib.ExitStack() as hold:
            hold.enter_context(using_threads(settings.get("threads", torch.get_num_threads())))
            environment = _environment()
            if world.size > 1:
                environment |= {"processes": world.size, "sharded": shard}

            def enter() -> tuple[str | None, bool]:
                started = {"environment": environment}
                known = hold.enter_context(_JOB.open(folder, settings, resume, started))
                return cls._begin(folder, bool(known), environment)

            checkpoint, finished = world.alone(enter)
            yield cls(folder, None if checkpoint is None else Path(checkpoint), finished)

    @classmethod
    def _begin(
        cls, folder: Path, known: bool, environment: dict[str, Any]
    ) -> tuple[str | None, bool]:
        """Return the checkpoint to resume from and whether the run is finished."""
        file = folder / _SETTINGS
        if known:
            _compare_environment(file, read_begun(file)[1], environment)
            remove_torn(folder / "checkpoints")
        steps = checkpoints(folder / "checkpoints")
        finished = (folder / "model").exists()
        if known and not steps and not finished:
            logger.info(
                f"{folder}: has no checkpoint yet, so the run begins again from its first step"
            )
        return (str(steps[-1]) if steps else None, finished)

    #: See :meth:`bertine.training.job_folder.JobFolder.check`.
    check = staticmethod(_JOB.check)

    @staticmethod
    def begun(folder: Path | str) -> dict[str, Any] | None:
        """Return the settings of the run in `folder`; None if there is no run yet."""
        file = Path(folder) / _SETTINGS
        return read_begun(file)[0] if file.exists() else None

    @staticmethod
    def steps(folder: Path | str) -> int | None:
        """Return the number of steps of the run in `folder`; None if there is no run yet."""
        steps = (Run.begun(folder) or {}).get("steps")
        return steps if isinstance(steps, int) else None

    @staticmethod
    def model_of(folder: Path | str, model: Any, resume: bool, part: str = "model") -> Any:
        """Return the model that a run begins or goes on with: a published one is that of the
        revision in the record of the run, where one is resumed; else `model` itself."""
        given = PublishedName.parse(model)
        was = PublishedName.parse((Run.begun(folder) or {}).get(f"{part}_path")) if resume else None
        return str(was) if given and was and given.may_be(was) else model

    def say_finished(self, save_best: bool) -> None:
        """Print that the run was already finished, and that `save_best` has no effect if the run
        was trained without it."""
        logger.info(f"{self.folder}: the run was finished already")
        if save_best and not TaskInfo.read(self.model / TASK).training.get("save_best"):
            logger.warning(
                f"{self.folder}: {option('save_best', True)} has no effect on a finished run: the "
                "model is that of the last step; to get the best one, run it again in another "
                "folder"
            )

    def remove_checkpoints(self) -> None:
        """Remove the checkpoints of a run that is finished and will not be resumed."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def discard(self) -> None:
        """Remove what a run has made that failed before its first step was done; :meth:`open` then
        removes the rest, so that it can be started again after the mistake is corrected."""
        (self.folder / "log.jsonl").unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def _compare_environment(file: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Print the differences of this machine that may give other bits for the same computation."""
    usual = {"processes": 1, "sharded": False}
    old, new = usual | old, usual | new
    for key, value in new.items():
        if key != "python" and old.get(key) != value:
            logger.warning(
                f"{file}: the run was started with {key} {old.get(key)}, not {value}; it goes on, "
                "but not bit for bit as it would have"
            )


def _environment() -> dict[str, Any]:
    return {
        "bertine": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }
