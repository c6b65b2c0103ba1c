"""A pre-training step of bertine against one of transformers.

    python benchmarks/pretrain.py [--size mini|base|all|PRESET] [--steps N] [--json FILE]
    python benchmarks/pretrain.py --device cuda [--size base] [--steps N] [--json FILE]

The step is forward, backward, clipping at 1.0, update and clearing of the gradients, in bf16 with
dropout 0.1, on the same random tokens with the same masked positions. Ours is what ``fit`` runs.
Theirs is ``BertForPreTraining``, of another family the class for masked language modelling, of
GPT-1, XLNet and BART the class for their own objective (XLNet with 15% of the tokens as targets of
its second stream), in bf16 autocast with ``torch.optim.AdamW``.

On a GPU there is no rival: our step's useful arithmetic is put against the card's own bf16 matrix
rate, at lengths 128 and 512 (:mod:`gpu`).
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import gpu
import torch
from common import (
    RIVALS,
    RIVALS_HELP,
    Rival,
    Timing,
    Turn,
    Worker,
    describe_machine,
    machine,
    megabytes,
    peak_memory,
    print_table,
    reset_peak_memory,
    save_json,
)
from shapes import SEED, SIZES, Shape, config_of, make_batch, make_model

from bertine.core.process import keep_freed_memory
from bertine.corpora.batch import Batch, check_batch, split
from bertine.families.xlnet_layers import hidden_by_order
from bertine.models.precision import cpu_has_bf16
from bertine.objectives.losses import by_sequence
from bertine.training.adamw import AdamW, row_gradients
from bertine.training.mfu import step_products, time_products
from bertine.training.step import CPU_MICRO_BATCH, accumulate

LEARNING_RATE = 1e-4
#: Untimed steps of a system before its first turn.
WARM_UP = 2


def bertine_job(turn: Turn, shape: Shape, steps: int) -> None:
    """Our side: what :func:`bertine.training.fit.fit` does at every step."""
    objective, batch = shape.objective, make_batch(shape)
    model = make_model(shape)

    def loss(dtype: torch.dtype) -> float:
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            terms = objective.terms(model, batch).values()
            return float(sum(term.total / term.count for term in terms))

    model.eval()
    first = {"fp32": loss(torch.float32), "bf16": loss(torch.bfloat16)}
    model.train()
    keep_freed_memory()
    optimizer = AdamW(model)
    done = 0

    def step() -> None:
        nonlocal done
        check_batch(batch, model.config)
        parts = split(batch, CPU_MICRO_BATCH)
        accumulate(model, objective, parts, dtype=torch.bfloat16, seeds=[SEED, done])
        optimizer.clipped_step(LEARNING_RATE, 1.0)
        optimizer.zero_grad(set_to_none=True)
        done += 1

    with row_gradients(model):
        _turns(turn, step, steps, first)


def transformers_job(turn: Turn, shape: Shape, steps: int, rival: Rival) -> None:
    """The rival, with our weights to begin with."""
    import transformers

    from bertine.models.family import config_to_huggingface, family_of

    batch, ours = make_batch(shape), make_model(shape)
    names = family_of(shape.config.model_type).names
    values = config_to_huggingface(shape.config, heads=ours.heads)
    kind: Any = getattr(transformers, values.pop("architectures")[0])
    model: Any = kind(kind.config_class(**values))
    weights = names.to_huggingface(ours.state_dict(), shape.config, bool(ours.heads))
    absent, unknown = model.load_state_dict(weights, strict=False)
    # The decoder is tied to the word embeddings, and its bias to the head's.
    copies = {copy for copy, _ in names.copies}
    assert not unknown, unknown
    assert copies.issuperset(name.removeprefix(names.prefix) for name in absent), absent
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask.long(),
        **_labels(shape, batch),
    }
    if shape.config.type_vocab_size > 1:
        inputs["token_type_ids"] = batch.token_type_ids
    if "nsp" in ours.heads:
        inputs["next_sentence_label"] = batch.targets["next_sentence_label"]

    def loss(dtype: torch.dtype) -> float:
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            return float(model(**inputs).loss)

    model.eval()
    first = {"fp32": loss(torch.float32), "bf16": loss(torch.bfloat16)}
    model.train()
    del ours, weights
    if rival.kept:
        keep_freed_memory()
    options: dict[str, Any] = {"fused": True} if rival.fused else {}
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, **options)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=rival.bf16):
            value = model(**inputs).loss
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    _turns(turn, step, steps, first)


def _labels(shape: Shape, batch: Batch) -> dict[str, torch.Tensor]:
    """Return what is predicted, as transformers takes it: [B, T] with -100 elsewhere; of XLNet the
    guessed places of each sequence, and which tokens do not see which."""
    targets, kind = batch.targets, shape.objective.name
    if kind == "denoising":
        return {"labels": targets["target_ids"].masked_fill(~targets["target_mask"], -100)}
    if kind == "clm":
        return {"labels": batch.input_ids.masked_fill(~batch.attention_mask, -100)}
    labels = torch.full_like(batch.input_ids, -100)
    if kind != "plm":
        labels.view(-1)[targets["mlm_positions"]] = targets["mlm_labels"]
        return {"labels": labels}
    order, positions = targets["guessing_order"], targets["plm_positions"]
    places, slots = by_sequence(positions, *order.shape)
    mapping = torch.nn.functional.one_hot(places, order.shape[1]).float()
    labels = torch.full(places.shape, -100)
    labels.view(-1)[slots] = targets["plm_labels"]
    return {
        "perm_mask": hidden_by_order(order).float(),
        "target_mapping": mapping,
        "labels": labels,
    }


def _turns(turn: Turn, step: Any, steps: int, first: dict[str, float]) -> None:
    reset_peak_memory()
    for _ in range(WARM_UP):
        step()
    turn.end({"loss": first})
    while True:
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
        turn.end({"seconds": seconds, "peak": peak_memory()})


def measure(shape: Shape, args: argparse.Namespace) -> dict[str, Any]:
    """Ours against each rival in turn, in rounds."""
    batch = make_batch(shape)
    targets = shape.objective.counts(batch)
    products = step_products(make_model(shape), shape.batch_size, shape.length, targets)
    operations = sum(p.operations for p in products)
    ceilings = [time_products(products)]
    # Small models: several steps a turn, so that few begin with another's data in the cache.
    per_turn = 3 if shape.config.hidden_size < 512 else 1
    steps = args.steps or (18 if shape.config.hidden_size < 512 else 6)
    rounds = -(-steps // per_turn)
    pairs: dict[str, dict[str, Any]] = {}
    with Worker("bertine", args.threads, bertine_job, shape, per_turn) as us:
        for rival in args.rivals:
            job_args = (shape, per_turn, RIVALS[rival])
            with Worker(rival, args.threads, transformers_job, *job_args) as they:
                ours: list[float] = []
                theirs: list[float] = []
                for _ in range(rounds):
                    mine, other = us.turn(), they.turn()
                    ours += mine["seconds"]
                    theirs += other["seconds"]
                pairs[rival] = {
                    "bertine": Timing(ours),
                    "transformers": Timing(theirs),
                    "peaks": (mine["peak"], other["peak"]),
                    "losses": (us.prepared["loss"], they.prepared["loss"]),
                }
            ceilings.append(time_products(products))
    return {
        "pairs": pairs,
        "tokens": batch.num_tokens,
        "targets": sum(targets.values()) if len(targets) == 1 else targets["mlm"],
        "operations": operations,
        "ceilings": ceilings,
    }


def show(size: str, shape: Shape, result: dict[str, Any]) -> dict[str, Any]:
    """Print, and return what goes into the JSON file."""
    tokens, pairs = result["tokens"], result["pairs"]
    print(
        f"\n{size}: {shape.batch_size} x {shape.length}, {tokens:,} real tokens, "
        f"{result['targets']} predicted; bf16, dropout {shape.config.hidden_dropout_prob:g}"
    )
    rows, saved = [], {}
    for rival, pair in pairs.items():
        ours, theirs = pair["bertine"], pair["transformers"]
        ratios = {"median": theirs.median / ours.median, "min": theirs.best / ours.best}
        for name, timing, peak, ratio in (
            ("bertine", ours, pair["peaks"][0], ("", "")),
            (
                f"transformers, {rival}",
                theirs,
                pair["peaks"][1],
                (f"{ratios['median']:.2f}x", f"{ratios['min']:.2f}x"),
            ),
        ):
            rows.append(
                [
                    name,
                    f"{timing.best * 1e3:.1f}",
                    f"{timing.median * 1e3:.1f}",
                    f"{timing.spread:.0%}",
                    f"{tokens / timing.median:,.0f}",
                    megabytes(peak),
                    *ratio,
                ]
            )
        saved[rival] = {
            "bertine": ours.to_dict(),
            "transformers": theirs.to_dict(),
            "ratio": ratios,
            "peak_bytes": pair["peaks"],
        }
    print_table(
        [
            "system",
            "min ms",
            "median ms",
            "spread",
            "tokens/s",
            "peak MB",
            "ratio (median)",
            "(min)",
        ],
        rows,
    )
    # Each product at its best moment: what the machine can do, not what it was left to do.
    ceiling = sum(map(min, zip(*result["ceilings"], strict=True)))
    each, operations = [sum(times) for times in result["ceilings"]], result["operations"]
    median = Timing([s for pair in pairs.values() for s in pair["bertine"].seconds]).median
    print(
        f"ceiling: a step's {operations / 1e9:,.0f} GFLOP of matrix products alone take "
        f"{ceiling * 1e3:.1f} ms ({operations / ceiling / 1e9:,.0f} GFLOP/s; between the pairs "
        f"{min(each) * 1e3:.1f} to {max(each) * 1e3:.1f} ms); bertine's step gets "
        f"{operations / median / 1e9:,.0f} GFLOP/s, {ceiling / median:.0%} of that"
    )
    losses = next(iter(pairs.values()))["losses"]
    for kind in ("fp32", "bf16"):
        ours, theirs = losses[0][kind], losses[1][kind]
        print(
            f"first loss, same weights, no dropout, {kind}: bertine {ours:.6f}, "
            f"transformers {theirs:.6f}, apart by {abs(ours - theirs):.1e}"
        )
    return {
        "shape": dataclasses.asdict(shape),
        "tokens": tokens,
        "pairs": saved,
        "operations": operations,
        "ceiling_seconds": {"best": ceiling, "between_pairs": each},
        "share_of_ceiling": ceiling / median,
        "first_losses": {"bertine": losses[0], "transformers": losses[1]},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="A pre-training step of bertine against one of transformers."
    )
    parser.add_argument(
        "--size",
        choices=[*SIZES, "all"],
        metavar="NAME",
        default="all",
        help=f"a preset: {', '.join(SIZES)} (default: mini and base)",
    )
    parser.add_argument(
        "--steps", type=int, help="timed, of each system and pair (default 18; from bert-small 6)"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument(
        "--short", type=float, default=0.0, help="share of shorter sequences (default 0)"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--rivals", nargs="+", choices=RIVALS, default=["default", "fused+kept"], help=RIVALS_HELP
    )
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    args = parser.parse_args()
    if (args.steps is not None and args.steps < 1) or args.batch_size < 1 or args.length < 8:
        parser.error("--steps and --batch-size must be at least 1, --length at least 8")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this machine has no GPU that PyTorch can use")
    if not 0 <= args.short <= 1:
        parser.error("--short must be between 0 and 1")
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    if args.device == "cuda":
        sizes = ["base"] if args.size == "all" else [args.size]
        save_json(args.json, {size: gpu.main(size, args) for size in sizes})
        return
    facts = machine(args.threads)
    print(describe_machine(facts))
    if not cpu_has_bf16():
        print("this processor has no bf16 instructions: the figures say little")
    saved: dict[str, Any] = {"machine": facts, "sizes": {}}
    for size in ["mini", "base"] if args.size == "all" else [args.size]:
        shape = Shape(config_of(size), args.batch_size, args.length, args.short)
        saved["sizes"][size] = show(size, shape, measure(shape, args))
    save_json(args.json, saved)


if __name__ == "__main__":
    main()
