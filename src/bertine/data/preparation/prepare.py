"""Documents to token store: read, split into sentences, tokenize, write; streamed throughout.

The corpus is divided into parts (:mod:`bertine.data.preparation.parts`), which are made here, by
several processes or by a Ray cluster (:mod:`bertine.data.preparation.part_runners`), and joined
(:mod:`bertine.data.preparation.joining`). Until the store is complete they lie in a hidden folder
beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertine.cores.launch import cores
from bertine.data.preparation.joining import Joined, join_parts
from bertine.data.preparation.near_duplicates import check_library
from bertine.data.preparation.part_runners import (
    OnProgress,
    run_here,
    run_processes,
    run_ray,
)
from bertine.data.preparation.parts import CorpusPart, PartProgress, PartSettings, plan_parts
from bertine.data.preparation.report import PrepareReport, store_warnings
from bertine.data.preparation.writer import write_manifest
from bertine.data.store import TOKENIZER, TokenStore, is_store
from bertine.errors import BertineError
from bertine.files import atomic_dir, check_replaceable, lock_handle, os_errors
from bertine.options.corpus import CorpusReading, PrepareOptions
from bertine.options.names import option
from bertine.options.verbs import takes_options
from bertine.terminal.console import human_count, progress, say, warn
from bertine.text.chinese import check_segmenter
from bertine.text.corpus import Corpus
from bertine.text.sentences import check_language
from bertine.text.tokenizer import Tokenizer

__all__ = ["PrepareReport", "prepare"]

#: So many of the given paths are written into the manifest.
_MAX_NAMES = 20


@takes_options()
def prepare(
    corpus: Sequence[Path | str] | Path | str,
    *,
    tokenizer: Path | str,
    out: Path | str,
    shard_tokens: int = 1 << 28,
    part_bytes: int = 64 << 20,
    options: PrepareOptions,
) -> PrepareReport:
    """Turn a corpus into a token store (see :mod:`bertine.data.store`).

    The same corpus and tokenizer give the same store, bit for bit, however many processes or
    machines make it. Documents are in the order of the input files.

    Each input file (or several small ones together) makes its shards by itself. A preparation
    that was killed and is run again with the same arguments keeps the files that are done; they
    lie in ``.NAME.unfinished`` beside `out`, which may be deleted. A file whose path, size or time
    of change is another, or other arguments, are done anew.

    Memory does not grow with the corpus but for small counts: each process holds some batches of
    about a million characters, the largest document (:class:`bertine.text.corpus.Corpus`), and 8
    bytes for each document of its part; this one 10 bytes for each document of the corpus, some
    hundred for each input file, and about 45 a document while near-duplicates are looked for.

    Args:
        corpus: files and folders (see :class:`bertine.text.corpus.Corpus`).
        tokenizer: a tokenizer folder or ``vocab.txt``; it is copied into the store.
        out: the store's folder; a store that is there is replaced when the new one is complete.
        shard_tokens: tokens a shard file, at most (and a record batch more).
        part_bytes: input files are worked through together up to this size.
        options: what the other arguments say.

    Raises:
        BertineError: the corpus cannot be read or has no text, the tokenizer cannot be loaded,
            there are no rules for the language, `out` is a folder of something else or being
            prepared by another process, the disk is full, an option has no such value, or a
            library for it is not installed.
    """
    began = time.perf_counter()
    out = Path(out)
    _check_options(shard_tokens, part_bytes, options)
    related = check_language(options.language)
    check_replaceable(out, "token store", is_store)
    reading = CorpusReading.of(options).values()
    documents = Corpus(corpus, **reading)
    documents.check_options()
    _check_outside(out, documents.files)
    encoder = Tokenizer.load(tokenizer)
    if related:
        say(related)
    looks_for_near = options.near_duplicates != "ignore"
    settings = PartSettings(
        language=options.language,
        **reading,
        drop_duplicates=options.drop_duplicates,
        shard_tokens=shard_tokens,
        signatures=looks_for_near,
        segmenter=options.segmenter,
    )
    real = Path(os.path.realpath(out))
    with _work_folder(out, real) as work:
        files = [file.absolute() for file in documents.files] if options.ray else documents.files
        parts = plan_parts(
            files,
            settings,
            tokenizer_fingerprint=encoder.fingerprint,
            folder=work,
            part_bytes=part_bytes,
        )
        todo = [part for part in parts if not part.done]
        resumed = sum(len(part.files) for part in parts) - sum(len(part.files) for part in todo)
        _clear(work, parts, resumed, len(files))
        try:
            _make(todo, encoder, work, options)
        except BaseException:
            _say_what_is_kept(work, parts, len(files))
            raise
        with atomic_dir(out) as folder:
            joined = _join(parts, folder, encoder, options)
            if not joined.counted["num_documents"]:
                shutil.rmtree(work)  # nothing in it is of use to another run
                if not joined.documents:
                    raise documents.no_text()
            (folder / TOKENIZER).mkdir()
            encoder.save(folder / TOKENIZER)
            facts = _facts(documents, joined, encoder, options)
            if options.segmenter is not None:
                facts["segmenter"] = options.segmenter
            if looks_for_near:
                facts["near_duplicates"] = {
                    "documents": joined.near,
                    "similarity": options.similarity,
                    "dropped": options.near_duplicates == "drop",
                }
            write_manifest(folder, facts, joined.counted)
        shutil.rmtree(work, ignore_errors=True)
    store = TokenStore.open(out, encoder)
    unknown = 0.0
    if encoder.unk_token_id is not None:
        unknown = float(store.unigram_counts[encoder.unk_token_id] / store.num_tokens)
    report = PrepareReport(
        path=out,
        manifest=store.manifest,
        corpus_lines=joined.stats.lines(),
        unknown_share=unknown,
        unigram_entropy=store.unigram_entropy,
        store_bytes=sum(shard["bytes"] for shard in store.manifest["shards"]),
        seconds=time.perf_counter() - began,
        warnings=store_warnings(store, unknown),
        resumed_files=resumed,
    )
    for warning in report.warnings:
        warn(warning)
    return report


def _check_options(shard_tokens: int, part_bytes: int, options: PrepareOptions) -> None:
    for name, value in (("shard_tokens", shard_tokens), ("part_bytes", part_bytes)):
        if value < 1:
            raise BertineError(f"{name} is {value}, but must be at least 1")
    if options.ray is not None and options.processes is not None:
        raise BertineError(
            f"give {option('processes')} or {option('ray')}, not both: a cluster knows its own "
            f"cores"
        )
    if options.near_duplicates != "ignore":
        check_library()
    if options.segmenter is not None:
        check_segmenter()


def _check_outside(out: Path, files: Sequence[Path]) -> None:
    """Refuse to read an earlier store as text."""
    within = os.path.join(os.path.abspath(out), "")
    if any(os.path.abspath(file).startswith(within) for file in files):
        raise BertineError(
            f"{out}: lies in a folder of the corpus, and its files would be read as text; move it "
            "out of there, or name what is to be read"
        )


@contextlib.contextmanager
def _work_folder(out: Path, real: Path) -> Iterator[Path]:
    """Yield the folder of the parts beside `real`, which no other preparation may use meanwhile.

    It is removed if no part is in it in the end.
    """
    work = real.with_name(f".{real.name}.unfinished")
    lock = _locked(work, out)
    try:
        yield work
    finally:
        if not any(work.glob("part-*")):
            shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def _locked(work: Path, out: Path) -> int:
    """Make the folder `work` if it is not there, and lock it until the number returned is closed
    (or the process ends, in whatever way)."""
    while True:
        with os_errors(out, "writing it"):
            work.mkdir(parents=True, exist_ok=True)
            try:
                lock = os.open(work, os.O_RDONLY)
            except FileNotFoundError:
                continue  # another process has just finished, and removed it
        try:
            _lock(lock, out)
            # What is locked is the folder that is there, and not one that was removed meanwhile.
            if os.path.samestat(os.fstat(lock), os.stat(work)):
                return lock
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _lock(handle: int, out: Path) -> None:
    lock_handle(handle, f"{out}: is being prepared by another process; wait for it")


def _clear(work: Path, parts: Sequence[CorpusPart], resumed: int, files: int) -> None:
    """Remove what a killed preparation left half-done or was made otherwise, and say so."""
    wanted = {os.path.basename(part.folder) for part in parts}
    other = 0
    for entry in work.iterdir():
        if entry.name not in wanted:
            other += entry.name.startswith("part-")
            shutil.rmtree(entry, ignore_errors=True)
    if resumed:
        say(f"going on: {resumed:,} of {files:,} input files were done before")
    if other:
        say(f"{other:,} finished parts of other files or settings removed; they are done anew")


def _say_what_is_kept(work: Path, parts: Sequence[CorpusPart], files: int) -> None:
    done = sum(len(part.files) for part in parts if part.done)
    if done:
        say(f"{done:,} of {files:,} input files are done and kept in {work}; run again to go on")


def _make(
    parts: Sequence[CorpusPart], encoder: Tokenizer, work: Path, options: PrepareOptions
) -> None:
    """Make `parts`, with a progress display."""
    if not parts:
        return
    ray = options.ray
    count = min(cores() if options.processes is None else options.processes, len(parts))
    folder = work / TOKENIZER
    with _display(parts) as report:
        if ray is None and count == 1:
            run_here(parts, encoder, report)
            return
        with os_errors(folder, "writing it"):
            folder.mkdir(exist_ok=True)
        encoder.save(folder)
        if ray is None:
            run_processes(parts, folder, report, count)
        else:
            run_ray(parts, folder, report, ray)


@contextlib.contextmanager
def _display(parts: Sequence[CorpusPart]) -> Iterator[OnProgress]:
    size = sum(part.size for part in parts)
    unit, unit_name = (1e6, "MB") if size >= 1e7 else (1e3, "kB")
    began = time.perf_counter()
    finished = PartProgress()
    going: dict[int, PartProgress] = {}
    with progress() as bar:
        task = bar.add_task(f"tokenizing ({unit_name})", total=max(size / unit, 1e-3))

        def report(number: int, state: PartProgress | None) -> None:
            if state is None:
                last = going.pop(number, PartProgress())
                finished.position += parts[number].size
                finished.documents += last.documents
                finished.tokens += last.tokens
                finished.characters += last.characters
            else:
                going[number] = state
            states = [finished, *going.values()]
            characters = sum(state.characters for state in states)
            bar.update(
                task,
                completed=sum(state.position for state in states) / unit,
                facts=[
                    f"{human_count(sum(state.documents for state in states))} docs",
                    f"{human_count(sum(state.tokens for state in states))} tokens",
                    f"{characters / 1e6 / (time.perf_counter() - began):.1f} Mchar/s",
                ],
            )

        yield report


def _join(
    parts: Sequence[CorpusPart], folder: Path, encoder: Tokenizer, options: PrepareOptions
) -> Joined:
    shown = len(parts) > 1 or options.near_duplicates != "ignore"
    with progress() if shown else contextlib.nullcontext() as bar:
        task = bar.add_task("joining", total=None) if bar else None

        def report(what: str, done: int, total: int) -> None:
            if bar and task is not None:
                bar.update(task, description=what, completed=done, total=total)

        return join_parts(parts, folder, options, vocab_size=encoder.vocab_size, report=report)


def _facts(
    documents: Corpus, joined: Joined, encoder: Tokenizer, options: PrepareOptions
) -> dict[str, object]:
    """Return what the manifest says of where the store comes from."""
    stats = joined.stats
    stats.skipped_files = documents.stats.skipped_files
    stats.first_skipped = documents.stats.first_skipped
    return {
        "tokenizer_fingerprint": encoder.fingerprint,
        "language": options.language,
        "duplicates": {
            "documents": joined.documents,
            "copies": joined.copies,
            "dropped": options.drop_duplicates,
        },
        "corpus": {
            "names": [path.name for path in documents.paths[:_MAX_NAMES]],
            "num_names": len(documents.paths),
            **dataclasses.asdict(stats),
        },
    }
