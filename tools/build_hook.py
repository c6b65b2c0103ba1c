"""Make what a build of the package needs besides its sources: the signatures and the kernel.

    python tools/build_hook.py

``pip install`` runs it (``pyproject.toml``). Git ignores what it makes. Without a C compiler, or
on another system than Linux on x86-64, there is no kernel, and 8-bit products are PyTorch's.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

import write_signatures

FOLDER = write_signatures.SOURCE / "bertine" / "fast"
SOURCE, LIBRARY = FOLDER / "int8.c", FOLDER / "_int8.so"
#: The instructions that bertine.models.precision asks the processor for.
_INSTRUCTIONS = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "fma")


class BuildHook(BuildHookInterface[Any]):
    """Make the files before a build collects its own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        made = [write_signatures.STUB]
        write_signatures.write()
        if self.target_name == "wheel" and compile_kernel():
            made.append(LIBRARY)
            build_data["tag"] = "py3-none-linux_x86_64"
        build_data["artifacts"] += [str(file.relative_to(self.root)) for file in made]


def compile_kernel() -> bool:
    """Compile the kernel, unless it is up to date; return whether there is one."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    made_from = max(file.stat().st_mtime for file in (SOURCE, Path(__file__)))
    if LIBRARY.is_file() and LIBRARY.stat().st_mtime >= made_from:
        return True
    new = LIBRARY.with_suffix(".new")
    flags = ["-O3", "-fPIC", "-shared", "-pthread", *(f"-m{name}" for name in _INSTRUCTIONS)]
    flags.append(f"-DSOURCE={zlib.crc32(SOURCE.read_bytes())}u")
    command = [*shlex.split(os.environ.get("CC", "cc")), *flags, str(SOURCE), "-o", str(new)]
    try:
        subprocess.run([*command, "-lm"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        print(f"the kernel for 8-bit products is left out: {said.strip()}", file=sys.stderr)
        LIBRARY.unlink(missing_ok=True)
        return False
    new.replace(LIBRARY)
    return True


if __name__ == "__main__":
    write_signatures.write()
    compile_kernel()
