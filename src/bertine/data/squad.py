"""Read questions in SQuAD's format, and find their answers in the contexts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.data.examples import Examples, staying
from bertine.data.in_memory import InMemoryTable, Source
from bertine.data.lines import MAX_JSON_BYTES, inner_suffix, is_json_object, is_typed
from bertine.data.streams import check_encoding, encodable, json_kind, open_text, text_begin

#: The status of a gold answer whose text is not in the context.
_LOST = "not in the context"


@dataclass(frozen=True, slots=True)
class Gold:
    """The human answers to a question.

    Attributes:
        answers: their texts; empty if the context does not answer the question.
        span: the characters (begin, end), end exclusive, of the first answer that is in the
            context; None if none is.
        v2: whether the rules of SQuAD v2.0 apply, in which a question may have no answer.
    """

    answers: tuple[str, ...]
    span: tuple[int, int] | None = None
    v2: bool = False

    def __str__(self) -> str:
        """Join the different answers with bars."""
        return " | ".join(dict.fromkeys(self.answers))

    @property
    def answerable(self) -> bool:
        """Whether there are answers, as defined by the official scorer of v2.0."""
        return bool(self.answers)


@dataclass(frozen=True, slots=True)
class Unaligned:
    """A gold answer that is not at its stated position, or not in the context at all.

    Attributes:
        id: of the question.
        question: its text.
        answer: the answer as given.
        answer_start: its stated first character; None if not stated.
        found: how it was resolved.
    """

    id: str
    question: str
    answer: str
    answer_start: int | None
    found: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context.

    Attributes:
        texts: the question and the context.
        label: the known answers; None if nothing is known.
        line: of the file, or the number of the question in it, for messages.
        id: the question's id in the file.
    """

    texts: tuple[str, ...]
    label: Gold | None = None
    line: int = 0
    id: str = ""


@dataclass
class SpanExamples(Examples[Question]):
    """The questions of one file in order.

    Attributes:
        v2: whether questions may have no answer.
        dataset: the public data set, e.g. "squad/v2.0"; None for the user's own data.
        unaligned: the gold answers that are not at their stated position.
    """

    v2: bool = False
    dataset: str | None = None
    unaligned: list[Unaligned] = field(default_factory=list)

    def replaced(self, items: list[Question], *notes: str, source: str = "") -> SpanExamples:
        """Return the same data set with these `items` and further notes."""
        notes_of_all = [*self.notes, *notes]
        return replace(self, source=source or self.source, items=items, notes=notes_of_all)

    def trainable(self) -> SpanExamples:
        """Keep the questions that a model can be trained on: those with an answer in the context,
        or (v2) without an answer. The others are counted in the notes.

        Raises:
            BertineError: none is left.
        """
        kept = [item for item in self.items if item.label and _target(item.label)]
        none = "no question has an answer that is in its context; is it a training file?"
        left_out = "are not trained on: they have no answer, or none that is in the context"
        return self._reduced(kept, none, left_out)

    def scorable(self) -> SpanExamples:
        """Keep the questions whose answers are known, for evaluation. The others are counted in the
        notes.

        Raises:
            BertineError: none is left.
        """
        kept = [item for item in self.items if item.label and (item.label.answers or self.v2)]
        none = "no question has an answer to compare with"
        return self._reduced(kept, none, "have no gold answer and are not scored")

    def _reduced(self, kept: list[Question], none: str, left_out: str) -> SpanExamples:
        """Keep some of the questions; say what the others are, and raise an error if there is
        none to keep."""
        if not kept:
            raise BertineError(f"{self.source}: {none}")
        left = len(self) - len(kept)
        note = f"{self.source}: {left} of {len(self)} questions {left_out}"
        return self.replaced(kept, *([note] if left else []))

    def hold_out(
        self,
        share: float,
        seed: int,
        *,
        stratify: bool = True,
        known: Collection[int] = (),
    ) -> tuple[SpanExamples, SpanExamples]:
        """Split off about `share` of the questions at random, with all questions about a context in
        the same part: answers seen in training are not a test. Both parts keep the order.

        A context with a question that is `known` stays in the first part, as in
        :meth:`Examples.hold_out`. The same arguments give the same parts; `stratify` has no effect.

        Raises:
            BertineError: all questions are about one context.
        """
        contexts: dict[str, list[Question]] = {}
        for item in self.items:
            contexts.setdefault(item.texts[1], []).append(item)
        if not 0 < share < 1 or len(contexts) < 2:
            raise BertineError(
                f"{self.source}: cannot hold out {share:g} of the questions about "
                f"{len(contexts)} contexts; give a folder with a training and a validation file"
            )
        names = list(contexts)
        wanted = max(1, round(share * len(self)))
        stay = staying(contexts, known, wanted)
        order = [names[n] for n in generator(seed, "hold-out").permutation(len(names)).tolist()]
        held: set[str] = set()
        count = 0
        for name in order if stay else order[:-1]:
            if count >= wanted:
                break
            if name not in stay:
                held.add(name)
                count += len(contexts[name])
        inside = [item for item in self.items if item.texts[1] in held]
        outside = [item for item in self.items if item.texts[1] not in held]
        other = self.replaced(inside, source=f"{self.source} (held out)")
        other.notes, other.unaligned = [], []
        return self.replaced(outside), other


