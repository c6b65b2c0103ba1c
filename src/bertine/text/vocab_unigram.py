"""Learn a Unigram vocabulary, as ALBERT or XLNet have it.

It begins with ``<pad> <unk> [CLS] [SEP] [MASK]`` or with XLNet's nine special tokens, then come the
pieces, the likeliest first, found by :mod:`bertine.text.unigram.estimation`. Text is normalized as
ALBERT's, with NFKC in the place of sentencepiece's own table. As in sentencepiece, no piece crosses
the border between letters of different scripts, numbers and marks (``split_by_unicode_script``,
``split_by_number``).
"""

from __future__ import annotations

import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy.typing as npt

from bertine.errors import BertineError
from bertine.options.corpus import Vocabulary
from bertine.terminal.console import warn
from bertine.text.tokenizer import Tokenizer
from bertine.text.unigram.estimation import LONGEST_TEXT, estimate
from bertine.text.unigram.layouts import SPACE, STYLES
from bertine.text.unigram.normalizing import albert_steps
from bertine.text.unigram.tokenizing import Unigram
from bertine.text.vocab_learner import WORD, VocabLearner
from bertine.text.vocab_wordpiece import COVERAGE, LEAST_COVERAGE

#: Different words that are counted at a time, and how many of their characters are learnt from.
_MOST_WORDS, _MOST_CHARACTERS = 1 << 21, 1 << 22
#: Words that are normalized at a time, and what stands between them: a character for private use.
_NORMALIZED, _BETWEEN = 4096, "\ue000"
#: What is counted of a word without spaces inside.
_LONGEST_WORD = 1 << 10

