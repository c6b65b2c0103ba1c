"""How far probabilities are off, of every kind of answer, and how the page shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import toys
from bertine.data.label_sets import joined
from bertine.data.squad import Gold
from bertine.reports.run_scores import _calibration, _reliability
from bertine.tasks.base import Features
from bertine.tasks.calibration import Calibration, Reliability, calibrate
from bertine.tasks.multi_label import LabelSet, MultiLabel
from bertine.tasks.span_scores import SpanAnswer, SpanPrediction
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagged_words import Tags
from bertine.tasks.tagging import Tagging


def labels_of(cat: float, dog: float) -> LabelSet:
    chances = {"cat": cat, "dog": dog}
    chosen = tuple(name for name, chance in chances.items() if chance >= 0.5)
    return toys.label_set(chosen, chances)


def test_of_several_labels_each_counts_by_whether_it_is_there() -> None:
    task = MultiLabel(("cat", "dog"))
    answers = [labels_of(0.92, 0.31), labels_of(0.92, 0.31), labels_of(0.92, 0.31)]
    found = task.report(answers, ["cat", joined(["cat", "dog"]), "dog"]).reliability
    assert found.bins == [
        (pytest.approx(0.31), pytest.approx(2 / 3), 3),
        (pytest.approx(0.92), pytest.approx(2 / 3), 3),
    ]
    assert found.error == pytest.approx((abs(0.31 - 2 / 3) + abs(0.92 - 2 / 3)) / 2)
    assert found.coverage == []
    assert found.line().startswith("probabilities of labels are ")


def test_of_a_tagger_each_entity_that_is_given_counts() -> None:
    task = Tagging(("O", "B-PET", "I-PET", "B-FOOD", "I-FOOD"))
    tags = Tags(("B-PET", "I-PET", "O", "B-FOOD", "B-PET"), (0.9, 0.7, 0.99, 0.4, 0.95))
    # The first has another end, the second another type, the third is right.
    truth = ("B-PET", "O", "O", "B-PET", "B-PET")
    report = task.report([tags], [truth])
    found = report.reliability
    assert found is not None
    assert found.bins == [(0.4, 0.0, 1), (0.7, 0.0, 1), (0.95, 1.0, 1)]
    assert found.coverage[0] == (pytest.approx(1 / 3), 1.0, 0.95)
    assert report.to_dict()["reliability"]["about"] == "entities"
    assert any("probabilities of entities are " in line for line in report.lines())


def test_a_tagger_that_finds_nothing_is_not_called_exact() -> None:
    task = Tagging(("O", "B-PET", "I-PET"))
    report = task.report([Tags(("O", "O"), (0.9, 0.8))], [("B-PET", "O")])
    assert "collapsed" in "\n".join(report.lines())
    assert "points on average" not in "\n".join(report.lines())


def test_the_temperature_counts_several_labels_as_the_report_does() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(0, 3, (200, 2))
    truth = draw.random((200, 2)) < 1 / (1 + np.exp(-logits / 2))
    features = [
        Features(np.zeros(3), np.zeros(3), row, there.astype(np.float32))
        for row, there in enumerate(truth)
    ]
    task = MultiLabel(("cat", "dog"))
    fitted = calibrate(task.decisions(list(logits), features))
    names = [
        joined([n for n, there in zip(task.labels, row, strict=True) if there]) for row in truth
    ]
    report = task.report(task.decode(list(logits), features), names)
    assert fitted is not None
    assert fitted.error_before == pytest.approx(report.reliability.error)
    assert fitted.error_after < fitted.error_before


def spoken(text: str, chance: float) -> SpanPrediction:
    best = SpanAnswer(text, 0, chance, 1.0, 1.0)
    return SpanPrediction(text, 0, chance, None, (best,))


def test_an_answer_in_a_text_is_right_where_it_matches() -> None:
    gold = Gold(("the old cat",), v2=False)
    answers = [spoken("Old cat", 0.9), spoken("the cat", 0.5)]  # case and articles do not count
    found = SpanExtraction().report(answers, [gold, gold]).reliability  # type: ignore[attr-defined]
    assert found.bins == [(0.5, 0.0, 1), (0.9, 1.0, 1)]
    assert found.coverage == [(0.5, 1.0, 0.9), (1.0, 0.5, 0.5)]


@pytest.mark.parametrize(
    ("about", "title", "said"),
    [
        ("answers", "Fewer answers, surer ones", "texts below the lowest probability are left to"),
        ("entities", "Fewer entities, surer ones", "entities below the lowest probability are"),
        ("labels", None, None),
        ("tags", None, None),
    ],
)
def test_the_page_says_what_is_probable(about: str, title: str | None, said: str | None) -> None:
    values = Reliability.of([0.9, 0.8, 0.7, 0.6], [True, True, False, True], about).to_dict()
    blocks: list[Any] = _reliability(values)
    figures = [figure.title for figure in blocks[0].figures]
    assert figures == ["Are probabilities right?", *([title] if title else [])]
    if said is None:
        assert len(blocks) == 1
    else:
        assert said in blocks[1].caption


def test_a_temperature_says_what_it_is_of() -> None:
    """A tagger's is of each word's tag, which its entities' probabilities only follow."""
    fitted = Calibration(1.4, 0.04, 0.01, 100, helps=True, about="tags")
    better = "makes probabilities of tags better on examples that it was not fitted on"
    assert better in fitted.line()
    assert "points" not in fitted.line()  # the report says how far they are off, once
    blocks: list[Any] = _calibration(fitted.to_dict())
    assert better in blocks[0].text


def test_the_page_of_an_older_run_is_about_answers() -> None:
    values = Reliability.of([0.9, 0.8], [True, False]).to_dict()
    del values["about"], values["in_words"]
    blocks: list[Any] = _reliability(values)
    caption = blocks[0].figures[0].caption
    assert caption == "On the line they are. They are off by 45.0 points on average."
    assert blocks[1].columns[0] == "answered"


@pytest.mark.parametrize(
    ("said", "right", "count", "about", "line"),
    [
        (0.9, 0.9, 100, "answers", "within chance: as many are right as they say"),
        (0.9, 0.9, 1000, "answers", "as far as 1,000 answers tell"),
        (0.9, 0.7, 100, "answers", "off by 20.0 points on average: they say 90% on average, and "),
        (0.9, 0.7, 1000, "answers", "and 70% are right"),
        (0.9, 0.8, 10, "answers", "within chance"),
        (0.3, 0.6, 100, "labels", "probabilities of labels are off by 30.0 points"),
        (0.9, 0.5, 100, "entities", "probabilities of entities are off by 40.0 points"),
        (0.8, 0.8, 50, "tags", "probabilities of tags are as they should be within chance"),
    ],
)
def test_one_number_says_how_far_probabilities_are_off(
    said: float, right: float, count: int, about: str, line: str
) -> None:
    truth = [number < round(right * count) for number in range(count)]
    found = Reliability.of([said] * count, truth, about)
    assert line in found.line()
    assert found.to_dict()["in_words"] == found.line()
    assert "if they were exact" not in found.line()


def test_probabilities_may_be_too_high_here_and_too_low_there() -> None:
    truth = [number < 60 for number in range(100)] + [number < 55 for number in range(100)]
    found = Reliability.of([0.95] * 100 + [0.2] * 100, truth)
    assert found.line() == (
        "probabilities are off by 35.0 points on average: some are too high, some too low"
    )
