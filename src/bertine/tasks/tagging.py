"""Define the task of tagging words: entities, parts of speech.

The sources are Devlin et al. 2018, sections 4 and 5.3, figure 4d. The unit is the word: its first
piece predicts its tag, the others have no label. So no entity begins or ends inside a word.

Shape legend: B sequences in a batch, T tokens of the longest, K tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from bertine.core.console import aligned, plural
from bertine.core.errors import BertineError
from bertine.core.names import later, option
from bertine.core.task_info import TaskInfo
from bertine.core.text import row_at, visible
from bertine.corpora.batch import Batch
from bertine.data.entities import (
    OUTSIDE,
    Entity,
    Sentence,
    Sentences,
    encode,
    entities,
    is_entity_tag,
    may_follow,
    ordered_tags,
    span_counts,
    spelling_of,
    split_tag,
    tag_counts,
)
from bertine.data.examples import Examples
from bertine.data.lines import LINE_COLUMN
from bertine.models.config import Config
from bertine.tasks.answer import json_value
from bertine.tasks.base import (
    NONE,
    Features,
    Task,
    by_example,
    check_room,
    counted,
    cross_entropies,
    entropy,
    pad_features,
    setting,
)
from bertine.tasks.calibration import Decisions, Reliability, probabilities_of
from bertine.tasks.labels import check_labels, known_labels
from bertine.tasks.report import require_some
from bertine.tasks.tagged_words import (
    TaggedText,
    TaggingReport,
    Tags,
    TextSentences,
    WordFeatures,
    WordPieces,
    cover,
    entity_probability,
    met_notes,
    sentence_bounds,
    sentences_of,
    without_unsure,
    word_window,
)
from bertine.tokenization.documents import USUAL_TEXT_COLUMNS
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    from bertine.models.encoder import Encoded
    from bertine.models.heads import Model
    from bertine.objectives.losses import Term
else:
    later(globals(), "torch objectives.losses:Term F=torch.nn.functional")

#: The label of tokens without a prediction.
IGNORED = -100

#: The most words for fitting a temperature: each takes 8 K bytes.
_MOST_WORDS = 200_000


@dataclass(frozen=True)
class Tagging(Task[Tags]):
    """The task of tagging each word of a sentence.

    The head is a dropout and a linear layer on the last hidden state of each token, as in the paper
    and in ``BertForTokenClassification``. Sentences longer than the model's inputs are read in
    several windows; each word is predicted in one.

    Attributes:
        labels: the tags, in the order of the head's outputs; those of entities in IOB2.
        text_columns: the column of the words ("column 1" in column files).
        label_column: that of the tags, None if unknown.
        max_length: longest input in pieces, special tokens included.
        document_context: whether the sentences before and after, of the same document, fill the
            input up to `max_length` (section 5.3). Each sentence is then an input of that length.
        dataset: the public data set; None for a user's own.
        abstain_below: an entity with a lower probability is left out.

    Raises:
        BertineError: there are fewer than two tags, a repeated one, or a maximum length without
            room for words.
    """

    name: ClassVar[str] = "tagging"
    primary_metric: ClassVar[str] = "f1"
    answer: ClassVar[type[TaggedText]] = TaggedText
    reader = "words"
    rules: ClassVar[tuple[str, ...]] = ("abstain_below",)
    label_noun: ClassVar[str] = "entity type"
    head = "token_classifier"

    labels: tuple[str, ...] = field()  # without a default, as others have
    text_columns: tuple[str, ...] = ("words",)
    label_column: str | None = None
    max_length: int = 128
    document_context: bool = setting(False, always=True)
    dataset: str | None = None
    abstain_below: float = 0.0
    metric_names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        check_labels("tagging", self.labels, "tag")
        object.__setattr__(self, "metric_names", ("f1" if self.has_entities else "accuracy",))
        if self.max_length < 3:
            raise BertineError(f"max_length {self.max_length} leaves no room for words")
        if self.abstain_below and not self.has_entities:
            raise BertineError(
                f"{option('abstain_below')} leaves out entities, but the tags of this model mark "
                "none"
            )

    @property
    def has_entities(self) -> bool:
        """Whether the tags mark entities; otherwise they are plain, such as parts of speech."""
        return all(map(is_entity_tag, self.labels))

    @property
    def _in_iob2(self) -> bool:
        """Whether the tags of entities follow IOB2; a model that was trained elsewhere may use
        another scheme."""
        prefixes: dict[str, set[str]] = {}
        for prefix, kind in map(split_tag, self.labels):
            if prefix != OUTSIDE:
                prefixes.setdefault(kind, set()).add(prefix)
        return all(used <= {"B", "I"} and used != {"I"} for used in prefixes.values())

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config, **known: Any) -> Self:
        """Create the task of a model directory; a model that was trained elsewhere, whose columns
        are unknown, may write its tags in another way."""
        if not info.text_columns and (spelling := spelling_of(info.labels)):
            known["labels"] = tuple(spelling.tags[tag] for tag in info.labels)
        return super().from_info(info, config, **known)

    @classmethod
    def names_in(cls, label: Sequence[str]) -> list[str]:
        """Return the type of each entity, or every tag if none marks an entity."""
        parts = [split_tag(tag) for tag in label if tag != OUTSIDE]
        marked = any(prefix in ("B", "I") and kind for prefix, kind in parts)
        return [kind for prefix, kind in parts if prefix == "B"] if marked else list(label)

    @classmethod
    def label_facts(cls, labels: Iterable[Any]) -> dict[str, Any]:
        """Count the entities of each type, without words outside them; or every tag, if no tag at
        all marks an entity."""
        tags = Counter(tag for label in labels for tag in label)
        parts = {tag: split_tag(tag) for tag in tags if tag != OUTSIDE}
        if not any(prefix in ("B", "I") and kind for prefix, kind in parts.values()):
            return counted(tags)
        kinds = {kind: tags[tag] for tag, (prefix, kind) in parts.items() if prefix == "B"}
        return counted(Counter(kinds))

    @classmethod
    def from_examples(
        cls,
        examples: Examples,
        *,
        max_length: int = 128,
        labels: Sequence[str] | None = None,
        document_context: bool = False,
        **settings: Any,
    ) -> Tagging:
        """Create the task from tagged training sentences.

        The tags are those that occur, sorted; for entities O, and B and I of every type.

        Raises:
            BertineError: fewer than two tags occur; with `document_context`, the file does not
                separate documents.
        """
        occurring = {tag for item in examples.items for tag in item.tags or ()}
        if labels is None and len(occurring) < 2:
            raise BertineError(
                f"{examples.source}: {examples.label_column} holds only the tag "
                f"{next(iter(occurring), '')!r}; is that the column of the tags?"
            )
        if document_context and all(item.document is None for item in examples.items):
            raise BertineError(
                f"{examples.source}: tells no documents, so there is no document context; column "
                "files tell them by lines with -DOCSTART-"
            )
        return cls(
            tuple(ordered_tags(occurring) if labels is None else labels),
            examples.text_columns,
            examples.label_column,
            max_length,
            document_context,
            **settings,
        )

    def label_id(self, tag: str, where: str, word: str) -> int:
        """Return the index of `tag`; for a ``B-`` that the model lacks, as in IOB1, that of its
        ``I-``.

        Raises:
            BertineError: it is not one of the tags; names file, line, word, tag and the known ones.
        """
        if tag not in self.ids:
            prefix, kind = split_tag(tag)
            inside = f"I-{kind}" if kind else "I"
            if prefix == "B" and inside in self.ids:
                return self.ids[inside]
            known = known_labels(tag, self.labels)
            raise BertineError(f"{where}: unknown tag {tag!r} of {word!r}{known}")
        return self.ids[tag]

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Turn sentences into windows (:class:`WordFeatures`), one or more each, in order.

        Each word is tokenized separately. Notes are added to those of `examples`: words with too
        many pieces, words without any, sentences in several windows.

        Raises:
            BertineError: a sentence has more or fewer tags than words; a tag is unknown.
        """
        sentences = cast(Sentences, examples)
        items = sentences.items
        check_room(self.max_length, 1, tokenizer, "words")
        room = self.max_length - tokenizer.template.added()
        pieces = WordPieces(items, tokenizer, room, keep=OUTSIDE not in self.ids)
        features: list[Features] = []
        several = windows = 0
        for row, item, low, high in sentence_bounds(items, self.document_context):
            tags = self._tag_ids(sentences, item)
            first = pieces.first_word[row]
            parts = cover(
                pieces.lengths,
                first,
                pieces.first_word[row + 1],
                pieces.room,
                low=pieces.first_word[low],
                high=pieces.first_word[high],
            )
            several += len(parts) > 1
            windows += len(parts) if len(parts) > 1 else 0
            for part in parts:
                features.append(word_window(row, item, part, first, pieces, tags, tokenizer))
        sentences.met = Counter(sentences=len(items), several=several, windows=windows)
        sentences.met.update(pieces.met)
        for note in self.met_notes(sentences.source, sentences.met, tokenizer):
            sentences.note(note)
        if self.document_context and all(item.document is None for item in items):
            sentences.note(
                f"{examples.source}: tells no documents, so each sentence is read by itself"
            )
        return features

    def met_notes(self, source: str, met: Mapping[str, int], tokenizer: Tokenizer) -> list[str]:
        """Return notes on the counts of :meth:`featurize` for `source`, one per line."""
        room = self.max_length - tokenizer.template.added()
        return met_notes(source, met, self.max_length, room, keep=OUTSIDE not in self.ids)

    def _tag_ids(self, sentences: Sentences, item: Sentence) -> np.ndarray | None:
        """Return the ids of the tags of a sentence, int64 [W]; None if they are unknown."""
        if item.tags is None:
            return None
        if len(item.tags) != len(item.words):
            raise BertineError(
                f"{row_at(sentences.source, item.line)}: {plural(len(item.words), 'word')}, but "
                f"{plural(len(item.tags), 'tag')}; each word needs one"
            )
        pairs = zip(item.tags, item.words, strict=True)
        ids = [
            self.label_id(tag, sentences.where(item, number), word)
            for number, (tag, word) in enumerate(pairs)
        ]
        return np.array(ids, dtype=np.int64)

    def notes(self, features: Sequence[Features]) -> list[str]:
        """Return no notes; :meth:`featurize` adds them to the sentences."""
        return []

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        """Pad; ``targets["labels"]`` int64 [B, T], -100 except at the first piece of a word, if
        every feature has tags."""
        windows = cast(Sequence[WordFeatures], features)
        batch = pad_features(features, pad_id, self.max_length)
        if all(window.tags is not None for window in windows):
            labels = np.full(tuple(batch.input_ids.shape), IGNORED, dtype=np.int64)
            for row, window in enumerate(windows):
                assert window.tags is not None
                labels[row, window.positions] = window.tags
            batch.targets["labels"] = torch.from_numpy(labels)
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the predicted words."""
        return {self.head: int((batch.targets["labels"] != IGNORED).sum())}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy, summed over the words, in fp32."""
        logits = self.outputs(model, batch, encoded).float()
        # A micro-batch may be narrower than the batch of its labels.
        labels = batch.targets["labels"][:, : logits.shape[1]]
        total = F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        correct = (logits.argmax(-1) == labels).sum()
        return {self.head: Term(total, self.counts(batch)[self.head], correct)}

    def with_some_target(self, feature: Any) -> Any:
        if feature.tags is not None:
            return feature
        return replace(feature, tags=np.zeros(len(feature.words), dtype=np.int64))

    def _rows(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the logits [B, T, K] of the first pieces of words: [W, K]."""
        width = batch.input_ids.shape[1]
        first = batch.targets["labels"][:, :width] != IGNORED
        return outputs[:, :width][first]

    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[Tags]:
        """Turn logits [T, K] of each window into the tags of each sentence, by the highest logit;
        probabilities by softmax (in fp64)."""
        answers: list[Tags] = []
        for tables, windows in by_example(outputs, features):
            size = windows[0].num_words
            ids = np.full(size, -1, np.int64)
            chances, outside = np.ones(size), np.ones(size)
            for logits, window in zip(tables, windows, strict=True):
                rows = logits[window.positions]
                ids[window.words], chances[window.words] = _best(rows)
                if self.abstain_below and OUTSIDE in self.ids and len(rows):
                    table = probabilities_of(rows.astype(np.float64))
                    outside[window.words] = table[:, self.ids[OUTSIDE]]
            unread = np.flatnonzero(ids < 0).tolist()
            chosen = [self.labels[i] if i >= 0 else OUTSIDE for i in ids.tolist()]
            for word in unread:  # inside of an entity that goes on behind it
                before = chosen[word - 1] if word else None
                after = next((chosen[k] for k in range(word, size) if ids[k] >= 0), OUTSIDE)
                if split_tag(after)[0] == "I" and may_follow(before, after):
                    chosen[word] = after
            tags = Tags(tuple(chosen), tuple(chances.tolist()), tuple(unread))
            if self.abstain_below and self.has_entities:
                tags = without_unsure(tags, self.abstain_below, outside.tolist())
            answers.append(tags)
        return answers

    def decisions(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> Decisions | None:
        """Return the logits of each word, and the number of its tag, up to a limit of words."""
        tables, tags, rows, count = [], [], [], 0
        for logits, window in zip(outputs, cast(Sequence[WordFeatures], features), strict=True):
            if window.tags is None or not len(window.tags) or count >= _MOST_WORDS:
                continue
            tables.append(logits[window.positions].astype(np.float64))
            tags.append(window.tags)
            rows.append(np.full(len(window.tags), window.row))
            count += len(window.tags)
        if not tables:
            return None
        return Decisions(np.concatenate(tables), np.concatenate(tags), np.concatenate(rows), "tags")

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[float]:
        """Compute the cross-entropy of each sentence, the mean over the predicted words; nan if
        there are none."""
        losses = []
        for tables, windows in by_example(outputs, features):
            of_words = [
                cross_entropies(logits[window.positions], window.tags)
                for logits, window in zip(tables, windows, strict=True)
                if window.tags is not None and len(window.tags)
            ]
            losses.append(float(np.concatenate(of_words).mean()) if of_words else NONE)
        return losses

    def constant(
        self, examples: Examples[Any], features: Sequence[Features]
    ) -> tuple[None, float | None]:
        """Return the entropy of the frequencies of the tags."""
        return None, entropy(Counter(tag for item in examples.items for tag in item.tags or ()))

    def report(self, predictions: Sequence[Tags], labels: Sequence[Sequence[str]]) -> TaggingReport:
        """Compute for entities precision, recall, f1 (over all types together, like ``conlleval``)
        and accuracy (of words), for plain tags accuracy and f1 (the mean over the tags); each
        type's scores, and whether the model predicts no entity at all.

        Args:
            predictions: for N sentences.
            labels: their true tags, those of entities in any scheme.

        Raises:
            BertineError: there are no sentences, or a sentence has another number of tags.
        """
        items = [Sentence((), tuple(tags)) for tags in labels]
        return self._report(predictions, items)

    def judge(self, predictions: Sequence[Tags], examples: Examples[Any]) -> TaggingReport:
        """Compute the report of the predictions for labelled sentences: of entities that were given
        by their characters, by these."""
        return self._report(predictions, [item for item in examples.items if item.tags is not None])

    def _report(self, predictions: Sequence[Tags], items: Sequence[Sentence]) -> TaggingReport:
        require_some(predictions, "sentences")
        labels = [item.tags or () for item in items]
        for number, (answer, true) in enumerate(zip(predictions, labels, strict=True), 1):
            if len(answer.tags) != len(true):
                raise BertineError(
                    f"sentence {number}: {plural(len(true), 'tag')} for "
                    f"{plural(len(answer.tags), 'word')}; each word needs one"
                )
        guesses: list[Sequence[str]] = [prediction.tags for prediction in predictions]
        if self.has_entities and not self._in_iob2:  # in the scheme of the true ones
            guesses = [encode(entities(tags), len(tags), "IOB2") for tags in guesses]
        if self.has_entities:
            truth = [_true_entities(item) for item in items]
            counts = span_counts(truth, map(_in_unit_of, items, guesses))
        else:
            truth, counts = [], tag_counts(labels, guesses)
        return TaggingReport.of(
            counts,
            entities=self.has_entities,
            right=sum(
                tag == guess
                for true, guessed in zip(labels, guesses, strict=True)
                for tag, guess in zip(true, guessed, strict=True)
            ),
            num_words=sum(map(len, labels)),
            num_sentences=len(predictions),
            reliability=self._reliability(predictions, items, truth),
        )

    def _reliability(
        self,
        predictions: Sequence[Tags],
        items: Sequence[Sentence],
        truth: Sequence[Sequence[Entity]],
    ) -> Reliability:
        """Compare the probabilities of the predicted entities, or of plain tags, with whether they
        are right; words without pieces have none."""
        chances: list[float] = []
        right: list[bool] = []
        for number, (answer, item) in enumerate(zip(predictions, items, strict=True)):
            if not self.has_entities:
                true = item.tags or ()
                read = [word for word in range(len(true)) if word not in answer.unread]
                chances += [answer.probabilities[word] for word in read]
                right += [answer.tags[word] == true[word] for word in read]
                continue
            there = set(truth[number])
            pairs = zip(entities(answer.tags), _in_unit_of(item, answer.tags), strict=True)
            for words, entity in pairs:
                chances.append(entity_probability(answer.probabilities[words.begin : words.end]))
                right.append(entity in there)
        return Reliability.of(chances, right, "entities" if self.has_entities else "tags")

    def examples_of(
        self, texts: Sequence[Any], source: str = "texts", lines: Sequence[int] | None = None
    ) -> TextSentences:
        """Divide texts into words; lists of words stay unchanged."""
        return sentences_of(texts, source, lines)

    def misfit(self, text: str | Sequence[str]) -> str | None:
        """Return None: both a text and a list of words are accepted."""
        return None

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Choose one column; the task was trained on words, and a text has no column of its own."""
        columns = [name for name in (*self.text_columns, *USUAL_TEXT_COLUMNS) if name in names]
        return (*columns, USUAL_TEXT_COLUMNS[0])[:1], 0

    def shown(
        self, texts: Sequence[str], answer: Any, details: bool
    ) -> tuple[tuple[str, str], list[str]]:
        """Return the text with its tags, and a line for each entity with its place."""
        rows = [(visible(m.label), visible(m.text), f"{m.start}–{m.end}") for m in answer.entities]
        nothing = ["no entities"] if self.has_entities else []
        return answer.cells(), aligned(rows, left=(0, 1)) if rows else nothing

    def row_of(self, texts: Sequence[str], answer: Any, details: bool) -> dict[str, Any]:
        """Return the text and its entities; words and tags with `details` or if tags are plain."""
        names = ["words", "tags"] if details or not self.has_entities else []
        names += ["probabilities"] * details + ["entities"] * self.has_entities
        values = {name: json_value(getattr(answer, name)) for name in names}
        return {LINE_COLUMN: answer.text} | values | answer.flags()


def _true_entities(item: Sentence) -> Sequence[Entity]:
    """Return the entities of a sentence: those given by characters, else those of its tags."""
    return entities(item.tags or ()) if item.spans is None else item.spans


def _in_unit_of(item: Sentence, tags: Sequence[str]) -> list[Entity]:
    """Return the entities of predicted tags, by characters if those of the sentence are."""
    if item.spans is None:
        return entities(tags)
    return [
        Entity(item.offsets[e.begin][0], item.offsets[e.end - 1][1], e.type) for e in entities(tags)
    ]


def _best(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the index of the highest of each row of logits [w, K], and its softmax."""
    logits = logits.astype(np.float64)
    best = logits.argmax(-1)
    top = np.take_along_axis(logits, best[:, None], -1)
    return best, 1.0 / np.exp(logits - top).sum(-1)
