"""Make the shards of a corpus in parts, each from its own files alone.

A part is an input file, or several consecutive small ones. Parts are the same for any number of
processes or machines and in any order, and they are joined in the order of the input files. A
finished part is in a folder named by a hash of everything that its content depends on, so that a
preparation that was killed finds it again.

Memory while making a part: some batches of about a million characters and their tokens, the largest
document, the tokenizer's cached words, and 8 bytes a document for the fingerprints. Otherwise it
does not grow with the part.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.core.files import atomic_dir, os_errors, read_json_object, write_json
from bertine.core.foreign_files import open_array
from bertine.core.names import __version__
from bertine.core.strict_json import Readable
from bertine.corpora.duplicates import SeenFingerprints, fingerprint, write_signatures
from bertine.corpora.store import UNIGRAM_COUNTS, mark_words
from bertine.corpora.store_writer import MAX_SENTENCE, StoreWriter
from bertine.options.data import CorpusReading
from bertine.tokenization.documents import Corpus
from bertine.tokenization.sentences import ChineseWords, iter_sentences
from bertine.tokenization.tokenizer import Tokenizer

#: Characters tokenized at a time. Large enough for the tokenizer to use every core.
BATCH_CHARACTERS = 1 << 20

#: A longer sentence is cut before tokenizing, because the tokenizer's memory is a hundred times the
#: length of a text; a real sentence is never that long.
MAX_SENTENCE_CHARACTERS = 1 << 16

#: Batches tokenized while the next one is read: two keep the cores busy.
_BATCHES_AHEAD = 2

#: Files of a part in addition to its shards and counts: its facts; and for each document not left
#: out within the part the fingerprint (uint64), whether it had a token and so is stored (uint8),
#: and the numbers of its sentences without a token and of those cut (uint32, two a document).
PART, FINGERPRINTS, STORED, LOST = "part.json", "fingerprints.bin", "stored.bin", "lost.bin"

#: Increased when parts of an earlier version of Bertine must not be used.
_PARTS_VERSION = 3


@dataclass(frozen=True)
class PartSettings(Readable):
    """The settings that the content of a part depends on, besides its files and the tokenizer.

    Attributes:
        language, document_per_file, text_column, quotes, strict, sheet, encoding, segmenter,
            drop_duplicates, shard_tokens: as for :func:`bertine.prepare`.
        signatures: whether signatures for finding near-duplicates are made, too.
    """

    language: str = "en"
    document_per_file: bool = False
    text_column: str | None = None
    quotes: bool | None = None
    strict: bool = False
    sheet: str | None = None
    encoding: str | None = None
    drop_duplicates: bool = False
    shard_tokens: int = 1 << 28
    signatures: bool = False
    segmenter: str | None = None


@dataclass(frozen=True)
class CorpusPart(Readable):
    """A part of a corpus: files that are processed together.

    Attributes:
        files: their paths, in the order of the corpus.
        size: their bytes on disk.
        folder: where the part is made.
        settings: its settings.
    """

    files: tuple[str, ...]
    size: int
    folder: str
    settings: PartSettings

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        return os.path.exists(os.path.join(self.folder, PART))

    def to_json(self) -> str:
        """Return one line that another process reads with :meth:`from_json`."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, line: str) -> CorpusPart:
        """Create the part from the line of :meth:`to_json`."""
        return cls.from_dict(json.loads(line))


@dataclass
class PartProgress:
    """The progress of making a part.

    Attributes:
        position: bytes of the files on disk that have been read.
        documents, tokens, characters: numbers tokenized.
    """

    position: int = 0
    documents: int = 0
    tokens: int = 0
    characters: int = 0


OnPartProgress = Callable[[PartProgress], None]


