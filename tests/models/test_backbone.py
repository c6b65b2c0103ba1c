"""A backbone whose layers are not BERT's: what works with it, and what says that it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import toys
from bertine.core.errors import BertineError
from bertine.families import bert
from bertine.families.bert import BertConfig, mimic_trained_attention
from bertine.hub.export import INPUTS, ExportModule, exported_program
from bertine.inference.compute import Engine, run_features
from bertine.inference.embedding.vectors import PooledTexts
from bertine.models.encoder import Backbone, BackboneOutput, PackedRows
from bertine.models.heads import Model
from bertine.models.layers import attend
from bertine.models.pooling import Pooling
from bertine.serving.attention import AttentionQuestion, AttentionReader
from bertine.tasks.base import Features


class MeanLayer(nn.Module):
    """Each token, and the mean of the sequence's."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mean = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """x [B, T, H], real [B, T]. Returns [B, T, H]."""
        weights = real.to(x.dtype)[..., None]
        mean = (x * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        return x + torch.tanh(self.mean(mean))


class MeanBackbone(Backbone):
    """Words without positions, and layers of means."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config, self.pooler = config, None
        size = config.hidden_size
        self.embeddings = nn.ModuleDict({"words": nn.Embedding(config.vocab_size, size)})
        self.layers = nn.ModuleList(MeanLayer(size) for _ in range(config.num_hidden_layers))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        packing: PackedRows | None = None,
        word_vectors: Tensor | None = None,
    ) -> BackboneOutput:
        """Encode a batch."""
        x = self.embeddings["words"](input_ids) if word_vectors is None else word_vectors
        states = [x]
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        for layer in self.layers:
            states.append(layer(states[-1], real))
        return BackboneOutput(states[-1], None, tuple(states) if output_hidden_states else None)

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, H]."""
        weights: Tensor = self.embeddings["words"].weight
        return weights


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    family = replace(bert.FAMILY, new_backbone=lambda config, _: MeanBackbone(config))
    monkeypatch.setattr(bert, "FAMILY", family)
    torch.manual_seed(0)
    return Model(toys.config(), {}, add_pooler=False)


def features() -> list[Features]:
    draw = torch.Generator().manual_seed(1)
    rows = []
    for row, length in enumerate((3, 9, 1, 20, 9)):
        ids = torch.randint(5, 37, (length,), generator=draw)
        rows.append(Features(ids.numpy(), torch.zeros_like(ids).numpy(), row))
    return rows


@pytest.mark.parametrize("precision", ["auto", "fp32", "bf16"])
@pytest.mark.parametrize("pooling", [Pooling(), Pooling(("mean", "max"), layer=1)])
def test_it_answers_as_it_was_trained(model: Model, precision: str, pooling: Pooling) -> None:
    pooled = PooledTexts(pooling, model.config.longest_input)
    expected = run_features(model.eval(), pooled, features(), pad_id=0)
    engine = Engine(model.train(), precision=precision, threads=1)
    # So small that nothing is measured.
    assert engine.precision == ("fp32" if precision == "auto" else precision)
    found = run_features(engine, pooled, features(), pad_id=0)
    near = 0.03 if engine.precision == "bf16" else 1e-6
    for ours, theirs in zip(found, expected, strict=True):
        assert abs(ours - theirs).max() < near
    assert model.training


def test_its_graph_is_exported(model: Model) -> None:
    module = ExportModule(model.eval(), Pooling())
    graph = exported_program(module, 30).module()
    ids = torch.randint(5, 37, (4, 11))
    mask = (torch.arange(11) < torch.tensor([[11], [2], [7], [5]])).long()
    given = dict(zip(INPUTS, (ids, mask, torch.zeros_like(ids)), strict=True))
    torch.testing.assert_close(graph(*given.values()), module(*given.values()))


def test_what_is_for_other_layers_is_refused(model: Model) -> None:
    with pytest.raises(BertineError, match="int8': BERT has none"):
        Engine(model, precision="int8")
    with pytest.raises(BertineError, match="initialization mimetic is for"):
        mimic_trained_attention(model.backbone)
    with pytest.raises(BertineError, match="attention of BERT cannot be shown"):
        AttentionReader(model, toys.tokenizer(), None, 20)(AttentionQuestion("the cat"))


@pytest.mark.parametrize(
    "bias", [torch.zeros(1, 1, 4, 4, requires_grad=True), torch.zeros(1, 2, 4, 4)]
)
def test_attention_refuses_a_bias_that_would_get_no_gradient(bias: torch.Tensor) -> None:
    parts = [torch.zeros(1, 2, 4, 8) for _ in range(3)]
    with pytest.raises(ValueError, match="takes a constant bias"):
        attend(*parts, bias, 0.1, True)