def _target(gold: Gold) -> bool:
    """Return whether the answers can be trained on."""
    return gold.span is not None or (gold.v2 and not gold.answers)


@dataclass(frozen=True, slots=True)
class RawQuestion:
    """A question from a file, before its answers are searched for.

    Attributes:
        line: of the file, or the number of the question in it.
        answers: text and first character (or None) of each; None if the file has no answers.
    """

    id: str
    line: int
    question: str
    context: str
    answers: Sequence[tuple[str, int | None]] | None


def span_examples(
    source: str,
    columns: tuple[str, str],
    label_column: str | None,
    raws: Sequence[RawQuestion],
    *,
    v2: bool,
    dataset: str | None = None,
    notes: Sequence[str] = (),
) -> SpanExamples:
    """Find the answers of `raws` in their contexts.

    An answer that is not at its stated position is searched for in the context, and the nearest
    occurrence is used; without a position, the first one. Each such answer is listed in
    ``unaligned`` and counted in the notes.
    """
    examples = SpanExamples(source, columns, label_column, notes=[*notes], v2=v2, dataset=dataset)
    counts: Counter[str] = Counter()
    for raw in raws:
        gold = None if raw.answers is None else _gold(raw, v2, examples.unaligned, counts)
        examples.items.append(Question((raw.question, raw.context), gold, raw.line, raw.id))
    counts["empty"] = sum(1 for raw in raws if not raw.context.strip())
    counts["unasked"] = sum(1 for raw in raws if not raw.question.strip())
    ids = Counter(raw.id for raw in raws)
    counts["twice"] = sum(1 for count in ids.values() if count > 1)
    examples.notes.extend(_notes(examples, counts))
    return examples


def _gold(raw: RawQuestion, v2: bool, unaligned: list[Unaligned], counts: Counter[str]) -> Gold:
    answers = raw.answers or ()
    if not answers and not v2:
        unaligned.append(Unaligned(raw.id, raw.question, "", None, "no answer"))
    span: tuple[int, int] | None = None
    for text, start in answers:
        counts["answers"] += 1
        finding = ""
        if not text:
            counts["blank"] += 1
            continue
        if start is None:
            place = raw.context.find(text)
            counts["searched"] += 1
            counts["several"] += place >= 0 and raw.context.find(text, place + 1) >= 0
        elif start >= 0 and raw.context.startswith(text, start):
            place = start
        else:
            place = _nearest(raw.context, text, start)
            counts["moved"] += place >= 0
            finding = f"found at {place}"
        if place < 0:
            counts["lost"] += 1
            finding = _LOST
        elif span is None:
            span = (place, place + len(text))
        if finding:
            unaligned.append(Unaligned(raw.id, raw.question, text, start, finding))
    return Gold(tuple(text for text, _ in answers), span, v2)


def _nearest(context: str, text: str, start: int) -> int:
    """Find the occurrence of `text` in `context` that is nearest to `start`; -1 if there is
    none."""
    after = context.find(text, max(0, start))
    before = context.rfind(text, 0, max(0, start) + len(text))
    if after < 0 or before < 0:
        return max(after, before)
    return before if start - before <= after - start else after


