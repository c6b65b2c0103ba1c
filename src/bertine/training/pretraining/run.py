"""Run pre-training on a token store, from the initial model to the model directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bertine.core import cpu
from bertine.core.console import human_count, log_all, logger
from bertine.core.errors import BertineError
from bertine.core.loss_names import TERMS, choosing_score, main_term
from bertine.core.model_folders import recorded_model
from bertine.core.names import InputFormat, option
from bertine.core.scores import score_name
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import Batch
from bertine.corpora.collators import MakeCorruption
from bertine.corpora.formats import make_instances
from bertine.corpora.loader import default_workers
from bertine.corpora.pretraining_data import (
    PhasedData,
    PretrainingData,
    at_length,
    steps_for_tokens,
    tokens_per_step,
)
from bertine.corpora.store import TokenStore
from bertine.families.electra import as_masked_lm, generator_of, without_generator
from bertine.hub.model_directory import save_model
from bertine.inference.heldout import evaluate_pretraining
from bertine.models.config import Config
from bertine.models.heads import Model
from bertine.models.precision import resolve_precision, using_threads
from bertine.objectives.losses import Loss, Objective
from bertine.objectives.rtd import write_generator
from bertine.options.pretraining import InstanceSettings, PretrainOptions
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.checkpoint import Choice, load_best
from bertine.training.computing import computing_of_run, scored_words
from bertine.training.defaults import pretraining_config
from bertine.training.display import Display
from bertine.training.distributed import DistContext
from bertine.training.fit import fit
from bertine.training.mfu import operations, step_products
from bertine.training.pretraining.result import (
    MaskSamples,
    PretrainResult,
    last_line,
    latest_beginning,
    result_of,
    steps_for_hours,
    write_samples,
)
from bertine.training.run_folder import Run

# Warning: print before pre-training that a run is too short to learn more than frequencies.
#
# A new model first learns the frequencies of pieces, then stays on a plateau until its attention
# has learned to find the neighbours, and only then begins to use context. The number of tokens
# until then was measured (docs/results.md, "What a healthy run looks like", and docs/hour.md); the
# figures here are from there.

#: Smaller vocabularies are only used in toy examples; they were not measured, and models learn
#: sooner with them.
_LEAST_VOCABULARY = 1000
#: From this deviation of initial weights on, weights count as large; 0.06 was measured.
_LARGE_WEIGHTS = 0.05
#: The message for objectives that were not measured.
_OTHERS = {
    "rtd": " with masked words, not with replaced ones",
    "plm": " with masked words, not with words in any order",
}


def tokens_until_context(config: Config, initialization: str) -> tuple[float, float]:
    """Return the range of tokens after which a new model of this size began to use context: from,
    to.

    Args:
        config: of the model.
        initialization: "normal" or "mimetic".
    """
    if initialization == "mimetic":
        return 1.7e6, 3e6  # 2 x 256: pairs of sentences; running text
    if config.initializer_range >= _LARGE_WEIGHTS:
        return 3e6, 6e6  # 2 x 256 with 0.06: after 3 million
    if config.hidden_size >= 256:
        return 5e6, 8e6  # bert-mini and bert-small: after 6 million
    return 10e6, 15e6  # bert-tiny: not within 12 million


def too_short(
    config: Config,
    initialization: str,
    tokens: float,
    *,
    timed: bool = False,
    objective: str = "mlm",
) -> str | None:
    """Return the warning for a run that sees only `tokens`; None if they are enough.

    Args:
        config: of a model with new weights.
        initialization: of these, "normal" or "mimetic".
        tokens: real tokens that the run will see.
        timed: whether they follow from the time for the run and the machine's speed.
        objective: of the run; with replaced tokens it was not measured.
    """
    # Neither was measured; every token is a target, not one in seven.
    if config.reads_forward or config.encodes_and_decodes:
        return None
    least, most = tokens_until_context(config, initialization)
    if tokens >= least or config.vocab_size < _LEAST_VOCABULARY:
        return None
    faster = ""
    if initialization == "normal" and not config.projects_embeddings:
        low, high = tokens_until_context(config, "mimetic")
        faster = (
            f", or begin with {option('initialization', 'mimetic')} ({_millions(low)} to "
            f"{_millions(high)} M)"
        )
    return (
        f"{'at this speed the' if timed else 'the'} run sees {human_count(tokens)} tokens, but "
        f"models of this size begin to use context after {_millions(least)} to {_millions(most)} M "
        f"(measured on English{_OTHERS.get(objective, '')}); before that they learn little but how "
        f"frequent words are. Train longer{faster}"
    )


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:g}"


# Evaluation during pre-training: fill masks, and score held-out text.


def held_out_store(path: Path | str, tokenizer: Tokenizer, data: PretrainingData) -> TokenStore:
    """Open the store `path`, and check that it can be split into sequences like those of `data`."""
    store = TokenStore.open(path)
    store.check_tokenizer(tokenizer)
    make_instances(
        data.settings.input_format,
        store,
        tokenizer.template,
        max_seq_length=data.max_seq_length,
    )
    if store.manifest["shards"] == data.store.manifest["shards"]:
        logger.warning(f"{path}: the held-out text is the training text: scores are meaningless")
    return store


def evaluation(
    run: Run,
    model: Model,
    tokenizer: Tokenizer,
    objective: Objective,
    data: PretrainingData,
    held: TokenStore | None,
    precision: str,
) -> Callable[[Display, int], dict[str, float]]:
    """Return the evaluation function for `fit`: it predicts the same hidden words each time, and
    scores held-out text."""
    dtype = resolve_precision(precision, next(model.parameters()).device)
    samples: MaskSamples | None = None
    if "mlm" in (as_masked_lm(model) or model).heads:
        source, seed = (data.store if held is None else held), data.settings.seed
        try:
            samples = MaskSamples(tokenizer, source, seed, max_length=data.max_seq_length)
        except BertineError as error:
            logger.warning(f"{error}; none are shown")

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


@dataclass(frozen=True)
class PretrainSetup:
    """The initial model of a pre-training run, and its loss.

    Attributes:
        objective: defines the heads of the model, and the terms by which it is judged.
        input_format: of the sequences.
        corruption: creates the corruption of the sequences.
        model: builds the model with its initial weights, on the CPU.
        model_path: the source of its sizes or its weights.
        initialization: of new weights.
        fresh: whether all its weights are new, so that it has everything to learn.
        loss: (the model, its device) → the loss to minimize; None: the objective.
        batches: (the batch of a step, the steps of the run) → the same with more targets; None:
            unchanged.
        facts: further settings of the run.
        title: of the progress line.
    """

    objective: Objective
    input_format: InputFormat
    corruption: MakeCorruption
    model: Callable[[], Model]
    model_path: str
    initialization: str = "normal"
    fresh: bool = field(default=True, kw_only=True)
    loss: Callable[[Model, torch.device], Loss] | None = None
    batches: Callable[[Callable[[int], Batch], int], Callable[[int], Batch]] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    title: str = "pretrain"


def train_on_store(
    store: Path | str,
    out: Path | str,
    options: PretrainOptions,
    begin: Callable[[TokenStore, Tokenizer], PretrainSetup],
    *,
    world: DistContext,
    began: float,
) -> PretrainResult:
    """Train on a store, and write the model directory; see :func:`bertine.pretrain`.

    Args:
        begin: (the opened store, its tokenizer) → the initial model and the loss.
        world: the processes of the run, which all call this.
        began: the time of :func:`time.monotonic` when the time of the run began.

    Raises:
        BertineError: what :func:`bertine.pretrain` raises, except for errors of its options alone.
    """
    steps, hours, resume = options.steps, options.hours, options.resume
    where = world.device
    opened = TokenStore.open(store)
    tokenizer = Tokenizer.load(opened.tokenizer_path)
    beginning = begin(opened, tokenizer)
    objective = beginning.objective
    lengths, shares = [options.max_seq_length], [1.0]
    if options.long_seq_length is not None:
        lengths.append(options.long_seq_length)
        shares = [1.0 - options.long_share, options.long_share]
    instances = InstanceSettings.of(
        options,
        input_format=beginning.input_format,
        mask_split=options.mask_split or objective.mask_split,
    )
    phases = [
        PretrainingData(
            opened, tokenizer, at_length(instances, length), corruption=beginning.corruption
        )
        for length in lengths
    ]
    held = (
        None if options.held_out is None else held_out_store(options.held_out, tokenizer, phases[0])
    )
    built = beginning.model()
    _check_lengths(lengths, built.config.longest_input)
    weights_fingerprint = built.fingerprint()
    built.to(where)
    loss = beginning.objective if beginning.loss is None else beginning.loss(built, where)
    workers = options.workers
    if workers is None:
        workers = default_workers(where, cpu.local_processes())
    first = phases[0].batch(0)
    tokens, words = first.input_ids.numel(), scored_words(objective.counts(first))
    computing = computing_of_run(out, options.precision, resume, built, world, tokens, words)
    if options.tokens is not None:
        steps = steps_for_tokens(options.tokens, phases, shares)
    elif hours is not None and steps is None:
        with using_threads(computing.threads):
            steps = world.alone(lambda: Run.steps(out)) or steps_for_hours(
                hours,
                built,
                loss,
                [phase.batch for phase in phases],
                shares,
                began=began,
                precision=computing.precision,
                max_tokens_per_micro_batch=options.max_tokens_per_micro_batch,
                world=world,
                shard=options.shard,
                compile=options.compile,
                workers=workers,
                updates=options,
            )
    assert steps is not None
    data = PhasedData(phases, shares, steps)
    log_all(data.warnings(), logger.warning)
    if beginning.fresh and not resume:
        to_see = steps * tokens_per_step(phases, shares)
        short = too_short(
            built.config,
            beginning.initialization,
            to_see,
            timed=hours is not None,
            objective=objective.name,
        )
        if short is not None:
            logger.warning(short)
    config, every = pretraining_config(options, steps, workers, where, computing.precision)
    settings = {
        "objective": objective.name,
        **objective.settings(),
        **_described(data),
        **config.settings(),
        **computing.facts,
        **recorded_model(beginning.model_path, sizes=True),
        "initialization": beginning.initialization,
        "weights_fingerprint": weights_fingerprint,
        "device": where.type,
        "architecture": built.config.to_dict(),
        "save_best": options.save_best,
        "evaluate_every": every,
        "held_out_tokens": None if held is None else held.num_tokens,
        **beginning.facts,
    }
    with Run.open(out, settings, resume, world=world, shard=options.shard) as run:
        passes = f"{data.epochs:.2g}" if data.epochs < 10 else f"{data.epochs:,.0f}"
        epochs = "1 epoch" if passes == "1" else f"{passes} epochs"
        logger.info(
            f"{human_count(built.num_parameters())} parameters, {human_count(opened.num_tokens)} "
            f"tokens in the store, {steps} steps of {options.batch_size} sequences "
            f"({epochs}); unigram entropy {opened.unigram_entropy:.3f} nats"
        )
        if run.finished:
            world.alone(lambda: run.say_finished(options.save_best))
            if options.save_generator and not run.generator.exists():
                logger.warning(
                    f"{run.folder}: {option('save_generator', True)} has no effect on a finished "
                    "run: the generator is in its newest checkpoint alone"
                )
        else:
            fit(
                built,
                loss,
                data.batch if beginning.batches is None else beginning.batches(data.batch, steps),
                config,
                run,
                title=beginning.title,
                work=_work(built, objective, data),
                facts={"unigram_entropy": opened.unigram_entropy},
                evaluate=evaluation(
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


def _check_lengths(lengths: Sequence[int], positions: int) -> None:
    """Refuse sequences that are longer than the model's positions.

    Raises:
        BertineError: those of a phase are.
    """
    for name, length in zip(("max_seq_length", "long_seq_length"), lengths, strict=False):
        if length > positions:
            raise BertineError(f"{name} is {length}, but the model has positions for {positions}")


def _described(data: PhasedData) -> dict[str, Any]:
    """Return the facts about the data for a run's settings."""
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
    """Write the model directory, with the best weights if the options ask for them; warn of a
    second phase that was cut short."""
    if options.save_best:
        load_best(run.checkpoints, model)
    final = last_line(run, settings["objective"])
    if len(data.phases) > 1 and final["step"] < data.steps:
        done, planned = (max(0, step - data.starts[-1]) for step in (final["step"], data.steps))
        reason = "the time was enough for" if options.hours is not None else "the run came to"
        logger.warning(
            f"{reason} {done:,} of the {planned:,} steps with sequences of "
            f"{options.long_seq_length} tokens; a larger long_share begins them earlier"
        )
    length = max(phase.max_seq_length for phase in data.phases)
    facts = {**settings, "final": final, "environment": run.environment}
    task = TaskInfo("pretraining", max_length=length, training=facts)
    if generator_of(model) is not None and options.save_generator:
        write_generator(run.generator, model, tokenizer, task)
    # Last, because its presence marks the run as done.
    save_model(run.model, without_generator(model), tokenizer, task=task)


def _work(model: Model, objective: Objective, data: PhasedData) -> Callable[[int], float]:
    """Return the amount of arithmetic in the first n steps, as a function of n; a step of long
    sequences has more."""
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
