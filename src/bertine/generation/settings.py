"""What a search is to find: how it chooses, how long, and what ends a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from bertine.errors import BertineError
from bertine.options.generation import Choosing
from bertine.options.names import option


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search.

    Attributes:
        choosing: how tokens are chosen.
        end_tokens: ids that end a sequence; none: only the number of tokens does.
        never: ids that are not written.
        first_token: the id that each sequence begins with behind its prompt, whatever the model
            says; None: as it says (``forced_bos_token_id`` of transformers).
        ends_at_limit: whether the last token that a sequence may have is the first of
            `end_tokens`, whatever the model says (``forced_eos_token_id``).

    Raises:
        BertineError: options that exclude each other; see :meth:`check`.
    """

    choosing: Choosing
    end_tokens: tuple[int, ...] = ()
    never: frozenset[int] = frozenset()
    first_token: int | None = None
    ends_at_limit: bool = False

    def __post_init__(self) -> None:
        self.check(self.choosing)

    @staticmethod
    def check(choosing: Choosing) -> None:
        """Refuse options that exclude each other.

        Raises:
            BertineError: options of sampling without it; sampling with beams; options of beams
                without them; more sequences than there can be; a least number of tokens above the
                greatest.
        """
        usual, sample = Choosing(), option("sample", True)
        beams = option("beams", 4)
        for name in ("temperature", "top_k", "top_p", "seed"):
            said = getattr(choosing, name)
            certain = name == "temperature" and said == 0  # as without sampling
            if not choosing.sample and said != getattr(usual, name) and not certain:
                raise BertineError(f"{name} is for sampling; add {sample}, or leave it out")
        if choosing.sample and choosing.beams > 1:
            raise BertineError(f"beams are not sampled; leave out {sample}, or beams")
        for name in ("length_penalty", "early_stopping"):
            if choosing.beams == 1 and getattr(choosing, name) != getattr(usual, name):
                raise BertineError(f"{name} is for beams; give {beams}, or leave it out")
        if choosing.sequences > choosing.beams and not choosing.sample:
            raise BertineError(
                f"sequences is {choosing.sequences}, more than beams ({choosing.beams}); add "
                f"{sample}, or give {option('beams', choosing.sequences)}"
            )
        if choosing.min_new_tokens > choosing.max_new_tokens:
            raise BertineError(
                f"min_new_tokens is {choosing.min_new_tokens}, but max_new_tokens "
                f"{choosing.max_new_tokens}"
            )
