"""Words of texts that become pieces of their own."""

from __future__ import annotations

from collections import Counter

import numpy as np

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.text.tokenizer import Tokenizer

#: A word that came less often is not worth a vector.
_LEAST = 2


def check_takes_words(tokenizer: Tokenizer) -> None:
    """Raise a BertineError where words cannot be added to the vocabulary."""
    if tokenizer.kind != "wordpiece":
        raise BertineError(
            f"{option('add_words')} is for WordPiece, but this vocabulary is {tokenizer.title}; "
            "leave it out"
        )


def with_words(tokenizer: Tokenizer, words: Counter[str], most: int) -> Tokenizer:
    """Return a tokenizer with the words behind its vocabulary that come most often and are several
    pieces.

    Args:
        tokenizer: of WordPiece, in which a whole word goes before its pieces.
        words: how often each came.
        most: how many are added.
    """
    frequent = [word for word, count in words.most_common(10 * most) if count >= _LEAST]
    ids, lengths = tokenizer.encode_flat(frequent)
    unknown = np.zeros(len(frequent), bool)
    unknown[np.repeat(np.arange(len(frequent)), lengths)[ids == tokenizer.unk_token_id]] = True
    known = set(tokenizer.tokens)
    added = [
        word
        for word, length, strange in zip(frequent, lengths.tolist(), unknown.tolist(), strict=True)
        # What normalization changes would never be found again.
        if length > 1 and not strange and word not in known and _stays(tokenizer, word)
    ][:most]
    if not added:
        return tokenizer
    return Tokenizer.from_vocab(
        [*tokenizer.tokens, *added],
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        split_chinese=tokenizer.split_chinese,
    )


def _stays(tokenizer: Tokenizer, word: str) -> bool:
    """Tell whether normalization leaves a word as it is, and takes it for one word."""
    backend = tokenizer.backend
    normal = backend.normalizer.normalize_str(word)
    parts = backend.pre_tokenizer.pre_tokenize_str(normal)
    return normal == word and len(parts) == 1
