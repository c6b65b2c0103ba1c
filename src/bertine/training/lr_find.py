"""Find a learning rate for fine-tuning in a hundred steps: ``lr_find``, with its report and plot.

This is the learning-rate range test of Smith 2015 ("Cyclical Learning Rates for Training Neural
Networks"), as fast.ai and ktrain use it. The rate rises exponentially from step to step, the loss
is recorded, and the weights are discarded afterwards: the loss is flat at first, then it falls,
then it rises again.

The curve is valid for runs that warm up to the rate. Two things ensure this: the rate reaches each
value through all lower ones; and the climb begins after a few steps at the lowest rate, which is
too low to change anything. In these steps Adam's moments, which begin at zero, fill. Without them
the first updates would be hardly more than the signs of single gradients, as large as the rate
allows, and the curve would begin with their noise. A run without warm-up tolerates less.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertine.core.console import Report, human_time
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import write_json, write_text
from bertine.core.names import TaskName, option
from bertine.core.scores import rate_text
from bertine.core.strict_json import Jsonable
from bertine.core.text import exact_rate
from bertine.corpora.batch import check_batch
from bertine.data.in_memory import TableLike
from bertine.datasets.own_data import DatasetSplits
from bertine.inference.train_overlap import overlap_in_training_line
from bertine.models.precision import resolve_device, resolve_precision, using_threads
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.declare import names_of
from bertine.options.experiments import RisingRates
from bertine.options.finetuning import FinetuneOptions
from bertine.options.verbs import takes_options
from bertine.reports.findings import finetune_command
from bertine.reports.html import (
    Block,
    Commands,
    Fact,
    Figure,
    Figures,
    Note,
    Page,
    Section,
)
from bertine.reports.run_sections import sentence, setting_facts
from bertine.reports.svg import ACCENT, INK, REFERENCE, Axis, Plot, Stroke, log_ticks, number_axis
from bertine.training.computing import measured_computing, names_one_task
from bertine.training.defaults import fit_config
from bertine.training.display import Display
from bertine.training.distributed import DistContext
from bertine.training.finetuning.finetune import as_json
from bertine.training.finetuning.setup import Prepared, prepare
from bertine.training.fit import FitConfig
from bertine.training.optimizers import optimizer_for
from bertine.training.step import Meter, TrainStep, frozen

# The range test: smooth the curve of losses, and choose a rate from it.

#: The share of the average that is kept from step to step; the average spans about ten steps.
SMOOTHING = 0.9
#: The test ends when the smoothed loss is this many times the lowest smoothed loss.
DIVERGED = 4.0
#: The slope at a rate is fitted to the points within this factor below and above it (half a
#: decade).
_HALF_WINDOW = 10**0.25
#: The mean loss of this many first steps is the level from which a fall is measured.
_FIRST = 10
#: A fall is clear if it is larger than this many times the noise from batch to batch. Where losses
#: only fluctuate, the lowest smoothed loss is about half as far down.
_CLEAR = 1.25
#: A rise counts if it is larger than this many standard errors of the smoothed loss. By chance the
#: lowest of several values is two below their mean, and another one two above it.
_RISEN = 4.0


@dataclass
class RateCurve(Jsonable):
    """The losses of a range test, smoothed step by step.

    The smoothed loss is the exponential moving average with bias correction. It lags behind, so it
    is plotted at the rate averaged in the same way (over logarithms): if the losses lie on a
    straight line over the logarithm of the rate, the smoothed losses lie on the same line.

    Attributes:
        warmup: the number of first steps in which the rate stays at its lowest. They count in the
            averages, but are not points of the curve.
        rates: the rate of each step.
        losses: the loss of each step, before its update.
        at: the averaged rates.
        smoothed: the averaged losses.
        diverged: whether the loss or its gradient was not finite, or the smoothed loss was more
            than four times the lowest; the test ended there.
    """

    warmup: int = 0
    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    smoothed: list[float] = field(default_factory=list)
    diverged: bool = False
    _sums: tuple[float, float] = (0.0, 0.0)

    json_keys = (
        *("warmup_steps=warmup", "rates", "losses", "smoothed_at=at", "smoothed", "diverged"),
    )

    def add(self, rate: float, loss: float) -> bool:
        """Add a step; return whether the test continues."""
        if not math.isfinite(loss):
            self.diverged = True
            return False
        by_rate, by_loss = self._sums
        by_rate = SMOOTHING * by_rate + (1 - SMOOTHING) * math.log(rate)
        by_loss = SMOOTHING * by_loss + (1 - SMOOTHING) * loss
        self._sums = by_rate, by_loss
        share = 1 - SMOOTHING ** (len(self.losses) + 1)
        self.rates.append(rate)
        self.losses.append(loss)
        self.at.append(math.exp(by_rate / share))
        self.smoothed.append(by_loss / share)
        if len(self.losses) > self.warmup:
            self.diverged = self.smoothed[-1] > DIVERGED * min(self.smoothed[self.warmup :])
        return not self.diverged

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rates (ascending) and smoothed losses without the warm-up, fp64 [n] each."""
        return np.array(self.at[self.warmup :]), np.array(self.smoothed[self.warmup :])


