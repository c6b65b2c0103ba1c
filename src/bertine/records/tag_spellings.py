"""Spellings of the tags that mark entities.

``B-PER`` is how they are read. People also write the letters of other schemes (BILOU, BMES), other
signs (``B_PER``), small letters (``b-per``), the type first (``PER-B``), and ``0`` or ``_`` for
``O``. Tags are read so only where all of them are in one spelling: a single one that differs is
more likely a mistake, and parts of speech are none of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

#: The tag of a word that is in no entity, and what is written in its place.
OUTSIDE = "O"
_OUTSIDE = (OUTSIDE, "o", "0", "_", "-")

#: Schemes that are IOBES in other letters, and what each letter is there.
_LETTERS: Mapping[str, Mapping[str, str]] = {
    "IOBES": {"B": "B", "I": "I", "E": "E", "S": "S"},
    "BILOU": {"B": "B", "I": "I", "L": "E", "U": "S"},
    "BMES": {"B": "B", "M": "I", "E": "E", "S": "S"},
    "BMEWO": {"B": "B", "M": "I", "E": "E", "W": "S"},
}
#: The usual spelling, whose type may be missing, and others.
_USUAL = re.compile(r"(?P<letter>[A-Z])(-(?P<type>.*))?", re.DOTALL)
_OTHERS = [
    re.compile(sign.join(order).replace("A", first).replace("Z", last), re.DOTALL)
    for first, last in ("AZ", "az")
    for order in ((r"(?P<letter>[A-Z])", "(?P<type>.+)"), ("(?P<type>.+)", r"(?P<letter>[A-Z])"))
    for sign in ("-", "_", ":", r"\.", "/", r"\|")
]
_BARE = re.compile(r"(?P<letter>[a-z])(?P<type>)")


@dataclass(frozen=True)
class Spelling:
    """The way in which the tags of a data set are written.

    Attributes:
        letters: the scheme whose letters they have; IOBES where it is IOB1 or IOB2, too.
        tags: each of them, and the same in the usual spelling with the letters of IOBES.
    """

    letters: str
    tags: Mapping[str, str]

    @property
    def unusual(self) -> str:
        """Write "'B_PER' for B-PER"; "" where nothing but letters is unusual."""
        pairs = sorted(self.tags.items(), key=lambda pair: (pair[1] == OUTSIDE, pair))
        for tag, usual in pairs:
            if tag[1:] != usual[1:] or not tag[0].isupper():
                return f"{tag!r} for {usual}"
        return ""


def spelling_of(tags: Collection[str]) -> Spelling | None:
    """Find how the tags of a data set are written; None where they mark no entities."""
    outside = next((tag for tag in _OUTSIDE if tag in tags), None)
    marks = [tag for tag in tags if tag != outside]
    for pattern in (_USUAL, *_OTHERS, _BARE):
        found = [match for match in map(pattern.fullmatch, marks) if match]
        used = {match["letter"].upper() for match in found}
        name = next((name for name in _LETTERS if used <= _LETTERS[name].keys()), None)
        if len(found) < len(marks) or name is None:
            continue
        usual = pattern is _USUAL and outside in (None, OUTSIDE) and name in ("IOBES", "BILOU")
        typed = all(match["type"] for match in found)
        if not (usual and (typed or used & {"B", "I"})) and not _mark_entities(
            used, outside is not None, typed=typed
        ):
            continue
        letters = _LETTERS[name]
        read = {} if outside is None else {outside: OUTSIDE}
        for tag, match in zip(marks, found, strict=True):
            kind = match["type"]
            read[tag] = letters[match["letter"].upper()] + (f"-{kind}" if kind else "")
        return Spelling(name, read) if len({*read.values()}) == len(read) else None
    return None


def _mark_entities(letters: Collection[str], outside: bool, *, typed: bool) -> bool:
    """Tell whether tags in an unusual spelling mark entities: they begin some, and there are words
    inside or outside of them; tags without types, which are but a letter, do more."""
    begins = "B" in letters or (typed and "I" in letters)
    return begins and (len(letters) > 1 or (outside and typed))


def strange_tags(counts: Counter[str]) -> set[str]:
    """Find the tags, of so many words each, that keep the others from being read as those of
    entities: what is in another spelling than most, or has another scheme's letters; none where
    most mark no entities anyway."""
    marks = {tag for tag in counts if tag not in _OUTSIDE[:2]}
    total = sum(counts[tag] for tag in marks)

    def written_so(pattern: re.Pattern[str]) -> set[str]:
        found = {tag: pattern.fullmatch(tag) for tag in marks}
        return {tag for tag, match in found.items() if match and _is_mark(match)}

    def words(tags: Collection[str]) -> int:
        return sum(counts[tag] for tag in tags)

    usual = written_so(_USUAL)
    most = max((usual, *map(written_so, _OTHERS)), key=words)
    begins = most == usual and any(tag.startswith(("B-", "I-")) for tag in most)
    if not most or (not begins and 2 * words(most) < total):
        return set()
    return marks - most or {tag for tag in marks if tag[0].upper() not in _LETTERS["IOBES"]}


def _is_mark(match: re.Match[str]) -> bool:
    """Tell whether a tag has a type, and a letter of some scheme."""
    letter = match["letter"].upper()
    return bool(match["type"]) and any(letter in letters for letters in _LETTERS.values())
