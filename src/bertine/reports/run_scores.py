"""Make the sections of a fine-tuning run's page about its data and its scores.

They have the baselines, the scores by epoch and by label, and the confusions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertine.core.scores import better_baseline, score_name, score_text
from bertine.reports import html
from bertine.reports.finetuning_evidence import one_label
from bertine.reports.html import Figure, Figures, Heat, Note, PageTable, Section
from bertine.reports.plots import coverage, reliability, scatter
from bertine.reports.run_files import RunFolder, naming_damage
from bertine.reports.run_sections import evaluations_of, scores_table, sentence

#: A confusion matrix of more classes is too large to read: its worst cells are listed.
_MATRIX_LIMIT = 30
_WORST = 30
#: With more labels than this only the most frequent ones are named.
_MOST_LABELS = 200
#: The columns of a table of labels: the names in the report, and those for people.
_LABEL_SCORES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_LABEL_COUNTS = {"support": "examples", "true": "actual", "predicted": "predicted"}
#: With more labels than this only the most frequent ones are listed.
_LABELS = 30
#: Shares of answered texts that are listed.
_ANSWERED = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0)


class _Words(NamedTuple):
    """The words for what has a probability.

    Attributes:
        one: the noun in the singular.
        right: the name of the right ones.
        kept: the name of those above a lowest probability; "" where none is left open.
    """

    one: str
    right: str
    kept: str = ""


#: By the value of ``reliability`` in ``scores.json``.
_PROBABLE = {
    "answers": _Words("answer", "answers that are right", "texts that are answered"),
    "labels": _Words("label", "labels that are there"),
    "entities": _Words("entity", "entities that are right", "entities that are kept"),
    "tags": _Words("tag", "tags that are right"),
}
#: Scores in the table of baselines.
_SCORES = 4
_LENGTHS = {"median": "median", "p95": "95th percentile", "longest": "longest"}
_SIZES = {
    "examples": "examples",
    "unlabelled": "rows without a label (left out)",
    "empty": "empty texts",
    "duplicates": "repeated texts",
    "conflicts": "texts with several labels",
    "cut": "texts that are cut",
    "in_training": "also in training",
}


def baselines(run: RunFolder) -> Section | None:
    """Compare the model with each baseline, the best first."""
    scored = run.scores.get("baselines")
    metrics = run.scores.get("final", {}).get("metrics", {})
    if not scored:
        return None
    judged = list(run.labels_and_columns.get("metrics") or ())
    with naming_damage(run.path / "scores.json"):
        names = [name for name in judged if name in scored[0]["metrics"]]
        others = [name for name in scored[0]["metrics"] if name not in names]
        names = [*names, *others][: max(_SCORES, len(names))]
        rows = [("this model", metrics, "")] if metrics else []
        rows += [(str(b["name"]), b["metrics"], f"{b['seconds']:.1f} s") for b in scored]
        rows.sort(key=lambda row: -sum(row[1].get(name, 0.0) for name in judged))
        cells = [
            [name, *(score_text(key, scores[key]) if key in scores else "" for key in names), took]
            for name, scores, took in rows
        ]
    blocks: list[html.Block] = []
    count = int(run.scores.get("final", {}).get("num_examples") or 0)
    if name := better_baseline(metrics, judged, scored, count):
        text = f"A baseline wins: {name} is better than this model by more than chance."
        blocks.append(Note(text, "fault"))
    blocks.append(
        PageTable(["", *map(score_name, names), "time"], cells, numeric=range(1, len(names) + 2))
    )
    return Section(
        "Compared with baselines",
        blocks,
        lead="Cheap models, fitted on the same training examples and judged on the same "
        "validation examples. This model must beat them to be worth its time.",
    )


def teacher(run: RunFolder) -> Section | None:
    """Compare a student with its teacher: scores, agreement, speed; nothing for other runs."""
    extra = run.scores.get("teacher")
    if not isinstance(extra, dict):
        return None
    metrics = run.scores.get("final", {}).get("metrics", {})
    with naming_damage(run.path / "scores.json"):
        theirs: dict[str, float] = dict(extra.get("metrics") or {})
        own = bool(extra.get("judged_by_teacher"))
        judged = list(run.labels_and_columns.get("metrics") or ())
        names = [name for name in judged if name in metrics]
        names += [name for name in metrics if name not in names]
        names = names[: max(_SCORES, len(judged))]
        rows = [["this student", *(score_text(name, metrics[name]) for name in names)]]
        if theirs:
            cells = [score_text(n, theirs[n]) if n in theirs else "" for n in names]
            rows.append([f"the teacher, {extra.get('name')}", *cells])
        facts = []
        if extra.get("agreement") is not None and not own:
            agreed = f"{float(extra['agreement']):.1%} of the validation examples"
            facts.append(f"Both answer {agreed} alike.")
        if extra.get("times_as_fast") is not None:
            facts.append(
                f"The student is {float(extra['times_as_fast']):.1f} times as fast, measured in "
                f"turns on {int(extra.get('timed') or 0):,} texts."
            )
        seen = int(extra.get("seen") or 0)
        if seen:
            facts.append(
                f"The teacher was trained on {seen:,} of the {int(extra.get('judged') or 0):,} "
                "validation examples: its score on them says little about new texts."
            )
        if extra.get("unlabelled"):
            facts.append(
                f"{int(extra['unlabelled']):,} training examples had no label, and "
                f"{int(extra.get('labelled') or 0):,} had one."
            )
    lead = "Both on the validation examples."
    if own:
        lead = "The validation examples have no labels: the student is judged by the teacher's "
        lead += "answers, so its scores are how far both agree."
    blocks: list[html.Block] = [
        PageTable(["", *map(score_name, names)], rows, numeric=range(1, len(names) + 1))
    ]
    return Section("Beside the teacher", [*blocks, *(Note(fact) for fact in facts)], lead=lead)


def data(run: RunFolder) -> Section | None:
    """Show the counts of the labels, and the other facts about the examples before training."""
    if not run.data:
        return None
    with naming_damage(run.path / "data.json"):
        sets = [run.data["train"], run.data["validation"]]
        blocks: list[html.Block] = [
            Note(sentence(str(finding)), "warning") for finding in run.data["findings"]
        ]
        rows = [
            [name, *(f"{examples[key]:,}" if key in examples else "" for examples in sets)]
            for key, name in _SIZES.items()
            if key == "examples" or any(examples.get(key) for examples in sets)
        ]
        rows += [
            [f"length in pieces: {name}", *(_inner(examples, "lengths", key) for examples in sets)]
            for key, name in _LENGTHS.items()
            if "lengths" in sets[0]
        ]
        rows += [
            [f"scores: {key}", *(_inner(examples, "numbers", key) for examples in sets)]
            for key in sets[0].get("numbers", {})
        ]
        blocks.append(PageTable(["", "training", "validation"], rows, numeric=[1, 2]))
        labels: dict[str, int] = sets[0].get("labels", {})
        if labels:
            kept = [
                [name, f"{count:,}", f"{sets[1].get('labels', {}).get(name, 0):,}"]
                for name, count in list(labels.items())[:_LABELS]
            ]
            more = len(labels) - len(kept)
            caption = f"The {len(kept)} most frequent of {len(labels):,}." if more else ""
            blocks.append(
                PageTable(
                    ["label", "training", "validation"], kept, numeric=[1, 2], caption=caption
                )
            )
    return Section("The data", blocks, lead="Checked before training.")


def _inner(counts: Mapping[str, Any], group: str, key: str) -> str:
    value = counts.get(group, {}).get(key)
    return "" if value is None else f"{value:,.6g}"


def validation(run: RunFolder) -> Section | None:
    """Show the scores of each epoch, and those of each label of the model that was saved."""
    evaluations = evaluations_of(run.log)
    final = run.scores.get("final", {})
    with naming_damage(run.path / "scores.json"):
        blocks = _details(final)
        blocks += _calibration(run.scores.get("calibration") or {})
    saved = ""
    if evaluations:
        epochs, total = run.settings.get("epochs"), run.total_steps
        numbers = {}
        if isinstance(epochs, int) and total and epochs and total % epochs == 0:
            size = total // epochs
            numbers = {step: step // size for step, _ in evaluations if step % size == 0}
        blocks.append(scores_table(evaluations, numbers))
        step = run.scores.get("step")
        if isinstance(step, int) and step in numbers and step != evaluations[-1][0]:
            saved = f" The saved model is the one after epoch {numbers[step]}."
    notes = final.get("notes")
    blocks += [Note(sentence(str(note)), "warning") for note in notes or ()]
    if not blocks:
        return None
    labels: list[str] = list(final.get("labels") or [])
    positive = ""
    if one_label(final) and "f1" in final.get("metrics", {}) and len(labels) == 2:
        positive = f" The score F1 is that of the class {labels[1]!r}."
    count = final.get("num_examples")
    source = f" of {Path(final['source']).name}" if final.get("source") else ""
    return Section(
        "On the validation examples",
        blocks,
        lead=f"{count:,} examples{source}, after each epoch.{saved}{positive}" if count else "",
    )


def _details(final: Mapping[str, Any]) -> list[html.Block]:
    """Show the details of the evaluation of the saved model (the last one, or the best one), as far
    as the task has them."""
    blocks: list[html.Block] = []
    labels, matrix = list(map(str, final.get("labels") or ())), final.get("confusion")
    if labels and matrix and len(labels) == len(matrix) <= _MATRIX_LIMIT:
        blocks.append(_confusion(labels, matrix))
    elif labels and (confused := final.get("confused") or _confused(labels, matrix or [])):
        blocks.append(_confused_most(confused, len(labels)))
    for key in ("per_label", "types"):
        if final.get(key):
            blocks.append(_labels(final[key]))
    blocks += _reliability(final.get("reliability") or {})
    blocks += _answerable(final)
    if "mean_words" in final:
        written = [[str(text) for text in pair] for pair in final["examples"]]
        blocks.append(PageTable(["written", "to be written"], written, numeric=()))
    points = final.get("points")
    if points:
        blocks.append(_points(points, int(final.get("num_examples") or 0)))
    return blocks


def _reliability(scores: Mapping[str, Any]) -> list[html.Block]:
    """Plot how reliable the probabilities are, and the gain from answering fewer texts."""
    bins = [(float(a), float(b), int(count)) for a, b, count in scores.get("bins") or ()]
    points = [(float(a), float(b), float(c)) for a, b, c in scores.get("coverage") or ()]
    about = str(scores.get("about", "answers"))
    if not bins or about not in _PROBABLE:
        return []
    words = _PROBABLE[about]
    rows = [
        [f"{share:.0%}", f"{right:.1%}", f"{math.floor(1000 * lowest) / 1000:.3f}"]
        for share, right, lowest in points
        if any(abs(share - wanted) < 0.02 for wanted in _ANSWERED)
    ]
    # Runs of an earlier Bertine have no words.
    off = f"they are off by {100 * float(scores['error']):.1f} points on average"
    alt = "; ".join(f"{chance:.0%}: {right:.0%} of {count}" for chance, right, count in bins)
    shares = "; ".join(f"{share:.0%}: {right:.1%}" for share, right, _ in points)
    figures = [
        Figure(
            "Are probabilities right?",
            reliability(bins, of=words.one, right=words.right),
            f"Share of {words.right} by their probability: {alt}",
            f"On the line they are. {sentence(str(scores.get('in_words') or off))}",
        )
    ]
    if not points:
        return [Figures(figures, columns=2)]
    figures.append(
        Figure(
            f"Fewer {about}, surer ones",
            coverage(points, kept=words.kept, right=words.right),
            f"Share of {words.right}, by the share of {words.kept}: {shares}",
            f"The most certain {about} first.",
        )
    )
    answered = about == "answers"
    below = "texts below the lowest probability are left to people"
    if not answered:
        below = f"{about} below the lowest probability are left out"
    return [
        Figures(figures, columns=2),
        PageTable(
            ["answered" if answered else "kept", "right", "lowest probability"],
            rows,
            numeric=(0, 1, 2),
            caption=f"Where {below} (--abstain-below).",
        ),
    ]


def _calibration(scores: Mapping[str, Any]) -> list[html.Block]:
    """Show the fitted temperature and its effect."""
    if not scores:
        return []
    about = str(scores.get("about", "answers"))
    of = "" if about == "answers" else f" of {about}"
    return [
        Note(
            f"A temperature of {float(scores['temperature']):.2f} was fitted on "
            f"{int(scores['num_examples']):,} validation examples and is in the head. It makes "
            f"probabilities{of} better on examples that it was not fitted on, too."
        )
    ]


def _labels(table: Mapping[str, Mapping[str, float]]) -> html.Block:
    """Show precision, recall and F1 of each label, type of entity or tag."""
    first = next(iter(table.values()))
    counts = {key: name for key, name in _LABEL_COUNTS.items() if key in first}
    kept = list(table)
    if len(kept) > _MOST_LABELS:
        support = next(key for key in counts if key != "predicted")
        kept.sort(key=lambda name: -table[name][support])
        kept = kept[:_MOST_LABELS]
    rows = [
        [
            name or "(no type)",
            *(f"{float(table[name][key]):.2%}" for key in _LABEL_SCORES),
            *(f"{int(table[name][key]):,}" for key in counts),
        ]
        for name in kept
    ]
    columns = ["label", *_LABEL_SCORES.values(), *counts.values()]
    shown = "By label" if "support" in first else "By type"
    more = f"; the {len(kept)} most frequent of {len(table):,}" if len(kept) < len(table) else ""
    return PageTable(
        columns,
        rows,
        numeric=range(1, len(columns)),
        caption=f"{shown}, of the saved model{more}.",
    )


def _confusion(labels: list[str], matrix: list[list[int]]) -> html.Block:
    """Show the confusion matrix."""
    right = sum(matrix[i][i] for i in range(len(labels)))
    total = sum(map(sum, matrix))
    return Heat(
        labels,
        matrix,
        caption=f"Confusion matrix of the saved model: {right:,} of {total:,} examples "
        "right. A row for each actual class, a column for each predicted one; the stronger the "
        "colour, the larger the cell's share of its row.",
    )


def _confused(labels: list[str], matrix: list[list[int]]) -> list[dict[str, Any]]:
    """Return the classes that were confused, the most frequent first, as in the file."""
    wrong = [
        {"actual": true, "predicted": guess, "count": count, "of": sum(row)}
        for true, row in zip(labels, matrix, strict=False)
        for guess, count in zip(labels, row, strict=False)
        if true != guess and count
    ]
    return sorted(wrong, key=lambda entry: -entry["count"])


def _confused_most(confused: Sequence[Mapping[str, Any]], count: int) -> html.Block:
    """Show which of `count` classes are confused most often."""
    rows = [
        [c["actual"], c["predicted"], f"{c['count']:,}", f"{c['count'] / max(1, c['of']):.1%}"]
        for c in confused[:_WORST]
    ]
    return PageTable(
        ["actual", "predicted", "examples", "of the actual class"],
        rows,
        numeric=[2, 3],
        caption=f"{count:,} classes; those confused most often.",
    )


def _answerable(final: Mapping[str, Any]) -> list[html.Block]:
    """Show the scores of questions with an answer and of those without, separately."""
    metrics, answerable = final.get("metrics", {}), final.get("num_answerable")
    if answerable is None or not {"has_answer_f1", "no_answer_f1"} & set(metrics):
        return []
    count = int(final.get("num_examples") or 0)
    kinds = {
        "all": ("", count),
        "with an answer": ("has_answer_", int(answerable)),
        "without": ("no_answer_", count - int(answerable)),
    }
    rows = [
        [name, *(f"{metrics[prefix + key]:.2%}" for key in ("exact_match", "f1")), f"{number:,}"]
        for name, (prefix, number) in kinds.items()
        if prefix + "f1" in metrics
    ]
    return [
        PageTable(
            ["questions", "exact match", "F1", "number"],
            rows,
            numeric=[1, 2, 3],
            caption="With and without an answer, of the saved model.",
        )
    ]


def _points(points: Sequence[Sequence[float]], count: int) -> html.Block:
    """Plot predicted against actual scores."""
    pairs = [(float(true), float(guess)) for true, guess in points]
    number = f"{len(pairs):,} of {count:,}" if len(pairs) < count else f"{count:,}"
    return Figures(
        [
            Figure(
                "Predicted and actual scores",
                scatter(pairs),
                f"Predicted against actual scores of {number} examples",
                f"A point for each of {number} examples; on the line the two are equal.",
            )
        ],
        columns=2,
    )
