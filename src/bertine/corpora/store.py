"""Read the token store: documents as memory-mapped token ids, with random access.

A store is a folder:

- ``manifest.json``: counts, token type, the tokenizer's fingerprint, sizes and checksums;
- ``tokens-00000.arrow`` ...: shards in the Arrow IPC file format. One row is one document with
  three lists: ``input_ids`` (the smallest unsigned integer that holds the vocabulary, no special
  tokens), ``sentence_lengths`` (uint16, in tokens) and ``sentence_marks`` (uint32: the starts
  of sentences 32, 64, 96, ... in the document, so that a sentence of a very long document is
  found without adding up all before it);
  If the store was prepared with a segmenter, the id of a piece that continues the word
  before it is stored higher by the size of the vocabulary (:func:`mark_words`), and the manifest
  names the segmenter;
- ``unigram_counts.npy``: int64 [V], how often each id occurs;
- ``tokenizer/``: the tokenizer that made the ids.

Only the manifest is read into memory; ids are NumPy views into the mapped files, and the operating
system decides which of them stay in memory. :mod:`bertine.corpora.store_writer` writes the store.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertine.core.errors import BertineError
from bertine.core.files import read_json, sha256_file
from bertine.core.foreign_files import open_array
from bertine.core.strict_json import COUNT, FLAG, TEXT, Shape, check_shape

if TYPE_CHECKING:
    import pyarrow as pa

    from bertine.tokenization.tokenizer import Tokenizer

FORMAT = "bertine-token-store"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
UNIGRAM_COUNTS = "unigram_counts.npy"
TOKENIZER = "tokenizer"

_TOKEN_TYPES = ("uint8", "uint16", "uint32")

#: A mark is stored for every sentence whose number in its document is a multiple of this.
SENTENCES_PER_MARK = 32


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest unsigned integer type that holds the ids of `vocab_size` tokens."""
    return np.min_scalar_type(max(vocab_size - 1, 0))


def mark_words(
    ids: npt.NDArray[np.int32], goes_on: npt.NDArray[np.bool_], vocab_size: int
) -> npt.NDArray[np.int32]:
    """Mark in the stored ids which pieces continue a word, if words were found by a segmenter.

    Args:
        ids: int32 [N].
        goes_on: bool [N], which of the pieces continue the word before.
        vocab_size: of the tokenizer.
    """
    marked: npt.NDArray[np.int32] = ids + goes_on * np.int32(vocab_size)
    return marked


@dataclass(frozen=True)
class StoredDocument:
    """One document: views into the mapped store, not copies.

    Attributes:
        input_ids: uint8, uint16 or uint32 [tokens], no special tokens.
        sentence_lengths: uint16 [sentences], in tokens; they add up to the tokens.
    """

    input_ids: npt.NDArray[Any]
    sentence_lengths: npt.NDArray[np.uint16]


def is_store(folder: Path) -> bool:
    """Return whether `folder` holds a token store, complete or damaged."""
    try:
        manifest = read_json(folder / MANIFEST)
    except BertineError:
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


