"""Make the sections of a run's page: diagnosis, scores, masks filled along the way, settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from bertine.reports import html
from bertine.reports.checks.log_view import SHORT_LOG, Finding
from bertine.reports.html import Fact, FactList, Note, PageTable, Section
from bertine.runs.files import RunFolder, naming_damage
from bertine.runs.log import LogRow
from bertine.scores import score_name, score_text
from bertine.terminal.console import counted
from bertine.terms import TERMS, terms_among
from bertine.text.spacing import close_up
from bertine.text.special import WORDPIECE_MASK

#: Rows of a table of evaluations, about.
_ROWS = 12
#: How the names of counts end, which are the same at every evaluation.
_SIZES = ("_count", "sequences")
#: A word at the beginning of a sentence, and no path, file or option.
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*[.,;:]?(?:\s|$)")
#: Settings that say nothing.
_NOT_SET: tuple[Any, ...] = (None, {}, [])
#: Rows of a sentence's history: enough to see it change, few enough to read.
_TIMES = 6
_MOODS: dict[str, Literal["plain", "warning", "fault"]] = {
    "advice": "plain",
    "warning": "warning",
    "fault": "fault",
}


def diagnosis(run: RunFolder, findings: Sequence[Finding]) -> Section:
    """Show what stands out in the run, or that nothing does."""
    notes = [
        Note(sentence(finding.text), _MOODS[finding.severity], finding.command)
        for finding in findings
    ]
    if not notes and len(run.log) < SHORT_LOG:
        notes = [Note(sentence(nothing_found(len(run.log))))]
    elif not notes:
        notes = [Note("Nothing stands out: no stall, no divergence, no loss of speed.", "good")]
    return Section("Diagnosis", notes)


def nothing_found(lines: int) -> str:
    """Say that nothing stands out in a log of so many lines, if that is enough to tell."""
    if lines >= SHORT_LOG:
        return "nothing stands out"
    return f"too little is logged to tell a stall or a divergence: {counted(lines, 'line')}"


def sentence(text: str) -> str:
    """Give `text` a capital and a full stop. What begins with a file's name keeps it."""
    begin = text[:1].upper() if _WORD.match(text) else text[:1]
    return begin + text[1:] + ("" if text.endswith(".") else ".")


def evaluations_of(log: Iterable[LogRow]) -> list[tuple[int, dict[str, float]]]:
    """List step and scores of every evaluation in the log."""
    evaluations = []
    for row in log:
        scores = {
            key.removeprefix("eval_"): value
            for key, value in row.items()
            if key.startswith("eval_") and isinstance(value, int | float)
        }
        if scores:
            evaluations.append((int(row["step"]), scores))
    return evaluations


def held_out(run: RunFolder) -> Section | None:
    """Show the scores on held-out text; nothing where there were no evaluations."""
    evaluations = evaluations_of(run.log)
    if not evaluations:
        return None
    sizes = {f"{name}_count": term.targets for name, term in TERMS.items()} | {"tokens": "tokens"}
    last = evaluations[-1][1]
    counted = [f"{last[name]:,.0f} {what}" for name, what in sizes.items() if name in last]
    # Of one term the loss of all is its own.
    left_out = {*sizes} if len(terms_among(last)) > 1 else {*sizes, "loss", "accuracy"}
    shown = [
        (step, {k: v for k, v in scores.items() if k not in left_out and not k.endswith(_SIZES)})
        for step, scores in evaluations
    ]
    return Section(
        "On held-out text",
        [scores_table(shown, {})],
        lead="Documents that the model is not trained on, the same instances and masks every "
        "time" + (f": {', '.join(counted)}." if counted else "."),
    )


