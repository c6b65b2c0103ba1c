"""Learn vocabularies of WordPiece, byte-level BPE and BPE over words, and measure their quality.

The pieces are learnt by the trainer of `tokenizers` (the most frequent pair of pieces is merged
until the vocabulary is full). The alphabet of WordPiece is counted here and given to the trainer in
a fixed order: otherwise the trainer numbers characters in the order of its hash tables, and the
same corpus would give another vocabulary on every run.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.core.errors import BertineError
from bertine.options.data import Vocabulary
from bertine.tokenization import wordpiece
from bertine.tokenization.base import bare
from bertine.tokenization.documents import Corpus
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.wordpiece import MAX_CHARS_PER_WORD, SPECIAL_TOKENS

import tokenizers  # isort: skip
from tokenizers import models, pre_tokenizers, trainers  # isort: skip
import json

from bertine.core.names import option
from bertine.tokenization.byte_bpe import ALPHABET, STYLES, ByteBpe
from bertine.tokenization.gpt_bpe import ADDED, END, UNKNOWN, WordBpe
from bertine.tokenization.wordpiece import normalizer

# Shared by all learners: the text to learn from, in bounded parts, and the quality of a vocabulary.

#: Most characters held out; the figures are then exact enough.
_MAX_HELD_OUT = 8_000_000

#: Longer lines are passed to the trainer in parts, so that a line of 50 MB is counted like others.
LINE_PART = 1 << 16

#: Encoded data and the like, which must not affect the vocabulary.
_ENDLESS_WORD = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{{MAX_CHARS_PER_WORD + 1},}}")

#: Chinese characters, each of which is a word, and unbroken runs of other scripts.
WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+")

#: Lines measured at a time.
_MEASURED = 1024


@dataclass(frozen=True)
class Quality:
    """Counts of pieces and words of some text. A *word* has a letter or digit; marks do not count.

    Attributes:
        pieces: number in the whole text.
        words: number in the text.
        word_pieces: pieces of its words.
        unknown: pieces that are the unknown token.
        single: one-character pieces of words.
    """

    pieces: int
    words: int
    word_pieces: int
    unknown: int
    single: int

    @property
    def fertility(self) -> float:
        """Pieces per word."""
        return self.word_pieces / max(self.words, 1)

    @property
    def unknown_share(self) -> float:
        """Share of unknown pieces."""
        return self.unknown / max(self.pieces, 1)

    @property
    def single_share(self) -> float:
        """Share of single characters among the pieces of words."""
        return self.single / max(self.word_pieces, 1)


class VocabLearner:
    """A learner of one kind of vocabulary.

    Attributes:
        counts: whether the documents are counted first, by :meth:`count` for each and then
            :meth:`counted`, in order to choose an alphabet, outside of which characters are
            unknown.
        has_unknown: whether some characters are not in the vocabulary.
        alphabet_size, characters_seen, coverage, full_size: see
            :class:`bertine.tokenization.vocab.VocabReport`; known after counting.
    """

    counts: bool = False
    has_unknown: bool = False
    alphabet_size: int
    characters_seen: int
    coverage: float = 1.0
    full_size: int = 0

    def count(self, text: str) -> None:
        """Count the characters of a document."""

    def counted(self) -> None:
        """Finish counting."""

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        raise NotImplementedError

    def measure(self, tokenizer: Tokenizer, lines: Sequence[str]) -> Quality:
        """Measure the vocabulary on text. A part of a character counts as a character."""
        texts = [bare(name) for name in tokenizer.names]
        parts = np.array([self.is_part(token) for token in tokenizer.tokens])
        # Special tokens in brackets count as words here; they are very rare in a corpus.
        is_word = parts | np.array([any(c.isalnum() for c in text) for text in texts])
        is_single = parts | np.array([len(text) == 1 for text in texts])
        begins_word = is_word & self.marks_word(tokenizer)
        pieces = words = unknown = word_pieces = singles = 0
        for begin in range(0, len(lines), _MEASURED):
            measured = lines[begin : begin + _MEASURED]
            ids, _ = tokenizer.encode_flat(measured)
            pieces += len(ids)
            unknown += int((ids == tokenizer.unk_token_id).sum()) if self.has_unknown else 0
            word_pieces += int(is_word[ids].sum())
            words += self.count_words(measured, begins_word[ids])
            singles += int((is_word & is_single)[ids].sum())
        return Quality(pieces, words, word_pieces, unknown, singles)

    def is_part(self, token: str) -> bool:
        """Return whether a token is a part of a character."""
        return False

    def marks_word(self, tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
        """Return which pieces occur once in each word, bool [V]: its first ones."""
        return ~tokenizer.continues

    def count_words(self, lines: Sequence[str], begins_word: npt.NDArray[Any]) -> int:
        """Count the words of some lines; `begins_word` marks the pieces that begin a word."""
        return int(begins_word.sum())


def training_lines(corpus: Corpus, hold_out_every: int, held_out: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each document; one in `hold_out_every` goes to `held_out` instead."""
    number = held_size = 0
    for document in corpus:
        group: list[str] = []
        for line in document.text.split("\n"):
            if not line or line.isspace():
                continue
            number += 1
            due = number % hold_out_every == 0
            if due and held_size < _MAX_HELD_OUT and len(line) <= LINE_PART:
                held_out.append(line)
                held_size += len(line)
                continue
            line = _ENDLESS_WORD.sub(" ", line)
            for begin in range(0, len(line), LINE_PART):
                group.append(line[begin : begin + LINE_PART])
        if group:
            yield group


