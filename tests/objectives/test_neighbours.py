"""Masked words with neighbouring texts: which texts are pairs, what is counted, what is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import toys
from bertine import BertineError
from bertine.corpora.batch import plan, split
from bertine.corpora.store import TokenStore
from bertine.models.heads import Model
from bertine.objectives import choose, objective
from bertine.objectives.losses import MlmNeighbours
from bertine.options.pretraining import NeighbourOptions
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.training.adamw import AdamW

SUBJECTS, WORDS = 20, 40


def write_store(folder: Path, lengths: list[list[int]], ids: Any) -> TokenStore:
    """A store of documents with sentences of these lengths; ``ids(document, tokens)`` are theirs,
    counted from the first word on."""
    words = [f"t{i}" for i in range(SUBJECTS * WORDS)]
    tokenizer = Tokenizer.from_vocab([*SPECIAL_TOKENS, *words])
    with toys.DocumentWriter(folder, vocab_size=tokenizer.vocab_size) as writer:
        for document, sizes in enumerate(lengths):
            tokens = ids(document, sum(sizes)) + len(SPECIAL_TOKENS)
            writer.append(tokens, np.array(sizes), np.array([len(sizes)]))
        writer.finish({"tokenizer_fingerprint": tokenizer.fingerprint, "language": "en"})
    tokenizer.save(folder / "tokenizer")
    return TokenStore.open(folder, tokenizer)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Documents whose tokens count up, so that a token says where it stands."""
    rng = np.random.default_rng(0)
    lengths = [[7], [300], *(rng.integers(1, 30, rng.integers(2, 12)).tolist() for _ in range(20))]
    return write_store(
        tmp_path_factory.mktemp("counting"), lengths, lambda document, tokens: np.arange(tokens)
    )


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Documents of a subject each, which says what their words are."""
    rng = np.random.default_rng(1)

    def ids(document: int, tokens: int) -> np.ndarray:
        return rng.integers(0, WORDS, tokens) + document % SUBJECTS * WORDS

    return write_store(tmp_path_factory.mktemp("subjects"), [[6] * 6] * 20 * SUBJECTS, ids)


def batches_of(store: TokenStore, **settings: Any) -> Any:
    tokenizer = Tokenizer.load(store.path / "tokenizer")
    usual = {"input_format": "neighbours", "max_seq_length": 32, "batch_size": 16}
    corruption = MlmNeighbours().corruption
    return toys.instances_of(store, tokenizer, corruption, **{**usual, **settings})


def model_for(store: TokenStore, **changes: Any) -> Model:
    config = toys.config_for("mlm-neighbours").replace(vocab_size=store.vocab_size, **changes)
    torch.manual_seed(0)
    return Model(config, MlmNeighbours.heads(config))


def test_two_texts_stand_beside_each_other(counting: TokenStore) -> None:
    data = batches_of(counting)
    lengths = set()
    documents = set()
    texts = [text for step in range(40) for text in data.instances(step)]
    for one, other in zip(texts[::2], texts[1::2], strict=True):
        assert one.documents == other.documents
        (first,), (second,) = one.segments, other.segments
        documents.add(one.documents[0])
        lengths |= {len(first), len(second)}
        if len(counting.document(one.documents[0]).sentence_lengths) == 1:
            assert first.tolist() == second.tolist()
        else:
            assert first[-1] + 1 == second[0]
        assert max(len(first), len(second)) <= 30
    assert documents == set(range(counting.num_documents))
    assert len(lengths) > 15


def test_the_end_of_one_text_is_the_end_of_a_sentence(counting: TokenStore) -> None:
    for text in batches_of(counting).instances(0)[::2]:
        document = counting.document(text.documents[0])
        if len(document.sentence_lengths) > 1:
            ends = np.cumsum(document.sentence_lengths) - 1 + len(SPECIAL_TOKENS)
            assert text.segments[0][-1] in ends


def test_any_stretch_of_texts_is_the_same(counting: TokenStore) -> None:
    made = batches_of(counting).segments
    whole = [text.segments[0].tolist() for text in made.instances(0, 12)]
    for first, count in ((0, 5), (1, 1), (3, 6), (11, 1)):
        part = [text.segments[0].tolist() for text in made.instances(first, count)]
        assert part == whole[first : first + count]
    assert made.instances_per_epoch % 2 == 0


def test_batches_are_of_whole_pairs(counting: TokenStore) -> None:
    with pytest.raises(BertineError, match=r"batch_size is 15, but must be even with .*neighbours"):
        batches_of(counting, batch_size=15)
    batch = batches_of(counting).batch(0)
    assert batch.targets["groups"].tolist() == [number // 2 for number in range(16)]
    parts = split(batch, 4 * 32)
    assert len(parts) > 1
    shares = plan(batch, 3, 4 * 32)
    rows = [row for share in shares for part in share for row in part.tolist()]
    assert sorted(rows) == list(range(16))
    for share in shares:
        for part in share:
            assert (part[::2] + 1 == part[1::2]).all()
    for part in parts:
        groups = part.targets["groups"]
        assert (groups[::2] == groups[1::2]).all()
        assert MlmNeighbours().counts(part)["neighbours"] == part.num_sequences


def test_the_loss_is_that_of_a_softmax_over_cosines(subjects: TokenStore) -> None:
    model = model_for(subjects).eval()
    chosen = MlmNeighbours(NeighbourOptions(neighbours_weight=0.3, similarity_temperature=0.1))
    batch = batches_of(subjects).batch(0)
    terms = chosen.terms(model, batch)
    assert chosen.counts(batch) == {name: term.count for name, term in terms.items()}
    alone = objective("mlm").terms(model, batch)
    torch.testing.assert_close(terms["mlm"].total, alone["mlm"].total)

    states = model.encode(batch).last_hidden_state
    means = [
        row[:length].mean(0)
        for row, length in zip(states, batch.attention_mask.sum(1), strict=True)
    ]
    total, correct = torch.tensor(0.0), 0
    for number, vector in enumerate(means):
        others = [at for at in range(len(means)) if at != number]
        cosines = torch.stack([F.cosine_similarity(vector, means[at], dim=0) for at in others])
        wanted = others.index(number + 1 if number % 2 == 0 else number - 1)
        total = total - (cosines / 0.1).log_softmax(0)[wanted]
        correct += int(cosines.argmax() == wanted)
    torch.testing.assert_close(terms["neighbours"].total, total)
    assert terms["neighbours"].correct is not None
    assert int(terms["neighbours"].correct) == correct
    assert terms["neighbours"].weight == 0.3


def test_masked_words_alone_can_be_had_of_the_same_texts() -> None:
    config = toys.config()
    assert choose(config, "mlm-neighbours")[1] == "neighbours"
    assert choose(config, "mlm", "neighbours")[0].name == "mlm"
    with pytest.raises(BertineError, match="works on input_format neighbours, not on segment-pair"):
        choose(config, "mlm-neighbours", "segment-pair")


@pytest.mark.slow
def test_texts_of_one_subject_become_alike(subjects: TokenStore) -> None:
    """Words that stand in neighbouring texts become alike, whether they are the same or not."""
    chosen, data = MlmNeighbours(), batches_of(subjects, batch_size=32)
    with toys.one_thread():
        model = model_for(subjects).train()
        optimizer = AdamW(model)
        right = []
        for step in range(200):
            batch = data.batch(step)
            terms = chosen.terms(model, batch)
            loss = sum(term.weight * term.total / term.count for term in terms.values())
            assert isinstance(loss, torch.Tensor)
            loss.backward()
            optimizer.clipped_step(3e-3, 1.0)
            optimizer.zero_grad()
            found = terms["neighbours"].correct
            assert found is not None
            right.append(int(found) / batch.num_sequences)
    assert np.mean(right[:5]) < 0.35
    assert np.mean(right[-20:]) > 0.7
