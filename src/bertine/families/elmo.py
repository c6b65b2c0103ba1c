"""The two language models of ELMo, one reading forwards and one backwards, over the same characters
(Peters et al. 2018, section 3; published code: bilm-tf).

Shape legend: B sequences, T words of the longest, L LSTMs of a direction, S cells, P width of a
state, N words of all sequences.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core import rng
from bertine.core.errors import BertineError
from bertine.core.names import WordSplitting
from bertine.models.recurrent import ProjectedLstm

# Words as ids of characters, as ELMo's published programs number them.
#
# A word is at most 48 bytes of its UTF-8 between two marks, filled up to 50 places. The numbers
# in the published code are 0 to 255 for bytes and five marks after them; what reads them has 1
# more, so that 0 can stand where there is no word: 262 ids.

#: Ids: 0, where there is no word; bytes, with 1 added; marks.
NUM_CHARACTERS = 262
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 257, 258, 259, 260, 261

#: Words that stand for the two ends of a sentence, as the published vocabularies write them.
BEGIN, END = "<S>", "</S>"
#: What stands for words that the vocabulary of a softmax does not have.
UNKNOWN = "<UNK>"

_ENDS = {BEGIN: BEGIN_SENTENCE, END: END_SENTENCE}


def character_ids(words: Sequence[str], places: int = 50) -> np.ndarray:
    """Number the characters of words; :data:`BEGIN` and :data:`END` are the ends of a sentence.

    Args:
        words: N; of longer ones the first ``places - 2`` bytes count.
        places: of a word, its two marks among them.

    Returns:
        int64 [N, places], from 1 on.
    """
    ids = np.full((len(words), places), PADDING, dtype=np.int64)
    for row, word in zip(ids, words, strict=True):
        row[0] = BEGIN_WORD
        if word in _ENDS:
            row[1], row[2] = _ENDS[word], END_WORD
            continue
        # A half of a surrogate pair is no UTF-8; it becomes the sign for what is unknown.
        text = word.encode("utf-8", "replace")[: places - 2]
        row[1 : 1 + len(text)] = np.frombuffer(text, dtype=np.uint8).astype(np.int64) + 1
        row[1 + len(text)] = END_WORD
    return ids


def is_cut(word: str, places: int = 50) -> bool:
    """Tell whether a word has more bytes than are read of it."""
    return len(word.encode("utf-8", "replace")) > places - 2


# ElmoConfig: the sizes of an ELMo, and those that were published.

#: A size beyond this is a mistake, or means harm.
_LARGEST = 10**7
_MOST_LAYERS, _MOST_FILTERS = 100, 100
_LARGE_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
_SMALL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 256), (7, 256))


@dataclass(frozen=True)
class ElmoConfig:
    """Sizes and rates of an ELMo; the defaults are those of the first published one.

    Attributes:
        max_characters: places of a word, its two marks among them.
        character_size: width of a character's embedding.
        filters: (characters that a filter sees, filters of that width).
        activation: of the filters, "relu" or "tanh".
        num_highway_layers: after the filters.
        num_hidden_layers: LSTMs of each direction.
        lstm_size: cells of each.
        projection_size: P, width of an LSTM's state, and of a word before it is read.
        cell_clip, projection_clip: bounds of cells and of states, on both sides.
        skip_connections: whether an LSTM above the first adds what it reads to what it gives.
        word_splitting: how a text becomes words.
        dropout: in training, on what goes into each LSTM and comes out of the last.
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
        """The filters of all widths together."""
        return sum(count for _, count in self.filters)

    @property
    def width(self) -> int:
        """The width of a word's state: of both directions."""
        return 2 * self.projection_size

    @property
    def num_parameters(self) -> int:
        """Count the weights by their formula: of all but the softmax."""
        size, cells, wide = self.projection_size, self.lstm_size, self.num_filters
        characters = (NUM_CHARACTERS - 1) * self.character_size
        filters = sum(n * (width * self.character_size + 1) for width, n in self.filters)
        highways = self.num_highway_layers * 2 * (wide * wide + wide)
        lstm = 4 * cells * (2 * size + 1) + cells * size
        lstms = 2 * self.num_hidden_layers * lstm
        return characters + filters + highways + wide * size + size + lstms

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dataclasses.asdict(self)


#: Sizes by name; those of the published files, and two to train on a small machine.
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


# Scoring the next word: over all words, or over a sample of them (Jean et al. 2015; published
# code: TensorFlow's ``sampled_softmax_loss``).
#
# Shape legend: N places, V words of the vocabulary, K sampled words, P width of a state.


@dataclass(frozen=True)
class SampledWords:
    """Words drawn without repetition, a word of rank r as often as log((r + 2) / (r + 1)) says.

    Attributes:
        ids: int64 [K].
        tries: how many draws it took until K different words were there.
        vocab_size: V.
    """

    ids: Tensor
    tries: int
    vocab_size: int

    def log_expected(self, ids: Tensor) -> Tensor:
        """Return fp32, the logarithm of how often each of the words `ids` is expected in so many
        draws."""
        ranks = ids.double()
        share = torch.log1p(1 / (ranks + 1)) / math.log(self.vocab_size + 1)
        return torch.log(-torch.expm1(self.tries * torch.log1p(-share))).float()


