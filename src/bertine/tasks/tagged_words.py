"""Read words, tags and entities of texts, name them in answers, and report their scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, ClassVar

import numpy as np

from bertine.core.console import aligned, plural
from bertine.core.text import Index, visible
from bertine.data.entities import (
    OUTSIDE,
    Counts,
    Offsets,
    Sentence,
    Sentences,
    entities,
    is_entity_tag,
    split_words,
)
from bertine.tasks.answer import Answer, json_value, worst_lines
from bertine.tasks.base import Features
from bertine.tasks.calibration import Reliability
from bertine.tasks.report import EvaluationReport
from bertine.tokenization.sentences import remove_cjk_spaces
from bertine.tokenization.tokenizer import Tokenizer

# Word pieces: each word is tokenized separately, so that nothing has to be aligned.


class WordPieces:
    """The pieces of all words of some sentences.

    Attributes:
        room: the most pieces of a word; further ones are left out.
        lengths: pieces of each word.
        met: counts of words; see :func:`met_notes`.
        first_word: the index of the first word of each sentence, and the total at the end.
    """

    def __init__(
        self, items: Sequence[Sentence], tokenizer: Tokenizer, room: int, *, keep: bool
    ) -> None:
        words = list(chain.from_iterable(item.words for item in items))
        ids, counts = tokenizer.encode_words(words)
        ends = np.cumsum(counts, dtype=np.int64)
        self.room = room
        self._ids, self._starts = ids, ends - counts
        self._unknown = tokenizer.unk_token_id
        self.met = Counter(
            words=len(words),
            empty=int((counts == 0).sum()),
            long=int((counts > room).sum()),
            cut=int((counts - room).clip(0).sum()),
        )
        # Without a tag for "nothing", a word without pieces is an unknown one.
        kept = np.minimum(np.maximum(counts, 1) if keep else counts, room)
        self.lengths: list[int] = kept.tolist()
        self._regular = bool((kept == counts).all())
        sizes = np.fromiter((len(item.words) for item in items), np.int64, len(items))
        self.first_word: list[int] = [0, *np.cumsum(sizes).tolist()]

    def read(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids [n] of the words from `begin` to before `end`, and the place where each
        begins in them."""
        lengths = np.asarray(self.lengths[begin:end], np.int64)
        starts = np.cumsum(lengths) - lengths
        if begin == end:
            return np.zeros(0, np.int32), starts
        if self._regular:
            last = self._starts[end - 1] + lengths[-1]
            return self._ids[self._starts[begin] : last], starts
        parts = []
        for word, length in zip(range(begin, end), lengths.tolist(), strict=True):
            start = self._starts[word]
            after = self._starts[word + 1] if word + 1 < len(self._starts) else len(self._ids)
            ids = self._ids[start : min(after, start + length)]
            parts.append(ids if len(ids) == length else np.array([self._unknown], np.int32))
        return np.concatenate(parts), starts


def met_notes(
    source: str, met: Mapping[str, int], max_length: int, room: int, *, keep: bool
) -> list[str]:
    """Return notes for the user on words and windows, one per line.

    Args:
        source: the file.
        met: the number of ``sentences``, of those that took ``several`` windows, and of these
            ``windows``; the number of ``words``, of those that were ``empty`` after normalization,
            of those too ``long``, and of pieces ``cut`` from these.
        max_length: of an input, in pieces.
        room: the same without special tokens.
        keep: whether words without pieces are read as unknown ones.
    """
    notes = {
        "several": f"{met['several']} of {met['sentences']} sentences are longer than "
        f"{max_length} pieces; they are read in {met['windows']} windows, so that every word is "
        "predicted",
        "empty": f"of {met['empty']} of {met['words']} words normalization leaves nothing; "
        + (
            "read as unknown words"
            if keep
            else f"their tag is {OUTSIDE}, except inside of entities"
        ),
        "long": f"{plural(met['long'], 'word', 'has', 'have')} more than {room} pieces; the last "
        f"ones are left out ({plural(met['cut'], 'piece')} lost)",
    }
    return [f"{source}: {note}" for name, note in notes.items() if met[name]]


