"""scikit-learn's own checks of estimators.

All of them feed tables of numbers, which these estimators refuse, so scikit-learn runs none on
them. Here the numbers are written as words, one for each column and size, and every check runs on
what comes after the reading of texts. Those that are about reading numbers are listed, with the
reason why they have no meaning for texts.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

import toys
from bertine import BertClassifier, BertRegressor
from bertine.hub.model_directory import save_model
from bertine.models.heads import Model
from bertine.objectives.losses import MlmNsp
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

#: Columns of numbers that have words of their own, and the sizes that are told apart.
COLUMNS, SIZES = 24, 8

SETTINGS: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 64,
    "learning_rate": 1e-3,
    "max_length": 32,
    "precision": "fp32",
}


#: Checks of how a table of numbers is read, which scikit-learn's `validate_data` does here in the
#: place of what reads texts. They pass, and say nothing of our estimators; how these meet the same
#: mistakes in texts is in test_estimators.
OF_READING_NUMBERS = {
    "check_complex_data": "complex numbers: texts_of refuses all numbers",
    "check_dtype_object": "numbers in an array of objects: texts_of refuses what is no str",
    "check_estimators_empty_data_messages": "no columns: a text has none; no rows is tested there",
    "check_estimators_nan_inf": "NaN among numbers; NaN among texts is tested there",
    "check_estimator_sparse_tag": "sparse matrices hold numbers only",
    "check_estimator_sparse_array": "sparse matrices hold numbers only",
    "check_estimator_sparse_matrix": "sparse matrices hold numbers only",
    "check_n_features_in": "a text has no features; `n_features_in_` is not set, as by vectorizers",
    "check_n_features_in_after_fitting": "the same; one text or two a row is tested there",
    "check_fit1d": "a list of texts has one dimension, and is right",
    "check_fit2d_predict1d": "the same",
    "check_estimators_partial_fit_n_features": "there is no partial_fit",
}
#: Those that scikit-learn itself leaves out where something is not installed or not switched on.
MAY_BE_SKIPPED = {
    "check_array_api_input",
    "check_classifier_data_not_an_array",
    "check_regressor_data_not_an_array",
    "check_dataframe_column_names_consistency",
    "check_sample_weights_pandas_series",
}


class NumbersAsWords:
    """Rows of numbers become texts of words; a mixin before an estimator."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        texts = X if y is None else words(validate_data(self, X))
        return super().fit(texts, y, sample_weight)  # type: ignore[misc]

    def _texts(self, X: Any) -> list[tuple[str, ...]]:
        written = isinstance(X, list) and X and isinstance(X[0], str)
        return super()._texts(X if written else words(validate_data(self, X, reset=False)))  # type: ignore[misc]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.string, tags.input_tags.one_d_array = False, False
        tags.input_tags.two_d_array = True
        # A few steps of a tiny model; what is learned is told in test_estimators.
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True
        return tags


def words(table: np.ndarray) -> list[str]:
    sizes = np.clip(np.floor(table * 2) + SIZES // 2, 0, SIZES - 1).astype(np.int64)
    return [
        " ".join(f"c{column % COLUMNS}s{size}" for column, size in enumerate(row))
        for row in sizes.tolist()
    ]


class Classifier(NumbersAsWords, BertClassifier):
    pass


class Regressor(NumbersAsWords, BertRegressor):
    pass


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [f"c{column}s{size}" for column in range(COLUMNS) for size in range(SIZES)]
    tokenizer = Tokenizer.from_vocab([*SPECIAL_TOKENS, *words])
    sizes = {"vocab_size": tokenizer.vocab_size, "hidden_size": 16, "num_hidden_layers": 1}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = toys.config(**sizes, **rates)
    folder = tmp_path_factory.mktemp("numbers") / "model"
    save_model(folder, Model(config, MlmNsp.heads(config)), tokenizer)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_scikit_learns_checks(kind: type[Any], model: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(kind(model, **SETTINGS), on_fail=None)
    told = {
        result["check_name"]: repr(result["exception"])
        for result in results
        if result["status"] == "failed"
    }
    assert told == {}
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    skipped = {result["check_name"] for result in results} - passed
    assert skipped <= MAY_BE_SKIPPED
    assert len(passed - set(OF_READING_NUMBERS)) >= 30
