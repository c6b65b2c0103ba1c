"""Damage thousands of files, give them to the command line, and report what ends badly.

    PYTHONPATH=src:tests python -m mistakes.fuzz --cases 20000 --seed 0

Every case is a function of the seed and its number: `--only 123` runs one case again and says what
was done, `--keep FOLDER` leaves its files there. A case ends badly by an exception (a traceback for
the user), an exit status but 0 and 2, an error that is not one line, control characters in what is
printed, a signal, more seconds or more memory than are allowed, or a leftover. Commands run within
worker processes, many in each, that are limited in address space and watched from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import json
import os
import queue
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from mistakes.mutations import mutate_file
from mistakes.targets import TARGETS, Target, make_sound_files

#: Seconds of computing that a case may take; the slowest sound one takes 10, with its imports.
MAX_SECONDS = 60.0
#: Seconds by the clock: the machine may do other work, but nothing may be waited for without end.
MAX_WAIT = 300.0
#: What a case may add to the most memory that a worker has had.
MAX_MEMORY = 300 * 2**20
#: Address space of a worker: what asks for more gets a MemoryError.
ADDRESS_SPACE = 8 * 2**30
#: Cases of a worker, after which a fresh one begins.
CASES_OF_A_WORKER = 2000

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def prepare_case(
    seed: int, number: int, home: Path, case: Path, targets: Sequence[Target] = TARGETS
) -> tuple[list[str], Path]:
    """Make the files of a case in the folder `case`; its command and what is damaged."""
    draw = Random(f"{seed}-{number}")
    targets = [target for target in targets if (home / target.folder).is_dir()]
    target = draw.choices(targets, [each.weight for each in targets])[0]
    shutil.copytree(home / target.folder, case, copy_function=os.link)
    (case / "sound").symlink_to(home)
    files = sorted(
        path for pattern in target.files for path in case.glob(pattern) if path.is_file()
    )
    damaged = draw.choice(files)
    if damaged.name == "vocab.txt":
        damaged.with_name("tokenizer.json").unlink(missing_ok=True)
    command = draw.choice(target.commands)(case, damaged)
    # Some are written to: not through the link.
    for path in case.glob("*.json*"):
        raw = path.read_bytes()
        path.unlink()
        path.write_bytes(raw)
    mutate_file(draw, damaged)
    return [str(word) for word in command], damaged


def _targets(folder: str) -> list[Target]:
    """The targets of a sound folder; of all of them for ""."""
    return [target for target in TARGETS if folder in ("", target.folder)]


class _Terminal(io.TextIOWrapper):
    """Standard output that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def run_case(command: list[str], terminal: bool = True) -> tuple[str | None, str]:
    """Run a command in this process: what was bad, and what it printed to stderr. On a `terminal`
    results have no control characters; else they are exact."""
    from bertine.cli import main

    out = (_Terminal if terminal else io.TextIOWrapper)(io.BytesIO(), "utf-8")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bad = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: object = main(command)
            out.flush()
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if "/bertine/" in frame.filename]
            place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
            bad = f"{type(error).__name__} at {place}: {str(error)[:150]}"
            traceback.print_exception(error, file=err)
            status = None
    err.flush()
    said = err.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    printed = out.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    errors = [line for line in said.splitlines() if line.startswith("bertine: error:")]
    if bad is None:
        if status not in (0, 2):
            bad = f"exit status {status}"
        elif status == 2 and (len(errors) != 1 or said.splitlines()[-1] != errors[0]):
            bad = "the error is not one line, the last"
        elif errors and len(errors[0]) > 6000:
            bad = "the error is too long"
        elif _CONTROL.search(said) or (terminal and _CONTROL.search(printed)):
            bad = "control characters are printed"
        elif errors and "not enough memory" in errors[0]:
            bad = f"memory: {errors[0][:200]}"
        elif more > MAX_MEMORY:
            bad = f"took {more / 2**20:.0f} MiB"
    return bad, said


