"""``check_labels``: which labels of a file are probably wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertine.cores.launch import launched
from bertine.errors import BertineError
from bertine.files import (
    atomic_file,
    lock_folder,
    os_errors,
    read_json_object,
    write_json,
    write_text,
)
from bertine.inference.predictor import Predictor
from bertine.inference.seen_in_training import rows_known_by
from bertine.model_folders import locate
from bertine.modeldir import load_model
from bertine.options.label_check import LabelCheckOptions
from bertine.options.names import option
from bertine.options.verbs import takes_options
from bertine.outside import open_array
from bertine.records.examples import Example, Examples, read_examples
from bertine.records.known_rows import count_known
from bertine.records.splits import find_splits
from bertine.rng import generator
from bertine.tables.given import GivenTable, Source, TableLike, as_data
from bertine.tasks.unknown_text import UnknownText
from bertine.terminal.console import counted, say, warn
from bertine.training.label_check.confident import find_noise
from bertine.training.label_check.page import check_page
from bertine.training.label_check.result import CHECK, CHECKED, PAGE, LabelCheck
from bertine.training.run import refuse_changes
from bertine.training.search.runs import run_here, run_processes

#: Of :class:`LabelCheckOptions` those that fine-tuning is given.
_OF_FINETUNE = (
    *("epochs", "batch_size", "paper", "max_length", "learning_rate", "frozen"),
    *("device", "precision", "seed"),
)
#: Those that may change when a check is resumed.
_FREE = ("processes", "resume")


@takes_options()
def check_labels(
    data: Path | str | TableLike,
    *,
    model: Path | str,
    out: Path | str,
    options: LabelCheckOptions,
) -> LabelCheck:
    """Find labels of texts, or of pairs of texts, that are probably wrong: fine-tune a model on all
    parts of the examples but one, ask it for that one, and compare its probabilities with the
    labels, by confident learning (Northcutt et al. 2021, arXiv 1911.00068).

    Args:
        data: a labelled file, or a table in memory; of a folder the training file.
        model: the model directory to start from.
        out: the folder of the check. ``out/checked.csv`` has all examples, with
            ``suggested_label`` where another one is more probable: correct the labels there, and
            train on that file; one that is there already stays as it is. ``out/check-labels.json``
            has what was found, and ``out/check-labels.html`` the same as a page.
        options: what the other arguments say.

    Returns:
        What was found, the most probably wrong first.

    Raises:
        BertineError: what reading the data raises; fewer than two labels that occur twice; a model
            that cannot be trained; `out` holds something else, a check that is not to be resumed,
            or one with other settings.
    """
    if launched():
        raise BertineError("check-labels starts its own processes; start it without torchrun")
    source = _training_part(data)
    names = ("text_columns", "label_column", "format", "quotes", "strict")
    examples = read_examples(source, **{name: getattr(options, name) for name in names})
    for note in examples.notes:
        say(note)
    loaded = load_model(model, heads={})
    unknown = UnknownText(loaded.tokenizer)
    unknown.read([item.texts for item in examples.items])
    if line := unknown.note():
        warn(f"{examples.source}: {line}")
    check = _Check(examples, Path(out).absolute(), options)
    if seen := count_known(check.examples.items, rows_known_by(model)):
        check.notes.append(
            f"note: the model was trained on {seen:,} of these {len(check.examples):,} examples, "
            "labels and all, so it gives wrong labels back as they are: few look wrong, and the "
            "share is too low; start from a model that has not seen them"
        )
        warn(check.notes[-1].removeprefix("note: "))
    settings = {
        "examples_fingerprint": examples.fingerprint(),
        "weights_fingerprint": loaded.model.fingerprint(),
        **{name: value for name, value in options.changed().items() if name not in _FREE},
    }
    with check.opened(settings):
        check.train(model)
        return check.finish(settings)


def _training_part(data: Path | str | TableLike) -> Source:
    """Return the file or table of the training examples."""
    source = as_data(data)
    if isinstance(source, GivenTable):
        return source
    part = find_splits(source).train
    if part is None:
        raise BertineError(f"{data}: has no training examples to check")
    return part


def _judged(examples: Examples[Example]) -> Examples[Example]:
    """Leave out labels that occur once: a model that has not seen one cannot know it.

    Raises:
        BertineError: fewer than two labels are left.
    """
    counts = Counter(item.label for item in examples.items)
    rare = sorted(str(label) for label, count in counts.items() if count < 2)
    if rare:
        occurring = counted(len(rare), "label", "that occurs once is", "that occur once are")
        warn(
            f"{examples.source}: {occurring} not checked: {', '.join(rare[:10])}"
            f"{', …' if len(rare) > 10 else ''}"
        )
    items = [item for item in examples.items if counts[item.label] > 1]
    if len({item.label for item in items}) < 2:
        raise BertineError(
            f"{examples.source}: needs at least two labels that each occur at least twice"
        )
    return dataclasses.replace(examples, items=items)


class _Check:
    """A check under way.

    Attributes:
        every: example that was read.
        examples: that are checked.
        labels: of them, sorted.
        folds: int64 [N], the part that each example is in.
        notes: what else to know.
    """

    def __init__(self, every: Examples[Example], out: Path, options: LabelCheckOptions) -> None:
        self.every, self.examples = every, _judged(every)
        self.notes: list[str] = []
        self.out, self._options = out, options
        if options.folds > len(self.examples):
            raise BertineError(
                f"{option('folds')} is {options.folds}, but there are only "
                f"{counted(len(self.examples), 'example')}"
            )
        self.labels = sorted({str(item.label) for item in self.examples.items})
        self.folds = _folds([str(item.label) for item in self.examples.items], options)
        self._columns = ("text", "second_text")[: len(every.text_columns)]

    @contextlib.contextmanager
    def opened(self, settings: dict[str, Any]) -> Iterator[None]:
        """Begin a check in its folder, or find how far it was; keep other processes out. One that
        could not even judge a part leaves nothing."""
        file = self.out / CHECK
        if self.out.exists() and not self.out.is_dir():
            raise BertineError(f"{self.out}: is a file; choose another folder for the check")
        new = not self.out.exists()
        with os_errors(self.out, "writing it"):
            self.out.mkdir(parents=True, exist_ok=True)
        with lock_folder(self.out, "another process is at this check; wait for it"):
            if file.exists():
                self._go_on(file, settings)
            elif any(not entry.name.startswith(f".{CHECK}.tmp-") for entry in self.out.iterdir()):
                raise BertineError(
                    f"{self.out}: is not empty and holds no check; choose another folder"
                )
            else:
                write_json(file, {"settings": settings})
            try:
                yield
            except BertineError:
                if not any(self._answers(fold).exists() for fold in range(self._options.folds)):
                    file.unlink(missing_ok=True)
                    for name in ("parts", "logs"):
                        shutil.rmtree(self.out / name, ignore_errors=True)
                    if new:
                        self.out.rmdir()
                raise

    def _go_on(self, file: Path, settings: dict[str, Any]) -> None:
        if not self._options.resume:
            raise BertineError(
                f"{self.out}: holds a check already; add {option('resume', True)} to go on with "
                "it, or choose another folder"
            )
        known = read_json_object(file, lenient=True).get("settings")
        if not isinstance(known, dict):
            raise BertineError(f"{file}: is damaged; choose another folder for the check")
        refuse_changes(file, "check was begun", known, json.loads(json.dumps(settings)))

    def train(self, model: Path | str) -> None:
        """Train a model without each part that is not judged yet, and judge it."""
        waiting = [fold for fold in range(self._options.folds) if not self._answers(fold).exists()]
        done = self._options.folds - len(waiting)
        say(
            f"{counted(len(self.examples), 'example')} with {counted(len(self.labels), 'label')}, "
            f"in {self._options.folds} parts" + (f", {done} judged before" if done else "")
        )
        jobs = [self._job(fold, model) for fold in waiting]
        if not jobs:
            return

        def on_end(number: int, message: dict[str, Any]) -> None:
            part = f"part {waiting[number] + 1} of {self._options.folds}"
            if "done" not in message:
                reason = message.get("error")
                if reason is None:
                    reason = f"{message['lost']} (more in {jobs[number]['log']})"
                raise BertineError(f"{part}: {reason}")
            if message["done"].get("collapsed"):
                warn(f"{part}: its model gives the same label to every text, so it says nothing")
            self._judge(waiting[number])
            say(f"{part}: judged")

        do = run_here
        if self._options.processes > 1 and len(jobs) > 1:
            device, count = self._options.device, self._options.processes
            do = partial(run_processes, processes=count, device=device)
        do(jobs, on_end)

    def finish(self, settings: dict[str, Any]) -> LabelCheck:
        """Compare the probabilities with the labels, and write what was found."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        given = np.array([numbers[str(item.label)] for item in self.examples.items])
        probabilities = np.zeros((len(given), len(self.labels)))
        for fold in range(self._options.folds):
            probabilities[self.folds == fold] = open_array(self._answers(fold))
            # What a killed process left.
            shutil.rmtree(self._folder(fold), ignore_errors=True)
        noise = find_noise(probabilities, given)
        result = LabelCheck(
            self.examples,
            self.labels,
            noise,
            probabilities,
            self.out,
            every=self.every,
            notes=self.notes,
        )
        if (self.out / CHECKED).exists():
            say(f"{self.out / CHECKED}: is there already, and stays as it is")
        else:
            result.write()
        write_json(self.out / CHECK, {"settings": settings, **result.to_dict()})
        check_page(result).write(self.out / PAGE)
        return result

    def _folder(self, fold: int) -> Path:
        return self.out / "parts" / f"part-{fold + 1}"

    def _run(self, fold: int) -> Path:
        return self._folder(fold) / f"part-{fold + 1}"

    def _answers(self, fold: int) -> Path:
        return self.out / "parts" / f"part-{fold + 1}.npy"

    def _job(self, fold: int, model: Path | str) -> dict[str, Any]:
        """Write the examples of a run and return it as
        :func:`~bertine.training.search.runs.run_one` takes it."""
        data = self._folder(fold) / "data"
        for name, inside in (("train", self.folds != fold), ("dev", self.folds == fold)):
            rows = [
                {**dict(zip(self._columns, item.texts, strict=True)), "label": str(item.label)}
                for item, chosen in zip(self.examples.items, inside.tolist(), strict=True)
                if chosen
            ]
            data.mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(row, ensure_ascii=False) for row in rows)
            write_text(data / f"{name}.jsonl", "".join(f"{line}\n" for line in lines))
        known = self._options.changed()
        arguments = {name: known[name] for name in _OF_FINETUNE if name in known}
        path = locate(model)
        return {
            "arguments": {
                "task": "text",
                "model": os.path.abspath(path) if Path(path).exists() else str(model),
                "data": str(data),
                "out": str(self._run(fold)),
                "text_columns": list(self._columns),
                "label_column": "label",
                "save_best": False,
                "calibrate": False,
                **arguments,
            },
            "split_seed": 0,
            "log": str(self.out / "logs" / f"part-{fold + 1}.log"),
        }

    def _judge(self, fold: int) -> None:
        """Ask the model that was trained without a part, and keep its probabilities alone."""
        # In the precision of training: a faster one would be chosen for each part anew.
        predictor = Predictor.for_scores(
            self._run(fold) / "model", self._options.device, self._options.precision
        )
        items = [
            item for item, part in zip(self.examples.items, self.folds, strict=True) if part == fold
        ]
        answers, _ = predictor.run(dataclasses.replace(self.examples, items=items))
        order = [predictor.task.labels.index(label) for label in self.labels]
        table = np.array([answer.numbers for answer in answers])[:, order]
        _write_array(self._answers(fold), table)
        shutil.rmtree(self._folder(fold), ignore_errors=True)


def _folds(labels: Sequence[str], options: LabelCheckOptions) -> np.ndarray:
    """Deal the examples out to the parts, those of each label evenly."""
    folds = np.empty(len(labels), dtype=np.int64)
    draw = generator(options.seed, "parts of a label check")
    begin = 0
    numbers: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        numbers.setdefault(label, []).append(number)
    for label in sorted(numbers):
        own = numbers[label]
        order = draw.permutation(np.array(own))
        folds[order] = (begin + np.arange(len(own))) % options.folds
        begin += len(own)
    return folds


def _write_array(path: Path, array: np.ndarray) -> None:
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)
