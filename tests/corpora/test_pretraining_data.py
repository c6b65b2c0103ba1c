from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.corpora.collators import TokenMasking
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

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


def equal(one: Batch, other: Batch) -> bool:
    return (
        torch.equal(one.input_ids, other.input_ids)
        and torch.equal(one.attention_mask, other.attention_mask)
        and torch.equal(one.token_type_ids, other.token_type_ids)
        and one.targets.keys() == other.targets.keys()
        and all(torch.equal(one.targets[k], other.targets[k]) for k in one.targets)
    )


def test_a_batch_is_cls_a_sep_b_sep_padded_to_its_longest(data):
    made = data(batch_size=16, max_seq_length=64)
    ids = {token: i for i, token in enumerate(SPECIAL_TOKENS)}
    for step in range(5):
        batch = made.batch(step)
        original = batch.input_ids.clone().reshape(-1)
        original[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
        original = original.reshape(batch.input_ids.shape)
        pairs = made.segments.instances(step * 16, 16)
        assert batch.input_ids.shape[1] == max(
            len(p.segments[0]) + len(p.segments[1]) + 3 for p in pairs
        )
        for row, pair in enumerate(pairs):
            a, b = pair.segments[0].tolist(), pair.segments[1].tolist()
            length = len(a) + len(b) + 3
            expected = [ids["[CLS]"], *a, ids["[SEP]"], *b, ids["[SEP]"]]
            assert original[row, :length].tolist() == expected
            assert (original[row, length:] == ids["[PAD]"]).all()
            assert batch.attention_mask[row].tolist() == [
                i < length for i in range(original.shape[1])
            ]
            types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
            assert batch.token_type_ids[row, :length].tolist() == types
            assert not batch.token_type_ids[row, length:].any()
            assert batch.targets["next_sentence_label"][row] == int(pair.label)


def test_the_types_are_those_of_the_batch(data):
    batch = data().batch(0)
    assert batch.attention_mask.dtype == torch.bool
    for tensor in (batch.input_ids, batch.token_type_ids, *batch.targets.values()):
        assert tensor.dtype == torch.int64
    assert batch.targets.keys() == {"mlm_positions", "mlm_labels", "next_sentence_label"}


def test_batches_are_a_function_of_store_seed_and_step(data):
    first = data(seed=5, max_seq_length=64)
    wanted = {step: first.batch(step) for step in range(6)}
    np.random.seed(99)
    torch.manual_seed(99)
    tokenizer = Tokenizer.from_vocab(
        [*SPECIAL_TOKENS, *(f"t{i}" for i in range(first.store.num_tokens))]
    )
    second = toys.instances_of(
        TokenStore.open(first.store.path), tokenizer, seed=5, max_seq_length=64
    )
    for step in (5, 0, 3, 3, 1, 4, 2):
        assert equal(second.batch(step), wanted[step])
    assert equal(pickle.loads(pickle.dumps(first)).batch(4), wanted[4])
    assert not equal(wanted[0], wanted[1])
    other = toys.instances_of(first.store, tokenizer, seed=6, max_seq_length=64)
    assert not equal(other.batch(0), wanted[0])


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


def test_fifteen_percent_are_chosen_up_to_the_limit(data):
    made = data(max_seq_length=128, batch_size=64)
    for step in range(10):
        batch = made.batch(step)
        lengths = batch.attention_mask.sum(1).tolist()
        rows = batch.targets["mlm_positions"] // batch.input_ids.shape[1]
        counts = torch.bincount(rows, minlength=64).tolist()
        assert counts == [min(20, max(1, round(n * 0.15))) for n in lengths]
    limited = data(max_seq_length=128, batch_size=64, max_predictions_per_seq=5).batch(0)
    rows = limited.targets["mlm_positions"] // limited.input_ids.shape[1]
    assert torch.bincount(rows, minlength=64).max() == 5


def test_eighty_ten_ten_in_the_batches(data):
    made = data(batch_size=64)
    hidden = kept = n = 0
    for step in range(40):
        batch = made.batch(step)
        now = batch.input_ids.reshape(-1)[batch.targets["mlm_positions"]]
        n += len(now)
        hidden += int((now == SPECIAL_TOKENS.index("[MASK]")).sum())
        kept += int((now == batch.targets["mlm_labels"]).sum())
    assert n > 20_000
    for count, rate in ((hidden, 0.8), (kept, 0.1), (n - hidden - kept, 0.1)):
        assert abs(count / n - rate) < 4.5 * (rate * (1 - rate) / n) ** 0.5


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


def test_a_wrong_tokenizer_is_refused(make_store: MakeStore):
    store, tokenizer = make_store([[5, 5], [5]])
    other = Tokenizer.from_vocab(tokenizer.tokens, lowercase=False)
    with pytest.raises(BertineError, match="made with tokenizer"):
        toys.instances_of(store, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"max_seq_length": 7}, "max_seq_length"),
        ({"masked_lm_prob": 1.5}, "masked_lm_prob"),
        ({"mask_split": (0.8, 0.1, 0.2)}, "mask_split"),
        ({"short_seq_prob": -0.1}, "short_seq_prob"),
    ],
)
def test_impossible_arguments_are_refused(data, options, message: str):
    with pytest.raises(BertineError, match=message):
        data(**options)


def test_the_description_is_json_and_names_what_a_run_depends_on(data):
    facts = json.loads(json.dumps(data(seed=9).describe()))
    assert facts["seed"] == 9
    assert facts["mask_split"] == [0.8, 0.1, 0.1]
    assert facts["num_documents"] == 10


def test_a_limit_that_binds_and_lone_sentences_are_warned_of(data):
    assert data().warnings() == []
    assert "raise it to 77" in data(max_seq_length=512).warnings()[0]
    assert data(max_seq_length=512, max_predictions_per_seq=None).warnings() == []
    assert "one sentence only" in data([[20]] * 5).warnings()[0]


def test_options_that_do_nothing_are_warned_of(data):
    idle = data(input_format="sentence-pair", short_seq_prob=0.2, dupe_factor=5).warnings()
    assert [line.split(" does nothing")[0] for line in idle] == [
        "short_seq_prob 0.2",
        "dupe_factor 5",
    ]
    assert data(short_seq_prob=0.2, masking="static", dupe_factor=5).warnings() == []


def test_whole_words_that_are_too_long_to_be_chosen_are_warned_of(data):
    words = data(whole_word_mask=True, max_seq_length=64)
    assert words.warnings() == []
    assert isinstance(words.corruption, TokenMasking)
    words.corruption._is_continuation[:] = (
        True  # each segment is one word; few have 10 pieces or less
    )
    (warning,) = words.warnings()
    assert "only 3% as many tokens are predicted" in warning
