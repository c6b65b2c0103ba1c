"""Write the token store, streamed: memory holds one record batch and one open document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertine.core.errors import BertineError
from bertine.core.files import sha256_file, write_json
from bertine.core.names import __version__
from bertine.corpora.store import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    SENTENCES_PER_MARK,
    UNIGRAM_COUNTS,
    token_dtype,
)

#: A sentence length is stored in two bytes; a longer sentence is cut into pieces.
MAX_SENTENCE = 65535


def write_manifest(folder: Path, facts: dict[str, Any], counted: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest of a store whose other files are in `folder`, and return it.

    Args:
        folder: holds the shards and the frequencies of the ids.
        facts: the origin of the text; at least ``tokenizer_fingerprint``.
        counted: the result of :meth:`StoreWriter.close`.

    Raises:
        BertineError: no document had a token.
    """
    if not counted["num_documents"]:
        raise BertineError("the corpus has no document with text in it; nothing to store")
    shards = counted.pop("shards")
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "bertine_version": __version__,
        **facts,
        **counted,
        "unigram_counts_sha256": sha256_file(folder / UNIGRAM_COUNTS),
        "shards": shards,
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


class StoreWriter:
    """A writer of documents into an existing folder; the caller makes the folder atomic.

    Use it as a context manager, and call :meth:`close` when everything is written.

    Args:
        folder: the folder of ``tokens-*.arrow``, ``unigram_counts.npy`` and the manifest.
        vocab_size: ids must be below it.
        record_batch_tokens: tokens gathered before a record batch is written. It bounds the
            memory used, except that a document is never divided.
        shard_tokens: number of tokens after which a new shard is begun.

    Attributes:
        num_documents, num_sentences, num_tokens: written so far.
        empty_documents: documents dropped because they had no token.
        empty_sentences: sentences dropped because they had no token.
        cut_sentences: sentences cut into pieces because they were longer than 65,535 tokens.
    """

    def __init__(
        self,
        folder: Path,
        *,
        vocab_size: int,
        record_batch_tokens: int = 1 << 20,
        shard_tokens: int = 1 << 28,
    ) -> None:
        self.folder = folder
        self.vocab_size = vocab_size
        self.dtype = token_dtype(vocab_size)
        self.record_batch_tokens = record_batch_tokens
        self.shard_tokens = shard_tokens
        self.num_documents = self.num_sentences = self.num_tokens = 0
        self.single_sentence_documents = 0
        self.empty_documents = self.empty_sentences = self.cut_sentences = 0
        self.unigram_counts = np.zeros(vocab_size, np.int64)
        self._ids: list[npt.NDArray[Any]] = []
        self._lengths: list[npt.NDArray[np.int64]] = []
        self._ends: list[npt.NDArray[np.int64]] = []
        self._pending_sentences = self._pending_tokens = self._complete_tokens = 0
        self._sink: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._shards: list[dict[str, Any]] = []
        self._schema = pa.schema(
            {
                "input_ids": pa.list_(pa.from_numpy_dtype(self.dtype)),
                "sentence_lengths": pa.list_(pa.uint16()),
                "sentence_marks": pa.list_(pa.uint32()),
            }
        )

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        # After a failure (a full disk) closing may fail again; the folder is discarded in any case.
        try:
            self._close_shard()
        except Exception:
            if kind is None:
                raise

    def append(
        self,
        input_ids: npt.NDArray[Any],
        sentence_lengths: npt.NDArray[Any],
        document_ends: npt.NDArray[Any],
    ) -> None:
        """Append sentences to the open document, which ends as given by `document_ends`.

        Args:
            input_ids: integers [tokens], the ids of all sentences in order.
            sentence_lengths: integers [sentences], in tokens; they add up to the tokens.
            document_ends: integers, ascending, each in [0, sentences]: the open document ends
                before this sentence and the next begins.
        """
        lengths = np.asarray(sentence_lengths, np.int64)
        ends = np.asarray(document_ends, np.int64)
        if lengths.sum() != input_ids.size:
            raise ValueError(f"sentences of {lengths.sum()} tokens, but {input_ids.size} ids")
        if input_ids.size and not 0 <= input_ids.min() <= input_ids.max() < self.vocab_size:
            raise ValueError(f"ids {input_ids.min()}..{input_ids.max()} of {self.vocab_size}")
        # One piece for most sentences, none for an empty one, several for a very long one.
        pieces = -(-lengths // MAX_SENTENCE)
        if (pieces != 1).any():
            self.empty_sentences += int((pieces == 0).sum())
            self.cut_sentences += int((pieces > 1).sum())
            before = np.concatenate([[0], np.cumsum(pieces)])
            last = before[1:][pieces > 0] - 1
            full = np.full(before[-1], MAX_SENTENCE)
            full[last] = (lengths - (pieces - 1) * MAX_SENTENCE)[pieces > 0]
            lengths, ends = full, before[ends]
        self.unigram_counts += np.bincount(input_ids, minlength=self.vocab_size)
        if ends.size:
            self._complete_tokens = self._pending_tokens + int(lengths[: ends[-1]].sum())
        self._ids.append(input_ids.astype(self.dtype))
        self._lengths.append(lengths)
        self._ends.append(ends + self._pending_sentences)
        self._pending_sentences += len(lengths)
        self._pending_tokens += input_ids.size
        if self._complete_tokens >= self.record_batch_tokens:
            self._flush()

    def close(self) -> dict[str, Any]:
        """End an open document, write the rest and the frequencies of the ids, and return the
        counts for the manifest.

        There may be no shard at all, if no document had a token.
        """
        if self._pending_tokens > self._complete_tokens:
            self._ends.append(np.array([self._pending_sentences]))
        self._flush()
        self._close_shard()
        with open(self.folder / UNIGRAM_COUNTS, "wb") as handle:
            np.save(handle, self.unigram_counts, allow_pickle=False)
        return {
            "num_documents": self.num_documents,
            "num_sentences": self.num_sentences,
            "num_tokens": self.num_tokens,
            "single_sentence_documents": self.single_sentence_documents,
            "dropped": {
                "documents_without_tokens": self.empty_documents,
                "sentences_without_tokens": self.empty_sentences,
            },
            "cut_sentences": self.cut_sentences,
            "vocab_size": self.vocab_size,
            "token_dtype": self.dtype.name,
            "shards": self._shards,
        }

    def _flush(self) -> None:
        """Write the complete documents as one record batch; keep the open one."""
        if not self._ends:
            return
        ids = np.concatenate(self._ids)
        lengths = np.concatenate(self._lengths)
        all_ends = np.concatenate(self._ends)
        boundaries = np.unique(np.concatenate([[0], all_ends]))
        self.empty_documents += len(all_ends) - (len(boundaries) - 1)
        token_starts = np.concatenate([[0], np.cumsum(lengths)])
        token_offsets = token_starts[boundaries]
        num_tokens, num_sentences = int(token_offsets[-1]), int(boundaries[-1])
        self._ids, self._lengths, self._ends = [ids[num_tokens:]], [lengths[num_sentences:]], []
        self._pending_tokens -= num_tokens
        self._pending_sentences -= num_sentences
        self._complete_tokens = 0
        if num_tokens == 0:
            return
        if num_tokens >= 2**31:
            # Arrow's list offsets are 32 bits wide.
            raise BertineError(
                f"document {self.num_documents} and those read with it have {num_tokens} tokens, "
                "more than a store can hold in one piece; divide the document"
            )
        counts = np.diff(boundaries)
        number = np.arange(num_sentences) - np.repeat(boundaries[:-1], counts)
        marked = np.flatnonzero((number % SENTENCES_PER_MARK == 0) & (number > 0))
        row = np.searchsorted(boundaries, marked, side="right") - 1
        marks = token_starts[marked] - token_offsets[row]
        mark_offsets = np.concatenate([[0], np.cumsum((counts - 1) // SENTENCES_PER_MARK)])
        arrays = [
            _lists(token_offsets, ids[:num_tokens]),
            _lists(boundaries, lengths[:num_sentences].astype(np.uint16)),
            _lists(mark_offsets, marks.astype(np.uint32)),
        ]
        self._write(pa.record_batch(arrays, schema=self._schema), num_tokens)
        self.num_documents += len(counts)
        self.num_sentences += num_sentences
        self.num_tokens += num_tokens
        self.single_sentence_documents += int((counts == 1).sum())

    def _write(self, batch: pa.RecordBatch, num_tokens: int) -> None:
        if self._writer is None:
            name = f"tokens-{len(self._shards):05d}.arrow"
            self._sink = pa.OSFile(str(self.folder / name), "wb")
            self._writer = pa.ipc.new_file(self._sink, self._schema)
            self._shards.append({"file": name, "record_batches": []})
        self._writer.write_batch(batch)
        batches = self._shards[-1]["record_batches"]
        batches.append([batch.num_rows, num_tokens])
        if sum(tokens for _, tokens in batches) >= self.shard_tokens:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._writer is None or self._sink is None:
            return
        writer, sink, self._writer, self._sink = self._writer, self._sink, None, None
        try:
            writer.close()
        finally:
            sink.close()
        file = self.folder / self._shards[-1]["file"]
        self._shards[-1] |= {"bytes": file.stat().st_size, "sha256": sha256_file(file)}


def _lists(offsets: npt.NDArray[Any], values: npt.NDArray[Any]) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))
