"""Read the tables of the papers, and hold, compare and show the result of one."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
import yaml
import zstandard
from scipy.stats import kendalltau

from bertine.core.console import Report, aligned, human_count, human_time
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, os_errors
from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, PageTable, Section
from bertine.reports.plots import curves, spread
from bertine.reports.run_sections import sentence
from bertine.tokenization.documents import Corpus

# Read the tables of the papers, define their columns, and hold out text for scores.
#
# A table is a YAML file in ``tables/``. It defines the rows and columns, the training of each
# row, and the published scores. Keys:
#
# - ``title``, ``paper``, ``url``: the subject of the comparison, and its source, with the number of
#   the table.
# - ``scale``: how the paper's models were trained, in a few words.
# - ``note``: differences from the paper, in a sentence or two; optional.
# - ``given``: whether the rows that are run are weights that the user gives, and the rows of the
#   file are published scores only.
# - ``snapshots``: for a table that is a curve, at how many points of pre-training each model is
#   fine-tuned; each row then becomes that many rows.
# - ``columns``: names of :data:`MEASURES`, those of the published table first, then others that
#   measure the same if the data of those are not available.
# - ``common``: settings of all rows: ``pretrain``, ``finetune``, ``distill``, … (arguments of these
#   verbs under their names) and ``sizes``.
# - ``rows``: a list; each has a ``name``, a ``title``, ``published`` (scores by column, and
#   ``average``, if the paper has one), and any key of ``common``. ``sizes`` are those of the model:
#   its ``type`` and fields of its configuration; ``layers``, ``width``, ``heads``, ``embedding``
#   and ``lstm`` are relative to the sizes that the user chose. ``teacher`` names the row that a
#   model is distilled from, and ``new_weights`` means that it starts from random weights, not from
#   the teacher's. ``model_of`` names the row whose pre-trained model this row uses too, fine-tuned
#   in another way. ``begins_with`` names the row whose pre-trained model this one starts from,
#   grown to its own number of layers; ``grown``, together with ``model_of``, has the sizes of a
#   model with additional new layers, which is fine-tuned without further pre-training.

_FOLDER = Path(__file__).with_name("tables")
#: The verbs whose arguments a row may have.
VERBS = (
    *("train_vocab", "prepare", "pretrain", "pretrain_elmo", "distill"),
    *("finetune", "feature_based"),
)
_OF_ROWS = (*VERBS, "sizes")


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a model, its training, and the published scores.

    Attributes:
        name: of its folder.
        title: as in the table.
        published: the scores of the paper by column.
        arguments: of the verbs of :data:`VERBS` by their names.
        sizes: of the model; see the docstring of the module.
        teacher: the row that it is distilled from.
        new_weights: whether distillation starts from random weights.
        model_of: the row whose pre-trained model it uses.
        begins_with: the row whose pre-trained model it starts from.
        grown: sizes that the model of `model_of` gets before it is fine-tuned.
        snapshot_of: for a curve, the name of the run that it is a point of.
        share: the share of the steps of that run after which it is taken.
        weights: the model directory that was given for it.
    """

    name: str
    title: str
    published: Mapping[str, float] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sizes: Mapping[str, Any] = field(default_factory=dict)
    teacher: str | None = None
    new_weights: bool = False
    model_of: str | None = None
    begins_with: str | None = None
    grown: Mapping[str, Any] = field(default_factory=dict)
    snapshot_of: str | None = None
    share: float = 1.0
    weights: str | None = None

    @property
    def pretrained(self) -> str:
        """The name of the step that creates its model."""
        whole = self.snapshot_of if self.share == 1 else None
        return f"pretrained/{self.model_of or whole or self.name}"

    @property
    def begun(self) -> str:
        """The name of the step that grows the model that it starts from, or is fine-tuned from."""
        return f"begun/{self.name}"

    @property
    def answers_pairs(self) -> bool:
        """Whether its model was pre-trained on pairs of texts."""
        objective = self.arguments.get("pretrain", {}).get("objective")
        return objective in ("mlm-nsp", "mlm-sop")

    @property
    def guesses_words(self) -> bool:
        """Whether it has its own language model, not that of another row."""
        return self.model_of is None and self.weights is None


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
        name: on the command line, such as ``bert-5``.
        title: the subject of the comparison.
        paper: authors, year, number of the table.
        url: of the paper.
        columns: names of measures.
        rows: in the paper's order.
        given: whether rows are weights that are given.
        runs: for a curve, the runs that its rows are points of.
        scale: how the paper's models were trained.
        note: differences from the paper.
    """

    name: str
    title: str
    paper: str
    url: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    given: bool = False
    runs: tuple[TableRow, ...] = ()
    scale: str = ""
    note: str = ""

    def row(self, name: str) -> TableRow:
        """Return the row called `name`."""
        return next(row for row in (*self.rows, *self.runs) if row.name == name)


def table_names() -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


@cache
def read_table(name: str) -> PaperTable:
    """Read the table `name`.

    Raises:
        BertineError: there is no table of this name.
    """
    if name not in table_names():
        raise BertineError(f"there is no table {name!r}; there are {', '.join(table_names())}")
    with open(_FOLDER / f"{name}.yaml", encoding="utf-8") as file:
        content = yaml.safe_load(file)
    common = content.pop("common", {})
    columns = tuple(content.pop("columns"))
    rows = tuple(_row(entry, common) for entry in content.pop("rows"))
    count = content.pop("snapshots", 0)
    runs = rows if count else ()
    if count:
        rows = tuple(_point(row, number / count) for row in runs for number in range(1, count + 1))
    return PaperTable(name=name, columns=columns, rows=rows, runs=runs, **content)


def with_weights(table: PaperTable, weights: Sequence[Path | str]) -> PaperTable:
    """Return a table of given weights with a row for each of them, before those of the paper.

    Raises:
        BertineError: two have the same name, or one that a row of the paper has.
    """
    rows: list[TableRow] = []
    for path in weights:
        parts = Path(path).absolute().parts
        title = "/".join(parts[-2:] if parts[-1] == "model" else parts[-1:])
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        if name in [row.name for row in (*rows, *table.rows)]:
            raise BertineError(f"{path}: another row is called {name!r} too; rename the folder")
        rows.append(TableRow(name=name, title=title, weights=str(path)))
    return replace(table, rows=(*rows, *table.rows))


def _point(run: TableRow, share: float) -> TableRow:
    """Create the row of a run after a share of its steps."""
    percent = f"{100 * share:.0f}"
    return replace(
        run,
        name=f"{run.name}-{percent}",
        title=f"{run.title}, {percent}% of the steps",
        published=run.published if share == 1 else {},
        snapshot_of=run.name,
        share=share,
    )


def _row(entry: dict[str, Any], common: dict[str, Any]) -> TableRow:
    """Create a row from its entry in the file and the settings of all rows."""
    joined = {
        key: {**common.get(key, {}), **entry.pop(key, {})}
        for key in _OF_ROWS
        if key in common or key in entry
    }
    sizes = joined.pop("sizes", {})
    return TableRow(arguments=joined, sizes=sizes, **entry)


# Measures: how a model is scored for each column of the tables.


@dataclass(frozen=True)
class Measure:
    """A way to score a model.

    Attributes:
        verb: the verb to run: ``finetune``, or ``feature_based`` on frozen states, for every seed;
            ``pairs`` classifies pairs of held-out text; ``blimp`` compares acceptable and
            unacceptable sentences; ``time`` measures how long answering takes; ``pretrain`` does
            nothing further, because pre-training has scored its held-out text.
        score: the name of the score among those of the verb.
        arguments: of the verb, in addition to data and model.
        data: possible places of its data in the folder of all data; the first that exists is used.
        percent: whether the score is a share, written times 100.
    """

    verb: Literal["finetune", "feature_based", "pairs", "blimp", "time", "pretrain"]
    score: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    percent: bool = True

    def find(self, data: Path) -> Path | None:
        """Return the place of its data below `data`; None if they are missing."""
        places = (data / place for place in self.data)
        return next((place for place in places if place.exists()), None)


def _glue(name: str, score: str = "accuracy") -> Measure:
    arguments = {"task": "glue", "glue_task": name}
    return Measure("finetune", score, arguments, (f"glue/{name}", name))


def _squad(version: str, score: str) -> Measure:
    file = f"train-v{version}.json"
    return Measure("finetune", score, {"task": "squad"}, (f"squad/{file}", file))


#: Folders of sentences with tagged entities.
_ENTITIES = ("ner", "conll2003", "wnut17")


def _texts(columns: list[str], label: str, data: tuple[str, ...]) -> Measure:
    arguments = {"task": "text", "text_columns": columns, "label_column": label}
    return Measure("finetune", "accuracy", arguments, data)


def _held_out(score: str, **more: Any) -> Measure:
    return Measure("pretrain", score, **more)


#: The measures by their names in the tables. Accuracies of sentence pairs are on pairs of held-out
#: text; BLiMP measures the effect of pre-training alone, and is informative even for the smallest
#: models.
MEASURES = {
    "CoLA": _glue("CoLA", "matthews"),
    "SST-2": _glue("SST-2"),
    "MRPC": _glue("MRPC"),
    "MRPC F1": _glue("MRPC", "f1"),
    "STS-B": _glue("STS-B", "pearson"),
    "STS-B Spearman": _glue("STS-B", "spearman"),
    "QQP": _glue("QQP"),
    "QQP F1": _glue("QQP", "f1"),
    "MNLI-m": _glue("MNLI"),
    "MNLI-mm": _glue("MNLI", "mismatched_accuracy"),
    "QNLI": _glue("QNLI"),
    "RTE": _glue("RTE"),
    "WNLI": _glue("WNLI"),
    "SQuAD 1.1": _squad("1.1", "f1"),
    "SQuAD 1.1 EM": _squad("1.1", "exact_match"),
    "SQuAD 2.0": _squad("2.0", "f1"),
    "SQuAD 2.0 EM": _squad("2.0", "exact_match"),
    "SWAG": Measure("finetune", "accuracy", {"task": "swag"}, ("swag", "swag-format-codah")),
    "RACE": Measure("finetune", "accuracy", {"task": "choice"}, ("race", "RACE")),
    "NER": Measure("finetune", "f1", {"task": "tagging"}, _ENTITIES),
    "NER by features": Measure(
        "feature_based",
        "f1",
        {"task": "tagging", "rows": ["concat-last-four"]},
        _ENTITIES,
    ),
    "topics": _texts(["text"], "category", ("sib200", "single-sib200")),
    "OCNLI": _texts(["sentence1", "sentence2"], "label", ("ocnli",)),
    "LM perplexity": _held_out("perplexity", percent=False),
    "MLM": _held_out("mlm_accuracy"),
    "NSP": Measure("pairs", "accuracy", {"input_format": "segment-pair"}),
    "SOP": Measure("pairs", "accuracy", {"input_format": "sentence-order"}),
    "BLiMP": Measure("blimp", "paradigm_mean"),
    "seconds": Measure("time", "seconds", {}, _glue("STS-B").data, percent=False),
}


# Held-out text: most documents of a corpus for training, some for scores of pre-training.

#: The files in the folder that :func:`split_text` writes.
TRAINING, HELD_OUT = "training.jsonl.zst", "held-out.jsonl.zst"
#: One in this many documents is held out, until there are enough characters.
_ONE_OF = 50
#: The most characters that are held out: some 300,000 tokens, of which an evaluation uses 200,000.
_ENOUGH = 1_500_000


def split_text(folder: Path, corpus: Sequence[str]) -> dict[str, Any]:
    """Write the documents of a corpus into two files of `folder`, which appears only when complete.

    Args:
        folder: created; if it exists, it is used as it is.
        corpus: files and folders of texts.

    Returns:
        The number of documents of each file.

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
    """Open a compressed file for writing lines, within the context."""
    with (
        os_errors(path, "writing it"),
        open(path, "wb") as file,
        zstandard.ZstdCompressor().stream_writer(file, closefd=False) as compressed,
        io.TextIOWrapper(compressed, encoding="utf-8") as text,
    ):
        yield text


