"""What pre-training begins with: new weights, or those of a model directory."""

from __future__ import annotations

import os
from pathlib import Path

from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.interop.family import read_config
from bertine.interop.size_check import check_fits
from bertine.model_folders import locate
from bertine.modeldir import load_config, load_model
from bertine.models.config import Config
from bertine.models.electra.generator import as_masked_lm
from bertine.models.initial import init_weights
from bertine.models.mimetic import mimic_trained_attention
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.names import Initialization
from bertine.objectives.base import Objective
from bertine.objectives.generator import read_generator
from bertine.options.names import option
from bertine.presets import PRESETS, preset
from bertine.terminal.console import say
from bertine.text.tokenizer import Tokenizer
from bertine.training.pretraining.extend import extend_vocabulary


def architecture_of(model: Path | str) -> Config:
    """Return the config of a preset, a configuration file or a model directory.

    Raises:
        BertineError: there is none of this name, or it is damaged.
    """
    if has_weights(model):
        return load_config(model)
    if str(model) in PRESETS:
        return preset(str(model))
    if Path(model).is_file():
        return read_config(Path(model)).config
    if os.sep in str(model):
        raise BertineError(
            f"{model}: no such file or folder, nor a preset; the presets are {', '.join(PRESETS)}"
        )
    return preset(str(model))


def has_weights(model: Path | str) -> bool:
    """Tell whether `model` is or names a model directory, and not a preset or a configuration
    file."""
    return str(model) not in PRESETS and locate(model).is_dir()


def starting_model(
    model: Path | str,
    objective: Objective,
    store: TokenStore,
    tokenizer: Tokenizer,
    dropout: float | None,
    seed: int,
    initialization: Initialization = "normal",
    initializer_range: float | None = None,
    generator: Path | str | None = None,
) -> Model:
    """Build the model that pre-training begins with: with new weights for a preset or a
    configuration file, with its own for a model directory.

    Args:
        objective: whose heads the model gets; one of its family.
        store: for the message; its `tokenizer` must be the model's, or an extension of it.
        dropout: on hidden states and attention, in place of the model's own rates.
        seed: of the new weights.
        initialization: of new weights: all random, as published, or with heads that look where
            trained ones do (:mod:`bertine.models.mimetic`).
        initializer_range: standard deviation of new weights, in place of the configuration's.
        generator: model directory of the generator that a model directory was trained with; None:
            a new one, where the objective has any.

    Raises:
        BertineError: no such preset, file or folder; another vocabulary; an initialization or a
            range that is for new weights, where these are not.
    """
    if has_weights(model):
        if initializer_range is not None:
            raise BertineError(
                f"{model}: has weights already; initializer_range is for new ones, of a preset or "
                "a configuration file"
            )
        if initialization != "normal":
            raise BertineError(
                f"{model}: has weights already; initialization {initialization} is for new ones, "
                "of a preset or a configuration file"
            )
        config = load_config(model, dropout=dropout)
        heads = objective.heads(config)
        # No directory holds a generator beside the model.
        held = {n: head for n, head in heads.items() if config.heads[n].reads != "inputs"}
        loaded = load_model(model, heads=held, seed=seed, dropout=dropout)
        for line in loaded.report.lines():
            say(line)
        built = loaded.model
        for name in heads.keys() - held.keys():
            if generator is not None:
                built.heads[name] = read_generator(generator, built, loaded.tokenizer, dropout)
                continue
            say(f"new (random): {config.heads[name].title}")
            with seeded(seed, "new weights", f"heads.{name}"):
                init_weights(heads[name], config.initializer_range)
            built.heads[name] = heads[name]
        if tokenizer.extends(loaded.tokenizer):
            built, unknown = extend_vocabulary(built, loaded.tokenizer, tokenizer)
            say(
                f"{tokenizer.vocab_size - loaded.tokenizer.vocab_size} new pieces begin as the "
                f"mean of their old ones; {unknown} of them have characters that were unknown"
            )
        elif loaded.tokenizer.fingerprint != tokenizer.fingerprint:
            raise BertineError(
                f"{model}: its vocabulary is not that of the store {store.path}; prepare the "
                f"store with {option('tokenizer', str(model))}, or with a vocabulary that "
                "'bertine vocab --extend' makes of it"
            )
    else:
        if generator is not None:
            raise BertineError(
                f"{generator}: a generator goes on with the model that it was trained with, but "
                f"{model} has no weights; leave {option('generator')} out"
            )
        config = architecture_of(model)
        config = config.for_vocabulary(
            tokenizer.vocab_size,
            pad=tokenizer.pad_token_id,
            first=tokenizer.template.first_id,
            last=tokenizer.template.last_id,
        )
        config = config.with_dropout(dropout)
        check_fits(model, config, trained=True)
        if initializer_range is not None:
            config = config.replace(initializer_range=initializer_range)
        with seeded(seed, "initial weights"):
            built = Model(config, objective.heads(config))
        if initialization == "mimetic":
            with seeded(seed, "mimetic weights"):
                mimic_trained_attention(built.backbone)
                guesser = as_masked_lm(built)
                # One that is narrower than its embeddings reads them through a projection.
                if guesser is not None and not guesser.config.projects_embeddings:
                    mimic_trained_attention(guesser.backbone)
    return built