def plan_parts(
    files: Iterable[Path],
    settings: PartSettings,
    *,
    tokenizer_fingerprint: str,
    folder: Path,
    part_bytes: int,
) -> list[CorpusPart]:
    """Divide the files of a corpus into parts, in order.

    A file of at least `part_bytes` is a part; smaller ones are combined up to that size, so that a
    million small files do not make a million shards.

    A part's folder is named by a hash of the paths, sizes and modification times of its files, the
    settings, the tokenizer, and the versions of the software.
    """
    general = {
        "parts": _PARTS_VERSION,
        "versions": [__version__, version("tokenizers"), version("sentencex")],
        "tokenizer": tokenizer_fingerprint,
        **dataclasses.asdict(settings),
    }
    if settings.signatures:
        general["versions"] = [*general["versions"], version("rensa")]
    if settings.segmenter is None:
        del general["segmenter"]
    else:
        general["versions"] = [*general["versions"], version(settings.segmenter)]
    parts: list[CorpusPart] = []
    times_seen: Counter[str] = Counter()
    taken: list[str] = []
    facts: list[tuple[str, int, int]] = []
    size = 0

    def close() -> None:
        nonlocal taken, facts, size
        if taken:
            key = hashlib.sha256(json.dumps([general, facts]).encode()).hexdigest()[:20]
            times_seen[key] += 1
            # The same file given twice is two parts.
            again = f"-{times_seen[key]}" if times_seen[key] > 1 else ""
            where = str(folder / f"part-{key}{again}")
            parts.append(CorpusPart(tuple(taken), size, where, settings))
        taken, facts, size = [], [], 0

    for file in files:
        with os_errors(file, "looking at the corpus"):
            status = os.stat(file)
        if size + status.st_size > part_bytes:
            close()
        taken.append(str(file))
        facts.append((os.path.abspath(file), status.st_size, status.st_mtime_ns))
        size += status.st_size
    close()
    return parts


def read_part(part: CorpusPart) -> dict[str, Any]:
    """Read the facts that :func:`make_part` has recorded about `part`.

    Raises:
        BertineError: they are missing or damaged.
    """
    return read_json_object(Path(part.folder) / PART)


def make_part(part: CorpusPart, tokenizer: Tokenizer, report: OnPartProgress | None = None) -> None:
    """Read the files of `part`, and write its folder: shards, counts, fingerprints.

    Args:
        part: the part to make; an existing folder is replaced.
        tokenizer: makes the ids.
        report: called after every batch.

    Raises:
        BertineError: a file cannot be read, or the disk is full.
    """
    settings = part.settings
    reading = CorpusReading.of(settings).values()
    corpus = Corpus(part.files, **reading, allow_empty=True)
    splitter = _Splitter(
        corpus, settings.language, settings.drop_duplicates, tokenizer.keeps_spaces
    )
    with atomic_dir(part.folder) as folder:
        with (
            StoreWriter(
                folder,
                vocab_size=tokenizer.vocab_size * (1 if settings.segmenter is None else 2),
                shard_tokens=settings.shard_tokens,
            ) as writer,
            open(folder / FINGERPRINTS, "wb") as fingerprints,
            open(folder / STORED, "wb") as stored,
            open(folder / LOST, "wb") as lost,
        ):
            progress = PartProgress()
            tokens, empty, cut = _Sums(), _Sums(), _Sums()
            for sentences, (ids, lengths) in _tokenized(splitter, _encoder(tokenizer, settings)):
                ends = np.asarray(sentences.document_ends, np.int64)
                writer.append(ids, lengths, ends)
                stored.write((tokens.add(lengths, ends) > 0).astype(np.uint8).tobytes())
                cuts = (lengths > MAX_SENTENCE).astype(np.int64)
                cuts[sentences.cuts] += 1
                losses = [empty.add(lengths == 0, ends), cut.add(cuts, ends)]
                lost.write(np.stack(losses, axis=1).astype(np.uint32).tobytes())
                fingerprints.write(np.array(sentences.fingerprints, np.uint64).tobytes())
                progress.position = corpus.position
                progress.documents += len(ends)
                progress.tokens += len(ids)
                progress.characters += sentences.characters
                if report is not None:
                    report(progress)
            writer.cut_sentences += splitter.cut_sentences
            counted = writer.close()
        if settings.signatures:
            write_signatures(folder, [shard["file"] for shard in counted["shards"]])
        facts = {
            "documents": splitter.documents,
            "copies": splitter.copies,
            "corpus": dataclasses.asdict(corpus.stats),
            **counted,
        }
        write_json(folder / PART, facts)


def part_counts(part: CorpusPart) -> npt.NDArray[np.int64]:
    """Return the frequency of each id in `part`: int64 [V]."""
    file = Path(part.folder) / UNIGRAM_COUNTS
    return np.array(open_array(file, f"delete {part.folder}"))