def sample_words(vocab_size: int, count: int, seed: int, *where: int | str) -> SampledWords:
    """Draw `count` different words, frequent ones (of low ids) more often; the same ones at the
    same position `where` under `seed`.

    Raises:
        ValueError: there are not so many words.
    """
    if count > vocab_size:
        raise ValueError(f"{count} words cannot be drawn of {vocab_size}")
    draw = rng.generator(seed, "sampled words", *where)
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        # The inverse of the distribution's sum: log(r + 1) / log(V + 1).
        ranks = np.exp(draw.random(2 * count) * math.log(vocab_size + 1)).astype(np.int64) - 1
        drawn = np.concatenate([drawn, ranks.clip(0, vocab_size - 1)])
        words, first = np.unique(drawn, return_index=True)
        if len(words) >= count:
            order = np.argsort(first)[:count]
            tries = int(first[order[-1]]) + 1
            return SampledWords(torch.from_numpy(words[order]), tries, vocab_size)


class WordSoftmax(nn.Module):
    """A score for each word of the vocabulary; both directions share it."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.projection_size))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        nn.init.normal_(self.weight, 0.0, config.projection_size**-0.5)

    def full_loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the losses fp32 [] of `targets` int64 [N] after states [N, P]."""
        logits = F.linear(states, self.weight, self.bias)
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    def sampled_loss(self, states: Tensor, targets: Tensor, sampled: SampledWords) -> Tensor:
        """Return the sum of the losses fp32 [] against sampled words: scores less the logarithm of
        how often a word is expected in the sample; a sampled word that is the target itself does
        not count."""
        drawn = sampled.ids.to(states.device)
        # Rows that are looked up have a sparse gradient: a table of 800,000 words has few of them.
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


# Words by their characters: filters, highways and a projection (Kim et al. 2016; Jozefowicz et
# al. 2016).
#
# Shape legend: N words, C places of a word, F filters of all widths, P width of a word.

#: Words that go through the filters at once: what they give is some 50 kB a word.
_CHUNK = 256


class Highway(nn.Module):
    """A layer that passes on a share of what it reads (Srivastava et al. 2015): "carry" is the
    share of what is new, by its published name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform, self.carry = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x [N, F]. Returns [N, F]."""
        share = torch.sigmoid(self.carry(x))
        return share * torch.relu(self.transform(x)) + (1 - share) * x


class WordEncoder(nn.Module):
    """Ids of characters to a vector for each word, whatever stands around it."""

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
        for linear in (module for module in self.modules() if isinstance(module, nn.Linear)):
            nn.init.normal_(linear.weight, 0.0, deviation)
            linear.bias.zero_()
        for highway in self.highways:
            assert isinstance(highway, Highway)
            highway.carry.bias.fill_(-2.0)

    def forward(self, ids: Tensor) -> Tensor:
        """ids int64 [N, C] from 1 on (:func:`~bertine.families.elmo.character_ids`).
        Returns [N, P]."""
        x = torch.cat([self._filtered(part) for part in ids.split(_CHUNK)])
        for highway in self.highways:
            x = highway(x)
        projected: Tensor = self.projection(x)
        return projected

    def _filtered(self, ids: Tensor) -> Tensor:
        """Return [N, F]: what each filter gives at most. Padding counts too, as published."""
        characters = F.embedding(ids - 1, self.characters.weight).transpose(1, 2)
        return torch.cat([self.activation(f(characters).amax(-1)) for f in self.filters], -1)


#: The directions, by the names of their weights.
DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class LstmStates:
    """What the LSTMs of one direction remember of the words before.

    Attributes:
        states: fp32 [L, B, P].
        cells: fp32 [L, B, S].
    """

    states: Tensor
    cells: Tensor

    @classmethod
    def zero(cls, config: ElmoConfig, sequences: int, device: torch.device) -> LstmStates:
        """Return what is remembered before any word was read."""
        count = config.num_hidden_layers
        return cls(
            torch.zeros(count, sequences, config.projection_size, device=device),
            torch.zeros(count, sequences, config.lstm_size, device=device),
        )


class BidirectionalLm(nn.Module):
    """ELMo: an encoder of words, and LSTMs of two directions over them.

    Attributes:
        config: its sizes.
        words: characters → words.
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
            x: [N, P], in the order of :class:`~bertine.models.recurrent.ProjectedLstm`.
            sizes: sequences of each step.
            states: what they begin with; B is at least ``sizes[0]``.
            masks: in training, what each layer's input is multiplied with, L of [N, P].

        Returns:
            L outputs fp32 [N, P], and what the sequences end with.
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
        """Compute the L + 1 layers of sentences that stand between their marks.

        Args:
            ids: int64 [B, T, C], of characters.
            lengths: int64 [B] on the CPU, words of each, its two marks among them; at least 1.
            states: of both directions, what the sentences before ended with; None: nothing.

        Returns:
            fp32 [B, T, L + 1, 2 P]: the word (twice), and the LSTMs of both directions; those at
            padding are 0. And what both directions end with, in the order of the sentences.
        """
        device, config = ids.device, self.config
        order = torch.argsort(lengths, descending=True, stable=True)
        sizes = _sizes(lengths)
        row, place = _packed(lengths, order, sizes)
        # A word is computed once, however often it is there.
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
    """Return of each word its sequence and its place, int64 [N], first words first."""
    row = torch.cat([order[:size] for size in sizes])
    place = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return row, place


def _rows_at(
    words: Tensor, row: Tensor, place: Tensor, back: Tensor, lengths: Tensor, longest: int
) -> Tensor:
    """Return words [N, P] in the order of reading from behind."""
    where = torch.zeros(len(lengths), longest, dtype=torch.int64)
    where[row, place] = torch.arange(len(row))
    return words[where[row, back].to(words.device)]
