"""The feature-based way: states of a frozen encoder, computed once; the paper's seven rows."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertine
from bertine.cli import main
from bertine.contrib.feature_based.bilstm import BiLstmTagger, LayerMix
from bertine.contrib.feature_based.features import (
    FINE_TUNING,
    ROWS,
    FeatureBasedReport,
    StaticStates,
    word_states,
)
from bertine.core.errors import BertineError
from bertine.data.entities import Sentence, Sentences
from bertine.data.tagged_sentences import read_sentences
from bertine.hub.model_directory import load_model
from bertine.inference.evaluate import evaluate
from bertine.models.precision import precision_name
from bertine.tasks.report import EvaluationReport
from bertine.tasks.tagging import Tagging

QUICK: dict[str, Any] = {
    "max_length": 24,
    "epochs": 20,
    "dropout": 0.1,
    "batch_size": 8,
    "learning_rate": 1e-2,
    "lstm_size": 16,
    "finetune_epochs": 1,
    "finetune_learning_rate": 3e-3,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def result(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> FeatureBasedReport:
    out = tmp_path_factory.mktemp("features") / "out"
    return bertine.feature_based(model, data=data, out=out, **QUICK)


@pytest.mark.takes(4)
def test_one_row_is_trained_on_states_of_the_last_layer(
    model: Path, data: Path, tmp_path: Path
) -> None:
    settings = {**QUICK, "epochs": 10, "rows": ["last"]}
    result = bertine.feature_based(model, data=data, out=tmp_path / "out", **settings)
    assert list(result.rows) == ["last"]
    assert result.rows["last"]["layers"] == [2]
    assert 0 <= result.rows["last"]["validation"]["f1"] <= 1


@pytest.mark.slow
def test_all_rows_of_the_paper_are_one_table(result: FeatureBasedReport) -> None:
    assert list(result.rows) == [FINE_TUNING, *ROWS]
    assert len(result.rows) == 7
    lines = result.lines()
    assert lines[0].split() == ["dev", "f1", "test", "f1"]
    for name, line in zip(result.rows, lines[1:], strict=False):
        row = result.rows[name]
        assert f"{100 * row['validation']['f1']:.2f}" in line
        assert f"{100 * row['test']['f1']:.2f}" in line
    assert "the encoder has 2 layers: the last four are all of them" in lines
    written = json.loads((result.folder / "feature-based.json").read_text())
    assert written["rows"] == json.loads(json.dumps(result.rows))
    assert written["notes"] == result.notes != []
    assert [row.get("layers") for row in result.rows.values()] == [
        None,
        [0],
        [1],
        [2],
        [1, 2],
        [1, 2],
        [1, 2],
    ]


def test_the_states_are_those_of_transformers_and_computed_once(
    model: Path, data: Path, tmp_path: Path
) -> None:
    loaded = load_model(model)
    task = Tagging(("O", "B-animal", "I-animal", "B-dish", "I-dish"), max_length=24)
    sentences = read_sentences(data / "dev.conll")
    untagged = Sentences("words", (), None, [Sentence(item.words) for item in sentences.items])
    before = loaded.model.fingerprint()

    def states(changed: Tagging = task) -> Any:
        return word_states(loaded.model, loaded.tokenizer, changed, untagged, tmp_path)

    first = states()
    assert not first.found
    assert loaded.model.fingerprint() == before
    other = transformers.AutoModel.from_pretrained(model).eval()
    words = list(sentences.items[3].words)
    ids = torch.tensor([loaded.tokenizer.encode(" ".join(words)).input_ids])
    with torch.no_grad():
        theirs = other(input_ids=ids, output_hidden_states=True).hidden_states
    begin, end = int(first.starts[3]), int(first.starts[4])
    for ours, layer in zip(first.layers([0, 1, 2]), theirs, strict=True):
        np.testing.assert_allclose(ours[begin:end].float(), layer[0, 1:-1], atol=5e-3)

    stamp = first.path.stat().st_mtime_ns
    again = states()
    assert again.found
    assert again.path.stat().st_mtime_ns == stamp
    assert states(Tagging(task.labels, max_length=20)).path != first.path
    # Where no tag is O, a word of which nothing is left is read as an unknown one.
    assert states(Tagging(task.labels[1:], max_length=24)).path != first.path
    # A file cut short is made anew.
    whole = first.path.read_bytes()
    first.path.write_bytes(whole[: len(whole) // 2])
    assert not states().found
    assert first.path.read_bytes() == whole


def test_the_test_sentences_are_judged_in_the_precision_of_the_validation_sentences(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in 8 bits, which evaluating by itself may choose."""
    asked = []

    def evaluated(*args: Any, **how: Any) -> EvaluationReport:
        asked.append(how["precision"])
        return evaluate(*args, **how)

    monkeypatch.setattr("bertine.contrib.feature_based.feature_based.evaluate", evaluated)
    settings = {**QUICK, "precision": "auto", "rows": [FINE_TUNING], "device": "cpu"}
    bertine.feature_based(model, data=data, out=tmp_path / "out", **settings)
    assert asked == [precision_name("auto", "cpu")]