class Chunk:
    """One record batch: a few thousand documents, as flat views.

    Row ``r`` has the tokens ``input_ids[token_offsets[r]:token_offsets[r + 1]]`` and, likewise,
    the sentences between its two ``sentence_offsets``. The views that are searched one element
    at a time are memoryviews, which return Python integers several times as fast as NumPy does.
    """

    def __init__(self, batch: pa.RecordBatch, first_document: int) -> None:
        self.first_document = first_document
        self.num_documents: int = batch.num_rows
        columns = [batch.column(name) for name in ("input_ids", "sentence_lengths")]
        marks = batch.column("sentence_marks")
        self.input_ids: npt.NDArray[Any] = columns[0].values.to_numpy()
        self.sentence_lengths: memoryview = memoryview(columns[1].values.to_numpy())
        self.marks: memoryview = memoryview(marks.values.to_numpy())
        self.token_offsets: memoryview = memoryview(columns[0].offsets.to_numpy())
        self.sentence_offsets: memoryview = memoryview(columns[1].offsets.to_numpy())
        self.mark_offsets: memoryview = memoryview(marks.offsets.to_numpy())

    def row_at(self, position: int, padding: int = 0) -> int:
        """Return the row that holds `position` if every row is lengthened by `padding` tokens."""
        offsets = self.token_offsets
        rows = range(1, self.num_documents)
        return bisect_right(rows, position, key=lambda row: offsets[row] + row * padding)

    def sentence_start(self, row: int, sentence: int) -> int:
        """Return the start, in tokens, of sentence number `sentence` in the document of `row`."""
        mark = sentence // SENTENCES_PER_MARK
        start = self.marks[self.mark_offsets[row] + mark - 1] if mark else 0
        first = self.sentence_offsets[row]
        passed = self.sentence_lengths[first + mark * SENTENCES_PER_MARK : first + sentence]
        return start + sum(passed)

    def sentence_at(self, row: int, offset: int) -> tuple[int, int]:
        """Return the sentence of `row` that holds its token `offset`: (number, start)."""
        low, high = self.mark_offsets[row], self.mark_offsets[row + 1]
        mark = bisect_right(self.marks, offset, low, high)
        start = self.marks[mark - 1] if mark > low else 0
        first = self.sentence_offsets[row]
        sentence = first + (mark - low) * SENTENCES_PER_MARK
        last = self.sentence_offsets[row + 1] - 1
        while sentence < last and start + self.sentence_lengths[sentence] <= offset:
            start += self.sentence_lengths[sentence]
            sentence += 1
        return sentence - first, start


