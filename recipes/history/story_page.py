"""The table of the story, and its page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from story_data import ENTITIES, PAIRS, TASKS
from story_looks import BANKS, COMPARED, GAPS, WAYS
from systems import System

from bertine.core.console import aligned, human_time, plural
from bertine.core.names import __version__
from bertine.reports.html import (
    Block,
    Fact,
    FactList,
    Figure,
    Figures,
    Guess,
    Note,
    Page,
    PageTable,
    Section,
    percent_text,
)
from bertine.reports.plots import curve
from bertine.reports.run_files import read_log

Results = Sequence[Mapping[str, Any]]
#: What one line of a table is: the name of a system, and how it is used.
Line = tuple[str, str]
_AVERAGE = "average"
_NONE = "–"
_GLUE = [task.name for task in TASKS]


def by_line(results: Results) -> dict[Line, dict[str, list[float]]]:
    """Return the scores, times 100, of each system and way by task, a number a seed; the average
    over the five tasks of GLUE among them."""
    lines: dict[Line, dict[str, list[float]]] = {}
    for result in results:
        scores = lines.setdefault((result["system"], result["way"]), {})
        scores.setdefault(result["task"], []).append(100 * result["score"])
    for scores in lines.values():
        if all(name in scores for name in _GLUE):
            seeds = zip(*(scores[name] for name in _GLUE), strict=True)
            scores[_AVERAGE] = [statistics.fmean(seed) for seed in seeds]
    return lines


def spread(values: Sequence[float] | None) -> str:
    """Write the mean and the standard deviation."""
    if not values:
        return _NONE
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def ranked(lines: Mapping[Line, Mapping[str, Sequence[float]]]) -> list[Line]:
    """Return the lines with an average, best first."""
    judged = [line for line in lines if _AVERAGE in lines[line]]
    return sorted(judged, key=lambda line: -statistics.fmean(lines[line][_AVERAGE]))


def _tasks(results: Results) -> list[str]:
    entities = [ENTITIES] if any(result["task"] == ENTITIES for result in results) else []
    return [_AVERAGE, *_GLUE, *entities]


def table_rows(
    systems: Sequence[System], results: Results, order: Sequence[Line]
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the scores in this order."""
    lines, titles = by_line(results), {system.name: system.title for system in systems}
    tasks = _tasks(results)
    rows = [
        [titles[name], way, *(spread(lines[name, way].get(task)) for task in tasks)]
        for name, way in order
    ]
    return ["system", "used", *tasks], rows


def score_lines(systems: Sequence[System], results: Results) -> list[str]:
    """Return the table for a terminal, best average first, and BLiMP below it."""
    lines = by_line(results)
    header, rows = table_rows(systems, results, ranked(lines))
    shown: list[str] = [*aligned([header, *rows], left=(0, 1), head=True)]
    pairs = _pairs(systems, lines)
    if pairs:
        shown.append("BLiMP: " + ", ".join(f"{title} {score:.1f}" for title, score in pairs))
    return [*shown, _how_to_read(results)]


def _pairs(systems: Sequence[System], lines: Mapping[Line, Any]) -> list[tuple[str, float]]:
    """Return titles and accuracies, best first."""
    found = [
        (system.title, lines[system.name, "language model"][PAIRS][0])
        for system in systems
        if (system.name, "language model") in lines
    ]
    return sorted(found, key=lambda entry: -entry[1])


def _how_to_read(results: Results) -> str:
    seeds = len({result["seed"] for result in results})
    over = "one seed" if seeds == 1 else f"mean and standard deviation over {seeds} seeds"
    return f"dev sets, times 100 ({', '.join(f'{t.name} {t.metric}' for t in TASKS)}); {over}"


