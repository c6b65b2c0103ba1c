"""A server under load, on loopback: throughput against the model without a server, latency,
errors, memory.

``bertine serve`` runs in a process of its own. Clients in a closed loop (each asks again as soon
as it is answered) ask it one text at a time, for a bounded time. Before and after, the same texts
go through the same model in this process in one call, sorted by length: the offline figure. Both
use the same number of threads; the clients and HTTP have to share the machine with the model, as
they would on a laptop. "By processor" is the same ratio in the processor time of the process, which
other work on the machine hardly moves: what the server spends on all but the model.

    python benchmarks/serve.py                        BERT-base with random weights
    python benchmarks/serve.py --size mini            a small model: mostly HTTP is measured
    python benchmarks/serve.py --model DIR            a model of your own, with a task
    python benchmarks/serve.py --soak 600             also ten minutes of load, memory by the minute
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import print_table, save_json

import bertine
from bertine.families.presets import PRESETS, preset
from bertine.hub.model_directory import save_model
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.classification import TextClassification
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

#: The sources that are measured.
_SOURCES = Path(bertine.__file__).parents[1]
#: Of the vocabulary that texts are made of.
_WORDS = 2000
#: What may be refused under overload.
ALLOWED = {200, 429, 503}


def texts_of(count: int, mean: float, longest: int, seed: int = 0) -> list[str]:
    """Texts of made-up words, one piece each; lengths in tokens ([CLS] and [SEP] among them)
    log-normal with this mean."""
    draw = np.random.default_rng(seed)
    sigma = 0.6
    sizes = draw.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    lengths = np.clip(sizes.round().astype(int), 3, longest) - 2
    return [" ".join(f"w{n}" for n in draw.integers(_WORDS, size=size)) for size in lengths]


def write_model(folder: Path, size: str) -> Path:
    """A classifier of this size with random weights, and a vocabulary of made-up words."""
    torch.manual_seed(0)
    config = preset(f"bert-{size}")
    spare = config.vocab_size - _WORDS - len(SPECIAL_TOKENS)
    words = [*SPECIAL_TOKENS, *(f"w{n}" for n in range(_WORDS)), *(f"##{n}" for n in range(spare))]
    task = TextClassification(("no", "yes"), ("text",), "label", 128)
    model = Model(config, task.heads(config))
    save_model(folder, model, Tokenizer.from_vocab(words), task=task.task_info())
    return folder


def offline(predictor: Predictor, texts: Sequence[str], seconds: float) -> tuple[float, float]:
    """Texts a second, and processor seconds a text, in calls with all of `texts`, repeated for
    about this time."""
    done, began, used = 0, time.perf_counter(), time.process_time()
    while not done or time.perf_counter() - began < seconds:
        predictor.predict(texts)
        done += len(texts)
    return done / (time.perf_counter() - began), (time.process_time() - used) / done


@contextlib.contextmanager
def server(
    model: Path, threads: int | None, options: Sequence[str], sources: Path = _SOURCES
) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its port and its process id. It is ended by SIGTERM, and
    must end well."""
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-P", "-m", "bertine", "serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                break
        else:
            raise SystemExit(f"the server did not start:\n{''.join(said)}")
        yield int(found[1]), process.pid
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        if process.returncode:
            raise SystemExit(f"the server ended with {process.returncode}:\n{errors}")
        print(output.strip())
    finally:
        process.kill()
        process.wait()


