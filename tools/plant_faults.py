"""Plant faults in the package, one at a time, and see whether the tests find them.

    python tools/plant_faults.py cover --numprocesses 2 -m "not deep"    # which test executes what
    python tools/plant_faults.py plant --number 100 --jobs 2
    python tools/plant_faults.py report

``cover`` copies the tree to the work folder (``build/faults``), runs pytest there once under
coverage.py, with the arguments it is given, and keeps what each test executed, in processes that it
started as well. ``plant`` draws faults in ``src/bertine``, as many of each kind, and runs for each
the tests that execute its line, until one fails. A test that fails without the fault, too, does not
count. A run that is interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import coverage
from faults import Fault, faults_of, planted, shuffled
from traced_tests import CHOSEN, REPORTS, RUNNING, context_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/bertine"


def _refuse(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


@dataclass
class Test:
    """A test as it ran under coverage."""

    name: str
    seconds: float = 0.0
    slow: bool = False
    outcomes: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class Trace:
    """What ``cover`` has kept: the tests, and which of them execute a line."""

    def __init__(self, work: Path) -> None:
        if not (work / "lines").is_file():
            _refuse(f"{work}: no tests have been run under coverage; run `plant_faults.py cover`")
        self.tree = work / "tree"
        self.tests: dict[str, Test] = {}
        self._users: dict[str, set[str]] = defaultdict(set)
        for line in (work / "reports.jsonl").read_text().splitlines():
            row = json.loads(line)
            test = self.tests.setdefault(context_of(row["test"]), Test(row["test"]))
            test.seconds += row["seconds"]
            test.slow |= row["slow"]
            test.outcomes += (row["outcome"],)
            for user, used in row["uses"]:
                self._users[used].add(user)
        self._data = coverage.CoverageData(str(work / "lines"))
        self._data.read()

    def _tests(self, contexts: list[str]) -> list[Test]:
        """The tests that pass among these contexts, and those that use what is shared there."""
        reached: set[str] = set()
        # A forked process has two contexts with a bar between them; the second is the newer.
        ahead = [context.rpartition("|")[2] for context in contexts]
        while ahead:
            context = ahead.pop()
            if context not in reached:
                reached.add(context)
                ahead += self._users[context]
        tests = [self.tests[context] for context in reached if context in self.tests]
        return [test for test in tests if set(test.outcomes) == {"passed"}]

    def tests_of(self, fault: Fault) -> list[Test]:
        """List the tests that execute the line of a fault. Where importing the file executes it as
        well, its result is kept there, and all tests that execute a line of the file have it."""
        lines = self._data.contexts_by_lineno(str(self.tree / fault.path))
        contexts = lines.get(fault.line, [])
        if "" in contexts:
            contexts = [context for some in lines.values() for context in some]
        return self._tests(contexts)

    def faults(self) -> list[Fault]:
        """List all faults in lines that tests execute."""
        self._data.set_query_contexts(["."])  # any but that of imports
        faults = []
        for file in sorted((self.tree / PACKAGE).rglob("*.py")):
            lines = set(self._data.lines(str(file)) or ())
            path = str(file.relative_to(self.tree))
            faults += [each for each in faults_of(path, file.read_text()) if each.line in lines]
        self._data.set_query_contexts(None)
        return faults


def batches(tests: list[Test], path: str) -> list[list[Test]]:
    """Order tests so that a failure comes early: the fast tier before the slow one, the files of
    the package that has the fault before the others, quick files before long ones. The first batch
    takes a few seconds, and each further one longer, since it begins with imports."""
    ordered: list[list[Test]] = []
    for slow in (False, True):
        files: dict[str, list[Test]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: test.name):
            if test.slow is slow:
                files[test.file].append(test)
        seconds = {file: sum(test.seconds for test in some) for file, some in files.items()}
        mirror = f"tests/{path.split('/')[2]}/"
        room, limit = 0.0, 10.0
        for file in sorted(files, key=lambda file: (not file.startswith(mirror), seconds[file])):
            if room <= 0:
                ordered.append([])
                room, limit = limit, limit * 8
            ordered[-1] += files[file]
            room -= seconds[file]
    return ordered


def _environment(tree: Path, **more: Path) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    return outside | {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(Path(__file__).parent)]),
        "PYTHONDONTWRITEBYTECODE": "",
        "OMP_NUM_THREADS": "1",
        **{name: str(value) for name, value in more.items()},
    }


_PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "traced_tests"]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started and left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def cover(work: Path, arguments: list[str]) -> None:
    """Copy the tree, run its tests under coverage, and keep which lines each test executes."""
    tree, parts, reports = work / "tree", work / "parts", work / "reports.jsonl"
    for old in (tree, parts):
        shutil.rmtree(old, ignore_errors=True)
    for file in (reports, work / "lines"):
        file.unlink(missing_ok=True)
    parts.mkdir(parents=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():  # and not deleted since the last commit
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    beside = ROOT.parent / "shared"  # where tests look for large data
    if beside.is_dir() and not (work / "shared").exists():
        (work / "shared").symlink_to(beside)
    settings = work / "coverage.ini"
    settings.write_text(
        f"[run]\ncore = ctrace\nparallel = true\ndata_file = {parts}/lines\n"
        f"include = {tree / PACKAGE}/*\npatch = fork, _exit\ncontext = ${{{RUNNING}-}}\n"
    )
    environment = _environment(tree, COVERAGE_PROCESS_START=settings, **{REPORTS: reports})
    begun = time.monotonic()
    command = [*_PYTEST, *arguments]
    process = subprocess.Popen(command, cwd=tree, env=environment, start_new_session=True)
    try:
        ended = process.wait()
        with suppress(ProcessLookupError):
            for _ in range(60):  # seconds for what was started to end and write its part
                os.killpg(process.pid, 0)
                time.sleep(1)
    finally:
        _end(process)
    if ended not in (0, 1):
        _refuse(
            f"pytest ended with status {ended}; see above, and run `plant_faults.py cover` again"
        )
    print(f"{time.monotonic() - begun:.0f} s under coverage", flush=True)
    measured = coverage.Coverage(data_file=str(work / "lines"), config_file=False)
    measured.combine([str(parts)], strict=True)
    measured.save()
    tests = Trace(work).tests.values()
    failed = [test.name for test in tests if "failed" in test.outcomes]
    print(f"{len(tests):,} tests; {len(failed)} failed and will not be run", *failed, sep="\n  ")


_RUNNING_NOW: set[subprocess.Popen[bytes]] = set()
_STOPPED = threading.Event()


def _run(tree: Path, names: list[str], seconds: float, *more: str) -> tuple[int | None, Any]:
    """Run tests in `tree` up to the first failure. Return pytest's exit status, ``None`` if it was
    ended after `seconds`, and the last failure's report or ``None``."""
    if _STOPPED.is_set():
        raise InterruptedError
    chosen, reports = tree.with_suffix(".chosen"), tree.with_suffix(".reports")
    chosen.write_text("\n".join(names), "utf-8", "surrogateescape")
    reports.write_text("")
    files = dict.fromkeys(name.partition("::")[0] for name in names)
    temporary = f"--basetemp={tree.with_suffix('.tmp')}"
    command = [*_PYTEST, "-x", "-q", "--numprocesses", "0", temporary, *more, *files]
    environment = _environment(tree, **{CHOSEN: chosen, REPORTS: reports})
    with tree.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        _RUNNING_NOW.add(process)
        try:
            ended: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = None
        finally:
            _end(process)
            _RUNNING_NOW.discard(process)
    rows = [json.loads(line) for line in reports.read_text().splitlines()]
    return ended, next((row for row in rows[::-1] if row["outcome"] == "failed"), None)


