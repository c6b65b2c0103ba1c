"""How good `bertine finetune` is as it comes, at every number of labels: beside baselines, beside
the advice of `bertine lr-find`, and beside the best of a small search.

    python benchmarks/defaults.py --data FOLDER --resume FILE

For each task, number of examples and seed, so many training examples are drawn at random; a tenth
of them is held out for validation, as `finetune` does with a file of a user's own. Every system
gets the same, and is judged on the same part of the task's official held-out file, which none of
them sees. What `finetune` saves, the trained model or the head alone, follows from their scores on
the validation examples, so both are run once and combined as it does. Training takes the time;
`--resume` keeps each result as soon as it is there, and several processes may share one file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from common import describe_machine, machine, minilm, print_table
from sides.results import Results
from sides.settings import TASKS, Task

import bertine
from bertine.core.console import quietly
from bertine.core.names import TaskName
from bertine.core.rng import generator
from bertine.data.examples import Examples
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_labelled
from bertine.hub.model_directory import load_config, load_model
from bertine.inference.baselines.measure import measure_baselines
from bertine.inference.baselines.texts import FrozenEncoder, pooling_of
from bertine.inference.evaluate import evaluate_examples
from bertine.models.precision import resolve_precision
from bertine.options.data import DataConfig
from bertine.options.finetuning import FinetuneOptions
from bertine.tasks.metrics import official_score
from bertine.training.defaults import TrainingPlan
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.linear_probe import alone_is_better, few_of_many, score_of_head

#: The tasks of the table.
NAMES = ("emotion", "SST-2", "CoLA", "MRPC", "STS-B", "RTE", "WNUT-17", "CODAH")
#: Tasks of many classes and how many these are, for `--tasks` and `--per-class`.
MANY_CLASSES = {"BANKING77": 77, "CLINC150": 150}
#: What is run besides the baselines, which have names of their own: all weights trained as the
#: plan says, the head alone, and all weights as lr-find advises.
TRAINED, HEAD_ALONE, ADVICE = "trained", "head alone", "lr-find"
BASELINES, SEARCH = "baselines", "search"
SYSTEMS = (BASELINES, TRAINED, HEAD_ALONE, ADVICE, SEARCH)
#: The small search: factors on the rate and the number of epochs of the default.
RATES, LENGTHS = (0.5, 1.0, 2.0), (0.5, 1.0)
#: Numbers of examples; 0: all.
SIZES = (100, 300, 1_000, 3_000, 0)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task with a number of examples and a seed.

    Attributes:
        size: examples, those held out for validation counted; 0: all.
        train: the examples to train on.
        test: the examples to judge on.
    """

    task: Task
    size: int
    seed: int
    model: Path | str
    data: DatasetSplits
    test: Examples[Any]

    @property
    def key(self) -> dict[str, Any]:
        """What a result of the cell is found by."""
        return {"task": self.task.name, "size": self.size, "seed": self.seed}

    @classmethod
    def of(
        cls,
        task: Task,
        size: int,
        seed: int,
        args: argparse.Namespace,
        model: Path | str,
        folder: Path | None = None,
    ) -> Cell:
        """Draw the examples, of those in `folder` or in the task's own below ``args.data``."""
        reading = DataConfig(glue_task=task.name) if task.verb == "glue" else DataConfig()
        path = folder or args.data / task.folder
        whole = read_labelled(task.verb, path, reading)
        some = (drawn_of_each if args.per_class else drawn)(whole.train, size, seed)
        stratify = task.kind in ("text", "choice")
        train, validation = some.hold_out(0.1, seed, stratify=stratify)
        data = dataclasses.replace(whole, train=train, validation=validation, others={})
        test = drawn(whole.validation, args.test_examples, 0)
        return cls(task, size, seed, model, data, test)

    def run(self, out: Path, **settings: Any) -> dict[str, Any]:
        """Fine-tune with these `settings`, and score the saved model on the test examples."""
        began = time.monotonic()
        task = self.data.make_task()
        learner = bertine.finetune(
            cast("TaskName", task.name),
            model=self.model,
            data=self.data,
            out=out,
            seed=self.seed,
            baselines=False,
            **settings,
        )
        seconds = time.monotonic() - began
        return {
            "score": self.score(learner),
            "validation": official_score(learner.metrics, learner.metric_names),
            "seconds": seconds,
            "metric": learner.metric_names[0],
            "held_out": len(self.data.validation),
            "pairs": len(task.text_columns) == 2,
            **self._cross_validated(out, learner.metric_names),
        }

    def _cross_validated(self, out: Path, names: Sequence[str]) -> dict[str, float]:
        """The score of the head alone on examples that were left out, and how many these are; empty
        where it was not fitted."""
        found = json.loads((out / "scores.json").read_text(encoding="utf-8"))
        if not found.get("cross_validated"):
            return {}
        score = official_score(found["cross_validated"], names)
        return {"cross_validated": score, "left_out": min(1_000, len(self.data.train))}

    def score(self, learner: Learner) -> float:
        """The score of the model on the test examples, as it was trained."""
        report = evaluate_examples(learner.predictor, self.test)
        return official_score(report.metrics, learner.metric_names)


