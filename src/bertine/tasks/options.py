"""What can be said of one's own table and of how it is learned from, beyond its text and label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from bertine.errors import BertineError

#: The tasks that each option is for.
_FOR = {
    "choice_columns": ("choice",),
    "label_columns": ("multi-label",),
    "label_separator": ("multi-label",),
    "threshold": ("multi-label",),
    "class_weights": ("text", "multi-label"),
    "focal_gamma": ("text", "multi-label"),
    "long_text": ("text", "multi-label", "regression"),
}


@dataclass(frozen=True)
class TableOptions:
    """Options of some tasks; see :func:`bertine.finetune`.

    Raises:
        BertineError: a value is not known or out of range.
    """

    choice_columns: Sequence[str] | str | None = None
    label_columns: Sequence[str] | str | None = None
    label_separator: str | None = None
    threshold: float = 0.5
    class_weights: str | None = None
    focal_gamma: float = 0.0
    long_text: str = "head"

    def __post_init__(self) -> None:
        if self.class_weights not in (None, "balanced"):
            raise BertineError(
                f"class_weights is {self.class_weights!r}, but must be 'balanced' or left out"
            )
        if not 0.0 <= self.focal_gamma < math.inf:
            raise BertineError(f"focal_gamma is {self.focal_gamma:g}, but must be 0 or more")
        if not 0.0 < self.threshold < 1.0:
            raise BertineError(f"threshold is {self.threshold:g}, but must be between 0 and 1")
        if self.label_separator is not None and not self.label_separator:
            raise BertineError("label_separator is empty; give the character between labels")

    def refuse(self, task: str) -> None:
        """Refuse what is not for `task`.

        Raises:
            BertineError: an option of other tasks is given.
        """
        for field in fields(self):
            if getattr(self, field.name) != field.default and task not in _FOR[field.name]:
                raise BertineError(
                    f"{field.name} (--{field.name.replace('_', '-')}) is for "
                    f"{' and '.join(_FOR[field.name])}, but the task is {task!r}"
                )
