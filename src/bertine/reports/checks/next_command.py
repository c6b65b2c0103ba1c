"""Write the command to run next: the user's own, with the options that a finding changes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.options.distillation import DistillOptions
from bertine.options.few_shot import FewShotOptions
from bertine.options.fields import OptionGroup, declared
from bertine.options.names import shell_option

#: Arguments that a new run does not take over.
_NOT_AGAIN = ("out", "resume", "task")
#: What stands for examples that were given in memory.
_IN_MEMORY = "…"


@dataclass(frozen=True)
class NextCommand:
    """One command, as the shell and as Python take it.

    Attributes:
        shell: with quotes where the shell needs them.
        python: the call of the same function.
    """

    shell: str
    python: str


#: The options of the verbs that have not all those of fine-tuning.
_OWN_OPTIONS: Mapping[str, type[OptionGroup]] = {
    "distill": DistillOptions,
    "few-shot": FewShotOptions,
}


@dataclass(frozen=True)
class Asked:
    """The arguments of a fine-tuning run, or of distilling on a task.

    Attributes:
        task: the first word after ``bertine finetune``.
        folder: of the run.
        arguments: of :func:`bertine.finetune` that are not the defaults, by
            name, as JSON values; `data` is None where the examples were in memory.
        verb: ``"finetune"``, ``"distill"`` or ``"few-shot"``, whose arguments they are.
    """

    task: str
    folder: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    verb: str = "finetune"

    @classmethod
    def of(cls, folder: Path, facts: Mapping[str, Any]) -> Asked:
        """Read them from ``start.json`` in `facts`, or, of a run of an older version, from its
        settings."""
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
        """Fine-tune again, with other values for some options, into a folder beside this one; None
        where that would be the command that has been run.

        Args:
            changes: by the names of the arguments; None leaves the option out.
        """
        before = {k: v for k, v in self.arguments.items() if k not in _NOT_AGAIN and v is not None}
        arguments = {**before, "out": str(_beside(self.folder))}
        if self.verb in _OWN_OPTIONS:  # which has not all options of fine-tuning
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
        """List the training examples that the run's model predicts worst."""
        model = str(self.folder / "model")
        data = self.arguments.get("data")
        words = ["bertine", "evaluate", model, "--data", _train_file(data), "--worst", str(count)]
        return NextCommand(shlex.join(words), f'learner.top_losses({count}, data="train")')

    def worst_held_out(self, count: int = 20) -> NextCommand:
        """Write the run's page, which lists the validation examples that are predicted worst."""
        words = ["bertine", "report", str(self.folder)]
        return NextCommand(shlex.join(words), f"learner.top_losses({count})")

    def other_data(self) -> NextCommand:
        """Score the run's model on examples from elsewhere."""
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
    """Write the command that distils with these arguments, by name, for the shell."""
    words = ["bertine", "distill", str(arguments.get("data", "DATA"))]
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
    """Name the file of the training examples, as far as it is known without reading."""
    if not isinstance(data, str):
        return "TRAIN.csv"
    folder = Path(data)
    if folder.is_dir():
        return str(min(folder.glob("train*"), default=folder))
    return data


def _beside(folder: Path) -> Path:
    """Choose a folder that is not there yet: ``run-2`` beside ``run``, then ``run-3``."""
    stem, _, number = folder.name.rpartition("-")
    counted = number.isdigit() and (folder.parent / stem).is_dir()
    base = stem if stem and counted else folder.name
    taken = 2
    while (folder.parent / f"{base}-{taken}").exists() or f"{base}-{taken}" == folder.name:
        taken += 1
    return folder.parent / f"{base}-{taken}"
