"""Read labelled examples from tables and folders, and record which rows a model has seen."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np

from bertine.core.console import plural, visible_list
from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.names import option, text_option
from bertine.core.rng import generator
from bertine.core.text import briefly, row_at
from bertine.data.annotations import is_brat
from bertine.data.encodings import REPLACEMENT
from bertine.data.in_memory import SPLIT_NAMES, Data, DataParts, InMemoryTable, Source, as_data
from bertine.data.lines import TableLayout, first_numbers
from bertine.data.parquet import SUFFIXES as PARQUET
from bertine.data.parquet import find_parts
from bertine.data.streams import (
    COMPRESSIONS,
    MissingColumn,
    ambiguous_column_error,
    encodable,
    require_columns,
)
from bertine.data.tables import Table, TableRow
from bertine.data.workbooks import SUFFIXES as WORKBOOKS
from bertine.options.data import DEFAULTS, DataConfig, TableReading
from bertine.options.declare import shared_values

# Labels of a column: apply class names that the `datasets` library stores with a Parquet table
# (its ``ClassLabel``) in place of the column's numbers; spell truth values as in the known labels;
# refuse labels with a damaged character.

#: The number with which the library marks a row without a label.
UNLABELLED = -1
#: Most names in a message.
_SHOWN = 10
#: A whole number, also as pandas writes it in a column with gaps.
_NUMBER = re.compile(r"[-+]?\d{1,9}(\.0+)?")


class ClassLabels:
    """The labels of one column of a table, converted as its rows are read.

    Args:
        table: the table of the rows.
        column: the column of the labels: a number, or a list of numbers, in each row.
        known: the labels of a model or of the training file. If the names of the file are not among
            them, the numbers themselves are the labels, as without names. Empty: the numbers are
            meant (a score, the position of a choice). None: no labels are known yet.
        given: the user's names of the numbers, in place of those of the file; then each label is a
            number or a name. None: none are given.

    Attributes:
        names: the class names in the order of their numbers; empty if the labels are not names.
    """

    def __init__(
        self,
        table: Table,
        column: str,
        known: Sequence[str] | None = None,
        given: Sequence[str] | None = None,
    ) -> None:
        self._name, self._column, self._known = table.name, column, known
        names = given or table.class_names(column)
        self._given, self._of_file = given is not None, tuple(name.strip() for name in names)
        fits = self._given or known is None or not set(known).isdisjoint(self._of_file)
        self.names = self._of_file if fits else ()
        #: The numbers whose names the user gave, that occurred.
        self._occurring: set[int] = set()
        #: true and false as spelled in the known labels: a frame's True is "True" in its csv.
        self._truth_values = {
            label.lower(): label for label in known or () if label.lower() in ("true", "false")
        }
        self._numbered = False
        self._rows = 0
        self._unlabelled: list[int] = []

    def rows(self, rows: Iterable[TableRow]) -> Iterator[TableRow]:
        """Yield `rows` with names in place of numbers and truth values spelled as known, without
        rows marked as unlabelled.

        Raises:
            BertineError: a number has no name; a label has a damaged character; all rows are
                marked as unlabelled; with given names: a label is no number, or in training a name
                has no rows.
        """
        marked = bool(self._of_file) and str(UNLABELLED) not in (self._known or ())
        for row in rows:
            self._rows += 1
            value = row.values.get(self._column)
            if marked and type(value) is int and value == UNLABELLED:
                self._unlabelled.append(row.line)
                continue
            label = self._label(value, row.line)
            if label is not value:
                row = replace(row, values={**row.values, self._column: label})
            yield row
        if self._unlabelled and len(self._unlabelled) == self._rows:
            raise BertineError(
                f"{self._name}: no row has a label: {self._column!r} is {UNLABELLED} in all "
                f"{self._rows}, by which the datasets library marks what has none"
            )
        without = sorted({*range(len(self.names))} - self._occurring)
        if self._given and self._known is None and without:
            raise BertineError(
                f"{self._name}: {option('label_names')} has {len(self.names)} names, for 0 to "
                f"{len(self.names) - 1}, but no row has {without[0]} in {self._column!r}"
            )

    def _label(self, value: Any, line: int) -> Any:
        """Return the label for a value; for a list, the label of each item."""
        if isinstance(value, list):
            return [self._label(inner, line) for inner in value]
        if self._given and isinstance(value, str | int | float) and value == value:  # no NaN
            text = str(value).strip()
            return self._by_given_names(text, line) if text else value
        if type(value) is int and self.names:
            return self._named(value, line)
        if isinstance(value, bool):
            return self._truth_values.get(str(value).lower(), value)
        if not isinstance(value, str) or self._known == ():
            return value
        text = value.strip()
        refuse_damaged(text, row_at(self._name, line), f"label in {self._column!r}")
        if text.lower() in self._truth_values and text not in (self._known or ()):
            return self._truth_values[text.lower()]
        return value

    def _by_given_names(self, text: str, line: int) -> str:
        """Return the user's name of a label that is a number, or such a name."""
        if text in self.names:
            text = str(self.names.index(text))
        if not _NUMBER.fullmatch(text):
            whose = f"{option('label_names')} is for"
            raise BertineError(
                f"{row_at(self._name, line)}: {self._column!r} holds {briefly(text)}, but "
                f"{whose if self._known is None else 'the labels of the model are'} the numbers 0 "
                f"to {len(self.names) - 1}, or their names"
            )
        self._occurring.add(int(float(text)))
        return self._named(int(float(text)), line)

    def _named(self, value: int, line: int) -> str:
        self._numbered = True
        if not 0 <= value < len(self.names):
            raise BertineError(
                f"{row_at(self._name, line)}: {self._column!r} holds {value}, but its names are "
                f"those of 0 to {len(self.names) - 1}"
            )
        return self.names[value]

    def notes(self) -> list[str]:
        """Return notes, once the rows are read: whether names or, in spite of names, numbers were
        used, if that is not already known; and the rows left out."""
        notes = []
        shown = visible_list(self._of_file[:_SHOWN]) + ", …" * (len(self._of_file) > _SHOWN)
        if self._known is None and self._numbered and not self._given:
            notes.append(
                f"{self._name}: the numbers in {self._column!r} stand for the names that the file "
                f"gives with them, which are the labels: {shown}"
            )
        if self._known and self._of_file and not self.names:
            notes.append(
                f"{self._name}: the names that the file gives for the numbers in "
                f"{self._column!r} ({shown}) are none of the known labels, so the numbers are "
                "taken for these"
            )
        if count := len(self._unlabelled):
            notes.append(
                f"{self._name}: {count} of {self._rows} rows have no label ({self._column!r} is "
                f"{UNLABELLED}) and were left out ({first_numbers(self._unlabelled, what='rows')})"
            )
        return notes


