"""Describe what is in a token store, and what a model will see of it, as lines and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertine.data.corruption.base import MakeCorruption
from bertine.data.corruption.following import FollowingTokens
from bertine.data.corruption.masked import TokenMasking
from bertine.data.corruption.permuted import PermutedTokens
from bertine.data.instances.formats import PAIR_FORMATS
from bertine.data.instances.pretraining import PretrainingData
from bertine.data.store import TokenStore
from bertine.inspection.marks import (
    MarkedToken,
    as_text,
    gaps,
    heading,
    joined,
    marked_segments,
    segment_names,
)
from bertine.options.instances import InstanceSettings
from bertine.reports.html import Fact, FactList, Page, Section, Segment, TextCard, TextCards
from bertine.terminal.console import counted, human_bytes
from bertine.text.pieces import bare
from bertine.text.tokenizer import Tokenizer
from bertine.version import __version__

#: What is guessed where nothing is masked.
_GUESSED: dict[MakeCorruption, str] = {
    FollowingTokens: "each token is guessed from those before it",
    PermutedTokens: "a sixth of the tokens is guessed, in any order",
}
#: Documents whose length is looked at; in a larger store, as many evenly spaced ones.
_SAMPLED_DOCUMENTS = 100_000
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def inspect_store(
    path: Path | str,
    *,
    num_instances: int = 3,
    settings: InstanceSettings | None = None,
    html: Path | str | None = None,
) -> list[str]:
    """Describe a store: its facts, its lengths and frequent tokens, and some instances.

    A masked token is shown as ``[MASK→word]``, one replaced at random as ``[other→word]``, one
    chosen but kept as ``[=word]``. The whole store is read first and compared with its checksums
    and counts.

    Args:
        path: of the store's folder.
        num_instances: pre-training instances shown.
        settings: of the instances; those of a run of ``pretrain`` with the same ones.
        html: a file to write the same to as a page, in one piece.

    Raises:
        BertineError: there is no store, or it is damaged; a format or a masking is not known.
    """
    store = TokenStore.open(path)
    store.verify()
    tokenizer = Tokenizer.load(store.tokenizer_path)
    store.check_tokenizer(tokenizer)
    facts = {**_facts(store), **_lengths(store), "most frequent:": _frequent(store, tokenizer)}
    settings = settings or InstanceSettings()
    corruption: MakeCorruption = TokenMasking
    if tokenizer.mask_token_id is None:  # for models that read forward
        corruption, settings = FollowingTokens, replace(settings, input_format="running-text")
    elif tokenizer.template.sums_up_at_end:  # for models that guess in any order
        corruption = PermutedTokens
    if settings.input_format in PAIR_FORMATS and store.num_documents < 2:
        instances: list[_MarkedInstance] = []
        facts["no instances:"] = "next-sentence prediction needs at least two documents"
    else:
        # With the batch size of `pretrain`: a batch's masks are drawn together.
        data = PretrainingData(store, tokenizer, settings, corruption=corruption)
        instances = _instances(data, tokenizer, num_instances)
        words = "whole words" if settings.whole_word_mask else "single tokens"
        if settings.ngrams > 1:
            words = f"runs of up to {settings.ngrams} {words.removeprefix('single ')}"
        facts["instances"] = (
            f"{settings.input_format} of at most {data.max_seq_length} tokens, "
            f"{data.instances_per_epoch:,} an epoch; "
            + _GUESSED.get(corruption, f"{settings.masking} masking of {words}")
        )
    lines = [
        f"token store {store.path} ({_origin(store)})",
        *(
            f"{name if name.endswith(':') else name.ljust(14)} {value}"
            for name, value in facts.items()
        ),
    ]
    for instance in instances:
        lines += ["", f"{instance.name}: {instance.heading}"]
        lines += [f"  {name}: {as_text(tokens)}" for name, tokens in instance.segments]
    if html is not None:
        _page(store, facts, instances, tokenizer.mask_text).write(html)
        lines += ["", f"page: {html}"]
    return lines


@dataclass(frozen=True)
class _MarkedInstance:
    """An instance with its tokens marked.

    Attributes:
        name: such as "instance 0".
        heading: what it was made of.
        segments: the name of each, and its tokens.
    """

    name: str
    heading: str
    segments: Sequence[tuple[str, Sequence[MarkedToken]]]


def _instances(data: PretrainingData, tokenizer: Tokenizer, count: int) -> list[_MarkedInstance]:
    """Mark the first `count` instances."""
    marked: list[_MarkedInstance] = []
    for step in range(-(-count // data.batch_size)):
        batch = data.batch(step)
        for row, instance in enumerate(data.instances(step)[: count - len(marked)]):
            segments = zip(
                segment_names(instance, data.format),
                marked_segments(batch, row, instance, tokenizer, data.frame),
                strict=True,
            )
            name = f"instance {len(marked)}"
            marked.append(_MarkedInstance(name, heading(instance, data.format), list(segments)))
    return marked


def _page(
    store: TokenStore,
    facts: Mapping[str, str],
    instances: Sequence[_MarkedInstance],
    mask: str,
) -> Page:
    """Make the page: above every token to be predicted stands what it was."""
    legend = [
        Segment(mask, "masked", "what it was", above=True),
        Segment(" hidden,  "),
        Segment("another", "replaced", "what it was", above=True),
        Segment(" replaced by another token,  "),
        Segment("itself", "kept", "itself", above=True),
        Segment(" to be predicted, but left as it was"),
    ]
    sections = [
        Section("The store", [FactList([Fact(n.rstrip(":"), value) for n, value in facts.items()])])
    ]
    if instances:
        cards = TextCards([*map(_card, instances)], "instances", legend)
        lead = "The first instances of a run with these settings, and what is asked of them."
        sections.append(Section("What a model will see", [cards], lead))
    return Page(
        title=str(store.path),
        lead=f"A token store: {_origin(store)}.",
        headline=[
            Fact("documents", f"{store.num_documents:,}"),
            Fact("sentences", f"{store.num_sentences:,}"),
            Fact("tokens", f"{store.num_tokens:,}"),
            Fact("unigram entropy", f"{store.unigram_entropy:.3f}", "nats a token"),
        ],
        sections=sections,
        footer=f"Made by bertine {__version__} with 'bertine inspect'.",
    )


def _card(instance: _MarkedInstance) -> TextCard:
    kinds = [token.kind for _, tokens in instance.segments for token in tokens]
    counts = (f"{kinds.count(kind)} {kind}" for kind in ("masked", "replaced", "kept"))
    about = f"{instance.heading}; {counted(len(kinds), 'token')}, {', '.join(counts)}"
    lines = [(name, _segments(tokens)) for name, tokens in instance.segments]
    return TextCard(lines, [(about, "", "")], title=instance.name)


def _segments(tokens: Sequence[MarkedToken]) -> list[Segment]:
    """Write tokens as segments of a text, each after the space that it stands behind."""
    segments = []
    for token, inside, gap in zip(tokens, joined(tokens), gaps(tokens), strict=True):
        if token.kind == "plain":
            segments.append(Segment(gap + (bare(token.text) if inside else token.text)))
            continue
        segments.append(Segment(gap))
        if token.kind == "added":
            segments.append(Segment(token.text, "added"))
        else:
            segments.append(Segment(token.text, token.kind, token.was, above=True))
    return segments


def _origin(store: TokenStore) -> str:
    facts = store.manifest
    return (
        f"format version {facts['format_version']}, written by Bertine "
        f"{facts['bertine_version']}; checksums and counts verified"
    )


def _facts(store: TokenStore) -> dict[str, str]:
    """List what the manifest says, by name."""
    facts = store.manifest
    size = sum(shard["bytes"] for shard in facts["shards"])
    corpus: dict[str, Any] = facts.get("corpus", {})
    dropped = facts["dropped"]
    rows = {
        "tokenizer": f"{facts['tokenizer_fingerprint'][:12]}, {store.vocab_size:,} tokens, ids "
        f"stored as {facts['token_dtype']}",
        "documents": f"{store.num_documents:,} ({facts['single_sentence_documents']:,} of one "
        "sentence)",
        "sentences": f"{store.num_sentences:,}",
        "tokens": f"{store.num_tokens:,}",
        "size": f"{human_bytes(size)} in {counted(len(facts['shards']), 'shard')}, "
        f"{size / store.num_tokens:.2f} bytes a token",
        "unigram entropy": f"{store.unigram_entropy:.3f} nats a token: the loss to beat",
        "dropped": f"{dropped['documents_without_tokens']:,} documents and "
        f"{dropped['sentences_without_tokens']:,} sentences without a token; "
        f"{facts['cut_sentences']:,} sentences cut",
    }
    if "names" in corpus:
        rows = {"corpus": f"{', '.join(corpus['names'])}, {facts.get('language')}", **rows}
    if share := store.duplicate_share:
        rows["duplicates"] = f"{share:.1%} of the documents are copies of another, or nearly"
    return rows


def _lengths(store: TokenStore) -> dict[str, str]:
    """List how long sentences and documents are."""
    histogram = np.zeros(1 << 16, np.int64)
    for chunk in store.chunks():
        histogram += np.bincount(np.asarray(chunk.sentence_lengths), minlength=len(histogram))
    ranks = np.ceil(np.array(_QUANTILES) * store.num_sentences).astype(np.int64)
    sentences = np.searchsorted(np.cumsum(histogram), np.maximum(ranks, 1))
    step = -(-store.num_documents // _SAMPLED_DOCUMENTS)
    lengths = []
    for chunk in store.chunks():
        first = -chunk.first_document % step
        lengths.append(np.diff(np.asarray(chunk.token_offsets))[first::step])
    documents = np.quantile(np.concatenate(lengths), _QUANTILES, method="inverted_cdf")
    names = [f"{q:.0%}" for q in _QUANTILES[:-1]] + ["longest"]
    sampled = f" (every {step}th document looked at)" if step > 1 else ""
    return {
        "tokens in a sentence:": _quantiles(names, sentences),
        "tokens in a document:": _quantiles(names, documents) + sampled,
    }


def _quantiles(names: Sequence[str], values: Any) -> str:
    return ", ".join(f"{name} {int(value):,}" for name, value in zip(names, values, strict=True))


def _frequent(store: TokenStore, tokenizer: Tokenizer) -> str:
    """List the most frequent tokens."""
    counts = store.unigram_counts
    top = np.argsort(-counts, kind="stable")[:12]
    shown = (f"{tokenizer.names[i]} {counts[i] / store.num_tokens:.2%}" for i in top if counts[i])
    used = int((counts > 0).sum())
    text = f"{', '.join(shown)}; {used:,} of {store.vocab_size:,} tokens occur"
    if (unknown := tokenizer.unk_token_id) is not None:
        share = counts[unknown] / store.num_tokens
        text += f", {share:.3%} are {tokenizer.id_to_token(unknown)}"
    return text