# Windows: parts of sentences, with text around them, that are read as one input. Each word is
# predicted in exactly one window, with other words as context.
#
# The words of a document around a sentence help (paper, section 5.3), and a sentence may be longer
# than the model's inputs. Both have one solution: a window has a *core*, the words that it
# predicts, and context on both sides, as much as fits.


@dataclass(frozen=True, slots=True)
class Window:
    """The words from `begin` to before `end`; those from `first` to before `last` are predicted."""

    begin: int
    end: int
    first: int
    last: int


def cover(
    lengths: Sequence[int], first: int, last: int, room: int, *, low: int, high: int
) -> list[Window]:
    """Return windows whose cores together are the words from `first` to before `last`.

    If these fit into one window, there is only that. Otherwise a core takes half of the room, so
    that every word, except near the ends, has about a quarter of it or more as context on each
    side.

    Args:
        lengths: pieces of each word, none more than `room`.
        first, last: the words to predict, a sentence.
        room: pieces of a window, special tokens not counted.
        low, high: the words that may be read: those of the sentence, or of its document.
    """
    cores: list[tuple[int, int]] = []
    if sum(lengths[first:last]) <= room:
        cores.append((first, last))
    else:
        begin, size = first, 0
        for word in range(first, last):
            if word > begin and size + lengths[word] > room // 2:
                cores.append((begin, word))
                begin, size = word, 0
            size += lengths[word]
        cores.append((begin, last))
    return [_widened(lengths, core, room, low, high) for core in cores]


def _widened(
    lengths: Sequence[int], core: tuple[int, int], room: int, low: int, high: int
) -> Window:
    """Return the window of a core: words are added at the side with fewer pieces of context, and at
    the other side when no more fit there."""
    begin, end = core
    free = room - sum(lengths[begin:end])
    left = right = 0
    while True:
        can_left = begin > low and lengths[begin - 1] <= free
        can_right = end < high and lengths[end] <= free
        if can_left and (left <= right or not can_right):
            begin -= 1
            left += lengths[begin]
            free -= lengths[begin]
        elif can_right:
            right += lengths[end]
            free -= lengths[end]
            end += 1
        else:
            return Window(begin, end, *core)


@dataclass(frozen=True, slots=True)
class WordFeatures(Features):
    """A window of a sentence, ready to be padded into a batch; `row` is the sentence.

    Attributes:
        positions: int32 [w], the token that predicts each of the window's words, its first piece.
        words: int32 [w], the indices of these words in the sentence.
        tags: int64 [w], the ids of their tags; None if unknown.
        num_words: of the whole sentence.
    """

    positions: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    words: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    tags: np.ndarray | None = None
    num_words: int = 0


def sentence_bounds(
    items: Sequence[Sentence], document_context: bool
) -> Iterator[tuple[int, Sentence, int, int]]:
    """Yield (row, sentence, first row and row after the last that may be read with it): those of
    its document, with `document_context` and if the file separates documents; otherwise only the
    sentence."""
    row = 0
    for document, group in groupby(items, key=lambda item: item.document):
        low, members = row, list(group)
        whole = document_context and document is not None
        for item in members:
            yield row, item, *((low, low + len(members)) if whole else (row, row + 1))
            row += 1