def refuse_damaged(label: str, where: str, what: str) -> None:
    """Refuse a label or tag with a damaged character, which would merge different labels.

    Args:
        where: its place.
        what: its kind, for the message.

    Raises:
        BertineError: it has a damaged character.
    """
    if "\ufffd" in label or not encodable(label):
        raise BertineError(
            f"{where}: the {what} is {briefly(label)}, with a damaged character (U+FFFD, where "
            "bytes were not UTF-8, or half a surrogate pair); correct it"
        )


# Data folders: find the files for training, validation and testing.

#: .json is used only if there is no other: SQuAD's files may be in the same folder as a table.
_KINDS = (".csv", ".tsv", ".jsonl", ".txt", ".json")
_SUFFIXES = (
    *(kind + packed for kind in _KINDS for packed in ("", *COMPRESSIONS)),
    *PARQUET,
    *WORKBOOKS,
)
#: Names of files that a user may take for a part of the data.
_LIKE_A_PART = re.compile(
    r"(?:.*[-_. ])?(?:train|training|eval|evaluation|valid|validation|validate|val|dev|devel|"
    r"development|test|testing|held[-_]?out)(?:\d*|[-_. ].*)",
    re.IGNORECASE,
)
#: Most files named in a message if they are not used.
_SPLITS_SHOWN = 10


@dataclass(frozen=True)
class Splits:
    """The files of a data set, or its tables in memory; None for a missing part."""

    train: Source | None = None
    validation: Source | None = None
    test: Source | None = None