# Order: compare the order of the rows of a table with the published one.

#: The number of bootstrap samples of the seeds for an interval.
_DRAWS = 1000


@dataclass(frozen=True)
class Order:
    """The agreement of two orders of the same rows.

    Attributes:
        tau: Kendall's τ-b: 1 if they are the same, -1 if one is the reverse of the other.
        low, high: the 95% interval over the seeds; both `tau` if each row has one seed.
        rows: how many were compared.
    """

    tau: float
    low: float
    high: float
    rows: int


def kendall(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Compute Kendall's τ-b of two lists of numbers; return None if all numbers of one are
    equal."""
    tau = float(kendalltau(ours, theirs).statistic)
    return None if math.isnan(tau) else tau


def compare_order(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[str, float], seed: int = 0
) -> Order | None:
    """Compare the means of the scores of rows with published scores.

    Args:
        ours: the scores of each row, one a seed.
        theirs: the published score of each row; rows that only one of the two has are left out.
        seed: of the random samples for the interval: the seeds of each row, drawn with replacement
            (the bootstrap).

    Returns:
        None for fewer than three rows, or if all of them have the same score.
    """
    rows = [row for row in ours if row in theirs and ours[row]]
    if len(rows) < 3:
        return None
    published = [theirs[row] for row in rows]
    tau = kendall([statistics.fmean(ours[row]) for row in rows], published)
    if tau is None:
        return None
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(_DRAWS if any(len(ours[row]) > 1 for row in rows) else 0):
        means = [float(rng.choice(np.array(ours[row]), len(ours[row])).mean()) for row in rows]
        value = kendall(means, published)
        drawn.append(0.0 if value is None else value)
    low, high = np.percentile(drawn, [2.5, 97.5]).tolist() if drawn else (tau, tau)
    return Order(tau, low, high, len(rows))


#: The files in the folder of the table: its scores as JSON, and as a page.
TABLE, PAGE = "paper.json", "paper.html"
#: The key of the mean of the columns.
AVERAGE = "average"


@dataclass(repr=False)
class PaperResult(Report):
    """The result of running a table.

    Attributes:
        table: the table.
        out: its folder.
        columns: the columns that were run.
        scores: of each row by column, one a seed; shares are not times 100.
        scale: the scale of the runs, in words.
        parameters: the number of parameters of the model of each row.
        seconds: the total time of all steps.
        failed: the reasons of failures, by the names of the steps.
        left_out: the reasons why columns were left out.
        curves: of the pre-training of each row, (steps, losses).
    """

    table: PaperTable
    out: Path
    columns: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Sequence[float]]]
    scale: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    failed: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, tuple[list[int], list[float]]] = field(default_factory=dict)

    json_keys = (
        *("table=table.name", "paper=table.paper", "scale", "columns", "scores"),
        *("published=_published", "parameters", "orders", "seconds", "left_out", "failed"),
    )

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return not self.failed

    def averages(self, row: str) -> list[float]:
        """Return the means of a row over the columns with fine-tuning, one a seed; empty if a cell
        is missing."""
        columns = [name for name in self.columns if MEASURES[name].verb == "finetune"]
        of_row = [self.scores.get(row, {}).get(name, ()) for name in columns]
        seeds = min(map(len, of_row), default=0)
        return [statistics.fmean(scores[seed] for scores in of_row) for seed in range(seeds)]

    def _published_mean(self, row: str) -> float | None:
        """Return the published value by which a row is ordered: its average, or the mean of its
        scores over the columns of the paper; None if one is missing."""
        published = self.table.row(row).published
        if AVERAGE in published:
            return published[AVERAGE]
        columns = [name for name in self.table.columns if MEASURES[name].verb == "finetune"]
        columns = [n for n in columns if any(n in other.published for other in self.table.rows)]
        if not columns or any(name not in published for name in columns):
            return None
        return statistics.fmean(published[name] for name in columns)

    def orders(self) -> dict[str, Order]:
        """Compare the order of the rows with the published one, for each column and for the means
        of all columns."""
        result: dict[str, Order] = {}
        for column in self.columns:
            ours = {row: list(by.get(column, ())) for row, by in self.scores.items()}
            theirs = {row.name: row.published for row in self.table.rows}
            published = {row: by[column] for row, by in theirs.items() if column in by}
            order = compare_order(ours, published)
            if order is not None:
                result[column] = order
        averages = {row: self.averages(row) for row in self.scores}
        published = {
            row: value for row in averages if (value := self._published_mean(row)) is not None
        }
        order = compare_order(averages, published)
        if order is not None:
            result[AVERAGE] = order
        return result

    def cells(self) -> list[list[str]]:
        """Return the table as texts: a list for each row, with the published scores in brackets."""
        titles = [row for row in self.table.rows if self.table.given or row.name in self.scores]
        shown = [*self.columns, *([AVERAGE] if self._has_average() else [])]
        rows = [["", "parameters", *shown]]
        for row in titles:
            parameters = self.parameters.get(row.name)
            cells = [row.title, human_count(parameters) if parameters else ""]
            for column in shown:
                if column == AVERAGE:
                    ours, published = self.averages(row.name), row.published.get(AVERAGE)
                    cells.append(_cell(ours, published, percent=True))
                else:
                    values = self.scores.get(row.name, {}).get(column, ())
                    percent = MEASURES[column].percent
                    cells.append(_cell(values, row.published.get(column), percent=percent))
            rows.append(cells)
        return rows

    def caption(self) -> str:
        """Explain the numbers of a cell."""
        shares = ", shares times 100" if any(MEASURES[c].percent for c in self.columns) else ""
        averages = "; averages are over tasks that are fine-tuned for" * self._has_average()
        return (
            f"mean ± standard deviation over seeds{shares}; in brackets the published scores"
            f"{averages}"
        )

    def _has_average(self) -> bool:
        return sum(MEASURES[name].verb == "finetune" for name in self.columns) > 1

    def lines(self) -> list[str]:
        """Return what the command prints."""
        lines = [f"{self.table.title} ({self.table.paper})", *aligned(self.cells())]
        lines.append(self.caption())
        for name, order in self.orders().items():
            lines.append(f"{name}: {order_line(order)}")
        lines += filter(None, (self.scale, self.table.note))
        lines += [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]
        lines += [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        if self.seconds:
            lines.append(f"all steps together took {human_time(self.seconds)}")
        return [*lines, f"page: {self.out / PAGE}"]

    def _published(self) -> dict[str, Any]:
        return {row.name: row.published for row in self.table.rows}


def order_line(order: Order) -> str:
    """Describe how well the order of the rows agrees with the published one."""
    interval = f" ({order.low:.2f} to {order.high:.2f} over the seeds)"
    return (
        f"order of {order.rows} rows beside the published one: Kendall's τ {order.tau:.2f}"
        f"{interval if order.low != order.high else ''}"
    )


def _cell(values: Sequence[float], published: float | None, *, percent: bool) -> str:
    """Format the scores of a cell."""
    text = "–"
    if values:
        factor = 100 if percent else 1
        mean = factor * statistics.fmean(values)
        # Three digits, because seconds may be far below 1.
        digits = 1 if percent or mean <= 0 else max(1, 2 - math.floor(math.log10(mean)))
        text = f"{mean:.{digits}f}"
        if len(values) > 1:
            text += f" ± {factor * statistics.stdev(values):.{digits}f}"
    return text if published is None else f"{text} ({round(published, 2):g})"


# The page of a table: its scores and the published ones, their spread, the curves.


def paper_page(result: PaperResult) -> html.Page:
    """Build the page of a table."""
    table = result.table
    orders = result.orders()
    headline = [Fact("rows", str(len(result.scores)))]
    if AVERAGE in orders:
        order = orders[AVERAGE]
        note = f"{order.low:.2f} to {order.high:.2f} over the seeds"
        headline.insert(0, Fact("Kendall's τ of the averages", f"{order.tau:.2f}", note))
    head, *rows = result.cells()
    notes: list[html.Block] = []
    if orders:
        shown = [
            [name, f"{o.tau:.2f}", f"{o.low:.2f} to {o.high:.2f}"] for name, o in orders.items()
        ]
        below = "1: the rows are in the published order; -1: in the opposite one."
        columns = ["", "Kendall's τ", "over the seeds"]
        notes.append(
            PageTable(columns, shown, numeric=(1, 2), caption=f"The order of rows. {below}")
        )
    if result.left_out:
        reasons = "; ".join(f"{name} ({why})" for name, why in result.left_out.items())
        notes.append(Note(f"Left out: {reasons}."))
    notes += [Note(f"{name} failed: {why}", "fault") for name, why in result.failed.items()]
    caption = sentence(result.caption())
    blocks = [PageTable(head, rows, numeric=range(1, len(head)), caption=caption), *notes]
    lead = f"{sentence(result.scale)} {table.note}".strip()
    sections = [Section("Scores", blocks, lead=lead)]
    if result.table.runs:
        sections.append(Section("Along the way", [Figures(_along(result), columns=2)]))
    elif pictures := _spreads(result):
        lead = "A point a run, a line their mean; the first row stands out."
        sections.append(Section("Spread", [Figures(pictures, columns=2)], lead=lead))
    if result.curves:
        sections.append(Section("Pre-training", [Figures([_curves(result)], columns=1)]))
    return html.Page(
        title=table.title,
        lead=f"{table.paper}, {table.url}",
        headline=headline,
        sections=sections,
        command=f"paper {table.name}",
    )


def _spreads(result: PaperResult) -> list[Figure]:
    """Draw the scores of the rows for each column."""
    figures = []
    titles = {row.name: row.title for row in result.table.rows}
    for column in result.columns:
        if not MEASURES[column].percent:
            continue
        rows = [(titles[row], list(by.get(column, ()))) for row, by in result.scores.items()]
        rows = [(title, values) for title, values in rows if values]
        if not rows:
            continue
        alt = "; ".join(f"{title}: {100 * statistics.fmean(values):.1f}" for title, values in rows)
        picture = spread([title for title, _ in rows], [values for _, values in rows])
        figures.append(Figure(f"{column}, times 100", picture, alt))
    return figures


def _along(result: PaperResult) -> list[Figure]:
    """Draw the scores of a curve for each column, over the share of the steps."""
    figures = []
    for column in result.columns:
        factor = 100 if MEASURES[column].percent else 1
        lines, names = [], []
        for run in result.table.runs:
            points = [
                (100 * row.share, factor * statistics.fmean(values))
                for row in result.table.rows
                if row.snapshot_of == run.name
                and (values := result.scores.get(row.name, {}).get(column))
            ]
            if points:
                names.append(run.title)
                lines.append(([x for x, _ in points], [y for _, y in points]))
        if not lines:
            continue
        alt = "; ".join(
            f"{name}: {', '.join(f'{y:.1f} after {x:.0f}%' for x, y in zip(*line, strict=True))}"
            for name, line in zip(names, lines, strict=True)
        )
        picture = curves(names, lines, label="% of the steps")
        figures.append(Figure(f"{column}, times 100" if factor > 1 else column, picture, alt))
    return figures


def _curves(result: PaperResult) -> Figure:
    names = [result.table.row(name).title for name in result.curves]
    ends = (
        f"{name}: {line[1][-1]:.2f}"
        for name, line in zip(names, result.curves.values(), strict=True)
    )
    caption = "The loss that is minimized; rows of different objectives have different losses."
    return Figure("Loss", curves(names, list(result.curves.values())), "; ".join(ends), caption)


# List: the available tables.


@dataclass(repr=False)
class PaperTables(Report):
    """The available tables.

    Attributes:
        tables: in the order of their names.
    """

    tables: list[PaperTable]

    def lines(self) -> list[str]:
        """Return a line for each table: name, title, number of rows, paper."""
        rows = [[t.name, t.title, f"{len(t.rows)} rows", t.paper] for t in self.tables]
        return aligned(rows, left=(0, 1, 3))


def paper_tables() -> PaperTables:
    """List the tables of the papers that :func:`~bertine.paper` runs."""
    return PaperTables([read_table(name) for name in table_names()])
