"""``pretrain``: a token store in, a model directory out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bertine.cores import launch
from bertine.data.instances.formats import make_instances
from bertine.data.instances.phases import PhasedData, predictions, steps_for_tokens, tokens_per_step
from bertine.data.instances.pretraining import PretrainingData
from bertine.data.loader import default_workers
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.inference.heldout import evaluate_pretraining
from bertine.modeldir import save_model
from bertine.models.model import Model
from bertine.models.precision import precision_name, resolve_precision
from bertine.names import Initialization, InputFormat, Masking, ObjectiveName, Precision
from bertine.objectives import objective as named_objective
from bertine.objectives.base import Objective
from bertine.options.names import option
from bertine.options.types import check_types
from bertine.taskinfo import TaskInfo
from bertine.terminal.console import human_count, say, warn
from bertine.terms import TERMS, main_term
from bertine.text.tokenizer import Tokenizer
from bertine.training.arguments import made
from bertine.training.distributed.world import join, together
from bertine.training.loop.best import Choice, load_best
from bertine.training.loop.ceiling import useful_operations
from bertine.training.loop.display import Display
from bertine.training.loop.fit import FitConfig, fit
from bertine.training.loop.schedule import warmup
from bertine.training.pretraining.expectation import too_short
from bertine.training.pretraining.initial_weights import has_weights, starting_model
from bertine.training.pretraining.result import PretrainResult, last_line, result_of
from bertine.training.pretraining.samples import MaskSamples, write_samples
from bertine.training.pretraining.speed import latest_beginning, steps_for_hours
from bertine.training.run import Run

#: Of the paper's steps, those with long sequences.
_LONG_SHARE = 0.1
#: Evaluations of a run, where nobody says how many.
_EVALUATIONS = 20


@check_types
@together
def pretrain(
    store: Path | str,
    *,
    model: Path | str,
    out: Path | str,
    steps: int | None = None,
    tokens: int | None = None,
    hours: float | None = None,
    objective: ObjectiveName = "mlm-nsp",
    input_format: InputFormat = "segment-pair",
    batch_size: int = 32,
    max_seq_length: int = 128,
    long_seq_length: int | None = None,
    long_share: float = _LONG_SHARE,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int | None = None,
    mask_split: Sequence[float] = (0.8, 0.1, 0.1),
    whole_word_mask: bool = False,
    masking: Masking = "dynamic",
    dupe_factor: int = 10,
    short_seq_prob: float = 0.1,
    learning_rate: float = 1e-4,
    warmup_steps: int | None = None,
    warmup_ratio: float = 0.01,
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-6,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    dropout: float | None = None,
    initialization: Initialization = "normal",
    initializer_range: float | None = None,
    held_out: Path | str | None = None,
    evaluate_every: int | None = None,
    workers: int | None = None,
    compile: bool = True,
    device: str | None = None,
    precision: Precision = "auto",
    shard: bool = False,
    seed: int = 0,
    checkpoint_every: int | None = 1000,
    keep_checkpoints: int = 2,
    save_best: bool = False,
    log_every: int = 10,
    tensorboard: bool = False,
    resume: bool = False,
) -> PretrainResult:
    """Pre-train with masked LM and next-sentence prediction (paper, section 3.1 and appendix A),
    or with masked LM alone.

    Args:
        store: what ``prepare`` wrote, its tokenizer inside.
        model: a preset ("bert-mini") or a configuration file (``config.json``, with the sizes
            of your own; its vocabulary size gives way to the tokenizer's) for new weights, or a
            model directory to go on from. Its vocabulary must be the store's, or the store's an
            extension of it (``train_vocab`` with `extend`): new pieces then begin as the mean of
            their old ones.
        out: the run's folder; the model directory is ``out/model``.
        steps: updates; or
        tokens: real tokens to see, about: turned into steps by the mean length of a batch; or
        hours: of wall time, evaluations and checkpoints counted. The speed is measured first, to
            plan with, and the run keeps to the time whatever the machine does later
            (:mod:`bertine.training.loop.progress`). With `steps` or `tokens` these are the most
            that are done in the time.
        objective: "mlm-nsp", or "mlm" without next sentences.
        input_format: what a sequence is made of: "segment-pair" or "sentence-pair", or with "mlm"
            alone "full-sentences" or "doc-sentences" (:mod:`bertine.data.instances.formats`).
        batch_size: sequences in an update.
        max_seq_length: tokens of a sequence with its special tokens, at the most.
        long_seq_length: of a second phase, as in the paper: the last `long_share` of the steps
            have sequences of this length. One schedule runs over both. None: one phase.
        masked_lm_prob: share of the tokens that are predicted.
        max_predictions_per_seq: at most so many of a sequence; None: as many as `masked_lm_prob`
            asks for in a full one.
        mask_split: of the predicted tokens, the shares that become the mask, become a random token,
            stay.
        whole_word_mask: choose whole words for prediction.
        masking: "dynamic", anew at every step, or "static", in the same `dupe_factor` ways again
            (:class:`~bertine.data.instances.pretraining.PretrainingData`).
        short_seq_prob: share of segment pairs that are made shorter at random.
        learning_rate: its highest value; it rises over the warm-up and falls linearly to 0.
        warmup_steps: with a rising rate; None: the share `warmup_ratio` of all.
        weight_decay: of AdamW; none on biases and norms.
        adam_beta1, adam_beta2, adam_epsilon: settings of AdamW, as in the paper's code.
        bias_correction: of Adam; the paper's code has none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most so many tokens: the
            same result in less memory; None: by the device.
        dropout: on hidden states and attention, in place of the model's own rate.
        initialization: of new weights: "normal", as published, or "mimetic", with heads that look
            at neighbours and at tokens like their own from the first step on, which saves the
            time until they find them (:mod:`bertine.models.mimetic`).
        initializer_range: standard deviation of new weights, in place of the model's own (0.02 for
            the presets). Small models learn sooner with larger ones.
        held_out: a store of other text, made with the same tokenizer; evaluated along the way.
        evaluate_every: steps between evaluations, and between guesses at the same hidden words
            (``samples.jsonl``); None: twenty in a run.
        workers: processes that make the coming batches while the model computes; the result is
            the same with any number. None: 0 on a CPU, whose cores training uses itself; on a
            GPU up to four (:func:`bertine.data.loader.default_workers`).
        compile: on a GPU, compile the model's parts with ``torch.compile``; a CPU does without.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
        precision: ``"auto"`` (bf16 where the machine has it), ``"bf16"`` or ``"fp32"``.
        shard: where ``torchrun`` started several processes, divide weights, gradients and
            moments among them in place of keeping all in each.
        seed: random seed.
        checkpoint_every: steps between checkpoints; None: none but that of the best evaluation.
        keep_checkpoints: older ones are removed, but for that of the best evaluation.
        save_best: the model directory gets the weights of the best evaluation on `held_out` (the
            lowest MLM loss), not the last ones. Their checkpoint is kept in any case.
        log_every: steps between lines of ``log.jsonl``.
        tensorboard: write TensorBoard files as well.
        resume: go on from the last checkpoint in `out`, exactly as if never stopped.

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
    given = dict(locals())  # every argument, before there are other names
    began = time.monotonic()
    world = join(device)
    where = world.device
    world.alone(lambda: Run.check(out, resume))
    chosen = named_objective(objective, input_format=input_format)
    main, open_end = main_term(chosen.name), steps is None and tokens is None
    if (open_end and hours is None) or (steps is not None and tokens is not None):
        raise BertineError(
            f"say how long to train: give one of {option('steps')}, {option('tokens')} and "
            f"{option('hours')}"
        )
    if hours is not None and not hours > 0:
        raise BertineError(f"hours is {hours:g}, but must be above 0")
    if not 0.0 < long_share < 1.0:
        raise BertineError(f"long_share is {long_share:g}, but must be between 0 and 1")
    if long_seq_length is None and long_share != _LONG_SHARE:
        warn(
            f"long_share {long_share:g} does nothing without a second phase; "
            f"{option('long_seq_length')} "
            "gives its length"
        )
    if save_best and held_out is None:
        raise BertineError(
            f"save_best needs text to tell what is best; give it with {option('held_out')}"
        )
    opened = TokenStore.open(store)
    tokenizer = Tokenizer.load(opened.tokenizer_path)
    lengths = [max_seq_length] if long_seq_length is None else [max_seq_length, long_seq_length]
    shares = [1.0] if long_seq_length is None else [1.0 - long_share, long_share]
    phases = [
        PretrainingData(
            opened,
            tokenizer,
            batch_size=batch_size,
            max_seq_length=length,
            seed=seed,
            masked_lm_prob=masked_lm_prob,
            max_predictions_per_seq=predictions(masked_lm_prob, length)
            if max_predictions_per_seq is None
            else max_predictions_per_seq,
            mask_split=_three(mask_split),
            short_seq_prob=short_seq_prob,
            input_format=input_format,
            whole_word_mask=whole_word_mask,
            masking=masking,
            dupe_factor=dupe_factor,
            corruption=chosen.corruption,
        )
        for length in lengths
    ]
    held = None if held_out is None else _held_out(held_out, tokenizer, phases[0])
    built = starting_model(
        model, chosen, opened, tokenizer, dropout, seed, initialization, initializer_range
    )
    positions = built.config.longest_input
    for name, length in zip(("max_seq_length", "long_seq_length"), lengths, strict=False):
        if length > positions:
            raise BertineError(f"{name} is {length}, but the model has positions for {positions}")
    weights_fingerprint = built.fingerprint()
    built.to(where)
    making = default_workers(where, launch.beside()) if workers is None else workers
    if tokens is not None:
        steps = steps_for_tokens(tokens, phases, shares)
    elif hours is not None and steps is None:
        steps = world.alone(lambda: Run.steps(out)) or steps_for_hours(
            hours,
            built,
            chosen,
            [phase.batch for phase in phases],
            shares,
            began=began,
            precision=precision,
            max_tokens_per_micro_batch=max_tokens_per_micro_batch,
            world=world,
            shard=shard,
            compile=compile,
            workers=making,
        )
    assert steps is not None
    data = PhasedData(phases, shares, steps)
    for warning in data.warnings():
        warn(warning)
    if not has_weights(model) and not resume:
        seen = steps * tokens_per_step(phases, shares)
        if told := too_short(built.config, initialization, seen, timed=hours is not None):
            warn(told)
    config = made(
        FitConfig,
        given,
        steps=steps,
        warmup_steps=warmup(steps, warmup_steps, warmup_ratio),
        precision=precision_name(precision, where),
        budget_seconds=None if hours is None else 3600 * hours,
        workers=making,
        compile=compile if where.type == "cuda" else None,
    )
    if config.warmup_steps > steps / 2:
        warn(
            f"the learning rate rises for {config.warmup_steps:,} of {steps:,} steps"
            + (", so it never comes to its height" if config.warmup_steps >= steps else "")
            + f"; 1% to 10% are usual, {option('warmup_steps')} says how many"
        )
    every = evaluate_every or max(1, steps // _EVALUATIONS)
    described = data.describe()
    described["data_path"] = described.pop("store")
    if opened.duplicate_share is not None:
        described["duplicate_share"] = opened.duplicate_share
    settings = {
        "objective": chosen.name,
        **described,
        **dataclasses.asdict(config),
        "model_path": str(model),
        "initialization": initialization,
        "weights_fingerprint": weights_fingerprint,
        "device": where.type,
        "architecture": built.config.to_dict(),
        "save_best": save_best,
        "evaluate_every": every,
        "held_out_tokens": None if held is None else held.num_tokens,
    }
    with Run.held(out, settings, resume, world=world, shard=shard) as run:
        epochs = f"{data.epochs:.2g}" if data.epochs < 10 else f"{data.epochs:,.0f}"
        say(
            f"{human_count(built.num_parameters())} parameters, {human_count(opened.num_tokens)} "
            f"tokens in the store, {steps} steps of {batch_size} sequences "
            f"({epochs} epochs); unigram entropy {opened.unigram_entropy:.3f} nats"
        )
        if run.finished:
            world.alone(lambda: run.say_finished(save_best))
            return result_of(run, opened, mask_split[2], world, objective=chosen.name)
        fit(
            built,
            chosen,
            data.batch,
            config,
            run,
            title="pretrain",
            work=_work(built, data),
            facts={"unigram_entropy": opened.unigram_entropy},
            evaluate=_evaluation(run, built, tokenizer, chosen, phases[0], held, config.precision),
            evaluate_every=every,
            choose=None if held is None else Choice(f"{main}_loss", highest=False),
            world=world,
            shard=shard,
            open_end=open_end,
            began=began if hours is None else latest_beginning(began, hours),
        )

        def save() -> None:
            if save_best:
                load_best(run.checkpoints, built)
            final = last_line(run, chosen.name)
            if len(phases) > 1 and final["step"] < steps:
                done, planned = (max(0, at - data.starts[-1]) for at in (final["step"], steps))
                warn(
                    f"the time was enough for {done:,} of the {planned:,} steps with sequences of "
                    f"{long_seq_length} tokens; a larger long_share begins them earlier"
                )
            facts = {**settings, "final": final}
            task = TaskInfo(name="pretraining", max_length=max(lengths), training=facts)
            save_model(run.model, built, tokenizer, task=task)

        world.alone(save)
        return result_of(run, opened, mask_split[2], world, objective=chosen.name)


def _work(model: Model, data: PhasedData) -> Callable[[int], float]:
    """The arithmetic of the first so many steps: those of a phase of long sequences have more."""
    costs = [
        useful_operations(
            model.config,
            torch.full((phase.batch_size,), phase.max_seq_length),
            phase.batch_size * (phase.max_predictions_per_seq or 0),
        )
        for phase in data.phases
    ]
    return lambda done: float(
        sum(cost * count for cost, count in zip(costs, data.counts(done), strict=True))
    )


def _three(shares: Sequence[float]) -> tuple[float, float, float]:
    if len(shares) != 3:
        raise BertineError(
            f"mask_split is {list(shares)}, but must be three shares: masked, random, kept"
        )
    return (shares[0], shares[1], shares[2])


def _held_out(path: Path | str, tokenizer: Tokenizer, data: PretrainingData) -> TokenStore:
    """The store `path`, which can be made into sequences like those of `data`."""
    store = TokenStore.open(path)
    store.check_tokenizer(tokenizer)
    make_instances(data.input_format, store, tokenizer.template, max_seq_length=data.max_seq_length)
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
    """What `fit` calls along the way: the same hidden words guessed, held-out text scored."""
    dtype = resolve_precision(precision, next(model.parameters()).device)
    samples: MaskSamples | None = None
    try:
        source = data.store if held is None else held
        samples = MaskSamples(tokenizer, source, data.seed, max_length=data.max_seq_length)
    except BertineError as error:
        warn(f"{error}; none are shown")

    def evaluate(display: Display, step: int) -> dict[str, float]:
        if samples is not None:
            write_samples(run.folder, step, samples.fill(model, dtype=dtype))
        if held is None:
            return {}
        scores = evaluate_pretraining(
            model,
            tokenizer,
            held,
            objective=objective,
            input_format=data.input_format,
            whole_word_mask=data.whole_word_mask,
            max_seq_length=data.max_seq_length,
            masked_lm_prob=data.masked_lm_prob,
            dtype=dtype,
        )
        main = main_term(objective.name)
        line = f"held-out text after step {step}: {TERMS[main].title} loss"
        line += f" {scores[f'{main}_loss']:.3f}"
        if f"{main}_accuracy" in scores:
            line += f", accuracy {scores[f'{main}_accuracy']:.1%}"
        display.note(line)
        return scores

    return evaluate
