"""Loading a model directory imports nothing that costs seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import toys


@pytest.mark.slow
def test_no_compiler_is_imported_to_make_empty_weights(tmp_path: Path) -> None:
    folder = toys.write_classifier(tmp_path / "model")
    code = f"""
import sys
from bertine.hub.model_directory import load_model
load_model({str(folder)!r})
print(*{{name for name in sys.modules if name in ("torch._dynamo", "sympy", "torch._inductor")}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
