"""GPT-1 with LSTMs: what two papers compare their models with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from bertine.errors import BertineError
from bertine.models.causal.config import OpenAIGPTConfig
from bertine.models.causal.recurrent import RecurrentBackbone


@dataclass(frozen=True)
class LstmConfig(OpenAIGPTConfig):
    """Sizes and rates of a GPT-1 with LSTMs in the place of its layers, or above them. No other
    program has such models.

    Attributes:
        lstm_size: units of an LSTM that stands in the place of each layer; 0: the layers are
            GPT-1's.
        bilstm_layers: layers above them that read in both directions, with as many units in each
            as the states are wide. Such a model guesses no next token.

    Raises:
        BertineError: besides what GPT-1's refuses, a number below 0.
    """

    model_type: ClassVar[str] = "gpt-lstm"
    title: ClassVar[str] = "GPT-1 with LSTMs"
    writes_with: ClassVar[str] = ""

    lstm_size: int = 0
    bilstm_layers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lstm_size", "bilstm_layers"):
            if not 0 <= getattr(self, name) <= 10_000:
                raise BertineError(
                    f"{name} is {getattr(self, name)}, but must be between 0 and 10,000"
                )

    # What a class of models is, and these are or are not by their layers above.

    @property
    def reads_forward(self) -> bool:  # type: ignore[override]
        """Whether a token's states know nothing of what stands behind it."""
        return not self.bilstm_layers

    @property
    def task_lm_weight(self) -> float:  # type: ignore[override]
        """How much guessing the next token counts in fine-tuning; 0 where it is seen."""
        return OpenAIGPTConfig.task_lm_weight if self.reads_forward else 0.0

    @property
    def decoder_passes(self) -> int:
        """How many of the last passes ``num_hidden_layers`` does not count."""
        return self.bilstm_layers

    @property
    def passes(self) -> Sequence[int]:
        """All layers, those that read in both directions last."""
        return range(self.num_hidden_layers + self.bilstm_layers)

    @property
    def num_parameters(self) -> int:
        width, layers = self.hidden_size, self.num_hidden_layers
        above = self.bilstm_layers * _recurrent(width, width, 2)
        if not self.lstm_size:
            return super().num_parameters + above
        rows = self.vocab_size + self.max_position_embeddings
        return rows * width + layers * _recurrent(width, self.lstm_size, 1) + above

    def new_backbone(self, pooler: bool) -> RecurrentBackbone:
        return RecurrentBackbone(self)

    def with_layer_on_top(self) -> Self:
        """Return the config of a model with one layer more that reads in both directions."""
        return self.replace(bilstm_layers=self.bilstm_layers + 1)


def _recurrent(width: int, size: int, directions: int) -> int:
    """Count the weights of a layer."""
    of_direction = 4 * size * (width + size + 2)
    return directions * of_direction + directions * size * width + width


_MINI = LstmConfig(
    vocab_size=30522,
    hidden_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=1024,
)

#: Preset → architecture: one layer, whose units have the ratio to the width that they have in the
#: paper of GPT-1, 2,048 to 768; and gpt-mini with a BiLSTM above it.
PRESETS: Mapping[str, LstmConfig] = {
    "lstm-mini": _MINI.replace(num_hidden_layers=1, lstm_size=683),
    "gpt-mini-bilstm": _MINI.replace(bilstm_layers=1),
}
