"""Build backbones for inference: with packed layers, or unchanged where layers cannot be packed.

They are called like :class:`bertine.models.encoder.Encoder`.

Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the embeddings; N
rows of :class:`bertine.fast.layers.Rows`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.fast.int8 import Int8Layer, LayerRanges, int8_layers
from bertine.fast.layers import (
    BLOCKED_FROM,
    FEW_ROWS,
    FloatLayer,
    PaddedRows,
    Recorded,
    Rows,
    UnpaddedRows,
    norm_of,
    projection_of,
)
from bertine.models.encoder import Backbone, BackboneOutput
from bertine.models.heads import Model

# Plain backbone: for inference with layers that cannot be packed.


class PlainBackbone(nn.Module):
    """The module `backbone` in evaluation mode, called like a
    :class:`bertine.fast.backbone.PackedBackbone`.

    Args:
        backbone: on the CPU. Its weights are shared, its mode is not; for bf16, the weights of
            linear layers are copied.
        dtype: to compute in: torch.float32, or torch.bfloat16 by autocast.
    """

    def __init__(self, backbone: Backbone, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = backbone.config, dtype
        self.batch_tokens: int | None = None
        shared = {id(parameter): parameter for parameter in backbone.parameters()}
        self._backbone = copy.deepcopy(backbone, shared).eval()
        self._backbone.reads_padding = False
        if dtype == torch.bfloat16:
            _cast_linears(self._backbone)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a batch; see :class:`bertine.models.encoder.Backbone`. States are fp32."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            result: BackboneOutput = self._backbone(
                input_ids, attention_mask, token_type_ids, output_hidden_states
            )
        pooled, states = result.pooler_output, result.hidden_states
        return BackboneOutput(
            result.last_hidden_state.float(),
            None if pooled is None else pooled.float(),
            None if states is None else tuple(state.float() for state in states),
        )

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[Any, Sequence[Sequence[int]]]:
        """Return a writer of texts; see :class:`bertine.models.encoder.Backbone`."""
        if self.dtype != torch.bfloat16:
            return self._backbone.writer(scores, texts)
        with torch.autocast("cpu", torch.bfloat16):
            writer, starts = self._backbone.writer(scores, texts)
        return _WriterInBf16(writer), starts

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E]."""
        return self._backbone.word_weights


class _WriterInBf16:
    """A writer that computes in bf16."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            scores: Tensor = self._writer.start(prompts)
        return scores

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            scores: Tensor = self._writer.advance(rows, tokens)
        return scores


def _cast_linears(backbone: nn.Module) -> None:
    """Replace the weights of the linear layers of `backbone` by copies in bf16: autocast would
    convert them in every batch, which takes most of the time of a small batch."""
    for part in backbone.modules():
        if isinstance(part, nn.Linear):
            part.weight = nn.Parameter(part.weight.detach().bfloat16(), requires_grad=False)
            if part.bias is not None:
                part.bias = nn.Parameter(part.bias.detach().bfloat16(), requires_grad=False)


LayerPart = Literal["before last", "last", "first of last"]

#: The ratio of places to tokens from which a full batch is computed without padding too: moving
#: tokens to their places for attention costs as much as some hundredths of padding.
_WORTH = 1.08


class PackedOutput:
    """The output of a :class:`PackedBackbone`: :class:`bertine.models.encoder.Encoded`, whose last
    layer is computed on access, and only for the first tokens if nothing else is read. That saves a
    twelfth of the work of bert-base, a sixth of MiniLM's.

    Attributes:
        hidden_states: see :class:`bertine.models.encoder.Encoded`.
    """

    def __init__(
        self,
        backbone: PackedBackbone,
        before_last: Tensor,
        rows: Rows,
        hidden_states: tuple[Tensor, ...] | None,
        attention_mask: Tensor | None,
        length: int,
    ) -> None:
        self._backbone, self._before_last, self._rows = backbone, before_last, rows
        self._mask, self._length = attention_mask, length
        self.hidden_states = hidden_states
        self._last: Tensor | None = None if hidden_states is None else hidden_states[-1]

    @property
    def last_hidden_state(self) -> Tensor:
        """fp32 [B, T, H]; states at padding have no meaning."""
        if self._last is None:
            last = self._backbone.compute("last", self._before_last, self._rows)
            self._last = self._rows.padded(last.float())
        return self._last

    @cached_property
    def first_token(self) -> Tensor:
        """fp32 [B, H], the last layer's state of each sequence's first token."""
        if self._last is not None:
            return self._last[:, 0]
        first = self._backbone.compute("first of last", self._before_last, self._rows)
        return first[: self._rows.sequences].float()

    @property
    def pooler_output(self) -> Tensor | None:
        """fp32 [B, H], the family's pooled output; None without a pooler."""
        return self._backbone.pooled(self, self._mask)

    def rows(self, places: Tensor) -> Tensor:
        """Return fp32 [P, H], the last states at `places`, int64 [P], indices among all tokens of
        the inputs, padding included."""
        sequences = places.div(self._length, rounding_mode="floor")
        return self.last_hidden_state[sequences, places % self._length]


