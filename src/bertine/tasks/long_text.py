"""Choose which part of a text is read that is longer than the model.

``head``, ``tail`` and ``head-tail`` (a quarter from the beginning, the rest from the end: Sun et
al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1, take 128 and 382 of 510)
cut a text, and what is lost is counted. ``windows`` loses nothing: the text is read in windows that
overlap by half, each is an example with the text's label in training, and the mean of their
outputs is the text's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertine.errors import BertineError
from bertine.tasks.features import Features, by_example
from bertine.text.template import Frame

LONG_TEXT = ("head", "tail", "head-tail", "windows")


def check_long_text(mode: str, num_texts: int) -> None:
    """Refuse a way that is not known, and any but ``head`` for pairs of texts.

    Raises:
        BertineError: it is.
    """
    if mode not in LONG_TEXT:
        raise BertineError(f"long_text is {mode!r}, but must be one of {', '.join(LONG_TEXT)}")
    if mode != "head" and num_texts != 1:
        raise BertineError(
            f"long_text {mode!r} is for single texts; pairs are cut at the longer text's end"
        )


def parts_of(ids: np.ndarray, max_length: int, mode: str, frame: Frame) -> list[np.ndarray]:
    """Choose what is read of one text.

    Args:
        ids: int32 [n], its pieces with the special tokens around.
        max_length: pieces of an input, special tokens included.
        mode: one of :data:`LONG_TEXT`.
        frame: the special tokens around one text.

    Returns:
        One input, or with ``windows`` one or more: int32 [at most max_length] each, with all
        special tokens.
    """
    if len(ids) <= max_length:
        return [ids]
    begin, end = len(frame.before), len(ids) - len(frame.after)
    first, body, last = ids[:begin], ids[begin:end], ids[end:]
    room = max_length - frame.added()
    if mode == "head":
        kept = [body[:room]]
    elif mode == "tail":
        kept = [body[-room:]]
    elif mode == "head-tail":
        head = room // 4
        kept = [np.concatenate([body[:head], body[len(body) - (room - head) :]])]
    else:
        final = len(body) - room  # where the last window starts, which ends with the text
        starts = [*range(0, final, max(1, room // 2)), final]
        kept = [body[start : start + room] for start in starts]
    return [np.concatenate([first, part, last]) for part in kept]


def pooled(outputs: Sequence[np.ndarray], features: Sequence[Features]) -> Sequence[np.ndarray]:
    """Turn the outputs of features into one for each text: the mean over its windows, in fp64.
    Where no text has more than one, they are returned as they are."""
    if len({feature.row for feature in features}) == len(features):
        return outputs
    return [
        np.asarray(np.mean(of_windows, axis=0, dtype=np.float64))
        for of_windows, _ in by_example(outputs, features)
    ]
