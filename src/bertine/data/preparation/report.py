"""What a preparation did, in words, and what stands in the way of pre-training on its store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.data.preparation.parts import MAX_SENTENCE_CHARACTERS
from bertine.data.preparation.writer import MAX_SENTENCE
from bertine.data.store import TokenStore
from bertine.options.names import option
from bertine.terminal.console import counted, human_bytes, human_time
from bertine.terminal.shown import Shown

#: From this share of documents on that are copies of others there is a warning.
_MANY_COPIES = 0.3
#: And from this share of tokens on that are [UNK]: of text that the vocabulary was made for they
#: are far less than one in a hundred.
_MANY_UNKNOWN = 0.02


@dataclass(frozen=True, repr=False)
class PrepareReport(Shown):
    """The result of :func:`bertine.prepare`.

    Attributes:
        path: the store's folder.
        manifest: its manifest.
        corpus_lines: what reading the corpus met, for people.
        unknown_share: share of the tokens that are unknown ones.
        unigram_entropy: of the store, in nats.
        store_bytes: size of the shards.
        seconds: time taken.
        warnings: what stands in the way of pre-training on the store.
        resumed_files: files that an earlier, unfinished preparation had done.
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
        """UTF-8 text of the corpus per second, in MB."""
        return self.manifest["corpus"]["text_bytes"] / 1e6 / max(self.seconds, 1e-9)

    def lines(self) -> list[str]:
        """Return the report for people; everything dropped or cut is in it."""
        facts = self.manifest
        tokens = facts["num_tokens"]
        lines = [
            *self.corpus_lines,
            f"{counted(facts['num_documents'], 'document')}, "
            f"{counted(facts['num_sentences'], 'sentence')}, {tokens:,} tokens stored "
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
    """Return what to tell the user of a store that was just made."""
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
