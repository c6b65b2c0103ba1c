"""The choice of a search: means and spread, what collapsed or failed left out; the grid."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from bertine.core.errors import BertineError
from bertine.options.experiments import SearchOptions
from bertine.training.defaults import TrainingPlan
from bertine.training.search.search import needed_weights
from bertine.training.search.table import (
    PAPER_GRID,
    SearchGrid,
    SearchResult,
    SearchRun,
    Setting,
    Trial,
    grid_around,
    search_page,
)

LOW, HIGH = Setting(16, 2e-5, 3), Setting(16, 5e-5, 3)


def run(setting: Setting, seed: int, score: float | None = None, **more: Any) -> SearchRun:
    return SearchRun(Trial(setting, seed), score, {"accuracy": score or 0.0}, **more)


def result(runs: list[SearchRun]) -> SearchResult:
    return SearchResult(Path("out"), "text", ("accuracy",), runs)


def grid(**given: Any) -> SearchGrid:
    return SearchGrid.of(SearchOptions(**given), PAPER_GRID)


def test_the_setting_with_the_best_mean_is_chosen_and_its_best_run() -> None:
    found = result(
        [
            run(LOW, 0, 0.80),
            run(LOW, 1, 0.84),
            run(LOW, 2, 0.82),
            run(HIGH, 0, 0.90),  # the best run of all, of a setting with a lower mean
            run(HIGH, 1, 0.60),
        ]
    )
    assert found.chosen is not None
    assert found.chosen.setting == LOW
    assert found.best is not None
    assert found.best.name == "batch16-lr2e-5-epochs3-seed1"
    assert found.score == pytest.approx(0.82)
    assert found.chosen.deviation == pytest.approx(statistics.stdev([0.80, 0.84, 0.82]))
    lines = found.lines()
    assert lines[1].split() == [
        "batch",
        "rate",
        "epochs",
        "runs",
        "mean",
        "std",
        "best",
        "collapsed",
    ]
    assert lines[2].split() == ["16", "2e-5", "3", "3", "82.00", "2.00", "84.00", "0"]
    assert lines[3].split() == ["16", "5e-5", "3", "2", "75.00", "21.21", "90.00", "0"]
    text = "\n".join(lines)
    assert "chosen: batch 16, rate 2e-5, 3 epochs; its best run: seed 1" in text
    assert "a single run scored more, of a setting with a lower mean: batch16-lr5e-5" in text
    assert found.ok


def test_a_run_that_collapsed_is_named_and_left_out() -> None:
    found = result(
        [
            run(LOW, 0, 0.70),
            run(LOW, 1, 0.72),
            run(HIGH, 0, 0.75),
            run(HIGH, 1, 0.50, collapsed=True),
            run(HIGH, 2, 0.99, collapsed=True),
        ]
    )
    assert found.chosen is not None
    assert found.chosen.setting == HIGH
    assert found.chosen.mean == 0.75
    assert found.chosen.deviation is None
    assert found.best is not None
    assert found.best.trial.seed == 0
    text = "\n".join(found.lines())
    for seed in (1, 2):
        assert f"collapsed to one answer, left out: batch16-lr5e-5-epochs3-seed{seed}" in text
    assert "2 of its 3 runs collapsed: another may, too" in text
    assert "its mean is of one run" in text
    table = found.to_dict()["table"]
    assert [(row["collapsed"], row["runs"]) for row in table] == [(2, 3), (0, 2)]


@pytest.mark.parametrize(
    ("chosen", "second", "doubted"),
    [
        ((0.80, 0.82), (0.70, 0.71), False),
        ((0.80, 0.82), (0.803, 0.805), True),
        # The chosen one's runs lie close together, those of its rival far apart.
        ((0.80, 0.80), (0.60, 0.99), True),
        ((0.80, 0.80), (0.80, 0.80), True),
        ((0.80, 0.80), (0.79, 0.79), False),
        ((0.80, 0.82), (0.70,), True),
    ],
)
def test_a_gap_within_the_error_of_both_means_is_doubted(
    chosen: tuple[float, ...], second: tuple[float, ...], doubted: bool
) -> None:
    runs = [run(LOW, seed, score) for seed, score in enumerate(chosen)]
    runs += [run(HIGH, seed, score) for seed, score in enumerate(second)]
    found = result(runs)
    assert found.chosen is not None
    assert found.chosen.setting == LOW
    assert ("not clearly better than batch 16, rate 5e-5" in "\n".join(found.lines())) == doubted


def test_a_run_that_failed_is_told_with_its_reason() -> None:
    found = result([run(LOW, 0, 0.7), run(LOW, 1, failed="the gradient is not finite")])
    text = "\n".join(found.lines())
    assert "failed: batch16-lr2e-5-epochs3-seed1: the gradient is not finite" in text
    assert "failed" in found.lines()[1].split()
    assert found.best is not None
    assert not found.ok


def test_nothing_to_choose_from() -> None:
    found = result([run(LOW, 0, 0.5, collapsed=True), run(HIGH, 0, failed="no")])
    assert (found.chosen, found.best, found.model, found.score) == (None, None, None, None)
    assert "nothing to choose from" in "\n".join(found.lines())
    assert not found.ok
    page = search_page(found).html()
    assert "No run is left to choose from" in page


def test_a_score_that_is_no_number_does_not_win() -> None:
    values = {"metrics": {}, "collapsed": False, "elapsed": 1.0, "examples": "", "weights": ""}
    lost = SearchRun.done(Trial(HIGH, 0), {**values, "score": math.nan})
    assert lost.failed is not None
    assert result([lost, run(LOW, 0, -0.2)]).best == run(LOW, 0, -0.2)


def test_the_page_shows_every_setting_and_who_is_left_out() -> None:
    found = result(
        [run(LOW, 0, 0.7), run(LOW, 1, 0.8), run(HIGH, 0, 0.5, collapsed=True), run(HIGH, 1, 0.6)]
    )
    page = search_page(found).html()
    assert "batch 16, rate 2e-5, 3 epochs" in page
    assert "75.00" in page
    assert "seed 0, collapsed to one answer" in page
    assert page.count("<svg") == 1


def test_only_weights_that_may_be_chosen_are_needed() -> None:
    planned = [Trial(setting, seed) for setting in (LOW, HIGH) for seed in (0, 1)]
    low = [run(LOW, 0, 0.80), run(LOW, 1, 0.70)]
    assert needed_weights(low[:1], planned) == {low[0].name}
    assert needed_weights(low, planned) == {low[0].name}
    begun = run(HIGH, 0, 0.1)  # its setting may still turn out the best
    assert needed_weights([*low, begun], planned) == {low[0].name, begun.name}
    better = run(HIGH, 1, 1.0)
    assert needed_weights([*low, run(HIGH, 0, 0.9), better], planned) == {better.name}
    assert needed_weights([run(LOW, 0, 0.8, collapsed=True)], planned) == set()


def test_the_papers_grid() -> None:
    paper = grid()
    assert paper.batch_sizes == (16, 32)
    assert paper.learning_rates == (5e-5, 4e-5, 3e-5, 2e-5)
    assert paper.epochs == (2, 3, 4)
    assert len(paper.settings) == 24
    assert len(paper.trials) == 72
    assert grid(epochs=[3], restarts=1).trials[0].name == ("batch16-lr5e-5-epochs3-seed0")
    assert paper.seeds == (0, 1, 2)


def test_the_usual_grid_is_about_what_finetune_does_by_itself() -> None:
    plan = TrainingPlan(12, 16, 2e-4, None, chosen=True)
    assert grid_around(plan) == {
        "batch_sizes": (16,),
        "learning_rates": (1e-4, 2e-4, 4e-4),
        "epochs": (12,),
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"learning_rates": []}, "learning_rates is an empty list"),
        ({"seeds": []}, "seeds is an empty list"),
        ({"batch_sizes": [16, 0]}, "batch_sizes is 0, but must be at least 1"),
        ({"batch_sizes": [16.5]}, "batch_sizes: 16.5 cannot be"),
        ({"epochs": [True]}, "epochs: True cannot be"),
        ({"learning_rates": [0.0]}, "learning_rates: 0.0 cannot be; give a number above 0"),
        ({"learning_rates": [math.nan]}, "learning_rates is nan, but must be 0 or more and finite"),
        ({"learning_rates": "3e-5"}, "must be a list of numbers"),
        ({"epochs": [3, 3]}, "epochs: 3 is given twice"),
        ({"seeds": [-1]}, "seeds is -1, but must be from 0 to 18,446,744,073,709,551,615"),
        ({"seeds": [1], "restarts": 2}, "not both"),
        ({"restarts": 0}, "restarts is 0"),
    ],
)
def test_grids_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BertineError, match=said) as error:
        grid(**given)
    assert "\n" not in str(error.value)
