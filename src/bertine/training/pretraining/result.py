"""Read the result of a pre-training run from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.core.console import Shown, human_count, human_time
from bertine.core.errors import BertineError
from bertine.core.scores import score_name
from bertine.core.taskinfo import TaskInfo
from bertine.core.terms import TERMS, main_term, rarer_answers, terms_among
from bertine.corpora.store import TokenStore
from bertine.hub.modeldir import TASK
from bertine.reports.diagnosis import AT_LEVEL, Finding
from bertine.reports.findings import finetune_command
from bertine.reports.run_files import pretraining_names, read_log
from bertine.reports.run_page import report
from bertine.training.checkpoint import Best, recorded_best
from bertine.training.distributed import DistContext
from bertine.training.run import Run

#: With fewer lines than this, a log has no curve to show, so no page is written.
_PAGE_FROM = 20


@dataclass(frozen=True, repr=False)
class PretrainResult(Shown):
    """The result of a pre-training run.

    Attributes:
        model: the model directory.
        final: the last line of the log about training (losses in nats, accuracies as shares).
        held_out: the last evaluation on held-out text; empty if there was none.
        unigram_entropy: of the store, in nats: the loss of a model that knows the frequency of each
            piece and nothing else.
        kept: share of the chosen tokens that were left unchanged.
        findings: the findings of the diagnosis of the log.
        page: the HTML report; None for a run too short to draw.
        best: the best evaluation on held-out text; its checkpoint is kept.
        best_saved: whether the model directory has the weights of that one, not the last.
        main: the term by which the model is judged (:data:`bertine.core.terms.TERMS`).
        generator: the model directory of the generator; None if none was kept.
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
    main: str = "mlm"
    generator: Path | None = None

    def _verdict(self, name: str) -> str:
        """Compare the loss of a term whose targets are words with the entropy of word
        frequencies."""
        loss, entropy = self.final[f"{name}_loss"], self.unigram_entropy
        # A model without context can still copy the chosen tokens that were left unchanged.
        kept = self.kept if TERMS[name].copied else 0.0
        if loss < (1.0 - kept) * entropy - AT_LEVEL:
            return f"{entropy - loss:.2f} nats below the unigram entropy {entropy:.2f}"
        if loss > entropy + AT_LEVEL:
            return (
                f"{loss - entropy:.2f} nats above the unigram entropy {entropy:.2f}: it does not "
                "even know how frequent each piece is; train longer, or with another rate"
            )
        if kept == 1.0:
            return f"unigram entropy {entropy:.2f}; every chosen token is there to be copied"
        return (
            f"unigram entropy {entropy:.2f}: it knows frequencies only; train longer, or with a "
            "higher rate"
        )

    def _losses(self) -> list[str]:
        """List the terms whose losses are printed: the main one, and those of predicting words."""
        of_words = [name for name in terms_among(self.final) if TERMS[name].words]
        return list(dict.fromkeys((self.main, *of_words)))

    def lines(self) -> list[str]:
        """Return what the command prints at the end."""
        end, names = self.final, self._losses()
        lines = [f"saw {human_count(end['tokens'])} tokens in {human_time(end['elapsed'])}"]
        for name in names:
            verdict = f" ({self._verdict(name)})" if TERMS[name].words else ""
            lines.append(f"{TERMS[name].title} loss {end[f'{name}_loss']:.3f}{verdict}")
        lines += [", ".join(_accuracies(end)), *_guessing(end)]
        if self.held_out:
            held = self.held_out
            facts = []
            for name in names:
                facts.append(f"{TERMS[name].title} loss {held[f'{name}_loss']:.3f}")
                if f"{name}_perplexity" in held:
                    facts.append(f"perplexity {held[f'{name}_perplexity']:.1f}")
            lines.append(f"held-out text: {', '.join(facts + _accuracies(held))}")
        if self.best is not None:
            lines.append(
                f"best on held-out text: after step {self.best.step}, "
                f"{score_name(self.best.metric)} {self.best.value:.3f}; "
                + ("its weights are the model's" if self.best_saved else "its checkpoint is kept")
            )
        lines += [str(finding) for finding in self.findings]
        if self.page is not None:
            lines.append(f"report: {self.page}")
        if self.generator is not None:
            lines.append(f"generator: {self.generator}")
        return [*lines, f"model: {self.model}"]

    def write_pages(self) -> None:
        """Do nothing: the run's page is written at its end."""

    def next_lines(self) -> list[str]:
        """Return the command to run next: a language model is fine-tuned."""
        model = {"model": str(self.model.parent), "data": "DATA.csv", "out": "RUN"}
        return ["next:", f"  {finetune_command('text', model)}"]


def _accuracies(scores: Mapping[str, Any]) -> list[str]:
    """Describe how many targets of each term were predicted correctly."""
    return [
        f"{term.title} accuracy {scores[f'{name}_accuracy']:.1%}"
        for name, term in TERMS.items()
        if f"{name}_accuracy" in scores
    ]


def _guessing(scores: Mapping[str, Any]) -> list[str]:
    """Describe, for terms with a rare answer, how many targets have it, how many of these were
    detected, and the accuracy of guessing."""
    lines = []
    for name, term in TERMS.items():
        if rarer := rarer_answers(name, scores):
            share, detected, guessed = rarer
            lines.append(
                f"{term.title}: {share:.1%} of the {term.targets} were {term.rarer}, "
                f"{detected:.1%} of these detected; guessing gives an accuracy of {guessed:.1%}"
            )
    return lines


def _lines(run: Run, main: str) -> list[dict[str, Any]]:
    """Read the log, with the names of its terms."""
    log = read_log(run.folder / "log.jsonl")
    return [dict(line) for line in pretraining_names(log, main)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def last_line(run: Run, objective: str) -> dict[str, Any]:
    """Return the last line of the log about training.

    Args:
        objective: of the run.

    Raises:
        BertineError: it has none.
    """
    main = main_term(objective)
    needed = ("tokens", "elapsed", f"{main}_loss")
    complete = [line for line in _lines(run, main) if all(_is_number(line.get(k)) for k in needed)]
    if not complete:
        raise BertineError(
            f"{run.folder / 'log.jsonl'}: has no line about training; put it back, or delete the "
            f"newest folder in {run.checkpoints} and go on from the one before"
        )
    return complete[-1]


def result_of(
    run: Run, store: TokenStore, kept: float, world: DistContext, *, objective: str
) -> PretrainResult:
    """Read the result of a finished run; all processes must call it."""
    main = main_term(objective)

    def look() -> tuple[int, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any] | None]:
        log = _lines(run, main)
        evaluations = [line for line in log if f"eval_{main}_loss" in line]
        training = TaskInfo.read(run.model / TASK).training
        best = recorded_best(run.checkpoints)
        fields = None if best is None else best.to_dict()
        return (
            len(log),
            last_line(run, objective),
            evaluations[-1] if evaluations else {},
            training,
            fields,
        )

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
        main,
        run.generator if run.generator.is_dir() else None,
    )
