"""Held-out evaluation: the same questions every time, right sums, nothing left behind."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.corpora.store import TokenStore
from bertine.inference.heldout import evaluate_pretraining, score_batches
from bertine.models.heads import Model, NspHead
from bertine.objectives.losses import Mlm, MlmNsp
from bertine.options.pretraining import InstanceSettings


def evaluate(model: Model, store: Path, **changes: Any) -> dict[str, float]:
    given = {"tokens": 2000, "batch_size": 8, "max_seq_length": 32, **changes}
    names = {each.name for each in fields(InstanceSettings)}
    settings = InstanceSettings(**{name: given.pop(name) for name in names & set(given)})
    opened = TokenStore.open(store)
    return evaluate_pretraining(model, toys.tokenizer(), opened, settings=settings, **given)


def test_scores_are_those_of_all_targets_together(store: Path) -> None:
    """Against the logits of every batch, without parts: means over targets, not over batches."""
    model = toys.pretraining_model().eval()
    data = toys.pretraining_data(store)
    scores = score_batches(model, MlmNsp(), data.batch, tokens=1, max_batches=3, max_tokens=64)
    assert scores["sequences"] == 8
    scores = score_batches(model, MlmNsp(), data.batch, max_batches=3, max_tokens=64)
    loss, right, labels, nsp = 0.0, 0, 0, 0
    with torch.no_grad():
        for number in range(3):
            batch = data.batch(number)
            mlm_logits, nsp_logits = toys.pretraining_logits(model, batch)
            target = batch.targets["mlm_labels"]
            loss += float(F.cross_entropy(mlm_logits.double(), target, reduction="sum"))
            right += int((mlm_logits.argmax(-1) == target).sum())
            labels += len(target)
            nsp += int((nsp_logits.argmax(-1) == batch.targets["next_sentence_label"]).sum())
    assert scores["mlm_loss"] == pytest.approx(loss / labels, rel=1e-5)
    assert scores["mlm_perplexity"] == pytest.approx(math.exp(loss / labels), rel=1e-4)
    assert scores["mlm_accuracy"] == pytest.approx(right / labels, abs=1.5 / labels)
    assert scores["nsp_accuracy"] == pytest.approx(nsp / 24, abs=1.5 / 24)
    assert (scores["mlm_count"], scores["nsp_count"], scores["sequences"]) == (labels, 24, 24)
    assert scores["tokens"] == sum(data.batch(number).num_tokens for number in range(3))
    assert scores["loss"] == pytest.approx(scores["mlm_loss"] + scores["nsp_loss"])


def test_the_same_every_time_and_no_trace(store: Path) -> None:
    """Dropout off, the mode restored, no gradient, no random number drawn, whatever the mode."""
    model = toys.pretraining_model(hidden_dropout_prob=0.5)
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    first = evaluate(model, store)
    assert model.training
    model.eval()
    assert evaluate(model, store) == first
    assert not model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert evaluate(model, store, seed=1)["mlm_loss"] != first["mlm_loss"]


def test_the_size_of_the_parts_does_not_matter(store: Path) -> None:
    model = toys.pretraining_model()
    whole = evaluate(model, store, max_tokens=100_000)
    parts = evaluate(model, store, max_tokens=1)
    assert parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("input_format", ["full-sentences", "segment-pair"])
def test_without_nsp(input_format: str, store: Path) -> None:
    """MLM alone: under its own name, no NSP anywhere."""
    config = toys.config()
    torch.manual_seed(0)
    model = Model(config, Mlm.heads(config))
    scores = evaluate(model, store, input_format=input_format)
    names = {"loss", "mlm_loss", "mlm_perplexity", "mlm_accuracy", "mlm_count"}
    assert set(scores) == {*names, "tokens", "sequences"}
    assert scores["loss"] == scores["mlm_loss"]
    assert 0 < scores["mlm_loss"] < 20


def test_an_objective_can_be_left_out(store: Path) -> None:
    """MLM alone of a model with both heads: the same as beside NSP."""
    model = toys.pretraining_model()
    alone, both = evaluate(model, store, objective=Mlm()), evaluate(model, store)
    assert alone["mlm_loss"] == both["mlm_loss"]
    assert "nsp_loss" not in alone


def test_bad_input_is_one_line(store: Path) -> None:
    model = toys.pretraining_model()
    with pytest.raises(BertineError, match="tokens is 0"):
        evaluate(model, store, tokens=0)
    with pytest.raises(BertineError, match="not on full-sentences"):
        evaluate(model, store, input_format="full-sentences")
    config = toys.config()
    with pytest.raises(BertineError, match="no MLM head"):
        evaluate(Model(config, {"nsp": NspHead(config)}), store)
    with pytest.raises(BertineError, match="outside the vocabulary"):
        evaluate(toys.pretraining_model(vocab_size=9), store)

    def nothing_masked(number: int) -> Batch:
        batch = toys.pretraining_data(store).batch(number)
        empty = torch.empty(0, dtype=torch.int64)
        batch.targets |= {"mlm_positions": empty, "mlm_labels": empty}
        return batch

    with pytest.raises(BertineError, match="no target for mlm"):
        score_batches(model, MlmNsp(), nothing_masked, max_batches=1)