@dataclass
class _Sentences:
    """A batch of sentences to be tokenized together.

    Attributes:
        texts: the sentences.
        document_ends: indices of the sentences before which a document ends.
        fingerprints: of the documents that end.
        cuts: which sentences are the first piece of a sentence that was cut.
        characters: their total length.
    """

    texts: list[str] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    document_ends: list[int] = field(default_factory=list)
    fingerprints: list[int] = field(default_factory=list)
    characters: int = 0


class _Sums:
    """Sums over the sentences of each document, which may span several batches."""

    def __init__(self) -> None:
        self._open = 0  # of the unfinished document

    def add(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the sums of the documents that end in a batch.

        Args:
            values: numbers [sentences].
            ends: [documents], the index of the sentence before which each of them ends.
        """
        before = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        reached = before[ends] + self._open
        self._open += int(before[-1]) - (int(reached[-1]) if len(ends) else 0)
        return np.diff(reached, prepend=0)


@dataclass
class _Splitter:
    """A splitter of documents into batches of sentences."""

    corpus: Corpus
    language: str
    drop_duplicates: bool
    #: Whether the tokenizer needs the space before a sentence.
    keeps_spaces: bool
    cut_sentences: int = 0
    documents: int = 0
    copies: int = 0

    def __iter__(self) -> Iterator[_Sentences]:
        batch = _Sentences()
        seen = SeenFingerprints()
        for document in self.corpus:
            self.documents += 1
            number = fingerprint(document.text)
            if not seen.add(number):
                self.copies += 1
                if self.drop_duplicates:
                    continue
            sentences = iter_sentences(document.text, self.language, spaces=self.keeps_spaces)
            for sentence in sentences:
                pieces = [sentence]
                if len(sentence) > MAX_SENTENCE_CHARACTERS:
                    self.cut_sentences += 1
                    batch.cuts.append(len(batch.texts))
                    pieces = cut_sentence(sentence, MAX_SENTENCE_CHARACTERS, self.keeps_spaces)
                for piece in pieces:
                    batch.texts.append(piece)
                    batch.characters += len(piece)
                    if batch.characters >= BATCH_CHARACTERS:
                        yield batch
                        batch = _Sentences()
            batch.document_ends.append(len(batch.texts))
            batch.fingerprints.append(number)
            del document  # before the next one is read
        yield batch


def cut_sentence(sentence: str, limit: int, keeps_spaces: bool = False) -> list[str]:
    """Cut `sentence` into pieces of at most `limit` characters, after white space if there is some
    in the second half of a piece; with `keeps_spaces` before it."""
    pieces = []
    start = 0
    while len(sentence) - start > limit:
        end = start + limit
        spaces = (sentence.rfind(space, start + limit // 2, end) for space in (" ", "\t", "\n"))
        space = max(spaces)
        end = space + (not keeps_spaces) if space >= 0 else end
        pieces.append(sentence[start:end])
        start = end
    pieces.append(sentence[start:])
    return pieces


#: Ids of some sentences in order (int32 [tokens]), and the length of each (int64).
_Ids = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]


def _encoder(tokenizer: Tokenizer, settings: PartSettings) -> Callable[[Sequence[str]], _Ids]:
    """Return the function that makes the ids of sentences; with a segmenter, the ids of pieces that
    continue a word are increased by the size of the vocabulary."""
    if settings.segmenter is None:
        return tokenizer.encode_flat
    words = ChineseWords(tokenizer)

    def encode(texts: Sequence[str]) -> _Ids:
        ids, lengths, goes_on = words.encode(texts)
        return mark_words(ids, goes_on, tokenizer.vocab_size), lengths

    return encode


def _tokenized(
    splitter: _Splitter, encode: Callable[[Sequence[str]], _Ids]
) -> Iterator[tuple[_Sentences, _Ids]]:
    """Yield each batch of sentences with its ids, in order, while the next ones are tokenized."""
    with ThreadPoolExecutor(_BATCHES_AHEAD, thread_name_prefix="tokenize") as pool:
        waiting: deque[tuple[_Sentences, Future[_Ids]]] = deque()
        for batch in splitter:
            waiting.append((batch, pool.submit(encode, batch.texts)))
            if len(waiting) > _BATCHES_AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
