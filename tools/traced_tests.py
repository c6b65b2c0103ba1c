"""Plugin of pytest for ``plant_faults.py``: note which test is running, and run chosen tests.

Two environment variables say what to do; without them the plugin does nothing:

- ``TRACED_TESTS_REPORTS``: a file to which every report of a test is appended, as a line of JSON.
- ``TRACED_TESTS_CHOSEN``: a file with one test's id a line. Those run and no others, the files of
  tests in the order in which they are first named.

Where coverage.py measures the process (``COVERAGE_PROCESS_START``), the running test is also its
context and, by an environment variable, that of the processes which the test starts. What tests
share, fixtures of a wider scope and cached functions, runs in the first of them. It has contexts
of its own, and the reports say who uses them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import multiprocessing.process
import os
import pkgutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import coverage
import pytest

REPORTS, CHOSEN, RUNNING = (f"TRACED_TESTS_{name}" for name in ("REPORTS", "CHOSEN", "RUNNING"))

#: A change of context costs a write. A function that is cached for a hundred thousand words is
#: shared by all tests in its first results, and the test's own in the others.
_RESULTS_THAT_ARE_SHARED = 20


def context_of(name: str) -> str:
    """Return the context of a test or of something shared: 16 hexadecimal digits."""
    return hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()


def _switch(context: str) -> None:
    """Make this the context of this process and of those it starts or forks."""
    os.environ[RUNNING] = context
    # Not kept in a variable: a forked process has another one.
    if measuring := coverage.Coverage.current():
        measuring.switch_context(context)
        measuring.set_option("run:context", context)  # what a forked process begins with


def _under(context: str, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `target` in a new process under the context of the test that started it.

    A process of a fork server has the server's environment, that of another test.
    """
    _switch(context)
    return target(*args, **kwargs)


