"""Describe a token store or a model directory, as lines and as a page: ``inspect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertine.core.console import Report, human_bytes, plural, visible_list
from bertine.core.contrib import job_of_model
from bertine.core.errors import BertineError
from bertine.core.loss_names import TERMS
from bertine.core.model_folders import locate
from bertine.core.published import how_to_get
from bertine.corpora.batch import Batch
from bertine.corpora.collators import CausalLMCollator, MakeCorruption, TokenMasking
from bertine.corpora.formats import PAIR_FORMATS, Format
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.sequence_collators import PermutedLMCollator
from bertine.corpora.sequences import Instance
from bertine.corpora.store import TokenStore
from bertine.families.presets import (
    PRESETS,
    architecture_line,
    describe_preset,
    describe_presets,
)
from bertine.hub.model_directory import TASK, TaskInfo, model_folder
from bertine.hub.weights import origin_line, read_facts, read_settings, weight_files
from bertine.models.config import Config
from bertine.models.config_file import ConfigFile
from bertine.models.family import family_of
from bertine.models.precision import kernel_line, machine_line
from bertine.options.pretraining import InspectionOptions, InstanceForm, InstanceSettings
from bertine.options.verbs import takes_options
from bertine.reports.html import Fact, FactList, Page, Section, Segment, TextCard, TextCards
from bertine.reports.text_input import OF_STORES, TextInput, check_options, read_text
from bertine.tokenization.base import Frame, bare, goes_on
from bertine.tokenization.sentences import remove_cjk_spaces
from bertine.tokenization.tokenizer import Tokenizer

# Marked tokens: the tokens of a sequence as the model sees them, and their changes.

#: The kinds of tokens: see :class:`MarkedToken`.
Kind = Literal["plain", "added", "masked", "replaced", "kept"]


@dataclass(frozen=True)
class MarkedToken:
    """A token of a sequence.

    Attributes:
        text: the token that the model sees, a name as in :mod:`bertine.tokenization.base`.
        kind: "added" for the special tokens of the format; "masked", "replaced" (by another token)
            or "kept" for a token to be predicted; else "plain".
        was: the token to be predicted; the text itself where there is none.
    """

    text: str
    kind: Kind
    was: str

    @property
    def continues(self) -> bool:
        """Whether it is a piece that continues the word of the token before it."""
        return goes_on(self.was)


def marked_segments(
    batch: Batch, row: int, instance: Instance, tokenizer: Tokenizer, frame: Frame
) -> list[list[MarkedToken]]:
    """Mark the tokens of sequence `row`.

    Args:
        batch: a batch of pre-training.
        instance: the instance of that sequence.
        frame: the special tokens of its format.

    Returns:
        The tokens of each segment with the special tokens after it; the first segment also has
        those at the beginning of the sequence.
    """
    first = row * batch.input_ids.shape[1]
    labels = {position - first: label for position, label in _predicted(batch) if position >= first}
    ids = batch.input_ids[row].tolist()
    segments: list[list[MarkedToken]] = []
    starts = frame.starts([len(segment) for segment in instance.segments])
    real = sum(map(len, instance.segments)) + frame.added(len(starts))
    column = 0
    for start, segment, following in zip(
        starts, instance.segments, [*starts[1:], None], strict=True
    ):
        end = real if following is None else following
        tokens = []
        for place in range(column, end):
            text = tokenizer.name_at(ids[place], place == start)
            inside = start <= place < start + len(segment)
            kind: Kind = "plain" if inside else "added"
            was = text
            if place in labels:
                was = tokenizer.name_at(labels[place], place == start)
                kind = "kept" if ids[place] == labels[place] else "replaced"
                if ids[place] == tokenizer.mask_token_id:
                    kind = "masked"
            tokens.append(MarkedToken(text, kind, was))
        segments.append(tokens)
        column = end
    return segments


def _predicted(batch: Batch) -> Iterator[tuple[int, int]]:
    """Yield each token to be predicted, with its index in the flattened batch."""
    for name, term in TERMS.items():
        if term.copied and f"{name}_positions" in batch.targets:
            targets = (batch.targets[f"{name}_{part}"] for part in ("positions", "labels"))
            yield from zip(*(target.tolist() for target in targets), strict=True)


def segment_names(instance: Instance, format: Format) -> Sequence[str]:
    """Name the segments: A and B, or by their documents."""
    return ("A", "B") if format.pairs else [f"document {n}" for n in instance.documents]


def heading(instance: Instance, format: Format) -> str:
    """Describe the origin of an instance in a line."""
    if format.pairs:
        a, b = instance.documents
        label = ""
        if format.label is not None and instance.label is not None:
            meaning = format.label.meanings[instance.label]
            label = f"{format.label.target} {instance.label} ({meaning}); "
        return (
            f"A from document {a}, B from document {b}; {label}"
            f"{instance.num_truncated} tokens cut off"
        )
    several = "s" if len(instance.documents) > 1 else ""
    tokens = sum(len(segment) for segment in instance.segments)
    return f"{tokens} tokens of document{several} {', '.join(map(str, instance.documents))}"


def joined(tokens: Sequence[MarkedToken]) -> list[bool]:
    """Return which tokens belong to the word of the token before. Where a segment begins within a
    word, there is no token before its first piece."""
    before = [None, *tokens[:-1]]
    return [
        token.continues and last is not None and last.kind != "added"
        for last, token in zip(before, tokens, strict=True)
    ]


def gaps(tokens: Sequence[MarkedToken]) -> list[str]:
    """Return the separator before each token: a space, or nothing at the beginning, within a word
    and between Chinese characters."""
    spaces = [""]
    for last, token, inside in zip(tokens, tokens[1:], joined(tokens)[1:], strict=False):
        meet = f"{last.was[-1:]} {token.was[:1]}"
        chinese = "added" not in (last.kind, token.kind) and remove_cjk_spaces(meet) != meet
        spaces.append("" if inside or chinese else " ")
    return spaces[: len(tokens)]


def as_text(tokens: Sequence[MarkedToken]) -> str:
    """Write marked tokens in a line: a continuing piece is joined to the one before, and so are
    Chinese characters; ``[MASK→word]`` is masked, ``[other→word]`` replaced, ``[=word]`` kept."""
    text = ""
    for token, inside, gap in zip(tokens, joined(tokens), gaps(tokens), strict=True):
        if token.kind in ("plain", "added"):
            text += gap + (bare(token.text) if inside else token.text)
            continue
        shown = "MASK" if token.kind == "masked" else token.text
        shown = f"={token.was}" if token.kind == "kept" else f"{shown}→{token.was}"
        text += f"{' ' if inside else gap}[{shown}]"
    return text


#: The objectives without masks, and their predictions.
_GUESSED: dict[MakeCorruption, str] = {
    CausalLMCollator: "each token is guessed from those before it",
    PermutedLMCollator: "a sixth of the tokens is guessed, in any order",
}
#: Documents whose length is measured; in a larger store, evenly spaced ones.
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
        path: the folder of the store.
        num_instances: the number of pre-training instances shown.
        settings: the settings of the instances; a run of ``pretrain`` with the same settings has
            the same instances.
        html: a file for the same description as a page; written completely or not at all.

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
        corruption, settings = CausalLMCollator, replace(settings, input_format="running-text")
    elif tokenizer.template.sums_up_at_end:  # for models that predict in any order
        corruption = PermutedLMCollator
    if settings.input_format in PAIR_FORMATS and store.num_documents < 2:
        instances: list[_MarkedInstance] = []
        facts["no instances:"] = "next-sentence prediction needs at least two documents"
    else:
        # With the batch size of `pretrain`, as the masks of a batch are drawn together.
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
        name: a name such as "instance 0".
        heading: the description of its origin.
        segments: the name of each segment, and its tokens.
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
    """Make the page: above every token to be predicted is the original one."""
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
        command="inspect",
    )


def _card(instance: _MarkedInstance) -> TextCard:
    kinds = [token.kind for _, tokens in instance.segments for token in tokens]
    counts = (f"{kinds.count(kind)} {kind}" for kind in ("masked", "replaced", "kept"))
    about = f"{instance.heading}; {plural(len(kinds), 'token')}, {', '.join(counts)}"
    lines = [(name, _segments(tokens)) for name, tokens in instance.segments]
    return TextCard(lines, [(about, "", "")], title=instance.name)


def _segments(tokens: Sequence[MarkedToken]) -> list[Segment]:
    """Write tokens as segments of a text, each after the space that precedes it."""
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
    """List the facts of the manifest, by name."""
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
        "size": f"{human_bytes(size)} in {plural(len(facts['shards']), 'shard')}, "
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
    """List the lengths of sentences and documents."""
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


# Model directories: their description. Only the header of a safetensors file is read, so a large
# model is described at once.


def _weights(folder: Path, config: Config) -> list[str]:
    family = family_of(config.model_type)
    names = family.names
    # Copies and constants that a file may hold besides the parameters.
    constants = (
        file_name
        for head, of_head in names.heads.items()
        if of_head.constant
        for _, file_name in of_head.rows(head)
    )
    passive = ("position_ids", *(copy for copy, _ in names.copies), *constants)
    tied = names.tied(config)
    of_embeddings = tuple(
        theirs for ours, theirs in (*names.tables, *names.modules) if "embeddings." in ours
    )
    counts: dict[str, int] = {}
    dtypes: set[str] = set()
    tensors = read_facts(folder)
    for original, name in names.bare_names(tensors).items():
        facts = tensors[original]
        if name.endswith(passive) or name in tied:
            continue
        part = names.part_of(name) or "unknown"
        if name.startswith(("embeddings.", *of_embeddings)):
            part = "embeddings"
        elif part == "encoder" and name.startswith("decoder."):
            part = "decoder"
        counts[part] = counts.get(part, 0) + facts.size
        dtypes.add(facts.dtype)
    titles = {part: part for part in ("embeddings", "encoder", "decoder", "pooler")}
    titles |= {head: kind.title for head, kind in family.heads.items()} | {"unknown": "unknown"}
    by_part = ", ".join(
        f"{title} {counts[part]:,}" for part, title in titles.items() if part in counts
    )
    files = weight_files(folder)
    size = sum(file.stat().st_size for file in files) / 1e6
    shards = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return [
        f"parameters: {sum(counts.values()):,} ({by_part})",
        f"weights: {files[0].name}{shards}, {size:.1f} MB, {', '.join(sorted(dtypes))}",
    ]


def _task(folder: Path, settings: ConfigFile) -> list[str]:
    labels = settings.labels if "Classification" in settings.architecture else ()
    lines = []
    if (folder / TASK).exists():
        task = TaskInfo.read(folder / TASK)
        labels = task.labels
        facts = [task.name]
        if task.text_columns:
            facts.append(f"text from {' and '.join(task.text_columns)}")
        if task.label_column:
            facts.append(f"label from {task.label_column}")
        if task.max_length:
            facts.append(f"at most {task.max_length} tokens")
        lines.append(f"task: {', '.join(facts)}")
        if task.settings:
            settled = ", ".join(f"{key} {value}" for key, value in task.settings.items())
            lines.append(f"settings: {settled}")
        if task.training:
            trained = ", ".join(
                f"{key} {value}"
                for key, value in task.training.items()
                if isinstance(value, str | int | float)
            )
            lines.append(f"training: {trained or f'see {TASK}'}")
    if labels:
        more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
        lines.append(f"labels ({len(labels)}): {visible_list(labels[:20])}{more}")
    return lines


def describe_model(path: str | Path) -> list[str]:
    """Describe a model directory: sizes, parameters, tokenizer, task.

    Raises:
        BertineError: `path` is not a model directory, or one of its files is broken.
    """
    folder = model_folder(path)
    settings = read_settings(folder)
    tokenizer = Tokenizer.load(folder)
    case = "lowercased" if tokenizer.lowercase else "cased"
    origin = origin_line(folder, lowercase=tokenizer.lowercase)
    saved_as = f"saved as: {settings.architecture}" if settings.architecture else ""
    return [
        f"model: {folder}",
        architecture_line(settings.config),
        *([saved_as] if saved_as else []),
        *([f"checkpoint: {origin}"] if origin else []),
        *_weights(folder, settings.config),
        f"tokenizer: {tokenizer.title}, {case}, {tokenizer.vocab_size:,} pieces, "
        f"fingerprint {tokenizer.fingerprint[:12]}",
        *_task(folder, settings),
    ]


# ``inspect``: a token store, a model, a text, or a preset.


@dataclass(frozen=True, repr=False)
class Inspection(Report):
    """The description of the contents of `path`."""

    path: Path
    text: str

    def lines(self) -> list[str]:
        """List the lines of the description."""
        return self.text.splitlines()


@takes_options()
def inspect(
    path: Path | str | None = None,
    *,
    options: InspectionOptions,
) -> Inspection | TextInput:
    """Describe a token store, a model, what a model reads of a text, or a preset.

    Args:
        path: a folder that ``prepare`` wrote, a model of any kind, or the name of a preset; a
            folder of that name comes first. None: all presets, or this machine.
        options: for a store, the options of the instances that are shown; for a model, the text.

    Returns:
        The description; of a text, :class:`~bertine.reports.text_input.TextInput`.

    Raises:
        BertineError: `path` is none of these, or is damaged; an option is for another of them;
            a text cannot be read as it is asked.
    """
    if path is None or options.presets:
        what = "all presets are" if options.presets else "without a path this machine is"
        check_options(f"{what} shown", options, {"presets"})
        machine = [f"machine: {machine_line()}", f"layers in 8 bits: {kernel_line()}"]
        return Inspection(Path(), "\n".join(describe_presets() if options.presets else machine))
    given, path = str(path), locate(path)
    if (path / "manifest.json").is_file():
        check_options(f"{given}: is a store", options, OF_STORES)
        lines = inspect_store(
            path,
            num_instances=options.num_instances,
            settings=InstanceSettings(**InstanceForm.of(options).values(), seed=options.seed),
            html=options.html,
        )
    elif (describe := job_of_model(path, "inspect")) is not None:
        check_options(f"{given}: is a model of another kind", options, ())
        lines = [f"model: {path}", *describe(path).lines()]
    elif _is_model(path) or (path / "run.json").is_file():
        if options.text is not None:
            return read_text(given, options)
        check_options(f"{given}: is a model", options, ())
        lines = describe_model(path)
    elif given in PRESETS and not path.exists():
        check_options(f"{given}: is a preset, without weights", options, ())
        lines = describe_preset(given)
    elif not path.exists():
        raise BertineError(how_to_get(given) or f"{path}: no such folder")
    elif any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise BertineError(
            f"{path}: is a tokenizer alone; inspect a store that 'bertine prepare' made with it"
        )
    else:
        raise BertineError(
            f"{path}: neither a token store (it has no manifest.json) nor a model directory "
            "(it has no config.json)"
        )
    return Inspection(path, "\n".join(lines))


def _is_model(path: Path) -> bool:
    from bertine.hub.weights import is_model_directory

    return is_model_directory(path)
