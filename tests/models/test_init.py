"""Sizes and the first weights: as published."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bertine.core.errors import BertineError
from bertine.families.bert import BertConfig
from bertine.families.presets import PRESETS, preset
from bertine.models.heads import ClassificationHead, MlmHead, Model, NspHead
from bertine.models.layers import activation, init_weights


@pytest.mark.parametrize(
    ("name", "parameters"), [("bert-base", 109_482_240), ("bert-large", 335_141_888)]
)
def test_published_parameter_counts(name: str, parameters: int) -> None:
    with torch.device("meta"):
        assert Model(preset(name), {}).num_parameters() == parameters


def test_heads_add_their_published_parameters() -> None:
    config = preset("bert-base")
    with torch.device("meta"):
        heads = {"mlm": MlmHead(config), "nsp": NspHead(config)}
        count = Model(config, heads).num_parameters()
    # Transform 768 x 768 + 768, layer norm 2 x 768, one bias a piece; NSP 768 x 2 + 2.
    assert count - 109_482_240 == (768 * 768 + 768 + 2 * 768 + 30522) + (768 * 2 + 2)


def test_preset_takes_changes_and_leaves_the_registry_alone() -> None:
    assert preset("bert-tiny", vocab_size=99, hidden_dropout_prob=0.0).vocab_size == 99
    assert preset("bert-tiny").vocab_size == 30522
    with pytest.raises(TypeError):
        PRESETS["bert-tiny"] = BertConfig()  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert-smal", {}, "did you mean 'bert-small'"),
        ("bert-tiny", {"hiden_size": 64}, "did you mean 'hidden_size'"),
        ("bert-tiny", {"hidden_size": 99}, "not a multiple"),
        ("bert-tiny", {"vocab_size": 0}, "vocab_size"),
    ],
)
def test_preset_refuses_what_cannot_be(name: str, changes: dict[str, int], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        preset(name, **changes)


@pytest.fixture(scope="module")
def fresh() -> Model:
    torch.manual_seed(0)
    config = preset("bert-mini", vocab_size=5000, num_hidden_layers=2)
    return Model(
        config,
        {
            "mlm": MlmHead(config),
            "nsp": NspHead(config),
            "classifier": ClassificationHead(config, 9),
        },
    )


def test_initial_matrices_are_a_normal_cut_at_two_deviations(fresh: Model) -> None:
    # Of a normal cut at two deviations and not rescaled, as tf.truncated_normal_initializer
    # draws it, the standard deviation is 0.8796 of the uncut one's (closed form below).
    density = math.exp(-2.0) / math.sqrt(2 * math.pi)
    inside = math.erf(math.sqrt(2.0))
    ratio = math.sqrt(1 - 2 * 2 * density / inside)
    assert ratio == pytest.approx(0.8796, abs=1e-4)
    matrices = {n: p for n, p in fresh.named_parameters() if p.dim() == 2}
    assert len(matrices) == 3 + 2 * 4 + 1 + 3
    for name, weight in matrices.items():
        n = weight.numel()
        assert weight.abs().max().item() <= 0.04, name
        # Five standard errors; 0.74 and 1.6 are generous for this distribution's moments.
        assert abs(weight.mean().item()) < 5 * 0.02 / math.sqrt(n), name
        assert weight.std().item() == pytest.approx(0.02 * ratio, rel=5 / math.sqrt(2 * n)), name
    # Not a clipped normal, which would heap values at the limits; nor a plain uniform one.
    words = matrices["backbone.embeddings.word_embeddings.weight"]
    assert (words.abs() > 0.0399).float().mean().item() < 0.001
    share_within_one = math.erf(math.sqrt(0.5)) / inside
    assert (words.abs() < 0.02).float().mean().item() == pytest.approx(share_within_one, abs=0.003)


def test_initial_biases_are_zero_and_layer_norms_one_and_zero(fresh: Model) -> None:
    vectors = {name: p for name, p in fresh.named_parameters() if p.dim() == 1}
    for name, parameter in vectors.items():
        expected = 1.0 if name.endswith("norm.weight") else 0.0
        assert (parameter == expected).all(), name
    assert sum(name.endswith("norm.weight") for name in vectors) == 1 + 2 * 2 + 1


def test_gelu_is_the_exact_one() -> None:
    x = torch.linspace(-6, 6, 4001, dtype=torch.float64)
    exact = torch.tensor(
        [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()], dtype=torch.float64
    )
    torch.testing.assert_close(activation("gelu")(x), exact, rtol=0, atol=1e-12)
    # The tanh formula is up to 5e-4 away: the test above would not let it pass.
    assert (F.gelu(x, approximate="tanh") - exact).abs().max() > 1e-4


def test_unknown_activation_is_refused() -> None:
    with pytest.raises(BertineError, match="hidden_act 'gleu'"):
        activation("gleu")


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((2,), 7.0))


class _Reset(_Scaled):
    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)


def test_a_part_with_parameters_of_its_own_says_how_they_begin() -> None:
    part = nn.Sequential(_Reset(), nn.LayerNorm(2, bias=False))
    init_weights(part, 0.02)
    assert [p.tolist() for p in part.parameters()] == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(TypeError, match="_Scaled has no reset_parameters"):
        init_weights(nn.Sequential(_Scaled()), 0.02)
