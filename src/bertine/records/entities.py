"""Entities in sequences of tags: the schemes they are written in, and their scores.

A tag is ``O``, or a prefix and a type, ``B-person``; the type may be missing. What an entity is
follows ``conlleval``, the scorer of the CoNLL-2000 to 2003 tasks, for every sequence, also one
that no scheme allows: an ``I-person`` after an ``O`` or after another type begins an entity.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from bertine.errors import BertineError
from bertine.names import TagScheme
from bertine.records.tag_spellings import OUTSIDE as OUTSIDE
from bertine.records.tag_spellings import spelling_of, strange_tags

#: How entities are written: IOB1 (Ramshaw and Marcus 1995; ``B-`` only between two entities of one
#: type), IOB2 (``B-`` at every beginning), IOBES (also ``E-`` at ends and ``S-`` for single words;
#: BILOU and BMES are the same in other letters). Plain: no entities, a tag is a tag (parts of
#: speech).
Scheme = TagScheme
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

_TAG = re.compile(r"O|[BIES](?:-.*)?", re.DOTALL)
# Of schemes that fit equally well the first is taken.
_TRIED: tuple[Scheme, ...] = ("IOB2", "IOB1", "IOBES")


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """The words from `begin` to before `end`, and what they name together."""

    begin: int
    end: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Split ``"B-creative-work"`` into ``("B", "creative-work")``, ``"O"`` into ``("O", "")``."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def joined_tag(prefix: str, kind: str) -> str:
    """Undo :func:`split_tag`."""
    return f"{prefix}-{kind}" if kind else prefix


def entities(tags: Sequence[str]) -> list[Entity]:
    """Find the entities of a sequence of tags of any scheme but plain, in their order.

    The rules are those of ``conlleval``: an entity ends before ``O``, ``B``, ``S`` and another
    type, and after ``E`` and ``S``; it begins at ``B`` and ``S``, and at any other tag that follows
    an end or an ``O``.
    """
    spans: list[Entity] = []
    begin = 0
    before, kind_before = "O", ""
    for word, tag in enumerate([*tags, "O"]):
        prefix, kind = split_tag(tag)
        apart = (
            prefix in ("O", "B", "S") or before in ("O", "E", "S") or kind != kind_before
        )  # this word belongs to no entity of the word before
        if apart:
            if before != "O":
                spans.append(Entity(begin, word, kind_before))
            begin = word
        before, kind_before = prefix, kind
    return spans


def encode(found: Iterable[Entity], length: int, scheme: Scheme) -> list[str]:
    """Write entities that do not overlap, in their order, as `length` tags.

    Raises:
        ValueError: `scheme` is plain, which has no entities.
    """
    if scheme == "plain":
        raise ValueError("plain tags have no entities")
    tags = ["O"] * length
    last: Entity | None = None
    for entity in found:
        size = entity.end - entity.begin
        prefixes = ["B", *["I"] * (size - 1)]
        if scheme == "IOB1":
            touches = last is not None and (last.end, last.type) == (entity.begin, entity.type)
            prefixes[0] = "B" if touches else "I"
        elif scheme == "IOBES":
            prefixes[-1] = "E" if size > 1 else "S"
        for word, prefix in enumerate(prefixes, entity.begin):
            tags[word] = joined_tag(prefix, entity.type)
        last = entity
    return tags


def misfits(tags: Sequence[str], scheme: Scheme) -> int:
    """Count how many of `tags` the scheme would write otherwise: 0 where they keep its rules."""
    expected = encode(entities(tags), len(tags), scheme)
    return sum(tag != other for tag, other in zip(tags, expected, strict=True))


def is_entity_tag(tag: str) -> bool:
    """Tell whether a tag is ``O`` or has one of the prefixes ``B``, ``I``, ``E``, ``S``."""
    return _TAG.fullmatch(tag) is not None


def may_follow(before: str | None, after: str) -> bool:
    """Tell whether the tag `after` may come after `before` in IOB2 (None: first in a sentence): an
    ``I-`` only after the ``B-`` or ``I-`` of its type. Plain tags may all."""
    prefix, kind = split_tag(after)
    if prefix != "I" or not is_entity_tag(after):
        return True
    return before is not None and before != OUTSIDE and split_tag(before)[1] == kind


def ordered_tags(tags: set[str]) -> list[str]:
    """Sort plain tags by name; O, then B and I of each type by its name: a type whose every entity
    is one word in training may be longer elsewhere."""
    if not all(map(is_entity_tag, tags)):
        return sorted(tags)
    kinds = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
    inside = [f"{prefix}-{kind}" if kind else prefix for kind in kinds for prefix in "BI"]
    return [OUTSIDE, *inside]


def detect(sequences: Sequence[Sequence[str]]) -> tuple[Scheme, int]:
    """Find the scheme with the fewest misfits (IOB2 before IOB1 before IOBES), and how many it has.

    Plain, with none, where a tag is none of an entity. BILOU and BMES count as IOBES.
    """
    usual = _as_usual(sequences)
    if usual is None:
        return "plain", 0
    counts = {scheme: sum(misfits(tags, scheme) for tags in usual) for scheme in _TRIED}
    best = min(_TRIED, key=lambda scheme: counts[scheme])
    return best, counts[best]


def _as_usual(sequences: Sequence[Sequence[str]]) -> Sequence[Sequence[str]] | None:
    """Return the `sequences` in the usual spelling, with the letters of IOBES; None where tags mark
    no entities."""
    spelling = spelling_of({tag for tags in sequences for tag in tags})
    if spelling is None:
        return None
    return [[spelling.tags[tag] for tag in tags] for tags in sequences]


def to_iob2(
    sequences: Sequence[Sequence[str]], scheme: str | None, source: str
) -> tuple[list[list[str]], Scheme, int]:
    """Read tags and write them as IOB2, with the same entities; plain ones stay as they are.

    Args:
        sequences: of tags, one a sentence.
        scheme: that they are written in; None: detected.
        source: names them in messages.

    Returns:
        The sequences, the scheme they were in, and how many tags did not keep its rules (they are
        read as ``conlleval`` reads them).

    Raises:
        BertineError: there is no such scheme, or a tag is none of its tags.
    """
    if scheme is None:
        known, wrong = detect(sequences)
    else:
        if scheme not in SCHEMES:
            raise BertineError(f"unknown tag scheme {scheme!r}; known: {', '.join(SCHEMES)}")
        known, wrong = next(name for name in SCHEMES if name == scheme), 0
    if known == "plain":
        return [list(tags) for tags in sequences], known, 0
    usual = _as_usual(sequences)
    if usual is None:
        counts = Counter(tag for tags in sequences for tag in tags)
        strange = strange_tags(counts) or {tag for tag in counts if not is_entity_tag(tag)}
        first = next(tag for tag in counts if tag in strange)
        raise BertineError(
            f"{source}: the tag {first!r} is none of {known}; is that the tag column? "
            "(for tags that mark no entities name the scheme plain)"
        )
    if scheme is not None:
        wrong = sum(misfits(tags, known) for tags in usual)
    return [encode(entities(tags), len(tags), "IOB2") for tags in usual], known, wrong


@dataclass(frozen=True, slots=True)
class Counts:
    """Entities (or words) that are `correct`, of those `predicted` and those `true`."""

    correct: int = 0
    predicted: int = 0
    true: int = 0

    @property
    def precision(self) -> float:
        """The share correct / predicted; 0 where nothing is predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share correct / true; 0 where there is nothing to find."""
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 where nothing is correct."""
        both = self.predicted + self.true
        return 2 * self.correct / both if both else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.correct + other.correct,
            self.predicted + other.predicted,
            self.true + other.true,
        )


