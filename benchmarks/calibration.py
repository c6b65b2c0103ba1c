"""What the temperature that `bertine finetune` fits is worth on examples that it was not fitted on.

    python benchmarks/calibration.py --data FOLDER --model MODEL

Of each task so many training examples are drawn, a fifth of which is held out for validation; the
temperature is fitted on these, and both the model with it and the one without are judged on the
official held-out file. Printed are the expected calibration error (15 bins) with and without it,
that which exact probabilities would show, the loss, and how many answers are right if only the
surest half is answered; and of the sets of labels that `--coverage` gives how often the label is in
them, and their size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import describe_machine, machine, minilm, print_table
from sides.settings import TASKS, Task

import bertine
from bertine.core.console import quietly
from bertine.core.rng import generator
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_labelled
from bertine.options.data import DataConfig
from bertine.tasks.calibration import Conformal, Reliability, label_sets
from bertine.tasks.metrics import mean_log_loss

#: Training examples of each task, held-out ones among them; 0: all.
SIZES = {"emotion": 1_000, "CoLA": 0, "SST-2": 3_000}
#: Of the sets of labels.
COVERAGES = (0.8, 0.9, 0.95)
#: Share of them that is held out for validation.
_SHARE = 0.2


def drawn(task: Task, data: Path, size: int, seed: int) -> DatasetSplits:
    """Read the task, draw `size` training examples, and hold out a part of them."""
    config = DataConfig(glue_task=task.name if task.verb == "glue" else None, seed=seed)
    source = data / task.folder / ("" if task.verb == "glue" else task.train)
    labelled = read_labelled(task.verb, source, config)
    train = labelled.train
    if size:
        order = generator(seed, "examples").permutation(len(train))[:size]
        train = type(train)(
            train.source,
            train.text_columns,
            train.label_column,
            [train.items[at] for at in order.tolist()],
            class_names=train.class_names,
        )
    rest, held = train.hold_out(_SHARE, seed)
    return replace(labelled, train=rest, validation=held, others={})


def judged(task: Task, data: Path, model: Path | str, size: int, seed: int) -> dict[str, Any]:
    """Fine-tune once, and judge both models on the official file."""
    examples = drawn(task, data, size, seed)
    held = read_labelled(
        task.verb if task.verb == "glue" else "text",
        data / task.folder / ("" if task.verb == "glue" else task.held),
        DataConfig(glue_task=task.name if task.verb == "glue" else None),
    )
    test = held.validation if task.verb == "glue" else held.train
    with tempfile.TemporaryDirectory() as folder, quietly():
        run = bertine.finetune(
            "text", model=model, data=examples, out=Path(folder) / "run", seed=seed,
            baselines=False, frozen=False, save_best=False,
        )  # fmt: skip
        scores = json.loads((Path(folder) / "run/scores.json").read_text(encoding="utf-8"))
        predictor = bertine.Predictor.load(run.model, precision="bf16")
        answers, _ = predictor.run(test)
        bounds = Conformal.from_facts(predictor.training["conformal"])
    temperature = scores.get("calibration", {}).get("temperature", 1.0)
    table = np.array([list(answer.probabilities.values()) for answer in answers])
    labels = list(answers[0].probabilities)
    truth = np.array([labels.index(str(item.label)) for item in test.items])
    logits = np.log(np.maximum(table, 1e-12)) * temperature
    exp = np.exp(logits - logits.max(1, keepdims=True))
    found: dict[str, Any] = {"temperature": temperature}
    assert bounds is not None
    found["examples"] = bounds.num_examples
    for coverage in COVERAGES:
        sets = label_sets(table, bounds.bound(coverage))
        inside = [label in chosen for label, chosen in zip(truth.tolist(), sets, strict=True)]
        found[f"sets of {coverage}"] = {
            "coverage": 100 * statistics.fmean(inside),
            "labels": statistics.fmean(map(len, sets)),
            "one label": 100 * statistics.fmean(len(chosen) == 1 for chosen in sets),
            "rarest": 100 * min(np.array(inside)[truth == k].mean() for k in np.unique(truth)),
        }
    for name, chances in (("with", table), ("without", exp / exp.sum(1, keepdims=True))):
        right = chances.argmax(1) == truth
        reliability = Reliability.of(chances.max(1), right.tolist())
        half = next(share for answered, share, _ in reliability.coverage if answered >= 0.499)
        found[name] = {
            "error": 100 * reliability.error,
            "by chance": 100 * reliability.error_by_chance,
            "loss": mean_log_loss(chances[np.arange(len(truth)), truth]),
            "accuracy": 100 * float(right.mean()),
            "surest half": 100 * half,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=None, help="MiniLM where nothing is said")
    parser.add_argument("--tasks", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(describe_machine(machine(args.threads)), flush=True)
    rows, of_sets = [], []
    for name in args.tasks:
        runs = []
        for seed in range(args.seeds):
            runs.append(judged(TASKS[name], args.data, args.model or minilm(), SIZES[name], seed))
            print(f"{name}, seed {seed}: {json.dumps(runs[-1])}", flush=True)

        def spread(way: str, key: str, digits: int = 1, runs: list[Any] = runs) -> str:
            values = [run[way][key] for run in runs]
            more = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            return f"{statistics.fmean(values):.{digits}f}{more}"

        rows.append(
            [
                name,
                f"{statistics.fmean(run['temperature'] for run in runs):.2f}",
                spread("without", "error"),
                spread("with", "error"),
                spread("with", "by chance"),
                spread("without", "loss", 3),
                spread("with", "loss", 3),
                spread("with", "accuracy"),
                spread("with", "surest half"),
            ]
        )
        print(f"{name}: {rows[-1][1:]}", flush=True)
        for coverage in COVERAGES:
            way = f"sets of {coverage}"
            cells = [spread(way, key) for key in ("coverage", "one label", "rarest")]
            of_sets.append(
                [name, f"{coverage:.0%}", cells[0], spread(way, "labels", 2), *cells[1:]]
            )
            print(f"{name}: {of_sets[-1][1:]}", flush=True)
    head = ["task", "temperature", "error without", "error with", "exact", "loss without"]
    print_table([*head, "loss with", "accuracy", "of the surest half"], rows)
    print_table(
        ["task", "asked", "label in its set", "labels", "sets of one", "least covered label"],
        of_sets,
    )


if __name__ == "__main__":
    main()
