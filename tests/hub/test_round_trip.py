"""Model directories of our own: what is saved comes back; what is new or dropped is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bertine.core.errors import BertineError
from bertine.hub.model_directory import (
    TaskInfo,
    load_config,
    load_model,
    save_model,
)
from bertine.models.heads import ClassificationHead, MlmHead, Model
from bertine.reports.inspect import describe_model
from bertine.tokenization.tokenizer import Tokenizer
from hub.models import (
    CONFIG,
    backbone,
    classifier_model,
    close,
    fine_tune_start,
    pretraining_model,
    scrambled,
)


def test_a_saved_model_comes_back_bit_for_bit_with_its_task(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = classifier_model()
    task = TaskInfo(
        name="text",
        labels=("bad", "fair", "gööd"),
        text_columns=("question", "answer"),
        label_column="verdict",
        max_length=17,
        training={"seed": 3, "learning_rate": 5e-5, "accuracy": [0.5, 0.75]},
    )
    save_model(tmp_path / "m", model, tokenizer, task=task)
    loaded = load_model(tmp_path / "m")
    assert loaded.task == task
    # transformers cuts texts where this model does.
    assert json.loads((tmp_path / "m/tokenizer_config.json").read_text())["model_max_length"] == 17
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    assert not loaded.model.training
    state = loaded.model.state_dict()
    assert state.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(state[name], tensor), name
    assert all(p.requires_grad for p in loaded.model.parameters())
    assert load_config(tmp_path / "m") == CONFIG
    described = "\n".join(describe_model(tmp_path / "m"))
    assert "labels (3): bad, fair, gööd" in described
    assert "text from question and answer, label from verdict, at most 17 tokens" in described


def test_saving_writes_the_files_of_a_hugging_face_folder(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {
        "config.json",
        "model.safetensors",
        "vocab.txt",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_failed_save_leaves_the_old_folder(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Tokenizer, "save", full)
    with pytest.raises(BertineError, match="disk is full"):
        save_model(tmp_path / "m", classifier_model(), tokenizer)
    assert {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


# New and dropped parts


def test_a_new_head_is_drawn_from_the_seed_and_reported(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = pretraining_model()
    save_model(tmp_path / "m", model, tokenizer)
    first = fine_tune_start(tmp_path / "m", seed=1)
    assert first.report.lines() == [
        "loaded 39 tensors: encoder, pooler; new (random): classifier; dropped: MLM head, NSP head",
    ]
    weight = first.model.heads["classifier"].out.weight
    assert 0 < weight.abs().max() <= 0.04
    assert (first.model.heads["classifier"].out.bias == 0).all()
    close(backbone(first.model)[1], backbone(model)[1])
    again = fine_tune_start(tmp_path / "m", seed=1).model.heads["classifier"].out.weight
    other = fine_tune_start(tmp_path / "m", seed=2).model.heads["classifier"].out.weight
    assert torch.equal(weight, again)
    assert not torch.equal(weight, other)


def test_loading_leaves_torch_s_random_state_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    heads = {"classifier": ClassificationHead(CONFIG, 2), "mlm": MlmHead(CONFIG)}
    before = torch.get_rng_state()
    load_model(tmp_path / "m", heads=heads)
    load_model(tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_head_that_needs_a_pooler_gets_a_new_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = scrambled(Model(CONFIG, {"mlm": MlmHead(CONFIG)}, add_pooler=False))
    save_model(tmp_path / "m", model, tokenizer)
    loaded = fine_tune_start(tmp_path / "m", seed=0)
    assert loaded.report.lines()[0].split("; ")[1] == "new (random): pooler, classifier"
    pooler = loaded.model.backbone.pooler
    assert pooler is not None
    assert 0 < pooler.weight.abs().max() <= 0.04
    assert (pooler.bias == 0).all()


def test_a_classifier_for_other_labels_is_replaced_and_said(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    save_model(tmp_path / "m", classifier_model(3), tokenizer)
    loaded = fine_tune_start(tmp_path / "m", seed=0, labels=5)
    (line,) = loaded.report.lines()
    assert line.endswith("; new (random): classifier; dropped: classifier (3 labels)")
    assert loaded.model.heads["classifier"].out.weight.shape == (5, 12)
    same_size = fine_tune_start(tmp_path / "m", seed=0, labels=3)
    assert same_size.report.new == []
    renewed = fine_tune_start(tmp_path / "m", seed=0, labels=3, fresh=("classifier",))
    assert renewed.report.new == ["classifier.weight", "classifier.bias"]
    assert renewed.model.heads["classifier"].out.weight.abs().max() <= 0.04
    with pytest.raises(ValueError, match="fresh names no head"):
        load_model(tmp_path / "m", heads={}, fresh=("classifier",))
