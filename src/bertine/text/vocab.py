"""Training a WordPiece vocabulary on a corpus, and saying how good it is.

The pieces are learnt by the trainer of `tokenizers` (the most frequent pair of pieces is merged,
until the vocabulary is full). What is ours is the alphabet: it is counted beforehand and given to
the trainer in a fixed order, because left to itself the trainer numbers characters as its hash
tables happen to hold them, and the same corpus would give another vocabulary on every run.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertine.errors import BertineError
from bertine.files import atomic_dir, check_replaceable
from bertine.options.types import check_types
from bertine.terminal.console import counted, human_time, progress
from bertine.terminal.shown import Shown
from bertine.text import kinds, wordpiece
from bertine.text.corpus import Corpus, CorpusStats
from bertine.text.tokenizer import Tokenizer
from bertine.text.wordpiece import MAX_CHARS_PER_WORD, SPECIAL_TOKENS

# Imported after `wordpiece`, which says how `tokenizers` is to use threads.
import tokenizers  # isort: skip
from tokenizers import models, pre_tokenizers, trainers  # isort: skip

#: Share of the characters of the text that the alphabet is to hold, where nothing else is said,
#: and the share without which no vocabulary is made.
_COVERAGE = 0.9999
_LEAST_COVERAGE = 0.99

#: Held-out text beyond this many characters is trained on after all: the figures are exact enough.
_MAX_HELD_OUT = 8_000_000

#: Longer lines are given to the trainer in parts, so that a line of 50 MB is counted as others are.
_LINE_PART = 1 << 16

#: Encoded data and the like: words that will always be [UNK] are not to shape the vocabulary.
_ENDLESS_WORD = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{{MAX_CHARS_PER_WORD + 1},}}")

_CODE_POINTS = sys.maxunicode + 1


@dataclass(frozen=True, repr=False)
class VocabReport(Shown):
    """What came of training a vocabulary. A *word* here has a letter or digit; marks do not count.

    Attributes:
        out: the tokenizer's folder.
        size: tokens in the vocabulary.
        requested_size: tokens asked for.
        lowercase: whether it is uncased.
        alphabet_size: different characters in it.
        characters_seen: different characters in the (normalized) text.
        coverage: share of the text's characters that are in the alphabet.
        fertility: pieces per word of held-out text ([UNK] is one piece).
        unknown_share: share of [UNK] among the pieces of held-out text.
        single_character_share: share of pieces of one character among the pieces of its words.
        held_out_words: words of the text that these were measured on.
        held_out: False if the corpus was too small to hold any text out, and they were measured on
            the text trained on.
        corpus: documents, bytes and what was mended or skipped.
        seconds: time taken.
        base_size: tokens of the vocabulary that was extended; 0 where none was.
        full_size: tokens of a vocabulary whose alphabet has 99.99% of the text; 0 where this one
            has, or the alphabet was limited.
    """

    out: Path
    size: int
    requested_size: int
    lowercase: bool
    alphabet_size: int
    characters_seen: int
    coverage: float
    fertility: float
    unknown_share: float
    single_character_share: float
    held_out_words: int
    held_out: bool
    corpus: CorpusStats
    seconds: float
    base_size: int = 0
    full_size: int = 0

    def lines(self) -> list[str]:
        """The report for people."""
        where = "held-out text" if self.held_out else "the text trained on (too short to hold out)"
        lines = [
            *self.corpus.lines(),
            f"vocabulary: {self.size:,} tokens, {'uncased' if self.lowercase else 'cased'}, "
            f"of {self.alphabet_size:,} characters ({self.coverage:.3%} of the text; "
            f"{self.characters_seen:,} different ones seen)",
            f"on {counted(self.held_out_words, 'word')} of {where}: {self.fertility:.3f} "
            f"pieces per word, {self.unknown_share:.4%} unknown, "
            f"{self.single_character_share:.2%} single letters",
            f"{self.out}: written after {human_time(self.seconds)}",
        ]
        if self.full_size:
            lines.insert(
                -1,
                f"{1 - self.coverage:.3%} of the characters are unknown to it; a vocabulary of "
                f"{self.full_size:,} has room for {_COVERAGE:.2%} of them",
            )
        if self.base_size:
            lines.insert(
                -1,
                f"the first {self.base_size:,} are those it extends; "
                f"{self.size - self.base_size:,} are new",
            )
        if self.size < self.requested_size:
            lines.insert(
                -1,
                f"only {self.size:,} of the {self.requested_size:,} tokens asked for: "
                "the corpus has no more pieces that are frequent enough",
            )
        return lines


def is_tokenizer_folder(folder: Path) -> bool:
    """Tell whether `folder` holds a tokenizer's files and nothing else."""
    return {path.name for path in folder.iterdir()} <= kinds.FILES and kinds.holds_tokenizer(folder)


