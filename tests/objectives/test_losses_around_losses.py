"""A loss can stand around another one: a language model beside a task, a teacher beside MLM."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import toys
from bertine.corpora.batch import Batch, split
from bertine.models.encoder import Encoded
from bertine.models.heads import Model, new_head
from bertine.models.losses import sum_cross_entropy
from bertine.objectives.losses import Loss, LossDefaults, Mlm, Term
from bertine.tasks.classification import TextClassification
from bertine.training.step import Meter, accumulate


@dataclass
class WithLanguageModel(LossDefaults):
    """Add a language model's loss to a task's: L2 + λ L1, of GPT-1."""

    task: Loss
    weight: float

    def encode(self, model: Model, batch: Batch) -> Encoded:
        return self.task.encode(model, batch)

    def counts(self, batch: Batch) -> dict[str, int]:
        return self.task.counts(batch) | {"lm": int(batch.attention_mask[:, 1:].sum())}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        follows = F.pad(batch.attention_mask[:, 1:], (0, 1))
        places = follows.flatten().nonzero()[:, 0]
        logits = model.read("mlm", encoded, places=places)
        total, right = sum_cross_entropy(logits, batch.input_ids.flatten()[places + 1])
        found = self.task.terms_of(model, encoded, batch)
        return found | {"lm": Term(total, len(places), right, weight=self.weight)}


@dataclass
class Distilled(LossDefaults):
    """Learn from a teacher what it thinks of the masked words, beside what they are."""

    student: Loss
    teacher: Model
    weights: tuple[float, float] = (5.0, 2.0)
    temperature: float = 2.0

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"teacher": batch.targets["mlm_labels"].numel()} | self.student.counts(batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        places = batch.targets["mlm_positions"]
        with torch.no_grad():
            wanted = self.teacher.read("mlm", self.teacher.encode(batch), places=places)
        logits = model.read("mlm", encoded, places=places)
        total = F.kl_div(
            F.log_softmax(logits / self.temperature, -1),
            F.log_softmax(wanted / self.temperature, -1),
            reduction="sum",
            log_target=True,
        )
        own = self.student.terms_of(model, encoded, batch)
        found = {name: replace(term, weight=self.weights[1]) for name, term in own.items()}
        return {"teacher": Term(total, len(places), weight=self.weights[0])} | found


def model_with(*heads: str, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    config = toys.config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    made: dict[str, Any] = {}
    for name in heads:
        made |= new_head(config, name, 2)
    return Model(config, made)


def gradients(model: Model, loss: Loss, parts: list[Batch]) -> dict[str, Tensor]:
    model.zero_grad()
    accumulate(model, loss, parts, dtype=torch.float32, seeds=[0, 0])
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def check_sum(model: Model, whole: Loss, parts: list[tuple[float, Loss]], batch: Batch) -> None:
    """The gradient of a loss is the sum of its parts', in one piece and in several."""
    expected: dict[str, Tensor] = {}
    for weight, part in parts:
        for name, grad in gradients(model, part, [batch]).items():
            expected[name] = expected.get(name, torch.zeros_like(grad)) + weight * grad
    for pieces in ([batch], split(batch, 40)):
        found = gradients(model, whole, pieces)
        assert found.keys() == expected.keys()
        for name, grad in found.items():
            torch.testing.assert_close(grad, expected[name], rtol=1e-4, atol=1e-6, msg=name)


def check_training(
    model: Model, loss: Loss, batch: Callable[[int], Batch], weights: dict[str, float]
) -> None:
    """A few steps lower every term, and what a line of the log has is the sum of the terms."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = []
    for step in range(12):
        optimizer.zero_grad()
        meter = Meter()
        for terms in accumulate(model, loss, [batch(step)], dtype=torch.float32, seeds=[0, step]):
            meter.add(terms)
            assert {name: term.weight for name, term in terms.items()} == weights
        optimizer.step()
        losses = {name: float(total) / meter.counts[name] for name, total in meter.totals.items()}
        assert losses.keys() == weights.keys()
        total = sum(weight * losses[name] for name, weight in weights.items())
        assert meter.means(weights)["loss"] == pytest.approx(total)
        rows.append(losses)
    for name in weights:
        assert rows[-1][name] < rows[0][name]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


class NoTask(LossDefaults):
    """Be no loss at all, for a wrapper to be measured alone."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        return {}


def test_a_language_model_around_a_task() -> None:
    task = TextClassification(("animal", "dish"), ("text",), "label", 16)
    model = model_with("classifier", "mlm")
    words = toys.tokenizer()
    frame = words.template.one

    def batch(step: int) -> Batch:
        texts = [toys.sentence(t, a) for t in toys.TOPICS for a in toys.ADJECTIVES[: 1 + step % 3]]
        ids = torch.tensor([frame.join([ids]) for ids in words.encode_plain(texts)])
        labels = torch.tensor([i // (len(texts) // 2) for i in range(len(texts))])
        return Batch(ids, torch.ones_like(ids, dtype=torch.bool), ids * 0, {"labels": labels})

    whole = WithLanguageModel(task, 0.5)
    with toys.one_thread():
        check_sum(model, whole, [(1, task), (0.5, WithLanguageModel(NoTask(), 1.0))], batch(1))
        check_training(model, whole, batch, {"classifier": 1.0, "lm": 0.5})


def test_a_teacher_around_masked_words(store: Path) -> None:
    data = toys.pretraining_data(store, input_format="full-sentences")
    teacher = model_with("mlm", seed=1)
    with toys.one_thread():
        check_training(teacher, Mlm(), data.batch, {"mlm": 1.0})
    teacher.eval()
    before = copy.deepcopy(teacher.state_dict())
    model = model_with("mlm")
    whole = Distilled(Mlm(), teacher)
    alone = Distilled(NoTask(), teacher, weights=(1.0, 0.0))
    with toys.one_thread():
        check_sum(model, whole, [(5, alone), (2, Mlm())], data.batch(0))
        check_training(model, whole, data.batch, {"teacher": 5.0, "mlm": 2.0})
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())
