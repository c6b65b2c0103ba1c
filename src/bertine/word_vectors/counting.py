"""Read a corpus for word2vec: count its words, then write their numbers to a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.options.names import option
from bertine.text.corpus import Corpus
from bertine.word_vectors.files import MAX_WORD
from bertine.word_vectors.sampling import BREAK
from bertine.word_vectors.splitting import words_of

#: Different words that are counted at a time; beyond, the rarest are forgotten.
MAX_COUNTED = 10_000_000
#: Numbers that are written at once.
_WRITTEN = 1 << 20


@dataclass(frozen=True)
class CountedWords:
    """The words of a corpus that get vectors.

    Attributes:
        words: V, most frequent first, of equals in the order of their characters.
        counts: int64 [V].
        total: words of the corpus.
        different: different ones of them.
        forgotten: how many were forgotten while counting, since there were too many.
    """

    words: list[str]
    counts: np.ndarray
    total: int
    different: int
    forgotten: int


def count_words(
    corpus: Corpus,
    *,
    lowercase: bool,
    min_count: int,
    max_words: int | None,
    on_document: Callable[[], None],
) -> CountedWords:
    """Count the words of `corpus`; those seen `min_count` times or more stay, and of these the
    `max_words` most frequent.

    Raises:
        BertineError: fewer than two words stay; what reading the corpus raises.
    """
    counter: Counter[str] = Counter()
    forgotten, least = 0, 1
    for document in corpus:
        counter.update(words_of(document.text, lowercase=lowercase))
        while len(counter) > MAX_COUNTED:
            rare = [word for word, count in counter.items() if count <= least]
            for word in rare:
                del counter[word]
            forgotten, least = forgotten + len(rare), least + 1
        on_document()
    total = sum(counter.values())
    different = len(counter)
    chosen = [
        (count, word)
        for word, count in counter.items()
        if count >= min_count and len(word) * 4 <= MAX_WORD
    ]
    chosen.sort(key=lambda entry: (-entry[0], entry[1]))
    chosen = chosen[:max_words]
    if len(chosen) < 2:
        raise BertineError(
            f"{corpus.paths[0]}: {len(chosen)} of {different:,} different words come "
            f"{min_count} times or more; give more text or a lower {option('min_count')}"
        )
    counts = np.array([count for count, _ in chosen], dtype=np.int64)
    return CountedWords([word for _, word in chosen], counts, total, different, forgotten)


def write_ids(
    corpus: Corpus,
    counted: CountedWords,
    handle: IO[bytes],
    folder: Path,
    *,
    lowercase: bool,
    on_document: Callable[[], None],
) -> np.ndarray:
    """Write the numbers of the words that stay to a new file, int32, with `BREAK` after each
    document.

    Args:
        corpus: that was counted.
        counted: its words.
        handle: of the file, open for writing and reading.
        folder: where it is, for messages.
        lowercase: as they were counted.
        on_document: called after each document.

    Returns:
        The numbers, mapped from the file.
    """
    ids = {word: number for number, word in enumerate(counted.words)}
    waiting: list[int] = []
    with os_errors(folder, "writing the numbers of the words"):
        for document in corpus:
            words = words_of(document.text, lowercase=lowercase)
            waiting += [ids[word] for word in words if word in ids]
            waiting.append(BREAK)
            if len(waiting) > _WRITTEN:
                handle.write(np.array(waiting, dtype=np.int32).tobytes())
                waiting.clear()
            on_document()
        handle.write(np.array(waiting, dtype=np.int32).tobytes())
        handle.flush()
    return np.memmap(handle, dtype=np.int32, mode="r")
