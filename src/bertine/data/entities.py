"""Convert tags of entities between schemes, count their scores, and hold tagged sentences.

A tag is ``O``, or a prefix and a type, ``B-person``; the type may be missing. Entities are defined
as in ``conlleval``, the scorer of the CoNLL-2000 to 2003 tasks, for every sequence, including
invalid ones: an ``I-person`` after an ``O`` or after another type begins an entity.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import TagScheme
from bertine.core.rng import generator
from bertine.core.strict_json import Jsonable
from bertine.data.examples import Examples, staying

# Spellings of entity tags.
#
# The standard spelling is ``B-PER``. Data sets also use the letters of other schemes (BILOU, BMES),
# other separators (``B_PER``), small letters (``b-per``), the type first (``PER-B``), and ``0`` or
# ``_`` for ``O``. Tags are read so only if all of them have the same spelling: a single exception
# is more likely a mistake, and parts of speech do not match at all.

#: The tag of a word outside entities, and its other spellings.
OUTSIDE = "O"
_OUTSIDE = (OUTSIDE, "o", "0", "_", "-")

#: Schemes that are IOBES with other letters, and the IOBES letter of each of theirs.
_LETTERS: Mapping[str, Mapping[str, str]] = {
    "IOBES": {"B": "B", "I": "I", "E": "E", "S": "S"},
    "BILOU": {"B": "B", "I": "I", "L": "E", "U": "S"},
    "BMES": {"B": "B", "M": "I", "E": "E", "S": "S"},
    "BMEWO": {"B": "B", "M": "I", "E": "E", "W": "S"},
}
#: The standard spelling, whose type may be missing, and others.
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
    """The spelling of the tags in a data set.

    Attributes:
        letters: the scheme of the letters; IOBES also for IOB1 and IOB2.
        tags: each tag in the standard spelling with the letters of IOBES.
    """

    letters: str
    tags: Mapping[str, str]

    @property
    def unusual(self) -> str:
        """Write "'B_PER' for B-PER"; "" if at most the letters are unusual."""
        pairs = sorted(self.tags.items(), key=lambda pair: (pair[1] == OUTSIDE, pair))
        for tag, usual in pairs:
            if tag[1:] != usual[1:] or not tag[0].isupper():
                return f"{tag!r} for {usual}"
        return ""


def spelling_of(tags: Collection[str]) -> Spelling | None:
    """Find the spelling of a data set's tags; None if they mark no entities."""
    outside = next((tag for tag in _OUTSIDE if tag in tags), None)
    marks = [tag for tag in tags if tag != outside]
    for pattern in (_USUAL, *_OTHERS, _BARE):
        result = [match for match in map(pattern.fullmatch, marks) if match]
        used = {match["letter"].upper() for match in result}
        name = next((name for name in _LETTERS if used <= _LETTERS[name].keys()), None)
        if len(result) < len(marks) or name is None:
            continue
        usual = pattern is _USUAL and outside in (None, OUTSIDE) and name in ("IOBES", "BILOU")
        typed = all(match["type"] for match in result)
        if not (usual and (typed or used & {"B", "I"})) and not _mark_entities(
            used, outside is not None, typed=typed
        ):
            continue
        letters = _LETTERS[name]
        read = {} if outside is None else {outside: OUTSIDE}
        for tag, match in zip(marks, result, strict=True):
            kind = match["type"]
            read[tag] = letters[match["letter"].upper()] + (f"-{kind}" if kind else "")
        return Spelling(name, read) if len({*read.values()}) == len(read) else None
    return None


def _mark_entities(letters: Collection[str], outside: bool, *, typed: bool) -> bool:
    """Return whether tags in an unusual spelling mark entities: some begin an entity, and some
    words are inside or outside; for tags without types, a single letter, the conditions are
    stricter."""
    begins = "B" in letters or (typed and "I" in letters)
    return begins and (len(letters) > 1 or (outside and typed))


def strange_tags(counts: Counter[str]) -> set[str]:
    """Find the tags that prevent the others from being read as entity tags: those in another
    spelling than most, or with another scheme's letters; none if most tags mark no entities anyway.
    `counts` has the number of words of each tag."""
    marks = {tag for tag in counts if tag not in _OUTSIDE[:2]}
    total = sum(counts[tag] for tag in marks)

    letters = {letter for names in _LETTERS.values() for letter in names}

    def written_so(pattern: re.Pattern[str]) -> set[str]:
        result = [match for match in map(pattern.fullmatch, marks) if match and match["type"]]
        return {match[0] for match in result if match["letter"].upper() in letters}

    def words(tags: Collection[str]) -> int:
        return sum(counts[tag] for tag in tags)

    usual = written_so(_USUAL)
    most = max((usual, *map(written_so, _OTHERS)), key=words)
    begins = most == usual and any(tag.startswith(("B-", "I-")) for tag in most)
    if not most or (not begins and 2 * words(most) < total):
        return set()
    return marks - most or {tag for tag in marks if tag[0].upper() not in _LETTERS["IOBES"]}


