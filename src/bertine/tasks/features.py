"""What is computed for an example: sequences of pieces, padded into batches, and notes about those
that were cut.

Shape legend: B sequences in a batch, T tokens of the longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Any

import numpy as np
import torch

from bertine.data.batch import Batch
from bertine.terminal.console import counted


@dataclass(frozen=True, slots=True)
class Features:
    """One input sequence, ready to be padded into a batch.

    Attributes:
        input_ids: int32 [n], with the special tokens.
        token_type_ids: int8 [n].
        row: index of the example it was made from.
        label: the target: a class's id, a score, or fp32 [K] with 1 for each label of several;
            None when unknown, or of another kind, for which a task has features of its own.
        num_truncated: pieces that were cut off to keep to the maximum length.
        group: of a sequence that is computed together with others, the choices of an example,
            what all of them have in common; they stand side by side. None: it stands alone.
        weight: of the example in the loss.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    row: int
    label: Any = None
    num_truncated: int = 0
    group: int | None = None
    weight: float = field(default=1.0, kw_only=True)


def by_example(
    outputs: Iterable[Any], features: Iterable[Any]
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield what was computed for the features of each example, and these features."""
    pairs = zip(outputs, features, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[1].row):
        computed, own = zip(*group, strict=True)
        yield list(computed), list(own)


#: Lengths of batches are multiples of it: a matrix product of a shape that was seen before is
#: ready, one of a new shape is first compiled for the machine.
_LENGTHS = 8


def pad_features(features: Sequence[Features], pad_id: int, max_length: int) -> Batch:
    """Pad features on the right to the next multiple of 8 from the longest on, but to no more
    than `max_length`: a :class:`Batch` without targets."""
    longest = max(len(feature.input_ids) for feature in features)
    rounded = -(-longest // _LENGTHS) * _LENGTHS
    shape = (len(features), max(longest, min(rounded, max_length)))
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    token_type_ids = np.zeros(shape, dtype=np.int64)
    attention_mask = np.zeros(shape, dtype=bool)
    for row, feature in enumerate(features):
        length = len(feature.input_ids)
        input_ids[row, :length] = feature.input_ids
        token_type_ids[row, :length] = feature.token_type_ids
        attention_mask[row, :length] = True
    return Batch(
        torch.from_numpy(input_ids),
        torch.from_numpy(attention_mask),
        torch.from_numpy(token_type_ids),
        rows=[feature.row for feature in features],
    )


def cut_at(max_length: int, lost: int, what: str = "texts", unit: str = "piece") -> str:
    """Write "texts were cut at 128 pieces (31 pieces lost)"."""
    return f"{what} were cut at {max_length} {unit}s ({counted(lost, unit)} lost)"


def truncation_note(features: Sequence[Features], max_length: int) -> str | None:
    """Write "17 of 2000 texts were cut at 128 pieces (…)", or how many are read in windows; None
    when every text is one input, uncut. Examples count, not the choices of one."""
    cut = {feature.row for feature in features if feature.num_truncated}
    if cut:
        total = len({feature.row for feature in features})
        lost = sum(feature.num_truncated for feature in features)
        return f"{len(cut)} of {total} {cut_at(max_length, lost)}"
    windows = Counter(feature.row for feature in features if feature.group is None)
    long = [number for number in windows.values() if number > 1]
    if not long:
        return None
    return (
        f"{len(long)} of {len(windows)} texts are longer than {max_length} pieces and are read in "
        f"{sum(long)} windows"
    )


def text_number(text: Features) -> int:
    """Return a number of 63 bits that is equal for texts of the same pieces (BLAKE2b of them)."""
    ids = np.ascontiguousarray(text.input_ids, dtype=np.int32)
    return int.from_bytes(blake2b(ids.tobytes(), digest_size=8).digest(), "little") >> 1