@pytest.mark.slow
def test_what_is_done_is_kept(
    result: FeatureBasedReport,
    model: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    some = {**QUICK, "rows": ["last"]}
    first = bertine.feature_based(model, data=data, out=tmp_path / "out", **some)
    # The same figures alone as among the others: no row depends on another.
    assert first.rows["last"]["validation"] == result.rows["last"]["validation"]
    with pytest.raises(BertineError, match=r"holds a table already"):
        bertine.feature_based(model, data=data, out=tmp_path / "out", **some)
    capsys.readouterr()
    more = {**QUICK, "rows": ["last", "embeddings"], "resume": True}
    second = bertine.feature_based(model, data=data, out=tmp_path / "out", **more)
    assert "last: done before" in capsys.readouterr().err
    assert second.rows["last"] == json.loads(json.dumps(first.rows["last"]))
    assert set(second.rows) == {"last", "embeddings"}
    for name, value in (("epochs", 5), ("finetune_learning_rate", 0.5), ("max_length", 20)):
        begun = f"the table was started with {name} = {QUICK[name]}, not {value}; resume it"
        with pytest.raises(BertineError, match=re.escape(begun)):
            bertine.feature_based(model, data=data, out=tmp_path / "out", **{**more, name: value})
    shutil.copytree(data, tmp_path / "data")
    shutil.copy(data / "test.conll", tmp_path / "data" / "dev.conll")
    with pytest.raises(BertineError, match="was started with other validation sentences; resume"):
        bertine.feature_based(model, data=tmp_path / "data", out=tmp_path / "out", **more)
    file = tmp_path / "out" / "feature-based.json"
    table = json.loads(file.read_text())
    for rows in (5, [], {"last": 3}):
        file.write_text(json.dumps({**table, "rows": rows}))
        with pytest.raises(BertineError, match=r"feature-based.json: rows.* must be an object"):
            bertine.feature_based(model, data=data, out=tmp_path / "out", **more)
    file.write_text('{"settings": [], "rows": {}}')
    with pytest.raises(BertineError, match="choose another folder"):
        bertine.feature_based(model, data=data, out=tmp_path / "out", **more)


def test_an_unknown_row_is_named(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(model), "--data", str(data), "--out", str(tmp_path / "o"), "--rows", "first"]
    assert main(["feature-based", *given]) == 2
    assert "there is no row 'first'; there are fine-tuning" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_an_unknown_tag_of_the_test_file_is_told_before_anything_is_computed(
    model: Path, data: Path, tmp_path: Path
) -> None:
    for name in ("train", "dev"):
        (tmp_path / f"{name}.conll").write_bytes((data / f"{name}.conll").read_bytes())
    (tmp_path / "test.conll").write_text("cat 3 B-robot\n")
    with pytest.raises(BertineError, match=r"test\.conll:1: unknown tag 'B-robot' of 'cat'"):
        bertine.feature_based(model, data=tmp_path, out=tmp_path / "out", **QUICK)
    assert not (tmp_path / "out").exists()


def test_the_weighted_sum_begins_as_the_mean() -> None:
    states = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(LayerMix(4)(states), states.mean(2))


def test_the_tagger_in_bf16_is_nearly_that_in_fp32() -> None:
    torch.manual_seed(0)
    tagger = BiLstmTagger(16, 4, 3, lstm_size=32).eval()
    states, lengths = torch.randn(3, 9, 4, 16), torch.tensor([9, 2, 5])
    expected = tagger(states, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        assert tagger.mix is not None
        assert tagger.mix(states).dtype == torch.float32
        found = tagger(states, lengths)
    assert (found.float() - expected).abs().max() < 0.01
    wanted = torch.autograd.grad(expected.square().mean(), list(tagger.parameters()))
    given = torch.autograd.grad(found.float().square().mean(), list(tagger.parameters()))
    for mine, right in zip(given, wanted, strict=True):
        assert (mine - right).norm() <= 0.03 * right.norm() + 1e-6


def test_padding_changes_no_word() -> None:
    torch.manual_seed(0)
    tagger = BiLstmTagger(5, 4, 3, concatenate=True, lstm_size=6).eval()
    assert tagger.lstm.input_size == 20
    assert tagger.lstm.num_layers == 2
    assert tagger.lstm.bidirectional
    long, short = torch.randn(1, 7, 4, 5), torch.randn(1, 3, 4, 5)
    both = torch.zeros(2, 7, 4, 5)
    both[0], both[1, :3] = long[0], short[0]
    with torch.no_grad():
        together = tagger(both, torch.tensor([7, 3]))
        torch.testing.assert_close(together[0], tagger(long, torch.tensor([7]))[0])
        torch.testing.assert_close(together[1, :3], tagger(short, torch.tensor([3]))[0])


@pytest.mark.slow
def test_vectors_of_words_are_a_row_more(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = read_sentences(data / "train.conll")
    words = sorted({word.lower() for item in sentences.items for word in item.words})
    table = np.random.default_rng(0).standard_normal((len(words), 32)).astype(np.float32)
    bertine.WordVectors(words[1:], table[1:]).save(tmp_path / "v")
    settings = {**QUICK, "rows": ["embeddings"], "word_vectors": tmp_path / "v"}
    made = bertine.feature_based(model, data=data, out=tmp_path / "out", **settings)
    assert list(made.rows) == ["embeddings", "word-vectors"]
    assert made.rows["word-vectors"]["validation"]["f1"] > 0.5
    assert "vectors of words" in made.lines()[2]
    states = StaticStates.of(bertine.WordVectors.load(tmp_path / "v"), sentences)
    missing = sum(word.lower() == words[0] for item in sentences.items for word in item.words)
    assert states.unknown == missing > 0
    assert f"{missing} of {states.starts[-1]} words have no vector" in capsys.readouterr().err
    first = sentences.items[1].words[0]
    row = states.layers([0])[0][int(states.starts[1])].numpy()
    assert np.array_equal(row, table[words.index(first.lower())] * (first.lower() != words[0]))

    again = bertine.feature_based(model, data=data, out=tmp_path / "out", resume=True, **settings)
    assert again.rows == json.loads(json.dumps(made.rows))
    bertine.WordVectors(words, table).save(tmp_path / "v")
    with pytest.raises(BertineError, match="was made with other vectors"):
        bertine.feature_based(model, data=data, out=tmp_path / "out", resume=True, **settings)
