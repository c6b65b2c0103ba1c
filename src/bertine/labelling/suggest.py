"""Suggest which texts to label next: ``suggest``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertine.core.console import ReportOf, plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import cut, listing
from bertine.data.examples import read_examples
from bertine.data.in_memory import Source, TableLike, as_source
from bertine.data.lines import TableLayout, named_kind
from bertine.data.streams import missing_column
from bertine.data.writer import check_output, open_writer
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.rows import unused
from bertine.labelling.chooser import Chooser, Comparison, Reason, accuracy_line, set_apart
from bertine.labelling.pool import PoolVectors, label_of, read_pool
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import SuggestOptions
from bertine.options.verbs import takes_options

#: Characters of a text that are printed, and texts that are chosen at once.
_SHOWN, _MOST = 100, 2_000


@dataclass(frozen=True)
class Suggestion:
    """A text to label.

    Attributes:
        line: its line in the file, from 1 on; of data in memory its index, from 0 on.
        text: the text.
        reason: ``rule``: it teaches most; ``name``: the nearest to the name of a class without
            labels; ``random``: drawn; ``judge``: set apart, to judge and not to learn from.
        values: all columns of its row.
    """

    line: int
    text: str
    reason: Reason
    values: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(repr=False)
class Suggestions(ReportOf[Suggestion]):
    """The texts to label next.

    Attributes:
        items: the texts, in the order in which they should be labelled.
        labels: the classes.
        labelled: the number of labelled texts that are known.
        judges: how many of them are set apart to judge.
        accuracy: the share of these that a head, fitted to the others, labels right, with its 95%
            interval; None: there is nothing to fit or to judge by.
        comparison: of the rule with random labels; None: too few texts have judged.
        notes: notes on what was left out or repaired.
        output: the file that they are written to; None: none.
    """

    items: list[Suggestion]
    labels: list[str]
    labelled: int
    judges: int
    accuracy: tuple[float, float, float] | None
    comparison: Comparison | None
    notes: list[str] = field(default_factory=list)
    output: Path | str | None = None

    def records(self) -> list[dict[str, Any]]:
        """Return the rows in a form for ``pandas.DataFrame``: their columns, and the reason."""
        return [
            {**item.values, unused("reason", item.values, "label_"): item.reason}
            for item in self.items
        ]

    def lines(self) -> list[str]:
        """Return what the command prints."""
        reasons = Counter(item.reason for item in self.items)
        counts = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        lines = [f"{plural(len(self.items), 'text')} to label, by reason: {counts}"]
        if self.accuracy is not None:
            known = plural(self.labelled, "label")
            lines.append(f"{known}; {accuracy_line(self.accuracy, self.judges)}")
        if self.comparison is not None:
            lines.append(self.comparison.line())
        lines += self.notes
        if self.output is not None:
            where = "" if str(self.output) == "-" else f": {self.output}"
            return [*lines, f"label them in this order{where}"]
        return [*lines, *(cut(" ".join(item.text.split()), _SHOWN) for item in self.items)]


@takes_options()
def suggest(
    model: Embedder | Path | str | None,
    texts: Path | str | TableLike,
    labelled: Path | str | TableLike | None = None,
    num: int = 50,
    *,
    output: Path | str | None = None,
    show_progress: bool = True,
    options: SuggestOptions,
) -> Suggestions:
    """Suggest which texts to label next, so that fewer labels teach as much.

    A linear head is fitted to the labels so far, and those texts are chosen that are near to many
    others about which it is uncertain. A fifth of the texts is set apart, by a hash of the text:
    every fifth question is one of them, drawn at random, and they judge the head and the choice.
    Where random labels have taught more, the choice goes on at random, and says so.

    Call it again with what was labelled, in the order of labelling.

    Args:
        model: a model directory of any kind, or a loaded :class:`~bertine.Embedder`, whose own
            settings then apply. None: the best one installed for the language of the texts.
        texts: a table of texts, as for :func:`~bertine.embed`.
        labelled: a table with a column of the same name and labels; its texts need not be among
            `texts`. Rows without a label are left out. None: the same table, if it has a column
            of labels that is not empty; else there are no labels yet.
        num: how many texts to suggest.
        output: a .csv, .tsv, .jsonl or .parquet file, or ``-``: all columns of the suggested rows,
            and ``reason``.
        show_progress: on stderr.
        options: the options described below.

    Raises:
        BertineError: no such model; a table cannot be read; a column is missing; all texts have
            labels; the vectors are of another model.
    """
    check_chosen(None if str(output) == "-" else output, num)
    label = options.label_column or "label"
    pool = read_pool(as_source(texts, "texts"), options, label)
    (column,), columns, name = pool.text_columns, pool.columns, pool.name
    source = as_source(texts if labelled is None else labelled, "labelled")
    if labelled is None:
        if options.label_column and label not in columns and not pool.labelled:
            raise BertineError(missing_column(name, columns, label))
        pairs = [(texts[0], label_of(row.values[label])) for texts, row in pool.labelled]
        if pairs:
            pool.notes.append(f"{name}: the column {label!r} says what is labelled already")
    else:
        config = replace(DataConfig.of(options, DEFAULTS), text_columns=column, format=None)
        examples = read_examples(source, config)
        pairs = [(item.texts[0], str(item.label)) for item in examples.items]
        pool.notes += examples.notes
    known, more = _last_labels(pairs, source, options.labels)
    pool.notes += more
    strange = [text for text in known if (text,) not in pool.rows]
    if strange:
        pool.notes.append(
            f"{plural(len(strange), 'labelled text')} not in {name}; learned from all the same"
        )
    pool.rows |= {(text,): None for text in strange}
    labels = list(dict.fromkeys(options.labels or known.values()))
    computed = PoolVectors(model, pool, options)
    every = [text for (text,) in pool.rows]
    if not any(row is not None and text not in known for (text,), row in pool.rows.items()):
        raise BertineError(f"{name}: every text has a label; there is nothing to ask")
    vectors = computed.of_texts(show=show_progress, advance=lambda done, total: None)
    names = computed.of_labels(labels)
    chooser = Chooser(vectors, set_apart(every), max(1, len(labels)), names, seed=options.seed)
    places = {text: at for at, text in enumerate(every)}
    for text, label in known.items():
        if text in places:
            chooser.label(places[text], labels.index(label))
    questions = chooser.ask(num)
    if len(questions) < num:
        pool.notes.append(f"{name}: has no more texts without a label")
    items = []
    for question in questions:
        row = pool.rows[(every[question.row],)]
        assert row is not None, "texts that are only labelled have labels"
        items.append(Suggestion(row.line, every[question.row], question.reason, dict(row.values)))
    result = Suggestions(
        items,
        labels,
        len(chooser.order),
        len(chooser.judges),
        chooser.accuracy(),
        chooser.comparison,
        pool.notes + computed.embedder.notes(),
        output,
    )
    if output is not None:
        rows_of = ((item.values, str(item.reason)) for item in items)
        write_chosen(output, columns, unused("reason", columns, "label_"), rows_of)
    return result


def _last_labels(
    pairs: Sequence[tuple[str, str]], source: Source, allowed: Sequence[str] | None
) -> tuple[dict[str, str], list[str]]:
    """Return the label of each text in the order of labelling, and notes on what was left out."""
    notes, known = list[str](), dict[str, str]()
    unknown, changed = Counter[str](), 0
    for text, label in pairs:
        if allowed is not None and label not in allowed:
            unknown[label] += 1
            continue
        changed += known.get(text, label) != label
        known[text] = label
    if unknown:
        notes.append(
            f"{source}: {plural(unknown.total(), 'row')} left out, with labels that are not in "
            f"{option('labels')}: {listing(sorted(unknown)[:5])}"
        )
    if changed:
        notes.append(f"{source}: {plural(changed, 'text')} with another label later, which counts")
    return known, notes


def write_chosen(
    output: Path | str,
    columns: Sequence[str],
    added: str,
    rows: Iterable[tuple[Mapping[str, Any], str]],
) -> None:
    """Write chosen rows, their `columns` and a value in the column `added`; JSON lines for
    ``-``."""
    kind = "jsonl" if str(output) == "-" else named_kind(output) or "jsonl"
    layout = TableLayout(kind, {"csv": ",", "tsv": "\t"}.get(kind, ""), kind == "csv")
    with open_writer(output, layout, [*columns, added]) as writer:
        for values, value in rows:
            writer.write({**{name: values.get(name) for name in columns}, added: value})


def check_chosen(output: Path | str | None, num: int) -> None:
    """Refuse an output that is no table, and a number of texts that is none or takes very long,
    before anything is computed."""
    if not 1 <= num <= _MOST:
        raise BertineError(f"{option('num')} is {num}, but must be from 1 to {_MOST:,}")
    if output is None:
        return
    check_output(output)
    if named_kind(output) in (None, "text"):
        raise BertineError(f"{output}: name the output .csv, .tsv, .jsonl or .parquet")