#: Scripts that are written together.
_JAPANESE = {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC", "CJK"}


class UnigramLearner(VocabLearner):
    """A learner of Unigram vocabularies; see :func:`bertine.train_vocab` for its arguments.

    Raises:
        BertineError: `vocab_size` has no room for a piece.
    """

    has_unknown = True

    def __init__(self, options: Vocabulary) -> None:
        self._specials = STYLES[options.special_tokens or "albert"].first_pieces
        least = len(self._specials) + 2
        if options.vocab_size < least:
            raise BertineError(
                f"vocab_size {options.vocab_size} is too small for the special tokens; give at "
                f"least {least}"
            )
        self._options = options
        lowercase = options.lowercase is not False
        strip = lowercase if options.strip_accents is None else options.strip_accents
        self._normalizer = albert_steps(b"", lowercase=lowercase, strip_accents=strip)

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        stretches = self._stretches(_count_words(lines))
        alphabet = self._alphabet(stretches)
        texts = _split_at_unknown(stretches, alphabet)
        chosen = sorted(texts, key=lambda text: (-texts[text], text))
        chosen = _as_many_as_fit(chosen, texts)
        vocab = estimate(
            chosen,
            [texts[text] for text in chosen],
            size=self._options.vocab_size - len(self._specials),
            least=max(2, self._options.min_frequency),
        )
        specials = [(token, 0.0) for token in self._specials]
        kind = Unigram.build([*specials, *vocab], self._normalizer, "vocabulary")
        return Tokenizer(kind, "vocabulary")

    def count_words(self, lines: Sequence[str], begins_word: npt.NDArray[Any]) -> int:
        return sum(len(WORD.findall(line)) for line in lines)

    def _stretches(self, words: Counter[str]) -> Counter[str]:
        """Return the normalized words in stretches that no piece crosses the end of, with the space
        before each."""
        specials = [(token, 0.0) for token in self._specials]
        reader = Unigram.build([*specials, (SPACE, -1.0)], self._normalizer, "vocabulary").backend
        normalize = reader.normalizer.normalize_str
        ordered = sorted(words)
        stretches: Counter[str] = Counter()
        for begin in range(0, len(ordered), _NORMALIZED):
            group = ordered[begin : begin + _NORMALIZED]
            parts = normalize(_BETWEEN.join(group)).split(_BETWEEN)
            if len(parts) != len(group):  # one of them has that character
                parts = [normalize(word) for word in group]
            for word, part in zip(group, parts, strict=True):
                for piece in part.split():
                    for stretch in divide(SPACE + piece.replace(SPACE, "")):
                        stretches[stretch] += words[word]
        if not stretches:
            raise BertineError("the corpus has no visible character; give a corpus with some text")
        return stretches

    def _alphabet(self, stretches: Counter[str]) -> frozenset[str]:
        """Choose the characters of the vocabulary: the most frequent ones, which together have
        99.99% of the text, or as many as are asked for. They are no more than half of it.

        Raises:
            BertineError: it is too small for them.
        """
        counts: Counter[str] = Counter()
        for stretch, times in stretches.items():
            for character in stretch:
                counts[character] += times
        spaces = counts.pop(SPACE, 0)
        ranked = sorted(counts, key=lambda c: (-counts[c], c))
        total = sum(counts.values())
        size, limit = self._options.vocab_size, self._options.limit_alphabet

        def needed(share: float) -> int:
            """Count the characters that make up this share of the text."""
            covered = 0
            for number, character in enumerate(ranked):
                if covered >= share * total:
                    return number
                covered += counts[character]
            return len(ranked)

        room = size - len(self._specials) - 1
        most = min(needed(COVERAGE), max(room // 2, 1)) if limit is None else limit
        # Rarer characters too, where they take next to no room.
        most = max(most, size // 20) if limit is None else most
        most = min(most, len(ranked))
        if most > room:
            raise BertineError(
                f"vocab_size {size} is too small for an alphabet of {most:,} "
                f"characters; give at least {most + size - room:,}, or a smaller limit_alphabet"
            )
        chosen = ranked[:most]
        covered = sum(counts[word] for word in chosen)
        if limit is None and covered < LEAST_COVERAGE * total:
            least = 2 * needed(LEAST_COVERAGE) + size - room
            raise BertineError(
                f"vocab_size {size} is too small for the {len(ranked):,} characters of this "
                f"corpus; give at least {least:,}, or say how many to keep with limit_alphabet"
            )
        self.alphabet_size, self.characters_seen = len(chosen), len(ranked)
        self.coverage = covered / total
        if limit is None and covered < COVERAGE * total:
            self.full_size = 2 * needed(COVERAGE) + size - room
        return frozenset([*chosen, *[SPACE] * (spaces > 0)])


def _count_words(lines: Iterator[list[str]]) -> Counter[str]:
    """Count what stands between spaces. When there are too many different words, the half of them
    that came most often are kept, and of those that came equally often some by a hash of their
    letters."""
    words: Counter[str] = Counter()
    forgotten = 0
    for group in lines:
        for line in group:
            for word in line.split():
                if len(word) <= _LONGEST_WORD:
                    words[word] += 1
                else:
                    parts = range(0, len(word), _LONGEST_WORD)
                    words.update(word[begin : begin + _LONGEST_WORD] for begin in parts)
        if len(words) > _MOST_WORDS:
            ranked = sorted(words, key=lambda word: (-words[word], _hash(word), word))
            forgotten += sum(words[word] for word in ranked[_MOST_WORDS // 2 :])
            words = Counter({word: words[word] for word in ranked[: _MOST_WORDS // 2]})
    if forgotten:
        warn(
            f"{forgotten:,} rare words are not counted: there are more than {_MOST_WORDS:,} "
            "different ones"
        )
    return words


def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace"))


def divide(word: str) -> Iterator[str]:
    """Yield the stretches of a word that no piece crosses the end of: letters of one script, digits
    or marks, each with combining characters. The first has the space before the word."""
    begin, before = 0, ""
    for place, character in enumerate(word):
        script = _script(character)
        if script == "":
            continue
        if before and script != before:
            yield from _parts(word[begin:place])
            begin = place
        before = script
    yield from _parts(word[begin:])


def _parts(stretch: str) -> Iterator[str]:
    """Yield a stretch in parts of bounded length."""
    for begin in range(0, len(stretch), LONGEST_TEXT):
        yield stretch[begin : begin + LONGEST_TEXT]


@lru_cache(1 << 17)
def _script(character: str) -> str:
    """Return the script of a letter by the first word of its name, "0" for a digit, "." for other
    marks, and "" for what goes with the character before it (and for the space before a word)."""
    category = unicodedata.category(character)
    if character == SPACE or category[0] == "M":
        return ""
    if category[0] == "N":
        return "0"
    if category[0] != "L":
        return "."
    name = unicodedata.name(character, "unknown").split(" ")[0]
    return "CJK" if name in _JAPANESE else name


def _split_at_unknown(stretches: Counter[str], alphabet: frozenset[str]) -> Counter[str]:
    """Return the stretches without the characters that are not in the alphabet."""
    known: Counter[str] = Counter()
    for stretch, times in stretches.items():
        if alphabet.issuperset(stretch):
            known[stretch] += times
            continue
        text = "".join(c if c in alphabet else "\0" for c in stretch)
        for part in text.split("\0"):
            if part:
                known[part] += times
    return known


def _as_many_as_fit(chosen: list[str], counts: Counter[str]) -> list[str]:
    """Return the first ones, of a bounded number of characters, and say what is left out."""
    size = 0
    for number, text in enumerate(chosen):
        size += len(text)
        if size > _MOST_CHARACTERS:
            held = sum(counts[word] for word in chosen[:number])
            warn(
                f"pieces are learnt from the {number:,} most frequent of {len(chosen):,} "
                f"different words, {held / counts.total():.2%} of the text"
            )
            return chosen[:number]
    return chosen
