"""The data and the model that jobs are tested with, and tagged sentences."""

from pathlib import Path

import pytest

import tagged
from training.conftest import _no_baselines, labelled, model

__all__ = ["_no_baselines", "labelled", "model"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    for seed, (name, count) in enumerate([("train", 64), ("dev", 16), ("test", 12)]):
        tagged.write_columns(folder / f"{name}.conll", count, seed=seed)
    return folder