def write_page(
    path: Path,
    out: Path,
    systems: Sequence[System],
    plan: Mapping[str, Any],
    settings: Mapping[str, Any],
    results: Results,
    trained: Mapping[str, Mapping[str, Any]],
    seen: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write the page of a story.

    Args:
        plan: what was meant to be done.
        settings: all of it.
        results: a score each.
        trained: the result of training of each system.
        seen: what words look like to it.
    """
    lines = by_line(results)
    order = ranked(lines)
    titles = {system.name: system.title for system in systems}
    best, way = order[0]
    lead = (
        f"{plural(len(systems), 'system')} read the same text and had the same "
        f"{human_time(plan['seconds'])} of CPU time for it. On average over five tasks of GLUE "
        f"{titles[best]} {'fine-tuned' if way == 'fine-tuned' else 'as frozen features'} did best."
    )
    headline = [
        Fact(titles[name], spread(lines[name, way][_AVERAGE]), way) for name, way in order[:4]
    ]
    footer = (
        f"Bertine {__version__}; {plural(settings['seeds'], 'seed')}, at most "
        f"{plan['examples']:,} training examples a task, {settings['minutes']:g} minutes on all "
        "cores"
    )
    sections = [
        _scores(systems, results, order),
        _in_time(systems, lines, trained),
        _curves(out, systems),
        _banks(systems, seen),
        _gaps(systems, seen),
    ]
    pairs = _pairs(systems, lines)
    if pairs:
        sections.insert(2, _minimal_pairs(systems, pairs, results))
    Page("Before BERT and beside it", lead, headline, sections, footer).write(path)


def _scores(systems: Sequence[System], results: Results, order: Sequence[Line]) -> Section:
    (system, _, *tasks), rows = table_rows(systems, results, order)
    # One column says what a row is, which stays in sight on a narrow screen.
    lines = [[f"{title}, {way}", *scores] for title, way, *scores in rows]
    numbers = tuple(range(1, len(tasks) + 1))
    caption = _how_to_read(results) + "; entities: F1 on the dev set"
    return Section(
        "Scores, best first",
        [PageTable([system, *tasks], lines, numbers, caption)],
        lead="Frozen: a BiLSTM over the mix of a model's layers (of word2vec the mean of the "
        "vectors of a text's words, with logistic regression, and of entities a BiLSTM over them). "
        "Fine-tuned: all weights learn the task.",
    )


def _in_time(
    systems: Sequence[System],
    lines: Mapping[Line, Mapping[str, Sequence[float]]],
    trained: Mapping[str, Mapping[str, Any]],
) -> Section:
    rows = []
    for system in systems:
        frozen = lines.get((system.name, "frozen"), {}).get(_AVERAGE)
        tuned = lines.get((system.name, "fine-tuned"), {}).get(_AVERAGE)
        rows.append(
            [
                str(system.year),
                system.title,
                system.about,
                _amount(system, trained[system.name]),
                human_time(trained[system.name]["cpu"]),
                spread(frozen),
                spread(tuned),
            ]
        )
    header = ["year", "system", "learns", "training", "CPU time", "frozen", "fine-tuned"]
    return Section(
        "In the order of time",
        [PageTable(header, rows, (3, 4, 5, 6), "averages over the five tasks")],
        lead="What each learned from the text, how much of it there was time for, and the time "
        "that training took, with finding out how fast it is. What takes a tenth more than its "
        "time is stopped as it is.",
    )


def _amount(system: System, result: Mapping[str, Any]) -> str:
    """Write how much training there was, and whether it was stopped."""
    amount = plural(result["amount"], system.unit)
    planned = result.get("planned", result["amount"])  # a story that was begun before has none
    return amount if result["amount"] == planned else f"{amount} of {planned:,}, then stopped"


def _minimal_pairs(
    systems: Sequence[System], pairs: Sequence[tuple[str, float]], results: Results
) -> Section:
    found = {result["system"]: result for result in results if result["task"] == PAIRS}
    count = next(iter(found.values()))["pairs"]
    # Those of a story that was begun before have none.
    methods = {s.title: found[s.name].get("method", "") for s in systems if s.name in found}
    rows = [[title, f"{score:.1f}", methods[title]] for title, score in pairs]
    blocks: list[Block] = [PageTable(["system", "accuracy", "compared"], rows, (1,))]
    why = [f"{s.title}: none, for {s.why_not}." for s in systems if not s.scores_pairs]
    if why:
        blocks.append(Note(" ".join(why)))
    return Section(
        "Which sentence is right",
        blocks,
        lead=f"How often a system finds the right one of two sentences more probable, over "
        f"{count:,} pairs of BLiMP; guessing gives 50. Each is asked in its own way, so that the "
        "numbers say how well a system knows the right sentence, and not how probable it is.",
    )


def _curves(out: Path, systems: Sequence[System]) -> Section:
    groups: dict[str, list[Figure]] = {}
    for system in systems:
        if not system.loss:
            continue
        log = read_log(out / "runs" / system.name / "log.jsonl")
        # Where there is but one loss, it has no name of its own.
        values = [float(row.get(system.loss, row["loss"])) for row in log if "loss" in row]
        steps = [row["step"] for row in log if "loss" in row]
        last = f"{values[-1]:.3f}" if values else "nothing logged"
        alt = f"The loss of {system.title} over its updates; at the end {last}."
        figure = Figure(system.title, curve(steps, values), alt, f"Nats; {system.about}.")
        groups.setdefault(system.same_loss or system.name, []).append(figure)
    blocks: list[Block] = []
    alone: list[Figure] = []
    for name, figures in groups.items():
        if len(figures) > 1:
            blocks.append(Figures(figures))
            blocks.append(Note(f"These losses can be compared: {name}."))
        else:
            alone += figures
    if alone:
        blocks.insert(0, Figures(alone))
    return Section(
        "Losses",
        blocks,
        lead="Each system foretells something else, of words or of pieces of a vocabulary of its "
        "own, so that their losses cannot be compared with each other unless that is said. "
        "word2vec has none that is written down.",
    )


def _banks(systems: Sequence[System], seen: Mapping[str, Mapping[str, Any]]) -> Section:
    names = [f"{a + 1} and {b + 1}" for a, b in COMPARED]
    rows = [
        [system.title, *(_NONE if v is None else f"{v:.2f}" for v in seen[system.name]["cosines"])]
        for system in systems
    ]
    facts = FactList([Fact(str(number), text) for number, text in enumerate(BANKS, 1)])
    return Section(
        "“bank” in two sentences",
        [
            facts,
            PageTable(["system", *names], rows, (1, 2, 3, 4), "cosine of “bank” in two sentences"),
        ],
        lead="1 and 2 are of a river, 3 and 4 of money. word2vec has one vector for all of them. "
        "Where a system tells the two apart, the first two columns are above the last two.",
    )


def _gaps(systems: Sequence[System], seen: Mapping[str, Mapping[str, Any]]) -> Section:
    blocks: list[Block] = []
    for number, (before, after) in enumerate(GAPS):
        rows = []
        for system in systems:
            words = seen[system.name]["words"][number]
            if words:
                way = WAYS[system.asked]
                rate = percent_text if way.rated else "{:.2f}".format
                text = ", ".join(f"{Guess(word, 0).shown} ({rate(value)})" for word, value in words)
                rows.append([system.title, text, way.title])
        blocks.append(
            PageTable(["system", "says", "asked for"], rows, (), f"{before} ____ {after}")
        )
    return Section("A word that is missing", blocks, lead="The five best guesses of each.")