class TokenStore:
    """A store opened for reading. Cheap to open, safe to pickle (it opens itself again).

    Attributes:
        path: the folder.
        manifest: the contents of ``manifest.json``.
        segmenter: the segmenter that found the words; None: the vocabulary decides.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.num_documents: int = manifest["num_documents"]
        self.num_sentences: int = manifest["num_sentences"]
        self.num_tokens: int = manifest["num_tokens"]
        self.vocab_size: int = manifest["vocab_size"]
        self.segmenter: str | None = manifest.get("segmenter")
        batches = [batch for shard in manifest["shards"] for batch in shard["record_batches"]]
        #: For each record batch, the number of documents and of tokens before it.
        self.first_documents: list[int] = _starts(documents for documents, _ in batches)
        self.first_tokens: list[int] = _starts(tokens for _, tokens in batches)
        self._shards: list[dict[str, Any]] = manifest["shards"]
        #: For each shard, the number of record batches before it.
        self._first_chunks = _starts(len(shard["record_batches"]) for shard in self._shards)
        self._chunks: list[Chunk | None] = [None] * len(batches)

    @classmethod
    def open(cls, path: Path | str, tokenizer: Tokenizer | None = None) -> TokenStore:
        """Open the store in folder `path`, with all checks that do not require reading it
        completely.

        Raises:
            BertineError: there is no store, it has another format version, a shard is missing or
                differs in size from the manifest, or `tokenizer` is not the one that the store was
                made with.
        """
        path = Path(path)
        if not (path / MANIFEST).is_file():
            raise BertineError(f"{path}: no token store there; make one with `bertine prepare`")
        manifest = read_json(path / MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise BertineError(f"{path / MANIFEST}: not the manifest of a Bertine token store")
        if manifest.get("format_version") != FORMAT_VERSION:
            raise BertineError(
                f"{path}: token store of format version {manifest.get('format_version')}, but "
                f"this Bertine reads version {FORMAT_VERSION}; make it again with `bertine prepare`"
            )
        _check_manifest(path / MANIFEST, manifest)
        for shard in manifest["shards"]:
            _check_size(path / shard["file"], shard["bytes"])
        store = cls(path, manifest)
        if tokenizer is not None:
            store.check_tokenizer(tokenizer)
        return store

    def __reduce__(self) -> tuple[Any, ...]:
        return (TokenStore.open, (self.path,))

    @property
    def tokenizer_path(self) -> Path:
        """The folder of the tokenizer that made the store."""
        return self.path / TOKENIZER

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer other than the one that made the store.

        Raises:
            BertineError: its fingerprint differs.
        """
        made_with = self.manifest["tokenizer_fingerprint"]
        if tokenizer.fingerprint != made_with:
            raise BertineError(
                f"{self.path}: made with tokenizer {made_with[:12]} "
                f"({self.vocab_size} tokens), but this one is {tokenizer.fingerprint[:12]} "
                f"({tokenizer.vocab_size} tokens); use {self.tokenizer_path} or prepare again"
            )

    @cached_property
    def unigram_counts(self) -> npt.NDArray[np.int64]:
        """The frequency of each id in the store: int64 [V]."""
        file = self.path / UNIGRAM_COUNTS
        counts = np.array(open_array(file, "make the store again"))
        if counts.shape != (self.vocab_size,):
            raise BertineError(
                f"{file}: has shape {counts.shape}, not ({self.vocab_size},); make the store again"
            )
        return counts

    @cached_property
    def unigram_entropy(self) -> float:
        """Entropy in nats of the unigram distribution: the loss of a model that only knows the
        frequency of each token."""
        counts = self.unigram_counts[self.unigram_counts > 0]
        p = counts / counts.sum()
        return float(np.abs((p * np.log(p)).sum()))  # 0 instead of -0 for a single token

    @property
    def duplicate_share(self) -> float | None:
        """Share of the documents that are copies of others, and of near-duplicates if ``prepare``
        counted them; None if they were dropped."""
        copies, near = (self.manifest.get(key) for key in ("duplicates", "near_duplicates"))
        kept = [facts for facts in (copies, near) if facts is not None and not facts["dropped"]]
        if copies is None or not kept:
            return None
        copied = sum(facts["copies" if facts is copies else "documents"] for facts in kept)
        return float(copied / max(1, copies["documents"]))

    def chunk(self, index: int) -> Chunk:
        """Record batch number `index`; its shard is mapped on first use."""
        chunk = self._chunks[index]
        if chunk is None:
            shard = bisect_right(self._first_chunks, index) - 1
            first, mapped = self._first_chunks[shard], self._mapped(shard)
            self._chunks[first : first + len(mapped)] = mapped
            chunk = mapped[index - first]
        return chunk

    def _mapped(self, shard: int) -> list[Chunk]:
        """Return the record batches of a shard. Its file is closed again, because a store may have
        more shards than a process may have open files; mapped views stay valid as long as they are
        used."""
        # Here, because most of what knows a store (objectives, and so every model) opens none.
        import pyarrow as pa

        facts, first = self._shards[shard], self._first_chunks[shard]
        file = self.path / facts["file"]
        try:
            with pa.memory_map(str(file)) as source:
                reader = pa.ipc.open_file(source)
                chunks = [
                    Chunk(reader.get_batch(number), self.first_documents[first + number])
                    for number in range(len(facts["record_batches"]))
                ]
            for chunk, (documents, tokens) in zip(chunks, facts["record_batches"], strict=True):
                _check_chunk(chunk, documents, tokens)
            return chunks
        except (
            *(OSError, KeyError, IndexError, ValueError, TypeError, AttributeError),
            pa.ArrowException,
        ) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise BertineError(
                f"{file}: damaged ({reason}); make the store again with `bertine prepare`"
            ) from error

    def chunks(self) -> Iterator[Chunk]:
        """Yield all record batches in order; a shard mapped only for this is released again."""
        for shard, first in enumerate(self._first_chunks):
            if self._chunks[first] is None:
                yield from self._mapped(shard)
            else:
                for index in range(first, first + len(self._shards[shard]["record_batches"])):
                    yield self.chunk(index)

    def row(self, document: int) -> tuple[Chunk, int]:
        """Return the record batch of a document, and its row in it."""
        if not 0 <= document < self.num_documents:
            raise IndexError(f"document {document} of {self.num_documents}")
        index = bisect_right(self.first_documents, document) - 1
        return self.chunk(index), document - self.first_documents[index]

    def unmark(
        self, ids: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
        """Return stored ids as vocabulary ids, and which of the pieces continue the word before;
        None if the vocabulary decides, and the ids are then unchanged."""
        if self.segmenter is None:
            return ids, None
        goes_on = ids >= self.vocab_size
        return ids - goes_on * ids.dtype.type(self.vocab_size), goes_on

    def document(self, index: int) -> StoredDocument:
        """Return document number `index`, as views; marked ids are copied."""
        chunk, row = self.row(index)
        first, last = chunk.sentence_offsets[row], chunk.sentence_offsets[row + 1]
        return StoredDocument(
            self.unmark(chunk.input_ids[chunk.token_offsets[row] : chunk.token_offsets[row + 1]])[
                0
            ],
            np.asarray(chunk.sentence_lengths[first:last]),
        )

    def locate(self, token_index: int) -> tuple[int, int]:
        """Return the place of token number `token_index` of the store: (document, offset in it).

        Two binary searches: over the record batches, then over the documents of one.
        """
        if not 0 <= token_index < self.num_tokens:
            raise IndexError(f"token {token_index} of {self.num_tokens}")
        index = bisect_right(self.first_tokens, token_index) - 1
        chunk = self.chunk(index)
        position = token_index - self.first_tokens[index]
        row = chunk.row_at(position)
        return chunk.first_document + row, position - chunk.token_offsets[row]

    def verify(self) -> None:
        """Read the whole store and compare it with its manifest.

        Raises:
            BertineError: a checksum or count differs, sentences do not add up to their document,
                or a document holds an id outside the vocabulary.
        """
        for shard in self.manifest["shards"]:
            _check_sum(self.path / shard["file"], shard["sha256"])
        _check_sum(self.path / UNIGRAM_COUNTS, self.manifest["unigram_counts_sha256"])
        counts = np.zeros(0, np.int64)  # up to the highest id, regardless of the manifest's size
        documents = sentences = 0
        for chunk in self.chunks():
            ids = chunk.input_ids
            if self.segmenter is not None:
                ids, _ = self.unmark(ids)
            if ids.size and ids.max() >= self.vocab_size:
                bad = int(np.argmax(ids >= self.vocab_size))
                document = chunk.first_document + chunk.row_at(bad)
                raise BertineError(
                    f"{self.path}: document {document} holds the id {ids[bad]}, but the "
                    f"vocabulary has {self.vocab_size} tokens; prepare it again"
                )
            here = np.bincount(ids, minlength=len(counts))
            here[: len(counts)] += counts
            counts = here
            ends = np.concatenate([[0], np.cumsum(np.asarray(chunk.sentence_lengths), dtype=int)])
            differs = ends[np.asarray(chunk.sentence_offsets)] != np.asarray(chunk.token_offsets)
            if differs.any():
                document = chunk.first_document + int(np.argmax(differs)) - 1
                raise BertineError(
                    f"{self.path}: the sentences of document {document} do not add up to its "
                    "tokens; prepare it again"
                )
            documents += chunk.num_documents
            sentences += len(chunk.sentence_lengths)
        totals = {
            "num_documents": documents,
            "num_sentences": sentences,
            "num_tokens": int(counts.sum()),
        }
        for name, value in totals.items():
            if value != self.manifest[name]:
                raise BertineError(
                    f"{self.path}: {name} is {value}, but the manifest says "
                    f"{self.manifest[name]}; prepare it again"
                )
        missing = len(self.unigram_counts) - len(counts)
        if not np.array_equal(np.pad(counts, (0, missing)), self.unigram_counts):
            raise BertineError(f"{self.path}: {UNIGRAM_COUNTS} does not fit; prepare it again")


def _starts(sizes: Iterator[int]) -> list[int]:
    """Return the start of each of consecutive pieces of these sizes."""
    return list(itertools.accumulate(sizes, initial=0))[:-1]


#: The required contents of the manifest.
_SHAPE: Shape = {
    "bertine_version": TEXT,
    "tokenizer_fingerprint": TEXT,
    "language?": TEXT,
    "segmenter?": TEXT,
    "num_documents": COUNT,
    "num_sentences": COUNT,
    "num_tokens": COUNT,
    "single_sentence_documents": COUNT,
    "dropped": {"documents_without_tokens": COUNT, "sentences_without_tokens": COUNT},
    "cut_sentences": COUNT,
    "vocab_size": COUNT,
    "token_dtype": TEXT,
    "unigram_counts_sha256": TEXT,
    "shards": [{"file": TEXT, "record_batches": [[COUNT]], "bytes": COUNT, "sha256": TEXT}],
    "corpus?": {"names": [TEXT]},
    "duplicates?": {"documents": COUNT, "copies": COUNT, "dropped": FLAG},
    "near_duplicates?": {"documents": COUNT, "dropped": FLAG},
}


def _check_manifest(file: Path, manifest: dict[str, Any]) -> None:
    """Refuse a manifest that :func:`bertine.corpora.store_writer.write_manifest` would not write.

    Raises:
        BertineError: a value is missing or of another type, or a shard is not a file of the folder.
    """
    try:
        check_shape(manifest, _SHAPE, file)
    except BertineError as error:
        raise BertineError(f"{error}; the manifest is damaged, make the store again") from error
    for shard in manifest["shards"]:
        if Path(shard["file"]).name != shard["file"] or not all(
            len(batch) == 2 for batch in shard["record_batches"]
        ):
            raise BertineError(f"{file}: the entry of a shard is damaged; make the store again")
    if not manifest["shards"] or manifest["token_dtype"] not in _TOKEN_TYPES:
        raise BertineError(f"{file}: damaged; make the store again")
    documents = sum(batch[0] for shard in manifest["shards"] for batch in shard["record_batches"])
    if documents != manifest["num_documents"]:
        raise BertineError(
            f"{file}: num_documents is {manifest['num_documents']}, but the shards have "
            f"{documents}; make the store again"
        )


def _check_chunk(chunk: Chunk, documents: int, tokens: int) -> None:
    """Compare the sizes and offsets of a record batch with the manifest, without tokens and marks.

    Raises:
        ValueError: they differ, or an offset is outside the batch.
    """
    of_tokens, of_sentences, of_marks = (
        np.asarray(offsets)
        for offsets in (chunk.token_offsets, chunk.sentence_offsets, chunk.mark_offsets)
    )
    if chunk.num_documents != documents or of_tokens[-1] - of_tokens[0] != tokens:
        raise ValueError("its counts are not the manifest's")
    for offsets, values in (
        (of_tokens, chunk.input_ids),
        (of_sentences, chunk.sentence_lengths),
        (of_marks, chunk.marks),
    ):
        if offsets[0] != 0 or offsets[-1] > len(values) or (np.diff(offsets) < 0).any():
            raise ValueError("its offsets are not in order")
    sentences = np.diff(of_sentences)
    if (np.diff(of_marks) != (sentences - 1) // SENTENCES_PER_MARK).any():
        raise ValueError("its marks are not as many as its sentences say")
    ends = np.concatenate([[0], np.cumsum(np.asarray(chunk.sentence_lengths), dtype=np.int64)])
    if (np.diff(ends[of_sentences]) != np.diff(of_tokens)).any():
        raise ValueError("its sentences do not add up to its documents")


def _check_size(file: Path, expected: int) -> None:
    if not file.is_file():
        raise BertineError(f"{file}: missing; make the store again with `bertine prepare`")
    if (size := file.stat().st_size) != expected:
        raise BertineError(
            f"{file}: has {size} bytes, but was written with {expected}; it is truncated or "
            "changed: make the store again with `bertine prepare`"
        )


def _check_sum(file: Path, expected: str) -> None:
    if sha256_file(file) != expected:
        raise BertineError(
            f"{file}: its checksum is not the manifest's; it is damaged or changed: make the "
            "store again with `bertine prepare`"
        )
