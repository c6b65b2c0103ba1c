"""Which tokens are guessed in any order, and the order: shares, runs, both directions, memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.corpora.batch import select
from bertine.corpora.collators import starts_of_words
from bertine.corpora.formats import FullSentences
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.sequence_collators import PermutedLMCollator, choose_spans, draw_order
from bertine.corpora.store import TokenStore
from bertine.families.xlnet_layers import hidden_by_order
from bertine.options.pretraining import InstanceSettings, PermutationOptions
from bertine.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("permuted")
    corpus = toys.write_corpus(folder / "corpus.txt")
    bertine.train_vocab(
        corpus, folder / "vocab", kind="unigram", special_tokens="xlnet", vocab_size=60
    )
    bertine.prepare(corpus, tokenizer=folder / "vocab", out=folder / "store")
    return folder


def data_of(home: Path, input_format: Any = "full-sentences", **options: Any) -> PretrainingData:
    chosen = PermutationOptions(**options)
    return PretrainingData(
        TokenStore.open(home / "store"),
        Tokenizer.load(home / "vocab"),
        InstanceSettings(input_format=input_format, batch_size=8, max_seq_length=64),
        corruption=lambda tokenizer, settings: PermutedLMCollator(tokenizer, settings, chosen),
    )


def spans(length: int, rows: int, share: float = 1 / 6, words: int = 1) -> np.ndarray:
    """Choose a share of `length` tokens, so many of which are a word."""
    choosable = np.ones((rows, length), np.bool_)
    first = np.tile(np.arange(length) % words == 0, (rows, 1))
    wanted = np.full(rows, int(length * share))
    return choose_spans(choosable, first, wanted, generator(0, "spans"), longest=5, context=6)


def runs_of(row: np.ndarray) -> list[int]:
    """The lengths of the runs of chosen tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return (edges[1::2] - edges[::2]).tolist()


