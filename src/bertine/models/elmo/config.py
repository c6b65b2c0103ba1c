"""ElmoConfig: the sizes of an ELMo, and those that were published."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from bertine.errors import BertineError
from bertine.models.elmo.characters import NUM_CHARACTERS
from bertine.names import WordSplitting

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
