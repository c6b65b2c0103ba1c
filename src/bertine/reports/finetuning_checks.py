"""Diagnose fine-tuning runs: what is wrong, by what evidence, and which command to run next.

Every rule compares figures of the run with each other or with references that need no training (the
label frequencies, the baselines), never with default settings. The bounds were set on about forty
runs of a small published model on seven public data sets, most of them spoiled on purpose: too
short, at rates from 1e-6 to 5e-3, with wrong labels, with leaks
(``tests/reports/finetuning_runs.json``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertine.core.console import plural, visible_list
from bertine.core.scores import better_baseline, enough_examples, score_name, score_text
from bertine.core.text import exact_rate, visible
from bertine.options.finetuning import OF_TRAINING
from bertine.reports.findings import Finding, Severity
from bertine.reports.finetuning_evidence import Evidence
from bertine.reports.run_files import naming_damage

# Value of the score: comparison with baselines, and checks of the data.

#: Training examples of a label below which it can hardly be learned.
FEW_EXAMPLES = 10
#: Labels are uneven where the most frequent one has this many times the examples of the rarest.
_UNEVEN = 2
#: A validation score from here on is checked for leaks, with at least this many examples.
_PERFECT, _ENOUGH = 0.995, 50
#: Share of the validation examples that are also training examples from which on it is reported.
_LEAK = 0.02
#: Share of unknown pieces from which on other findings are pointless.
_MOSTLY = 0.5
#: The maximum number of labels that a line names.
NAMES = 5
#: The tasks whose head can be fitted alone, and the changes for it: the options of training are
#: removed.
_FROZEN_TASKS = ("text", "multi-label", "regression", "choice", "tagging")
_HEAD_ALONE: dict[str, Any] = dict.fromkeys({*OF_TRAINING, "fresh_weights"}) | {"frozen": True}


def under_baseline(evidence: Evidence, cause: Finding | None) -> list[Finding]:
    """Detect a baseline, which takes seconds, that is better than the model."""
    judged, baselines = evidence.judged, evidence.facts.get("baselines")
    if not judged or not isinstance(baselines, Sequence):
        return []
    known = [baseline for baseline in baselines if isinstance(baseline, Mapping)]
    name = better_baseline(evidence.metrics, judged, known, evidence.count)
    if name is None:
        return []
    text = f"the baseline {name!r} is better than the model, by more than chance. "
    instead = bool(evidence.facts.get("instead_of"))
    if name == "frozen vectors" and instead:
        return []  # that is the model itself, which was fitted again
    frozen = bool(evidence.facts.get("frozen"))
    if name == "frozen vectors" and not frozen and evidence.task in _FROZEN_TASKS:
        text += "Fit the head alone on these vectors, which takes seconds"
        return [evidence.finding("under-baseline", "warning", text, **_HEAD_ALONE)]
    if cause is not None:
        text += "The model should be better once it is trained as said above"
        return [Finding("under-baseline", "warning", text, cause.command, cause.call)]
    text += f"Train {'all weights' if frozen else 'longer'}, with the best epoch kept"
    return [evidence.finding("under-baseline", "warning", text, **evidence.longer, patience=3)]


def head_alone(evidence: Evidence) -> list[Finding]:
    """Detect a run whose head alone was saved in place of the model with all weights trained."""
    facts, judged = evidence.facts, evidence.judged

    def shown(metrics: Any) -> str:
        if not judged or not isinstance(metrics, Mapping) or not set(judged) <= set(metrics):
            return ""
        scores = (f"{score_text(name, float(metrics[name]))} {score_name(name)}" for name in judged)
        return " and ".join(scores)

    if not (trained := shown(facts.get("instead_of"))):
        return []
    left_out = shown(facts.get("cross_validated"))
    text = (
        "with these labels the head alone, on the model's vectors as they were before training, "
        f"promises more, so it was saved: {shown(evidence.metrics)} on the validation examples"
        + (f" and {left_out} on training examples that were left out" if left_out else "")
        + f"; the trained model has {trained} on the validation examples. The curves are those of "
        "the trained model. It can still be had"
    )
    return [evidence.finding("head-alone", "advice", text, frozen=False)]


def leak(evidence: Evidence) -> list[Finding]:
    """Detect validation examples that are training examples, or a score that is too good to be
    true."""
    both = _number(evidence.facts.get("data"), "in_training")
    metric = evidence.metric
    score = evidence.metrics.get(metric or "", 0.0)
    if both is not None and evidence.count and both / evidence.count > _LEAK:
        text = (
            f"{both:,.0f} of {evidence.count:,} validation examples are training examples too, so "
            f"the {score_name(metric or 'score')} of {score_text(metric or '', score)} says "
            "little about new texts. Take them out of one of the two, or judge on other examples"
        )
        return [evidence.finding("leak", "warning", text, evidence.asked.other_data())]
    if evidence.count < _ENOUGH or score < _PERFECT or metric is None:
        return []
    text = (
        f"{score_text(metric, score)} {score_name(metric)} on {evidence.count:,} validation "
        "examples is rarely true: look whether the texts tell the label (an id, a word that only "
        "one label has) or are also in the training file. Judge on examples from elsewhere"
    )
    return [evidence.finding("suspicious-score", "advice", text, evidence.asked.other_data())]


def unknown_text(evidence: Evidence) -> list[Finding]:
    """Detect texts that the vocabulary does not know, for which no training helps: a fault where it
    knows next to nothing of them."""
    data = evidence.facts.get("data")
    for part in ("train", "validation"):
        facts = data.get(part) if isinstance(data, Mapping) else None
        unknown = facts.get("unknown") if isinstance(facts, Mapping) else None
        if isinstance(unknown, Mapping):
            mostly = (_number(unknown, "share") or 0.0) > _MOSTLY
            text = str(unknown.get("note"))
            return [Finding("unknown-text", "fault" if mostly else "warning", text)]
    return []


def few_examples(evidence: Evidence, others: Sequence[Finding] = ()) -> list[Finding]:
    """Name the labels with fewer than ten training examples. The advice of `others`, the findings
    above it, or of the check of the data is not repeated."""
    counts = evidence.train_counts
    few = {name: count for name, count in counts.items() if count < FEW_EXAMPLES}
    # A teacher labels the other examples.
    if not few or len(counts) > 200 or evidence.share_of_labels < 1:
        return []
    shown = ", ".join(f"{visible(name)}: {count}" for name, count in list(few.items())[:NAMES])
    text = (
        f"{len(few)} of {plural(len(counts), 'label')} "
        f"{'has' if len(few) == 1 else 'have'} fewer than {FEW_EXAMPLES} training examples "
        f"({shown}{', …' if len(few) > NAMES else ''}), too few to learn "
        f"{'it' if len(few) == 1 else 'them'} from. Label more"
    )
    if weights_help(evidence) and not _weights_advised(evidence, others):
        text += ", or let rare labels count as much as frequent ones"
        return [evidence.finding("few-examples", "advice", text, class_weights="balanced")]
    return [evidence.finding("few-examples", "advice", text)]


def weights_help(evidence: Evidence) -> bool:
    """Return whether class weights are worth a try: the run had none, and its training labels are
    known to be uneven. Weights of labels that are equally frequent are all 1."""
    kind, counts = evidence.task, evidence.train_counts
    if evidence.facts.get("class_weights") or not counts:
        return False
    rarest, most = min(counts.values()), max(counts.values())
    if kind == "multi-label":  # compared are the examples with a label and those without
        data = evidence.facts.get("data")
        train = data.get("train") if isinstance(data, Mapping) else None
        most = int(_number(train, "examples") or 0) - rarest
    return kind in ("text", "multi-label") and most >= _UNEVEN * rarest


def _weights_advised(evidence: Evidence, others: Sequence[Finding]) -> bool:
    """Return whether the run's data or one of `others` has advised class weights already."""
    data = evidence.facts.get("data")
    advice = data.get("findings") if isinstance(data, Mapping) else None
    texts = [str(text) for text in advice] if isinstance(advice, list) else []
    texts += [f"{finding.command} {finding.call}" for finding in others]
    return any("class_weights" in text.replace("-", "_") for text in texts)


