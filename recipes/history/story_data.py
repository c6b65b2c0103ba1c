"""The text that all systems read, and the labelled examples that all are scored on: parts of what
was given, drawn once and written down."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, atomic_file, os_errors, read_bounded
from bertine.core.rng import generator
from bertine.tokenization.documents import Corpus


class GlueTask(NamedTuple):
    """A task of GLUE, its main score, and whether its files have a header."""

    name: str
    metric: str
    header: bool


#: The five of other tables here.
TASKS = (
    GlueTask("CoLA", "matthews", False),
    GlueTask("SST-2", "accuracy", True),
    GlueTask("MRPC", "f1", True),
    GlueTask("STS-B", "spearman", True),
    GlueTask("RTE", "accuracy", True),
)
ENTITIES = "WNUT-17"
PAIRS = "BLiMP"
#: Of so many documents one is held out.
_HELD_OUT = 40
#: Longer documents, such as books, are cut into parts of so many bytes.
_PART = 50_000
_MOST_BYTES = 1 << 28


def write_text_parts(corpus: Sequence[Path], text: Path, held_out: Path, most: int) -> None:
    """Write about `most` bytes of the corpus as JSON lines, a document of each file in turn until
    there is enough, and beside them documents that are held out. All of it where it is less.

    Raises:
        BertineError: the corpus has too few documents to hold one out; what reading it raises.
    """
    streams = [iter(Corpus(path, max_document_bytes=_PART)) for path in _files(corpus)]
    size = count = kept = 0
    with atomic_file(text) as whole, atomic_file(held_out) as apart:
        with open(whole, "w", encoding="utf-8") as read, open(apart, "w", encoding="utf-8") as held:
            # However little text there is to be: until a document is held out.
            while streams and (size < most or not kept):
                for stream in list(streams):
                    document = next(stream, None)
                    if document is None:
                        streams.remove(stream)
                        continue
                    count += 1
                    line = json.dumps({"text": document.text}, ensure_ascii=False) + "\n"
                    if count % _HELD_OUT == 0:
                        held.write(line)
                        kept += 1
                    else:
                        read.write(line)
                        size += len(document.text.encode())
                    if size >= most and kept:
                        break
        if not kept:
            raise BertineError(
                f"{corpus[0]}: has {count} documents, too few to hold any out; give {_HELD_OUT} or "
                "more"
            )


def _files(corpus: Sequence[Path]) -> Iterator[Path]:
    for path in corpus:
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.is_file() and p.name[0] != ".")
        else:
            yield path


def write_glue_part(glue: Path, out: Path, task: GlueTask, most: int) -> None:
    """Write a folder of a GLUE task with at most so many training examples and the whole dev set.

    Raises:
        BertineError: a file is missing.
    """
    with atomic_dir(out / task.name) as folder:
        rows = read_bounded(glue / task.name / "train.tsv", _MOST_BYTES).splitlines(keepends=True)
        head, rows = (rows[:1], rows[1:]) if task.header else ([], rows)
        rows = [row for row in rows if row.strip()]
        chosen = sorted(_drawn(len(rows), most, task.name))
        (folder / "train.tsv").write_bytes(b"".join([*head, *(rows[at] for at in chosen)]))
        source = glue / task.name / "dev.tsv"
        with os_errors(source, "copying it"):
            shutil.copyfile(source, folder / "dev.tsv")


def write_entities_part(entities: Path, out: Path, most: int) -> None:
    """Write a folder of tagged words with at most so many training sentences and the dev file.

    Raises:
        BertineError: a file is missing.
    """
    with atomic_dir(out) as folder:
        lines = read_bounded(entities / "train.conll", _MOST_BYTES).splitlines()
        sentences: list[list[bytes]] = [[]]
        for line in lines:
            if line.strip():
                sentences[-1].append(line)
            elif sentences[-1]:
                sentences.append([])
        sentences = [sentence for sentence in sentences if sentence]
        # A sentence for each tag, so that none of the dev file is unknown; then as they are drawn.
        order = _drawn(len(sentences), len(sentences), ENTITIES)
        first: dict[bytes, int] = {}
        for at in order:
            for line in sentences[at]:
                first.setdefault(line.split()[-1], at)
        chosen = sorted(list(dict.fromkeys([*first.values(), *order]))[: max(most, len(first))])
        parts = (b"\n".join(sentences[at]) + b"\n" for at in chosen)
        (folder / "train.conll").write_bytes(b"\n".join(parts))
        source = entities / "dev.conll"
        with os_errors(source, "copying it"):
            shutil.copyfile(source, folder / "dev.conll")


def _drawn(count: int, most: int, name: str) -> list[int]:
    order: list[int] = generator(0, "examples of the story", name).permutation(count).tolist()
    return order[:most]
