"""Fine-tuning as scikit-learn's estimators: what its users do with them, and its own checks."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

import bertine
import toys
from bertine import BertClassifier, BertRegressor
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.estimators import labels_of

QUICK: dict[str, Any] = {
    "epochs": 8,
    "batch_size": 8,
    "learning_rate": 3e-3,
    "max_length": 32,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without dropout, with which so few steps teach little."""
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return toys.write_model(tmp_path_factory.mktemp("toys") / "model", **rates)


def texts(rows: int = 64, seed: int = 0) -> tuple[list[str], list[str]]:
    draw = generator(seed, "toy estimators")
    topics = list(toys.TOPICS)
    found = [
        toys.sentence(topics[n % 8], toys.ADJECTIVES[draw.integers(len(toys.ADJECTIVES))])
        for n in range(rows)
    ]
    return found, ["dish" if n % 8 >= 4 else "animal" for n in range(rows)]


@pytest.fixture(scope="module")
def fitted(model: Path) -> BertClassifier:
    return BertClassifier(model, **QUICK).fit(*texts())


def test_a_classifier_learns_and_answers(fitted: BertClassifier) -> None:
    held, labels = texts(24, seed=1)
    assert fitted.classes_.tolist() == ["animal", "dish"]
    assert fitted.score(held, labels) == 1.0
    given = fitted.predict_proba(held)
    assert given.shape == (24, 2)
    assert given.sum(-1) == pytest.approx(1)
    assert (fitted.predict(held) == fitted.classes_[given.argmax(-1)]).all()
    assert fitted.predict([]).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "kind"), [((7, 12), "i"), ((True, False), "b"), (("b", "a"), "U")]
)
def test_classes_keep_their_type_and_are_sorted(model: Path, values: Any, kind: str) -> None:
    """Also where as texts they would be in another order: 12 before 7."""
    given, labels = texts(48)
    y = np.array([values[label == "dish"] for label in labels])
    classifier = BertClassifier(model, **QUICK).fit(np.array(given), y)
    assert classifier.classes_.tolist() == sorted(values)
    answers = classifier.predict(given)
    assert answers.dtype.kind == kind
    assert (answers == y).mean() > 0.9


@pytest.mark.slow
def test_pairs_of_texts(model: Path) -> None:
    given, _ = texts(64)
    pairs = [(text, "a cat ." if n % 2 else "a soup .") for n, text in enumerate(given)]
    labels = [n % 2 for n in range(64)]
    for X in (pairs, np.array(pairs), np.array(pairs, dtype=object)):
        classifier = BertClassifier(model, **QUICK).fit(X, labels)
        assert classifier.score(X, labels) > 0.9
    with pytest.raises(ValueError, match="X has one text a row, but BertClassifier was fitted to"):
        classifier.predict(given)


@pytest.mark.slow
def test_a_regressor_learns_large_numbers(model: Path) -> None:
    given, labels = texts(64)
    prices = [5000.0 if label == "dish" else -1000.0 for label in labels]
    regressor = BertRegressor(model, **QUICK).fit(given, prices)
    assert regressor.score(given, prices) > 0.9
    assert regressor.predict(given).dtype == np.float64
    again = pickle.loads(pickle.dumps(regressor))
    assert (again.predict(given) == regressor.predict(given)).all()


@pytest.mark.slow
def test_fits_in_threads_give_what_each_gives_by_itself(model: Path) -> None:
    given, labels = texts(16)

    def fitted_with(seed: int) -> np.ndarray:
        classifier = BertClassifier(model, **QUICK, dropout=0.2, random_state=seed)
        return classifier.fit(given, labels).predict_proba(given)

    def fitted_in(threads: int) -> list[np.ndarray]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(fitted_with, (0, 1)))

    alone, beside = fitted_in(1), fitted_in(2)
    assert not np.array_equal(alone[0], alone[1])
    assert all(np.array_equal(a, b) for a, b in zip(alone, beside, strict=True))


@pytest.mark.slow
def test_it_is_what_finetune_does(model: Path, tmp_path: Path) -> None:
    """The same examples, settings and seed give the same weights by the verb."""
    given, labels = texts(32)
    out = tmp_path / "kept"
    short = {**QUICK, "epochs": 1, "dropout": 0.1}
    fitted = BertClassifier(model, **short, out=out, random_state=2).fit(given, labels)
    (tmp_path / "data").mkdir()
    rows = "".join(f"{text},{label}\n" for text, label in zip(given, labels, strict=True))
    for part in ("train", "dev"):
        (tmp_path / "data" / f"{part}.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    bertine.finetune(
        "text",
        model=model,
        data=tmp_path / "data",
        out=tmp_path / "run",
        seed=2,
        frozen=False,  # without validation examples an estimator has nothing to choose by
        **short,
    )
    ours, theirs = toys.weights(out / "model"), toys.weights(tmp_path / "run" / "model")
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    loaded = bertine.Predictor.load(out, precision="fp32")
    assert [a.label for a in loaded.predict(given)] == fitted.predict(given).tolist()
    assert bertine.report(out).path.is_file()
    with pytest.raises(BertineError, match="holds a run already"):
        fitted.fit(given, labels)


