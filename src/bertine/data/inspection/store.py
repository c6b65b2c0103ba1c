"""What is in a token store, and what a model will see of it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertine.data.inspection.marks import as_text, heading, marked_segments, segment_names
from bertine.data.inspection.page import ShownInstance, write_page
from bertine.data.instances.formats import PAIR_FORMATS
from bertine.data.instances.pretraining import PretrainingData
from bertine.data.store import TokenStore
from bertine.options.instances import InstanceSettings
from bertine.terminal.console import human_bytes
from bertine.text.tokenizer import Tokenizer

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
    """Lines that show a store's facts, its lengths and frequent tokens, and some instances.

    A masked token is shown as ``[MASK→word]``, one replaced at random as ``[other→word]``, one
    chosen but kept as ``[=word]``. The whole store is read first and compared with its checksums
    and counts.

    Args:
        path: the store's folder.
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
    lines = [*_facts(store), *_lengths(store), _frequent(store, tokenizer)]
    shown: list[ShownInstance] = []
    settings = settings or InstanceSettings()
    if settings.input_format in PAIR_FORMATS and store.num_documents < 2:
        remark = "no instances: next-sentence prediction needs at least two documents"
    else:
        # With the batch size of `pretrain`: a batch's masks are drawn together.
        data = PretrainingData(store, tokenizer, settings)
        shown, remark = _instances(data, tokenizer, num_instances)
    if html is not None:
        write_page(html, str(store.path), [*lines, remark], shown, tokenizer.mask_text)
    lines.append(remark)
    for instance in shown:
        lines += ["", f"{instance.name}: {instance.heading}"]
        lines += [f"  {name}: {as_text(tokens)}" for name, tokens in instance.segments]
    if html is not None:
        lines += ["", f"page: {html}"]
    return lines


def _instances(
    data: PretrainingData, tokenizer: Tokenizer, count: int
) -> tuple[list[ShownInstance], str]:
    """The first `count` instances, marked, and a line about all of them."""
    shown: list[ShownInstance] = []
    for step in range(-(-count // data.batch_size)):
        batch = data.batch(step)
        for row, instance in enumerate(data.instances(step)[: count - len(shown)]):
            segments = zip(
                segment_names(instance, data.format),
                marked_segments(batch, row, instance, tokenizer, data.frame),
                strict=True,
            )
            name = f"instance {len(shown)}"
            shown.append(ShownInstance(name, heading(instance, data.format), list(segments)))
    words = "whole words" if data.settings.whole_word_mask else "single tokens"
    return shown, (
        f"instances      {data.settings.input_format} of at most {data.max_seq_length} tokens, "
        f"{data.instances_per_epoch:,} an epoch; {data.settings.masking} masking of {words}"
    )


def _facts(store: TokenStore) -> list[str]:
    facts = store.manifest
    size = sum(shard["bytes"] for shard in facts["shards"])
    corpus: dict[str, Any] = facts.get("corpus", {})
    lines = [
        f"token store {store.path} (format version {facts['format_version']}, written by Bertine "
        f"{facts['bertine_version']}; checksums and counts verified)",
        f"tokenizer      {facts['tokenizer_fingerprint'][:12]}, {store.vocab_size:,} tokens, ids "
        f"stored as {facts['token_dtype']}",
        f"documents      {store.num_documents:,} "
        f"({facts['single_sentence_documents']:,} of one sentence)",
        f"sentences      {store.num_sentences:,}",
        f"tokens         {store.num_tokens:,}",
        f"size           {human_bytes(size)} in {len(facts['shards'])} "
        f"shard{'' if len(facts['shards']) == 1 else 's'}, "
        f"{size / store.num_tokens:.2f} bytes a token",
        f"unigram entropy {store.unigram_entropy:.3f} nats a token: the loss to beat",
    ]
    if "names" in corpus:
        lines.insert(1, f"corpus         {', '.join(corpus['names'])}, {facts.get('language')}")
    dropped = facts["dropped"]
    lines.append(
        f"dropped        {dropped['documents_without_tokens']:,} documents and "
        f"{dropped['sentences_without_tokens']:,} sentences without a token; "
        f"{facts['cut_sentences']:,} sentences cut"
    )
    if store.duplicate_share:
        lines.append(
            f"duplicates     {store.duplicate_share:.1%} of the documents are copies of another, "
            "or nearly"
        )
    return lines


def _lengths(store: TokenStore) -> list[str]:
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
    return [
        f"tokens in a sentence: {_quantiles(names, sentences)}",
        f"tokens in a document: {_quantiles(names, documents)}"
        + (f" (every {step}th document looked at)" if step > 1 else ""),
    ]


def _quantiles(names: Sequence[str], values: Any) -> str:
    return ", ".join(f"{name} {int(value):,}" for name, value in zip(names, values, strict=True))


def _frequent(store: TokenStore, tokenizer: Tokenizer) -> str:
    counts = store.unigram_counts
    top = np.argsort(-counts, kind="stable")[:12]
    shown = (f"{tokenizer.names[i]} {counts[i] / store.num_tokens:.2%}" for i in top if counts[i])
    used = int((counts > 0).sum())
    line = f"most frequent: {', '.join(shown)}; {used:,} of {store.vocab_size:,} tokens occur"
    if (unknown := tokenizer.unk_token_id) is None:
        return line
    share = counts[unknown] / store.num_tokens
    return f"{line}, {share:.3%} are {tokenizer.id_to_token(unknown)}"
