"""``lr_find``: which learning rate to train with, from a hundred steps (Smith 2015; the practice of
fast.ai and ktrain).

The rate rises exponentially from step to step, the loss is watched, and the weights are thrown
away. What the curve says of a rate it says of a run that has warmed up to it. Two things see to
that: the rate climbs to each value through all lower ones; and before the climb come a few steps
at the lowest rate, too low to change anything, in which Adam's moments, which begin at zero, fill.
Without them the first updates were hardly more than the signs of single gradients, as large as the
rate allows, and the curve would begin with their noise. A run without warm-up bears less.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from bertine.data.checks import check_batch
from bertine.data.micro import split
from bertine.errors import BertineError
from bertine.launch import launched
from bertine.models.memory import keep_freed_memory
from bertine.models.precision import resolve_device, resolve_precision
from bertine.reports.rate_page import rate_text
from bertine.tasks.options import TableOptions
from bertine.tasks.reading import Labelled, Reading
from bertine.tasks.spans import SpanLimits
from bertine.training.display import Display
from bertine.training.finetune_setup import Prepared, Start, prepare
from bertine.training.fit import CPU_MICRO_BATCH, GPU_MICRO_BATCH, accumulate
from bertine.training.freezing import frozen
from bertine.training.lr_curve import RateCurve, bracket_of
from bertine.training.lr_report import LrFindReport, next_command
from bertine.training.meter import Meter
from bertine.training.optim import AdamW, row_gradients


def lr_find(
    task: str,
    *,
    model: Path | str,
    data: Path | str | Labelled,
    out: Path | str,
    min_rate: float = 1e-7,
    max_rate: float = 1e-2,
    steps: int = 100,
    warmup_steps: int = 10,
    glue_task: str | None = None,
    fresh_weights: bool = False,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: str | None = None,
    document_context: bool = False,
    choice_columns: Sequence[str] | str | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    threshold: float = 0.5,
    class_weights: str | None = None,
    focal_gamma: float = 0.0,
    long_text: str = "head",
    batch_size: int = 32,
    max_length: int | None = None,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
    max_answer_length: int | None = None,
    layer_decay: float = 1.0,
    freeze_layers: int = 0,
    freeze_embeddings: bool = False,
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-6,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    dropout: float | None = None,
    device: str | None = None,
    precision: str = "auto",
    seed: int = 0,
) -> LrFindReport:
    """Try rising learning rates on labelled examples, and read off between which to fine-tune.

    The training examples are passed over as often as the steps need. The test ends before its
    last step where the loss has diverged: where it or its gradient is not finite, or smoothed
    more than four times the lowest.

    Args:
        out: the folder of the curve (``lr-find.json``), its plot (``.svg``) and its page
            (``.html``); earlier ones are replaced.
        min_rate: of the first step.
        max_rate: of the last one, reached exponentially.
        steps: with a rising rate.
        warmup_steps: before them, at `min_rate`, in which Adam's moments fill.

    The others are those of :func:`~bertine.training.finetune.finetune`; its layers' shares of the
    rate, frozen parts, batches and order of the examples are the same here.

    Raises:
        BertineError: the rates do not rise, or there are too few steps; all of GLUE is named; it
            is one of several processes; what `finetune` raises of model and data.
    """
    given = dict(locals())
    if launched():
        raise BertineError("lr-find is one process; start it without torchrun")
    if not 0.0 < min_rate < max_rate:
        raise BertineError(
            f"min_rate is {min_rate:g} and max_rate is {max_rate:g}, but they must be above 0, and "
            "the second higher"
        )
    if glue_task is not None and glue_task.lower() == "all":
        raise BertineError(
            "a rate is found for one task of GLUE; name it with glue_task (--task RTE)"
        )
    for name, least in (("steps", 20), ("warmup_steps", 0), ("max_tokens_per_micro_batch", 1)):
        if given[name] is not None and given[name] < least:
            raise BertineError(f"{name} is {given[name]}, but must be at least {least}")
    if not 0.0 < layer_decay <= 1.0:
        raise BertineError(f"layer_decay is {layer_decay:g}, but must be in (0, 1]")
    where = resolve_device(device)
    dtype = resolve_precision(precision, where)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise BertineError(f"{folder}: is a file; choose a folder for the curve")
    prepared = prepare(
        task,
        data,
        start=Start(model, fresh_weights, dropout, freeze_layers, freeze_embeddings),
        reading=Reading(
            glue_task=glue_task,
            text_columns=text_columns,
            label_column=label_column,
            format=format,
            quotes=quotes,
            strict=strict,
            word_column=word_column,
            tag_column=tag_column,
            tag_scheme=tag_scheme,
            document_context=document_context,
            options=TableOptions(
                choice_columns=choice_columns,
                label_columns=label_columns,
                label_separator=label_separator,
                threshold=threshold,
                class_weights=class_weights,
                focal_gamma=focal_gamma,
                long_text=long_text,
            ),
            limits=SpanLimits.given(
                doc_stride=doc_stride,
                max_question_length=max_question_length,
                max_answer_length=max_answer_length,
            ),
        ),
        batch_size=batch_size,
        max_length=max_length,
        seed=seed,
        where=where,
        judged=False,
    )
    limit = max_tokens_per_micro_batch or (
        CPU_MICRO_BATCH if where.type == "cpu" else GPU_MICRO_BATCH
    )
    growth = (max_rate / min_rate) ** (1 / (steps - 1))
    rates = [min_rate] * warmup_steps + [min_rate * growth**step for step in range(steps)]
    with frozen(prepared.loaded.model, layers=freeze_layers, embeddings=freeze_embeddings):
        optimizer = AdamW(
            prepared.loaded.model,
            weight_decay=weight_decay,
            betas=(adam_beta1, adam_beta2),
            eps=adam_epsilon,
            bias_correction=bias_correction,
            layer_decay=layer_decay,
        )
        curve, seconds = _climb(
            prepared,
            optimizer,
            rates,
            RateCurve(warmup_steps),
            max_grad_norm=max_grad_norm,
            max_tokens=limit,
            dtype=dtype,
            seed=seed,
        )
    if len(curve.losses) <= warmup_steps:
        raise BertineError(
            f"the loss or its gradient is not finite at {rate_text(min_rate)}, the lowest rate; "
            "look at the data, or lower min_rate (--min-rate)"
        )
    defaults = {p.name: p.default for p in inspect.signature(lr_find).parameters.values()}
    report = LrFindReport.of(
        curve,
        out=folder,
        command=next_command(given, defaults, bracket_of(curve)),
        passes=len(curve.losses) / prepared.batches.steps_per_epoch,
        num_examples=len(prepared.train.examples),
        seconds=seconds,
    )
    report.write({**given, "data": prepared.data_path})
    return report


def _climb(
    prepared: Prepared,
    optimizer: AdamW,
    rates: Sequence[float],
    curve: RateCurve,
    *,
    max_grad_norm: float,
    max_tokens: int,
    dtype: torch.dtype,
    seed: int,
) -> tuple[RateCurve, float]:
    """A step at each of `rates`, until the loss diverges; the curve, and the seconds it took. The
    loss of a step is that before its update."""
    model = prepared.loaded.model
    keep_freed_memory()
    began = time.monotonic()
    model.train()
    with row_gradients(model), Display.open("lr-find", len(rates)) as display:
        for step, rate in enumerate(rates):
            batch = prepared.batches.batch(step)
            check_batch(batch, model.config)
            parts = split(batch, max_tokens)
            meter = Meter()
            weights: dict[str, float] = {}
            for terms in accumulate(model, prepared.task, parts, dtype=dtype, seeds=[seed, step]):
                meter.add(terms)
                weights = {name: term.weight for name, term in terms.items()}
            loss = meter.means(weights)["loss"]
            if not curve.add(rate, loss):
                display.note(f"the loss diverged at the rate {rate_text(rate)}")
                break
            norm = float(optimizer.clipped_step(rate, max_grad_norm))
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
