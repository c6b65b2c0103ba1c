"""Packed layers of a ModernBERT give what the model gives: in fp32 to rounding, in 16 and 8 bits
nearly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bertine.fast.backbone as packed_backbone
import bertine.fast.layers as packed_layers
from bertine.families.modernbert import ModernEncoder
from bertine.families.modernbert_layers import ModernBertConfig
from bertine.fast import layers
from bertine.fast.int8 import RangeObserver
from bertine.fast.layers import UnpaddedRows
from bertine.fast.modern import PackedModern
from bertine.inference.compute import choose, why_not_int8

CONFIG = ModernBertConfig(
    vocab_size=100,
    hidden_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=256,
    initializer_range=0.15,
    pad_token_id=0,
    local_attention=16,
    classifier_pooling="mean",
)
int8 = pytest.mark.skipif(bool(why_not_int8()), reason=str(why_not_int8()))
DTYPES = [(torch.float32, 1e-5), (torch.bfloat16, 0.02)]
BYTES = pytest.param(torch.int8, 0.1, marks=int8)


def make(**changes: Any) -> ModernEncoder:
    torch.manual_seed(0)
    backbone = ModernEncoder(CONFIG.replace(**changes)).eval()
    for name, parameter in backbone.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, 1.0 if name.endswith("weight") else 0.0, 0.2)
    return backbone


def pack(backbone: ModernEncoder, dtype: torch.dtype) -> PackedModern:
    with torch.inference_mode(), RangeObserver(backbone) as seen:
        backbone(*inputs([60, 32, 9, 2, 1], 60, seed=9))
    return PackedModern(backbone, dtype, seen.ranges)


def difference(output: Tensor, expected: Tensor) -> float:
    return float((output - expected).norm() / expected.norm())


def inputs(lengths: list[int], places: int, seed: int = 3) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 100, (len(lengths), places), generator=draw)
    return ids, torch.arange(places)[None] < torch.tensor(lengths)[:, None]


@pytest.mark.takes(2)
@pytest.mark.parametrize(("dtype", "tolerance"), [*DTYPES, BYTES])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"classifier_pooling": "cls", "hidden_act": "silu", "local_attention": 128},
        {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "hidden_act": "gelu_new"},
        {"num_hidden_layers": 3, "global_attn_every_n_layers": 1},
        {"layer_types": ("sliding_attention",) * 4, "local_attention": 6},
    ],
)
@pytest.mark.parametrize(
    ("lengths", "places"),
    [([32, 5, 17, 32, 1, 30], 33), ([9] * 7 + [8], 9), ([220, 193, 40], 220), ([6, 3], 6)],
)
def test_the_same_as_the_model(
    lengths: list[int],
    places: int,
    changes: dict[str, Any],
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Padded or not, beyond windows and within, in blocks and not."""
    backbone = make(**changes)
    packed = pack(backbone, dtype)
    ids, mask = inputs(lengths, places)
    real = mask[:, : max(lengths)]
    with torch.inference_mode():
        expected = backbone(ids, mask, output_hidden_states=True)
        for worth, bare in ((0.0, True), (1e9, False)):
            monkeypatch.setattr(packed_backbone, "_WORTH", worth)
            output = packed(ids, mask)
            few = len(lengths) * max(lengths) <= 40
            assert isinstance(output._rows, UnpaddedRows) == (bare and not few)
            # The first tokens without the others of the last layer.
            first = output.first_token
            assert difference(first, expected.last_hidden_state[:, 0]) < tolerance
            assert difference(output.pooler_output, expected.pooler_output) < 1.5 * tolerance
            last = output.last_hidden_state
            assert last.dtype == torch.float32
            assert difference(last[real], expected.last_hidden_state[mask]) < tolerance
            states = packed(ids, mask, output_hidden_states=True).hidden_states
            assert len(states) == len(expected.hidden_states)
            for ours, theirs in zip(states, expected.hidden_states, strict=True):
                assert difference(ours[real], theirs[mask]) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, pytest.param(torch.int8, marks=int8)]
)
def test_what_is_recorded_has_the_same_bits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone sequence of every length, called often enough: within the window and beyond it. One
    that is computed in blocks is not recorded."""
    packed = pack(make(), dtype)
    ids, _ = inputs([256], 256)
    lengths = [*range(1, 48), 190, 191, 192, 193, 256]
    with torch.inference_mode():
        with monkeypatch.context() as patched:
            patched.setattr(layers, "_BEFORE", 10**9)
            plain = [outputs_of(packed, ids[:, :length]) for length in lengths]
        assert not any(part._script for part in packed._recorded.values())
        for _ in range(10):
            for length in (5, 30, 44):
                outputs_of(packed, ids[:, :length])
        assert {least for _, least in packed._recorded} == {1, 10, 41}
        assert all(part._script is not None for part in packed._recorded.values())
        for length, expected in zip(lengths, plain, strict=True):
            for ours, theirs in zip(outputs_of(packed, ids[:, :length]), expected, strict=True):
                assert torch.equal(ours, theirs), length
        assert {least for _, least in packed._recorded} == {1, 10, 41}


def outputs_of(packed: PackedModern, ids: Tensor) -> list[Tensor]:
    """The first token's state without the others, and those of all."""
    return [packed(ids).first_token, packed(ids).last_hidden_state]


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_the_same_without_packed_products(
    dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS; and the packed weights are copies."""
    monkeypatch.setattr(packed_layers, "has_packed", lambda dtype: False)
    backbone = make()
    packed = PackedModern(backbone, dtype)
    ids, mask = inputs([30, 12, 5], 30)
    with torch.inference_mode():
        expected = backbone(ids, mask)
        for layer in backbone.layers:
            layer.feed_forward.up.weight.zero_()
        output = packed(ids, mask)
        assert (
            difference(output.last_hidden_state[mask], expected.last_hidden_state[mask]) < tolerance
        )


@pytest.mark.slow
def test_texts_beyond_the_tables_that_are_kept() -> None:
    """And a file that says that a model reads, and sees, without end makes no endless table."""
    for local_attention in (16, 10**6):
        backbone = make(max_position_embeddings=10**7, local_attention=local_attention)
        packed = PackedModern(backbone, torch.float32)
        ids, _ = inputs([1100], 1100)
        with torch.inference_mode():
            expected = backbone(ids).last_hidden_state
            assert difference(packed(ids).last_hidden_state, expected) < 1e-5
            assert difference(packed(ids).first_token, expected[:, 0]) < 1e-5
            for _ in range(10):
                short = packed(ids[:, :30]).last_hidden_state
            assert difference(short, backbone(ids[:, :30]).last_hidden_state) < 1e-5


def test_answers_are_computed_in_packed_layers() -> None:
    backbone = make()
    chosen, check = choose(backbone, "fp32")
    assert isinstance(chosen, PackedModern)
    assert check is None
    chosen, check = choose(backbone, "bf16")
    assert isinstance(chosen, PackedModern)
    assert check is not None
    assert check.differences["bf16"] < 0.02


@int8
def test_answers_in_8_bits() -> None:
    backbone = make()
    chosen, check = choose(backbone, "int8")
    assert isinstance(chosen, PackedModern)
    assert chosen.dtype == torch.int8
    assert check is not None
    assert check.differences["int8"] < 0.06
