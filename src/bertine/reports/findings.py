"""Define findings of a diagnosis, views of logs, and the commands to run next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bertine.core.loss_names import TERMS, TermTexts, main_term, word_term
from bertine.core.names import shell_option
from bertine.core.published import PublishedName
from bertine.options.declare import OptionGroup, declared
from bertine.options.distillation import TaskOptions
from bertine.options.finetuning import FewShotOptions
from bertine.reports.run_files import LogRow, series

# Findings, and the log in the form that the checks need.

#: float64 [N].
Floats = npt.NDArray[np.float64]
Severity = Literal["fault", "warning", "advice"]
#: Fewer points of a curve than this are not a trend.
FEW = 6
#: In fewer lines of log a stall or a divergence cannot be distinguished from noise.
SHORT_LOG = 10


@dataclass(frozen=True)
class Finding:
    """A remarkable fact about a run, with advice.

    Attributes:
        kind: a short name for programs, e.g. "stalled".
        severity: "fault": the result is of no use; "warning": it is worse than it need be;
            "advice": nothing is wrong, but a better result is possible.
        text: the observation with its figures, and what to try.
        command: the next command, for the shell; "" in pre-training.
        call: the same as a call in Python.
    """

    kind: str
    severity: Severity
    text: str
    command: str = ""
    call: str = ""

    def for_python(self) -> Finding:
        """Return the finding with the call in place of the command."""
        return replace(self, command=self.call or self.command)

    def __str__(self) -> str:
        """Write the finding in one line, with the command."""
        text = f"{self.severity}: {self.text}"
        return f"{text}; next: {self.command}" if self.command else text


@dataclass(frozen=True)
class LogView:
    """The log of a run and the facts about it, as the checks need them."""

    log: Sequence[LogRow]
    facts: Mapping[str, Any]
    pretraining: bool

    @property
    def main(self) -> str:
        """The term by which a model in pre-training is judged."""
        return main_term(self.facts.get("objective"))

    @property
    def watched(self) -> str:
        """The term of pre-training whose loss is watched: that of predicting words, where there is
        one, since it can be compared with the entropy of their frequencies."""
        return word_term(self.facts.get("objective"))

    @property
    def term(self) -> TermTexts:
        """The name and the meaning of the watched term."""
        return TERMS[self.watched]

    @property
    def loss_key(self) -> str:
        """The key of the watched loss."""
        return f"{self.watched}_loss" if self.pretraining else "loss"

    @property
    def loss_name(self) -> str:
        """The name of that loss for people."""
        return f"{self.term.title} loss" if self.pretraining else "loss"

    @property
    def watched_losses(self) -> dict[str, str]:
        """The losses that should fall, by key, with their names for people: the watched one, and
        that of the main term."""
        if not self.pretraining:
            return {self.loss_key: self.loss_name}
        names = dict.fromkeys((self.watched, self.main))
        return {f"{name}_loss": f"{TERMS[name].title} loss" for name in names}

    @property
    def last_step(self) -> int:
        """The last logged step."""
        return int(self.log[-1]["step"]) if self.log else 0

    @property
    def begin(self) -> int:
        """The step before the first of the current phase: where sequences become longer, the loss
        rises and the speed changes, and neither is a fault."""
        starts = [int(step) for step in self.facts.get("phase_starts") or ()]
        return max((step for step in starts if step < self.last_step), default=0)

    @property
    def warm(self) -> int:
        """The step from which the learning rate no longer rises."""
        return max(self.begin, int(self.fact("warmup_steps") or 0))

    def fact(self, name: str) -> float | None:
        """Return a fact that is a finite number, else None."""
        value = self.facts.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return None

    def points(self, key: str, after: float = -1) -> tuple[Floats, Floats]:
        """Return the steps and values of `key` in lines with a step above `after`."""
        steps, values = series((row for row in self.log if row["step"] > after), key)
        return np.asarray(steps), np.asarray(values)


def mean(values: Floats) -> float:
    """Compute the mean as a Python float."""
    return float(values.mean())


def noise(values: Floats) -> float:
    """Estimate the standard deviation without the trend, robustly, from the differences of
    neighbours."""
    return float(np.median(np.abs(np.diff(values)))) / (0.6745 * math.sqrt(2))


def last_third(view: LogView, key: str) -> tuple[Floats, Floats] | None:
    """Return the last third of the lines after warm-up; None where there are too few."""
    steps, values = view.points(key, view.warm)
    size = len(values) // 3
    return (steps[-size:], values[-size:]) if size >= FEW // 2 else None


def context_floor(view: LogView) -> float | None:
    """Return the lowest loss of words that uses no context, in nats; None where none is known.

    MLM leaves a tenth of the chosen tokens in place, so a model that repeats its input and knows
    the frequencies of tokens has the loss of the unigram entropy H for the others only: 0.9 H. (It
    cannot quite reach that: a random token might have been left in place too.) Where nothing can be
    copied, it is H.
    """
    entropy = view.fact("unigram_entropy")
    if entropy is None or not view.term.words:
        return None
    if not view.term.copied:
        return entropy
    split = view.facts.get("mask_split")
    kept = float(split[2]) if isinstance(split, list | tuple) and len(split) == 3 else 0.1
    return (1 - kept) * entropy


def rounded(count: float) -> str:
    """Round a count for a sentence: 12345 → "12,000"."""
    digits = max(0, int(math.log10(max(count, 1))) - 1)
    return f"{round(count, -digits):,.0f}"


#: Arguments that a new run does not take over.
_NOT_AGAIN = ("out", "resume", "task")
#: The placeholder for examples that were given in memory.
_IN_MEMORY = "…"


@dataclass(frozen=True)
class NextCommand:
    """A command, for the shell and for Python.

    Attributes:
        shell: with quotes where the shell needs them.
        python: the call of the same function.
    """

    shell: str
    python: str


#: The options of the verbs that do not have all those of fine-tuning.
_OWN_OPTIONS: Mapping[str, type[OptionGroup]] = {
    "distill": TaskOptions,
    "few-shot": FewShotOptions,
}


@dataclass(frozen=True)
class Asked:
    """The arguments of a fine-tuning run, or of distillation on a task.

    Attributes:
        task: the first word after ``bertine finetune``.
        folder: the folder of the run.
        arguments: the arguments of :func:`bertine.finetune` that are not the defaults, by name, as
            JSON values; `data` is None where the examples were in memory.
        verb: the verb of the arguments: ``"finetune"``, ``"distill"`` or ``"few-shot"``.
    """

    task: str
    folder: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    verb: str = "finetune"

    @classmethod
    def of(cls, folder: Path, facts: Mapping[str, Any]) -> Asked:
        """Read the arguments from ``start.json`` in `facts`, or, for a run of an older version,
        from its settings."""
        started = facts.get("arguments")
        if isinstance(started, Mapping):
            rest = {name: value for name, value in started.items() if name != "task"}
            known = facts.get("verb")
            verb = str(known) if known in _OWN_OPTIONS else "finetune"
            return cls(str(started.get("task", "text")), folder, rest, verb)
        info = facts.get("labels_and_columns")
        info = info if isinstance(info, Mapping) else {}
        arguments: dict[str, Any] = {
            "model": facts.get("model_path", "MODEL"),
            "data": facts.get("data_path", "DATA"),
        }
        if info.get("dataset") is None and info.get("name") in ("text", "regression"):
            arguments |= {
                "text_columns": list(info.get("text_columns") or ()) or None,
                "label_column": info.get("label_column"),
            }
        names = ("epochs", "batch_size", "learning_rate", "class_weights", "seed")
        arguments |= {name: facts.get(name) for name in names if facts.get(name)}
        task = str(facts.get("task", "text"))
        if "/" in task:  # "glue/CoLA"
            task, arguments["glue_task"] = task.split("/", 1)
            if task != "glue":
                del arguments["glue_task"]
        return cls(task, folder, {k: v for k, v in arguments.items() if v is not None})

    def again(self, **changes: Any) -> NextCommand | None:
        """Return the command for another fine-tuning with other values of some options, into a
        folder next to this one; None where that would be the command of this run.

        Args:
            changes: the new values by the names of the arguments; None leaves the option out.
        """
        before = {k: v for k, v in self.arguments.items() if k not in _NOT_AGAIN and v is not None}
        arguments = {**before, "out": str(_next_free(self.folder))}
        if self.verb in _OWN_OPTIONS:  # which does not have all options of fine-tuning
            known = {entry.name for entry in declared(_OWN_OPTIONS[self.verb])}
            changes = {name: value for name, value in changes.items() if name in known}
        arguments |= changes
        arguments = {name: value for name, value in arguments.items() if value is not None}
        if arguments == before | {"out": arguments["out"]}:
            return None
        if self.verb == "distill":
            words = [f"{name}={value!r}" for name, value in arguments.items() if name != "data"]
            data = repr(arguments["data"]) if "data" in arguments else _IN_MEMORY
            call = f"bertine.distill({', '.join([data, *words])})"
            return NextCommand(distill_command(arguments), call)
        if self.verb == "few-shot":
            return _few_shot_again(self.task, arguments)
        call = ", ".join([repr(self.task), *(f"{k}={v!r}" for k, v in arguments.items())])
        if "data" not in arguments:
            call = call.replace(", ", f", data={_IN_MEMORY}, ", 1)
        return NextCommand(finetune_command(self.task, arguments), f"bertine.finetune({call})")

    def worst(self, count: int = 20) -> NextCommand:
        """Return the command that lists the training examples with the worst predictions of the
        run's model."""
        model = str(self.folder / "model")
        data = self.arguments.get("data")
        words = ["bertine", "evaluate", model, "--data", _train_file(data), "--worst", str(count)]
        return NextCommand(shlex.join(words), f'learner.top_losses({count}, data="train")')

    def worst_held_out(self, count: int = 20) -> NextCommand:
        """Return the command that writes the run's page, which lists the validation examples with
        the worst predictions."""
        words = ["bertine", "report", str(self.folder)]
        return NextCommand(shlex.join(words), f"learner.top_losses({count})")

    def other_data(self) -> NextCommand:
        """Return the command that scores the run's model on examples from elsewhere."""
        model = str(self.folder / "model")
        words = ["bertine", "evaluate", model, "--data", "OTHER.csv"]
        return NextCommand(shlex.join(words), 'learner.validate("OTHER.csv")')