def _notes(examples: SpanExamples, counts: Counter[str]) -> list[str]:
    """Return notes for the user on the counts."""
    total, size = counts["answers"], len(examples)
    lost = [answer for answer in examples.unaligned if answer.found == _LOST]
    shown = ", ".join(f"{answer.id} {answer.answer[:40]!r}" for answer in lost[:5])
    shown += ", …" if len(lost) > 5 else ""
    notes = {
        "lost": f"of {total} gold answers are not in their context ({shown})",
        "moved": f"of {total} gold answers are not where answer_start says; the nearest place with "
        "their text is taken",
        "searched": f"answers without answer_start were looked for; {counts['several']} of them "
        "are there more than once, and the first place is taken",
        "blank": f"of {total} gold answers are empty texts",
        "empty": f"of {size} contexts are empty",
        "unasked": f"of {size} questions are empty",
        "twice": "ids stand for more than one question; a file of predictions keeps the last "
        "answer of each",
    }
    return [
        f"{examples.source}: {counts[name]} {note}" for name, note in notes.items() if counts[name]
    ]


# SQuAD's official JSON: one object with articles under ``data``, their ``paragraphs`` with a
# ``context`` and its questions ``qas``, each with ``id``, ``question``, ``answers`` (``text``,
# ``answer_start``) and, in v2.0, ``is_impossible``.

_COLUMNS = ("question", "context")


def load_squad(path: Source, encoding: str | None = None) -> dict[str, Any] | None:
    """Read the object in a file in SQuAD's format, and in the `encoding` (None: detected); None if
    it is another kind of file.

    Raises:
        BertineError: the file cannot be read, or is neither one JSON value nor JSON lines.
    """
    if isinstance(path, InMemoryTable):
        return None
    path = Path(path)
    if path.is_dir() or str(path) == "-" or is_typed(path) or inner_suffix(path) != ".json":
        return None
    content = _json_of(path, encoding)
    return content if isinstance(content, dict) and _is_squad(content) else None


def _is_squad(content: dict[str, Any]) -> bool:
    return isinstance(content.get("data"), list)


def _json_of(path: Path, encoding: str | None = None) -> Any:
    """Read the JSON value in a file; None if it holds JSON lines."""
    with open_text(path, encoding) as stream:
        raw = text_begin(stream.reader.read(MAX_JSON_BYTES + 1), path)
    if len(raw) > MAX_JSON_BYTES:
        raise BertineError(
            f"{path}: one JSON value of more than {MAX_JSON_BYTES >> 20} MiB; give JSON lines"
        )
    text = raw.decode("utf-8", "replace")
    if stream.codec == "utf-8" and (b"\0" in raw or "\ufffd" in text):
        check_encoding(path, path)
    if not text.strip():
        raise BertineError(f"{path}: the file is empty")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if is_json_object(text.lstrip().partition("\n")[0]):
            return None
        place, reason = f"{path}", str(error)
        if isinstance(error, json.JSONDecodeError):
            place, reason = f"{path}:{error.lineno}:{error.colno}", error.msg
        hint = "" if text.rstrip().endswith(("}", "]")) else "; is the file cut off?"
        raise BertineError(
            f"{place}: not valid JSON ({reason}{hint}); a file in SQuAD's format is one object "
            'with a list "data", a table has an object on each line'
        ) from error
    if isinstance(content, dict) and _is_squad(content):
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise BertineError(
                f"{path}:{line}: invalid UTF-8 (byte 0x{raw[error.start]:02x}); save the file as "
                "UTF-8"
            ) from error
    return content


def _not_squad(path: Path) -> BertineError:
    """Describe a file that is not in SQuAD's format."""
    if path.is_dir():
        what = "is a folder, not a file in SQuAD's format"
    elif is_typed(path) or inner_suffix(path) != ".json":
        what = "is not called .json, as files in SQuAD's format are"
    else:
        content = _json_of(path)
        kind = "JSON lines" if content is None else json_kind(content)
        if isinstance(content, dict):
            keys = ", ".join(map(repr, list(content)[:10]))
            kind = f"an object with the keys {keys}" if keys else "an object with no keys"
            if "data" in content:
                kind = f'an object whose "data" is {json_kind(content["data"])}'
        what = f'is {kind}, but SQuAD\'s format is one JSON object with a list "data"'
    return BertineError(f"{path}: {what}; for a table of questions use 'bertine finetune spans'")


