"""How likely an ELMo finds sentences, one by one and in a corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import bertine
from bertine.contrib.elmo.files import load_elmo, save_elmo
from bertine.contrib.elmo.model import BidirectionalLm, ElmoConfig, WordSoftmax
from bertine.contrib.elmo.perplexity import perplexity, read_words
from bertine.core.errors import BertineError
from bertine.inference.minimal_pairs.evaluate_pairs import open_log_probability
from bertine.tokenization.documents import Corpus


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    words = ["<S>", "</S>", "<UNK>", "the", "cat", "dog", "sleeps", "."]
    config = ElmoConfig(
        character_size=4,
        filters=((1, 8), (2, 8)),
        num_highway_layers=1,
        lstm_size=24,
        projection_size=12,
        word_splitting="spaces",
        vocab_size=len(words),
    )
    torch.manual_seed(0)
    softmax = WordSoftmax(config)
    torch.nn.init.normal_(softmax.weight, 0.0, 3.0)
    save_elmo(folder / "model", BidirectionalLm(config), softmax, words)
    return folder / "model"


def test_elmo_reads_from_both_ends(elmo: Path, tmp_path: Path) -> None:
    """Against the perplexity of a corpus of one sentence."""
    texts = ["the cat sleeps .", "the", "the bird sings and the dog sleeps ."]
    loaded = load_elmo(elmo)
    assert loaded.softmax is not None
    expected = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.txt"
        file.write_text(text)
        corpus = read_words(Corpus(file), "spaces")
        score = perplexity(loaded.model, loaded.softmax, loaded.words, corpus)
        expected.append(-(score.forward + score.backward) * score.words)
    scorer = open_log_probability(elmo)
    assert scorer(texts) == pytest.approx(expected, rel=1e-5)
    assert scorer.notes() == ["3 of 13 words are not among the 8 of the softmax and count as <UNK>"]


def test_without_a_softmax_there_is_no_probability(elmo: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"sentence_good": "a dog", "sentence_bad": "dog a"}) + "\n")
    save_elmo(tmp_path / "bare", load_elmo(elmo).model)
    with pytest.raises(BertineError, match="has no softmax over words"):
        bertine.blimp(tmp_path / "bare", data=pairs)
