"""Compare a model with cheap baselines on the same examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertine.intervals import better_baseline
from bertine.options.names import option
from bertine.scores import score_text
from bertine.terminal.console import aligned

#: The name of the baseline that is the head alone.
HEAD_ALONE = "frozen vectors"
#: Scores in a table, beside those by which a task is judged.
_SHOWN = 3


@dataclass(frozen=True)
class BaselineScore:
    """The scores of one baseline.

    Attributes:
        name: "majority", "tf-idf", "frozen vectors", …
        metrics: of the task's report, under the same names.
        seconds: that fitting and answering took.
        num_train: examples that it was fitted on.
        num_judged: examples that it was judged on.
        may_win: see :func:`~bertine.intervals.better_baseline`.
    """

    name: str
    metrics: dict[str, float]
    seconds: float
    num_train: int
    num_judged: int = 0
    may_win: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return only JSON types; :meth:`read` takes it back."""
        return asdict(self)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> BaselineScore:
        """Take back what :meth:`to_dict` returned."""
        return cls(
            str(values["name"]),
            {str(name): float(value) for name, value in values["metrics"].items()},
            float(values["seconds"]),
            int(values.get("num_train", 0)),
            int(values.get("num_judged", 0)),
            bool(values.get("may_win", True)),
        )


def winner(
    metrics: Mapping[str, float], judged: Sequence[str], baselines: Sequence[BaselineScore]
) -> BaselineScore | None:
    """Return the best of the baselines where it is better than a model with these `metrics` by more
    than chance; None where none is."""
    values = [baseline.to_dict() for baseline in baselines]
    name = better_baseline(metrics, judged, values, 0)
    return next((baseline for baseline in baselines if baseline.name == name), None)


def baseline_lines(
    metrics: Mapping[str, float], judged: Sequence[str], baselines: Sequence[BaselineScore]
) -> list[str]:
    """Return a table of the model beside the baselines, and above it the headline where one of them
    wins; nothing without baselines.

    Args:
        metrics: of the model.
        judged: the metrics by which the task is judged.
        baselines: judged on the same examples.
    """
    if not baselines:
        return []
    names = shown_metrics(metrics, judged)
    rows = [["", *names], ["this model", *(score_text(name, metrics.get(name)) for name in names)]]
    for baseline in baselines:
        rows.append(
            [baseline.name, *(score_text(name, baseline.metrics.get(name)) for name in names)]
        )
    lines = aligned(rows, head=True)
    best = winner(metrics, judged, baselines)
    if best is not None:
        by = " and ".join(judged)
        lines.insert(
            0,
            f"a baseline wins: {best.name} is better than this model by {by}, by more than chance; "
            + what_to_do(best.name),
        )
    return lines


def what_to_do(name: str) -> str:
    """Say what to do where the baseline of this name wins."""
    if name == HEAD_ALONE:
        return f"{option('frozen', True)} trains that one"
    return "use it, or train longer, on more labels or from another model"


def shown_metrics(metrics: Mapping[str, float], judged: Sequence[str]) -> list[str]:
    """Return the scores that a table of baselines shows: those by which the task is judged, then
    others, three in all, losses and errors last."""
    order = [name for name in judged if name in metrics]
    others = [name for name in metrics if name not in order]
    others.sort(key=lambda name: name.endswith(("loss", "error")))
    return [*order, *others][: max(_SHOWN, len(order))]
