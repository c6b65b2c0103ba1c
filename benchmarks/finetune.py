"""Fine-tuning a text classifier with bertine against a loop over transformers.

    python benchmarks/finetune.py --data FOLDER [--epochs 3] [--examples N] [--json FILE]

Ours is ``bertine.finetune("text", ...)`` as a user calls it. Theirs is a plain loop: dynamic
padding, bf16 autocast, AdamW, clipping at 1.0, a linear schedule. Both with batches of 32, rate
5e-5, 10% warm-up, decay 0.01. The systems take turns of one epoch. Time is that of training:
loading, tokenizing and evaluating are not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import (
    RIVALS,
    RIVALS_HELP,
    Rival,
    Turn,
    Worker,
    calibrate,
    describe_machine,
    machine,
    megabytes,
    peak_memory,
    print_table,
    reset_peak_memory,
    save_json,
)
from model_folders import NAMES, SHAPES, model_folder

from bertine.core.console import console
from bertine.core.process import keep_freed_memory
from bertine.data.examples import Examples, find_splits, read_examples
from bertine.families.presets import PRESETS
from bertine.models.precision import cpu_has_bf16
from bertine.reports.run_files import read_log


@dataclasses.dataclass(frozen=True)
class Setting:
    """What both sides are told.

    Attributes:
        log_every: steps; divides an epoch, so that our log has a line at the end of each. At the
            default batch size on 16,000 examples it is the default, 10.
    """

    model: Path
    data: Path
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    log_every: int
    max_length: int = 128
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01


def read(data: Path) -> tuple[Examples, Examples]:
    """The training and the validation examples."""
    splits = find_splits(data)
    if splits.train is None or splits.validation is None:
        raise SystemExit(f"{data}: needs a training and a validation file")
    return read_examples(splits.train), read_examples(splits.validation)


def bertine_job(turn: Turn, setting: Setting, out: Path) -> None:
    """Our side. The evaluation after an epoch, which the clock does not see, ends the turn."""
    import bertine.training.finetuning.finetune as finetuning
    import bertine.training.finetuning.run as running

    console.quiet = True
    evaluate = running.evaluate_examples

    def evaluate_and_wait(*args: Any, **kwargs: Any) -> Any:
        # fit has written the epoch's last line when it asks for an evaluation.
        elapsed = [line["elapsed"] for line in read_log(out / "log.jsonl") if "elapsed" in line]
        report = evaluate(*args, **kwargs)
        accuracy = report.metrics["accuracy"]
        turn.end({"elapsed": elapsed[-1], "accuracy": accuracy, "peak": peak_memory()})
        return report

    running.evaluate_examples = evaluate_and_wait
    reset_peak_memory()
    turn.end({})
    result = finetuning.finetune(
        "text",
        model=setting.model,
        data=setting.data,
        out=out,
        epochs=setting.epochs,
        batch_size=setting.batch_size,
        max_length=setting.max_length,
        learning_rate=setting.learning_rate,
        warmup_ratio=setting.warmup_ratio,
        weight_decay=setting.weight_decay,
        precision="bf16",
        seed=setting.seed,
        save_best=False,
        baselines=False,
        frozen=False,
        log_every=setting.log_every,
    )
    turn.end({"elapsed": result.elapsed})


def transformers_job(turn: Turn, setting: Setting, rival: Rival) -> None:
    """The rival: what its documentation shows for a loop of one's own."""
    from torch.utils.data import DataLoader
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        get_linear_schedule_with_warmup,
    )
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    train, validation = read(setting.data)
    labels = sorted({str(example.label) for example in train.items})
    tokenizer: Any = AutoTokenizer.from_pretrained(setting.model)

    def encode(examples: Examples) -> list[dict[str, Any]]:
        columns = [list(column) for column in zip(*(e.texts for e in examples.items), strict=True)]
        encoded = tokenizer(*columns, truncation=True, max_length=setting.max_length)
        return [
            {name: values[i] for name, values in encoded.items()}
            | {"labels": labels.index(str(example.label))}
            for i, example in enumerate(examples.items)
        ]

    torch.manual_seed(setting.seed)
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        setting.model, num_labels=len(labels)
    )
    if rival.kept:
        keep_freed_memory()
    collate = DataCollatorWithPadding(tokenizer)
    size = setting.batch_size
    loader: Any = DataLoader(encode(train), batch_size=size, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]
    held: Any = DataLoader(encode(validation), batch_size=size, collate_fn=collate)  # type: ignore[arg-type]
    options: dict[str, Any] = {"fused": True} if rival.fused else {}
    optimizer = torch.optim.AdamW(
        model.parameters(), setting.learning_rate, weight_decay=setting.weight_decay, **options
    )
    steps = setting.epochs * len(loader)
    schedule = get_linear_schedule_with_warmup(
        optimizer, round(setting.warmup_ratio * steps), steps
    )

    def accuracy() -> float:
        model.eval()
        right = 0
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for batch in held:
                right += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
        return right / len(validation)

    reset_peak_memory()
    turn.end({})
    elapsed = 0.0
    for _ in range(setting.epochs):
        model.train()
        began = time.perf_counter()
        for batch in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=rival.bf16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        elapsed += time.perf_counter() - began
        turn.end({"elapsed": elapsed, "accuracy": accuracy(), "peak": peak_memory()})
    turn.end({"elapsed": elapsed})


