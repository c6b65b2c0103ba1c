"""What a finding about a fine-tuning run asks for: other options, and the command with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bertine.reports.checks.finetuning_evidence import Evidence
from bertine.reports.checks.log_view import Finding, Severity
from bertine.reports.checks.next_command import NextCommand


def finding(kind: str, severity: Severity, text: str, command: NextCommand) -> Finding:
    """A finding with the command to run next."""
    return Finding(kind, severity, text, command.shell, command.python)


def kind_of_task(evidence: Evidence) -> str:
    """The name of the task: "text" for those of GLUE too, "choice" for SWAG."""
    info = evidence.seen.facts.get("labels_and_columns")
    name = info.get("name") if isinstance(info, Mapping) else None
    return str(name or evidence.seen.facts.get("task"))


def suited_rate(evidence: Evidence) -> float:
    """A rate that suits the model's size: the paper's for 768 hidden units, more for fewer."""
    usual = evidence.seen.fact("usual_learning_rate")
    if usual:
        return usual
    hidden = evidence.seen.fact("hidden_size") or 768
    return float(f"{min(1e-3, 5e-5 * (768 / hidden) ** 2):.0e}")


def lower(evidence: Evidence) -> float:
    rate, usual = evidence.peak_rate or 0.0, suited_rate(evidence)
    return usual if rate > 1.5 * usual else float(f"{rate / 4:.0e}")


def longer(evidence: Evidence) -> dict[str, Any]:
    """More updates: what is usual for so many examples; where that was tried, twice the epochs.
    Where the head alone was fitted: train all weights, as is usual."""
    if evidence.seen.facts.get("frozen"):
        return {"frozen": None}
    facts = evidence.seen
    batch = int(facts.fact("batch_size") or 32)
    epochs = int(facts.fact("epochs") or 3)
    examples = int(facts.fact("num_examples") or batch * evidence.updates / max(1, epochs))
    smaller = min(batch, int(facts.fact("usual_batch_size") or 16))
    usual_epochs = facts.fact("usual_epochs")
    if usual_epochs is None:  # a run of an older version
        usual_epochs = min(25, math.ceil(400 * smaller / examples))
    change: dict[str, Any] = {"epochs": max(2 * epochs, int(usual_epochs))}
    if smaller < batch:
        change["batch_size"] = smaller
    rate, usual = evidence.peak_rate or 0.0, suited_rate(evidence)
    if rate < usual / 2:
        change["learning_rate"] = usual
    return change