# Words of plain text, for models that tag words.
#
# Tagged corpora are already split into words; this is for other text. The rules approximate those
# corpora: split at white space, then split off punctuation at both ends and ``'s``; each character
# of a script without spaces between words is a word, together with its marks.

_RUN = re.compile(r"\S+")
#: What is a word anywhere: letters of scripts that are written without spaces, with their marks
#: (Chinese characters as in BERT's published tokenizer, the rare planes included; kana; Thai, Lao,
#: Burmese and Khmer), and runs of equal full-width signs.
_ALONE = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
    "\u3005\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d"
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ec0-\u0ec6"
    "\u1000-\u102a\u103f\u1780-\u17b3]"
    "[\u3099\u309a\uff9e\uff9f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"
    "\u102b-\u103e\u17b4-\u17d3\ufe00-\ufe0f\U000e0100-\U000e01ef]*"
    "|([\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65])"
    r"\1*"
)
_POSSESSIVE = re.compile(r"['\u2019][sS]$")
#: Marks that begin a word of social media and stay with it: @name, #topic.
_MARKS = "@#"
_JOINER = "\u200d"


def split_words(text: str) -> list[tuple[int, int]]:
    """Find the words of `text` in order: begin and end of each, in characters."""
    words: list[tuple[int, int]] = []
    for run in _RUN.finditer(text):
        begin = run.start()
        for match in _ALONE.finditer(text, begin, run.end()):
            words.extend(_parts(text, begin, match.start()))
            words.append(match.span())
            begin = match.end()
        words.extend(_parts(text, begin, run.end()))
    return words


