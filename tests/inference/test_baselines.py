"""Baselines: linear models as scikit-learn has them, which learn what there is to learn."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression, Ridge

import toys
from bertine.core.rng import generator
from bertine.data.entities import Sentence, Sentences
from bertine.data.examples import Example, Examples
from bertine.data.squad import Gold, Question, SpanExamples
from bertine.inference.baselines.linear import (
    ChoiceTargets,
    ClassTargets,
    LabelTargets,
    LinearModel,
    Matrix,
    NgramFeatures,
    NumberTargets,
    ShareTargets,
    fit_linear,
    sigmoid,
)
from bertine.inference.baselines.measure import measure_baselines
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.report import BaselineScore, baseline_lines, winner
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression


def _matrix(rows: int, features: int, *, sparsely: bool = False) -> Matrix:
    table = generator(3, "baselines", rows, features).standard_normal((rows, features))
    if not sparsely:
        return table.astype(np.float32)
    table[np.abs(table) < 1.0] = 0.0
    return sparse.csr_matrix(table.astype(np.float32))


@pytest.mark.parametrize(("features", "sparsely"), [(5, False), (200, False), (200, True)])
def test_logistic_regression_is_that_of_scikit_learn(features: int, sparsely: bool) -> None:
    """With fewer features than rows, and with more, where the solver works in the rows' span."""
    matrix = _matrix(90, features, sparsely=sparsely)
    ids = np.arange(90) % 3
    ours = fit_linear(matrix, ClassTargets(ids, 3), [0.5])
    theirs = LogisticRegression(C=0.5, tol=1e-8, max_iter=5000).fit(matrix, ids)
    np.testing.assert_allclose(
        np.exp(log_softmax(ours.scores(matrix), -1)), theirs.predict_proba(matrix), atol=2e-3
    )


def test_labels_are_fitted_each_by_itself() -> None:
    matrix = _matrix(80, 6)
    chosen = (matrix[:, :3] + 0.5 * matrix[:, 3:] > 0.3).astype(np.float64)
    ours = sigmoid(fit_linear(matrix, LabelTargets(chosen), [1.0]).scores(matrix))
    for label in range(3):
        theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(matrix, chosen[:, label])
        np.testing.assert_allclose(ours[:, label], theirs.predict_proba(matrix)[:, 1], atol=2e-3)


def test_numbers_are_fitted_by_ridge_regression() -> None:
    matrix = _matrix(60, 4)
    values = matrix @ np.array([1.0, -2.0, 0.0, 0.5]) + 3.0
    ours = fit_linear(matrix, NumberTargets(values), [10.0]).scores(matrix)[:, 0]
    theirs = Ridge(alpha=0.1).fit(matrix, values).predict(matrix)
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_right_choice_is_found_among_those_of_its_example() -> None:
    sizes = np.array([2, 3, 4] * 20)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    matrix = _matrix(int(starts[-1]), 3)
    right = np.array([int(matrix[a:b, 1].argmax()) for a, b in itertools.pairwise(starts)])
    scores = fit_linear(matrix, ChoiceTargets(right, starts), [0.1, 10.0]).scores(matrix)[:, 0]
    found = [int(scores[a:b].argmax()) for a, b in itertools.pairwise(starts)]
    assert found == right.tolist()


def test_a_strong_penalty_is_chosen_where_there_is_nothing_to_learn() -> None:
    matrix = _matrix(90, 40)
    ids = generator(1, "labels").integers(2, size=90)
    assert fit_linear(matrix, ClassTargets(ids, 2), [1e-4, 1.0, 100.0]).strength == 1e-4
    alone = fit_linear(matrix, ClassTargets(ids, 2), [1.0])
    assert alone.strength == 1.0
    assert alone.left_out is None  # nothing was to be chosen
    learnable = (matrix[:, 0] > 0).astype(np.int64)
    assert fit_linear(matrix, ClassTargets(learnable, 2), [1e-4, 1.0, 100.0]).strength >= 1.0


