"""Lay out the Chinese tasks, as they are published, in the way that ``bertine.finetune`` reads.

Topics are SIB-200's (Adelani et al. 2024), paraphrases those of PAWS-X (Yang et al. 2019), entities
those of Universal NER in Chinese GSD (Mayhew et al. 2024), questions CMRC 2018 (Cui et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bertine.core.errors import BertineError
from bertine.core.files import write_text
from bertine.data.streams import open_stream


@dataclass(frozen=True)
class Source:
    """The files of a task.

    Attributes:
        folder: a part of the name of their folder.
        train: the end of the name of what is trained on.
        test: the end of the name of what is scored.
        written: the names of the two as ``bertine.finetune`` takes them.
        convert: what becomes of their text.
    """

    folder: str
    train: str
    test: str
    written: tuple[str, str]
    convert: Callable[[str], str] = str


def _conll(text: str) -> str:
    """Keep the word and the tag of rows ``number, word, tag, -, -``."""
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return "".join("\t".join(row[1:3]) + "\n" for row in rows)


#: PAWS-X has no Chinese training set that people wrote or checked; its dev set is trained on.
SOURCES = {
    "topics": Source("sib200", "train.tsv", "test.tsv", ("train.tsv", "dev.tsv")),
    "paraphrases": Source("pawsx", "dev_2k.tsv", "test_2k.tsv", ("train.tsv", "dev.tsv")),
    "entities": Source(
        "uner", "train.iob2", "test.iob2", ("train.conll", "dev.conll"), convert=_conll
    ),
    "questions": Source("cmrc2018", "train.json", "dev.json", ("train-v1.1.json", "dev-v1.1.json")),
}


def find_files(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Find the files of each task, plain or compressed (.xz, .gz, .zst).

    Args:
        folder: has a folder for each task, whose name has that of the data set in it.

    Returns:
        Task → training file and test file.

    Raises:
        BertineError: one is missing, or there are several.
    """

    if not folder.is_dir():
        raise BertineError(f"{folder}: is no folder; give that of the tasks' folders")

    def find(source: Source, end: str) -> Path:
        ends = [end + suffix for suffix in ("", ".xz", ".gz", ".zst")]
        files = [
            file
            for place in sorted(folder.iterdir())
            if source.folder in place.name.lower() and place.is_dir()
            for file in sorted(place.iterdir())
            if file.name.endswith(tuple(ends))
        ]
        if len(files) != 1:
            raise BertineError(
                f"{folder}: has {len(files) or 'no'} files *{source.folder}*/*{end} and must have "
                "one (as it is, or .xz, .gz, .zst)"
            )
        return files[0]

    return {
        task: (find(source, source.train), find(source, source.test))
        for task, source in SOURCES.items()
    }


def read_tasks(folder: Path) -> dict[Path, str]:
    """Read the files of all tasks in `folder`.

    Returns:
        What :func:`write_tasks` writes → its text.

    Raises:
        BertineError: see :func:`find_files`; a file cannot be read, or is not UTF-8.
    """
    texts = {}
    for task, files in find_files(folder).items():
        source = SOURCES[task]
        for file, name in zip(files, source.written, strict=True):
            with open_stream(file) as stream:
                content = stream.reader.read()
            try:
                texts[Path(task) / name] = source.convert(content.decode("utf-8-sig"))
            except UnicodeDecodeError:
                raise BertineError(f"{file}: is not UTF-8; convert it") from None
    return texts


def write_tasks(folder: Path, out: Path) -> None:
    """Write the files of all tasks in `folder` into the folder `out`, one folder each.

    Raises:
        BertineError: see :func:`read_tasks`.
    """
    for file, text in read_tasks(folder).items():
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        write_text(out / file, text)


def data_of(task: str, out: Path) -> Path:
    """Return what ``bertine.finetune`` is given as the data of `task`."""
    return out / task / SOURCES[task].written[0] if task == "questions" else out / task