def _number(data: Any, *names: str) -> float | None:
    """Return the first of `names` in `data`, or in its validation part, that is a number."""
    if not isinstance(data, Mapping):
        return None
    for part in (data, data.get("validation")):
        for name in names:
            value = part.get(name) if isinstance(part, Mapping) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
    return None


#: Below this explained share of the labels' uncertainty a model has learned nothing; above the
#: second one it has learned its training examples; above the third one it knows them by heart.
_NOTHING, _MUCH, _BY_HEART = 0.12, 0.5, 0.85
#: Below this sum of learning rates a pre-trained model has not moved (the good runs have 0.005 and
#: more, those at 1e-6 or of a few steps below 0.001).
_STILL = 0.004
#: Fewer updates than this are too few to learn a task at any rate.
_FEW_UPDATES = 100
#: From this rate on, a run that learned nothing had too high a rate; below the second one only
#: where the loss varied widely.
_HIGH_RATE, _RATHER_HIGH_RATE = 2e-3, 3e-4
_LOW_RATE = 1e-5


def finetuning_findings(evidence: Evidence) -> list[Finding]:
    """List the findings of a fine-tuning run, in no order.

    Raises:
        BertineError: the scores or the data in the run's folder are damaged.
    """
    if not evidence.log:
        return []
    with naming_damage(Path(evidence.facts.get("folder") or "run") / "scores.json"):
        unknown = unknown_text(evidence)
        if unknown and unknown[0].severity == "fault":
            return unknown + leak(evidence)
        if evidence.facts.get("instead_of"):  # the curves belong to another model
            findings = under_baseline(evidence, None) + head_alone(evidence)
            return findings + unknown + leak(evidence) + few_examples(evidence)
        cause = _cause(evidence)
        findings = [cause] if cause else _unexplained(evidence)
        few = few_examples(evidence, findings)
        if cause is None:
            findings += _by_heart(evidence) or _past_its_best(evidence)
            findings += _still_falling(evidence)
        findings += under_baseline(evidence, cause)
        return findings + unknown + leak(evidence) + few