def test_scores_of_one_row_and_of_many_agree() -> None:
    model = LinearModel(np.eye(3), np.zeros(3), 1.0)
    matrix = _matrix(4, 3)
    np.testing.assert_allclose(model.scores(matrix[:1]), model.scores(matrix)[:1])


_WORDS = ("good", "fine", "bad", "poor")


def _texts(rows: int, seed: int = 0) -> list[Example]:
    """A text says what it is worth by one of four words among others."""
    draw = generator(seed, "texts")
    found = []
    for row in range(rows):
        word = int(draw.integers(4))
        filler = " ".join(f"w{draw.integers(30)}" for _ in range(6))
        found.append(Example((f"{filler} {_WORDS[word]}",), "up" if word < 2 else "down", row))
    return found


def _sets(label: dict[str, str] | None = None) -> tuple[Examples[Example], Examples[Example]]:
    parts = []
    for rows, seed in ((160, 0), (60, 1)):
        items = _texts(rows, seed)
        if label is not None:
            items = [Example(i.texts, label[i.label or ""], i.line) for i in items]
        parts.append(Examples("toy", ("text",), "label", items))
    return parts[0], parts[1]


def test_tf_idf_learns_what_a_word_says_and_the_majority_does_not() -> None:
    train, held = _sets()
    task = TextClassification.from_examples(train)
    majority, words = measure_baselines(task, train, {"": held})
    assert (majority.name, words.name) == ("majority", "tf-idf")
    labels = [item.label for item in train.items]
    most = max(("up", "down"), key=labels.count)
    share = sum(item.label == most for item in held.items) / len(held)
    assert majority.metrics["accuracy"] == pytest.approx(share)
    assert words.metrics["accuracy"] > 0.9
    assert set(words.metrics) == set(task.judge([*_always(task, held)], held).metrics)


def _always(task: TextClassification, held: Examples[Example]) -> list[object]:
    return [toys.prediction("up", {"up": 1.0, "down": 0.0}) for _ in held.items]


def test_scores_in_parts_are_those_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, ids = _matrix(90, 5), np.arange(90) % 3
    whole = fit_linear(matrix, ClassTargets(ids, 3), [0.5, 1.0])
    monkeypatch.setattr("bertine.inference.baselines.linear._AT_ONCE", 3 * 20)
    parts = fit_linear(matrix, ClassTargets(ids, 3), [0.5, 1.0])
    assert parts.strength == whole.strength
    np.testing.assert_allclose(parts.weights, whole.weights, atol=2e-3)


def test_what_would_take_minutes_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertine.inference.baselines.texts._MOST_SCORES", 300)
    train, held = _sets()
    found = measure_baselines(TextClassification.from_examples(train), train, {"": held})
    assert [score.name for score in found] == ["majority"]
    assert (
        "baseline tf-idf: left out: 2 labels and 160 training examples" in capsys.readouterr().err
    )


def test_the_mean_and_the_words_of_numbers() -> None:
    train, held = _sets({"up": "4.5", "down": "1"})
    mean, words = measure_baselines(TextRegression.from_examples(train), train, {"": held})
    assert mean.name == "mean"
    truth = np.array([float(i.label or 0) for i in held.items])
    guess = np.mean([float(i.label or 0) for i in train.items])
    assert mean.metrics["mean_squared_error"] == pytest.approx(float(((truth - guess) ** 2).mean()))
    assert words.metrics["pearson"] > 0.8


def test_many_labels() -> None:
    train, held = _sets({"up": "a\x1fb", "down": "c"})
    majority, words = measure_baselines(MultiLabel.from_examples(train), train, {"": held})
    assert 0 < majority.metrics["micro_f1"] < words.metrics["micro_f1"]


def test_further_sets_have_their_word_before_their_metrics() -> None:
    train, held = _sets()
    task = TextClassification.from_examples(train)
    first, _ = measure_baselines(task, train, {"": held, "other": held})
    assert first.metrics["other_accuracy"] == first.metrics["accuracy"]


