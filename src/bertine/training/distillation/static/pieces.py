"""Vectors of single pieces: each alone through the teacher.

Shape legend: V pieces of the vocabulary, H numbers of the teacher's vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertine.inference.embedding.embedder import Embedder
from bertine.tasks.features import Features
from bertine.terminal.console import progress
from bertine.text.tokenizer import Tokenizer

#: Pieces that are computed at a time.
_PIECES = 8192


def piece_vectors(
    teacher: Embedder, tokenizer: Tokenizer, *, show_progress: bool = True
) -> np.ndarray:
    """Compute the teacher's vector of each piece by itself, between its special tokens.

    Args:
        teacher: with the vocabulary that `tokenizer` has, or begins with.
        tokenizer: of the table; what it has beyond the teacher's vocabulary are words, which the
            teacher reads in its own pieces.

    Returns:
        fp32 [V, H]; zeros for special tokens.
    """
    table = np.zeros((tokenizer.vocab_size, teacher.dimensions), np.float32)
    inputs = inputs_of(teacher.tokenizer, tokenizer)
    with progress(show=show_progress) as bar:
        job = bar.add_task("pieces through the teacher", total=len(inputs))
        for start in range(0, len(inputs), _PIECES):
            part = inputs[start : start + _PIECES]
            rows = [feature.row for feature in part]
            table[rows] = teacher.run(part, on_batch=lambda done: bar.advance(job, done))
    return table


def inputs_of(own: Tokenizer, tokenizer: Tokenizer) -> Sequence[Features]:
    """Return what the teacher reads for each piece that is not special."""
    known = own.vocab_size
    features = []
    for row, token in enumerate(tokenizer.tokens):
        if row in tokenizer.special_ids:
            continue
        pieces = [row] if row < known else own.parts_of(token)
        ids, types = own.template.wrap(np.array(pieces, np.int32))
        features.append(Features(ids, types, row))
    return features
