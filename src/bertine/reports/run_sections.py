"""Make the sections of a run's page: diagnosis, scores, filled masks, settings, worst examples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from bertine.core.console import plural
from bertine.core.loss_names import TERMS, terms_among
from bertine.core.names import WORDPIECE_MASK
from bertine.core.scores import score_name, score_text
from bertine.core.text import Index, cut, row_at
from bertine.reports import html
from bertine.reports.findings import SHORT_LOG, Finding
from bertine.reports.html import (
    Fact,
    FactList,
    Note,
    PageTable,
    Section,
    Segment,
    TextCard,
    TextCards,
    percent_text,
)
from bertine.reports.run_files import EXPLAINED, LogRow, RunFolder, naming_damage
from bertine.tokenization.sentences import cjk_space_places, remove_cjk_spaces

#: The approximate number of rows of a table of evaluations.
_ROWS = 12
#: The suffixes of the names of counts, which are the same at every evaluation.
_SIZES = ("_count", "sequences")
#: A word at the beginning of a sentence that is not a path, file or option.
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*[.,;:]?(?:\s|$)")
#: Settings without information.
_NOT_SET: tuple[Any, ...] = (None, {}, [])
#: Rows of a sentence's history: enough to see it change, few enough to read.
_TIMES = 6
_MOODS: dict[str, Literal["plain", "warning", "fault"]] = {
    "advice": "plain",
    "warning": "warning",
    "fault": "fault",
}


def diagnosis(run: RunFolder, findings: Sequence[Finding]) -> Section:
    """Show the findings of the run, or that there are none."""
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
    """Report that a log of `lines` lines shows no finding, if that is enough to judge."""
    if lines >= SHORT_LOG:
        return "nothing stands out"
    return f"too little is logged to tell a stall or a divergence: {plural(lines, 'line')}"


def sentence(text: str) -> str:
    """Capitalize `text` and end it with a full stop. A file name at the beginning is unchanged."""
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
    plural = [f"{last[name]:,.0f} {what}" for name, what in sizes.items() if name in last]
    # With one term the loss of all terms is its own loss.
    left_out = {*sizes} if len(terms_among(last)) > 1 else {*sizes, "loss", "accuracy"}
    shown = [
        (step, {k: v for k, v in scores.items() if k not in left_out and not k.endswith(_SIZES)})
        for step, scores in evaluations
    ]
    return Section(
        "On held-out text",
        [scores_table(shown, {})],
        lead="Documents that the model is not trained on, the same instances and masks every "
        "time" + (f": {', '.join(plural)}." if plural else "."),
    )


def scores_table(
    evaluations: list[tuple[int, dict[str, float]]], epochs: dict[int, int]
) -> PageTable:
    """Show a row for each evaluation; of many evaluations some, and the last one."""
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
    """Follow each sentence of the last line through the lines that have it."""
    rows: dict[tuple[str, str], list[html.Guesses]] = {}
    masks: dict[str, str] = {}
    times = _times([int(line["step"]) for line in lines])
    for line in lines:
        step = int(line["step"])
        for sample in line["samples"]:
            text = remove_cjk_spaces(str(sample["text"]))
            # Older files do not name the tokenizer, and are all of WordPiece.
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
    current = {(remove_cjk_spaces(str(s["text"])), str(s["truth"])) for s in lines[-1]["samples"]}
    histories = []
    for (text, word), history in rows.items():
        if (text, word) in current:
            before, after = text.split(masks[text], 1)
            histories.append(html.MaskHistory(before, after, word, history, masks[text]))
    return histories


def _times(steps: Sequence[int]) -> set[int]:
    """Choose the first, the last and some steps between, closer at the beginning, where most is
    learnt. They are spaced evenly in the root of the step."""
    if len(steps) <= _TIMES:
        return set(steps)
    first, last = steps[0] ** 0.5, steps[-1] ** 0.5
    wanted = [(first + (last - first) * i / (_TIMES - 1)) ** 2 for i in range(_TIMES)]
    return {min(steps, key=lambda step: abs(step - goal)) for goal in wanted}


def settings(run: RunFolder) -> Section:
    """Show every setting, given or default; unset ones are left out."""
    flat = {k: v for k, v in run.settings.items() if not isinstance(v, Mapping)}
    blocks: list[html.Block] = [setting_facts(flat)]
    for name, value in run.settings.items():
        if isinstance(value, Mapping):
            blocks += _small_table(_words(name), value)
    blocks += _small_table("versions and machine", run.environment)
    lead = "As they were when the run began, defaults included; run.json has them all."
    return Section("Settings", blocks, lead=lead, folded=True)


def setting_facts(values: Mapping[str, Any]) -> FactList:
    """List settings by name, for people; unset ones are left out."""
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
    """Write a setting for people: without quotes, brackets or names of Python."""
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


# Worst examples: entities and answers are marked in their texts.

#: The marks of a part of a text, and the names of the two sides on the page.
_SIDES = {"label": "actual", "answer": "predicted"}
#: Characters of a training example, and of its label, that are shown.
_NEAR, _LABEL = 120, 50


def worst(run: RunFolder) -> Section | None:
    """Show the examples with the highest loss; nothing where ``worst.json`` is missing.

    Raises:
        BertineError: the file is damaged.
    """
    if not run.worst:
        return None
    with naming_damage(run.path / "worst.json"):
        examples = run.worst["examples"]
        # With few validation examples the worst ones include some that are predicted rightly.
        wrong = [example for example in examples if example["label"] != example["answer"]]
        info = run.labels_and_columns
        tagging = info.get("name", run.task) == "tagging"
        columns = [str(name) for name in info.get("text_columns") or ()]
        explained = _explained(run)
        cards = [
            _card(example, tagging, columns, explained.get(int(example["index"]), _Explained()))
            for example in wrong or examples
        ]
        mean, count = float(run.worst["mean_loss"]), int(run.worst["num_examples"])
        sources = {str(example.get("file", "")) for example in examples} - {""}
    source = f" of {Path(sources.pop()).name}" if len(sources) == 1 else ""
    lead = f"The {len(cards)} of {count:,} validation examples{source} with the highest loss"
    if wrong:
        lead += f" of those predicted wrongly (the mean of all is {mean:.3f}): what the model has "
        lead += "not learned. Wrong labels are often among them."
    else:
        lead += f" (the mean of all is {mean:.3f}). All of them are predicted rightly."
    return Section("Predicted worst", [TextCards(cards)], lead)


@dataclass(frozen=True)
class _Explained:
    """An explained answer: the contributions of its words in one line, and the nearest training
    examples, each with the words before its text."""

    words: str = ""
    nearest: Sequence[tuple[str, str]] = ()


def _explained(run: RunFolder) -> dict[int, _Explained]:
    """Return the explained answers by the indices of their examples."""
    answers = {}
    with naming_damage(run.path / EXPLAINED):
        for item in run.explained.get("examples", []):
            words = [(str(word["word"]), float(word["contribution"])) for word in item["words"]]
            listed = ", ".join(f"{word} {value:+.2f}" for word, value in words)
            unit = "log-odds" if item["unit"] == "log-odds" else "score"
            answer = str(item["answer"]) or "no answer"
            nearest = [
                (
                    f"near in training, {cut(str(near['label']), _LABEL)} "
                    f"({float(near['similarity']):.2f})",
                    " / ".join(
                        cut(str(text), _NEAR // len(near["texts"])) for text in near["texts"]
                    ),
                )
                for near in item.get("nearest", [])
            ]
            answers[int(item["index"])] = _Explained(
                f"what words add to the {unit} of {answer}: {listed}", nearest
            )
    return answers


def _card(
    example: Mapping[str, Any], tagging: bool, columns: Sequence[str], explained: _Explained
) -> TextCard:
    """Show an example with its actual label and the predicted one, unless marks in its texts do;
    and the explanation of the answer, where it is known."""
    texts, marks = [str(text) for text in example["texts"]], _marks(example.get("marks") or [])
    if tagging:
        texts, marks = _closed_up(texts, marks)
    lines: list[tuple[str, list[Segment]]] = []
    names = columns if len(columns) == len(texts) > 1 else [""] * len(texts)
    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        own = [mark for mark in marks if mark.text == number]
        if not own:
            lines.append((name, [Segment(text)]))
        elif not any(mark.label for mark in own):
            lines.append((name, _answers(text, own)))
        else:
            for side, word in _SIDES.items():
                marked = [mark for mark in own if mark.side == side]
                lines.append((word if marked else f"{word}: none", _segments(text, marked)))
    shown = {mark.side for mark in marks}
    if tagging and shown:
        shown = set(_SIDES)
    label, answer = str(example["label"]), str(example["answer"])
    remarks: list[tuple[str, str, Literal["", "right", "wrong"]]] = []
    if "label" not in shown and label:
        remarks.append(("actual", label, "right"))
    if "answer" not in shown and answer:
        remarks.append(("predicted", answer, "right" if label == answer else "wrong"))
    if (probability := example.get("label_probability")) is not None:
        share = percent_text(float(probability))
        remarks.append((f"probability of the actual label {share}", "", ""))
    remarks.append((f"loss {float(example['loss']):.3f}", "", ""))
    if explained.words:
        remarks.append((explained.words, "", ""))
    lines += [(before, [Segment(text)]) for before, text in explained.nearest]
    return TextCard(lines, remarks, place=_place(example))


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark of ``worst.json``; `right`: it belongs to the label, or is equal to a mark of the
    label."""

    text: int
    begin: int
    end: int
    label: str
    side: str
    right: bool = True


