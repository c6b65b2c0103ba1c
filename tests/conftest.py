"""What holds for all tests: their tiers, the time a fast one may take, what is made once.

``make test`` runs the fast tier, ``make test-all`` the tests marked ``slow`` too, and
``make test-deep`` those marked ``deep``, which are for use by hand. Of a parametrized test
``@pytest.mark.fast_cases(seed=(0,))`` names the values whose cases the fast tier runs (all names of
a mark must fit; of several marks one); the other cases are slow. A fast test takes less than
LIMIT; ``@pytest.mark.takes(4)`` allows one 4 seconds, for a command from end to end.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from hub_server import Hub

# Several processes of pytest share the cores (make test): one thread each, in what they start as
# well. With more, the threads of one would wait for cores that another's hold, and a step takes ten
# times as long; two threads for matrices as small as the tests' only wait for each other, too. Said
# before PyTorch is imported, which reads it then.
os.environ["OMP_NUM_THREADS"] = "1"

# A job in the background of a script begins with Ctrl-C ignored, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# And one under nohup with SIGHUP ignored.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No test asks another machine: this process and those that it starts refuse it, whatever program
# they run, and the hubs' libraries find neither a hub, nor a cache, nor a token.
_GUARD = Path(__file__).parent / "no_network"
runpy.run_path(str(_GUARD / "sitecustomize.py"))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(_GUARD), *filter(None, [os.environ.get("PYTHONPATH")])]
)
_NOWHERE = "http://127.0.0.1:9"
for _variable in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ[_variable] = os.environ[_variable.upper()] = _NOWHERE
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost,::1"
os.environ["HF_ENDPOINT"] = os.environ["MODELSCOPE_ENDPOINT"] = _NOWHERE
_HOME = tempfile.TemporaryDirectory(prefix="bertine-tests-")
os.environ["HF_HOME"] = os.environ["MODELSCOPE_CACHE"] = os.environ["MODELSCOPE_HOME"] = _HOME.name
os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["HF_HUB_DISABLE_UPDATE_CHECK"] = "1"
for _variable in ("HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ.pop(_variable, None)

# The same examples every time, however slow the machine.
hypothesis.settings.register_profile(
    "bertine",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("bertine")

#: Seconds of processor time that a test of the fast tier may take on a quiet machine.
LIMIT = 1.0
#: Beside other programs, or with plain kernels, a test takes up to this many times as long.
_BUSY = 3.0
#: Seconds that ``_slowness`` computes on a core of the processors that LIMIT was set on.
_USUAL = 0.03
#: The plugin of ``tools/plant_faults.py``, under which everything takes longer.
_TRACER = "traced_tests"
#: A test that imports more modules than this is not held to the limit.
_IMPORTED = 20


def pytest_configure() -> None:
    """Keep pytest's handlers off Bertine's logger: they would get the lines in place of the
    terminal. It puts them on loggers that do not propagate."""
    from bertine.core.console import logger

    logger.propagate = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what is deep, and the cases that ``fast_cases`` leaves out."""
    for item in items:
        values: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
        marks = list(item.iter_markers("fast_cases"))
        fast = not marks or any(
            all(values[name] in some for name, some in mark.kwargs.items()) for mark in marks
        )
        if not fast or item.get_closest_marker("deep"):
            item.add_marker("slow")


def _processor_time() -> float:
    """Return the seconds that this process and its children have computed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _slowness() -> float:
    """Return how many times as long as usual a piece of Python takes here and now, at least 1."""
    began = time.process_time()
    sum(number * number for number in range(400_000))
    return max(1.0, (time.process_time() - began) / _USUAL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that is too slow for the fast tier and is not marked."""
    began, known = _processor_time(), len(sys.modules)
    result = yield
    spent = _processor_time() - began
    takes = item.get_closest_marker("takes")
    limit = LIMIT if takes is None else takes.args[0]
    # Importing a library takes seconds, and the first test that needs it is any.
    imports = len(sys.modules) - known > _IMPORTED
    free = (
        imports or item.get_closest_marker("slow") or item.config.pluginmanager.hasplugin(_TRACER)
    )
    if not free and spent > _BUSY * limit and spent > _BUSY * limit * _slowness():
        pytest.fail(f"{spent:.1f} s of processor time: make it cheaper, or mark it slow")
    return result


@pytest.fixture(scope="session")
def once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[Path], object]], Path]:
    """``once(name, make)``: a folder that ``make(folder)`` fills, once for all workers of
    pytest-xdist. The others wait for it; nobody may change it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, whole = base / f"once-{name}", base / f"once-{name}.made"
        with open(base / f"once-{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                folder.mkdir()
                make(folder)
                whole.touch()
        return folder

    return made


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Return a hub on loopback, which the client asks in this process and in those that it starts,
    with an empty cache in ``tmp_path / "hf"``."""
    from huggingface_hub import constants

    with Hub() as served:
        home = tmp_path / "hf"
        for name, value in served.environment(home).items():
            monkeypatch.setenv(name, value)
        for name, value in {
            "ENDPOINT": served.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": served.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr("bertine.core.published._FETCHED", {})
        yield served


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Put a recorder in the place of every verb."""
    import bertine
    from cli_calls import VERBS, Report

    calls: list[tuple[str, dict[str, Any]]] = []

    def recorder(verb: str) -> Callable[..., Report]:
        def record(**values: Any) -> Report:
            calls.append((verb, values))
            return Report()

        return record

    for verb in VERBS.values():
        monkeypatch.setitem(vars(bertine), verb, recorder(verb))
    return calls


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for the tests of pages."""
    tools = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no Chromium here")
    switches = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    switches += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with tools.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=switches)
        yield started
        started.close()
