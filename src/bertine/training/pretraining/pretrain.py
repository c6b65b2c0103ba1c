"""``pretrain``: a token store in, a model directory out."""

from __future__ import annotations

import time
from pathlib import Path

from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.objectives import choose
from bertine.objectives.base import Objective
from bertine.options.names import option
from bertine.options.objectives import OPTIONS_OF, ObjectiveOptions
from bertine.options.pretraining import PretrainOptions, SecondPhase
from bertine.options.verbs import takes_options
from bertine.terminal.console import warn
from bertine.text.tokenizer import Tokenizer
from bertine.training.distributed.world import join, together
from bertine.training.loop.optimizers.named import check_whole
from bertine.training.pretraining.initial_weights import (
    architecture_of,
    has_weights,
    starting_model,
)
from bertine.training.pretraining.result import PretrainResult
from bertine.training.pretraining.run import Beginning, train_on_store
from bertine.training.run import Run

#: Of the paper's steps, those with long sequences.
_LONG_SHARE = SecondPhase.long_share
#: What says the sizes of a new generator.
_NEW_GENERATOR = ("generator_size", "generator_layers")


@takes_options()
@together
def pretrain(
    store: Path | str,
    *,
    model: Path | str,
    out: Path | str,
    options: PretrainOptions,
) -> PretrainResult:
    """Pre-train with masked LM and next-sentence prediction (paper, section 3.1 and appendix A),
    with masked LM alone, or by detecting tokens that a generator has replaced; by default as the
    paper of the model does.

    Args:
        store: what ``prepare`` wrote, its tokenizer inside.
        model: a preset ("bert-mini") or a configuration file (``config.json``, with the sizes
            of your own; its vocabulary size gives way to the tokenizer's) for new weights, or a
            model directory to go on from. Its vocabulary must be the store's, or the store's an
            extension of it (``train_vocab`` with `extend`): new pieces then begin as the mean of
            their old ones.
        out: the run's folder; the model directory is ``out/model``.
        options: what the other arguments say.

    Started by ``torchrun`` in several processes, they compute each step together: the batches are
    those of one process, each computes a part, and the first one alone writes. Results of the
    others have no findings and no page.

    Raises:
        BertineError: none of `steps`, `tokens` and `hours`, or both of the first; `out` holds
            another run; a length is more than the model's positions; the objective cannot be had
            with the format; a value is out of range or the store does not fit, as
            :class:`~bertine.data.instances.pretraining.PretrainingData` and
            :class:`~bertine.training.loop.fit.FitConfig` say.
    """
    began = time.monotonic()
    world = join(options.device)
    world.alone(lambda: Run.check(out, options.resume))
    objective, input_format = choose(
        architecture_of(model),
        options.objective,
        options.input_format,
        ObjectiveOptions.of(options),
    )
    check_options(options, objective)
    check_whole(options, options.shard)

    def begin(opened: TokenStore, tokenizer: Tokenizer) -> Beginning:
        return Beginning(
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
    """Refuse options that do not go together, and warn of those that do nothing.

    Raises:
        BertineError: none of `steps`, `tokens` and `hours`, or both of the first; what is best is
            asked for, but there is no held-out text to choose it by.
    """
    lengths = sum(length is not None for length in (options.steps, options.tokens))
    if lengths == 2 or (lengths == 0 and options.hours is None):
        raise BertineError(
            f"say how long to train: give one of {option('steps')}, {option('tokens')} and "
            f"{option('hours')}"
        )
    if options.long_seq_length is None and options.long_share != _LONG_SHARE:
        warn(
            f"long_share {options.long_share:g} does nothing without a second phase; "
            f"{option('long_seq_length')} "
            "gives its length"
        )
    unused = False
    for name, kind in OPTIONS_OF.items():
        if name != objective.name and (idle := kind.of(options).changed()):
            unused = True
            warn(
                f"{', '.join(idle)}: does nothing with objective {objective.name}; it is for {name}"
            )
    of_objective = ObjectiveOptions.of(options)
    if (
        not unused
        and options.generator is not None
        and of_objective.changed().keys() & _NEW_GENERATOR
    ):
        warn(
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
