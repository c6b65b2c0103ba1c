"""What a pre-training run ended with, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.modeldir import TASK
from bertine.reports.checks.diagnosis import Finding
from bertine.reports.checks.pretraining_checks import AT_LEVEL
from bertine.reports.run_page import report
from bertine.runs.log import pretraining_names, read_log
from bertine.taskinfo import TaskInfo
from bertine.terminal.console import human_count, human_time
from bertine.terminal.shown import Shown
from bertine.training.distributed.world import World
from bertine.training.loop.best import Best, recorded_best
from bertine.training.run import Run

#: What a line about training has, whatever was trained on.
_OF_TRAINING = ("tokens", "elapsed", "mlm_loss", "mlm_accuracy")

#: A log with fewer lines has no curve to look at, so no page is made of it.
_PAGE_FROM = 20


@dataclass(frozen=True, repr=False)
class PretrainResult(Shown):
    """What a pre-training run ended with.

    Attributes:
        model: the model directory.
        final: the last line of the log about training (losses in nats, accuracies as shares).
        held_out: the last evaluation on held-out text; empty where there was none.
        unigram_entropy: of the store, in nats: the loss of a model that knows how frequent
            each piece is and nothing else.
        kept: share of the chosen tokens that were left in place.
        findings: what stands out in the log.
        page: the HTML report; None for a run too short to draw.
        best: the best evaluation on held-out text; its checkpoint is kept.
        best_saved: whether the model directory has the weights of that one, not the last.
    """

    model: Path
    final: dict[str, Any]
    held_out: dict[str, float]
    unigram_entropy: float
    kept: float
    findings: list[Finding]
    page: Path | None = None
    best: Best | None = None
    best_saved: bool = False

    def _verdict(self) -> str:
        loss, entropy = self.final["mlm_loss"], self.unigram_entropy
        # A model without context can still copy the chosen tokens that were left in place.
        if loss < (1.0 - self.kept) * entropy - AT_LEVEL:
            return f"{entropy - loss:.2f} nats below the unigram entropy {entropy:.2f}"
        if loss > entropy + AT_LEVEL:
            return (
                f"{loss - entropy:.2f} nats above the unigram entropy {entropy:.2f}: it does not "
                "even know how frequent each piece is; train longer, or with another rate"
            )
        if self.kept == 1.0:
            return f"unigram entropy {entropy:.2f}; every chosen token is there to be copied"
        return (
            f"unigram entropy {entropy:.2f}: it knows frequencies only; train longer, or with a "
            "higher rate"
        )

    def lines(self) -> list[str]:
        """What the command prints at the end."""
        end = self.final
        lines = [
            f"saw {human_count(end['tokens'])} tokens in {human_time(end['elapsed'])}",
            f"MLM loss {end['mlm_loss']:.3f} ({self._verdict()})",
            f"MLM accuracy {end['mlm_accuracy']:.1%}"
            + (f", NSP accuracy {end['nsp_accuracy']:.1%}" if "nsp_accuracy" in end else ""),
        ]
        if self.held_out:
            held = self.held_out
            nsp = held.get("nsp_accuracy")
            lines.append(
                f"held-out text: MLM loss {held['mlm_loss']:.3f}, perplexity "
                f"{held['mlm_perplexity']:.1f}, MLM accuracy {held['mlm_accuracy']:.1%}"
                + ("" if nsp is None else f", NSP accuracy {nsp:.1%}")
            )
        if self.best is not None:
            lines.append(
                f"best on held-out text: after step {self.best.step}, MLM loss "
                f"{self.best.value:.3f}; "
                + ("its weights are the model's" if self.best_saved else "its checkpoint is kept")
            )
        lines += [str(finding) for finding in self.findings]
        if self.page is not None:
            lines.append(f"report: {self.page}")
        return [*lines, f"model: {self.model}"]


def _lines(run: Run) -> list[dict[str, Any]]:
    return [dict(line) for line in pretraining_names(read_log(run.folder / "log.jsonl"))]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def last_line(run: Run) -> dict[str, Any]:
    """The last line of the log about training.

    Raises:
        BertineError: it has none.
    """
    found = [line for line in _lines(run) if all(_is_number(line.get(k)) for k in _OF_TRAINING)]
    if not found:
        raise BertineError(
            f"{run.folder / 'log.jsonl'}: has no line about training; put it back, or delete the "
            f"newest folder in {run.checkpoints} and go on from the one before"
        )
    return found[-1]


def result_of(run: Run, store: TokenStore, kept: float, world: World) -> PretrainResult:
    """What a finished run ended with; all processes must call it."""

    def look() -> tuple[int, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any] | None]:
        log = _lines(run)
        found = [line for line in log if "eval_mlm_loss" in line]
        training = TaskInfo.read(run.model / TASK).training
        best = recorded_best(run.checkpoints)
        told = None if best is None else best.to_dict()
        return len(log), last_line(run), found[-1] if found else {}, training, told

    lines, final, held, training, best = world.alone(look)
    page = report(run.folder) if lines >= _PAGE_FROM and world.main else None
    return PretrainResult(
        run.model,
        final,
        {key.removeprefix("eval_"): v for key, v in held.items() if key.startswith("eval_")},
        store.unigram_entropy,
        kept,
        [] if page is None else page.findings,
        None if page is None else page.path,
        None if best is None else Best(**best),
        bool(training.get("save_best")),
    )
