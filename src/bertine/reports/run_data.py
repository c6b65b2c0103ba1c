"""Make the sections on a run's page about its data, and about the baselines beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertine.reports import html
from bertine.reports.html import Note, PageTable, Section
from bertine.reports.run_sections import sentence
from bertine.reports.scores import score_name, score_text
from bertine.runs.files import RunFolder, naming_damage

#: Of more labels than that the most frequent ones are listed.
_LABELS = 30
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


def baselines(run: RunFolder) -> list[Section]:
    """Compare the model with each baseline, the best first."""
    found = run.scores.get("baselines")
    metrics = run.scores.get("final", {}).get("metrics", {})
    if not found:
        return []
    judged = list(run.labels_and_columns.get("metrics") or ())
    with naming_damage(run.path / "scores.json"):
        names = [name for name in judged if name in found[0]["metrics"]]
        others = [name for name in found[0]["metrics"] if name not in names]
        names = [*names, *others][: max(_SCORES, len(names))]
        # Of equals the model comes first: a baseline wins that is better.
        rows = [("this model", metrics, "")] if metrics else []
        rows += [(str(one["name"]), one["metrics"], f"{one['seconds']:.1f} s") for one in found]
        rows.sort(key=lambda row: -sum(row[1].get(name, 0.0) for name in judged))
        cells = [
            [name, *(score_text(key, scores[key]) if key in scores else "" for key in names), took]
            for name, scores, took in rows
        ]
    blocks: list[html.Block] = []
    if metrics and rows[0][0] != "this model":
        text = f"A baseline wins: {rows[0][0]} is better than this model."
        blocks.append(Note(text, "fault"))
    blocks.append(
        PageTable(["", *map(score_name, names), "time"], cells, numeric=range(1, len(names) + 2))
    )
    return [
        Section(
            "Compared with baselines",
            blocks,
            lead="Cheap models, fitted on the same training examples and judged on the same "
            "validation examples. This model must beat them to be worth its time.",
        )
    ]


def data(run: RunFolder) -> list[Section]:
    """Show the counts of the labels, and what else was seen in the examples before training."""
    if not run.data:
        return []
    with naming_damage(run.path / "data.json"):
        sets = [run.data["train"], run.data["validation"]]
        blocks: list[html.Block] = [
            Note(sentence(str(finding)), "warning") for finding in run.data["findings"]
        ]
        rows = [
            [name, *(f"{one[key]:,}" if key in one else "" for one in sets)]
            for key, name in _SIZES.items()
            if key == "examples" or any(one.get(key) for one in sets)
        ]
        rows += [
            [f"length in pieces: {name}", *(_inner(one, "lengths", key) for one in sets)]
            for key, name in _LENGTHS.items()
            if "lengths" in sets[0]
        ]
        rows += [
            [f"scores: {key}", *(_inner(one, "numbers", key) for one in sets)]
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
    return [Section("The data", blocks, lead="Checked before training.")]


def _inner(counts: Mapping[str, Any], group: str, key: str) -> str:
    value = counts.get(group, {}).get(key)
    return "" if value is None else f"{value:,.6g}"
