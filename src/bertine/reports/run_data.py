"""The data on a run's page, and the baselines that the model is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertine.errors import BertineError
from bertine.reports import html
from bertine.reports.html import Note, Section, Table
from bertine.reports.run_sections import sentence
from bertine.reports.scores import score_name, score_text
from bertine.runs.files import RunFiles

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


def baselines(files: RunFiles) -> list[Section]:
    """A row for the model and for each baseline, the best first."""
    found = files.scores.get("baselines")
    metrics = files.scores.get("final", {}).get("metrics", {})
    if not found:
        return []
    info = files.settings.get("labels_and_columns")
    judged = list(info.get("metrics") or ()) if isinstance(info, Mapping) else []
    try:
        names = [name for name in judged if name in found[0]["metrics"]]
        others = [name for name in found[0]["metrics"] if name not in names]
        names = [*names, *others][: max(_SCORES, len(names))]
        rows = [(str(one["name"]), one["metrics"], f"{one['seconds']:.1f} s") for one in found]
        rows += [("this model", metrics, "")] if metrics else []
        rows.sort(key=lambda row: -sum(row[1].get(name, 0.0) for name in judged))
        cells = [
            [name, *(score_text(key, scores[key]) if key in scores else "" for key in names), took]
            for name, scores, took in rows
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BertineError(
            f"{files.folder / 'scores.json'}: damaged ({error!r}); remove it or train again"
        ) from error
    blocks: list[html.Block] = []
    if metrics and rows[0][0] != "this model":
        text = f"A baseline wins: {rows[0][0]} is better than this model."
        blocks.append(Note(text, "fault"))
    blocks.append(
        Table(["", *map(score_name, names), "time"], cells, numeric=range(1, len(names) + 2))
    )
    return [
        Section(
            "Compared with baselines",
            blocks,
            lead="Cheap models, fitted on the same training examples and judged on the same "
            "validation examples. This model must beat them to be worth its time.",
        )
    ]


def data(files: RunFiles) -> list[Section]:
    """Counts of the labels, and what else was seen in the examples before training."""
    if not files.data:
        return []
    try:
        sets = [files.data["train"], files.data["validation"]]
        findings = [str(finding) for finding in files.data["findings"]]
        blocks: list[html.Block] = [Note(sentence(finding), "warning") for finding in findings]
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
        blocks.append(Table(["", "training", "validation"], rows, numeric=[1, 2]))
        labels: dict[str, int] = sets[0].get("labels", {})
        if labels:
            kept = [
                [name, f"{count:,}", f"{sets[1].get('labels', {}).get(name, 0):,}"]
                for name, count in list(labels.items())[:_LABELS]
            ]
            more = len(labels) - len(kept)
            caption = f"The {len(kept)} most frequent of {len(labels):,}." if more else ""
            blocks.append(
                Table(["label", "training", "validation"], kept, numeric=[1, 2], caption=caption)
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BertineError(
            f"{files.folder / 'data.json'}: damaged ({error!r}); remove it or train again"
        ) from error
    return [Section("The data", blocks, lead="Checked before training.")]


def _inner(part: Mapping[str, Any], group: str, key: str) -> str:
    value = part.get(group, {}).get(key)
    return "" if value is None else f"{value:,.6g}"
