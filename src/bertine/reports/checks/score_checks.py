"""Tell whether the score of a fine-tuning run is worth anything: beside baselines, by its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertine.intervals import better_baseline
from bertine.options.finetuning import OF_TRAINING
from bertine.reports.checks.finetuning_evidence import Evidence
from bertine.reports.checks.log_view import Finding
from bertine.scores import score_name, score_text
from bertine.terminal.console import counted, visible

#: Training examples of a label below which it can hardly be learned.
FEW_EXAMPLES = 10
#: Labels are uneven where the most frequent one has so many times the examples of the rarest.
_UNEVEN = 2
#: A validation score from here on is looked at twice, with at least so many examples.
_PERFECT, _ENOUGH = 0.995, 50
#: Share of the validation examples that are also training examples which is worth a word.
_LEAK = 0.02
#: Share of unknown pieces from which on nothing else is worth a word.
_MOSTLY = 0.5
#: Labels that a line names.
NAMES = 5
#: The tasks whose head can be fitted alone, and the changes that do it: what is of training goes.
_FROZEN_TASKS = ("text", "multi-label", "regression", "choice", "tagging")
_HEAD_ALONE: dict[str, Any] = dict.fromkeys({*OF_TRAINING, "fresh_weights"}) | {"frozen": True}


def under_baseline(evidence: Evidence, cause: Finding | None) -> list[Finding]:
    """Tell when a baseline, which takes seconds, is better than the model."""
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
        return []  # that is what the model is; it was fitted once more
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
    """Tell when the head alone was saved in place of the model whose weights were all trained."""
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
    """Tell when validation examples are training examples, or the score is too good to be true."""
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
    """Tell when the vocabulary does not know the texts, for which no training helps: a fault where
    it knows next to nothing of them."""
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
    """Name the labels with fewer than ten training examples. `others` are findings above it: what
    one of them advises, or the look at the data did, is not said again."""
    counts = evidence.train_counts
    few = {name: count for name, count in counts.items() if count < FEW_EXAMPLES}
    # A teacher labels the others.
    if not few or len(counts) > 200 or evidence.share_of_labels < 1:
        return []
    shown = ", ".join(f"{visible(name)}: {count}" for name, count in list(few.items())[:NAMES])
    text = (
        f"{len(few)} of {counted(len(counts), 'label')} "
        f"{'has' if len(few) == 1 else 'have'} fewer than {FEW_EXAMPLES} training examples "
        f"({shown}{', …' if len(few) > NAMES else ''}), too few to learn "
        f"{'it' if len(few) == 1 else 'them'} from. Label more"
    )
    if weights_help(evidence) and not _weights_advised(evidence, others):
        text += ", or let rare labels count as much as frequent ones"
        return [evidence.finding("few-examples", "advice", text, class_weights="balanced")]
    return [evidence.finding("few-examples", "advice", text)]


def weights_help(evidence: Evidence) -> bool:
    """Tell whether class weights are worth a try: the run had none, and its training labels are
    known to be uneven. Weights of labels that are equally frequent are all 1."""
    kind, counts = evidence.task, evidence.train_counts
    if evidence.facts.get("class_weights") or not counts:
        return False
    rarest, most = min(counts.values()), max(counts.values())
    if kind == "multi-label":  # weighed are the examples with a label and those without
        data = evidence.facts.get("data")
        train = data.get("train") if isinstance(data, Mapping) else None
        most = int(_number(train, "examples") or 0) - rarest
    return kind in ("text", "multi-label") and most >= _UNEVEN * rarest


def _weights_advised(evidence: Evidence, others: Sequence[Finding]) -> bool:
    """Tell whether the run's data or one of `others` has advised class weights already."""
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
