"""GPT-1 fine-tuned with and without the language model as a second objective (Radford et al. 2018,
table 5: "auxiliary LM"), on small and on larger tasks of GLUE.

    python benchmarks/lm_weight.py MODEL --glue FOLDER --out FOLDER [--weights 0 0.5] [--seeds N]

MODEL is a pre-trained GPT-1. Every weight has the same settings, seeds and epochs. The paper finds
that the larger tasks gain by it and the smaller ones do not. Results are kept in `--out`; the same
command goes on with what is missing.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import NamedTuple

import torch
from common import describe_machine, machine, print_table

import bertine
from bertine.core.console import quietly
from bertine.core.files import read_json, write_json


class Task(NamedTuple):
    """A task, the one metric that it is judged by here, and how often its examples are read."""

    name: str
    metric: str
    epochs: int


TASKS = (
    Task("CoLA", "matthews", 3),
    Task("MRPC", "f1", 3),
    Task("RTE", "accuracy", 3),
    Task("SST-2", "accuracy", 1),
)


def score(args: argparse.Namespace, task: Task, weight: float, seed: int) -> float:
    """Fine-tune, or read what came of it: the score on the dev set, times 100."""
    name = f"{task.name}-{weight:g}-{seed}"
    file = args.out / f"{name}.json"
    if not file.exists():
        with quietly():
            learner = bertine.finetune(
                "glue",
                glue_task=task.name,
                model=args.model,
                data=args.glue,
                out=args.out / name,
                epochs=task.epochs,
                learning_rate=args.learning_rate,
                batch_size=32,
                max_length=128,
                lm_weight=weight,
                save_best=False,  # the dev set judges the runs
                baselines=False,
                frozen=False,
                seed=seed,
                resume=True,
            )
        write_json(file, {"metrics": learner.metrics})
        print(f"{name}: {task.metric} {100 * learner.metrics[task.metric]:.1f}", flush=True)
    return 100 * float(read_json(file)["metrics"][task.metric])


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", type=Path)
    parser.add_argument("--glue", type=Path, required=True, help="folder with CoLA, SST-2, …")
    parser.add_argument("--out", type=Path, required=True, help="folder of all that is made")
    names = [task.name for task in TASKS]
    parser.add_argument("--tasks", nargs="+", choices=names, default=names)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(describe_machine(machine(args.threads)), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    tasks = [task for task in TASKS if task.name in args.tasks]
    scores: dict[tuple[str, float], list[float]] = {}
    for seed in range(args.seeds):
        for task in tasks:
            for weight in args.weights:
                value = score(args, task, weight, seed)
                scores.setdefault((task.name, weight), []).append(value)
    rows = []
    for task in tasks:
        cells = [f"{task.name} ({task.metric})"]
        for weight in args.weights:
            values = scores[task.name, weight]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}")
        rows.append(cells)
    print(f"\nmean and standard deviation over {args.seeds} seeds of fine-tuning, × 100")
    print_table(["task", *(f"weight {weight:g}" for weight in args.weights)], rows)


if __name__ == "__main__":
    main()
