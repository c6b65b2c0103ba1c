from __future__ import annotations

import pytest

from bertine.data.inspection import inspect_store, show_sequence
from bertine.data.pretraining import PretrainingData
from bertine.errors import BertineError
from bertine.text.tokenizer import Tokenizer

from .conftest import MakeStore


def with_tokenizer(made):
    store, tokenizer = made
    store.tokenizer_path.mkdir()
    tokenizer.save(store.tokenizer_path)
    return store


def test_the_facts_and_lengths_are_shown(make_store: MakeStore):
    store = with_tokenizer(make_store([[10] * 19 + [40], [20] * 20, [3]]))
    text = "\n".join(inspect_store(store.path, num_instances=2, max_seq_length=32))
    assert "documents      3 (1 of one sentence)" in text
    assert "sentences      41" in text
    assert "tokens         633" in text
    assert "verified" in text
    assert "tokens in a sentence: 5% 10, 25% 10, 50% 20, 75% 20, 95% 20, longest 40" in text
    assert "tokens in a document: 5% 3, 25% 3, 50% 230, 75% 400, 95% 400, longest 400" in text
    assert f"unigram entropy {store.unigram_entropy:.3f} nats" in text
    assert "instance 0: A from document" in text
    assert "instance 1: A from document" in text
    assert "instance 2" not in text


def test_an_instance_shows_what_was_done_to_each_token(make_store: MakeStore):
    store, tokenizer = make_store([[9] * 40] * 4)
    marks = {"MASK": 0, "kept": 0, "random": 0}
    data = PretrainingData(
        store, tokenizer, batch_size=32, mask_split=(0.4, 0.3, 0.3), masked_lm_prob=0.3
    )
    batch = data.batch(0)
    pairs = data.segments.instances(0, 32)
    for row, pair in enumerate(pairs):
        a, b = show_sequence(batch, row, tokenizer)
        shown = a.removeprefix("  A: [CLS] ").removesuffix(" [SEP]").split()
        shown += b.removeprefix("  B: ").removesuffix(" [SEP]").split()
        original = [*pair.tokens_a.tolist(), *pair.tokens_b.tolist()]
        assert len(shown) == len(original)
        for word, token_id in zip(shown, original, strict=True):
            token = tokenizer.id_to_token(token_id)
            if word == f"[MASK→{token}]":
                marks["MASK"] += 1
            elif word == f"[={token}]":
                marks["kept"] += 1
            elif word != token:
                assert word.startswith("[t")
                assert word.endswith(f"→{token}]")
                marks["random"] += 1
    assert sum(marks.values()) == len(batch.targets["mlm_labels"])
    assert all(count > 50 for count in marks.values())


def test_a_damaged_store_is_not_described(make_store: MakeStore):
    store = with_tokenizer(make_store([[30] * 50] * 3))
    shard = store.path / "tokens-00000.arrow"
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(BertineError, match="checksum"):
        inspect_store(store.path)


def test_another_tokenizer_put_into_the_store_is_found(make_store: MakeStore):
    store = with_tokenizer(make_store([[3, 2], [4]]))
    tokens = Tokenizer.load(store.tokenizer_path).tokens
    Tokenizer.from_vocab([*tokens, "more"]).save(store.tokenizer_path)
    with pytest.raises(BertineError, match="made with tokenizer"):
        inspect_store(store.path)


def test_a_single_document_is_described_without_instances(make_store: MakeStore):
    store = with_tokenizer(make_store([[3, 2]]))
    assert "at least two documents" in inspect_store(store.path)[-1]
