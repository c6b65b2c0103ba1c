"""Write and read checkpoints, keep the best one, and end a run between two steps.

A checkpoint is everything that a run needs to continue as if it had not stopped: a folder
``checkpoints/step-00001200``. It is written under a temporary name and renamed, so that it is
either complete or absent; checksums detect later damage on the disk. Batches, masks and dropout are
functions of (seed, step), so weights, optimizer moments, the step and the sums for the next line of
the log are the whole state.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import signal
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertine.core import cpu
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, check_regular, read_json
from bertine.core.names import option
from bertine.core.process import raise_terminated
from bertine.core.strict_json import Jsonable
from bertine.training.distributed import DistContext, gathered, put

_FORMAT = 2

#: The keys of the state in every checkpoint.
_STATE = ("step", "tokens", "elapsed", "meter", "best", "crc32", "crc32_of_this")

_WEIGHTS, _MOMENTS = "model.safetensors", "optimizer.safetensors"


def _moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{kind}:{name}"] = value
    return tensors


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.data for name, parameter in model.named_parameters()}


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    keep: int,
    world: DistContext | None = None,
) -> Path:
    """Write ``folder/step-N`` (N = ``state["step"]``), then remove all others except the newest
    `keep` and those that these record as the best (``state["best"]``).

    An existing checkpoint of that step is kept: it is the same.

    Args:
        world: all its processes must call this; the first one writes. The files are the same for
            any number of them, and whether `model` is sharded or not.
    """
    world = world or DistContext()
    path = checkpoint_path(folder, state["step"])
    weights = gathered(_weights(model), world)
    moments = gathered(_moments(model, optimizer), world)
    world.alone(lambda: _write(path, weights, moments, state, keep))
    return path


def _write(
    path: Path,
    weights: dict[str, Tensor],
    moments: dict[str, Tensor],
    state: dict[str, Any],
    keep: int,
) -> None:
    folder = path.parent
    if _is_whole(path):
        return
    with atomic_dir(path) as temporary:
        save_file(weights, temporary / _WEIGHTS)
        save_file(moments, temporary / _MOMENTS)
        sums = {name: _checksum(temporary / name) for name in (_WEIGHTS, _MOMENTS)}
        described = {"format": _FORMAT, **state, "crc32": sums}
        described["crc32_of_this"] = _checksum_of(described)
        # Last, and in the same folder: if it is missing, the checkpoint is incomplete, even where
        # rename is not atomic.
        (temporary / "state.json").write_text(
            json.dumps(described, indent=2) + "\n", encoding="utf-8"
        )
    whole = checkpoints(folder)
    best = {_best(kept) for kept in whole[-keep:]}
    for old in whole[:-keep] if keep > 0 else []:
        if old in best:
            continue
        # Hide it first, so that an interrupted removal leaves no incomplete checkpoint.
        hidden = old.with_name(f".{old.name}.tmp-old")
        os.replace(old, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of `step`, whether it exists or not."""
    return folder / f"step-{step:08d}"


def _best(path: Path) -> Path | None:
    """Return the checkpoint of the best evaluation that the one at `path` records; None also if the
    latter is damaged."""
    try:
        best = read_state(path)["best"]
    except BertineError:
        return None
    return None if best is None else checkpoint_path(path.parent, best["step"])


def _is_whole(path: Path) -> bool:
    return (path / "state.json").is_file()


def _candidates(folder: Path) -> list[Path]:
    """Return what has the name of a checkpoint in `folder`; copies under other names do not
    count."""
    return sorted(path for path in folder.glob("step-*") if path.name[5:].isdecimal())


def checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints in `folder`, oldest first."""
    return [path for path in _candidates(folder) if _is_whole(path)]


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files and folders that a killed process left in `folder`."""
    for path in folder.glob(".*.tmp-*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_torn(folder: Path) -> None:
    """Delete the incomplete checkpoints from `folder`."""
    remove_leftovers(folder)
    for path in _candidates(folder):
        if not _is_whole(path):
            shutil.rmtree(path, ignore_errors=True)


def _checksum(file: Path) -> int:
    """Compute the CRC-32 of `file`: if a disk flips a bit of a weight, the file still loads."""
    value = 0
    check_regular(file)
    with open(file, "rb") as handle:
        while block := handle.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def _checksum_of(state: dict[str, Any]) -> int:
    """Compute the CRC-32 of a state without its own checksum."""
    rest = {key: value for key, value in state.items() if key != "crc32_of_this"}
    return zlib.crc32(json.dumps(rest).encode())


def _read(path: Path, checksum: int) -> dict[str, Tensor]:
    try:
        if checksum != _checksum(path):
            raise DamagedCheckpoint(path, "its checksum differs")
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DamagedCheckpoint(path, error) from error


class DamagedCheckpoint(BertineError):
    """A damaged file of a checkpoint.

    Attributes:
        what: which file, and the damage; the message adds advice for the last checkpoint of a run.
    """

    def __init__(self, path: Path, why: object) -> None:
        self.what = f"{path}: damaged checkpoint ({why})"
        super().__init__(f"{self.what}; delete its folder to go on from the one before")


@torch.no_grad()
def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, world: DistContext | None = None
) -> dict[str, Any]:
    """Restore `model` and `optimizer` in place from the folder `path`; return the checkpoint's
    state.

    Args:
        world: all its processes must call this; the first one reads and sends the tensors to the
            others.

    Raises:
        BertineError: a file is damaged, or the checkpoint is of another model.
    """
    world = world or DistContext()
    state: dict[str, Any] = world.alone(lambda: read_state(path))
    for file, current in ((_WEIGHTS, _weights(model)), (_MOMENTS, _moments(model, optimizer))):
        stored: dict[str, Tensor] = {}
        checksum = state["crc32"][file]
        world.alone(functools.partial(_read_into, stored, path / file, current, checksum))
        for name, tensor in current.items():
            put(tensor, stored.get(name), world)
    return state


@torch.no_grad()
def load_weights(path: Path, model: nn.Module) -> None:
    """Restore only the weights of `model` from the checkpoint `path`, in one process; raise what
    :func:`load_checkpoint` raises."""
    stored: dict[str, Tensor] = {}
    weights = _weights(model)
    _read_into(stored, path / _WEIGHTS, weights, read_state(path)["crc32"][_WEIGHTS])
    for name, tensor in weights.items():
        tensor.copy_(stored[name])


def read_state(path: Path) -> dict[str, Any]:
    """Return the state that was passed to :func:`save_checkpoint` for the checkpoint `path`.

    Raises:
        BertineError: it is damaged, or of another format.
    """
    file = path / "state.json"
    try:
        state = read_json(file, lenient=True)
    except BertineError as error:
        raise DamagedCheckpoint(file, str(error).removeprefix(f"{file}: ")) from error
    if not isinstance(state, dict):
        raise DamagedCheckpoint(file, "not a JSON object")
    if state.get("format") != _FORMAT:
        raise BertineError(
            f"{path}: a checkpoint of another version (format {state.get('format')}, here "
            f"{_FORMAT}); finish the run with the version that began it"
        )
    missing = next((key for key in _STATE if key not in state), None)
    if missing is not None:
        raise DamagedCheckpoint(file, f"{missing} is missing")
    if state["crc32_of_this"] != _checksum_of(state):
        raise DamagedCheckpoint(file, "its checksum differs")
    return state


def _read_into(
    stored: dict[str, Tensor], file: Path, current: dict[str, Tensor], checksum: int
) -> None:
    """Fill `stored` with the tensors of `file`, which must have the names and shapes of
    `current`."""
    stored.update(_read(file, checksum))
    if stored.keys() != current.keys():
        name = sorted(stored.keys() ^ current.keys())[0]
        raise BertineError(f"{file}: is of another model (differs in {name})")
    for name, tensor in current.items():
        if stored[name].shape != tensor.shape:
            raise BertineError(
                f"{file}: {name} is {list(stored[name].shape)}, "
                f"but this model has {list(tensor.shape)}"
            )


# The best evaluation of a run, and the checkpoint that holds its weights.
#
# Each checkpoint records which evaluation was the best until then, and an evaluation better than
# all before it causes a checkpoint at once. So the newest complete checkpoint always knows the best
# one (itself, or an older one that is kept for it), whenever the run was killed.


@dataclass(frozen=True)
class Best(Jsonable):
    """An evaluation that was better than all before it.

    Attributes:
        step: the number of steps done when it was made.
        metric: the score's name.
        value: the score.
    """

    step: int
    metric: str
    value: float


