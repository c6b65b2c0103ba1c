"""Join the parts of a corpus into one token store, and leave out copies of documents.

Shards become part of the store by a hard link to the same file, so that nothing is read again; if
the file system has no hard links they are copied. Only a part that loses documents is rewritten.
Memory: 8 bytes a document for the fingerprints, two for the documents left out, and about 45 during
the search for near-duplicates.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertine.core.files import os_errors, sha256_file
from bertine.corpora.duplicates import SeenFingerprints, SignatureFile, find_near_duplicates
from bertine.corpora.parts import (
    FINGERPRINTS,
    LOST,
    STORED,
    CorpusPart,
    part_counts,
    read_part,
)
from bertine.corpora.store import UNIGRAM_COUNTS, token_dtype
from bertine.options.data import PrepareOptions
from bertine.tokenization.documents import CorpusStats

#: Called with (description, steps done, steps in total).
OnProgress = Callable[[str, int, int], None]

_ADDED = ("num_documents", "num_sentences", "num_tokens", "single_sentence_documents")


@dataclass
class MergeResult:
    """The total counts of all parts.

    Attributes:
        counted: the result of :meth:`bertine.corpora.store_writer.StoreWriter.close`.
        stats: counts of reading the corpus, without the skipped files of the folders.
        documents: documents read, without those that have no text.
        copies: how many of them have the words of an earlier one.
        near: how many stored documents are near-duplicates of an earlier one, but not copies.
    """

    counted: dict[str, Any]
    stats: CorpusStats = field(default_factory=CorpusStats)
    documents: int = 0
    copies: int = 0
    near: int = 0


def merge_parts(
    parts: Sequence[CorpusPart],
    folder: Path,
    options: PrepareOptions,
    *,
    vocab_size: int,
    report: OnProgress,
) -> MergeResult:
    """Put the shards of `parts` into `folder`, with the frequencies of the ids.

    Args:
        parts: finished parts, in the order of the corpus.
        folder: an existing empty folder.
        options: which documents are left out.
        vocab_size: of the ids, for the manifest.
        report: called with the progress.

    Raises:
        BertineError: a part is damaged, or the disk is full.
    """
    joined = MergeResult(
        {
            **dict.fromkeys(_ADDED, 0),
            "dropped": {"documents_without_tokens": 0, "sentences_without_tokens": 0},
            "cut_sentences": 0,
            "vocab_size": vocab_size,
            "token_dtype": token_dtype(vocab_size * (1 if options.segmenter is None else 2)).name,
            "shards": [],
        }
    )
    left_out = _left_out(parts, joined, options, report)
    counts = np.zeros(vocab_size, np.int64)
    for number, (part, rows) in enumerate(zip(parts, left_out, strict=True)):
        facts = read_part(part)
        _add(joined, facts)
        counts += part_counts(part).reshape(-1, vocab_size).sum(axis=0)
        if rows is None:
            shards = _taken_over(part, facts, folder, len(joined.counted["shards"]))
        else:
            shards = _without(part, facts, rows, folder, joined, counts)
        joined.counted["shards"] += shards
        report("joining", number + 1, len(parts))
    with (
        os_errors(folder / UNIGRAM_COUNTS, "writing it"),
        open(folder / UNIGRAM_COUNTS, "wb") as handle,
    ):
        np.save(handle, counts, allow_pickle=False)
    return joined


def _add(joined: MergeResult, facts: dict[str, Any]) -> None:
    """Add up the counts of the parts."""
    total = joined.counted
    for name in (*_ADDED, "cut_sentences"):
        total[name] += facts[name]
    for name, value in facts["dropped"].items():
        total["dropped"][name] += value
    for name, value in facts["corpus"].items():
        if isinstance(value, int):
            setattr(joined.stats, name, getattr(joined.stats, name) + value)


def _left_out(
    parts: Sequence[CorpusPart],
    joined: MergeResult,
    options: PrepareOptions,
    report: OnProgress,
) -> list[npt.NDArray[np.bool_] | None]:
    """Return for each part which of its stored documents are left out (bool); None if none are."""
    seen = SeenFingerprints()
    copies: list[npt.NDArray[np.bool_]] = []
    for number, part in enumerate(parts):
        joined.documents += read_part(part)["documents"]
        file = Path(part.folder) / FINGERPRINTS
        with os_errors(file, "reading it"):
            fingerprints = np.fromfile(file, np.uint64)
        stored = _stored(part)
        copy = ~seen.add_many(fingerprints)
        copies.append(copy[stored])
        if options.drop_duplicates:
            _forget_losses(part, copy, joined)
        report("comparing documents", number + 1, len(parts))
    joined.copies = joined.documents - len(seen)
    del seen
    near: list[npt.NDArray[np.bool_]] = []
    if options.near_duplicates != "ignore":
        files = [
            SignatureFile(Path(part.folder), tuple(_batch_sizes(read_part(part)))) for part in parts
        ]
        alive = ~np.concatenate(copies)
        marks = find_near_duplicates(
            files,
            alive,
            options.similarity,
            lambda *steps: report("comparing signatures", *steps),
        )
        joined.near = int(marks.sum())
        near = np.split(marks, np.cumsum([len(rows) for rows in copies])[:-1])
    result: list[npt.NDArray[np.bool_] | None] = []
    for number, copy in enumerate(copies):
        rows = np.zeros(len(copy), bool)
        if options.drop_duplicates:
            rows |= copy
        if options.near_duplicates == "drop" and near[number].any():
            stored = _stored(parts[number])
            documents = np.zeros(len(stored), bool)
            documents[stored] = near[number]
            _forget_losses(parts[number], documents, joined)
            rows |= near[number]
        result.append(rows if rows.any() else None)
    return result


def _stored(part: CorpusPart) -> npt.NDArray[np.bool_]:
    """Return which documents of `part` have a token and so are stored: bool [documents]."""
    file = Path(part.folder) / STORED
    with os_errors(file, "reading it"):
        return np.fromfile(file, np.uint8).astype(bool)


def _forget_losses(part: CorpusPart, documents: npt.NDArray[np.bool_], joined: MergeResult) -> None:
    """Subtract the counts of `documents` (bool [documents of the part]), which are left out for
    another reason than the counted one."""
    if not documents.any():
        return
    file = Path(part.folder) / LOST
    with os_errors(file, "reading it"):
        lost = np.fromfile(file, np.uint32).reshape(-1, 2)
    empty, cut = lost[documents].sum(axis=0, dtype=np.int64).tolist()
    joined.counted["dropped"]["documents_without_tokens"] -= int((documents & ~_stored(part)).sum())
    joined.counted["dropped"]["sentences_without_tokens"] -= empty
    joined.counted["cut_sentences"] -= cut


def _batch_sizes(facts: dict[str, Any]) -> list[int]:
    """Return the number of documents in each record batch of a part."""
    return [documents for shard in facts["shards"] for documents, _ in shard["record_batches"]]


def _name(number: int) -> str:
    return f"tokens-{number:05d}.arrow"


def _taken_over(
    part: CorpusPart, facts: dict[str, Any], folder: Path, number: int
) -> list[dict[str, Any]]:
    """Link the shards of `part` unchanged, under their numbers in the store."""
    shards: list[dict[str, Any]] = []
    for shard in facts["shards"]:
        name = _name(number + len(shards))
        source = Path(part.folder) / shard["file"]
        with os_errors(source, "putting it into the store"):
            try:
                os.link(source, folder / name)
            except OSError:
                shutil.copyfile(source, folder / name)
        shards.append({**shard, "file": name})
    return shards


def _without(
    part: CorpusPart,
    facts: dict[str, Any],
    rows: npt.NDArray[np.bool_],
    folder: Path,
    joined: MergeResult,
    counts: npt.NDArray[np.int64],
) -> list[dict[str, Any]]:
    """Rewrite the shards of `part` without the documents marked in `rows`."""
    shards: list[dict[str, Any]] = []
    total = joined.counted
    marks = iter(np.split(rows, np.cumsum(_batch_sizes(facts))[:-1]))
    for shard in facts["shards"]:
        name = _name(len(total["shards"]) + len(shards))
        batches = []
        path = Path(part.folder) / shard["file"]
        with (
            os_errors(path, "reading it"),
            pa.memory_map(str(path)) as source,
            pa.OSFile(str(folder / name), "wb") as sink,
        ):
            reader = pa.ipc.open_file(source)
            with pa.ipc.new_file(sink, reader.schema) as writer:
                for index in range(reader.num_record_batches):
                    batch, gone = reader.get_batch(index), next(marks)
                    lost = batch.filter(pa.array(gone))
                    sentences = np.diff(lost.column("sentence_lengths").offsets.to_numpy())
                    ids = lost.column("input_ids").flatten().to_numpy()
                    counts -= np.bincount(ids % len(counts), minlength=len(counts))
                    total["num_documents"] -= lost.num_rows
                    total["num_sentences"] -= int(sentences.sum())
                    total["num_tokens"] -= len(ids)
                    total["single_sentence_documents"] -= int((sentences == 1).sum())
                    if lost.num_rows < batch.num_rows:
                        kept = batch.filter(pa.array(~gone)) if lost.num_rows else batch
                        writer.write_batch(kept)
                        batches.append([kept.num_rows, len(kept.column("input_ids").flatten())])
        if not batches:
            (folder / name).unlink()
            continue
        shards.append(
            {
                "file": name,
                "record_batches": batches,
                "bytes": (folder / name).stat().st_size,
                "sha256": sha256_file(folder / name),
            }
        )
    return shards
