"""Pre-train a language model on a token store: ``pretrain``, and the model that it starts from."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertine.core.console import log_all, logger
from bertine.core.errors import BertineError
from bertine.core.model_folders import locate
from bertine.core.names import Initialization, option
from bertine.corpora.store import TokenStore
from bertine.families.bert import mimic_trained_attention
from bertine.families.electra import as_masked_lm
from bertine.families.presets import PRESETS, preset
from bertine.hub.model_directory import load_config, load_model
from bertine.hub.weights import check_fits
from bertine.models.config import Config
from bertine.models.family import family_of, read_config
from bertine.models.heads import GuessesWords, Model, new_head
from bertine.models.layers import init_weights
from bertine.models.precision import seeded
from bertine.objectives import choose
from bertine.objectives.losses import Objective
from bertine.objectives.rtd import read_generator
from bertine.options.pretraining import OPTIONS_OF, ObjectiveOptions, PretrainOptions, SecondPhase
from bertine.options.verbs import takes_options
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.distributed import all_ranks, join
from bertine.training.optimizers import check_whole
from bertine.training.pretraining.result import PretrainResult
from bertine.training.pretraining.run import PretrainSetup, train_on_store
from bertine.training.run_folder import Run

# Extended vocabulary: continue with a model whose vocabulary gets new pieces. A new piece starts as
# the mean of its old pieces, so that a text first means about what it meant before.


@torch.no_grad()
def extend_vocabulary(model: Model, old: Tokenizer, new: Tokenizer) -> tuple[Model, int]:
    """Give `model`, which has the vocabulary of `old`, the vocabulary of `new`, which extends it
    (:meth:`bertine.Tokenizer.extends`).

    The word embedding of a new piece is the mean of those of :meth:`bertine.Tokenizer.parts_of`
    `old`, and so are its weights in heads that predict words
    (:class:`bertine.models.heads.GuessesWords`). A piece with a character that was unknown gets the
    mean of all.

    Returns:
        The model (on the CPU, in the mode it was in), and how many pieces had unknown characters.
    """
    config = model.config.replace(vocab_size=max(new.vocab_size, model.config.vocab_size))
    state = dict(model.state_dict())
    unknown = 0
    grown = {"backbone.embeddings.word_embeddings.weight": 0}
    for name, head in model.heads.items():
        if isinstance(head, GuessesWords):
            grown |= {f"heads.{name}.{own}": at for own, at in head.vocabulary_tensors.items()}
    for name, at in grown.items():
        table = state[name].movedim(at, 0)
        rows = table.new_zeros(config.vocab_size, *table.shape[1:])
        rows[: len(table)] = table
        known = table[: old.vocab_size]
        unknown = 0
        for index in range(old.vocab_size, new.vocab_size):
            pieces = old.parts_of(new.tokens[index])
            unknown += not pieces
            rows[index] = (known[pieces] if pieces else known).mean(0)
        state[name] = rows.movedim(0, at).contiguous()
    with torch.device("meta"):
        heads: dict[str, nn.Module] = {}
        for name, head in model.heads.items():
            options: dict[str, Any] = {}
            if model.family.heads[name].reads == "inputs":  # of sizes of its own
                assert isinstance(head.config, Config)
                options["sizes"] = head.config.replace(vocab_size=config.vocab_size)
            heads |= new_head(config, name, **options)
        extended = Model(config, heads, add_pooler=model.backbone.pooler is not None)
    extended.load_state_dict({k: v.detach().cpu().clone() for k, v in state.items()}, assign=True)
    extended.requires_grad_(True)
    return extended.train(model.training), unknown


def architecture_of(model: Path | str) -> Config:
    """Return the config of a preset, a configuration file or a model directory.

    Raises:
        BertineError: there is no model of this name, or it is damaged.
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
    """Return whether `model` is or names a model directory, and not a preset or a configuration
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
    """Build the initial model of pre-training: with new weights for a preset or a configuration
    file, with existing weights for a model directory.

    Args:
        objective: defines the heads of the model; one of its family.
        store: for the message; its `tokenizer` must be the model's, or an extension of it.
        dropout: on hidden states and attention; replaces the model's own rates.
        seed: of the new weights.
        initialization: of new weights: all random, as published, or with heads that attend to the
            same places as trained ones (:mod:`bertine.families.bert`).
        initializer_range: standard deviation of new weights; replaces the configuration's.
        generator: model directory of the generator that a model directory was trained with; None: a
            new one, if the objective has any.

    Raises:
        BertineError: no such preset, file or folder; another vocabulary; an initialization or a
            range for new weights is given, but there are none.
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
        heads, kinds = objective.heads(config), family_of(config.model_type).heads
        # No directory holds a generator beside the model.
        held = {n: head for n, head in heads.items() if kinds[n].reads != "inputs"}
        loaded = load_model(model, heads=held, seed=seed, dropout=dropout)
        log_all(loaded.report.lines())
        built = loaded.model
        for name in heads.keys() - held.keys():
            if generator is not None:
                built.heads[name] = read_generator(generator, built, loaded.tokenizer, dropout)
                continue
            logger.info(f"new (random): {kinds[name].title}")
            with seeded(seed, "new weights", f"heads.{name}"):
                init_weights(heads[name], config.initializer_range)
            built.heads[name] = heads[name]
        if tokenizer.extends(loaded.tokenizer):
            built, unknown = extend_vocabulary(built, loaded.tokenizer, tokenizer)
            logger.info(
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
                # A generator narrower than its embeddings reads them through a projection.
                if guesser is not None and not guesser.config.projects_embeddings:
                    mimic_trained_attention(guesser.backbone)
    return built


# ``pretrain``: train on a token store, and write a model directory.

#: The share of steps with long sequences in the paper.
_LONG_SHARE = SecondPhase.long_share
#: The options for the size of a new generator.
_NEW_GENERATOR = ("generator_size", "generator_layers")


@takes_options()
@all_ranks
def pretrain(
    store: Path | str,
    *,
    model: Path | str,
    out: Path | str,
    options: PretrainOptions,
) -> PretrainResult:
    """Pre-train with masked LM and next-sentence prediction (paper, section 3.1 and appendix A),
    with masked LM alone, or by detecting tokens that a generator has replaced; the default is the
    recipe of the model's paper.

    Args:
        store: the output of ``prepare``, which contains its tokenizer.
        model: a preset ("bert-mini") or a configuration file (``config.json``, with custom sizes;
            its vocabulary size is replaced by the tokenizer's) for new weights, or a model
            directory to continue from. Its vocabulary must be the store's, or the store's an
            extension of it (``train_vocab`` with `extend`): new pieces then start as the mean of
            their old ones.
        out: the run's folder; the model directory is ``out/model``.
        options: the values of the other arguments.

    Several processes started by ``torchrun`` compute each step together: the batches are those of
    one process, each computes a part, and only the first one writes. Results of the others have no
    findings and no page.

    Raises:
        BertineError: none of `steps`, `tokens` and `hours`, or both of the first two; `out` holds
            another run; a length exceeds the model's positions; the objective does not fit the
            format; a value is out of range or the store does not fit, as described in
            :class:`~bertine.corpora.pretraining_data.PretrainingData` and
            :class:`~bertine.training.fit.FitConfig`.
    """
    began = time.monotonic()
    world = join(options.device)
    world.alone(lambda: Run.check(out, options.resume))
    model = Run.model_of(out, model, options.resume)
    objective, input_format = choose(
        architecture_of(model),
        options.objective,
        options.input_format,
        ObjectiveOptions.of(options),
    )
    check_options(options, objective)
    check_whole(options, options.shard)

    def begin(opened: TokenStore, tokenizer: Tokenizer) -> PretrainSetup:
        return PretrainSetup(
            objective,
            input_format,
            objective.corruption,
            lambda: starting_model(
                model,
                objective,
                opened,
                tokenizer,
                options.dropout,
                options.seed,
                options.initialization,
                options.initializer_range,
                options.generator,
            ),
            str(model),
            options.initialization,
            fresh=not has_weights(model),
        )

    return train_on_store(store, out, options, begin, world=world, began=began)


def check_options(options: PretrainOptions, objective: Objective) -> None:
    """Refuse options that are incompatible, and warn of those without effect.

    Raises:
        BertineError: none of `steps`, `tokens` and `hours`, or both of the first two; the best
            weights are asked for, but there is no held-out text to choose them by.
    """
    lengths = sum(length is not None for length in (options.steps, options.tokens))
    if lengths == 2 or (lengths == 0 and options.hours is None):
        raise BertineError(
            f"say how long to train: give one of {option('steps')}, {option('tokens')} and "
            f"{option('hours')}"
        )
    if options.long_seq_length is None and options.long_share != _LONG_SHARE:
        logger.warning(
            f"long_share {options.long_share:g} does nothing without a second phase; "
            f"{option('long_seq_length')} "
            "gives its length"
        )
    unused = False
    for name, kind in OPTIONS_OF.items():
        if name != objective.name and (idle := kind.of(options).changed()):
            unused = True
            logger.warning(
                f"{', '.join(idle)}: does nothing with objective {objective.name}; it is for {name}"
            )
    of_objective = ObjectiveOptions.of(options)
    if (
        not unused
        and options.generator is not None
        and of_objective.changed().keys() & _NEW_GENERATOR
    ):
        logger.warning(
            f"{options.generator}: has its size already; {' and '.join(_NEW_GENERATOR)} are unused"
        )
    for name, wanted in (
        ("save_best", options.save_best),
        ("patience", options.patience is not None),
    ):
        if wanted and options.held_out is None:
            raise BertineError(
                f"{name} needs text to tell what is best; give it with {option('held_out')}"
            )
