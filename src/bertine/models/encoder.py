"""Define backbones: their interface, their inputs and outputs, and BERT's encoder.

The encoder is that of BERT and of the models that share its layers: embeddings, layers with the
norm after each part, a pooler (Devlin et al. 2018, section 3; google-research/bert,
``modeling.py``).

Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the embeddings; N rows
that are computed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.models.config import Config
from bertine.models.embeddings import Embeddings, Numbers, RowEmbeddings
from bertine.models.layers import EncoderLayer, RowLayout, init_weights
from bertine.models.precision import autocast_dtype

# Inputs and outputs: what a backbone reads and returns.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size, P places.


class PackedRows(Protocol):
    """The rows that a GPU computes, chosen on the host: :class:`bertine.corpora.batch.Packing`."""

    @property
    def real(self) -> Tensor: ...
    @property
    def ends(self) -> Tensor: ...
    @property
    def longest(self) -> int: ...


class Inputs(Protocol):
    """The part of a batch that a model reads: :class:`bertine.corpora.batch.Batch`."""

    @property
    def input_ids(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor | None: ...
    @property
    def token_type_ids(self) -> Tensor | None: ...
    @property
    def packing(self) -> PackedRows | None: ...


@dataclass
class TextInputs:
    """The inputs of a model without targets.

    Attributes:
        input_ids: int64 [B, T].
        attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
        token_type_ids: int64 [B, T]; None: all 0.
        packing: the places of the real tokens, for a GPU.
    """

    input_ids: Tensor
    attention_mask: Tensor | None = None
    token_type_ids: Tensor | None = None
    packing: PackedRows | None = None


class Encoded(Protocol):
    """The output of a backbone, under the names of transformers. A backbone for answers may compute
    the last layer only on access."""

    @property
    def last_hidden_state(self) -> Tensor:
        """[B, T, H]; states at padding have no meaning. T may be smaller than that of the inputs if
        the last columns are only padding."""
        ...

    @property
    def pooler_output(self) -> Tensor | None:
        """[B, H], the family's pooled output for tasks on whole inputs; None without a pooler."""
        ...

    @property
    def hidden_states(self) -> tuple[Tensor, ...] | None:
        """The embedding output and the output of each layer of ``config.passes``, one tensor more
        than passes, [B, T, H] each; None unless asked for."""
        ...

    @property
    def first_token(self) -> Tensor:
        """[B, H], the last state of each sequence's first token."""
        ...

    def rows(self, places: Tensor) -> Tensor:
        """Return the last states at `places`, int64 [P], indices into the B * T tokens of the
        inputs: [P, H]."""
        ...


@dataclass
class BackboneOutput:
    """The output of a backbone, completely computed; see :class:`Encoded`."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None

    @property
    def first_token(self) -> Tensor:
        return self.last_hidden_state[:, 0]

    def rows(self, places: Tensor) -> Tensor:
        return self.last_hidden_state.flatten(0, 1).index_select(0, places)


def last_tokens(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the states of the last real token of each sequence.

    Args:
        states: [B, T, H].
        mask: bool or 0/1 [B, T], true at real tokens; it may have further columns of padding. None:
            there is no padding.

    Returns:
        [B, H].
    """
    if mask is None:
        return states[:, -1]
    length = states.shape[1]
    places = torch.arange(1, length + 1, device=states.device)
    last = (mask[:, :length].long() * places).argmax(1)
    return states.gather(1, last[:, None, None].expand(-1, 1, states.shape[-1]))[:, 0]


def with_types(inputs: Inputs) -> Tensor:
    """Return the token types of `inputs`; zeros if it has none."""
    types = inputs.token_type_ids
    return torch.zeros_like(inputs.input_ids) if types is None else types


# Key-value cache: keys and values of the tokens that were read, for those that follow.
#
# Shape legend: R rows, A attention heads, D size of a head, T tokens that are read now, K tokens
# that are kept, including those.

#: Memory is reserved for this many tokens at once, or for a quarter of the present ones.
_AHEAD = 32


class KeyValues:
    """The keys and values of one layer's attention, for rows that continue."""

    def __init__(self) -> None:
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._kept = 0

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep more tokens, [R, A, T, D] each; return those of all, [R, A, K, D]."""
        end = self._kept + keys.shape[2]
        self._keys = _placed(self._keys, keys, self._kept)
        self._values = _placed(self._values, values, self._kept)
        self._kept = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def choose(self, rows: Tensor) -> None:
        """Select the rows with these indices, int64 [R]."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)


