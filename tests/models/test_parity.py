"""The model computes what transformers' BERT computes: outputs, losses and every gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bertine.models import encoder
from bertine.models.encoder import Encoder
from bertine.models.heads import ClassificationHead
from bertine.models.model import Model
from bertine.objectives.mlm_nsp import MlmNsp

from .parity import (
    SEEDS,
    close,
    full_labels,
    inputs,
    random_batch,
    random_config,
    same_gradients,
    scramble,
    twin,
)


@pytest.fixture(params=[0.0, 2.0], ids=["real tokens alone", "padding too"], autouse=True)
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compute a batch with padding."""
    monkeypatch.setattr(encoder, "_UNPAD_FROM", request.param)


@pytest.mark.parametrize("seed", SEEDS)
def test_hidden_states_and_pooled_output(seed: int) -> None:
    config = random_config(seed)
    model = Model(config, {}).eval()
    scramble(model, seed)
    batch = random_batch(config, seed)
    theirs = twin(model, "BertModel")(**inputs(batch), output_hidden_states=True)
    ours = model.backbone(
        batch.input_ids, batch.attention_mask, batch.token_type_ids, output_hidden_states=True
    )
    real = batch.attention_mask
    close(ours.last_hidden_state[real], theirs.last_hidden_state[real], "last_hidden_state")
    close(ours.pooler_output, theirs.pooler_output, "pooler_output")
    assert len(ours.hidden_states) == config.num_hidden_layers + 1
    for i, (a, b) in enumerate(zip(ours.hidden_states, theirs.hidden_states, strict=True)):
        close(a[real], b[real], f"hidden_states[{i}]")


@pytest.mark.parametrize("seed", SEEDS)
def test_pretraining_losses_and_all_gradients(seed: int) -> None:
    config = random_config(seed)
    objective = MlmNsp()
    model = Model(config, objective.heads(config)).eval()
    scramble(model, seed)
    batch = random_batch(config, seed)
    other = twin(model, "BertForPreTraining")
    labels, next_label = full_labels(batch), batch.targets["next_sentence_label"]
    theirs = other(**inputs(batch), labels=labels, next_sentence_label=next_label)
    theirs.loss.backward()

    terms = objective.terms(model, batch)
    losses = {name: term.total / term.count for name, term in terms.items()}
    sum(losses.values()).backward()

    logits = theirs.prediction_logits.flatten(0, 1)
    close(losses["mlm"], F.cross_entropy(logits, labels.flatten()), "MLM loss")
    close(losses["nsp"], F.cross_entropy(theirs.seq_relationship_logits, next_label), "NSP loss")
    close(sum(losses.values()), theirs.loss, "loss")
    same_gradients(model, other)


@pytest.mark.parametrize("seed", SEEDS)
def test_classification_loss_and_all_gradients(seed: int) -> None:
    config = random_config(seed)
    model = Model(config, {"classifier": ClassificationHead(config, 3)}).eval()
    scramble(model, seed)
    batch = random_batch(config, seed)
    other = twin(model, "BertForSequenceClassification")
    theirs = other(**inputs(batch), labels=batch.targets["labels"])
    theirs.loss.backward()

    pooled = model.backbone(
        batch.input_ids, batch.attention_mask, batch.token_type_ids
    ).pooler_output
    logits = model.heads["classifier"](pooled)
    loss = F.cross_entropy(logits, batch.targets["labels"])
    loss.backward()
    close(logits, theirs.logits, "logits")
    close(loss, theirs.loss, "loss")
    same_gradients(model, other)


def test_no_mask_and_no_segments_mean_all_real_and_segment_0() -> None:
    config = random_config(0)
    backbone = Encoder(config).eval()
    scramble(backbone, 0)
    batch = random_batch(config, 0)
    full = torch.ones_like(batch.attention_mask)
    told = backbone(batch.input_ids, full, torch.zeros_like(batch.token_type_ids))
    untold = backbone(batch.input_ids)
    close(untold.last_hidden_state, told.last_hidden_state, "last_hidden_state")


def test_padding_does_not_touch_real_tokens() -> None:
    config = random_config(1)
    backbone = Encoder(config).eval()
    scramble(backbone, 1)
    batch = random_batch(config, 1)
    whole = backbone(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    for row in range(batch.num_sequences):
        length = int(batch.attention_mask[row].sum())
        alone = backbone(
            batch.input_ids[row : row + 1, :length],
            None,
            batch.token_type_ids[row : row + 1, :length],
        )
        close(alone.last_hidden_state[0], whole.last_hidden_state[row, :length], f"row {row}")
        close(alone.pooler_output[0], whole.pooler_output[row], f"pooled row {row}")
