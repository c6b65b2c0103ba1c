"""The one judge of both sides: answers on the held-out file in, scores out."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bertine.data.entities import entities, span_counts
from bertine.datasets.glue import glue_task
from bertine.tasks.metrics import classification_scores, regression_scores
from bertine.tasks.tagged_words import TaggingReport
from sides.settings import Setting, read_file

#: Of a question: the text of its best span, and how far the score of no answer is above that
#: span's; None of a data set in which every question has an answer.
SpanGuess = tuple[str, float | None]


def judge(setting: Setting, answers: Any) -> dict[str, float]:
    """The scores of `answers`, as fractions of 1.

    Args:
        answers: to the examples of the held-out file in their order: of ``text`` labels, of
            ``regression`` numbers, of ``choice`` the numbers of choices, of ``tagging`` lists of
            tags. Of ``spans`` a :data:`SpanGuess` by the question's id.
    """
    task = setting.task
    path = setting.data / task.held
    if task.kind == "spans":
        return _official(setting.scorers, path, answers)
    truth = [item.label for item in read_file(task, path).items]
    if task.kind == "regression":
        return regression_scores([float(label) for label in truth], answers)
    if task.kind == "tagging":
        counts = span_counts(map(entities, truth), map(entities, answers))
        report = TaggingReport.of(
            counts,
            entities=True,
            right=sum(
                a == b
                for tags, guess in zip(truth, answers, strict=True)
                for a, b in zip(tags, guess, strict=True)
            ),
            num_words=sum(map(len, truth)),
            num_sentences=len(truth),
        )
        return report.metrics
    if task.kind == "choice":
        right = sum(int(a) == b for a, b in zip(truth, answers, strict=True))
        return {"accuracy": right / len(truth)}
    known = glue_task(task.name).labels if task.verb == "glue" else sorted(set(truth))
    return classification_scores(truth, answers, known)


def _official(scorers: Path, path: Path, answers: dict[str, SpanGuess]) -> dict[str, float]:
    """What SQuAD's own script prints. For v2.0 no answer is given where its score is higher than
    the best span's (threshold 0); `best_f1` is that of the threshold which suits the file best."""
    version = path.stem.removeprefix("dev-").removeprefix("v")
    script = scorers / f"evaluate-v{version}.py"
    with tempfile.TemporaryDirectory() as folder:
        guesses, odds = Path(folder) / "answers.json", Path(folder) / "odds.json"
        guesses.write_text(json.dumps({key: text for key, (text, _) in answers.items()}))
        command: list[str | Path] = [sys.executable, script, path, guesses]
        if any(chance is not None for _, chance in answers.values()):
            odds.write_text(json.dumps({key: chance for key, (_, chance) in answers.items()}))
            command += ["--na-prob-file", odds, "--na-prob-thresh", "0"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script.name}: {done.stderr.strip().splitlines()[-1]}")
    names = {"exact": "exact_match", "exact_match": "exact_match", "f1": "f1", "best_f1": "best_f1"}
    found = json.loads(done.stdout)
    return {names[key]: value / 100 for key, value in found.items() if key in names}
