"""The sections of a run's page: diagnosis, scores, masks filled along the way, settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from bertine.errors import BertineError
from bertine.reports import html
from bertine.reports.checks.log_view import SHORT_LOG, Finding
from bertine.reports.html import Fact, Facts, Note, Section, Table
from bertine.reports.scores import score_name, score_text
from bertine.runs.files import RunFiles
from bertine.runs.log import LogRow
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


def diagnosis(files: RunFiles, findings: Sequence[Finding]) -> Section:
    notes = [
        Note(sentence(finding.text), _MOODS[finding.severity], finding.command)
        for finding in findings
    ]
    if not notes and len(files.log) < SHORT_LOG:
        notes = [Note(sentence(nothing_found(len(files.log))))]
    elif not notes:
        notes = [Note("Nothing stands out: no stall, no divergence, no loss of speed.", "good")]
    return Section("Diagnosis", notes)


def nothing_found(lines: int) -> str:
    """What is said of a log of so many lines in which nothing stands out."""
    if lines >= SHORT_LOG:
        return "nothing stands out"
    return f"too little is logged to tell a stall or a divergence: {counted(lines, 'line')}"


def sentence(text: str) -> str:
    """`text` with a capital and a full stop. What begins with a file's name keeps it."""
    begin = text[:1].upper() if _WORD.match(text) else text[:1]
    return begin + text[1:] + ("" if text.endswith(".") else ".")


def evaluations_of(log: Iterable[LogRow]) -> list[tuple[int, dict[str, float]]]:
    """Step and scores of every evaluation in the log."""
    found = []
    for row in log:
        scores = {
            key.removeprefix("eval_"): value
            for key, value in row.items()
            if key.startswith("eval_") and isinstance(value, int | float)
        }
        if scores:
            found.append((int(row["step"]), scores))
    return found


def held_out(files: RunFiles) -> list[Section]:
    evaluations = evaluations_of(files.log)
    if not evaluations:
        return []
    sizes = {f"{name}_count": term.targets for name, term in TERMS.items()} | {"tokens": "tokens"}
    last = evaluations[-1][1]
    counted = [f"{last[name]:,.0f} {what}" for name, what in sizes.items() if name in last]
    # Of one term the loss of all is its own.
    left_out = {*sizes} if len(terms_among(last)) > 1 else {*sizes, "loss", "accuracy"}
    shown = [
        (step, {k: v for k, v in scores.items() if k not in left_out and not k.endswith(_SIZES)})
        for step, scores in evaluations
    ]
    return [
        Section(
            "On held-out text",
            [scores_table(shown, {})],
            lead="Documents that the model is not trained on, the same instances and masks every "
            "time" + (f": {', '.join(counted)}." if counted else "."),
        )
    ]


