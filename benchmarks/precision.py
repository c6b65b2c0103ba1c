"""What ``--precision auto`` and the number of threads are decided by on this machine, and whether
that was right: rates of the products of two models in fp32 and bf16, and steps of training.

    python benchmarks/precision.py [--threads N] [--sequences 32] [--works minilm bert-mini]
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/precision.py

MiniLM is fine-tuned on texts of 40 pieces (its shape, random weights), bert-mini pre-trained on
sequences of 128, both 32 a step. Rates are measured on processors without bf16 instructions too,
where ``auto`` does not look: bf16 is made of fp32 there. The precisions take turns.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import describe_machine, machine, minilm, print_table, save_json
from shapes import Shape, make_batch, make_model

from bertine.core.process import keep_freed_memory
from bertine.corpora.batch import Batch
from bertine.families.presets import preset
from bertine.hub.model_directory import load_config
from bertine.models.heads import Model
from bertine.models.matmul_timing import products_of
from bertine.models.precision import cpu_has_bf16, measured_rates, resolve_precision, using_threads
from bertine.objectives.losses import Loss
from bertine.tasks.base import Features
from bertine.tasks.classification import TextClassification
from bertine.training.computing import measured_computing, scored_words
from bertine.training.pretraining.result import seconds_per_step

WORKS = ("minilm", "bert-mini")


class Work(NamedTuple):
    """Steps of training: a model, what is minimized, and a batch that is the same at every step."""

    model: Model
    loss: Loss
    batch: Batch
    words: int


def minilm_finetuning(count: int) -> Work:
    """Classify so many texts of 40 pieces."""
    task = TextClassification(("a", "b"), ("text",), "label", 128)
    config = load_config(minilm())
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, config.vocab_size, (count, 40), generator=draw).int().numpy()
    features = [
        Features(row, (row * 0).astype("int8"), number, label=number % 2)
        for number, row in enumerate(ids)
    ]
    return Work(Model(config, task.heads(config)), task, task.collate(features, 0), 0)


def bert_mini_pretraining(count: int) -> Work:
    """Fill the masks of so many sequences of 128 tokens."""
    shape = Shape(preset("bert-mini"), count, 128, 0.1)
    batch, loss = make_batch(shape), shape.objective
    return Work(make_model(shape), loss, batch, scored_words(loss.counts(batch)))


MAKERS: dict[str, Callable[[int], Work]] = {
    "minilm": minilm_finetuning,
    "bert-mini": bert_mini_pretraining,
}


def measure(work: Work, turns: int, seconds: float) -> dict[str, Any]:
    """Measure the rates, what is chosen, and steps a second of each precision."""
    tokens = work.batch.input_ids.numel()
    chosen = measured_computing("auto", work.model, tokens=tokens, words=work.words)
    rates = measured_rates(products_of(work.model, tokens, work.words), torch.get_num_threads())
    names = {"auto": chosen.precision, "bf16": "bf16", "fp32": "fp32"}
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(turns):
        for name, precision in names.items():
            step = functools.partial(
                seconds_per_step, work.model, work.loss, lambda _: work.batch, seconds=seconds
            )
            threads = chosen.threads if name == "auto" else torch.get_num_threads()
            with using_threads(threads):
                speeds[name].append(1 / step(dtype=resolve_precision(precision)))
    return {
        "rates": rates._asdict(),
        "line": rates.line(),
        "auto": chosen.precision,
        **chosen.facts,
        "steps_per_second": {name: statistics.median(turns) for name, turns in speeds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sequences", type=int, default=32, help="in a batch")
    parser.add_argument("--turns", type=int, default=3, help="of each precision")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    facts = machine(args.threads)
    print(describe_machine(facts))
    flags = "" if cpu_has_bf16() else "no "
    print(
        f"{flags}bf16 instructions; PyTorch computes with {torch.backends.cpu.get_cpu_capability()}"
    )
    found = {
        name: measure(MAKERS[name](args.sequences), args.turns, args.seconds) for name in args.works
    }
    rows = []
    for name, result in found.items():
        rates, steps = result["rates"], result["steps_per_second"]
        rows.append(
            [
                name,
                *(f"{rates[kind] / 1e9:.0f}" for kind in ("fp32", "bf16")),
                result["auto"],
                str(result.get("threads", args.threads)),
                *(f"{steps[kind]:.2f}" for kind in ("auto", "bf16", "fp32")),
            ]
        )
        print(f"{name}: {result['line']}")
    print_table(
        ["", "fp32 GFLOP/s", "bf16", "auto is", "threads", "auto steps/s", "bf16", "fp32"], rows
    )
    save_json(args.json, {"machine": facts, "works": found})


if __name__ == "__main__":
    main()