def _marks(entries: Sequence[Mapping[str, Any]]) -> list[_Mark]:
    marks = [
        _Mark(
            int(entry["text"]),
            int(entry["begin"]),
            int(entry["end"]),
            str(entry.get("label", "")),
            str(entry["of"]),
        )
        for entry in entries
    ]
    actual = {replace(mark, side="") for mark in marks if mark.side == "label"}
    return [replace(mark, right=replace(mark, side="") in actual) for mark in marks]


def _closed_up(texts: Sequence[str], marks: Sequence[_Mark]) -> tuple[list[str], list[_Mark]]:
    """Remove the spaces between Chinese characters of sentences of words, and move the marks."""
    shown, places = zip(*map(cjk_space_places, texts), strict=True)
    moved = [
        replace(mark, begin=places[mark.text][mark.begin], end=places[mark.text][mark.end])
        for mark in marks
        if mark.text < len(texts) and 0 <= mark.begin < mark.end <= len(texts[mark.text])
    ]
    return list(shown), moved


def _answers(text: str, marks: Sequence[_Mark]) -> list[Segment]:
    """Divide a context at the actual answer, the predicted one, and their common part."""
    edges = {0, len(text), *(edge for mark in marks for edge in (mark.begin, mark.end))}
    parts, named = [], set()
    for begin, end in reversed(list(pairwise(sorted(e for e in edges if 0 <= e <= len(text))))):
        sides = {mark.side for mark in marks if mark.begin <= begin and end <= mark.end}
        extra = "both" if len(sides) > 1 else _SIDES.get("".join(sides), "")
        kind: Literal["", "right", "wrong"] = "right" if "label" in sides else "wrong"
        # A side that the other one divides is named once, at its end.
        parts.append(
            Segment(text[begin:end], kind if sides else "", "" if extra in named else extra)
        )
        named.add(extra)
    return parts[::-1]


def _segments(text: str, marks: Sequence[_Mark]) -> list[Segment]:
    """Divide `text` at the ends of marks; a part that overlaps an earlier mark is left out."""
    parts, done = [], 0
    for mark in sorted(marks, key=lambda mark: mark.begin):
        if not done <= mark.begin < mark.end <= len(text):
            continue
        parts.append(Segment(text[done : mark.begin]))
        kind: Literal["right", "wrong"] = "right" if mark.right else "wrong"
        parts.append(Segment(text[mark.begin : mark.end], kind, mark.label))
        done = mark.end
    return [*(part for part in parts if part.text), Segment(text[done:])]


def _place(example: Mapping[str, Any]) -> str:
    """Return the place of an example in its file, or in memory."""
    line, file = example.get("line"), str(example.get("file", ""))
    if "data_index" in example:
        return row_at(file, Index(example["data_index"]))
    if not line:
        return row_at("items", Index(example["index"]))
    rows = dict.fromkeys((".parquet", ".pq", ".xlsx", ".xls", ".ods"), "row")
    word = {**rows, ".json": "question"}.get(Path(file).suffix, "line")
    return f"{Path(file).name}, {word} {int(line):,}" if file else f"{word} {int(line):,}"