@check_types
def train_vocab(
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    vocab_size: int = 30522,
    extend: Path | str | None = None,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_chinese: bool = True,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    hold_out_every: int = 50,
    document_per_file: bool = False,
    text_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
) -> VocabReport:
    """Train a WordPiece vocabulary and write the tokenizer's folder `out`.

    The same corpus and options give the same vocabulary. The corpus is read twice.

    Args:
        corpus: files and folders, as for :class:`bertine.text.corpus.Corpus`, as are
            `document_per_file`, `text_column`, `quotes` and `strict`.
        out: folder for vocab.txt, tokenizer.json and tokenizer_config.json. A tokenizer's folder
            that is there is replaced; one with anything else in it is refused.
        vocab_size: tokens wanted, special tokens and single characters included.
        extend: a tokenizer or model folder whose tokens are kept, at their ids; what the corpus
            needs is added up to `vocab_size`. Text is then read as that tokenizer reads it:
            `lowercase`, `strip_accents` and `split_chinese` are its own.
        lowercase: uncased: lower case everywhere.
        strip_accents: remove accents; None: if `lowercase`.
        split_chinese: make every Chinese character a word.
        min_frequency: pairs of pieces seen less often are not merged.
        limit_alphabet: how many different characters to keep, the most frequent first; words with
            others are unknown. None: as many as make up 99.99% of the text (English: about a
            hundred, Chinese: some seven thousand), more if they take no more than a twentieth of
            the vocabulary, and fewer if they would leave too little room for pieces of words. In
            text whose characters all stand inside words (English) that room is half of the
            vocabulary; in text of characters that are words by themselves (Chinese with
            `split_chinese`), which are never joined to longer pieces, it is little: half of the
            vocabulary times the share of the text that stands inside words. With `extend` it is
            that share of what is added. The report says how large the vocabulary must be for
            99.99%.
        hold_out_every: of so many lines of text, one is not trained on, but measured on.

    Returns:
        The report; its `lines()` are for people.

    Raises:
        BertineError: something is wrong with the corpus, `vocab_size` is too small for its
            alphabet, or `out` is a folder of something else.
    """
    if vocab_size < len(SPECIAL_TOKENS) + 1:
        raise BertineError(f"vocab_size {vocab_size} is too small; a few thousand are usual")
    if hold_out_every < 2:
        raise BertineError(f"hold_out_every {hold_out_every} leaves nothing to train on; give 50")
    if limit_alphabet is not None and limit_alphabet < 1:
        raise BertineError(f"limit_alphabet {limit_alphabet} leaves no character; give 1000, say")
    base = None if extend is None else Tokenizer.load(extend)
    if base is not None:
        if vocab_size <= base.vocab_size:
            raise BertineError(
                f"{extend}: has {base.vocab_size} tokens already; give a larger vocab_size than "
                f"{vocab_size}"
            )
        lowercase, strip_accents = base.lowercase, base.strip_accents
        split_chinese = base.split_chinese
    check_replaceable(out, "tokenizer's folder", is_tokenizer_folder)
    started = time.monotonic()
    documents = Corpus(
        corpus,
        document_per_file=document_per_file,
        text_column=text_column,
        quotes=quotes,
        strict=strict,
    )
    documents.check_options()
    backend = tokenizers.Tokenizer(
        models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=MAX_CHARS_PER_WORD)
    )
    backend.normalizer = wordpiece.normalizer(lowercase, strip_accents, split_chinese)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Before the long work, not after it: can `out` be written at all?
    with atomic_dir(out) as folder, progress() as display:
        task = display.add_task("counting characters", total=documents.size_on_disk)
        counts = np.zeros(_CODE_POINTS, np.int64)
        for document in documents:
            points = np.frombuffer(document.text.encode("utf-32-le"), np.uint32)
            for begin in range(0, len(points), _LINE_PART):
                seen, times = np.unique(points[begin : begin + _LINE_PART], return_counts=True)
                counts[seen] += times
            display.update(task, completed=documents.position)
        alphabet = _Alphabet.choose(
            backend, counts, vocab_size, limit_alphabet, () if base is None else base.tokens
        )

        task = display.add_task("counting words", total=documents.size_on_disk)
        learning = display.add_task("learning pieces", total=None, start=False, visible=False)
        held_out: list[str] = []

        def lines() -> Iterator[list[str]]:
            for group in _training_lines(documents, hold_out_every, held_out):
                display.update(task, completed=documents.position)
                yield group
            display.update(learning, visible=True)
            display.start_task(learning)

        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            show_progress=False,
            # In this order they get their ids; that they are "special" is dropped below.
            special_tokens=[*SPECIAL_TOKENS, *alphabet.tokens],
            initial_alphabet=alphabet.characters,
            limit_alphabet=len(alphabet.characters),
        )
        backend.train_from_iterator(lines(), trainer)
        display.update(learning, total=1, completed=1)
        stats = documents.stats
        ids = backend.get_vocab(with_added_tokens=True)
        tokens = sorted(ids, key=ids.__getitem__)
        if base is not None:
            kept = set(base.tokens)
            added = [token for token in tokens if token not in kept]
            tokens = [*base.tokens, *added[: vocab_size - base.vocab_size]]
        tokenizer = Tokenizer.from_vocab(
            tokens,
            lowercase=lowercase,
            strip_accents=strip_accents,
            split_chinese=split_chinese,
        )
        tokenizer.save(folder)
        sample = held_out or _first_lines(documents)
        fertility, unknown, single, words = _measure(tokenizer, sample)
    return VocabReport(
        out=Path(out),
        size=tokenizer.vocab_size,
        requested_size=vocab_size,
        base_size=0 if base is None else base.vocab_size,
        lowercase=lowercase,
        alphabet_size=len(alphabet.characters),
        characters_seen=alphabet.seen,
        coverage=alphabet.coverage,
        full_size=alphabet.full_size,
        fertility=fertility,
        unknown_share=unknown,
        single_character_share=single,
        held_out_words=words,
        held_out=bool(held_out),
        corpus=stats,
        seconds=time.monotonic() - started,
    )


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
        vocab_size: int,
        limit: int | None,
        base: Sequence[str],
    ) -> _Alphabet:
        """Choose from counts of raw characters [code points], normalized here one by one.

        (BERT's normalization works on single characters, so that this equals counting the
        normalized text.) What the tokens of `base` hold takes no room.
        """
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
                covered >= _COVERAGE * total and used >= vocab_size // 20
            ):
                break
            chosen.append(character)
            used += cost[character]
            covered += counts[character]

        def least_size(coverage: float) -> int:
            """Tokens of a vocabulary whose alphabet has this share of the text."""
            need, rest = 0, coverage * total - sum(counts[c] for c in ranked if not cost[c])
            for character in new:
                if rest <= 0:
                    break
                need += cost[character]
                rest -= counts[character]
            return begin + math.ceil((taken - begin + need) / share)

        if limit is None and covered < _LEAST_COVERAGE * total:
            least = least_size(_LEAST_COVERAGE)
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
        full = limit is not None or covered >= _COVERAGE * total
        full_size = 0 if full else least_size(_COVERAGE)
        return _Alphabet(chosen, tokens, len(ranked), covered / total, full_size)


