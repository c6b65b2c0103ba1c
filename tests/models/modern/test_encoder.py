"""The encoder of ModernBERT on its several ways: long texts in blocks, unpadded rows, no dropout in
evaluation. What it computes is held against transformers in tests/family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounterWithBackend

import toys
from bertine import objectives
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch, packing
from bertine.families import modernbert_layers
from bertine.families.modernbert_layers import GLOBAL, LOCAL, ModernBertConfig
from bertine.families.presets import preset
from bertine.models.dropout import stream
from bertine.models.heads import Model
from bertine.training.step import accumulate
from tolerance import assert_close, network_terms


def config(**changes: Any) -> ModernBertConfig:
    sizes = {
        "vocab_size": toys.tokenizer().vocab_size,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 600,
        "pad_token_id": 0,
        "local_attention": 8,
        "global_attn_every_n_layers": 2,
        "initializer_range": 0.2,
    }
    return ModernBertConfig(**{**sizes, **changes})


def model(**changes: Any) -> Model:
    torch.manual_seed(0)
    settings = config(**changes)
    return Model(settings, objectives.objective("mlm").heads(settings))


def batch(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    mask = torch.arange(length) < torch.tensor([length, length // 3, length - 2])[:, None]
    return torch.randint(5, toys.tokenizer().vocab_size, (3, length)) * mask, mask


def test_long_texts_in_blocks_are_computed_as_in_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = batch(300)
    trained = model().train()
    found = []
    for blocks_from in (modernbert_layers._BLOCKS_FROM, 10**9):
        monkeypatch.setattr(modernbert_layers, "_BLOCKS_FROM", blocks_from)
        trained.zero_grad()
        states = trained.backbone(ids, mask).last_hidden_state[mask]
        states.square().sum().backward()
        found.append([states, *(p.grad.clone() for p in trained.backbone.parameters())])
    # Those that are zero but for rounding are sums of numbers as large as the others.
    largest = max(float(each.abs().max()) for each in found[1])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, terms=network_terms(3, 32, gradients=True), size=largest)


@pytest.mark.parametrize("length", [24, 300])
def test_dropout_is_that_of_the_stream_and_of_training_alone(length: int) -> None:
    ids, mask = batch(length)
    dropping = Model(config().with_dropout(0.1), {})
    torch.manual_seed(0)
    states = []
    for seed in (1, 1, 2):
        stream.seed(seed, 0)
        states.append(dropping.train().backbone(ids, mask).last_hidden_state[mask])
    states.append(dropping.eval().backbone(ids, mask).last_hidden_state[mask])
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])
    assert not torch.allclose(states[0], states[3])


def test_unpadded_rows_give_the_batchs_losses_and_gradients() -> None:
    """The way of a GPU, with the reference in the place of flash attention."""
    objective = objectives.objective("mlm")
    ids, mask = batch(40)
    places = mask.flatten().nonzero()[::7, 0]
    targets = {"mlm_positions": places, "mlm_labels": ids.flatten()[places]}
    plain = Batch(ids, mask, torch.zeros_like(ids), targets)
    found: list[dict[str, torch.Tensor]] = []
    for each in (plain, plain.packed()):
        assert (each.packing is None) == (each is plain)
        trained = model().train()
        terms = accumulate(trained, objective, [each], dtype=torch.float32, seeds=[0, 0])[0]
        grads = {n: p.grad for n, p in trained.named_parameters() if p.grad is not None}
        found.append(grads | {f"loss {n}": term.total for n, term in terms.items()})
    assert found[0].keys() == found[1].keys()
    for key in found[0]:
        torch.testing.assert_close(found[1][key], found[0][key], rtol=1e-4, atol=1e-5)


def test_pooling_reads_real_tokens() -> None:
    ids, mask = batch(12)
    for pooling in ("cls", "mean"):
        backbone = model(classifier_pooling=pooling).eval().backbone
        output = backbone(ids, mask)
        packed = backbone(ids, mask, packing=packing(mask))
        for row in range(3):
            states = output.last_hidden_state[row, mask[row]]
            expected = states[0] if pooling == "cls" else states.mean(0)
            for found in (output, packed):
                torch.testing.assert_close(found.pooler_output[row], expected)


def test_attention_that_is_shown_is_that_of_the_layers() -> None:
    """Its weights times the values are what the layer's attention gives."""
    ids, _ = batch(30)
    backbone = model().eval().backbone
    with torch.no_grad():
        states = backbone(ids[:1], output_hidden_states=True).hidden_states
        for number, layer in enumerate(backbone.layers):
            x = states[number][0]
            weights = backbone.attention_scores(number, x[None])[0].softmax(-1)
            torch.testing.assert_close(weights.sum(-1), torch.ones(2, 30))
            seen = (weights > 0).any(0)
            window = backbone.config.windows[number]
            assert seen.all() if window is None else not seen[0, window + 1 :].any()
            read = layer.attention_input(x)
            values = layer.attention.qkv(read)[:, 64:].view(30, 2, 16)
            mixed = torch.einsum("ats,sad->tad", weights, values).reshape(30, 32)
            around = modernbert_layers.Surroundings.of(
                modernbert_layers.RowLayout(1, 30), 16, (160_000.0, 10_000.0)[number % 2], window, x
            )
            torch.testing.assert_close(
                layer.attention.out(mixed), layer.attention(read, around), rtol=1e-4, atol=1e-5
            )


