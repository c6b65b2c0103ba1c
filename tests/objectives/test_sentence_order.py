"""Masked words with the order of sentences: what is counted, and that the order is learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import toys
from bertine.corpora.store import TokenStore
from bertine.models.heads import Model
from bertine.objectives import choose
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

SENTENCES = 12


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    """Documents that go through the vocabulary: sentence s is of the words 5 s to 5 s + 4."""
    rng = np.random.default_rng(0)
    tokenizer = Tokenizer.from_vocab([*SPECIAL_TOKENS, *(f"t{i}" for i in range(5 * SENTENCES))])
    with toys.DocumentWriter(
        tmp_path,
        vocab_size=tokenizer.vocab_size,
        record_batch_tokens=1 << 20,
        shard_tokens=1 << 28,
    ) as writer:
        for _ in range(200):
            ids = [rng.integers(5 * s, 5 * s + 5, size=4) + 5 for s in range(SENTENCES)]
            lengths = np.full(SENTENCES, 4)
            writer.append(np.concatenate(ids), lengths, np.array([SENTENCES]))
        writer.finish({"tokenizer_fingerprint": tokenizer.fingerprint, "language": "en"})
    tokenizer.save(tmp_path / "tokenizer")
    return TokenStore.open(tmp_path, tokenizer)


def test_the_loss_is_the_mean_over_masked_tokens_and_that_over_pairs(store: TokenStore) -> None:
    tokenizer = Tokenizer.load(store.path / "tokenizer")
    config = toys.config_for("mlm-sop").replace(vocab_size=tokenizer.vocab_size)
    objective, input_format = choose(config)
    model = Model(config, objective.heads(config)).eval()
    batch = toys.instances_of(
        store, tokenizer, input_format=input_format, max_seq_length=32, batch_size=8
    ).batch(0)
    terms = objective.terms(model, batch)
    assert objective.counts(batch) == {name: term.count for name, term in terms.items()}
    assert list(terms) == ["mlm", "sop"]
    logits = model.read("sop", model.encode(batch))
    labels = batch.targets["sentence_order_label"]
    expected = F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(terms["sop"].total, expected)
    assert terms["sop"].correct is not None
    assert int(terms["sop"].correct) == int((logits.argmax(1) == labels).sum())
