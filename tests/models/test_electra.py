"""ELECTRA's generator: its sizes, and that it is a masked language model over shared embeddings."""

from __future__ import annotations

import copy

import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.families.bert import mimic_trained_attention
from bertine.families.electra import (
    ElectraConfig,
    as_masked_lm,
    generator_from,
    generator_of,
    without_generator,
)
from bertine.families.presets import preset
from bertine.models.encoder import TextInputs
from bertine.models.heads import Model
from bertine.objectives.rtd import Rtd
from bertine.options.pretraining import ObjectiveOptions


def both(**changes: int) -> Model:
    """A discriminator with its generator, random in all parts."""
    sizes = {
        "vocab_size": 60,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 40,
        "max_position_embeddings": 16,
        "embedding_size": 12,
    }
    config = ElectraConfig(**{**sizes, **changes})
    model = Model(config, Rtd(ObjectiveOptions(generator_size=0.5)).heads(config)).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=draw)
    return model


@pytest.mark.parametrize(
    ("name", "size", "count"),
    [("electra-small", 1.0, 13_546_682), ("electra-base", 1 / 3, 33_740_602)],
)
def test_generators_have_the_weights_of_the_published_ones(
    name: str, size: float, count: int
) -> None:
    """The published small one is as wide as its discriminator (README of google-research/electra),
    that of the base size a third."""
    config = preset(name)
    assert isinstance(config, ElectraConfig)
    with torch.device("meta"):
        model = Model(config, Rtd(ObjectiveOptions(generator_size=size)).heads(config))
    alone = as_masked_lm(model)
    assert alone is not None
    assert alone.num_parameters() == count
    # The embeddings are counted once.
    shared = sum(
        p.numel() for n, p in model.backbone.embeddings.named_parameters() if "projection" not in n
    )
    assert model.num_parameters() == without_generator(model).num_parameters() + count - shared


@pytest.mark.parametrize(
    ("size", "layers", "expected"),
    [(0.25, 1.0, (64, 12, 1, 256)), (1 / 3, 0.5, (85, 6, 1, 340)), (0.5, 0.01, (128, 1, 2, 512))],
)
def test_a_generator_is_a_share_of_the_discriminator(
    size: float, layers: float, expected: tuple[int, ...]
) -> None:
    small = preset("electra-small")
    assert isinstance(small, ElectraConfig)
    config = small.generator(size, layers)
    assert (
        config.hidden_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
    ) == expected
    assert config.embedding_size == small.embedding_size


@pytest.mark.parametrize("embedding_size", [12, 24, 9])
def test_a_generator_alone_computes_the_same(embedding_size: int) -> None:
    """Projections of both, of one, and of none but the generator."""
    model = both(embedding_size=embedding_size)
    generator, alone = generator_of(model), as_masked_lm(model)
    assert generator is not None
    assert alone is not None
    ids = torch.randint(1, 60, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    inputs = TextInputs(ids, mask, (torch.arange(9) > 3).long().expand(3, -1))
    places = torch.tensor([0, 5, 11, 20])
    expected = alone.read("mlm", alone.encode(inputs), places=places)
    torch.testing.assert_close(generator(model.backbone.embeddings, inputs, places), expected)
    assert {id(p) for p in alone.parameters()} <= {id(p) for p in model.parameters()}
    # And back.
    again = without_generator(copy.deepcopy(model))
    assert "generator" not in again.heads
    again.heads["generator"] = generator_from(alone)
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_a_copy_of_a_model_has_a_generator_of_its_own() -> None:
    model = both()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.backbone.word_weights.zero_()
    alone, other = as_masked_lm(model), as_masked_lm(twin)
    assert alone is not None
    assert other is not None
    assert alone.backbone.word_weights.any()
    assert not other.backbone.word_weights.any()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BertineError, match="embedding_size is 0, but must be between 1"):
        ElectraConfig(embedding_size=0)
    with pytest.raises(BertineError, match=r"summary_last_dropout is 1.5, but must be in \[0, 1\)"):
        ElectraConfig(summary_last_dropout=1.5)
    model = both()
    with pytest.raises(
        BertineError, match="a linear layer stands between those of this ELECTRA; take normal"
    ):
        mimic_trained_attention(model.backbone)
    mimic_trained_attention(both(embedding_size=24).backbone)
    with pytest.raises(TypeError, match="objective rtd is for ElectraConfig"):
        Rtd().heads(toys.config())
