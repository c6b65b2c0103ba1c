"""Where the real tokens stand."""

from __future__ import annotations

import pytest
import torch

from bertine.corpora.batch import Batch, packing


@pytest.mark.parametrize(
    ("lengths", "width"), [([5, 9, 1], 9), ([128, 128], 128), ([8, 60, 100, 3], 100), ([1], 8)]
)
def test_every_real_token_once_in_its_sequence(lengths: list[int], width: int) -> None:
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    found = packing(mask)
    count = sum(lengths)
    assert found.real[:count].tolist() == mask.reshape(-1).nonzero()[:, 0].tolist()
    assert found.real.unique().numel() == found.real.numel()
    assert found.real.numel() % 128 == 0 or found.real.numel() == mask.numel()
    sizes = found.ends.diff().tolist()
    assert sizes[: len(lengths)] == lengths
    assert min(sizes) >= 0
    assert max(sizes) <= found.longest
    assert found.ends[0] == 0
    assert found.ends[-1] == found.real.numel()
    assert found.ends.dtype == torch.int32


def test_shapes_come_again() -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = set()
    for _ in range(50):
        lengths = torch.randint(100, 129, (32,), generator=draw)
        lengths[0] = 128
        found = packing(torch.arange(128) < lengths[:, None])
        shapes.add((found.real.shape, found.ends.shape, found.longest))
    assert len({shape[1:] for shape in shapes}) == 1
    assert len(shapes) <= 4


def test_it_travels_with_the_batch() -> None:
    ids = torch.ones(2, 8, dtype=torch.int64)
    batch = Batch(ids, ids > 0, ids * 0)
    assert batch.packing is None
    packed = batch.packed()
    assert packed.packing is not None
    assert packed.to("cpu").packing is not None
    assert len(packed.tensors()) == len(batch.tensors()) + 2
    moved = packed.to("meta")
    assert all(tensor.device.type == "meta" for tensor in moved.tensors())
