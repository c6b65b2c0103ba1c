"""The share of the machine's ceiling: what is counted, and when it is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import toys
from bertine.objectives.mlm_nsp import MlmNsp
from bertine.presets import PRESETS
from bertine.training.loop import ceiling
from bertine.training.loop.ceiling import Gauge, matrix_rate, step_products, useful_operations
from bertine.training.loop.display import facts_of
from bertine.training.loop.fit import FitConfig, fit
from bertine.training.run import Run


@pytest.mark.parametrize("size", ["bert-mini", "bert-base"])
@pytest.mark.parametrize("targets", [0, 640])
def test_the_count_is_that_of_the_products(size: str, targets: int) -> None:
    config = PRESETS[size]
    products = step_products(config, 32, 128, targets)
    lengths = torch.full((32,), 128)
    assert useful_operations(config, lengths, targets) == sum(p.operations for p in products)


def test_the_count_is_about_six_a_weight_and_token() -> None:
    """The rule of thumb, which leaves out attention's own products."""
    config = PRESETS["bert-base"]
    encoder = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    found = useful_operations(config, torch.full((1,), 128), 0)
    assert found == pytest.approx(6 * 128 * encoder, rel=0.03)
    assert found > 6 * 128 * encoder


def test_padding_is_not_counted_and_long_sequences_cost_more() -> None:
    config = PRESETS["bert-mini"]
    short = useful_operations(config, torch.tensor([64, 64]), 10)
    assert useful_operations(config, torch.tensor([64, 64, 0, 0]), 10) == short
    assert useful_operations(config, torch.tensor([128]), 10) > short


def test_flops_of_a_real_step_agree() -> None:
    """Counted by PyTorch while the step is computed: without padding and with all layers there."""
    from torch.utils.flop_counter import FlopCounterMode

    from bertine.data.batch import Batch
    from bertine.training.loop.step import accumulate

    model = toys.pretraining_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ids = torch.randint(5, 20, (4, 16))
    positions = torch.arange(0, 64, 5)
    targets = {"mlm_positions": positions, "mlm_labels": ids.view(-1)[positions]}
    targets["next_sentence_label"] = torch.zeros(4, dtype=torch.int64)
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids), targets)
    counter = FlopCounterMode(display=False)
    with counter:
        accumulate(model.train(), MlmNsp(), [batch], dtype=torch.float32, seeds=[0, 0])
    counted = counter.get_total_flops()
    ours = useful_operations(model.config, torch.full((4,), 16), len(positions))
    pooler_and_nsp = 6 * 4 * (32 * 32 + 32 * 2)
    assert counted == ours + pooler_and_nsp


def test_the_rate_is_measured_once_and_leaves_the_generator_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ceiling, "_rates", {})
    before = torch.get_rng_state()
    given = {"sequences": 4, "length": 16, "num_targets": 8, "dtype": torch.float32}
    rate = matrix_rate(toys.config(), **given)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), before)
    assert rate > 1e6
    monkeypatch.setattr(ceiling, "time_products", lambda *_, **__: pytest.fail("measured again"))
    assert matrix_rate(toys.config(), **given) == rate  # type: ignore[arg-type]


def test_the_share_is_that_of_the_rate(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "matrix_rate", lambda *_, **__: 1e9)
    batch = toys.pretraining_data(store).batch(0)
    model = toys.pretraining_model()
    operations = useful_operations(
        model.config, batch.attention_mask.sum(1), batch.targets["mlm_labels"].numel()
    )
    gauge = Gauge(model, dtype=torch.float32, max_tokens=1000)
    for _ in range(2):
        gauge.add(batch, 0.5)
    assert gauge.facts(100) == {}, "50 seconds are not worth it"
    for _ in range(3):
        gauge.add(batch, 0.5)
    assert gauge.facts(1000) == {"share_of_ceiling": pytest.approx(operations / 0.5 / 1e9)}
    gauge.add(batch, 0.1)
    assert gauge.facts(0) == {"share_of_ceiling": pytest.approx(operations / 0.1 / 1e9)}


def test_longer_sequences_have_a_rate_of_their_own(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second phase of the paper, at length 512, has other matrix products."""
    asked: list[int] = []

    def rate(*_: object, length: int, **__: object) -> float:
        asked.append(length)
        return 1e12 / length

    monkeypatch.setattr(ceiling, "matrix_rate", rate)
    gauge = Gauge(toys.pretraining_model(), dtype=torch.float32, max_tokens=1000)
    shares = []
    for length in (16, 16, 32, 16):
        batch = toys.pretraining_data(store, max_seq_length=length).batch(0)
        gauge.add(batch, 1.0)
        operations = useful_operations(
            toys.pretraining_model().config,
            batch.attention_mask.sum(1),
            batch.targets["mlm_labels"].numel(),
        )
        shares.append(gauge.facts(10_000)["share_of_ceiling"] / operations * 1e12)
    assert len(asked) == 2
    assert shares == pytest.approx([asked[0], asked[0], asked[1], asked[0]])


def test_a_rate_that_was_measured_beside_other_work_is_measured_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = toys.pretraining_data(store).batch(0)
    model = toys.pretraining_model()
    operations = useful_operations(
        model.config, batch.attention_mask.sum(1), batch.targets["mlm_labels"].numel()
    )
    rates = iter([operations / 4, operations * 2])
    monkeypatch.setattr(ceiling, "matrix_rate", lambda *_, **__: next(rates))
    gauge = Gauge(model, dtype=torch.float32, max_tokens=1000)
    gauge.add(batch, 1.0)
    assert gauge.facts(10_000) == {}, "four times what the machine can do is no share"
    gauge.add(batch, 1.0)
    assert gauge.facts(10_000) == {"share_of_ceiling": pytest.approx(0.5)}


def test_a_long_run_logs_its_share_and_is_the_same_run(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(folder: Path) -> dict[str, torch.Tensor]:
        model = toys.pretraining_model()
        config = FitConfig(steps=6, learning_rate=1e-3, log_every=2)
        data = toys.pretraining_data(store)
        fit(model, MlmNsp(), data.batch, config, Run.open(folder, {}, resume=False))
        return model.state_dict()

    short = run(tmp_path / "short")
    assert "share_of_ceiling" not in (tmp_path / "short" / "log.jsonl").read_text()
    monkeypatch.setattr(ceiling, "_WORTH", 0.0)
    measured = run(tmp_path / "long")
    assert all(torch.equal(short[name], measured[name]) for name in short)
    assert (tmp_path / "long" / "log.jsonl").read_text().count('"share_of_ceiling": 0.') == 3
    shown = facts_of({"share_of_ceiling": 0.712, "mlm_loss": 4.2})
    assert shown["of the ceiling"] == "71%"
    assert "of the ceiling" not in facts_of({"share_of_ceiling": 0.712}), "of pre-training alone"
