"""From raw text to a model in a given time, and what it is worth on tasks.

    python recipes/hour --corpus FILE_OR_FOLDER ... --tasks FOLDER --out FOLDER

Vocabulary, preparation and pre-training share the time. Then the tasks are fine-tuned over three
seeds, from the model and from random weights of the same shape, and scored on their dev or test
sets, beside what needs no model (tf-idf). Run again after an interruption, it goes on where it
stopped; the clock goes on too.

The models are those of the package. bertine-en (the default) takes an hour; its tasks are GLUE's
CoLA, SST-2, MRPC, STS-B and RTE. bertine-zh, the Chinese one, is scored on topics, paraphrases,
entities and questions.
"""

from __future__ import annotations

import contextlib
import functools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import chinese_tasks
from acceptability import write_acceptability
from finetuning import WAYS, Finetuning, alone, best_baseline, finetune_all
from recipe import (
    ACCEPTABILITY,
    RECIPES,
    SENTENCES_PER_MINUTE,
    VOCAB,
    Phase,
    Recipe,
    TaskRun,
)

import bertine
from bertine.commands.parser import Parser, real, whole
from bertine.core.console import human_time, logger
from bertine.core.files import read_json, write_json
from bertine.core.process import run_program

CONFIG = Path(__file__).with_name("config.json")
#: Between two entries of the clock (seconds).
_TICK = 5.0
#: Share of the time that is set aside for starting, saving and reports.
_RESERVE = 0.005


class Clock:
    """Seconds spent on the model, over all starts of the command.

    Args:
        file: where they are kept.
        corpus: what the model is made of.
        recipe: how it is made.

    Raises:
        BertineError: `file` is that of a model made of another corpus or by another recipe, or
            something else.
    """

    def __init__(self, file: Path, corpus: Sequence[Path], recipe: Recipe) -> None:
        self.file = file
        self.recipe = recipe
        self.settings = _as_json(recipe.of_model(read_json(CONFIG)))
        kept: dict[str, Any] = read_json(file) if file.exists() else {}
        if kept and not (
            {"corpus", "seconds", "done"} <= kept.keys() and kept.get("recipe") == self.settings
        ):
            raise bertine.BertineError(
                f"{file}: was made with another --model, or by another version of the recipe; give "
                "the same --model, or choose another folder"
            )
        self.seconds: dict[str, float] = kept.get("seconds", {})
        self.done: list[str] = kept.get("done", [])
        self.corpus = [str(path.absolute()) for path in corpus]
        if self.done and kept["corpus"] != self.corpus:
            raise bertine.BertineError(
                f"{file.parent}: was begun with --corpus {' '.join(kept['corpus'])}; give the "
                "same, or choose another folder"
            )

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def stage(self, name: str, work: Callable[[], object]) -> None:
        """Do `work` unless it was done, and write down how long it took: all along, so that of a
        start that is killed no more than the last seconds are forgotten."""
        if name in self.done:
            return
        logger.info(f"--- {name}")
        before, began = self.seconds.get(name, 0.0), time.monotonic()
        over = threading.Event()

        def write() -> None:
            self.seconds[name] = before + time.monotonic() - began
            kept = {"corpus": self.corpus, "seconds": self.seconds, "done": self.done}
            write_json(self.file, {"model": self.recipe.name, "recipe": self.settings, **kept})

        def tick() -> None:
            while not over.wait(_TICK):
                with contextlib.suppress(bertine.BertineError):  # the end tells it
                    write()

        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        try:
            work()
            self.done.append(name)
        finally:
            over.set()
            ticking.join()
            write()


