"""A store, a model directory and labelled examples of the toy language, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import searches
import toys
from bertine.training.search.table import SearchResult


@pytest.fixture(scope="module", autouse=True)
def _no_baselines(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fine-tuning measures no baselines, which take half a second each time, but in modules that
    look at them and say so: ``WITH_BASELINES = True``."""
    with pytest.MonkeyPatch.context() as patched:
        if not getattr(request.module, "WITH_BASELINES", False):
            patched.setattr("bertine.training.finetuning.run.baselines_of_run", lambda *_: [])
        yield


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With dropout 0.1, as published."""
    return toys.write_model(tmp_path_factory.mktemp("toys") / "model")


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv and dev.csv."""
    folder = tmp_path_factory.mktemp("labelled")
    toys.write_labelled(folder / "train.csv", rows=120)
    toys.write_labelled(folder / "dev.csv", rows=40, seed=1)
    return folder


@pytest.fixture(scope="session")
def serial(
    model: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, SearchResult]:
    """The folder of a search, one run after the other, and what it found."""
    out = tmp_path_factory.mktemp("search") / "out"
    with toys.one_thread():
        return out, searches.searched(model, labelled, out)
