"""``pretrain``: a token store in, a model directory out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bertine.cores import launch
from bertine.data.instances.formats import make_instances
from bertine.data.instances.phases import PhasedData, at_length, steps_for_tokens, tokens_per_step
from bertine.data.instances.pretraining import PretrainingData
from bertine.data.loader import default_workers
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.inference.heldout import evaluate_pretraining
from bertine.modeldir import save_model
from bertine.models.generator import as_masked_lm, generator_of, without_generator
from bertine.models.model import Model
from bertine.models.precision import precision_name, resolve_precision
from bertine.objectives import choose
from bertine.objectives.base import Objective
from bertine.objectives.generator import write_generator
from bertine.options.instances import InstanceSettings
from bertine.options.names import option
from bertine.options.objectives import ObjectiveOptions
from bertine.options.optimization import USUAL_RATE
from bertine.options.pretraining import PretrainOptions, SecondPhase
from bertine.options.verbs import takes_options
from bertine.scores import score_name
from bertine.taskinfo import TaskInfo
from bertine.terminal.console import human_count, say, warn
from bertine.terms import TERMS, choosing_score, main_term
from bertine.text.tokenizer import Tokenizer
from bertine.training.distributed.world import join, together
from bertine.training.loop.best import Choice, load_best
from bertine.training.loop.ceiling import operations, step_products
from bertine.training.loop.display import Display
from bertine.training.loop.fit import FitConfig, fit
from bertine.training.loop.optimizers.named import check_whole
from bertine.training.loop.schedule import warmup
from bertine.training.pretraining.expectation import too_short
from bertine.training.pretraining.initial_weights import (
    architecture_of,
    has_weights,
    starting_model,
)
from bertine.training.pretraining.result import PretrainResult, last_line, result_of
from bertine.training.pretraining.samples import MaskSamples, write_samples
from bertine.training.pretraining.speed import latest_beginning, steps_for_hours
from bertine.training.run import Run

#: Of the paper's steps, those with long sequences.
_LONG_SHARE = SecondPhase.long_share
#: Evaluations of a run, where nobody says how many.
_EVALUATIONS = 20
#: The highest rate with AdamW, where nobody says.
_ADAMW_RATE = 1e-4
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
    with masked LM alone, or by telling tokens that a generator has replaced; by default as the
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
    steps, hours, resume = options.steps, options.hours, options.resume
    world = join(options.device)
    where = world.device
    world.alone(lambda: Run.check(out, resume))
    objective, input_format = choose(
        architecture_of(model),
        options.objective,
        options.input_format,
        ObjectiveOptions.of(options),
    )
    _check_options(options, objective)
    check_whole(options, options.shard)
    opened = TokenStore.open(store)
    tokenizer = Tokenizer.load(opened.tokenizer_path)
    lengths, shares = [options.max_seq_length], [1.0]
    if options.long_seq_length is not None:
        lengths.append(options.long_seq_length)
        shares = [1.0 - options.long_share, options.long_share]
    instances = InstanceSettings.of(
        options,
        input_format=input_format,
        mask_split=options.mask_split or objective.mask_split,
    )
    phases = [
        PretrainingData(
            opened, tokenizer, at_length(instances, length), corruption=objective.corruption
        )
        for length in lengths
    ]
    held = None if options.held_out is None else _held_out(options.held_out, tokenizer, phases[0])
    built = starting_model(
        model,
        objective,
        opened,
        tokenizer,
        options.dropout,
        options.seed,
        options.initialization,
        options.initializer_range,
        options.generator,
    )
    _check_lengths(lengths, built.config.longest_input)
    weights_fingerprint = built.fingerprint()
    built.to(where)
    workers = options.workers
    if workers is None:
        workers = default_workers(where, launch.beside())
    if options.tokens is not None:
        steps = steps_for_tokens(options.tokens, phases, shares)
    elif hours is not None and steps is None:
        steps = world.alone(lambda: Run.steps(out)) or steps_for_hours(
            hours,
            built,
            objective,
            [phase.batch for phase in phases],
            shares,
            began=began,
            precision=options.precision,
            max_tokens_per_micro_batch=options.max_tokens_per_micro_batch,
            world=world,
            shard=options.shard,
            compile=options.compile,
            workers=workers,
            updates=options,
        )
    assert steps is not None
    data = PhasedData(phases, shares, steps)
    for warning in data.warnings():
        warn(warning)
    if not has_weights(model) and not resume:
        to_see = steps * tokens_per_step(phases, shares)
        short = too_short(
            built.config,
            options.initialization,
            to_see,
            timed=hours is not None,
            objective=objective.name,
        )
        if short is not None:
            warn(short)
    config = _fit_config(options, steps, workers, where)
    every = options.evaluate_every or max(1, steps // _EVALUATIONS)
    settings = {
        "objective": objective.name,
        **objective.settings(),
        **_described(data),
        **config.settings(),
        "model_path": str(model),
        "initialization": options.initialization,
        "weights_fingerprint": weights_fingerprint,
        "device": where.type,
        "architecture": built.config.to_dict(),
        "save_best": options.save_best,
        "evaluate_every": every,
        "held_out_tokens": None if held is None else held.num_tokens,
    }
    with Run.open(out, settings, resume, world=world, shard=options.shard) as run:
        epochs = f"{data.epochs:.2g}" if data.epochs < 10 else f"{data.epochs:,.0f}"
        say(
            f"{human_count(built.num_parameters())} parameters, {human_count(opened.num_tokens)} "
            f"tokens in the store, {steps} steps of {options.batch_size} sequences "
            f"({epochs} epochs); unigram entropy {opened.unigram_entropy:.3f} nats"
        )
        if run.finished:
            world.alone(lambda: run.say_finished(options.save_best))
            if options.save_generator and not run.generator.exists():
                warn(
                    f"{run.folder}: {option('save_generator', True)} comes too late: the generator "
                    "of a finished run is in its newest checkpoint alone"
                )
        else:
            fit(
                built,
                objective,
                data.batch,
                config,
                run,
                title="pretrain",
                work=_work(built, objective, data),
                facts={"unigram_entropy": opened.unigram_entropy},
                evaluate=_evaluation(
                    run, built, tokenizer, objective, phases[0], held, config.precision
                ),
                evaluate_every=every,
                choose=None
                if held is None
                else Choice(choosing_score(objective.name), highest=False),
                world=world,
                shard=options.shard,
                open_end=options.steps is None and options.tokens is None,
                began=began if hours is None else latest_beginning(began, hours),
            )
            world.alone(lambda: _save(run, built, tokenizer, data, options, settings))
        return result_of(run, opened, instances.mask_split[2], world, objective=objective.name)


def _check_options(options: PretrainOptions, objective: Objective) -> None:
    """Refuse options that do not go together, and warn of those that do nothing.

    Raises:
        BertineError: none of `steps`, `tokens` and `hours`, or both of the first; what is best is
            asked for, but there is no text to tell it.
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
    of_objective = ObjectiveOptions.of(options)
    unused = [] if objective.settings() else list(of_objective.changed())
    if unused:
        warn(f"{', '.join(unused)}: does nothing with objective {objective.name}; it is for rtd")
    elif options.generator is not None and of_objective.changed().keys() & _NEW_GENERATOR:
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


