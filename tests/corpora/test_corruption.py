"""Other formats and corruptions than BERT's, in ten lines each, run through batches."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import toys
from bertine.core.rng import generator
from bertine.corpora import formats
from bertine.corpora.batch import Batch, select, split
from bertine.corpora.collators import Draws, PaddingCollator
from bertine.corpora.formats import DocSentences, Format, Label
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.sequences import Instance
from bertine.corpora.store import TokenStore
from bertine.options.pretraining import InstanceSettings
from bertine.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


class NextToken:
    """Predict each token from those before it: nothing is hidden, the mask of attention does it."""

    def __init__(self, tokenizer: Tokenizer, settings: InstanceSettings) -> None:
        self.padder = PaddingCollator(tokenizer, settings.input_format)

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        padded = self.padder.pad(instances)
        places = np.flatnonzero(np.pad(padded.real[:, 1:], ((0, 0), (0, 1))))
        labels = padded.input_ids.reshape(-1)[places + 1]
        return padded.batch(padded.input_ids, lm_positions=places, lm_labels=labels)


class Ordered(DocSentences):
    """Cut a stretch of a document in two, and swap the parts half of the time (ALBERT)."""

    def instance(self, index: int) -> Instance:
        whole = super().instance(index)
        draw = generator(self.seed, "order", index)
        cut = draw.integers(1, len(whole.segments[0]))
        parts, label = np.split(whole.segments[0], [cut]), int(draw.integers(2))
        ordered = tuple(parts[::-1] if label else parts)
        return Instance(ordered, whole.documents * 2, label=label)


class Shuffled:
    """Put the tokens of each segment in another order: drawn for the instance, not the batch."""

    def __init__(self, tokenizer: Tokenizer, settings: InstanceSettings) -> None:
        self.padder = PaddingCollator(tokenizer, settings.input_format)
        self.longest = settings.max_seq_length

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        words = draws.of_instances("shuffled", self.longest)
        moved = [
            each._replace(
                segments=tuple(text[row[: len(text)].argsort()] for text in each.segments)
            )
            for each, row in zip(instances, words, strict=True)
        ]
        padded = self.padder.pad(moved)
        return padded.batch(padded.input_ids)


def test_every_token_is_the_next_of_the_one_before(store: Path) -> None:
    data = toys.pretraining_data(store, input_format="full-sentences", corruption=NextToken)
    batch = data.batch(3)
    assert batch.targets.keys() == {"lm_positions", "lm_labels"}
    assert len(batch.targets["lm_labels"]) == batch.num_tokens - batch.num_sequences
    flat = batch.input_ids.flatten()
    assert torch.equal(flat[batch.targets["lm_positions"] + 1], batch.targets["lm_labels"])
    # Micro-batches keep them beside their sequences.
    parts = split(batch, 80)
    assert len(parts) > 1
    for part in [*parts, select(batch, torch.tensor([1, 4]))]:
        flat = part.input_ids.flatten()
        assert torch.equal(flat[part.targets["lm_positions"] + 1], part.targets["lm_labels"])
        assert len(part.targets["lm_labels"]) == part.num_tokens - part.num_sequences
    assert torch.equal(pickle.loads(pickle.dumps(data)).batch(3).input_ids, batch.input_ids)
    assert data.warnings() == []


def test_the_order_of_sentences_is_a_format_under_any_corruption(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Label("sentence_order_label", ("in order", "swapped"))
    monkeypatch.setitem(formats.FORMATS, "ordered", Format(Ordered, pairs=True, label=order))
    settings = InstanceSettings(
        batch_size=64, max_seq_length=32, seed=3, max_predictions_per_seq=20
    )
    object.__setattr__(settings, "input_format", "ordered")  # a name that nobody can type
    data = PretrainingData(TokenStore.open(store), toys.tokenizer(), settings)
    batch = data.batch(0)
    assert list(batch.targets) == ["mlm_positions", "mlm_labels", "sentence_order_label"]
    labels = batch.targets["sentence_order_label"]
    assert 16 < int(labels.sum()) < 48
    whole = DocSentences(data.store, max_tokens=29, seed=3)
    for row, instance in enumerate(data.instances(0)):
        a, b = instance.segments
        assert instance.documents[0] == instance.documents[1]
        joined = np.concatenate([b, a] if labels[row] else [a, b])
        assert joined.tolist() == whole.instance(row).segments[0].tolist()
        types = batch.token_type_ids[row, : len(a) + len(b) + 3].tolist()
        assert types == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert not batch.token_type_ids[row, len(types) :].any()


def test_what_is_drawn_for_an_instance_comes_again_with_it(store: Path) -> None:
    settings = {"masking": "static", "dupe_factor": 2, "corruption": Shuffled}
    data = toys.pretraining_data(store, batch_size=8, **settings)
    other = toys.pretraining_data(store, batch_size=6, **settings)
    period = 2 * data.instances_per_epoch

    def rows(made: Any, count: int) -> list[list[int]]:
        batches = [made.batch(step) for step in range(-(-count // made.batch_size))]
        return [
            row[mask].tolist()
            for batch in batches
            for row, mask in zip(batch.input_ids, batch.attention_mask, strict=True)
        ][:count]

    assert rows(data, period + 5)[period:] == rows(data, 5) == rows(other, 5)
