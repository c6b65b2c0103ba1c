"""Read the tables of the papers, define their columns, and hold out text for scores.

A table is a YAML file in ``tables/``. It defines the rows and columns, the training of each row,
and the published scores.
Keys:

- ``title``, ``paper``, ``url``: the subject of the comparison, and its source, with the number of
  the table.
- ``scale``: how the paper's models were trained, in a few words.
- ``note``: differences from the paper, in a sentence or two; optional.
- ``given``: whether the rows that are run are weights that the user gives, and the rows of the file
  are published scores only.
- ``snapshots``: for a table that is a curve, at how many points of pre-training each model is
  fine-tuned; each row then becomes that many rows.
- ``columns``: names of :data:`bertine.papers.table.MEASURES`, those of the published table first,
  then others that measure the same if the data of those are not available.
- ``common``: settings of all rows: ``pretrain``, ``finetune``, ``distill``, … (arguments of these
  verbs under their names) and ``sizes``.
- ``rows``: a list; each has a ``name``, a ``title``, ``published`` (scores by column, and
  ``average``, if the paper has one), and any key of ``common``. ``sizes`` are those of the model:
  its ``type`` and fields of its configuration; ``layers``, ``width``, ``heads``, ``embedding`` and
  ``lstm`` are relative to the sizes that the user chose. ``teacher`` names the row that a model is
  distilled from, and ``new_weights`` means that it starts from random weights, not from the
  teacher's. ``model_of`` names the row whose pre-trained model this row uses too, fine-tuned in
  another way. ``begins_with`` names the row whose pre-trained model this one starts from, grown to
  its own number of layers; ``grown``, together with ``model_of``, has the sizes of a model with
  additional new layers, which is fine-tuned without further pre-training.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TextIO

import yaml
import zstandard

from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, os_errors
from bertine.tokenization.corpus import Corpus

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
