"""Write an HTML page for the folder of a training run, finished, running or killed: ``report``.

It is made from the files of the run: ``run.json`` (settings, versions), ``log.jsonl`` (losses and
speeds), ``samples.jsonl`` (masks filled during training), and of fine-tuning ``scores.json`` and
``worst.json`` (the examples that were predicted worst).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.core.console import Report, human_count, human_time, plural
from bertine.core.errors import BertineError
from bertine.core.loss_names import TERMS, guessing, main_term, word_term
from bertine.core.scores import score_name, score_text
from bertine.options.verbs import check_types
from bertine.reports import html, run_scores, run_sections
from bertine.reports.curves import finetuning_curves, pretraining_curves
from bertine.reports.diagnosis import diagnose
from bertine.reports.findings import Finding
from bertine.reports.html import Fact, Figures, Note, Section
from bertine.reports.run_files import RunFolder, series

#: Scores of the questions with an answer and of those without, which have a separate table.
_OF_A_PART = ("has_answer_", "no_answer_")
#: The page's name in the run's folder.
REPORT = "report.html"


@dataclass(frozen=True, repr=False)
class RunReport(Report):
    """The page of a run, and its diagnosis.

    Attributes:
        path: the path of the page.
        findings: the diagnosis, the gravest finding first; empty for a healthy run.
        steps: the steps done so far.
        total_steps: the planned number of steps; None where the settings do not give it.
        finished: whether the run is over: it may have ended before its last step.
        logged: the number of logged steps.
    """

    path: Path
    findings: list[Finding]
    steps: int
    total_steps: int | None
    finished: bool = False
    logged: int = 0

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        total = "" if self.total_steps is None else f" of {self.total_steps:,}"
        over = "; finished" if self.finished and self.steps < (self.total_steps or 0) else ""
        findings = [str(finding) for finding in self.findings]
        findings = findings or [run_sections.nothing_found(self.logged)]
        return [f"{self.steps:,}{total} steps done{over}", *findings, f"report: {self.path}"]


@check_types
def report(run: Path | str, *, out: Path | str | None = None) -> RunReport:
    """Write the page of a run: curves, diagnosis, settings, and answers during training.

    Args:
        run: the folder of a run of ``pretrain``, ``finetune`` or ``distill``: finished, running or
            killed.
        out: the page; None: ``report.html`` in `run`.

    Raises:
        BertineError: `run` is not the folder of a run, a file in it is damaged, or `out` cannot
            be written.
    """
    files = RunFolder.read(run)
    path = files.path / REPORT if out is None else Path(out)
    if path.is_dir():
        raise BertineError(f"{path}: is a folder; name a file for the report")
    findings = diagnose(files.log, files.facts())
    run_page(files, findings).write(path)
    steps = (files.steps, files.total_steps)
    return RunReport(path, findings, *steps, files.finished, len(files.log))


def run_page(files: RunFolder, findings: Sequence[Finding]) -> html.Page:
    """Make the page of a run."""
    curves = pretraining_curves if files.task is None else finetuning_curves
    figures = curves(files.log, files.facts())
    sections: list[Section | None] = [run_sections.diagnosis(files, findings)]
    if files.task is not None:
        judging = (
            run_scores.teacher,
            run_scores.baselines,
            run_scores.validation,
            run_sections.worst,
            run_scores.data,
        )
        sections += [make(files) for make in judging]
    lead = ""
    if figures and "log_every" in files.settings:
        steps = plural(files.settings["log_every"], "step")
        lead = f"Each point is the mean of {steps}; many points are drawn faint, with their "
        lead += "running mean."
    training = Figures(figures) if figures else Note("Nothing logged yet.")
    sections.append(Section("Training", [training], lead))
    sections += [
        run_sections.held_out(files) if files.task is None else None,
        run_sections.samples(files),
        run_sections.settings(files),
    ]
    environment = files.environment
    versions = ", ".join(f"{k} {environment[k]}" for k in ("bertine", "torch") if k in environment)
    kind = "Pre-training" if files.task is None else "Fine-tuning"
    if "distillation" in files.settings:
        kind = "Distillation"
    return html.Page(
        title=f"{kind}: {files.path.name}",
        lead=_lead(files),
        headline=_headline(files),
        sections=[section for section in sections if section is not None],
        command="report",
        footer=f". The run began with {versions}." if versions else ".",
    )


def _lead(files: RunFolder) -> str:
    """Describe what was trained on which data, and the progress."""
    done, total = files.steps, files.total_steps
    settings = files.settings
    if files.task is None:
        what = f"A model{_size(settings.get('architecture'))}"
        if settings.get("num_tokens"):
            how = "distilled" if "distillation" in settings else "pre-trained"
            what += f", {how} on {human_count(settings['num_tokens'])} tokens of text"
    else:
        what = f"The task '{files.task}'"
        if settings.get("num_examples"):
            distilled = "distillation" in settings
            what += f", {'distilled' if distilled else 'trained'} on {settings['num_examples']:,} "
            what += "examples" if distilled else "labelled examples"
    if total is None:
        return f"{what}: {done:,} steps."
    return f"{what}. {_progress(files, done, total)}"


def _progress(files: RunFolder, done: int, total: int) -> str:
    if files.finished and done < total:
        why = ""
        if files.settings.get("patience"):
            why = ", as the score on the validation examples got no better"
        elif files.settings.get("budget_seconds"):
            why = ", as the time was up"
        return f"Finished after {done:,} of {total:,} steps{why}."
    if files.finished and done > total:
        return f"Finished after {done:,} steps, for which the time was enough."
    if files.finished:
        return f"Finished: all {total:,} steps are done."
    if done >= total:
        return f"All {total:,} steps are done; the model has not been written yet."
    return (
        f"Not finished: {done:,} of {total:,} steps were logged when this page was made. "
        "The run is still going on, or was stopped; the same command with --resume resumes it."
    )


def _size(architecture: Any) -> str:
    if not isinstance(architecture, Mapping):
        return ""
    layers, hidden = (architecture.get(k) for k in ("num_hidden_layers", "hidden_size"))
    return f" of {layers} layers of {hidden}" if layers and hidden else ""


def _headline(files: RunFolder) -> list[Fact]:
    facts = (_pretraining_headline if files.task is None else _finetuning_headline)(files)
    speed, tokens = files.last("tokens_per_second"), series(files.log, "tokens")[1]
    elapsed = series(files.log, "elapsed")[1]
    if tokens:
        per_second = f"{human_count(speed[0])} a second at the end" if speed else ""
        facts.append(Fact("tokens seen", human_count(tokens[-1]), per_second))
    total = files.total_steps
    of_all = f"{files.steps:,} steps" if files.steps else ""
    if total and files.steps < total:
        of_all = f"{files.steps:,} of {total:,} steps"
    if elapsed:
        facts.append(Fact("training time", human_time(elapsed[-1]), of_all))
    return facts


def _pretraining_headline(files: RunFolder) -> list[Fact]:
    facts = []
    objective, entropy = files.settings.get("objective"), files.settings.get("unigram_entropy")
    words = word_term(objective)
    for name in dict.fromkeys((main_term(objective), words)):
        if loss := files.last(f"{name}_loss"):
            compared = entropy is not None and TERMS[name].words
            against = f"nats; unigram entropy {entropy:.2f}" if compared else "nats"
            facts.append(Fact(f"{TERMS[name].title} loss", f"{loss[0]:.3f}", against))
    for name, term in TERMS.items():
        accuracy = files.last(f"{name}_accuracy")
        if accuracy:
            share = files.last(f"{name}_{term.rarer}") if term.rarer else None
            by_frequency = guessing(term, share[0] if share else None)
            note = f"guessing gives {by_frequency[1]:.0%}" if by_frequency else term.right
            facts.append(Fact(f"{term.title} accuracy", f"{accuracy[0]:.1%}", note))
    perplexity = series(files.log, f"eval_{words}_perplexity")[1]
    if perplexity:
        held_loss = series(files.log, f"eval_{words}_loss")[1]
        note = f"{TERMS[words].title} loss {held_loss[-1]:.3f}" if held_loss else ""
        facts.append(Fact("held-out perplexity", f"{perplexity[-1]:,.1f}", note))
    return facts


def _finetuning_headline(files: RunFolder) -> list[Fact]:
    final = files.scores.get("final", {})
    metrics = _last_scores(files)
    majority = final.get("majority_share")
    # Metrics that judge the task come first: for CoLA Matthews.
    judged = files.labels_and_columns.get("metrics") or ()
    whole = {k: v for k, v in metrics.items() if not k.startswith(_OF_A_PART)}
    order = sorted(whole.items(), key=lambda score: score[0] not in judged)
    facts = []
    for name, value in order[:3]:
        note = "on the validation examples"
        if name == "accuracy" and majority is not None:
            note = f"the most frequent class alone: {majority:.1%}"
            interval = final.get("accuracy_interval")
            if interval:
                note = f"95% interval {interval[0]:.1%} to {interval[1]:.1%}; {note}"
        facts.append(Fact(score_name(name, metrics), score_text(name, value), note))
    return facts


def _last_scores(files: RunFolder) -> dict[str, float]:
    """Return the last evaluation of fine-tuning: from scores.json, else from the log."""
    metrics = files.scores.get("final", {}).get("metrics")
    if isinstance(metrics, dict):
        return metrics
    evaluated = run_sections.evaluations_of(files.log)
    return evaluated[-1][1] if evaluated else {}
