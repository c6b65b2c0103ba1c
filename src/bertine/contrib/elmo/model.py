"""Define ELMo: characters to words, two language models over them, and the word softmax.

One language model reads forwards and one backwards, over the same characters (Peters et al. 2018,
section 3; published code: bilm-tf).

Shape legend: B sequences, T words of the longest, L LSTMs of a direction, S cells, P width of a
state, N words of all sequences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.contrib.options import WordSplitting
from bertine.core import rng
from bertine.core.errors import BertineError
from bertine.core.strict_json import Readable
from bertine.data.entities import split_words
from bertine.models.layers import gradient_of, linear
from bertine.models.precision import autocast_dtype
from bertine.models.recurrent import activate, previous_rows, product_with, steps_of, tanh

# Character ids: words as rows of ids, numbered as in the published programs.
#
# A word is at most 48 bytes of its UTF-8 between two marks, padded to 50 places. The published
# code numbers bytes 0 to 255, then five marks; the model reads these numbers plus 1, so that 0 can
# mean "no word": 262 ids.

#: Ids: 0 for "no word", then the bytes plus 1, then the marks.
NUM_CHARACTERS = 262
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 257, 258, 259, 260, 261

#: The marks of the two ends of a sentence, as the published vocabularies write them.
BEGIN, END = "<S>", "</S>"
#: The word for all words that the vocabulary of a softmax lacks.
UNKNOWN = "<UNK>"

_ENDS = {BEGIN: BEGIN_SENTENCE, END: END_SENTENCE}


def character_ids(words: Sequence[str], places: int = 50) -> np.ndarray:
    """Number the characters of words; :data:`BEGIN` and :data:`END` are the ends of a sentence.

    Args:
        words: N; of a longer word the first ``places - 2`` bytes count.
        places: of a word, including its two marks.

    Returns:
        int64 [N, places], from 1 on.
    """
    ids = np.full((len(words), places), PADDING, dtype=np.int64)
    for row, word in zip(ids, words, strict=True):
        row[0] = BEGIN_WORD
        if word in _ENDS:
            row[1], row[2] = _ENDS[word], END_WORD
            continue
        # Half a surrogate pair is not valid UTF-8; it becomes a question mark.
        text = word.encode("utf-8", "replace")[: places - 2]
        row[1 : 1 + len(text)] = np.frombuffer(text, dtype=np.uint8).astype(np.int64) + 1
        row[1 + len(text)] = END_WORD
    return ids


def padded_ids(sentences: Sequence[Sequence[str]], places: int) -> tuple[Tensor, Tensor]:
    """Return the character ids of sentences between their marks, int64 [B, T, C], and how many
    words each has with its marks, int64 [B]."""
    lengths = torch.tensor([len(sentence) + 2 for sentence in sentences])
    ids = torch.ones(len(sentences), int(lengths.max()), places, dtype=torch.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        numbers = character_ids([BEGIN, *sentence, END], places)
        row[: len(numbers)] = torch.from_numpy(numbers)
    return ids, lengths


def is_cut(word: str, places: int = 50) -> bool:
    """Return whether a word has more bytes than the model reads."""
    return len(word.encode("utf-8", "replace")) > places - 2


# ElmoConfig: the sizes of an ELMo, and the published ones.

#: A larger size is a mistake or an attack.
_LARGEST = 10**7
_MOST_LAYERS, _MOST_FILTERS = 100, 100
_LARGE_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
_SMALL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 256), (7, 256))


@dataclass(frozen=True)
class ElmoConfig(Readable):
    """Sizes and rates of an ELMo; the defaults are those of the first published one.

    Attributes:
        max_characters: places of a word, including its two marks.
        character_size: width of a character's embedding.
        filters: (characters that a filter sees, filters of that width).
        activation: of the filters, "relu" or "tanh".
        num_highway_layers: after the filters.
        num_hidden_layers: LSTMs of each direction.
        lstm_size: cells of each.
        projection_size: P, width of an LSTM's state, and of a word as the first LSTM reads it.
        cell_clip, projection_clip: bounds of cells and of states, on both sides.
        skip_connections: whether an LSTM above the first adds its input to its output.
        word_splitting: how a text becomes words.
        dropout: in training, on the input of each LSTM and on the output of the last.
        vocab_size: words of the softmax that it was trained with; 0: it has none.

    Raises:
        BertineError: a value is impossible.
    """

    model_type: ClassVar[str] = "elmo"
    title: ClassVar[str] = "ELMo"

    max_characters: int = 50
    character_size: int = 16
    filters: tuple[tuple[int, int], ...] = _LARGE_FILTERS
    activation: str = "relu"
    num_highway_layers: int = 2
    num_hidden_layers: int = 2
    lstm_size: int = 4096
    projection_size: int = 512
    cell_clip: float = 3.0
    projection_clip: float = 3.0
    skip_connections: bool = True
    word_splitting: WordSplitting = "spaces"
    dropout: float = 0.1
    vocab_size: int = 0

    def word_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the begin and end of each word of a text."""
        if self.word_splitting == "spaces":
            return [match.span() for match in re.finditer(r"\S+", text)]
        return split_words(text)

    def words_of(self, text: str) -> list[str]:
        """Split a text into words as in the model's training."""
        return [text[begin:end] for begin, end in self.word_spans(text)]

    def __post_init__(self) -> None:
        for name, least, most in (
            ("max_characters", 4, 1000),
            ("character_size", 1, _LARGEST),
            ("num_highway_layers", 0, _MOST_LAYERS),
            ("num_hidden_layers", 1, _MOST_LAYERS),
            ("lstm_size", 1, _LARGEST),
            ("projection_size", 1, _LARGEST),
            ("vocab_size", 0, _LARGEST),
        ):
            if not least <= getattr(self, name) <= most:
                raise BertineError(
                    f"{name} is {getattr(self, name)}, but must be between {least} and {most:,}"
                )
        if not 1 <= len(self.filters) <= _MOST_FILTERS:
            raise BertineError(
                f"filters has {len(self.filters)} entries, but there must be 1 to {_MOST_FILTERS}"
            )
        if any(len(entry) != 2 for entry in self.filters):
            raise BertineError("filters must be pairs: width and number of filters")
        for width, count in self.filters:
            if not 1 <= width <= self.max_characters or not 1 <= count <= _LARGEST:
                raise BertineError(
                    f"filters has [{width}, {count}], but each must be a width of 1 to "
                    f"{self.max_characters} characters and a number of filters"
                )
        if self.activation not in ("relu", "tanh"):
            raise BertineError(f"activation is {self.activation!r}, but must be relu or tanh")
        if self.word_splitting not in get_args(WordSplitting):
            raise BertineError(
                f"word_splitting is {self.word_splitting!r}, but must be "
                f"{' or '.join(get_args(WordSplitting))}"
            )
        for name in ("cell_clip", "projection_clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise BertineError(f"{name} is {getattr(self, name)}, but must be above 0")
        if not 0 <= self.dropout < 1:
            raise BertineError(f"dropout is {self.dropout}, but must be in [0, 1)")

    @property
    def num_filters(self) -> int:
        """The number of filters of all widths together."""
        return sum(count for _, count in self.filters)

    @property
    def width(self) -> int:
        """The width of a word's state: both directions together."""
        return 2 * self.projection_size

    @property
    def num_parameters(self) -> int:
        """The number of weights, by formula, without the softmax."""
        size, cells, wide = self.projection_size, self.lstm_size, self.num_filters
        characters = (NUM_CHARACTERS - 1) * self.character_size
        filters = sum(n * (width * self.character_size + 1) for width, n in self.filters)
        highways = self.num_highway_layers * 2 * (wide * wide + wide)
        lstm = 4 * cells * (2 * size + 1) + cells * size
        lstms = 2 * self.num_hidden_layers * lstm
        return characters + filters + highways + wide * size + size + lstms


#: Preset → sizes: the published files', and two small ones for training on a small machine.
PRESETS: dict[str, ElmoConfig] = {
    "elmo-original": ElmoConfig(),
    "elmo-medium": ElmoConfig(
        filters=_LARGE_FILTERS, num_highway_layers=1, lstm_size=2048, projection_size=256
    ),
    "elmo-small": ElmoConfig(
        filters=_LARGE_FILTERS, num_highway_layers=1, lstm_size=1024, projection_size=128
    ),
    "elmo-mini": ElmoConfig(
        filters=_SMALL_FILTERS[:5], num_highway_layers=1, lstm_size=512, projection_size=128
    ),
    "elmo-tiny": ElmoConfig(
        filters=((1, 16), (2, 32), (3, 64)),
        num_highway_layers=1,
        lstm_size=128,
        projection_size=64,
    ),
}


# Word softmax: the loss of the next word, over all words or over a sample of them (Jean et al.
# 2015; published code: TensorFlow's ``sampled_softmax_loss``).
#
# Shape legend: N places, V words of the vocabulary, K sampled words, P width of a state.


@dataclass(frozen=True)
class SampledWords:
    """Words drawn without repetition, the word of rank r in proportion to log((r + 2) / (r + 1)).

    Attributes:
        ids: int64 [K].
        tries: how many draws it took to get K different words.
        vocab_size: V.
    """

    ids: Tensor
    tries: int
    vocab_size: int

    def log_expected(self, ids: Tensor) -> Tensor:
        """Return fp32, the logarithm of the expected count of each word of `ids` in `tries`
        draws."""
        ranks = ids.double()
        share = torch.log1p(1 / (ranks + 1)) / math.log(self.vocab_size + 1)
        return torch.log(-torch.expm1(self.tries * torch.log1p(-share))).float()


def sample_words(vocab_size: int, count: int, seed: int, *where: int | str) -> SampledWords:
    """Draw `count` different words, frequent ones (low ids) more often; equal `seed` and position
    `where` give equal words.

    Raises:
        ValueError: the vocabulary has fewer than `count` words.
    """
    if count > vocab_size:
        raise ValueError(f"{count} words cannot be drawn of {vocab_size}")
    draw = rng.generator(seed, "sampled words", *where)
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        # The inverse of the cumulative distribution log(r + 1) / log(V + 1).
        ranks = np.exp(draw.random(2 * count) * math.log(vocab_size + 1)).astype(np.int64) - 1
        drawn = np.concatenate([drawn, ranks.clip(0, vocab_size - 1)])
        words, first = np.unique(drawn, return_index=True)
        if len(words) >= count:
            order = np.argsort(first)[:count]
            tries = int(first[order[-1]]) + 1
            return SampledWords(torch.from_numpy(words[order]), tries, vocab_size)


class WordSoftmax(nn.Module):
    """A score for each word of the vocabulary, shared by both directions."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.projection_size))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        nn.init.normal_(self.weight, 0.0, config.projection_size**-0.5)

    def full_loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the losses, fp32 [], of `targets` int64 [N] after states [N, P]."""
        logits = F.linear(states, self.weight, self.bias)
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    def sampled_loss(self, states: Tensor, targets: Tensor, sampled: SampledWords) -> Tensor:
        """Return the sum of the losses, fp32 [], against sampled words.

        A score is reduced by the logarithm of the word's expected count in the sample; a sampled
        word that is the target itself does not count.
        """
        drawn = sampled.ids.to(states.device)
        # A look-up has a sparse gradient: it touches few rows of a table of 800,000 words.
        rows, which = torch.unique(torch.cat([targets, drawn]), return_inverse=True)
        weight = F.embedding(rows, self.weight, sparse=states.device.type == "cpu")
        bias = self.bias[rows]
        at, others_at = which.split([len(targets), len(drawn)])
        own = (states.float() * weight[at]).sum(-1) + bias[at]
        own = own - sampled.log_expected(targets)
        others = F.linear(states, weight[others_at], bias[others_at]).float()
        others = others - sampled.log_expected(drawn)
        others = others.masked_fill(drawn[None, :] == targets[:, None], float("-inf"))
        return (torch.logsumexp(torch.cat([own[:, None], others], 1), 1) - own).sum()


# Word encoder: filters over characters, highways and a projection (Kim et al. 2016; Jozefowicz et
# al. 2016).
#
# Shape legend: N words, C places of a word, F filters of all widths, P width of a word.

#: Words that go through the filters at once: their output takes some 50 kB a word.
_CHUNK = 256


class Highway(nn.Module):
    """A layer that mixes its input with a new value of it (Srivastava et al. 2015); ``carry``, the
    published name, gives the share of the new value."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform, self.carry = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [N, F] to [N, F]."""
        share = torch.sigmoid(self.carry(x))
        return share * torch.relu(self.transform(x)) + (1 - share) * x


class WordEncoder(nn.Module):
    """An encoder that maps the character ids of each word to a vector, without context."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.activation = torch.relu if config.activation == "relu" else torch.tanh
        self.characters = nn.Embedding(NUM_CHARACTERS - 1, config.character_size)
        self.filters = nn.ModuleList(
            nn.Conv1d(config.character_size, count, width) for width, count in config.filters
        )
        wide = config.num_filters
        self.highways = nn.ModuleList(Highway(wide) for _ in range(config.num_highway_layers))
        self.projection = nn.Linear(wide, config.projection_size)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights, as the published training does."""
        nn.init.uniform_(self.characters.weight, -1.0, 1.0)
        for layer in self.filters:
            assert isinstance(layer, nn.Conv1d)
            assert layer.bias is not None
            nn.init.uniform_(layer.weight, -0.05, 0.05)
            layer.bias.zero_()
        deviation = self.projection.in_features**-0.5
        for layer in (module for module in self.modules() if isinstance(module, nn.Linear)):
            nn.init.normal_(layer.weight, 0.0, deviation)
            layer.bias.zero_()
        for highway in self.highways:
            assert isinstance(highway, Highway)
            highway.carry.bias.fill_(-2.0)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids int64 [N, C], from 1 on (:func:`~bertine.contrib.elmo.model.character_ids`), to
        [N, P]."""
        x = torch.cat([self._filtered(part) for part in ids.split(_CHUNK)])
        for highway in self.highways:
            x = highway(x)
        projected: Tensor = self.projection(x)
        return projected

    def _filtered(self, ids: Tensor) -> Tensor:
        """Return [N, F]: the largest value of each filter. Padding counts too, as published."""
        characters = F.embedding(ids - 1, self.characters.weight).transpose(1, 2)
        return torch.cat([self.activation(f(characters).amax(-1)) for f in self.filters], -1)


# Projected LSTM: ELMo's LSTM, with a projection, clipped cells and states, and a state that
# continues from batch to batch. Its training on a CPU is one operation, as in
# :mod:`bertine.models.recurrent`; PyTorch's LSTM has no clipping.
#
# Shape legend: N words of all sequences, ordered by place as in a ``PackedSequence``; B
# sequences, I inputs of a word, S cells, P width of a state.


class ProjectedLstm(nn.Module):
    """One layer and direction of an LSTM with projection (Sak et al. 2014) and TensorFlow's
    clipping (``LSTMCell``): cells are clipped before the output gate, states after the
    projection.

    Args:
        input_size: I.
        cells: S.
        projection: P.
        cell_clip, projection_clip: the bounds, on both sides of 0.

    Attributes:
        weight_ih, weight_hh, bias: [4 S, I], [4 S, P], [4 S], of the input, forget, cell and output
            gate, as in ``nn.LSTM``. The 1 that the published code adds to the forget gate is part
            of the bias.
        weight_hr: [P, S], the projection.
    """

    def __init__(
        self,
        input_size: int,
        cells: int,
        projection: int,
        *,
        cell_clip: float = 3.0,
        projection_clip: float = 3.0,
    ) -> None:
        super().__init__()
        self.cell_clip, self.projection_clip = cell_clip, projection_clip
        self.weight_ih = nn.Parameter(torch.empty(4 * cells, input_size))
        self.weight_hh = nn.Parameter(torch.empty(4 * cells, projection))
        self.bias = nn.Parameter(torch.empty(4 * cells))
        self.weight_hr = nn.Parameter(torch.empty(projection, cells))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights by TensorFlow's defaults (uniform, Glorot and Bengio 2010); the forget
        gate begins open."""
        cells = self.weight_hr.shape[1]
        # In TensorFlow the two matrices of the gates are one.
        bound = (6 / (self.weight_ih.shape[1] + self.weight_hh.shape[1] + 4 * cells)) ** 0.5
        nn.init.uniform_(self.weight_ih, -bound, bound)
        nn.init.uniform_(self.weight_hh, -bound, bound)
        nn.init.xavier_uniform_(self.weight_hr)
        self.bias.zero_()
        self.bias[cells : 2 * cells] = 1.0

    def forward(
        self, x: Tensor, sizes: Sequence[int], state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Read N words; in bf16 under autocast, with cells and states in fp32.

        Args:
            x: [N, I], in the order of reading: the first words of all sequences, then the second
                ones, …, longer sequences first.
            sizes: sequences of each step, in falling order.
            state: the initial state of the sequences, fp32 [B, P] and [B, S] (states, cells); it
                gets no gradient.

        Returns:
            States fp32 [N, P], and the final state of each sequence, in the form of `state`.
        """
        dtype = autocast_dtype(x.device.type) or x.dtype
        with torch.autocast(x.device.type, enabled=False):
            gates = linear(
                x.to(dtype), self.weight_ih.to(dtype), self.bias.to(dtype), self.training
            )
            out, last, cells = _ProjectedRecurrence.apply(
                gates,
                self.weight_hh.to(dtype),
                self.weight_hr.to(dtype),
                *state,
                list(sizes),
                (self.cell_clip, self.projection_clip),
            )
        return out, (last, cells)


class _ProjectedRecurrence(torch.autograd.Function):
    """The steps of a projected LSTM, and their gradient.

    gates: [N, 4 S], in the compute type.
    of_state, projection: [4 S, P] and [P, S], in that type.
    state, cell: fp32 [B, P] and [B, S].
    sizes: sequences of each step.
    clips: of cells and of states.
    Returns fp32 [N, P], [B, P], [B, S]: states, the final states and the final cells.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        of_state: Tensor,
        projection: Tensor,
        state: Tensor,
        cell: Tensor,
        sizes: list[int],
        clips: tuple[float, float],
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, units, dtype = len(gates), projection.shape[1], gates.dtype
        first = sizes[0] if sizes else 0
        to_gates, project = product_with(of_state, first), product_with(projection, first)
        # Computed in fp32 in the cache, and kept in the compute type for the gradient.
        acts, act = torch.empty_like(gates), gates.new_empty(first, 4 * units, dtype=torch.float32)
        cells = gates.new_empty(rows, units, dtype=torch.float32)
        states = gates.new_empty(rows, projection.shape[0], dtype=torch.float32)
        last, last_cell = state.clone(), cell.clone()
        for here in steps_of(sizes):
            size = here.stop - here.start
            # In place: sequences that have ended keep their final state.
            hidden, memory = last[:size], last_cell[:size]
            act[:size] = to_gates(hidden.to(dtype), gates[here])
            enter, keep, new, show = activate(act[:size])
            acts[here] = act[:size]
            memory.mul_(keep).addcmul_(enter, new).clamp_(-clips[0], clips[0])
            cells[here] = memory
            shown = show * tanh(memory)
            hidden.copy_(project(shown.to(dtype), None)).clamp_(-clips[1], clips[1])
            states[here] = hidden
        ctx.save_for_backward(of_state, projection, state, cell, acts, cells, states)
        ctx.sizes, ctx.clips = sizes, clips
        ctx.mark_non_differentiable(last, last_cell)
        return states, last, last_cell

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        of_state, projection, state, cell, acts, cells, states = ctx.saved_tensors
        sizes: list[int] = ctx.sizes
        dtype, first = of_state.dtype, sizes[0] if sizes else 0
        from_gates = product_with(of_state.t().contiguous(), first)
        from_states = product_with(projection.t().contiguous(), first)
        previous = previous_rows(sizes).to(cells.device)
        # Bounds that nothing reached, the usual case, cost nothing.
        cut_cells, cut_states = map(_at_bound, (cells, states), ctx.clips)
        errors = grad.new_empty(acts.shape, dtype=dtype)
        of_states = grad.new_empty(states.shape, dtype=dtype)
        shown_rows = grad.new_empty(cells.shape, dtype=dtype)
        state_grad = grad.new_zeros(first, states.shape[1], dtype=torch.float32)
        cell_grad = grad.new_zeros(first, cells.shape[1], dtype=torch.float32)
        steps = steps_of(sizes)
        # One step at a time, whose numbers stay in the cache, with PyTorch's own derivatives, which
        # take one pass each.
        by_sigmoid, by_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
        act, error = grad.new_empty(2, first, acts.shape[1], dtype=torch.float32)
        for number in range(len(steps) - 1, -1, -1):
            here = steps[number]
            size = here.stop - here.start
            act[:size] = acts[here]
            enter, keep, new, show = act[:size].chunk(4, 1)
            now = cells[here]
            before = cells[steps[number - 1].start :][:size] if number else cell[:size]
            shown = tanh(now)
            shown_rows[here] = show * shown
            hidden = state_grad[:size].add_(grad[here])
            if cut_states is not None:
                hidden.masked_fill_(cut_states[here], 0.0)
            of_states[here] = hidden
            shown_grad = from_states(of_states[here], None).float()
            memory = cell_grad[:size].add_(by_tanh(shown_grad * show, shown))
            if cut_cells is not None:
                memory.masked_fill_(cut_cells[here], 0.0)
            parts = error[:size].chunk(4, 1)
            by_sigmoid.grad_input(memory * new, enter, grad_input=parts[0])
            by_sigmoid.grad_input(memory * before, keep, grad_input=parts[1])
            by_tanh.grad_input(memory * enter, new, grad_input=parts[2])
            by_sigmoid.grad_input(shown_grad * shown, show, grad_input=parts[3])
            errors[here] = error[:size]
            if number:
                state_grad[:size] = from_gates(errors[here], None)
                memory *= keep
        read = torch.cat([state[:first], states.index_select(0, previous)]).to(dtype)
        of_weight = gradient_of(errors, read)
        of_projection = gradient_of(of_states, shown_rows)
        return errors, of_weight, of_projection, None, None, None, None


def _at_bound(values: Tensor, bound: float) -> Tensor | None:
    """Return where `values` are at a bound on both sides of 0; None: nowhere."""
    if not values.numel() or float(torch.stack(values.aminmax()).abs().amax()) < bound:
        return None
    return values.abs() >= bound


#: The directions, as in the names of their weights.
DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class LstmStates:
    """States and cells that the LSTMs of one direction carry from the words before.

    Attributes:
        states: fp32 [L, B, P].
        cells: fp32 [L, B, S].
    """

    states: Tensor
    cells: Tensor

    @classmethod
    def zero(cls, config: ElmoConfig, sequences: int, device: torch.device) -> LstmStates:
        """Return the zeros that a direction begins with."""
        count = config.num_hidden_layers
        return cls(
            torch.zeros(count, sequences, config.projection_size, device=device),
            torch.zeros(count, sequences, config.lstm_size, device=device),
        )


class BidirectionalLm(nn.Module):
    """ELMo: a word encoder, and LSTMs of two directions over its vectors.

    Attributes:
        config: its sizes.
        words: maps characters to word vectors.
        forward_layers, backward_layers: L LSTMs each.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.words = WordEncoder(config)
        self.forward_layers = self._layers()
        self.backward_layers = self._layers()

    def _layers(self) -> nn.ModuleList:
        config = self.config
        return nn.ModuleList(
            ProjectedLstm(
                config.projection_size,
                config.lstm_size,
                config.projection_size,
                cell_clip=config.cell_clip,
                projection_clip=config.projection_clip,
            )
            for _ in range(config.num_hidden_layers)
        )

    def read(
        self,
        direction: str,
        x: Tensor,
        sizes: Sequence[int],
        states: LstmStates,
        masks: Sequence[Tensor] | None = None,
    ) -> tuple[list[Tensor], LstmStates]:
        """Read words in one direction, in the order in which they are given.

        Args:
            direction: of :data:`DIRECTIONS`.
            x: [N, P], in the order of :class:`ProjectedLstm`.
            sizes: sequences of each step.
            states: the states to begin with; B is at least ``sizes[0]``.
            masks: in training, factors of each layer's input, L of [N, P].

        Returns:
            L outputs fp32 [N, P], and the final states of the sequences.
        """
        layers = self.get_submodule(f"{direction}_layers")
        assert isinstance(layers, nn.ModuleList)
        outputs, hidden, cells = [], [], []
        for number, layer in enumerate(layers):
            if masks is not None:
                x = x * masks[number]
            out, (last, memory) = layer(x, sizes, (states.states[number], states.cells[number]))
            x = out + x if number and self.config.skip_connections else out
            outputs.append(x)
            hidden.append(last)
            cells.append(memory)
        return outputs, LstmStates(torch.stack(hidden), torch.stack(cells))

    def layers_of(
        self,
        ids: Tensor,
        lengths: Tensor,
        states: Sequence[LstmStates] | None = None,
    ) -> tuple[Tensor, list[LstmStates]]:
        """Compute the L + 1 layers of sentences with their marks.

        Args:
            ids: int64 [B, T, C], of characters.
            lengths: int64 [B] on the CPU, words of each sentence, including its two marks; at
                least 1.
            states: of both directions, the final states of the sentences before; None: zeros.

        Returns:
            fp32 [B, T, L + 1, 2 P]: the word (twice), then the LSTMs of both directions; those at
            padding are 0. And the final states of both directions, in the order of the sentences.
        """
        device, config = ids.device, self.config
        order = torch.argsort(lengths, descending=True, stable=True)
        sizes = _sizes(lengths)
        row, place = _packed(lengths, order, sizes)
        # Each distinct word is computed once.
        distinct, which = torch.unique(ids[row, place], dim=0, return_inverse=True)
        words = self.words(distinct).float()[which]
        result = ids.new_zeros(
            *ids.shape[:2], config.num_hidden_layers + 1, config.width, dtype=torch.float32
        )
        result[row, place, 0] = torch.cat([words, words], -1)
        ends: list[LstmStates] = []
        half = config.projection_size
        back = lengths[row] - 1 - place
        for number, direction in enumerate(DIRECTIONS):
            begin = (
                LstmStates.zero(config, len(lengths), device) if states is None else states[number]
            )
            sorted_begin = LstmStates(begin.states[:, order], begin.cells[:, order])
            at = place if number == 0 else back
            x = words if number == 0 else _rows_at(words, row, place, back, lengths, ids.shape[1])
            outputs, end = self.read(direction, x, sizes, sorted_begin)
            for layer, output in enumerate(outputs):
                result[row, at, layer + 1, number * half : (number + 1) * half] = output
            undo = torch.argsort(order)
            ends.append(LstmStates(end.states[:, undo], end.cells[:, undo]))
        return result, ends


def _sizes(lengths: Tensor) -> list[int]:
    """Return how many sequences have a first word, a second, …"""
    steps = torch.arange(int(lengths.max()))
    sizes: list[int] = (lengths[None, :] > steps[:, None]).sum(1).tolist()
    return sizes


def _packed(lengths: Tensor, order: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the sequence and the place of each word, int64 [N] each, first words first."""
    row = torch.cat([order[:size] for size in sizes])
    place = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return row, place


def _rows_at(
    words: Tensor, row: Tensor, place: Tensor, back: Tensor, lengths: Tensor, longest: int
) -> Tensor:
    """Return words [N, P] in the order of reading from the end."""
    where = torch.zeros(len(lengths), longest, dtype=torch.int64)
    where[row, place] = torch.arange(len(row))
    return words[where[row, back].to(words.device)]
