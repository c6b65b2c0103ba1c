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
from safetensors.torch import save_file

from bertine.errors import BertineError
from bertine.files import atomic_file
from bertine.outside import open_tensors
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
    with open_tensors(path, "pt", "remove it, and begin anew") as file:
        told = file.metadata() or {}
        before = dict(json.loads(told["settings"]))
        blocks, seconds = int(told["blocks"]), float(told["seconds"])
        tensors = {name: file.get_tensor(name) for name in ("words", "contexts")}
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
