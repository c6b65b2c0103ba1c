"""What stands in the folder of a finished fine-tuning run, its page, and the commands to run
next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertine.cores.launch import is_main
from bertine.errors import BertineError
from bertine.files import read_json_object
from bertine.modeldir import TASK
from bertine.reports.run_page import REPORT, report
from bertine.taskinfo import TaskInfo
from bertine.terminal.console import warn

#: The key of ``scores.json`` that says in words which weights are saved.
SAVED = "saved"
#: The key that has how many of the validation examples the model that training began with has seen.
SEEN = "seen"
#: Files whose rows say of themselves what they hold, of all tasks.
_ROWS = (".jsonl", ".json", ".parquet")


def final_of(folder: Path) -> dict[str, Any]:
    """Return the report on the model of the finished run in `folder`, from its ``scores.json``: its
    ``metrics``, whether it ``collapsed`` to one answer; empty where there were no validation
    examples. A run that is found finished is not evaluated again."""
    file = folder / "scores.json"
    final = read_json_object(file, lenient=True).get("final")
    if not isinstance(final, dict) or not isinstance(final.get("metrics", {}), dict):
        raise BertineError(f"{file}: damaged; remove the folder and train again")
    return final


def saved_of(folder: Path) -> str:
    """Return which weights the model of the finished run in `folder` has, in words; "" where an
    earlier Bertine trained it, which did not write that down."""
    return str(read_json_object(folder / "scores.json", lenient=True).get(SAVED, ""))


def seen_of(folder: Path) -> int:
    """Return how many of the validation examples the model that the finished run in `folder` began
    with had been trained on."""
    return int(read_json_object(folder / "scores.json", lenient=True).get(SEEN, 0))


def write_pages(out: Path | str) -> None:
    """Write ``report.html`` into the folder of a finished run, or into that of each task of GLUE.
    A page that cannot be made is a warning: the model is there. Of several processes the first
    writes."""
    if not is_main():
        return
    for folder in _runs(Path(out)):
        try:
            report(folder)
        except BertineError as error:
            warn(f"no report was written: {error}")


def next_lines(out: Path | str) -> list[str]:
    """Return what to do with a finished run: its page, and the commands; empty where `out` is not
    the folder of one run."""
    folder = Path(out)
    if not (folder / "model" / TASK).is_file():
        return []
    info = TaskInfo.read(folder / "model" / TASK)
    name = shlex.quote(str(out))
    page = [f"report: {folder / REPORT}"] if (folder / REPORT).is_file() else []
    return [
        *page,
        "next:",
        f"  bertine predict {name} {_example(info)}",
        f"  bertine predict {name} --input new{_suffix(info)} --output answered{_suffix(info)}",
        f"  bertine evaluate {name} --data FILE",
        f"  bertine serve {name}",
    ]


def _runs(out: Path) -> Iterator[Path]:
    if (out / "scores.json").is_file():
        yield out
    elif out.is_dir():
        for folder in sorted(out.iterdir()):
            if (folder / "run.json").is_file() and (folder / "scores.json").is_file():
                yield folder


def _suffix(info: TaskInfo) -> str:
    """Return the suffix of a file to answer: that of the training data, as far as it tells what is
    in them."""
    suffix = Path(str(info.training.get("data_path", ""))).suffix.lower()
    if info.name == "tagging":
        return suffix if suffix in _ROWS else ".conll"
    return suffix if suffix in (".csv", ".tsv", *_ROWS) else ".csv"


def _example(info: TaskInfo) -> str:
    """Return texts for the command line as the task takes them."""
    if info.name == "spans":
        return '--question "…" --context "…"'
    if info.name == "choice":
        return '"a question" "a choice" "another choice"'
    return '"a text" "its second text"' if len(info.text_columns) > 1 else '"a text"'
