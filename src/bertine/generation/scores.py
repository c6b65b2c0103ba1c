"""What a model is to the search: scores of the next token, for rows that go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class NextTokens(Protocol):
    """A model that scores what token comes next in each of its rows, and remembers the rows.

    One object is for one batch of prompts. A decoder of an encoder is made with what the encoder
    read; its prompts are the tokens that its own texts begin with.
    """

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read N prompts of any lengths, at least one token each: row n is prompt n.

        Returns:
            fp32 [N, V], scores before the softmax.
        """
        ...

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Go on with chosen rows, each by one token.

        Args:
            rows: int64 [R], which row of the last call each new row continues; one may be there
                several times, or not at all, and is forgotten then.
            tokens: int64 [R], what it is continued by.

        Returns:
            fp32 [R, V], as :meth:`start`.
        """
        ...


@dataclass(frozen=True)
class Written:
    """A sequence that was found.

    Attributes:
        tokens: those behind the prompt, without the one that ended it.
        log_probability: of all of them, and of that one: in nats, the sum. Without temperature
            and what else sampling changes.
        ended: whether a token ended it, and not the number of tokens.
        score: what it was chosen by: with beams the log-probability divided by a power of the
            length; else the log-probability.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool
    score: float
