"""What a tagger says of a text: its words, their tags, the entities and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertine.tasks.entities import entities, is_entity_tag
from bertine.tasks.sentences import Sentence, Sentences
from bertine.tasks.tagging import Tags
from bertine.tasks.words import split_words

#: Begin and end of a word, in characters.
Offsets = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity in a text.

    Attributes:
        type: of the entity.
        text: its words as the text has them; of a list of words, with spaces between.
        first, last: its words, from `first` to before `last`.
        begin, end: its characters in the text, end exclusive; None for a list of words.
    """

    type: str
    text: str
    first: int
    last: int
    begin: int | None = None
    end: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the characters where there is a text, else the words."""
        if self.begin is None:
            place: dict[str, Any] = {"first_word": self.first, "end_word": self.last}
        else:
            place = {"begin": self.begin, "end": self.end}
        return {"type": self.type, "text": self.text, **place}


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text, or a list of words, and the tag of each word.

    Attributes:
        words: N words.
        tags: the most probable tag of each.
        probabilities: of these tags.
        text: that the words are of; None for a list of words.
        offsets: where each word stands in the text; None for a list of words.
        unread: words of which normalization leaves nothing; their tag is O.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    text: str | None = None
    offsets: Offsets | None = None
    unread: tuple[int, ...] = ()

    @property
    def entities(self) -> list[Mention]:
        """The entities that the tags mark; none where a tag is plain."""
        if not all(map(is_entity_tag, self.tags)):
            return []
        return [self._mention(e.type, e.begin, e.end) for e in entities(self.tags)]

    def _mention(self, kind: str, first: int, last: int) -> Mention:
        if self.text is None or self.offsets is None:
            return Mention(kind, " ".join(self.words[first:last]), first, last)
        begin, end = self.offsets[first][0], self.offsets[last - 1][1]
        return Mention(kind, self.text[begin:end], first, last, begin, end)


def sentences_of(
    texts: Sequence[str | Sequence[str]], name: str = "input", lines: Sequence[int] | None = None
) -> tuple[Sentences, list[Offsets | None]]:
    """Texts (cut into words) and lists of words → sentences, and where the words stand.

    Args:
        texts: N of them.
        name: of their source, for messages.
        lines: of the source, one for each text; None: 1, 2, ….
    """
    items: list[Sentence] = []
    offsets: list[Offsets | None] = []
    for number, text in enumerate(texts):
        line = number + 1 if lines is None else lines[number]
        if isinstance(text, str):
            spans = tuple(split_words(text))
            words = tuple(text[begin:end] for begin, end in spans)
            offsets.append(spans)
        else:
            words = tuple(text)
            offsets.append(None)
        items.append(Sentence(words, None, line))
    return Sentences(name, ("words",), None, items), offsets


def tagged_texts(
    texts: Sequence[str | Sequence[str]],
    sentences: Sentences,
    offsets: Sequence[Offsets | None],
    predictions: Sequence[Tags],
) -> list[TaggedText]:
    """The answers for what :func:`sentences_of` has made of `texts`."""
    return [
        TaggedText(
            item.words,
            found.tags,
            found.probabilities,
            text if isinstance(text, str) else None,
            spans,
            found.unread,
        )
        for text, item, spans, found in zip(
            texts, sentences.items, offsets, predictions, strict=True
        )
    ]
