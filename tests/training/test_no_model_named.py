"""Where no model is named, training starts from the best one installed for the texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertine
from bertine.core import model_folders
from bertine.core.errors import BertineError
from bertine.core.model_folders import locate
from bertine.data import languages
from toys import write_labelled, write_model

#: All verbs that start from a model, with the least to do.
VERBS: dict[str, Callable[..., Any]] = {
    "finetune": lambda **given: bertine.finetune(
        "text", **given, epochs=1, batch_size=32, baselines=False
    ),
    "few_shot": lambda **given: bertine.few_shot(**given, steps=1, batch_size=8),
    "similarity": lambda **given: bertine.finetune_similarity(**given, steps=1, batch_size=8),
    "lr_find": lambda **given: bertine.lr_find("text", **given, steps=20),
    "learning_curve": lambda **given: bertine.learning_curve(
        **given, methods=["frozen"], repeats=1, min_labels=4, max_labels=8
    ),
    "check_labels": lambda **given: bertine.check_labels(**given, folds=2, frozen=True),
    "search": lambda **given: bertine.search(
        "text", **given, batch_sizes=[32], learning_rates=[1e-3], epochs=[1], restarts=1
    ),
}


@pytest.fixture
def minilm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model in the place of the package's."""
    folder = write_model(tmp_path / "installed")
    for module in (model_folders, languages):
        monkeypatch.setattr(module, "minilm_folder", lambda: folder)
    return folder


@pytest.mark.takes(4.0)
@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(verb, marks=[pytest.mark.slow] if verb == "check_labels" else [])
        for verb in VERBS
    ],
)
def test_verbs_choose_a_model(
    verb: str, minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_labelled(tmp_path / "data.csv", rows=32)
    VERBS[verb](data=data, out=tmp_path / "out")
    assert "model: minilm, the best one installed for English" in capsys.readouterr().err


def test_a_run_goes_on_with_the_model_that_was_chosen(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = write_labelled(tmp_path / "data.csv", rows=32), tmp_path / "out"
    first = VERBS["finetune"](data=data, out=out)
    begun = json.loads((out / "run.json").read_text())
    assert begun["settings"]["model_path"] == "minilm"
    assert json.loads((out / "start.json").read_text())["arguments"]["model"] == "minilm"
    monkeypatch.setattr(languages, "minilm_folder", lambda: None)  # bertine-en would be chosen now
    again = VERBS["finetune"](data=data, out=out, resume=True)
    assert again.metrics == first.metrics


def test_an_estimator_chooses_a_model(minilm: Path) -> None:
    texts = ["the cat sleeps in the garden", "the soup boils in the pot"] * 8
    fitted = bertine.BertClassifier(epochs=1).fit(texts, ["animal", "dish"] * 8)
    assert fitted.predictor_.model.config.vocab_size == 37


def test_the_name_minilm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_folders, "MINILM_PACKAGE", "no-such-package")
    with pytest.raises(BertineError, match=r"^minilm: .*'pip install no-such-package' installs it"):
        locate("minilm")
    (tmp_path / "minilm").mkdir()
    assert locate("minilm") == Path("minilm")
