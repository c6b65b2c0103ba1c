"""Say what a pre-training sequence is made of: the input formats, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bertine.data.instances.full_sequences import DocSentences, FullSentences
from bertine.data.instances.instance import Instance
from bertine.data.instances.neighbours import Neighbours
from bertine.data.instances.segments import NspSegments
from bertine.data.instances.sentence_order import OrderedSegments
from bertine.data.instances.sentence_pairs import SentencePairs
from bertine.data.store import TokenStore
from bertine.errors import BertineError
from bertine.names import InputFormat
from bertine.text.template import Frame, Template

#: The shortest sequences that instances are made for.
LEAST_SEQ_LENGTH = 8


class Instances(Protocol):
    """The endless sequence of instances of one format, each a pure function of (store, seed,
    index).

    Attributes:
        instances_per_epoch: after so many the corpus has been seen about once.
    """

    @property
    def instances_per_epoch(self) -> int: ...

    def instances(self, first: int, count: int) -> Sequence[Instance]:
        """Return instances ``first`` to ``first + count - 1``."""
        ...


@dataclass(frozen=True)
class Label:
    """The meaning of the labels of a format's instances.

    Attributes:
        target: their name among the targets of a batch.
        meanings: the word for each label, from 0 on.
    """

    target: str
    meanings: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    """A format of sequences: what they are made of.

    Attributes:
        make: makes the instances of a store, ``make(store, max_tokens=…, seed=…)``; `max_tokens`
            are those without special tokens.
        pairs: whether a sequence is two segments, A and B; else it is running text.
        label: what is asked of a sequence as a whole; None: nothing.
        shortened: whether some sequences are made shorter at random; `make` then takes the share
            of them as ``short_seq_prob``.
        bare: whether no special tokens stand at the ends of a sequence (GPT-1).
        neighbours: whether instances 0 and 1, 2 and 3, … are of neighbouring texts.
    """

    make: Callable[..., Instances]
    pairs: bool = False
    label: Label | None = None
    shortened: bool = False
    bare: bool = False
    neighbours: bool = False


#: Whether B is what follows A in its document.
NEXT_SENTENCE = Label("next_sentence_label", ("next", "random"))
#: Whether A is what stands before B in its document.
SENTENCE_ORDER = Label("sentence_order_label", ("in order", "swapped"))
#: The four of Liu et al. 2019, section 4.2, of which the first is that of Devlin et al. 2018; that
#: of Radford et al. 2018, which is FULL-SENTENCES without special tokens at the ends; that of Lan
#: et al. 2019; and texts that are compared with each other.
FORMATS: dict[InputFormat, Format] = {
    "segment-pair": Format(NspSegments, pairs=True, label=NEXT_SENTENCE, shortened=True),
    "sentence-pair": Format(SentencePairs, pairs=True, label=NEXT_SENTENCE),
    "full-sentences": Format(FullSentences),
    "doc-sentences": Format(DocSentences),
    "running-text": Format(FullSentences, bare=True),
    "sentence-order": Format(OrderedSegments, pairs=True, label=SENTENCE_ORDER, shortened=True),
    "neighbours": Format(Neighbours, neighbours=True),
}
INPUT_FORMATS = tuple(FORMATS)
#: Those whose instances say whether B follows A, as next-sentence prediction needs them.
PAIR_FORMATS: tuple[InputFormat, ...] = tuple(
    name for name, form in FORMATS.items() if form.label == NEXT_SENTENCE
)
#: Those whose instances say whether A and B are in order.
ORDER_FORMATS: tuple[InputFormat, ...] = tuple(
    name for name, form in FORMATS.items() if form.label == SENTENCE_ORDER
)


def make_instances(
    input_format: InputFormat,
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
        short_seq_prob: share of segment pairs, in order or not, made shorter at random; the other
            formats have no use for it.
        seed: of everything random.

    Raises:
        BertineError: the format is not known, an argument is out of range, or the store has too
            few documents for the format.
    """
    if input_format not in FORMATS:
        raise BertineError(
            f"input_format is {input_format!r}, but must be one of {', '.join(FORMATS)}"
        )
    if max_seq_length < LEAST_SEQ_LENGTH:
        raise BertineError(
            f"max_seq_length is {max_seq_length}, but must be at least {LEAST_SEQ_LENGTH}"
        )
    chosen = FORMATS[input_format]
    special = sequence_frame(input_format, template).added(2 if chosen.pairs else 1)
    options = {"short_seq_prob": short_seq_prob} if chosen.shortened else {}
    return chosen.make(store, max_tokens=max_seq_length - special, seed=seed, **options)


def sequence_frame(input_format: InputFormat, template: Template) -> Frame:
    """Return the special tokens of a sequence of a format."""
    form = FORMATS[input_format]
    if form.bare:
        return Frame((), template.running.between, ())
    return template.two if form.pairs else template.running
