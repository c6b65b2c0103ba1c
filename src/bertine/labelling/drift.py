"""Compare new texts with those of a model's training: ``drift``, with its report and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np

from bertine.core.console import plural, progress
from bertine.core.errors import BertineError
from bertine.core.files import write_json
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.strict_json import Jsonable
from bertine.core.text import cut, listing
from bertine.data.entities import split_words
from bertine.data.examples import Example, Examples, read_examples
from bertine.data.in_memory import TableLike, as_source
from bertine.inference.embedding.vectors import unit
from bertine.inference.predictor import Predictor
from bertine.inference.rows import open_task_table, unused
from bertine.labelling.chooser import cover, nearness_of
from bertine.labelling.suggest import check_chosen, write_chosen
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import DriftOptions
from bertine.options.verbs import takes_options
from bertine.reports.html import Fact, Note, Page, PageTable, Section
from bertine.reports.run_sections import sentence
from bertine.tasks.calibration import LEAST_EXAMPLES
from bertine.tasks.drift import UNFAMILIAR, Drift, Reader, Reference, Sketch
from bertine.tasks.familiarity import Familiarity

#: Texts among which those to label, and the middles of clusters, are chosen.
_SAMPLE = 1_000
#: The most clusters, the fewest texts of one, and its words and examples that are shown.
_CLUSTERS, _FEWEST, _WORDS, _EXAMPLES = 5, 3, 8, 3
#: Characters of a text that are printed, and on the page.
_PRINTED, _SHOWN = 100, 400


@dataclass(frozen=True)
class Cluster(Jsonable):
    """Unfamiliar texts that are near to each other.

    Attributes:
        texts: how many.
        words: the words that are most typical of them among the new texts.
        examples: some of them, the middle first.
    """

    texts: int
    words: list[str]
    examples: list[str]


@dataclass(repr=False)
class DriftReport(Drift):
    """What has changed since the training, in a file of texts.

    Attributes:
        source: the name of the file.
        clusters: the unfamiliar texts, the most first; none if there are not more than by chance.
        label_first: the lines of the texts to label first, from 1 on; of data in memory their
            index, from 0 on.
        fail_above: the largest loss of accuracy, in points, that is no failure; None: any.
        notes: notes on what was repaired or left out.
        output: the file of the rows to label first; None: none.
    """

    source: str = ""
    clusters: list[Cluster] = field(default_factory=list)
    label_first: list[int] = field(default_factory=list)
    fail_above: float | None = None
    notes: list[str] = field(default_factory=list)
    output: Path | str | None = None

    @property
    def ok(self) -> bool:
        """Whether the estimated accuracy is at most `fail_above` points lower than it was."""
        return self.fail_above is None or self.loss <= self.fail_above

    def lines(self) -> list[str]:
        """Return what the command prints."""
        lines = super().lines()
        for cluster in self.clusters:
            words = f": {listing(cluster.words)}" if cluster.words else ""
            lines.append(f"new: {plural(cluster.texts, 'text')}{words}")
            lines += [f"  {cut(' '.join(text.split()), _PRINTED)}" for text in cluster.examples]
        lines += self.notes
        if self.output is not None:
            lines.append(f"label these {len(self.label_first)} first: {self.output}")
        if not self.ok:
            lines.append(f"failed: the loss is above {self.fail_above:g} points")
        return lines


@takes_options()
def drift(
    model: Predictor | Path | str,
    texts: Path | str | TableLike,
    *,
    reference: Path | str | TableLike | None = None,
    output: Path | str | None = None,
    num: int = 50,
    show_progress: bool = True,
    options: DriftOptions,
) -> DriftReport:
    """Compare new texts, without labels, with those that a model was judged by at its fine-tuning:
    how often it is probably right now, which labels have become more or less frequent, and what is
    new.

    The estimate knows typing errors, words that are missing, texts that are hard for the model, and
    other shares of such. It cannot know that the meaning of labels has changed, nor that a label
    that the model confuses has become frequent (:mod:`bertine.tasks.drift`).

    Args:
        model: a directory of a model that chooses one label of a text, or a loaded one.
        texts: a table of at least 50 new texts, as for :func:`~bertine.predict`.
        reference: labelled rows that the model was not trained on, to compare with. None: those
            that were held out when the model was fine-tuned; models of other programs, and those
            of an earlier Bertine, have no record of them.
        output: a .csv, .tsv, .jsonl or .parquet file: all columns of the rows to label first, and
            the model's ``answer``.
        num: how many rows these are.
        show_progress: on stderr.
        options: the options described below.

    Returns:
        The report; it is not ``ok``, and the exit status of the command 1, where the estimated
        accuracy is more than `fail_above` points lower than before.

    Raises:
        BertineError: no such model, or one without a record; a table cannot be read; a column is
            missing; there are fewer than 50 texts, or labelled ones.
    """
    check_chosen(output, num)
    predictor = Predictor.for_scores(model, options.device, options.precision)
    predictor, held = _with_record(predictor, reference, options)
    with open_task_table(predictor.task, as_source(texts, "texts"), options) as table:
        read = [(row, table.table.text(row, table.columns[0])) for row in table.rows]
        name, columns = table.table.name, table.table.columns
        notes = [*table.notes, *table.table.stats.notes(name)]
    rows, every = (
        [row for row, text in read if text.strip()],
        [text for _, text in read if text.strip()],
    )
    if len(rows) < len(read):
        notes.append(f"{name}: {plural(len(read) - len(rows), 'text')} without content left out")
    if len(rows) < LEAST_EXAMPLES:
        raise BertineError(f"{name}: has {plural(len(rows), 'text')}; {LEAST_EXAMPLES} are needed")
    items = [Example((text,), line=row.line) for text, row in zip(every, rows, strict=True)]
    prepared = predictor.prepare(Examples(name, table.columns, None, items))
    with progress(show=show_progress) as bar:
        job = bar.add_task("drift", total=len(prepared.features))
        outputs = predictor.compute(prepared.features, on_batch=lambda n: bar.advance(job, n))
    readings = held.reader.read(outputs, prepared.features, every)
    sketch = Sketch(held)
    sketch.add(readings)
    vectors = unit(readings.vectors - readings.vectors.mean(0))
    wrong = 1 - held.right(sketch.cells)[0][held.cells_of(readings)]
    first = _label_first(vectors, wrong.astype(np.float32), num)
    compared = sketch.compare()
    report = DriftReport(
        **{entry.name: getattr(compared, entry.name) for entry in fields(compared)},
        source=name,
        label_first=[rows[at].line for at in first],
        fail_above=options.fail_above,
        notes=notes,
        output=output,
    )
    if report.more_unfamiliar:
        report.clusters = _clusters(vectors, np.flatnonzero(readings.familiar < UNFAMILIAR), every)
    if output is not None:
        answers = ((rows[at].values, predictor.labels[readings.answers[at]]) for at in first)
        write_chosen(output, columns, unused("answer", columns, "model_"), answers)
    if options.json is not None:
        write_json(options.json, report.to_dict())
    if options.html is not None:
        drift_page(report).write(options.html)
    return report


def _with_record(
    predictor: Predictor, reference: Path | str | TableLike | None, options: DriftOptions
) -> tuple[Predictor, Reference]:
    """Return the predictor, which also computes vectors, and the record to compare with: that of
    its fine-tuning, or of labelled rows, half of which show what texts of each label are like.

    Raises:
        BertineError: the task does not choose one label of a text; there is no record; the labelled
            rows cannot be read, or are too few.
    """
    task, labels = predictor.task, predictor.labels
    one = "familiarity" in task.rules and len(task.text_columns) == 1
    if not (one and hasattr(predictor.model, "config")):
        raise BertineError(
            f"{task.name}: drift is for models that choose one label of one text, not exported ones"
        )
    if reference is None:
        held = predictor.recorded()
        if held is None:
            raise BertineError(
                f"{predictor.folder or 'the model'}: has no record of held-out texts to compare "
                "with; give labelled rows that it was not trained on "
                f"({option('reference', 'labelled.csv')}), or fine-tune it again, with "
                f"{LEAST_EXAMPLES} validation examples or more"
            )
        return predictor._with(familiarity=held.reader.familiarity), held
    config = replace(
        DataConfig.of(options, DEFAULTS),
        format=None,
        text_columns=options.text_columns or task.text_columns,
        label_column=options.label_column or task.label_column,
    )
    examples = read_examples(as_source(reference, "reference"), config)
    features = predictor.prepare(examples).features
    nothing = np.zeros((1, predictor.model.config.hidden_size), dtype=np.int8)
    unknown = Familiarity(nothing[0].astype(np.float32), nothing, np.zeros(0, dtype=np.float32))
    run = predictor._with(familiarity=unknown).compute  # which computes vectors, too
    order = generator(0, "halves of labelled rows").permutation(len(examples)).tolist()
    halves = {*order[::2]}, {*order[1::2]}
    known, others = ([part for part in features if part.row in half] for half in halves)
    familiarity, made = Familiarity.fit(run, known, others, len(labels)), None
    held_out = replace(examples, items=[examples.items[at] for at in sorted(halves[1])])
    if familiarity is not None:
        reader = Reader(familiarity, labels, predictor.tokenizer.template.added())
        made = Reference.fit(run, lambda some: predictor.prepare(some).features, reader, held_out)
    if made is None:
        raise BertineError(
            f"{examples.source}: has {plural(len(examples), 'labelled row')}; "
            f"{2 * LEAST_EXAMPLES} are needed, and not thousands of labels"
        )
    return predictor._with(familiarity=familiarity), made


def _label_first(vectors: np.ndarray, wrong: np.ndarray, count: int) -> list[int]:
    """Choose the texts that are near to many others whose answers are probably wrong, or far from
    those chosen before; return their numbers."""
    some = generator(0, "texts to label first").permutation(len(vectors))[: max(_SAMPLE, count)]
    nearness = nearness_of(vectors[some], vectors[some])
    chosen, _ = cover(nearness, wrong[some], np.zeros(len(some), dtype=np.float32), count)
    return some[chosen].tolist()


def _clusters(vectors: np.ndarray, rows: np.ndarray, texts: Sequence[str]) -> list[Cluster]:
    """Put the texts of these rows to the nearest of a few middles, which together cover most."""
    sample = generator(0, "unfamiliar texts").permutation(rows)[:_SAMPLE]
    nearness = nearness_of(vectors[sample], vectors[sample])
    none = np.zeros(len(sample), dtype=np.float32)
    chosen, _ = cover(nearness, np.ones_like(none), none, min(_CLUSTERS, len(rows) // _FEWEST))
    cosines = vectors[rows] @ vectors[sample[chosen]].T
    words = [_words(text) for text in texts]
    every = Counter(word for own in words for word in own)
    clusters = []
    for number in range(len(chosen)):
        inside = np.flatnonzero(cosines.argmax(1) == number)
        own = rows[inside[np.argsort(-cosines[inside, number], kind="stable")]].tolist()
        if len(own) >= _FEWEST:
            here = Counter(word for at in own for word in words[at])
            examples = list(dict.fromkeys(texts[at] for at in own))[:_EXAMPLES]
            typical = _typical(here, len(own), every, len(texts))
            clusters.append(Cluster(len(own), typical, examples))
    return sorted(clusters, key=lambda cluster: -cluster.texts)


def _words(text: str) -> set[str]:
    """Return the words of a text in lower case; also two that touch, as in scripts without
    spaces."""
    text = text[: 10 * _SHOWN].lower()
    places = [(begin, end) for begin, end in split_words(text) if text[begin:end].isalnum()]
    pairs = [(one[0], two[1]) for one, two in pairwise(places) if one[1] == two[0]]
    return {text[begin:end] for begin, end in (*places, *pairs)}


def _typical(here: Counter[str], texts: int, every: Counter[str], total: int) -> list[str]:
    """Return the words that more of the texts of a cluster have than of all, the surest first: by
    the log-likelihood ratio (Dunning 1993, Computational Linguistics 19)."""
    scores = {}
    for word, inside in here.items():
        usual, others = every[word] / total, every[word] - inside
        if inside >= _FEWEST - 1 and inside > usual * texts:
            outside = max(others, 1) / max(total - texts, 1)
            scores[word] = inside * log(inside / texts / usual) + others * log(outside / usual)
    return sorted(scores, key=lambda word: -scores[word])[:_WORDS]


def drift_page(report: DriftReport) -> Page:
    """Build the page of a report."""
    low, high = report.interval
    shares = [
        [label.label, f"{label.before:.1%}", f"{label.now:.1%}", label.change]
        for label in sorted(report.labels, key=lambda label: (not label.change, -label.now))
    ]
    new = [
        [listing(cluster.words), f"{cluster.texts:,}", cut(" · ".join(cluster.examples), _SHOWN)]
        for cluster in report.clusters
    ]
    headline = [
        Fact("estimated accuracy now", f"{report.accuracy:.1%}", f"{low:.1%} to {high:.1%}"),
        Fact("before", f"{report.accuracy_before:.1%}", f"{report.held_out:,} held-out texts"),
        Fact("unfamiliar texts", f"{report.unfamiliar:.1%}", "usually 5%"),
    ]
    loss = Note(sentence(report.loss_line()), "warning" if report.fallen else "good")
    tables = {
        "Labels": PageTable(["label", "before", "now", ""], shares, numeric=(1, 2)),
        "What is new": PageTable(["typical words", "texts", "examples"], new, numeric=(1,)),
    }
    sections = [Section(title, [table]) for title, table in tables.items() if table.rows]
    return Page(
        title="Has the world moved?",
        lead=f"{report.source}: {plural(report.texts, 'text')} without labels.",
        headline=headline,
        sections=[Section("How often the model is right", [loss], lead=_LEAD), *sections],
        command="drift",
    )


_LEAD = (
    "Estimated from how sure the model is, how unusual the texts are, and how they are written. "
    "That a label means something else now does not show here."
)