@dataclass(frozen=True)
class Choice:
    """The score by which evaluations are compared. Of equal ones the first is the best; a score
    that is NaN is never the best.

    Attributes:
        metric: the score's name.
        highest: whether the highest score is the best, not the lowest.
    """

    metric: str
    highest: bool

    def better(self, best: Best | None, step: int, scores: Mapping[str, float]) -> Best | None:
        """Return the better one of `best` and the evaluation `scores` after `step`."""
        value = scores.get(self.metric)
        if value is None or math.isnan(value):
            return best
        latest = Best(step, self.metric, float(value))
        if best is None or best.metric != self.metric:
            return latest
        wins = value > best.value if self.highest else value < best.value
        return latest if wins else best


def restored(state: Mapping[str, Any]) -> Best | None:
    """Return the best evaluation recorded in the state of a checkpoint."""
    best = state.get("best")
    return None if best is None else Best(**best)


def recorded_best(folder: Path) -> Best | None:
    """Return the best evaluation of the run whose checkpoints are in `folder`; None if there is
    none.

    Raises:
        BertineError: the newest checkpoint cannot be read.
    """
    kept = checkpoints(folder)
    return restored(read_state(kept[-1])) if kept else None


def load_best(folder: Path, model: nn.Module) -> Best | None:
    """Load the weights of the best evaluation into `model`, from the checkpoints in `folder`.

    Returns:
        That evaluation; None if there is none, and the model is unchanged.

    Raises:
        BertineError: its checkpoint is missing or damaged.
    """
    best = recorded_best(folder)
    if best is not None:
        path = checkpoint_path(folder, best.step)
        advice = f"put it back, or resume the run without {option('save_best', True)}"
        if path not in checkpoints(folder):
            raise BertineError(
                f"{path}: the checkpoint of the best evaluation is missing; {advice}"
            )
        try:
            load_weights(path, model)
        except DamagedCheckpoint as error:  # earlier ones do not help here
            raise BertineError(f"{error.what}; {advice}") from error
    return best


# Early end: stop a run before its last step on request of the caller.

_ASKED: ContextVar[Callable[[int], bool] | None] = ContextVar("ends_runs", default=None)


@contextmanager
def stop_when(over: Callable[[int], bool]) -> Iterator[None]:
    """End runs that are trained in this context when `over` returns True: the model is written as
    it is then, with a learning rate that has not come down.

    Args:
        over: called after every step with the number of steps done; each of several processes has
            its own.
    """
    token = _ASKED.set(over)
    try:
        yield
    finally:
        _ASKED.reset(token)


def stop_requested(done: int, in_any: Callable[[bool], bool] = bool) -> bool:
    """Return whether a run is to end after `done` steps.

    Args:
        in_any: combines the answers of all processes: True if any of them is to end.
    """
    over = _ASKED.get()
    return over is not None and in_any(over(done))


# Signals: Ctrl-C and SIGTERM during training are handled between two steps, never within an update
# of the weights.

#: The signals, each with its default handlers.
_USUAL: dict[signal.Signals, tuple[Callable[[int, FrameType | None], Any] | int, ...]] = {
    signal.SIGINT: (signal.default_int_handler,),
    signal.SIGTERM: (signal.SIG_DFL, raise_terminated),
}


class Interrupt:
    """A handler that delays the first SIGINT or SIGTERM until the loop asks for it; a second signal
    interrupts at once.

    An interruption between the updates of two parameters would leave weights that belong to no
    step, and a checkpoint of them would not resume exactly. SIGTERM is sent some seconds before
    SIGKILL when a machine is taken away (by a cluster's scheduler, by ``docker stop``). Nothing is
    changed where signals do not arrive (in a thread) or where the program has its own handler.

    With several processes, each gets the signal more than once (from the terminal, and passed on by
    ``torchrun``, which also sends SIGTERM, and SIGKILL to those that have not ended after 30 s). So
    a second signal has no effect there.

    Attributes:
        requested: whether a signal has arrived.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number, usual in _USUAL.items():
                if signal.getsignal(number) in usual:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and not cpu.launched():
            raise KeyboardInterrupt
        if self.requested or not cpu.is_main():
            self.requested = True
            return
        self.requested = True
        # Not through the console: this may run while something else is being printed.
        again = b"" if cpu.launched() else b"; interrupt again to stop at once"
        os.write(2, b"\nstopping after this step" + again + b"\n")