def _parts(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a run without white space and unspaced letters into punctuation, word, ending,
    punctuation."""
    start, stop = begin, end
    while start < stop and (_is_sign(text[start]) or (start > begin and _goes_on(text[start]))):
        if text[start] in _MARKS and start + 1 < stop and not _is_sign(text[start + 1]):
            break
        start += 1
    last = stop - 1
    while last >= start:
        if _is_sign(text[last]):
            stop = last
        elif not _goes_on(text[last]):
            break
        last -= 1
    yield from _equal_runs(text, begin, start)
    if start < stop:
        ending = _POSSESSIVE.search(text[start:stop])
        cut = start + ending.start() if ending and ending.start() else stop
        yield start, cut
        if cut < stop:
            yield cut, stop
    yield from _equal_runs(text, stop, end)


def _equal_runs(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Split punctuation into signs, each with its marks; a run of equal ones ("...") is one word,
    and so is what joiners make one sign (an emoji)."""
    while begin < end:
        after = begin + 1
        while after < end and (
            text[after] == text[begin] or _goes_on(text[after]) or text[after - 1] == _JOINER
        ):
            after += 1
        yield begin, after
        begin = after


def _is_sign(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" and not _goes_on(character)


def _goes_on(character: str) -> bool:
    """Return whether a character belongs to the one before it: marks, joiners, colours of skin."""
    return (
        unicodedata.category(character)[0] == "M"
        or character == _JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


#: Tag schemes: IOB1 (Ramshaw and Marcus 1995; ``B-`` only between two adjacent entities of one
#: type), IOB2 (``B-`` at every beginning), IOBES (also ``E-`` at ends and ``S-`` for single words;
#: BILOU and BMES are the same with other letters). Plain: no entities; a tag is just a tag (parts
#: of speech).
Scheme = TagScheme
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

_TAG = re.compile(r"O|[BIES](?:-.*)?", re.DOTALL)
# If schemes fit equally well, the first one is taken.
_TRIED: tuple[Scheme, ...] = ("IOB2", "IOB1", "IOBES")


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """An entity: the words (or characters) from `begin` to before `end`, and its type."""

    begin: int
    end: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Split ``"B-creative-work"`` into ``("B", "creative-work")``, ``"O"`` into ``("O", "")``."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def joined_tag(prefix: str, kind: str) -> str:
    """Join the parts of :func:`split_tag`."""
    return f"{prefix}-{kind}" if kind else prefix


def entities(tags: Sequence[str]) -> list[Entity]:
    """Find the entities of a sequence of tags of any scheme but plain, in order.

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
        )  # this word does not continue the entity of the word before
        if apart:
            if before != "O":
                spans.append(Entity(begin, word, kind_before))
            begin = word
        before, kind_before = prefix, kind
    return spans


def encode(spans: Iterable[Entity], length: int, scheme: Scheme) -> list[str]:
    """Write entities that do not overlap, in their order, as `length` tags.

    Raises:
        ValueError: `scheme` is plain, which has no entities.
    """
    if scheme == "plain":
        raise ValueError("plain tags have no entities")
    tags = ["O"] * length
    last: Entity | None = None
    for entity in spans:
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
    """Count the tags that the scheme would write differently; 0 if they all follow its rules."""
    expected = encode(entities(tags), len(tags), scheme)
    return sum(tag != other for tag, other in zip(tags, expected, strict=True))


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag is ``O`` or has one of the prefixes ``B``, ``I``, ``E``, ``S``."""
    return _TAG.fullmatch(tag) is not None


def may_follow(before: str | None, after: str) -> bool:
    """Return whether the tag `after` may follow `before` in IOB2 (None: first in a sentence): an
    ``I-`` only after the ``B-`` or ``I-`` of its type. Plain tags always may."""
    prefix, kind = split_tag(after)
    if prefix != "I" or not is_entity_tag(after):
        return True
    return before is not None and before != OUTSIDE and split_tag(before)[1] == kind


def ordered_tags(tags: set[str]) -> list[str]:
    """Sort plain tags by name; else O, then B and I of each type, by name of the type: an entity
    type with only one-word entities in training may be longer elsewhere."""
    if not all(map(is_entity_tag, tags)):
        return sorted(tags)
    kinds = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
    inside = [f"{prefix}-{kind}" if kind else prefix for kind in kinds for prefix in "BI"]
    return [OUTSIDE, *inside]


def detect(sequences: Sequence[Sequence[str]]) -> tuple[Scheme, int]:
    """Find the scheme with the fewest misfits (IOB2 before IOB1 before IOBES), and their number.

    Plain with 0 misfits if a tag is not an entity tag. BILOU and BMES count as IOBES.
    """
    usual = _as_usual(sequences)
    if usual is None:
        return "plain", 0
    counts = {scheme: sum(misfits(tags, scheme) for tags in usual) for scheme in _TRIED}
    best = min(_TRIED, key=lambda scheme: counts[scheme])
    return best, counts[best]


def _as_usual(sequences: Sequence[Sequence[str]]) -> Sequence[Sequence[str]] | None:
    """Convert the `sequences` to the standard spelling with the letters of IOBES; None if the tags
    mark no entities."""
    spelling = spelling_of({tag for tags in sequences for tag in tags})
    if spelling is None:
        return None
    return [[spelling.tags[tag] for tag in tags] for tags in sequences]


def to_iob2(
    sequences: Sequence[Sequence[str]], scheme: str | None, source: str
) -> tuple[list[list[str]], Scheme, int]:
    """Convert tags to IOB2 with the same entities; plain tags are not changed.

    Args:
        sequences: the tags, one sequence per sentence.
        scheme: the scheme of the tags; None: detected.
        source: their source, for messages.

    Returns:
        The sequences, their original scheme, and how many tags broke its rules (they are read as
        ``conlleval`` reads them).

    Raises:
        BertineError: there is no such scheme, or a tag does not belong to it.
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
            f"{source}: the tag {first!r} is not one of {known}; is that the tag column? "
            "(for tags that mark no entities name the scheme plain)"
        )
    if scheme is not None:
        wrong = sum(misfits(tags, known) for tags in usual)
    return [encode(entities(tags), len(tags), "IOB2") for tags in usual], known, wrong


@dataclass(frozen=True, slots=True)
class Counts(Jsonable):
    """Counts of entities (or words): those that are `correct`, `predicted` and `true`."""

    json_keys = ("precision", "recall", "f1", "correct", "predicted", "true")

    correct: int = 0
    predicted: int = 0
    true: int = 0

    @property
    def precision(self) -> float:
        """The share correct / predicted; 0 if nothing is predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share correct / true; 0 if there is nothing to find."""
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 if nothing is correct."""
        both = self.predicted + self.true
        return 2 * self.correct / both if both else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.correct + other.correct, self.predicted + other.predicted, self.true + other.true
        )


def span_counts(
    truth: Iterable[Iterable[Entity]], guesses: Iterable[Iterable[Entity]]
) -> dict[str, Counts]:
    """Count the true and the predicted entities of N sentences for each type, sorted by name; an
    entity is correct if its begin, end and type are (Tjong Kim Sang and De Meulder 2003;
    ``conlleval``)."""
    correct: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    true: Counter[str] = Counter()
    for expected, guessed in zip(map(set, truth), map(set, guesses), strict=True):
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
    """Count words for each tag, sorted by name, for the scores of plain tags."""
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


# Tagged sentences: the examples that tagging is trained and evaluated on.

#: From this number of documents on, whole documents are held out instead of single sentences.
_DOCUMENTS = 20


#: Start and end of each word, in characters; the end is exclusive.
Offsets = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words with one tag each (None when unknown).

    `line` is the line of the first word, for messages; `document` is the number of the document in
    its file, None if the file does not mark documents. Of words found in a `text`, `offsets` are
    their places in it; `spans` are its entities as they were given, by characters, also those that
    tags of words cannot mark (None: the tags are what was given).
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    line: int = 0
    document: int | None = None
    text: str | None = None
    offsets: Offsets = ()
    spans: tuple[Entity, ...] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or the words joined by spaces."""
        return (" ".join(self.words) if self.text is None else self.text,)

    @property
    def label(self) -> tuple[str, ...] | None:
        """The tags, with which a prediction is compared."""
        return self.tags


@dataclass
class Sentences(Examples[Sentence]):
    """The sentences of one file in order. Tags of entities are IOB2, regardless of the file's
    scheme.

    Attributes:
        scheme: the scheme of the tags in the file.
        word_a_line: whether each word has a line of its own, as in column files.
        met: counts of special cases in cutting words into pieces and windows, by name; see
            :func:`bertine.tasks.tagged_words.met_notes`.
    """

    scheme: Scheme = "plain"
    word_a_line: bool = False
    met: Counter[str] = field(default_factory=Counter)

    def fingerprint(self) -> str:
        """Compute SHA-256 of words, tags, spans and documents in their order, as hex digits."""
        digest = hashlib.sha256()
        for item in self.items:
            content = repr((item.words, item.tags, item.document, *(item.spans or ())))
            digest.update(content.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def where(self, item: Sentence, word: int) -> str:
        """Return the file and line of a word, for messages."""
        return f"{self.source}:{item.line + (word if self.word_a_line else 0)}"

    def hold_out(
        self, share: float, seed: int, *, stratify: bool = True, known: Collection[int] = ()
    ) -> tuple[Sentences, Sentences]:
        """Split off about a `share` of the sentences: whole documents if there are twenty or more,
        else single sentences; every tag stays in the first part.

        Sentences that are `known`, and their documents, stay in the first part, as in
        :meth:`Examples.hold_out`. The same arguments give the same parts. `stratify` changes
        nothing here: tags that are numbers, most of them there once, cannot be held out.

        Raises:
            BertineError: there is nothing that can be split off.
        """
        by_document = len({item.document for item in self.items}) >= _DOCUMENTS
        units: dict[tuple[str, int], list[Sentence]] = {}
        for number, item in enumerate(self.items):
            document = item.document if by_document else None
            key = ("sentence", number) if document is None else ("document", document)
            units.setdefault(key, []).append(item)
        left = Counter(tag for item in self.items for tag in item.tags or ())
        wanted = max(1, round(share * len(self)))
        stay = staying(units, known, wanted)
        names = list(units)
        held: set[tuple[str, int]] = set()
        taken = 0
        for index in generator(seed, "hold-out").permutation(len(names)).tolist():
            unit = units[names[index]]
            if names[index] in stay:
                continue
            own = Counter(tag for item in unit for tag in item.tags or ())
            if taken + len(unit) > max(wanted, 1.5 * wanted if by_document else wanted):
                continue
            if all(left[tag] > count for tag, count in own.items()):
                left.subtract(own)
                held.add(names[index])
                taken += len(unit)
            if taken >= wanted:
                break
        if stay and not held:  # each of the others has the only occurrence of a tag
            return self.hold_out(share, seed)
        if not held:
            raise BertineError(
                f"{self.source}: cannot hold out {share:g} of {plural(len(self), 'sentence')} "
                "without losing a tag; give a folder with a training and a validation file"
            )
        first = [item for name in names if name not in held for item in units[name]]
        second = [item for name in names if name in held for item in units[name]]
        source = f"{self.source} (held out)"
        return (
            replace(self, items=first, met=Counter()),
            replace(self, source=source, items=second, notes=[], met=Counter()),
        )
