"""Distilling on a token store: the student, the run, exact resuming, mistakes in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.families.roberta import RobertaConfig
from bertine.hub.model_directory import load_model
from bertine.models.heads import Model, new_head
from bertine.training.distillation.student import (
    add_projections,
    every_other,
    make_student,
    plan_student,
)

#: What keeps a run short.
SHORT: dict[str, Any] = {
    "steps": 12,
    "max_seq_length": 32,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "log_every": 4,
    "checkpoint_every": 6,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(
        tmp_path_factory.mktemp("teacher") / "model", num_hidden_layers=4, initializer_range=0.2
    )


def batch_of(text_ids: list[list[int]]) -> Batch:
    ids = torch.tensor(text_ids)
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))


def test_every_other_layer_is_as_published() -> None:
    assert every_other(12) == (0, 2, 4, 7, 9, 11)
    assert every_other(6) == (0, 2, 5)
    assert every_other(4) == (0, 3)
    assert every_other(12, 1) == (0,)
    assert every_other(12, 12) == tuple(range(12))
    assert every_other(24) == tuple(sorted(every_other(24)))


@pytest.mark.parametrize("student", [None, "distilbert"])
def test_all_layers_are_the_teacher(teacher: Path, student: str | None) -> None:
    """With its embeddings and its head; of a type without token types that of the first segment
    goes into the positions."""
    loaded = load_model(teacher)
    plan = plan_student(loaded.config, student, [0, 1, 2, 3])
    made, taken = make_student(plan, loaded.model, lambda config: new_head(config, "mlm"), seed=0)
    assert set(made.state_dict()) == set(taken)
    batch = batch_of([[2, 5, 9, 12, 7, 3], [2, 6, 8, 3, 9, 3]])
    places = torch.arange(12)
    ours, theirs = (
        model.eval().read("mlm", model.encode(batch), places=places)
        for model in (made, loaded.model)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    dropped, _ = make_student(
        plan, loaded.model, lambda config: new_head(config, "mlm"), seed=0, token_types="drop"
    )
    positions = "backbone.embeddings.position_embeddings.weight"
    published = loaded.model.state_dict()[positions]
    assert torch.equal(dropped.state_dict()[positions], published)
    assert torch.equal(made.state_dict()[positions], published) == (student is None)


def test_chosen_layers_of_a_roberta_become_a_distilbert() -> None:
    """Whose positions begin at 0."""
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=22,
        type_vocab_size=1,
        layer_norm_eps=1e-12,
        initializer_range=0.2,
    )
    teacher = Model(config, new_head(config, "mlm")).eval()
    plan = plan_student(config, "distilbert", [0, 1, 2])
    made, _ = make_student(plan, teacher, lambda config: new_head(config, "mlm"), seed=0)
    batch = batch_of([[0, 5, 9, 12, 2]])
    ours, theirs = (m.eval().encode(batch).last_hidden_state for m in (made, teacher))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert plan.config.longest_input == config.longest_input
    # Its file has no place for another epsilon, so it is not trained with one either.
    assert plan_student(config.replace(layer_norm_eps=1e-5), "distilbert", [0]).config == (
        plan.config.replace(num_hidden_layers=1)
    )


def test_new_weights_are_a_function_of_the_seed(teacher: Path) -> None:
    """Or processes of a run would not begin alike, nor a run that is resumed."""
    loaded = load_model(teacher)
    plan = plan_student(loaded.config, "bert-tiny", None)
    made = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(made))
        student, _ = make_student(
            plan, loaded.model, lambda config: new_head(config, "mlm"), seed=seed
        )
        add_projections(student, loaded.model, ["hidden"], seed)
        made.append(student.fingerprint())
    assert made[0] == made[1] != made[2]


def test_a_student_of_the_teachers_sizes_can_begin_at_random(teacher: Path, tmp_path: Path) -> None:
    loaded = load_model(teacher)
    half = plan_student(loaded.config, None, None)
    plan = plan_student(loaded.config, None, None, fresh_weights=True)
    assert (plan.config, plan.layers) == (half.config, None)
    assert plan.line(loaded.config).endswith("begins with random weights")
    made, taken = make_student(plan, loaded.model, lambda config: new_head(config, "mlm"), seed=0)
    assert not taken
    embeddings = "backbone.embeddings.word_embeddings.weight"
    assert not torch.equal(made.state_dict()[embeddings], loaded.model.state_dict()[embeddings])
    with pytest.raises(BertineError, match="layers and fresh_weights=True say different things"):
        plan_student(loaded.config, None, [0], fresh_weights=True)
    with pytest.raises(BertineError, match="has weights of its own; leave out fresh_weights"):
        plan_student(loaded.config, teacher, None, fresh_weights=True)


def test_a_preset_of_another_width_begins_at_random(teacher: Path) -> None:
    config = load_model(teacher).config
    plan = plan_student(config, "bert-tiny", None)
    assert plan.layers is None
    assert plan.config.vocab_size == config.vocab_size
    with pytest.raises(BertineError, match="bert-tiny: has another hidden_size than the teacher"):
        plan_student(config, "bert-tiny", [0, 1])


@pytest.mark.takes(4)
def test_a_student_is_trained_resumed_and_fine_tuned(
    store: Path, teacher: Path, labelled: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        **SHORT,
        "teacher": teacher,
        "student": "distilbert",
        "hidden_weight": 1.0,
        "attention_weight": 1.0,
        "freeze_positions": True,
    }
    whole = bertine.distill(store, out=tmp_path / "whole", **options)
    assert "MLM loss" in "\n".join(whole.lines())
    log = toys.log(tmp_path / "whole")
    terms = ["mlm", "soft", "cosine", "hidden", "attention"]
    assert [key for key in log[-1] if key.endswith("_loss")] == [f"{name}_loss" for name in terms]
    assert log[-1]["soft_loss"] < log[0]["soft_loss"]
    weights = dict(zip(terms, (2.0, 5.0, 1.0, 1.0, 1.0), strict=True))
    total = sum(weight * log[-1][f"{name}_loss"] for name, weight in weights.items())
    assert log[-1]["loss"] == pytest.approx(total)
    settings = json.loads((tmp_path / "whole" / "run.json").read_text())["settings"]
    assert settings["teacher_fingerprint"] == load_model(teacher).model.fingerprint()
    assert settings["distillation"]["layers"] == [0, 3]

    # The teacher is not in the checkpoints: twelve steps hold the student twelve steps old alone.
    newest = max((tmp_path / "whole" / "checkpoints").iterdir())
    size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    assert size < 3.3 * (tmp_path / "whole" / "model" / "model.safetensors").stat().st_size

    def stop(step: int) -> None:
        shutil.copytree(tmp_path / "whole", tmp_path / "cut")
        shutil.rmtree(tmp_path / "cut" / "model")
        shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000012")

    stop(6)
    bertine.distill(store, out=tmp_path / "cut", resume=True, **options)
    ours, theirs = (toys.weights(tmp_path / name / "model") for name in ("whole", "cut"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert toys.log(tmp_path / "cut") == log
    with pytest.raises(BertineError, match=r"started with distillation.soft_weight = 5\.0, not 4"):
        bertine.distill(store, out=tmp_path / "cut", resume=True, **options, soft_weight=4.0)
    other = toys.write_model(tmp_path / "other", num_hidden_layers=4, seed=5)
    with pytest.raises(BertineError, match="another"):
        bertine.distill(store, out=tmp_path / "cut", resume=True, **{**options, "teacher": other})

    positions = "distilbert.embeddings.position_embeddings.weight"
    source = load_model(teacher).model.state_dict()
    types = source["backbone.embeddings.token_type_embeddings.weight"][0]
    begun = source["backbone.embeddings.position_embeddings.weight"] + types
    torch.testing.assert_close(ours[positions], begun)
    learner = bertine.finetune(
        "text", model=tmp_path / "whole", data=labelled, out=tmp_path / "task", epochs=1
    )
    assert len(learner.predict(["the old cat sleeps"])) == 1


def test_a_batch_is_a_function_of_the_seed_and_the_step(store: Path, teacher: Path) -> None:
    """With rarer words masked more, too."""
    from functools import partial

    from bertine.corpora.collators import TokenMasking, rarer_first
    from bertine.corpora.store import TokenStore

    opened = TokenStore.open(store)
    odds = rarer_first(opened.unigram_counts, 0.7)
    made = [
        toys.instances_of(
            opened,
            toys.tokenizer(),
            partial(TokenMasking, odds=odds),
            batch_size=8,
            max_seq_length=32,
            masking=masking,
            seed=4,
        )
        for masking in ("dynamic", "dynamic", "static")
    ]
    made[0].batch(7)
    for step in (3, 0):
        a, b = made[0].batch(step), made[1].batch(step)
        assert torch.equal(a.input_ids, b.input_ids)
        assert torch.equal(a.targets["mlm_labels"], b.targets["mlm_labels"])
    plain = toys.instances_of(opened, toys.tokenizer(), batch_size=8, max_seq_length=32, seed=4)
    usual, dynamic, static = (
        np.concatenate([data.batch(step).targets["mlm_labels"].numpy() for step in range(80)])
        for data in (plain, made[0], made[2])
    )
    counts = opened.unigram_counts
    assert len(dynamic) == len(static) == len(usual)
    for labels in (dynamic, static):
        assert counts[labels].mean() < 0.8 * counts[usual].mean()


@pytest.mark.parametrize("progressive", [None, 3])
def test_another_width_is_projected_or_left_out(
    store: Path,
    teacher: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    progressive: int | None,
) -> None:
    config = {"model_type": "bert", **toys.config(hidden_size=16, num_hidden_layers=2).to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options: dict[str, Any] = {**SHORT, "teacher": teacher, "student": tmp_path / "config.json"}
    bertine.distill(store, out=tmp_path / "without", **{**options, "steps": 2})
    assert "the cosine of the last states is left out" in capsys.readouterr().err
    assert "cosine_loss" not in toys.log(tmp_path / "without")[-1]
    maps = {"hidden_weight": 1.0, "layer_loss": "mobilebert", "progressive_steps": progressive}
    bertine.distill(store, out=tmp_path / "with", cosine_projection=True, **maps, **options)
    log = toys.log(tmp_path / "with")
    assert log[-1]["cosine_loss"] < 1.5
    assert ("soft_loss" in log[0]) == (progressive is None)
    assert toys.weights(tmp_path / "with" / "model").keys() == (
        toys.weights(tmp_path / "without" / "model").keys()
    )


@pytest.mark.slow
def test_options_that_do_nothing_are_said(
    store: Path, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once for each, before the first step; a run with those that matter says nothing of them."""

    def said(name: str, **options: Any) -> set[str]:
        given: dict[str, Any] = {**SHORT, "steps": 1, **options}
        bertine.distill(store, teacher=teacher, out=tmp_path / name, **given)
        lines = capsys.readouterr().err.splitlines()
        return {line.partition("warning: ")[2] for line in lines if "does nothing" in line}

    assert said(
        "a",
        soft_weight=0.0,
        temperature=3.0,
        soft_tokens="masked",
        cosine_projection=True,
        layer_loss="mobilebert",
        token_types="drop",
    ) == {
        "temperature=3.0 does nothing: soft_weight=0 leaves out the soft targets",
        "soft_tokens='masked' does nothing: soft_weight=0 leaves out the soft targets",
        "cosine_projection=True does nothing: student and teacher have the same width",
        "layer_loss='mobilebert' does nothing: no layers are compared; give hidden_weight or "
        "attention_weight",
        "token_types='drop' does nothing: the student has token types of its own",
    }
    assert said("b", cosine_weight=0.0, cosine_projection=True, student=teacher) == {
        "cosine_projection=True does nothing: cosine_weight=0 leaves out the cosine"
    }
    assert said("c", student="bert-tiny", token_types="drop") == {
        "token_types='drop' does nothing: the student does not begin as layers of its teacher"
    }
    used: dict[str, Any] = {"temperature": 3.0, "soft_tokens": "masked", "token_types": "drop"}
    used |= {"layer_loss": "mobilebert", "attention_weight": 1.0, "student": "distilbert"}
    assert said("d", **used) == set()


