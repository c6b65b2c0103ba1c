"""Initial weights whose heads look where trained ones do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bertine.families.bert import BertConfig, mimic_trained_attention
from bertine.models.heads import Model
from bertine.models.precision import seeded

SHAPES = [(2, 256, 4), (4, 256, 4), (2, 128, 2), (1, 768, 12), (2, 75, 1)]


def looks(config: BertConfig, ids: Tensor) -> list[Tensor]:
    """Of each layer, what new heads look at: probabilities [A, T, T] for the sequence `ids`."""
    with seeded(3, "test"):
        backbone = Model(config, {}).backbone.eval()
        mimic_trained_attention(backbone)
    with torch.no_grad():
        states = backbone(ids[None], output_hidden_states=True).hidden_states
        assert states is not None
        found = []
        for layer, x in zip(backbone.layers, states, strict=False):
            qkv = layer.attention.qkv(x[0]).view(len(ids), 3, -1, config.head_size)
            q, k = qkv[:, 0].transpose(0, 1), qkv[:, 1].transpose(0, 1)
            found.append((q @ k.transpose(1, 2) / config.head_size**0.5).softmax(-1))
    return found


def config_of(layers: int, size: int, heads: int) -> BertConfig:
    return BertConfig(
        vocab_size=1000,
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=2 * size,
        max_position_embeddings=128,
    )


@pytest.mark.parametrize(("layers", "size", "heads"), SHAPES)
def test_the_first_two_heads_look_at_the_tokens_beside(layers: int, size: int, heads: int) -> None:
    ids = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:64]
    lowest = looks(config_of(layers, size, heads), ids)[0]
    inner = torch.arange(1, 63)
    for head, by in enumerate((-1, 1)[:heads]):
        beside = lowest[head, inner, inner + by]
        assert beside.mean() > 2 / 64  # random weights: 1 / 64
        assert beside.mean() > 2 * lowest[head, inner, (inner + 20) % 64].mean()
        assert beside.mean() > lowest[head, inner, inner - by].mean()


@pytest.mark.parametrize(("layers", "size", "heads"), SHAPES)
def test_other_heads_look_at_the_same_word_elsewhere(layers: int, size: int, heads: int) -> None:
    ids = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:64]
    ids[32:] = ids[:32]
    for depth, probs in enumerate(looks(config_of(layers, size, heads), ids)):
        rest = probs[2:] if depth == 0 else probs
        if len(rest):
            places = torch.arange(32)
            assert rest[:, places, places + 32].mean() > 2 * rest[:, places, places + 20].mean()


def test_no_head_is_blind_to_the_rest() -> None:
    """A softmax that is one-hot from the beginning would have no gradient."""
    ids = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:64]
    for probs in looks(config_of(2, 256, 4), ids):
        assert probs.amax(-1).mean(-1).max() < 0.9


def test_only_positions_queries_and_keys_are_replaced() -> None:
    config = config_of(2, 128, 2)
    with seeded(3, "test"):
        plain = Model(config, {})
    with seeded(3, "test"):
        model = Model(config, {})
        mimic_trained_attention(model.backbone)
    other = {
        name
        for name, weight in model.state_dict().items()
        if not weight.equal(plain.state_dict()[name])
    }
    assert other == {
        "backbone.embeddings.position_embeddings.weight",
        "backbone.layers.0.attention.qkv.weight",
        "backbone.layers.1.attention.qkv.weight",
    }
    for before, after in zip(plain.backbone.layers, model.backbone.layers, strict=True):
        values = slice(2 * 128, None)
        assert before.attention.qkv.weight[values].equal(after.attention.qkv.weight[values])
    positions = model.backbone.embeddings.position_embeddings.weight.detach()
    assert float(positions.square().mean().sqrt()) == pytest.approx(0.02, rel=1e-3)


def test_the_weights_do_not_depend_on_the_number_of_threads() -> None:
    """They are compared when a run is resumed, and between processes."""
    before = torch.get_num_threads()
    prints = set()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with seeded(3, "test"):
                model = Model(config_of(2, 256, 4), {})
                mimic_trained_attention(model.backbone)
            prints.add(model.fingerprint())
    finally:
        torch.set_num_threads(before)
    assert len(prints) == 1
