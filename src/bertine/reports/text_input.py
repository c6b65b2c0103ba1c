"""Show what a model reads of a text: its pieces with their numbers, masks, attention, and the cost.

The numbers are those that the model is given: the ids and segments of its batch, the rows of its
table of positions. Masks are made by the corruption of the model's own pre-training.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from bertine.core.console import Report, aligned, human_bytes, plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.strict_json import Jsonable
from bertine.core.text import visible
from bertine.corpora.batch import Batch
from bertine.corpora.collators import Draws
from bertine.corpora.sequences import Instance
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.models.heads import PAIR_CLASSIFIER, Model
from bertine.models.precision import machine_line, resolve_device
from bertine.objectives import choose
from bertine.options.declare import declared
from bertine.options.pretraining import (
    InspectionOptions,
    InstanceForm,
    InstanceSettings,
    ReadTexts,
)
from bertine.reports.html import Figure, Figures, Page, PageTable, Section
from bertine.reports.plots import heat_map, sum_of_embeddings
from bertine.tokenization.tokenizer import Encoding, Tokenizer

#: Most forward passes that are timed, and the seconds after which no further one begins.
_PASSES, _ENOUGH = 5, 2.0
#: Most tokens of a picture of attention: more could not be read.
_DRAWN = 64
#: The columns of the table that hold numbers.
_NUMBERS = ("id", "segment", "position")


@dataclass(frozen=True)
class InputToken(Jsonable):
    """A token as the model reads it.

    Attributes:
        piece: its name for people, with ``##`` before a piece that continues a word.
        id: its number in the vocabulary.
        segment: its token type; None: the model has none.
        position: its row in the table of positions; None: the model has no such table.
        special: whether it is not of the text.
        change: "masked", "replaced", "kept" or "guessed" where it is to be predicted; else "".
        was: the piece that is asked for; "" where none is.
    """

    piece: str
    id: int
    segment: int | None
    position: int | None
    special: bool
    change: str = ""
    was: str = ""

    @property
    def asked(self) -> str:
        """What is asked for in its place, and how it was changed."""
        return f"{visible(self.was)} ({self.change})" if self.change else ""


@dataclass(frozen=True, repr=False)
class TextInput(Report):
    """What a model reads of a text.

    Attributes:
        model: its name or folder.
        title: its type, such as "BERT".
        tokens: in their order.
        notes: how it knows positions and segments, what was masked, and what was cut off.
        cost: time and memory of one forward pass, and the machine.
        attention: what each token attends to, [T, T], the attending token first, by the name of the
            layer and head; {}: not asked for.
        html: the page that was written; None: none.
    """

    model: str
    title: str
    tokens: list[InputToken]
    notes: list[str]
    cost: str
    attention: dict[str, list[list[float]]]
    html: str | None = None

    @property
    def columns(self) -> list[list[str]]:
        """The table of the tokens by columns, each with its name first."""
        tokens = self.tokens
        columns = [["piece", *(visible(token.piece) for token in tokens)]]
        for name in _NUMBERS:
            if getattr(tokens[0], name) is not None:
                columns.append([name, *(str(getattr(token, name)) for token in tokens)])
        if any(token.change for token in tokens):
            columns.append(["to predict", *(token.asked for token in tokens)])
        if self.attention:
            name, weights = list(self.attention.items())[-1]
            columns.append([f"attends to ({name})", *map(self.nearest, weights)])
        return columns

    def nearest(self, weights: Sequence[float]) -> str:
        """Name the three tokens that get most of the attention `weights` [T] of one token."""
        best = sorted(range(len(weights)), key=lambda place: -weights[place])[:3]
        return ", ".join(
            f"{visible(self.tokens[place].piece)} {weights[place]:.2f}" for place in best
        )

    def lines(self) -> list[str]:
        """Return the table of the tokens, and the facts below it."""
        columns = self.columns
        left = [n for n, column in enumerate(columns) if column[0] not in _NUMBERS]
        table = aligned(zip(*columns, strict=True), left, head=True)
        page = [] if self.html is None else [f"page: {self.html}"]
        first = f"{self.model} ({self.title}) reads {plural(len(self.tokens), 'token')}:"
        return [first, *table, *self.notes, f"cost: {self.cost}", *page]


#: The options of a store, and what the others are for.
OF_STORES = {"html", *(entry.name for entry in declared(InspectionOptions))}
OF_STORES -= {entry.name for entry in declared(ReadTexts) if entry.name != "html"}
_FOR = {"html": "a store or a text", "layer": "attention", "head": "attention"}
_FOR |= dict.fromkeys(("text", "mask", "attention"), "a text with a model")
_FOR |= dict.fromkeys(("whole_word_mask", "ngrams", "seed"), "a store, or a text with masks")


def check_options(what: str, options: InspectionOptions, known: Collection[str]) -> None:
    """Refuse options that are not `known`, as they would have no effect on `what` is shown.

    Raises:
        BertineError: one is given.
    """
    for name in options.changed().keys() - known:
        raise BertineError(f"{what}, but {option(name)} is for {_FOR.get(name, 'a store')}")


def read_text(path: str, options: InspectionOptions) -> TextInput:
    """Read a text, or a pair, as the model at `path` does; write the page that is asked for.

    Raises:
        BertineError: no model is there, or it cannot read a pair, be masked or show attention as it
            is asked to; a text is empty; the page cannot be written.
    """
    known = {"text", "mask", "attention", "html"}
    known |= {"whole_word_mask", "ngrams", "seed"} if options.mask else set()
    known |= {"layer", "head"} if options.attention else set()
    check_options(f"{path}: a text is read", options, known)
    texts = list(options.text or ())
    if not 1 <= len(texts) <= 2 or not all(map(str.strip, texts)):
        raise BertineError(f"{option('text')} takes one text or two, none of them empty")
    loaded = load_model(path)
    model, tokenizer, config = loaded.model, loaded.tokenizer, loaded.config
    if len(texts) > 1 and (config.num_segments < 2 or PAIR_CLASSIFIER in model.heads):
        raise BertineError(f"{path}: this model reads one text at a time; give one")
    longest = config.longest_input
    longest = longest if loaded.task is None else loaded.task.input_length(longest)
    encoding = tokenizer.encode(*texts, max_length=longest)
    if 0 not in encoding.special_tokens_mask:
        raise BertineError(f"{option('text')}: the model has no piece for it; give another text")
    batch = Batch(
        torch.tensor([encoding.input_ids]),
        torch.ones(1, len(encoding.input_ids), dtype=torch.bool),
        torch.tensor([encoding.token_type_ids]),
    )
    notes = [f"positions: {config.positions}"] if config.positions else []
    if options.mask:
        batch, note = _masked(batch, encoding, loaded, options)
        notes.append(f"masks: {note}")
    tokens = list(_tokens(batch, model, tokenizer, len(texts)))
    notes[:0] = list(_about(tokens, loaded))
    if encoding.num_truncated:
        cut = plural(encoding.num_truncated, "piece", "is", "are")
        notes.append(f"{cut} cut off: the model reads at most {longest} tokens")
    cost = _cost(model, batch)
    result = TextInput(path, config.title, tokens, notes, cost, {})
    if options.attention:
        result = replace(result, attention=_attention(path, model, batch, options))
    if options.html is not None:
        result = replace(result, html=str(options.html))
        _page(result, texts).write(options.html)
    return result


def _about(tokens: Sequence[InputToken], loaded: LoadedModel) -> Iterator[str]:
    """Describe how the model tells texts apart and where positions begin, if that needs words."""
    config = loaded.config
    if tokens[0].segment is None:
        yield "segments: none; two texts are told apart by the special tokens between them"
    elif config.type_vocab_size == 1:
        yield "segments: one for all; two texts are told apart by the special tokens between them"
    elif config.positions:
        yield "segments: compared in the attention, which has no table of them"
    if (first := tokens[0].position) and not config.encodes_and_decodes:
        yield f"positions: begin at {first}, behind that of padding, {config.pad_token_id}"
    if config.encodes_and_decodes:
        yield f"positions: begin at {first}; the decoder reads the same text, a place later"


def _masked(
    batch: Batch, encoding: Encoding, loaded: LoadedModel, options: InspectionOptions
) -> tuple[Batch, str]:
    """Return a text as the objective of pre-training corrupts it, and what that does, in words."""
    objective, tokenizer = choose(loaded.config)[0], loaded.tokenizer
    texts = len(options.text or ())
    if objective.name == "clm":
        return batch, "none; each token is guessed from those before it"
    ids, types = np.array(encoding.input_ids), np.array(encoding.token_type_ids)
    ordinary = np.array(encoding.special_tokens_mask) == 0
    segments = tuple(ids[ordinary & (types == kind)] for kind in range(texts))
    pair = texts > 1 and objective.name != "denoising"  # which reads running text
    form = InstanceForm.of(
        options,
        input_format="segment-pair" if pair else "full-sentences",
        max_seq_length=max(8, len(ids)),
    )
    settings = InstanceSettings(**form.values(), seed=options.seed, mask_split=objective.mask_split)
    # The label of pairs, here "next", is not shown.
    instance = Instance(segments, (0,) * texts, label=0)
    collator = objective.corruption(tokenizer, settings)
    batch = collator([instance], Draws(options.seed, 0, ((0, 1),)))
    if objective.name == "plm":
        return batch, "none; a sixth of the tokens is guessed, in any order, each then known"
    if objective.name == "denoising":
        hidden = plural(batch.input_ids[0].tolist().count(tokenizer.mask_token_id), "mask")
        return batch, f"{hidden}, each for a run of tokens; the decoder is to write the whole text"
    shares = zip(settings.shares, ("masked", "replaced at random", "kept"), strict=True)
    how = ", ".join(f"{share:.0%} {name}" for share, name in shares if share)
    return batch, f"{settings.masked_lm_prob:.0%} of the tokens are to be predicted, of these {how}"


def _tokens(batch: Batch, model: Model, tokenizer: Tokenizer, texts: int) -> Iterator[InputToken]:
    """Yield the tokens of a batch of one sequence of one text or two, with what is asked for."""
    ids = batch.input_ids[0].tolist()
    positions, segments = (
        [None] * len(ids) if numbers is None else numbers[0].tolist()
        for numbers in model.backbone.numbers_of(batch.input_ids, batch.token_type_ids)
    )
    frame = tokenizer.template.frame(texts)
    around = {*frame.before, *frame.between, *frame.after}
    asked: dict[int, int] = {}
    for name in ("mlm", "plm"):
        parts = (batch.targets.get(f"{name}_{part}") for part in ("positions", "labels"))
        asked |= zip(*(part.tolist() for part in parts if part is not None), strict=True)
    for place, (index, position, segment) in enumerate(zip(ids, positions, segments, strict=True)):
        begins = not place or ids[place - 1] in around
        change, was = "", ""
        if place in asked:
            was = tokenizer.name_at(asked[place], begins)
            change = "kept" if index == asked[place] else "replaced"
            change = "masked" if index == tokenizer.mask_token_id else change
            change = "guessed" if "plm_labels" in batch.targets else change
        piece = tokenizer.name_at(index, begins)
        yield InputToken(piece, index, segment, position, index in around, change, was)


def _cost(model: Model, batch: Batch) -> str:
    """Measure forward passes of a batch, and describe their cost and the machine."""
    device = resolve_device(None)
    model.to(device)
    batch, seconds = batch.to(device), list[float]()
    began = time.perf_counter()
    with torch.inference_mode():
        while len(seconds) <= _PASSES and (not seconds or time.perf_counter() - began < _ENOUGH):
            start = time.perf_counter()
            model.encode(batch).last_hidden_state[0, 0, 0].item()  # waits for a GPU too
            seconds.append(time.perf_counter() - start)
    passes = seconds[1:] or seconds  # the first one prepares
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    where = plural(torch.get_num_threads(), "thread")
    if device.type == "cuda":
        where = f"on the GPU, {human_bytes(torch.cuda.max_memory_allocated())} of its memory"
    return (
        f"{1000 * median(passes):.1f} ms (median of {plural(len(passes), 'pass')} of this text "
        f"alone, fp32, {where}), weights {human_bytes(size)}; {machine_line()}"
    )


def _attention(
    path: str, model: Model, batch: Batch, options: InspectionOptions
) -> dict[str, list[list[float]]]:
    """Compute what the tokens of a batch of one text attend to, by layer.

    Raises:
        BertineError: there is no such layer or head, or attention cannot be shown.
    """
    config, head = model.config, options.head
    layers, heads = len(config.passes), config.num_attention_heads
    for name, value, most in (("layer", options.layer, layers), ("head", head, heads)):
        if value is not None and value > most:
            has = plural(most, name)
            raise BertineError(f"{path}: {option(name)} is {value}, but the model has {has}")
    chosen = range(layers) if options.layer is None else [options.layer - 1]
    if not model.backbone.shows_attention:
        raise BertineError(f"{path}: the attention of {config.title} cannot be shown")
    with torch.inference_mode():
        maps = model.attention(batch.to(next(model.parameters()).device), chosen)
    of_heads = f", mean of {plural(heads, 'head')}" if head is None else f", head {head}"
    shown = [weights.mean(0) if head is None else weights[head - 1] for weights in maps]
    return {
        f"layer {layer + 1}{of_heads}": weights.tolist()
        for layer, weights in zip(chosen, shown, strict=True)
    }


def _page(shown: TextInput, texts: Sequence[str]) -> Page:
    """Make the page: the table, the picture of the sum, and those of attention."""
    tokens, columns = shown.tokens, shown.columns
    if shown.attention and len(tokens) > _DRAWN:
        raise BertineError(
            f"attention is drawn of at most {_DRAWN} tokens, but the text has {len(tokens)}; "
            "give a shorter one"
        )
    summed = tokens[0].position is not None
    added = ("piece", "segment", "position") if summed else ("piece",)
    rows = {name: column for name, *column in columns if name in added}
    if "segment" in rows:
        rows["segment"] = ["ABC"[int(number)] for number in rows["segment"]]
    spoken = "; ".join(" ".join(column) for column in rows.values())
    picture = Figure(
        f"What the first layer reads: the {'sum of the ' if summed else ''}embeddings",
        sum_of_embeddings(rows, [token.was for token in tokens]),
        f"The embeddings of the tokens, from left to right: {spoken}.",
        "Each box is a row of a table; above a piece that is to be predicted is the original.",
    )
    facts = [*shown.notes, f"cost: {shown.cost}"]
    heads, *cells = zip(*columns, strict=True)
    numbers = [n for n, name in enumerate(heads) if name in _NUMBERS]
    sections = [
        Section("The picture", [Figures([picture], columns=1, wide=True)]),
        Section("The numbers", [PageTable(heads, cells, numbers)], ". ".join(facts)),
    ]
    if shown.attention:
        names = [token.piece for token in tokens]
        # Special tokens take most of it, and would leave the pieces of the text pale.
        drawn = [n for n, token in enumerate(tokens) if not token.special] or range(len(tokens))
        maps = [
            Figure(
                name.capitalize(),
                heat_map(names, names, weights, max(row[n] for row in weights for n in drawn)),
                "; ".join(
                    f"{piece} attends to {shown.nearest(row)}"
                    for piece, row in zip(names, weights, strict=True)
                ),
            )
            for name, weights in shown.attention.items()
        ]
        lead = (
            "Each row is a token, and its cells what it attends to: the stronger, the more; "
            "full colour is the most that a piece of the text gets, or above it. "
            "Attention shows where heads look; it is no explanation of an answer."
        )
        figures = Figures(maps, columns=2, wide=len(tokens) > 24)
        sections.insert(1, Section("Attention", [figures], lead))
    return Page(
        title=" / ".join(texts),
        lead=f"As {shown.title} in {shown.model} reads it.",
        sections=sections,
        command="inspect",
    )
