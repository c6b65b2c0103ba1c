"""A temperature for spans and tags: the one by which the truth was drawn is found, and unsure
answers are left open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.data.entities import Sentence, Sentences
from bertine.hub.model_directory import save_model
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.calibration import Calibration, calibrate
from bertine.tasks.span_windows import SpanFeatures
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.tagged_words import Tags, without_unsure
from bertine.tasks.tagging import Tagging

TAGS = ("B-PET", "I-PET", "O")
LIMITS = SpanLimits(doc_stride=8, max_question_length=10, max_answer_length=4)
CONTEXT = "the old cat sleeps in a warm pot and grazes"


def fitted(decisions: Any) -> Calibration:
    found = calibrate(decisions)
    assert found is not None
    return found


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_temperature_of_tags_is_found(temperature: float) -> None:
    task = Tagging(TAGS, max_length=24)
    items = [Sentence(("the", "cat", "sleeps"), None, n + 1) for n in range(400)]
    examples = Sentences("toy", ("words",), "tags", items)
    features = task.featurize(examples, toys.tokenizer())
    draw = np.random.default_rng(0)
    outputs, known = [], []
    for feature in features:
        logits = draw.normal(0, 4, (len(feature.input_ids), 3)).astype(np.float32)
        noise = draw.gumbel(size=(3, 3))
        tags = (logits[feature.positions] / temperature + noise).argmax(-1)  # type: ignore[attr-defined]
        outputs.append(logits)
        known.append(replace(feature, tags=tags))  # type: ignore[call-arg]
    decisions = task.decisions(outputs, known)
    assert decisions is not None
    assert decisions.logits.shape == (1200, 3)
    assert fitted(decisions).temperature == pytest.approx(temperature, rel=0.15)
    assert task.decisions(outputs, features) is None  # without tags there is nothing to fit


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("unanswerable", [False, True])
def test_the_temperature_of_spans_is_found(temperature: float, unanswerable: bool) -> None:
    task = SpanExtraction(max_length=24, limits=LIMITS, unanswerable=unanswerable)
    texts = [("the cat", CONTEXT)] * 400
    features = task.featurize(task.examples_of(texts), toys.tokenizer())
    assert len(features) == 400
    draw = np.random.default_rng(1)
    outputs, known = [], []
    for feature in features:
        assert isinstance(feature, SpanFeatures)
        logits = draw.normal(0, 3, (len(feature.input_ids), 2)).astype(np.float32)
        spans = [
            (first, last)
            for first in range(len(feature.offsets))
            for last in range(first, min(first + 4, len(feature.offsets)))
        ]
        places = [(feature.first + a, feature.first + b) for a, b in spans]
        if unanswerable:
            places.append((0, 0))
        scores = np.array([logits[a, 0] + logits[b, 1] for a, b in places]) / temperature
        span = places[int((scores + draw.gumbel(size=len(scores))).argmax())]
        outputs.append(logits)
        known.append(replace(feature, span=span))
    decisions = task.decisions(outputs, known)
    assert decisions is not None
    assert len(decisions.truth) == 400
    # The answers beyond the best twenty, which are not counted, have little of the probability.
    assert fitted(decisions).temperature == pytest.approx(temperature, rel=0.2)
    listed = task.decode(outputs, known)
    shares = np.exp(decisions.logits - decisions.logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    best = [max(answer.n_best, key=lambda one: one.score).probability for answer in listed]
    assert np.median(np.abs(shares.max(1) - best)) < 1e-6


def test_unsure_entities_are_left_out() -> None:
    tags = Tags(("B-PET", "I-PET", "O", "B-PET"), (0.9, 0.4, 0.8, 0.7))
    found = without_unsure(tags, 0.5, [0.05, 0.5, 0.8, 0.2])
    assert found.tags == ("O", "O", "O", "B-PET")
    assert found.probabilities == (0.05, 0.5, 0.8, 0.7)
    assert found.left_out == 1
    assert without_unsure(tags, 0.3, [0.0] * 4).tags == tags.tags


def write(folder: Path, task: Any) -> Path:
    config = toys.config()
    save_model(folder, Model(config, task.heads(config)), toys.tokenizer(), task=task.task_info())
    return folder


def test_models_of_spans_and_tags_abstain(tmp_path: Path) -> None:
    spans = write(tmp_path / "spans", SpanExtraction(max_length=24, limits=LIMITS))
    answer = Predictor.load(spans, "cpu", "fp32").abstaining(0.99).predict_one(("cat", CONTEXT))
    assert answer.abstains
    assert answer.to_json(False)["answer"] is None
    assert answer.to_json(False)["start"] is None
    assert answer.answer in CONTEXT
    assert answer.cells()[0].startswith("(unsure; ")
    tagger = write(tmp_path / "tagger", Tagging(TAGS, max_length=24))
    source, out = tmp_path / "words.conll", tmp_path / "tagged.conll"
    source.write_text("the\ncat\nsleeps\n", encoding="utf-8")
    report = bertine.predict(tagger, source, out, abstain_below=1.0, precision="fp32")
    assert out.read_text(encoding="utf-8").split() == ["the", "O", "cat", "O", "sleeps", "O"]
    usual = Predictor.load(tagger, "cpu", "fp32").predict_one("the cat sleeps")
    assert report.left_out == len(usual.entities)  # type: ignore[union-attr]
    plain = write(tmp_path / "plain", Tagging(("NOUN", "VERB"), max_length=24))
    with pytest.raises(BertineError, match="mark none"):
        bertine.predict(plain, texts=["the cat"], abstain_below=0.5)


@pytest.mark.slow
def test_fine_tuning_divides_the_head_of_spans(tmp_path: Path) -> None:
    """And the threshold, which is one of scores, is that of the divided ones: the model that is
    saved scores as the run says."""
    rows = []
    for n in range(160):
        text = toys.sentence(list(toys.TOPICS)[n % 8], toys.ADJECTIVES[n // 8 % 4])
        words = text.replace(",", " ").split()
        rows.append((words[1], " ".join(words), "" if n % 3 == 0 else words[n % 3]))
    for name, part in (("train", rows[:90]), ("dev", rows[90:])):
        lines = ["question,context,answer", *(",".join(row) for row in part)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = toys.write_model(tmp_path / "model")
    runs = {
        wanted: bertine.finetune(
            "spans", model=model, data=tmp_path, out=tmp_path / str(wanted), calibrate=wanted,
            epochs=3, learning_rate=3e-3, max_length=40, max_question_length=8,
            baselines=False, precision="fp32", save_best=False,
        )
        for wanted in (True, False)
    }  # fmt: skip
    divided, plain = (Predictor.load(runs[wanted].model, "cpu", "fp32") for wanted in (True, False))
    temperature = divided.training["calibration"]["temperature"]
    assert abs(temperature - 1) > 0.02
    weights = [one.model.heads["spans"].out.weight for one in (divided, plain)]
    assert torch.allclose(weights[0] * temperature, weights[1], atol=1e-6)
    assert divided.task.null_threshold == pytest.approx(
        plain.task.null_threshold / temperature, rel=1e-3
    )
    for predictor, run in ((divided, runs[True]), (plain, runs[False])):
        again = bertine.evaluate(predictor, tmp_path / "dev.csv")
        assert again.metrics == pytest.approx(run.metrics, abs=1e-5)
    assert "conformal" not in divided.training
