"""The generator of replaced-token detection, from a model directory and into one."""

from __future__ import annotations

from pathlib import Path

import torch

from bertine.errors import BertineError
from bertine.modeldir import load_model, save_model
from bertine.models.electra.generator import Generator, as_masked_lm, generator_from
from bertine.models.model import Model
from bertine.taskinfo import TaskInfo
from bertine.terminal.console import say, warn
from bertine.text.tokenizer import Tokenizer

#: Sizes of embeddings, which a generator has in common with its discriminator.
_SHARED = ("embedding_size", "max_position_embeddings", "type_vocab_size")


def read_generator(
    path: Path | str, model: Model, tokenizer: Tokenizer, dropout: float | None = None
) -> Generator:
    """Read the generator in the model directory `path`, to be trained on with `model`, whose
    embeddings take the place of its own.

    Args:
        tokenizer: of the model, as it was loaded.
        dropout: on hidden states and attention, in place of the generator's own rates.

    Raises:
        BertineError: there is no model, or it is of another type, without an MLM head, of another
            vocabulary, or of embeddings of other sizes.
    """
    loaded = load_model(path, dropout=dropout)
    for line in loaded.report.lines():
        say(f"generator: {line}")
    if "mlm" not in loaded.model.heads:
        raise BertineError(
            f"{path}: has no MLM head, so it is no generator; give one that "
            "transformers opens as ElectraForMaskedLM"
        )
    if loaded.tokenizer.fingerprint != tokenizer.fingerprint:
        raise BertineError(
            f"{path}: its vocabulary is not that of the model; a generator and a discriminator "
            "are trained together, and go on together"
        )
    theirs, ours = loaded.config, model.config
    for name in ("model_type", "vocab_size", *_SHARED):
        wanted, held = getattr(ours, name), getattr(theirs, name)
        if held != wanted:
            raise BertineError(
                f"{path}: its {name} is {held}, but the model's is {wanted}; a generator shares "
                "the model's embeddings"
            )
    if not torch.equal(loaded.model.backbone.word_weights, model.backbone.word_weights):
        warn(f"{path}: its embeddings are not the model's; the model's take their place")
    return generator_from(loaded.model)


def write_generator(out: Path, model: Model, tokenizer: Tokenizer, task: TaskInfo) -> None:
    """Write the generator of `model` as a model directory, which fills masks.

    Raises:
        BertineError: the folder cannot be written.
    """
    alone = as_masked_lm(model)
    assert alone is not None
    save_model(out, alone, tokenizer, task=task)
