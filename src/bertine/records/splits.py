"""The files of a data folder: which one is for training, for validation and for testing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.tables.given import SPLIT_NAMES, Data, GivenParts, GivenTable, Source
from bertine.tables.parquet import SUFFIXES as PARQUET
from bertine.tables.parquet import find_parts
from bertine.tables.streams import COMPRESSIONS

#: The last one only where there is no other: SQuAD's files may lie beside a table.
_KINDS = (".csv", ".tsv", ".jsonl", ".txt", ".json")
_SUFFIXES = (*(kind + packed for kind in _KINDS for packed in ("", *COMPRESSIONS)), *PARQUET)
#: The name of a file that somebody may take for a part of the data.
_LIKE_A_PART = re.compile(
    r"(?:.*[-_. ])?(?:train|training|eval|evaluation|valid|validation|validate|val|dev|devel|"
    r"development|test|testing|held[-_]?out)(?:\d*|[-_. ].*)",
    re.IGNORECASE,
)
#: So many files are named where they do not help.
_SHOWN = 10


@dataclass(frozen=True)
class Splits:
    """The files of a data set, or its tables in memory; None where there is none."""

    train: Path | GivenTable | None = None
    validation: Path | GivenTable | None = None
    test: Path | GivenTable | None = None


def find_splits(path: Data, more: Sequence[str] = ()) -> Splits:
    """Find the files of a data set: one file is the training set; in a folder, ``train``,
    ``validation`` (or ``valid``, ``val``, ``dev``) and ``test``, each .csv, .tsv, .jsonl, .json,
    .txt or .parquet; or Parquet as on the Hugging Face hub, one table in several parts
    (``train-00000-of-00002.parquet``). What the folder has not, its only folder that has it gives
    (``data``). A table in memory is the training set.

    All but Parquet may be compressed (.gz, .zst, .xz). `more` are further suffixes.

    Raises:
        BertineError: the path is missing, has none of these files, two for the same part, or not
            all parts of a table.
    """
    if isinstance(path, GivenTable):
        return Splits(train=path)
    if isinstance(path, GivenParts):
        return Splits(path.train, path.validation, path.test)
    path = Path(path)
    with os_errors(path, "looking for its files"):
        if not path.exists():
            raise BertineError(f"{path}: no such file or folder")
        if not path.is_dir():
            return Splits(train=path)
        suffixes = dict.fromkeys(
            (*_SUFFIXES, *(kind + packed for kind in more for packed in ("", *COMPRESSIONS)))
        )
        return _in_folder(path, tuple(suffixes)) or _in_folder_below(path, tuple(suffixes))


def _in_folder(path: Path, suffixes: Sequence[str]) -> Splits | None:
    parts: dict[str, Path | None] = {}
    for part, names in SPLIT_NAMES.items():
        there = [path / f"{name}{suffix}" for name in names for suffix in suffixes]
        there = [file for file in there if file.is_file()]
        there += [table for name in names if (table := find_parts(path, name)) is not None]
        files = [file for file in there if ".json" not in file.suffixes] or there
        if len(files) > 1:
            raise BertineError(
                f"{path}: both {files[0].name} and {files[1].name} could be the {part} part; "
                "name the file itself"
            )
        parts[part] = files[0] if files else None
    return Splits(**parts) if any(parts.values()) else None


def _in_folder_below(path: Path, suffixes: Sequence[str]) -> Splits:
    """Find the files in the one folder of `path` that has some."""
    found = {
        folder.name: splits
        for folder in sorted(path.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
        if (splits := _in_folder(folder, suffixes)) is not None
    }
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise BertineError(
            f"{path}: its folders {_first_names(list(found))} have training or test files; name one"
        )
    tables = [file.name for file in sorted(path.iterdir()) if file.name.endswith(tuple(suffixes))]
    there = f"; it has {_first_names(tables)}" if tables else ""
    raise BertineError(
        f"{path}: found no train, validation or test file "
        f"({', '.join(dict.fromkeys((*_KINDS, '.parquet', *suffixes[len(_SUFFIXES) :: 4])))}) in it"
        f"{there}"
    )


def _first_names(names: Sequence[str]) -> str:
    return ", ".join([*names[:_SHOWN], *["…"] * (len(names) > _SHOWN)])


def judged_table(data: Data, find: Callable[[Data], Splits] = find_splits) -> Source:
    """Choose what a model is judged on: the file or table itself; of a folder or of several parts
    the one for validation, else the one for testing.

    Raises:
        BertineError: there is but training data; what `find` raises.
    """
    splits = find(data)
    parts = isinstance(data, GivenParts) or (isinstance(data, str | Path) and Path(data).is_dir())
    table = (splits.validation or splits.test) if parts else splits.train
    if table is None:
        unused = "".join(f"; {note}" for note in unused_note(data, {str(splits.train)}))
        raise BertineError(
            f"{data}: holds only training data; to evaluate on it, name the file itself{unused}"
        )
    return table


def unused_note(data: Data, used: Collection[str]) -> list[str]:
    """Say which files of a data folder are not used, though by their names they might be meant
    for a part of the data.

    Args:
        used: the paths of files that are; other files with their suffixes may be meant, too.
    """
    if not isinstance(data, str | Path) or not Path(data).is_dir():
        return []
    suffixes = (*_SUFFIXES, *filter(None, (Path(file).suffix for file in used)))
    with os_errors(data, "looking for its files"):
        unused = [
            file.name
            for file in sorted(Path(data).iterdir())
            if file.name.endswith(suffixes) and file.is_file() and str(file) not in used
            if (stem := file.name.split(".")[0]) not in SPLIT_NAMES["test"] and "-of-" not in stem
            if _LIKE_A_PART.fullmatch(stem)
        ]
    if not unused:
        return []
    are = "is" if len(unused) == 1 else "are"
    return [
        f"{data}: {_first_names(unused)} {are} not used (the files of a data folder are called "
        f"train, {', '.join(SPLIT_NAMES['validation'])} and test)"
    ]
