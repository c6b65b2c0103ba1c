"""``tools/plant_faults.py`` plants faults of one line, and knows which tests have to see them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = '''\
"""What 1 < 2 has here is no fault."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    WIDTH = 3 + 4
LIMIT = 10 - 1


def weight(rows: Literal[1, 2], size: int = 3) -> float:
    """Return 1 + 1, if rows < 2."""
    share: Literal[7] = rows[1:size]
    if size > 5:
        raise ValueError(f"{size + 1} is more than {5 - 0}", 6)
    warn("one of" + str(size - 8), True)
    total = compute(share, size, scale=0.5, flush=True)
    return -total if not size and total else total * size


class Rows:
    width = 4 + 5

    def __repr__(self):
        return str(9 + 9)

    def tell(self):
        while self.width in (1, 2):
            self.step(
                size=len("ä") + 3,
            )
        return [row for row in self if row]
'''


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")


@pytest.fixture
def faults(tools: None) -> ModuleType:
    return importlib.import_module("faults")


def test_the_faults_of_a_source(faults: ModuleType) -> None:
    """Each kind, and none in documentation, types, messages or what is executed on import."""
    listed = faults.faults_of("src/bertine/rows.py", SOURCE)
    changes: dict[str, set[tuple[str, str]]] = {}
    for fault in listed:
        change = fault.old.strip(), fault.new.strip()
        changes.setdefault(fault.kind, set()).add(change)
    share, condition = "share: Literal[7] = rows[1:size]", "if size > 5:"
    compute = "total = compute(share, size, scale=0.5, flush=True)"
    result = "return -total if not size and total else total * size"
    loop, step = "while self.width in (1, 2):", 'size=len("ä") + 3,'
    kept = "return [row for row in self if row]"
    assert changes == {
        "off by one": {
            (share, "share: Literal[7] = rows[0:size]"),
            (share, "share: Literal[7] = rows[2:size]"),
            (share, "share: Literal[7] = rows[1:size + 1]"),
            (share, "share: Literal[7] = rows[1:size - 1]"),
            (condition, "if size > 4:"),
            (condition, "if size > 6:"),
            (loop, "while self.width in (0, 2):"),
            (loop, "while self.width in (2, 2):"),
            (loop, "while self.width in (1, 1):"),
            (loop, "while self.width in (1, 3):"),
            (step, 'size=len("ä") + 2,'),
            (step, 'size=len("ä") + 4,'),
        },
        "comparison turned": {
            (condition, "if size >= 5:"),
            (loop, "while self.width not in (1, 2):"),
        },
        "condition removed": {
            (condition, "if True:"),
            (condition, "if False:"),
            (result, "return -total if True else total * size"),
            (result, "return -total if False else total * size"),
            (result, "return -total if size and total else total * size"),
            (result, "return -total if not size or total else total * size"),
            (loop, "while False:"),
            (kept, "return [row for row in self if True]"),
            (kept, "return [row for row in self if False]"),
        },
        "sign": {
            (result, "return total if not size and total else total * size"),
            (result, "return -total if not size and total else total / size"),
            (step, 'size=len("ä") - 3,'),
        },
        "constant": {(compute, "total = compute(share, size, scale=1.0, flush=True)")},
        "argument dropped": {
            (compute, "total = compute(share, scale=0.5, flush=True)"),
            (compute, "total = compute(share, size, flush=True)"),
            (step, ""),
        },
    }
    assert {fault.where for fault in listed} == {"weight", "Rows.tell"}
    for fault in listed:
        changed = faults.planted(SOURCE, fault)
        assert changed is not None, fault
        pairs = zip(SOURCE.split("\n"), changed.split("\n"), strict=True)
        assert [n for n, (old, new) in enumerate(pairs, 1) if old != new] == [fault.line]


def test_what_does_not_compile_or_means_the_same_is_not_planted(faults: ModuleType) -> None:
    source = "def f(x):\n    return x + (1)\n"
    line = "    return x + (1)"
    for start, end, text in ((15, 18, "1"), (15, 16, "")):
        fault = faults.Fault("sign", "f.py", "f", 2, line, start, end, text)
        assert faults.planted(source, fault) is None


def test_the_order_hangs_on_the_seed_and_takes_the_kinds_in_turn(faults: ModuleType) -> None:
    listed = faults.faults_of("src/bertine/rows.py", SOURCE)
    order = faults.shuffled(listed, 0)
    assert order == faults.shuffled(listed[::-1], 0)
    assert order != faults.shuffled(listed, 1)
    assert sorted(order, key=listed.index) == listed
    kinds = {fault.kind for fault in listed}
    assert {fault.kind for fault in order[: len(kinds)]} == kinds
    moved = faults.faults_of("src/bertine/rows.py", "\n" + SOURCE)  # all lines, by one
    assert [f.name for f in faults.shuffled(moved, 0)] == [f.name for f in order]


def test_tests_that_use_what_is_shared_execute_its_lines(tools: None, tmp_path: Path) -> None:
    """A fixture's lines are executed once, in the first test; those that fail anyway are out."""
    plant_faults = importlib.import_module("plant_faults")
    of = importlib.import_module("traced_tests").context_of
    rows = [
        {"test": "first", "outcome": "passed", "uses": [[of("first"), of("fixture")]]},
        {"test": "second", "outcome": "passed", "uses": [[of("second"), of("fixture")]]},
        {"test": "second", "outcome": "passed", "uses": [[of("fixture"), of("cache")]]},
        {"test": "broken", "outcome": "failed", "uses": [[of("broken"), of("fixture")]]},
        {"test": "other", "outcome": "passed", "uses": []},
    ]
    file = tmp_path / "reports.jsonl"
    file.write_text(
        "".join(json.dumps(row | {"seconds": 1.0, "slow": False}) + "\n" for row in rows)
    )
    data = coverage.CoverageData(str(tmp_path / "lines"))
    source = str(tmp_path / "tree" / "rows.py")
    for context, line in (("cache", 1), ("fixture", 2), ("other", 2), ("first", 3)):
        data.set_context(of(context))
        data.add_lines({source: [line]})
    for context in ("", of("other")):  # executed on import, and kept
        data.set_context(context)
        data.add_lines({source: [5]})
    data.set_context(f"{of('first')}|{of('other')}")  # a process that a fork server made
    data.add_lines({source: [4]})
    data.write()
    trace = plant_faults.Trace(tmp_path)
    fault = importlib.import_module("faults").Fault
    names = [
        {test.name for test in trace.tests_of(fault("", "rows.py", "", line, "", 0, 0, ""))}
        for line in (1, 2, 3, 4, 5)
    ]
    everyone = {"first", "second", "other"}
    assert names == [{"first", "second"}, everyone, {"first"}, {"other"}, everyone]
    assert {test.seconds for test in trace.tests.values()} == {1.0, 2.0}


def test_tests_are_run_in_an_order_that_fails_early(tools: None) -> None:
    plant_faults = importlib.import_module("plant_faults")
    tests = [
        plant_faults.Test(f"tests/{name}.py::test", seconds, name.endswith("slow"))
        for name, seconds in (("a/long", 9.0), ("a/slow", 0.1), ("b/ours", 5.0), ("c/short", 1.0))
    ]
    ordered = plant_faults.batches(tests, "src/bertine/b/rows.py")
    assert [[test.name[6:-9] for test in batch] for batch in ordered] == [
        ["b/ours", "c/short", "a/long"],
        ["a/slow"],
    ]


def test_a_run_that_is_missing_is_one_line(
    tools: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("plant_faults").Trace(tmp_path)
    assert ended.value.code == 2
    assert "run `plant_faults.py cover`" in capsys.readouterr().err
