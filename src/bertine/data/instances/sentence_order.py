"""Pairs of segments in order or swapped, for sentence-order prediction.

As in the paper (Lan et al. 2019, section 3.1) and its published code (google-research/albert,
``create_pretraining_data.py``): sentences are gathered up to a target length, which is the full
length or, for 10%, a random shorter one; the first few of them, a random number, are one segment,
the rest the other. Half of the time the two change places (label 1, "swapped"). What is a single
sentence gets segments of a random document as B, with label 1 too; a pair too long loses tokens of
the longer segment.

Where pairs start, and what differs from that code, is as in
:mod:`bertine.data.instances.segments`; so a single sentence is gathered only where a document has
no other.
"""

from __future__ import annotations

from typing import ClassVar

from bertine.data.instances.segments import NspSegments
from bertine.data.store import TokenStore
from bertine.errors import BertineError


class OrderedSegments(NspSegments):
    """The endless sequence of pairs over a store whose order is asked for, each a pure function of
    (store, seed, index); the arguments are those of
    :class:`~bertine.data.instances.segments.NspSegments`.

    Raises:
        BertineError: the store is a single sentence, or an argument is out of range.
    """

    swaps: ClassVar[bool] = True

    @staticmethod
    def check(store: TokenStore) -> None:
        """Refuse a store of one sentence: there is no order to ask for."""
        if store.num_sentences < 2:
            raise BertineError(
                f"{store.path}: sentence-order prediction needs at least two sentences, but there "
                f"is {store.num_sentences}; give more text, or check that it was split"
            )
