"""Replaced tokens against masked tokens at equal time: loss curves and five tasks of GLUE.

    python benchmarks/electra.py --corpus FILE ... --held-out FILE --glue FOLDER --out FOLDER

One vocabulary, one store and one shape for both ways: ELECTRA's encoder with bert-mini's sizes,
trained by ``bertine pretrain --objective rtd`` and by ``--objective mlm``, each for so many minutes
of wall time, evaluations on held-out text included. Of both the encoder is then fine-tuned with the
same settings, seed by seed. What is done is kept in `--out`, and the same command goes on with what
is missing; only one training runs at a time, so that both ways have the machine to themselves.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import calibrate, describe_machine, machine, print_table

import bertine
from bertine.core.console import quietly
from bertine.core.files import read_json, write_json
from bertine.core.names import ObjectiveName
from bertine.families.electra import ElectraConfig
from bertine.models.family import config_to_huggingface
from bertine.options.pretraining import ObjectiveOptions
from bertine.reports.run_files import read_log


class GlueRun(NamedTuple):
    """How a task is fine-tuned, and the one metric that it is judged by here."""

    task: str
    metric: str
    epochs: int


TASKS = (
    GlueRun("CoLA", "matthews", 10),
    GlueRun("SST-2", "accuracy", 1),
    GlueRun("MRPC", "f1", 3),
    GlueRun("STS-B", "spearman", 10),
    GlueRun("RTE", "accuracy", 3),
)
WAYS: tuple[ObjectiveName, ...] = ("mlm", "rtd")
#: Rows of the table of losses.
_POINTS = 10


@dataclass(frozen=True)
class Bench:
    """The folder of a comparison, and what was asked for."""

    out: Path
    args: argparse.Namespace

    def settings(self) -> dict[str, Any]:
        """What decides the results; a folder holds those of one."""
        names = [
            *("minutes", "layers", "hidden_size", "embedding_size", "vocab_size", "batch_size"),
            *(
                "max_seq_length",
                "generator_size",
                "generator_layers",
                "learning_rates",
                "finetuning_rate",
            ),
            *("layer_decay", "initializer_range", "initialization", "dropout", "epochs", "threads"),
        ]
        values = {name: getattr(self.args, name) for name in names}
        paths = (*self.args.corpus, *([self.args.held_out] if self.args.held_out else []))
        return {**values, "texts": [path.name for path in paths]}

    def prepare(self) -> None:
        """Make the vocabulary, the stores and the configuration that both ways share."""
        args, file = self.args, self.out / "settings.json"
        self.out.mkdir(parents=True, exist_ok=True)
        settings = json.loads(json.dumps(self.settings()))
        if file.exists() and read_json(file) != settings:
            raise SystemExit(f"{file}: other settings; name another folder with --out")
        write_json(file, settings)
        vocabulary = self.out / "vocabulary"
        if not vocabulary.exists():
            bertine.train_vocab(args.corpus, out=vocabulary, vocab_size=args.vocab_size)
        texts = {"store": args.corpus}
        if args.held_out:
            texts["held-out"] = [args.held_out]
        for name, corpus in texts.items():
            if not (self.out / name).exists():
                bertine.prepare(corpus, tokenizer=vocabulary, out=self.out / name)
        config = ElectraConfig(
            hidden_size=args.hidden_size,
            num_hidden_layers=args.layers,
            num_attention_heads=max(1, args.hidden_size // 64),
            intermediate_size=4 * args.hidden_size,
            embedding_size=args.embedding_size,
            max_position_embeddings=max(128, args.max_seq_length),
            initializer_range=args.initializer_range,
        )
        write_json(self.out / "config.json", config_to_huggingface(config))

    def pretrain(self, way: ObjectiveName, seed: int) -> Path:
        """Train a model for the minutes, or go on with that; its run."""
        args, run = self.args, self.out / f"{way}-{seed}"
        if (run / "model").exists():
            return run
        rate = args.learning_rates[WAYS.index(way)]
        print(f"{way}, seed {seed}: machine {calibrate() / 1e9:,.0f} GFLOP/s", flush=True)
        # With another objective the size of a generator is warned of, for it does nothing.
        size, layers = ObjectiveOptions.generator_size, ObjectiveOptions.generator_layers
        if way == "rtd":
            size, layers = args.generator_size, args.generator_layers
        with quietly():
            bertine.pretrain(
                self.out / "store",
                model=self.out / "config.json",
                out=run,
                objective=way,
                hours=args.minutes / 60,
                learning_rate=rate,
                batch_size=args.batch_size,
                max_seq_length=args.max_seq_length,
                warmup_ratio=0.05,
                adam_beta2=0.98,
                dropout=args.dropout,
                seed=seed,
                resume=True,
                generator_size=size,
                generator_layers=layers,
                initialization=args.initialization,
                held_out=self.out / "held-out" if args.held_out else None,
            )
        return run

    def finetune(self, way: ObjectiveName, seed: int, task: GlueRun) -> float:
        """Fine-tune a model, or read what came of it: the score on the dev set, times 100."""
        name = f"{task.task}-{way}-{seed}"
        file = self.out / "glue" / f"{name}.json"
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            model = self.pretrain(way, seed % self.args.pretraining_seeds) / "model"
            with quietly():
                learner = bertine.finetune(
                    "glue",
                    glue_task=task.task,
                    model=model,
                    data=self.args.glue,
                    out=self.out / "glue" / name,
                    epochs=self.args.epochs or task.epochs,
                    learning_rate=self.args.finetuning_rate,
                    layer_decay=self.args.layer_decay,
                    batch_size=32,
                    max_length=128,
                    save_best=False,  # the dev set judges the runs
                    baselines=False,
                    frozen=False,
                    seed=seed,
                    resume=True,
                )
            write_json(file, {"metrics": learner.metrics})
            print(f"{name}: {task.metric} {100 * learner.metrics[task.metric]:.1f}", flush=True)
        return 100 * float(read_json(file)["metrics"][task.metric])


def curves(bench: Bench, seed: int) -> None:
    """Print the losses of both ways at the same times."""
    logs = {way: read_log(bench.out / f"{way}-{seed}" / "log.jsonl") for way in WAYS}
    rows = []
    detector = ("rtd_loss", "rtd_accuracy", "rtd_replaced", "rtd_detected")
    columns: list[tuple[ObjectiveName, str]] = [("mlm", "mlm_loss"), ("mlm", "mlm_accuracy")]
    columns += [("rtd", name) for name in ("generator_loss", *detector)]
    for point in range(1, _POINTS + 1):
        until = bench.args.minutes * 60 * point / _POINTS
        cells = [f"{until / 60:.3g}"]
        for way, name in columns:
            cells.append(_at(logs[way], name, until))
        rows.append(cells)
    text = "held-out text" if bench.args.held_out else "training text"
    print(f"\nlosses (nats) and shares on {text}, seed {seed}; {_steps(logs)}")
    headers = ["minutes", *(f"{way}: {name}" for way, name in columns)]
    print_table(headers, rows)


def _at(log: Sequence[dict[str, Any]], name: str, until: float) -> str:
    """The last value of a score by that time: on held-out text where there is any."""
    elapsed, trained, held = 0.0, None, None
    for line in log:
        elapsed = line.get("elapsed", elapsed)
        if elapsed > until:
            break
        # Of one term the log has "loss" and "accuracy".
        kind = name.partition("_")[2]
        trained = line.get(name, line.get(kind, trained))
        held = line.get(f"eval_{name}", held)
    value = trained if held is None else held
    return "-" if value is None else f"{value:.3f}"


def _steps(logs: dict[ObjectiveName, list[dict[str, Any]]]) -> str:
    """How much each way saw in the time."""
    seen = []
    for way, log in logs.items():
        last = next(line for line in reversed(log) if "tokens" in line)
        seen.append(f"{way} {last['step']:,} steps, {last['tokens'] / 1e6:.1f} M tokens")
    return "; ".join(seen)


def table(bench: Bench, seeds: Sequence[int]) -> None:
    """Fine-tune all that is missing, and print means and deviations over the seeds."""
    rows: list[list[str]] = []
    means: dict[ObjectiveName, list[list[float]]] = {way: [] for way in WAYS}
    for task in TASKS:
        cells = []
        for way in WAYS:
            scores = [bench.finetune(way, seed, task) for seed in seeds]
            means[way].append(scores)
            cells.append(_spread(scores))
        rows.append([f"{task.task}, {task.metric}", *cells])
    averages = [
        _spread([statistics.fmean(s) for s in zip(*means[way], strict=True)]) for way in WAYS
    ]
    print(f"\ndev sets, times 100; {len(seeds)} seeds, {bench.args.minutes:g} minutes each way")
    print_table(["", *WAYS], [*rows, ["average", *averages]])


def _spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--corpus", type=Path, nargs="+", required=True, help="texts to train on")
    options.add_argument("--held-out", type=Path, help="text to evaluate on along the way")
    options.add_argument(
        "--glue", type=Path, required=True, help="the folder with CoLA, SST-2, ..."
    )
    options.add_argument("--out", type=Path, required=True, help="what is kept of the runs")
    options.add_argument("--minutes", type=float, default=60.0, help="of pre-training, each way")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of fine-tuning")
    options.add_argument(
        "--pretraining-seeds", type=int, default=1, help="models a way; seeds take them in turns"
    )
    options.add_argument("--layers", type=int, default=4)
    options.add_argument("--hidden-size", type=int, default=256)
    options.add_argument("--embedding-size", type=int, default=256)
    options.add_argument("--vocab-size", type=int, default=8192)
    options.add_argument("--generator-size", type=float, default=1.0)
    options.add_argument("--generator-layers", type=float, default=0.25)
    options.add_argument("--initializer-range", type=float, default=0.02)
    options.add_argument("--initialization", default="mimetic", help="of the encoders")
    options.add_argument("--batch-size", type=int, default=64)
    options.add_argument("--max-seq-length", type=int, default=128)
    options.add_argument(
        "--learning-rates", type=float, nargs=2, default=[1e-3, 1e-3], metavar=("MLM", "RTD")
    )
    options.add_argument("--dropout", type=float, default=0.0, help="of pre-training")
    options.add_argument("--finetuning-rate", type=float, default=1.5e-4)
    options.add_argument("--layer-decay", type=float, default=1.0, help="the paper's is 0.8")
    options.add_argument("--epochs", type=int, help="of fine-tuning, in place of each task's own")
    options.add_argument("--threads", type=int, default=2)
    return options


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    bench = Bench(args.out, args)
    print(describe_machine(machine(args.threads)), flush=True)
    bench.prepare()
    for seed in range(args.pretraining_seeds):
        for way in WAYS:
            bench.pretrain(way, seed)
        curves(bench, seed)
    table(bench, args.seeds)


if __name__ == "__main__":
    main()
