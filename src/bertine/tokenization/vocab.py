"""Train a vocabulary on a corpus, and report its quality."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.core.console import Report, human_time, plural, progress
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, check_replaceable
from bertine.core.names import TokenizerKind, option
from bertine.options.data import CorpusReading, VocabOptions, Vocabulary
from bertine.options.verbs import takes_options
from bertine.tokenization import tokenizer as kinds
from bertine.tokenization.byte_bpe import STYLES as BYTE_STYLES
from bertine.tokenization.documents import Corpus, CorpusStats
from bertine.tokenization.learn_unigram import UnigramLearner
from bertine.tokenization.learners import (
    COVERAGE,
    ByteBpeLearner,
    VocabLearner,
    WordBpeLearner,
    WordPieceLearner,
    first_lines,
    training_lines,
)
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram_files import STYLES as UNIGRAM_STYLES
from bertine.tokenization.wordpiece import SPECIAL_TOKENS

#: The learners of the other kinds than WordPiece.
_LEARNERS: dict[TokenizerKind, Callable[[VocabOptions], VocabLearner]] = {
    "byte-bpe": ByteBpeLearner,
    "unigram": UnigramLearner,
    "word-bpe": WordBpeLearner,
}


@dataclass(frozen=True, repr=False)
class VocabReport(Report):
    """The result of training a vocabulary. A *word* here has a letter or digit; marks do not count.

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
        held_out: False if the corpus was too small to hold out any text, and they were measured on
            the text trained on.
        corpus: counts of documents, bytes, repairs and skipped files.
        seconds: time taken.
        base_size: tokens of the vocabulary that was extended; 0 if none was.
        full_size: tokens of a vocabulary whose alphabet covers 99.99% of the text; 0 if this one
            does, or the alphabet was limited.
        kind: the kind of the tokenizer. The alphabet of "byte-bpe" is always the 256 bytes.
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
    kind: TokenizerKind = "wordpiece"

    def lines(self) -> list[str]:
        """Return the report for people."""
        where = "held-out text" if self.held_out else "the text trained on (too short to hold out)"
        case = "uncased" if self.lowercase else "cased"
        of = (
            f"{self.alphabet_size:,} characters ({self.coverage:.3%} of the text; "
            f"{self.characters_seen:,} different ones seen)"
        )
        if self.kind == "byte-bpe":
            of = f"{self.alphabet_size} bytes (byte-level BPE)"
        elif self.kind == "unigram":
            of += " (Unigram)"
        elif self.kind == "word-bpe":
            of = f"{self.alphabet_size:,} characters (BPE over words)"
        lines = [
            *self.corpus.lines(),
            f"vocabulary: {self.size:,} tokens, {case}, of {of}",
            f"on {plural(self.held_out_words, 'word')} of {where}: {self.fertility:.3f} "
            f"pieces per word, {self.unknown_share:.4%} unknown, "
            f"{self.single_character_share:.2%} single letters",
        ]
        if self.full_size:
            lines.append(
                f"{1 - self.coverage:.3%} of the characters are unknown to it; a vocabulary of "
                f"{self.full_size:,} has room for {COVERAGE:.2%} of them"
            )
        if self.base_size:
            new = self.size - self.base_size
            lines.append(f"the first {self.base_size:,} are those it extends; {new:,} are new")
        if self.size < self.requested_size:
            lines.append(
                f"only {self.size:,} of the {self.requested_size:,} tokens asked for: "
                "the corpus has no more pieces that are frequent enough"
            )
        return [*lines, f"{self.out}: written after {human_time(self.seconds)}"]


def is_tokenizer_folder(folder: Path) -> bool:
    """Return whether `folder` holds a tokenizer's files and nothing else."""
    return {path.name for path in folder.iterdir()} <= kinds.FILES and kinds.holds_tokenizer(folder)


def _check_style(options: Vocabulary) -> None:
    """Refuse a style of special tokens that this kind of vocabulary does not have.

    Raises:
        BertineError: it does not have them.
    """
    style, kind = options.special_tokens, options.kind
    if style is None:
        return
    styles = {"byte-bpe": BYTE_STYLES, "unigram": UNIGRAM_STYLES}.get(kind)
    if styles is None:
        raise BertineError(
            f"{option('special_tokens')} is for byte-level BPE and Unigram; those of {kind} are "
            "not chosen, so leave it out"
        )
    if style not in styles:
        raise BertineError(
            f"{option('special_tokens', style)} is not for {kinds.KINDS[kind].title}; choose "
            f"{' or '.join(styles)}"
        )


