"""A training step of a BiLSTM tagger's layers: ours against PyTorch's own, in bf16 and fp32.

    python benchmarks/lstm.py --threads 2

Two layers of 768 units a direction, as in the paper's section 5.3, over sentences of 5 to 30
words, others at each step. Both compute with the same weights, forwards and backwards, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import Timing, Turn, Worker, describe_machine, machine, print_table, save_json
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from bertine.models.precision import cpu_has_bf16
from bertine.models.recurrent import run_lstm

#: Steps before the first that counts.
_WARM_UP = 2


def work(turn: Turn, ours: bool, bf16: bool, args: argparse.Namespace) -> None:
    """A turn is a step."""
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    lstm = nn.LSTM(args.inputs, args.units, 2, batch_first=True, bidirectional=True)
    compute: Callable[[PackedSequence], PackedSequence] = (
        (lambda packed: run_lstm(lstm, packed)) if ours else (lambda packed: lstm(packed)[0])
    )

    def step() -> dict[str, float]:
        lstm.zero_grad(set_to_none=True)
        lengths = torch.randint(5, 31, (args.batch_size,), generator=draw)
        x = torch.randn(args.batch_size, int(lengths.max()), args.inputs, generator=draw)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        began = time.perf_counter()
        autocast = torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext()
        with autocast:
            found = compute(packed).data.float()
        loss = found.square().mean()
        loss.backward()
        return {"seconds": time.perf_counter() - began, "loss": loss.item()}

    for _ in range(_WARM_UP):
        message = step()
    while True:
        turn.end(message)
        message = step()


def main() -> None:
    parser = argparse.ArgumentParser(description="A BiLSTM's training step, ours and PyTorch's.")
    parser.add_argument("--batch-size", type=int, default=32, help="sentences")
    parser.add_argument("--inputs", type=int, default=384, help="numbers of a word")
    parser.add_argument("--units", type=int, default=768, help="of a direction")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write every time to this file")
    args = parser.parse_args()
    facts = machine(args.threads)
    print(describe_machine(facts), flush=True)
    ways = [(ours, bf16) for bf16 in (True, False) for ours in (True, False)]
    if not cpu_has_bf16():
        ways = ways[2:]
    names = {way: f"{'bertine' if way[0] else 'PyTorch'}, {_type(way[1])}" for way in ways}
    seconds: dict[str, list[float]] = {name: [] for name in names.values()}
    losses: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(name, args.threads, work, *way, args))
            for way, name in names.items()
        ]
        for _ in range(args.steps):
            for worker in workers:
                message = worker.turn()
                seconds[worker.name].append(message["seconds"])
                losses[worker.name] = message["loss"]
    rows = []
    times = {name: Timing(each) for name, each in seconds.items()}
    for name, timing in times.items():
        mine = times[name.replace("PyTorch", "bertine")]
        ratio = "" if timing is mine else f"{timing.median / mine.median:.2f}x"
        shown = (f"{1e3 * each:.0f} ms" for each in (timing.best, timing.median))
        rows.append([name, *shown, f"{timing.spread:.0%}", f"{losses[name]:.6f}", ratio])
    print_table(["system", "fastest", "median", "spread", "loss", "theirs / ours"], rows)
    told = {name: timing.to_dict() for name, timing in times.items()}
    save_json(args.json, {"machine": facts, "systems": told, "losses": losses})


def _type(bf16: bool) -> str:
    return "bf16" if bf16 else "fp32"


if __name__ == "__main__":
    main()