def read_squad(
    path: Path | str,
    content: dict[str, Any] | None = None,
    *,
    answers: bool = True,
    strict: bool = False,
) -> SpanExamples:
    """Read all questions of a file in SQuAD's format; `content` is its parsed JSON, if it was
    already read. With `answers` false the file's answers are ignored; `strict` refuses lone
    surrogates instead of repairing them.

    It counts as v2.0 if its ``version`` says so, or a question has ``is_impossible``. A question
    without ``answers`` (as in a test file) has no label unless it is marked as impossible.

    Raises:
        BertineError: the file is not in this format, or a part of it is missing or of another type;
            names the place.
    """
    content = content or load_squad(path)
    if content is None:
        raise _not_squad(Path(path))
    reader = _Reader(str(path), answers, strict)
    for number, article in enumerate(reader.items(content, "data", "")):
        place = f"data[{number}]"
        for index, paragraph in enumerate(reader.items(article, "paragraphs", place)):
            reader.paragraph(paragraph, f"{place}.paragraphs[{index}]")
    version = str(content.get("version", "")).lower().removeprefix("v")
    v2 = version.startswith("2") or reader.says_impossible
    if not reader.raws:
        raise BertineError(f"{path}: has no questions")
    return span_examples(
        str(path),
        _COLUMNS,
        "answers",
        reader.raws,
        v2=v2,
        dataset="squad/v2.0" if v2 else "squad/v1.1",
        notes=reader.notes(),
    )


class _Reader:
    """A reader of one file, which collects its questions and counts irregularities."""

    def __init__(self, source: str, with_answers: bool, strict: bool) -> None:
        self.source, self._with_answers, self._strict = source, with_answers, strict
        self.raws: list[RawQuestion] = []
        self.says_impossible = False
        self._contradictions = 0
        self._surrogates = 0

    def notes(self) -> list[str]:
        questions = plural(self._contradictions, "question", "is", "are")
        texts = plural(self._surrogates, "text")
        notes = [
            (
                self._contradictions,
                f"{questions} called impossible and with answers, or neither; the answers count",
            ),
            (
                self._surrogates,
                f"{texts} with half a character (\\udXXX), mended by U+FFFD",
            ),
        ]
        return [f"{self.source}: {note}" for count, note in notes if count]

    def items(self, parent: Any, key: str, place: str) -> list[Any]:
        """Return the list `key` of the object `parent`."""
        return self._member(parent, key, place, list, "a list")

    def paragraph(self, paragraph: Any, place: str) -> None:
        context = self._text(paragraph, "context", place)
        for index, question in enumerate(self.items(paragraph, "qas", place)):
            self._question(question, context, f"{place}.qas[{index}]")

    def _question(self, question: Any, context: str, place: str) -> None:
        text = self._text(question, "question", place)
        name = question.get("id")
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not name:
            raise self._error(place, "has no id, by which its answer could be told")
        answers: list[tuple[str, int | None]] | None = None
        if self._with_answers and "answers" in question:
            answers = []
            for index, answer in enumerate(self.items(question, "answers", place)):
                where = f"{place}.answers[{index}]"
                start = self._member(answer, "answer_start", where, int, "a whole number")
                answers.append((self._text(answer, "text", where), start))
        if "is_impossible" in question:
            self.says_impossible = True
            impossible = self._member(question, "is_impossible", place, bool, "true or false")
            if answers is not None:
                self._contradictions += impossible == bool(answers)
            elif impossible and self._with_answers:
                answers = []  # marked by ``is_impossible``
        self.raws.append(RawQuestion(name, len(self.raws) + 1, text, context, answers))

    def _text(self, parent: Any, key: str, place: str) -> str:
        text: str = self._member(parent, key, place, str, "a text")
        if encodable(text):
            return text
        if self._strict:
            raise self._error(place, f"{key!r} has half a character (\\udXXX)")
        self._surrogates += 1
        return re.sub("[\ud800-\udfff]", "�", text)

    def _member(self, parent: Any, key: str, place: str, kind: type, what: str) -> Any:
        if not isinstance(parent, dict):
            raise self._error(place, f"is {json_kind(parent)}, but must be an object")
        if key not in parent:
            raise self._error(place, f"has no {key!r}, which must be {what}")
        value = parent[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._error(place, f"{key!r} is {json_kind(value)}, but must be {what}")
        return value

    def _error(self, place: str, what: str) -> BertineError:
        return BertineError(f"{self.source}: {place or 'the file'}: {what}")
