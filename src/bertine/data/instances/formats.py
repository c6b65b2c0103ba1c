"""What a pre-training sequence is made of: the input formats, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from bertine.data.instances.full_sequences import DocSentences, FullSentences
from bertine.data.instances.segments import NspSegments
from bertine.data.instances.sentence_pairs import SentencePairs
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.text.template import Frame, Template

#: The four of Liu et al. 2019, section 4.2; the first is that of Devlin et al. 2018.
INPUT_FORMATS = ("segment-pair", "sentence-pair", "full-sentences", "doc-sentences")
#: Those whose sequences are pairs, as next-sentence prediction needs them.
PAIR_FORMATS = ("segment-pair", "sentence-pair")
#: The shortest sequences that instances are made for.
LEAST_SEQ_LENGTH = 8


class Instance(Protocol):
    """One sequence without its special tokens.

    Attributes:
        segments: ids, between the special tokens of the sequence; of a pair two.
        documents: the number of the document that each is from.
        num_truncated: tokens cut off to fit.
    """

    @property
    def segments(self) -> tuple[npt.NDArray[Any], ...]: ...
    @property
    def documents(self) -> tuple[int, ...]: ...
    @property
    def num_truncated(self) -> int: ...


class Instances(Protocol):
    """The endless sequence of instances of one format, each a pure function of (store, seed,
    index).

    Attributes:
        instances_per_epoch: after so many the corpus has been seen about once.
    """

    @property
    def instances_per_epoch(self) -> int: ...

    def instances(self, first: int, count: int) -> Sequence[Instance]:
        """Instances ``first`` to ``first + count - 1``."""
        ...


def make_instances(
    input_format: str,
    store: TokenStore,
    template: Template,
    *,
    max_seq_length: int,
    short_seq_prob: float = 0.1,
    seed: int = 0,
) -> Instances:
    """Return the instances of `store` in one of `INPUT_FORMATS`.

    Args:
        template: of the store's tokenizer, whose special tokens take their room.
        max_seq_length: most tokens of a sequence with its special tokens, at least 8.
        short_seq_prob: share of segment pairs made shorter at random; the other formats have no
            use for it.
        seed: of everything random.

    Raises:
        BertineError: the format is not known, an argument is out of range, or the store has too
            few documents for the format.
    """
    if input_format not in INPUT_FORMATS:
        raise BertineError(
            f"input_format is {input_format!r}, but must be one of {', '.join(INPUT_FORMATS)}"
        )
    if max_seq_length < LEAST_SEQ_LENGTH:
        raise BertineError(
            f"max_seq_length is {max_seq_length}, but must be at least {LEAST_SEQ_LENGTH}"
        )
    max_tokens = max_seq_length - sequence_frame(input_format, template).added(
        2 if input_format in PAIR_FORMATS else 1
    )
    if input_format == "segment-pair":
        return NspSegments(store, max_tokens=max_tokens, short_seq_prob=short_seq_prob, seed=seed)
    if input_format == "sentence-pair":
        return SentencePairs(store, max_tokens=max_tokens, seed=seed)
    kind = FullSentences if input_format == "full-sentences" else DocSentences
    return kind(store, max_tokens=max_tokens, seed=seed)


def sequence_frame(input_format: str, template: Template) -> Frame:
    """Return the special tokens of a sequence of a format."""
    return template.two if input_format in PAIR_FORMATS else template.running
