"""Vectors of an ELMo: from the published files, converted, over a file of texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bertine
from bertine.cli import main
from bertine.contrib.elmo.encoder import ElmoEncoder
from bertine.contrib.elmo.model import BEGIN, END, character_ids
from bertine.core.errors import BertineError
from bertine.inference.embedding.embedder import Embedder
from contrib.elmo import elmos
from tolerance import assert_close

pytest.importorskip("h5py")

TEXTS = ["The bank was closed .", "bank", "", "He sat on the bank of the river ."]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return elmos.write(tmp_path / "elmo")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def expected(text: str) -> np.ndarray:
    """All layers of the words of a text that stands alone."""
    ids = character_ids([BEGIN, *text.split(), END]) - 1
    return elmos.WrittenOut().layers(ids.tolist())[1:-1]


def test_each_layer_and_their_mean_for_each_word(published: Path, texts: Path) -> None:
    for layer, number in ((0, 0), (1, 1), (-1, 2), (None, None)):
        out = texts.with_name(f"{layer}.jsonl")
        report = bertine.embed(published, texts, out, pooling="tokens", layer=layer)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["tokens"] for row in rows] == [text.split() for text in TEXTS]
        for row, text in zip(rows, TEXTS, strict=True):
            all_layers = expected(text)
            right = all_layers.mean(1) if number is None else all_layers[:, number]
            assert_close(np.reshape(row["vectors"], right.shape), right, terms=elmos.TERMS)
        assert report.empty == 1


def test_a_text_is_the_mean_or_the_greatest_of_its_words(published: Path) -> None:
    for pooling in ("mean", "max"):
        embedder = Embedder.load(published, pooling=pooling)
        vectors = embedder.embed(TEXTS)
        for vector, text in zip(vectors, TEXTS, strict=True):
            words = expected(text).mean(1)
            if not text:
                assert not vector.any()
            else:
                right = words.mean(0) if pooling == "mean" else words.max(0)
                assert_close(vector, right, terms=elmos.TERMS)
    unit = Embedder.load(published, normalize=True).embed("the bank")
    assert unit.shape == (12,)
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-6)


def test_a_vector_does_not_depend_on_the_other_texts(published: Path) -> None:
    embedder = Embedder.load(published)
    alone = np.stack([embedder.embed(text) for text in TEXTS])
    assert_close(embedder.embed(TEXTS), alone, terms=elmos.TERMS)
    sentences = [text.split() for text in TEXTS]
    for layers, text in zip(embedder.encoder.layers(sentences), TEXTS, strict=True):
        assert_close(layers, expected(text), terms=elmos.TERMS)


def test_a_word_has_another_vector_in_another_sentence(published: Path) -> None:
    embedder = Embedder.load(published)
    closed, river = embedder.encoder.layers(
        [["the", "bank", "closed"], ["the", "bank", "of", "it"]]
    )
    assert_close(closed[1, 0], river[1, 0], terms=elmos.TERMS)
    assert np.abs(closed[1, 2] - river[1, 2]).max() > 1e-3


def test_converted_it_gives_the_same_and_keeps_its_way_with_words(
    published: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (published / "notes.md").write_text("x")
    out = texts.with_name("converted")
    assert main(["convert", str(published), "--out", str(out)]) == 0
    assert "not converted: notes.md" in capsys.readouterr().out
    assert sorted(file.name for file in out.iterdir()) == ["config.json", "model.safetensors"]
    first, second = Embedder.load(published), Embedder.load(out)
    assert np.array_equal(first.embed(TEXTS), second.embed(TEXTS))
    assert first.fingerprints() == second.fingerprints()
    # Vectors of one are compared with a query through the other.
    vectors = texts.with_name("v.npy")
    assert main(["embed", str(published), "--input", str(texts), "--output", str(vectors)]) == 0
    found = bertine.similar("bank", vectors, model=out, texts=texts, top=1)
    assert found.found[0].text == "bank"
    assert found.found[0].score == pytest.approx(1, abs=1e-5)


def test_long_texts_and_long_words_are_counted(published: Path, texts: Path) -> None:
    texts.write_text(json.dumps({"text": "a " * 9 + "x" * 49}) + "\n" + '{"text": "y"}\n')
    report = bertine.embed(published, texts, texts.with_name("v.npy"), max_length=4)
    assert "1 of 2 texts were cut at 4 words (6 words lost)" in report.lines()
    report = bertine.embed(published, texts, texts.with_name("v.npy"))
    assert "of 1 word only the beginning was read" in report.lines()


def test_bf16_says_how_close_it_is(published: Path, texts: Path) -> None:
    report = bertine.embed(published, texts, texts.with_name("v.npy"), precision="bf16")
    assert report.agreement is not None
    assert 0.99 < report.agreement.lowest < 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pooling": "cls"}, "is an ELMo, which takes no pooling='cls'; choose mean, max, tokens"),
        ({"layer": 3}, "layer is 3, but the model has layers 1 to 2"),
        ({"precision": "int8"}, "takes no precision='int8'; choose fp32, bf16"),
        ({"prompt": "query"}, "takes no prompt='query'; leave it out"),
        ({"dimensions": 4}, "takes no dimensions=4; leave it out"),
    ],
)
def test_what_it_cannot_give(
    published: Path, texts: Path, arguments: dict[str, object], says: str
) -> None:
    with pytest.raises(BertineError, match=says):
        bertine.embed(published, texts, texts.with_name("v.npy"), **arguments)


def test_verbs_for_encoders_of_pieces_refuse_it(published: Path, tmp_path: Path) -> None:
    bertine.convert(published, tmp_path / "ours")
    with pytest.raises(
        BertineError, match=r"is an ELMo, without layers and heads .*use it .* feature-based"
    ):
        bertine.load_model(tmp_path / "ours")
    assert isinstance(bertine.Embedder.load(tmp_path / "ours").encoder, ElmoEncoder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lstm_size": "x"}, "config.json: lstm_size is 'x', but must be a whole number"),
        ({"lstm_size": 11}, "asks for"),
        ({"hidden_size": 5}, "'hidden_size' is no key of an ELMo"),
        ({"filters": [[1, 4]]}, "the tensor words.filters.1"),
        ({"vocab_size": 3}, "lacks the tensor"),
        ({"projection_size": 10**7, "lstm_size": 10**6}, "memory"),
    ],
)
def test_damaged_directories(
    published: Path, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    out = tmp_path / "ours"
    bertine.convert(published, out)
    values = json.loads((out / "config.json").read_text()) | change
    (out / "config.json").write_text(json.dumps(values))
    with pytest.raises(BertineError, match=says) as error:
        Embedder.load(out)
    assert "\n" not in str(error.value)


def test_a_published_one_foretells_no_words(published: Path, texts: Path) -> None:
    with pytest.raises(BertineError, match="has no softmax, as published ELMos have none"):
        bertine.evaluate(published, texts)


def test_a_word_has_a_vector_in_each_text(published: Path, texts: Path) -> None:
    found = bertine.similar("The bank was closed .", texts, model=published, word="BANK", layer=2)
    layers = {text: expected(text)[:, 2] for text in TEXTS}
    rows = {1: layers[TEXTS[0]][1], 2: layers[TEXTS[1]][0], 4: layers[TEXTS[3]][4]}
    units = {row: vector / np.linalg.norm(vector) for row, vector in rows.items()}
    wanted = {row: float(vector @ units[1]) for row, vector in units.items()}
    assert {each.row: each.score for each in found.found} == pytest.approx(wanted, abs=1e-4)
    assert len({round(score, 3) for score in wanted.values()}) == 3
    assert "1 text without the word 'BANK', left out" in found.notes


def test_the_same_bits_in_any_company_are_not_promised(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "elmo"}')
    with pytest.raises(BertineError, match="is an ELMo, which takes no batch_invariant=True"):
        Embedder.load(tmp_path, batch_invariant=True)