def _goes_on(backend: tokenizers.Tokenizer, character: str) -> bool:
    """Whether `character` (normalized) can stand inside a word."""
    text = backend.normalizer.normalize_str(f"a{character}")
    return len(backend.pre_tokenizer.pre_tokenize_str(text)) == 1


def _training_lines(
    corpus: Corpus, hold_out_every: int, held_out: list[str]
) -> Iterator[list[str]]:
    """The lines of each document; one of `hold_out_every` goes to `held_out` instead."""
    number = held_size = 0
    for document in corpus:
        group: list[str] = []
        for line in document.text.split("\n"):
            if not line or line.isspace():
                continue
            number += 1
            due = number % hold_out_every == 0
            if due and held_size < _MAX_HELD_OUT and len(line) <= _LINE_PART:
                held_out.append(line)
                held_size += len(line)
                continue
            line = _ENDLESS_WORD.sub(" ", line)
            for begin in range(0, len(line), _LINE_PART):
                group.append(line[begin : begin + _LINE_PART])
        if group:
            yield group


def _first_lines(corpus: Corpus) -> list[str]:
    """The beginning of the corpus, as much as would be held out."""
    lines: list[str] = []
    size = 0
    for document in corpus:
        for line in document.text[:_MAX_HELD_OUT].split("\n"):
            lines.append(line)
            size += len(line)
        if size >= _MAX_HELD_OUT:
            break
    return lines


def _measure(tokenizer: Tokenizer, lines: list[str]) -> tuple[float, float, float, int]:
    """(pieces per word, share of [UNK], share of single characters, words) of `lines`."""
    bare = [token.removeprefix("##") for token in tokenizer.tokens]
    # Specials in brackets count as words here; in a corpus they are hardly ever met.
    is_word = np.array([any(c.isalnum() for c in token) for token in bare])
    is_single = np.array([len(token) == 1 for token in bare])
    begins = np.array([not token.startswith("##") or len(token) == 2 for token in tokenizer.tokens])
    pieces = words = unknown = word_pieces = singles = 0
    for begin in range(0, len(lines), 1024):
        encoded = tokenizer.encode_plain(lines[begin : begin + 1024])
        ids = np.fromiter((i for row in encoded for i in row), np.int64)
        pieces += len(ids)
        unknown += int((ids == tokenizer.unk_token_id).sum())
        of_words = is_word[ids]
        word_pieces += int(of_words.sum())
        words += int((of_words & begins[ids]).sum())
        singles += int((of_words & is_single[ids]).sum())
    return (
        word_pieces / max(words, 1),
        unknown / max(pieces, 1),
        singles / max(word_pieces, 1),
        words,
    )
