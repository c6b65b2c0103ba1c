"""Compare what users see of two versions: signatures, help texts, and messages for wrong input.

    python tools/freeze.py OLD NEW [--cases 1000]

OLD and NEW are work trees of this repository. Both run in one call on one machine. What differs is
printed as a diff: parameters and defaults of every public function and method, every
``--help-all``, and how each case of ``tests/mistakes/fuzz.py`` ends, with its error line. To see
whether results are the same, bit for bit, use ``python -m golden.record --compare``; for the speed
``benchmarks/versions.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def parameters(thing: Any) -> list[str]:
    """Return the parameters of a function, each with its kind and default."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return []
    return [
        f"{each.kind.description} {each.name}"
        + ("" if each.default is each.empty else f" = {each.default!r}")
        for each in signature.parameters.values()
    ]


def surface() -> dict[str, list[str]]:
    """Return what `bertine` of this process shows: signatures, and the help of every command."""
    import bertine
    from bertine.cli import COMMANDS, main

    seen: dict[str, list[str]] = {}
    for name in bertine.__all__:
        thing = getattr(bertine, name)
        seen[name] = parameters(thing)
        if inspect.isclass(thing):
            for method, member in inspect.getmembers(thing):
                if not method.startswith("_") and callable(member):
                    seen[f"{name}.{method}"] = parameters(member)
    for name, command in COMMANDS.items():
        for kind in ("", *getattr(command, "kinds", ())):  # earlier versions have none
            words = [*name.split(), *kind.split(), "--help-all"]
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
                main(words)
            seen[" ".join(["bertine", *words])] = printed.getvalue().splitlines()
    return seen


def recorded(tree: Path, cases: int, scratch: Path) -> dict[str, list[str]]:
    """Return the surface of a work tree, and the ends of `cases` wrong inputs."""
    env = os.environ | {
        "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'tests'}",
        "COLUMNS": "100",
    }
    here = [sys.executable, str(Path(__file__).resolve()), "--surface"]
    printed = subprocess.run(here, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    seen: dict[str, list[str]] = json.loads(printed)
    if cases:
        ends = scratch / "ends.json"
        fuzz = [sys.executable, "-m", "mistakes.fuzz", "--cases", str(cases), "--show", "0"]
        files = ["--sound", str(scratch / "sound"), "--record", str(ends)]
        subprocess.run([*fuzz, *files], env=env, cwd=tree, stdout=sys.stderr, check=False)
        for case, end in json.loads(ends.read_text(encoding="utf-8")).items():
            seen[f"case {case}"] = [str(part) for part in end]
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="*", type=Path, help="two work trees: old, new")
    parser.add_argument("--cases", type=int, default=0, help="wrong inputs to try")
    parser.add_argument("--surface", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.surface:
        json.dump(surface(), sys.stdout)
        return 0
    if len(options.trees) != 2:
        parser.error("give two work trees: the old one and the new one")
    with tempfile.TemporaryDirectory() as scratch:
        old, new = (
            recorded(tree.resolve(), options.cases, Path(scratch)) for tree in options.trees
        )
    different = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    for name in different:
        lines = difflib.unified_diff(
            old.get(name, []), new.get(name, []), f"old: {name}", f"new: {name}", lineterm="", n=0
        )
        print("\n".join(lines))
    print(f"{len(different)} of {len({**old, **new})} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