class Load:
    """What a closed loop of clients saw.

    Attributes:
        codes: answers by status; 0: the connection broke.
        seconds: latency of each answer with 200.
    """

    def __init__(self) -> None:
        self.codes: Counter[int] = Counter()
        self.seconds: list[float] = []

    async def client(self, port: int, texts: Sequence[str], first: int, until: float) -> None:
        """Ask for one text after another until the time is over; refused, wait as told, but at
        most a tenth of a second."""
        reader = writer = None
        at = first
        while time.perf_counter() < until:
            body = json.dumps({"texts": [texts[at % len(texts)]]}).encode()
            at += 1
            head = (
                "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n"
            )
            began = time.perf_counter()
            try:
                if reader is None or writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode() + body)
                status, closes = await _read_answer(reader)
            except (OSError, asyncio.IncompleteReadError):
                status, closes = 0, True
            self.codes[status] += 1
            if status == 200:
                self.seconds.append(time.perf_counter() - began)
            else:
                await asyncio.sleep(0.1)
            if closes and writer is not None:
                writer.close()
                reader = writer = None
        if writer is not None:
            writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """The status, and whether the connection ends."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = re.search(rb"content-length: (\d+)", head)
    if length is not None:
        await reader.readexactly(int(length[1]))
    return int(head.split(b" ", 2)[1]), b"connection: close" in head


async def drive(
    port: int, texts: Sequence[str], clients: int, seconds: float
) -> tuple[Load, float]:
    """`clients` in a closed loop; what they saw, and for how long."""
    load = Load()
    began = time.perf_counter()
    await asyncio.gather(
        *(
            load.client(port, texts, number * len(texts) // clients, began + seconds)
            for number in range(clients)
        )
    )
    return load, time.perf_counter() - began


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid: int) -> float:
    """That a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share)) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--size", choices=[name[5:] for name in PRESETS], default="base")
    parser.add_argument("--model", type=Path, help="a directory with a classifier")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    parser.add_argument(
        "--soak", type=float, default=0.0, metavar="S", help="of a last load, to watch the memory"
    )
    parser.add_argument("--texts", type=int, default=2000, help="different ones")
    parser.add_argument("--mean-length", type=float, default=35.0, help="in tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every figure")
    parser.add_argument("--server", nargs=argparse.REMAINDER, default=[], help="options of serve")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or write_model(Path(folder) / "model", given.size)
        predictor = Predictor.load(model, "cpu", given.precision)
        texts = texts_of(given.texts, given.mean_length, predictor.task.max_length)
        predictor.predict(texts[:64])
        result = measure(given, model, predictor, texts)
    save_json(given.json, result)
    wrong = {code for load in result["loads"] for code in load["codes"]} - ALLOWED
    if wrong:
        raise SystemExit(f"answers that should not be: {sorted(wrong)} (0: the connection broke)")


def measure(
    given: argparse.Namespace, model: Path, predictor: Predictor, texts: Sequence[str]
) -> dict[str, Any]:
    """Offline, then every load, then offline again."""
    before = offline(predictor, texts, given.seconds / 2)
    options = ["--precision", given.precision, "--max-connections", "1024", *given.server]
    loads: list[dict[str, Any]] = []
    with server(model, given.threads, options) as (port, pid):
        asyncio.run(drive(port, texts, 8, given.seconds / 4))  # warm
        for clients in given.clients:
            at_begin, used = resident(pid), processor_seconds(pid)
            load, seconds = asyncio.run(drive(port, texts, clients, given.seconds))
            loads.append(
                {
                    "clients": clients,
                    "texts_per_second": load.codes[200] / seconds,
                    "p50": percentile(load.seconds, 0.5),
                    "p99": percentile(load.seconds, 0.99),
                    "codes": dict(load.codes),
                    "processor": (processor_seconds(pid) - used) / max(1, load.codes[200]),
                    "memory": [at_begin, resident(pid)],
                }
            )
        soaked = soak(port, pid, texts, given.soak)
    after = offline(predictor, texts, given.seconds / 2)
    figure = statistics.mean([before[0], after[0]])
    used = statistics.mean([before[1], after[1]])
    name = given.model or f"bert-{given.size}, random weights"
    print(f"{name}; {len(texts)} texts, {given.threads} threads, {str(predictor.dtype)[6:]}")
    print(
        f"offline: {before[0]:.1f} texts/s before, {after[0]:.1f} after, mean {figure:.1f}; "
        f"{1000 * used:.2f} ms of processor time a text"
    )
    rows = [
        [
            str(load["clients"]),
            f"{load['texts_per_second']:.1f}",
            f"{load['texts_per_second'] / figure:.0%}",
            f"{used / load['processor']:.0%}",
            f"{1000 * load['p50']:.1f}",
            f"{1000 * load['p99']:.1f}",
            " ".join(f"{code}:{count}" for code, count in sorted(load["codes"].items())),
            " → ".join(f"{size / 1e6:,.0f}" for size in load["memory"]),
        ]
        for load in loads
    ]
    print_table(
        ["clients", "texts/s", "of offline", "by processor", "p50 ms", "p99 ms", "answers", "MB"],
        rows,
    )
    for answered, size in soaked:
        print(f"after {answered:,} more answers {size / 1e6:,.0f} MB")
    return {
        "offline": [before, after],
        "loads": loads,
        "soak": soaked,
        "load_average": os.getloadavg()[0],
    }


def soak(port: int, pid: int, texts: Sequence[str], seconds: float) -> list[tuple[int, int]]:
    """A load of 64 clients in ten parts: answers so far and bytes in memory after each. Texts of
    all lengths come together in ever new ways, so what is kept by shape shows here."""
    found: list[tuple[int, int]] = []
    answered = 0
    for part in range(10 if seconds else 0):
        shuffled = np.random.default_rng(part).permutation(texts).tolist()
        load, _ = asyncio.run(drive(port, shuffled, 64, seconds / 10))
        answered += load.codes[200]
        found.append((answered, resident(pid)))
    return found


if __name__ == "__main__":
    main()
