"""What BERT computes is what it computed when it was recorded, bit for bit."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from golden import cases, machine, made, taken
from golden.compare import TOLERANCES, differences

#: Starts processes, which import PyTorch.
_SLOW = {"two-processes"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in _SLOW else n for n in cases.CASES],
)
def test_the_same_as_recorded(name: str, tmp_path: Path) -> None:
    """Bit for bit on a machine like that of the record; elsewhere floats are close, and names,
    shapes, ids and texts the same. See CONTRIBUTING.md for when to record again."""
    made_on, recorded = cases.recorded(name)
    exact = made_on == machine.describe()
    found = differences(recorded, cases.run(name, tmp_path), exact=exact)
    told = "\n".join(map(str, found[:20]))
    assert not found, f"{len(found)} differences (bit for bit: {exact})\n{told}"


def test_this_machine_is_like_that_of_the_records() -> None:
    """Skipped where bits are not compared, so that one can see it."""
    here = machine.describe()
    for name in cases.CASES:
        made_on, _ = cases.recorded(name)
        others = [key for key in here if made_on.get(key) != here[key]]
        if others:
            pytest.skip(f"floats are compared, not bits: another {', '.join(others)} ({name})")


def test_every_case_has_a_record_and_they_are_small() -> None:
    files = {file.stem for file in cases.RECORDS.glob("*.json")}
    assert files == {*cases.CASES, "machines"}
    assert sum(file.stat().st_size for file in cases.RECORDS.iterdir()) < 300_000


def test_one_bit_of_a_tensor_is_noticed(tmp_path: Path) -> None:
    model = made.write_model(tmp_path / "model") / "model.safetensors"
    recorded = taken.tensors(model)
    assert differences(recorded, taken.tensors(model), exact=True) == []
    tensors = load_file(model)
    name = "bert.encoder.layer.1.output.dense.weight"
    changed = tensors[name].copy()
    changed.view(np.uint32)[3, 4] ^= 1
    save_file({**tensors, name: changed}, model)
    found = taken.tensors(model)
    places = [each.place for each in differences(recorded, found, exact=True)]
    assert f"{name}/bits" in places
    assert all(place.startswith(name) for place in places)
    assert differences(recorded, found, exact=False) == []


def _change(record: Any, where: str, change: Callable[[Any], Any]) -> Any:
    """Return `record` with another value at the keys `where`."""
    changed = copy.deepcopy(record)
    *keys, last = [int(key) if key.isdigit() else key for key in where.split("/")]
    inner = changed
    for key in keys:
        inner = inner[key]
    inner[last] = change(inner[last])
    return changed


def _next(value: float) -> float:
    return math.nextafter(value, math.inf)


def _far(precision: str) -> Callable[[float], float]:
    return lambda value: value * (1.0 + 1.5 * TOLERANCES[precision])


@pytest.mark.parametrize(
    ("where", "change", "elsewhere"),
    [
        ("run/log/0/loss", _next, False),
        ("run/log/0/loss", _far("fp32"), True),
        ("run/log/0/bits/accuracy", _far("fp32"), False),
        ("run/log/0/step", lambda step: step + 1, True),
        ("run/model/bert.pooler.dense.weight/bits", lambda text: f"{text[:-1]}x", False),
        ("run/model/bert.pooler.dense.weight/kind", lambda text: f"{text}x1", True),
        ("run/model/bert.pooler.dense.weight/size/0", _far("fp32"), True),
        ("answers/fp32/one/floats/0", lambda floats: floats[:-1], True),
        ("answers/bf16/one/floats/0/0", _far("fp32"), False),
        ("answers/bf16/one/floats/0/0", _far("bf16"), True),
        ("answers/int8/all/bits", lambda text: "", False),
        ("answers/fp32", lambda answers: None, True),
    ],
)
def test_a_change_is_noticed(where: str, change: Callable[[Any], Any], elsewhere: bool) -> None:
    """The smallest one on a machine like that of the record; `elsewhere`: on another one, too."""
    _, recorded = cases.recorded("finetune-pairs")
    changed = _change(recorded, where, change)
    assert differences(recorded, recorded, exact=True) == []
    (found, *more) = differences(recorded, changed, exact=True)
    assert found.place.startswith(where)
    assert not more
    assert bool(differences(recorded, changed, exact=False)) == elsewhere


def test_what_is_gone_or_new_is_noticed() -> None:
    recorded = {"model": {"a": {"bits": "1"}}, "int8": {"floats": [1.0]}}
    for changed in ({**recorded, "more": 1}, {"int8": recorded["int8"]}):
        assert len(differences(recorded, changed, exact=True)) == 1
        assert len(differences(recorded, changed, exact=False)) == 1
    # But not every processor computes in 8 bits.
    without = {"model": recorded["model"]}
    assert len(differences(recorded, without, exact=True)) == 1
    assert differences(recorded, without, exact=False) == []
