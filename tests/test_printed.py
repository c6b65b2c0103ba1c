"""When a document shows what a program printed, and when it does not."""

from __future__ import annotations

import pytest

from printed import difference

PRINTED = """\
loaded 103 tensors
108 training examples
epoch 1   accuracy 41.67%   tok/s 35   left 13 min 44 s
epoch 2   accuracy 83.33%   tok/s 60   left 50.2 s
best: 0.9035; took 2 min 52 s, 1,733 rows a second
"""


@pytest.mark.parametrize(
    "shown",
    [
        PRINTED,
        "…",
        "…\nepoch 1 accuracy 41.67% tok/s 9.5k left 1 s\n…",
        "…\nbest: 0.9035; took 12 s, 20 rows a second\n",
        "loaded 103 tensors\n…\nbest: …\n",
        "loaded …\n108 training…\n…\nepoch 2 … left 0:50\nbest: 0.9035; took …",
    ],
    ids=["all", "nothing", "a-line", "times", "lines-left-out", "words-left-out"],
)
def test_what_was_printed_is_recognized(shown: str) -> None:
    assert difference(shown, PRINTED, 0.0) is None


@pytest.mark.parametrize(
    ("shown", "named"),
    [
        ("…\n109 training examples\n…", "109 training examples"),
        ("…\nepoch 2 accuracy 90.00% …", "epoch 2 accuracy 90.00% …"),
        ("loaded 103 tensors\nbest: …", "best: …"),
        ("…\nbest: …\nloaded 103 tensors", "loaded 103 tensors"),
        ("loaded 103 tensors", "the end: more was printed than is shown"),
        ("…\nworst: …", "worst: …"),
    ],
    ids=["a-whole-number", "a-score", "a-line-left-out", "order", "the-rest", "another-text"],
)
def test_what_was_not_printed_is_named(shown: str, named: str) -> None:
    assert difference(shown, PRINTED, 0.05) == named


def test_numbers_may_be_off_by_the_share_that_is_named() -> None:
    shown = PRINTED.replace("83.33%", "75.00%").replace("0.9035", "0.95")
    assert difference(shown, PRINTED, 0.12) is None
    assert difference(shown, PRINTED, 0.08) is not None