def word_window(
    row: int,
    item: Sentence,
    window: Window,
    sentence: int,
    pieces: WordPieces,
    tags: np.ndarray | None,
    tokenizer: Tokenizer,
) -> WordFeatures:
    """Return the features of one `window` of a sentence.

    Args:
        row: of the sentence.
        item: the sentence.
        sentence: the index of its first word in all words of `pieces`.
        tags: int64 [W], the ids of the tags of its W words; None if unknown.
    """
    ids, starts = pieces.read(window.begin, window.end)
    input_ids, segments = tokenizer.template.wrap(ids)
    (begin,) = tokenizer.template.one.starts([len(ids)])
    read = np.asarray(pieces.lengths[window.first : window.last], np.int32) > 0
    words = np.arange(window.first - sentence, window.last - sentence, dtype=np.int32)[read]
    offset = window.first - window.begin
    positions = starts[offset : offset + len(read)][read] + begin
    return WordFeatures(
        input_ids.astype(np.int32),
        segments,
        row=row,
        positions=positions.astype(np.int32),
        words=words,
        tags=None if tags is None else tags[words],
        num_words=len(item.words),
    )


@dataclass(frozen=True, slots=True)
class Tags:
    """The most probable tag of each word of a sentence, and its probability.

    `unread` are the words that are empty after normalization, such as control characters. Their tag
    is O, or that of an entity that goes on behind them, with probability 1. `left_out` counts
    entities whose probability was too low.
    """

    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    unread: tuple[int, ...] = ()
    left_out: int = 0

    @property
    def as_label(self) -> tuple[str, ...]:
        """The answer in the form of an example's label."""
        return self.tags


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity in a text.

    Attributes:
        label: the kind of entity.
        text: its words as in the text; for a list of words, joined by spaces, but not between
            Chinese characters.
        probability: of its least certain tag (:func:`entity_probability`).
        first_word, end_word: its words, from `first_word` to before `end_word`.
        start, end: its characters in the text, the end exclusive; None for a list of words.
    """

    label: str
    text: str
    probability: float
    first_word: int
    end_word: int
    start: int | None = None
    end: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entity as JSON values: with its characters if there is a text, else with its
        words."""
        if self.start is None:
            place: dict[str, Any] = {"first_word": self.first_word, "end_word": self.end_word}
        else:
            place = {"start": self.start, "end": self.end}
        return {
            **place,
            "label": self.label,
            "text": self.text,
            "probability": json_value(self.probability),
        }


def entity_probability(probabilities: Sequence[float]) -> float:
    """Return the probability of an entity: that of its least certain tag.

    On WNUT-17 it separated right entities from wrong ones about as well as the mean of the tags'
    probabilities (AUC 0.81 for both) and was nearer to the actual share of right ones; their
    product ranked worse (0.80).

    Args:
        probabilities: of the tags of its words, at least one.
    """
    return min(probabilities)


def without_unsure(tags: Tags, below: float, outside: Sequence[float]) -> Tags:
    """Return tags without the entities whose probability is below `below`: their words get O, with
    its probability in `outside`."""
    words, chances, left_out = list(tags.tags), list(tags.probabilities), 0
    for entity in entities(tags.tags):
        inside = slice(entity.begin, entity.end)
        if entity_probability(tags.probabilities[inside]) < below:
            words[inside] = [OUTSIDE] * (entity.end - entity.begin)
            chances[inside] = outside[inside]
            left_out += 1
    return Tags(tuple(words), tuple(chances), tags.unread, left_out)


