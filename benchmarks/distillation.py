"""What a student of half the layers keeps of a fine-tuned model, and how much faster it is; and
DistilBERT's losses one by one, at small scale.

    python benchmarks/distillation.py --data FOLDER --resume FILE
    python benchmarks/distillation.py --store STORE --held-out STORE --teacher MODEL --resume FILE

The first fine-tunes a model on each task and makes three students of it, of the same layers: one
that sees the labels alone, one with the teacher's answers beside them, one that knows of the
teacher nothing but a file of probabilities. Scores are those on the official held-out file; the
speeds of teacher and student are measured in turns, in the same numbers. The second distils the
same student with DistilBERT's three losses and without each of them (the paper's table 4), by its
loss on held-out text.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import describe_machine, machine, minilm, print_table
from sides.results import Results

import bertine
from bertine.core.console import quietly
from bertine.datasets.own_data import read_for
from bertine.hub.model_directory import load_config
from bertine.inference.predictor import Predictor
from bertine.models.family import config_to_huggingface
from bertine.training.distillation.student import every_other
from bertine.training.distillation.teacher_on_task import Distilled, speed_ratio
from bertine.training.pretraining.result import PretrainResult

#: Task → folder, training file, file to judge on.
TASKS = {
    "emotion": ("emotion", "train.txt", "val.txt"),
    "SST-2": ("glue/SST-2", "train.tsv", "dev.tsv"),
}
#: What is trained in a cell, in this order.
TEACHER, LABELS, BOTH, ALONE, FILE = (
    "teacher",
    "student, labels alone",
    "student, teacher and labels",
    "student, teacher alone",
    "student, file of probabilities",
)
#: DistilBERT's losses: without which one → options.
ABLATION: dict[str, dict[str, Any]] = {
    "all three": {},
    "without the soft targets": {"soft_weight": 0.0},
    "without the cosine": {"cosine_weight": 0.0},
    "without masked words": {"mlm_weight": 0.0},
    "random initial weights": {"random": True},
}


def prepared(task: str, args: argparse.Namespace, examples: int, folder: Path) -> Path:
    """Write a folder with the task's training and validation files, of at most so many examples."""
    inside, train, held = TASKS[task]
    source = args.data / inside
    lines = (source / train).read_text(encoding="utf-8").splitlines(keepends=True)
    kept = lines[: examples + 1] if examples else lines
    out = folder / f"{task}-{examples}"
    out.mkdir()
    (out / train).write_text("".join(kept), encoding="utf-8")
    shutil.copy(source / held, out / held)
    return out


def tasks(results: Results, args: argparse.Namespace, keep: Path) -> None:
    """Run what is missing of the tasks."""
    layers = args.layers or list(every_other(load_config(args.model).num_hidden_layers))
    for task in args.tasks:
        for seed in args.seeds:
            with tempfile.TemporaryDirectory() as name:
                cell(task, seed, layers, results, args, Path(name), keep)


def cell(
    task: str,
    seed: int,
    layers: list[int],
    results: Results,
    args: argparse.Namespace,
    folder: Path,
    keep: Path,
) -> None:
    """Run a task with a seed."""
    key = {"task": task, "seed": seed, "examples": args.examples}
    data = prepared(task, args, args.examples, folder)
    teacher = keep / f"{task}-{seed}-{args.examples}"
    usual: dict[str, Any] = {"seed": seed}
    if args.epochs:
        usual["epochs"] = args.epochs
    if not results.find({**key, "system": TEACHER}):
        shutil.rmtree(teacher, ignore_errors=True)
        began = time.monotonic()
        learner = bertine.finetune(
            "text", model=args.model, data=data, out=teacher, frozen=False, baselines=False, **usual
        )
        seconds = time.monotonic() - began
        note(results, {**key, "system": TEACHER}, learner.metrics["accuracy"], seconds)
    for system in args.systems:
        wanted = {**key, "system": system}
        if system == FILE:
            wanted["answered"] = args.answered
        if results.find(wanted):
            continue
        began, out = time.monotonic(), folder / system.replace(" ", "-").replace(",", "")
        texts = data
        if system == FILE:
            probabilities = folder / "probabilities.csv"
            learning: dict[str, Any] = {"probabilities": probabilities, "student": args.model}
            if args.answered:
                texts = prepared(task, args, args.answered, folder)
                learning["label_weight"] = 0.0
            train = texts / TASKS[task][1]
            bertine.predict(teacher, input=train, output=probabilities, all_probabilities=True)
        else:
            weight = {LABELS: 1.0, BOTH: args.label_weight, ALONE: 0.0}[system]
            learning = {"teacher": teacher, "label_weight": weight}
        result = bertine.distill(
            texts, layers=layers, temperature=args.temperature, out=out, **usual, **learning
        )
        assert isinstance(result, Distilled)
        speed = result.teacher.times_as_fast
        if speed is None:
            first, second = (Predictor.load(path, precision="bf16") for path in (teacher, out))
            held = read_for(first.task, data / TASKS[task][2])
            speed, _ = speed_ratio(first, second, held)
        seconds = time.monotonic() - began
        note(results, wanted, result.metrics["accuracy"], seconds, speed=speed)


def note(results: Results, key: dict[str, Any], score: float, seconds: float, **more: Any) -> None:
    results.add({**key, "score": score, "seconds": seconds, **more})
    print(f"{key}: {100 * score:.2f} in {seconds:.0f} s {more or ''}", flush=True)