def _placed(room: Tensor | None, new: Tensor, start: int) -> Tensor:
    """Write `new` [R, A, T, D] after the `start` tokens in `room`, which is enlarged if it is too
    small."""
    r, a, t, d = new.shape
    end = start + t
    if room is None or room.shape[2] < end:
        larger = new.new_empty(r, a, end + max(_AHEAD, end // 4), d)
        if room is not None:
            larger[:, :, :start] = room[:, :, :start]
        room = larger
    room[:, :, start:end] = new
    return room


def same_rows(rows: Tensor, count: int) -> bool:
    """Return whether `rows` are all of `count` rows in order, so that nothing has to move."""
    return len(rows) == count and bool((rows == torch.arange(count, device=rows.device)).all())


# Backbone: the interface to the rest of Bertine, and the parts that others use.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, V
# vocabulary size, E width of the embeddings.


class Backbone(nn.Module):
    """The base class of every model type's backbone, which maps ids to states.

    The names of the attributes are also those of weights: ``backbone.layers.0.…``.

    Attributes:
        config: its sizes.
        embeddings: the part before the layers, with the ``word_embeddings``. Trained at the lowest
            rate under ``layer_decay``, not at all under ``freeze_embeddings``.
        layers: those with weights of their own, in order. Frozen, compiled, sharded, and given
            rates one by one. ``config.passes`` is the order in which tokens pass them.
        pooler: reads the first token's state; None: there is none.
        takes_packing: whether `packing` may be given, so that a GPU computes no padding.
        reads_padding: whether adjacent padding changes the states of a real token (MobileBERT,
            whose tokens are read with their neighbours; its weights were trained so). If set to
            False, each text is computed as if it were alone. So answers, which must not depend on
            the other texts in a batch, and graphs set it.
        shows_attention: whether :meth:`attention_scores` is implemented.
    """

    takes_packing: ClassVar[bool] = False
    shows_attention: ClassVar[bool] = False
    reads_padding: bool = False

    config: Config
    embeddings: nn.Module
    layers: nn.ModuleList
    pooler: nn.Linear | None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        packing: PackedRows | None = None,
        word_vectors: Tensor | None = None,
    ) -> BackboneOutput:
        """Encode a batch.

        Args:
            input_ids: int64 [B, T], T at most ``config.longest_input``.
            attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
            token_type_ids: int64 [B, T]; None: all 0.
            output_hidden_states: also return every layer's output.
            packing: the places of the real tokens, instead of `attention_mask`: other places are
                not computed (except rows that make a round number).
            word_vectors: [B, T, E], used instead of the embeddings of `input_ids`, to see their
                effect on an answer; for batches without padding.
        """
        raise NotImplementedError

    def weights_of_passes(self) -> int:
        """Count the weights of the layers that each token passes; shared layers count once for
        each pass."""
        passes = list(self.config.passes)
        own = [sum(p.numel() for p in layer.parameters()) for layer in self.layers]
        for name, owner in self.config.tied_modules.items():
            lent = self.get_submodule(owner).parameters()
            own[int(name.split(".")[1])] += sum(p.numel() for p in lent)
        return sum(own[number] for number in passes)

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E], which are also the matrix of a tied decoder."""
        raise NotImplementedError

    def numbers_of(self, input_ids: Tensor, token_type_ids: Tensor) -> Numbers:
        """Return the positions and the segments by which the model knows the tokens of a text
        without padding: rows of tables of embeddings, or segments that its attention compares.

        Args:
            input_ids, token_type_ids: int64 [B, T].

        """
        embeddings = self.embeddings
        assert isinstance(embeddings, RowEmbeddings)
        return embeddings.numbers_of(input_ids, token_type_ids)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the attention scores of a layer's heads for each pair of tokens: before the
        softmax, with padding not yet masked, and without dropout.

        Args:
            layer: its number, from 0 on.
            states: [B, T, H], the layer's input: its entry in ``hidden_states``.
            token_type_ids: int64 [B, T], for a backbone whose attention uses them; None: all 0.

        Returns:
            [B, A, T, T], the attending token first; differentiable.

        Raises:
            BertineError: a backbone of this type has no such scores.
        """
        raise BertineError(f"the attention of {self.config.title} cannot be shown")

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[Any, Sequence[Sequence[int]]]:
        """Return a writer of texts; for models whose config has ``writes_with``.

        Args:
            scores: maps states [R, H] to scores of the next token, [R, V].
            texts: ids of N texts to continue, or, for a model with an encoder, to answer.

        Returns:
            A scorer of next tokens (:class:`bertine.models.generation.NextTokens`) for one search,
            and the N prompts that the search begins with.

        Raises:
            BertineError: a backbone of this type writes no texts.
        """
        raise BertineError(f"{self.config.title} writes no texts")

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a batch with operators that a graph for export can hold, without branches that
        depend on values. The arguments are those of :meth:`forward`."""
        return self(input_ids, attention_mask, token_type_ids, output_hidden_states)


@contextlib.contextmanager
def each_text_alone(module: nn.Module) -> Iterator[None]:
    """Make the backbones in `module` ignore padding within the context."""
    backbones = [part for part in module.modules() if isinstance(part, Backbone)]
    before = [backbone.reads_padding for backbone in backbones]
    for backbone in backbones:
        backbone.reads_padding = False
    try:
        yield
    finally:
        for backbone, reads in zip(backbones, before, strict=True):
            backbone.reads_padding = reads


#: From this share of padding on, a CPU computes only real tokens. With less than a tenth a step
#: takes 2% to 4% longer, but its number of rows is a round one.
_UNPAD_FROM = 0.02
#: Numbers of rows are rounded to multiples of this, or of a sixteenth of the number, rounded down
#: to a power of two. oneDNN compiles each product for its shape, in about a millisecond, and keeps
#: a thousand; batches with ever new numbers of real tokens would compile forever, and what it
#: keeps of each cuts the free memory into parts too small to use again.
_ROWS = 64


class RowBackbone(Backbone):
    """A backbone whose embeddings and layers compute rows [N, H] by a
    :class:`bertine.models.layers.RowLayout`: of a batch with padding only the real tokens.

    The embeddings are called like :class:`bertine.models.embeddings.Embeddings`, in a graph through
    their ``traced``; the layers with the rows and their layout.
    """

    takes_packing = True
    embeddings: RowEmbeddings

    def __init__(
        self, config: Config, embeddings: RowEmbeddings, layers: Iterable[nn.Module]
    ) -> None:
        super().__init__()
        self.config = config
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)
        self.pooler = None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        packing: PackedRows | None = None,
        word_vectors: Tensor | None = None,
    ) -> BackboneOutput:
        """Encode a batch; see :class:`bertine.models.encoder.Backbone`.

        Raises:
            ValueError: `word_vectors` for a batch with padding.
        """
        dtype = self.embeddings.word_embeddings.weight.dtype
        layout = self._layout(input_ids, attention_mask, packing, dtype)
        if word_vectors is not None and layout.real is not None:
            raise ValueError("word_vectors are for batches without padding")
        x = self._embedded(input_ids, attention_mask, token_type_ids, layout, word_vectors)
        around = self._around(layout, x)
        return self._encoded(x, layout, around, attention_mask, output_hidden_states)

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a padded batch with explicit embeddings and masks."""
        b, t = input_ids.shape
        x = self.embeddings.traced(input_ids, attention_mask, token_type_ids)
        layout = RowLayout(b, t, bias=self._bias_traced(attention_mask, x.dtype))
        around = self._around_traced(layout, x)
        return self._encoded(x, layout, around, attention_mask, output_hidden_states)

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E], which are also the matrix of a tied decoder."""
        return self.embeddings.word_embeddings.weight

    def _layout(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        packing: PackedRows | None,
        dtype: torch.dtype,
    ) -> RowLayout:
        """Choose the rows to compute and the attention mask; see :func:`layout_of`."""
        return layout_of(input_ids, attention_mask, packing, dtype)

    def _bias_traced(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the bias of the attention scores of a padded batch, mask [B, T], in a graph:
        [B, 1, 1 or T, T]."""
        # Not minus infinity: a runtime may compute a row of only padding, which would be 0 / 0.
        return (1.0 - attention_mask.to(dtype))[:, None, None, :] * torch.finfo(dtype).min

    def _embedded(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        layout: RowLayout,
        word_vectors: Tensor | None,
    ) -> Tensor:
        """Return the first layer's input, [N, H]."""
        x: Tensor = self.embeddings(input_ids, token_type_ids, layout.real, word_vectors)
        return x

    def _around(self, layout: RowLayout, x: Tensor) -> tuple[Any, ...]:
        """Return the arguments of the layers after the rows and their layout; x [N, H] is the input
        of the first one."""
        return ()

    def _around_traced(self, layout: RowLayout, x: Tensor) -> tuple[Any, ...]:
        """Return the same arguments as `_around`, in a traced graph."""
        return ()

    def _encoded(
        self,
        x: Tensor,
        layout: RowLayout,
        around: tuple[Any, ...],
        mask: Tensor | None,
        output_hidden_states: bool,
    ) -> BackboneOutput:
        states = [layout.pad(x)] if output_hidden_states else []
        for number in self.config.passes:
            x = self._passed(number, x, layout, around)
            if output_hidden_states:
                states.append(layout.pad(x))
        last = layout.pad(x)
        return BackboneOutput(last, self._pooled(last, mask), tuple(states) or None)

    def _passed(self, number: int, x: Tensor, layout: RowLayout, around: tuple[Any, ...]) -> Tensor:
        """Return what a layer makes of x [N, H]."""
        passed: Tensor = self.layers[number](x, layout, *around)
        return passed

    def _pooled(self, states: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return the pooled output, [B, H], of the last states [B, T, H] of a batch with the mask
        [B, T]; None: all tokens are real."""
        return None if self.pooler is None else torch.tanh(self.pooler(states[:, 0]))


def layout_of(
    input_ids: Tensor,
    attention_mask: Tensor | None,
    packing: PackedRows | None,
    dtype: torch.dtype,
) -> RowLayout:
    """Choose the rows of a batch that the layers compute, and the mask of their attention.

    Args:
        input_ids: int64 [B, T].
        attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
        packing: the places of the real tokens, instead of `attention_mask`.
        dtype: of the weights, in which the layers compute without autocast.
    """
    b, t = input_ids.shape
    if packing is not None:
        return RowLayout(b, t, packing.real, ends=packing.ends, longest=packing.longest)
    if attention_mask is None:
        return RowLayout(b, t)
    mask, device = attention_mask.bool(), input_ids.device.type
    real = None
    # On a CPU a look at the mask is cheap; elsewhere it would wait for the device.
    if device == "cpu":
        padding = 1.0 - int(mask.sum()) / mask.numel()
        if padding == 0.0:
            return RowLayout(b, t)
        if padding >= _UNPAD_FROM:
            real = _real_rows(mask.reshape(-1))
    bias = torch.zeros(b, 1, 1, t, dtype=autocast_dtype(device) or dtype, device=mask.device)
    return RowLayout(b, t, real, bias.masked_fill_(~mask[:, None, None, :], float("-inf")))


class Encoder(RowBackbone):
    """Embeddings, encoder layers and (by default) the pooler.

    Answers are computed from its weights by packed layers (:mod:`bertine.fast`); those of a
    subclass, which may have another attention, are not.
    """

    shows_attention = True
    embeddings: Embeddings

    def __init__(self, config: Config, add_pooler: bool = True) -> None:
        count = math.prod(config.layer_counts.values())
        super().__init__(config, Embeddings(config), (EncoderLayer(config) for _ in range(count)))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooler else None
        init_weights(self, config.initializer_range)
        for name, owner in config.tied_modules.items():
            layer, _, part = name.rpartition(".")
            _lend(self.get_submodule(layer), part, self.get_submodule(owner))

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.encoder.Backbone`."""
        chosen = self.layers[self.config.passes[layer]]
        assert isinstance(chosen, EncoderLayer)
        return chosen.attention.scores(states)


def _lend(layer: nn.Module, part: str, owner: nn.Module) -> None:
    """Make `layer` use the module `owner` of another layer as its `part`. It still belongs to the
    other layer: as a plain attribute it is moved and copied with the whole model, and occurs once
    among the weights."""
    delattr(layer, part)
    layer.__dict__[part] = owner


def round_number(rows: int) -> int:
    """Round a number of rows up, so that products have few different shapes; see `_ROWS`."""
    multiple = max(_ROWS, 1 << max(0, rows // 16).bit_length() >> 1)
    return -(-rows // multiple) * multiple


def _real_rows(mask: Tensor) -> Tensor | None:
    """Return the indices of the real tokens in mask [B*T], and of as much padding as makes a round
    number; None if that would be all."""
    real = mask.nonzero()[:, 0]
    rows = round_number(real.numel())
    if rows >= mask.numel():
        return None
    return torch.cat([real, (~mask).nonzero()[: rows - real.numel(), 0]])