def test_one_token_in_six_is_guessed_and_no_special_one(home: Path) -> None:
    tokenizer = Tokenizer.load(home / "vocab")
    for input_format in ("full-sentences", "segment-pair"):
        data = data_of(home, input_format)
        for step in range(6):
            batch = data.batch(step)
            labels, positions = (batch.targets[f"plm_{name}"] for name in ("labels", "positions"))
            assert torch.equal(labels, batch.input_ids.flatten()[positions]), "nothing is masked"
            assert not set(labels.tolist()) & tokenizer.special_ids
            width = batch.input_ids.shape[1]
            counts = torch.bincount(positions // width, minlength=8)
            lengths = batch.attention_mask.sum(1)
            assert torch.equal(counts, torch.clamp((lengths / 6).round().long(), min=1))


def test_what_is_guessed_or_stands_around_texts_has_a_time_of_its_own(home: Path) -> None:
    tokenizer, data = Tokenizer.load(home / "vocab"), data_of(home)
    around = torch.tensor([tokenizer.cls_token_id, tokenizer.sep_token_id])
    firsts: Counter[bool] = Counter()
    for step in range(20):
        batch = data.batch(step)
        order = batch.targets["guessing_order"]
        guessed = torch.zeros(order.numel(), dtype=torch.bool)
        guessed[batch.targets["plm_positions"]] = True
        timed = guessed.view_as(order) | torch.isin(batch.input_ids, around)
        assert torch.equal(order >= 0, timed)
        for row in order:
            times = row[row >= 0].tolist()
            assert len(set(times)) == len(times)
            firsts[times[0] < times[1]] += 1
        hidden = hidden_by_order(order)
        places = guessed.view_as(order).nonzero().tolist()
        for row, place in places:
            assert hidden[row, place, place], "no target sees itself"
            later = order[row] > order[row, place]
            assert hidden[row, place][later].all(), "nor what is guessed later"
            known = order[row] < order[row, place]
            assert not hidden[row, place][known].any()
        plain = (order < 0).nonzero()[0].tolist()
        assert torch.equal(hidden[plain[0], plain[1]], order[plain[0]] >= 0)
    assert 50 < firsts[True] < 110, "either of two comes first half of the time"


def test_orders_are_uniform() -> None:
    timed = np.zeros((6000, 5), np.bool_)
    timed[:, [0, 2, 3]] = True
    order = draw_order(timed, generator(0, "orders"), None)
    assert (order[:, [1, 4]] == -1).all()
    seen = Counter(tuple(np.argsort(row[[0, 2, 3]])) for row in order)
    assert len(seen) == 6
    assert all(abs(count - 1000) < 4 * 1000**0.5 for count in seen.values())


def test_stretches_are_guessed_one_after_the_other() -> None:
    order = draw_order(np.ones((50, 12), np.bool_), generator(0, "orders"), 4)
    for row in order:
        assert [sorted(row[i : i + 4]) for i in (0, 4, 8)] == [
            [*range(i, i + 4)] for i in (0, 4, 8)
        ]
    assert len({tuple(row) for row in order}) == 50


@pytest.mark.slow
def test_runs_have_the_lengths_of_the_paper() -> None:
    """n words with a probability proportional to 1/n, six times as many tokens around them."""
    # So few that the text does not end before: single tokens do not make up for the rest.
    chosen = spans(4000, 60, share=0.08)
    assert (chosen.sum(1) == 320).all()
    lengths = Counter(length for row in chosen for length in runs_of(row))
    total = sum(lengths.values())
    shares = [1 / n / sum(1 / m for m in range(1, 6)) for n in range(1, 6)]
    touching = sum(count for length, count in lengths.items() if length > 5)
    assert touching < 0.05 * total
    for n, share in enumerate(shares, 1):
        assert abs(lengths[n] / total - share) < 0.03
    ends = [int(np.flatnonzero(row)[-1]) for row in chosen]
    assert abs(np.mean(ends) / (320 * 7) - 1) < 0.03, "one in seven, with their context"
    for rows in (spans(512, 50), spans(512, 50, words=3)):
        assert (rows.sum(1) == 85).all(), "as many as in the published code"


def test_runs_are_of_whole_words_but_for_the_last_ones() -> None:
    rows = spans(300, 60, words=3)
    whole = 0
    for row in rows:
        parts = row.reshape(-1, 3).sum(1)
        whole += int((parts == 3).sum())
        assert (np.isin(parts, [1, 2])).sum() <= 50 - 3 * int((parts == 3).sum())
    assert whole > 60 * 10


def test_a_run_ends_before_a_special_token_and_short_texts_have_what_they_have() -> None:
    choosable = np.array([[1, 1, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0], [0] * 6], np.bool_)
    first = starts_of_words(choosable, np.zeros_like(choosable))
    chosen = choose_spans(
        choosable, first, np.array([5, 2, 1]), generator(0, "s"), longest=5, context=1
    )
    assert np.array_equal(chosen, choosable)


def test_both_directions_are_halves_of_a_batch(home: Path) -> None:
    """The same texts as without, the second half from their end, with the ends of words as
    beginnings."""
    plain, both = data_of(home), data_of(home, both_directions=True)
    for step in range(4):
        one, two = plain.batch(step), both.batch(step)
        assert two.targets["backwards"].tolist() == [False] * 4 + [True] * 4
        assert torch.equal(one.attention_mask, two.attention_mask)
        for row in range(8):
            length = int(one.attention_mask[row].sum()) - 2  # <sep> <cls> stay last
            text, read = one.input_ids[row, :length], two.input_ids[row, :length]
            assert torch.equal(read, text.flip(0) if row >= 4 else text)
            assert torch.equal(one.input_ids[row, length:], two.input_ids[row, length:])
    pairs = data_of(home, "segment-pair", both_directions=True).batch(0)
    for row in range(8):
        types = pairs.token_type_ids[row][pairs.attention_mask[row]].tolist()
        assert types == sorted(types)
        assert types[0] == 0
        assert types[-1] == 2


def test_a_memory_is_the_text_before_or_behind(home: Path) -> None:
    plain = data_of(home)
    data = data_of(home, memory_length=10, both_directions=True)
    segments = data.segments
    assert isinstance(segments, FullSentences)
    seen = 0
    for step in range(4):
        batch = data.batch(step)
        ids, mask = batch.targets["memory_ids"], batch.targets["memory_mask"]
        assert ids.shape == mask.shape
        for row in range(8):
            behind = row >= 4
            beside = segments.neighbour(step * 8 + row, 1 if behind else -1)
            given = ids[row][mask[row]].tolist()
            if beside is None:
                assert given == []
                continue
            separator = data.frame.between[0]
            text: list[int] = []
            for number, part in enumerate(beside.segments):
                text += [separator] * bool(number) + part.tolist()
            assert given == (text[:10][::-1] if behind else text[-10:])
            assert mask[row].tolist() == sorted(mask[row].tolist()), "the nearest token is last"
            seen += 1
        assert torch.equal(batch.input_ids[:4], plain.batch(step).input_ids[:4])
        part = select(batch, torch.tensor([1, 6]))
        assert torch.equal(part.targets["memory_ids"], ids[[1, 6]])
        assert torch.equal(part.targets["guessing_order"], batch.targets["guessing_order"][[1, 6]])
    assert seen > 24


def test_the_text_before_is_what_the_sequence_goes_on_from(home: Path) -> None:
    """Of an epoch, the sequence that is before another one ends where that begins."""
    data = data_of(home)
    segments = data.segments
    assert isinstance(segments, FullSentences)
    joined = 0
    for number in range(segments.instances_per_epoch):
        before = segments.neighbour(number, -1)
        if before is None:
            continue
        again = [
            n
            for n in range(segments.instances_per_epoch)
            if (other := segments.neighbour(n, 0)) is not None
            and other.documents == before.documents
            and all(map(np.array_equal, other.segments, before.segments))
        ]
        joined += bool(again)
    assert joined == segments.instances_per_epoch - 1


def test_a_memory_needs_text_before_the_sequences(home: Path) -> None:
    with pytest.raises(BertineError, match=r"memory_length=4 needs input_format='full-sentences'"):
        data_of(home, "segment-pair", memory_length=4)


def test_batches_are_functions_of_the_step(home: Path) -> None:
    given: dict[str, Any] = {"both_directions": True, "memory_length": 6, "permuted_length": 16}
    one, two = data_of(home, **given), data_of(home, **given)
    two.batch(5)
    for step in (3, 0):
        ours, theirs = one.batch(step), two.batch(step)
        assert all(map(torch.equal, ours.tensors(), theirs.tensors()))
    orders = [one.batch(step).targets["guessing_order"].flatten().tolist() for step in range(4)]
    assert len({tuple(order) for order in orders}) == 4
