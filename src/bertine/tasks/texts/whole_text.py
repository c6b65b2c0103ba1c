"""The base of tasks over whole texts, or pairs of texts: classification with one label or many, and
regression.

Shape legend: B sequences in a batch, K outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.heads import PAIR_CLASSIFIER, VECTOR_CLASSIFIER, texts_apart
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.records.examples import Example, Examples
from bertine.tasks.base import Task
from bertine.tasks.features import Features
from bertine.tasks.input_lengths import LEAST_LENGTH, check_room
from bertine.tasks.long_text import check_long_text, parts_of
from bertine.tasks.losses import NONE, of_examples
from bertine.terminal.console import counted
from bertine.text.tokenizer import Tokenizer

#: A probability of 0, as a logarithm: less than any model gives.
LEAST = 1e-9
#: The target of a batch that has how much each sequence counts in the loss.
WEIGHTS = "weights"
#: Texts given to the tokenizer at once: enough to keep its threads busy.
_TOKENIZE = 4096

Prediction = TypeVar("Prediction")


class WholeTextTask(Task[Prediction]):
    """Base of the tasks whose head reads one vector of a text or of a pair of texts.

    Attributes:
        kind: the task, as messages call it.
        fp32_head: whether the head computes in fp32 whatever the model computes in.
        long_text: what is read of a longer text (:mod:`bertine.tasks.long_text`).
        pair_pooling: of pairs whose texts are encoded apart: how states become vectors, by the
            name of a :class:`~bertine.models.pooling.Pooling`; "": both texts are one input.
        shared_pieces: of such pairs: whether it also counts how much of each text is in the other.
        text_pooling: of texts whose head is a linear layer on a vector: how states become it; "":
            the head is that of the published models.

    Raises:
        BertineError: not one or two text columns, a maximum length without room for text, a way
            with long texts that is not known or not for pairs, a pooling of the other kind of
            texts, or shared pieces without a pooling.
    """

    kind: ClassVar[str]
    fp32_head: ClassVar[bool] = False

    pair_pooling: str
    shared_pieces: bool
    text_pooling: str

    def __post_init__(self) -> None:
        width = len(self.text_columns)
        if width not in (1, 2):
            raise BertineError(f"{self.kind} takes one or two text columns, not {width}")
        if self.max_length < LEAST_LENGTH[width]:
            raise BertineError(f"max_length {self.max_length} leaves no room for text")
        check_long_text(self.long_text, width)
        if self.pair_pooling and width != 2:
            raise BertineError("bertine.json: pair_pooling is for two text columns, not for one")
        if self.text_pooling and width != 1:
            raise BertineError("bertine.json: text_pooling is for one text column, not for two")
        if self.shared_pieces and not self.pair_pooling:
            raise BertineError("bertine.json: shared_pieces is for texts with a pair_pooling")

    @property
    def takes_pairs(self) -> bool:
        return len(self.text_columns) == 2

    @property
    def reads_whole_texts(self) -> bool:
        return True

    @property
    def reads_apart(self) -> bool:
        return bool(self.pair_pooling)

    @property
    def head(self) -> str:
        if self.text_pooling:
            return VECTOR_CLASSIFIER
        return PAIR_CLASSIFIER if self.pair_pooling else "classifier"

    def head_options(self, config: Config) -> dict[str, Any]:
        """Return what the head is made with: the pooling, where it reads vectors, and of pairs
        whether what they have in common is read.

        Raises:
            BertineError: the model has one token type for two texts; there is no such pooling.
        """
        if self.takes_pairs and config.num_segments < 2:
            raise BertineError(
                "the model has a type_vocab_size of 1, so it cannot tell two texts apart; join "
                "them in one column, or use another model"
            )
        if self.text_pooling:
            return {"pooling": Pooling.named(self.text_pooling)}
        if not self.pair_pooling:
            return {}
        pooling = Pooling.named(self.pair_pooling)
        return {"pooling": pooling, "shared_pieces": self.shared_pieces}

    @abstractmethod
    def target(self, label: str | None, source: str, line: int) -> Any:
        """Make the target of an example's features of its label; None of None.

        Raises:
            BertineError: there is no such label; names `source` and `line`.
        """

    def target_of(self, example: Example, source: str) -> Any:
        """Make the target of an example's features: of its label, or of what else it has."""
        return self.target(example.label, source, example.line)

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Tokenize; inputs longer than `max_length` are cut, a pair at its longer text first, a
        single text as `long_text` says.

        Raises:
            BertineError: an example has another number of texts than there are columns; what
                :meth:`target` raises.
        """
        width, frame = len(self.text_columns), tokenizer.template.one
        check_room(self.max_length, width, tokenizer)
        cut_at_end = self.long_text == "head"
        features: list[Features] = []
        for start in range(0, len(examples), _TOKENIZE):
            part = examples.items[start : start + _TOKENIZE]
            for example in part:
                if len(example.texts) != width:
                    raise BertineError(
                        f"{examples.source}:{example.line}: {counted(len(example.texts), 'text')}, "
                        f"but the model takes {width} ({', '.join(self.text_columns)})"
                    )
            encodings = tokenizer.encode_arrays(
                [example.texts[0] for example in part],
                [example.texts[1] for example in part] if width == 2 else None,
                max_length=self.max_length if cut_at_end else None,
            )
            rows = zip(part, encodings, strict=True)
            for row, (example, (ids, types, cut)) in enumerate(rows, start):
                label = self.target_of(example, examples.source)
                inputs = [ids]
                if not cut_at_end:
                    inputs = parts_of(ids, self.max_length, self.long_text, frame)
                if len(inputs) == 1:
                    cut += len(ids) - len(inputs[0])
                features.extend(
                    Features(
                        kept,
                        types[: len(kept)],
                        row,
                        label=label,
                        num_truncated=cut,
                        weight=example.weight,
                    )
                    for kept in inputs
                )
        return features

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad features into one batch; with ``targets["weights"]`` fp32 [B] where any is not 1."""
        batch = super().collate(features, pad_id)
        weights = [feature.weight for feature in features]
        if any(weight != 1 for weight in weights):
            batch.targets[WEIGHTS] = torch.tensor(weights, dtype=torch.float32)
        return batch

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Encode the inputs, or both texts of each pair by themselves."""
        return model.encode(texts_apart(batch) if self.pair_pooling else batch)

    def outputs_of(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Compute the head's outputs [B, K]."""
        texts = texts_apart(batch) if self.pair_pooling else batch
        return model.read(self.head, encoded, texts=texts, fp32=self.fp32_head)

    @abstractmethod
    def as_outputs(self, answers: np.ndarray) -> np.ndarray:
        """Turn what another model answered into outputs that :meth:`decode` takes, fp32.

        Args:
            answers: fp64 [N, K], the probability of each label; of scores [N].
        """

    @abstractmethod
    def loss_of(self, output: np.ndarray, label: Any) -> float:
        """Compute the loss of one output against its target."""

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[float]:
        """Compute the loss of each example, the mean over its windows; nan without a label."""
        losses = [
            NONE if feature.label is None else self.loss_of(output, feature.label)
            for output, feature in zip(outputs, features, strict=True)
        ]
        return of_examples(losses, features)


def probability_columns(labels: Sequence[str]) -> dict[str, Callable[[Any], Any]]:
    """Make a column with the probability of each label."""

    def column(number: int) -> Callable[[Any], Any]:
        return lambda answer: round(answer.numbers[number], 6)

    return {f"probability_{label}": column(number) for number, label in enumerate(labels)}
