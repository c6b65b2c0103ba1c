"""The pre-training objectives by name: heads, losses, formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.core.loss_names import OBJECTIVE_TERMS
from bertine.core.names import OBJECTIVES
from bertine.families.presets import preset
from bertine.hub.model_directory import load_model, save_model
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.objectives import choose, objective
from bertine.objectives.losses import Mlm, MlmNsp


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


def mlm_model() -> Model:
    torch.manual_seed(0)
    config = toys.config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return Model(config, Mlm.heads(config))


def test_names_lead_to_objectives() -> None:
    assert isinstance(objective("mlm-nsp"), MlmNsp)
    assert isinstance(objective("mlm"), Mlm)
    assert [objective(name).name for name in OBJECTIVES] == list(OBJECTIVES)
    assert set(OBJECTIVE_TERMS) == set(OBJECTIVES)
    with pytest.raises(BertineError, match="objective is 'nsp', but must be one of mlm-nsp, mlm"):
        objective("nsp")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_its_heads_stand_in_the_order_in_which_they_are_loaded(name: str) -> None:
    """So that a model that was loaded has the fingerprint of the one that was saved."""
    config = toys.config_for(name)
    heads = list(objective(name).heads(config))
    assert heads == [head for head in family_of(config.model_type).heads if head in heads]


@pytest.mark.parametrize(
    ("preset_name", "asked", "expected"),
    [
        ("bert-tiny", (None, None), ("mlm-nsp", "segment-pair")),
        ("bert-tiny", ("mlm", None), ("mlm", "segment-pair")),
        ("bert-tiny", ("mlm", "doc-sentences"), ("mlm", "doc-sentences")),
        ("albert-base", (None, None), ("mlm-sop", "sentence-order")),
        ("albert-base", ("mlm", None), ("mlm", "sentence-order")),
        ("albert-base", ("mlm", "full-sentences"), ("mlm", "full-sentences")),
    ],
)
def test_a_model_has_the_objective_and_the_format_of_its_paper(
    preset_name: str, asked: tuple[Any, Any], expected: tuple[str, str]
) -> None:
    chosen, input_format = choose(preset(preset_name), *asked)
    assert (chosen.name, input_format) == expected


def test_without_next_sentences_the_pooler_stays_as_it_was(store: Path, tmp_path: Path) -> None:
    model = mlm_model()
    assert set(model.heads) == {"mlm"}
    assert model.backbone.pooler is not None
    batch = toys.pretraining_data(store, input_format="full-sentences").batch(0)
    with toys.one_thread():
        Mlm().terms(model, batch)["mlm"].total.backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {"backbone.pooler.weight", "backbone.pooler.bias"}
    # It goes into the model directory, for fine-tuning to begin with.
    save_model(tmp_path / "model", model, toys.tokenizer())
    loaded = load_model(tmp_path / "model").model
    assert set(loaded.heads) == {"mlm"}
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
