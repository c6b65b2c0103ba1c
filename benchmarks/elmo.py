"""A training step of ELMo's LSTMs: ours against PyTorch's own, in bf16 and fp32.

    python benchmarks/elmo.py --threads 2

Both directions of two layers with a projection and a skip connection, forwards and backwards, with
the state carried from window to window; by default the sizes of elmo-small and the published rows
and windows. PyTorch's has no bounds on cells and states, and does not need to compute them; ours
have, and with these weights nothing reaches them, so that both compute the same. Characters and
softmax are left out: they are the same in both. In turns.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import torch
from common import Timing, Turn, Worker, describe_machine, machine, print_table, save_json
from torch import Tensor, nn

from bertine.contrib.elmo.model import (
    DIRECTIONS,
    PRESETS,
    BidirectionalLm,
    ElmoConfig,
    LstmStates,
    ProjectedLstm,
)
from bertine.core.process import keep_freed_memory
from bertine.models.precision import cpu_has_bf16

#: Steps before the first that counts.
_WARM_UP = 2


def pytorch_lstm(layer: ProjectedLstm, config: ElmoConfig) -> nn.LSTM:
    """Return PyTorch's LSTM with the weights of ours."""
    size, cells = config.projection_size, config.lstm_size
    lstm = nn.LSTM(size, cells, proj_size=size)
    weights = {
        "weight_ih_l0": layer.weight_ih,
        "weight_hh_l0": layer.weight_hh,
        "bias_ih_l0": layer.bias,
        "bias_hh_l0": torch.zeros_like(layer.bias),
        "weight_hr_l0": layer.weight_hr,
    }
    lstm.load_state_dict({name: weight.detach() for name, weight in weights.items()})
    return lstm


class Theirs:
    """The two language models over PyTorch's LSTMs; a state is that of each layer."""

    def __init__(self, model: BidirectionalLm) -> None:
        self.layers = {
            name: nn.ModuleList(
                pytorch_lstm(layer, model.config)
                for layer in model.get_submodule(f"{name}_layers").children()
                if isinstance(layer, ProjectedLstm)
            )
            for name in DIRECTIONS
        }
        self.states: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def parameters(self) -> list[nn.Parameter]:
        """Return all weights."""
        return [each for layers in self.layers.values() for each in layers.parameters()]

    def read(self, name: str, x: Tensor) -> Tensor:
        """x fp32 [T, B, P]. Returns the output of the last layer, alike."""
        for number, layer in enumerate(self.layers[name]):
            out, (state, cells) = layer(x, self.states.get((name, number)))
            self.states[name, number] = state.detach(), cells.detach()
            x = out + x if number else out
        return x


class Ours:
    """The two language models as ELMo's training runs them."""

    def __init__(self, model: BidirectionalLm, rows: int) -> None:
        self.model = model
        self.states = {
            name: LstmStates.zero(model.config, rows, torch.device("cpu")) for name in DIRECTIONS
        }

    def parameters(self) -> list[nn.Parameter]:
        """Return all weights of the LSTMs."""
        layers = [self.model.get_submodule(f"{name}_layers") for name in DIRECTIONS]
        return [each for part in layers for each in part.parameters()]

    def read(self, name: str, x: Tensor) -> Tensor:
        """x fp32 [T, B, P]. Returns the output of the last layer, alike."""
        sizes = [x.shape[1]] * x.shape[0]
        outputs, end = self.model.read(name, x.flatten(0, 1), sizes, self.states[name])
        self.states[name] = LstmStates(end.states.detach(), end.cells.detach())
        return outputs[-1].view_as(x)


def work(turn: Turn, ours: bool, bf16: bool, args: argparse.Namespace) -> None:
    """A turn is a step."""
    if ours or args.kept:
        keep_freed_memory()  # as the training does
    torch.manual_seed(0)
    config = PRESETS[args.model]
    model = BidirectionalLm(config)
    side: Ours | Theirs = Ours(model, args.batch_size) if ours else Theirs(model)
    draw = torch.Generator().manual_seed(0)

    def step() -> dict[str, float]:
        for parameter in side.parameters():
            parameter.grad = None
        shape = (args.window, args.batch_size, config.projection_size)
        inputs = [torch.randn(shape, generator=draw).requires_grad_() for _ in DIRECTIONS]
        began = time.perf_counter()
        autocast = torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext()
        with autocast:
            found = [side.read(name, x) for name, x in zip(DIRECTIONS, inputs, strict=True)]
        loss = torch.stack([out.float().square().mean() for out in found]).mean()
        loss.backward()
        return {"seconds": time.perf_counter() - began, "loss": loss.item()}

    for _ in range(_WARM_UP):
        message = step()
    while True:
        turn.end(message)
        message = step()


def main() -> None:
    parser = argparse.ArgumentParser(description="ELMo's LSTMs in training, ours and PyTorch's.")
    parser.add_argument("--model", default="elmo-small", choices=list(PRESETS))
    parser.add_argument("--batch-size", type=int, default=128, help="rows")
    parser.add_argument("--window", type=int, default=20, help="words of a row")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--kept", action="store_true", help="let PyTorch's too keep its freed memory, as ours does"
    )
    parser.add_argument("--json", type=Path, help="write every time to this file")
    args = parser.parse_args()
    facts = machine(args.threads)
    print(describe_machine(facts), flush=True)
    ways = [(ours, bf16) for bf16 in (True, False) for ours in (True, False)]
    if not cpu_has_bf16():
        ways = ways[2:]
    names = {
        way: f"{'bertine' if way[0] else 'PyTorch'}, {'bf16' if way[1] else 'fp32'}" for way in ways
    }
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


if __name__ == "__main__":
    main()
