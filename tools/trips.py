"""Count what a trip through the package takes: its files, its functions, and their calls.

    PYTHONPATH=src python tools/trips.py

Each trip is made twice, and counted the second time, when all modules are loaded.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import bertine
from bertine.cli import main as command
from bertine.datasets.readers import read_labelled
from bertine.training.finetuning import finetune as verbs
from bertine.training.finetuning import run as running

PACKAGE = str(Path(bertine.__file__).parent)
TEXT = "what a lovely evening"
#: Options of a run that trains in a moment.
QUICK: dict[str, Any] = {"baselines": False, "device": "cpu", "precision": "fp32"}

#: The calls of functions of the package while `counting` is set, by file and first line.
calls: Counter[tuple[str, int]] = Counter()
counting = threading.Event()


class FirstStep(Exception):
    """Ends a run where its first step would begin."""


def record(frame: Any, event: str, _: object) -> None:
    """Count a call, for the profiler of each thread."""
    code = frame.f_code
    if event == "call" and counting.is_set() and code.co_filename.startswith(PACKAGE):
        calls[code.co_filename, code.co_firstlineno] += 1


def counted(name: str, trip: Callable[[], object]) -> None:
    """Make a trip twice; print what the second one takes."""
    for _ in range(2):
        calls.clear()
        counting.set()
        with contextlib.suppress(FirstStep), contextlib.redirect_stdout(io.StringIO()):
            trip()
        counting.clear()
    files = len({file for file, _ in calls})
    print(f"| {name} | {files} | {len(calls)} | {calls.total():,} |", flush=True)


def ask(port: int) -> None:
    """Ask the server, once it answers, and end it."""
    body = json.dumps({"texts": [TEXT]}).encode()
    url, kind = f"http://127.0.0.1:{port}/predict", {"Content-Type": "application/json"}
    for _ in range(600):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(url, body, kind)).read()
            break
        time.sleep(0.1)
    request = urllib.request.Request(url, body, kind)
    counted("one HTTP /predict request", lambda: urllib.request.urlopen(request).read())
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Make all trips, and print a table."""
    threading.setprofile(record)
    sys.setprofile(record)
    print(f"{PACKAGE}\n\n| trip | files | functions | calls |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        folder = Path(name)
        rows = (f"a {'good' if n % 2 else 'bad'} film {n},{n % 2}" for n in range(120))
        (folder / "a.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
        given: Any = {"seed": 0} if "seed" in inspect.signature(read_labelled).parameters else {}
        data = folder / "a.csv"
        counted("csv → labelled examples", lambda: read_labelled("text", data, **given))
        begin = {**QUICK, "model": "bertine-en", "data": data, "frozen": False}
        ends = {"has model and batches": (verbs, "computing_of_run"), "begins": (running, "fit")}
        for end, place in ends.items():
            with mock.patch.object(*place, side_effect=FirstStep):
                counted(
                    f"`finetune` until it {end}",
                    lambda: bertine.finetune("text", out=tempfile.mkdtemp(dir=folder), **begin),
                )
        model = bertine.finetune("text", out=folder / "run", **{**begin, "frozen": True}).model
        predictor = bertine.Predictor.load(model, "cpu", "fp32")
        counted('`Predictor.predict("one text")`', lambda: predictor.predict(TEXT))
        words = ["predict", str(model), TEXT, "--device", "cpu", "--precision", "fp32"]
        counted('`bertine predict MODEL "text"`', lambda: command(words))
        threading.Thread(target=ask, args=(port := 18765,)).start()
        bertine.serve(model, port=port, device="cpu", precision="fp32")


if __name__ == "__main__":
    main()
