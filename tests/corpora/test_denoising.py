"""The corruptions of BART: what each does to a text, its statistics, and that all is drawn by seed
and step."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import toys
from bertine.core.rng import generator
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.sequence_collators import (
    deleted,
    infilled,
    masked,
    permuted,
    rotated,
    span_lengths,
)
from bertine.objectives.losses import Denoising
from bertine.options.pretraining import DenoisingOptions

MASK = 4
TEXT = np.arange(100, 160, dtype=np.uint16)
NOTHING = {"infill_share": 0.0, "permute_share": 0.0}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


def data_of(store: Path, options: dict[str, Any], **changes: Any) -> PretrainingData:
    objective = Denoising(DenoisingOptions(**options))
    given = {"input_format": "full-sentences", "max_seq_length": 40, "batch_size": 8, **changes}
    return toys.pretraining_data(store, **given, corruption=objective.corruption)


def originals(row: torch.Tensor, mask: torch.Tensor) -> list[int]:
    return row[mask].tolist()


def test_lengths_of_spans_are_poisson() -> None:
    """Compared with the distribution's probabilities; all but the last, which may be cut."""
    counts: Counter[int] = Counter()
    for number in range(2000):
        lengths, zeros = span_lengths(60, 3.0, generator(number, "lengths"))
        assert lengths.sum() == 60
        counts.update(lengths[:-1].tolist())
        counts[0] += zeros
    total = sum(counts.values())
    for length in range(8):
        expected = math.exp(-3) * 3**length / math.factorial(length)
        # Long ones are the last of their text a little more often.
        assert counts[length] / total == pytest.approx(expected, abs=0.012), length


@pytest.mark.slow
def test_spans_become_one_mask_each_and_a_share_of_the_tokens_goes() -> None:
    lost, masks, spans = [], [], []
    first = np.zeros(len(TEXT))
    for number in range(3000):
        result = infilled(TEXT, 18, generator(number, "infill"), mask=MASK)
        kept = result[result != MASK]
        assert len(result) <= len(TEXT)
        assert (np.diff(kept) > 0).all(), "the order stays"
        lost.append(len(TEXT) - len(kept))
        masks.append(int((result == MASK).sum()))
        gone = ~np.isin(TEXT, kept)
        first += gone
        spans.append(int((np.diff(np.append(0, gone.astype(int))) == 1).sum()))
    assert set(lost) == {18}
    drawn = [span_lengths(18, 3.0, generator(number, "infill")) for number in range(3000)]
    assert spans == [len(lengths) for lengths, _ in drawn], "no two spans touch"
    assert masks == [len(lengths) + zeros for lengths, zeros in drawn]
    assert np.mean([zeros for _, zeros in drawn]) > 0.2, "masks are put in, too"
    # Each token is as likely to go as any other, but for the edges, where fewer spans reach.
    assert first[5:-5] / 3000 == pytest.approx(0.3, abs=0.05)


def test_spans_of_whole_words_begin_and_end_with_words() -> None:
    goes_on = np.arange(60) % 3 > 0  # words of three pieces
    for number in range(50):
        result = infilled(TEXT, 18, generator(number, "words"), mask=MASK, goes_on=goes_on)
        kept = result[result != MASK].reshape(-1, 3)
        assert len(kept) == 14, "6 of 20 words"
        assert (kept[:, 0] % 3 == 100 % 3).all()
        assert (np.diff(kept, axis=1) == 1).all()


def test_a_text_may_be_covered_by_spans_and_never_gets_longer() -> None:
    for number in range(200):
        draw = generator(number, "all")
        assert set(infilled(TEXT, 60, draw, mask=MASK, mean=1.0)) == {MASK}
        assert len(infilled(TEXT[:2], 1, draw, mask=MASK, mean=0.2)) <= 2


def test_sentences_are_permuted_uniformly() -> None:
    seen: Counter[tuple[int, ...]] = Counter()
    for number in range(2400):
        order = permuted((3, 4, 9), generator(number, "permute"))
        assert sorted(order) == list(range(9))
        seen[tuple(order.tolist())] += 1
    parts = ([0, 1, 2], [3], [4, 5, 6, 7, 8])
    wanted = {tuple(itertools.chain(*some)) for some in itertools.permutations(parts)}
    assert set(seen) == wanted
    assert all(count / 2400 == pytest.approx(1 / 6, abs=0.03) for count in seen.values())


