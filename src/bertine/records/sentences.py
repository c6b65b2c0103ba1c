"""Sentences of words with a tag each: what tagging is trained and judged on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from bertine.errors import BertineError
from bertine.records.entities import Scheme
from bertine.records.examples import Examples
from bertine.records.known_rows import staying
from bertine.rng import generator
from bertine.terminal.console import counted

#: From so many documents on, some of them are held out and not single sentences.
_DOCUMENTS = 20


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, with a tag each (None when unknown).

    `line` is the line of the first word, for messages; `document` the number of the document in
    its file, None where the file tells no documents.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    line: int = 0
    document: int | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The words as one text, with spaces between them."""
        return (" ".join(self.words),)

    @property
    def label(self) -> tuple[str, ...] | None:
        """The tags: what a prediction is compared with."""
        return self.tags


@dataclass
class Sentences(Examples[Sentence]):
    """The sentences of one file in their order. Tags of entities are IOB2, whatever the file has.

    Attributes:
        scheme: of the tags in the file.
        word_a_line: whether each word has a line of its own, as in column files.
        met: what cutting them into pieces and windows met, by name; see
            :func:`bertine.tasks.tagging.word_pieces.met_notes`.
    """

    scheme: Scheme = "plain"
    word_a_line: bool = False
    met: Counter[str] = field(default_factory=Counter)

    def fingerprint(self) -> str:
        """Compute SHA-256 of words, tags and documents in their order, as hex digits."""
        digest = hashlib.sha256()
        for item in self.items:
            content = repr((item.words, item.tags, item.document))
            digest.update(content.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def where(self, item: Sentence, word: int) -> str:
        """Name file and line of a word, for messages."""
        return f"{self.source}:{item.line + (word if self.word_a_line else 0)}"

    def hold_out(
        self,
        share: float,
        seed: int,
        *,
        stratify: bool = True,
        known: Collection[int] = (),
    ) -> tuple[Sentences, Sentences]:
        """Split off about a `share` of the sentences: whole documents where there are twenty or
        more, else single sentences; every tag stays in the first part.

        Sentences that are `known`, and their documents, stay in the first part, as
        :meth:`Examples.hold_out` has it. The same arguments give the same parts.

        Raises:
            BertineError: there is nothing that can be split off.
        """
        by_document = len({item.document for item in self.items}) >= _DOCUMENTS
        units: dict[tuple[str, int], list[Sentence]] = {}
        for number, item in enumerate(self.items):
            key = ("sentence", number)
            if by_document and item.document is not None:
                key = ("document", item.document)
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
        if stay and not held:  # each of the others has a tag that is nowhere else
            return self.hold_out(share, seed)
        if not held:
            raise BertineError(
                f"{self.source}: cannot hold out {share:g} of {counted(len(self), 'sentence')} "
                "without losing a tag; give a folder with a training and a validation file"
            )
        first = [item for name in names if name not in held for item in units[name]]
        second = [item for name in names if name in held for item in units[name]]
        source = f"{self.source} (held out)"
        return (
            replace(self, items=first, met=Counter()),
            replace(self, source=source, items=second, notes=[], met=Counter()),
        )