def with_command(finding: Finding, evidence: Evidence) -> Finding:
    """Add the command that trains again to a finding that has no command."""
    if finding.kind == "not-finite":
        changes: dict[str, Any] = {"learning_rate": evidence.lower_rate}
    elif finding.kind == "warm-up":
        changes = {"warmup_ratio": 0.1, "warmup_steps": None}
    else:
        return finding
    return evidence.finding(finding.kind, finding.severity, finding.text, **changes)


# Why nothing was learned


def _cause(evidence: Evidence) -> Finding | None:
    """Find the only reason why a run did not learn its training examples, with its evidence."""
    learned, level, constant = evidence.learned, evidence.level, evidence.constant
    # A run that continues gets no advice to train longer.
    if level is None or not evidence.final or not evidence.updates:
        return None
    rate = evidence.peak_rate or 0.0
    nothing = learned is not None and learned < _NOTHING
    symptom = _symptom(evidence)
    if not nothing and not symptom:
        return None
    if learned is not None and learned > _MUCH:
        return None  # it has learned its training examples
    after = f"after {plural(evidence.updates, 'update')}"
    losses = f"the training loss is {level:.2f}"
    if constant:
        what = "the mean" if "variance" in evidence.final else "the label frequencies"
        losses += f" (always answering {what}: {constant:.2f})"
    useless = evidence.no_better or evidence.final.get("collapsed") is True
    severity: Severity = "fault" if useless else "warning"
    why = f"{symptom}. " if symptom else ""
    risen = evidence.risen
    as_adamw = rate / evidence.rate_factor
    high = as_adamw >= _HIGH_RATE or (nothing and rate > 3 * evidence.suited_rate)
    if high or risen or (as_adamw >= _RATHER_HIGH_RATE and evidence.jumps):
        how = f"{after} at up to {exact_rate(rate)} {losses}"
        if risen:
            low, step, now = risen
            how = f"the training loss fell to {low:.2f} about step {step:,} and rose to {now:.2f}"
        elif evidence.jumps:
            how += f", and on the way it jumped to {float(evidence.losses[1:].max()):.2f}"
        text = f"{why}The learning rate is too high: {how}"
        return evidence.finding("rate-too-high", severity, text, learning_rate=evidence.lower_rate)
    little = evidence.distance < _STILL
    suited = evidence.suited_rate / evidence.rate_factor
    if (
        little
        and as_adamw <= min(_LOW_RATE, suited / 2)
        and evidence.updates * suited / 2 > evidence.distance
    ):
        change: dict[str, Any] = {"learning_rate": evidence.suited_rate}
        if evidence.updates < _FEW_UPDATES:
            change |= evidence.longer
        text = f"{why}The learning rate is too low for the weights to move: {after} at no more "
        text += f"than {exact_rate(rate)} {losses}"
        return evidence.finding("rate-too-low", severity, text, **change)
    if little or evidence.updates < _FEW_UPDATES:
        text = f"{why}There were too few updates: {after.replace('after', 'after only')} {losses}"
        return evidence.finding("few-updates", severity, text, **evidence.longer)
    if nothing:
        text = (
            f"{why}Nothing was learned: {after} at up to {exact_rate(rate)} {losses}. The labels "
        )
        text += "may not follow from the texts: look at them, and at the columns that were read"
        return evidence.finding("nothing-learned", severity, text, evidence.asked.worst())
    if evidence.no_better or not _still_falling(evidence):
        return None
    text = f"{why}The run was too short: {after} {losses}, and it was still falling"
    return evidence.finding("undertrained", "warning", text, **evidence.longer)