class Contexts:
    """Keeps coverage's context that of the running test, and notes who uses what is shared."""

    def __init__(self) -> None:
        self._uses: set[tuple[str, str]] = set()
        self._cache_calls(functools.lru_cache)
        start = multiprocessing.process.BaseProcess.start

        def start_under(process: Any) -> None:
            if process._target is not None:
                process._args = (os.environ.get(RUNNING, ""), process._target, *process._args)
                process._target = _under
            start(process)

        multiprocessing.process.BaseProcess.start = start_under  # type: ignore

    @contextmanager
    def _context(self, context: str) -> Iterator[None]:
        before = os.environ.get(RUNNING, "")
        _switch(context)
        try:
            yield
        finally:
            _switch(before)

    def _cache_calls(self, lru_cache: Callable[..., Any]) -> None:
        """Replace functools' caches of the tree's functions by some that note who calls them."""
        tree, process = Path.cwd(), os.getpid()

        def cache(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
            code = getattr(function, "__code__", None)
            if code is None or not Path(code.co_filename).is_relative_to(tree):
                return lru_cache(**settings)(function)
            context = context_of(f"{code.co_filename}:{code.co_firstlineno}")
            results = 0

            @functools.wraps(function)
            def compute(*args: Any, **kwargs: Any) -> Any:
                nonlocal results
                results += 1
                # What a forked process notes, nobody reads.
                if results > _RESULTS_THAT_ARE_SHARED or os.getpid() != process:
                    return function(*args, **kwargs)
                with self._context(context):
                    return function(*args, **kwargs)

            cached = lru_cache(**settings)(compute)
            kept = (*functools.WRAPPER_ASSIGNMENTS, "cache_clear", "cache_info", "cache_parameters")

            @functools.wraps(cached, assigned=kept)
            def call(*args: Any, **kwargs: Any) -> Any:
                self._uses.add((os.environ.get(RUNNING, ""), context))
                return cached(*args, **kwargs)

            return call

        def cache_up_to(maxsize: Any = 128, typed: bool = False) -> Any:
            if callable(maxsize):
                return cache(maxsize, maxsize=128)
            return functools.partial(cache, maxsize=maxsize, typed=typed)

        functools.cache = functools.partial(cache, maxsize=None)  # type: ignore[assignment]
        functools.lru_cache = cache_up_to

    def pytest_collection_finish(self) -> None:
        """Import the whole package, or what an import executes would be that of some test."""
        package = importlib.import_module("bertine")
        for module in pkgutil.walk_packages(package.__path__, "bertine."):
            if not module.name.endswith("__main__"):
                with suppress(Exception):  # what is not installed
                    importlib.import_module(module.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._uses.clear()
        context = context_of(item.nodeid)
        indices = getattr(getattr(item, "callspec", None), "indices", {})
        # Private, and the only place where pytest says which fixture a name stands for.
        for name, definitions in getattr(item, "_fixtureinfo").name2fixturedefs.items():  # noqa: B009
            for definition in definitions:
                shared = f"{definition.baseid}::{name}[{indices.get(name, 0)}]"
                self._uses.add((context, context_of(shared)))
        with self._context(context):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        index = getattr(request, "param_index", 0)
        context = context_of(f"{fixturedef.baseid}::{fixturedef.argname}[{index}]")
        self._uses.add((os.environ.get(RUNNING, ""), context))  # also by getfixturevalue()
        with self._context(context):
            value = yield
        if fixturedef.argname == "once" and fixturedef.cached_result is not None:
            value = self._noted_once(value)
            fixturedef.cached_result = (value, *fixturedef.cached_result[1:])
        return value

    def _noted_once(self, once: Any) -> Callable[[str, Callable[[Path], object]], Path]:
        """Wrap the value of the fixture ``once`` of tests/conftest.py: what it makes is shared by
        all tests that ask for it, in the other workers of pytest-xdist as well."""

        def noted(name: str, make: Callable[[Path], object]) -> Path:
            context = context_of(f"once {name}")
            self._uses.add((os.environ.get(RUNNING, ""), context))

            def make_under(folder: Path) -> None:
                with self._context(context):
                    make(folder)

            return once(name, make_under)

        return noted

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        item.user_properties[:] = [("uses", sorted(map(list, self._uses)))]


class Reports:
    """Writes a line of JSON for each report."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        uses = dict(report.user_properties).get("uses", []) if report.when == "teardown" else []
        self._write(report, "slow" in report.keywords, uses)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report, False, [])

    def _write(
        self, report: pytest.TestReport | pytest.CollectReport, slow: bool, uses: Any
    ) -> None:
        row = {
            "test": report.nodeid,
            "outcome": report.outcome,
            "seconds": getattr(report, "duration", 0.0),
            "slow": slow,
            "uses": uses,
        }
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            row["message"] = str(crash.message if crash else report.longrepr).strip()[:300]
        with self._file.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(json.dumps(row) + "\n")


class Chosen:
    """Leaves the chosen tests to be run."""

    def __init__(self, names: list[str]) -> None:
        self._names = set(names)
        self._files = {name.partition("::")[0]: rank for rank, name in enumerate(names[::-1])}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in self._names])
        kept = [item for item in items if item.nodeid in self._names]
        # Within a file as pytest has them: tests that share a fixture stand together.
        items[:] = sorted(kept, key=lambda item: -self._files[item.nodeid.partition("::")[0]])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have tests/conftest.py see no seconds: under coverage a fast test may be over its limit."""
    file = session.config.rootpath / "tests" / "conftest.py"
    conftest = session.config.pluginmanager.get_plugin(str(file))
    if REPORTS in os.environ and hasattr(conftest, "_processor_time"):
        setattr(conftest, "_processor_time", float)  # noqa: B010


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Register what the environment asks for, before a conftest.py imports what is cached."""
    plugins = early_config.pluginmanager
    if coverage.Coverage.current() is not None:
        plugins.register(Contexts())
    if REPORTS in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        plugins.register(Reports(Path(os.environ[REPORTS])))
    if CHOSEN in os.environ:
        names = Path(os.environ[CHOSEN]).read_text("utf-8", "surrogateescape").splitlines()
        plugins.register(Chosen(names))
        # Where a fault takes all memory, this process is to end and not its parent.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
