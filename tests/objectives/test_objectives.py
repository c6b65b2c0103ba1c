"""The pre-training objectives by name: heads, losses, formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import toys
from bertine.core.errors import BertineError
from bertine.core.names import FAMILIES, OBJECTIVES
from bertine.corpora.formats import INPUT_FORMATS, PAIR_FORMATS
from bertine.families.presets import preset
from bertine.hub.model_directory import load_model, save_model
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.objectives import check_family, check_format, choose, objective, objective_of
from bertine.objectives.losses import Mlm


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


def mlm_model() -> Model:
    torch.manual_seed(0)
    config = toys.config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return Model(config, Mlm.heads(config))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_its_heads_stand_in_the_order_in_which_they_are_loaded(name: str) -> None:
    """So that a model that was loaded has the fingerprint of the one that was saved."""
    config = toys.config_for(name)
    heads = list(objective(name).heads(config))
    assert heads == [head for head in family_of(config.model_type).heads if head in heads]


def test_a_family_says_which_objectives_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    config = toys.config()
    for name in OBJECTIVES:
        families = [each for each in map(family_of, FAMILIES) if name in each.objectives]
        assert families
        for family in families:
            check_family(objective(name), next(iter(family.presets.values())))
    with pytest.raises(BertineError, match="mlm-nsp or mlm or mlm-neighbours, not with rtd"):
        check_family(objective("rtd"), config)
    other = objective("mlm")
    monkeypatch.setattr(type(other), "name", "other")
    offered = "mlm-nsp or mlm or mlm-neighbours"
    told = f"a model of type bert is pre-trained with objective {offered}, not with other"
    with pytest.raises(BertineError, match=told):
        check_family(other, config)


def test_a_model_is_of_the_first_objective_that_it_has_the_heads_of() -> None:
    found = objective_of(toys.pretraining_model())
    assert found is not None
    assert found.name == "mlm-nsp"
    found = objective_of(mlm_model())
    assert found is not None
    assert found.name == "mlm"
    assert objective_of(Model(toys.config(), {})) is None


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


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_next_sentences_need_pairs(input_format: str) -> None:
    # Running text without special tokens is for models that read forward.
    running = input_format == "running-text"
    check_format(objective("clm" if running else "mlm"), input_format)
    if input_format in PAIR_FORMATS:
        check_format(objective("mlm-nsp"), input_format)
    else:
        with pytest.raises(
            BertineError,
            match=f"not on {input_format}; use objective {'clm' if running else 'mlm'}",
        ):
            check_format(objective("mlm-nsp"), input_format)


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_the_loss_is_the_mean_over_the_masked_tokens(store: Path, input_format: str) -> None:
    model = mlm_model().eval()
    batch = toys.pretraining_data(store, input_format=input_format).batch(0)
    chosen = objective("mlm")
    with toys.one_thread(), torch.no_grad():
        terms = chosen.terms(model, batch)
        output = model.backbone(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        hidden = output.last_hidden_state.flatten(0, 1)[batch.targets["mlm_positions"]]
        scores = model.heads["mlm"](hidden, model.backbone.embeddings.word_embeddings.weight)
    assert terms.keys() == chosen.counts(batch).keys() == {"mlm"}
    labels = batch.targets["mlm_labels"]
    assert terms["mlm"].count == len(labels)
    expected = F.cross_entropy(scores, labels, reduction="sum")
    assert float(terms["mlm"].total) == pytest.approx(float(expected), rel=1e-5)
    assert terms["mlm"].correct is not None
    assert int(terms["mlm"].correct) == int((scores.argmax(1) == labels).sum())


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
