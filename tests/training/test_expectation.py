"""A run that cannot get anywhere is said to be one before it begins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bertine
import toys
from bertine.families.presets import preset
from bertine.training.pretraining import run
from bertine.training.pretraining.run import too_short


def test_runs_that_are_too_short_are_told_and_others_not() -> None:
    mini = preset("bert-mini")
    said = too_short(mini, "normal", 2.3e6, timed=True)
    assert said is not None
    assert said.startswith("at this speed the run sees 2.3")
    assert "begin to use context after 5 to 8 M" in said
    assert "initialization='mimetic' (1.7 to 3 M)" in said
    assert too_short(mini, "normal", 6e6) is None
    # With mimetic weights the same tokens are enough, and nothing is advised that is done already.
    assert too_short(mini, "mimetic", 2.3e6) is None
    few = too_short(mini, "mimetic", 1e6)
    assert few is not None
    assert "mimetic" not in few
    assert too_short(mini.replace(vocab_size=40), "normal", 1e3) is None
    # What was not measured, or cannot be had, is not claimed.
    small = too_short(preset("electra-small"), "normal", 1e6, objective="rtd")
    assert small is not None
    assert "measured on English with masked words, not with replaced ones" in small
    assert "mimetic" not in small


@pytest.mark.fast_cases(length=({"steps": 3},))
@pytest.mark.parametrize("length", [{"steps": 3}, {"tokens": 600}, {"hours": 0.0003}])
def test_pretrain_says_it_before_the_first_step(
    length: dict[str, float],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_LEAST_VOCABULARY", 10)
    store = toys.write_store(tmp_path / "store")
    how = {"max_seq_length": 16, "batch_size": 4, "log_every": 1}
    bertine.pretrain(store, model="bert-tiny", out=tmp_path / "run", **how, **length)  # type: ignore[arg-type]
    printed = " ".join(capsys.readouterr().err.split())
    timed = "at this speed the run sees" if "hours" in length else "the run sees"
    assert re.search(rf"{timed} [0-9.]+.* tokens, but models of this size begin", printed)
    assert printed.index("begin to use context") < printed.index("parameters,")
    # A model that goes on from weights is not new.
    bertine.pretrain(store, model=tmp_path / "run", out=tmp_path / "more", steps=2, **how)  # type: ignore[arg-type]
    assert "begin to use context" not in capsys.readouterr().err


@pytest.mark.slow
def test_the_quick_recipe_trains(tmp_path: Path) -> None:
    quick = toys.recipe("quick") | {"steps": 4, "batch_size": 2}
    store = toys.write_store(tmp_path / "store")
    result = bertine.pretrain(store, out=tmp_path / "run", **quick)
    config = bertine.load_model(result.model).config
    assert (config.hidden_size, config.initializer_range) == (128, 0.06)
    with pytest.raises(bertine.BertineError, match="has weights already; initializer_range"):
        bertine.pretrain(store, out=tmp_path / "more", **(quick | {"model": result.model}))