def scores_table(
    evaluations: list[tuple[int, dict[str, float]]], epochs: dict[int, int]
) -> PageTable:
    """Show a row for each evaluation; of very many only some, and the last one."""
    names = list(dict.fromkeys(name for _, scores in evaluations for name in scores))
    every = -(-len(evaluations) // _ROWS)
    shown = evaluations[::-every][::-1]
    rows = []
    for step, scores in shown:
        cells = [score_text(name, scores[name]) if name in scores else "" for name in names]
        epoch = [str(epochs.get(step, ""))] if epochs else []
        rows.append([*epoch, f"{step:,}", *cells])
    columns = [*(["epoch"] if epochs else []), "step", *(score_name(name, names) for name in names)]
    caption = f"{len(shown)} of {len(evaluations):,} evaluations." if every > 1 else ""
    return PageTable(columns, rows, numeric=range(len(columns)), caption=caption)


def samples(run: RunFolder) -> Section | None:
    """Show how the guesses for the same masks changed."""
    if not run.samples:
        return None
    with naming_damage(run.path / "samples.jsonl"):
        histories = _histories(run.samples)
    if not histories:
        return None
    right = sum(
        [guess.token for guess in history.rows[-1].guesses[:1]] == [history.truth]
        for history in histories
    )
    return Section(
        "Masks filled along the way",
        [html.MaskHistories(histories)],
        lead="The same sentences, each with a word hidden, at several times of training: the "
        "best guesses, and on the right the probability of the original word. At the end "
        f"the best guess is right for {right} of {len(histories)}.",
    )


def _histories(lines: Sequence[LogRow]) -> list[html.MaskHistory]:
    """Follow each sentence of the last line through the lines that know it."""
    rows: dict[tuple[str, str], list[html.Guesses]] = {}
    masks: dict[str, str] = {}
    times = _times([int(line["step"]) for line in lines])
    for line in lines:
        step = int(line["step"])
        for sample in line["samples"]:
            text = close_up(str(sample["text"]))
            # Older files do not say it, and are all of WordPiece.
            masks[text] = str(sample.get("mask", WORDPIECE_MASK))
            if step in times:
                guesses = [
                    html.Guess(str(guess["token"]), float(guess["probability"]))
                    for guess in sample["guesses"][:3]
                ]
                truth = float(sample["truth_probability"])
                rows.setdefault((text, str(sample["truth"])), []).append(
                    html.Guesses(f"step {step:,}", guesses, truth)
                )
    current = {(close_up(str(s["text"])), str(s["truth"])) for s in lines[-1]["samples"]}
    histories = []
    for (text, word), history in rows.items():
        if (text, word) in current:
            before, after = text.split(masks[text], 1)
            histories.append(html.MaskHistory(before, after, word, history, masks[text]))
    return histories


def _times(steps: Sequence[int]) -> set[int]:
    """Choose the first, the last and some steps between, closer where training begins: most is
    learnt there. They are spaced evenly in the root of the step."""
    if len(steps) <= _TIMES:
        return set(steps)
    first, last = steps[0] ** 0.5, steps[-1] ** 0.5
    wanted = [(first + (last - first) * i / (_TIMES - 1)) ** 2 for i in range(_TIMES)]
    return {min(steps, key=lambda step: abs(step - goal)) for goal in wanted}


def settings(run: RunFolder) -> Section:
    """Show everything that was set, whether given or by default; what is not set is left out."""
    flat = {k: v for k, v in run.settings.items() if not isinstance(v, Mapping)}
    blocks: list[html.Block] = [setting_facts(flat)]
    for name, value in run.settings.items():
        if isinstance(value, Mapping):
            blocks += _small_table(_words(name), value)
    blocks += _small_table("versions and machine", run.environment)
    lead = "As they were when the run began, defaults included; run.json has them all."
    return Section("Settings", blocks, lead=lead, folded=True)


def setting_facts(values: Mapping[str, Any]) -> FactList:
    """List settings by name, for people; those that are not set are left out."""
    return FactList(
        [
            Fact(_words(name), value_text(value))
            for name, value in values.items()
            if value not in _NOT_SET and not name.endswith("_fingerprint")
        ]
    )


def _small_table(title: str, values: Mapping[str, Any]) -> list[PageTable]:
    rows = [
        [_words(str(name)), value_text(value)]
        for name, value in values.items()
        if value not in _NOT_SET
    ]
    return [PageTable([title, ""], rows)] if rows else []


def _words(name: str) -> str:
    return name.replace("_", " ")


def value_text(value: Any) -> str:
    """Write a setting for people: no quotes, brackets or names of Python."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(value_text, value[:30])) or "none"
        return inner + (f" and {len(value) - 30} more" if len(value) > 30 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {value_text(inner)}" for key, inner in value.items()) or "none"
    return str(value)
