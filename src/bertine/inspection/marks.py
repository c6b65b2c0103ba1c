"""Mark each token of a sequence, as the model sees it, with what was done to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bertine.data.batch import Batch
from bertine.data.instances.formats import Format
from bertine.data.instances.instance import Instance
from bertine.terms import TERMS
from bertine.text.pieces import bare, goes_on
from bertine.text.spacing import close_up
from bertine.text.template import Frame
from bertine.text.tokenizer import Tokenizer

#: What a token is: see :class:`MarkedToken`.
Kind = Literal["plain", "added", "masked", "replaced", "kept"]


@dataclass(frozen=True)
class MarkedToken:
    """A token of a sequence.

    Attributes:
        text: what the model sees, a name as in :mod:`bertine.text.pieces`.
        kind: "added" for the special tokens of the format; "masked", "replaced" (by another
            token) or "kept" for one to be predicted; else "plain".
        was: what is to be predicted; the text itself where nothing is.
    """

    text: str
    kind: Kind
    was: str

    @property
    def continues(self) -> bool:
        """Whether it is a piece of the word that the token before it belongs to."""
        return goes_on(self.was)


def marked_segments(
    batch: Batch, row: int, instance: Instance, tokenizer: Tokenizer, frame: Frame
) -> list[list[MarkedToken]]:
    """Mark the tokens of sequence `row`.

    Args:
        batch: of pre-training.
        instance: what that sequence was made of.
        frame: the special tokens of its format.

    Returns:
        The tokens of each segment with the special tokens behind it; the first has those at the
        beginning of the sequence, too.
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
    """Find where a token is to be predicted, as an index into the flattened batch, and which."""
    for name, term in TERMS.items():
        if term.copied and f"{name}_positions" in batch.targets:
            targets = (batch.targets[f"{name}_{part}"] for part in ("positions", "labels"))
            yield from zip(*(target.tolist() for target in targets), strict=True)


def segment_names(instance: Instance, format: Format) -> Sequence[str]:
    """Name the segments: A and B, or by their documents."""
    return ("A", "B") if format.pairs else [f"document {n}" for n in instance.documents]


def heading(instance: Instance, format: Format) -> str:
    """Say in a line what an instance was made of."""
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
    """Tell which tokens stand in one word with the token before. Where a segment begins within a
    word, there is none before its first piece."""
    before = [None, *tokens[:-1]]
    return [
        token.continues and last is not None and last.kind != "added"
        for last, token in zip(before, tokens, strict=True)
    ]


def gaps(tokens: Sequence[MarkedToken]) -> list[str]:
    """Return what stands before each token: a space, or nothing at the beginning, within a word
    and between Chinese characters."""
    spaces = [""]
    for last, token, inside in zip(tokens, tokens[1:], joined(tokens)[1:], strict=False):
        meet = f"{last.was[-1:]} {token.was[:1]}"
        chinese = "added" not in (last.kind, token.kind) and close_up(meet) != meet
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
