"""Stores whose every token says where it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import toys
from bertine.corpora.store import TokenStore
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

#: Ids of ordinary tokens begin here.
FIRST_ID = len(SPECIAL_TOKENS)

MakeStore = Callable[..., tuple[TokenStore, Tokenizer]]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    """``make_store([[3, 2], [4]])``: a document with sentences of 3 and 2 tokens, and one with a
    sentence of 4. Every token of the store has an id of its own, ascending from FIRST_ID."""
    made = 0

    def make(
        documents: Sequence[Sequence[int]],
        *,
        record_batch_tokens: int = 1 << 20,
        shard_tokens: int = 1 << 28,
    ) -> tuple[TokenStore, Tokenizer]:
        nonlocal made
        made += 1
        folder = tmp_path / f"store-{made}"
        folder.mkdir()
        num_tokens = sum(map(sum, documents))
        tokenizer = Tokenizer.from_vocab([*SPECIAL_TOKENS, *(f"t{i}" for i in range(num_tokens))])
        with toys.DocumentWriter(
            folder,
            vocab_size=tokenizer.vocab_size,
            record_batch_tokens=record_batch_tokens,
            shard_tokens=shard_tokens,
        ) as writer:
            position = FIRST_ID
            for lengths in documents:
                total = sum(lengths)
                writer.append(
                    np.arange(position, position + total),
                    np.array(lengths, np.int64),
                    np.array([len(lengths)]),
                )
                position += total
            writer.finish({"tokenizer_fingerprint": tokenizer.fingerprint, "language": "en"})
        return TokenStore.open(folder, tokenizer), tokenizer

    return make


@pytest.fixture
def document_of() -> Callable[[TokenStore, int], int]:
    """The document of an id in a store of `make_store`."""

    def find(store: TokenStore, token_id: int) -> int:
        return store.locate(int(token_id) - FIRST_ID)[0]

    return find
