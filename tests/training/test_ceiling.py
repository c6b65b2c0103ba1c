"""The share of the machine's ceiling: what is counted, and when it is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import toys
from bertine.corpora.batch import Batch
from bertine.families.bert import PRESETS
from bertine.families.presets import preset
from bertine.models.heads import Model
from bertine.models.torch_private import has_packed
from bertine.objectives import choose
from bertine.objectives.losses import MlmNsp
from bertine.training import mfu
from bertine.training.display import facts_of
from bertine.training.fit import FitConfig, fit
from bertine.training.mfu import (
    MfuMeter,
    matrix_rate,
    operations,
    step_cost,
    step_products,
)
from bertine.training.run_folder import Run


def empty(size: str) -> Model:
    """A model of one of the published sizes, without values."""
    with torch.device("meta"):
        return Model(PRESETS[size], MlmNsp.heads(PRESETS[size]))


@pytest.mark.parametrize("size", ["bert-mini", "bert-base"])
@pytest.mark.parametrize("length", [16, 128, 512])
def test_the_count_is_that_of_the_formula(size: str, length: int) -> None:
    """BERT's products by hand: each forward, and two of its size backward."""
    c, lengths = PRESETS[size], torch.arange(length, length // 2, -3)
    tokens, squares = int(lengths.sum()), int((lengths * lengths).sum())
    layer = c.hidden_size * (4 * c.hidden_size + 2 * c.intermediate_size)
    head = c.hidden_size * (c.hidden_size + c.vocab_size)
    forward = c.num_hidden_layers * (tokens * layer + 2 * squares * c.hidden_size) + 640 * head
    assert step_cost(empty(size), length).of(lengths, {"mlm": 640}) == pytest.approx(
        6 * forward, rel=2e-3
    )


@pytest.mark.parametrize(
    ("size", "term"), [("gpt-tiny", "clm"), ("bart-tiny", "denoising"), ("xlnet-tiny", "plm")]
)
def test_the_vocabularys_products_are_counted_for_every_term(size: str, term: str) -> None:
    """The head of a term may have another name than the term."""
    config = preset(size)
    with torch.device("meta"):
        model = Model(config, choose(config)[0].heads(config))
    cost = step_cost(model, 128)
    assert cost.targets[term] >= 6 * config.hidden_size * config.vocab_size


def test_flops_of_a_real_step_agree() -> None:
    """Counted by PyTorch while the step is computed: without padding, with all layers there, and a
    round number of guessed tokens (others are rounded up)."""
    from torch.utils.flop_counter import FlopCounterMode

    from bertine.training.step import accumulate

    model = toys.pretraining_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ids = torch.randint(5, 20, (4, 16))
    positions = torch.arange(64)
    targets = {"mlm_positions": positions, "mlm_labels": ids.view(-1)[positions]}
    targets["next_sentence_label"] = torch.zeros(4, dtype=torch.int64)
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids), targets)

    def by_onednn(x: torch.Size, weight: torch.Size, *_: object, **__: object) -> int:
        return 2 * x[0] * x[1] * weight[0]

    has_packed(torch.float32)  # whose probe multiplies too
    formulas = {torch.ops.mkldnn._linear_pointwise: by_onednn}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with counter:
        accumulate(model.train(), MlmNsp(), [batch], dtype=torch.float32, seeds=[0, 0])
    counted = counter.get_total_flops()
    nsp = 6 * 4 * 32 * 2
    assert counted == operations(step_products(model, 4, 16, {"mlm": len(positions)})) + nsp


def test_the_rate_is_measured_once_and_leaves_the_generator_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mfu, "_rates", {})
    given = {"sequences": 4, "length": 16, "targets": {"mlm": 8}, "dtype": torch.float32}
    model = toys.pretraining_model()
    before = torch.get_rng_state()
    rate = matrix_rate(model, **given)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), before)
    assert rate > 1e6
    monkeypatch.setattr(mfu, "time_products", lambda *_, **__: pytest.fail("measured again"))
    assert matrix_rate(model, **given) == rate  # type: ignore[arg-type]


def operations_of(model: Model, batch: Batch) -> float:
    """What a step over `batch` costs."""
    cost = step_cost(model, batch.input_ids.shape[1])
    return cost.of(batch.attention_mask.sum(1), MlmNsp().counts(batch))


def test_the_share_is_that_of_the_rate(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mfu, "matrix_rate", lambda *_, **__: 1e9)
    batch = toys.pretraining_data(store).batch(0)
    model = toys.pretraining_model()
    wanted = operations_of(model, batch)
    gauge = MfuMeter(model, MlmNsp().counts, dtype=torch.float32, max_tokens=1000)
    for _ in range(2):
        gauge.add(batch, 0.5)
    assert gauge.facts(100) == {}, "50 seconds are not worth it"
    for _ in range(3):
        gauge.add(batch, 0.5)
    assert gauge.facts(1000) == {"share_of_ceiling": pytest.approx(wanted / 0.5 / 1e9)}
    gauge.add(batch, 0.1)
    assert gauge.facts(0) == {"share_of_ceiling": pytest.approx(wanted / 0.1 / 1e9)}


def test_a_rate_that_was_measured_beside_other_work_is_measured_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = toys.pretraining_data(store).batch(0)
    model = toys.pretraining_model()
    wanted = operations_of(model, batch)
    rates = iter([wanted / 4, wanted * 2])
    monkeypatch.setattr(mfu, "matrix_rate", lambda *_, **__: next(rates))
    gauge = MfuMeter(model, MlmNsp().counts, dtype=torch.float32, max_tokens=1000)
    gauge.add(batch, 1.0)
    assert gauge.facts(10_000) == {}, "four times what the machine can do is not a share"
    gauge.add(batch, 1.0)
    assert gauge.facts(10_000) == {"share_of_ceiling": pytest.approx(0.5)}


def test_a_long_run_logs_its_share_and_is_the_same_run(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(folder: Path) -> dict[str, torch.Tensor]:
        model = toys.pretraining_model()
        config = FitConfig(steps=6, learning_rate=1e-3, log_every=2)
        data = toys.pretraining_data(store)
        with Run.open(folder, {}, resume=False) as opened:
            fit(model, MlmNsp(), data.batch, config, opened)
        return model.state_dict()

    short = run(tmp_path / "short")
    assert "share_of_ceiling" not in (tmp_path / "short" / "log.jsonl").read_text()
    monkeypatch.setattr(mfu, "_WORTH", 0.0)
    measured = run(tmp_path / "long")
    assert all(torch.equal(short[name], measured[name]) for name in short)
    assert (tmp_path / "long" / "log.jsonl").read_text().count('"share_of_ceiling": 0.') == 3
    shown = facts_of({"share_of_ceiling": 0.712, "mlm_loss": 4.2})
    assert shown["of the ceiling"] == "71%"
    assert "of the ceiling" not in facts_of({"share_of_ceiling": 0.712}), "of pre-training alone"
