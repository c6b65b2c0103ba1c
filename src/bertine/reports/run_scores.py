"""Make the section on a run's page about its validation examples: scores by epoch and by label,
and the confusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertine.reports import html
from bertine.reports.html import Figure, Figures, Heat, Note, PageTable, Section
from bertine.reports.plots import scatter
from bertine.reports.run_sections import evaluations_of, scores_table, sentence
from bertine.runs.files import RunFolder, naming_damage

#: A confusion matrix of more classes is not read, but looked up: its worst cells are listed.
_MATRIX_LIMIT = 30
_WORST = 30
#: More labels than that are told by the most frequent ones.
_MOST_LABELS = 200
#: The columns of a table of labels: what the report calls them, and what people do.
_LABEL_SCORES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_LABEL_COUNTS = {"support": "examples", "true": "actual", "predicted": "predicted"}


def validation(run: RunFolder) -> list[Section]:
    """Show the scores of each epoch, and those of each label of the model that was saved."""
    evaluations = evaluations_of(run.log)
    final = run.scores.get("final", {})
    with naming_damage(run.path / "scores.json"):
        blocks = _details(final)
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
        return []
    labels: list[str] = list(final.get("labels") or [])
    positive = ""
    if "confusion" in final and "f1" in final.get("metrics", {}) and len(labels) == 2:
        positive = f" The score F1 is that of the class {labels[1]!r}."
    count = final.get("num_examples")
    source = f" of {Path(final['source']).name}" if final.get("source") else ""
    return [
        Section(
            "On the validation examples",
            blocks,
            lead=f"{count:,} examples{source}, after each epoch.{saved}{positive}" if count else "",
        )
    ]


def _details(final: Mapping[str, Any]) -> list[html.Block]:
    """Show what the evaluation of the saved model (the last one, or the best one) says beyond its
    scores, as far as the task has it."""
    blocks: list[html.Block] = []
    labels, matrix = final.get("labels"), final.get("confusion")
    if labels and matrix and len(labels) == len(matrix):
        blocks.append(_confusion([str(label) for label in labels], matrix))
    for key in ("per_label", "types"):
        if final.get(key):
            blocks.append(_labels(final[key]))
    blocks += _answerable(final)
    points = final.get("points")
    if points:
        blocks.append(_points(points, int(final.get("num_examples") or 0)))
    return blocks


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
    """Show the confusion matrix, or, of many classes, those that are confused most often."""
    if len(labels) <= _MATRIX_LIMIT:
        right = sum(matrix[i][i] for i in range(len(labels)))
        total = sum(map(sum, matrix))
        return Heat(
            labels,
            matrix,
            caption=f"Confusion matrix of the saved model: {right:,} of {total:,} examples "
            "right. A row for each actual class, a column for each predicted one; the stronger the "
            "colour, the larger the cell's share of its row.",
        )
    wrong = sorted(
        (
            (count, sum(row), true, guess)
            for true, row in zip(labels, matrix, strict=True)
            for guess, count in zip(labels, row, strict=True)
            if true != guess and count
        ),
        key=lambda cell: -cell[0],
    )
    rows = [
        [true, guess, f"{count:,}", f"{count / total:.1%}"]
        for count, total, true, guess in wrong[:_WORST]
    ]
    return PageTable(
        ["actual", "predicted", "examples", "of the actual class"],
        rows,
        numeric=[2, 3],
        caption=f"{len(labels)} classes; those confused most often.",
    )


def _answerable(final: Mapping[str, Any]) -> list[html.Block]:
    """Show the scores of questions with an answer and of those without, apart."""
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
