"""Documents to token store: read, split into sentences, tokenize, write; streamed throughout."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.console import human_count, human_time, progress, warn
from bertine.data.duplicates import Seen, fingerprint
from bertine.data.store import TOKENIZER, TokenStore, is_store
from bertine.data.writer import MAX_SENTENCE, StoreWriter
from bertine.errors import BertineError
from bertine.files import atomic_dir, check_replaceable
from bertine.text.corpus import Corpus
from bertine.text.sentences import split_sentences
from bertine.text.tokenizer import Tokenizer

#: Characters tokenized at a time. Large enough for the tokenizer to use every core.
BATCH_CHARACTERS = 1 << 20

#: A longer sentence is cut before it is tokenized, because the tokenizer's memory is a hundred
#: times the length of a text; a real sentence never comes near.
MAX_SENTENCE_CHARACTERS = 1 << 16

#: From this share of documents on that are copies of others there is a warning.
_MANY_COPIES = 0.3

#: Batches being tokenized while the next is read: two keep the cores busy between them.
_BATCHES_AHEAD = 2


@dataclass(frozen=True)
class PrepareReport:
    """What :func:`prepare` did.

    Attributes:
        path: the store's folder.
        manifest: its manifest.
        corpus_lines: what reading the corpus met, for people.
        unknown_share: share of the tokens that are [UNK].
        unigram_entropy: of the store, in nats.
        store_bytes: size of the shards.
        seconds: time taken.
        warnings: what stands in the way of pre-training on the store.
    """

    path: Path
    manifest: dict[str, Any]
    corpus_lines: list[str]
    unknown_share: float
    unigram_entropy: float
    store_bytes: int
    seconds: float
    warnings: list[str]

    @property
    def megabytes_per_second(self) -> float:
        """UTF-8 text processed per second, in MB."""
        return self.manifest["corpus"]["text_bytes"] / 1e6 / max(self.seconds, 1e-9)

    def lines(self) -> list[str]:
        """The report for people; everything dropped or cut is in it."""
        facts = self.manifest
        tokens = facts["num_tokens"]
        lines = [
            *self.corpus_lines,
            f"{facts['num_documents']:,} documents, {facts['num_sentences']:,} sentences, "
            f"{tokens:,} tokens stored ({tokens / facts['num_sentences']:.1f} a sentence)",
        ]
        dropped, copies = facts["dropped"], facts["duplicates"]
        if copies["copies"]:
            lines.append(
                f"documents with the same words as an earlier one: {copies['copies']:,} "
                f"({copies['copies'] / copies['documents']:.1%})"
                + (", dropped" if copies["dropped"] else "; --drop-duplicates leaves them out")
            )
        for what, count in (
            ("documents without a token, dropped", dropped["documents_without_tokens"]),
            ("sentences without a token, dropped", dropped["sentences_without_tokens"]),
            (
                f"sentences longer than {MAX_SENTENCE_CHARACTERS:,} characters or "
                f"{MAX_SENTENCE:,} tokens, cut into pieces",
                facts["cut_sentences"],
            ),
        ):
            if count:
                lines.append(f"{what}: {count:,}")
        return [
            *lines,
            f"unknown tokens {self.unknown_share:.3%}, "
            f"unigram entropy {self.unigram_entropy:.3f} nats a token",
            f"{self.path}: {self.store_bytes / 1e6:,.1f} MB, "
            f"{self.store_bytes / tokens:.2f} bytes a token, "
            f"{len(facts['shards'])} shard{'' if len(facts['shards']) == 1 else 's'}; "
            f"{human_time(self.seconds)}, {self.megabytes_per_second:.1f} MB/s",
        ]


@dataclass
class _Sentences:
    """Sentences to be tokenized together.

    Attributes:
        texts: the sentences.
        document_ends: before which of them a document ends.
        characters: their length.
    """

    texts: list[str]
    document_ends: list[int]
    characters: int = 0


class _Splitter:
    """Documents into batches of sentences."""

    def __init__(self, corpus: Corpus, language: str, drop_duplicates: bool) -> None:
        self.corpus = corpus
        self.language = language
        self.drop_duplicates = drop_duplicates
        self.cut_sentences = 0
        self.documents = self.duplicates = 0

    def __iter__(self) -> Iterator[_Sentences]:
        batch = _Sentences([], [])
        seen = Seen()
        for document in self.corpus:
            self.documents += 1
            if not seen.add(fingerprint(document.text)):
                self.duplicates += 1
                if self.drop_duplicates:
                    continue
            for sentence in split_sentences(document.text, self.language):
                pieces = [sentence]
                if len(sentence) > MAX_SENTENCE_CHARACTERS:
                    self.cut_sentences += 1
                    pieces = cut_sentence(sentence, MAX_SENTENCE_CHARACTERS)
                for piece in pieces:
                    batch.texts.append(piece)
                    batch.characters += len(piece)
                    if batch.characters >= BATCH_CHARACTERS:
                        yield batch
                        batch = _Sentences([], [])
            batch.document_ends.append(len(batch.texts))
        yield batch


def cut_sentence(sentence: str, limit: int) -> list[str]:
    """Cut `sentence` into pieces of at most `limit` characters, after white space where there is
    some in the second half of a piece."""
    pieces = []
    start = 0
    while len(sentence) - start > limit:
        end = start + limit
        spaces = (sentence.rfind(space, start + limit // 2, end) for space in (" ", "\t", "\n"))
        space = max(spaces)
        end = space + 1 if space >= 0 else end
        pieces.append(sentence[start:end])
        start = end
    pieces.append(sentence[start:])
    return pieces


def prepare(
    corpus: Sequence[Path | str] | Path | str,
    *,
    tokenizer: Path | str,
    out: Path | str,
    language: str = "en",
    document_per_file: bool = False,
    text_field: str = "text",
    strict: bool = False,
    drop_duplicates: bool = False,
    shard_tokens: int = 1 << 28,
) -> PrepareReport:
    """Turn a corpus into a token store (see :mod:`bertine.data.store`).

    Memory does not grow with the corpus: it holds some batches of about a million characters,
    and the largest document. The same corpus and tokenizer give the same store, bit for bit.

    Args:
        corpus: files and folders (see :class:`bertine.text.corpus.Corpus`).
        tokenizer: a tokenizer folder or ``vocab.txt``; it is copied into the store.
        out: the store's folder; a store that is there is replaced when the new one is complete.
        language: of the text, for sentence splitting (ISO 639-1, such as ``en`` or ``zh``).
        document_per_file: a plain-text file is one document.
        text_field: the key or column that holds the text in JSON lines and Parquet.
        strict: refuse invalid UTF-8 and NULs instead of mending and counting them.
        drop_duplicates: leave out documents with the same words as an earlier one. They are
            counted either way, at 8 bytes of memory a document.
        shard_tokens: tokens a shard file.

    Raises:
        BertineError: the corpus cannot be read or has no text, the tokenizer cannot be loaded,
            `out` is a folder of something else, or the disk is full.
    """
    began = time.perf_counter()
    out = Path(out)
    if shard_tokens < 1:
        raise BertineError(f"shard_tokens is {shard_tokens}, but must be at least 1")
    check_replaceable(out, "token store", is_store)
    documents = Corpus(
        corpus, document_per_file=document_per_file, text_field=text_field, strict=strict
    )
    encoder = Tokenizer.load(tokenizer)
    splitter = _Splitter(documents, language, drop_duplicates)
    with (
        atomic_dir(out) as folder,
        StoreWriter(folder, vocab_size=encoder.vocab_size, shard_tokens=shard_tokens) as writer,
    ):
        _write_all(splitter, encoder, writer, began)
        writer.cut_sentences += splitter.cut_sentences
        (folder / TOKENIZER).mkdir()
        encoder.save(folder / TOKENIZER)
        writer.finish(
            {
                "tokenizer_fingerprint": encoder.fingerprint,
                "language": language,
                "duplicates": {
                    "documents": splitter.documents,
                    "copies": splitter.duplicates,
                    "dropped": drop_duplicates,
                },
                "corpus": {
                    "names": [path.name for path in documents.paths],
                    **dataclasses.asdict(documents.stats),
                },
            }
        )
    store = TokenStore.open(out, encoder)
    report = PrepareReport(
        path=out,
        manifest=store.manifest,
        corpus_lines=documents.stats.lines(),
        unknown_share=float(store.unigram_counts[encoder.unk_token_id] / store.num_tokens),
        unigram_entropy=store.unigram_entropy,
        store_bytes=sum(shard["bytes"] for shard in store.manifest["shards"]),
        seconds=time.perf_counter() - began,
        warnings=_warnings(store),
    )
    for warning in report.warnings:
        warn(warning)
    return report


def _warnings(store: TokenStore) -> list[str]:
    found = store.manifest["duplicates"]
    copies, documents = found["copies"], found["documents"]
    mostly = []
    if not found["dropped"] and copies > _MANY_COPIES * documents:
        mostly = [
            f"{store.path}: {copies:,} of {documents:,} documents are copies of another; a model "
            "learns them by heart; use --drop-duplicates"
        ]
    return mostly + _pair_warnings(store)


def _pair_warnings(store: TokenStore) -> list[str]:
    if store.num_documents < 2:
        return [
            f"{store.path}: one document only, but next-sentence prediction needs two; separate "
            "documents with a blank line or use --document-per-file"
        ]
    single = store.manifest["single_sentence_documents"]
    if single > 0.1 * store.num_documents:
        return [
            f"{store.path}: {single:,} of {store.num_documents:,} documents have one sentence "
            "only; next-sentence prediction has no true next sentence for them"
        ]
    return []


def _write_all(splitter: _Splitter, encoder: Tokenizer, writer: StoreWriter, began: float) -> None:
    """Tokenize and write all batches, in order, with a progress display."""
    corpus = splitter.corpus
    unit, unit_name = (1e6, "MB") if corpus.size_on_disk >= 1e7 else (1e3, "kB")
    done = text_bytes = num_tokens = 0

    def write(sentences: _Sentences, future: Future[_Ids]) -> None:
        nonlocal done, text_bytes, num_tokens
        ids = future.result()
        writer.append(ids.input_ids, ids.lengths, np.asarray(sentences.document_ends, np.int64))
        done += len(sentences.document_ends)
        num_tokens += len(ids.input_ids)
        text_bytes += sentences.characters
        bar.update(
            task,
            completed=corpus.position / unit,
            documents=f"{human_count(done)} docs",
            tokens=f"{human_count(num_tokens)} tokens",
            rate=f"{text_bytes / 1e6 / (time.perf_counter() - began):.1f} Mchar/s",
        )

    with (
        progress("{task.fields[documents]}", "{task.fields[tokens]}", "{task.fields[rate]}") as bar,
        ThreadPoolExecutor(_BATCHES_AHEAD, thread_name_prefix="tokenize") as pool,
    ):
        task = bar.add_task(
            f"tokenizing ({unit_name})",
            total=max(corpus.size_on_disk / unit, 1e-3),
            documents="",
            tokens="",
            rate="",
        )
        waiting: deque[tuple[_Sentences, Future[_Ids]]] = deque()
        for batch in splitter:
            waiting.append((batch, pool.submit(_encode, encoder, batch.texts)))
            if len(waiting) > _BATCHES_AHEAD:
                write(*waiting.popleft())
        while waiting:
            write(*waiting.popleft())


@dataclass(frozen=True)
class _Ids:
    """Ids of some sentences, one after the other, and the length of each."""

    input_ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


def _encode(encoder: Tokenizer, texts: list[str]) -> _Ids:
    encoded = encoder.encode_plain(texts)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ids = np.fromiter(chain.from_iterable(encoded), np.int64, int(lengths.sum()))
    return _Ids(ids, lengths)