def test_new_weights_are_smaller_where_they_end_in_the_stream() -> None:
    """transformers, ``_init_weights``: divided by the root of twice the layers."""
    made = model(num_hidden_layers=8, hidden_size=64, initializer_range=0.1)
    layer: Any = made.backbone.layers[2]
    cut = 0.88  # of a normal that is cut off at two deviations
    for weight, std in (
        (layer.attention.qkv.weight, 0.1),
        (layer.attention.out.weight, 0.025),
        (layer.feed_forward.up.weight, 0.1),
        (layer.feed_forward.down.weight, 0.025),
        (made.heads["mlm"].dense.weight, 0.025),
        (made.backbone.word_weights, 0.1),
    ):
        assert weight.std().item() == pytest.approx(cut * std, rel=0.05)


def test_the_published_sizes_fill_masks_with_the_published_weights() -> None:
    for name, count in (("modernbert-base", 149_655_232), ("modernbert-large", 395_881_664)):
        published: Any = preset(name)
        with torch.device("meta"):
            whole = Model(published, objectives.objective("mlm").heads(published))
        assert whole.num_parameters() == count
        assert published.kinds[:4] == (GLOBAL, LOCAL, LOCAL, GLOBAL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 34}, "is 17, but rotary positions need an even number"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max', but must be cls or mean"),
        ({"classifier_activation": "x"}, "classifier_activation 'x' is not supported"),
        ({"local_attention": 0}, "local_attention is 0, but must be at least 2"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0"),
        ({"global_rope_theta": float("nan")}, "global_rope_theta is nan"),
        ({"embedding_dropout": 1.0}, "embedding_dropout is 1.0, but must be in"),
        ({"layer_types": ("x",) * 3}, "layer_types has 'x'"),
        ({"layer_types": (GLOBAL,)}, "layer_types has 1 layers, but num_hidden_layers is 3"),
        ({"type_vocab_size": 2}, "has no token types"),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        config(**changes)


@pytest.mark.slow
def test_the_gpus_branch_of_every_kind_of_layer_is_compiled_whole() -> None:
    """Traced with shapes alone, forward and backward: global and local layers, with and without the
    first norm, once more at most when the number of rows changes; flash attention gets the
    window."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    settings = config(hidden_size=128).with_dropout(0.1)
    made = [
        modernbert_layers.ModernLayer(settings, first).to("meta", torch.bfloat16)
        for first in (True, False)
    ]
    for layer in made:
        layer.train().compile(backend=counter, fullgraph=True)
    for lengths in ([32] * 8, [32, 20, 9, 30] * 4, [32] * 12):
        mask = torch.arange(32) < torch.tensor(lengths)[:, None]
        rows = Batch(mask.long(), mask, mask.long()).packed().to("meta").packing
        assert rows is not None
        layout = modernbert_layers.RowLayout(
            len(lengths), 32, rows.real, ends=rows.ends, longest=rows.longest
        )
        x = torch.empty(
            rows.real.numel(), 128, dtype=torch.bfloat16, device="meta", requires_grad=True
        )
        out = x
        for layer, window in ((made[0], None), (made[1], 4), (made[1], None), (made[1], 4)):
            around = modernbert_layers.Surroundings.of(layout, 64, 10_000.0, window, x)
            out = layer(out, around)
        out.sum().backward()
        assert out.shape == x.shape
        assert x.grad is not None
    assert 1 <= counter.frame_count <= 8
    graphs = [str(graph.code) for graph in counter.graphs]
    assert all("_flash_attention_forward" in code for code in graphs)
    assert any("window_size_left = 4" in code for code in graphs)
    torch._dynamo.reset()
