"""The GPU's way through the model, as far as a CPU can tell: unpadded rows give the padded batch's
outputs and gradients, the operators are called as PyTorch declares them, and compiled code is
used again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

import toys
from bertine import objectives
from bertine.core.names import OBJECTIVES
from bertine.corpora.batch import Batch
from bertine.models import layers as varlen
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.models.layers import EncoderLayer, RowLayout, reference, varlen_attention
from bertine.training.step import accumulate

ROWS, HEADS, SIZE = 24, 2, 8


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("varlen") / "store")


def test_the_reference_is_attention_over_each_sequence() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, ROWS, HEADS, SIZE)
    ends = torch.tensor([0, 7, 7, 8, 24], dtype=torch.int32)
    found = reference(q, k, v, ends)
    for start, end in ((0, 7), (7, 8), (8, 24)):
        alone = torch.nn.functional.scaled_dot_product_attention(
            *(x[start:end].transpose(0, 1) for x in (q, k, v))
        )
        torch.testing.assert_close(found[start:end], alone.transpose(0, 1))


def test_the_reference_drops_probabilities_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    q = torch.randn(ROWS, HEADS, SIZE)
    v = torch.ones(ROWS, HEADS, SIZE)
    ends = torch.tensor([0, ROWS], dtype=torch.int32)
    draws = torch.stack([reference(q, q, v, ends, 0.5)[..., 0] for _ in range(400)])
    assert draws.std() > 0.1
    assert draws.mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_unpadded_rows_give_the_batchs_losses_and_gradients(store: Path, name: str) -> None:
    objective = objectives.objective(name)
    form = objective.formats[0]
    config = toys.config_for(name).with_dropout(0.0)
    if not family_of(config.model_type).new_backbone(config, False).takes_packing:
        pytest.skip("a GPU computes its padding")
    batch = toys.pretraining_data(
        store, corruption=objective.corruption, short_seq_prob=0.9, input_format=form
    ).batch(0)
    assert not batch.attention_mask.all()
    found: list[dict[str, torch.Tensor]] = []
    for each in (batch, batch.packed()):
        torch.manual_seed(0)
        model = Model(config, objective.heads(config))
        terms = accumulate(model.train(), objective, [each], dtype=torch.float32, seeds=[0, 0])[0]
        grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append(grads | {f"loss {n}": term.total for n, term in terms.items()})
    assert found[0].keys() == found[1].keys()
    for key in found[0]:
        torch.testing.assert_close(found[1][key], found[0][key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [0.0, 0.1])
def test_flash_attention_is_called_as_declared(p: float) -> None:
    """Without a GPU: shapes only, through PyTorch's own description of the operators."""
    with FakeTensorMode(), torch.no_grad():
        qkv = torch.empty(256, 3, 12, 64, dtype=torch.bfloat16, device="cuda")
        ends = torch.empty(5, dtype=torch.int32, device="cuda")
        mixed = varlen_attention(*qkv.unbind(1), ends, 128, p)
        assert mixed.shape == (256, 12, 64)
        assert mixed.dtype == torch.bfloat16
        assert mixed.device.type == "cuda"


def test_the_operator_with_dropout_can_be_differentiated() -> None:
    q, k, v = (
        torch.empty(256, 12, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
        for _ in range(3)
    )
    ends = torch.empty(5, dtype=torch.int32, device="meta")
    out = torch.ops.aten._flash_attention_forward(q, k, v, ends, ends, 128, 128, 0.1, False, False)[
        0
    ]
    out.sum().backward()
    assert q.grad is not None
    assert q.grad.shape == k.grad.shape == v.grad.shape == q.shape  # type: ignore[union-attr]


def test_there_is_no_flash_attention_on_a_cpu() -> None:
    assert not varlen.has_flash_attention(torch.device("cpu"), torch.bfloat16, 64)
    assert not varlen.has_flash_attention(torch.device("cuda"), torch.float32, 64)
    assert not varlen.has_flash_attention(torch.device("cuda"), torch.bfloat16, 20)


@pytest.mark.slow
def test_layers_are_compiled_twice_at_most(store: Path) -> None:
    """For all layers together and batches of any size: with the shapes as they come first, then
    with the number of rows left open."""
    torch._dynamo.reset()
    counter = CompileCounter()
    settings = toys.config(
        num_hidden_layers=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    layers = [EncoderLayer(settings).train() for _ in range(3)]
    expected = [EncoderLayer(settings).train() for _ in range(3)]
    for layer, twin in zip(layers, expected, strict=True):
        twin.load_state_dict(layer.state_dict())
        layer.compile(backend=counter, fullgraph=True)
    for lengths in ([32] * 8, [32, 20, 9, 30], [32] * 12, [32, 31, 30, 29, 32, 5]):
        mask = torch.arange(32) < torch.tensor(lengths)[:, None]
        batch = Batch(mask.long(), mask, mask.long()).packed()
        assert batch.packing is not None
        layout = RowLayout(
            len(lengths),
            32,
            batch.packing.real,
            ends=batch.packing.ends,
            longest=batch.packing.longest,
        )
        x = torch.randn(batch.packing.real.numel(), settings.hidden_size, requires_grad=True)
        one = other = x
        for layer, twin in zip(layers, expected, strict=True):
            one, other = layer(one, layout), twin(other, layout)
        one.sum().backward()
        torch.testing.assert_close(one, other)
    assert 1 <= counter.frame_count <= 3
    torch._dynamo.reset()


@pytest.mark.slow
def test_the_gpus_branch_is_compiled_whole() -> None:
    """Forward and backward, dropout and flash attention in it, traced with shapes alone: without a
    break in the graph, and once more at most when the number of rows changes."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    settings = toys.config(hidden_size=128, num_attention_heads=2)
    layer = EncoderLayer(settings).to("meta", torch.bfloat16).train()
    layer.compile(backend=counter, fullgraph=True)
    for lengths in ([32] * 8, [32, 20, 9, 30] * 4, [32] * 12):
        mask = torch.arange(32) < torch.tensor(lengths)[:, None]
        packing = Batch(mask.long(), mask, mask.long()).packed().to("meta").packing
        assert packing is not None
        layout = RowLayout(
            len(lengths), 32, packing.real, ends=packing.ends, longest=packing.longest
        )
        x = torch.empty(
            packing.real.numel(), 128, dtype=torch.bfloat16, device="meta", requires_grad=True
        )
        out = layer(x, layout)
        out.sum().backward()
        assert out.shape == x.shape
        assert x.grad is not None
    assert 1 <= counter.frame_count <= 3
    graphs = [str(graph.code) for graph in counter.graphs]
    assert all("_flash_attention_forward" in code for code in graphs)
    torch._dynamo.reset()
