"""Fine-tuning on ten tasks with bertine against loops over transformers: scores and speed.

    python benchmarks/tasks.py --data FOLDER --resume results.json

Ours is ``bertine.finetune(...)`` as a user calls it, and the predictor of the model that it saves.
Theirs is a plain loop with the same batch, rate, epochs, warm-up, decay, maximum length and seed,
in two ways: ``best``, padded to the longest of a batch, bf16 autocast, fused AdamW, freed memory
kept; and ``default``, padded to the maximum, fp32, the optimizer of Trainer. The scores are those
of whole runs, ours and best; the default way computes the same at another speed and is not
trained to the end. Both sides' answers go to one judge. Time is that of training: loading,
tokenizing and evaluating are not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from common import (
    Worker,
    calibrate,
    describe_machine,
    machine,
    minilm,
    print_table,
)
from sides import ours, theirs
from sides.parts import part_of
from sides.record import Record
from sides.settings import TASKS, Setting, Task

from bertine.core.errors import BertineError
from bertine.core.files import sha256_file
from bertine.models.precision import cpu_has_bf16

#: The systems whose runs are scored.
OURS, BEST = "bertine", "best"
#: Held-out examples where only speed is measured.
_FEW = 16


def setting_of(task: Task, args: argparse.Namespace, data: Path, seed: int = 0) -> Setting:
    """The task's hyper-parameters, those on the command line first."""
    longest = args.max_length or task.max_length
    return Setting(
        task,
        args.model,
        data,
        args.data / "squad",
        epochs=args.epochs or task.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        max_length=longest,
        seed=seed,
        # The tokenizers of transformers want it well below the input's length.
        doc_stride=min(Setting.doc_stride, longest // 3),
    )


def measure_speed(setting: Setting, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of an epoch over a part of the training file, of each system in turns; and the
    machine's rate before each turn."""
    task = setting.task
    data = part_of(task, setting.data, folder / "speed", args.speed_examples, _FEW)
    # The first turn of each, in which much is done for the first time, does not count.
    setting = dataclasses.replace(setting, data=data, epochs=args.rounds + 1)
    names = [OURS, BEST, *(["default"] if args.default_steps else [])]
    seconds: dict[str, list[float]] = {name: [] for name in [*names, "GFLOP/s"]}
    with contextlib.ExitStack() as stack:
        workers = []
        for name in names:
            if name == OURS:
                worker = Worker(
                    name, args.threads, ours.epochs_by_turns, setting, folder / "speed-run"
                )
            else:
                way = theirs.WAYS[name]
                steps = args.default_steps if way.padded else None
                worker = Worker(name, args.threads, theirs.steps_by_turns, setting, way, steps)
            workers.append(stack.enter_context(worker))
        for turn in range(args.rounds + 1):
            for worker in workers:
                rate = calibrate() / 1e9
                message = worker.turn()
                if turn:
                    seconds[worker.name].append(message["seconds"])
                    seconds["GFLOP/s"].append(rate)
    told = ", ".join(f"{name} {statistics.median(seconds[name]):.2f} s" for name in names)
    print(f"{task.name}: an epoch of {args.speed_examples} examples: {told}", flush=True)
    return {"examples": args.speed_examples, "threads": args.threads, **seconds}


def run_whole(setting: Setting, system: str, out: Path, threads: int) -> dict[str, Any]:
    """A run from the begin to its scores."""
    before = calibrate()
    if system == OURS:
        worker = Worker(system, threads, ours.whole_run, setting, out)
    else:
        worker = Worker(system, threads, theirs.whole_run, setting, theirs.WAYS[system])
    with worker:
        result = worker.turn()
    result |= {"threads": threads, "GFLOP/s": [before / 1e9, calibrate() / 1e9]}
    shown = ", ".join(f"{name} {result['scores'][name]:.4f}" for name in setting.task.metrics)
    print(
        f"{setting.task.name}, seed {setting.seed}, {system}: {result['elapsed']:.1f} s, {shown}",
        flush=True,
    )
    return result


def measure(task: Task, args: argparse.Namespace, record: Record, folder: Path) -> None:
    """What is missing of a task."""
    data = args.data / task.folder
    if args.examples:
        data = part_of(task, data, folder / "data", args.examples, args.examples)
    setting = setting_of(task, args, data)
    record.check(
        task.name,
        {
            **setting.hyper_parameters(),
            "weights": args.weights,
            "examples": args.examples,
        },
    )
    threads = record.speed(task.name).get("threads", args.threads)
    if args.rounds and threads != args.threads:
        raise SystemExit(
            f"{args.resume}: the speed of {task.name} was measured with {threads} threads, and "
            f"this run has {args.threads}; name another file with --resume, or --rounds 0"
        )
    if args.rounds and not record.speed(task.name):
        record.add_speed(task.name, measure_speed(setting, folder, args))
    for seed in args.seeds:
        for system in [OURS, *([BEST] if seed in args.their_seeds else [])]:
            if record.run(task.name, seed, system) is None:
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    seeded = dataclasses.replace(setting, seed=seed)
                    result = run_whole(seeded, system, Path(out) / "run", args.threads)
                record.add_run(task.name, seed, system, result)


def show(tasks: list[Task], record: Record, seeds: list[int]) -> None:
    """The table, and which scores of ours are below theirs by more than the spread."""
    rows, behind = [], []
    for task in tasks:
        if task.name not in record.tasks:
            continue
        mine, best = (record.runs(task.name, system, seeds) for system in (OURS, BEST))
        ratios = [_ratio(record.speed(task.name), name) for name in ("default", BEST)]
        both = bool(mine and best)
        for metric in task.metrics:
            scores = [[100 * run["scores"][metric] for run in runs] for runs in (mine, best)]
            apart = statistics.fmean(scores[0]) - statistics.fmean(scores[1]) if both else None
            # One seed has no spread.
            if apart is not None and len(mine) > 1 and apart < -max(map(_spread, scores)):
                behind.append(f"{task.name} {metric}")
            first = metric == task.metrics[0]
            rows.append(
                [
                    task.name if first else "",
                    metric,
                    *(_mean(each) for each in scores),
                    "" if apart is None else f"{apart:+.2f}",
                    *(_times(value) if first else "" for value in ratios),
                ]
            )
    print()
    print_table(
        [
            "task",
            "metric",
            "ours",
            "theirs",
            "apart",
            "faster than default",
            "than best",
        ],
        rows,
    )
    print(
        "scores times 100 on the held-out file, mean and standard deviation over the seeds; "
        "faster: medians\nof turns on the same examples"
    )
    if behind:
        print(f"below theirs by more than the larger of both deviations: {', '.join(behind)}")


def _ratio(speed: dict[str, Any], name: str) -> float | None:
    if not speed.get(name):
        return None
    return statistics.median(speed[name]) / statistics.median(speed[OURS])


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _mean(values: list[float]) -> str:
    if not values:
        return ""
    deviation = f" ± {_spread(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Fine-tuning on ten tasks with bertine against transformers."
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of all tasks' folders")
    parser.add_argument("--model", type=Path, help="a model directory; default: all-MiniLM-L6-v2")
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS, "all"], default=["all"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2], help="none: only speed")
    parser.add_argument(
        "--their-seeds",
        nargs="*",
        type=int,
        help="of --seeds, those with which the other system is run too; default: all",
    )
    parser.add_argument("--epochs", type=int, help="default: by the task")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--max-length", type=int, help="default: 128, of SQuAD 384")
    parser.add_argument("--examples", type=int, help="take only so many of each file")
    parser.add_argument(
        "--rounds", type=int, default=3, help="turns in which speed is measured; 0: only scores"
    )
    parser.add_argument(
        "--speed-examples", type=int, default=512, help="of the training file, an epoch of a turn"
    )
    parser.add_argument(
        "--default-steps", type=int, default=4, help="of the slow default way, in a turn; 0: none"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="write each result to this file, and leave out what is in it",
    )
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for name in ("epochs", "max_length", "examples", "batch_size", "speed_examples", "threads"):
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.rounds < 0 or args.default_steps < 0:
        parser.error("--rounds and --default-steps must be at least 0")
    args.their_seeds = args.seeds if args.their_seeds is None else args.their_seeds
    args.tasks = list(TASKS.values() if "all" in args.tasks else map(TASKS.__getitem__, args.tasks))
    for task in args.tasks:
        for name in (task.train, task.held):
            path = args.data / task.folder / name
            if not path.is_file():
                parser.error(f"{path} is not there; name the folder of all tasks in --data")
    args.model = args.model or minilm()
    if not (args.model / "model.safetensors").is_file():
        parser.error(f"{args.model} has no model.safetensors; name a model directory in --model")
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    facts = machine(args.threads)
    print(describe_machine(facts))
    if not cpu_has_bf16():
        print("this processor has no bf16 instructions: the figures say little")
    args.weights = sha256_file(args.model / "model.safetensors")[:16]
    print(f"batch {args.batch_size}, rate {args.learning_rate:g}, model {args.model}", flush=True)
    try:
        record = Record.open(args.resume, facts)
        for task in args.tasks:
            with tempfile.TemporaryDirectory() as folder:
                measure(task, args, record, Path(folder))
    except BertineError as error:
        raise SystemExit(f"error: {error}") from None
    show(args.tasks, record, args.seeds)


if __name__ == "__main__":
    main()