def find_splits(path: Data, more: Sequence[str] = ()) -> Splits:
    """Find the files of a data set: one file is the training set; in a folder, ``train``,
    ``validation`` (or ``valid``, ``val``, ``dev``) and ``test``, each .csv, .tsv, .jsonl, .json,
    .txt, .parquet or .xlsx (and other workbooks); or Parquet as on the Hugging Face hub, one table
    in several parts (``train-00000-of-00002.parquet``). If the folder has no such files, its only
    subfolder that does is used (``data``). A table in memory is the training set.

    All but Parquet and workbooks may be compressed (.gz, .zst, .xz). `more` are further suffixes.

    Raises:
        BertineError: the path is missing, has none of these files, two for the same part, or only
            some of the parts of a table.
    """
    path = as_data(path)  # which fetches a published one
    if isinstance(path, InMemoryTable):
        return Splits(train=path)
    if isinstance(path, DataParts):
        return Splits(path.train, path.validation, path.test)
    path = Path(path)
    with os_errors(path, "looking for its files"):
        if not path.exists():
            raise BertineError(f"{path}: no such file or folder")
        if not path.is_dir() or is_brat(path):
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
    """Find the files in the single subfolder of `path` that has some."""
    result = {
        folder.name: splits
        for folder in sorted(path.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
        if (splits := _in_folder(folder, suffixes)) is not None
    }
    if len(result) == 1:
        return next(iter(result.values()))
    if result:
        names = _first_names(list(result))
        raise BertineError(f"{path}: its folders {names} have training or test files; name one")
    tables = [file.name for file in sorted(path.iterdir()) if file.name.endswith(tuple(suffixes))]
    there = f"; it has {_first_names(tables)}" if tables else ""
    named = (*_KINDS, ".parquet", ".xlsx", *suffixes[len(_SUFFIXES) :: 4])
    raise BertineError(
        f"{path}: found no train, validation or test file "
        f"({', '.join(dict.fromkeys(named))}) in it{there}"
    )


def _first_names(names: Sequence[str]) -> str:
    return ", ".join([*names[:_SPLITS_SHOWN], *["…"] * (len(names) > _SPLITS_SHOWN)])


def judged_table(data: Data, find: Callable[[Data], Splits] = find_splits) -> Source:
    """Choose the data to evaluate a model on: a file or table itself; of a folder or several parts
    the validation part, else the test part.

    Raises:
        BertineError: there is only training data; or an error of `find`.
    """
    splits = find(data)
    parts = (isinstance(data, DataParts) and not data.alone) or (
        isinstance(data, str | Path) and Path(data).is_dir() and not is_brat(data)
    )
    table = (splits.validation or splits.test) if parts else splits.train
    if table is None:
        unused = "".join(f"; {note}" for note in unused_note(data, {str(splits.train)}))
        raise BertineError(
            f"{data}: holds only training data; to evaluate on it, name the file itself{unused}"
        )
    return table


def unused_note(data: Data, used: Collection[str]) -> list[str]:
    """Return notes on files of a data folder that are not used, though their names suggest that
    they belong to the data.

    Args:
        used: the paths of the used files; other files with their suffixes are suspects, too.
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


# Row numbers: recognize the rows that a model was trained on, in any order, part or file.
#
# The number of a row is a 32-bit hash of its texts: blanks, case, the order of the texts of a pair
# and the label have no effect. If ten thousand rows are known, another row is mistaken for one of
# them once in 400,000 times.

#: The key in the facts of a training. It holds the rows of this training, and those of the models
#: that it started from or learned from.
ROWS = "rows"
_OWN, _BEFORE = "own", "before"
#: The setting of a run with the number of known rows of the models that it starts from; absent:
#: none, or an earlier version of Bertine started the run, which held out any rows.
KNOWN = "known_rows"
#: If there are more rows, their numbers are not stored.
_MOST = 2_000_000
#: Up to this share of known rows there is no note: some texts occur twice in many files.
_SHARE = 0.05


Unit = TypeVar("Unit", bound=Hashable)


def text_key(item: Any) -> tuple[str, ...]:
    """Return a key that is equal for texts that read the same."""
    return tuple(" ".join(text.split()).casefold() for text in item.texts)


def row_number(item: Any) -> int:
    """Compute the number of a row with ``texts``."""
    key = repr(sorted(text_key(item))).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest(), "little")


def row_numbers(items: Iterable[Any]) -> frozenset[int]:
    """Compute the numbers of rows."""
    return frozenset(map(row_number, items))


def rows_as_facts(own: Collection[int], before: Collection[int] = ()) -> dict[str, Any]:
    """Return the entry of ``bertine.json`` under `ROWS` for the rows that a model was trained on;
    empty for millions of rows.

    Args:
        own: the row numbers of this training.
        before: those of the models that it started from or learned from.
    """
    named = {_OWN: own, _BEFORE: before}
    return {name: _written(rows) for name, rows in named.items() if 0 < len(rows) <= _MOST}


def rows_in_facts(facts: Mapping[str, Any]) -> tuple[frozenset[int], frozenset[int]]:
    """Read the rows of a training, and those of the models before it, from its facts; empty if
    they are damaged or missing."""
    kept = facts.get(ROWS)
    kept = kept if isinstance(kept, Mapping) else {}
    return _read(kept.get(_OWN)), _read(kept.get(_BEFORE))


def _written(rows: Collection[int]) -> str:
    return base64.b64encode(np.array(sorted(rows), dtype="<u4").tobytes()).decode()


def _read(written: Any) -> frozenset[int]:
    try:
        raw = base64.b64decode(written, validate=True)
        return frozenset(np.frombuffer(raw, dtype="<u4").tolist())
    except (TypeError, ValueError, binascii.Error):
        return frozenset()


def staying(units: Mapping[Unit, Sequence[Any]], known: Collection[int], wanted: int) -> set[Unit]:
    """Return the units of rows, such as documents, that must not be held out because one of their
    rows is known; none if the others have fewer than half of the wanted rows."""
    if not known:
        return set()
    stay = {name for name, rows in units.items() if any(row_number(row) in known for row in rows)}
    others = sum(len(rows) for name, rows in units.items() if name not in stay)
    return stay if 2 * others >= wanted else set()


def count_known(items: Iterable[Any], known: Collection[int]) -> int:
    """Count the rows whose numbers are `known`; 0 if they are few."""
    return share_of([row_number(item) for item in items] if known else [], known)


def share_of(numbers: Sequence[int], known: Collection[int]) -> int:
    """Count the numbers that are `known`; 0 if they are few."""
    count = sum(number in known for number in numbers)
    return count if count > _SHARE * len(numbers) else 0


#: Usual names of the text columns and of the label column, tried in this order.
TEXT_COLUMNS: tuple[tuple[str, ...], ...] = (
    ("text", "text_pair"),
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("text",),
    ("sentence",),
)
LABEL_COLUMNS = ("label", "label_name", "labels", "category", "class")
#: The column of the entities of a text, for taggers.
ENTITIES = "entities"


@dataclass(frozen=True, slots=True)
class Example:
    """One text, or a pair of texts, with its label (None when unknown).

    `line` is the line of the source file, for messages; `weight` is its factor in the loss, 1 on
    average.
    """

    texts: tuple[str, ...]
    label: str | None = None
    line: int = 0
    weight: float = field(default=1.0, kw_only=True)


@dataclass(frozen=True, slots=True)
class SoftExample(Example):
    """One text, or a pair of texts, with the probability of each label; `label` is the most
    probable one."""

    probabilities: tuple[float, ...] = ()


#: The share of the training file that is held out if there is no validation file.
HOLD_OUT = 0.1
#: The type of one example: an :class:`Example`, or that of another kind of task.
Item = TypeVar("Item")


@dataclass
class Examples(Generic[Item]):
    """The examples of one file in order, the columns they came from, and the repairs.

    Each item has a `label` (None when unknown) and a `line`. `class_names` are the labels in the
    order given by the file, if it gives one. `unlabelled` is the number of rows without a label,
    which were left out. `layout` is that of their table.
    """

    source: str
    text_columns: tuple[str, ...]
    label_column: str | None
    items: list[Item] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    class_names: tuple[str, ...] = field(default=(), kw_only=True)
    unlabelled: int = field(default=0, kw_only=True)
    layout: TableLayout | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.items)

    def note(self, text: str) -> None:
        """Add a line to the notes unless it is already there."""
        if text not in self.notes:
            self.notes.append(text)

    def answers(self, predictions: Sequence[Any]) -> list[Any]:
        """Return the user's answers for a task's `predictions`, one for each example."""
        return list(predictions)

    def fingerprint(self) -> str:
        """Compute the SHA-256 of the texts and labels in order, as hex digits."""
        digest = hashlib.sha256()
        items: list[Any] = self.items
        for item in items:
            digest.update(repr((item.texts, item.label)).encode("utf-8", "surrogatepass"))
            if soft := getattr(item, "probabilities", ()):
                digest.update(repr(soft).encode())
        return digest.hexdigest()

    def hold_out_by(self, config: DataConfig, *, stratify: bool = True) -> tuple[Self, Self]:
        """Split off what is held out if there is no validation file, as `config` says; see
        :meth:`hold_out`."""
        seed, known = config.hold_out_seed, config.known_rows
        parts: Any = self, replace(self, items=[])
        if not config.whole:
            parts = self.hold_out(HOLD_OUT, seed, stratify=stratify, known=known)
        return cast("tuple[Self, Self]", parts)

    def hold_out(
        self,
        share: float,
        seed: int,
        *,
        stratify: bool = True,
        known: Collection[int] = (),
    ) -> tuple[Examples[Item], Examples[Item]]:
        """Split off a random `share` of the examples (at least one), about the same share of each
        label; both parts keep the order, and the first one has every label.

        Without `stratify` the labels, which may be scores, are not used. Rows whose numbers are
        `known` stay in the first part, unless the others are fewer than half of the part to be
        split off.

        The same examples, share, seed and known rows give the same parts.
        """
        if not 0 < share < 1 or len(self) < 2:
            raise BertineError(
                f"{self.source}: cannot hold out {share:g} of {plural(len(self), 'example')}; "
                "the share must be between 0 and 1, and at least 2 examples are needed"
            )
        items: list[Any] = self.items
        by_label: dict[str, list[int]] = {}
        for index in generator(seed, "hold-out").permutation(len(self)).tolist():
            label = items[index].label if stratify else None
            by_label.setdefault(label or "", []).append(index)
        wanted = max(1, round(share * len(self)))
        stay = staying(dict(enumerate(zip(items))), known, wanted)
        for own in by_label.values() if stay else ():
            own.sort(key=lambda index: index not in stay)
        # One example of each label stays. Sort the others by label and take every n-th, which
        # takes the same share of each label.
        free = [index for key in sorted(by_label) for index in by_label[key][1:]]
        free = [index for index in free if index not in stay] or free
        if not free:
            raise BertineError(
                f"{self.source}: cannot hold out a validation set, as no label is there twice"
                + (
                    f" in the column {self.label_column!r}; name another one with "
                    f"{option('label_column')}, or "
                    if self.label_column
                    else "; "
                )
                + "give a folder with a training and a validation file"
            )
        count = min(wanted, len(free))
        chosen = {free[(2 * number + 1) * len(free) // (2 * count)] for number in range(count)}
        kept = [item for index, item in enumerate(self.items) if index not in chosen]
        held = [item for index, item in enumerate(self.items) if index in chosen]
        source = f"{self.source} (held out)"
        return (
            replace(self, items=kept),
            Examples(source, self.text_columns, self.label_column, held),
        )


def as_columns(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return column names as a tuple; a single name is one column, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def resolve_text_columns(table: Table, text_columns: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the requested text columns, which must exist, or else the usual ones that exist."""
    text_columns = as_columns(text_columns)
    if text_columns:
        table.require(text_columns)
        for name in text_columns:
            if text_columns.count(name) > 1:
                raise BertineError(f"{table.name}: the text column {name!r} is named twice")
        return text_columns
    for names in TEXT_COLUMNS:
        if set(names) <= set(table.columns):
            return names
    raise ambiguous_column_error(table.name, table.columns, "text", text_option())


def resolve_label_column(
    table: Table, label_column: str | None, usual: Sequence[str] = LABEL_COLUMNS
) -> str:
    """Return the requested label column, which must exist, or else the first of the `usual` ones
    that exists."""
    if label_column:
        require_columns(table.name, table.columns, [label_column])
        return label_column
    for name in usual:
        if name in table.columns:
            return name
    if ENTITIES in table.columns:
        raise BertineError(
            f"{table.name}: has entities, which the task tagging learns, but no column of labels, "
            f"one a text; name it with {option('label_column')}"
        )
    raise ambiguous_column_error(table.name, table.columns, "label", option("label_column"))


@contextlib.contextmanager
def columns_of_training(
    texts: Sequence[str], label: str | None = None, *, advice: str = ""
) -> Iterator[None]:
    """Explain, within the block, errors about missing columns: the user named none, so those of the
    model's training are read, `texts` and `label`. The message then says how to name other ones,
    and ends with `advice`.

    Raises:
        BertineError: the error raised in the block.
    """
    options = dict.fromkeys(texts, text_option(len(texts)))
    if label is not None:
        options[label] = option("label_column")
    try:
        yield
    except MissingColumn as error:
        named = options.get(error.column)
        if named is None:
            raise
        raise BertineError(
            f"{error}; {error.column!r} is what the model was trained with, so name what this "
            f"table has with {named}{advice}"
        ) from error


def refuse_both(table: Table, text_columns: Sequence[str], label_column: str) -> None:
    """Raise a :class:`BertineError` if the label column is one of the texts, which would reveal
    it."""
    if label_column in text_columns:
        raise BertineError(
            f"{table.name}: the column {label_column!r} is taken for the label and for a text; "
            f"name another one ({text_option(len(text_columns))}, {option('label_column')})"
        )


def row_texts(table: Table, row: TableRow, text_columns: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of a row, in the order of `text_columns`."""
    return tuple(table.text(row, column) for column in text_columns)


def open_table(
    path: Source,
    config: DataConfig,
    wanted: Sequence[str] | None = None,
    optional: Sequence[str] = (),
) -> Table:
    """Open a table in the format and encoding, with the quotes and strictness, of `config`; see
    :class:`~bertine.data.tables.Table`. By default its named columns are `wanted`."""
    if wanted is None:
        named = [config.label_column] if config.label_column else []
        wanted = [*as_columns(config.text_columns), *named]
    return Table(path, wanted=wanted, optional=optional, **shared_values(TableReading, config))


def read_examples(
    path: Source,
    config: DataConfig = DEFAULTS,
    *,
    optional: Sequence[str] = (),
    known: Sequence[str] | None = None,
    label_names: Sequence[str] = LABEL_COLUMNS,
) -> Examples:
    """Read a labelled table whole. Columns that are not named are recognized in the header, the
    label column by `label_names`; an empty value in an `optional` column is an empty text. `known`
    are the possible labels, by which :class:`~bertine.data.examples.ClassLabels` distinguishes
    names from numbers.

    Raises:
        BertineError: an error of :class:`~bertine.data.tables.Table`; a column is missing or
            cannot be recognized; no row has a label, or with `strict` one has none; there is no
            row.
    """
    with open_table(path, config, optional=optional) as table:
        refuse_plain(table)
        texts = resolve_text_columns(table, config.text_columns)
        label = resolve_label_column(table, config.label_column, label_names)
        return labelled_rows(table, table, texts, label, known=known, names=config.label_names)


#: A whole number, or one with a decimal comma; one whose comma may divide thousands.
_COMMA, _THOUSANDS = re.compile(r"[-+]?\d+(,\d+)?"), re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")


def read_scores(path: Source, config: DataConfig) -> Examples:
    """Read a table whose labels are numbers, with decimal points; or all with decimal commas, which
    is noted. Other labels stay as they are, for the task to refuse.

    Raises:
        BertineError: an error of :func:`read_examples`; commas may be decimal or divide thousands.
    """
    examples = read_examples(path, config, known=())
    labels = [item.label for item in examples.items]
    commas = [label for label in labels if "," in label]
    if not commas or not all(map(_COMMA.fullmatch, labels)):
        return examples
    where = f"{examples.source}: the numbers in {examples.label_column!r}, such as {commas[0]!r},"
    if all(map(_THOUSANDS.fullmatch, commas)):
        raise BertineError(f"{where} may be thousands or fractions; write them without commas")
    examples.items = [replace(item, label=item.label.replace(",", ".")) for item in examples.items]
    examples.note(f"{where} have decimal commas")
    return examples


def refuse_plain(table: Table) -> None:
    """Raise a :class:`BertineError` if a table is plain text, which has no labels."""
    if table.layout.kind == "text":
        raise BertineError(
            f"{table.name}: its first line is not a header with columns for text and label; "
            "add one, name the columns, or give the format (csv, tsv or jsonl)"
        )


def labelled_rows(
    table: Table,
    rows: Iterable[TableRow],
    text_columns: tuple[str, ...],
    label_column: str,
    *,
    known: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> Examples[Example]:
    """Read the `rows` of a table as examples; see :func:`read_examples` for `known`, and
    :class:`ClassLabels` for the given `names`. Rows without a label are left out and counted in the
    notes.

    Raises:
        BertineError: the label column is one of the texts; no row has a label, or with `strict` one
            has none; there is no row.
    """
    refuse_both(table, text_columns, label_column)
    examples: Examples[Example] = Examples(table.name, text_columns, label_column)
    examples.layout = table.layout
    labels = ClassLabels(table, label_column, known, names)
    examples.class_names = labels.names
    without: list[int] = []
    for row in labels.rows(rows):
        if not table.strict and not table.has_label(row, label_column):
            without.append(row.line)
            continue
        examples.items.append(
            Example(row_texts(table, row, text_columns), table.label(row, label_column), row.line)
        )
    if without and not examples.items:
        raise BertineError(
            f"{table.name}: no row has a label in the column {label_column!r}; name another one "
            f"({option('label_column')}), or fill it in"
        )
    if not examples.items:
        raise BertineError(f"{table.name}: has a header, but no rows")
    examples.notes = [*table.stats.notes(table.name), *labels.notes()]
    examples.unlabelled = len(without)
    if without:
        examples.notes.append(
            f"{table.name}: {plural(len(without), 'row', 'has', 'have')} no label in "
            f"{label_column!r} and {'was' if len(without) == 1 else 'were'} left out "
            f"({first_numbers(without)}); {option('strict', True)} refuses them"
        )
    check_texts(examples)
    return examples


def check_texts(examples: Examples[Any]) -> None:
    """Leave damaged characters (U+FFFD) out of the texts, so that no model learns to read them.
    Note these rows, the rows without text, those that lack one text of a pair, and those that lack
    the first of more texts (the last ones are choices, whose number may vary)."""
    damaged: list[int] = []
    for index, item in enumerate(examples.items):
        if any(REPLACEMENT in text for text in item.texts):
            damaged.append(item.line)
            texts = tuple(text.replace(REPLACEMENT, "") for text in item.texts)
            examples.items[index] = replace(item, texts=texts)
    if damaged:
        examples.notes.append(
            f"{examples.source}: damaged characters (U+FFFD) were left out of "
            f"{plural(len(damaged), 'row')} ({first_numbers(damaged)})"
        )
    there = [(item.line, [bool(text.strip()) for text in item.texts]) for item in examples.items]
    empty = [line for line, texts in there if not any(texts)]
    if empty:
        examples.notes.append(
            f"{examples.source}: {len(empty)} of {len(examples)} texts are empty "
            f"({first_numbers(empty)})"
        )
    needed = 2 if len(examples.text_columns) == 2 else 1
    for number, column in enumerate(examples.text_columns[:needed]):
        lacking = [line for line, texts in there if any(texts) and not texts[number]]
        if lacking:
            examples.notes.append(
                f"{examples.source}: {len(lacking)} of {len(examples)} rows have no text in "
                f"{column!r} ({first_numbers(lacking)})"
            )
