"""How good the rate is that `bertine lr-find` names: against the best of a grid of six rates.

    python benchmarks/lr_find.py --data FOLDER --resume FILE

Twelve pairs of a task and a model. Of each, at most `--examples` training examples (a tenth of them
held out, as `finetune` does) are fine-tuned once at each of six rates, from an eighth of the usual
rate to four times that, and once at the rate that lr-find names, unless the grid has it. Every run
is judged on at most `--test-examples` examples of the official held-out file. The best of a grid is
chosen on these same examples, which is in its favour. `--resume` keeps each result as soon as it is
there, and several processes may share one file.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import cast

import torch
from common import describe_machine, machine, minilm, print_table
from defaults import Cell
from sides.results import Results
from sides.settings import TASKS, Task

import bertine
from bertine.core.console import quietly
from bertine.core.names import TaskName
from bertine.core.scores import rate_text
from bertine.hub.model_directory import load_config
from bertine.training.defaults import rate_for

#: The grid: factors on the usual rate of a model.
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
#: Chinese tasks, whose files are renamed for the reader of folders: PAWS-X has no training file of
#: its own, so its dev file stands in for one.
CHINESE = (
    Task("SIB-200", "text", "text", "single-sib200", "train.tsv", "test.tsv", ("accuracy",)),
    Task("PAWS-X", "text", "text", "pair-pawsx", "dev_2k.tsv", "test_2k.tsv", ("accuracy",)),
    Task(
        "UNER", "tagging", "tagging", "ner-uner-gsdsimp", "train.iob2.xz", "test.iob2.xz", ("f1",)
    ),
)
#: The pairs: the tasks of each model.
PAIRS = {
    "bertine-zh": CHINESE,
    "bertine-en": tuple(TASKS[name] for name in ("emotion", "SST-2", "STS-B", "WNUT-17")),
    "MiniLM": tuple(TASKS[name] for name in ("emotion", "SST-2", "MRPC", "STS-B", "WNUT-17")),
}
#: The score of a pair at the rate of lr-find may be so much lower than the best of the grid.
NEAR = 0.01


def cell_of(task: Task, model: Path | str, args: argparse.Namespace) -> Cell:
    """Draw the examples of a pair."""
    if task not in CHINESE:
        return Cell.of(task, args.examples, args.seed, args, model)
    with tempfile.TemporaryDirectory() as folder:
        for name, file in (("train", task.train), ("dev", task.held)):
            suffix = file.partition(".")[2]
            source = args.data / "zh" / task.folder / file
            (Path(folder) / f"{name}.{suffix}").symlink_to(source.resolve())
        return Cell.of(task, args.examples, args.seed, args, model, folder=Path(folder))


def measure(name: str, cell: Cell, results: Results) -> None:
    """Run what is missing of a pair."""
    key = {**cell.key, "model": name}
    advised = results.find({**key, "system": "lr-find"})
    if advised is None:
        with tempfile.TemporaryDirectory() as folder:
            report = bertine.lr_find(
                cast("TaskName", cell.data.make_task().name),
                model=cell.model,
                data=cell.data,
                out=folder,
                seed=cell.seed,
            )
        advised = {**key, "system": "lr-find", **report.to_dict(), "rate": report.learning_rate}
        results.add(advised)
    for rate in dict.fromkeys([*grid(cell.model), advised["rate"]]):
        if not results.claim({**key, "system": rate_text(rate)}):
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = cell.run(Path(folder), learning_rate=rate, frozen=False)
        results.add({**key, "system": rate_text(rate), "rate": rate, **result})
        print(
            f"{name} on {cell.task.name} at {rate_text(rate)}: {100 * result['score']:.2f} in "
            f"{result['seconds']:.0f} s",
            flush=True,
        )


def grid(model: Path | str) -> list[float]:
    """Return the six rates of a model's grid, ascending, with two significant digits."""
    usual = rate_for(load_config(model))
    return [float(f"{usual * factor:.1e}") for factor in FACTORS]


def show(results: Results, args: argparse.Namespace) -> None:
    """Print the table, and in how many pairs the named rate is near the best."""
    rows, near = [], 0
    for name in args.models:
        rates = grid(args.models[name])
        for task in PAIRS[name]:
            key = {"task": task.name, "size": args.examples, "seed": args.seed, "model": name}
            scores: dict[float, float] = {}
            for rate in rates:
                run = results.find({**key, "system": rate_text(rate)})
                if run is not None:
                    scores[rate] = run["score"]
            advised = results.find({**key, "system": "lr-find"})
            own = advised and results.find({**key, "system": rate_text(advised["rate"])})
            if not own or len(scores) < len(rates):
                continue
            best = max(scores, key=lambda rate: scores[rate])
            gap = own["score"] - scores[best]
            near += gap >= -NEAR - 1e-9
            rows.append(
                [
                    name,
                    task.name,
                    *(f"{100 * scores[rate]:.1f}" for rate in rates),
                    rate_text(best),
                    rate_text(own["rate"]),
                    f"{100 * own['score']:.1f}",
                    f"{100 * gap:+.1f}",
                ]
            )
    columns = [f"x {factor:g}" for factor in FACTORS]
    print_table(["model", "task", *columns, "best rate", "lr-find", "score", "gap"], rows)
    print(
        "scores times 100 on held-out examples at the usual rate times a factor; MiniLM's usual "
        "rate is 2e-4, that of bertine-en and bertine-zh 5e-4"
    )
    print(f"lr-find within {100 * NEAR:g} point of the grid's best in {near} of {len(rows)} pairs")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the rate that lr-find names with the best of a grid."
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of all tasks' folders")
    parser.add_argument("--models", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--examples", type=int, default=1_000, help="for training, at most")
    parser.add_argument("--test-examples", type=int, default=2_000, help="at most")
    parser.add_argument("--seed", type=int, default=0)
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
    args.per_class = False
    args.models = {name: minilm() if name == "MiniLM" else name for name in args.models}
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    print(describe_machine(machine(args.threads)), flush=True)
    results = Results(args.resume)
    if not args.show:
        for name, model in args.models.items():
            for task in PAIRS[name]:
                with quietly():
                    measure(name, cell_of(task, model, args), results)
    show(results, args)


if __name__ == "__main__":
    main()
