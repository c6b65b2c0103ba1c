"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

# Several processes of pytest share the cores (make test): one thread each, in what they start as
# well. With more, the threads of one would wait for cores that another's hold, and a step takes ten
# times as long. Said before PyTorch is imported, which reads it then.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

# A job in the background of a script begins with Ctrl-C ignored, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