def test_mistakes_are_one_line(store: Path, teacher: Path, labelled: Path, tmp_path: Path) -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(BertineError, match=match) as error:
            bertine.distill(
                store, out=tmp_path / "out", **{"teacher": teacher, "steps": 1, **options}
            )
        assert "\n" not in str(error.value)
        assert not (tmp_path / "out").exists()

    refused("is a token store, on which a student learns from a model", teacher=None)
    refused(
        "label_weight is for task, but this is lm: .* is a token store",
        label_weight=0.3,
    )
    refused("layers names layer 4, but the teacher has 0 to 3", layers=[0, 4])
    refused("names a layer of the teacher twice", layers=[1, 1])
    refused("say how long to train", steps=None)
    refused("progressive_steps trains single layers", progressive_steps=2)
    refused("all weights are 0", soft_weight=0.0, mlm_weight=0.0, cosine_weight=0.0)
    refused(
        "the student has no token type embeddings",
        student="distilbert",
        freeze_token_types=True,
        max_seq_length=32,
    )
    task = toys.write_classifier(tmp_path / "task")
    refused("has no MLM head", teacher=task)
    refused("has weights of its own, so it takes no layers", student=teacher, layers=[0])
    other = tmp_path / "words"
    shutil.copytree(teacher, other)
    (other / "vocab.txt").write_text(
        (other / "vocab.txt").read_text().replace("sofa", "couch"), encoding="utf-8"
    )
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["couch"] = tokenizer["model"]["vocab"].pop("sofa")
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused("the teacher's vocabulary is not that of the store", teacher=other)
    refused("the student's vocabulary is not that of the teacher", student=other, max_seq_length=32)
    with pytest.raises(BertineError, match="soft_weight is for lm, but this is task"):
        bertine.distill(labelled, teacher=task, out=tmp_path / "out", soft_weight=1.0)