@dataclass(frozen=True)
class Landmarks(Jsonable):
    """The characteristic rates of a curve.

    Attributes:
        steepest: where the smoothed loss falls fastest over the logarithm of the rate.
        lowest: where the smoothed loss is lowest.
        rises: the highest rate up to which the smoothed loss stays near its lowest, within its
            noise. Before the loss rises, the curve is often flat, and the position of the lowest
            point on the flat part is chance.
        ends: whether the test ended before the loss rose.
    """

    steepest: float
    lowest: float
    rises: float
    ends: bool = False

    json_keys = ("steepest", "lowest", "rises")


def landmarks_of(curve: RateCurve) -> Landmarks | None:
    """Find the landmarks of a curve; None if the loss does not fall.

    It falls if its lowest smoothed value is below the mean loss of the warm-up and the first ten
    steps by clearly more than losses differ from batch to batch.
    """
    rates, smoothed = curve.points()
    if len(rates) < 2 * _FIRST:
        return None
    first = curve.warmup + _FIRST
    # A minimum of the first few smoothed losses does not count: a single step decides there.
    end = _FIRST + int(smoothed[_FIRST:].argmin())
    until = curve.warmup + max(end, len(rates) // 2)
    noise = float(np.std(np.diff(curve.losses[: until + 1]))) / math.sqrt(2)
    fall = float(np.mean(curve.losses[:first])) - float(smoothed[end])
    if fall <= max(_CLEAR * noise, 1e-9):
        return None
    error = noise * math.sqrt((1 - SMOOTHING) / (1 + SMOOTHING))
    risen = np.flatnonzero(smoothed[end:] > smoothed[end] + _RISEN * error)
    last = end + (int(risen[0]) - 1 if len(risen) else len(smoothed) - 1 - end)
    x = np.log10(rates)
    # Up to the lowest point only: a fall after a rise is a sign of instability.
    slopes = [_slope(x, smoothed, middle) for middle in x[: end + 1]]
    steepest = rates[int(np.argmin(slopes))]
    ends = not len(risen) and not curve.diverged
    return Landmarks(float(steepest), float(rates[end]), float(rates[last]), ends)


def advise(landmarks: Landmarks | None, usual: float) -> tuple[float, str]:
    """Advise a rate to train with, and give the reason.

    It is the `usual` rate of such a model, unless the curve clearly speaks against it. If the loss
    rises at that rate, the advice is a third of `rises`, but at least half of the usual rate if the
    loss does not rise there. A test that ended below the usual rate without a rise is no argument
    against that rate.

    A test of a hundred steps is noisy: from seed to seed and with the number of examples, `rises`
    differs by more than the best rate does. Half of the usual rate where the loss did not yet rise
    there cost four points, and twice the usual rate where it rose only far above cost eight
    (``docs/results.md``, "Defaults").

    Returns:
        the rate, with one significant digit, and the reason.
    """
    if landmarks is None:
        return usual, "the usual rate of such a model, since the loss did not fall clearly"
    if usual >= landmarks.rises and landmarks.ends:
        rate, reason = usual, "the usual rate of such a model, which the test did not reach"
    elif usual >= landmarks.rises:
        rate = min(max(landmarks.rises / 3, usual / 2), landmarks.rises)
        reason = f"the loss rises at the usual rate of such a model, {rate_text(usual)}"
    else:
        rate, reason = usual, "the usual rate of such a model, and the loss does not rise there"
    return float(f"{rate:.0e}"), reason


def _slope(x: np.ndarray, y: np.ndarray, middle: float) -> float:
    """Fit a straight line to the points about `middle` by least squares and return its slope;
    return 0 for fewer than three points."""
    near = np.abs(x - middle) <= math.log10(_HALF_WINDOW)
    if near.sum() < 3:
        return 0.0
    apart = x[near] - x[near].mean()
    spread = float((apart**2).sum())
    return float((apart * y[near]).sum()) / spread if spread > 0 else 0.0


# The report: the result of a range test, and the command to run next.

#: The files in the folder of a test.
CURVE, PLOT, PAGE = "lr-find.json", "lr-find.svg", "lr-find.html"


@dataclass(frozen=True, repr=False)
class LrFindReport(Report):
    """The result of a range test.

    Attributes:
        curve: the losses.
        advice: the arguments of ``finetune`` to train with: epochs, batch_size, learning_rate.
        reason: why this learning rate is advised.
        command: the command that trains with this advice.
        out: the folder of the files: ``lr-find.json``, ``.svg``, ``.html``.
        num_examples: the number of training examples.
        passes: the number of passes over them.
        seconds: the wall time.
        seen: the number of training examples that the model was trained on before; 0 if they are
            few.
    """

    curve: RateCurve
    advice: dict[str, Any]
    reason: str
    command: str
    out: Path
    num_examples: int
    passes: float
    seconds: float
    seen: int = 0

    json_keys = ("advice", "reason", "landmarks", "next=command", "notes", "passes", "curve")

    @property
    def learning_rate(self) -> float:
        """The rate to train with."""
        rate: float = self.advice["learning_rate"]
        return rate

    @cached_property
    def landmarks(self) -> Landmarks | None:
        """The rates that the curve shows; None if the loss did not fall."""
        return landmarks_of(self.curve)

    @cached_property
    def notes(self) -> list[str]:
        """Warnings about the result."""
        notes, curve = [], self.curve
        usual = "look whether the labels fit the texts; until then the usual rate is the best guess"
        if self.landmarks is None and curve.diverged:
            notes.append(
                f"the loss diverged after {len(curve.losses) - curve.warmup} steps with a rising "
                f"rate, before it had clearly fallen: let them rise more slowly "
                f"({option('steps')}, {option('max_rate')}), and {usual}"
            )
        elif self.landmarks is None:
            notes.append(
                "the loss did not fall by clearly more than it differs from batch to batch: take "
                f"larger batches ({option('batch_size')}) or more steps ({option('steps')}), and "
                f"{usual}"
            )
        elif self.landmarks.ends:
            notes.append(
                "the loss did not rise up to the highest rate: raise "
                f"{option('max_rate')} to see where it does"
            )
        if line := overlap_in_training_line(self.seen, self.num_examples):
            notes.append(f"{line}: the curve is of what it has learned already")
        if self.passes > 1:
            notes.append(
                f"the test passed {self.passes:.1f} times over the {self.num_examples} training "
                "examples: late losses are of examples seen before"
                + ("" if self.landmarks is None else ", and the rates may be a little high")
            )
        return notes

    def lead(self) -> str:
        """State the rate and the reason."""
        return f"Train with the learning rate {rate_text(self.learning_rate)}: {self.reason}."

    def shown(self) -> str:
        """Describe the curve in words."""
        if self.landmarks is None:
            return "The loss did not fall clearly at any rate."
        steepest, lowest, rises = map(rate_text, self.landmarks.to_dict().values())
        after = (
            "and does not rise before the test ends"
            if self.landmarks.ends
            else (f"and rises from {rises} on")
        )
        return f"The loss falls fastest at {steepest}, is lowest at {lowest}, {after}."

    def lines(self) -> list[str]:
        """List the rate, the curve, the warnings, the page, and the next command."""
        return [
            self.lead(),
            self.shown(),
            *self.notes,
            f"{len(self.curve.losses)} steps, {self.passes:.2g} passes over the training examples, "
            f"in {human_time(self.seconds)}; the weights on disk are as they were",
            f"curve: {self.out / PAGE}",
            f"next: {self.command}",
        ]

    def shown_lines(self) -> list[str]:
        """List the same, with the arguments in Python instead of the command."""
        advice = ", ".join(f"{name}={value!r}" for name, value in self.advice.items())
        return [*self.lines()[:-1], f"next: bertine.finetune(…, {advice})"]


def next_command(
    task: str, model: Any, data: Any, options: FinetuneOptions, advice: Mapping[str, Any]
) -> str:
    """Write the command that trains with the `advice`, and with the other `options` that differ
    from the defaults."""
    numbers = {
        name: exact_rate(value) if isinstance(value, float) else str(value)
        for name, value in advice.items()
    }
    if not isinstance(data, str | Path):  # examples in memory
        words = ", ".join(f"{name}={number}" for name, number in numbers.items())
        return f"bertine.finetune({task!r}, …, {words})"
    name = options.glue_task or Path(data).resolve().name.strip(".-").split(".")[0]
    changed = {key: value for key, value in options.changed().items() if key not in advice}
    arguments = {"model": model, "data": data, **changed, **numbers}
    return finetune_command(task, {**arguments, "out": f"{name or 'my'}-model"})


# The files of a range test: its curve (JSON), its plot (SVG) and its page (HTML).

_HOW = (
    "Each step has a higher rate than the one before, by the same factor; its loss is that of its "
    "batch before the update. The smoothed loss is their exponential moving average with its bias "
    "corrected, set at the rate that is averaged in the same way, so that it does not lag.",
    "The rates are those of a warmed-up run: the climb itself is a warm-up, and Adam's moments are "
    "filled at the lowest rate before it. Keep a warm-up when you train.",
    "A test sees a hundred steps with a fresh head, not a whole run, and it is noisy. So the rate "
    "is the usual one for a model of this size, unless the loss rises there: then it is a third "
    "of the rate from which it rises, or half of the usual rate if that is more. Epochs and batch "
    "size follow from the number of examples. A search (bertine search) is the check.",
)


def write_files(report: LrFindReport, settings: Mapping[str, Any]) -> None:
    """Write the three files of a test, which include the `settings`.

    Raises:
        BertineError: they cannot be written.
    """
    shown = {name: as_json(value) for name, value in settings.items() if value is not None}
    plot = rate_plot(report.curve, report.landmarks, report.learning_rate)
    write_json(report.out / CURVE, {**report.to_dict(), "settings": shown})
    write_text(report.out / PLOT, plot.decode("utf-8") + "\n")
    rate_page(report, plot, shown).write(report.out / PAGE)


def rate_page(report: LrFindReport, plot: bytes, settings: Mapping[str, Any]) -> Page:
    """Build the page of a test.

    Args:
        plot: the SVG from :func:`rate_plot`.
        settings: as JSON values.
    """
    headline = [Fact("Learning rate", rate_text(report.learning_rate), "to train with")]
    if report.landmarks is not None:
        marks = report.landmarks
        headline += [
            Fact("Steepest", rate_text(marks.steepest), "the loss falls fastest"),
            Fact("Lowest", rate_text(marks.lowest), "the smoothed loss is lowest"),
        ]
        if not marks.ends:
            headline.append(Fact("Rises", rate_text(marks.rises), "from here on the loss rises"))
    caption = "Faint: the loss of each step's batch. Dashed: the rate to train with."
    figure = Figure("Loss over the learning rate", plot, report.shown(), caption)
    curve: list[Block] = [Note(sentence(note), "warning") for note in report.notes]
    curve.append(Figures([figure], columns=1, wide=True))
    command = Commands([("", report.command)])
    return Page(
        title=f"Learning rate: {settings.get('glue_task') or settings['task']}",
        lead=report.lead(),
        headline=headline,
        sections=[
            Section("The curve", curve),
            Section("Next", [command], lead="Train with this rate, for this long:"),
            Section("How to read the curve", [Note(text) for text in _HOW], folded=True),
            Section("Settings", [setting_facts(settings)], folded=True),
        ],
        command="lr-find",
    )


def rate_plot(curve: RateCurve, landmarks: Landmarks | None, rate: float) -> bytes:
    """Draw the loss over the rate as SVG: faint for each step, the smoothed curve with a dot at its
    lowest point, and a dashed line at the `rate` to train with."""
    rates, losses = curve.rates[curve.warmup :], curve.losses[curve.warmup :]
    smoothed_at, smoothed = curve.points()
    low, high = _limits(losses, smoothed)
    first, last = (rates[0], max(rates[-1], rates[0] * 1.01)) if rates else (1e-6, 1e-2)
    ticks = log_ticks(first, last)
    x = Axis(first, last, ticks, [rate_text(tick) for tick in ticks], "learning rate", log=True)
    lines = {
        "to train with": dataclasses.replace(REFERENCE, width=1.1),
        "loss": Stroke(ACCENT, 0.9, opacity=0.35),
        "smoothed": Stroke(ACCENT, 2.2),
        "lowest": Stroke(INK, 0, dot=2.5),
    }
    shown = [item for item in lines.items() if landmarks or item[0] != "lowest"]
    plot = Plot(518, 266, x, number_axis(low, high, label="loss"), legend=shown)
    if first <= rate <= last:
        plot.line((rate, rate), (low, high), lines["to train with"])
    plot.line(rates, losses, lines["loss"])
    plot.line(smoothed_at.tolist(), smoothed.tolist(), lines["smoothed"])
    if landmarks is not None:
        loss = float(np.interp(landmarks.lowest, smoothed_at, smoothed))
        plot.line([landmarks.lowest], [loss], lines["lowest"])
    return plot.svg()


def _limits(losses: list[float], smoothed: np.ndarray) -> tuple[float, float]:
    """Choose the range of the loss axis: the losses of the first two thirds and the lowest smoothed
    loss, with room for a rise. The divergence at the end is cut off; it would flatten the rest."""
    early = losses[: max(1, 2 * len(losses) // 3)]
    low = min(float(smoothed.min()), float(np.quantile(early, 0.02)))
    high = max(float(smoothed[0]), float(np.quantile(early, 0.98)))
    room = max(high - low, 1e-6)
    return low - 0.08 * room, high + 0.25 * room


#: Options of fine-tuning that do not apply: the test ends within an epoch, evaluates nothing,
#: writes no model, and the rate is the result.
_NOT_ASKED = names_of(FinetuneOptions, not_in="lr-find")


@takes_options(FinetuneOptions, but=_NOT_ASKED)
def lr_find(
    task: TaskName,
    *,
    model: Path | str | None = None,
    data: Path | str | DatasetSplits | TableLike,
    out: Path | str,
    test: RisingRates,
    **options: Any,
) -> LrFindReport:
    """Try rising learning rates on labelled examples, and advise one for fine-tuning.

    The training examples are repeated as often as the steps need. The test ends early if the loss
    diverges: if the loss or its gradient is not finite, or if the smoothed loss is more than four
    times the lowest.

    Args:
        out: the folder of the curve (``lr-find.json``), its plot (``.svg``) and its page
            (``.html``); earlier ones are replaced.
        test: the range of rates and the number of steps.
        task, model, data: as for :func:`~bertine.finetune`.
        options: options of ``finetune`` that have an effect within an epoch.

    Raises:
        BertineError: the rates do not rise, or there are too few steps; for GLUE, no single task is
            named; this is one of several processes; what `finetune` raises for model and data.
    """
    tuning = FinetuneOptions(**options)
    min_rate, max_rate = test.min_rate, test.max_rate
    steps, warmup_steps = test.steps, test.warmup_steps
    if launched():
        raise BertineError("lr-find is one process; start it without torchrun")
    if not 0.0 < min_rate < max_rate < math.inf:
        raise BertineError(
            f"min_rate is {min_rate:g} and max_rate is {max_rate:g}, but they must be above 0, and "
            "the second higher and finite"
        )
    if not names_one_task(task, tuning.glue_task):
        raise BertineError(
            "a rate is found for one task of GLUE; name it with glue_task (--task RTE)"
        )
    where = resolve_device(tuning.device)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise BertineError(f"{folder}: is a file; choose a folder for the curve")
    prepared = prepare(
        task,
        data,
        model=model,
        config=DataConfig.of(tuning, DEFAULTS),
        options=tuning,
        where=where,
        judged=False,
    )
    trained = prepared.loaded.model
    computing = measured_computing(tuning.precision, trained, tokens=prepared.batch_tokens)
    config = fit_config(tuning, warmup_steps + steps, max_rate, computing.precision, warmup_steps=0)
    growth = (max_rate / min_rate) ** (1 / (steps - 1))
    rates = [min_rate] * warmup_steps + [min_rate * growth**step for step in range(steps)]
    with (
        frozen(trained, layers=tuning.freeze_layers, embeddings=tuning.freeze_embeddings),
        using_threads(computing.threads),
    ):
        curve, seconds = _climb(prepared, config, where, rates, RateCurve(warmup_steps))
    if len(curve.losses) <= warmup_steps:
        raise BertineError(
            f"the loss or its gradient is not finite at {rate_text(min_rate)}, the lowest rate; "
            f"look at the data, or lower {option('min_rate')}"
        )
    plan = prepared.plan
    rate, reason = advise(landmarks_of(curve), plan.learning_rate)
    advice = {"epochs": plan.epochs, "batch_size": plan.batch_size, "learning_rate": rate}
    report = LrFindReport(
        curve,
        advice,
        reason,
        next_command(task, prepared.model, data, tuning, advice),
        folder,
        num_examples=len(prepared.data.train),
        passes=len(curve.losses) / prepared.batches.steps_per_epoch,
        seconds=seconds,
        seen=prepared.seen_in_training,
    )
    settings = {"task": task, "model": prepared.model, "data": prepared.data.path, "out": out}
    write_files(report, {**settings, **test.values(), **options})
    return report


def _climb(
    prepared: Prepared,
    config: FitConfig,
    device: torch.device,
    rates: Sequence[float],
    curve: RateCurve,
) -> tuple[RateCurve, float]:
    """Take a step at each of `rates` until the loss diverges; return the curve and the duration in
    seconds. The loss of a step is computed before its update."""
    model = prepared.loaded.model
    stepper = TrainStep(
        model,
        prepared.loss or prepared.task,
        prepared.batches.batch,
        world=DistContext(device=device),
        dtype=resolve_precision(config.precision, device),
        max_tokens=config.max_tokens_per_micro_batch,
    )
    optimizer = optimizer_for(model, config, stepper.dtype)
    began = time.monotonic()
    model.train()
    with stepper.training(), Display("lr-find", len(rates)) as display:
        for step, rate in enumerate(rates):
            batch = prepared.batches.batch(step)
            check_batch(batch, model.config)
            meter = Meter()
            weights: dict[str, float] = {}
            for terms in stepper.accumulate(batch, [config.seed, step]):
                meter.add(terms)
                weights = {name: term.weight for name, term in terms.items()}
            loss = meter.means(weights)["loss"]
            if not curve.add(rate, loss):
                display.note(f"the loss diverged at the rate {rate_text(rate)}")
                break
            norm = float(optimizer.clipped_step(rate, config.max_grad_norm))
            optimizer.zero_grad(set_to_none=True)
            if not math.isfinite(norm):
                # On a GPU an update with a gradient that is not finite leaves the weights
                # unchanged. Without this line the loss would stay constant, as if higher rates did
                # no harm.
                curve.diverged = True
                display.note(f"the gradient is not finite at the rate {rate_text(rate)}")
                break
            display.update(step + 1, {"rate": rate_text(rate), "loss": f"{curve.smoothed[-1]:.3f}"})
    optimizer.zero_grad(set_to_none=True)
    model.eval()
    return curve, time.monotonic() - began
