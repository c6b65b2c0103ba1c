"""Features of an ELMo and of vectors of words, for tags and for texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine
import toys
from bertine.cli import main
from bertine.contrib.elmo.encoder import ElmoEncoder
from bertine.contrib.elmo.files import save_elmo
from bertine.contrib.elmo.model import BidirectionalLm, ElmoConfig
from bertine.contrib.feature_based.bilstm import BiLstmClassifier, BiLstmTagger
from bertine.contrib.feature_based.feature_based import ANSWERS
from bertine.contrib.word2vec.vectors import words_of
from bertine.core.errors import BertineError
from bertine.data.entities import may_follow
from bertine.inference.embedding.encoder import EncoderOptions

QUICK: dict[str, Any] = {
    "epochs": 25,
    "dropout": 0.1,
    "batch_size": 8,
    "learning_rate": 2e-2,
    "lstm_size": 16,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elmo") / "elmo"
    torch.manual_seed(0)
    config = ElmoConfig(
        max_characters=12,
        character_size=8,
        filters=((1, 16), (3, 32)),
        num_highway_layers=1,
        lstm_size=24,
        projection_size=16,
        word_splitting="punctuation",
    )
    elmo = BidirectionalLm(config)
    with torch.no_grad():
        for parameter in elmo.parameters():
            parameter.mul_(3)  # else words differ by little, which takes long to learn from
    save_elmo(path, elmo)
    return path


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory, labelled: Path, data: Path) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "vectors"
    text = (labelled / "train.csv").read_text() + (data / "train.conll").read_text()
    words = sorted(set(words_of(text, lowercase=True)))
    table = np.random.default_rng(0).standard_normal((len(words), 24)).astype(np.float32)
    bertine.WordVectors(words, table, lowercase=True).save(path)
    return path


def answers(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / ANSWERS / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_layers_of_an_elmo_are_mixed_by_learned_weights(
    elmo: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    settings = {**QUICK, "rows": ["last", "mix", "mix-both"]}
    made = bertine.feature_based(elmo, data=data, out=out, **settings)
    assert [row["layers"] for row in made.rows.values()] == [[2], [0, 1, 2], [0, 1, 2]]
    assert "layer_weights" not in made.rows["last"]
    both = made.rows["mix-both"]["layer_weights"]
    assert list(both) == ["input", "output"]
    assert list(made.rows["mix"]["layer_weights"]) == ["input"]
    for weights in both.values():
        assert sum(weights[:3]) == pytest.approx(1)
        assert weights[:3] != pytest.approx([1 / 3] * 3, abs=1e-6)
    assert made.rows["mix"]["validation"]["f1"] > 0.9
    assert "mix at input and output" in made.lines()[3]
    # What was answered is what was scored.
    rows = answers(out, "mix-test")
    same = [a == b for row in rows for a, b in zip(row["tags"], row["answer"], strict=True)]
    assert np.mean(same) == pytest.approx(made.rows["mix"]["test"]["accuracy"])
    assert len(rows) == 12

    # The states are the embedder's layers, computed once.
    assert capsys.readouterr().err.count("computed in") == 3
    again = bertine.feature_based(
        elmo, data=data, out=out, **{**settings, "rows": ["embeddings", "mix"]}, resume=True
    )
    assert capsys.readouterr().err.count(": found") == 3
    assert again.rows["mix"] == json.loads(json.dumps(made.rows["mix"]))
    with pytest.raises(BertineError, match=r"started with layer_penalty = 0\.1, not 5"):
        bertine.feature_based(elmo, data=data, out=out, **settings, layer_penalty=5.0, resume=True)


@pytest.mark.takes(3)
def test_states_of_an_elmo_are_its_layers(elmo: Path, data: Path, tmp_path: Path) -> None:
    from bertine.contrib.feature_based.features import elmo_states
    from bertine.data.tagged_sentences import read_sentences

    encoder = ElmoEncoder.load(elmo, EncoderOptions())
    sentences = read_sentences(data / "dev.conll")
    states = elmo_states(encoder, sentences, tmp_path)
    begin, end = int(states.starts[5]), int(states.starts[6])
    wanted = encoder.layers([sentences.items[5].words])[0]
    for number, layer in enumerate(states.layers([0, 1, 2])):
        np.testing.assert_allclose(layer[begin:end].float(), wanted[:, number], atol=2e-3)


@pytest.mark.slow
def test_a_penalty_keeps_the_layers_at_their_mean(elmo: Path, data: Path, tmp_path: Path) -> None:
    def farthest(penalty: float) -> float:
        settings = {**QUICK, "rows": ["mix"], "epochs": 4, "layer_penalty": penalty}
        made = bertine.feature_based(elmo, data=data, out=tmp_path / str(penalty), **settings)
        weights = made.rows["mix"]["layer_weights"]["input"][:3]
        return max(abs(weight - 1 / 3) for weight in weights)

    assert farthest(0.0) > 0.02
    assert farthest(1000.0) < 0.005


@pytest.mark.slow
def test_a_chain_answers_valid_tags(elmo: Path, data: Path, tmp_path: Path) -> None:
    settings = {**QUICK, "rows": ["embeddings"], "crf": True}
    made = bertine.feature_based(elmo, data=data, out=tmp_path / "out", **settings)
    assert made.rows["embeddings"]["validation"]["f1"] > 0.9
    # Hardly trained it would break the rules, were it not held to them.
    few = {**settings, "epochs": 1, "learning_rate": 0.0, "seed": 3}
    bertine.feature_based(elmo, data=data, out=tmp_path / "few", **few)
    rows = answers(tmp_path / "few", "embeddings-validation")
    pairs = [pair for row in rows for pair in zip([None, *row["answer"]], row["answer"])]  # noqa: B905
    assert all(may_follow(before, after) for before, after in pairs)
    free = {**few, "crf": False}
    bertine.feature_based(elmo, data=data, out=tmp_path / "free", **free)
    rows = answers(tmp_path / "free", "embeddings-validation")
    pairs = [pair for row in rows for pair in zip([None, *row["answer"]], row["answer"])]  # noqa: B905
    assert not all(may_follow(before, after) for before, after in pairs)


@pytest.mark.takes(4)
def test_texts_over_vectors_of_words(vectors: Path, labelled: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = bertine.feature_based(
        vectors, data=labelled, out=out, task="text", **{**QUICK, "epochs": 4}
    )
    assert list(made.rows) == ["word-vectors", "bag-of-vectors"]
    assert made.metric == "accuracy"
    for name, row in made.rows.items():
        assert row["validation"]["accuracy"] > 0.9, name
        rows = answers(out, f"{name}-validation")
        right = np.mean(
            [
                line["label"] == max(line["probabilities"], key=line["probabilities"].get)
                for line in rows
            ]
        )
        assert right == pytest.approx(row["validation"]["accuracy"])


@pytest.mark.slow
def test_texts_over_an_elmo_and_an_encoder(
    elmo: Path, model: Path, vectors: Path, labelled: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {**QUICK, "task": "text", "epochs": 10, "max_length": 24}
    made = bertine.feature_based(
        elmo,
        data=labelled,
        out=tmp_path / "elmo",
        **{**settings, "learning_rate": 5e-3},
        rows=["mix-both"],
    )
    assert made.rows["mix-both"]["validation"]["accuracy"] > 0.9
    more = {"rows": ["embeddings", "mix"], "word_vectors": vectors}
    made = bertine.feature_based(model, data=labelled, out=tmp_path / "encoder", **settings, **more)
    assert list(made.rows) == ["embeddings", "mix", "word-vectors", "bag-of-vectors"]
    assert made.rows["embeddings"]["validation"]["accuracy"] > 0.9


@pytest.mark.slow
def test_pairs_are_two_vectors(vectors: Path, tmp_path: Path) -> None:
    toys.write_pairs(tmp_path / "train.csv", rows=160)
    toys.write_pairs(tmp_path / "dev.csv", rows=32, seed=1)
    made = bertine.feature_based(
        vectors,
        data=tmp_path,
        out=tmp_path / "out",
        task="text",
        text_columns=["premise", "hypothesis"],
        **{**QUICK, "epochs": 8},
    )
    for name, row in made.rows.items():
        assert row["validation"]["accuracy"] > 0.8, name


@pytest.mark.slow
def test_numbers_and_several_labels(vectors: Path, tmp_path: Path) -> None:
    lines = (toys.write_labelled(tmp_path / "a.csv", rows=120)).read_text().splitlines()
    for name, values in (("regression", ("7.5", "2")), ("multi-label", ("animal|old", "dish"))):
        folder = tmp_path / name
        folder.mkdir()
        rows = [line.rsplit(",", 1) for line in lines[1:]]
        told = [f"{text},{values[label == 'dish']}" for text, label in rows]
        (folder / "train.csv").write_text("\n".join(["text,label", *told[:90]]) + "\n")
        (folder / "dev.csv").write_text("\n".join(["text,label", *told[90:]]) + "\n")
        settings = {**QUICK, "task": name, "epochs": 6}
        made = bertine.feature_based(vectors, data=folder, out=folder / "out", **settings)
        for row in made.rows.values():
            assert row["validation"][made.metric] > 0.9, name


@pytest.mark.slow
def test_a_text_without_words_is_answered(vectors: Path, labelled: Path, tmp_path: Path) -> None:
    for name in ("train", "dev"):
        text = (labelled / f"{name}.csv").read_text()
        (tmp_path / f"{name}.csv").write_text(text + '"...",dish\n')
    made = bertine.feature_based(
        vectors, data=tmp_path, out=tmp_path / "out", task="text", **{**QUICK, "epochs": 4}
    )
    assert len(answers(made.folder, "word-vectors-validation")) == 41


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--rows", "fine-tuning"], "there is no row 'fine-tuning'; there are embeddings,"),
        (["--document-context"], "--document-context is for an encoder, which the model is not"),
        (["--crf", "--task", "text"], "--crf is for tagging, but the task is text"),
        (["--layer-penalty", "-1"], "layer-penalty"),
        (["--task", "glue"], "which task of GLUE"),
    ],
)
def test_mistakes(
    more: list[str],
    message: str,
    elmo: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(elmo), "--data", str(data), "--out", str(tmp_path / "o"), *more]
    assert main(["feature-based", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "o").exists()


def test_a_mix_at_the_output_is_one_of_its_own() -> None:
    torch.manual_seed(0)
    tagger = BiLstmTagger(5, 3, 4, lstm_size=6, mix_output=True).eval()
    assert tagger.out.in_features == 12 + 5
    states, lengths = torch.randn(2, 4, 3, 5), torch.tensor([4, 2])
    plain = tagger.read(states, lengths)
    torch.testing.assert_close(plain[..., 12:], states.mean(2))
    with torch.no_grad():
        tagger.output_mix.weights[1] = 50.0  # type: ignore[union-attr]
        tagger.output_mix.factor.fill_(2.0)  # type: ignore[union-attr]
    changed = tagger.read(states, lengths)
    torch.testing.assert_close(changed[..., 12:], 2 * states[:, :, 1])
    torch.testing.assert_close(changed[..., :12], plain[..., :12])
    penalty = tagger.penalty()
    assert penalty is not None
    assert penalty.item() == pytest.approx(2500)


def test_padding_changes_no_text() -> None:
    torch.manual_seed(0)
    module = BiLstmClassifier(5, 2, 3, width=2, lstm_size=6).eval()
    states, lengths = torch.randn(4, 7, 2, 5), torch.tensor([7, 3, 1, 5])
    with torch.no_grad():
        together = module(states, lengths)
        torch.testing.assert_close(together[0], module(states[:2], lengths[:2])[0])
        short = states[2:, :5]
        torch.testing.assert_close(together[1], module(short, lengths[2:])[0])


def test_a_mix_at_the_output_alone_reads_the_words_by_themselves() -> None:
    torch.manual_seed(0)
    tagger = BiLstmTagger(5, 3, 4, lstm_size=6, mix_output=True, mix_input=False).eval()
    states, lengths = torch.randn(2, 4, 3, 5), torch.tensor([4, 2])
    other = states.clone()
    other[:, :, 1:] = torch.randn(2, 4, 2, 5)
    plain, changed = tagger.read(states, lengths), tagger.read(other, lengths)
    torch.testing.assert_close(changed[0, :, :12], plain[0, :, :12])
    assert not torch.allclose(changed[0, :, 12:], plain[0, :, 12:])
    assert list(tagger.layer_weights()) == ["output"]
