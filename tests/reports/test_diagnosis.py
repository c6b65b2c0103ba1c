"""The diagnosis: every fault is named with its figures, and healthy noise is not called one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.reports.diagnosis import Finding, diagnose

Log = list[dict[str, Any]]
ENTROPY = 6.4
FACTS: dict[str, Any] = {
    "steps": 10_000,
    "warmup_steps": 500,
    "learning_rate": 1e-3,
    "batch_size": 64,
    "max_seq_length": 128,
    "num_tokens": 10_000_000,
    "unigram_entropy": ENTROPY,
    "mask_split": [0.8, 0.1, 0.1],
}


def healthy(lines: int = 200, seed: int = 0, noise: float = 0.03) -> Log:
    """A run that falls as a power of the step, with noise on everything."""
    draw = np.random.default_rng(seed)
    log: Log = []
    for number in range(1, lines + 1):
        step = number * 10_000 // lines
        rate = min(step / 500, (10_000 - step) / 9500)
        log.append(
            {
                "step": step,
                "mlm_loss": 3.0 + 5.0 * (1 + step / 300) ** -0.9 + draw.normal(0, noise),
                "nsp_loss": 0.5,
                "mlm_accuracy": 0.4,
                "nsp_accuracy": 0.5 + 0.35 * (1 - math.exp(-step / 2000)) + draw.normal(0, 0.02),
                "learning_rate": 1e-3 * rate,
                "grad_norm": math.exp(draw.normal(0.3, 0.3)),
                "tokens": 8000 * step,
                "tokens_per_second": 20_000 * math.exp(draw.normal(0, 0.15)),
                "unigram_entropy": ENTROPY,
            }
        )
        log[-1]["loss"] = log[-1]["mlm_loss"] + 0.5
    return log


def level(log: Log, key: str, of: Any) -> Log:
    """`log` with ``of(step)`` under `key`."""
    return [{**row, key: of(row["step"])} for row in log]


def kinds(log: Log, **facts: Any) -> list[str]:
    return [finding.kind for finding in diagnose(log, {**FACTS, **facts})]


def the(kind: str, log: Log, **facts: Any) -> Finding:
    """The finding of this kind, which must be there once."""
    found = [one for one in diagnose(log, {**FACTS, **facts}) if one.kind == kind]
    assert len(found) == 1, diagnose(log, {**FACTS, **facts})
    return found[0]


def wave(step: int) -> float:
    """Noise that is the same every time."""
    return 0.02 * math.sin(step * 1.7) + 0.01 * math.cos(step * 0.9)


# Healthy runs


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    lines=st.sampled_from([1, 2, 5, 12, 40, 200, 1000]),
    noise=st.floats(0, 0.08),
)
def test_a_healthy_run_has_no_findings(seed: int, lines: int, noise: float) -> None:
    assert diagnose(healthy(lines, seed, noise), FACTS) == []


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["loss", "mlm_loss", "nsp_accuracy", "grad_norm", "eval_mlm_loss"]),
            st.floats() | st.none() | st.text(max_size=3) | st.integers(-5, 5),
        ),
        max_size=40,
    ),
    st.dictionaries(st.sampled_from([*FACTS, "task"]), st.none() | st.floats(0, 9)),
)
def test_missing_keys_and_odd_values_are_no_crash(rows: Log, facts: dict[str, Any]) -> None:
    log = [{"step": number, **row} for number, row in enumerate(rows, 1)]
    for finding in diagnose(log, facts):
        assert finding.text


def test_a_running_run_is_not_told_to_train_longer() -> None:
    log = [row for row in healthy() if row["step"] <= 2000]
    assert kinds(log) == []


# Stalled


def test_stalled_at_the_unigram_entropy() -> None:
    log = level(healthy(), "mlm_loss", lambda s: ENTROPY + 2 * math.exp(-s / 300) + wave(s))
    finding = the("stalled", log, learning_rate=1e-4)
    assert finding.severity == "warning"
    for figure in ("6.40", "unigram entropy", "10,000", "raise the learning rate (0.0001)", "128"):
        assert figure in finding.text, finding.text
    assert "raise" not in the("stalled", log, learning_rate=5e-3).text
    assert "shorter" not in the("stalled", log, max_seq_length=32).text
    assert "nsp-at-chance" not in kinds(level(log, "nsp_accuracy", lambda s: 0.5))


def test_stalled_where_frequencies_and_repetition_lead() -> None:
    """A tenth of the targets is left in place: without any context the loss is 0.9 H, not H."""
    log = level(healthy(), "mlm_loss", lambda s: 5.9 + 2 * math.exp(-s / 300) + wave(s))
    assert "5.90" in the("stalled", log).text
    assert "5.76" in the("stalled", log).text
    assert "stalled" not in kinds(log, mask_split=[1.0, 0.0, 0.0])


def test_what_has_left_the_plateau_or_is_leaving_it_is_not_stalled() -> None:
    below = level(healthy(), "mlm_loss", lambda s: 5.6 + wave(s))
    leaving = level(healthy(), "mlm_loss", lambda s: 6.3 - 0.5 * max(0, s - 6000) / 4000 + wave(s))
    assert "stalled" not in kinds(below)
    assert "stalled" not in kinds(leaving)


def test_warm_up_is_not_a_stall() -> None:
    log = level(healthy(), "mlm_loss", lambda s: ENTROPY + wave(s))
    assert "stalled" not in kinds([row for row in log if row["step"] <= 500])


def test_above_the_unigram_entropy() -> None:
    log = level(healthy(), "mlm_loss", lambda s: ENTROPY + 0.8 + wave(s))
    finding = the("above-unigram-entropy", log)
    assert "0.80 nats above" in finding.text
    assert "stalled" not in kinds(log)


def test_the_entropy_may_be_in_the_log_alone_and_mlm_under_the_name_loss() -> None:
    """The log of an MLM-only run has one loss."""
    facts = {key: value for key, value in FACTS.items() if key != "unigram_entropy"}
    rows = [
        {"step": row["step"], "loss": ENTROPY + wave(row["step"]), "unigram_entropy": ENTROPY}
        for row in healthy()
    ]
    assert [finding.kind for finding in diagnose(rows, facts)] == ["stalled"]


# Next sentences


def test_nsp_at_chance_while_mlm_falls() -> None:
    log = level(healthy(), "nsp_accuracy", lambda s: 0.5 + wave(s))
    finding = the("nsp-at-chance", log)
    assert "NSP accuracy 50." in finding.text or "NSP accuracy 49." in finding.text


def test_nsp_above_chance_and_nsp_with_few_pairs_are_not_judged() -> None:
    assert kinds(level(healthy(), "nsp_accuracy", lambda s: 0.54 + wave(s))) == []
    guessing = level(healthy(), "nsp_accuracy", lambda s: 0.5)
    few = [row for row in guessing if row["step"] <= 2000]
    assert kinds(few, batch_size=1) == []
    assert kinds(few) == ["nsp-at-chance"]
    assert kinds([{k: v for k, v in row.items() if k != "nsp_accuracy"} for row in few]) == []


# Divergence


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("key", ["loss", "mlm_loss", "grad_norm", "eval_mlm_loss"])
def test_a_number_that_is_none_is_a_fault(key: str, value: float) -> None:
    log = healthy()
    log[120][key] = value
    finding = the("not-finite", log)
    assert finding.severity == "fault"
    assert f"{key} is {value} at step {log[120]['step']:,}" in finding.text
    assert diagnose(log, FACTS)[0] == finding


def test_a_loss_that_rises_well_above_its_minimum() -> None:
    def loss(step: int) -> float:
        return (4.0 if step < 6000 else 4.0 + (step - 6000) / 2000) + wave(step)

    log = level(level(healthy(), "mlm_loss", loss), "grad_norm", lambda s: 9.0 if s > 8900 else 1.0)
    finding = the("diverged", log)
    assert finding.severity == "fault"
    for figure in ("from 4.00 about step 6,", "to 5.7", "rate (0.001)", "from 1 to 9"):
        assert figure in finding.text, finding.text


def test_a_rate_that_is_too_high_is_told_from_the_warm_up() -> None:
    """The loss was lowest before the rate had come to its height."""

    def loss(step: int) -> float:
        return 6.0 + abs(step - 1000) / 2000 + wave(step)

    log = [row for row in level(healthy(400), "mlm_loss", loss) if row["step"] <= 3500]
    log = level(log, "learning_rate", lambda s: 1e-2 * min(1, s / 2000))
    finding = the("diverged", log, warmup_steps=2000, learning_rate=1e-2)
    assert "still rising" in finding.text
    assert "0.005" in finding.text


def test_a_rise_with_longer_sequences_is_none_of_it() -> None:
    """At the change to another length the loss rises; the run is judged from there."""
    log = level(healthy(), "mlm_loss", lambda s: (4.0 if s <= 9000 else 5.2 - s / 20_000) + wave(s))
    log = level(log, "tokens_per_second", lambda s: 20_000 if s <= 9000 else 9_000)
    assert {"diverged", "slower"} & set(kinds(log))
    assert kinds(log, phase_starts=[0, 9000]) == []


def test_gradient_spikes() -> None:
    log = healthy()
    log[150]["grad_norm"] = 60.0
    finding = the("gradient-spikes", log)
    assert f"60 at step {log[150]['step']:,}" in finding.text
    assert "1 of 190" in finding.text
    early = healthy()
    early[3]["grad_norm"] = 60.0  # warm-up
    assert kinds(early) == []
    assert "gradient-spikes" not in kinds(log, task="text")


# Length of training


def test_a_loss_that_still_falls_fast_at_the_end() -> None:
    log = level(healthy(), "mlm_loss", lambda s: 9.5 - 0.5 * math.log2(max(s, 2)) + wave(s))
    finding = the("still-falling", log)
    assert finding.severity == "advice"
    assert "0.50 nats for a doubling" in finding.text
    assert "20,000 steps" in finding.text
    slow = level(healthy(), "mlm_loss", lambda s: 5.5 - 0.1 * math.log2(max(s, 2)) + wave(s))
    assert kinds(slow) == []


def test_many_epochs_over_little_data() -> None:
    finding = the("many-epochs", healthy(), num_tokens=812_345)
    assert "seen 98 times" in finding.text
    assert "810,000 tokens" in finding.text
    assert kinds(healthy(), num_tokens=2_500_000) == []  # 32 times


def test_warm_up_for_most_of_the_run() -> None:
    finding = the("warm-up", healthy(), warmup_steps=9000)
    assert "9,000 of 10,000" in finding.text
    assert "warm-up" not in kinds(healthy(), warmup_steps=4000)


# Held-out text


def held_out(log: Log, of: Any) -> Log:
    """`log` with lines of evaluations between its own, every 1,000 steps."""
    lines = [*log, *({"step": s, "eval_mlm_loss": of(s)} for s in range(1000, 10_001, 1000))]
    return sorted(lines, key=lambda row: row["step"])


def test_overfitting() -> None:
    log = held_out(healthy(), lambda s: 4.0 + abs(s - 5000) / 10_000)
    finding = the("overfitting", log)
    assert "lowest at step 5,000 (4.000)" in finding.text
    assert "4.500 at step 10,000" in finding.text


def test_held_out_loss_that_falls_or_wavers_is_no_overfitting() -> None:
    assert kinds(held_out(healthy(), lambda s: 4.2 - s / 20_000)) == []
    assert kinds(held_out(healthy(), lambda s: 4.0 + 2 * abs(wave(s)))) == []
    last_only = held_out(healthy(), lambda s: 4.5 if s == 10_000 else 4.2 - s / 20_000)
    assert kinds(last_only) == []


def test_held_out_loss_that_rises_with_the_training_loss_is_no_overfitting() -> None:
    log = held_out(
        level(healthy(), "mlm_loss", lambda s: 3.9 + abs(s - 5000) / 20_000 + wave(s)),
        lambda s: 4.0 + abs(s - 5000) / 10_000,
    )
    assert "overfitting" not in kinds(log)


def test_a_classifier_that_grows_too_sure_but_answers_better_is_fine() -> None:
    log: Log = [{"step": s, "loss": 1.0 - s / 400, "accuracy": 0.9} for s in range(10, 301, 10)]
    for step, loss, worse, better in (
        (100, 0.40, 0.90, 0.90),
        (200, 0.50, 0.85, 0.91),
        (300, 0.60, 0.80, 0.92),
    ):
        log[step // 10 - 1] |= {"eval_loss": loss, "worse": worse, "better": better}
    facts = {"task": "text", "steps": 300, "warmup_steps": 30, "learning_rate": 5e-5}

    def with_accuracy(key: str) -> list[str]:
        rows = [{**row, "eval_accuracy": row[key]} if key in row else row for row in log]
        return [finding.kind for finding in diagnose(rows, facts)]

    assert with_accuracy("worse") == ["overfitting"]
    assert with_accuracy("better") == []


def test_a_collapsed_classifier() -> None:
    """Of which no more is known: the log has no losses."""
    log = [{"step": 200}]
    final = {"collapsed": True, "majority_share": 0.352}
    (found,) = diagnose(log, {"task": "text", "final": final})
    assert (found.kind, found.severity) == ("collapsed", "fault")
    assert "35.2%" in found.text
    # A regression has no classes.
    (found,) = diagnose(log, {"task": "regression", "final": {"collapsed": True}})
    assert found.text.startswith("all validation examples get the same answer. Train again")
    assert diagnose(log, {"task": "text", "final": {"collapsed": False}}) == []


# The machine, the corpus


def test_speed_that_drops() -> None:
    log = level(healthy(), "tokens_per_second", lambda s: 20_000 - s + 3000 * wave(s))
    finding = the("slower", log)
    assert "tokens a second until step 2,0" in finding.text


def test_speed_that_is_restless_is_no_drop() -> None:
    """Other programs on the machine: up and down by half, at the end too."""
    log = level(healthy(), "tokens_per_second", lambda s: 20_000 * (1 + 0.5 * math.sin(s)))
    assert kinds(log) == []


@pytest.mark.parametrize(("share", "said"), [(0.1, ""), (0.3, "30%"), (0.7, "mostly duplicates")])
def test_copies_in_the_corpus(share: float, said: str) -> None:
    found = diagnose(healthy(), {**FACTS, "duplicate_share": share})
    assert [one.kind for one in found] == (["duplicates"] if said else [])
    assert said in "".join(one.text for one in found)


# Replaced tokens


def replacing(recall: Callable[[int], float], replaced: float = 0.11) -> Log:
    """A healthy log of a generator, with a detector that detects the share `recall` of what it
    replaced, by the step."""
    log = level(healthy(), "rtd_loss", lambda step: 0.35 + wave(step) / 20)
    log = level(log, "rtd_replaced", lambda step: replaced + wave(step) / 100)
    log = level(log, "rtd_detected", lambda step: replaced * recall(step))
    return [
        {key.replace("mlm", "generator"): v for key, v in row.items() if not key.startswith("nsp")}
        for row in log
    ]


def test_a_detector_at_chance_is_reported_and_a_learning_one_is_not() -> None:
    entropy = -0.11 * math.log(0.11) - 0.89 * math.log(0.89)
    finding = the("rtd-at-chance", replacing(lambda step: 0.004), objective="rtd")
    assert "0.4% of the replaced tokens were detected, which are 11.0% of all" in finding.text
    assert f"knowing their share alone gives {entropy:.3f}" in finding.text
    assert "Generator MLM loss has come down" in finding.text
    assert "\n" not in finding.text
    learning = replacing(lambda step: 0.5 * (1 - math.exp(-step / 4000)))
    assert kinds(learning, objective="rtd") == []
    # No detector knows the tokens of a generator that has learnt nothing yet.
    stuck = level(replacing(lambda step: 0.0), "generator_loss", lambda step: ENTROPY + wave(step))
    assert "rtd-at-chance" not in kinds(stuck, objective="rtd")


def test_a_generator_is_judged_as_any_model_of_masked_words() -> None:
    """Of the shares that are left in place it has its own."""
    floor = 0.85 * ENTROPY
    log = replacing(lambda step: 0.3)
    log = level(log, "generator_loss", lambda step: floor + 0.02 + wave(step) / 9)
    split = [0.85, 0.0, 0.15]
    assert kinds(log, objective="rtd", mask_split=split) == ["stalled"]
    stalled = the("stalled", log, objective="rtd", mask_split=split)
    assert stalled.text.startswith("Generator MLM loss ")


def test_a_detector_that_diverges_is_named() -> None:
    """Its generator goes on as before."""
    log = replacing(lambda step: 0.3)
    end = max(row["step"] for row in log)
    log = level(log, "rtd_loss", lambda step: 0.3 if step < end / 2 else 0.8 + wave(step) / 20)
    assert "the RTD loss rose from 0.30" in the("diverged", log, objective="rtd").text