def test_texts_without_a_word_are_no_error() -> None:
    train = Examples(
        "toy", ("text",), "label", [Example((" ",), str(at % 2), at) for at in range(8)]
    )
    for each in measure_baselines(TextClassification.from_examples(train), train, {"": train}):
        assert each.metrics["accuracy"] == 0.5


def test_pairs_are_learned_by_what_they_share() -> None:
    draw = generator(0, "pairs")
    rows = []
    for at in range(200):
        first = " ".join(f"w{draw.integers(400)}" for _ in range(6))
        second = " ".join(f"w{draw.integers(400)}" for _ in range(6)) if at % 2 else first
        rows.append((first, second))
    features = NgramFeatures(rows[:140])
    ids = np.arange(200) % 2
    model = fit_linear(features.matrix(rows[:140]), ClassTargets(ids[:140], 2), [1.0, 10.0])
    assert (model.scores(features.matrix(rows[140:])).argmax(-1) == ids[140:]).mean() > 0.95


def _scored(name: str, accuracy: float, count: int = 1000, **more: Any) -> BaselineScore:
    return BaselineScore(name, {"accuracy": accuracy, "loss": 1.0}, 0.1, 10, count, **more)


@pytest.mark.parametrize(
    ("right", "baseline", "count", "wins"),
    [
        (118, 119, 120, False),
        (550, 600, 1000, True),
        (590, 600, 1000, False),
        (600, 600, 1000, False),
        (0, 2, 10, False),
        (0, 3, 10, True),
        (5, 9, 10, True),
        (9, 10, 10, False),
        (97, 100, 100, True),
        (98, 100, 100, False),
        (math.nan, 100, 100, False),
        (50, 60, 0, False),  # of an earlier Bertine, which does not say of how many
    ],
)
def test_a_baseline_wins_by_more_than_chance(
    right: float, baseline: int, count: int, wins: bool
) -> None:
    total = count or 100
    baselines = [_scored("majority", 0.0, count), _scored("tf-idf", baseline / total, count)]
    best = winner({"accuracy": right / total}, ["accuracy"], baselines)
    assert (best is not None) == wins
    if best is not None:
        assert best.name == "tf-idf"
    assert BaselineScore.from_dict(baselines[1].to_dict()) == baselines[1]


def test_the_winner_is_named_and_only_then() -> None:
    baselines = [_scored("majority", 0.3), _scored("tf-idf", 0.6)]
    best = winner({"accuracy": 0.55}, ["accuracy"], baselines)
    assert best is not None
    assert best.name == "tf-idf"
    assert winner({"accuracy": 0.6}, ["accuracy"], baselines) is None
    assert winner({"accuracy": math.nan}, ["accuracy"], []) is None
    # The head alone was compared with the model already, on more examples.
    tried = _scored("frozen vectors", 0.9, may_win=False)
    assert winner({"accuracy": 0.55}, ["accuracy"], [*baselines, tried]) == baselines[1]
    lost = baseline_lines({"accuracy": 0.55, "loss": 1.2}, ["accuracy"], baselines)
    assert lost[0].startswith("a baseline wins: tf-idf")
    assert "60.00%" in lost[-1]
    assert "this model" in lost[2]
    won = baseline_lines({"accuracy": 0.7, "loss": 1.2}, ["accuracy"], baselines)
    assert not any("wins" in line for line in won)
    assert baseline_lines({"accuracy": 0.7}, ["accuracy"], []) == []


