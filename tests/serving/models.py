"""A tiny model with random weights for every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import toys
from bertine.hub.model_directory import save_model
from bertine.models.heads import Model
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression

TAGS = ("B-PET", "B-FOOD", "I-PET", "I-FOOD", "O")
LIMITS = SpanLimits(doc_stride=8, max_question_length=10, max_answer_length=6)
TASKS: dict[str, Any] = {
    "text": TextClassification(("animal", "dish"), ("text",), "label", 16),
    "pairs": TextClassification(("same", "other", "none"), ("premise", "hypothesis"), "label", 24),
    "regression": TextRegression(("text",), "score", 16),
    "multi-label": MultiLabel(("warm", "small", "wet"), ("text",), "labels", 16),
    "choice": MultipleChoice(
        ("question",), ("a", "b", "c", "d"), "right", 24, answers_by_column=True
    ),
    "spans": SpanExtraction(max_length=24, limits=LIMITS),
    "tagging": Tagging(TAGS, ("words",), "tags", 16),
}


def write_task_model(folder: Path, kind: str, seed: int = 0) -> Path:
    """A model directory of one of `TASKS`, or of pre-training (``fill-mask``)."""
    torch.manual_seed(seed)
    if kind == "fill-mask":
        return toys.write_model(folder)
    task = TASKS[kind]
    config = toys.config()
    model = Model(config, task.heads(config), add_pooler=kind != "tagging")
    # Weights of the usual size leave random models undecided.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)
    save_model(folder, model, toys.tokenizer(), task=task.task_info())
    return folder
