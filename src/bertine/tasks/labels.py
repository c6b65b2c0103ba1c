"""Number the labels of a task, and explain unknown or confusable ones."""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from bertine.core.console import visible_list
from bertine.core.errors import BertineError
from bertine.core.text import number_in

#: The most labels that a message lists.
_SHOWN = 20
#: Texts for missing values in programs: pandas, Python, JSON, SQL, Excel; and those pandas reads.
MISSING = frozenset(
    {
        *("nan", "NaN", "-nan", "-NaN", "NaT", "<NA>", "NA", "N/A", "n/a", "#N/A", "#NA"),
        *("None", "null", "NULL", "#N/A N/A"),
    }
)
#: Small letters of Cyrillic and Greek, dashes and quotes, and the usual characters they look like.
_USUAL = str.maketrans("авеікмнорстухјѕοαικνρτυχ‐‒–—−’‘", "abeikmhopctyxjsoaiknptux-----''")

#: Characters around a label where a program has written a list, or a quoted text, of it.
_AROUND = frozenset(("[]", "()", "{}", "''", '""', "“”", "‘’", "„“", "«»"))


def check_labels(task: str, labels: Sequence[str], what: str = "label") -> None:
    """Refuse fewer than two labels, and repeated ones.

    Raises:
        BertineError: there are fewer than two, or one is repeated.
    """
    counts = Counter(labels)
    if len(counts) < 2:
        raise BertineError(f"{task} needs at least two {what}s, but got {sorted(counts)}")
    if len(counts) < len(labels):
        twice = next(name for name, number in counts.items() if number > 1)
        raise BertineError(f"the {what} {twice!r} is given twice")


def label_id(label: str, ids: Mapping[str, int], where: str) -> int:
    """Return the number of `label`.

    Raises:
        BertineError: it is not one of the labels; the message begins with `where`.
    """
    if label not in ids:
        raise BertineError(f"{where}: unknown label {label!r}{known_labels(label, [*ids])}")
    return ids[label]


def known_labels(label: str, labels: Sequence[str]) -> str:
    """Return the end of the message for a `label` that is not one of `labels`: the one that may be
    meant (the same number, as 1.0 is 1, one that looks alike, or a similar text), and the first
    labels."""
    number, look = _number(label), _look(label)
    same = [name for name in labels if number is not None and _number(name) == number]
    alike = [] if same else [name for name in labels if _look(name) == look]
    near = same or alike or difflib.get_close_matches(label, labels, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    if alike and label.lower() != alike[0].lower():
        this, other = told_apart([label, alike[0]])
        hint = f" ({this}; did you mean {other}, which looks alike?)"
    more = ", …" if len(labels) > _SHOWN else ""
    return f"{hint}; the known ones are {visible_list(labels[:_SHOWN])}{more}"


def look_alikes(labels: Iterable[str]) -> list[list[str]]:
    """Find groups of labels that print alike but differ: in the form of Unicode, in invisible
    characters, in letters of another alphabet, in capitals."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        groups[_look(label)].append(label)
    return [group for group in groups.values() if len(group) > 1]


def _look(label: str) -> str:
    """Return a normal form that is equal for labels that look alike."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", label) if not _unseen(c))
    return _inside(" ".join(seen.split())).lower().translate(_USUAL)


def _inside(label: str) -> str:
    """Return a label without brackets or quotes around it."""
    while label[1:] and label[0] + label[-1] in _AROUND and any(map(str.isalnum, label[1:-1])):
        label = label[1:-1].strip()
    return label


def _unseen(character: str) -> bool:
    """Return whether a character is invisible in a text."""
    return unicodedata.category(character) in ("Cf", "Cc") or character in "\ufe0e\ufe0f"


def told_apart(labels: Sequence[str]) -> list[str]:
    """Return labels that look alike in quotes, with escapes for characters that not all of them
    have and that mislead the eye: combining accents, unusual blanks, letters of another
    alphabet."""
    common = set.intersection(*(set(label.lower()) for label in labels))

    def shown(character: str) -> str:
        odd = character.lower() not in common and (
            _unseen(character)
            or unicodedata.combining(character)
            or character.lower().translate(_USUAL) != character.lower()
            or unicodedata.normalize("NFKC", character) != character
        )
        code = ord(character)
        return (f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}") if odd else character

    return [f"'{''.join(map(shown, label))}'" for label in labels]


def same_numbers(labels: Iterable[str]) -> list[tuple[str, str]]:
    """Find pairs of labels that are written differently and are the same number, such as 1 and 1.0:
    some programs read a column with gaps as floats."""
    first: dict[float, str] = {}
    pairs = []
    for label in sorted(labels, key=lambda label: (len(label), label)):
        number = _number(label)
        if number is None:
            continue
        if number in first:
            pairs.append((first[number], label))
        else:
            first[number] = label
    return pairs


def _number(label: str) -> float | None:
    """Return the number that a label represents (true is 1, false is 0), or None."""
    label = _inside(label.strip())
    label = {"true": "1", "false": "0"}.get(label.lower(), label)
    value = number_in(label)
    return value if math.isfinite(value) else None
