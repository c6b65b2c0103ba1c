"""The other side: a plain loop over ``transformers``, in two ways."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from common import Turn, peak_memory, reset_peak_memory
from torch import Tensor

from bertine.core.process import keep_freed_memory
from sides.inputs import Inputs, make_inputs
from sides.scores import judge
from sides.settings import Setting

#: Inputs evaluated at once.
_EVALUATED = 32


@dataclass(frozen=True)
class Way:
    """How the loop trains.

    Attributes:
        padded: every input to the maximum length, not to the longest of its batch.
        bf16: under autocast.
        fused: ``AdamW(fused=True)``; None: as Trainer's default has it.
        kept: freed memory is kept in the process, as bertine's training does.
    """

    padded: bool
    bf16: bool
    fused: bool | None
    kept: bool


WAYS = {
    "default": Way(padded=True, bf16=False, fused=None, kept=False),
    "best": Way(padded=False, bf16=True, fused=True, kept=True),
}


class Loop:
    """A model and all that a step of its training takes.

    Args:
        multiple: of which the lengths of batches are.

    Attributes:
        inputs: of training, and those that it is judged on.
    """

    def __init__(self, setting: Setting, way: Way, multiple: int | None = None) -> None:
        from torch.utils.data import DataLoader
        from transformers import TrainingArguments, get_linear_schedule_with_warmup
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.setting, self.way = setting, way
        self.inputs: Inputs = make_inputs(setting, padded=way.padded, multiple=multiple)
        torch.manual_seed(setting.seed)
        self.model: Any = self.inputs.new_model()
        if way.kept:
            keep_freed_memory()
        self.loader: Any = DataLoader(
            self.inputs.train,  # type: ignore[arg-type]
            batch_size=setting.batch_size,
            shuffle=True,
            collate_fn=self.inputs.collate,
            generator=torch.Generator().manual_seed(setting.seed),
        )
        fused = way.fused
        if fused is None:
            fused = "fused" in str(TrainingArguments.default_optim)
        # As in Trainer, neither biases nor layer norms decay.
        parameters = list(self.model.parameters())
        groups: list[dict[str, Any]] = [
            {
                "params": [p for p in parameters if p.ndim > 1],
                "weight_decay": setting.weight_decay,
            },
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, setting.learning_rate, eps=setting.adam_epsilon, fused=fused
        )
        steps = setting.epochs * len(self.loader)
        self.schedule = get_linear_schedule_with_warmup(
            self.optimizer, round(setting.warmup_ratio * steps), steps
        )

    def step(self, batch: dict[str, Tensor]) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.way.bf16):
            loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.setting.max_grad_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()

    def batches(self) -> Iterator[dict[str, Tensor]]:
        """Epoch after epoch, without end."""
        while True:
            yield from self.loader

    def answers(self) -> Any:
        """To the held-out file, in fp32; see :func:`sides.scores.judge`."""
        self.model.eval()
        held = self.inputs.held
        order = sorted(range(len(held)), key=lambda at: -_length(held[at]))
        outputs: list[np.ndarray] = [np.empty(0)] * len(held)
        with torch.inference_mode():
            for begin in range(0, len(order), _EVALUATED):
                chosen = order[begin : begin + _EVALUATED]
                found = self.model(**self.inputs.collate([held[at] for at in chosen]))
                if "logits" in found:
                    logits = found.logits
                else:
                    logits = torch.stack([found.start_logits, found.end_logits], -1)
                for at, output in zip(chosen, logits.float().numpy(), strict=True):
                    outputs[at] = output
        return self.inputs.answers(outputs)


def _length(item: dict[str, Any]) -> int:
    """Of an input, or of the longest of an example's choices."""
    ids = item["input_ids"]
    return max(map(len, ids)) if isinstance(ids[0], list) else len(ids)


def whole_run(turn: Turn, setting: Setting, way: Way) -> None:
    """Train, and be judged."""
    turn.end({})
    # With batches of ever new lengths and freed memory kept, the heap of a run on SQuAD grew to
    # 18 GB. Padding a little further changes what is rounded, no more; speed is measured without.
    loop = Loop(setting, way, multiple=max(1, setting.max_length // 8))
    reset_peak_memory()
    elapsed = 0.0
    for _ in range(setting.epochs):
        loop.model.train()
        began = time.perf_counter()
        for batch in loop.loader:
            loop.step(batch)
        elapsed += time.perf_counter() - began
    peak = peak_memory()
    turn.end({"elapsed": elapsed, "scores": judge(setting, loop.answers()), "peak": peak})


def steps_by_turns(turn: Turn, setting: Setting, way: Way, steps: int | None) -> None:
    """A turn of `steps`, or (None) of an epoch; tells the seconds that an epoch takes at this
    pace."""
    loop = Loop(setting, way)
    loop.model.train()
    batches = loop.batches()
    turn.end({})
    while True:
        seen = 0
        began = time.perf_counter()
        for _ in range(steps or len(loop.loader)):
            batch = next(batches)
            loop.step(batch)
            seen += len(batch["input_ids"])
        seconds = time.perf_counter() - began
        turn.end({"seconds": seconds * len(loop.inputs.train) / seen})
