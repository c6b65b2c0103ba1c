"""Encoding on a CPU as fast as it goes: packed weights, hardly any padding, measured choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertine.cores.short_waits import adapt_waiting
from bertine.data.batching import token_budget_batches
from bertine.errors import BertineError
from bertine.inference.compute.choosing import choose, measured_threads, using_threads
from bertine.models.encoder import Encoder
from bertine.models.fast.backbone import PackedModel, PackedOutput
from bertine.models.memory import keep_freed_memory
from bertine.models.model import Model

#: Tokens (with padding) in a batch: few enough that a layer's activations stay in the caches.
BATCH_TOKENS = 768


@dataclass(frozen=True)
class EncodedBatch:
    """Some sequences of like length, encoded. The last layer is computed when it is asked for:
    for `pooler_output` and `first_token` alone it costs little.

    Attributes:
        indices: which of the sequences given to :meth:`Engine.encode` these B are.
        lengths: int64 [B], of the sequences.
    """

    indices: list[int]
    lengths: Tensor
    _output: PackedOutput
    _threads: int

    @property
    def last_hidden_state(self) -> Tensor:
        """fp32 [B, T, H]; what stands at padding has no meaning."""
        with torch.inference_mode(), using_threads(self._threads):
            return self._output.last_hidden_state

    @property
    def first_token(self) -> Tensor:
        """fp32 [B, H], the last hidden state of each sequence's first token."""
        with torch.inference_mode(), using_threads(self._threads):
            return self._output.first_token

    @property
    def pooler_output(self) -> Tensor | None:
        """fp32 [B, H]; None for a backbone without a pooler."""
        with torch.inference_mode(), using_threads(self._threads):
            return self._output.pooler_output

    @property
    def hidden_states(self) -> tuple[Tensor, ...] | None:
        """fp32 [B, T, H] of the embeddings and of each layer; None unless asked for."""
        return self._output.hidden_states


class Engine:
    """A BERT on the CPU, its weights packed once, in the precision that a check found good.

    May be shared by threads; each call computes with `threads` of its own. Making one also keeps
    freed memory in the process (:mod:`bertine.models.memory`), which saves a tenth of the time.

    Args:
        model: a model or a backbone, on the CPU. It is not changed, and is needed no longer; its
            word embeddings are shared, so it must not be changed later either.
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
        backbone: packed; called like the model's.
        model: the packed backbone with the model's heads, what a task's ``outputs`` takes; None
            where a backbone was given.

    Raises:
        BertineError: unknown precision, a model that is not on the CPU.
    """

    def __init__(
        self,
        model: Model | Encoder,
        *,
        precision: str = "auto",
        threads: int | None = None,
        samples: Sequence[Sequence[int]] | None = None,
        max_tokens: int = BATCH_TOKENS,
    ) -> None:
        backbone = model.backbone if isinstance(model, Model) else model
        if next(backbone.parameters()).device.type != "cpu":
            raise BertineError("the engine computes on the CPU; move the model there first")
        if threads is not None and threads < 1:
            raise BertineError(f"threads is {threads}, but must be at least 1")
        keep_freed_memory()
        self.config = backbone.config
        self.backbone, self.check = choose(backbone, precision, samples)
        self.precision = {torch.int8: "int8", torch.bfloat16: "bf16"}.get(
            self.backbone.dtype, "fp32"
        )
        self.threads = threads or measured_threads(self.backbone)
        # Only now: threads are measured on padded batches, of any size.
        self.max_tokens = max_tokens
        self.model = PackedModel(model, self.backbone) if isinstance(model, Model) else None

    @property
    def max_tokens(self) -> int:
        """Of a batch, with its padding; may be set. Batches as large as this are computed padded,
        smaller ones as ``PackedBackbone.batch_tokens`` says."""
        return self._max_tokens

    @max_tokens.setter
    def max_tokens(self, max_tokens: int) -> None:
        self._max_tokens = self.backbone.batch_tokens = max_tokens

    def lines(self) -> list[str]:
        """What a person should know of the choices."""
        return [] if self.check is None else self.check.lines()

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Indices of sequences in batches of like length, longest first."""
        return token_budget_batches(lengths, self.max_tokens)

    def encode(
        self,
        ids: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        *,
        output_hidden_states: bool = False,
    ) -> Iterator[EncodedBatch]:
        """Encode sequences in batches of like length, longest first.

        Args:
            ids: of each sequence, with its special tokens; not empty.
            segments: its token types; None: all 0.
            output_hidden_states: also give the output of every layer.

        Raises:
            BertineError: a sequence is empty, longer than the model's positions, or has an id or
                a token type outside the model's.
        """
        lengths = [len(sequence) for sequence in ids]
        for indices in self.batches(lengths):
            chosen = [lengths[index] for index in indices]
            arrays = [pad([ids[index] for index in indices], chosen)]
            if segments is not None:
                arrays.append(pad([segments[index] for index in indices], chosen))
            self._check(indices, chosen, *arrays)
            sizes = torch.tensor(chosen)
            # Longest first: where the last is as long, there is no padding.
            ragged = chosen[-1] != chosen[0]
            mask = torch.arange(chosen[0])[None, :] < sizes[:, None] if ragged else None
            inputs = [torch.from_numpy(array) for array in arrays]
            with torch.inference_mode(), using_threads(self.threads):
                adapt_waiting()
                output = self.backbone(
                    inputs[0],
                    mask,
                    inputs[1] if segments is not None else None,
                    output_hidden_states,
                )
            yield EncodedBatch(indices, sizes, output, self.threads)

    def _check(
        self,
        indices: list[int],
        lengths: list[int],
        ids: np.ndarray,
        types: np.ndarray | None = None,
    ) -> None:
        config = self.config
        if lengths[-1] == 0:
            raise BertineError(f"sequence {indices[-1]} is empty; special tokens at least are due")
        if lengths[0] > config.longest_input:
            raise BertineError(
                f"sequence {indices[0]} has {lengths[0]} tokens, but the model has positions for "
                f"{config.longest_input}"
            )
        for what, array, size in (
            ("token id", ids, config.vocab_size),
            ("token type", types, config.type_vocab_size),
        ):
            if array is not None and not (array.min() >= 0 and array.max() < size):
                row = int(((array < 0) | (array >= size)).any(1).argmax())
                raise BertineError(
                    f"sequence {indices[row]} has a {what} outside 0 to {size - 1}, which the "
                    "model has"
                )


def pad(sequences: Sequence[Sequence[int]], lengths: Sequence[int]) -> np.ndarray:
    """int64 [B, T], 0 after the ends; T is the longest of `lengths`."""
    array = np.zeros((len(sequences), max(lengths)), np.int64)
    for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        if len(sequence) != length:
            raise BertineError(f"{len(sequence)} token types for a sequence of {length} ids")
        array[row, :length] = sequence
    return array
