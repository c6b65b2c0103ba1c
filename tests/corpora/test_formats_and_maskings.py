"""The choices of :class:`PretrainingData`: formats, whole words, static and dynamic masking."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.corpora.collators import MASKINGS
from bertine.corpora.formats import FORMATS, INPUT_FORMATS
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

from .conftest import MakeStore

IDS = {token: number for number, token in enumerate(SPECIAL_TOKENS)}


@pytest.fixture
def data(make_store: MakeStore) -> Callable[..., PretrainingData]:
    def make(documents=None, **options) -> PretrainingData:
        rng = np.random.default_rng(0)
        if documents is None:
            documents = [rng.integers(3, 40, size=rng.integers(1, 60)).tolist() for _ in range(20)]
        return toys.instances_of(*make_store(documents, record_batch_tokens=3000), **options)

    return make


def everything(batch: Batch) -> list[torch.Tensor]:
    targets = [batch.targets[name] for name in sorted(batch.targets)]
    return [batch.input_ids, batch.attention_mask, batch.token_type_ids, *targets]


def equal(one: Batch, other: Batch) -> bool:
    return one.targets.keys() == other.targets.keys() and all(
        torch.equal(a, b) for a, b in zip(everything(one), everything(other), strict=True)
    )


def rows(batch: Batch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each sequence its tokens as the model sees them, and before."""
    original = batch.input_ids.clone()
    original.view(-1)[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
    lengths = batch.attention_mask.sum(1).tolist()
    return [
        (tuple(seen[:length].tolist()), tuple(was[:length].tolist()))
        for seen, was, length in zip(batch.input_ids, original, lengths, strict=True)
    ]


def test_defaults_make_the_batches_they_always_made(make_store: MakeStore):
    # Computed when segment pairs with dynamic masking were all there was: runs begun then must
    # be resumed with the same batches.
    documents = [[(d * 7 + s * 5) % 29 + 1 for s in range(3 + d * 11 % 40)] for d in range(12)]
    store, tokenizer = make_store(documents, record_batch_tokens=500)
    known = {
        "f1a7d52a489d73e4eb23186c335daa687cbac49047702076d88ac5d4fac4a5de": {},
        "bb03f5cec9d0244cc85c0e5ddab49babee2c3af6cc4e242cadd722aea216f16c": {
            "seed": 7,
            "batch_size": 9,
            "max_seq_length": 64,
            "max_predictions_per_seq": None,
            "mask_split": (0.4, 0.3, 0.3),
            "short_seq_prob": 0.5,
            "masked_lm_prob": 0.3,
        },
    }
    for wanted, options in known.items():
        made = toys.instances_of(store, tokenizer, **options)
        digest = hashlib.sha256()
        for step in (0, 1, 2, 37, 1000):
            batch = made.batch(step)
            names = ("mlm_positions", "mlm_labels", "next_sentence_label")
            for tensor in (
                batch.input_ids,
                batch.attention_mask,
                batch.token_type_ids,
                *(batch.targets[name] for name in names),
            ):
                digest.update(str(list(tensor.shape)).encode())
                digest.update(tensor.numpy().astype("<i8").tobytes())
        assert digest.hexdigest() == wanted


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_special_tokens_stand_where_the_format_has_them(data, input_format: str):
    made = data(input_format=input_format, batch_size=32, max_seq_length=96)
    form, crossed = FORMATS[input_format], 0
    for step in range(8):
        batch = made.batch(step)
        for number, (instance, (_, tokens)) in enumerate(
            zip(made.instances(step), rows(batch), strict=True)
        ):
            expected = [IDS["[CLS]"]]
            for segment in instance.segments:
                expected += [*segment.tolist(), IDS["[SEP]"]]
            if form.bare:  # none at its ends
                expected = expected[1:-1]
            assert list(tokens) == expected
            assert len(tokens) <= 96
            types = batch.token_type_ids[number].tolist()
            if form.pairs:
                assert len(instance.segments) == 2
                first = len(instance.segments[0]) + 2
                assert types[: len(tokens)] == [0] * first + [1] * (len(tokens) - first)
                label = int(batch.targets[form.label.target][number])
                a, b = instance.segments
                before = input_format == "sentence-order" and b[0] < a[0]
                assert label == (instance.documents[0] != instance.documents[1] or before)
            else:
                assert not any(types)
                crossed += len(instance.segments) > 1
    asked = [] if form.label is None else [form.label.target]
    asked += ["groups"] if form.neighbours else []
    assert [name for name in batch.targets if not name.startswith("mlm")] == asked
    assert (crossed > 0) == (input_format in ("full-sentences", "running-text"))


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("whole_word_mask", [False, True])
def test_a_batch_depends_on_seed_and_step_only(
    data, input_format: str, masking: str, whole_word_mask: bool
):
    options = {
        "input_format": input_format,
        "masking": masking,
        "dupe_factor": 2,
        "whole_word_mask": whole_word_mask,
        "max_seq_length": 64,
        "seed": 5,
    }
    made = data(**options)
    far = 5 * made.steps_per_epoch - 2
    wanted = {step: made.batch(step) for step in (*range(4), *range(far, far + 4))}
    sent = pickle.loads(pickle.dumps(made))
    for step in reversed(wanted):
        assert equal(sent.batch(step), wanted[step])
    assert not equal(wanted[0], wanted[1])
    assert not equal(data(**{**options, "seed": 6}).batch(0), wanted[0])


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_fifteen_percent_of_every_format_are_chosen(data, input_format: str):
    made = data(input_format=input_format, batch_size=64, max_predictions_per_seq=None)
    for step in range(4):
        batch = made.batch(step)
        chosen = torch.bincount(
            batch.targets["mlm_positions"] // batch.input_ids.shape[1], minlength=64
        )
        lengths = batch.attention_mask.sum(1).tolist()
        assert chosen.tolist() == [max(1, round(length * 0.15)) for length in lengths]


# Static masking


def test_static_masking_comes_back_after_its_copies(data):
    made = data(masking="static", dupe_factor=3, batch_size=7, max_seq_length=64)
    n = made.instances_per_epoch

    def sequences(first: int, count: int):
        """Instances by their number, from the batches that hold them."""
        steps = range(first // 7, (first + count) // 7 + 1)
        found = [row for step in steps for row in rows(made.batch(step))]
        return found[first - steps[0] * 7 :][:count]

    epochs = [sequences(epoch * n, n) for epoch in range(7)]
    assert epochs[3] == epochs[0]
    assert epochs[4] == epochs[1]
    assert epochs[6] == epochs[0]
    assert not set(epochs[0]) & set(epochs[1])
    assert not set(epochs[1]) & set(epochs[2])


def test_one_sequence_is_masked_in_as_many_ways_as_there_are_copies(data):
    # A document that is one sequence: the same tokens in every copy.
    made = data(
        [[20], [30]],
        input_format="doc-sentences",
        masking="static",
        dupe_factor=10,
        batch_size=2,
        max_seq_length=64,
    )
    ways: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for step in range(40):
        for seen, was in rows(made.batch(step)):
            ways.setdefault(was, []).append(seen)
    assert len(ways) == 2
    for seen in ways.values():
        assert len(seen) == 40
        assert 8 <= len(set(seen)) <= 10
        assert seen[:10] == seen[10:20] == seen[20:30]


def test_dynamic_masks_do_not_come_back(data):
    made = data([[20], [30]], input_format="doc-sentences", batch_size=2, max_seq_length=64)
    seen = {row for step in range(40) for row, _ in rows(made.batch(step))}
    assert len(seen) > 60


# Whole words


@pytest.fixture
def wordy(tmp_path: Path) -> tuple[TokenStore, Tokenizer]:
    """A store of 40 documents whose words have 1 to 4 pieces."""
    tokens = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(300)), *(f"##p{i}" for i in range(200))]
    tokenizer = Tokenizer.from_vocab(tokens)
    rng = np.random.default_rng(1)
    with toys.DocumentWriter(tmp_path, vocab_size=len(tokens)) as writer:
        for _ in range(40):
            sentences = []
            for length in rng.integers(3, 15, size=30):
                pieces: list[int] = []
                for _ in range(length):
                    pieces.append(5 + int(rng.integers(300)))
                    more = rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])
                    pieces += rng.integers(305, 505, size=more).tolist()
                sentences.append(pieces)
            writer.add_document(sentences)
        writer.finish({"tokenizer_fingerprint": tokenizer.fingerprint, "language": "en"})
    return TokenStore.open(tmp_path, tokenizer), tokenizer


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("input_format", ["segment-pair", "full-sentences"])
def test_whole_words_are_chosen_at_the_same_rate(wordy, input_format: str, masking: str):
    made = toys.instances_of(
        *wordy,
        batch_size=64,
        input_format=input_format,
        masking=masking,
        whole_word_mask=True,
    )
    hidden = kept = n = wanted = 0
    for step in range(20):
        batch = made.batch(step)
        width = batch.input_ids.shape[1]
        positions = batch.targets["mlm_positions"]
        chosen = torch.zeros(batch.input_ids.numel(), dtype=torch.bool)
        chosen[positions] = True
        original = batch.input_ids.clone().view(-1)
        original[positions] = batch.targets["mlm_labels"]
        continues = original >= 305
        # A piece that continues a word is chosen if and only if the piece before it is, unless
        # the word was cut off at a [SEP] or [CLS].
        inside = continues.nonzero().view(-1)
        inside = inside[original[inside - 1] >= 5]
        assert torch.equal(chosen[inside], chosen[inside - 1])
        counts = torch.bincount(positions // width, minlength=64).tolist()
        limits = [min(20, max(1, round(int(m) * 0.15))) for m in batch.attention_mask.sum(1)]
        assert all(count <= limit for count, limit in zip(counts, limits, strict=True))
        wanted += sum(limits)
        now = batch.input_ids.view(-1)[positions]
        n += len(now)
        hidden += int((now == IDS["[MASK]"]).sum())
        kept += int((now == batch.targets["mlm_labels"]).sum())
    assert n > 0.99 * wanted
    for count, rate in ((hidden, 0.8), (kept, 0.1), (n - hidden - kept, 0.1)):
        # A random token is the right one in 1 of 500 cases.
        assert abs(count / n - rate) < 4.5 * (rate * (1 - rate) / n) ** 0.5 + 3e-4


# What is said of it


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_an_id_outside_the_vocabulary_is_laid_to_its_document(data, input_format: str):
    made = data([[9, 9]] * 4, input_format=input_format, max_seq_length=32, whole_word_mask=True)
    chunk, wrong = made.store.chunk(0), made.store.vocab_size
    more = wrong - 41  # document 2 begins with the id 41
    chunk.input_ids = chunk.input_ids + np.uint16(more)
    with pytest.raises(BertineError, match=r"document [23] holds the id \d+, but") as caught:
        made.batch(0)
    found = str(caught.value).replace(",", "").split()
    document, held = int(found[found.index("document") + 1]), int(found[found.index("id") + 1])
    assert held >= wrong
    assert document == (held - more - 5) // 18
    with pytest.raises(BertineError, match=r"document [23] holds the id \d+, but"):
        made.warnings()  # which looks at batches, before the first step
