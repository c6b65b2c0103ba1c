"""Record what the cases compute, or compare it with what was recorded.

    PYTHONPATH=src python tests/golden/record.py --compare
    PYTHONPATH=/another/tree/src python tests/golden/record.py --compare --only finetune-text

The package is the one that Python finds. On a machine of the description in the record, everything
must be the same bit for bit; elsewhere floats must be close. Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bertine
from golden import cases, machine
from golden.compare import differences, furthest

#: Differences of a case that are told.
_TOLD = 12


def main() -> int:
    """Run the cases; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", metavar="CASE", nargs="+", choices=list(cases.CASES), default=[])
    parser.add_argument("--compare", action="store_true", help="write nothing")
    given = parser.parse_args()
    print(f"bertine of {Path(bertine.__file__).parent}")
    names = given.only or list(cases.CASES)
    return max([_compare(name) if given.compare else _record(name) for name in names])


def _run(name: str) -> tuple[dict[str, Any] | None, float]:
    """Run a case; its record (None if it failed, which is told), and the seconds that it took."""
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


def _record(name: str) -> int:
    record, seconds = _run(name)
    if record is None:
        return 1
    cases.write(name, record)
    print(f"{name}: recorded ({seconds:.1f} s)", flush=True)
    return 0


def _compare(name: str) -> int:
    made_on, recorded = cases.recorded(name)
    exact = made_on == machine.describe()
    found, seconds = _run(name)
    if found is None:
        return 1
    listed = differences(recorded, found, exact=exact)
    verdict = f"{len(listed)} differences" if listed else "the same bits" if exact else "close"
    where = "" if exact else ", recorded on another machine"
    print(f"{name}: {verdict}{where} ({seconds:.1f} s)", flush=True)
    for each in listed[:_TOLD]:
        print(f"  {each}")
    if len(listed) > _TOLD:
        print(f"  and {len(listed) - _TOLD} more")
    for precision, worst in furthest(recorded, found).items():
        print(f"  furthest floats, {precision}: {worst}")
    return int(bool(listed))


if __name__ == "__main__":
    sys.exit(main())
