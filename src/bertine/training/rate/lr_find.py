"""Find the learning rate to train with in a hundred steps: ``lr_find`` (Smith 2015; the practice of
fast.ai and ktrain).

The rate rises exponentially from step to step, the loss is watched, and the weights are thrown
away. What the curve says of a rate it says of a run that has warmed up to it. Two things see to
that: the rate climbs to each value through all lower ones; and before the climb come a few steps
at the lowest rate, too low to change anything, in which Adam's moments, which begin at zero, fill.
Without them the first updates were hardly more than the signs of single gradients, as large as the
rate allows, and the curve would begin with their noise. A run without warm-up bears less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bertine.cores.launch import launched
from bertine.data.checks import check_batch
from bertine.datasets.reading import Labelled
from bertine.errors import BertineError
from bertine.models.precision import resolve_device, resolve_precision
from bertine.models.products import TOKENS
from bertine.models.threads import using_threads
from bertine.names import TaskName
from bertine.options.fields import names_of
from bertine.options.finetuning import FinetuneOptions
from bertine.options.names import option
from bertine.options.search import RisingRates
from bertine.options.verbs import takes_options
from bertine.scores import rate_text
from bertine.tables.given import TableLike, as_data
from bertine.training.arguments import names_one_task, reading_of
from bertine.training.computing import measured_computing
from bertine.training.distributed.world import World
from bertine.training.finetuning.plan import Wishes
from bertine.training.finetuning.setup import Prepared, Start, prepare
from bertine.training.loop.display import Display
from bertine.training.loop.fit import FitConfig
from bertine.training.loop.freezing import frozen
from bertine.training.loop.meter import Meter
from bertine.training.loop.optimizers.named import optimizer_for
from bertine.training.loop.step import Stepper
from bertine.training.rate.curve import RateCurve, advise, landmarks_of
from bertine.training.rate.page import write_files
from bertine.training.rate.report import LrFindReport, next_command

#: What finding a rate has no use for: it ends before an epoch does, evaluates and answers nothing,
#: writes no model, and the rate is what is sought.
_NOT_ASKED = names_of(FinetuneOptions, not_in="lr-find")


@takes_options(FinetuneOptions, but=_NOT_ASKED)
def lr_find(
    task: TaskName,
    *,
    model: Path | str,
    data: Path | str | Labelled | TableLike,
    out: Path | str,
    test: RisingRates,
    **options: Any,
) -> LrFindReport:
    """Try rising learning rates on labelled examples, and name the one to fine-tune with.

    The training examples are passed over as often as the steps need. The test ends before its
    last step where the loss has diverged: where it or its gradient is not finite, or smoothed
    more than four times the lowest.

    Args:
        out: the folder of the curve (``lr-find.json``), its plot (``.svg``) and its page
            (``.html``); earlier ones are replaced.
        test: the rates that are tried.
        task, model, data: as for :func:`~bertine.finetune`.
        options: as there, all that matter within an epoch.

    Raises:
        BertineError: the rates do not rise, or there are too few steps; of GLUE not one task
            is named; it is one of several processes; what `finetune` raises of model and data.
    """
    if not isinstance(data, Labelled):
        data = as_data(data)
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
    start = Start.of(tuning, model=model)
    prepared = prepare(
        task,
        data,
        start=start,
        reading=reading_of(tuning),
        wishes=Wishes.of(tuning),
        max_length=tuning.max_length,
        seed=tuning.seed,
        where=where,
        judged=False,
    )
    trained = prepared.loaded.model
    tokens = prepared.batch_tokens
    computing = measured_computing(tuning.precision, trained, tokens=tokens or TOKENS)
    config = FitConfig.of(
        tuning,
        steps=warmup_steps + steps,
        learning_rate=max_rate,
        warmup_steps=0,
        precision=computing.precision,
        budget_seconds=None,
        compile=None,
    )
    growth = (max_rate / min_rate) ** (1 / (steps - 1))
    rates = [min_rate] * warmup_steps + [min_rate * growth**step for step in range(steps)]
    with (
        frozen(trained, layers=start.freeze_layers, embeddings=start.freeze_embeddings),
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
        next_command(task, model, data, tuning, advice),
        folder,
        num_examples=len(prepared.train.examples),
        passes=len(curve.losses) / prepared.batches.steps_per_epoch,
        seconds=seconds,
        seen=prepared.seen_in_training,
    )
    settings = {"task": task, "model": model, "data": prepared.data_path, "out": out}
    write_files(report, {**settings, **test.values(), **options})
    return report


def _climb(
    prepared: Prepared,
    config: FitConfig,
    device: torch.device,
    rates: Sequence[float],
    curve: RateCurve,
) -> tuple[RateCurve, float]:
    """Take a step at each of `rates` until the loss diverges; return the curve and the seconds it
    took. The loss of a step is that before its update."""
    model = prepared.loaded.model
    stepper = Stepper(
        model,
        prepared.loss or prepared.task,
        prepared.batches.batch,
        world=World(device=device),
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
                # On a GPU such an update leaves the weights as they are: without this the loss
                # would stand still, and look as if higher rates did no harm.
                curve.diverged = True
                display.note(f"the gradient is not finite at the rate {rate_text(rate)}")
                break
            display.update(step + 1, {"rate": rate_text(rate), "loss": f"{curve.smoothed[-1]:.3f}"})
    optimizer.zero_grad(set_to_none=True)
    model.eval()
    return curve, time.monotonic() - began
