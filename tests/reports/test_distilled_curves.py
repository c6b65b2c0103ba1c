"""The curves of a distilled task: each term on one chart, beside what it can be compared with."""

from __future__ import annotations

from typing import Any

import pytest

from bertine.reports.curves import finetuning_curves

JUDGED = {"eval_loss": 0.6, "eval_accuracy": 0.75, "eval_macro_f1": 0.7}


def rows(*names: str) -> list[dict[str, Any]]:
    """A log with a loss and an accuracy of each of these terms; of a single one without a name."""
    kept = [f"{name}_" for name in names] if len(names) > 1 else [""]
    logged = {f"{name}{what}": 0.5 for name in kept for what in ("loss", "accuracy")}
    return [{"step": step, **logged, "loss": 1.5} for step in (1, 2)] + [{"step": 2, **JUDGED}]


@pytest.mark.parametrize(
    ("log", "label_weight", "charts"),
    [
        (
            rows("classifier", "soft"),
            0.5,
            {
                "Loss of all terms": False,
                "Loss on labels": True,
                "Accuracy": True,
                "Macro F1": False,
                "Soft targets loss": False,
                "Soft targets accuracy": False,
            },
        ),
        (rows("labels"), 1.0, {"Loss on labels": True, "Accuracy": True, "Macro F1": False}),
        (
            rows("soft"),
            0.0,
            {
                "Loss": False,
                "Accuracy": False,
                "Macro F1": False,
                "Soft targets loss": False,
                "Soft targets accuracy": False,
            },
        ),
    ],
)
def test_each_term_stands_on_one_chart(
    monkeypatch: pytest.MonkeyPatch,
    log: list[dict[str, Any]],
    label_weight: float,
    charts: dict[str, bool],
) -> None:
    """What is learned from labels is drawn with the validation examples over it."""

    def drawn(*_: Any, overlay: Any = None, **__: Any) -> bytes:
        return b"<svg>two</svg>" if overlay else b"<svg>one</svg>"

    monkeypatch.setattr("bertine.reports.curves.curve", drawn)
    facts = {"distillation": {"label_weight": label_weight}, "task": "text"}
    figures = finetuning_curves(log, facts)
    assert {figure.title: b"two" in figure.picture for figure in figures} == charts
    assert len(figures) == len(charts)


def test_a_score_alone_stands_on_one_chart() -> None:
    """Of a head that was fitted alone the log has the scores on the validation examples only."""
    titles = [figure.title for figure in finetuning_curves([{"step": 5, **JUDGED}], {})]
    assert sorted(titles) == ["Accuracy", "Loss", "Macro F1"]
