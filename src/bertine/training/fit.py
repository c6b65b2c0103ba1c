"""Run the training loop of pre-training and fine-tuning: ``fit``, with its progress and its state.

The batch of a step, its dropout (a function of seed and step) and its learning rate depend only on
the step. So weights, optimizer moments and the step determine all that follows, and together with
the sums for the next line of the log they are the whole state of a run: a run resumed from a
checkpoint is bit for bit the run that was never stopped.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, NamedTuple

from bertine.core.errors import BertineError
from bertine.core.names import Precision, option
from bertine.core.process import release_freed_memory
from bertine.core.spin_count import CpuContention
from bertine.corpora.batch import Batch, check_batch
from bertine.corpora.loader import batches_ahead
from bertine.models.heads import Model
from bertine.models.precision import precision_name, rates_for, resolve_precision
from bertine.objectives.losses import Loss
from bertine.options.declare import declare, declared
from bertine.options.training import Patience, RunOutput, Seed, Updates
from bertine.training.checkpoint import (
    Best,
    Choice,
    Interrupt,
    load_checkpoint,
    restored,
    save_checkpoint,
    stop_requested,
)
from bertine.training.display import Display, NoTracker, Tracker, facts_of, require_tensorboard
from bertine.training.distributed import DistContext
from bertine.training.mfu import MfuMeter
from bertine.training.optimizers import optimizer_for
from bertine.training.parallel import Norms, wait_for
from bertine.training.run_folder import Run
from bertine.training.schedules import momentum, schedule
from bertine.training.step import Meter, TrainStep

# Progress: the position of a run in its schedule, by steps or by time.
#
# A run with a time limit follows the clock. Before each step it estimates, from the duration of the
# last steps, how many steps the remaining time is enough for, and it spreads the rest of the
# schedule over these. So the rate reaches 0 when the time is over, even if the machine becomes
# slower (another program has started) or is faster than when its speed was measured.

#: The duration of the next step is estimated by the median of this many last steps.
_RECENT = 31
#: Fewer steps than this are not enough for a median: the first steps are slow, they compile.
_FEW = 5
#: Until steps have been measured, assume that there is time for at least this many.
_UNKNOWN = 20
#: If something used up the remaining time at once, the rate comes down within this additional share
#: of the time.
_GRACE = 0.02


class Progress:
    """The steps of a run, and the position in its schedule.

    Args:
        steps: the steps of the schedule; without `seconds` those of the run.
        seconds: the time limit of the run; None: no limit.
        most: no more than `steps` are done, even if there is time for them.
        done: steps before this process began.
        position: the position in the schedule then, in `steps`; None: at `done`.

    Attributes:
        done: steps until now.
        position: the position in the schedule, in `steps`.
        expected: the number of steps that the run will have, as estimated now.
        over: whether the run has come to its end.
    """

    def __init__(
        self,
        steps: int,
        seconds: float | None = None,
        *,
        most: bool = True,
        done: int = 0,
        position: float | None = None,
    ) -> None:
        self.steps, self.done = steps, done
        self.position: float = done if position is None else position
        self.expected = steps
        self.over = seconds is None and done >= steps
        self._seconds, self._most = seconds, most
        self._before = self.position
        self._first, self._pauses, self._reserved = done, 0.0, 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._began = 0.0
        self._ended: float | None = None

    def begin(self, now: float) -> float:
        """Begin a step at `now`, in seconds from the beginning of the run; return the position in
        the schedule that decides its rate, as a step."""
        self._began = now
        if self._ended is not None:
            self._pauses += now - self._ended
        self._before = self.position
        if self._seconds is None:
            self.position = self.done + 1
            return self.done
        left = self._steps_left(now)
        self.expected = self.done + max(1, round(left))
        rest = self.steps - self.position
        self.position = self.steps if left < 1.5 else self.position + rest / left
        # The time is over: the rest of the schedule is dropped.
        return self.steps if left == 0.0 else (self._before + self.position - 1) / 2

    def end(self, now: float) -> None:
        """Record that the current step is done at `now`."""
        self._recent.append(now - self._began)
        self._ended = now
        self.done += 1
        self.over = self.position >= self.steps or (self._most and self.done >= self.steps)

    def reserve(self, seconds: float) -> None:
        """Reserve `seconds` for the work after the last step."""
        self._reserved = seconds

    def passed(self, every: int) -> bool:
        """Return whether the last step has reached or passed a multiple of `every` steps of the
        schedule."""
        return int(self.position / every) > int(self._before / every)

    def _steps_left(self, now: float) -> float:
        """Return how many steps there is time for; 0: not even for one step that brings the rate
        down."""
        assert self._seconds is not None
        rest = self.steps - self.position
        if now > (1 + _GRACE) * self._seconds:
            return 0.0
        left = max(self._seconds - now - self._reserved, _GRACE * self._seconds * rest / self.steps)
        step = self._step_seconds()
        # As planned, until durations are known; but a plan of very few steps may have been a
        # mistake.
        planned = rest if self._most else max(rest, _UNKNOWN)
        count = planned if step is None else left / step
        return min(count, self.steps - self.done) if self._most else count

    def _step_seconds(self) -> float | None:
        """Return the seconds from the beginning of a step to that of the next; None: not known
        yet."""
        if len(self._recent) < 2:
            return None
        usual = min(self._recent) if len(self._recent) < _FEW else statistics.median(self._recent)
        return max(usual, 1e-9) + self._pauses / (self.done - self._first)


def time_line(done: int, planned: int) -> str:
    """Return the note on a run that ended because its time was over."""
    if done < planned:
        return f"the time was over after {done:,} of {planned:,} steps"
    return f"the time was enough for {done:,} steps, {done - planned:,} more than expected"


class FitConfig(Updates, Patience, Seed, RunOutput):
    """The settings of the training loop, all values resolved.

    The rate has the shape of `schedule` over `steps`. With `budget_seconds`, this shape is spread
    over the steps that there is time for (:mod:`bertine.training.fit`). The budget is wall time; it
    includes evaluations, checkpoints and the time used before the run was resumed. Such a run sees
    the same batches each time, but not at the same rates. The seed is that of dropout; `patience`
    counts evaluations, by `choose` of :func:`fit`; if `checkpoint_every` is None, only the best
    evaluation has a checkpoint; `compile` is None if nothing is compiled
    (:mod:`bertine.training.step`).

    Raises:
        BertineError: a value is out of range or not known.
    """

    steps: int = declare(MISSING, "updates of the weights", least=1)
    learning_rate: float = declare(MISSING, "its highest value", least=0)
    warmup_steps: int = declare(0, "of the steps, with a rising rate", least=0)
    precision: Precision = "auto"
    budget_seconds: float | None = declare(None, "of wall time; None: no limit", above=0)
    workers: int = declare(0, "processes that make the coming batches", least=0)
    compile: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        precision_name(self.precision)
        if self.tensorboard:
            require_tensorboard()

    def settings(self) -> dict[str, Any]:
        """Return the values for the settings of a run: all of them, except those that are recorded
        only if they differ from the defaults."""
        quiet = {entry.name for entry in declared(type(self)) if entry.option.recorded}
        return {name: v for name, v in self.values().items() if name not in quiet} | self.recorded()


def fit(
    model: Model,
    objective: Loss,
    batch: Callable[[int], Batch],
    config: FitConfig,
    run: Run,
    *,
    title: str = "train",
    work: Callable[[int], float] = float,
    facts: dict[str, float] | None = None,
    evaluate: Callable[[Display, int], dict[str, float]] | None = None,
    evaluate_every: int | None = None,
    world: DistContext | None = None,
    shard: bool = False,
    choose: Choice | None = None,
    open_end: bool = False,
    began: float | None = None,
) -> list[dict[str, Any]]:
    """Minimize `objective` over ``batch(0)``, ``batch(1)``, …, ``batch(steps - 1)``.

    Args:
        model: updated in place; left in evaluation mode.
        objective: an objective of pre-training, a task of fine-tuning, or a loss around one.
        batch: a pure function of the step.
        run: the run that gets the log and the checkpoints; it has the checkpoint to resume from.
        work: the amount of work in the first n steps, in any unit, to estimate the time left;
            None: all steps are equal.
        facts: constants that every line of the log carries.
        evaluate: called with the number of steps done, every `evaluate_every` of them and at the
            end; its scores, if any, go to the log.
        world: the processes that compute each step together (None: this one by itself). All call
            this with the same arguments; the first one alone evaluates and writes.
        shard: divide weights, gradients and moments among them. Then `model` has its new weights in
            the first process only; in the others it is emptied.
        choose: the score that decides which evaluation is the best; its checkpoint is then kept in
            addition to the newest (:mod:`bertine.training.checkpoint`).
        open_end: with ``budget_seconds``, continue after ``steps`` steps until the time is over;
            otherwise ``steps`` is also the maximum.
        began: the time of :func:`time.monotonic` when the time of the run began; None: now.

    Returns:
        The entries of evaluations, with their steps.

    Raises:
        BertineError: the loss is not finite, an id is out of range, the disk is full.
        KeyboardInterrupt: after the step has been ended and a checkpoint written, if the run writes
            any.
    """
    world = world or DistContext(device=next(model.parameters()).device)
    stepper = TrainStep(
        model,
        objective,
        batch,
        world=world,
        dtype=resolve_precision(config.precision, world.device, rates_for(config.precision, model)),
        max_tokens=config.max_tokens_per_micro_batch,
        shard=shard,
        compile=config.compile,
    )
    evaluation = _Evaluation(evaluate, evaluate_every, choose)
    fitting = _Fitting(
        stepper, config, run, world, facts or {}, evaluation, open_end=open_end, began=began
    )
    stepper.model.train()
    # With an open end, neither the number of steps nor the phases of `work` are known.
    steps, work = (sys.maxsize, float) if open_end else (config.steps, work)
    with (
        stepper.training(),
        Interrupt() as interrupt,
        batches_ahead(batch, fitting.done, steps, workers=config.workers) as next_batch,
        Display(title, config.steps, fitting.done, work, fitting.latest) as display,
    ):
        if fitting.done:
            display.note(f"resumed from {run.checkpoint}")
        try:
            fitting.train(next_batch, display, interrupt)
        except BertineError:
            if fitting.done == 0 and world.main:
                run.discard()
            raise
        finally:
            fitting.tracker.close()
    stepper.close()
    del fitting.optimizer  # and its moments
    release_freed_memory()
    model.eval()
    return fitting.scores


class _Evaluation(NamedTuple):
    """The evaluation during training; see :func:`fit`."""

    evaluate: Callable[[Display, int], dict[str, float]] | None
    every: int | None
    choose: Choice | None


class _Fitting:
    """A run of :func:`fit`: its state, and the work of each step.

    Attributes:
        done: the number of steps done.
        tokens: the real tokens in them.
        elapsed: the seconds that they took.
        over: whether the last step is done.
        best: the best evaluation so far.
        scores: the scores of the evaluations.
        latest: when the time is over, by :func:`time.monotonic`.
    """

    def __init__(
        self,
        stepper: TrainStep,
        config: FitConfig,
        run: Run,
        world: DistContext,
        facts: dict[str, float],
        evaluation: _Evaluation,
        *,
        open_end: bool,
        began: float | None,
    ) -> None:
        """Start a run, or resume it from its checkpoint; see :func:`fit`."""
        self.stepper, self.config, self.run, self.world = stepper, config, run, world
        self.model, self.facts, self.open_end = stepper.model, facts, open_end
        self.evaluation = evaluation
        self.optimizer = optimizer_for(self.model, config, stepper.dtype)
        self.rate, self.momentum = schedule(config.schedule), momentum(config.schedule)
        self.norms, self.contention = Norms(config.learning_rate), CpuContention()
        self.done, self.tokens, self.elapsed, used, position = 0, 0, 0.0, 0.0, None
        self.over, self.meter = False, Meter()
        self.best: Best | None = None
        if run.checkpoint is not None:
            state = load_checkpoint(run.checkpoint, self.model, self.optimizer, world)
            self.done, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]
            used, self.over = state.get("used", 0.0), state.get("over", False)
            position, self.best = state.get("position"), restored(state)
            self.meter = Meter.resumed(state, world, world.device)
        self.weights: dict[str, float] = {}
        self.scores: list[dict[str, Any]] = []
        self.gauge = MfuMeter(
            stepper.plain,
            stepper.objective.counts,
            dtype=stepper.dtype,
            max_tokens=stepper.max_tokens,
            processes=world.size,
            device=world.device,
        )
        self.tracker = (
            Tracker(run.folder, resume_step=self.done, tensorboard=config.tensorboard)
            if world.main
            else NoTracker()
        )
        budget = config.budget_seconds
        self.opened = (time.monotonic() if began is None else began) - used
        self.latest = self.opened + (math.inf if budget is None else budget)
        self.progress = Progress(
            config.steps, budget, most=not open_end, done=self.done, position=position
        )

    def train(
        self, next_batch: Callable[[int], Batch], display: Display, interrupt: Interrupt
    ) -> None:
        """Do all remaining steps."""
        config = self.config
        # Decided by steps, not by time: if the time was over at the checkpoint, one step and the
        # final writing still have to be done.
        at_end = self.done >= config.steps and not self.open_end
        self.over = self.over or at_end or self._impatient()
        while not self.over:
            at = self.progress.begin(self._now())
            learning_rate = self._step(next_batch, at)
            self.progress.end(self._now())
            self.over = self.progress.over or stop_requested(self.done, self.world.any)
            if self.done % config.log_every == 0 or self.over:
                self._log(display, learning_rate)
            else:
                display.update(self.done)
            if self._evaluation_is_due():
                self._evaluate(display)
                if not self.over and self._impatient():
                    self._stop_early(display, learning_rate)
            # After the evaluation, so that a run resumed from here has its scores in the log.
            stop = self.world.any(interrupt.requested)
            improved = self.best is not None and self.best.step == self.done
            every = config.checkpoint_every
            if improved or (every and (self.done % every == 0 or stop)):
                self._save()
            if stop:
                if every:
                    again = option("resume", True)
                    display.note(f"stopped after step {self.done}; go on with {again}")
                raise KeyboardInterrupt
        timed = config.budget_seconds is not None
        if timed and self.progress.over and self.done != config.steps:
            display.note(time_line(self.done, config.steps))

    def _step(self, next_batch: Callable[[int], Batch], at: float) -> float:
        """Update the weights once, with `at` as the position in the schedule; return the rate."""
        config, began = self.config, time.perf_counter()
        batch = next_batch(self.done)
        check_batch(batch, self.stepper.config)
        # Forward and backward pass of each micro-batch; its terms are the parts of the loss.
        for terms in self.stepper.accumulate(batch, [config.seed, self.done]):
            self.meter.add(terms)
            self.weights = {name: term.weight for name, term in terms.items()}
        learning_rate = config.learning_rate * self.rate(at, config.steps, config.warmup_steps)
        if self.momentum is not None:
            beta1 = config.adam_beta1 + self.momentum(at, config.steps, config.warmup_steps)
            self.optimizer.set_beta1(min(max(beta1, 0.0), 0.999))
        norm = self.optimizer.clipped_step(learning_rate, config.max_grad_norm)
        self.norms.add(norm, self.done + 1)
        self.optimizer.zero_grad(set_to_none=True)
        if self._due(self.done + 1):
            wait_for(self.world.device)
        spent = time.perf_counter() - began
        self.meter.tokens += batch.num_tokens
        self.meter.seconds += spent
        self.gauge.add(batch, spent)
        self.tokens += batch.num_tokens
        self.elapsed += spent
        self.done += 1
        return learning_rate

    def _now(self) -> float:
        """Return the seconds of the run until now, the same in all processes."""
        if self.config.budget_seconds is None:
            return 0.0
        return self.world.from_main(time.monotonic() - self.opened)

    def _due(self, after: int) -> bool:
        """Return whether something is written after step `after`."""
        config = self.config
        every = (config.log_every, config.checkpoint_every, self.evaluation.every, config.steps)
        return any(number and after % number == 0 for number in every)

    def _impatient(self) -> bool:
        """Return whether the last `patience` evaluations were no better than the best one, so that
        the run ends."""
        patience, every = self.config.patience, self.evaluation.every
        if patience is None or self.best is None or not every:
            return False
        return self.done - self.best.step >= patience * every

    def _evaluation_is_due(self) -> bool:
        evaluate, every, _ = self.evaluation
        if evaluate is None:
            return False
        return self.over or bool(every and self.progress.passed(every))

    def _evaluate(self, display: Display) -> None:
        """Evaluate the model, and record whether it is the best so far."""
        evaluate, _, choose = self.evaluation
        assert evaluate is not None
        self.stepper.collect()
        before = self._now()
        scores = self.world.alone(lambda: evaluate(display, self.done))
        self.progress.reserve(self._now() - before)
        if scores:
            if choose is not None:
                self.best = choose.better(self.best, self.done, scores)
            self.scores.append({"step": self.done, **scores})
            self.tracker.log({"step": self.done} | {f"eval_{k}": v for k, v in scores.items()})
        self.model.train()

    def _stop_early(self, display: Display, learning_rate: float) -> None:
        best = self.best
        assert best is not None
        self.over = True
        if self.done % self.config.log_every:
            self._log(display, learning_rate)
        display.note(
            f"stopped early after step {self.done}: {best.metric} was best after step "
            f"{best.step}, {best.value:.4f}"
        )

    def _log(self, display: Display, learning_rate: float) -> None:
        """Write a line of the log for the steps since the last one."""
        world, expected = self.world, self.progress.expected
        meter = Meter.joined(world.gather(self.meter.state()), world.device)
        entry = {
            "step": self.done,
            **meter.means(self.weights),
            **self.gauge.facts(max(0, expected - self.done)),
            **self.facts,
            "learning_rate": learning_rate,
            "grad_norm": self.norms.look(self.done),
            "tokens": self.tokens,
            "elapsed": self.elapsed,
        }
        self.meter = Meter()
        self.tracker.log(entry)
        # Only if this process computes alone: other ranks and workers are not other programs.
        if world.size == 1 and not self.config.workers:
            display.other_programs(self.contention.line())
        display.update(self.done, facts_of(entry), expected)

    def _save(self) -> None:
        """Write a checkpoint."""
        world = self.world
        self.norms.look(self.done)
        self.tracker.sync()
        meters = world.gather(self.meter.state())
        state = {
            "step": self.done,
            "tokens": self.tokens,
            "elapsed": self.elapsed,
            "used": time.monotonic() - self.opened,
            "position": self.progress.position,
            "over": self.over,
            "meter": Meter.joined(meters, world.device).state(),
            **({"meters": meters} if world.size > 1 else {}),
            "best": None if self.best is None else self.best.to_dict(),
        }
        keep = self.config.keep_checkpoints
        save_checkpoint(self.run.checkpoints, self.model, self.optimizer, state, keep, world)
