"""What the tests of both kinds of segment pairs have in common: next sentences, sentence order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertine.corpora.sequences import Instance
from bertine.corpora.store import TokenStore

from .conftest import FIRST_ID

#: Documents, by the lengths of their sentences.
_DOCUMENTS = st.lists(
    st.lists(st.integers(1, 60), min_size=1, max_size=50), min_size=2, max_size=12
)


def any_documents(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with many `documents`, `max_tokens`, `short` probabilities and `seed`s."""
    examples: Any = given(
        documents=_DOCUMENTS,
        max_tokens=st.integers(5, 197),
        short=st.sampled_from([0.0, 0.1, 1.0]),
        seed=st.integers(0, 1000),
    )
    often = settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    return often(examples(test))


def spans(pair: Instance) -> tuple[int, int, int, int]:
    """Where A and B stand in the store, having checked that each is in one piece."""
    a, b = pair.segments[0].astype(int), pair.segments[1].astype(int)
    assert (np.diff(a) == 1).all()
    assert (np.diff(b) == 1).all()
    return a[0] - FIRST_ID, a[-1] + 1 - FIRST_ID, b[0] - FIRST_ID, b[-1] + 1 - FIRST_ID


def bounds(store: TokenStore) -> npt.NDArray[np.int64]:
    """Where each document starts, and the end of the last."""
    sizes = [store.document(i).input_ids.size for i in range(store.num_documents)]
    return np.cumsum([0, *sizes])


def spans_inside(
    pair: Instance, starts: npt.NDArray[np.int64], max_tokens: int
) -> tuple[int, int, int, int]:
    """Return :func:`spans`, having checked that the pair fits and crosses no document's end."""
    a, a_end, b, b_end = spans(pair)
    assert 2 <= (a_end - a) + (b_end - b) <= max_tokens
    first, second = pair.documents
    assert starts[first] <= a < a_end <= starts[first + 1]
    assert starts[second] <= b < b_end <= starts[second + 1]
    return a, a_end, b, b_end


def mixed_documents() -> list[list[int]]:
    """Documents of long sentences, so that one often reaches the target alone; some of two."""
    rng = np.random.default_rng(0)
    return [rng.integers(1, 90, size=rng.integers(2, 40)).tolist() for _ in range(60)]


def assert_share(values: npt.ArrayLike, expected: float) -> None:
    """Check that the share of `values` (bool [N]) that are true is the expected one, up to four
    standard errors."""
    share, count = float(np.mean(values)), np.size(values)
    assert abs(share - expected) < 4 * (expected * (1 - expected) / count) ** 0.5


def share_of_shorter(window: int) -> float:
    """The share of pairs that are shorter than `window` tokens, by default a tenth of them: one of
    the window - 1 short targets is the full one."""
    return 0.1 * (window - 2) / (window - 1)