def make_model(corpus: list[Path], out: Path, minutes: float, clock: Clock) -> Path:
    """The pre-trained model's directory."""
    vocab, store, recipe = out / "vocab", out / "store", clock.recipe
    clock.stage("vocabulary", lambda: bertine.train_vocab(corpus, out=vocab, **VOCAB))
    clock.stage(
        "preparation",
        lambda: bertine.prepare(corpus, tokenizer=vocab, out=store, **recipe.prepare),
    )
    hours = _hours_left(out / "left.json", out / recipe.phases[0].name, minutes, clock)

    def train(phase: Phase, model: Path) -> None:
        result = bertine.pretrain(
            store,
            model=model,
            out=out / phase.name,
            hours=phase.share * hours,
            resume=True,
            **phase.options,
        )
        print("\n".join(result.lines()))

    model = CONFIG
    for phase in recipe.phases:
        clock.stage(phase.name, functools.partial(train, phase, model))
        model = out / phase.name / "model"
    if recipe.acceptability:
        learn = functools.partial(_acceptability, corpus, out, model, minutes)
        clock.stage("acceptability", learn)
    logger.info(
        f"the model took {human_time(clock.total)}: "
        + ", ".join(f"{name} {human_time(seconds)}" for name, seconds in clock.seconds.items())
    )
    return model


def _acceptability(corpus: list[Path], out: Path, model: Path, minutes: float) -> None:
    """Train a copy of the model to tell sentences from damaged ones."""
    table, seed = out / "acceptability.csv", ACCEPTABILITY["seed"]
    write_acceptability(corpus, table, max(50, round(SENTENCES_PER_MINUTE * minutes)), seed)
    columns = {"text_columns": "sentence", "label_column": "label"}
    bertine.finetune(
        "text",
        model=model,
        data=table,
        out=out / "acceptability",
        resume=True,
        **columns,
        **ACCEPTABILITY,
    )


def _hours_left(file: Path, run: Path, minutes: float, clock: Clock) -> float:
    """For pre-training. A run that has begun keeps what it was given; it counts what was used."""
    if (run / "run.json").exists():
        begun: dict[str, float] = read_json(file)
        if begun["minutes"] != minutes:
            raise bertine.BertineError(
                f"{run}: was begun with --minutes {begun['minutes']:g}, not {minutes:g}; give the "
                "same, or choose another folder"
            )
        return begun["hours"]
    hours = (1 - _RESERVE) * minutes / 60 - clock.total / 3600
    if hours <= 0:
        raise bertine.BertineError(
            f"{human_time(clock.total)} went into vocabulary and preparation, which leaves no "
            "time for training; give --minutes more, or less text"
        )
    write_json(file, {"minutes": minutes, "hours": hours})
    return hours


def _as_json(value: Any) -> Any:
    """Return `value` as it comes back from a file."""
    return json.loads(json.dumps(value))


def check(
    corpus: list[Path], tasks: Path, out: Path, runs: Sequence[Finetuning], clock: Clock
) -> None:
    """Before the time begins and not after it: is there all that it takes?

    Raises:
        BertineError: `out` is a file; the corpus or a file of the tasks is missing or cannot be
            read.
    """
    from bertine.datasets.glue import glue_task, read_glue
    from bertine.tokenization.documents import Corpus

    if out.exists() and not out.is_dir():
        raise bertine.BertineError(f"{out}: is a file; choose another folder")
    if "preparation" not in clock.done:
        Corpus(corpus)
    left = {run.task.name: run.task for run in runs if not run.done}
    for name, task in left.items():
        if task.arguments["task"] == "glue":
            _, dev_sets = read_glue(tasks, glue_task(name))
            if not dev_sets:
                raise bertine.BertineError(f"{tasks}: has no dev.tsv of {name} to score it on")
    if left.keys() & chinese_tasks.SOURCES.keys():
        chinese_tasks.read_tasks(tasks)


def check_finetuning(out: Path, recipe: Recipe) -> None:
    """Write down how the model is fine-tuned, or compare it with what was written before.

    Raises:
        BertineError: the scores in `out` are of another version of the recipe.
    """
    file, settings = out / "finetuning.json", _as_json(recipe.of_scores())
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_json(file, settings)
    elif read_json(file) != settings:
        raise bertine.BertineError(
            f"{file}: the scores here are of another version of the recipe; remove this file and "
            f"the folder {out / 'finetuning'} to fine-tune the model again, or choose another "
            "folder"
        )


def data_of(tasks: Path, out: Path, recipe: Recipe) -> Callable[[str], Path]:
    """Return what gives the data of a task by its name, as ``bertine.finetune`` takes it."""
    if recipe.tasks[0].name not in chinese_tasks.SOURCES:
        return lambda task: tasks
    return functools.partial(chinese_tasks.data_of, out=out / "tasks")