@dataclass(frozen=True, slots=True, repr=False)
class TaggedText(Answer):
    """A text, or a list of words, and the tag of each word.

    Attributes:
        words: N words.
        tags: the most probable tag of each.
        probabilities: of these tags.
        text: the text of the words; None for a list of words.
        offsets: the place of each word in the text; None for a list of words.
        unread: words that are empty after normalization; their tag is O.
        left_out: number of entities that are left out because their probability is below the bound
            from which the model should answer; the tags of their words are O.
    """

    written: ClassVar[tuple[str, ...]] = ("tags", "entities")

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    text: str | None = None
    offsets: Offsets | None = None
    unread: tuple[int, ...] = ()
    left_out: int = 0

    @classmethod
    def of(cls, item: Sentence, tags: Tags) -> TaggedText:
        """Join the words of a text, their places and their tags."""
        offsets = None if item.text is None else item.offsets
        return cls(
            item.words,
            tags.tags,
            tags.probabilities,
            item.text,
            offsets,
            tags.unread,
            tags.left_out,
        )

    @property
    def entities(self) -> list[Mention]:
        """The entities that the tags mark; empty if a tag is plain."""
        if not all(map(is_entity_tag, self.tags)):
            return []
        return [self._mention(e.type, e.begin, e.end) for e in entities(self.tags)]

    def own_cells(self) -> tuple[str, str]:
        return visible(self.marked()), ""

    def value_of(self, name: str) -> Any:
        """Return one of the attributes as a JSON value; for an empty text there are no tags, which
        is not a guess."""
        return json_value(getattr(self, name))

    def marked(self) -> str:
        """Return the text with its entities in brackets, "[Ada Lovelace: person] wrote"; with plain
        tags, each word with its tag, "Ada/NOUN wrote/VERB"."""
        if not all(map(is_entity_tag, self.tags)):
            return " ".join(f"{w}/{tag}" for w, tag in zip(self.words, self.tags, strict=True))
        parts, done = list[str](), 0
        for entity in self.entities:
            if self.text is None:
                parts += [*self.words[done : entity.first_word], f"[{entity.text}: {entity.label}]"]
                done = entity.end_word
            else:
                begin, end = entity.start or 0, entity.end or 0
                parts += [self.text[done:begin], f"[{self.text[begin:end]}: {entity.label}]"]
                done = end
        if self.text is None:
            return remove_cjk_spaces(" ".join([*parts, *self.words[done:]]))
        return "".join([*parts, self.text[done:]])

    def to_json(self, details: bool) -> dict[str, Any]:
        values = Answer.to_json(self, details)  # no super(): slots create the class anew
        if details:
            offsets = self.offsets or [(None, None)] * len(self.words)
            rows = zip(self.words, self.tags, self.probabilities, offsets, strict=True)
            values["words"] = [
                {"word": word, "tag": tag, "probability": json_value(p), "start": a, "end": b}
                for word, tag, p, (a, b) in rows
            ]
        return values

    @classmethod
    def agreement(cls, ours: Sequence[Any], theirs: Sequence[Any]) -> str:
        tags = [
            one == other
            for a, b in zip(ours, theirs, strict=True)
            for one, other in zip(a.tags, b.tags, strict=True)
        ]
        words = plural(len(tags), "word")
        return f"the same tag as in fp32 for {sum(tags):,} of {words} of sample texts"

    def shown_lines(self) -> list[str]:
        """Return the marked text, and its entities in a table."""
        rows = [(visible(m.label), visible(m.text), f"{m.probability:.1%}") for m in self.entities]
        return [*self.lines(), *aligned(rows, left=(0, 1))]

    def _mention(self, kind: str, first: int, end_word: int) -> Mention:
        chance = entity_probability(self.probabilities[first:end_word])
        if self.text is None or self.offsets is None:
            named = remove_cjk_spaces(" ".join(self.words[first:end_word]))
            return Mention(kind, named, chance, first, end_word)
        start, end = self.offsets[first][0], self.offsets[end_word - 1][1]
        return Mention(kind, self.text[start:end], chance, first, end_word, start, end)


@dataclass
class TextSentences(Sentences):
    """Sentences made from texts, or from lists of words."""

    def answers(self, predictions: Sequence[Any]) -> list[Any]:
        """Combine tags with the words of the texts and their places."""
        return list(map(TaggedText.of, self.items, predictions))


def sentences_of(
    texts: Sequence[str | Sequence[str]], name: str = "texts", lines: Sequence[int] | None = None
) -> TextSentences:
    """Divide texts into words.

    Args:
        texts: N of them; lists of words stay unchanged.
        name: of their source, for messages.
        lines: of the source, one for each text; None: their indices.
    """
    items: list[Sentence] = []
    for line, text in zip(lines or map(Index, range(len(texts))), texts, strict=True):
        if isinstance(text, str):
            offsets = tuple(split_words(text))
            words = tuple(text[start:end] for start, end in offsets)
            items.append(Sentence(words, None, line, text=text, offsets=offsets))
        else:
            items.append(Sentence(tuple(text), None, line))
    return TextSentences(name, ("words",), None, items)


