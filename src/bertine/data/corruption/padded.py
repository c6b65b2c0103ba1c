"""Put instances between their special tokens and side by side, as arrays.

Shape legend: B sequences, T tokens of the longest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from bertine.data.batch import Batch
from bertine.data.instances.formats import FORMATS, sequence_frame
from bertine.data.instances.instance import Instance
from bertine.names import InputFormat

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Padded:
    """Hold instances with their special tokens, padded on the right.

    Attributes:
        input_ids: int64 [B, T].
        lengths: int64 [B], real tokens of each.
        real: bool [B, T], True where there is a token, False in the padding.
        token_type_ids: int64 [B, T], the segments; 0 in the padding.
        labels: the target that the labels of the instances are, int64 [B], by its name; empty
            where they have none.
    """

    input_ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    real: npt.NDArray[np.bool_]
    token_type_ids: npt.NDArray[np.int64]
    labels: Mapping[str, npt.NDArray[np.int64]]

    def batch(self, input_ids: npt.NDArray[np.int64], **targets: npt.NDArray[Any]) -> Batch:
        """Make a batch with other `input_ids` of the same shape; the labels of the instances
        stand behind `targets`."""
        return Batch(
            torch.from_numpy(input_ids),
            torch.from_numpy(self.real),
            torch.from_numpy(self.token_type_ids),
            {name: torch.from_numpy(value) for name, value in {**targets, **self.labels}.items()},
        )


class Padder:
    """Pad the instances of one format.

    Args:
        tokenizer: whose special tokens stand around the segments, and whose padding behind them.
        input_format: of the instances, one of `bertine.data.instances.formats.FORMATS`.
    """

    def __init__(self, tokenizer: Tokenizer, input_format: InputFormat) -> None:
        self.frame = sequence_frame(input_format, tokenizer.template)
        self.pad_token_id = tokenizer.pad_token_id
        self._label = FORMATS[input_format].label

    def pad(self, instances: Sequence[Instance]) -> Padded:
        """Lay out `instances`."""
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
        lengths = np.array(sizes)
        real = np.arange(lengths.max()) < lengths[:, None]
        input_ids = np.full(real.shape, self.pad_token_id, np.int64)
        input_ids[real] = np.concatenate(pieces)
        types = np.zeros(real.shape, np.int64)
        if self.frame.marks is not None:
            types[real] = self._types(instances, self.frame.marks)
        labels = {}
        if self._label is not None:
            told = [instance.label for instance in instances]
            labels[self._label.target] = np.array(told, np.int64)
        return Padded(input_ids, lengths, real, types, labels)

    def _types(
        self, instances: Sequence[Instance], marks: tuple[int, ...]
    ) -> npt.NDArray[np.int64]:
        """Return the segments of all real tokens, one sequence behind the other."""
        counts = np.ones((len(instances), len(marks)), np.int64)
        texts = self.frame.starts([1] * len(instances[0].segments))
        counts[:, texts] = [[len(text) for text in each.segments] for each in instances]
        return np.repeat(np.tile(np.array(marks, np.int64), len(instances)), counts.reshape(-1))