def scores_table(evaluations: list[tuple[int, dict[str, float]]], epochs: dict[int, int]) -> Table:
    """A row for each evaluation; of very many, every so many, and the last."""
    names = list(dict.fromkeys(name for _, scores in evaluations for name in scores))
    every = -(-len(evaluations) // _ROWS)
    kept = [evaluations[i] for i in _spread(len(evaluations), every)]
    before = ["epoch", "step"] if epochs else ["step"]
    rows = []
    for step, scores in kept:
        cells = [score_text(name, scores[name]) if name in scores else "" for name in names]
        at = [str(epochs[step])] if step in epochs else [""] if epochs else []
        rows.append([*at, f"{step:,}", *cells])
    columns = [*before, *(score_name(name, names) for name in names)]
    caption = f"{len(kept)} of {len(evaluations):,} evaluations." if every > 1 else ""
    return Table(columns, rows, numeric=range(len(columns)), caption=caption)


def _spread(length: int, every: int) -> list[int]:
    """Every so many of ``range(length)``, counted back from the last."""
    return list(range(length - 1, -1, -every))[::-1]


def samples(files: RunFiles) -> list[Section]:
    """How the guesses for the same masks changed."""
    if not files.samples:
        return []
    try:
        histories = _histories(files.samples)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BertineError(
            f"{files.folder / 'samples.jsonl'}: damaged ({error!r}); remove it, or train again"
        ) from error
    if not histories:
        return []
    last = [history.rows[-1] for history in histories]
    right = sum(
        bool(row.candidates) and row.candidates[0].token == history.truth
        for row, history in zip(last, histories, strict=True)
    )
    return [
        Section(
            "Masks filled along the way",
            [html.MaskHistories(histories)],
            lead="The same sentences, each with a word hidden, at several times of training: the "
            "best guesses, and on the right the probability of the original word. At the end "
            f"the best guess is right for {right} of {len(histories)}.",
        )
    ]


def _histories(samples: Sequence[LogRow]) -> list[html.MaskHistory]:
    """A history for each sentence of the last line, with the lines that know it."""
    rows: dict[tuple[str, str], list[html.Guesses]] = {}
    times = _times([int(row["step"]) for row in samples])
    for line in samples:
        if int(line["step"]) not in times:
            continue
        for one in line["samples"]:
            candidates = [
                html.Candidate(str(guess["token"]), float(guess["probability"]))
                for guess in one["guesses"][:3]
            ]
            rows.setdefault((close_up(str(one["text"])), str(one["truth"])), []).append(
                html.Guesses(
                    f"step {int(line['step']):,}", candidates, float(one["truth_probability"])
                )
            )
    # Older files do not say it, and are all of WordPiece.
    masks = {
        close_up(str(one["text"])): str(one.get("mask", WORDPIECE_MASK))
        for line in samples
        for one in line["samples"]
    }
    current = {(close_up(str(one["text"])), str(one["truth"])) for one in samples[-1]["samples"]}
    found = []
    for (text, truth), guesses in rows.items():
        if (text, truth) in current:
            mask = masks[text]
            before, after = text.split(mask, 1)
            found.append(html.MaskHistory(before, after, truth, guesses, mask))
    return found


def _times(steps: Sequence[int]) -> set[int]:
    """The first, the last and some steps between, closer where training begins: most is learnt
    there. Spaced evenly in the root of the step."""
    if len(steps) <= _TIMES:
        return set(steps)
    first, last = steps[0] ** 0.5, steps[-1] ** 0.5
    wanted = [(first + (last - first) * i / (_TIMES - 1)) ** 2 for i in range(_TIMES)]
    return {min(steps, key=lambda step: abs(step - goal)) for goal in wanted}


def settings(files: RunFiles) -> Section:
    """Everything that was set, whether given or by default; what is not set is left out."""
    flat = {k: v for k, v in files.settings.items() if not isinstance(v, Mapping)}
    blocks: list[html.Block] = [setting_facts(flat)]
    for name, value in files.settings.items():
        if isinstance(value, Mapping):
            blocks += _small_table(_words(name), value)
    blocks += _small_table("versions and machine", files.environment)
    lead = "As they were when the run began, defaults included; run.json has them all."
    return Section("Settings", blocks, lead=lead, folded=True)


def setting_facts(values: Mapping[str, Any]) -> Facts:
    """Settings by name, for people; those that are not set are left out."""
    return Facts(
        [
            Fact(_words(name), value_text(value))
            for name, value in values.items()
            if value not in _NOT_SET and not name.endswith("_fingerprint")
        ]
    )


def _small_table(title: str, values: Mapping[str, Any]) -> list[Table]:
    rows = [
        [_words(str(name)), value_text(value)]
        for name, value in values.items()
        if value not in _NOT_SET
    ]
    return [Table([title, ""], rows)] if rows else []


def _words(name: str) -> str:
    return name.replace("_", " ")


def value_text(value: Any) -> str:
    """A setting for people: no quotes, brackets or names of Python."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        inner = ", ".join(value_text(one) for one in value[:30]) or "none"
        return inner + (f" and {len(value) - 30} more" if len(value) > 30 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {value_text(inner)}" for key, inner in value.items()) or "none"
    return str(value)
