"""SQuAD for ``transformers``: windows by the tokenizer's overflow, answers by its offsets.

Contexts longer than the input are read in windows that share ``stride`` pieces. Of every window
the twenty best starts and ends are paired, and the best span of a question is that of all of its
windows; its null score is the lowest of theirs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sides.scores import SpanGuess
from sides.settings import Setting

#: Starts, and ends, that are looked at in a window.
_N_BEST = 20
#: The odds of a question whose windows have no span at all.
_NO_SPAN = 1e9


@dataclass(frozen=True)
class Window:
    """A part of a question's context.

    Attributes:
        id: of the question.
        offsets: of each token the characters (begin, end) of the context; None where a token is
            none of it.
    """

    id: str
    context: str
    offsets: list[tuple[int, int] | None]
    v2: bool


def span_inputs(
    path: Path, tokenizer: Any, max_length: int, stride: int, *, targets: bool
) -> tuple[list[dict[str, Any]], list[Window]]:
    """The windows of all questions of a file in SQuAD's format, as inputs and as what their
    logits are read by; with `targets` the places of the answer, those of [CLS] where a window
    does not hold it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    v2 = str(content["version"]).removeprefix("v").startswith("2")
    rows = [
        (question, paragraph["context"])
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    encoded = tokenizer(
        [question["question"].lstrip() for question, _ in rows],
        [context for _, context in rows],
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    owners, offsets = encoded.pop("overflow_to_sample_mapping"), encoded.pop("offset_mapping")
    inputs, windows = [], []
    for at, owner in enumerate(owners):
        question, context = rows[owner]
        parts = encoded.sequence_ids(at)
        own = [
            (int(begin), int(end)) if part == 1 else None
            for (begin, end), part in zip(offsets[at], parts, strict=True)
        ]
        item = {name: values[at] for name, values in encoded.items()}
        if targets:
            item["start_positions"], item["end_positions"] = _target(question["answers"], own)
        inputs.append(item)
        windows.append(Window(question["id"], context, own, v2))
    return inputs, windows


def _target(
    answers: Sequence[dict[str, Any]], offsets: Sequence[tuple[int, int] | None]
) -> tuple[int, int]:
    """The first and the last token of the first answer; (0, 0), the place of [CLS], where the
    window does not hold all of it."""
    inside = [(place, span) for place, span in enumerate(offsets) if span is not None]
    if not answers or not inside:
        return 0, 0
    begin = answers[0]["answer_start"]
    end = begin + len(answers[0]["text"])
    if inside[0][1][0] > begin or inside[-1][1][1] < end:
        return 0, 0
    return (
        max(place for place, span in inside if span[0] <= begin),
        min(place for place, span in inside if span[1] >= end),
    )


def span_answers(
    windows: Sequence[Window], outputs: Sequence[np.ndarray], setting: Setting
) -> dict[str, SpanGuess]:
    """Logits [T or more, 2] of each window → the best span of each question, and its null odds."""
    best: dict[str, tuple[float, str]] = {}
    null: dict[str, float] = {}
    for window, logits in zip(windows, outputs, strict=True):
        table = logits[: len(window.offsets)].astype(np.float64)
        null[window.id] = min(null.get(window.id, np.inf), float(table[0].sum()))
        best.setdefault(window.id, (-np.inf, ""))
        starts, ends = (np.argsort(-column, kind="stable")[:_N_BEST].tolist() for column in table.T)
        for first in starts:
            for last in ends:
                begin, end = window.offsets[first], window.offsets[last]
                if begin is None or end is None:
                    continue
                if not first <= last < first + setting.max_answer_length:
                    continue
                score = float(table[first, 0] + table[last, 1])
                if score > best[window.id][0]:
                    best[window.id] = score, window.context[begin[0] : end[1]]
    v2 = any(window.v2 for window in windows)
    guesses: dict[str, SpanGuess] = {}
    for name, (score, text) in best.items():
        odds = null[name] - score if np.isfinite(score) else _NO_SPAN
        guesses[name] = text, odds if v2 else None
    return guesses
