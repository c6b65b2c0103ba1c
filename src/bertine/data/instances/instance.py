"""One sequence of pre-training before anything is done to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Instance(NamedTuple):
    """The texts of one sequence, without its special tokens.

    Attributes:
        segments: ids, views into the store, one array for each stretch of text between special
            tokens; of a pair two. None is empty.
        documents: the number of the document that each is from.
        num_truncated: tokens cut off to fit.
        label: the answer to what is asked of the sequence as a whole, such as whether B follows A;
            None in formats that ask nothing (:class:`bertine.data.instances.formats.Format`).
        goes_on: of each segment, which pieces go on with the word before; None: the vocabulary
            decides.
        sentences: of each segment, where its sentences end, counted from its first token on, the
            last one with the segment; None: not known, as in formats of pairs.
        context: ids of the text beside it, in the order in which it is read; None: not asked for
            (:class:`bertine.data.corruption.base.ReadsAround`).
    """

    segments: tuple[npt.NDArray[Any], ...]
    documents: tuple[int, ...]
    num_truncated: int = 0
    label: int | None = None
    goes_on: tuple[npt.NDArray[np.bool_], ...] | None = None
    sentences: tuple[tuple[int, ...], ...] | None = None
    context: npt.NDArray[Any] | None = None
