"""Pairs whose texts are encoded apart, and the head alone in place of the trained model."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.data.examples import Example, Examples
from bertine.families.fitted_heads import can_be_linear, make_linear
from bertine.families.modernbert import ModernHead
from bertine.families.roberta import RobertaConfig
from bertine.hub.model_directory import load_model
from bertine.inference.baselines.linear import LinearModel
from bertine.inference.baselines.texts import FrozenEncoder, Scaling, pair_features
from bertine.inference.compute import Engine
from bertine.inference.predictor import Predictor
from bertine.models.config import Config
from bertine.models.encoder import TextInputs
from bertine.models.family import family_of
from bertine.models.heads import DenseHead, Model, PairHead, shares_in_common, texts_apart
from bertine.models.pooling import Pooling
from bertine.tasks.base import Features
from bertine.tasks.classification import TextClassification
from bertine.tokenization.base import Template
from bertine.training.finetuning import linear_probe
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.linear_probe import alone_is_better

#: For the fixture that leaves them out elsewhere.
WITH_BASELINES = True
_TEXTS = [("the old cat sleeps", "a soup"), ("soup", "the cat and the old dog eat the soup")]


def _batch(model: Path) -> tuple[Batch, Any]:
    loaded = load_model(model)
    task = TextClassification(("0", "1"), ("a", "b"), pair_pooling="mean")
    items = [Example(texts, None, line) for line, texts in enumerate(_TEXTS)]
    examples = Examples("memory", ("a", "b"), None, items)
    return task.collate(task.featurize(examples, loaded.tokenizer), 0), loaded


@pytest.mark.parametrize("expected", [False, True])
def test_the_one_that_is_mostly_worse_must_be_better_by_more_than_chance(expected: bool) -> None:
    """Of 150 examples at 90%, the standard error is 2.4 points."""
    assert alone_is_better("accuracy", 0.92, 0.90, 150, expected=expected) is expected
    assert alone_is_better("accuracy", 0.90, 0.92, 150, expected=expected) is expected
    assert alone_is_better("accuracy", 0.94, 0.90, 150, expected=expected)
    assert not alone_is_better("accuracy", 0.90, 0.94, 150, expected=expected)
    assert alone_is_better("accuracy", 0.5, math.nan, 150, expected=expected)


def test_texts_apart_are_the_texts_by_themselves(model: Path) -> None:
    batch, loaded = _batch(model)
    texts = texts_apart(batch)
    ids, mask = texts.input_ids, texts.attention_mask
    assert mask is not None
    for row, text in enumerate([pair[0] for pair in _TEXTS] + [pair[1] for pair in _TEXTS]):
        wanted = loaded.tokenizer.encode(text).input_ids
        length = len(wanted)
        assert ids[row, :length].tolist() == list(wanted)
        assert mask[row].tolist() == [place < length for place in range(mask.shape[1])]


def test_texts_with_two_separators_between_are_taken_apart() -> None:
    template = Template((0, None, 2), (0, None, 2, 2, None, 2))
    texts = [([5, 6, 7], [8]), ([5], [6, 7]), ([], [9, 9])]
    rows = [template.wrap(*(np.array(text, np.int32) for text in pair)) for pair in texts]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([[*row.tolist(), *[1] * (width - len(row))] for row, _ in rows])
    types = torch.tensor([[*kinds.tolist(), *[0] * (width - len(kinds))] for _, kinds in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row, _ in rows])
    result = texts_apart(TextInputs(ids, mask, types))
    apart, real = result.input_ids, result.attention_mask
    assert real is not None
    for row, text in enumerate([pair[0] for pair in texts] + [pair[1] for pair in texts]):
        assert apart[row][real[row]].tolist() == [0, *text, 2]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls+max"])
def test_the_head_reads_what_the_vectors_of_the_texts_say(
    model: Path, pooling: str, packed: bool
) -> None:
    batch, loaded = _batch(model)
    encoder = FrozenEncoder(loaded.model, loaded.tokenizer, 128, Pooling.named(pooling))
    vectors = [encoder.vectors([pair[at] for pair in _TEXTS]) for at in (0, 1)]
    head = PairHead(loaded.config, 2, Pooling.named(pooling))
    computing = Engine(loaded.model, precision="fp32", threads=1).model if packed else loaded.model
    assert computing is not None
    texts = texts_apart(batch)
    with torch.inference_mode():
        found = head.features(computing.encode(texts), texts)
    np.testing.assert_allclose(found.numpy(), pair_features(*vectors), atol=1e-5)


def _texts(rows: list[list[int]]) -> TextInputs:
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return TextInputs(ids, torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows]))


_IDS = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@given(st.lists(st.tuples(_IDS, _IDS), min_size=1, max_size=4))
def test_shares_in_common_are_those_of_sets_of_pieces(pairs: list[tuple[list[int], ...]]) -> None:
    weights = torch.tensor([0.0, *(1.0 / n for n in range(1, 10))])
    shares = shares_in_common(_texts([pair[at] for at in (0, 1) for pair in pairs]), weights)
    for row, pair in zip(shares.tolist(), pairs, strict=True):
        for share, own, other in zip(row, pair, pair[::-1], strict=True):
            every = sum(float(weights[piece]) for piece in own)
            common = sum(float(weights[piece]) for piece in own if piece in other)
            assert share == pytest.approx(common / every if every else 0.0, abs=1e-5)


def test_pieces_of_few_texts_weigh_more_and_special_ones_nothing(model: Path) -> None:
    loaded = load_model(model)
    tokenizer, size = loaded.tokenizer, loaded.config.vocab_size
    batch = tokenizer.encode_arrays([one for one, _ in _TEXTS], [two for _, two in _TEXTS])
    features = [Features(ids, types, row) for row, (ids, types, _) in enumerate(batch)]
    weights = linear_probe.piece_weights(tokenizer, features, size)
    assert not weights[list(tokenizer.special_ids)].any()
    texts = [text for pair in _TEXTS for text in pair]
    seen = Counter(piece for text in texts for piece in set(tokenizer.encode_plain([text])[0]))
    for piece, count in seen.items():
        if piece not in tokenizer.special_ids:
            expected = math.log((len(texts) + 1) / (count + 1))
            assert weights[piece] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("older", [False, True])
def test_a_model_of_an_earlier_version_is_read(model: Path, tmp_path: Path, older: bool) -> None:
    data = _pairs(tmp_path / "pairs.csv")
    _finetune("text", model, data, tmp_path / "run", frozen=True, baselines=False)
    folder = tmp_path / "run" / "model"
    about, weights = json.loads((folder / "bertine.json").read_text()), toys.weights(folder)
    assert about["settings"]["shared_pieces"] is True
    if older:  # a head on vectors alone
        del about["settings"]["shared_pieces"], weights["pair_classifier.piece_weights"]
        weights["pair_classifier.weight"] = weights["pair_classifier.weight"][:, :-2].contiguous()
        (folder / "bertine.json").write_text(json.dumps(about))
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    predictor = Predictor.load(folder, "cpu", "fp32")
    assert predictor.task.shared_pieces is not older
    (answer,) = predictor.predict([("the old cat", "a cat")])
    assert sum(chance for _, chance in answer.chances()) == pytest.approx(1.0)


def _modern(config: Any) -> Config:
    """A ModernBERT as wide as `config`, whose heads have all that they may have."""
    return (
        family_of("modernbert")
        .presets["modern-tiny"]
        .replace(
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            vocab_size=config.vocab_size,
            norm_bias=True,
        )
    )


@pytest.mark.parametrize(
    "kind",
    [
        DenseHead,
        *(partial(DenseHead, act=act, first=0.0, last=0.0) for act in (F.relu, F.gelu, F.silu)),
        ModernHead,
    ],
)
def test_what_stands_before_the_scores_leaves_them_linear(kind: Callable[..., nn.Module]) -> None:
    config: Config = RobertaConfig(**toys.config().to_dict())
    config = _modern(config) if kind is ModernHead else config
    model = Model(config, {"classifier": kind(config, 3)}).eval()
    draw = np.random.default_rng(0)
    states = draw.normal(2.0, 3.0, (500, config.hidden_size)).astype(np.float32)
    scaling = Scaling(states)
    fitted = LinearModel(draw.normal(size=(config.hidden_size, 3)), draw.normal(size=3), 1.0)
    task = TextClassification(("a", "b", "c"), ("text",))
    linear_probe._set(model, task, scaling, fitted, states, Pooling())
    with torch.inference_mode():
        found = model.heads["classifier"](torch.from_numpy(states))
    np.testing.assert_allclose(found.numpy(), fitted.scores(scaling(states)), atol=1e-3)


def test_a_modernberts_classifier_is_linear_where_it_has_room() -> None:
    """Where it has not, or no such pooling, the head is one of ours."""
    config = _modern(toys.config())
    most = config.hidden_size - 1
    assert can_be_linear(config, Pooling(), most)
    assert can_be_linear(config, Pooling(("cls",)), 1)
    assert not can_be_linear(config, Pooling(), most + 1)
    assert not can_be_linear(config, Pooling(("max",)), 2)
    assert not can_be_linear(toys.config(), Pooling(), 2)
    model = Model(config, {"classifier": ModernHead(config, most)}).eval()
    draw = np.random.default_rng(1)
    weights, bias = draw.normal(size=(most, config.hidden_size)), draw.normal(size=most)
    states = draw.normal(1.0, 2.0, (200, config.hidden_size))
    wanted = states @ weights.T + bias
    head: Any = model.heads["classifier"]
    make_linear(model, head, Pooling(), *map(torch.from_numpy, (weights, bias, wanted)))
    with torch.inference_mode():
        found = head(torch.from_numpy(states).float()).numpy()
    # The largest score is off by the share that the norm is, and by rounding.
    np.testing.assert_allclose(found, wanted, atol=1e-5 * abs(wanted).max())


def _pairs(path: Path, rows: int = 160) -> Path:
    """Pairs of sentences, and whether both have the same topic."""
    draw = np.random.default_rng(0)
    lines = ["first,second,same"]
    for _ in range(rows):
        one, other = (list(toys.TOPICS)[at] for at in draw.integers(0, 3, 2))
        adjectives = [toys.ADJECTIVES[at] for at in draw.integers(0, 4, 2)]
        texts = [toys.sentence(*each) for each in zip((one, other), adjectives, strict=True)]
        lines.append(f"{texts[0]},{texts[1]},{int(one == other)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def _finetune(task: str, model: Path, data: Path, out: Path, **options: Any) -> Learner:
    columns = {"text_columns": ("first", "second"), "label_column": "same"}
    return bertine.finetune(
        task, model=model, data=data, out=out, precision="fp32", **columns, **options
    )


@pytest.mark.takes(2)
@pytest.mark.parametrize("task", ["text", "regression", "multi-label"])
def test_pairs_have_a_head_on_both_vectors(model: Path, tmp_path: Path, task: str) -> None:
    data = _pairs(tmp_path / "pairs.csv")
    if task == "multi-label":
        data.write_text(data.read_text().replace(",1\n", ",same|pair\n").replace(",0\n", ",pair\n"))
    learner = _finetune(task, model, data, tmp_path / "run", frozen=True, baselines=False)
    folder = tmp_path / "run" / "model"
    predictor = Predictor.load(folder, "cpu", "fp32")
    assert predictor.task.pair_pooling == "mean"
    again = bertine.evaluate(folder, tmp_path / "pairs.csv", show_progress=False)
    assert set(again.metrics) >= set(learner.metric_names)
    before, after = toys.weights(model), toys.weights(folder)
    assert all(torch.equal(before[name], after[name]) for name in before if "encoder" in name)
    # Both texts count, and alone as well as beside others.
    texts = [("the old cat", "a cat"), ("the old cat", "hot soup on a very big plate")]
    together = predictor.predict(texts)
    for text, answer in zip(texts, together, strict=True):
        (alone,) = predictor.predict([text])
        for name, value in answer.chances() if task != "regression" else [("", answer.score)]:
            other = alone.score if task == "regression" else dict(alone.chances())[name]
            assert other == pytest.approx(value, abs=1e-5)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForTextPairClassification"]
    # It is none of transformers', which says so, and opens nothing.
    with pytest.raises(ValueError, match="bert-for-bertine-only"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    with pytest.raises(BertineError, match=r"no BERT with a pair classifier .*frozen=False"):
        bertine.convert(folder, tmp_path / "converted")
    assert "It is for Bertine alone" in (folder / "README.md").read_text()


def test_a_model_without_segments_takes_no_pairs(tmp_path: Path) -> None:
    toys.write_model(tmp_path / "model", type_vocab_size=1)
    data = _pairs(tmp_path / "pairs.csv")
    with pytest.raises(BertineError, match="cannot tell two texts apart"):
        _finetune("text", tmp_path / "model", data, tmp_path / "run")


def test_without_its_task_file_it_cannot_be_read(model: Path, tmp_path: Path) -> None:
    data = _pairs(tmp_path / "pairs.csv")
    _finetune("text", model, data, tmp_path / "run", frozen=True, baselines=False)
    folder = tmp_path / "run" / "model"
    about = (folder / "bertine.json").read_text()
    for wrong in ("tokens", "mean-last-4", "mean+", "median"):
        (folder / "bertine.json").write_text(about.replace('"mean"', f'"{wrong}"'))
        with pytest.raises(BertineError, match=r"bertine\.json: pooling"):
            load_model(folder)
    (folder / "bertine.json").write_text(about.replace('"mean"', '"cls+mean"'))
    with pytest.raises(BertineError, match=r"pair_classifier.weight has shape"):
        load_model(folder)
    (folder / "bertine.json").unlink()
    with pytest.raises(BertineError, match=r"pair_pooling of a bertine\.json"):
        load_model(folder)


@pytest.mark.slow
def test_the_head_alone_is_saved_where_it_is_better(
    model: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, **options: Any) -> Learner:
        learner: Learner = bertine.finetune(
            "text", model=model, data=labelled, out=tmp_path / name, **{"epochs": 1, **options}
        )
        return learner

    # Trained at such a rate, the model has learned nothing.
    learner = run("both", learning_rate=1e-9)
    assert "it is saved in place of the trained model" in capsys.readouterr().err
    assert learner.metrics["accuracy"] > 0.95
    scores = json.loads((tmp_path / "both" / "scores.json").read_text())
    assert scores["instead_of"]["accuracy"] < 0.8
    assert scores["final"]["metrics"]["accuracy"] == learner.metrics["accuracy"]
    assert learner.validate().metrics["accuracy"] == learner.metrics["accuracy"]
    alone = bertine.finetune(
        "text", model=model, data=labelled, out=tmp_path / "alone", frozen=True
    )
    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("both", "alone")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    found = {each.kind: each for each in learner.findings}
    assert "under-baseline" not in found
    assert "frozen=False" in found["head-alone"].command
    assert alone.metrics == learner.metrics
    for name, options in (
        ("asked", {"frozen": False}),
        ("paper", {"paper": True}),
        ("no-baselines", {"baselines": False}),
    ):
        assert run(name, learning_rate=1e-9, **options).metrics["accuracy"] < 0.8
    # A model that has learned stays.
    assert "instead_of" not in json.loads((tmp_path / "paper" / "scores.json").read_text())
    assert run("trained", learning_rate=5e-3, epochs=10).metrics["accuracy"] > 0.95
    assert "instead_of" not in json.loads((tmp_path / "trained" / "scores.json").read_text())


@pytest.mark.slow
def test_texts_are_compared_and_all_weights_trained(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = _pairs(tmp_path / "pairs.csv")
    options = {"pairs": "apart", "baselines": False, "learning_rate": 1e-3, "batch_size": 8}
    # At no rate at all it is the head alone, which is where training begins.
    alone = _finetune("regression", model, data, tmp_path / "alone", frozen=True, baselines=False)
    still = {**options, "learning_rate": 0.0, "epochs": 1}
    begun = _finetune("regression", model, data, tmp_path / "begun", **still)
    for name in ("spearman", "mean_squared_error"):
        assert begun.metrics[name] == pytest.approx(alone.metrics[name], abs=1e-4)
    trained = _finetune("regression", model, data, tmp_path / "run", epochs=12, **options)
    errors = [each.metrics["mean_squared_error"] for each in (alone, trained)]
    assert errors[1] < errors[0]
    before, after = toys.weights(model), toys.weights(tmp_path / "run" / "model")
    assert not any(torch.equal(before[name], after[name]) for name in before if "query" in name)
    # What is counted stays as it was counted.
    counted = "pair_classifier.piece_weights"
    assert torch.equal(after[counted], toys.weights(tmp_path / "alone" / "model")[counted])


@pytest.mark.slow
def test_a_trained_comparison_is_resumed(model: Path, tmp_path: Path) -> None:
    data = _pairs(tmp_path / "pairs.csv")
    options = {"pairs": "apart", "baselines": False, "epochs": 2, "batch_size": 8}
    _finetune("text", model, data, tmp_path / "whole", **options)
    every = {"checkpoint_every": 3, **options}
    with toys.interrupted_at(8, TextClassification, "terms_of"):
        _finetune("text", model, data, tmp_path / "run", **every)
    _finetune("text", model, data, tmp_path / "run", resume=True, **every)
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "run")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_texts_by_themselves_have_nothing_to_be_compared_with(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertineError, match="pairs='apart' is for pairs of texts"):
        bertine.finetune("text", model=model, data=labelled, out=tmp_path / "run", pairs="apart")
