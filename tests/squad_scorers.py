"""The official SQuAD scorers, where they are at hand: ``evaluate-v1.1.py`` and
``evaluate-v2.0.py`` in the folder that SQUAD_SCORERS names, or in shared/data/squad beside the
repository."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def scorer(version: str) -> ModuleType:
    """The official script of `version`, as a module; the test is skipped where there is none."""
    folder = Path(os.environ.get("SQUAD_SCORERS", ROOT.parent / "shared" / "data" / "squad"))
    path = folder / f"evaluate-v{version}.py"
    if not path.is_file():
        pytest.skip(f"the official scorer is not at hand: {path}")
    spec = importlib.util.spec_from_file_location(f"squad_v{version.replace('.', '_')}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
