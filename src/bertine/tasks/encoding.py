"""Texts and pairs of texts → features: what classification and regression have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.heads import new_head, texts_apart
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.records.examples import Examples
from bertine.tasks.base import Features
from bertine.tasks.long_text import check_long_text, parts_of
from bertine.terminal.console import counted
from bertine.text.tokenizer import Tokenizer

#: The heads, by name, of texts and pairs that are one input, and of pairs that are encoded apart.
CLASSIFIER, PAIR_CLASSIFIER = "classifier", "pair_classifier"
#: Texts given to the tokenizer at once: enough to keep its threads busy.
_TOKENIZE = 4096
#: The shortest inputs that a task over one text or two is made for; whether the special tokens of
#: a vocabulary leave room in them is seen when texts are encoded (:func:`check_room`).
LEAST_LENGTH = {1: 4, 2: 6}


def check_inputs(
    kind: str, text_columns: Sequence[str], max_length: int, long_text: str = "head"
) -> None:
    """Refuse what is no task over one text or two.

    Raises:
        BertineError: not one or two text columns, a maximum length without room for text, or a
            way with long texts that is not known or not for pairs.
    """
    if len(text_columns) not in (1, 2):
        raise BertineError(f"{kind} takes one or two text columns, not {len(text_columns)}")
    if max_length < LEAST_LENGTH[len(text_columns)]:
        raise BertineError(f"max_length {max_length} leaves no room for text")
    check_long_text(long_text, len(text_columns))


class HeadOfTexts:
    """The head of a task over texts or pairs of texts; a base of its class.

    Attributes:
        pair_pooling: of pairs whose texts are encoded apart: how states become vectors, by the
            name of a :class:`~bertine.models.pooling.Pooling`; "": both texts are one input.
    """

    pair_pooling: str
    text_columns: tuple[str, ...]

    @property
    def takes_pairs(self) -> bool:
        """Whether there are two text columns."""
        return len(self.text_columns) == 2

    @property
    def reads_apart(self) -> bool:
        """Whether the texts of a pair are encoded apart."""
        return bool(self.pair_pooling)

    @property
    def head(self) -> str:
        """Its name in ``Model.heads``."""
        return PAIR_CLASSIFIER if self.pair_pooling else CLASSIFIER

    def new_head(self, config: Config, max_length: int, outputs: int) -> dict[str, nn.Module]:
        """A fresh one, by its name.

        Raises:
            BertineError: the model has fewer positions than `max_length`; there is no such pooling.
        """
        require_positions(max_length, config)
        if len(self.text_columns) == 2 and config.num_segments < 2:
            raise BertineError(
                "the model has a type_vocab_size of 1, so it cannot tell two texts apart; join "
                "them in one column, or use another model"
            )
        if self.pair_pooling:
            pooling = Pooling.named(self.pair_pooling)
            return new_head(config, self.head, outputs, pooling=pooling)
        return new_head(config, self.head, outputs)

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Encode the inputs, or both texts of each pair by themselves."""
        if self.pair_pooling:
            return model.encode(texts_apart(batch))
        return model.encode(batch)

    def logits(self, model: Model, encoded: Encoded, batch: Batch, *, fp32: bool = False) -> Tensor:
        """Return the head's logits [B, K].

        Args:
            encoded: of :meth:`encode`.
            fp32: compute the head in fp32, where bf16 would have three digits.
        """
        mask = None
        if self.pair_pooling:
            mask = texts_apart(batch).attention_mask
        return model.read(self.head, encoded, mask=mask, fp32=fp32)


def check_pair_pooling(name: str, text_columns: Sequence[str]) -> None:
    """Refuse a `pair_pooling` of single texts.

    Raises:
        BertineError: it is.
    """
    if name and len(text_columns) != 2:
        raise BertineError("bertine.json: pair_pooling is for two text columns, not for one")


def require_positions(max_length: int, config: Config) -> None:
    """Refuse a `max_length` that is more than the positions of the model.

    Raises:
        BertineError: it is.
    """
    if max_length > config.longest_input:
        raise BertineError(
            f"max_length is {max_length}, but the model has positions for {config.longest_input}"
        )


def check_room(max_length: int, texts: int, tokenizer: Tokenizer, what: str = "text") -> None:
    """Refuse a `max_length` in which the special tokens leave no room for a piece of each text;
    `what` is the message's word for what stands there.

    Raises:
        BertineError: they leave none.
    """
    if max_length < tokenizer.template.added(texts) + texts:
        raise BertineError(f"max_length {max_length} leaves no room for {what}")


def encode(
    examples: Examples,
    tokenizer: Tokenizer,
    text_columns: Sequence[str],
    max_length: int,
    target: Callable[[str | None, int], float | None],
    long_text: str = "head",
) -> list[Features]:
    """Tokenize; inputs longer than `max_length` are cut, a pair at its longer text first, a single
    text as `long_text` says (:mod:`bertine.tasks.long_text`).

    Args:
        target: (an example's label, its line) → the target of the features.

    Raises:
        BertineError: an example has another number of texts than there are columns; what
            `target` raises.
    """
    width, frame = len(text_columns), tokenizer.template.one
    check_room(max_length, width, tokenizer)
    features: list[Features] = []
    for start in range(0, len(examples), _TOKENIZE):
        part = examples.items[start : start + _TOKENIZE]
        for example in part:
            if len(example.texts) != width:
                raise BertineError(
                    f"{examples.source}:{example.line}: {counted(len(example.texts), 'text')}, "
                    f"but the model takes {width} ({', '.join(text_columns)})"
                )
        encodings = tokenizer.encode_arrays(
            [example.texts[0] for example in part],
            [example.texts[1] for example in part] if width == 2 else None,
            max_length=max_length if long_text == "head" else None,
        )
        for at, (example, (ids, types, cut)) in enumerate(zip(part, encodings, strict=True)):
            label = target(example.label, example.line)
            inputs = [ids] if long_text == "head" else parts_of(ids, max_length, long_text, frame)
            if len(inputs) == 1:
                cut += len(ids) - len(inputs[0])
            features.extend(
                Features(each, types[: len(each)], row=start + at, label=label, num_truncated=cut)
                for each in inputs
            )
    return features
