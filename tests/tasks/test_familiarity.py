"""How much a text is like the training texts: p-values that are valid, kept and shown."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import bertine
import toys
from bertine import BertineError
from bertine.tasks.base import Features
from bertine.tasks.familiarity import Familiarity

LABELS, WIDTH = 3, 8
IDS = np.zeros(4, dtype=np.int32)


def fitted(seed: int, held: int) -> tuple[Familiarity | None, np.ndarray, np.ndarray]:
    """Fitted on texts around a point for each label; with outputs for further ones, and for others
    around other points."""
    draw = np.random.default_rng(seed)
    points = draw.normal(size=(2 * LABELS, WIDTH)) * 3
    count = 60 + held + 400
    labels = draw.integers(0, LABELS, count)
    logits = 4 * np.eye(LABELS)[labels] + draw.normal(size=(count, LABELS))
    usual = np.hstack([logits, points[labels] + draw.normal(size=(count, WIDTH))])
    others = usual.copy()
    others[:, LABELS:] = points[LABELS + labels] + draw.normal(size=(count, WIDTH))
    features = [Features(IDS, IDS, row, int(label)) for row, label in enumerate(labels)]
    result = Familiarity.fit(
        lambda chosen: [usual[feature.row].astype(np.float32) for feature in chosen],
        features[:60],
        features[60 : 60 + held],
        LABELS,
    )
    return result, usual[60 + held :].astype(np.float32), others[:400].astype(np.float32)


def test_usual_texts_are_as_familiar_as_is_said_and_others_are_not() -> None:
    usual, strange = [], []
    for seed in range(20):
        result, alike, others = fitted(seed, 99)
        assert result is not None
        usual += result.of(alike[:, LABELS:]).tolist()
        strange += result.of(others[:, LABELS:]).tolist()
    assert min(strange) == pytest.approx(0.01)
    for share in (0.05, 0.2, 0.5):
        assert np.mean(np.array(usual) <= share) == pytest.approx(share, abs=0.03)
    assert np.mean(np.array(strange) <= 0.05) > 0.7


def test_a_record_is_kept_and_a_damaged_one_is_none() -> None:
    result, alike, _ = fitted(0, 60)
    assert result is not None
    facts = json.loads(json.dumps(result.to_dict()))
    again = Familiarity.from_facts(facts, WIDTH)
    assert again is not None
    assert again.of(alike[:, LABELS:]).tolist() == result.of(alike[:, LABELS:]).tolist()
    assert fitted(0, 49)[0] is None
    for damaged in (None, [], {}, facts | {"means": "?"}, facts | {"held_out": ""}, {"center": 3}):
        assert Familiarity.from_facts(damaged, WIDTH) is None
    assert Familiarity.from_facts(facts, WIDTH + 1) is None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_recorded(tmp_path_factory.mktemp("familiarity"))


def test_a_fine_tuned_model_says_how_familiar_texts_are(model: Path, tmp_path: Path) -> None:
    plain = bertine.Predictor.load(model, precision="fp32")
    telling = plain.judging_familiarity()
    texts = ["the soup boils .", "a quick fox sleeps .", "7 7 7 ? ! 7 7"]
    for before, after in zip(plain.predict(texts), telling.predict(texts), strict=True):
        assert before.familiarity is None
        assert after.label == before.label
        assert after.probability == pytest.approx(before.probability, abs=1e-5)
        assert 0 < after.familiarity <= 1
        assert after.to_json(False)["familiarity"] == pytest.approx(after.familiarity, abs=1e-6)
        assert f"familiarity {after.familiarity:.3f}" in str(after)
    telling.explain(texts[0])
    least = min(answer.familiarity for answer in telling.predict(texts))
    assert not telling._with(abstain_unfamiliar=least).predict(texts[0]).abstains
    # All are left open where nothing is familiar enough.
    file, out = tmp_path / "new.csv", tmp_path / "answers.csv"
    file.write_text("text\n" + "".join(f"{text}\n" for text in texts[:2]), encoding="utf-8")
    report = bertine.predict(model, file, out, abstain_unfamiliar=1.0, precision="fp32")
    with open(out, encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    open_ones = [row for row in rows if not row["label"]]
    assert [float(row["familiarity"]) < 1 for row in rows] == [not row["label"] for row in rows]
    if open_ones:
        assert "the text is not like those of the training" in "\n".join(report.lines())


def test_models_that_cannot_tell_say_why(model: Path, tmp_path: Path) -> None:
    earlier = toys.write_classifier(tmp_path / "earlier")
    with pytest.raises(BertineError, match=r"earlier: bertine.json has no record .* 50 validation"):
        bertine.predict(earlier, texts="the soup boils .", familiarity=True)
    with pytest.raises(BertineError, match="abstain_unfamiliar is 2"):
        bertine.Predictor.load(model, precision="fp32").judging_familiarity(2.0)
