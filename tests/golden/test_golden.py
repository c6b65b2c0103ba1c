"""What BERT computes is what it computed when it was recorded, but for rounding."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from golden import cases, made, taken
from golden.compare import TOLERANCES, differences

#: Start processes, or train for seconds.
_SLOW = {
    *("two-processes", "finetune-frozen", "finetune-defaults", "finetune-resumed"),
    *("rates-and-exports", "old-runs", "embed", "finetune-windows-bf16"),
}


@pytest.mark.takes(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in _SLOW else n for n in cases.CASES],
)
def test_the_same_as_recorded(name: str, tmp_path: Path) -> None:
    """Floats are close, and names, shapes, ids and texts the same. See CONTRIBUTING.md for when to
    record again."""
    found = differences(cases.recorded(name), cases.run(name, tmp_path), exact=False)
    listed = "\n".join(map(str, found[:20]))
    assert not found, f"{len(found)} differences\n{listed}"


def test_every_case_has_a_record_and_they_are_small() -> None:
    assert {file.stem for file in cases.RECORDS.iterdir()} == set(cases.CASES)
    assert sum(file.stat().st_size for file in cases.RECORDS.iterdir()) < 250_000


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
        ("run/log/0/step", lambda step: step + 1, True),
        ("run/log/0/bits", lambda bits: {"accuracy": 0.5}, False),
        ("run/model/bert.pooler.dense.weight/kind", lambda text: f"{text}x1", True),
        ("run/model/bert.pooler.dense.weight/size/0", _far("fp32"), True),
        ("answers/fp32/one/floats/0", lambda floats: floats[:-1], True),
        ("answers/bf16/one/floats/0/0", _far("fp32"), False),
        ("answers/bf16/one/floats/0/0", _far("bf16"), True),
        ("answers/int8", lambda answers: None, False),
        ("answers/fp32", lambda answers: None, True),
    ],
)
def test_a_change_is_noticed(where: str, change: Callable[[Any], Any], elsewhere: bool) -> None:
    """The smallest one on the same machine; `elsewhere`: between two machines, too."""
    recorded = cases.recorded("finetune-pairs")
    recorded["run"]["log"][0]["bits"] = {"accuracy": 0.375}
    changed = _change(recorded, where, change)
    assert differences(recorded, recorded, exact=True) == []
    (found, *more) = differences(recorded, changed, exact=True)
    assert found.place.startswith(where)
    assert not more
    assert bool(differences(recorded, changed, exact=False)) == elsewhere


def test_what_is_gone_or_new_is_noticed() -> None:
    recorded = {"model": {"a": {"kind": "1"}}, "int8": {"floats": [1.0]}}
    for changed in ({**recorded, "more": 1}, {"int8": recorded["int8"]}):
        assert len(differences(recorded, changed, exact=True)) == 1
        assert len(differences(recorded, changed, exact=False)) == 1
    # But not every processor computes in 8 bits.
    without = {"model": recorded["model"]}
    assert len(differences(recorded, without, exact=True)) == 1
    assert differences(recorded, without, exact=False) == []