class PackedBackbone(nn.Module):
    """The embeddings and the pooler of a backbone in fp32, and its layers packed; a shared layer is
    packed once. This class is for layers like BERT's. Subclasses for others define how they are
    packed, what they read in addition to the states, and the step after the last.

    Args:
        backbone: on the CPU. The word embeddings are shared with it, the other weights copied.
        dtype: of the layers, torch.float32 or torch.bfloat16; torch.int8 for 8-bit products.
        ranges: of the layers' activations, for torch.int8.

    Attributes:
        batch_tokens: size of a full batch, padding included. Full batches recur in a few sizes, one
            for each length, and are worth kernels that are compiled for attention of that size.
            Others come in all sizes, and are computed without padding, with rounded numbers of rows
            and places. None: all batches count as full.
    """

    #: Lengths of a single sequence at which the way of computing changes, and below, the length
    #: from which it is not recorded.
    _different: tuple[int, ...] = (1, FEW_ROWS + 1, BLOCKED_FROM)
    _recorded_below: float = float("inf")

    def __init__(
        self,
        backbone: Backbone,
        dtype: torch.dtype,
        ranges: Sequence[LayerRanges] | None = None,
    ) -> None:
        super().__init__()
        self.config = backbone.config
        self.dtype = dtype
        # In a small model, calls cost more than the padding of a larger group.
        self._together = 4 if self.config.hidden_size >= 512 else 8
        self.batch_tokens: int | None = None
        self._recorded: dict[tuple[LayerPart, int], Recorded] = {}
        self.pooler = copy.deepcopy(backbone.pooler)
        with torch.inference_mode():
            self._pack(backbone, ranges)

    def _pack(self, backbone: Any, ranges: Sequence[LayerRanges] | None) -> None:
        """Pack the layers and copy the embeddings; in inference mode."""
        first = self._pack_layers(backbone, ranges)
        embeddings = backbone.embeddings
        self._words = embeddings.word_embeddings.weight.detach()
        self._places: Tensor | None = embeddings.places().detach()
        self._types = torch.zeros(1, self.config.embedding_width)
        if embeddings.token_type_embeddings is not None:
            types = embeddings.token_type_embeddings.weight.detach()
            # Nearly every token is of the first segment.
            self._places = self._places + types[0]
            self._types = types - types[0]
        if embeddings.projection is None:
            self._norm = norm_of(embeddings.layer_norm, first)
        else:
            norm = norm_of(embeddings.layer_norm)
            project = projection_of(embeddings.projection, first)
            self._norm = lambda x: project(norm(x))

    def _pack_layers(self, backbone: Any, ranges: Sequence[LayerRanges] | None) -> Tensor | None:
        """Pack the layers; return what the first divides its input by, fp32 [H], None: nothing."""
        self.layers: list[Any]
        dtype, act, passes = self.dtype, self.config.hidden_act, self.config.passes
        if dtype == torch.int8:
            if ranges is None:
                raise ValueError("8-bit layers need the ranges of their activations")
            self.layers = list(int8_layers(backbone.layers, list(ranges), act, passes))
            divisor: Tensor = self.layers[0].divisor
            return divisor
        packed = [
            FloatLayer(layer, dtype, act, split=number == passes[-1])
            for number, layer in enumerate(backbone.layers)
        ]
        self.layers = [packed[number] for number in passes]
        return None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> PackedOutput:
        """Encode a batch; the arguments are those of :class:`bertine.models.encoder.Encoder`, the
        real tokens before the padding. Columns of only padding are not computed, so the output may
        have a smaller T. Must be called in ``torch.inference_mode()``."""
        b, t = input_ids.shape
        lengths = None
        if attention_mask is not None:
            lengths = attention_mask.sum(1).long().clamp_(min=1)
            t = int(lengths.max())
        rows = self._rows(b, t, lengths)
        types = None if token_type_ids is None else token_type_ids[:, :t]
        if len(self._types) == 1:
            types = None
        if types is not None and not types.any():
            types = None
        x = self._norm(self._embedded(input_ids[:, :t], types, rows))
        if self.dtype == torch.bfloat16:
            x = x.to(self.dtype)
        if not output_hidden_states:
            x = self.compute("before last", x, rows)
            return PackedOutput(self, x, rows, None, attention_mask, input_ids.shape[1])
        states: list[Tensor] = []
        around = self.around("before last", x, rows)
        for layer in self.layers:
            states.append((x * layer.divisor if isinstance(layer, Int8Layer) else x).float())
            x = layer(x, around)
        states.append(self._finished(x).float())
        padded = tuple(map(rows.padded, states))
        return PackedOutput(self, x, rows, padded, attention_mask, input_ids.shape[1])

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, fp32 [V, E]."""
        return self._words

    def float_layer(self, backbone: Any, dtype: torch.dtype) -> Any:
        """Return the first layer of `backbone`, packed in `dtype`, fp32 or bf16."""
        return FloatLayer(backbone.layers[0], dtype, self.config.hidden_act)

    def pooled(self, output: PackedOutput, attention_mask: Tensor | None) -> Tensor | None:
        """Return the family's pooled output, fp32 [B, H], for an output and the mask [B, T] of its
        inputs; None without a pooler."""
        return None if self.pooler is None else torch.tanh(self.pooler(output.first_token))

    def compute(self, part: LayerPart, x: Tensor, rows: Rows) -> Tensor:
        """Compute a part of the layers; x [N, H] is the input of the first of them."""
        size = len(x)
        if rows.sequences > 1 or size >= self._recorded_below:
            return self._computed(part, x, rows)
        least = max(first for first in self._different if first <= size)
        if (part, least) not in self._recorded:
            self._recorded[part, least] = Recorded(
                lambda x: self._computed(part, x, PaddedRows(1, len(x))),
                least,
                _once(weight for layer in self.layers for weight in layer.weights()),
            )
        return self._recorded[part, least](x)

    def _computed(self, part: LayerPart, x: Tensor, rows: Rows) -> Tensor:
        around = self.around(part, x, rows)
        if part == "last":
            return self._finished(self.layers[-1](x, around))
        if part == "first of last":
            return self._finished(self.layers[-1].first_token(x, around))
        for layer in self.layers[:-1]:
            x = layer(x, around)
        return x

    def around(self, part: LayerPart, x: Tensor, rows: Rows) -> Any:
        """Return the input of a part's layers in addition to the states x [N, H]."""
        return rows

    def _finished(self, x: Tensor) -> Tensor:
        """Return the final states for the states of the last layer, [any, H]."""
        return x

    def _rows(self, sequences: int, length: int, lengths: Tensor | None) -> Rows:
        """Return rows padded to `length`, or rows without padding if padding would waste much or
        needs kernels that nothing else will use. lengths int64 [B]; None: all are `length`."""
        if lengths is None or sequences == 1:
            padded, tokens = PaddedRows(sequences, length), sequences * length
        else:
            padded, tokens = PaddedRows.of(lengths, length), int(lengths.sum())
        full = self.batch_tokens is None or sequences == self.batch_tokens // length
        if sequences == 1 or padded.few or (full and tokens * _WORTH > padded.area):
            return padded
        if lengths is None:
            lengths = torch.full((sequences,), length)
        return UnpaddedRows.of(lengths, self._together)

    def _embedded(self, ids: Tensor, types: Tensor | None, rows: Rows) -> Tensor:
        """Return the sum of the embeddings: fp32 [N, E]. ids and types (None: all 0) are [B, T]."""
        places = self._places
        if isinstance(rows, PaddedRows):
            fill = rows.count - rows.area
            x = torch.embedding(
                self._words, F.pad(ids.flatten(), (0, fill)) if fill else ids.flatten()
            )
            there = rows.padded(x)
            if places is not None:
                there.add_(places[: ids.shape[1]])
            if types is not None:
                there.add_(torch.embedding(self._types, types))
            return x

        real = torch.arange(ids.shape[1]) < rows.lengths[:, None]

        def bare(x: Tensor) -> Tensor:
            chosen = x[real]
            return F.pad(chosen, (0, rows.count - len(chosen)))

        x = torch.embedding(self._words, bare(ids))
        if places is not None:
            x.add_(torch.embedding(places, bare(torch.arange(ids.shape[1]).expand(ids.shape))))
        if types is not None:
            x.add_(torch.embedding(self._types, bare(types)))
        return x


def _once(weights: Iterable[Any]) -> list[Any]:
    """Return `weights` without duplicates."""
    return list({id(weight): weight for weight in weights}.values())


class PackedModel(Model):
    """A model for inference on a CPU: a packed backbone, or a plain one, and copies of the heads of
    `model`, which compute in fp32. It is always in evaluation mode.

    Attributes:
        config, heads: of the model.
        backbone: packed, if its layers can be.
    """

    backbone: PackedBackbone | PlainBackbone  # type: ignore[assignment]

    def __init__(self, model: Model, backbone: PackedBackbone | PlainBackbone) -> None:
        nn.Module.__init__(self)
        self.config = model.config
        self.heads = copy.deepcopy(model.heads)
        self.backbone = backbone
        self.eval()
