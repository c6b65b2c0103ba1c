"""The one training loop, for pre-training and fine-tuning.

A step's batch is a function of the step, dropout is a function of (seed, step), and the schedule
is a function of the step; so weights, optimizer moments and the step decide all that follows, and
with the sums for the next line of the log they are a run's whole state: a run resumed from a
checkpoint is bit for bit the run that was never stopped.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any

from bertine.cores.neighbours import OtherPrograms
from bertine.data.batch import Batch
from bertine.data.checks import check_batch
from bertine.data.loader import batches_ahead
from bertine.errors import BertineError
from bertine.models.model import Model
from bertine.models.precision import resolve_precision
from bertine.names import Precision
from bertine.objectives.base import Objective
from bertine.options.fields import option
from bertine.options.names import option as named_option
from bertine.options.optimization import Patience, Updates
from bertine.options.run import RunFiles, Seed
from bertine.training.distributed.world import World
from bertine.training.loop.best import Best, Choice, restored
from bertine.training.loop.ceiling import Gauge
from bertine.training.loop.checkpoint import load_checkpoint, save_checkpoint
from bertine.training.loop.device import Norms, wait_for
from bertine.training.loop.display import Display, facts_of
from bertine.training.loop.interrupt import Interrupt
from bertine.training.loop.meter import Meter
from bertine.training.loop.optim import AdamW
from bertine.training.loop.progress import Progress, time_line
from bertine.training.loop.schedule import momentum, schedule
from bertine.training.loop.step import Stepper
from bertine.training.loop.tracking import NoTracker, Tracker, require_tensorboard
from bertine.training.run import Run


@dataclass(frozen=True, kw_only=True)
class FitConfig(Updates, Patience, Seed, RunFiles):
    """How to minimize, all values resolved.

    The rate has a shape, that of `schedule`, over `steps`; with `budget_seconds`, of wall time,
    evaluations and checkpoints counted, and what a run used before it was resumed, it is divided
    among the steps that there is time for (:mod:`bertine.training.loop.progress`). Such a run sees
    the same batches each time, but not at the same rates. The seed is that of dropout; `patience`
    counts evaluations, by `choose` of :func:`fit`; where `checkpoint_every` is None, only the best
    evaluation has a checkpoint; `compile` is None where nothing is compiled
    (:mod:`bertine.models.compiled`).

    Raises:
        BertineError: a value is out of range or not known.
    """

    steps: int = option(MISSING, "updates of the weights", least=1)
    learning_rate: float = option(MISSING, "its highest value", least=0)
    warmup_steps: int = option(0, "of the steps, with a rising rate", least=0)
    precision: Precision = "auto"
    budget_seconds: float | None = option(None, "of wall time; None: no limit", above=0)
    workers: int = option(0, "processes that make the coming batches", least=0)
    compile: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_precision(self.precision)
        if self.tensorboard:
            require_tensorboard()


def optimizer_for(model: Model, config: FitConfig) -> AdamW:
    """The optimizer that `config` describes, of all parameters of `model` that are trained."""
    return AdamW(
        model,
        weight_decay=config.weight_decay,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        bias_correction=config.bias_correction,
        layer_decay=config.layer_decay,
    )


def fit(
    model: Model,
    objective: Objective,
    batch: Callable[[int], Batch],
    config: FitConfig,
    run: Run,
    *,
    title: str = "train",
    work: Callable[[int], float] = float,
    facts: dict[str, float] | None = None,
    evaluate: Callable[[Display, int], dict[str, float]] | None = None,
    evaluate_every: int | None = None,
    world: World | None = None,
    shard: bool = False,
    choose: Choice | None = None,
    open_end: bool = False,
    began: float | None = None,
) -> list[dict[str, Any]]:
    """Minimize `objective` over ``batch(0)``, ``batch(1)``, …, ``batch(steps - 1)``.

    Args:
        model: updated in place; left in evaluation mode.
        batch: a pure function of the step.
        run: where the log and the checkpoints go; says what to resume from.
        work: how much of the run the first so many steps are, in any unit, for the time left;
            not given: all steps are alike.
        facts: constants that every line of the log carries.
        evaluate: called with the number of steps done, every `evaluate_every` of them and at the
            end; its scores, if it gives any, go to the log.
        world: the processes that compute each step together (None: this one by itself). All
            call this with the same arguments; the first one alone evaluates and writes.
        shard: divide weights, gradients and moments among them. Then `model` has its new weights
            in the first process only; in the others it is emptied.
        choose: by which of the scores the best evaluation is told, whose checkpoint is then
            kept besides the newest (:mod:`bertine.training.loop.best`).
        open_end: with ``budget_seconds``, go on after ``steps`` steps until the time is over;
            otherwise they are the most that are done.
        began: the time of :func:`time.monotonic` when the time of the run began; None: now.

    Returns:
        The entries of evaluations, with their steps.

    Raises:
        BertineError: the loss is not finite, an id is out of range, the disk is full.
        KeyboardInterrupt: after the step has been ended and a checkpoint written, if the run
            writes any.
    """
    device = next(model.parameters()).device
    world = world or World(device=device)
    dtype = resolve_precision(config.precision, device)
    rate, swing = schedule(config.schedule), momentum(config.schedule)
    stepper = Stepper(
        model,
        objective,
        batch,
        world=world,
        dtype=dtype,
        max_tokens=config.max_tokens_per_micro_batch,
        shard=shard,
        compile=config.compile,
    )
    trained = stepper.model
    optimizer = optimizer_for(trained, config)
    start, tokens, elapsed, used, position = 0, 0, 0.0, 0.0, None
    meter = Meter()
    weights: dict[str, float] = {}
    last = False
    best: Best | None = None
    norms = Norms(config.learning_rate)
    gauge = Gauge(trained, dtype=dtype, max_tokens=stepper.max_tokens, processes=world.size)
    if run.checkpoint is not None:
        state = load_checkpoint(run.checkpoint, trained, optimizer, world)
        start, tokens, elapsed = state["step"], state["tokens"], state["elapsed"]
        used, last = state.get("used", 0.0), state.get("over", False)
        position = state.get("position")
        meter = Meter.resumed(state, world, device)
        best = restored(state)
    tracker = (
        Tracker(run.folder, resume_step=start, tensorboard=config.tensorboard)
        if world.main
        else NoTracker()
    )
    scores: list[dict[str, Any]] = []
    done = start
    opened = (time.monotonic() if began is None else began) - used
    budget = config.budget_seconds
    latest = opened + (math.inf if budget is None else budget)
    progress = Progress(config.steps, budget, most=not open_end, done=start, position=position)

    others = OtherPrograms()

    def now() -> float:
        """Seconds of the run until now, the same in all processes."""
        return 0.0 if budget is None else world.from_main(time.monotonic() - opened)

    def impatient() -> bool:
        """Whether so many evaluations were not better than the best that the run ends."""
        if config.patience is None or best is None or not evaluate_every:
            return False
        return done - best.step >= config.patience * evaluate_every

    def due(after: int) -> bool:
        """Whether something is written after so many steps."""
        every = (config.log_every, config.checkpoint_every, evaluate_every, config.steps)
        return any(number and after % number == 0 for number in every)

    def log(display: Display, learning_rate: float) -> None:
        """Write what the steps since the last line came to."""
        nonlocal meter
        entry = {
            "step": done,
            **Meter.joined(world.gather(meter.state()), device).means(weights),
            **gauge.facts(max(0, progress.expected - done)),
            **(facts or {}),
            "learning_rate": learning_rate,
            "grad_norm": norms.look(done),
            "tokens": tokens,
            "elapsed": elapsed,
        }
        meter = Meter()
        tracker.log(entry)
        shown = facts_of(entry)
        # Processes that compute together, and workers, are no others.
        if world.size == 1 and not config.workers:
            display.other_programs(others.line())
        display.update(done, shown, progress.expected)

    def checkpoint() -> None:
        norms.look(done)
        tracker.sync()
        meters = world.gather(meter.state())
        save_checkpoint(
            run.checkpoints,
            trained,
            optimizer,
            {
                "step": done,
                "tokens": tokens,
                "elapsed": elapsed,
                "used": time.monotonic() - opened,
                "position": progress.position,
                "over": last,
                "meter": Meter.joined(meters, device).state(),
                **({"meters": meters} if world.size > 1 else {}),
                "best": None if best is None else best.to_dict(),
            },
            config.keep_checkpoints,
            world,
        )

    trained.train()
    with (
        stepper.training(),
        Interrupt() as interrupt,
        batches_ahead(
            batch, start, sys.maxsize if open_end else config.steps, workers=config.workers
        ) as next_batch,
        # How many steps there will be is not known, so the phases of `work` are not either.
        Display(title, config.steps, start, float if open_end else work, latest) as display,
    ):
        if start:
            display.note(f"resumed from {run.checkpoint}")
        try:
            # Not asked of the time: where it was up with the checkpoint, a step and what is
            # written at the end are still to come.
            last = last or (done >= config.steps and not open_end) or impatient()
            while not last:
                at = progress.begin(now())
                start_of_step = time.perf_counter()
                step = done
                whole = next_batch(step)
                check_batch(whole, model.config)
                for terms in stepper.accumulate(whole, [config.seed, step]):
                    meter.add(terms)
                    weights = {name: term.weight for name, term in terms.items()}
                learning_rate = config.learning_rate * rate(at, config.steps, config.warmup_steps)
                if swing is not None:
                    beta1 = config.adam_beta1 + swing(at, config.steps, config.warmup_steps)
                    optimizer.set_beta1(min(max(beta1, 0.0), 0.999))
                norms.add(optimizer.clipped_step(learning_rate, config.max_grad_norm), step + 1)
                optimizer.zero_grad(set_to_none=True)
                if due(step + 1):
                    wait_for(device)
                spent = time.perf_counter() - start_of_step
                meter.tokens += whole.num_tokens
                meter.seconds += spent
                gauge.add(whole, spent)
                tokens += whole.num_tokens
                elapsed += spent
                done += 1
                progress.end(now())
                last = progress.over
                if done % config.log_every == 0 or last:
                    log(display, learning_rate)
                else:
                    display.update(done)
                if evaluate and (last or (evaluate_every and progress.passed(evaluate_every))):
                    stepper.collect()
                    before = now()
                    found = world.alone(lambda: evaluate(display, done))  # noqa: B023
                    progress.reserve(now() - before)
                    if found:
                        best = choose.better(best, done, found) if choose else None
                        scores.append({"step": done, **found})
                        tracker.log({"step": done} | {f"eval_{k}": v for k, v in found.items()})
                    trained.train()
                    if not last and impatient() and best is not None:
                        last = True
                        if done % config.log_every:
                            log(display, learning_rate)
                        display.note(
                            f"stopped early after step {done}: {best.metric} was best after step "
                            f"{best.step}, {best.value:.4f}"
                        )
                # After the evaluation: what is resumed from here has its scores in the log.
                stop = world.any(interrupt.requested)
                improved = best is not None and best.step == done
                if improved or (
                    config.checkpoint_every and (done % config.checkpoint_every == 0 or stop)
                ):
                    checkpoint()
                if stop:
                    if config.checkpoint_every:
                        display.note(
                            f"stopped after step {done}; go on with {named_option('resume', True)}"
                        )
                    raise KeyboardInterrupt
            if budget is not None and progress.over and done != config.steps:
                display.note(time_line(done, config.steps))
        except BertineError:
            if done == 0 and world.main:
                run.discard()
            raise
        finally:
            tracker.close()
    stepper.close()
    model.eval()
    return scores