def test_nothing_is_left_on_disk(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fitted = BertClassifier(model, **{**QUICK, "epochs": 1}).fit(*texts(16))
    pickle.loads(pickle.dumps(fitted))
    assert not list(tmp_path.iterdir())


def test_a_pickle_needs_no_other_file(fitted: BertClassifier) -> None:
    held, _ = texts(8, seed=1)
    content = pickle.dumps(fitted)
    assert b"torch" not in content  # weights are safetensors, whatever PyTorch does
    again = pickle.loads(content)
    assert (again.predict_proba(held) == fitted.predict_proba(held)).all()
    assert again.get_params() == fitted.get_params()
    unfitted = pickle.loads(pickle.dumps(clone(fitted)))
    with pytest.raises(NotFittedError):
        unfitted.predict(held)


def test_a_pickle_of_the_first_version_is_read(fitted: BertClassifier) -> None:
    """For a while, its classes were in modules of their own, whose names such a pickle has."""
    content = pickle.dumps(fitted, protocol=2)
    names = b"cbertine.estimators\n", b"cbertine.estimators.classifier\n"
    assert names[0] in content
    again = pickle.loads(content.replace(*names))
    assert type(again) is BertClassifier
    assert again.get_params() == fitted.get_params()


@pytest.mark.slow
def test_pipelines_cross_validation_and_grid_search(model: Path) -> None:
    given, labels = texts(64)
    shout = FunctionTransformer(lambda X: [text.upper() for text in X])
    lower = FunctionTransformer(lambda X: [text.lower() for text in X])
    classifier = BertClassifier(model, **{**QUICK, "epochs": 10, "learning_rate": 5e-3})
    pipeline = make_pipeline(shout, lower, classifier)
    assert pipeline.fit(given, labels).score(given, labels) > 0.9
    assert cross_val_score(classifier, np.array(given), labels, cv=2).min() > 0.9
    search = GridSearchCV(classifier, {"learning_rate": [1e-9, 5e-3]}, cv=2)
    search.fit(given, labels)
    assert search.best_params_ == {"learning_rate": 5e-3}
    assert search.best_estimator_.score(given, labels) > 0.9


def test_parameters_are_those_of_finetune() -> None:
    """Under their names and with their defaults."""
    import inspect

    verb = inspect.signature(bertine.finetune).parameters
    for kind in (BertClassifier, BertRegressor):
        own = inspect.signature(kind).parameters
        other = {"model", "random_state", "out", "verbose", "max_length", "few_shot"}
        shared = set(own) - other
        assert len(shared) > 12
        for name in shared:
            assert own[name].default == verb[name].default, name
        assert own["max_length"].default == 128


@pytest.mark.slow
def test_class_weights_and_long_texts_reach_the_training(model: Path) -> None:
    """A class that is there once in sixteen is learned where the classes weigh the same."""
    given, labels = texts(64)
    short = {**QUICK, "epochs": 1}
    plain, weighted, windows = (
        BertClassifier(model, **short, **more).fit(given, labels).predict_proba(given)
        for more in ({}, {"class_weights": "balanced"}, {"long_text": "windows"})
    )
    assert plain == pytest.approx(weighted, abs=1e-6)  # the classes are as frequent
    rare = ["dish" if n % 16 == 4 else "animal" for n in range(64)]
    some, same = (
        BertClassifier(model, **short, class_weights=weights).fit(given, rare).predict_proba(given)
        for weights in (None, "balanced")
    )
    assert same[:, 1].mean() > some[:, 1].mean() + 0.1
    assert (plain == windows).all()  # none is longer
    cut = BertClassifier(model, **{**short, "max_length": 6}).fit(given, labels)
    read = BertClassifier(model, **{**short, "max_length": 6}, long_text="windows")
    assert (cut.predict_proba(given) != read.fit(given, labels).predict_proba(given)).any()


#: Of six texts: one is there twice, one three times, two not at all.
_WEIGHTS = [2, 1, 0, 3, 1, 0]
_AGAIN = [row for row, weight in enumerate(_WEIGHTS) for _ in range(weight)]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (BertClassifier, {}),
        (BertClassifier, {"class_weights": "balanced"}),
        (BertClassifier, {"class_weights": {"dish": 3}}),
        (BertClassifier, {"focal_gamma": 1.5}),
        (BertClassifier, {"long_text": "windows", "max_length": 6}),
        (BertRegressor, {}),
    ],
)
def test_a_text_of_weight_2_is_as_good_as_one_that_is_there_twice(
    model: Path, tmp_path: Path, kind: type[Any], more: dict[str, Any]
) -> None:
    given, numbers = texts(8)[0][1:7], [3.0, 1.0, 9.0, 4.0, 1.5, 9.0]
    labels = ["animal", "animal", "dish", "dish", "dish", "animal"]
    y = numbers if kind is BertRegressor else labels
    one_step = {**QUICK, "epochs": 1, "batch_size": 64, **more}
    losses = []
    for name, rows, weights in (
        ("weighted", [*range(6)], np.array(_WEIGHTS) / 7),
        ("repeated", _AGAIN, None),
    ):
        estimator = kind(model, out=tmp_path / name, **one_step)
        estimator.fit([given[row] for row in rows], [y[row] for row in rows], weights)
        lines = (tmp_path / name / "log.jsonl").read_text().splitlines()
        losses.append(json.loads(lines[0])["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_text_of_weight_0_is_as_good_as_none(model: Path) -> None:
    given, labels = texts(16)
    weights = [int(row % 3 > 0) for row in range(16)]
    some = [row for row, weight in enumerate(weights) if weight]
    few = {**QUICK, "epochs": 1}
    weighted = BertClassifier(model, **few).fit(given, labels, sample_weight=weights)
    less = BertClassifier(model, **few).fit([given[r] for r in some], [labels[r] for r in some])
    assert (weighted.predict_proba(given) == less.predict_proba(given)).all()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"X has 3 texts, but sample_weight has the shape \(2,\)"),
        ([[1, 2, 3]], r"sample_weight has the shape \(1, 3\)"),
        ([1, -1, 1], r"sample_weight\[1\] is -1, but must be a finite number, 0 or more"),
        ([1, 1, float("nan")], r"sample_weight\[2\] is nan"),
        ([1, 1, "much"], "sample_weight must be N numbers"),
        ([0, 0, 1], "sample_weight is zero but for 1 text; fit needs 2 texts or more"),
    ],
)
def test_weights_that_are_none_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BertClassifier("no model").fit(["a", "b", "c"], [0, 1, 0], weights)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"class_weights": {"x": 1}},
            r"class_weights has 'x', but the classes of y are \['a', 'b'",
        ),
        ({"class_weights": {"a": -1}}, r"class_weights\['a'\] is -1, but must be"),
        ({"class_weights": {"a": 0, "b": 0}}, "every text has the weight 0"),
        ({"class_weights": "mine"}, "class_weights is 'mine', but must be 'balanced'"),
    ],
)
def test_class_weights_that_are_none_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        BertClassifier("bertine-en", epochs=1, **more).fit(["a", "b"], ["a", "b"])