def drawn(examples: Examples[Any], count: int, seed: int) -> Examples[Any]:
    """At most `count` of the examples at random, in their order; all of them for 0."""
    if not 0 < count < len(examples):
        return examples
    order = generator(seed, "benchmark of defaults", len(examples)).permutation(len(examples))
    return dataclasses.replace(
        examples, items=[examples.items[at] for at in sorted(order[:count].tolist())]
    )


def drawn_of_each(examples: Examples[Any], count: int, seed: int) -> Examples[Any]:
    """At most `count` examples of each class at random, in their order; all of them for 0."""
    order = generator(seed, "benchmark of defaults", len(examples)).permutation(len(examples))
    of_class: dict[Any, list[int]] = {}
    for at in order.tolist():
        of_class.setdefault(examples.items[at].label, []).append(at)
    kept = sorted(at for places in of_class.values() for at in places[: count or None])
    return dataclasses.replace(examples, items=[examples.items[at] for at in kept])


def measure(cell: Cell, results: Results, args: argparse.Namespace) -> None:
    """Run what is missing of a cell."""
    if BASELINES in args.systems and results.claim({**cell.key, "system": BASELINES}):
        task = cell.data.make_task()
        loaded = load_model(cell.model)
        where = next(loaded.model.parameters()).device
        encoder = FrozenEncoder(
            loaded.model,
            loaded.tokenizer,
            task.max_length,
            pooling_of(cell.model),
            resolve_precision("auto", where),
        )
        metrics = task.task_info().metrics or (task.primary_metric,)
        for each in measure_baselines(task, cell.data.train, {"": cell.test}, encoder):
            score = official_score(each.metrics, metrics)
            results.add({**cell.key, "system": each.name, "score": score, "seconds": each.seconds})
        results.add({**cell.key, "system": BASELINES})
    for system, settings in systems(cell, args):
        if not results.claim({**cell.key, "system": system}):
            continue
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            began = time.monotonic()
            if system == ADVICE:
                report = bertine.lr_find(
                    cast("TaskName", cell.data.make_task().name),
                    model=cell.model,
                    data=cell.data,
                    out=out / "rate",
                    seed=cell.seed,
                )
                settings = {**report.advice, "frozen": False}
            found = cell.run(out / "run", **settings)
            found["seconds"] = time.monotonic() - began
        results.add({**cell.key, "system": system, "settings": settings, **found})
        print(
            f"{cell.task.name}, {cell.size or 'all'} examples, seed {cell.seed}, {system}: "
            f"{100 * found['score']:.2f} in {found['seconds']:.0f} s",
            flush=True,
        )