@takes_options()
def train_vocab(
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    hold_out_every: int = 50,
    options: VocabOptions,
) -> VocabReport:
    """Train a vocabulary and write the tokenizer's folder `out`.

    The same corpus and options give the same vocabulary. The corpus is read twice, for byte-level
    BPE and Unigram once.

    Args:
        corpus: files and folders, as for :class:`bertine.tokenization.documents.Corpus`.
        out: folder for vocab.txt, tokenizer.json and tokenizer_config.json. An existing tokenizer
            folder is replaced; a folder with anything else in it is refused.
        hold_out_every: one in this number of lines is not trained on, but used for measuring.
        options: the values of the other arguments.

    Returns:
        The report; its `lines()` are for people.

    Raises:
        BertineError: the corpus has an error, `vocab_size` is too small for its alphabet, `kind` is
            unknown or does not support an option, or `out` is a folder of something else.
    """
    vocab_size, kind = options.vocab_size, options.kind
    if vocab_size < len(SPECIAL_TOKENS) + 1:
        raise BertineError(f"vocab_size {vocab_size} is too small; a few thousand are usual")
    if hold_out_every < 2:
        raise BertineError(f"hold_out_every {hold_out_every} leaves nothing to train on; give 50")
    if kind != "wordpiece" and options.extend is not None:
        raise BertineError(
            f"{option('extend')} is for WordPiece vocabularies; train a new one of "
            f"{kinds.KINDS[kind].title}"
        )
    if kind == "byte-bpe":
        _refuse_characters(options)
    _check_style(options)
    base = None if options.extend is None else Tokenizer.load(options.extend)
    if base is not None:
        if base.kind != "wordpiece":
            raise BertineError(
                f"{options.extend}: is {base.title}; only WordPiece vocabularies can be extended"
            )
        if vocab_size <= base.vocab_size:
            raise BertineError(
                f"{options.extend}: has {base.vocab_size} tokens already; give a larger "
                f"vocab_size than {vocab_size}"
            )
    check_replaceable(out, "tokenizer's folder", is_tokenizer_folder)
    started = time.monotonic()
    documents = Corpus(corpus, **CorpusReading.of(options).values())
    documents.check_options()
    learner: VocabLearner
    learner = WordPieceLearner(options, base) if kind == "wordpiece" else _LEARNERS[kind](options)
    # Check before the long work, not after it, that `out` can be written.
    with atomic_dir(out) as folder, progress() as display:
        if learner.counts:
            task = display.add_task("counting characters", total=documents.size_on_disk)
            for document in documents:
                learner.count(document.text)
                display.update(task, completed=documents.position)
        learner.counted()

        task = display.add_task("counting words", total=documents.size_on_disk)
        learning = display.add_task("learning pieces", total=None, start=False, visible=False)
        held_out: list[str] = []

        def lines() -> Iterator[list[str]]:
            for group in training_lines(documents, hold_out_every, held_out):
                display.update(task, completed=documents.position)
                yield group
            display.update(learning, visible=True)
            display.start_task(learning)

        tokenizer = learner.learn(lines())
        display.update(learning, total=1, completed=1)
        stats = documents.stats
        tokenizer.save(folder)
        quality = learner.measure(tokenizer, held_out or first_lines(documents))
    return VocabReport(
        out=Path(out),
        size=tokenizer.vocab_size,
        requested_size=vocab_size,
        base_size=0 if base is None else base.vocab_size,
        lowercase=tokenizer.lowercase,
        alphabet_size=learner.alphabet_size,
        characters_seen=learner.characters_seen,
        coverage=learner.coverage,
        full_size=learner.full_size,
        fertility=quality.fertility,
        unknown_share=quality.unknown_share,
        single_character_share=quality.single_share,
        held_out_words=quality.words,
        held_out=bool(held_out),
        corpus=stats,
        seconds=time.monotonic() - started,
        kind=kind,
    )


def _refuse_characters(options: VocabOptions) -> None:
    """Refuse options of characters that do not apply to byte-level BPE."""
    for name in ("lowercase", "strip_accents"):
        if getattr(options, name):
            raise BertineError(
                f"{option(name)} does not go with byte-level BPE, which keeps texts as they are; "
                "leave it out"
            )
    if options.limit_alphabet is not None:
        raise BertineError(
            f"{option('limit_alphabet')} does not go with byte-level BPE, whose alphabet is the "
            "256 bytes; leave it out"
        )