def work(
    home: Path, seed: int, first: int, step: int, cases: int, scratch: Path, folder: str
) -> None:
    """The life of a worker: every `step`-th case from `first` on; a line of JSON for each."""
    tell = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import torch

    torch.set_num_threads(1)
    for number in range(first, min(cases, first + step * CASES_OF_A_WORKER), step):
        case = scratch / f"case-{number}"
        told: dict[str, Any] = {"case": number, "command": ["?"], "damaged": "?"}
        print(json.dumps({**told, "begins": True}), file=tell, flush=True)
        command, damaged = prepare_case(seed, number, home, case, _targets(folder))
        told |= {"command": command, "damaged": str(damaged)}
        print(json.dumps({**told, "begins": True}), file=tell, flush=True)
        trace = open(scratch / f"trace-{number}", "w")  # noqa: SIM115
        faulthandler.dump_traceback_later(MAX_SECONDS - 5, file=trace)
        started = time.monotonic()
        bad, said = run_case(command, terminal=number % 2 == 0)
        faulthandler.cancel_dump_traceback_later()
        trace.close()
        os.unlink(trace.name)
        if bad is None and (left := [path.name for path in case.rglob(".*.tmp-*")]):
            bad = f"leaves {left}"
        shutil.rmtree(case, ignore_errors=True)
        end = {
            "bad": bad,
            "said": said[-3000:] if bad else "",
            "seconds": time.monotonic() - started,
        }
        end["refused"] = "bertine: error:" in said
        errors = [line for line in said.splitlines() if line.startswith("bertine: error:")]
        end["error"] = " ".join(errors).replace(str(case), "CASE").replace(str(home), "SOUND")
        print(json.dumps({**told, **end}), file=tell, flush=True)


