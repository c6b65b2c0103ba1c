"""How long, in which batches and at which rate a run is trained where nobody says."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scipy.stats
import torch
from tests import toys
from tests.toys import log

import bertine
from bertine.core.names import OptimizerName
from bertine.core.scores import clearly_better
from bertine.families.bert import BertConfig
from bertine.families.presets import PRESETS
from bertine.models.config import Config
from bertine.options.finetuning import FinetuneOptions
from bertine.options.pretraining import PretrainOptions
from bertine.options.vectors import SimilarityOptions
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression
from bertine.training.defaults import (
    TrainingPlan,
    epochs_for,
    pretraining_config,
    rate_for,
    similarity_config,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def config(hidden_size: int, layers: int = 6) -> BertConfig:
    sizes = {"hidden_size": hidden_size, "num_attention_heads": hidden_size // 64}
    return dataclasses.replace(PRESETS["bert-mini"], num_hidden_layers=layers, **sizes)


def planned(sizes: Config, num_examples: int, task: Any = None, **options: Any) -> TrainingPlan:
    return TrainingPlan.of(FinetuneOptions(**options), sizes, num_examples, task)


def test_fewer_examples_are_passed_over_more_often() -> None:
    numbers = [10, 100, 300, 1_000, 3_000, 16_000, 400_000]
    epochs = [epochs_for(number) for number in numbers]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[-1] == epochs[-2] == 3  # as in the paper
    # And yet never in fewer updates.
    steps = [number * epochs_for(number) for number in numbers]
    assert steps == sorted(steps)


def test_classes_are_those_of_texts() -> None:
    labels = ("a", "b", "c")
    assert TextClassification(labels, ("text",), "label", 16).num_classes == 3
    assert MultiLabel(labels, ("text",), "label", 16).num_classes == 3
    assert TextRegression(("text",), "label", 16).num_classes == 0
    assert Tagging(("O", "B-x", "I-x")).num_classes == 0


def test_wider_and_deeper_models_are_trained_at_lower_rates() -> None:
    assert [rate_for(config(width, 4)) for width in (64, 128, 256)] == [5e-4] * 3
    assert [rate_for(config(384, layers)) for layers in (1, 2, 3, 4, 6, 12)] == [
        *(1e-3, 6e-4, 4e-4, 3e-4),
        *(2e-4, 2e-4),
    ]
    # The papers' rates, for the models of the papers.
    assert [rate_for(config(width, 12)) for width in (768, 1024)] == [5e-5, 3e-5]


@pytest.mark.parametrize(
    ("model", "task", "recipe"),
    [
        # Epochs, batch, rate, warm-up, weight decay, layer decay, as the papers print them.
        ("bert-base", "swag", (3, 16, 2e-5, None, None, None)),
        ("bert-base", "squad/v1.1", (3, 32, 5e-5, None, None, None)),
        ("bert-base", "tagging", (3, 32, 5e-5, None, None, None)),
        ("roberta-base", "glue/RTE", (10, 16, 2e-5, 0.06, 0.1, None)),
        ("albert-base", "swag", (3, 16, 2e-5, None, None, None)),  # none of its own
        ("electra-small", "glue/STS-B", (10, 32, 3e-4, 0.1, 0.0, 0.8)),
        ("openai-gpt", "text", (3, 32, 6.25e-5, 0.002, None, None)),
        ("distilbert-base", "glue/CoLA", (3, 32, 5e-5, None, None, None)),
    ],
)
def test_a_paper_has_a_recipe_by_task_and_family(
    model: str, task: str, recipe: tuple[float | None, ...]
) -> None:
    kind: Any = SimpleNamespace(
        name=task, reads_whole_texts=True, task_info=lambda: SimpleNamespace(dataset=None)
    )
    found = planned(PRESETS[model], 1_000, kind, paper=True)
    assert found.paper is not None
    said = (found.paper.warmup_ratio, found.paper.weight_decay, found.paper.layer_decay)
    assert (found.epochs, found.batch_size, found.learning_rate, *said) == recipe
    assert found.save_best is False
    # What a user says goes before.
    options = FinetuneOptions(paper=True, layer_decay=0.5)
    fit = found.config(options, 100, CPU, "fp32")
    assert (fit.layer_decay, fit.steps) == (0.5, 100 * found.epochs)
    assert fit.warmup_steps == round(fit.steps * (0.1 if said[0] is None else said[0]))
    assert fit.weight_decay == (0.01 if said[1] is None else said[1])


def test_only_a_gpu_compiles_and_every_training_has_its_length_and_rate() -> None:
    usual = PretrainOptions(optimizer="lamb")
    fit, every = pretraining_config(usual, 400, 2, GPU, "bf16")
    assert (fit.learning_rate, fit.warmup_steps, fit.checkpoint_every, every) == (1e-3, 4, 1000, 20)
    assert (fit.compile, fit.workers, fit.precision) == (True, 2, "bf16")
    never = PretrainOptions(compile=False, checkpoint_every=None, hours=2.0)
    for device, compiled in ((GPU, False), (CPU, None)):
        fit, _ = pretraining_config(never, 400, 0, device, "fp32")
        assert (fit.compile, fit.checkpoint_every, fit.budget_seconds) == (compiled, None, 7200)
    for device, wanted, compiled in ((GPU, True, True), (GPU, False, None), (CPU, True, None)):
        options = FinetuneOptions(compile=wanted, schedule="one-cycle", frozen=wanted)
        fit = planned(config(384), 100).config(options, 7, device, "fp32")
        assert (fit.compile, fit.checkpoint_every) == (compiled, 7)
        assert (fit.steps, fit.warmup_steps) == ((1, 0) if wanted else (161, 80))
    for rows, epochs in ((10_000, 4), (10_001, 1)):
        fit, every = similarity_config(SimilarityOptions(), config(384), rows, 1_500, "fp32")
        assert (fit.steps, fit.learning_rate, fit.compile) == (epochs * 1_500, 2e-5, None)
        assert (every, fit.checkpoint_every) == (1_000, 1_000)


def test_what_is_said_goes_before_the_rule() -> None:
    model = config(384)
    plan = planned(model, 1_000)
    assert (plan.epochs, plan.batch_size, plan.learning_rate, plan.chosen) == (9, 16, 2e-4, True)
    paper = planned(model, 1_000, paper=True)
    assert (paper.epochs, paper.batch_size, paper.learning_rate) == (3, 32, 5e-5)
    assert (paper.save_best, plan.save_best) == (False, None)
    assert planned(model, 1_000, paper=True, epochs=4).epochs == 4
    said = planned(model, 1_000, epochs=2, batch_size=8, learning_rate=1e-5, patience=1)
    assert (said.epochs, said.batch_size, said.learning_rate, said.chosen) == (2, 8, 1e-5, False)
    assert said.save_best is True
    assert planned(model, 1_000, patience=1, save_best=False).save_best is False


def test_chance_on_few_examples_is_told_from_a_better_epoch() -> None:
    """Of 30 examples two more right are nothing, of 3,000 two hundred are something."""
    assert not clearly_better("accuracy", 22 / 30, 20 / 30, 30)
    assert clearly_better("accuracy", 2_200 / 3_000, 2_000 / 3_000, 3_000)
    assert not clearly_better("spearman", 0.62, 0.60, 30)
    assert clearly_better("spearman", 0.65, 0.60, 3_000)
    assert clearly_better("f1", 0.1, 0.0, 30)  # the last epoch found nothing
    assert not clearly_better("accuracy", 0.8, 0.8, 30)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 10, 100])
def test_one_or_two_examples_are_never_more_than_chance(count: int) -> None:
    """A standard error alone said so: of no right answers it is 0."""
    for metric in ("accuracy", "f1"):
        for last in range(count + 1):
            for more in range(3):
                best = min(count, last + more)
                assert not clearly_better(metric, best / count, last / count, count)
    # Of as many examples in two classes Matthews rises twice as fast.
    assert not clearly_better("matthews", 4 / count - 1, -1.0, count)


def test_three_examples_are_more_than_chance_by_the_level_of_a_standard_error() -> None:
    level = 1 - statistics.NormalDist().cdf(1.0)
    assert scipy.stats.binomtest(3, 3, alternative="greater").pvalue < level
    assert scipy.stats.binomtest(2, 2, alternative="greater").pvalue > level
    assert clearly_better("accuracy", 3 / 4, 0.0, 4)
    assert clearly_better("accuracy", 3 / 100, 0.0, 100)
    assert clearly_better("matthews", 0.5, -1.0, 4)
    assert not clearly_better("pearson", 1.0, -1.0, 2)  # of two pairs it is one or the other


@pytest.mark.parametrize("count", [50, 100, 1_000])
def test_with_many_examples_the_standard_error_decides(count: int) -> None:
    for last in range(count // 10, count - count // 10 + 1):
        error = math.sqrt(last / count * (1 - last / count) / count)
        for more in range(1 + count // 10):
            best = (last + more) / count
            told = clearly_better("accuracy", best, last / count, count)
            assert told is (best > last / count + error)


@pytest.mark.takes(6)
def test_a_run_as_it_comes_learns_from_few_labels(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A toy with 40 examples, which the paper's protocol gives 6 updates."""
    data = toys.write_labelled(tmp_path / "few.csv", rows=40)
    learner = bertine.finetune("text", model=model, data=data, out=tmp_path / "run", max_length=16)
    said = capsys.readouterr().err
    assert "36 examples: 25 epochs, batches of 16, learning rate 1e-3" in said
    paper = bertine.finetune(
        "text", model=model, data=data, out=tmp_path / "paper", max_length=16, paper=True
    )
    assert log(tmp_path / "run")[-1]["step"] == 75
    assert log(tmp_path / "paper")[-1]["step"] == 6
    held_out = toys.write_labelled(tmp_path / "other.csv", rows=100, seed=5)
    assert learner.validate(held_out).metrics["accuracy"] > 0.9
    assert paper.validate(held_out).metrics["accuracy"] < 0.9


@pytest.mark.parametrize(("name", "factor"), [("adamw", 1), ("lamb", 10), ("muon", 3)])
def test_the_usual_rate_is_that_of_the_optimizer(name: OptimizerName, factor: int) -> None:
    base = config(768)
    rate = planned(base, 1000, optimizer=name).learning_rate
    assert rate == pytest.approx(factor * planned(base, 1000).learning_rate)
    assert planned(base, 1000, optimizer=name, learning_rate=1e-3).learning_rate == 1e-3
