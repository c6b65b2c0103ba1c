"""Labelled examples, and which columns of a table hold them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from bertine.errors import BertineError
from bertine.options.names import option, text_option
from bertine.records.class_labels import ClassLabels
from bertine.records.known_rows import staying
from bertine.rng import generator
from bertine.tables.column_names import MissingColumn, require_columns, untold
from bertine.tables.given import Source
from bertine.tables.lines import first_numbers
from bertine.tables.table import Table, TableRow
from bertine.terminal.console import counted

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


@dataclass(frozen=True, slots=True)
class Example:
    """One text, or a pair of texts, with its label (None when unknown).

    `line` is the line of the source file, for messages; `weight` how much it counts in the loss,
    which is 1 on average.
    """

    texts: tuple[str, ...]
    label: str | None = None
    line: int = 0
    weight: float = field(default=1.0, kw_only=True)


@dataclass(frozen=True, slots=True)
class SoftExample(Example):
    """One text, or a pair of texts, with the probability of each label, of which `label` is the
    most probable."""

    probabilities: tuple[float, ...] = ()


#: What one example is: an :class:`Example`, or what another kind of task reads.
Item = TypeVar("Item")


@dataclass
class Examples(Generic[Item]):
    """The examples of one file in their order, the columns they came from, and what was mended.

    Each item has a `label` (None when unknown) and a `line`. `class_names` are the labels in the
    order that the file gives them, if it gives one. `unlabelled` rows of the file have no label
    and were left out.
    """

    source: str
    text_columns: tuple[str, ...]
    label_column: str | None
    items: list[Item] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    class_names: tuple[str, ...] = field(default=(), kw_only=True)
    unlabelled: int = field(default=0, kw_only=True)

    def __len__(self) -> int:
        return len(self.items)

    def note(self, text: str) -> None:
        """Add a line to the notes, unless it is there."""
        if text not in self.notes:
            self.notes.append(text)

    def fingerprint(self) -> str:
        """Compute SHA-256 of the texts and labels in their order, as hex digits."""
        digest = hashlib.sha256()
        items: list[Any] = self.items
        for item in items:
            digest.update(repr((item.texts, item.label)).encode("utf-8", "surrogatepass"))
            if soft := getattr(item, "probabilities", ()):
                digest.update(repr(soft).encode())
        return digest.hexdigest()

    def hold_out(
        self,
        share: float,
        seed: int,
        *,
        stratify: bool = True,
        known: Collection[int] = (),
    ) -> tuple[Examples[Item], Examples[Item]]:
        """Split off a random `share` of the examples (at least one), of each label about the same
        share; both parts keep the order, and the first has every label.

        Without `stratify` the labels, which may be scores, do not count. Rows whose numbers are
        `known` (:mod:`~bertine.records.known_rows`) stay in the first part, unless the others are
        fewer than half of what is to be split off.

        The same examples, share, seed and known rows give the same parts.
        """
        if not 0 < share < 1 or len(self) < 2:
            raise BertineError(
                f"{self.source}: cannot hold out {share:g} of {counted(len(self), 'example')}; "
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
        # One of each label stays. Of the others in a row, label after label, every so many-th
        # goes, which takes the same share of all.
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
    """Return column names as a tuple: one name alone is one column, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def resolve_text_columns(table: Table, text_columns: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the asked-for text columns, which must be there, or else the usual ones that are
    there."""
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
    raise untold(table.name, table.columns, "text", text_option())


def resolve_label_column(
    table: Table, label_column: str | None, usual: Sequence[str] = LABEL_COLUMNS
) -> str:
    """Return the asked-for label column, which must be there, or else the first of the `usual` ones
    that is there."""
    if label_column:
        require_columns(table.name, table.columns, [label_column])
        return label_column
    for name in usual:
        if name in table.columns:
            return name
    raise untold(table.name, table.columns, "label", option("label_column"))


@contextlib.contextmanager
def columns_of_training(texts: Sequence[str], label: str | None = None) -> Iterator[None]:
    """Within it a table is read whose columns nobody has named, so that those of a model's training
    are looked for: `texts` and `label`. Of one that is not there it is said how to name another.

    Raises:
        BertineError: what is raised within it.
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
            f"table has with {named}"
        ) from error


def refuse_both(table: Table, text_columns: Sequence[str], label_column: str) -> None:
    """Raise a :class:`BertineError` if the label is one of the texts, which would tell it."""
    if label_column in text_columns:
        raise BertineError(
            f"{table.name}: the column {label_column!r} is taken for the label and for a text; "
            f"name another one ({text_option(len(text_columns))}, {option('label_column')})"
        )


def row_texts(table: Table, row: TableRow, text_columns: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of a row, in the order of `text_columns`."""
    return tuple(table.text(row, column) for column in text_columns)


def read_examples(
    path: Source,
    *,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    optional: Sequence[str] = (),
    known: Sequence[str] | None = None,
    label_names: Sequence[str] = LABEL_COLUMNS,
) -> Examples:
    """Read a labelled table whole. Columns that are not named are recognized in the header, that of
    the labels by `label_names`; where an `optional` one holds nothing, the text is empty. `known`
    are the labels that there may be, by which
    :class:`~bertine.records.class_labels.ClassLabels` tells names from numbers.

    Raises:
        BertineError: what :class:`~bertine.tables.table.Table` raises; a column is missing or
            cannot be recognized; no row has a label, or with `strict` one has none; there is no
            row.
    """
    wanted = [*as_columns(text_columns), *([label_column] if label_column else [])]
    reading: dict[str, Any] = {"format": format, "quotes": quotes, "strict": strict}
    with Table(path, wanted=wanted, optional=optional, **reading) as table:
        refuse_plain(table)
        texts = resolve_text_columns(table, text_columns)
        label = resolve_label_column(table, label_column, label_names)
        return labelled_rows(table, table, texts, label, known=known)


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
) -> Examples[Example]:
    """Read the `rows` of a table as examples; `known` as :func:`read_examples` has it. Rows without
    a label are left out, and counted in the notes.

    Raises:
        BertineError: the label is one of the texts; no row has a label, or with `strict` one has
            none; there is no row.
    """
    refuse_both(table, text_columns, label_column)
    examples: Examples[Example] = Examples(table.name, text_columns, label_column)
    labels = ClassLabels(table, label_column, known)
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
            f"{table.name}: {counted(len(without), 'row', 'has', 'have')} no label in "
            f"{label_column!r} and {'was' if len(without) == 1 else 'were'} left out "
            f"({first_numbers(without)}); {option('strict', True)} refuses them"
        )
    note_empty_texts(examples)
    return examples


def note_empty_texts(examples: Examples) -> None:
    """Add to the notes which rows have no text, and which lack one of a pair, or the first of more
    (of which the last ones, choices, may be fewer)."""
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