class Watched:
    """One worker at a time for every `step`-th case, begun again where one is lost."""

    def __init__(self, options: argparse.Namespace, home: Path, scratch: Path, number: int) -> None:
        self._options, self._home, self._scratch = options, home, scratch
        self._number = number

    def results(self, found: queue.SimpleQueue[dict[str, Any] | None]) -> None:
        """Put what becomes of each case into `found`; None at the end."""
        options, next_case = self._options, self._options.first + self._number
        while next_case < options.cases:
            arguments = [self._home, options.seed, next_case, options.workers, options.cases]
            worker = subprocess.Popen(
                [sys.executable, "-m", "mistakes.fuzz", "--worker"]
                + [str(each) for each in (*arguments, self._scratch, options.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            errors: list[str] = []
            threading.Thread(target=_read_errors, args=(worker, errors), daemon=True).start()
            lines: queue.SimpleQueue[str] = queue.SimpleQueue()
            threading.Thread(target=_read_lines, args=(worker, lines), daemon=True).start()
            begun: dict[str, Any] | None = None
            since, computed = time.monotonic(), 0.0
            while True:
                try:
                    line = lines.get(timeout=5.0)
                    since, computed = time.monotonic(), _cpu_seconds(worker.pid)
                except queue.Empty:
                    waits = time.monotonic() - since
                    if waits < MAX_WAIT and _cpu_seconds(worker.pid) - computed < MAX_SECONDS:
                        continue
                    worker.kill()
                    worker.wait()
                    assert begun is not None, "a worker does not begin"
                    trace = self._scratch / f"trace-{begun['case']}"
                    begun["said"] = trace.read_text() if trace.exists() else ""
                    found.put({**begun, "bad": "hangs", "seconds": MAX_SECONDS, "refused": False})
                    break
                if not line:
                    worker.wait()
                    if begun is not None:
                        bad = f"the process ends with {worker.returncode}"
                        said = "".join(errors)
                        found.put(
                            {**begun, "bad": bad, "said": said, "seconds": 0, "refused": False}
                        )
                    break
                told = json.loads(line)
                next_case = told["case"] + options.workers
                begun = told if "begins" in told else None
                if begun is None:
                    found.put(told)
        found.put(None)


def _read_lines(worker: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        lines.put(line)
    lines.put("")


def _read_errors(worker: subprocess.Popen[str], errors: list[str]) -> None:
    """Keep the end of what a worker says: of use if it ends before its time."""
    assert worker.stderr is not None
    for line in worker.stderr:
        errors.append(line)
        del errors[:-20]


def _cpu_seconds(pid: int) -> float:
    """What a process has computed so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _kind(bad: str) -> str:
    """Bad ends that are likely one mistake of ours."""
    return re.sub(r"\d{3,}|/\S+|'[^']*'", "…", bad)[:120]


def fuzz(options: argparse.Namespace, home: Path, scratch: Path) -> int:
    """Run all cases and print what was found; the number of those that ended badly."""
    found: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    started = time.monotonic()
    for number in range(options.workers):
        watched = Watched(options, home, scratch, number)
        threading.Thread(target=watched.results, args=(found,), daemon=True).start()
    kinds: Counter[str] = Counter()
    commands: Counter[str] = Counter()
    recorded: dict[int, list[str | None]] = {}
    refused, slowest, running = 0, (0.0, -1), options.workers
    while running:
        told = found.get()
        if told is None:
            running -= 1
            continue
        commands[told["command"][0]] += 1
        recorded[told["case"]] = [told["command"][0], told["bad"], told.get("error", "")]
        refused += told["refused"]
        slowest = max(slowest, (told["seconds"], told["case"]))
        if told["bad"]:
            kind = _kind(told["bad"])
            kinds[kind] += 1
            if kinds[kind] <= options.show:
                print(f"\ncase {told['case']}: {told['bad']}")
                print(f"  {shlex.join(told['command'])}\n  damaged: {told['damaged']}")
                print("  " + "\n  ".join(told["said"].splitlines()[-8:]), flush=True)
        done = commands.total()
        if done % 500 == 0:
            rate = done / (time.monotonic() - started)
            print(f"{done} cases, {kinds.total()} bad, {rate:.1f}/s", flush=True)
    if options.record:
        text = json.dumps(dict(sorted(recorded.items())), indent=0, ensure_ascii=False)
        options.record.write_text(text, encoding="utf-8")
    seconds = time.monotonic() - started
    print(f"\n{commands.total()} cases (seed {options.seed}) in {seconds:.0f} s: {dict(commands)}")
    print(
        f"refused in one line: {refused}; the slowest took {slowest[0]:.1f} s (case {slowest[1]})"
    )
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"the most memory of a worker: {children / 1024:.0f} MiB")
    print(f"ended badly: {kinds.total()}")
    for kind, count in kinds.most_common():
        print(f"  {count} × {kind}")
    return kinds.total()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000, help="the last case, not included")
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", type=int, default=2, help="cases that are printed of each kind")
    parser.add_argument("--only", type=int, help="run this case alone, in this process")
    parser.add_argument("--keep", type=Path, help="with --only: leave its files in this folder")
    parser.add_argument("--sound", type=Path, help="keep the sound files here, or take them")
    parser.add_argument("--record", type=Path, help="write the end of every case to this file")
    parser.add_argument("--folder", default="", help="damage only files of this sound folder")
    parser.add_argument("--worker", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        home, *numbers, scratch, chosen = options.worker
        work(Path(home), *map(int, numbers), Path(scratch), chosen)
        return 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        scratch = Path(folder)
        home = (options.sound or scratch / "sound").absolute()
        if not (home / "whole").exists():
            home.mkdir(parents=True)
            with contextlib.redirect_stderr(io.StringIO()):
                make_sound_files(home)
            (home / "whole").touch()
        if options.only is None:
            return 1 if fuzz(options, home, scratch) else 0
        case = options.keep or scratch / "case"
        targets = _targets(options.folder)
        command, damaged = prepare_case(options.seed, options.only, home, case, targets)
        print(f"{shlex.join(command)}\ndamaged: {damaged}")
        bad, said = run_case(command, terminal=options.only % 2 == 0)
        print(said, f"\n{'bad: ' + bad if bad else 'ended well'}")
        return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
