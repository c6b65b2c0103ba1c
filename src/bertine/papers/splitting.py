"""Hold text out of a corpus: most documents for training, some for scores of pre-training."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import zstandard

from bertine.errors import BertineError
from bertine.files import atomic_dir, os_errors
from bertine.text.corpus import Corpus

#: Files in the folder that :func:`split_text` writes.
TRAINING, HELD_OUT = "training.jsonl.zst", "held-out.jsonl.zst"
#: Of so many documents one is held out, until there are enough characters.
_ONE_OF = 50
#: Characters that are held out at the most: some 300,000 tokens, of which an evaluation sees
#: 200,000.
_ENOUGH = 1_500_000


def split_text(folder: Path, corpus: Sequence[str]) -> dict[str, Any]:
    """Write the documents of a corpus into two files of `folder`, all at once.

    Args:
        folder: made; where it is there, it is taken as it is.
        corpus: files and folders of texts.

    Returns:
        How many documents each file has.

    Raises:
        BertineError: fewer than two documents; what reading the corpus raises.
    """
    counts = {TRAINING: 0, HELD_OUT: 0}
    if folder.exists():
        return counts
    held = 0
    with atomic_dir(folder) as made, contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(_lines(made / name)) for name in counts}
        for number, document in enumerate(Corpus([Path(path) for path in corpus])):
            out = number % _ONE_OF == 1 and held < _ENOUGH
            name = HELD_OUT if out else TRAINING
            held += len(document.text) if out else 0
            with os_errors(folder, "writing it"):
                files[name].write(json.dumps({"text": document.text}) + "\n")
            counts[name] += 1
        if not counts[HELD_OUT]:
            raise BertineError(
                f"{corpus[0]}: there is a single document, so none can be held out; separate "
                "documents with a blank line, or give a file a document"
            )
    return counts


@contextlib.contextmanager
def _lines(path: Path) -> Iterator[TextIO]:
    """Yield a compressed file to write lines to."""
    with (
        os_errors(path, "writing it"),
        open(path, "wb") as file,
        zstandard.ZstdCompressor().stream_writer(file, closefd=False) as compressed,
        io.TextIOWrapper(compressed, encoding="utf-8") as text,
    ):
        yield text
