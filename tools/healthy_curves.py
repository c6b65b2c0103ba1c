"""The table and the picture of healthy pre-training runs in docs/results.md.

    python tools/healthy_curves.py NAME=RUN ... [--out docs/healthy-curves.png]

Each RUN is the folder of a ``bertine pretrain`` run with the objective mlm. Prints the table as
Markdown: the loss of training (nats, mean since the point before) and the accuracy at points of
tokens seen, the loss over the unigram entropy H in brackets.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertine.core.files import atomic_file

#: Millions of tokens.
POINTS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)


def read(run: Path) -> list[dict[str, Any]]:
    """The lines of the run's log that are about training."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if "grad_norm" in line]


def table(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Lines of Markdown."""
    names = " | ".join(runs)
    lines = [f"| million tokens | {names} |", "|---" * (len(runs) + 1) + "|"]
    before = 0.0
    for point in POINTS:
        cells = []
        for log in runs.values():
            inside = [line for line in log if before < line["tokens"] / 1e6 <= point]
            if not inside or log[-1]["tokens"] / 1e6 < 0.99 * point:
                cells.append("")
                continue
            loss = sum(line["loss"] for line in inside) / len(inside)
            accuracy = sum(line["accuracy"] for line in inside) / len(inside)
            share = loss / log[0]["unigram_entropy"]
            cells.append(f"{loss:.2f} ({share:.2f}), {accuracy:.0%}")
        lines.append(f"| {point:g} | {' | '.join(cells)} |")
        before = point
    return lines


def picture(runs: dict[str, list[dict[str, Any]]], out: Path) -> None:
    """Loss over H by tokens, all runs in one plot."""
    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, log in runs.items():
        tokens = [line["tokens"] / 1e6 for line in log]
        axes.plot(tokens, [line["loss"] / line["unigram_entropy"] for line in log], label=name)
    axes.axhline(1.0, color="0.6", linewidth=0.8)
    last = 1.2 * POINTS[-1]  # longer runs are cut, for the first stretch to be seen
    axes.annotate("unigram entropy", (last, 1.0), (0, 3), "data", "offset points", ha="right")
    axes.set(xlabel="million tokens seen", ylabel="MLM loss / unigram entropy")
    axes.set(xlim=(0.0, last), ylim=(0.6, 1.3))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with atomic_file(out) as file:
        FigureCanvasAgg(figure).print_png(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    runs = {}
    for given in args.runs:
        name, _, folder = given.partition("=")
        runs[name] = read(Path(folder))
    print("\n".join(table(runs)))
    if args.out:
        picture(runs, args.out)


if __name__ == "__main__":
    main()