def _few_shot_again(task: str, arguments: Mapping[str, Any]) -> NextCommand:
    """Write the command and the call of ``few-shot`` with these arguments, by name."""
    given = {**arguments, **({} if task == "text" else {"task": task})}
    words = ["bertine", "few-shot"]
    for name, value in given.items():
        words += _option(name, value)
    named = [f"{name}={value!r}" for name, value in given.items()]
    named += [] if "data" in given else [f"data={_IN_MEMORY}"]
    return NextCommand(shlex.join(words), f"bertine.few_shot({', '.join(named)})")


def finetune_command(task: str, arguments: Mapping[str, Any]) -> str:
    """Write the command that fine-tunes for `task` with these arguments, by name, for the shell."""
    words = ["bertine", "finetune", task]
    for name, value in arguments.items():
        words += _option(name, value)
    return shlex.join(words)


def distill_command(arguments: Mapping[str, Any]) -> str:
    """Write the command that distils on a task with these arguments, by name, for the shell."""
    words = ["bertine", "distill", "task", str(arguments.get("data", "DATA"))]
    for name, value in arguments.items():
        if name != "data":
            words += _option(name, value)
    return shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    option = shell_option(name, value)
    if value is True:
        return [option]
    if value is False:
        return ["--no-" + option.removeprefix("--")]
    if isinstance(value, list | tuple):
        return [option, *map(str, value)]
    if isinstance(value, float) and float(f"{value:g}") == value:  # else with all its digits
        return [option, f"{value:g}"]
    return [option, str(value)]


def _train_file(data: Any) -> str:
    """Return the name of the file of the training examples, as far as it is known without
    reading."""
    if not isinstance(data, str):
        return "TRAIN.csv"
    if (name := PublishedName.parse(data)) is not None:
        return str(replace(name, part=f"{name.part}/train".lstrip("/")))
    folder = Path(data)
    if folder.is_dir():
        return str(min(folder.glob("train*"), default=folder))
    return data


def _next_free(folder: Path) -> Path:
    """Choose a folder that does not exist yet: ``run-2`` next to ``run``, then ``run-3``."""
    stem, _, number = folder.name.rpartition("-")
    counted = number.isdigit() and (folder.parent / stem).is_dir()
    base = stem if stem and counted else folder.name
    taken = 2
    while (folder.parent / f"{base}-{taken}").exists() or f"{base}-{taken}" == folder.name:
        taken += 1
    return folder.parent / f"{base}-{taken}"