def tried(fault: Fault, tree: Path, tests: list[Test], limit: float) -> dict[str, Any]:
    """Plant a fault in `tree`, run the tests, and take it out again.

    Returns:
        The fault's row of the results: ``outcome`` is ``fast`` or ``slow``, the tier that found it,
        ``survived``, or ``survived (time)`` where the tests had not ended after `limit` seconds.
    """
    file = tree / fault.path
    sound = file.read_text()
    faulty = planted(sound, fault)
    assert faulty is not None, fault

    def write(source: str) -> None:
        # Two sources of one second and one size are the same to Python.
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
        file.write_text(source)

    begun = time.monotonic()
    row = {**asdict(fault), "new": fault.new, "name": fault.name, "tests": len(tests)}
    unreliable: set[str] = set()
    for batch in batches(tests, fault.path):
        while names := [t.name for t in batch if not unreliable & {t.name, t.file}]:
            write(faulty)
            ended, failure = _run(tree, names, max(1.0, limit - (time.monotonic() - begun)))
            seconds = round(time.monotonic() - begun, 1)
            write(sound)
            if ended is None:
                return row | {"outcome": "survived (time)", "seconds": seconds}
            if ended in (0, 5):  # 5: no test is there any more
                break
            # Does it fail without the fault as well?
            test = failure["test"] if failure else names[0]
            alone = [name for name in names if name == test or name.startswith(test + "::")]
            again, _ = _run(tree, alone or names, limit, *([] if test in names else ["--co"]))
            if again == 0:
                message = failure["message"] if failure else f"pytest ended with {ended}"
                tier = "slow" if batch[0].slow else "fast"
                return row | {"outcome": tier, "seconds": seconds, "by": test, "message": message}
            unreliable.add(test)
    seconds = round(time.monotonic() - begun, 1)
    return row | {"outcome": "survived", "seconds": seconds, "unreliable": sorted(unreliable)}


