"""Shares of a batch: everything once, evenly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertine.corpora.batch import cut, deal

LENGTHS = st.lists(st.integers(1, 512), min_size=1, max_size=70)


@given(LENGTHS, st.integers(1, 9))
def test_every_row_is_dealt_once(lengths: list[int], processes: int) -> None:
    shares = deal(torch.tensor(lengths), processes)
    assert len(shares) == processes
    assert sorted(torch.cat(shares).tolist()) == list(range(len(lengths)))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert all(share.tolist() == sorted(share.tolist()) for share in shares)


@given(LENGTHS, st.integers(1, 9))
def test_tokens_are_about_equal(lengths: list[int], processes: int) -> None:
    """In snake order no two shares differ by more than the longest sequence."""
    given = torch.tensor(lengths)
    tokens = [int(given[share].sum()) for share in deal(given, processes)]
    assert max(tokens) - min(tokens) <= max(lengths)


def test_a_large_batch_is_dealt_within_a_percent() -> None:
    lengths = torch.randint(8, 129, (256,), generator=torch.Generator().manual_seed(0))
    tokens = [int(lengths[share].sum()) for share in deal(lengths, 8)]
    assert max(tokens) / min(tokens) < 1.01


@given(LENGTHS, st.integers(1, 5), st.integers(1, 3000))
def test_micro_batches_keep_to_the_budget(
    lengths: list[int], processes: int, max_tokens: int
) -> None:
    given = torch.tensor(lengths)
    for share in deal(given, processes):
        parts = cut(given, share, max_tokens)
        rows = [row for part in parts for row in part.tolist()]
        assert sorted(rows) == share.tolist()
        for part in parts:
            assert len(part) * int(given[part].max()) <= max_tokens or len(part) == 1


@pytest.mark.parametrize("max_tokens", [30, 60, 200])
def test_cut_as_a_batch_is_split(max_tokens: int) -> None:
    """One process of several computes in the parts that it would by itself."""
    from bertine.corpora.batch import Batch, split

    lengths = torch.tensor([9, 12, 3, 12, 5, 7, 7, 2])
    real = torch.arange(12) < lengths[:, None]
    ids = torch.arange(8)[:, None] * real
    batch = Batch(ids, real, torch.zeros_like(ids), {}, list(range(8)))
    parts = [part.tolist() for part in cut(lengths, torch.arange(8), max_tokens)]
    assert parts == [part.rows for part in split(batch, max_tokens)]
