"""From raw text to a model in one hour, and what it is worth on five tasks of GLUE.

    python recipes/hour --corpus FILE_OR_FOLDER ... --glue FOLDER --out FOLDER

Vocabulary, preparation and pre-training share the hour. Then CoLA, SST-2, MRPC, STS-B and RTE are
fine-tuned over three seeds, from the model and from random weights of the same shape, and scored
on their dev sets. Run again after an interruption, it goes on where it stopped; the hour goes on
too.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from recipe import FINETUNE, PHASES, TASKS, VOCAB, GlueRun, Phase

import bertine
from bertine.console import human_time, say
from bertine.files import read_json, write_json

CONFIG = Path(__file__).with_name("config.json")
WAYS = {"pre-trained": False, "random weights": True}


class Clock:
    """Seconds spent on the model, over all starts of the command."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.stages: dict[str, float] = read_json(file) if file.exists() else {}

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())

    def stage(self, name: str, work: Any) -> None:
        """Do `work` unless it was done, and write down how long it took."""
        if name in self.stages:
            return
        say(f"--- {name}")
        began = time.monotonic()
        work()
        self.stages[name] = time.monotonic() - began
        write_json(self.file, self.stages)


def make_model(corpus: list[Path], out: Path, minutes: float) -> Path:
    """The pre-trained model's directory."""
    clock = Clock(out / "hour.json")
    vocab, store = out / "vocab", out / "store"
    clock.stage("vocabulary", lambda: bertine.train_vocab(corpus, out=vocab, **VOCAB))
    clock.stage("preparation", lambda: bertine.prepare(corpus, tokenizer=vocab, out=store))
    file = out / "left.json"
    if not file.exists():  # a resumed run has the same budget; it counts what was used of it
        write_json(file, {"hours": minutes / 60 - clock.seconds / 3600})
    hours = read_json(file)["hours"]
    if hours <= 0:
        raise bertine.BertineError(
            f"{human_time(clock.seconds)} went into vocabulary and preparation, which leaves no "
            "time for training; give --minutes more, or less text"
        )

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
    for phase in PHASES:
        clock.stage(phase.name, functools.partial(train, phase, model))
        model = out / phase.name / "model"
    say(
        f"the model took {human_time(clock.seconds)}: "
        + ", ".join(f"{name} {human_time(seconds)}" for name, seconds in clock.stages.items())
    )
    return model


def finetune(task: GlueRun, way: str, seed: int, model: Path, glue: Path, out: Path) -> float:
    """The score of one fine-tuning run on the dev set, times 100; kept in a file."""
    folder = out / "finetuning" / f"{task.task}-{way.replace(' ', '-')}-{seed}"
    scored = folder.with_suffix(".json")
    if not scored.exists():
        say(f"--- {task.task}, {way}, seed {seed}")
        result = bertine.finetune(
            "glue",
            glue_task=task.task,
            model=model,
            data=glue,
            out=folder,
            epochs=task.epochs,
            fresh_weights=WAYS[way],
            seed=seed,
            resume=True,
            **FINETUNE,
        )
        write_json(scored, result.metrics)
    return 100 * read_json(scored)[task.metric]


def table(scores: dict[str, dict[str, list[float]]]) -> list[str]:
    """A row a task, a column a way: mean and standard deviation over the seeds."""
    lines = [f"{'':20}" + "".join(f"{way:>22}" for way in WAYS)]
    for task in TASKS:
        cells = "".join(f"{_spread(scores[way][task.task]):>22}" for way in WAYS)
        lines.append(f"{task.task + ', ' + task.metric:20}{cells}")
    averages = "".join(f"{_spread(averaged(scores[way])):>22}" for way in WAYS)
    return [*lines, f"{'average':20}{averages}"]


def averaged(scores: dict[str, list[float]]) -> list[float]:
    """The average over the tasks, for each seed."""
    return [statistics.fmean(seed) for seed in zip(*scores.values(), strict=True)]


def _spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.1f} ± {deviation:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="recipes/hour",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--corpus", metavar="PATH", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--glue", metavar="DIR", type=Path, required=True, help="folder of the tasks' folders"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True)
    parser.add_argument("--minutes", metavar="X", type=float, default=60.0)
    parser.add_argument("--seeds", metavar="N", type=int, default=3)
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    try:
        model = make_model(arguments.corpus, out, arguments.minutes)
        scores = {
            way: {
                task.task: [
                    finetune(task, way, seed, model, arguments.glue, out)
                    for seed in range(arguments.seeds)
                ]
                for task in TASKS
            }
            for way in WAYS
        }
    except bertine.BertineError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    write_json(out / "scores.json", scores)
    print("\n".join(table(scores)))
    print(f"dev sets, times 100; mean and standard deviation over {arguments.seeds} seeds")


if __name__ == "__main__":
    main()
