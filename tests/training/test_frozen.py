"""``frozen``: the head alone is fitted; the published architecture gives the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import toys
from bertine.core.errors import BertineError
from bertine.families.fitted_heads import add_mean_layer
from bertine.hub.model_directory import load_model
from bertine.inference.predictor import Predictor
from bertine.options.declare import declared
from bertine.options.finetuning import OF_TRAINING, FinetuneOptions
from bertine.tasks.base import Task
from bertine.tasks.classification import TextClassification
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.linear_probe import check_frozen


def _frozen(task: str, model: Path, data: Path, out: Path, **options: Any) -> Learner:
    return finetune(task, model=model, data=data, out=out, frozen=True, precision="fp32", **options)


def test_a_layer_on_top_makes_the_mean_of_all_states(model: Path) -> None:
    loaded = load_model(model).model
    ids = torch.tensor([[2, 7, 8, 9, 3, 0, 0], [2, 7, 3, 0, 0, 0, 0]])
    mask = ids != 0
    with torch.inference_mode():
        states = loaded.backbone(ids, mask).last_hidden_state
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        wanted = torch.nn.functional.layer_norm(mean, mean.shape[-1:])
        add_mean_layer(loaded)
        found = loaded.backbone(ids, mask).last_hidden_state[:, 0]
    cosine = torch.nn.functional.cosine_similarity(found, wanted)
    assert cosine.min() > 0.999
    assert loaded.config.num_hidden_layers == len(loaded.backbone.layers) == 3


def test_it_learns_and_leaves_the_encoder_alone(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    learner = _frozen("text", model, labelled, tmp_path / "run")
    assert learner.metrics["accuracy"] > 0.95
    before, after = toys.weights(model), toys.weights(tmp_path / "run" / "model")
    same = [name for name in before if "encoder.layer" in name or "embeddings" in name]
    assert len(same) > 20
    for name in same:
        torch.testing.assert_close(before[name], after[name], rtol=0, atol=0)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["frozen"] is True
    assert [set(entry) >= {"step", "accuracy"} for entry in learner.scores] == [True]


def test_transformers_gives_the_same_answers(model: Path, labelled: Path, tmp_path: Path) -> None:
    _frozen("text", model, labelled, tmp_path / "run", baselines=False)
    folder = tmp_path / "run" / "model"
    texts = [toys.sentence(topic, "old") for topic in toys.TOPICS]
    ours = Predictor.load(folder, "cpu", "fp32").predict(texts)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = theirs(**tokenizer(texts, return_tensors="pt", padding=True)).logits
    wanted = torch.softmax(logits.double(), -1).numpy()
    found = np.array([list(answer.probabilities.values()) for answer in ours])
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_numbers(model: Path, tmp_path: Path) -> None:
    rows = ["text,label"]
    for number, topic in enumerate([*toys.TOPICS] * 12):
        rows.append(f"{toys.sentence(topic, toys.ADJECTIVES[number % 4])},{number % 8 + 10}")
    data = tmp_path / "scores.csv"
    data.write_text("\n".join(rows) + "\n")
    learner = _frozen("regression", model, data, tmp_path / "run", baselines=False)
    assert learner.metrics["pearson"] > 0.95
    assert learner.metrics["mean_absolute_error"] < 1.0


def test_tags(model: Path, tmp_path: Path) -> None:
    lines = []
    for number, topic in enumerate([*toys.TOPICS] * 8):
        for word in toys.sentence(topic, toys.ADJECTIVES[number % 4]).split():
            lines.append(f"{word} {'B-topic' if word == topic else 'O'}")
        lines.append("")
    data = tmp_path / "train.conll"
    data.write_text("\n".join(lines) + "\n")
    learner = _frozen("tagging", model, data, tmp_path / "run", baselines=False)
    assert learner.metrics["f1"] > 0.95


def test_what_does_not_go_with_it_is_refused(model: Path, labelled: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="freeze_layers"):
        _frozen("text", model, labelled, tmp_path / "run", freeze_layers=1)
    with pytest.raises(BertineError, match="lm_weight"):
        _frozen("text", model, labelled, tmp_path / "run", lm_weight=0.5)
    with pytest.raises(BertineError, match="patience"):
        _frozen("text", model, labelled, tmp_path / "run", patience=1)
    with pytest.raises(BertineError, match="epochs"):
        _frozen("text", model, labelled, tmp_path / "run", epochs=3)
    with pytest.raises(BertineError, match="fresh_weights"):
        _frozen("text", model, labelled, tmp_path / "run", fresh_weights=True)


@pytest.mark.parametrize("name", sorted(OF_TRAINING))
def test_every_option_of_training_is_refused(name: str, model: Path) -> None:
    (entry,) = [each for each in declared(FinetuneOptions) if each.name == name]
    other = {bool: entry.default is not True, float: 0.5, int: 3}
    value = entry.choices[-1] if entry.choices else other[entry.kinds[0]]
    task: Task[Any] = TextClassification(("x", "y"))
    with pytest.raises(
        BertineError, match=rf"{name} \(--{name.replace('_', '-')}\) is of training"
    ):
        check_frozen(task, FinetuneOptions(frozen=True, **{name: value}), load_model(model).model)


def test_what_says_that_nothing_is_trained_goes_with_it(model: Path) -> None:
    options = FinetuneOptions(frozen=True, save_best=False, lm_weight=0.0, seed=3, quiet=True)
    check_frozen(TextClassification(("x", "y")), options, load_model(model).model)
