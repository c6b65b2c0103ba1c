from __future__ import annotations

import numpy as np
import pytest
import torch

import toys
from bertine.corpora.collators import TokenMasking
from bertine.corpora.pretraining_data import PretrainingData
from bertine.tokenization.tokenizer import SPECIAL_TOKENS

from .conftest import MakeStore


@pytest.fixture
def data(make_store: MakeStore):
    def make(documents=None, **options) -> PretrainingData:
        rng = np.random.default_rng(0)
        if documents is None:
            documents = [rng.integers(3, 40, size=100).tolist() for _ in range(10)]
        store, tokenizer = make_store(documents)
        return toys.instances_of(store, tokenizer, **options)

    return make


def test_special_tokens_are_never_chosen_and_never_put_in(make_store: MakeStore):
    # Raw text may hold "[MASK]" or unknown words: ids below 5 occur inside the documents too.
    store, tokenizer = make_store([[30] * 40] * 6)
    data = toys.instances_of(store, tokenizer, mask_split=(0.0, 1.0, 0.0), masked_lm_prob=0.5)
    seen = set()
    real = data.segments.instances

    def with_specials(first: int, count: int):
        pairs = real(first, count)
        for number, pair in enumerate(pairs):
            a = pair.segments[0].copy()
            a[::3] = number % len(SPECIAL_TOKENS)
            pairs[number] = pair._replace(segments=(a, pair.segments[1]))
        return pairs

    data.segments.instances = with_specials  # type: ignore[method-assign]
    for step in range(20):
        batch = data.batch(step)
        chosen = batch.input_ids.reshape(-1)[batch.targets["mlm_positions"]]
        assert batch.targets["mlm_labels"].min() >= len(SPECIAL_TOKENS)
        assert chosen.min() >= len(SPECIAL_TOKENS)
        assert chosen.max() < tokenizer.vocab_size
        assert batch.attention_mask.reshape(-1)[batch.targets["mlm_positions"]].all()
        seen |= set(chosen.tolist())
    assert len(seen) > 1000


def test_half_of_the_labels_are_random(data):
    made = data(batch_size=128)
    labels = torch.cat([made.batch(step).targets["next_sentence_label"] for step in range(80)])
    assert set(labels.tolist()) == {0, 1}
    assert abs(labels.double().mean() - 0.5) < 4 * 0.5 / len(labels) ** 0.5


def test_steps_follow_each_other_through_the_epoch(data):
    made = data(batch_size=24)
    assert made.steps_per_epoch * 24 >= made.instances_per_epoch
    assert (made.steps_per_epoch - 1) * 24 < made.instances_per_epoch
    assert made.batch(10 * made.steps_per_epoch).num_sequences == 24


def test_a_limit_that_binds_and_lone_sentences_are_warned_of(data):
    assert data().warnings() == []
    assert "raise it to 77" in data(max_seq_length=512).warnings()[0]
    assert data(max_seq_length=512, max_predictions_per_seq=None).warnings() == []
    assert "one sentence only" in data([[20]] * 5).warnings()[0]


def test_whole_words_that_are_too_long_to_be_chosen_are_warned_of(data):
    words = data(whole_word_mask=True, max_seq_length=64)
    assert words.warnings() == []
    assert isinstance(words.corruption, TokenMasking)
    words.corruption._is_continuation[:] = (
        True  # each segment is one word; few have 10 pieces or less
    )
    (warning,) = words.warnings()
    assert "only 3% as many tokens are predicted" in warning


def test_options_that_do_nothing_are_warned_of(data):
    idle = data(input_format="sentence-pair", short_seq_prob=0.2, dupe_factor=5).warnings()
    assert [line.split(" does nothing")[0] for line in idle] == [
        "short_seq_prob 0.2",
        "dupe_factor 5",
    ]
    assert data(short_seq_prob=0.2, masking="static", dupe_factor=5).warnings() == []