def first_lines(corpus: Corpus) -> list[str]:
    """Return the beginning of the corpus, as much as would be held out."""
    lines: list[str] = []
    size = 0
    for document in corpus:
        for line in document.text[:_MAX_HELD_OUT].split("\n"):
            lines.append(line)
            size += len(line)
        if size >= _MAX_HELD_OUT:
            break
    return lines


# WordPiece.

#: Default share of the text's characters that the alphabet covers, and the share below which no
#: vocabulary is made.
COVERAGE = 0.9999
LEAST_COVERAGE = 0.99

_CODE_POINTS = sys.maxunicode + 1


class WordPieceLearner(VocabLearner):
    """A learner of WordPiece vocabularies; see :func:`bertine.train_vocab` for its arguments."""

    counts = has_unknown = True

    def __init__(self, options: Vocabulary, base: Tokenizer | None) -> None:
        """Create a learner; `base` is the tokenizer whose vocabulary is extended and which reads
        the text."""
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
        """Count the characters of a document before learning."""
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        for begin in range(0, len(points), LINE_PART):
            seen, times = np.unique(points[begin : begin + LINE_PART], return_counts=True)
            self._counts[seen] += times

    def counted(self) -> None:
        """Choose the alphabet when all documents are counted.

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
            # They get their ids in this order; their mark as "special" is removed below.
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
    """The sorted characters of a vocabulary, their tokens, the number of different characters in
    the text, their share of the text, and `full_size` as in :class:`VocabReport`."""

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
        """Choose from counts of raw characters [code points], normalized one by one.

        (BERT's normalization works on single characters, so this equals counting the normalized
        text.) The tokens of `base` take no room.
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
        # words by themselves.
        inside = {c for c in ranked if _goes_on(backend, c)}

        known = set(base)
        cost = {c: (c not in known) + (c in inside and f"##{c}" not in known) for c in ranked}
        new = [c for c in ranked if cost[c]]
        chosen = [c for c in ranked if not cost[c]]
        covered = sum(counts[c] for c in chosen)
        used = taken = len(base) or len(SPECIAL_TOKENS)
        # Only characters inside words are merged into pieces, which need room; Chinese ones are
        # not, and without them a vocabulary of Chinese would fill with rare Latin words.
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
            """Return the size of a vocabulary whose alphabet covers this share of the text."""
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
    """Return whether `character` (normalized) can occur inside a word."""
    text = backend.normalizer.normalize_str(f"a{character}")
    return len(backend.pre_tokenizer.pre_tokenize_str(text)) == 1


# Byte-level BPE in the form of RoBERTa's, or with special tokens like BERT's.
#
# The vocabulary begins with its special tokens (RoBERTa: ``<s> <pad> </s> <unk>``) and the 256
# bytes, followed by the pieces in the order in which the trainer of `tokenizers` learns them; the
# mask is last. (RoBERTa's own order is by frequency, which has no effect on a model.) Every text
# can be written with the bytes, so there is no alphabet to choose, and the corpus is read once.


