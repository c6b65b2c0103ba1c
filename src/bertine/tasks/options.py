"""Options of how the user's own tables are read and learned from, beyond text and label."""

from __future__ import annotations

from dataclasses import fields

from bertine.errors import BertineError
from bertine.options.reading import OwnTable

#: The tasks that each option is for.
_FOR = {
    "choice_columns": ("choice",),
    "label_columns": ("multi-label",),
    "label_separator": ("multi-label",),
    "probability_columns": ("text",),
    "threshold": ("multi-label",),
    "class_weights": ("text", "multi-label"),
    "focal_gamma": ("text", "multi-label"),
    "long_text": ("text", "multi-label", "regression"),
    "target_column": ("seq2seq",),
    "max_target_length": ("seq2seq",),
    "beams": ("seq2seq",),
    "length_penalty": ("seq2seq",),
    "no_repeat_ngram_size": ("seq2seq",),
    "label_smoothing": ("seq2seq",),
}


class TableOptions(OwnTable):
    """The options of some tasks; see :func:`bertine.finetune`.

    Raises:
        BertineError: a value is not known or out of range.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_separator is not None and not self.label_separator:
            raise BertineError("label_separator is empty; give the character between labels")
        for name in ("class_weights", "focal_gamma"):
            if self.probability_columns and getattr(self, name):
                raise BertineError(
                    f"{name} is for labels, not for probabilities (probability_columns); leave one "
                    "of them out"
                )

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