def _symptom(evidence: Evidence) -> str:
    """Describe the fault of the answers in a few words; "" where there is none."""
    missing, labels = evidence.never
    if evidence.final.get("collapsed") is True:
        return f"all validation examples get the same answer{_share_of_majority(evidence)}"
    if evidence.no_better:
        score = _score(evidence)
        some = f"; {_missing(missing, labels)}" if missing else ""
        return f"{score} on the validation examples, no better than a constant answer{some}"
    return _missing(missing, labels) if missing else ""


def _share_of_majority(evidence: Evidence) -> str:
    share = evidence.final.get("majority_share")
    if not isinstance(share, float):
        return ""
    name = evidence.final.get("majority_label")
    what = f"the most frequent one, {visible(str(name))!r}, is" if name else "a constant one is"
    return f" ({what} right for {share:.1%})"


def _missing(missing: Sequence[str], labels: int) -> str:
    names = visible_list(missing[:NAMES]) + (", …" if len(missing) > NAMES else "")
    verb = "is" if len(missing) == 1 else "are"
    return f"{len(missing)} of {plural(labels, 'label')} {verb} never predicted ({names})"


def _unexplained(evidence: Evidence) -> list[Finding]:
    """Name the symptoms of a model that has learned its training examples, or whose loss is not
    known."""
    missing, labels = evidence.never
    if evidence.final.get("collapsed") is True:
        text = f"all validation examples get the same answer{_share_of_majority(evidence)}. Train "
        if evidence.facts.get("frozen"):
            text += "all weights"
            return [evidence.finding("collapsed", "fault", text, **evidence.longer)]
        text += "again with another seed; where that does not help, at another learning rate"
        seed = int(evidence.fact("seed") or 0) + 1
        return [evidence.finding("collapsed", "fault", text, seed=seed)]
    if not missing:
        return []
    counts = evidence.train_counts
    if counts and all(counts.get(name, math.inf) < FEW_EXAMPLES for name in missing):
        return []  # named as labels with few examples
    severity: Severity = "advice" if 2 * len(missing) < labels else "warning"
    how = _missing(missing, labels)
    if counts:
        shown = ", ".join(f"{visible(n)}: {counts.get(n, 0)}" for n in missing[:NAMES])
        how += f"; training examples of them: {shown}"
    if weights_help(evidence):
        text = f"{how}. Let rare labels count as much as frequent ones, or label more of them"
        changes: dict[str, Any] = {"class_weights": "balanced"}
    else:
        text = f"{how}. Label more of them, or train longer"
        changes = evidence.longer
    return [evidence.finding("labels-never-predicted", severity, text, **changes)]


# Learned, but not the task


