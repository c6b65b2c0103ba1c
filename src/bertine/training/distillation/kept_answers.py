"""A teacher's answers, computed once and kept in the run's folder: a resumed run learns from the
same ones, bit for bit, however many cores it has then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bertine.errors import BertineError
from bertine.files import atomic_file
from bertine.outside import open_tensors

#: The file in a run's folder.
TEACHER = "teacher.safetensors"


def kept_answers(
    folder: Path, fingerprint: str, count: int, compute: Callable[[], list[np.ndarray]]
) -> list[np.ndarray]:
    """Return the answers in the `folder` of a run; computed, and written there, where they are not.

    Args:
        fingerprint: of the teacher and what it answers.
        count: of answers.
        compute: makes them: fp32 arrays of the same shape, but for the first size of those with
            two or more.

    Raises:
        BertineError: the file is damaged, or of other answers.
    """
    file = folder / TEACHER
    if file.is_file():
        return _read(file, fingerprint, count)
    answers = compute()
    _write(file, fingerprint, answers)
    return answers


def _write(file: Path, fingerprint: str, answers: Sequence[np.ndarray]) -> None:
    sizes = np.array([len(a) if a.ndim > 1 else 1 for a in answers], dtype=np.int64)
    inner = answers[0].shape[1:] if answers[0].ndim > 1 else answers[0].shape
    flat = np.concatenate([np.asarray(a, np.float32).reshape(-1) for a in answers])
    tensors = {
        "outputs": flat,
        "sizes": sizes,
        "shape": np.array(inner, dtype=np.int64).reshape(-1),
        "by_token": np.array([answers[0].ndim > 1], dtype=np.int64),
    }
    with atomic_file(file) as path:
        save_file(tensors, path, metadata={"fingerprint": fingerprint})


def _read(file: Path, fingerprint: str, count: int) -> list[np.ndarray]:
    advice = "remove it to ask the teacher again"
    with open_tensors(file, "np", advice) as content:
        known = (content.metadata() or {}).get("fingerprint")
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        sizes, inner = tensors["sizes"].tolist(), tuple(tensors["shape"].tolist())
        by_token, width = bool(tensors["by_token"][0]), math.prod(inner)
        if known != fingerprint or len(sizes) != count or min(sizes) < 1:
            raise BertineError(f"{file}: is of another teacher or other examples; {advice}")
        parts = np.split(tensors["outputs"], np.cumsum(sizes)[:-1] * width)
        return [
            part.reshape((size, *inner) if by_token else inner)
            for part, size in zip(parts, sizes, strict=True)
        ]