def test_choices_by_their_place_their_length_and_their_words() -> None:
    """The right choice repeats a word of the question; it is the first or the second."""
    draw = generator(0, "quiz")
    items = []
    for at in range(150):
        named = f"w{draw.integers(300)}"
        wrong = f"w{300 + int(draw.integers(300))}"
        right = at % 3 == 0
        texts = (f"which is {named}", *((named, wrong) if right else (wrong, named)))
        items.append(Example(texts, "0" if right else "1", at))
    columns = ("question", "choice0", "choice1")
    parts = [Examples("quiz", columns, "label", part) for part in (items[:110], items[110:])]
    task = MultipleChoice.from_examples(parts[0])
    scores = {each.name: each.metrics for each in measure_baselines(task, parts[0], {"": parts[1]})}
    assert list(scores) == ["majority", "longest", "tf-idf"]
    share = sum(item.label == "1" for item in parts[1].items) / len(parts[1])
    assert scores["majority"]["accuracy"] == pytest.approx(share)
    assert scores["tf-idf"]["accuracy"] > 0.9


def test_tags_by_the_word_and_by_its_neighbours() -> None:
    """A word after "at" is a place, whatever it is; "oslo" always is one."""
    draw = generator(0, "tags")

    def sentence(at: int) -> Sentence:
        new = f"w{draw.integers(5000)}"
        if at % 3 == 0:
            return Sentence(("oslo", "is", "far"), ("B-place", "O", "O"), at)
        if at % 3 == 1:
            return Sentence(("met", "at", new), ("O", "O", "B-place"), at)
        return Sentence(("met", "with", new), ("O", "O", "O"), at)

    sentences = [sentence(at) for at in range(160)]
    parts = [Sentences("s", ("w",), "t", each) for each in (sentences[:120], sentences[120:])]
    task = Tagging.from_examples(parts[0])
    usual, features = measure_baselines(task, parts[0], {"": parts[1]})
    assert (usual.name, features.name) == ("frequent tags", "word features")
    assert 0.3 < usual.metrics["f1"] < 0.9
    assert features.metrics["f1"] > 0.95


def test_answers_stand_near_the_words_of_the_question() -> None:
    names = ["Ada", "Bo", "Cid", "Dee", "Eve", "Fay", "Gus", "Hal"]
    towns = ["Aarau", "Basel", "Chur", "Davos", "Elm", "Flims", "Genf", "Horn"]
    questions = []
    for at, (name, town) in enumerate(zip(names, towns, strict=True)):
        other = (at + 3) % 8
        context = (
            f"It was long ago and much has changed since. {names[other]} was in the army. In the "
            f"end {name} moved to {town} for good. Nobody was there to see it in the end."
        )
        start = context.index(town)
        gold = Gold((town,), (start, start + len(town)))
        questions.append(Question((f"Where has {name} moved to for good?", context), gold, at))
    examples = SpanExamples("q", ("question", "context"), "answer", questions)
    task = SpanExtraction.from_examples(examples)
    first, near = measure_baselines(task, examples, {"": examples})
    assert (first.name, near.name) == ("first words", "sliding window")
    assert first.metrics["f1"] == 0.0
    assert near.metrics["f1"] > 0.5
    silent = dataclasses.replace(task, unanswerable=True)
    assert measure_baselines(silent, examples, {"": examples})[0].name == "no answer"


def test_shares_of_classes_are_as_good_as_rows_of_each() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(20, 5)).astype(np.float32)
    quarters = np.array([(0.75, 0.25, 0.0), (0.0, 0.5, 0.5)] * 10)
    shared = fit_linear(rows, ShareTargets(quarters), [0.25 * 4])
    ids = np.concatenate([np.repeat([0, 1, 2], (4 * each).astype(int)) for each in quarters])
    repeated = fit_linear(rows.repeat(4, 0), ClassTargets(ids, 3), [0.25])
    assert shared.weights == pytest.approx(repeated.weights, abs=1e-4)
    assert shared.bias == pytest.approx(repeated.bias, abs=1e-4)


def test_a_task_without_a_part_here_has_no_baselines() -> None:
    examples: Examples[Any] = Examples("t", ("text",), "label", [Example(("a",), "x")])
    assert measure_baselines(object(), examples, {"": examples}) == []
