"""Learn a WordPiece vocabulary.

The pieces are learnt by the trainer of `tokenizers` (the most frequent pair of pieces is merged,
until the vocabulary is full). What is ours is the alphabet: it is counted beforehand and given to
the trainer in a fixed order, because left to itself the trainer numbers characters as its hash
tables happen to hold them, and the same corpus would give another vocabulary on every run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertine.errors import BertineError
from bertine.options.corpus import Vocabulary
from bertine.text import wordpiece
from bertine.text.tokenizer import Tokenizer
from bertine.text.vocab_learner import LINE_PART, VocabLearner
from bertine.text.wordpiece import MAX_CHARS_PER_WORD, SPECIAL_TOKENS

# Imported after `wordpiece`, which says how `tokenizers` is to use threads.
import tokenizers  # isort: skip
from tokenizers import models, pre_tokenizers, trainers  # isort: skip

#: Share of the characters of the text that the alphabet is to hold, where nothing else is said,
#: and the share without which no vocabulary is made.
COVERAGE = 0.9999
LEAST_COVERAGE = 0.99

_CODE_POINTS = sys.maxunicode + 1


class WordPieceLearner(VocabLearner):
    """A learner of WordPiece vocabularies; see :func:`bertine.train_vocab` for its arguments."""

    counts = has_unknown = True

    def __init__(self, options: Vocabulary, base: Tokenizer | None) -> None:
        """`base`: the tokenizer whose vocabulary is extended, which says how text is read."""
        self._options, self._base = options, base
        reading: Tokenizer | Vocabulary = options if base is None else base
        self._reading: dict[str, Any] = {
            "lowercase": reading.lowercase is not False,
            "strip_accents": reading.strip_accents,
            "split_chinese": reading.split_chinese,
        }
        self._backend = tokenizers.Tokenizer(
            models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=MAX_CHARS_PER_WORD)
        )
        self._backend.normalizer = wordpiece.normalizer(**self._reading)
        self._backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._counts = np.zeros(_CODE_POINTS, np.int64)

    def count(self, text: str) -> None:
        """Count the characters of a document, before anything is learnt."""
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        for begin in range(0, len(points), LINE_PART):
            seen, times = np.unique(points[begin : begin + LINE_PART], return_counts=True)
            self._counts[seen] += times

    def counted(self) -> None:
        """Choose the alphabet, when all documents are counted.

        Raises:
            BertineError: the vocabulary is too small for it.
        """
        base = () if self._base is None else self._base.tokens
        self._alphabet = _Alphabet.choose(self._backend, self._counts, self._options, base)
        self.alphabet_size = len(self._alphabet.characters)
        self.characters_seen, self.coverage = self._alphabet.seen, self._alphabet.coverage
        self.full_size = self._alphabet.full_size

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        trainer = trainers.WordPieceTrainer(
            vocab_size=self._options.vocab_size,
            min_frequency=self._options.min_frequency,
            show_progress=False,
            # In this order they get their ids; that they are "special" is dropped below.
            special_tokens=[*SPECIAL_TOKENS, *self._alphabet.tokens],
            initial_alphabet=self._alphabet.characters,
            limit_alphabet=len(self._alphabet.characters),
        )
        self._backend.train_from_iterator(lines, trainer)
        ids = self._backend.get_vocab(with_added_tokens=True)
        tokens = sorted(ids, key=ids.__getitem__)
        if self._base is not None:
            kept = set(self._base.tokens)
            added = [token for token in tokens if token not in kept]
            tokens = [
                *self._base.tokens,
                *added[: self._options.vocab_size - self._base.vocab_size],
            ]
        return Tokenizer.from_vocab(tokens, **self._reading)


@dataclass(frozen=True)
class _Alphabet:
    """The characters of a vocabulary, sorted; their tokens; how many different ones were seen, how
    much of the text they are; and `full_size` as in :class:`VocabReport`."""

    characters: list[str]
    tokens: list[str]
    seen: int
    coverage: float
    full_size: int

    @staticmethod
    def choose(
        backend: tokenizers.Tokenizer,
        raw_counts: np.ndarray,
        options: Vocabulary,
        base: Sequence[str],
    ) -> _Alphabet:
        """Choose from counts of raw characters [code points], normalized here one by one.

        (BERT's normalization works on single characters, so that this equals counting the
        normalized text.) What the tokens of `base` hold takes no room.
        """
        vocab_size, limit = options.vocab_size, options.limit_alphabet
        counts: dict[str, int] = {}
        for point in np.flatnonzero(raw_counts):
            for character in backend.normalizer.normalize_str(chr(point)):
                if not character.isspace():
                    counts[character] = counts.get(character, 0) + int(raw_counts[point])
        if not counts:
            raise BertineError("the corpus has no visible character; give a corpus with some text")
        ranked = sorted(counts, key=lambda c: (-counts[c], c))
        total = sum(counts.values())
        # Inside a word a character needs a second token. Marks and Chinese characters are always
        # words of their own.
        inside = {c for c in ranked if _goes_on(backend, c)}

        known = set(base)
        cost = {c: (c not in known) + (c in inside and f"##{c}" not in known) for c in ranked}
        new = [c for c in ranked if cost[c]]
        chosen = [c for c in ranked if not cost[c]]
        covered = sum(counts[c] for c in chosen)
        used = taken = len(base) or len(SPECIAL_TOKENS)
        # Only characters that stand inside words are joined to pieces, which need room; Chinese
        # ones are not, and without them a vocabulary of Chinese would fill with rare Latin words.
        share = 1 - sum(counts[c] for c in inside) / total / 2
        begin = taken if base else 0
        most = begin + int((vocab_size - begin) * share)
        for character in new:
            if limit is not None:
                if len(chosen) >= limit:
                    break
            elif used + cost[character] > most or (
                covered >= COVERAGE * total and used >= vocab_size // 20
            ):
                break
            chosen.append(character)
            used += cost[character]
            covered += counts[character]

        def least_size(coverage: float) -> int:
            """Return tokens of a vocabulary whose alphabet has this share of the text."""
            need, rest = 0, coverage * total - sum(counts[c] for c in ranked if not cost[c])
            for character in new:
                if rest <= 0:
                    break
                need += cost[character]
                rest -= counts[character]
            return begin + math.ceil((taken - begin + need) / share)

        if limit is None and covered < LEAST_COVERAGE * total:
            least = least_size(LEAST_COVERAGE)
            raise BertineError(
                f"vocab_size {vocab_size} is too small for the {len(ranked):,} characters of this "
                f"corpus; give at least {least:,}, or say how many to keep with limit_alphabet"
            )
        if used > vocab_size:
            raise BertineError(
                f"vocab_size {vocab_size} is too small for an alphabet of {len(chosen):,} "
                f"characters; give at least {used:,}, or a smaller limit_alphabet"
            )
        chosen.sort()
        tokens = [*chosen, *(f"##{c}" for c in chosen if c in inside)]
        full = limit is not None or covered >= COVERAGE * total
        full_size = 0 if full else least_size(COVERAGE)
        return _Alphabet(chosen, tokens, len(ranked), covered / total, full_size)


def _goes_on(backend: tokenizers.Tokenizer, character: str) -> bool:
    """Tell whether `character` (normalized) can stand inside a word."""
    text = backend.normalizer.normalize_str(f"a{character}")
    return len(backend.pre_tokenizer.pre_tokenize_str(text)) == 1