def _results(work: Path) -> dict[str, dict[str, Any]]:
    """The last row of each fault that was tried."""
    file = work / "results.jsonl"
    rows = map(json.loads, file.read_text().splitlines() if file.exists() else [])
    return {row["name"]: row for row in rows}


def plant(work: Path, number: int, seed: int, jobs: int, limit: float, again: bool) -> None:
    """Try the first `number` faults of this seed that have no result yet."""
    trace, results = Trace(work), _results(work)
    faults = trace.faults()
    print(f"{len(faults):,} faults in lines that {len(trace.tests):,} tests execute")
    sound = (f for f in shuffled(faults, seed) if planted((trace.tree / f.path).read_text(), f))
    chosen = list(islice(sound, number))
    missing = [
        fault
        for fault in chosen
        if fault.name not in results
        or (again and results[fault.name]["outcome"].startswith("survived"))
    ]
    given = [(fault, trace.tests_of(fault)) for fault in missing]
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for job in range(jobs):
        copy = work / f"job{job}"
        shutil.rmtree(copy, ignore_errors=True)
        trees.put(Path(shutil.copytree(trace.tree, copy, ignore=shutil.ignore_patterns("*.pyc"))))
    writing = threading.Lock()

    def attempt(fault: Fault, tests: list[Test]) -> None:
        tree = trees.get()
        row = tried(fault, tree, tests, limit)
        trees.put(tree)
        if not _STOPPED.is_set():
            with writing, (work / "results.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(_line(row), flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for future in [pool.submit(attempt, *each) for each in given]:
                future.result()
        except BaseException:
            _STOPPED.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_RUNNING_NOW):
                _end(process)
            raise
    report(work)


def _line(row: dict[str, Any]) -> str:
    what = f"{row['path']}:{row['line']} in {row['where']}: {row['kind']}"
    by = f" by {row['by']}" if "by" in row else f", {row['tests']} tests"
    return f"{row['outcome']} ({row['seconds']} s{by}): {what}"


def report(work: Path) -> None:
    """Print which tier found how many faults of each kind, and the faults that survived."""
    rows = list(_results(work).values())
    counts = Counter((kind, row["outcome"]) for row in rows for kind in (row["kind"], "all"))
    outcomes = ("fast", "slow", "survived", "survived (time)")
    print(f"{'':20}{'planted':>9}" + "".join(f"{outcome:>17}" for outcome in outcomes))
    for kind in [*sorted({row["kind"] for row in rows}), "all"]:
        found = [counts[kind, outcome] for outcome in outcomes]
        print(f"{kind:20}{sum(found):9}" + "".join(f"{count:17}" for count in found))
    for row in rows:
        if row["outcome"].startswith("survived"):
            print(f"\n{_line(row)}\n  - {row['old'].strip()}\n  + {row['new'].strip()}")


def main() -> int:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("cover", "plant", "report"))
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "faults")
    parser.add_argument("--number", type=int, default=100, help="faults to plant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="faults that are tried at once")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one fault")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    given, rest = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ending what was started, as Ctrl-C
    if rest and given.command != "cover":
        parser.error(f"only cover hands arguments on to pytest: {' '.join(rest)}")
    work = given.work.absolute()
    if given.command == "cover":
        cover(work, rest)
    elif given.command == "plant":
        plant(work, given.number, given.seed, given.jobs, given.limit, given.again)
    else:
        report(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