def test_few_shot_has_no_weights_of_texts() -> None:
    with pytest.raises(BertineError, match="sample_weight is of fine-tuning"):
        BertClassifier("no model", few_shot=True).fit(["a", "b"], ["a", "b"], [1, 2])


def test_truncation_is_told_and_nothing_else(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, labels = texts(16)
    BertClassifier(model, **{**QUICK, "epochs": 1}).fit(given, labels).predict(given)
    assert "cut" not in capsys.readouterr().err
    cut = BertClassifier(model, **{**QUICK, "epochs": 1, "max_length": 6}).fit(given, labels)
    assert "X: 16 of 16 texts were cut at 6 pieces" in capsys.readouterr().err
    cut.predict(["the cat ."])
    assert capsys.readouterr().err == ""
    cut.predict(given[:3])
    assert "X: 3 of 3 texts were cut at 6 pieces" in capsys.readouterr().err
    BertClassifier(model, **{**QUICK, "epochs": 1}, verbose=True).fit(given, labels)
    told = capsys.readouterr().err
    assert "16 training and 0 validation examples" in told
    assert "cut" not in told


class NotAvailable:
    """As the NA of pandas: whether it differs from anything cannot be told."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return self

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ("a cat", ["a"], "X is one text; put it in a list"),
        ([], [], "at least 2 samples, but got n_samples = 0"),
        (["a cat", None], ["a", "b"], r"X\[1\] holds None, of type NoneType"),
        ([b"a cat", "a dog"], ["a", "b"], r"X\[0\] holds b'a cat'"),
        (np.zeros((4, 2)), [0, 1, 0, 1], r"X\[0\] holds 0.0, of type float"),
        (np.array([["a"] * 3] * 2), [0, 1], r"shape \(2, 3\), but must be"),
        (["a cat", "a dog"], [0], "X has 2 texts, but y has 1 label"),
        (["a cat", "a dog"], [0, 0], "y has 1 class, 0;"),
        (["a cat", "a dog"], ["a", None], r"y\[1\] is missing"),
        (["a cat", "a dog"], np.array(["a", NotAvailable()], object), r"y\[1\] is missing"),
        (["a cat", "a dog"], ["a", float("nan")], r"y\[1\] is missing \(NaN"),
        (["a cat", "a dog"], np.array(["a", np.nan]), r"y\[1\] is missing"),
        (["a cat", "a dog"], [1.0, float("nan")], r"y\[1\] is missing"),
        (["a cat", "a dog"], ["a", ""], r"y\[1\] is missing"),
        (["a cat", "a dog"], np.array(["a", 1], object), r"y mixes texts \(y\[0\] is 'a'\) and n"),
        (["a cat", "a dog"], ["a", 1], r"numbers \(y\[1\] is 1\); make all labels of one type"),
        (["a cat", "a dog"], [True, 1], "y mixes truth values"),
        (["a cat", "a dog"], [["a", "b"], ["c"]], "y must be N labels"),
        (["a cat", "a dog"], [0.5, 1.5], "Unknown label type: continuous"),
        (["a cat", "a dog"], None, "requires y to be passed"),
    ],
)
def test_wrong_input_is_a_value_error(model: Path, X: Any, y: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BertClassifier(model, **QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("odd", "said"),
    [("animal ", "look alike"), ("Dish", "look alike"), ("None", "label 'None', as")],
)
def test_odd_names_of_classes_are_told(
    model: Path, odd: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = texts(8)
    BertClassifier(model, **{**QUICK, "epochs": 1}).fit(X, [odd, *y[1:]])
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_class_may_be_called_nan() -> None:
    """It is a bread; of a list it is known that nothing is missing."""
    assert labels_of(["nan", "rice"], 2).tolist() == ["nan", "rice"]
    assert labels_of(np.array(["nan", "rice"]), 2).tolist() == ["nan", "rice"]


class NullableColumn:
    """What pandas' columns of ``Int64`` and ``boolean`` are to NumPy: objects, if asked for, else
    floats."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype or float)


@pytest.mark.parametrize(
    ("values", "kind"), [([1, 0], "i"), ([True, False], "b"), ([1.0, 0.0], "f"), ([2.5, 1], "f")]
)
def test_whole_numbers_and_truth_values_of_pandas_stay_so(values: list[Any], kind: str) -> None:
    labels = labels_of(NullableColumn(values), 2)
    assert labels.tolist() == values
    assert labels.dtype.kind == kind


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("class_weight", "has no parameter 'class_weight'; did you mean 'class_weights'?"),
        ("learning_rates", "did you mean 'learning_rate'?"),
        ("qqq", "has no parameter 'qqq'; help(BertClassifier) lists them"),
    ],
)
def test_a_parameter_that_there_is_not_is_told_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        BertClassifier("model", **{name: 1})
    with pytest.raises(TypeError, match="BertRegressor has no parameter"):
        BertRegressor("model", **{name: 1})
    assert "class_weights" in inspect.signature(BertClassifier).parameters


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([1.0, float("nan")], "is missing"),
        ([1.0, float("inf")], "infinity"),
        (["a", "b"], "y must be numbers"),
        ([2, 2], "all of y is 2; there is nothing to learn"),
    ],
)
def test_wrong_scores_are_a_value_error(model: Path, y: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BertRegressor(model, **QUICK).fit(["a cat", "a dog"], y)


def test_mistakes_of_parameters_are_told(model: Path) -> None:
    given, labels = texts(16)
    for more, said in (
        ({"model": model / "nowhere"}, "does not exist"),
        ({"class_weights": "heavy"}, "class_weights is 'heavy'"),
        ({"long_text": "middle"}, "long_text is 'middle'"),
        ({"schedule": "steep"}, "steep"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
    ):
        with pytest.raises(BertineError, match=said):
            BertClassifier(**{"model": model, **QUICK, **more}).fit(given, labels)


def test_tags_say_that_it_takes_texts() -> None:
    for kind in (BertClassifier, BertRegressor):
        tags = get_tags(kind())
        assert tags.input_tags.string
        assert not tags.input_tags.two_d_array
        assert tags.estimator_type == kind.__name__.removeprefix("Bert").lower()
