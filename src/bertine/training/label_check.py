"""Find labels of a file that are probably wrong: ``check_labels``, with its report and page."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import Report, aligned, log_all, logger, plural
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file, write_json, write_text
from bertine.core.foreign_files import open_array
from bertine.core.model_folders import locate
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.scores import ranking
from bertine.core.strict_json import Jsonable
from bertine.core.text import Index, visible
from bertine.data.examples import (
    Example,
    Examples,
    count_known,
    find_splits,
    open_table,
    read_examples,
)
from bertine.data.in_memory import InMemoryTable, Source, TableLike, as_data
from bertine.data.languages import model_for
from bertine.data.lines import TableLayout, written_layout
from bertine.data.tables import Table, TableRow
from bertine.data.writer import open_writer
from bertine.hub.model_directory import load_model
from bertine.inference.predictor import Predictor
from bertine.inference.rows import unused
from bertine.inference.train_overlap import rows_known_by
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.experiments import LabelCheckOptions
from bertine.options.verbs import takes_options
from bertine.reports import html
from bertine.reports.html import Fact, Heat, Note, PageTable, Section
from bertine.reports.run_sections import sentence
from bertine.tasks.answer import short
from bertine.tasks.unknown_text import UnknownText
from bertine.training.experiment import Experiment, Job
from bertine.training.job_folder import JobFolder
from bertine.training.search.search import DO_RUN

# Confident learning: find probably wrong labels from the predictions of models that have not seen
# the examples (Northcutt, Jiang and Chuang 2021, arXiv 1911.00068).
#
# Shape legend: N examples, K labels.

#: The lower bound of a probability before its logarithm is taken.
_LEAST = 1e-12


@dataclass(frozen=True)
class LabelNoise:
    """The estimate of label noise in N examples, from the probabilities of models that have not
    seen them.

    Attributes:
        given: int64 [N], the labels.
        counts: int64 [K, K], the confident joint: examples with a label (row) for which a model is
            as sure of some label (column) as it is on average of examples that have it.
        suggested: int64 [N], that label of each example if it is more probable than the given
            label, else the given label.
        log_odds: fp64 [N], the logarithm of the probability of the given label divided by that of
            the suggested one, or of the most probable other one if no other is suggested: the
            lower, the more probably the label is wrong.
        share: the estimated share of wrong labels.
    """

    given: np.ndarray
    counts: np.ndarray
    suggested: np.ndarray
    log_odds: np.ndarray
    share: float

    @property
    def wrong(self) -> np.ndarray:
        """Whether another label is suggested for each example, bool [N]."""
        return np.asarray(self.suggested != self.given)

    @property
    def suspects(self) -> np.ndarray:
        """The indices (int64) of the examples for which another label is suggested, most confident
        first, equal ones in the order of the file."""
        order = ranking(-self.log_odds)
        return order[self.wrong[order]]


def find_noise(probabilities: np.ndarray, labels: np.ndarray) -> LabelNoise:
    """Find labels that are probably wrong.

    Args:
        probabilities: fp64 [N, K], by models that were trained without the example.
        labels: int64 [N]; each of the K occurs.
    """
    numbers = np.arange(len(labels))
    kinds = probabilities.shape[1]
    own = probabilities[numbers, labels]
    # The mean confidence in a label over the examples that have it (equation 2 of the paper).
    thresholds = np.array([own[labels == kind].mean() for kind in range(kinds)])
    sure = np.where(probabilities >= thresholds, probabilities, -1.0)
    confident = sure.max(1) >= 0
    best = sure.argmax(1)
    counts = np.zeros((kinds, kinds), dtype=np.int64)
    np.add.at(counts, (labels[confident], best[confident]), 1)
    # A rare label has a low threshold, so it is suggested only if it is also more probable.
    suggested = np.where(confident & (probabilities[numbers, best] > own), best, labels)
    others = probabilities.copy()
    others[numbers, labels] = 0.0
    other = np.where(suggested != labels, probabilities[numbers, suggested], others.max(1))
    # The ratio, not the difference: where a model is never sure, the probabilities of a wrong label
    # and of the right one are both low and close to each other.
    log_odds = np.log(np.maximum(own, _LEAST)) - np.log(np.maximum(other, _LEAST))
    return LabelNoise(labels, counts, suggested, log_odds, _share(counts, labels))


def _share(counts: np.ndarray, labels: np.ndarray) -> float:
    """Estimate the share of wrong labels: the off-diagonal part of the joint, after its rows are
    scaled to the frequency of each given label."""
    rows = counts.sum(1)
    given = np.bincount(labels, minlength=len(counts))
    wrong = np.where(rows > 0, 1 - np.diag(counts) / np.maximum(rows, 1), 0.0)
    return float((wrong * given).sum() / len(labels))


# The result: a list of suspect labels, and a file to correct.

#: The files in the folder of a check: the results as JSON, the results as a page, and all examples
#: to be corrected.
CHECK, PAGE, CHECKED = "check-labels.json", "check-labels.html", "checked.csv"
#: Models do not know the task well enough if they agree with a smaller share of the labels than the
#: first number, or with at most the second number more than the share of the most frequent label.
_WEAK, _BEYOND = 0.8, 0.02
#: The longest text in the JSON (characters), and the largest number of labels for a matrix there.
_TEXT, _LABELS = 400, 200
#: The numbers of suspects and of confusions that are printed.
_SHOWN, _CONFUSIONS = 10, 5


def number_word(item: SuspectLabel | Example) -> str:
    """Return what the number of an example is."""
    return "index" if isinstance(item.line, Index) else "line"


@dataclass(frozen=True)
class SuspectLabel(Jsonable):
    """An example whose label is probably wrong.

    Attributes:
        line: its line in the file, from 1 on; of data in memory its index, from 0 on, which is
            ``index`` in JSON.
        texts: one text, or the two of a pair.
        label: the given label.
        suggested: the more probable label.
        probability, suggested_probability: the probabilities of these two labels, by a model that
            has not seen the example.
    """

    line: int
    texts: tuple[str, ...]
    label: str
    suggested: str
    probability: float
    suggested_probability: float

    json_keys = (
        *("**_number", "texts=_short_texts", "label", "suggested_label=suggested", "probability"),
        "suggested_probability",
    )
    json_digits = 6

    def _number(self) -> dict[str, int]:
        return {number_word(self): self.line}

    def _short_texts(self) -> list[str]:
        return [short(text, _TEXT) for text in self.texts]


@dataclass(repr=False)
class LabelCheck(Report):
    """The result of a label check.

    Attributes:
        examples: the examples that were checked.
        labels: their labels, sorted.
        noise: the estimate of label noise.
        probabilities: fp64 [N, K], by models that have not seen the example.
        out: the folder.
        every: all examples, including those that could not be checked.
        notes: further notes.
        suspects: the examples whose label is probably wrong, most confident first.
    """

    examples: Examples[Example]
    labels: list[str]
    noise: LabelNoise
    probabilities: np.ndarray
    out: Path
    every: Examples[Example]
    notes: list[str] = field(default_factory=list)
    suspects: list[SuspectLabel] = field(init=False)

    json_keys = (
        *("source=every.source", "**_sizes", "labels", "accuracy", "estimated_share=noise.share"),
        *("notes", "confident_joint=_joint?", "suspects"),
    )

    def __post_init__(self) -> None:
        self.suspects = [self._suspect(number) for number in self.noise.suspects.tolist()]

    def _suspect(self, number: int) -> SuspectLabel:
        item, other = self.examples.items[number], int(self.noise.suggested[number])
        own = int(self.noise.given[number])
        chances = self.probabilities[number]
        return SuspectLabel(
            item.line,
            tuple(item.texts),
            self.labels[own],
            self.labels[other],
            float(chances[own]),
            float(chances[other]),
        )

    @property
    def confusions(self) -> list[tuple[str, str, int]]:
        """Pairs of a given label and a suggested label, with the number of examples, the most
        frequent first."""
        counts: dict[tuple[str, str], int] = {}
        for suspect in self.suspects:
            pair = (suspect.label, suspect.suggested)
            counts[pair] = counts.get(pair, 0) + 1
        return sorted(((a, b, n) for (a, b), n in counts.items()), key=lambda row: -row[2])

    @property
    def weak(self) -> bool:
        """Whether the models do not know the task well: they agree with fewer than 80% of the
        labels, or with hardly more than always answering the most frequent label would."""
        frequent = float(np.bincount(self.noise.given).max() / len(self.noise.given))
        return self.accuracy < max(_WEAK, frequent + _BEYOND)

    @property
    def accuracy(self) -> float:
        """The share of examples whose most probable label is the given one."""
        return float((self.probabilities.argmax(1) == self.noise.given).mean())

    def lines(self) -> list[str]:
        """Return what the command prints."""
        total = len(self.examples)
        lines = [
            f"{len(self.suspects):,} of {plural(total, 'label')} look wrong "
            f"({len(self.suspects) / total:.1%}); estimated share of wrong ones "
            f"{self.noise.share:.1%}",
            f"models trained without an example give its label to {self.accuracy:.1%} of them",
            *self.notes,
        ]
        if self.weak:
            lines.append(
                "they do not know the task well, so most of these labels may be right: read the "
                "list from the top, and do not trust the share"
            )
        rows = [
            [
                f"{number_word(item)} {item.line}",
                visible(item.label),
                visible(item.suggested),
                f"{item.suggested_probability:.0%}",
                short(" / ".join(item.texts)),
            ]
            for item in self.suspects[:_SHOWN]
        ]
        if rows:
            lines += aligned(
                [["", "label", "suggested", "its probability", "text"], *rows], left=(0, 1, 2, 4)
            )
        lines += [
            f"given {label!r}, suggested {other!r}: {plural(number, 'time')}"
            for label, other, number in self.confusions[:_CONFUSIONS]
        ]
        return [
            *lines,
            f"correct {self._label!r} in {self.checked}, and train on that file; page: "
            f"{self.out / PAGE}",
        ]

    @property
    def checked(self) -> Path:
        """The file to correct; for a workbook a copy of it."""
        return _checked(self.every, self.out)[0]

    @property
    def _label(self) -> str:
        return self.examples.label_column or "label"

    def write(self, source: Source, config: DataConfig, encoding: str | None = None) -> None:
        """Write the rows of the `source`, with the suggested labels, as a file to correct and train
        on, in the `encoding` (None: that of the source). Of a csv or tsv file all columns are
        written as they are there, of other sources the texts and labels."""
        own = [*self.examples.text_columns, self._label]
        path, layout = _checked(self.every, self.out, encoding)
        numbers = {item.line: number for number, item in enumerate(self.examples.items)}
        with contextlib.ExitStack() as stack:
            table: Table | None = None
            rows: Iterable[TableRow] = (
                TableRow(item.line, dict(zip(own, [*item.texts, item.label], strict=True)))
                for item in self.every.items
            )
            read = self.every.layout
            plain = read and read.kind in ("csv", "tsv") and not (read.sheet or read.annotations)
            if plain and Path(str(source)).is_file():
                rows = table = stack.enter_context(open_table(source, config))
                own = table.columns
            taken = layout.sheet.columns if layout.sheet else own
            suggested, chance, line = (
                unused(name, taken, "check_")
                for name in (
                    "suggested_label",
                    "label_probability",
                    number_word(self.every.items[0]),
                )
            )
            columns = [*own, suggested, chance, line]
            writer = stack.enter_context(open_writer(path, layout, columns, source=table))
            for row in rows:
                values = {**row.values, suggested: None, chance: None, line: row.line}
                if (number := numbers.get(row.line)) is not None:
                    given = int(self.noise.given[number])
                    values[chance] = round(float(self.probabilities[number, given]), 4)
                    if self.noise.wrong[number]:
                        values[suggested] = self.labels[int(self.noise.suggested[number])]
                writer.write(values, row)

    def _sizes(self) -> dict[str, int]:
        checked = len(self.examples)
        return {"num_not_checked": len(self.every) - checked, "num_examples": checked}

    def _joint(self) -> np.ndarray | None:
        return self.noise.counts if len(self.labels) <= _LABELS else None


def _checked(
    every: Examples[Example], out: Path, encoding: str | None = None
) -> tuple[Path, TableLayout]:
    """Choose the file to correct and its layout: those of a csv file, tsv file or workbook that is
    checked, in an `encoding` that may be another."""
    read = every.layout
    if read is None or read.kind not in ("csv", "tsv"):
        read = TableLayout("csv", ",", True)
    path = out / Path(CHECKED).with_suffix(".xlsx" if read.sheet else ".csv")
    return path, written_layout(path, read, encoding=encoding)


# The page of a label check: the list of suspects, and which labels are confused.

#: The most rows of the list, characters of a text, and labels of a matrix on the page.
_ROWS, _PAGE_TEXT, _PAGE_LABELS = 500, 200, 30


def check_page(result: LabelCheck) -> html.Page:
    """Build the page of a check."""
    total, hit = len(result.examples), len(result.suspects)
    headline = [
        Fact("labels that look wrong", f"{hit:,}", f"of {total:,}"),
        Fact("estimated share of wrong labels", f"{result.noise.share:.1%}"),
        Fact("labels that models agree with", f"{result.accuracy:.1%}", "without having seen them"),
    ]
    rows = [
        [
            f"{item.line:,}",
            item.label,
            item.suggested,
            f"{item.probability:.0%}",
            f"{item.suggested_probability:.0%}",
            " / ".join(short(text, _PAGE_TEXT) for text in item.texts),
        ]
        for item in result.suspects[:_ROWS]
    ]
    blocks: list[html.Block] = [Note("No label looks wrong.", "good")]
    if rows:
        columns = [number_word(result.suspects[0]), "label", "suggested", "probability"]
        columns += ["of the suggestion", "text"]
        more = f" The first {_ROWS} of {hit:,}." if hit > _ROWS else ""
        blocks = [
            PageTable(
                columns,
                rows,
                numeric=(0, 3, 4),
                caption=f"The surest first; the probabilities of both labels.{more}",
            )
        ]
    if result.weak:
        text = (
            "The models do not know the task well, so most of these labels may be right: read the "
            "list from the top, and do not trust the share."
        )
        blocks.insert(0, Note(text, "warning"))
    blocks[:0] = [Note(sentence(note), "warning") for note in result.notes]
    sections = [
        Section(
            "Labels to look at",
            blocks,
            lead=f"Not every one of them is wrong. {result.checked.name} has all examples with "
            "what is suggested: correct the column of the label there, and train on that file.",
        )
    ]
    if len(result.labels) <= _PAGE_LABELS:
        caption = (
            "A row for each label as it is given, a column for what models are sure of that have "
            "not seen the example."
        )
        counts = result.noise.counts.tolist()
        matrix = Heat(result.labels, counts, caption=caption)
        sections.append(Section("Which label is taken for which", [matrix]))
    return html.Page(
        title="Labels that look wrong",
        lead=f"{result.every.source}. By confident learning (Northcutt et al. 2021).",
        headline=headline,
        sections=sections,
        command="check-labels",
    )


#: The fields of :class:`LabelCheckOptions` that may change when a check is resumed, and all that
#: are not passed to fine-tuning.
_FREE = ("processes", "resume")
_OWN = (
    *_FREE,
    *("folds", "format", "quotes", "sheet", "strict", "encoding", "output_encoding"),
)
_JOB = JobFolder("check", CHECK, scraps=("logs/*", "parts/*/data/*"))


@takes_options()
def check_labels(
    data: Path | str | TableLike,
    *,
    model: Path | str | None = None,
    out: Path | str,
    options: LabelCheckOptions,
) -> LabelCheck:
    """Find labels of texts, or of pairs of texts, that are probably wrong.

    For each part of the examples, a model is fine-tuned on all other parts and predicts this one.
    Its probabilities are compared with the labels by confident learning (Northcutt et al. 2021,
    arXiv 1911.00068).

    Args:
        data: a labelled file, or a table in memory; for a folder, its training file.
        model: as for :func:`bertine.finetune`.
        out: the folder of the check. ``out/checked.csv`` has the rows and columns of a csv or tsv
            file as they are, or the texts and labels of other data, with ``suggested_label`` where
            another label is more probable: correct the labels there, and train on that file
            (``checked.xlsx`` for a workbook); an existing one is kept as it is.
            ``out/check-labels.json`` has the results, and ``out/check-labels.html`` the same as a
            page.
        options: the values of the other arguments.

    Returns:
        The result, with the most probably wrong labels first.

    Raises:
        BertineError: what reading the data raises; fewer than two labels that occur twice; a model
            that cannot be trained; `out` holds something else, a check that is not to be resumed,
            or one with other settings.
    """
    if launched():
        raise BertineError("check-labels starts its own processes; start it without torchrun")
    source = _training_part(data)
    examples = read_examples(source, DataConfig.of(options, DEFAULTS))
    log_all(examples.notes)
    _checked(examples, Path(out), options.output_encoding)  # refuses an encoding
    model = model or model_for(examples.items)
    loaded = load_model(model, heads={})
    unknown = UnknownText(loaded.tokenizer)
    unknown.read([item.texts for item in examples.items])
    if line := unknown.note():
        logger.warning(f"{examples.source}: {line}")
    check = _Check(source, examples, Path(out).absolute(), options)
    if seen := count_known(check.examples.items, rows_known_by(model)):
        check.notes.append(
            f"note: the model was trained on {seen:,} of these {len(check.examples):,} examples, "
            "labels and all, so it gives wrong labels back as they are: few look wrong, and the "
            "share is too low; start from a model that has not seen them"
        )
        logger.warning(check.notes[-1].removeprefix("note: "))
    settings = {
        "examples_fingerprint": examples.fingerprint(),
        "weights_fingerprint": loaded.model.fingerprint(),
        **{name: value for name, value in options.changed().items() if name not in _FREE},
    }
    with _JOB.open(check.out, settings, options.resume):
        check.train(model)
        return check.finish(settings)


def _training_part(data: Path | str | TableLike) -> Source:
    """Return the file or table of the training examples."""
    source = as_data(data)
    if isinstance(source, InMemoryTable):
        return source
    part = find_splits(source).train
    if part is None:
        raise BertineError(f"{data}: has no training examples to check")
    return part


def _judged(examples: Examples[Example]) -> Examples[Example]:
    """Remove examples whose label occurs once: a model that has not seen a label cannot predict it.

    Raises:
        BertineError: fewer than two labels are left.
    """
    counts = Counter(item.label for item in examples.items)
    rare = sorted(str(label) for label, count in counts.items() if count < 2)
    if rare:
        occurring = plural(len(rare), "label", "that occurs once is", "that occur once are")
        logger.warning(
            f"{examples.source}: {occurring} not checked: {', '.join(rare[:10])}"
            f"{', …' if len(rare) > 10 else ''}"
        )
    items = [item for item in examples.items if counts[item.label] > 1]
    if len({item.label for item in items}) < 2:
        raise BertineError(
            f"{examples.source}: needs at least two labels that each occur at least twice"
        )
    return dataclasses.replace(examples, items=items)


class _Check:
    """A label check in progress.

    Attributes:
        source: the file or table of the examples.
        every: all examples that were read.
        examples: the examples that are checked.
        labels: their labels, sorted.
        folds: int64 [N], the part that each example is in.
        notes: further notes.
    """

    def __init__(
        self, source: Source, every: Examples[Example], out: Path, options: LabelCheckOptions
    ) -> None:
        self.source, self.every, self.examples = source, every, _judged(every)
        self.notes: list[str] = []
        self.out, self._options = out, options
        if options.folds > len(self.examples):
            raise BertineError(
                f"{option('folds')} is {options.folds}, but there are only "
                f"{plural(len(self.examples), 'example')}"
            )
        self.labels = sorted({str(item.label) for item in self.examples.items})
        self.folds = _folds([str(item.label) for item in self.examples.items], options)
        self._columns = ("text", "second_text")[: len(every.text_columns)]

    def train(self, model: Path | str) -> None:
        """For each part that is not judged yet, train a model on the other parts and judge this
        one."""
        waiting = [fold for fold in range(self._options.folds) if not self._answers(fold).exists()]
        done = self._options.folds - len(waiting)
        logger.info(
            f"{plural(len(self.examples), 'example')} with {plural(len(self.labels), 'label')}, "
            f"in {self._options.folds} parts" + (f", {done} judged before" if done else "")
        )
        names = {f"part {fold + 1} of {self._options.folds}": fold for fold in waiting}

        def on_end(name: str, message: dict[str, Any]) -> None:
            if "done" not in message:
                reason = message.get("error")
                if reason is None:
                    reason = f"{message['lost']} (more in {self._log(names[name])})"
                raise BertineError(f"{name}: {reason}")
            if message["done"]["collapsed"]:
                logger.warning(
                    f"{name}: its model gives the same label to every text, so it says nothing"
                )
            self._judge(names[name])
            logger.info(f"{name}: judged")

        experiment = Experiment(self._options.processes, device=self._options.device)
        experiment.run({name: self._job(fold, model) for name, fold in names.items()}, on_end)

    def finish(self, settings: dict[str, Any]) -> LabelCheck:
        """Compare the probabilities with the labels, and write the results."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        given = np.array([numbers[str(item.label)] for item in self.examples.items])
        probabilities = np.zeros((len(given), len(self.labels)))
        for fold in range(self._options.folds):
            probabilities[self.folds == fold] = open_array(self._answers(fold))
            # Left over from a process that was killed.
            shutil.rmtree(self._folder(fold), ignore_errors=True)
        noise = find_noise(probabilities, given)
        result = LabelCheck(
            self.examples,
            self.labels,
            noise,
            probabilities,
            self.out,
            every=self.every,
            notes=self.notes,
        )
        if result.checked.exists():
            logger.info(f"{result.checked}: is there already, and stays as it is")
        else:
            config = DataConfig.of(self._options, DEFAULTS)
            result.write(self.source, config, self._options.output_encoding)
        write_json(self.out / CHECK, {"settings": settings, **result.to_dict()})
        check_page(result).write(self.out / PAGE)
        return result

    def _folder(self, fold: int) -> Path:
        return self.out / "parts" / f"part-{fold + 1}"

    def _run(self, fold: int) -> Path:
        return self._folder(fold) / f"part-{fold + 1}"

    def _answers(self, fold: int) -> Path:
        return self.out / "parts" / f"part-{fold + 1}.npy"

    def _log(self, fold: int) -> Path:
        return self.out / "logs" / f"part-{fold + 1}.log"

    def _job(self, fold: int, model: Path | str) -> Job:
        """Write the examples of a run, and return the run."""
        data = self._folder(fold) / "data"
        for name, inside in (("train", self.folds != fold), ("dev", self.folds == fold)):
            rows = [
                {**dict(zip(self._columns, item.texts, strict=True)), "label": str(item.label)}
                for item, chosen in zip(self.examples.items, inside.tolist(), strict=True)
                if chosen
            ]
            data.mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(row, ensure_ascii=False) for row in rows)
            write_text(data / f"{name}.jsonl", "".join(f"{line}\n" for line in lines))
        given = self._options.changed()
        arguments = {name: value for name, value in given.items() if name not in _OWN}
        path = locate(model)
        arguments |= {
            "task": "text",
            "model": os.path.abspath(path) if Path(path).exists() else str(model),
            "data": str(data),
            "out": str(self._run(fold)),
            "text_columns": list(self._columns),
            "label_column": "label",
            "save_best": False,
            "calibrate": False,
        }
        return Job(DO_RUN, {"arguments": arguments, "split_seed": 0}, self._log(fold))

    def _judge(self, fold: int) -> None:
        """Predict a part with the model that was trained without it, and keep only the
        probabilities."""
        # In the precision of training: automatic choice of a faster one would be made again for
        # each part.
        predictor = Predictor.for_scores(
            self._run(fold) / "model", self._options.device, self._options.precision
        )
        items = [
            item for item, part in zip(self.examples.items, self.folds, strict=True) if part == fold
        ]
        answers, _ = predictor.run(dataclasses.replace(self.examples, items=items))
        order = [predictor.task.labels.index(label) for label in self.labels]
        table = np.array([answer.numbers for answer in answers])[:, order]
        _write_array(self._answers(fold), table)
        shutil.rmtree(self._folder(fold), ignore_errors=True)


def _folds(labels: Sequence[str], options: LabelCheckOptions) -> np.ndarray:
    """Assign the examples to the parts, with each label spread evenly."""
    folds = np.empty(len(labels), dtype=np.int64)
    draw = generator(options.seed, "parts of a label check")
    begin = 0
    numbers: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        numbers.setdefault(label, []).append(number)
    for label in sorted(numbers):
        own = numbers[label]
        order = draw.permutation(np.array(own))
        folds[order] = (begin + np.arange(len(own))) % options.folds
        begin += len(own)
    return folds


def _write_array(path: Path, array: np.ndarray) -> None:
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)