def entity_counts(
    truth: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]
) -> dict[str, Counts]:
    """Count each type of entity, sorted by name; an entity is correct where begin, end and
    type are (Tjong Kim Sang and De Meulder 2003; ``conlleval``).

    Args:
        truth: the true tags of N sentences, of any scheme but plain.
        guesses: the predicted ones, of the same lengths.

    Raises:
        ValueError: a sentence has another number of predicted than of true tags.
    """
    correct: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    true: Counter[str] = Counter()
    for true_tags, guessed_tags in zip(truth, guesses, strict=True):
        if len(true_tags) != len(guessed_tags):
            raise ValueError(f"{len(true_tags)} true tags, but {len(guessed_tags)} predicted ones")
        expected, guessed = set(entities(true_tags)), set(entities(guessed_tags))
        true.update(entity.type for entity in expected)
        predicted.update(entity.type for entity in guessed)
        correct.update(entity.type for entity in expected & guessed)
    return {
        kind: Counts(correct[kind], predicted[kind], true[kind])
        for kind in sorted({*true, *predicted})
    }


def tag_counts(
    truth: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]
) -> dict[str, Counts]:
    """Count words for each tag, sorted by name: the scores of plain tags."""
    pairs: Counter[tuple[str, str]] = Counter()
    for true_tags, guessed_tags in zip(truth, guesses, strict=True):
        pairs.update(zip(true_tags, guessed_tags, strict=True))
    names = sorted({name for pair in pairs for name in pair})
    return {
        name: Counts(
            pairs[name, name],
            sum(count for (_, guessed_tag), count in pairs.items() if guessed_tag == name),
            sum(count for (true_tag, _), count in pairs.items() if true_tag == name),
        )
        for name in names
    }
