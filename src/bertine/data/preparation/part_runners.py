"""Who makes the parts of a token store: this process, several processes, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertine.data.preparation.parts import Part, PartProgress, make_part
from bertine.errors import BertineError
from bertine.options.names import option
from bertine.system import workers
from bertine.text.tokenizer import Tokenizer

#: Called with the number of a part and how far it is; None: it is done.
PartTold = Callable[[int, PartProgress | None], None]


def run_here(parts: Sequence[Part], tokenizer: Tokenizer, told: PartTold) -> None:
    """Make `parts` one after the other in this process.

    Raises:
        BertineError: as :func:`bertine.data.preparation.parts.make_part`.
    """
    for number, part in enumerate(parts):
        make_part(part, tokenizer, lambda progress, number=number: told(number, progress))  # type: ignore[misc]
        told(number, None)


def run_processes(parts: Sequence[Part], tokenizer: Path, told: PartTold, processes: int) -> None:
    """Make `parts` in so many processes, the largest first.

    Args:
        parts: what to make.
        tokenizer: its folder.
        told: called from several threads, never two at a time.
        processes: how many; each takes the next part when it has done one.

    Raises:
        BertineError: of the first part in which something is wrong; or a process was killed.
            Parts that were done by then stay.
    """

    def heard(number: int, message: dict[str, Any]) -> None:
        if "lost" in message:
            raise BertineError(
                f"{parts[number].files[0]}: {message['lost']}; run again, with fewer "
                f"{option('processes')}"
            )
        if "error" in message:
            raise BertineError(message["error"])
        told(number, None if "done" in message else PartProgress(**message["progress"]))

    workers.run_processes(
        [part.to_json() for part in parts],
        ["bertine.data.preparation.part_worker", str(tokenizer)],
        heard,
        processes,
        order=_largest_first(parts),
    )


def run_ray(parts: Sequence[Part], tokenizer: Path, told: PartTold, address: str) -> None:
    """Make `parts` as tasks of a Ray cluster, one core each.

    All machines must see the corpus and the store's folder under the same paths.

    Args:
        parts: what to make; paths are absolute.
        tokenizer: its folder.
        told: called when a part is done.
        address: of the cluster (``auto``, ``host:6379``), or ``local``: one is started here.

    Raises:
        BertineError: Ray is not installed or not there, or something is wrong with a part.
    """

    def heard(number: int, message: dict[str, Any]) -> None:
        if "lost" in message:
            raise BertineError(f"{parts[number].files[0]}: {message['lost']}")
        if "error" in message:
            raise BertineError(message["error"])
        told(number, None)

    workers.run_ray(
        [part.to_json() for part in parts],
        _ray_task,
        heard,
        address,
        given=[str(tokenizer)],
        order=_largest_first(parts),
    )


def _largest_first(parts: Sequence[Part]) -> list[int]:
    return sorted(range(len(parts)), key=lambda number: (-parts[number].size, number))


def _ray_task(line: str, tokenizer: str) -> dict[str, Any]:
    """Make a part on some machine of a Ray cluster; what is said of it."""
    # The task has one core; `tokenizers` would take all. It counts them when it is first used.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    try:
        make_part(Part.from_json(line), _loaded(tokenizer))
    except BertineError as error:
        return {"error": str(error)}
    return {"done": True}


_tokenizers: dict[str, Tokenizer] = {}


def _loaded(tokenizer: str) -> Tokenizer:
    """The tokenizer, read once in each process."""
    if tokenizer not in _tokenizers:
        _tokenizers.clear()
        _tokenizers[tokenizer] = Tokenizer.load(tokenizer)
    return _tokenizers[tokenizer]