def _check_lengths(lengths: Sequence[int], positions: int) -> None:
    """Refuse sequences that are longer than the model has positions.

    Raises:
        BertineError: those of a phase are.
    """
    for name, length in zip(("max_seq_length", "long_seq_length"), lengths, strict=False):
        if length > positions:
            raise BertineError(f"{name} is {length}, but the model has positions for {positions}")


def _fit_config(
    options: PretrainOptions, steps: int, workers: int, device: torch.device
) -> FitConfig:
    """Return how the loss is minimized in `steps` steps, and warn of a rate that rises for most of
    them."""
    rate = options.learning_rate
    if rate is None:
        rate = _ADAMW_RATE * USUAL_RATE[options.optimizer]
    config = FitConfig.of(
        options,
        steps=steps,
        learning_rate=rate,
        warmup_steps=warmup(steps, options.warmup_steps, options.warmup_ratio),
        precision=precision_name(options.precision, device),
        budget_seconds=None if options.hours is None else 3600 * options.hours,
        workers=workers,
        compile=options.compile if device.type == "cuda" else None,
    )
    if config.warmup_steps > steps / 2:
        warn(
            f"the learning rate rises for {config.warmup_steps:,} of {steps:,} steps"
            + (", so it never comes to its height" if config.warmup_steps >= steps else "")
            + f"; 1% to 10% are usual, {option('warmup_steps')} says how many"
        )
    return config


