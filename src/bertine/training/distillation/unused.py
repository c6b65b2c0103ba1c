"""Options of ``distill`` that change nothing in a run: one line for each."""

from __future__ import annotations

from collections.abc import Iterator

from bertine.models.config import Config
from bertine.options.distillation import DistillOptions
from bertine.options.names import option
from bertine.terminal.console import warn
from bertine.training.distillation.student import StudentPlan

#: The weights of the terms that compare layers.
MAP_WEIGHTS = ("hidden_weight", "hidden_mean_weight", "hidden_variance_weight", "attention_weight")


def warn_of_unused(
    options: DistillOptions, plan: StudentPlan, teacher: Config | None, reasons: dict[str, str]
) -> None:
    """Print a line for each option that is given and changes nothing.

    Args:
        plan: of the student.
        teacher: the config of the teacher; None: it is a file.
        reasons: by the name of an option, why it changes nothing, where that depends on the data.
    """
    reasons = {**dict(_reasons(options, plan, teacher)), **reasons}
    changed = options.changed()
    for name, why in reasons.items():
        if name in changed:
            warn(f"{option(name, changed[name])} does nothing: {why}")


def _reasons(
    options: DistillOptions, plan: StudentPlan, teacher: Config | None
) -> Iterator[tuple[str, str]]:
    """Yield the options that change nothing whatever the data are, and why."""
    if not any(getattr(options, name) for name in MAP_WEIGHTS):
        first, *_, last = MAP_WEIGHTS
        yield "maps", f"no layers are compared; give {option(first)} or {option(last)}"
    if plan.layers is None:
        yield "token_types", "the student does not begin as layers of its teacher"
    elif plan.config.type_vocab_size:
        yield "token_types", "the student has token types of its own"
    elif teacher is not None and not teacher.type_vocab_size:
        yield "token_types", "the teacher has no token types"
