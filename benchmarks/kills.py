"""Killed at random moments and resumed, a run ends with the bits of one never stopped.

    python benchmarks/kills.py STORE [--kills 20] [--steps 2000] [--seed 0]

Pre-trains a bert-tiny on a token store twice: once undisturbed; once killed (``SIGKILL``) again
and again at random moments of its life, start-up, writing of checkpoints and end included, and
resumed each time. Then compares weights and logs, byte for byte. Exit status 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: What a log says that no two runs share.
CLOCK = ("tokens_per_second", "elapsed")


def command(store: Path, out: Path, steps: int) -> list[str]:
    settings = "--model bert-tiny --batch-size 16 --max-seq-length 64 --learning-rate 1e-3"
    # Not measured: on a busy machine two runs may come to different choices, and other bits.
    settings += " --precision fp32"
    every = f"--steps {steps} --checkpoint-every 20 --log-every 7 --seed 1 --resume --out {out}"
    return [
        *(sys.executable, "-m", "bertine", "pretrain", str(store)),
        *(*settings.split(), *every.split()),
    ]


def run_for(arguments: list[str], seconds: float | None) -> bool:
    """Run; kill after `seconds`. Whether it came to its end."""
    quiet = subprocess.DEVNULL
    environment = {"OMP_NUM_THREADS": "1", **os.environ}  # as for the precision
    process = subprocess.Popen(arguments, stdout=quiet, stderr=quiet, env=environment)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    if process.returncode != 0:
        raise SystemExit(f"ended with status {process.returncode}: {' '.join(arguments)}")
    return True


def log(run: Path) -> list[dict[str, Any]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCK} for line in lines]


def reached(run: Path) -> str:
    found = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    return found[-1] if found else "no checkpoint"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("store", type=Path, help="what 'bertine prepare' wrote")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    folder = Path(tempfile.mkdtemp(prefix="bertine-kills-"))
    whole, run = folder / "whole", folder / "run"
    began = time.monotonic()
    run_for(command(args.store, whole, args.steps), None)
    seconds = time.monotonic() - began
    print(f"undisturbed: {args.steps} steps in {seconds:.1f} s")
    kills = lives = 0
    while kills < args.kills:
        lives += 1
        # Long enough to come some way on the average, and over the end in so many lives.
        if run_for(command(args.store, run, args.steps), draw.uniform(0.2, 0.35 * seconds)):
            print(f"life {lives}: came to its end after {kills} kills; begun anew")
            compare(whole, run)
            shutil.rmtree(run)
            continue
        kills += 1
        print(f"kill {kills}: {reached(run)}", flush=True)
    run_for(command(args.store, run, args.steps), None)
    compare(whole, run)
    print(f"{kills} kills: weights and logs are those of the undisturbed run, byte for byte")
    shutil.rmtree(folder)


def compare(whole: Path, run: Path) -> None:
    weights = [(path / "model" / "model.safetensors").read_bytes() for path in (whole, run)]
    if weights[0] != weights[1]:
        raise SystemExit(f"the weights of {run} are not those of {whole}")
    if log(whole) != log(run):
        raise SystemExit(f"the log of {run} is not that of {whole}")


if __name__ == "__main__":
    main()
