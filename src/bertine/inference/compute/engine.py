"""A model for answers on a CPU: packed weights, hardly any padding, measured choices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bertine.errors import BertineError
from bertine.inference.compute.choosing import choose, measured_threads
from bertine.models.fast.backbone import PackedModel
from bertine.models.model import Model
from bertine.system.memory import keep_freed_memory

#: Tokens (with padding) in a batch: few enough that a layer's activations stay in the caches.
BATCH_TOKENS = 768


class Engine:
    """A BERT on the CPU, its weights packed once, in the precision that a check found good.

    May be shared by threads; each call computes with `threads` of its own. Making one also keeps
    freed memory in the process (:mod:`bertine.system.memory`), which saves a tenth of the time.

    Args:
        model: on the CPU. It is not changed, and is needed no longer; its word embeddings are
            shared, so it must not be changed later either.
        precision: ``"auto"`` (the fastest whose outputs are close to those in fp32), ``"fp32"``,
            ``"bf16"`` or ``"int8"``.
        threads: to compute with; None: measured, no more than PyTorch would take.
        samples: inputs as ids with special tokens, of the kind that will come: 8-bit numbers are
            laid over what these reach, and outputs are compared on them. None: made up of
            the vocabulary.
        max_tokens: of a batch, with its padding.

    Attributes:
        precision: ``"fp32"``, ``"bf16"`` or ``"int8"``, as it was chosen.
        check: what was compared and why this precision; None for fp32, which needs no check.
        threads: it computes with.
        config: of the model.
        backbone: packed; called like the model's.
        model: the packed backbone with the model's heads, what a task's ``outputs`` takes.

    Raises:
        BertineError: unknown precision, a model that is not on the CPU.
    """

    def __init__(
        self,
        model: Model,
        *,
        precision: str = "auto",
        threads: int | None = None,
        samples: Sequence[Sequence[int]] | None = None,
        max_tokens: int = BATCH_TOKENS,
    ) -> None:
        if next(model.parameters()).device.type != "cpu":
            raise BertineError("the engine computes on the CPU; move the model there first")
        if threads is not None and threads < 1:
            raise BertineError(f"threads is {threads}, but must be at least 1")
        keep_freed_memory()
        self.config = model.config
        self.backbone, self.check = choose(model.backbone, precision, samples)
        self.precision = {torch.int8: "int8", torch.bfloat16: "bf16"}.get(
            self.backbone.dtype, "fp32"
        )
        self.threads = threads or measured_threads(self.backbone)
        # Only now: threads are measured on padded batches, of any size.
        self.max_tokens = max_tokens
        self.model = PackedModel(model, self.backbone)

    @property
    def max_tokens(self) -> int:
        """Of a batch, with its padding; may be set. Batches as large as this are computed padded,
        smaller ones as ``PackedBackbone.batch_tokens`` says."""
        return self._max_tokens

    @max_tokens.setter
    def max_tokens(self, max_tokens: int) -> None:
        self._max_tokens = self.backbone.batch_tokens = max_tokens

    def lines(self) -> list[str]:
        """Return what a person should know of the choices."""
        return [] if self.check is None else self.check.lines()
