"""A run measures how to compute, records it, and keeps it when it is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import toys
from bertine import finetune, pretrain
from bertine.core.errors import BertineError
from bertine.models.matmul_timing import Product
from bertine.models.precision import Rates
from bertine.training import computing
from bertine.training import fit as fit_module
from bertine.training.computing import computing_of_run, measured_computing
from bertine.training.distributed import DistContext

SLOW_BF16, FAST_BF16 = Rates(190e9, 100e9), Rates(100e9, 400e9)
#: Of a model that is worth measuring; those of the toys are not.
PRODUCTS = (Product(512, 512, 512, 1.0, 1.0),)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


class Machine:
    """A machine with given rates.

    Attributes:
        asked: the products of how many tokens and words were measured.
    """

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self._patched = patched
        self.asked: list[tuple[int, int]] = []

    def has(self, rates: Rates | None, seconds: Mapping[int, float] | None = None) -> None:
        """From now on it has these rates, and takes these seconds with so many threads."""

        def rates_for(name: str, model: object, *, tokens: int = 0, words: int = 0) -> Rates | None:
            if name != "auto":
                return None
            self.asked.append((tokens, words))
            return rates

        patched = self._patched
        patched.setattr(computing, "rates_for", rates_for)
        patched.setattr(computing, "cpu_has_bf16", lambda: rates is not None)
        if seconds is not None:
            usual = max(seconds)
            patched.setattr(computing, "products_of", lambda *_: PRODUCTS)
            patched.setattr(computing, "threads_are_given", lambda: False)
            patched.setattr(computing, "_seconds_by_threads", lambda *_: seconds)
            torch.set_num_threads(usual)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def settings(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


@pytest.fixture
def pretraining(store: Path, tmp_path: Path) -> dict[str, Any]:
    config = toys.write_config(tmp_path / "config.json", toys.config())
    return {
        "store": store,
        "model": config,
        "out": tmp_path / "run",
        "steps": 2,
        "batch_size": 4,
        "max_seq_length": 16,
        "device": "cpu",
    }


@pytest.mark.parametrize(
    ("rates", "precision", "speedup"),
    [(SLOW_BF16, "fp32", 0.53), (FAST_BF16, "bf16", 4.0), (None, "fp32", None)],
)
def test_what_was_measured_is_said_once_and_recorded(
    pretraining: dict[str, Any],
    machine: Machine,
    rates: Rates | None,
    precision: str,
    speedup: float | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine.has(rates)
    pretrain(**pretraining)
    recorded = settings(pretraining["out"])["settings"]
    assert recorded["precision"] == precision
    assert recorded.get("bf16_speedup") == speedup
    assert capsys.readouterr().err.count("times as fast as") == (rates is not None)
    # The batch that was to be computed, and the words that are hidden in it.
    ((tokens, words),) = machine.asked
    assert tokens == 4 * 16
    assert 4 <= words <= 16


@pytest.mark.parametrize(
    ("begun", "later"), [(FAST_BF16, SLOW_BF16), (SLOW_BF16, FAST_BF16), (FAST_BF16, None)]
)
def test_a_resumed_run_keeps_its_precision(
    pretraining: dict[str, Any],
    machine: Machine,
    begun: Rates,
    later: Rates | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever the machine that it is resumed on would be measured to do."""
    machine.has(begun)
    with monkeypatch.context() as stopping:
        stopping.setattr(fit_module._Fitting, "train", _killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(**pretraining)
    capsys.readouterr()
    machine.has(later)
    machine.asked.clear()
    types: list[torch.dtype] = []
    stepper = fit_module.TrainStep

    def noted(*given: Any, dtype: torch.dtype, **how: Any) -> Any:
        types.append(dtype)
        return stepper(*given, dtype=dtype, **how)

    monkeypatch.setattr(fit_module, "TrainStep", noted)
    pretrain(**pretraining, resume=True)
    assert machine.asked == []
    assert types == [torch.bfloat16 if begun.precision == "bf16" else torch.float32]
    about = json.loads((pretraining["out"] / "model" / "bertine.json").read_text())
    assert about["training"]["precision"] == begun.precision
    assert about["training"]["bf16_speedup"] == begun.speedup
    said = capsys.readouterr().err
    assert ("this processor has no instructions: it goes on more slowly" in said) == (later is None)


def test_another_precision_by_name_is_refused(
    pretraining: dict[str, Any], machine: Machine
) -> None:
    machine.has(FAST_BF16)
    pretrain(**pretraining)
    with pytest.raises(BertineError, match=r"started with precision = 'bf16', not 'fp32'"):
        pretrain(**pretraining, precision="fp32", resume=True)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_records_its_threads_and_keeps_them(
    pretraining: dict[str, Any],
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    used: list[int] = []
    step = fit_module._Fitting._step

    def noted(*given: Any) -> float:
        used.append(torch.get_num_threads())
        return step(*given)

    monkeypatch.setattr(fit_module._Fitting, "_step", noted)
    machine.has(None, {1: 1.0, 2: 1.5})
    with monkeypatch.context() as stopping:
        stopping.setattr(fit_module._Fitting, "train", _killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(**pretraining)
    assert "1 thread: 1.5 times as fast as 2 here" in capsys.readouterr().err
    assert torch.get_num_threads() == 2
    # Two would be faster now; what was begun with one goes on with one.
    machine.has(None, {1: 1.5, 2: 1.0})
    pretrain(**pretraining, resume=True)
    recorded = settings(pretraining["out"])
    assert recorded["settings"]["threads"] == recorded["environment"]["threads"] == 1
    assert used == [1, 1]
    assert "with threads" not in capsys.readouterr().err  # no warning of other bits


def test_fine_tuning_too(model: Path, labelled: Path, tmp_path: Path, machine: Machine) -> None:
    machine.has(FAST_BF16)
    learner = finetune(
        "text",
        model=model,
        data=labelled,
        out=tmp_path / "run",
        text_columns="text",
        label_column="label",
        frozen=True,
        device="cpu",
    )
    recorded = settings(tmp_path / "run")["settings"]
    assert (recorded["precision"], recorded["bf16_speedup"]) == ("bf16", 4.0)
    assert learner.origin is not None
    assert learner.origin.precision == "bf16"
    ((tokens, _),) = machine.asked
    assert recorded["batch_size"] < tokens <= recorded["batch_size"] * 24


@pytest.mark.parametrize(
    ("seconds", "given", "facts"),
    [
        ({1: 1.0, 2: 1.5}, False, {"threads": 1}),
        ({1: 1.0, 2: 1.5}, True, {}),  # OMP_NUM_THREADS says two
        ({1: 1.0, 2: 1.2}, False, {}),  # not clearly faster
        ({1: 1.5, 2: 1.0}, False, {}),
    ],
)
def test_fewer_threads(
    seconds: dict[int, float],
    given: bool,
    facts: dict[str, Any],
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine.has(None, seconds)
    monkeypatch.setattr(computing, "threads_are_given", lambda: given)
    found = measured_computing("auto", toys.pretraining_model())
    assert found.facts == facts
    assert found.threads == facts.get("threads", 2)


def test_no_fewer_threads_because_of_busy_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "seconds_by_threads", lambda _: {1: 1.0, 2: 3.0})
    for used, expected in ((None, {1: 1.0, 2: 3.0}), (1.0, {2: 3.0})):
        monkeypatch.setattr(computing.CpuContention, "cores_used", lambda _, used=used: used)
        computing._seconds_by_threads.cache_clear()
        assert computing._seconds_by_threads(PRODUCTS, "fp32", 2) == expected
    computing._seconds_by_threads.cache_clear()


def test_all_processes_compute_as_the_first_one(machine: Machine, tmp_path: Path) -> None:
    """Though each would measure something else."""

    class Second(DistContext):
        def gather(self, value: Any) -> list[Any]:
            assert value is None
            return json.loads(json.dumps([["bf16", {"bf16_speedup": 4.0}], value]))

    machine.has(SLOW_BF16)
    found = computing_of_run(
        tmp_path, "auto", False, toys.pretraining_model(), Second(rank=1, size=2)
    )
    assert found == ("bf16", {"bf16_speedup": 4.0})
    assert machine.asked == []
