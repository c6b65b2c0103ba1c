"""Where a run of word2vec stands, in one file beside its result: ``.NAME.unfinished``.

Both tables of vectors, how many blocks are done, and what the run is of: a run that goes on reads
and counts the corpus again and compares. What is drawn depends on the seed and the block alone, so
nothing else need be known.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from bertine.errors import BertineError
from bertine.files import atomic_file, check_regular, os_errors
from bertine.terminal.text import briefly
from bertine.word_vectors.counting import CountedWords
from bertine.word_vectors.steps import Weights

#: Seconds of training between two checkpoints.
EVERY = 60.0


def checkpoint_path(out: Path) -> Path:
    """Return the file of the run whose result is `out`."""
    return out.with_name(f".{out.name}.unfinished")


def text_fingerprint(known: CountedWords, ids: np.ndarray) -> str:
    """Return the SHA-256 of the words that have vectors and of the text, as hex digits."""
    digest = hashlib.sha256("\n".join(known.words).encode("utf-8", "surrogatepass"))
    digest.update(np.ascontiguousarray(ids).data)
    return digest.hexdigest()


def save_checkpoint(
    path: Path, weights: Weights, blocks: int, seconds: float, settings: dict[str, Any]
) -> None:
    """Write the file anew.

    Args:
        blocks: that are done.
        seconds: of training so far.
        settings: what the run is of, as JSON.
    """
    told = {"blocks": str(blocks), "seconds": repr(seconds), "settings": json.dumps(settings)}
    with atomic_file(path) as temporary:
        save_file({"words": weights.words, "contexts": weights.contexts}, temporary, metadata=told)


def load_checkpoint(path: Path, weights: Weights, settings: dict[str, Any]) -> tuple[int, float]:
    """Put the vectors of the file into `weights`.

    Returns:
        How many blocks are done, and the seconds of training so far.

    Raises:
        BertineError: the file is damaged, or of a run with other settings or another text.
    """
    check_regular(path)
    with os_errors(path, "reading it"):
        try:
            with safe_open(path, framework="pt") as file:
                told = file.metadata() or {}
                before: Any = json.loads(told["settings"])
                blocks, seconds = int(told["blocks"]), float(told["seconds"])
                tensors = {name: file.get_tensor(name) for name in ("words", "contexts")}
        except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise BertineError(
                f"{path}: is damaged ({briefly(str(error))}); remove it, and begin anew"
            ) from error
    if not isinstance(before, dict):
        raise BertineError(f"{path}: is damaged; remove it, and begin anew")
    for name in sorted(before.keys() | settings.keys(), key=lambda name: name == "text"):
        if before.get(name) != settings.get(name):
            differs = f"{name} = {briefly(before.get(name))}, not {briefly(settings.get(name))}"
            if name == "text":
                differs = "another text"
            raise BertineError(
                f"{path}: the run was started with {differs}; resume it with the same, or remove "
                "the file"
            )
    for name, tensor in tensors.items():
        own: torch.Tensor = getattr(weights, name)
        if tensor.shape != own.shape or tensor.dtype != own.dtype:
            raise BertineError(f"{path}: {name} are not what its settings say; remove it")
        own.copy_(tensor)
    return blocks, seconds
