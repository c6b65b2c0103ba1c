"""Record what the cases compute, compare it with what was recorded, or compare two trees.

    PYTHONPATH=src python tests/golden/record.py --compare
    PYTHONPATH=src python tests/golden/record.py --compare /another/tree --only finetune-text

The package is the one that Python finds. Compared with the records, floats must be close; with
another tree, whose package computes the same cases on this machine, everything must be the same bit
for bit. Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bertine
from golden import cases
from golden.compare import differences, furthest

#: Differences of a case that are printed.
_SHOWN = 12


def main() -> int:
    """Run the cases; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", metavar="CASE", nargs="+", choices=list(cases.CASES), default=[])
    parser.add_argument(
        "--compare", metavar="TREE", type=Path, nargs="?", const=cases.RECORDS,
        help="write nothing: compare with the records, or bit for bit with another work tree",
    )  # fmt: skip
    parser.add_argument(
        "--whole", metavar="FOLDER", type=Path, help="write records here, with their bits"
    )
    given = parser.parse_args()
    print(f"bertine of {Path(bertine.__file__).parent}", flush=True)
    names = given.only or list(cases.CASES)
    if given.compare == cases.RECORDS:
        return max([_compare(name, cases.recorded(name), exact=False) for name in names])
    if given.compare:
        return _compare_trees(given.compare, names)
    return max([_record(name, given.whole) for name in names])


def _compare_trees(tree: Path, names: list[str]) -> int:
    if not (tree / "tests" / "golden" / "record.py").is_file():
        sys.exit(f"{tree}: is no work tree of this repository")
    with tempfile.TemporaryDirectory() as folder:
        # Its own cases, which know where its modules are.
        record = tree.resolve() / "tests" / "golden" / "record.py"
        command = [sys.executable, str(record), "--whole", folder, "--only", *names]
        path = {"PYTHONPATH": str(tree.resolve() / "src")}
        if subprocess.run(command, env=os.environ | path, check=False).returncode:
            return 1
        print(f"bertine of {Path(bertine.__file__).parent}", flush=True)
        other = {name: json.loads((Path(folder) / f"{name}.json").read_text()) for name in names}
    return max([_compare(name, other[name], exact=True) for name in names])


def _run(name: str) -> tuple[dict[str, Any] | None, float]:
    """Run a case; its record (None if it failed, which is printed), and its seconds."""
    began, said = time.monotonic(), io.StringIO()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            return cases.run(name, Path(folder)), time.monotonic() - began
    except Exception:
        print(f"{name}: failed\n{said.getvalue()}{traceback.format_exc()}", flush=True)
        return None, time.monotonic() - began


def _record(name: str, whole: Path | None) -> int:
    record, seconds = _run(name)
    if record is None:
        return 1
    if whole:
        (whole / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    else:
        cases.write(name, record)
    print(f"{name}: recorded ({seconds:.1f} s)", flush=True)
    return 0


def _compare(name: str, recorded: dict[str, Any], *, exact: bool) -> int:
    found, seconds = _run(name)
    if found is None:
        return 1
    listed = differences(recorded, found, exact=exact)
    verdict = f"{len(listed)} differences" if listed else "the same bits" if exact else "close"
    print(f"{name}: {verdict} ({seconds:.1f} s)", flush=True)
    for each in listed[:_SHOWN]:
        print(f"  {each}")
    if len(listed) > _SHOWN:
        print(f"  and {len(listed) - _SHOWN} more")
    for precision, worst in furthest(recorded, found).items():
        print(f"  furthest floats, {precision}: {worst}")
    return int(bool(listed))


if __name__ == "__main__":
    sys.exit(main())
