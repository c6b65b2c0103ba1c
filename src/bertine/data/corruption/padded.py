"""Put instances between their special tokens and side by side, as arrays.

Shape legend: B sequences, T tokens of the longest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from bertine.data.batch import Batch
from bertine.data.instances.formats import FORMATS, sequence_frame
from bertine.data.instances.instance import Instance
from bertine.names import InputFormat
from bertine.text.template import Frame

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class PaddedInstances:
    """A batch of instances with their special tokens, padded on the right.

    Attributes:
        input_ids: int64 [B, T].
        lengths: int64 [B], real tokens of each.
        real: bool [B, T], True where there is a token, False in the padding.
        token_type_ids: int64 [B, T], the segments; 0 in the padding.
        goes_on: bool [B, T], which pieces go on with the word before; None: the vocabulary
            decides.
        labels: the target that the labels of the instances are, int64 [B], by its name; empty
            where they have none.
    """

    input_ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    real: npt.NDArray[np.bool_]
    token_type_ids: npt.NDArray[np.int64]
    labels: Mapping[str, npt.NDArray[np.int64]]
    goes_on: npt.NDArray[np.bool_] | None = None

    def continues(self, of_vocabulary: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which tokens go on with the word before, bool [B, T].

        Args:
            of_vocabulary: bool [V], which pieces do wherever they stand
                (:attr:`bertine.Tokenizer.continues`).
        """
        return of_vocabulary[self.input_ids] if self.goes_on is None else self.goes_on

    def batch(self, input_ids: npt.NDArray[np.int64], **targets: npt.NDArray[Any]) -> Batch:
        """Make a batch with other `input_ids` of the same shape; the labels of the instances
        stand behind `targets`."""
        return Batch(
            torch.from_numpy(input_ids),
            torch.from_numpy(self.real),
            torch.from_numpy(self.token_type_ids),
            {name: torch.from_numpy(value) for name, value in {**targets, **self.labels}.items()},
        )


class ForeignId(ValueError):
    """An instance holds an id that is not in the vocabulary."""


class Padder:
    """A way to lay out the instances of one format as arrays.

    Args:
        tokenizer: whose special tokens stand around the segments, and whose padding behind them.
        input_format: of the instances, one of `bertine.data.instances.formats.FORMATS`.
    """

    def __init__(self, tokenizer: Tokenizer, input_format: InputFormat) -> None:
        self.frame = sequence_frame(input_format, tokenizer.template)
        self.pad_token_id = tokenizer.pad_token_id
        self._vocab_size = tokenizer.vocab_size
        self._label = FORMATS[input_format].label
        self._neighbours = FORMATS[input_format].neighbours
        self._changes = list(_changes(self.frame))

    def pad(self, instances: Sequence[Instance]) -> PaddedInstances:
        """Lay out `instances`.

        Raises:
            ForeignId: one of their ids is not in the vocabulary.
        """
        before, between, after = self.frame.arrays(instances[0].segments[0].dtype)
        pieces: list[npt.NDArray[Any]] = []
        sizes: list[int] = []
        for instance in instances:
            behind, size = before, 0
            for segment in instance.segments:
                pieces += (behind, segment)
                size += len(behind) + len(segment)
                behind = between
            pieces.append(after)
            sizes.append(size + len(after))
        ids = np.concatenate(pieces)
        if ids.max() >= self._vocab_size:
            raise ForeignId
        lengths = np.array(sizes)
        column = np.arange(lengths.max())
        real = column < lengths[:, None]
        input_ids = np.full(real.shape, self.pad_token_id, np.int64)
        input_ids[real] = ids
        types = np.zeros(real.shape, np.int64)
        for special, texts, mark in self._changes:
            starts = [special + sum(map(len, instance.segments[:texts])) for instance in instances]
            np.copyto(types, mark, where=real & (column >= np.array(starts)[:, None]))
        labels = {}
        if self._label is not None:
            answers = [instance.label for instance in instances]
            labels[self._label.target] = np.array(answers, np.int64)
        if self._neighbours:
            labels["groups"] = np.arange(len(instances)) // 2
        goes_on = self._words(instances, real)
        return PaddedInstances(input_ids, lengths, real, types, labels, goes_on)

    def _words(
        self, instances: Sequence[Instance], real: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_] | None:
        """Lay out which pieces go on with a word, where the instances say so."""
        if instances[0].goes_on is None:
            return None
        goes_on = np.zeros(real.shape, np.bool_)
        goes_on[real] = np.concatenate(
            [
                np.array(self.frame.lay(list(map(list, instance.goes_on or ())), False), np.bool_)
                for instance in instances
            ]
        )
        return goes_on


def _changes(frame: Frame) -> Iterator[tuple[int, int, int]]:
    """Yield where the segment (token type) changes within a sequence: behind how many special
    tokens and how many texts, and what it is from there on."""
    texts = frame.starts([1, 1])
    last = 0
    for place, mark in enumerate(frame.marks or ()):
        if mark != last:
            passed = sum(text < place for text in texts)
            yield place - passed, passed, mark
        last = mark
