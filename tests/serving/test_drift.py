"""What a server counts of its answers: for `/drift` and `/metrics`, without texts."""

from __future__ import annotations

from pathlib import Path

import pytest

import bertine
import toys

from .conftest import running


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_recorded(tmp_path_factory.mktemp("watched"))


def test_answers_are_counted_and_compared(model: Path, tmp_path: Path) -> None:
    earlier = toys.write_classifier(tmp_path / "earlier")
    texts = [toys.sentence(topic, word) for topic in toys.TOPICS for word in toys.ADJECTIVES]
    expected = [answer.label for answer in bertine.Predictor.load(model, precision="fp32")(texts)]
    with running({"watched": model, "earlier": earlier}) as ask:
        assert ask("/drift").json["data"] == [{"model": "watched", "drift": None}]
        (plain,) = ask("/predict", {"texts": texts[:1]}).json["predictions"]
        assert "familiarity" not in plain
        for _ in range(2):
            answers = ask("/predict", {"texts": texts}).json["predictions"]
            assert [answer["label"] for answer in answers] == expected
        (watched,) = ask("/drift").json["data"]
        report = watched["drift"]
        assert report["texts"] == 2 * len(texts) + 1
        assert 0 <= report["accuracy"] <= 1
        assert not any(text in ask("/drift").body.decode() for text in texts)
        metrics = ask("/metrics").body.decode().splitlines()
    counts = [line for line in metrics if line.startswith("bertine_answers{")]
    assert sum(float(line.split()[-1]) for line in counts) == report["texts"]
    (accuracy,) = [line for line in metrics if line.startswith("bertine_estimated_accuracy{")]
    assert float(accuracy.split()[-1]) == pytest.approx(report["accuracy"], abs=1e-4)
