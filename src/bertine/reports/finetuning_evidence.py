"""Measure in a fine-tuning run what was learned, how far weights moved, and what to change.

The losses of every task are compared with `constant`: the loss of the best answer that does not
depend on the text (the label frequencies; the mean score). A training loss at that level means that
nothing was learned, at any absolute value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertine.options.training import USUAL_RATE
from bertine.reports.findings import Asked, Finding, Floats, LogView, NextCommand, Severity
from bertine.reports.run_files import task_loss

#: The last share of the logged lines that counts as the end of a run.
_END = 0.15
#: Metrics that judge a task where its run does not name one: the first that exists.
_SCORES = ("accuracy", "f1", "micro_f1", "pearson", "exact_match")


@dataclass(frozen=True)
class Evidence(LogView):
    """The log and the facts of a fine-tuning run, with the figures derived from them; unknown
    attributes are None."""

    pretraining: bool = False

    # The arguments of the run and of possible next runs

    @cached_property
    def asked(self) -> Asked:
        """The arguments of the run."""
        return Asked.of(Path(self.facts.get("folder") or "run"), self.facts)

    def finding(
        self,
        kind: str,
        severity: Severity,
        text: str,
        command: NextCommand | None = None,
        **changes: Any,
    ) -> Finding:
        """Make a finding with the command to run next; by default the run with these `changes`,
        and no command where they change nothing."""
        command = command or self.asked.again(**changes)
        if command is None:
            return Finding(kind, severity, text)
        return Finding(kind, severity, text, command.shell, command.python)

    @property
    def info(self) -> Mapping[str, Any]:
        """The settings about the task and its data; empty if there are none."""
        info = self.facts.get("labels_and_columns")
        return info if isinstance(info, Mapping) else {}

    @property
    def task(self) -> str:
        """The name of the task: "text" also for those of GLUE, "choice" for SWAG."""
        return str(self.info.get("name") or self.facts.get("task"))

    @cached_property
    def train_counts(self) -> dict[str, int]:
        """The number of training examples of each label; empty where that is not known."""
        data = self.facts.get("data")
        train = data.get("train") if isinstance(data, Mapping) else None
        labels = train.get("labels") if isinstance(train, Mapping) else None
        # For other tasks: places or kinds.
        if self.task not in ("text", "multi-label", "tagging") or not isinstance(labels, Mapping):
            return {}
        return {str(name): int(count) for name, count in labels.items() if isinstance(count, int)}

    @cached_property
    def suited_rate(self) -> float:
        """A rate that fits the model's size: the paper's for 768 hidden units, more for fewer."""
        hidden = self.fact("hidden_size") or 768
        usual = float(f"{min(1e-3, 5e-5 * (768 / hidden) ** 2):.0e}")
        return self.fact("usual_learning_rate") or usual

    @property
    def few_shot(self) -> bool:
        """Whether the curve is that of contrastive training."""
        return self.facts.get("verb") == "few-shot"

    @property
    def lower_rate(self) -> float:
        """A rate to try where that of the run is too high."""
        rate, usual = self.peak_rate or 0.0, self.suited_rate
        return usual if rate > 1.5 * usual else float(f"{rate / 4:.0e}")

    @property
    def longer(self) -> dict[str, Any]:
        """Options for more updates: the usual number for this many examples; where that was tried,
        twice the epochs. Where the head alone was fitted: train all weights, as is usual."""
        if self.few_shot:
            return {"steps": 2 * self.updates}
        if self.facts.get("frozen"):
            return {"frozen": None}
        batch, epochs = int(self.fact("batch_size") or 32), int(self.fact("epochs") or 3)
        examples = int(self.fact("num_examples") or batch * self.updates / max(1, epochs))
        smaller = min(batch, int(self.fact("usual_batch_size") or 16))
        usual_epochs = self.fact("usual_epochs")
        if usual_epochs is None:  # a run of an older version
            usual_epochs = min(25, math.ceil(400 * smaller / examples))
        change: dict[str, Any] = {"epochs": max(2 * epochs, int(usual_epochs))}
        if smaller < batch:
            change["batch_size"] = smaller
        if (self.peak_rate or 0.0) < self.suited_rate / 2:
            change["learning_rate"] = self.suited_rate
        return change

    # Figures of the training

    @cached_property
    def final(self) -> Mapping[str, Any]:
        """The report on the saved model."""
        final = self.facts.get("final")
        return final if isinstance(final, Mapping) else {}

    @property
    def updates(self) -> int:
        """The number of updates of the weights so far."""
        return self.last_step

    @cached_property
    def losses(self) -> Floats:
        """The training losses of the task, one a line."""
        return self.points(task_loss(self.log))[1]

    @cached_property
    def peak_rate(self) -> float | None:
        """The highest learning rate of the run."""
        _, rates = self.points("learning_rate")
        wanted = self.fact("learning_rate")
        return max(float(rates.max()) if len(rates) else 0.0, wanted or 0.0) or None

    @cached_property
    def distance(self) -> float:
        """The sum of the learning rates of all updates, in terms of AdamW. It moves no weight much
        further: below a few thousandths a pre-trained model is still where it started."""
        steps, rates = self.points("learning_rate")
        rates = rates / self.rate_factor
        peak = (self.peak_rate or 0.0) / self.rate_factor
        if not len(steps):
            return peak * self.updates / 2
        counts = np.diff(np.concatenate([[0.0], steps]))
        # A line has the rate of its last step: in a short run with few lines that is often 0.
        if len(steps) < 4:
            return max(float(counts @ rates), peak * self.updates / 2)
        return float(counts @ rates)

    @property
    def rate_factor(self) -> float:
        """The usual rate of the run's optimizer, and of the weights that it trains, as a multiple
        of AdamW's for all weights."""
        if known := self.fact("usual_rate_factor"):
            return known
        factors: Mapping[Any, float] = USUAL_RATE
        return factors.get(self.facts.get("optimizer"), 1.0)

    @cached_property
    def share_of_labels(self) -> float:
        """The share of labels in the training targets, in [0, 1]; the rest are a teacher's
        answers."""
        distillation = self.facts.get("distillation")
        weight = distillation.get("label_weight") if isinstance(distillation, Mapping) else None
        return float(weight) if isinstance(weight, int | float) else 1.0

    @cached_property
    def constant(self) -> float | None:
        """The loss of always answering the label frequencies, in the unit of the training loss. It
        is meaningless for a loss with a teacher's answers in it, and for the contrastive loss."""
        if "distillation" in self.facts or self.few_shot:
            return None
        return self.fact("constant_loss") or _entropy(self.final)

    @cached_property
    def level(self) -> float | None:
        """The training loss at the end."""
        if not len(self.losses):
            return None
        return float(self.losses[-max(1, round(_END * len(self.losses))) :].mean())

    @cached_property
    def learned(self) -> float | None:
        """The share of the training labels' uncertainty that is explained at the end: 0 at the
        level of `constant`, 1 where every training example is certain and right."""
        if self.level is None or not self.constant:
            return None
        return 1.0 - self.level / self.constant

    @cached_property
    def jumps(self) -> bool:
        """Whether the loss varied widely: after the first fifth of the run it was well above
        `constant`, twice or at an evaluation, where a model that learns anything is below it."""
        # A squared error differs from batch to batch by more than that.
        if not self.constant or "variance" in self.final:
            return False
        begun = self.losses[max(1, len(self.losses) // 5) :]
        high = int((begun > 1.15 * self.constant).sum())
        fell = bool(len(self.losses)) and float(self.losses.min()) < 1.1 * self.constant
        return fell and high >= max(2, len(begun) // 20)

    @cached_property
    def risen(self) -> tuple[float, int, float] | None:
        """The lowest training loss before a rise by a third of `constant`: the lowest mean of a
        tenth of the lines, its step, and the last such mean."""
        steps, loss = self.points(task_loss(self.log))
        window = max(3, len(loss) // 10)
        if len(loss) < 3 * window or not self.constant:
            return None
        levels = np.convolve(loss, np.ones(window) / window, "valid")
        best = int(levels.argmin())
        if levels[-1] - levels[best] < self.constant / 3:
            return None
        return float(levels[best]), int(steps[best + window // 2]), float(levels[-1])

    # Figures of the validation examples

    @cached_property
    def judged(self) -> list[str]:
        """The names of the scores by whose mean the run is judged; empty where none of them is
        known."""
        metrics = self.metrics
        judged = [name for name in self.info.get("metrics") or () if name in metrics]
        return judged or [name for name in _SCORES if name in metrics][:1]

    @property
    def metric(self) -> str | None:
        """The first of these scores."""
        return self.judged[0] if self.judged else None

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the saved model, or, while a run continues, of its last evaluation."""
        metrics = self.final.get("metrics")
        return metrics if isinstance(metrics, Mapping) else self._last_evaluation[1]

    @cached_property
    def _last_evaluation(self) -> tuple[int, Mapping[str, float]]:
        """The step of the last evaluation in the log and its scores; none where there is none."""
        scored = [row for row in self.log if any(key.startswith("eval_") for key in row)]
        last = scored[-1] if scored else {}
        return int(last.get("step", 0)), {
            key.removeprefix("eval_"): float(value)
            for key, value in last.items()
            if key.startswith("eval_") and isinstance(value, int | float)
        }

    @cached_property
    def at_end(self) -> Evidence:
        """The same evidence with the scores of the last evaluation, which belong to the weights of
        the last training loss; itself where those weights were saved."""
        step, scores = self._last_evaluation
        saved = self.fact("saved_step")
        if saved is None or not step or int(saved) == step:
            return self
        facts = {**self.facts, "final": {**self.final, "metrics": scores}}
        return replace(self, facts=facts)

    @cached_property
    def count(self) -> int:
        """The number of validation examples."""
        return int(self.final.get("num_examples") or 0)

    @cached_property
    def skill(self) -> float | None:
        """The score on a scale from always answering the same (0) to perfect (1)."""
        shares = self._shares()
        if shares is None:
            return None
        score, constant = shares
        return (score - constant) / max(1e-9, 1.0 - constant)

    @cached_property
    def no_better(self) -> bool:
        """Whether the score is within two standard errors of always answering the same. A perfect
        score never is, and neither is the agreement of a student with a teacher that always answers
        the same."""
        shares = self._shares()
        if shares is None or not self.count or self.share_of_labels == 0:
            return False
        score, constant = shares
        if score >= 1.0 > constant:
            return False
        # With one more example right and one more wrong: with few examples a constant answer often
        # has none right, or all, which has no standard error (Laplace's rule of succession).
        share = (constant * self.count + 1) / (self.count + 2)
        error = math.sqrt(max(share * (1 - share), 0.0) / self.count)
        return score <= constant + max(2 * error, 0.05 * (1 - constant)) and not self._finds_rare

    @property
    def _finds_rare(self) -> bool:
        """Whether rarer classes are found too, though the accuracy is that of the most frequent
        class: where one class has nearly all examples, accuracy says little."""
        table = self.final.get("per_label")
        if not isinstance(table, Mapping) or not one_label(self.final):
            return False
        rarer = sorted(table.values(), key=lambda row: -row["support"])[1:]
        scores = [row["f1"] for row in rarer if row["support"] >= 3]
        return bool(scores) and sum(scores) / len(scores) > 0.3

    def _shares(self) -> tuple[float, float] | None:
        """Return the score and that of always answering the same, as shares of 1."""
        metrics, final = self.metrics, self.final
        if "variance" in final and "mean_squared_error" in metrics:
            variance = float(final["variance"])
            return (1 - metrics["mean_squared_error"] / variance, 0.0) if variance > 0 else None
        if one_label(final) and "accuracy" in metrics:
            return metrics["accuracy"], float(final.get("majority_share") or 0.0)
        if "micro_f1" in metrics:
            return metrics["micro_f1"], _constant_f1(final)
        if "types" in final and "f1" in metrics:
            if "precision" in metrics:  # entities: finding none scores 0
                return metrics["f1"], 0.0
            true = [int(row["true"]) for row in final["types"].values()]
            return metrics["accuracy"], max(true, default=0) / max(1, sum(true))
        if "rougeL" in metrics:
            return metrics["rougeL"], 0.0
        if "exact_match" in metrics:
            # Any answer shares a few words with the true one.
            return metrics["f1"], max(0.07, float(final.get("majority_share") or 0.0))
        return None

    @cached_property
    def evaluated(self) -> tuple[list[int], list[float]]:
        """The steps and scores of the evaluations."""
        if self.metric is None:
            return [], []
        steps, values = self.points(f"eval_{self.metric}")
        return [int(step) for step in steps], values.tolist()

    @cached_property
    def never(self) -> tuple[list[str], int]:
        """The labels, or types of entities, that at least three validation examples have and the
        model never gives; and the number of all labels."""
        table = self.final.get("per_label") or self.final.get("types") or {}
        if not isinstance(table, Mapping):
            return [], 0
        missing = [
            str(name)
            for name, row in table.items()
            if row.get("predicted") == 0 and (row.get("support") or row.get("true") or 0) >= 3
        ]
        present = [row for row in table.values() if row.get("support") or row.get("true")]
        return missing, len(present)


def one_label(final: Mapping[str, Any]) -> bool:
    """Return whether a report is on a task with one label, of several, for each example."""
    return "confusion" in final or "confused" in final


def _entropy(final: Mapping[str, Any]) -> float | None:
    """Compute the entropy of the classes of the validation examples, in nats; 1 for scores, which
    are standardized."""
    if "variance" in final:
        return 1.0
    table = final.get("per_label")
    if not isinstance(table, Mapping):
        return None
    counts = [float(row["support"]) for row in table.values()]
    total = sum(counts)
    if one_label(final) and total:
        return -sum(c / total * math.log(c / total) for c in counts if c) or None
    number = float(final.get("num_examples") or 0)
    shares = [min(max(c / number, 1e-9), 1 - 1e-9) for c in counts] if number else []
    entropies = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in shares]
    return sum(entropies) / len(entropies) if entropies else None


def _constant_f1(final: Mapping[str, Any]) -> float:
    """Compute the best micro F1 of giving every example the same labels."""
    number = float(final.get("num_examples") or 0)
    table = final.get("per_label")
    counts = sorted((float(row["support"]) for row in (table or {}).values()), reverse=True)
    total, hits, best = sum(counts), 0.0, 0.0
    for labels, count in enumerate(counts, 1):
        hits += count
        best = max(best, 2 * hits / (labels * number + total)) if number else best
    return best
