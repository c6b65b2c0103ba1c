"""How long PyTorch's threads wait actively for each other: set before its OpenMP library loads.

Between two operations the threads of OpenMP look for work in a loop, some milliseconds long in
GCC's library (libgomp) and 200 in LLVM's and Intel's (libomp, libiomp5). With all cores to
themselves that saves time. Where another program holds one of the cores, the threads that are
ready burn the others while they wait for the one that is not: training then falls to a quarter or
less, where it could go on at half (``benchmarks/contention.py``). A wait that is always short costs
up to a fifth of a small model's speed when the machine is quiet. So the wait of GCC's library is
shortened at run time, while other programs are there (:mod:`bertine.cores.short_waits`); LLVM's and
Intel's have no such way, and are given a short wait before they are loaded.

The libraries read their environment once, when they are loaded, so the variables are there while
PyTorch is imported and taken away again: programs that are started later are none of our business.
Sources: the manuals of libgomp (``GOMP_SPINCOUNT``) and of LLVM's OpenMP (``KMP_BLOCKTIME``).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from bertine.cores import launch
from bertine.cores.cpu_quota import allowed_cores

#: Variable → value. GCC's library is left to its own wait, which costs nothing on a quiet machine,
#: and is given a short one at run time (:mod:`bertine.cores.short_waits`). The wait of LLVM's and
#: Intel's cannot be changed later.
SHORT_WAIT = {"KMP_BLOCKTIME": "0"}

#: Variables with which a user says how to wait; where there is one, nothing is set.
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_LIBRARY", *SHORT_WAIT)

_hook: _TorchHook | None = None


def wait_shortly() -> None:
    """Have PyTorch's threads wait shortly, and no more of them than the container has cores, as
    soon as PyTorch is imported; what the user has set stays. Where PyTorch is there already, its
    library has read its settings, and nothing is done."""
    global _hook
    if _hook is None and "torch" not in sys.modules:
        _hook = _TorchHook()
        sys.meta_path.insert(0, _hook)


def wait_is_given() -> bool:
    """Tell whether the user has said how the threads are to wait."""
    return any(name in os.environ for name in _WAITING)


def settings() -> dict[str, str]:
    """Return what is added to the environment while PyTorch is imported."""
    added = {} if wait_is_given() else dict(SHORT_WAIT)
    if launch.cores() < allowed_cores() and "OMP_NUM_THREADS" not in os.environ:
        added["OMP_NUM_THREADS"] = str(launch.cores())
    return added


class _TorchHook:
    """A finder of modules that finds nothing itself, but is asked when ``torch`` is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                _set_while_loading(self, spec.loader)
                return spec
        return None


def _set_while_loading(hook: _TorchHook, loader: Any) -> None:
    """Make `loader` run PyTorch with our settings in the environment; then `hook` has done its
    work."""
    run = getattr(loader, "exec_module", None)
    if run is None:
        return

    def exec_module(module: ModuleType) -> None:
        added = settings()
        os.environ.update(added)
        try:
            run(module)
        finally:
            for name in added:
                os.environ.pop(name, None)
        sys.meta_path.remove(hook)

    loader.exec_module = exec_module
