"""How long the demo's stages may take on this machine: measure the speed, then choose."""

from __future__ import annotations

from dataclasses import dataclass

from bertine.console import human_count, human_time

#: An evaluated token costs about this share of a trained one: no backward pass, no update.
_FORWARD_SHARE = 1 / 3
#: Fine-tuning may take at most this share of what is left; else it is repeated less often.
_FINETUNE_SHARE = 0.4
#: Seconds for loading models, filling masks and the report.
_RESERVE = 12.0


@dataclass(frozen=True)
class Work:
    """What is to be done, in tokens.

    Attributes:
        tokens_per_step: of pre-training.
        trained_tokens: of one fine-tuning run, all epochs.
        evaluated_tokens: of one fine-tuning run: validation after each epoch, and the test.
        kinds: models that are fine-tuned: with and without pre-training.
    """

    tokens_per_step: float
    trained_tokens: float
    evaluated_tokens: float
    kinds: int = 2

    def finetune_seconds(self, tokens_per_second: float, repeats: int) -> float:
        """What fine-tuning will take."""
        tokens = self.trained_tokens + _FORWARD_SHARE * self.evaluated_tokens
        return self.kinds * repeats * tokens / tokens_per_second


@dataclass(frozen=True)
class Plan:
    """What fits.

    Attributes:
        steps: of pre-training.
        repeats: fine-tuning runs of each kind.
        wanted_steps: of the recipe.
        wanted_repeats: of the recipe.
        tokens_per_second: what was measured.
        pretrain_seconds: expected.
        finetune_seconds: expected.
        budget_seconds: for the whole demo.
    """

    steps: int
    repeats: int
    wanted_steps: int
    wanted_repeats: int
    tokens_per_second: float
    pretrain_seconds: float
    finetune_seconds: float
    budget_seconds: float

    @property
    def shortened(self) -> bool:
        """Whether the recipe did not fit the budget."""
        return self.steps < self.wanted_steps or self.repeats < self.wanted_repeats

    def lines(self) -> list[str]:
        """The plan for people."""
        lines = [
            f"this machine trains {human_count(self.tokens_per_second)} tokens a second; in "
            f"{human_time(self.budget_seconds)} for the whole demo there is time for "
            f"{self.steps:,} steps of pre-training ({human_time(self.pretrain_seconds)}), then "
            f"{self.repeats} fine-tuning run{'s' if self.repeats > 1 else ''} of each kind "
            f"({human_time(self.finetune_seconds)})"
        ]
        missing = [
            f"{wanted:,} {what}"
            for wanted, found, what in (
                (self.wanted_steps, self.steps, "steps"),
                (self.wanted_repeats, self.repeats, "runs of each kind"),
            )
            if found < wanted
        ]
        if missing:
            lines.append(f"the recipe asks for {' and '.join(missing)}: expect less of the result")
        return lines


def plan(
    work: Work,
    *,
    tokens_per_second: float,
    budget_seconds: float,
    spent_seconds: float,
    steps: int,
    least_steps: int,
    repeats: int,
) -> Plan:
    """Fit the recipe into the budget: first fewer repetitions of fine-tuning, if those would
    take more than two fifths of the time left, then fewer steps of pre-training.

    Args:
        work: the tokens of each stage.
        tokens_per_second: measured speed of pre-training.
        budget_seconds: for the whole demo.
        spent_seconds: of it, until now.
        steps: the most steps of pre-training.
        least_steps: the fewest, even if they do not fit.
        repeats: the most fine-tuning runs of each kind.
    """
    left = max(0.0, budget_seconds - spent_seconds - _RESERVE)
    planned = repeats
    while (
        planned > 1 and work.finetune_seconds(tokens_per_second, planned) > _FINETUNE_SHARE * left
    ):
        planned -= 1
    finetune_seconds = work.finetune_seconds(tokens_per_second, planned)
    seconds_per_step = work.tokens_per_step / tokens_per_second
    fitting = int((left - finetune_seconds) / seconds_per_step)
    chosen = min(steps, max(least_steps, fitting))
    return Plan(
        steps=chosen,
        repeats=planned,
        wanted_steps=steps,
        wanted_repeats=repeats,
        tokens_per_second=tokens_per_second,
        pretrain_seconds=chosen * seconds_per_step,
        finetune_seconds=finetune_seconds,
        budget_seconds=budget_seconds,
    )
