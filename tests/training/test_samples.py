"""Masks filled along the way: fixed questions, answers of the model, each step once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import toys
from bertine import fill_mask
from bertine.core.errors import BertineError
from bertine.corpora.store import TokenStore
from bertine.hub.model_directory import load_model
from bertine.training.pretraining.result import MaskSamples, write_samples


@pytest.fixture(scope="module")
def samples(store: Path) -> MaskSamples:
    return MaskSamples(toys.tokenizer(), TokenStore.open(store), 0, count=4)


def test_the_same_sentences_for_the_same_seed(store: Path, samples: MaskSamples) -> None:
    model = toys.pretraining_model()
    texts = [one["text"] for one in samples.fill(model)]
    assert len(texts) == len(samples) == 4
    again = MaskSamples(toys.tokenizer(), TokenStore.open(store), 0, count=4)
    assert [one["text"] for one in again.fill(model)] == texts
    other = MaskSamples(toys.tokenizer(), TokenStore.open(store), 1, count=4)
    assert [one["text"] for one in other.fill(model)] != texts


def test_a_sample_is_a_sentence_of_the_store_with_one_word_hidden(samples: MaskSamples) -> None:
    sentences = set(toys.corpus_text(40).replace(" .", ".").splitlines())
    for one in samples.fill(toys.pretraining_model()):
        assert one["text"].count("[MASK]") == 1
        assert one["truth"].isalpha()
        assert one["text"].replace("[MASK]", one["truth"]) in sentences


def test_no_longer_than_the_model_is_trained_on(store: Path) -> None:
    opened = TokenStore.open(store)
    short = MaskSamples(toys.tokenizer(), opened, max_length=10)  # 8 pieces and two specials
    assert all(len(one["text"].split()) <= 8 for one in short.fill(toys.pretraining_model()))
    with pytest.raises(BertineError, match="no sentence for mask samples"):
        MaskSamples(toys.tokenizer(), opened, max_length=9)


def test_the_guesses_are_those_of_fill_mask(model: Path, samples: MaskSamples) -> None:
    """Padding and the neighbours in the batch do not change an answer."""
    loaded = load_model(model)
    loaded.model.train()
    filled = samples.fill(loaded.model, top_k=3)
    assert loaded.model.training
    for one in filled:
        expected = fill_mask(loaded, one["text"], top_k=3)[0].candidates
        assert [guess["token"] for guess in one["guesses"]] == [one.token for one in expected]
        for guess, candidate in zip(one["guesses"], expected, strict=True):
            assert guess["probability"] == pytest.approx(candidate.probability, rel=1e-4)
        everything = {
            guess.token: guess.probability
            for guess in fill_mask(loaded, one["text"], top_k=loaded.tokenizer.vocab_size)[
                0
            ].candidates
        }
        assert one["truth_probability"] == pytest.approx(everything[one["truth"]], rel=1e-4)


def test_filling_draws_no_random_number(samples: MaskSamples) -> None:
    model = toys.pretraining_model()
    state = torch.get_rng_state()
    first = samples.fill(model)
    assert samples.fill(model) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_given_sentences_and_words_of_several_pieces() -> None:
    """A word of several pieces is not hidden, nor is punctuation."""
    words = [*toys.tokenizer().tokens, "##s"]
    tokenizer = toys.Tokenizer.from_vocab(words)
    chosen = MaskSamples(
        tokenizer,
        ["the cats . dogs . cows in the ovens .", "too short .", "unknown " * 12],
        count=5,
    )
    model = toys.pretraining_model(vocab_size=tokenizer.vocab_size)
    with pytest.raises(BertineError, match="no sentence"):
        MaskSamples(tokenizer, ["cats dogs cows . . ."])
    (one,) = chosen.fill(model)
    assert one["truth"] in ("the", "in")


def test_a_model_that_cannot_fill_is_one_line(samples: MaskSamples) -> None:
    model = toys.pretraining_model()
    del model.heads["mlm"]
    with pytest.raises(BertineError, match="no masked-LM head"):
        samples.fill(model)
    with pytest.raises(BertineError, match="the model takes 8"):
        samples.fill(toys.pretraining_model(max_position_embeddings=8))


def test_a_damaged_line_keeps_no_run_from_going_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_samples(tmp_path, 2, [])
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write('{"step": 4, "sam\n')
    write_samples(tmp_path, 4, [])
    lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4]
    assert "line 2 is not a JSON object" in capsys.readouterr().err


def test_a_resumed_run_has_each_step_once(tmp_path: Path, samples: MaskSamples) -> None:
    filled = samples.fill(toys.pretraining_model())
    for step in (10, 20, 30):
        write_samples(tmp_path, step, filled)
    path = tmp_path / "samples.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # killed by a crash of the disk
    for step in (20, 30):  # resumed from a checkpoint at 15
        write_samples(tmp_path, step, filled)
    assert path.read_bytes() == whole
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == [10, 20, 30]
    assert lines[0]["samples"] == filled
    assert sorted(file.name for file in tmp_path.iterdir()) == ["samples.jsonl"]