def measure(
    runs: Sequence[Finetuning], model: Path, tasks: Path, out: Path, recipe: Recipe
) -> dict[str, dict[str, list[float]]]:
    """Do the fine-tuning runs that are not done, and fit the baselines.

    Returns:
        Way → task → scores times 100, one a seed; "no model" is one of the ways.
    """
    baselines = out / "baselines.json"
    if recipe.tasks[0].name in chinese_tasks.SOURCES and not (
        baselines.exists() and all(run.done for run in runs)
    ):
        chinese_tasks.write_tasks(tasks, out / "tasks")
    data = data_of(tasks, out, recipe)
    finetune_all(runs, model, out / "acceptability" / "model", data)
    if not baselines.exists():
        logger.info("--- baselines, which need no model")
        write_json(
            baselines, {task.name: best_baseline(task, data(task.name)) for task in recipe.tasks}
        )
    scores: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        scores.setdefault(run.way, {}).setdefault(run.task.name, []).append(run.score)
    fitted = read_json(baselines)
    scores["no model"] = {task.name: [fitted[task.name]["score"]] for task in recipe.tasks}
    return scores


def table(scores: dict[str, dict[str, list[float]]], tasks: Sequence[TaskRun]) -> list[str]:
    """A row a task, a column a way: mean and standard deviation over the seeds."""
    lines = [f"{'':22}" + "".join(f"{way:>18}" for way in scores)]
    for task in tasks:
        cells = "".join(f"{_spread(scores[way][task.name]):>18}" for way in scores)
        lines.append(f"{task.name + ', ' + task.metric:22}{cells}")
    averages = "".join(f"{_spread(averaged(scores[way])):>18}" for way in scores)
    return [*lines, f"{'average':22}{averages}"]


def averaged(scores: dict[str, list[float]]) -> list[float]:
    """The average over the tasks, for each seed; a task with one score has that for all."""
    seeds = max(map(len, scores.values()))
    every = [values * seeds if len(values) == 1 else values for values in scores.values()]
    return [statistics.fmean(seed) for seed in zip(*every, strict=True)]


def _spread(values: list[float]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def hour(arguments: Sequence[str]) -> None:
    """What the command does."""
    assert __doc__ is not None
    parser = Parser("python recipes/hour", __doc__)
    parser.add_argument(
        "--corpus", metavar="PATH", type=Path, nargs="+", required=True, help="files and folders"
    )
    parser.add_argument(
        *("--tasks", "--glue"),
        metavar="DIR",
        type=Path,
        required=True,
        help="folder of the tasks' folders: GLUE's, or with bertine-zh the Chinese ones",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="of all it makes")
    parser.add_argument("--model", choices=RECIPES, default="bertine-en", help="which one")
    parser.add_argument(
        "--minutes",
        metavar="X",
        type=real(0.1),
        help=f"its time ({', '.join(f'{name}: {one.minutes:g}' for name, one in RECIPES.items())})",
    )
    parser.add_argument(
        "--seeds", metavar="N", type=whole(1), default=3, help="fine-tuning runs a task and way"
    )
    given = parser.parse(arguments)
    out, tasks, seeds, recipe = (
        given["out"],
        given["tasks"],
        given["seeds"],
        RECIPES[given["model"]],
    )
    clock = Clock(out / "hour.json", given["corpus"], recipe)
    runs = [
        Finetuning(task, way, seed, out)
        for way in WAYS
        for task in recipe.tasks
        for seed in range(1 if task.once or alone(task, way) else seeds)
    ]
    check(given["corpus"], tasks, out, runs, clock)
    check_finetuning(out, recipe)
    minutes = recipe.minutes if given["minutes"] is None else given["minutes"]
    model = make_model(given["corpus"], out, minutes, clock)
    scores = measure(runs, model, tasks, out, recipe)
    write_json(out / "scores.json", scores)
    print("\n".join(table(scores, recipe.tasks)))
    over = "one seed"
    if seeds > 1:
        over = f"mean and standard deviation over {seeds} seeds; without ± one run"
    print(f"{recipe.judged_on}, times 100; {over}")


def main() -> int:
    """Run the program; return its exit status."""
    return run_program(hour)


if __name__ == "__main__":
    sys.exit(main())
