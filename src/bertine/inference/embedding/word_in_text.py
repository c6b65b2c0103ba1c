"""Where a word stands in a text."""

from __future__ import annotations

import re


def word_span(text: str, word: str) -> tuple[int, int] | None:
    """Find the first place of `word` in `text` where it is not part of a longer word, in any case:
    its begin and end, in characters; None: it is not there."""
    match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
    return match.span() if match else None