def test_tokens_are_masked_deleted_and_rotated_uniformly() -> None:
    hidden, gone, begins = np.zeros(60), np.zeros(60), np.zeros(60)
    for number in range(2000):
        draw = generator(number, "others")
        result = masked(TEXT, 12, draw, mask=MASK)
        assert len(result) == 60
        assert (result == MASK).sum() == 12
        hidden += result == MASK
        rest = deleted(TEXT, 15, draw)
        assert len(rest) == 45
        gone += ~np.isin(TEXT, rest)
        turned = rotated(TEXT, draw)
        assert (np.diff(turned.astype(int)) % 60 == 1).all()
        begins[turned[0] - 100] += 1
    assert hidden / 2000 == pytest.approx(0.2, abs=0.045)
    assert gone / 2000 == pytest.approx(0.25, abs=0.05)
    assert begins / 2000 == pytest.approx(1 / 60, abs=0.012)
    assert deleted(TEXT[:1], 5, generator(0)).tolist() == [100]


def test_targets_are_the_texts_as_they_were(store: Path) -> None:
    data = data_of(store, {})
    plain = data_of(store, NOTHING)
    for step in range(4):
        batch, same = data.batch(step), plain.batch(step)
        assert torch.equal(batch.targets["target_ids"], same.input_ids)
        assert torch.equal(batch.targets["target_mask"], same.attention_mask)
        assert torch.equal(same.targets["target_ids"], same.input_ids)
        assert not torch.equal(batch.input_ids, same.input_ids)
        assert batch.input_ids.shape[1] <= same.input_ids.shape[1]


def test_special_tokens_stay_and_documents_do_not_mix(store: Path) -> None:
    options = {
        "delete_share": 0.1,
        "mask_share": 0.1,
        "rotate_share": 1.0,
    }
    data = data_of(store, options, max_seq_length=64)
    special = [data.frame.before[0], data.frame.after[0]]
    several = 0
    for step in range(6):
        batch = data.batch(step)
        for row, instance in enumerate(data.instances(step)):
            ids = originals(batch.input_ids[row], batch.attention_mask[row])
            assert [ids[0], ids[-1]] == special
            ends = [place for place, token in enumerate(ids) if token == special[1]]
            assert len(ends) == len(instance.segments)
            several += len(ends) > 1
            begin = 1
            for end, segment in zip(ends, instance.segments, strict=True):
                assert set(ids[begin:end]) <= {*segment.tolist(), MASK}
                begin = end + 1
    assert several, "sequences over the end of a document"


def test_only_sentences_move_where_they_alone_are_permuted(store: Path) -> None:
    data = data_of(store, {"infill_share": 0.0})
    moved = 0
    for step in range(4):
        batch = data.batch(step)
        for row, instance in enumerate(data.instances(step)):
            assert instance.sentences is not None
            ids = originals(batch.input_ids[row], batch.attention_mask[row])[1:-1]
            place = 0
            for segment, ends in zip(instance.segments, instance.sentences, strict=True):
                assert ends[-1] == len(segment)
                parts = np.split(segment, ends[:-1])
                here = ids[place : place + len(segment)]
                wanted = Counter(tuple(part.tolist()) for part in parts)
                orders = itertools.permutations(part.tolist() for part in parts)
                assert here in (list(itertools.chain(*order)) for order in orders), wanted
                moved += here != segment.tolist()
                place += len(segment) + 1
    assert moved


def test_a_batch_is_a_pure_function_of_seed_and_step(store: Path) -> None:
    options = {"delete_share": 0.1, "rotate_share": 0.5, "permute_share": 0.5}
    data = data_of(store, options)
    later = pickle.loads(pickle.dumps(data)).batch(5)
    for step in range(5):
        data.batch(step)
    again = data.batch(5)
    assert torch.equal(again.input_ids, later.input_ids)
    assert all(torch.equal(again.targets[name], later.targets[name]) for name in again.targets)
    other = data_of(store, options, seed=1).batch(5)
    assert not torch.equal(other.targets["target_ids"], again.targets["target_ids"])


def test_what_does_nothing_is_said(store: Path) -> None:
    data = data_of(store, NOTHING, masked_lm_prob=0.3, mask_split=(1.0, 0.0, 0.0))
    assert [line.partition(":")[0].partition(",")[0] for line in data.warnings()] == [
        "masked_lm_prob",
        "mask_split",
        "no text is corrupted",
    ]