# Report: the result of evaluating a tagger.

#: The most types in a terminal; the most frequent ones are shown.
_SHOWN = 30


@dataclass(repr=False)
class TaggingReport(EvaluationReport):
    """The scores of a tagger on tagged sentences.

    Attributes:
        metrics: for entities precision, recall and f1 over all types together, accuracy of words;
            for plain tags accuracy, and f1 as the mean over the tags. Fractions of 1.
        types: the counts of each type of entity, or of each plain tag.
        entities: whether `types` are those of entities.
        num_sentences, num_words: numbers of scored sentences and words.
        reliability: how often entities, or plain tags, are right, by their probability; None:
            unknown.
    """

    metrics: dict[str, float]
    types: dict[str, Counts]
    entities: bool
    num_sentences: int
    num_words: int
    reliability: Reliability | None = None

    json_keys = (
        *("source", "num_examples", "num_words", "metrics", "collapsed", "types"),
        *("reliability", "notes"),
    )

    @classmethod
    def of(
        cls,
        types: Mapping[str, Counts],
        *,
        entities: bool,
        right: int,
        num_words: int,
        num_sentences: int,
        reliability: Reliability | None = None,
    ) -> TaggingReport:
        """Compute the scores from counts; `right` of `num_words` words have their true tag."""
        accuracy = right / num_words if num_words else 0.0
        if entities:
            whole = sum(types.values(), Counts())
            metrics = {"precision": whole.precision, "recall": whole.recall, "f1": whole.f1}
            metrics["accuracy"] = accuracy
        else:
            f1 = sum(counts.f1 for counts in types.values()) / max(1, len(types))
            metrics = {"accuracy": accuracy, "f1": f1}
        return cls(metrics, dict(types), entities, num_sentences, num_words, reliability)

    @property
    def num_examples(self) -> int:
        """The number of scored sentences."""
        return self.num_sentences

    @property
    def collapsed(self) -> bool:
        """Whether nothing is predicted though there is something: every word is O, or all words
        have one tag."""
        used = sum(counts.predicted > 0 for counts in self.types.values())
        there = sum(counts.true > 0 for counts in self.types.values())
        return used == 0 < there if self.entities else used == 1 < there

    def lines(self) -> list[str]:
        """Return scores, the calibration error, the warning of a collapse, notes, and a table of
        the types."""
        whole = sum(self.types.values(), Counts())
        size = f"{plural(self.num_sentences, 'sentence')}, {plural(self.num_words, 'word')}"
        lines = [self.headline(size, self.metrics)]
        if self.entities:
            lines.append(f"{whole.true} entities; found {whole.predicted}; correct {whole.correct}")
        if self.reliability is not None and self.reliability.bins:
            lines.append(self.reliability.line())
        if self.collapsed:
            what = "no entity is found" if self.entities else "every word gets the same tag"
            lines.append(
                f"collapsed: {what}; train again with another seed, another learning rate or more "
                "epochs"
            )
        return lines + self.notes + self._table() + worst_lines(self.worst)

    def _table(self) -> list[str]:
        chosen = sorted(self.types, key=lambda name: -self.types[name].true)[:_SHOWN]
        rows = [["type" if self.entities else "tag", "precision", "recall", "f1", "true", "found"]]
        for name, counts in self.types.items():
            if name in chosen:
                shares = (counts.precision, counts.recall, counts.f1)
                numbers = (*(f"{share:.2%}" for share in shares), counts.true, counts.predicted)
                rows.append([visible(name) or "(no type)", *map(str, numbers)])
        more = len(self.types) - len(chosen)
        return [*aligned(rows, head=True), *([f"and {more} more"] if more else [])]
