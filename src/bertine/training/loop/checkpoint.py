"""Checkpoints: everything a run needs to go on as if nothing had happened.

A checkpoint is a folder ``checkpoints/step-00001200`` written beside and renamed, so that it is
either whole or absent; checksums tell what the disk has changed since. Batches, masks and dropout
are functions of (seed, step), so weights, optimizer moments, the step and the sums for the next
line of the log are all the state there is.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.files import atomic_dir, check_regular, read_json
from bertine.training.distributed.sharding import gathered, put
from bertine.training.distributed.world import World

_FORMAT = 2

#: What the state has in every checkpoint.
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
    world: World | None = None,
) -> Path:
    """Write ``folder/step-N`` (N = ``state["step"]``), then remove all but the newest `keep` and
    those that they name as the best (``state["best"]``).

    A checkpoint of that step that is there already stays: it is the same.

    Args:
        world: all its processes must call this; the first one writes. The files are the same
            however many there are, and whether `model` is sharded or not.
    """
    world = world or World()
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
        # Last and inside the same folder: its absence would tell of a cut even without rename.
        (temporary / "state.json").write_text(
            json.dumps(described, indent=2) + "\n", encoding="utf-8"
        )
    whole = checkpoints(folder)
    best = {_best(kept) for kept in whole[-keep:]}
    for old in whole[:-keep] if keep > 0 else []:
        if old in best:
            continue
        # Out of sight first, so that a removal cut short leaves no half checkpoint.
        hidden = old.with_name(f".{old.name}.tmp-old")
        os.replace(old, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return where the checkpoint of `step` is, or would be."""
    return folder / f"step-{step:08d}"


def _best(path: Path) -> Path | None:
    """Return the checkpoint of the best evaluation that the one at `path` knows of; None, too,
    where it is damaged."""
    try:
        best = read_state(path)["best"]
    except BertineError:
        return None
    return None if best is None else checkpoint_path(path.parent, best["step"])


def _is_whole(path: Path) -> bool:
    return (path / "state.json").is_file()


def _candidates(folder: Path) -> list[Path]:
    """Return what is in `folder` under the name of a checkpoint: not copies under names of their
    own."""
    return sorted(path for path in folder.glob("step-*") if path.name[5:].isdecimal())


def checkpoints(folder: Path) -> list[Path]:
    """Return the whole checkpoints in `folder`, oldest first."""
    return [path for path in _candidates(folder) if _is_whole(path)]


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files and folders that a killed process left in `folder`."""
    for path in folder.glob(".*.tmp-*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_torn(folder: Path) -> None:
    """Delete the checkpoints that are not whole from `folder`."""
    remove_leftovers(folder)
    for path in _candidates(folder):
        if not _is_whole(path):
            shutil.rmtree(path, ignore_errors=True)


def _checksum(file: Path) -> int:
    """CRC-32 of `file`. A disk that flips a bit of a weight leaves a file that loads."""
    value = 0
    check_regular(file)
    with open(file, "rb") as handle:
        while block := handle.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def _checksum_of(state: dict[str, Any]) -> int:
    """CRC-32 of a state without its own checksum."""
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
    """A file of a checkpoint is damaged.

    Attributes:
        what: which and how; the message has advice for the last checkpoint of a run as well.
    """

    def __init__(self, path: Path, why: object) -> None:
        self.what = f"{path}: damaged checkpoint ({why})"
        super().__init__(f"{self.what}; delete its folder to go on from the one before")


@torch.no_grad()
def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, world: World | None = None
) -> dict[str, Any]:
    """Restore `model` and `optimizer` in place from the folder `path`. Returns its state.

    Args:
        world: all its processes must call this; the first one reads and passes on.

    Raises:
        BertineError: a file is damaged, or the checkpoint is of another model.
    """
    world = world or World()
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
    """Restore the weights of `model` alone from the checkpoint `path`, in one process; raises as
    :func:`load_checkpoint` does."""
    stored: dict[str, Tensor] = {}
    weights = _weights(model)
    _read_into(stored, path / _WEIGHTS, weights, read_state(path)["crc32"][_WEIGHTS])
    for name, tensor in weights.items():
        tensor.copy_(stored[name])


def read_state(path: Path) -> dict[str, Any]:
    """Return the state that :func:`save_checkpoint` was given for the checkpoint `path`.

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
    """Fill `stored` with the tensors of `file`, which must be those of `current`."""
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
