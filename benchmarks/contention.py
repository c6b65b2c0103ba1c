"""How fast work goes on beside other programs: bertine and transformers, quiet and beside programs
that keep one core busy, or two.

    python benchmarks/contention.py [WORK ...] [--busy 0 1 2] [--own-wait]

The works: ``pretrain`` (steps of bert-tiny, 64 sequences of 32 tokens), ``finetune`` (steps of
all-MiniLM-L6-v2, 32 passages), ``predict`` and ``embed`` (calls with 64 passages), ``serve`` (4
clients that ask one passage at a time) and ``cold`` (one text, from the start of the command to
its end). Each system is loaded once, while the machine is quiet, and they take turns at every
number of busy programs; the shares are what is left of the quiet speed. ``transformers`` runs as
it comes, with bf16 autocast in training. With ``--own-wait``, bertine takes
turns with itself, its threads waiting as OpenMP's library does where nothing is set, which shows
what our waiting costs on a quiet machine. A turn in which programs that do not belong to the
benchmark took more than a tenth of a core is measured again (Linux).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bertine.core.spin_count import busy_seconds

HERE = Path(__file__).resolve().parent
WORKS = ("pretrain", "finetune", "predict", "embed", "serve", "cold")
UNITS = {"pretrain": "tokens/s", "cold": "seconds"}
SYSTEMS = ("bertine", "transformers")
#: Bertine with the waiting of OpenMP's libraries, which goes for the user's wish if it is set.
OWN_WAIT = "own wait"
OWN_WAIT_SET = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}
#: Who keeps a core busy: Python in a loop.
BUSY = "while True: pass"
#: Of the server.
CLIENTS = 4
#: Cores that programs which are not ours may use during a turn.
STRANGERS = 0.1
COLD_TEXT = "Arrived late, but what a book."
#: What one does without bertine.
COLD_PIPELINE = (
    "import sys; from transformers import pipeline; "
    "print(pipeline('text-classification', model=sys.argv[1], device='cpu')(sys.argv[2]))"
)

#: Works for about so many seconds; units of work a second (of ``cold``: seconds).
Measure = Callable[[float], float]


@contextlib.contextmanager
def busy(programs: int) -> Iterator[None]:
    """So many other programs, each of which keeps a core busy."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(programs)]
    try:
        time.sleep(0.3 if programs else 0.0)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def environment(system: str = SYSTEMS[0]) -> dict[str, str]:
    """Ours finds this bertine; nobody is told how to wait or how many threads to take. Python may
    keep the compiled modules of both, as it does of programs that are installed."""
    told = {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
    told.add("PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in told}
    if system == OWN_WAIT:
        kept |= OWN_WAIT_SET
    return {**kept, "PYTHONPATH": str(HERE.parent / "src"), "TRANSFORMERS_VERBOSITY": "error"}


def strangers_seconds() -> float:
    """How long programs that are not of this benchmark have computed: what the cores have worked,
    less what this process group has (with its children that have ended). 0 where the system does
    not count."""
    everything = busy_seconds()
    if everything is None:
        return 0.0
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # After the name, which may hold anything: state, parent, group, ...; the twelfth on
            # are the ticks in user and system mode, of the process and of its ended children.
            fields = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[2]) == os.getpgrp():
                ticks += sum(map(int, fields[11:15]))
    return everything - ticks / os.sysconf("SC_CLK_TCK")


def job(*arguments: str | Path) -> list[str]:
    return [sys.executable, str(HERE / "contention_job.py"), *map(str, arguments)]


@contextlib.contextmanager
def worker(system: str, work: str, folder: Path) -> Iterator[Measure]:
    """A process that is warm and works when it is asked to."""
    process = subprocess.Popen(
        job("bertine" if system == OWN_WAIT else system, work, folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(system),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    send, receive = process.stdin, process.stdout

    def measure(seconds: float) -> float:
        send.write(f"{seconds}\n")
        send.flush()
        units, took = json.loads(receive.readline())
        return float(units / took)

    try:
        if receive.readline().strip() != "ready":
            raise SystemExit(f"{system}, {work}: did not start")
        yield measure
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def server(system: str, folder: Path) -> Iterator[Measure]:
    """A server in a process of its own, and clients in this one."""
    command = job(system, "serve", folder)
    if system != "transformers":
        model = str(folder / "model")
        command = [sys.executable, "-m", "bertine", "serve", model, "--port", "0"]
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(system))
    assert process.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", said)):
            line = process.stderr.readline()
            said += line
            if not line:
                raise SystemExit(f"{system}: the server did not start:\n{said}")
        errors = process.stderr
        threading.Thread(target=lambda: [None for _ in errors], daemon=True).start()
        port = int(found[1])
        ask(port, texts, 1.0)  # warm
        yield lambda seconds: ask(port, texts, seconds)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def ask(port: int, texts: list[str], seconds: float) -> float:
    """Answers a second to clients that each ask again as soon as they are answered."""
    answered = [0] * CLIENTS
    until = time.perf_counter() + seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        at = number * len(texts) // CLIENTS
        while time.perf_counter() < until:
            body = json.dumps({"texts": [texts[at % len(texts)]]})
            connection.request("POST", "/predict", body, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise SystemExit(f"the server answered {response.status}")
            answered[number] += 1
            at += 1
        connection.close()

    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    began = time.perf_counter()
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return sum(answered) / (time.perf_counter() - began)


@contextlib.contextmanager
def cold(system: str, folder: Path) -> Iterator[Measure]:
    """One text from the shell, from the start of the command to its end."""
    model = str(folder / "model")
    command = [sys.executable, "-c", COLD_PIPELINE, model, COLD_TEXT]
    if system != "transformers":
        command = [sys.executable, "-m", "bertine", "predict", model, COLD_TEXT]

    def measure(_: float) -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment(system))
        return time.perf_counter() - began

    measure(0.0)  # files are in the system's cache
    yield measure


def undisturbed(measure: Measure, seconds: float, again: int) -> float:
    """A turn in which nobody else computed; if there is always somebody, the last of so many that
    are measured `again`."""
    figure = 0.0
    for _ in range(again + 1):
        began, before = time.perf_counter(), strangers_seconds()
        figure = measure(seconds)
        used = (strangers_seconds() - before) / (time.perf_counter() - began)
        if used <= STRANGERS:
            return figure
    print(f"disturbed: others used {used:.1f} cores", flush=True)
    return figure


def compare(work: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The systems in turns, at every number of busy programs."""
    opened = {"serve": server, "cold": cold}.get(work)
    found: dict[str, dict[int, list[float]]] = {system: {} for system in given.systems}
    with contextlib.ExitStack() as stack:
        measures = {
            system: stack.enter_context(
                opened(system, folder) if opened else worker(system, work, folder)
            )
            for system in given.systems
        }
        for programs in given.busy:
            with busy(programs):
                for _ in range(given.rounds):
                    for system, measure in measures.items():
                        found[system].setdefault(programs, []).append(
                            undisturbed(measure, given.seconds, given.again)
                        )
    show(work, found, given.busy)
    return {"unit": UNITS.get(work, "texts/s"), **found}


def show(work: str, found: dict[str, dict[int, list[float]]], counts: list[int]) -> None:
    """A line for each number of busy programs; the last column: how many times as fast bertine is
    as transformers."""
    unit, digits = UNITS.get(work, "texts/s"), 2 if work == "cold" else 0
    for programs in counts:
        figures = {system: statistics.median(turns[programs]) for system, turns in found.items()}
        cells = []
        for system, figure in figures.items():
            quiet = statistics.median(found[system][counts[0]])
            share = quiet / figure if work == "cold" else figure / quiet
            cells.append(f"{system} {figure:10,.{digits}f} {unit} {share:5.0%}")
        ours, theirs = (figures[system] for system in SYSTEMS)
        ratio = theirs / ours if work == "cold" else ours / theirs
        print(f"{work:9} {programs} busy   {'   '.join(cells)}   {ratio:6.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("works", nargs="*", metavar="WORK", help="; ".join(WORKS))
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every figure")
    parser.add_argument(
        "--again", type=int, default=11, metavar="N", help="of a disturbed turn, at most"
    )
    parser.add_argument("--own-wait", action="store_true", help="also bertine with OpenMP's wait")
    given = parser.parse_args()
    given.systems = [*SYSTEMS, OWN_WAIT] if given.own_wait else SYSTEMS
    unknown = set(given.works) - set(WORKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose {', '.join(WORKS)}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.works != ["pretrain"]:  # which needs no model
            subprocess.run(job("prepare", folder), check=True, env=environment())
        for work in given.works or WORKS:
            result[work] = compare(work, folder, given)
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
