"""ELMo's published files give the published layers, and damaged ones a line."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from bertine.contrib.elmo.files import read_options, read_published
from bertine.contrib.elmo.model import BEGIN, END, PRESETS, BidirectionalLm, character_ids
from bertine.contrib.recognize import published_files
from bertine.core.errors import BertineError
from contrib.elmo import elmos
from core.test_outside import refusal
from tolerance import assert_close

h5py = pytest.importorskip("h5py")

GOLDEN = (
    Path(
        os.environ.get(
            "BERTINE_DATA", Path(__file__).resolve().parents[3].parent / "shared" / "data"
        )
    )
    / "family"
    / "elmo-allennlp"
)


def opened(folder: Path) -> BidirectionalLm:
    files = published_files(folder)
    assert files is not None
    return read_published(files)


def batch(sentences: list[list[str]]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(sentence) + 2 for sentence in sentences])
    ids = torch.ones(len(sentences), int(lengths.max()), 50, dtype=torch.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        numbers = character_ids([BEGIN, *sentence, END])
        row[: len(numbers)] = torch.from_numpy(numbers)
    return ids, lengths


def test_characters_are_numbered_as_published() -> None:
    ids = character_ids(["Eé", BEGIN, END, "x" * 60])
    assert ids.shape == (4, 50)
    assert ids[0].tolist() == [259, ord("E") + 1, 0xC3 + 1, 0xA9 + 1, 260] + [261] * 45
    assert ids[1].tolist() == [259, 257, 260] + [261] * 47
    assert ids[2].tolist() == [259, 258, 260] + [261] * 47
    assert ids[3].tolist() == [259] + [ord("x") + 1] * 48 + [260]


@pytest.mark.parametrize("skip", [True, False])
def test_all_layers_are_those_of_the_published_program_with_the_state_carried(
    tmp_path: Path, skip: bool
) -> None:
    options = copy.deepcopy(elmos.OPTIONS)
    options["lstm"]["use_skip_connections"] = skip
    model = opened(elmos.write(tmp_path, options=options))
    batches = [
        [["The", "bank"], ["a"], ["Öl", "and", "x" * 70, "!"]],
        [["of"], ["the", "river", "bank", "is", "wet"], []],
    ]
    rows = [elmos.WrittenOut(options) for _ in range(3)]
    states = None
    for sentences in batches:
        ids, lengths = batch(sentences)
        with torch.no_grad():
            layers, states = model.layers_of(ids, lengths, states)
        for row, length in enumerate(lengths.tolist()):
            words = (ids[row, :length] - 1).tolist()
            expected = rows[row].layers(words)
            assert_close(layers[row, :length], expected, terms=elmos.TERMS)
            assert not layers[row, length:].any()


@pytest.mark.slow
@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the published model is not there")
def test_the_published_models_outputs() -> None:
    model = opened(GOLDEN)
    sentences = json.loads((GOLDEN / "sentences.json").read_text())
    states, worst = None, 0.0
    for number in range(10):
        ids, lengths = batch([sentences[row][number].split() for row in range(3)])
        with torch.no_grad():
            layers, states = model.layers_of(ids, lengths, states)
        for row in range(3):
            with h5py.File(GOLDEN / f"lm_embeddings_{row}.hdf5") as file:
                expected = np.concatenate(list(file[str(number)][...]), -1)
            found = layers[row, 1 : lengths[row] - 1, 2].numpy()
            assert found.shape == expected.shape
            worst = max(worst, float(np.abs(found - expected).max()))
    assert worst < 1e-5
    words = (GOLDEN / "vocab_test.txt").read_text().split("\n")
    with h5py.File(GOLDEN / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    with torch.no_grad():
        found = model.words(torch.from_numpy(character_ids(words))).numpy()
    assert len(words) == len(expected)
    # The two at the end are the marks of sentences, which are no words of this list.
    assert np.abs(found[:-2] - expected[:-2]).max() < 1e-5


def test_published_sizes_have_the_published_numbers_of_weights() -> None:
    counts = {name: config.num_parameters for name, config in PRESETS.items()}
    assert counts["elmo-original"] == 93_600_848
    assert counts["elmo-medium"] == 28_027_728
    assert counts["elmo-small"] == 13_593_296
    tiny = PRESETS["elmo-tiny"]
    weights = BidirectionalLm(tiny).parameters()
    assert sum(weight.numel() for weight in weights) == tiny.num_parameters


def change(path: str, value: Any) -> dict[str, Any]:
    options = copy.deepcopy(elmos.OPTIONS)
    *parents, last = path.split(".")
    place = options
    for name in parents:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (change("lstm", None), "lstm is missing"),
        (change("lstm.dim", "large"), "lstm.dim is 'large', but must be a whole number"),
        (change("char_cnn.filters", [[1, 4, 2]]), "must be pairs"),
        (change("char_cnn.filters", [[60, 4]]), r"\[60, 4\]"),
        (change("char_cnn.n_characters", 500), "n_characters is 500"),
        (change("char_cnn.activation", "swish"), "must be relu or tanh"),
        (change("lstm.n_layers", 10**6), "num_hidden_layers is 1000000"),
        (change("lstm", elmos.OPTIONS["lstm"] | {"dim": 10**7, "projection_dim": 10**6}), "memory"),
        (change("lstm.dim", 11), "asks for"),
        (change("lstm.n_layers", 3), "has no tensor RNN_0/RNN/MultiRNNCell/Cell2"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    elmos.write(tmp_path, elmos.tensors(), options)
    with pytest.raises(BertineError, match=says) as error:
        opened(tmp_path)
    assert "\n" not in str(error.value)


def test_weights_that_are_not_to_be_read(tmp_path: Path) -> None:
    elmos.write(tmp_path)
    path = tmp_path / "small_weights.hdf5"
    whole = path.read_bytes()

    def refused(says: str) -> None:
        with pytest.raises(BertineError, match=says) as error:
            opened(tmp_path)
        assert "\n" not in str(error.value)
        path.write_bytes(whole)

    path.write_bytes(whole[: len(whole) // 2])
    refused("is damaged, cut short or of another kind")
    path.write_bytes(b"no HDF5")
    refused("is damaged, cut short or of another kind")
    with h5py.File(path, "a") as file:
        del file["char_embed"]
        file["char_embed"] = h5py.ExternalLink("elsewhere.hdf5", "/x")
    refused("is a link to another place")
    with h5py.File(path, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 3), "f4", compression="gzip")
    refused("in pieces or compressed")
    with h5py.File(path, "a") as file:
        del file["char_embed"]
        file["char_embed"] = np.full((261, 3), np.nan, np.float32)
    refused("not finite")
    with h5py.File(path, "a") as file:
        del file["char_embed"]
        file["char_embed"] = np.zeros((261, 3), np.int32)
    refused("numbers of the type int32")
    (tmp_path / "other_options.json").write_text("{}")
    refused("several files of options")


def test_training_counts_one_character_less(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    path.write_text(json.dumps(change("char_cnn.n_characters", 261)))
    assert read_options(path).num_filters == 9


@pytest.mark.parametrize("seed", range(3))
def test_elmos_damaged_numbers(tmp_path: Path, seed: int) -> None:
    files = published_files(elmos.write(tmp_path))
    assert files is not None
    good, draw = files.weights.read_bytes(), Random(seed)
    refused = 0
    for _ in range(12):
        raw = bytearray(good)
        for _ in range(draw.choice((4, 10, 40))):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        files.weights.write_bytes(raw[: draw.choice((len(raw), draw.randrange(len(raw))))])
        refused += bool(refusal(files.weights, lambda: read_published(files)))
    assert refused > 3
