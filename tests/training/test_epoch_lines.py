"""What a person reads of the evaluations of a run: a line where an epoch is the best so far."""

from __future__ import annotations

from typing import Any

import pytest

from bertine.training import display as display_module
from bertine.training.checkpoint import Best
from bertine.training.display import Display
from bertine.training.finetuning.run import EpochLines, saved_line


def scores(accuracy: float, loss: float = 1.0) -> dict[str, float]:
    return {"accuracy": accuracy, "macro_f1": accuracy / 2, "loss": loss}


def test_an_epoch_has_a_line_where_it_is_the_best_so_far_or_the_last() -> None:
    lines = EpochLines(["accuracy"], epoch=10, steps=40)
    said = [lines.add(10 * at, scores(one)) for at, one in enumerate((0.5, 0.6, 0.6, 0.55), 1)]
    assert said == [
        "validation after epoch 1 of 4: accuracy 50.00%, loss 1.0000 (the best so far)",
        "validation after epoch 2 of 4: accuracy 60.00%, loss 1.0000 (the best so far)",
        None,
        "validation after epoch 4 of 4: accuracy 55.00%, loss 1.0000 (the best was epoch 2 with "
        "60.00%)",
    ]
    assert lines.latest(30, scores(0.6)) == "accuracy 60.00% (epoch 3)"


@pytest.mark.parametrize(
    ("taken", "asked", "line"),
    [
        (None, False, "saved: the last epoch (4); epoch 2 was better by no more than chance"),
        (None, True, "saved: the last epoch (4)"),
        (
            20,
            False,
            "saved: epoch 2 of 4, better than the last by more than chance on the validation "
            "examples (accuracy 60.00%, after the last 40.00%)",
        ),
        (
            20,
            True,
            "saved: epoch 2 of 4, the best on the validation examples (accuracy 60.00%, after the "
            "last 40.00%)",
        ),
        (40, True, "saved: the last epoch (4), the best on the validation examples"),
    ],
)
def test_the_end_says_which_epoch_is_saved(taken: int | None, asked: bool, line: str) -> None:
    best = None if taken is None else Best(taken, "accuracy", 0.6)
    known = best or Best(20, "accuracy", 0.6)
    last: dict[str, Any] = {"step": 40, **scores(0.4)}
    assert saved_line(best, known, last, epoch=10, steps=40, asked=asked) == line
    assert saved_line(None, None, None, epoch=10, steps=35, asked=False) == (
        "saved: the last epoch (4)"
    )


def test_other_programs_are_named_once_and_when_they_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(display_module.time, "monotonic", lambda: clock[0])
    shown: list[str] = []
    monkeypatch.setattr(display_module.logger, "info", shown.append)
    display = Display("finetune", 100)
    looks = [*["1.0 of 2 cores"] * 30, *[None] * 10, *["1.3 of 2 cores"] * 5, *[None] * 40]
    for step, busy in enumerate(looks):
        clock[0] += 1.0
        display.other_programs(busy)
        display.keep("validation", f"accuracy {step}%")
    assert shown == [
        "other programs use 1.0 of 2 cores, so that training takes longer",
        "other programs have left the cores",
    ]
    clock[0] += 60
    display.update(50, {"loss": "1.0"})
    assert "loss 1.0  validation accuracy 84%" in shown[-1]