def _described(data: PhasedData) -> dict[str, Any]:
    """Return what a run's settings say of its data."""
    described = data.describe()
    described["data_path"] = described.pop("store")
    duplicate_share = data.phases[0].store.duplicate_share
    if duplicate_share is not None:
        described["duplicate_share"] = duplicate_share
    return described


def _save(
    run: Run,
    model: Model,
    tokenizer: Tokenizer,
    data: PhasedData,
    options: PretrainOptions,
    settings: dict[str, Any],
) -> None:
    """Write the model directory, with the best weights where the options say so; warn of a second
    phase that was cut short."""
    if options.save_best:
        load_best(run.checkpoints, model)
    final = last_line(run, settings["objective"])
    if len(data.phases) > 1 and final["step"] < data.steps:
        done, planned = (max(0, step - data.starts[-1]) for step in (final["step"], data.steps))
        reason = "the time was enough for" if options.hours is not None else "the run came to"
        warn(
            f"{reason} {done:,} of the {planned:,} steps with sequences of "
            f"{options.long_seq_length} tokens; a larger long_share begins them earlier"
        )
    length = max(phase.max_seq_length for phase in data.phases)
    task = TaskInfo("pretraining", max_length=length, training={**settings, "final": final})
    if generator_of(model) is not None and options.save_generator:
        write_generator(run.generator, model, tokenizer, task)
    # The last, for it says that the run is done.
    save_model(run.model, without_generator(model), tokenizer, task=task)


def _work(model: Model, objective: Objective, data: PhasedData) -> Callable[[int], float]:
    """Return the arithmetic of the first so many steps: those of a phase of long sequences have
    more."""
    if len(data.phases) == 1:
        return float
    costs = []
    for phase in data.phases:
        targets = objective.counts(phase.batch(0))
        products = step_products(model, phase.batch_size, phase.max_seq_length, targets)
        costs.append(operations(products))
    return lambda done: float(
        sum(cost * count for cost, count in zip(costs, data.counts(done), strict=True))
    )


def _held_out(path: Path | str, tokenizer: Tokenizer, data: PretrainingData) -> TokenStore:
    """Return the store `path`, which can be made into sequences like those of `data`."""
    store = TokenStore.open(path)
    store.check_tokenizer(tokenizer)
    make_instances(
        data.settings.input_format,
        store,
        tokenizer.template,
        max_seq_length=data.max_seq_length,
    )
    if store.manifest["shards"] == data.store.manifest["shards"]:
        warn(f"{path}: the text held out is the text trained on; its scores tell nothing of other")
    return store


def _evaluation(
    run: Run,
    model: Model,
    tokenizer: Tokenizer,
    objective: Objective,
    data: PretrainingData,
    held: TokenStore | None,
    precision: str,
) -> Callable[[Display, int], dict[str, float]]:
    """Return what `fit` calls along the way: the same hidden words guessed, held-out text
    scored."""
    dtype = resolve_precision(precision, next(model.parameters()).device)
    samples: MaskSamples | None = None
    if "mlm" in (as_masked_lm(model) or model).heads:
        source, seed = (data.store if held is None else held), data.settings.seed
        try:
            samples = MaskSamples(tokenizer, source, seed, max_length=data.max_seq_length)
        except BertineError as error:
            warn(f"{error}; none are shown")

    def evaluate(display: Display, step: int) -> dict[str, float]:
        if samples is not None:
            write_samples(run.folder, step, samples.fill(as_masked_lm(model) or model, dtype=dtype))
        if held is None:
            return {}
        scores = evaluate_pretraining(
            model,
            tokenizer,
            held,
            objective=objective,
            settings=InstanceSettings(
                input_format=data.settings.input_format,
                whole_word_mask=data.settings.whole_word_mask,
                ngrams=data.settings.ngrams,
                max_seq_length=data.settings.max_seq_length,
                masked_lm_prob=data.settings.masked_lm_prob,
            ),
            dtype=dtype,
        )
        main, chosen = main_term(objective.name), choosing_score(objective.name)
        line = f"held-out text after step {step}: "
        if chosen != f"{main}_loss":
            line += f"{score_name(chosen)} {scores[chosen]:.3f}, "
        line += f"{TERMS[main].title} loss"
        line += f" {scores[f'{main}_loss']:.3f}"
        if f"{main}_accuracy" in scores:
            line += f", accuracy {scores[f'{main}_accuracy']:.1%}"
        display.note(line)
        return scores

    return evaluate
