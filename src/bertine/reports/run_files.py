"""Read the files of a training run's folder: settings, log, samples, scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import check_regular, os_errors, read_json
from bertine.core.loss_names import main_term
from bertine.core.strict_json import COUNT, NUMBER, TEXT, Shape, check_shape

# The log: JSON lines.

#: A line of the log, e.g. ``{"step": 20, "loss": 7.9, "mlm_loss": 7.2, ...}``.
LogRow = Mapping[str, Any]


def read_log(path: str | Path, *, mend: bool = False) -> list[dict[str, Any]]:
    """Read the lines of a log as they were written; none if there is no file yet.

    An incomplete last line (killed while writing) is left out.

    Args:
        mend: leave out a damaged line with a warning, in place of raising: damage by a power cut
            after the last checkpoint must not prevent a run from continuing.

    Raises:
        BertineError: the file cannot be read, or a complete line is not a JSON object with a
            number ``step``.
    """
    path = Path(path)
    if not path.exists():
        return []
    check_regular(path)
    with os_errors(path, "reading it"):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            int(entry["step"])
            if mend and "\\u" in line:  # a run that continues writes the line again
                json.dumps(entry, ensure_ascii=False).encode()
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            if number == len(lines):  # without a line end
                break
            wrong = (
                "has half a surrogate pair"
                if isinstance(error, UnicodeEncodeError)
                else "is not a JSON object with a number 'step'"
            )
            problem = f"{path}: line {number} {wrong}"
            if not mend:
                raise BertineError(f"{problem}; remove the line or train again") from error
            logger.warning(f"{problem}; it is left out")
            continue
        entries.append(entry)
    return entries


def by_step(log: Iterable[LogRow]) -> list[LogRow]:
    """Sort the lines of a log by step and join those of one step, of training and of evaluation,
    which have different keys; for a repeated key the last value is kept."""
    rows: dict[int, dict[str, Any]] = {}
    for line in log:
        rows.setdefault(int(line["step"]), {}).update(line)
    return [rows[step] for step in sorted(rows)]


def pretraining_names(log: Iterable[LogRow], main: str = "mlm") -> list[LogRow]:
    """Add the own names of the main term to a pre-training log.

    Where a loss has a single term, the log calls it "loss" and "accuracy"; for a run with MLM alone
    "mlm_loss" and "mlm_accuracy" are added. Lines that have the term's own names are unchanged. Not
    for logs of fine-tuning.

    Args:
        main: the term (:func:`bertine.core.loss_names.main_term`).
    """
    named: list[LogRow] = []
    for row in log:
        added = {
            f"{prefix}{main}_{name}": row[f"{prefix}{name}"]
            for prefix in ("", "eval_")
            for name in ("loss", "accuracy")
            if f"{prefix}{name}" in row and f"{prefix}{main}_loss" not in row
        }
        named.append({**row, **added})
    return named


def task_loss(log: Iterable[LogRow]) -> str:
    """Return the key of the task's own loss in a log of fine-tuning: "loss", or where the loss of a
    language model ("lm_loss") is added to it that of the head, such as "classifier_loss"."""
    for row in log:
        if "lm_loss" in row:
            names = [key for key in row if key.endswith("_loss") and not key.startswith("eval_")]
            return next((name for name in names if name != "lm_loss"), "loss")
    return "loss"


def series(log: Iterable[LogRow], key: str) -> tuple[list[float], list[float]]:
    """Return the steps and the values of the lines with a finite number under `key`."""
    steps: list[float] = []
    values: list[float] = []
    for row in log:
        value = row.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            steps.append(float(row["step"]))
            values.append(float(value))
    return steps, values


#: The file with the arguments of a fine-tuning run, and the file with the facts of its data.
START, DATA = "start.json", "data.json"
#: The file with the contributions of words to the answers that were predicted worst.
EXPLAINED = "explained.json"
#: Files of folders that are not runs: of a search, of a test of learning rates.
_PAGES = ("search.html", "lr-find.html")
_HINT = "remove it or train again"


@dataclass(frozen=True)
class RunFolder:
    """The files of a run's folder, as far as they are written.

    Attributes:
        path: the path of the folder.
        settings, environment: the contents of ``run.json``.
        log: the contents of ``log.jsonl``, one line a step; empty before the first step.
        samples: the contents of ``samples.jsonl``: a line has a ``step`` and ``samples``.
        scores: the contents of ``scores.json``: ``final`` is the report on the saved model,
            ``step`` the last step of that model; empty without the file.
        worst: the contents of ``worst.json``: the examples that were predicted worst; empty without
            the file.
        explained: the contents of ``explained.json``: the contributions of words to these answers;
            empty without the file.
        start: the contents of ``start.json``: the arguments that were given (``arguments``), the
            training loss of a constant answer (``constant_loss``), the model's ``hidden_size``;
            empty without the file.
        data: the contents of ``data.json``: counts of the labels, and notes on the data; empty
            without the file.
        finished: whether the model has been written.
    """

    path: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    log: list[LogRow]
    samples: list[LogRow]
    finished: bool
    scores: dict[str, Any]
    worst: dict[str, Any]
    explained: dict[str, Any]
    start: dict[str, Any]
    data: dict[str, Any]

    @classmethod
    def read(cls, folder: Path | str) -> RunFolder:
        """Read a run's folder.

        Raises:
            BertineError: it is not a run's folder, or a file in it is damaged.
        """
        folder = Path(folder)
        file = folder / "run.json"
        if not file.is_file():
            hint = ""
            if (folder.parent / "run.json").is_file():
                hint = f"; its run is {folder.parent}"
            elif pages := [name for name in _PAGES if (folder / name).is_file()]:
                hint = f"; its own page is {folder / pages[0]}"
            problem = "is not the folder of a run: it has no run.json"
            if not folder.exists():
                problem = "no such folder"
            raise BertineError(f"{folder}: {problem}{hint}")
        settings, environment = read_begun(file)
        names = ("scores.json", "worst.json", EXPLAINED, START, DATA)
        scores, *others = (_optional(folder / name) for name in names)
        try:
            check_shape(scores, _SCORES, "damaged")
        except BertineError as error:
            raise BertineError(f"{folder / 'scores.json'}: {error}; {_HINT}") from error
        log = by_step(read_log(folder / "log.jsonl"))
        if "task" not in settings:
            log = pretraining_names(log, main_term(settings.get("objective")))
        samples = by_step(read_log(folder / "samples.jsonl"))
        finished = (folder / "model").is_dir()
        return cls(folder, settings, environment, log, samples, finished, scores, *others)

    @property
    def task(self) -> str | None:
        """The task of fine-tuning; None in pre-training."""
        return self.settings.get("task")

    @property
    def labels_and_columns(self) -> Mapping[str, Any]:
        """The settings of fine-tuning about the task and its data; empty if there are none."""
        return self.settings.get("labels_and_columns") or {}

    @property
    def steps(self) -> int:
        """The logged steps."""
        return int(self.log[-1]["step"]) if self.log else 0

    @property
    def total_steps(self) -> int | None:
        """The planned number of steps; None where the settings do not give it."""
        total = self.settings.get("steps")
        return total if isinstance(total, int) else None

    def facts(self) -> dict[str, Any]:
        """Collect the facts for :func:`~bertine.reports.diagnosis.diagnose`."""
        if self.task is None:
            return dict(self.settings)
        added = {
            "folder": self.path,
            "final": self.scores.get("final") or {},
            "saved_step": self.scores.get("step"),
            "baselines": self.scores.get("baselines") or [],
            "data": self.data,
            "instead_of": self.scores.get("instead_of") or {},
            "cross_validated": self.scores.get("cross_validated") or {},
        }
        return {**self.settings, **self.start, **added}

    def last(self, key: str) -> tuple[float, int] | None:
        """Compute the mean of `key` over the last twentieth of its lines, and the first step of
        these (of one line: its own); None without lines. A line may cover only a few steps."""
        steps, values = series(self.log, key)
        if not values:
            return None
        count = max(1, len(values) // 20)
        begin = steps[-count - 1] if len(steps) > count else 0
        return sum(values[-count:]) / count, int(begin) + 1


#: Settings that pages and checks compute with; each may be missing, by the kind of run.
_SETTINGS: Shape = {
    **dict.fromkeys(("task?", "schedule?", "model_path?", "data_path?"), TEXT),
    **dict.fromkeys(("steps?", "warmup_steps?", "num_tokens?", "num_examples?"), COUNT),
    **dict.fromkeys(("unigram_entropy?", "max_grad_norm?", "budget_seconds?", "patience?"), NUMBER),
    "mask_split?": [NUMBER],
    "labels_and_columns?": {"labels?": [TEXT], "text_columns?": [TEXT], "metrics?": [TEXT]},
}


#: The types of the parts of ``scores.json``, where it has them; the rest is checked where it is
#: used.
_SCORES: Shape = {
    "instead_of?": {"*?": NUMBER},
    "cross_validated?": {"*?": NUMBER},
    "calibration?": {
        "about?": TEXT,
        "temperature": NUMBER,
        "error_before": NUMBER,
        "error_after": NUMBER,
        "num_examples": COUNT,
    },
    "final?": {
        "source?": TEXT,
        "num_answerable?": COUNT,
        "num_words?": COUNT,
        "points?": [[NUMBER]],
        "num_examples?": COUNT,
        "majority_share?": NUMBER,
        "variance?": NUMBER,
        "metrics?": {"*?": NUMBER},
        "labels?": [TEXT],
        "notes?": [TEXT],
        "per_label?": {"*?": {"*?": NUMBER}},
        "types?": {"*?": {"true": COUNT, "predicted?": COUNT}},
        "confusion?": [[COUNT]],
        "confused?": [{"actual": TEXT, "predicted": TEXT, "count": COUNT, "of": COUNT}],
        "reliability?": {
            "about?": TEXT,
            "error?": NUMBER,
            "error_by_chance?": NUMBER,
            "bins?": [[NUMBER]],
            "coverage?": [[NUMBER]],
            "in_words?": TEXT,
        },
    },
    "step?": COUNT,
    "seen?": COUNT,
    "scores?": [{"step": COUNT}],
    "baselines?": [
        {"name?": TEXT, "metrics?": {"*?": NUMBER}, "seconds?": NUMBER, "num_judged?": COUNT}
    ],
}


def read_begun(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the settings and the environment that a run was started with from its ``run.json``.

    Raises:
        BertineError: the file is missing or damaged.
    """
    content = read_json(file, lenient=True)
    begun = content if isinstance(content, dict) else {"settings": None}
    settings, environment = begun.get("settings", {}), begun.get("environment", {})
    if not isinstance(settings, dict) or not isinstance(environment, dict):
        raise BertineError(f"{file}: damaged; it should hold settings and environment")
    check_shape(settings, _SETTINGS, file)
    return settings, environment


def _optional(file: Path) -> dict[str, Any]:
    """Read a JSON object; an empty one where the file is missing.

    Raises:
        BertineError: the file contains something else.
    """
    content = read_json(file, lenient=True) if file.is_file() else {}
    if not isinstance(content, dict):
        raise BertineError(f"{file}: damaged; {_HINT}")
    return content


@contextmanager
def naming_damage(file: Path) -> Iterator[None]:
    """Attribute the errors in the block, which computes with the contents of `file`, to that file.

    Raises:
        BertineError: something in it is missing or of another type.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BertineError(f"{file}: damaged ({error!r}); {_HINT}") from error