def systems(cell: Cell, args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is fine-tuned in a cell, with its settings."""
    settings = {TRAINED: {"frozen": False}, HEAD_ALONE: {"frozen": True}, ADVICE: {}}
    yield from ((name, settings[name]) for name in settings if name in args.systems)
    if SEARCH in args.systems:
        task = cell.data.make_task()
        options, config = FinetuneOptions(), load_config(cell.model)
        plan = TrainingPlan.of(options, config, len(cell.data.train), task)
        of_plan = plan.epochs, plan.learning_rate, plan.batch_size
        yield from search_settings(*of_plan, args.rates, args.lengths)


def search_settings(
    epochs: int,
    learning_rate: float,
    batch_size: int,
    rates: Sequence[float],
    lengths: Sequence[float],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The settings of the small search, around those of the plan, by name."""
    for rate in rates:
        for length in lengths:
            if (rate, length) == (1.0, 1.0):  # that is the plan
                continue
            settings = {
                "epochs": max(1, round(epochs * length)),
                "batch_size": batch_size,
                "learning_rate": learning_rate * rate,
                "frozen": False,
            }
            yield f"rate x {rate:g}, epochs x {length:g}", settings


def saved(results: Results, key: dict[str, Any], name: str) -> dict[str, Any] | None:
    """What `finetune` saves where it trains as the system `name` does; None where that, or the head
    alone, has not been run."""
    trained = results.find({**key, "system": name})
    alone = results.find({**key, "system": HEAD_ALONE})
    if trained is None or alone is None:
        return None
    classes = MANY_CLASSES.get(key["task"], 0)
    left_out = 0 if classes else alone.get("left_out", 0)
    # With many classes the sizes are examples of each; 0 is all of them, more than a few.
    few = key["size"] > 0 and few_of_many(classes, key["size"] * classes)
    of_head = score_of_head(
        {"": alone["validation"]},
        alone["held_out"],
        {"": alone["cross_validated"]} if left_out else {},
        left_out,
        ("",),
    )
    better = alone_is_better(
        trained["metric"],
        of_head,
        trained["validation"],
        trained["held_out"],
        expected=trained["pairs"] or few,
    )
    return {**(alone if better else trained), "seconds": trained["seconds"] + alone["seconds"]}


def show(results: Results, args: argparse.Namespace) -> None:
    """The table, and what falls short."""
    rows, gaps, advice_gaps, below = [], [], [], []
    around = search_settings(1, 1.0, 16, args.rates, args.lengths)
    searched = [TRAINED, *(name for name, _ in around)]
    for task in args.tasks:
        for size in args.sizes:
            keys = [{"task": task.name, "size": size, "seed": seed} for seed in args.seeds]
            default = {key["seed"]: each for key in keys if (each := saved(results, key, TRAINED))}
            if not default:
                continue
            seeds = list(default)
            scores = results.scores({"task": task.name, "size": size}, seeds)
            ours = [each["score"] for each in default.values()]
            known = (TRAINED, HEAD_ALONE, ADVICE, *searched)
            baselines = {name: values for name, values in scores.items() if name not in known}
            best = max(baselines, key=lambda name: _mean(baselines[name]), default=None)
            if best is not None:
                spread = max(_spread(ours), _spread(baselines[best]))
                if _mean(ours) < _mean(baselines[best]) - spread:
                    below.append(f"{task.name} with {size or 'all'} examples: {best}")
            advice, search, bound = [], [], []
            for key in keys:
                if key["seed"] not in default:
                    continue
                advised = saved(results, key, ADVICE)
                if advised is not None:
                    advice.append(advised["score"])
                    advice_gaps.append(advised["score"] - default[key["seed"]]["score"])
                runs = [saved(results, key, name) for name in searched]
                whole = [run for run in runs if run is not None]
                if len(whole) == len(searched):
                    search.append(max(whole, key=lambda run: run["validation"])["score"])
                    bound.append(max(run["score"] for run in whole))
                    gaps.append(search[-1] - default[key["seed"]]["score"])
            rows.append(
                [
                    task.name,
                    f"{size:,}" if size else "all",
                    str(len(seeds)),
                    _text(ours),
                    _text(scores.get(TRAINED, [])),
                    _text(scores.get(HEAD_ALONE, [])),
                    _text(advice),
                    "" if best is None else f"{_text(baselines[best])} ({best})",
                    _text(search),
                    _text(bound),
                    f"{_mean([each['seconds'] for each in default.values()]):.0f} s",
                ]
            )
    head = ["task", "examples", "seeds", "default", "all weights", "head alone", "lr-find"]
    print_table([*head, "best baseline", "search", "best setting", "time"], rows)
    print(
        "scores times 100 on held-out examples, mean and standard deviation over the seeds; "
        "search: the setting\nthat is best on the validation examples; best setting: the one that "
        "is best on the test examples, which no\nuser could know; time of the default, in seconds"
    )
    if gaps:
        print(f"the search is {100 * _mean(gaps):+.2f} points from the default on mean")
    if advice_gaps:
        print(
            f"the advice of lr-find is {100 * _mean(advice_gaps):+.2f} points from the default on "
            f"mean, {100 * min(advice_gaps):+.2f} at worst"
        )
    print("below a baseline by more than the spread: " + ("; ".join(below) or "nowhere"))


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else float("nan")


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _text(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {100 * _spread(values):.1f}" if len(values) > 1 else ""
    return f"{100 * _mean(values):.1f}{spread}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Fine-tuning as it comes, beside baselines, lr-find's advice and a search."
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of all tasks' folders")
    parser.add_argument("--model", type=Path, help="a model directory; default: all-MiniLM-L6-v2")
    parser.add_argument("--tasks", nargs="+", choices=(*NAMES, *MANY_CLASSES), default=list(NAMES))
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=list(SIZES), help="numbers of examples; 0: all"
    )
    parser.add_argument(
        "--per-class", action="store_true", help="the sizes are examples of each class"
    )
    factors: dict[str, Any] = {"nargs": "+", "type": float, "help": "of the search: factors"}
    parser.add_argument("--rates", default=list(RATES), **factors)
    parser.add_argument("--lengths", default=list(LENGTHS), **factors)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--test-examples", type=int, default=400, help="of the held-out file; 0: all"
    )
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="what to run"
    )
    parser.add_argument("--show", action="store_true", help="print the table of what is there")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        required=True,
        help="write each result to this file, and leave out what is in it",
    )
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.model = args.model or minilm()
    args.tasks = [TASKS[name] for name in args.tasks]
    for task in args.tasks:
        path = args.data / task.folder / task.train
        if not path.is_file():
            parser.error(f"{path} does not exist; name the folder of all tasks in --data")
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    print(describe_machine(machine(args.threads)), flush=True)
    results = Results(args.resume)
    if not args.show:
        # Small sizes first: the table fills from the left.
        for size in args.sizes:
            for seed in args.seeds:
                for task in args.tasks:
                    cell = Cell.of(task, size, seed, args, args.model)
                    with quietly():
                        measure(cell, results, args)
    show(results, args)


if __name__ == "__main__":
    main()
