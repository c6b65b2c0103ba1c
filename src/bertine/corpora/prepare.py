"""Prepare a token store from documents: read, split into sentences, tokenize, write, all streamed.

The corpus is divided into parts (:mod:`bertine.corpora.parts`), which are made by this process, by
several processes or by a Ray cluster, and joined (:mod:`bertine.corpora.merging`). Until the store
is complete they are in a hidden folder next to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.core import workers
from bertine.core.console import (
    Report,
    human_bytes,
    human_count,
    human_time,
    log_all,
    logger,
    plural,
    progress,
)
from bertine.core.cpu import cores
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, check_replaceable, lock_handle, os_errors
from bertine.core.names import option
from bertine.corpora.duplicates import check_library
from bertine.corpora.merging import MergeResult, merge_parts
from bertine.corpora.parts import (
    MAX_SENTENCE_CHARACTERS,
    CorpusPart,
    OnPartProgress,
    PartProgress,
    PartSettings,
    make_part,
    plan_parts,
)
from bertine.corpora.store import TOKENIZER, TokenStore, is_store
from bertine.corpora.store_writer import MAX_SENTENCE, write_manifest
from bertine.options.data import CorpusReading, PrepareOptions
from bertine.options.verbs import takes_options
from bertine.tokenization.documents import Corpus
from bertine.tokenization.sentences import check_language, check_segmenter
from bertine.tokenization.tokenizer import Tokenizer

# Report and warnings: the result of a preparation, and obstacles to pre-training on its store.

#: Share of copied documents from which on there is a warning.
_MANY_COPIES = 0.3
#: Share of [UNK] tokens from which on there is a warning: in text like that of the vocabulary it is
#: far less than one in a hundred.
_MANY_UNKNOWN = 0.02


@dataclass(frozen=True, repr=False)
class PrepareReport(Report):
    """The result of :func:`bertine.prepare`.

    Attributes:
        path: the store's folder.
        manifest: its manifest.
        corpus_lines: notes on reading the corpus, for people.
        unknown_share: share of unknown tokens.
        unigram_entropy: of the store, in nats.
        store_bytes: size of the shards.
        seconds: time taken.
        warnings: obstacles to pre-training on the store.
        resumed_files: files already finished by an earlier, interrupted preparation.
    """

    path: Path
    manifest: dict[str, Any]
    corpus_lines: list[str]
    unknown_share: float
    unigram_entropy: float
    store_bytes: int
    seconds: float
    warnings: list[str]
    resumed_files: int = 0

    @property
    def megabytes_per_second(self) -> float:
        """Megabytes of UTF-8 text of the corpus per second."""
        return self.manifest["corpus"]["text_bytes"] / 1e6 / max(self.seconds, 1e-9)

    def lines(self) -> list[str]:
        """Return the report for people, including everything dropped or cut."""
        facts = self.manifest
        tokens = facts["num_tokens"]
        lines = [
            *self.corpus_lines,
            f"{plural(facts['num_documents'], 'document')}, "
            f"{plural(facts['num_sentences'], 'sentence')}, {tokens:,} tokens stored "
            f"({tokens / facts['num_sentences']:.1f} a sentence)",
        ]
        if segmenter := facts.get("segmenter"):
            lines.append(f"words of Chinese found by {segmenter}, for masks of whole words")
        dropped, copies = facts["dropped"], facts["duplicates"]
        if copies["copies"]:
            lines.append(
                f"documents with the same words as an earlier one: {copies['copies']:,} "
                f"({copies['copies'] / copies['documents']:.1%})"
                + _what_to_do(copies["dropped"], option("drop_duplicates", True))
            )
        if near := facts.get("near_duplicates"):
            lines.append(
                f"documents at least {near['similarity']:.0%} the same as an earlier one: "
                f"{near['documents']:,} ({near['documents'] / copies['documents']:.1%})"
                + _what_to_do(near["dropped"], option("near_duplicates", "drop"))
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
            f"{self.path}: {human_bytes(self.store_bytes)}, "
            f"{self.store_bytes / tokens:.2f} bytes a token, "
            f"{len(facts['shards'])} shard{'' if len(facts['shards']) == 1 else 's'}; "
            f"{human_time(self.seconds)}, {self.megabytes_per_second:.1f} MB/s",
        ]


def _what_to_do(dropped: bool, way: str) -> str:
    return ", dropped" if dropped else f"; {way} leaves them out"


def store_warnings(store: TokenStore, unknown_share: float) -> list[str]:
    """Return warnings for the user about a store that was just made."""
    warnings: list[str] = []
    copies = store.duplicate_share or 0.0
    if copies > _MANY_COPIES:
        near = store.manifest.get("near_duplicates")
        drop_near = option("near_duplicates", "drop")
        dropping = option("drop_duplicates", True) if near is None else drop_near
        warnings.append(
            f"{store.path}: {copies:.0%} of the documents are copies of another, "
            f"or nearly; a model learns them by heart; use {dropping}"
        )
    if unknown_share > _MANY_UNKNOWN:
        warnings.append(
            f"{store.path}: {unknown_share:.0%} of the tokens are unknown to the vocabulary, so "
            "there is nothing to learn of them; train one on this text with 'bertine vocab'"
        )
    return warnings + _pair_warnings(store)


def _pair_warnings(store: TokenStore) -> list[str]:
    if store.num_documents < 2:
        return [
            f"{store.path}: one document only, but next-sentence prediction needs two; separate "
            f"documents with a blank line or use {option('document_per_file', True)}"
        ]
    single = store.manifest["single_sentence_documents"]
    if single > 0.1 * store.num_documents:
        return [
            f"{store.path}: {single:,} of {store.num_documents:,} documents have one sentence "
            "only; next-sentence prediction has no true next sentence for them"
        ]
    return []


# Workers: this process, several processes, or a Ray cluster make the parts of a token store.
#
# The processes run ``python -m bertine.corpora.prepare TOKENIZER``. A part is a line of JSON on
# stdin; lines of JSON on stdout report its progress and finally its end or an error
# (:mod:`bertine.core.workers`).

#: Called with the number of a part and its progress; None: it is done.
OnProgress = Callable[[int, PartProgress | None], None]

#: Seconds between two progress messages of a process.
_SECONDS = 0.3


def run_here(parts: Sequence[CorpusPart], tokenizer: Tokenizer, report: OnProgress) -> None:
    """Make `parts` one after the other in this process.

    Raises:
        BertineError: see :func:`bertine.corpora.parts.make_part`.
    """
    for number, part in enumerate(parts):
        make_part(part, tokenizer, functools.partial(report, number))
        report(number, None)


def run_processes(
    parts: Sequence[CorpusPart], tokenizer: Path, report: OnProgress, processes: int
) -> None:
    """Make `parts` in several processes, the largest first.

    Args:
        parts: the parts to make.
        tokenizer: its folder.
        report: called from several threads, never two at a time.
        processes: number of processes; each takes the next part when it is free.

    Raises:
        BertineError: the error of the first part that has one; or a process was killed. Parts
            finished by then are kept.
    """
    workers.run_processes(
        [part.to_json() for part in parts],
        [__name__, str(tokenizer)],
        _receiver(parts, report, f"; run again, with fewer {option('processes')}"),
        processes,
        order=_largest_first(parts),
    )


def run_ray(parts: Sequence[CorpusPart], tokenizer: Path, report: OnProgress, address: str) -> None:
    """Make `parts` as tasks of a Ray cluster, one core each.

    All machines must see the corpus and the store's folder under the same paths.

    Args:
        parts: the parts to make; paths are absolute.
        tokenizer: its folder.
        report: called when a part is done.
        address: the cluster's address (``auto``, ``host:6379``), or ``local``: one is started here.

    Raises:
        BertineError: Ray is not installed or cannot be reached, or a part has an error.
    """
    workers.run_ray(
        [part.to_json() for part in parts],
        _ray_task,
        _receiver(parts, report),
        address,
        given=[str(tokenizer)],
        order=_largest_first(parts),
    )


def _receiver(parts: Sequence[CorpusPart], report: OnProgress, hint: str = "") -> workers.OnMessage:
    """Return the function that receives the messages about parts; `hint` is the advice if a worker
    is lost."""

    def receive(number: int, message: dict[str, Any]) -> None:
        if "lost" in message:
            raise BertineError(f"{parts[number].files[0]}: {message['lost']}{hint}")
        if "error" in message:
            raise BertineError(message["error"])
        report(number, None if "done" in message else PartProgress(**message["progress"]))

    return receive


def _largest_first(parts: Sequence[CorpusPart]) -> list[int]:
    return sorted(range(len(parts)), key=lambda number: (-parts[number].size, number))


def _ray_task(line: str, tokenizer: str) -> dict[str, Any]:
    """Make a part on some machine of a Ray cluster, and return its last message."""
    # The task has one core; `tokenizers` would take all. It counts them when it is first used.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    try:
        return _outcome(line, _loaded(tokenizer))
    except BertineError as error:  # for example, this machine cannot see the folder
        return {"error": str(error)}


#: Loads a tokenizer, once in each process.
_loaded = functools.lru_cache(1)(Tokenizer.load)


def _outcome(
    line: str, tokenizer: Tokenizer, report: OnPartProgress | None = None
) -> dict[str, Any]:
    """Make the part of a line, and return its last message."""
    try:
        make_part(CorpusPart.from_json(line), tokenizer, report)
    except BertineError as error:
        return {"error": str(error)}
    return {"done": True}


def _maker(tokenizer_folder: str) -> workers.Work:
    """Return the function that makes parts in a process, with the tokenizer of a folder."""
    tokenizer = Tokenizer.load(tokenizer_folder)
    last = 0.0

    def work(line: str, say: workers.Say) -> None:
        def report(progress: PartProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= _SECONDS:
                last = time.monotonic()
                say(progress=vars(progress))

        say(**_outcome(line, tokenizer, report))

    return work


if __name__ == "__main__":
    workers.serve(lambda: _maker(sys.argv[1]))


__all__ = ["PrepareReport", "prepare"]

#: Most of the given paths that are written into the manifest.
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
    """Turn a corpus into a token store (see :mod:`bertine.corpora.store`).

    The same corpus and tokenizer give the same store, bit for bit, with any number of processes or
    machines. Documents are in the order of the input files.

    Each input file (or several small ones together) makes its shards separately. A preparation
    that was killed and is run again with the same arguments keeps the finished files; they
    are in ``.NAME.unfinished`` next to `out`, which may be deleted. A file with another path, size
    or modification time, or with other arguments, is processed again.

    Memory does not grow with the corpus except for small counts: each process holds some batches of
    about a million characters, the largest document
    (:class:`bertine.tokenization.documents.Corpus`), and 8 bytes for each document of its part;
    this one 10 bytes for each document of the corpus, some hundred for each input file, and about
    45 a document during the search for near-duplicates.

    Args:
        corpus: files and folders (see :class:`bertine.tokenization.documents.Corpus`).
        tokenizer: a tokenizer folder or ``vocab.txt``; it is copied into the store.
        out: the store's folder; an existing store is replaced when the new one is complete.
        shard_tokens: most tokens of a shard file (a record batch more is possible).
        part_bytes: input files are combined into parts up to this size.
        options: the values of the other arguments.

    Raises:
        BertineError: the corpus cannot be read or has no text, the tokenizer cannot be loaded,
            there are no rules for the language, `out` is a folder of something else or is in use by
            another preparation, the disk is full, an option has an invalid value, or a library
            for it is not installed.
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
        logger.info(related)
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
                shutil.rmtree(work)  # no other run can use it
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
    log_all(report.warnings, logger.warning)
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
    """Yield the folder of the parts next to `real`, locked against other preparations.

    It is removed at the end if it holds no part.
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
    """Create the folder `work` if it is missing, and lock it until the returned handle is closed
    (or the process ends, in any way)."""
    while True:
        with os_errors(out, "writing it"):
            work.mkdir(parents=True, exist_ok=True)
            try:
                lock = os.open(work, os.O_RDONLY)
            except FileNotFoundError:
                continue  # another process has just finished, and removed it
        try:
            lock_handle(lock, f"{out}: is being prepared by another process; wait for it")
            # Lock the folder that exists, not one that was removed meanwhile.
            if os.path.samestat(os.fstat(lock), os.stat(work)):
                return lock
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _clear(work: Path, parts: Sequence[CorpusPart], resumed: int, files: int) -> None:
    """Remove unfinished parts of a killed preparation and parts with other settings, and note
    it."""
    wanted = {os.path.basename(part.folder) for part in parts}
    other = 0
    for entry in work.iterdir():
        if entry.name not in wanted:
            other += entry.name.startswith("part-")
            shutil.rmtree(entry, ignore_errors=True)
    if resumed:
        logger.info(f"going on: {resumed:,} of {files:,} input files were done before")
    if other:
        logger.info(
            f"{other:,} finished parts of other files or settings removed; they are done anew"
        )


def _say_what_is_kept(work: Path, parts: Sequence[CorpusPart], files: int) -> None:
    done = sum(len(part.files) for part in parts if part.done)
    if done:
        logger.info(
            f"{done:,} of {files:,} input files are done and kept in {work}; run again to go on"
        )


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
) -> MergeResult:
    shown = len(parts) > 1 or options.near_duplicates != "ignore"
    with progress() if shown else contextlib.nullcontext() as bar:
        task = bar.add_task("joining", total=None) if bar else None

        def report(what: str, done: int, total: int) -> None:
            if bar and task is not None:
                bar.update(task, description=what, completed=done, total=total)

        return merge_parts(parts, folder, options, vocab_size=encoder.vocab_size, report=report)


def _facts(
    documents: Corpus, joined: MergeResult, encoder: Tokenizer, options: PrepareOptions
) -> dict[str, object]:
    """Return the manifest's facts about the origin of the store."""
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