def _by_heart(evidence: Evidence) -> list[Finding]:
    """Detect training examples that are known by heart while the others are hardly answered better
    than by a constant answer: too few examples, or labels that do not follow from the texts. The
    figures are those of the end of the training, like the training loss."""
    learned, end = evidence.learned, evidence.at_end
    if learned is None or learned < _BY_HEART:
        return []
    if not (_hardly_better_than_constant(evidence) and _hardly_better_than_constant(end)):
        return []
    when, then = ("", "") if end is evidence else (" at the end of the training", " then")
    text = (
        f"the training examples are learned by heart{when} (loss {evidence.level:.3f}), but on "
        f"the validation examples the model{then} has {_score(end)}"
    )
    share, label = evidence.final.get("majority_share"), evidence.final.get("majority_label")
    if isinstance(share, float):
        constant = f"always answering {visible(str(label))!r}" if label else "a constant answer"
        text += f", where {constant} has {share:.1%}"
    if _confidently_wrong(end):
        text += f", and it is often sure of a wrong answer (loss {end.metrics['loss']:.2f})"
    # Wrong labels of the training examples are learned by heart too, and have no high loss.
    text += (
        ". The examples are too few for this task, or many labels are wrong: look at the "
        "validation examples that are predicted worst"
    )
    return [evidence.finding("by-heart", "warning", text, evidence.asked.worst_held_out())]


def _hardly_better_than_constant(evidence: Evidence) -> bool:
    """Return whether the validation examples are hardly answered better than by a constant
    answer."""
    skill = evidence.skill
    if skill is None:
        return False
    return evidence.no_better or skill < 0.12 or _confidently_wrong(evidence)


def _confidently_wrong(evidence: Evidence) -> bool:
    """Return whether the validation loss is far above that of a constant answer: confident, and
    wrong."""
    loss, constant = evidence.metrics.get("loss"), evidence.constant
    skill = evidence.skill
    if loss is None or not constant or skill is None or skill >= 0.3:
        return False
    return loss > 1.35 * constant


def _past_its_best(evidence: Evidence) -> list[Finding]:
    """Detect a saved model that is clearly worse than that of an earlier epoch."""
    facts = evidence.facts
    steps, scores = evidence.evaluated
    if facts.get("save_best") or facts.get("patience") or len(scores) < 3:
        return []
    metric = str(evidence.metric)
    best = max(range(len(scores)), key=scores.__getitem__)
    top = scores[best]
    error = math.sqrt(max(top * (1 - top), 0.01) / (evidence.count or 100))
    # The saved model may already be that of the best epoch.
    saved = min(scores[-1], top) if not evidence.final else evidence.metrics.get(metric, top)
    if saved >= top - max(0.02, 1.5 * error) or best >= len(scores) - 1:
        return []
    if evidence.count and not enough_examples(top - saved, evidence.count):
        return []
    text = (
        f"the {score_name(metric)} was best after step {steps[best]:,} ({score_text(metric, top)}) "
        f"and is {score_text(metric, scores[-1])} at the end, as the model learned its training "
        "examples by heart. Keep the best epoch"
    )
    return [evidence.finding("overfitting", "warning", text, patience=3)]


def _still_falling(evidence: Evidence) -> list[Finding]:
    """Detect that training and validation were both improving when the run ended."""
    learned, scores = evidence.learned, evidence.evaluated[1]
    if learned is None or learned > 0.75 or len(scores) < 2 or not evidence.final:
        return []
    held = evidence.points("eval_loss")[1]
    size = max(1, round(0.2 * len(evidence.losses)))
    before, after = evidence.losses[-2 * size : -size], evidence.losses[-size:]
    if not len(before) or float(after.mean()) > 0.97 * float(before.mean()):
        return []
    if len(held) >= 2:
        better = held[-1] == held.min() and held[-1] < 0.985 * held[-2]
    else:
        better = scores[-1] == max(scores) and scores[-1] > scores[-2] + 0.01
    if not better:
        return []
    level = float(after.mean())
    if len(held) >= 2:
        shown = f"validation loss {float(held[-2]):.3f}, then {float(held[-1]):.3f}"
    else:
        metric = str(evidence.metric)
        shown = (
            f"{score_name(metric)} {score_text(metric, scores[-2])}, then "
            f"{score_text(metric, scores[-1])}"
        )
    text = f"the run ended while it was getting better ({shown}; training loss "
    text += f"{float(before.mean()):.2f}, then {level:.2f}). Train longer"
    return [evidence.finding("still-falling", "advice", text, **evidence.longer)]


def _score(evidence: Evidence) -> str:
    metric, metrics = evidence.metric, evidence.metrics
    if "variance" in evidence.final and "mean_squared_error" in metrics:
        variance = float(evidence.final["variance"])
        return f"mean squared error {metrics['mean_squared_error']:.3g} (variance {variance:.3g})"
    if metric is None:
        return "no score"
    return f"{score_name(metric)} {score_text(metric, metrics[metric])}"
