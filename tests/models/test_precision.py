"""In which precision, and with how many threads, to compute: the rules for given rates, so that
processors that are not at hand are tested too; what is measured, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from bertine.core.errors import BertineError
from bertine.families.presets import preset
from bertine.models import precision
from bertine.models.heads import Model
from bertine.models.matmul_timing import Product, products_of, seconds_of
from bertine.models.precision import (
    Rates,
    fastest_threads,
    measured_rates,
    precision_name,
    rates_for,
    resolve_precision,
    seconds_by_threads,
    trained_precision,
)

#: GFLOP/s of a core in fp32 and bf16, and what is to be chosen.
PROCESSORS = {
    "Xeon, avx512_bf16 without AMX": (179, 97, "fp32"),
    "Xeon with AMX": (110, 900, "bf16"),
    "Zen 4": (70, 280, "bf16"),
    "Zen 5": (140, 560, "bf16"),
    "Arm with bf16": (40, 110, "bf16"),
    "bf16 made of fp32": (60, 9, "fp32"),
    "no difference but noise": (100, 105, "fp32"),
}


def made(size: str, vocab_size: int = 100) -> Model:
    return Model(replace(preset(size), vocab_size=vocab_size), {})


@pytest.fixture(scope="module")
def model() -> Model:
    return made("bert-tiny")


@pytest.fixture(autouse=True)
def _measured_anew() -> Iterator[None]:
    measured_rates.cache_clear()
    yield
    measured_rates.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], list[torch.dtype]]:
    """Returns a machine with bf16 instructions that does a product in so many seconds in fp32 and
    in bf16; the types that are timed on it."""
    timed: list[torch.dtype] = []

    def make(fp32: float, bf16: float) -> list[torch.dtype]:
        def seconds(_: object, dtype: torch.dtype) -> float:
            timed.append(dtype)
            return fp32 if dtype == torch.float32 else bf16

        monkeypatch.setattr(precision, "cpu_has_bf16", lambda: True)
        monkeypatch.setattr(precision, "seconds_of", seconds)
        return timed

    return make


@pytest.mark.parametrize(("fp32", "bf16", "chosen"), PROCESSORS.values(), ids=PROCESSORS)
def test_bf16_is_taken_where_it_is_clearly_faster(fp32: float, bf16: float, chosen: str) -> None:
    rates = Rates(fp32 * 1e9, bf16 * 1e9)
    assert rates.precision == precision_name("auto", "cpu", rates) == chosen
    assert rates.line().startswith(f"{chosen}: ")
    # What is named is taken, however fast it is.
    assert precision_name("bf16", "cpu", rates) == "bf16"
    assert resolve_precision("fp32", "cpu", rates) == torch.float32


def test_a_precision_that_is_not_known() -> None:
    with pytest.raises(BertineError, match="'fp16' is not known; choose auto, bf16, fp32"):
        precision_name("fp16")


def test_a_machine_is_measured_once_for_each_model(
    model: Model, machine: Callable[[float, float], list[torch.dtype]]
) -> None:
    timed = machine(2e-3, 1e-3)
    first = rates_for("auto", model)
    assert first is not None
    assert first.speedup == 2.0
    # They take turns, so that a busy moment meets both.
    assert timed[:4] == [torch.float32, torch.bfloat16] * 2
    count = len(timed)
    assert rates_for("auto", model) == first
    assert len(timed) == count
    rates_for("auto", model, tokens=1000)
    assert len(timed) == 2 * count


def test_nothing_is_measured_where_nothing_is_to_be_decided(
    model: Model,
    machine: Callable[[float, float], list[torch.dtype]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = machine(2e-3, 1e-3)
    assert rates_for("bf16", model) is None
    assert rates_for("auto", made("bert-tiny").to("meta")) is None  # not on the CPU
    assert rates_for("auto", nn.Linear(8, 8)) is None  # too little to be felt
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: False)
    assert rates_for("auto", made("bert-tiny")) is None
    assert timed == []
    assert precision_name("auto", "cpu", None) == "fp32"


@pytest.mark.parametrize(
    ("recorded", "bf16", "expected"),
    [("bf16", 4.0, "bf16"), ("bf16", 0.5, "fp32"), ("fp32", 4.0, "fp32"), (None, 4.0, "fp32")],
)
def test_a_model_is_scored_as_it_was_trained_if_that_is_fast(
    recorded: str | None,
    bf16: float,
    expected: str,
    machine: Callable[[float, float], list[torch.dtype]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    timed = machine(1.0, 1 / bf16)
    training = {} if recorded is None else {"precision": recorded}
    assert trained_precision(training, made("bert-tiny")) == expected
    assert bool(timed) == ("times as fast" in capsys.readouterr().err) == (recorded == "bf16")


def test_the_products_of_a_model() -> None:
    model, tokens = made("bert-mini", 10_000), 4096
    config = model.config
    size, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    found = products_of(model, tokens)
    # Heaviest first, and nearly all: what a forward pass does is 2 operations a weight and token.
    whole = 2 * tokens * layers * (4 * size**2 + 2 * size * inner)
    operations = [product.operations for product in found]
    assert operations == sorted(operations, reverse=True)
    assert 0.9 * whole <= sum(operations) <= 1.1 * whole
    assert {(p.inputs, p.outputs) for p in found} >= {(size, inner), (inner, size)}
    assert all(p.casts in (layers, layers + 1) for p in found)  # the pooler is like a layer
    # As many words again as are scored cost the whole table of words.
    words = products_of(model, tokens, words=tokens)
    assert (words[0].inputs, words[0].outputs) == (size, 8192)
    assert words[0].operations == pytest.approx(2 * tokens * size * config.vocab_size)


def test_a_small_batch_is_measured_as_it_is(model: Model) -> None:
    few = products_of(model, 100)
    assert {product.rows for product in few} == {100}
    assert products_of(model, 1) == ()


def test_what_a_product_stands_for_is_counted() -> None:
    once = Product(64, 256, 256, times=1.0, casts=0.0)
    seconds = seconds_of([once], torch.float32)
    assert 0 < seconds < seconds_of([once._replace(times=1e6)], torch.float32)
    assert seconds_of([once._replace(times=0.0)], torch.bfloat16) == 0
    assert seconds_of([once._replace(times=0.0, casts=1.0)], torch.bfloat16) > 0


@pytest.mark.parametrize(
    ("seconds", "worth", "expected"),
    [
        ({1: 4.0, 2: 2.0, 4: 1.0}, 1.25, 4),
        ({1: 1.0, 2: 2.0, 4: 1.2}, 1.25, 4),  # not clearly faster
        ({1: 1.0, 2: 2.0, 4: 1.3}, 1.25, 1),
        ({1: 1.0, 2: 0.5, 4: 1.3}, 1.25, 2),
        ({1: 1.0, 2: 2.0, 4: 1.2}, 1.0, 1),
        ({1: 0.0}, 1.25, 1),
    ],
)
def test_fewer_threads_where_they_are_clearly_faster(
    seconds: dict[int, float], worth: float, expected: int
) -> None:
    assert fastest_threads(seconds, worth) == expected


@pytest.mark.parametrize(
    ("of_torch", "of_container", "tried"), [(8, 8, [1, 4, 8]), (8, 3, [1, 3]), (1, 8, [])]
)
def test_no_more_threads_are_tried_than_pytorch_and_the_container_have(
    of_torch: int, of_container: int, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [of_torch]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
    monkeypatch.setattr(precision, "cores", lambda: of_container)
    used: set[int] = set()

    def measure() -> float:
        used.add(now[0])
        return 1.0 / now[0]

    found = seconds_by_threads(measure)
    assert sorted(used) == tried
    assert max(found) == min(of_torch, of_container)
    assert now == [of_torch]