def show_tasks(results: Results, args: argparse.Namespace) -> None:
    """The table of the tasks."""
    rows = []
    for task in args.tasks:
        for system in (TEACHER, *args.systems):
            found, kept, speeds = [], [], []
            for seed in args.seeds:
                key = {"task": task, "seed": seed, "examples": args.examples}
                answered = {"answered": args.answered} if system == FILE else {}
                own = results.find({**key, "system": system, **answered})
                teacher = results.find({**key, "system": TEACHER})
                if own is None or teacher is None:
                    continue
                found.append(own["score"])
                kept.append(own["score"] / teacher["score"])
                speeds += [own["speed"]] if own.get("speed") else []
            if found:
                mean = [sum(each) / len(each) if each else None for each in (found, kept, speeds)]
                rows.append(
                    [
                        task,
                        system,
                        str(len(found)),
                        f"{100 * (mean[0] or 0):.2f}",
                        f"{100 * (mean[1] or 0):.1f}%",
                        "" if mean[2] is None else f"{mean[2]:.2f}",
                    ]
                )
    print_table(["task", "system", "seeds", "accuracy", "of the teacher's", "times as fast"], rows)


def ablation(results: Results, args: argparse.Namespace) -> None:
    """Distil with all losses and without each, and print the losses on held-out text."""
    config = load_config(args.teacher)
    layers = args.layers or list(every_other(config.num_hidden_layers))
    rows = []
    for seed in args.seeds:
        for name, changes in ABLATION.items():
            key = {"ablation": name, "seed": seed, "steps": args.steps}
            if results.find(key) is None:
                options = {k: v for k, v in changes.items() if k != "random"}
                if "random" in changes:
                    options["student"] = random_config(args, len(layers))
                else:
                    options["layers"] = layers
                with tempfile.TemporaryDirectory() as folder:
                    result = bertine.distill(
                        args.store,
                        teacher=args.teacher,
                        out=Path(folder) / "run",
                        steps=args.steps,
                        max_seq_length=args.length,
                        held_out=args.held_out,
                        learning_rate=5e-4,
                        warmup_ratio=0.05,
                        seed=seed,
                        **options,
                    )
                assert isinstance(result, PretrainResult)
                results.add({**key, **result.held_out})
                print(f"{key}: {result.held_out}", flush=True)
    for name in ABLATION:
        keys = [{"ablation": name, "seed": seed, "steps": args.steps} for seed in args.seeds]
        found = [each for key in keys if (each := results.find(key))]
        if found:
            losses = [each["mlm_loss"] for each in found]
            shares = [each["mlm_accuracy"] for each in found]
            rows.append(
                [
                    name,
                    str(len(found)),
                    f"{sum(losses) / len(losses):.4f}",
                    f"{100 * sum(shares) / len(shares):.2f}%",
                ]
            )
    print_table(["losses", "seeds", "MLM loss on held-out text", "accuracy"], rows)


def random_config(args: argparse.Namespace, layers: int) -> Path:
    """A config.json of the student's sizes; one more position keeps it from beginning as layers of
    the teacher."""
    config = load_config(args.teacher)
    config = config.replace(
        num_hidden_layers=layers, max_position_embeddings=config.max_position_embeddings + 1
    )
    file = Path(tempfile.mkdtemp()) / "config.json"
    file.write_text(json.dumps(config_to_huggingface(config)), encoding="utf-8")
    return file


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What students keep, and how fast they are.")
    parser.add_argument("--data", type=Path, help="the folder of all tasks' folders")
    parser.add_argument("--model", type=Path, help="a model directory; default: all-MiniLM-L6-v2")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    systems = (LABELS, BOTH, ALONE, FILE)
    parser.add_argument("--systems", nargs="+", choices=systems, default=list(systems))
    parser.add_argument("--examples", type=int, default=0, help="training examples; 0: all")
    parser.add_argument(
        "--answered",
        type=int,
        default=0,
        metavar="N",
        help="texts in the file of probabilities, whose labels nobody sees; 0: those of --examples "
        "with their labels",
    )
    parser.add_argument("--epochs", type=int, help="default: as the number of examples asks for")
    parser.add_argument("--layers", nargs="+", type=int, help="default: every other one")
    parser.add_argument("--label-weight", type=float, default=0.5)
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--store", type=Path, help="DistilBERT's losses one by one: a token store")
    parser.add_argument("--held-out", type=Path, help="a store of other text")
    parser.add_argument("--teacher", type=Path, help="a model directory with an MLM head")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--show", action="store_true", help="print the table of what is there")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        required=True,
        help="write each result to this file, and leave out what is in it",
    )
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if (args.data is None) == (args.store is None):
        parser.error("give --data for the tasks, or --store for the losses one by one")
    if args.store is not None and None in (args.held_out, args.teacher):
        parser.error("--store needs --held-out and --teacher")
    args.model = args.model or minilm()
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    print(describe_machine(machine(args.threads)), flush=True)
    results = Results(args.resume)
    with quietly():
        if args.store is not None:
            ablation(results, args)
            return
        if not args.show:
            keep = args.resume.with_name(f"{args.resume.name}.teachers")
            tasks(results, args, keep)
    show_tasks(results, args)


if __name__ == "__main__":
    main()