class ByteBpeLearner(VocabLearner):
    """A learner of byte-level BPE; see :func:`bertine.train_vocab` for its arguments.

    Raises:
        BertineError: `vocab_size` has no room for the bytes.
    """

    alphabet_size = characters_seen = len(ALPHABET)

    def __init__(self, options: Vocabulary) -> None:
        self._special, self._first = STYLES[options.special_tokens or "roberta"]
        least = len(self._first) + len(ALPHABET) + 2
        if options.vocab_size < least:
            raise BertineError(
                f"vocab_size {options.vocab_size} is too small for the {len(ALPHABET)} bytes and "
                f"the special tokens; give at least {least}"
            )
        self._options = options

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=self._options.vocab_size - 1,
            min_frequency=self._options.min_frequency,
            show_progress=False,
            special_tokens=list(self._first),
            initial_alphabet=sorted(ALPHABET),
        )
        backend.train_from_iterator(lines, trainer)
        model = json.loads(backend.to_str())["model"]
        assert self._special.mask is not None
        ids = {**model["vocab"], self._special.mask: len(model["vocab"])}
        merges = [(first, second) for first, second in model["merges"]]
        kind = ByteBpe.build(ids, merges, add_prefix_space=False, source="vocabulary")
        return Tokenizer(kind, "vocabulary")

    def is_part(self, token: str) -> bool:
        try:
            bytes(ALPHABET[character] for character in token).decode("utf-8")
        except KeyError:  # a special token
            return False
        except UnicodeDecodeError:
            return True
        return False

    def count_words(self, lines: Sequence[str], begins_word: npt.NDArray[Any]) -> int:
        return sum(len(WORD.findall(line)) for line in lines)


# BPE over words in the form of GPT-1's.
#
# ``<unk>`` is first, followed by the characters, those that end a word, and the pieces in the order
# in which the trainer of `tokenizers` learns them; the special tokens of fine-tuning are last,
# where the published code adds them. Words are split as BERT does, which needs no package.

#: By default one character for this number of tokens, with room for both of its forms.
_SHARE = 4


class WordBpeLearner(VocabLearner):
    """A learner of BPE over words; see :func:`bertine.train_vocab` for its arguments. The alphabet
    is the most frequent characters, at most a quarter of the vocabulary.

    Raises:
        BertineError: an option does not apply to it.
    """

    has_unknown = True

    def __init__(self, options: Vocabulary) -> None:
        if options.lowercase is False:
            raise BertineError(
                f"{option('lowercase')} false does not go with word-bpe, which knows one case; "
                "leave it out"
            )
        if options.vocab_size < 2 * _SHARE + 1 + len(ADDED):
            raise BertineError(
                f"vocab_size {options.vocab_size} is too small; a few thousand are usual"
            )
        self._options = options

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        options = self._options
        backend = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END))
        backend.normalizer = normalizer(True, options.strip_accents, options.split_chinese)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        most = options.vocab_size - len(ADDED)
        trainer = trainers.BpeTrainer(
            vocab_size=most,
            min_frequency=options.min_frequency,
            show_progress=False,
            special_tokens=[UNKNOWN],
            limit_alphabet=options.limit_alphabet or most // _SHARE,
            end_of_word_suffix=END,
        )
        backend.train_from_iterator(lines, trainer)
        model = json.loads(backend.to_str())["model"]
        tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
        ids = {token: index for index, token in enumerate([*tokens, *ADDED])}
        merges = [(first, second) for first, second in model["merges"]]
        kind = WordBpe.build(
            ids,
            merges,
            exact=False,
            source="vocabulary",
            strip_accents=options.strip_accents,
            split_chinese=options.split_chinese,
        )
        # Characters are tokens at the end of a word, or before it.
        self.alphabet_size = len({t for t in (t.removesuffix(END) for t in tokens) if len(t) == 1})
        self.characters_seen = self.alphabet_size
        return Tokenizer(kind, "vocabulary")

    def marks_word(self, tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
        """Return which pieces occur once in each word, bool [V]: its last ones."""
        return np.array([token.endswith(END) for token in tokenizer.tokens])
