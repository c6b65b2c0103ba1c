"""A pre-training step on a GPU against the card's own rate on the same matrix products.

The step is what ``fit`` runs there: the batch sent from the host, unpadded flash attention with
dropout, compiled parts, clipping and update, nothing waited for between the steps.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from common import Timing, print_table
from shapes import SEED, Shape, config_of, make_batch, make_model

from bertine.corpora.batch import check_batch, split
from bertine.training.adamw import AdamW, row_gradients
from bertine.training.mfu import matrix_rate, share_of, step_cost
from bertine.training.parallel import wait_for
from bertine.training.step import GPU_MICRO_BATCH, accumulate, compile_parts

#: Tokens of a step.
TOKENS = 65536
LENGTHS = (128, 512)
#: Untimed steps: code is compiled, memory taken.
WARM_UP = 10
#: Timed in one go, and how often.
STEPS, ROUNDS = 20, 5


def measure(
    shape: Shape, device: torch.device, *, steps: int = STEPS, warm_up: int = WARM_UP
) -> dict[str, Any]:
    """Seconds of a step, its useful operations, and the rate of the products alone."""
    objective, batch = shape.objective, make_batch(shape)
    model = make_model(shape).to(device).train()
    if device.type == "cuda":
        compile_parts(model)
        torch.cuda.reset_peak_memory_stats(device)
    optimizer = AdamW(model)
    dtype, done = torch.bfloat16, 0

    def run(count: int) -> float:
        nonlocal done
        began = time.perf_counter()
        for _ in range(count):
            check_batch(batch, model.config)
            parts = split(batch, GPU_MICRO_BATCH)
            accumulate(model, objective, parts, dtype=dtype, seeds=[SEED, done])
            optimizer.clipped_step(1e-4, 1.0)
            optimizer.zero_grad(set_to_none=True)
            done += 1
        wait_for(device)
        return (time.perf_counter() - began) / count

    with row_gradients(model):
        run(warm_up)
        timing = Timing([run(steps) for _ in range(ROUNDS)])
    targets = objective.counts(batch)
    sequences = min(shape.batch_size, max(1, GPU_MICRO_BATCH // shape.length))
    rate = matrix_rate(
        model,
        sequences=sequences,
        length=shape.length,
        targets=share_of(targets, sequences, shape.batch_size),
        dtype=dtype,
        device=device,
    )
    operations = step_cost(model, shape.length).of(batch.attention_mask.sum(1), targets)
    return {
        "length": shape.length,
        "batch_size": shape.batch_size,
        "tokens": batch.num_tokens,
        "seconds": timing.to_dict(),
        "operations": operations,
        "matrix_rate": rate,
        "share_of_ceiling": operations / timing.median / rate,
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    }


def main(size: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure one size at each length, print, and return what goes into the JSON file."""
    device = torch.device("cuda")
    print(f"{size} on {torch.cuda.get_device_name(device)}, torch {torch.__version__}; bf16")
    found, rows = [], []
    for length in LENGTHS:
        shape = Shape(config_of(size), TOKENS // length, length, args.short)
        result = measure(shape, device, steps=args.steps or STEPS)
        found.append(result)
        median = result["seconds"]["median"]
        rows.append(
            [
                f"{result['batch_size']} x {length}",
                f"{median * 1e3:.1f}",
                f"{result['tokens'] / median:,.0f}",
                f"{result['operations'] / median / 1e12:.0f}",
                f"{result['matrix_rate'] / 1e12:.0f}",
                f"{result['share_of_ceiling']:.0%}",
                f"{(result['peak_bytes'] or 0) / 1e9:.1f}",
            ]
        )
    headers = ["step", "median ms", "tokens/s", "TFLOP/s", "products alone", "share", "peak GB"]
    print_table(headers, rows)
    return found
