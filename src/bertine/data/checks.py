"""Ids, lengths and labels checked on the host, so that a mistake names its row.

On a GPU the same mistake is an assertion deep in a kernel, on a CPU an index error without a row.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from bertine.data.batch import Batch
from bertine.errors import BertineError


class Sizes(Protocol):
    """The part of a model's configuration that bounds its inputs."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def num_segment_ids(self) -> int: ...
    @property
    def longest_input(self) -> int: ...


def check_batch(batch: Batch, config: Sizes, *, num_labels: int | None = None) -> None:
    """Check a batch that is still on the host against the sizes of the model.

    Args:
        batch: on the CPU.
        config: the model's configuration.
        num_labels: when given, ``targets["labels"]`` must be in ``range(num_labels)`` or -100.

    Raises:
        BertineError: names the first row with a token id, segment id, length or label that the
            model has no parameters for.
    """
    length = batch.input_ids.shape[1]
    if length > config.longest_input:
        longest = int(batch.attention_mask.sum(1).argmax())
        raise BertineError(
            f"{_row(batch, longest)}: {length} tokens, but the model has positions for "
            f"{config.longest_input}; lower the maximum length"
        )
    _check(batch, batch.input_ids, config.vocab_size, "token id {} is outside the vocabulary of")
    _check(batch, batch.token_type_ids, config.num_segment_ids, "segment id {} is outside the")
    labels = batch.targets.get("labels")
    if num_labels is not None and labels is not None:
        _check(batch, labels, num_labels, "label {} is outside the", ignored=-100)


def _check(batch: Batch, values: Tensor, size: int, what: str, ignored: int | None = None) -> None:
    wrong = (values < 0) | (values >= size)
    if ignored is not None:
        wrong &= values != ignored
    if wrong.any():
        where = wrong.nonzero()[0].tolist()
        value = int(values[tuple(where)])
        raise BertineError(f"{_row(batch, where[0])}: {what.format(value)} {size}")


def _row(batch: Batch, sequence: int) -> str:
    return f"row {batch.rows[sequence] if batch.rows else sequence}"
