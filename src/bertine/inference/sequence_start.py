"""The tokens that stand before a text for a model that goes on with it."""

from __future__ import annotations

from bertine.data.instances.formats import FORMATS
from bertine.interop.family import family_of
from bertine.modeldir import LoadedModel


def sequence_start(loaded: LoadedModel) -> tuple[int, ...]:
    """Return the ids of the special tokens that the sequences began with which the model was
    pre-trained on; where the model directory does not say it, those of its kind. None for GPT-1's
    published weights, whose sequences are stretches of running text."""
    form = FORMATS[family_of(loaded.config.model_type).input_format]
    if loaded.task is not None:
        form = FORMATS.get(loaded.task.training.get("input_format", ""), form)
    return () if form.bare else loaded.tokenizer.template.running.before
