"""Packed layers give what the model gives: in fp32 to rounding, in 16 and 8 bits nearly."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import bertine.fast.backbone as packed_backbone
import bertine.fast.int8 as packed_int8
import bertine.fast.layers as packed_float
from bertine.families.bert import BertConfig
from bertine.families.electra import ElectraConfig
from bertine.fast import layers
from bertine.fast.backbone import PackedBackbone
from bertine.fast.int8 import ByteGrid, RangeObserver
from bertine.fast.layers import PaddedRows, Recorded, UnpaddedRows, attend, attend_few
from bertine.inference.compute import why_not_int8
from bertine.models.encoder import Encoder

CONFIG = BertConfig(
    vocab_size=100,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=48,
    initializer_range=0.15,
)
int8 = pytest.mark.skipif(bool(why_not_int8()), reason=str(why_not_int8()))


def make(config: BertConfig = CONFIG, seed: int = 0) -> Encoder:
    torch.manual_seed(seed)
    return Encoder(config).eval()


def inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask with padding up to a last column that is all padding, segments."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 100, (6, 33), generator=draw)
    lengths = torch.tensor([32, 5, 17, 32, 1, 30])
    mask = torch.arange(33)[None] < lengths[:, None]
    segments = (torch.arange(33)[None] >= torch.tensor([[10], [2], [33], [0], [1], [29]])).long()
    return ids, mask, segments


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def pack(backbone: Encoder, dtype: torch.dtype) -> PackedBackbone:
    with torch.inference_mode(), RangeObserver(backbone) as seen:
        backbone(*inputs(seed=9))
    return PackedBackbone(backbone, dtype, seen.ranges)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu", "silu"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float32, 1e-5),
        (torch.bfloat16, 0.02),
        pytest.param(torch.int8, 0.06, marks=int8),
    ],
)
def test_the_same_as_the_model(dtype: torch.dtype, tolerance: float, act: str) -> None:
    backbone = make(CONFIG.replace(hidden_act=act))
    packed = pack(backbone, dtype)
    ids, mask, segments = inputs()
    with torch.inference_mode():
        expected = backbone(ids, mask, segments, output_hidden_states=True)
        found = packed(ids, mask, segments)
        states = packed(ids, mask, segments, output_hidden_states=True)
        real = mask[:, :32]
        assert found.last_hidden_state.dtype == torch.float32
        # The column that is padding everywhere is not computed.
        assert found.last_hidden_state.shape == (6, 32, 64)
        last = expected.last_hidden_state[:, :32][real]
        assert difference(found.last_hidden_state[real], last) < tolerance
        # The pooler without the other tokens of the last layer, and with them.
        for output in (packed(ids, mask, segments), states, found):
            assert difference(output.pooler_output, expected.pooler_output) < 1.5 * tolerance
        assert len(states.hidden_states) == 4
        for ours, theirs in zip(states.hidden_states, expected.hidden_states, strict=True):
            assert difference(ours[real], theirs[:, :32][real]) < tolerance
        # Without a mask, without segments.
        whole = packed(ids[:1, :32]).last_hidden_state
        assert difference(whole, backbone(ids[:1, :32]).last_hidden_state) < tolerance


@pytest.mark.parametrize("embedding_size", [24, 64, 96])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float32, 1e-5),
        (torch.bfloat16, 0.02),
        pytest.param(torch.int8, 0.06, marks=int8),
    ],
)
def test_embeddings_of_another_width(
    dtype: torch.dtype, tolerance: float, embedding_size: int
) -> None:
    torch.manual_seed(0)
    config = ElectraConfig(**CONFIG.to_dict(), embedding_size=embedding_size)
    backbone = Encoder(config, False).eval()
    packed = pack(backbone, dtype)
    ids, mask, segments = inputs()
    with torch.inference_mode():
        expected = backbone(ids, mask, segments, output_hidden_states=True)
        output = packed(ids, mask, segments, output_hidden_states=True)
        assert output.pooler_output is None
        real = mask[:, :32]
        for ours, theirs in zip(output.hidden_states, expected.hidden_states, strict=True):
            assert difference(ours[real], theirs[:, :32][real]) < tolerance


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float32, 1e-5),
        (torch.bfloat16, 0.01),
        pytest.param(torch.int8, 0.01, marks=int8),
    ],
)
@pytest.mark.parametrize(
    "lengths", [[32, 5, 17, 32, 1, 30], [33, 1], [20, 19, 18, 17, 3], [9] * 7 + [8]]
)
def test_with_padding_and_without(
    lengths: list[int], dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is chosen, the same comes out, in the same shapes."""
    packed = pack(make(), dtype)
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 100, (len(lengths), 34), generator=draw)
    segments = torch.randint(0, 2, ids.shape, generator=draw)
    mask = torch.arange(34)[None] < torch.tensor(lengths)[:, None]
    found = []
    with torch.inference_mode():
        for worth, bare in ((0.0, True), (1e9, False)):
            monkeypatch.setattr(packed_backbone, "_WORTH", worth)
            output = packed(ids, mask, segments)
            assert isinstance(output._rows, UnpaddedRows) == bare
            states = packed(ids, mask, segments, output_hidden_states=True).hidden_states
            found.append([output.first_token, output.last_hidden_state, *states])
    real = mask[:, : max(lengths)]
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        part = real if ours.ndim == 3 else slice(None)
        assert difference(ours[part], theirs[part]) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize("act", ["gelu", "silu"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, pytest.param(torch.int8, marks=int8)]
)
def test_what_is_recorded_has_the_same_bits(
    dtype: torch.dtype, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone sequence, called often enough, of every length and of all ways to compute it."""
    packed = pack(make(CONFIG.replace(hidden_act=act, max_position_embeddings=400)), dtype)
    draw = torch.Generator().manual_seed(5)
    ids = torch.randint(0, 100, (1, 400), generator=draw)
    segments = torch.randint(0, 2, (1, 400), generator=draw)
    lengths = [*range(1, 48), 383, 384, 385, 400]
    with torch.inference_mode():
        with monkeypatch.context() as patched:
            patched.setattr(layers, "_BEFORE", 10**9)
            eager = [outputs_of(packed, ids[:, :n], segments[:, :n]) for n in lengths]
        assert not any(each._script for each in packed._recorded.values())
        for _ in range(10):
            for length in (5, 30, 44, 390):
                outputs_of(packed, ids[:, :length], segments[:, :length])
        assert len(packed._recorded) == 3 * 3
        assert all(each._script is not None for each in packed._recorded.values())
        for length, expected in zip(lengths, eager, strict=True):
            found = outputs_of(packed, ids[:, :length], segments[:, :length])
            for ours, theirs in zip(found, expected, strict=True):
                assert torch.equal(ours, theirs), length


def outputs_of(packed: PackedBackbone, ids: Tensor, segments: Tensor) -> list[Tensor]:
    """The first token's state without the others, and those of all."""
    first = packed(ids, None, segments).first_token
    return [first, packed(ids, None, segments).last_hidden_state]


def test_what_cannot_be_recorded_is_computed_as_it_is() -> None:
    """A constant in place of the length would go unseen at that length."""
    calls = []

    def work(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x * (1.0 / len(x))

    def broken(x: Tensor) -> Tensor:
        return x + float(x.sum())

    for wrong in (work, broken):
        made = Recorded(wrong, 1, [])
        for length in [4] * 12 + [7]:
            x = torch.arange(float(length))[:, None]
            assert torch.equal(made(x), wrong(x))
        assert made._tried
        assert made._script is None
    assert calls


@pytest.mark.parametrize("act", ["gelu_new", "silu"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_the_same_without_packed_products(
    dtype: torch.dtype, tolerance: float, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, and in bf16 on CPUs without AVX-512."""
    monkeypatch.setattr(packed_float, "has_packed", lambda dtype: False)
    backbone = make(CONFIG.replace(hidden_act=act))
    packed = PackedBackbone(backbone, dtype)
    ids, mask, segments = inputs()
    with torch.inference_mode():
        expected = backbone(ids, mask, segments)
        for layer in backbone.layers:
            layer.up.weight.zero_()  # the packed weights are copies
        found = packed(ids, mask, segments)
        assert difference(found.pooler_output, expected.pooler_output) < 1.5 * tolerance
        last = found.last_hidden_state[mask[:, :32]]
        assert difference(last, expected.last_hidden_state[mask]) < tolerance


def test_the_model_is_not_touched() -> None:
    backbone = make()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    packed = pack(backbone, torch.bfloat16)
    ids, mask, _ = inputs()
    with torch.inference_mode():
        once = packed(ids, mask).last_hidden_state.clone()
        assert torch.equal(packed(ids, mask).last_hidden_state, once)
        for layer in backbone.layers:
            layer.up.weight.zero_()
        assert torch.equal(packed(ids, mask).last_hidden_state, once)
    assert not any(module._forward_pre_hooks for module in backbone.modules())
    assert torch.equal(before["layers.0.down.weight"], backbone.layers[0].down.weight)


@int8
def test_an_answer_in_8_bits_does_not_depend_on_the_neighbours() -> None:
    backbone = make()
    packed = pack(backbone, torch.int8)
    ids, mask, _ = inputs()
    with torch.inference_mode():
        # Few rows, of one sequence or of several, are computed in other calls.
        for rows in ([0], [2], [4, 1], [1, 2]):
            alone, among = packed(ids[rows], mask[rows]), packed(ids, mask)
            for at, row in enumerate(rows):
                n = int(mask[row].sum())
                found, expected = alone.last_hidden_state[at, :n], among.last_hidden_state[row, :n]
                assert difference(found, expected) < 1e-3
            # For the first tokens alone.
            found = packed(ids[rows], mask[rows]).pooler_output
            assert difference(found, packed(ids, mask).pooler_output[rows]) < 1e-3


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="about instructions of x86")
def test_bytes_are_refused_where_products_are_cut_at_16_bits() -> None:
    """What the processor says is not what oneDNN may use."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    program = "from bertine.inference.compute import why_not_int8; print(why_not_int8())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert "8-bit products" in done.stdout


@int8
def test_neurons_that_reach_far_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = make()
    with torch.no_grad():
        for layer in backbone.layers:
            layer.up.weight[7] *= 60
            layer.down.weight[:, 7] /= 60
    ids, mask, segments = inputs()
    with torch.inference_mode():
        expected = backbone(ids, mask, segments).last_hidden_state[mask]

        def error() -> float:
            found = pack(backbone, torch.int8)(ids, mask, segments).last_hidden_state
            return difference(found[mask[:, :32]], expected)

        with_them = error()
        monkeypatch.setattr(packed_int8, "_APART", 0)
        assert with_them < 0.06
        assert error() > 1.5 * with_them


def test_bytes_on_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ByteGrid.over(-1.0, 3.0)
    x = torch.linspace(-2, 4, 1001).view(7, 143)
    found = grid.round(x)
    assert found.dtype == torch.uint8
    back = (found.float() - grid.zero) * grid.scale
    inside = (x >= -1.0) & (x <= 3.0)
    assert (back - x)[inside].abs().max() <= grid.scale * 0.51
    assert back.min() == pytest.approx(-1.0, abs=grid.scale)
    assert back.max() == pytest.approx(3.0, abs=grid.scale)
    assert float((torch.tensor(grid.zero) - grid.zero) * grid.scale) == 0.0
    monkeypatch.setattr(packed_int8, "_has_quantize", lambda: False)
    again = grid.round(x)
    assert again.dtype == torch.uint8
    assert int((again.int() - found.int()).abs().max()) <= 1
    assert (again != found).float().mean() < 0.01


@pytest.mark.parametrize("length", [5, 400])
def test_attention(length: int) -> None:
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 3, length, 8, generator=draw) for _ in range(3))
    lengths = torch.tensor([length, length - 2])
    rows = PaddedRows.of(lengths, length)
    scaled = q * 8**-0.5
    found = attend(scaled, k, v, rows.bias)
    mask = torch.arange(length)[None] < lengths[:, None]
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask[:, None, None, :]
    )
    assert torch.allclose(found, expected, atol=1e-5)
    first = attend(scaled[:, :, :1], k, v, rows.bias)
    assert torch.allclose(first, expected[:, :, :1], atol=1e-5)
    # From one tensor, of several sequences and of one; [B, T, A, D].
    qkv = torch.stack([scaled, k, v]).permute(1, 3, 0, 2, 4).reshape(2 * length, -1)
    expected = expected.transpose(1, 2)
    for part, rows_of, right in (
        (qkv, rows, expected),
        (qkv[:length], PaddedRows(1, length), expected[:1]),
    ):
        found = attend_few(part, rows_of, 3, torch.float32)
        assert torch.allclose(found, right, atol=1e-5)
        first = attend_few(part, rows_of, 3, torch.float32, first=True)
        assert torch.allclose(first, right[:, :1], atol=1e-5)


@given(st.lists(st.integers(1, 70), min_size=2, max_size=20), st.sampled_from([1, 4, 8]))
def test_rows_without_padding(lengths: list[int], together: int) -> None:
    """Every token has a row and a place, and finds its sequence there."""
    rows = UnpaddedRows.of(torch.tensor(lengths), together)
    total = sum(lengths)
    assert total <= rows.count < total + 32
    names = torch.arange(rows.count)[:, None]  # what stands in a row: its number
    assert torch.equal(rows.tokens[rows.places][:total], names[:total, 0])
    starts = [sum(lengths[:at]) for at in range(len(lengths))]
    assert rows.first(names).flatten().tolist()[: len(lengths)] == starts
    padded = rows.padded(names)
    assert padded.shape == (len(lengths), max(lengths), 1)
    begin, seen = 0, []
    for group, members in zip(rows.groups, rows.members, strict=True):
        assert group.length % 8 == 0
        there = rows.tokens[begin : begin + group.area].view(group.sequences, group.length)
        for at, member in enumerate(members.tolist()):
            size, start = lengths[member], starts[member]
            expected = list(range(start, start + size))
            assert there[at, :size].tolist() == expected
            assert padded[member, :size, 0].tolist() == expected
            real = [True] * size + [False] * (group.length - size)
            if group.bias is None:
                assert all(real)
            else:
                assert (group.bias[at, 0] == 0).tolist() == real
            seen.append(member)
        assert group.sequences == len(members) <= together
        begin += group.area
    assert sorted(set(seen)) == list(range(len(lengths)))
    assert len(seen) == len(lengths) or len(seen) % together == 0
    assert begin == len(rows.tokens)