@dataclasses.dataclass
class Track:
    """One system's turns: seconds of training so far, and the accuracy, after each epoch."""

    name: str
    elapsed: list[float] = dataclasses.field(default_factory=list)
    accuracy: list[float] = dataclasses.field(default_factory=list)
    rates: list[float] = dataclasses.field(default_factory=list)
    peak: int | None = None

    def epoch_seconds(self) -> list[float]:
        return [b - a for a, b in zip([0.0, *self.elapsed], self.elapsed, strict=False)]


def measure(setting: Setting, rivals: list[str], threads: int, out: Path) -> list[Track]:
    """An epoch of ours, an epoch of theirs, and so on; each epoch is printed as it ends."""
    names = ["bertine", *(f"transformers, {rival}" for rival in rivals)]
    tracks = [Track(name) for name in names]
    with contextlib.ExitStack() as stack:
        jobs: list[tuple[str, Callable[..., None], tuple[Any, ...]]] = [
            ("bertine", bertine_job, (setting, out / "bertine"))
        ]
        jobs += [(rival, transformers_job, (setting, RIVALS[rival])) for rival in rivals]
        workers = [
            stack.enter_context(Worker(name, threads, job, *args)) for name, job, args in jobs
        ]
        for epoch in range(1, setting.epochs + 1):
            for worker, track in zip(workers, tracks, strict=True):
                before = calibrate()
                message = worker.turn()
                after = calibrate()
                track.rates.append((before + after) / 2)
                track.elapsed.append(message["elapsed"])
                track.accuracy.append(message["accuracy"])
                track.peak = message["peak"]
                print(
                    f"epoch {epoch}  {track.name:26}  {track.epoch_seconds()[-1]:7.1f} s  "
                    f"accuracy {track.accuracy[-1]:.4f}  (machine: {before / 1e9:,.0f} then "
                    f"{after / 1e9:,.0f} GFLOP/s)",
                    flush=True,
                )
        for worker, track in zip(workers, tracks, strict=True):
            track.elapsed[-1] = worker.turn()["elapsed"]
    return tracks


def show(tracks: list[Track], examples: int) -> dict[str, Any]:
    """Print, and return what goes into the JSON file."""
    ours = tracks[0]
    rows, saved = [], {}
    for track in tracks:
        total = track.elapsed[-1]
        ratio = total / ours.elapsed[-1]
        each = [
            theirs / mine
            for theirs, mine in zip(track.epoch_seconds(), ours.epoch_seconds(), strict=True)
        ]
        first = track is ours
        rows.append(
            [
                track.name,
                f"{track.accuracy[-1]:.4f}",
                f"{total:.1f}",
                f"{examples * len(each) / total:,.0f}",
                megabytes(track.peak),
                f"{sum(track.rates) / len(track.rates) / 1e9:,.0f}",
                "" if first else f"{ratio:.2f}x",
                "" if first else " ".join(f"{value:.2f}" for value in each),
            ]
        )
        saved[track.name] = {**dataclasses.asdict(track), "ratio": ratio, "epoch_ratios": each}
    print()
    print_table(
        [
            "system",
            "accuracy",
            "seconds",
            "examples/s",
            "peak MB",
            "GFLOP/s",
            "ratio",
            "by epoch",
        ],
        rows,
    )
    print("GFLOP/s: the machine's rate on one bf16 product, before and after the system's turns")
    return saved


def first_examples(data: Path, count: int, out: Path) -> Path:
    """A folder with the first `count` examples of each part."""
    out.mkdir()
    for part, examples in zip(("train", "val"), read(data), strict=True):
        lines = [
            json.dumps(
                {**dict(zip(("text", "text_pair"), e.texts, strict=False)), "label": e.label}
            )
            for e in examples.items[:count]
        ]
        (out / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Fine-tuning a text classifier with bertine against transformers."
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with train.* and val.*")
    parser.add_argument(
        "--model",
        default="minilm",
        help=f"a model directory; {', '.join(SHAPES)}, or a preset with random weights: "
        f"{', '.join(PRESETS)} (default: minilm)",
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--examples", type=int, help="take only so many of each part")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--rivals", nargs="+", choices=RIVALS, default=["default"], help=RIVALS_HELP
    )
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    args = parser.parse_args()
    if args.epochs < 1 or (args.examples is not None and args.examples < 1):
        parser.error("--epochs and --examples must be at least 1")
    if not args.data.exists():
        parser.error(f"{args.data} is not there; name a folder with train and val in --data")
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    facts = machine(args.threads)
    print(describe_machine(facts))
    if not cpu_has_bf16():
        print("this processor has no bf16 instructions: the figures say little")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        data = args.data
        if args.examples:
            data = first_examples(data, args.examples, out / "data")
        train, validation = read(data)
        setting = Setting(
            model_folder(args.model, out) if args.model in NAMES else Path(args.model),
            data,
            args.epochs,
            args.batch_size,
            args.learning_rate,
            args.seed,
            math.gcd(10, -(-len(train) // args.batch_size)),
        )
        print(
            f"{len(train)} training and {len(validation)} validation examples, {args.epochs} "
            f"epochs, batch {args.batch_size}, rate {args.learning_rate:g}, model {setting.model}"
        )
        tracks = measure(setting, args.rivals, args.threads, out)
    saved = show(tracks, len(train))
    save_json(args.json, {"machine": facts, "examples": len(train), "systems": saved})


if __name__ == "__main__":
    main()
