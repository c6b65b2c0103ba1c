"""Hold the state of labelling: the text that is asked, the answers, and how good a model is now.

Threads share a session. What a person does is done at once, under one lock: the answer is in the
file when the next text is shown. The :class:`~bertine.labelling.chooser.Chooser` belongs to one
thread alone, which learns from new answers, judges, and keeps questions ready; so a person never
waits for a head that is fitted. Without vectors it draws the questions at random until they come.

Every change has a number. A window sends the number that it has seen with what it does to a text,
so that it does not overwrite unseen what another window has done to that text in the meantime.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.text import cut
from bertine.data.entities import split_words
from bertine.labelling.answers import NONE, Answer, AnswerFile, check_label
from bertine.labelling.chooser import Chooser, set_apart
from bertine.labelling.pool import Pool
from bertine.training.learning_curve.result import extrapolate

#: Questions that are kept ready, and the seconds that a call waits for one.
_AHEAD, _PATIENCE = 2, 5.0
#: Labels that are shown to be looked at again, and the characters of their texts.
_SUSPECTS, _SHOWN = 10, 160
#: Most labels, characters of a note, and answers that can be undone.
_MOST_LABELS, _LONGEST_NOTE, _LONGEST_HISTORY = 1_000, 2_000, 10_000
#: Labels set apart that are needed to say what more labels would bring, and that one may stop.
_LEAST_FOR_OUTLOOK, _LEAST_TO_STOP = 30, 50
#: One may stop where twice as many labels bring less than this.
_LITTLE = 0.01

_ELSEWHERE = "Another window has changed this text in the meantime; here is what is asked now."


@dataclass(frozen=True)
class Judgement:
    """How good a linear head is now, judged by the labels set apart.

    Attributes:
        judges: how many labels judge.
        accuracy: with its 95% interval; None: there is no head yet, or nothing to judge by.
        curve: numbers of learned labels, and the accuracy with each.
        outlook: what more labels would bring, in words; "": not known yet.
        may_stop: whether that is little.
        comparison: of the rule with random labels, in words; "": not known yet.
        suspects: row, other label and its probability, of labels that look wrong.
    """

    judges: int = 0
    accuracy: tuple[float, float, float] | None = None
    curve: Sequence[tuple[int, float]] = ()
    outlook: str = ""
    may_stop: bool = False
    comparison: str = ""
    suspects: Sequence[tuple[int, str, float]] = ()


def outlook(curve: Sequence[tuple[int, float]], judges: int) -> tuple[str, bool]:
    """Say what twice as many labels would bring, and whether one may stop.

    Args:
        curve: see :class:`Judgement`.
        judges: the number of labels that judged.
    """
    if judges < _LEAST_FOR_OUTLOOK or len(curve) < 4:
        return "", False
    enough = judges >= _LEAST_TO_STOP
    ahead = extrapolate([[point] for point in curve])
    if ahead is None:
        flat = len({accuracy for _, accuracy in curve[-4:]}) == 1
        if flat:
            return f"The accuracy is the same as with {curve[-4][0]:,} labels.", enough
        return (
            "What more labels would bring cannot be said: the last points differ too much.",
            False,
        )
    low, gain, high = (f"{100 * value:+.1f}" for value in (ahead.low, ahead.gain, ahead.high))
    line = (
        f"{ahead.count:,} more labels would bring about {gain} points ({low} to {high}), if the "
        "errors go on as they did."
    )
    return line, enough and ahead.gain < _LITTLE


@dataclass(frozen=True)
class _Change:
    """What is undone: the answer that a text had before (None: none), or that it was skipped."""

    row: int
    before: Answer | None = None
    skipped: bool = False


class Session:
    """The labelling of the texts of a pool.

    Args:
        pool: the texts.
        file: the file of the answers.
        labels: the names of the classes, to which those of `answers` are added.
        answers: what was answered before, in that order.
        seed: of what is drawn.

    Attributes:
        on_end: called once at the end.
        answers: by row of the pool, in the order of labelling.
        judgement: as of the last answers that were learned.
        fault: what has ended the thread that chooses; None: nothing.
    """

    def __init__(
        self,
        pool: Pool,
        file: AnswerFile,
        labels: Sequence[str],
        answers: Mapping[int, Answer],
        *,
        seed: int = 0,
    ) -> None:
        self._texts, self._rows = list(pool.rows), list(pool.rows.values())
        self._file, self.kind = file, file.kind
        self.on_end: Callable[[], None] = lambda: None
        self.answers = dict(answers)
        self.judgement = Judgement()
        self.fault: BaseException | None = None
        self._given = list(dict.fromkeys(labels))
        # The number of a class is its place here; so it never changes.
        self._names = self._given + [name for name in self.counts() if name not in self._given]
        self._changed = threading.Condition()
        self._revision, self._revisions = 0, dict[int, int]()
        self._history = deque(map(_Change, answers), maxlen=_LONGEST_HISTORY)
        self._drafts: dict[int, Answer] = {}
        self._skipped: dict[int, None] = {}
        self._confirmed: set[int] = set()
        # Rows, and why they are asked.
        self._ahead = deque[tuple[int, str]]()
        self._current: tuple[int, str] | None = None
        self._to_learn = list(answers)
        self._vectors: tuple[np.ndarray, np.ndarray | None] | None = None
        self._computed: tuple[int, int] | None = (0, len(self._texts))
        self._exhausted = self._ended = False
        self._apart = set_apart(["\n".join(texts) for texts in self._texts])
        self._chooser = Chooser(None, self._apart, 1, seed=seed)
        self._thread = threading.Thread(target=self._choose, name="choose", daemon=True)

    def counts(self) -> Counter[str]:
        """Return the number of texts of each label."""
        return Counter(name for answer in self.answers.values() for name in {*answer.names})

    # What a person does. Each returns the state that the page shows, as JSON values.

    def start(self) -> None:
        """Choose the first question, and write the file if there are labels already.

        Raises:
            BertineError: it cannot be written.
        """
        if self.answers:
            self._write()
        self._thread.start()
        with self._changed:
            self._next()

    def state(self) -> dict[str, Any]:
        """Change nothing, but ask a text where one has come since."""
        with self._changed:
            if self._current is None:
                self._next()
            return self._state()

    def label(
        self,
        row: int,
        seen: int,
        labels: Sequence[str] = (),
        spans: Sequence[tuple[int, int, str]] = (),
        note: str = "",
    ) -> dict[str, Any]:
        """Answer a text. No label: none of them belongs to it.

        Raises:
            BertineError: there is no such text, a label or a mark is not valid, or the file cannot
                be written; nothing has changed then.
        """
        with self._changed:
            if self._is_stale(row, seen):
                return self._state(_ELSEWHERE)
            answer, again = self._checked(row, labels, spans, note), row in self.answers
            self._set(row, answer)
            self._names += [name for name in answer.names if name not in self._names]
            if again:
                self._confirmed.add(row)
            self._next(after=row)
            return self._state()

    def skip(self, row: int, seen: int) -> dict[str, Any]:
        """Go on without an answer; the text comes again when there are no others. A text that has
        an answer keeps it."""
        with self._changed:
            if self._is_stale(row, seen):
                return self._state(_ELSEWHERE)
            if row in self.answers:
                self._confirmed.add(row)
            else:
                self._skipped[row] = None
                self._history.append(_Change(row, skipped=True))
            self._mark(row)
            self._next(after=row)
            return self._state()

    def undo(self, seen: int) -> dict[str, Any]:
        """Take back the last answer, or the last skip, and ask that text again.

        Raises:
            BertineError: the file cannot be written; nothing has changed then.
        """
        with self._changed:
            if not self._history:
                return self._state("There is nothing to undo.")
            last = self._history[-1]
            if self._is_stale(last.row, seen):
                return self._state(_ELSEWHERE)
            if not last.skipped:
                self._drafts[last.row] = self.answers[last.row]
                self._set(last.row, last.before)
                self._history.pop()
            self._history.pop()
            self._ask(last.row, "undone")
            return self._state()

    def look_again(self, row: int) -> dict[str, Any]:
        """Show a text that has an answer, to change it or to leave it."""
        with self._changed:
            if row not in self.answers:
                return self._state(_ELSEWHERE)
            self._ask(row, "again")
            return self._state()

    # What the session does by itself.

    def computed(self, done: int, total: int) -> None:
        """Note how many vectors are there.

        Raises:
            EndedError: nobody waits for them any more.
        """
        with self._changed:
            self._computed = (done, total)
            if self._ended:
                raise EndedError

    def see(self, vectors: np.ndarray, names: np.ndarray | None) -> None:
        """Choose by the vectors of the texts and of the names from here on; see
        :meth:`~bertine.labelling.chooser.Chooser.see`."""
        with self._changed:
            self._vectors, self._computed = (vectors, names), None
            self._changed.notify_all()

    def end(self, fault: BaseException | None = None) -> None:
        """End the thread that chooses; all answers are in the file."""
        with self._changed:
            first, self._ended = not self._ended, True
            self.fault = self.fault or fault
            self._changed.notify_all()
        if first:
            self.on_end()

    def join(self) -> None:
        """Wait until the thread that chooses has ended."""
        self._thread.join()

    def _is_due(self) -> bool:
        short = len(self._ahead) < _AHEAD and not self._exhausted
        return bool(self._to_learn or self._vectors or short)

    def _choose(self) -> None:
        """Learn, choose and judge, in a thread of its own, until the end."""
        choice = self._chooser
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended or self._is_due())
                    if self._ended:
                        return
                    learned = [(row, self._class_of(row)) for row in self._to_learn]
                    vectors, short = self._vectors, max(0, _AHEAD - len(self._ahead))
                    # Several labels of a text, or marked words, are no classes of a head.
                    choice.classes = len(self._names) if self.kind == "one" else 1
                for row, number in learned:
                    if number < 0:
                        choice.forget(row)
                    else:
                        choice.label(row, number)
                if vectors is not None:
                    choice.see(*vectors)
                questions = [(question.row, question.reason) for question in choice.ask(short)]
                with self._changed:
                    self._ahead += questions
                    self._exhausted = len(questions) < short
                    self._changed.notify_all()
                judgement = self._judged() if self.kind == "one" else Judgement()
                with self._changed:
                    self.judgement = judgement
                    del self._to_learn[: len(learned)]
                    if self._vectors is vectors:
                        self._vectors = None
                    self._changed.notify_all()
        except BaseException as error:
            self.end(error)

    def _class_of(self, row: int) -> int:
        """Return the class that the chooser learns of a text; -1: it has no answer."""
        answer = self.answers.get(row)
        if answer is None or self.kind != "one":
            return -1 if answer is None else 0
        return self._names.index(answer.labels[0])

    def _judged(self) -> Judgement:
        choice = self._chooser
        suspects = [
            (row, self._names[number], probability)
            for row, number, probability in choice.contradicted(_SUSPECTS + len(self._confirmed))
        ]
        compared = "" if choice.comparison is None else choice.comparison.line()
        result = Judgement(len(choice.judges), comparison=compared, suspects=suspects)
        accuracy = choice.accuracy()
        if accuracy is None:
            return result
        curve = choice.curve()
        line, may_stop = outlook(curve, result.judges)
        return replace(result, accuracy=accuracy, curve=curve, outlook=line, may_stop=may_stop)

    # Parts of the above, under the lock.

    def _checked(
        self, row: int, labels: Sequence[str], spans: Sequence[tuple[int, int, str]], note: str
    ) -> Answer:
        """Return an answer if it is valid."""
        note = " ".join(note.split())[:_LONGEST_NOTE]
        given = labels if self.kind != "spans" else [name for _, _, name in spans]
        names = tuple(check_label(name, self.kind) for name in given)
        if len({*self._names, *names}) > _MOST_LABELS:
            raise BertineError(f"there are {_MOST_LABELS:,} labels already")
        if self.kind == "one":
            if len(names) > 1:
                raise BertineError("a text has one label here")
            return Answer(names or (NONE,), note=note)
        if self.kind == "several":
            return Answer(tuple(dict.fromkeys(names)), note=note)
        marked = sorted((a, b, name) for (a, b, _), name in zip(spans, names, strict=True))
        places = [0, *(place for a, b, _ in marked for place in (a, b)), len(self._texts[row][0])]
        if places != sorted(places) or any(a == b for a, b, _ in marked):
            raise BertineError("marks must be inside the text and not over each other")
        return Answer(spans=tuple(marked), note=note)

    def _is_stale(self, row: int, seen: int) -> bool:
        """Return whether another window has changed a text since.

        Raises:
            BertineError: there is no such text, or labelling has ended.
        """
        if not 0 <= row < len(self._texts):
            raise BertineError(f"there is no text {row}")
        if self._ended:
            raise BertineError("labelling has ended; start it again to go on")
        return self._revisions.get(row, 0) > seen

    def _mark(self, row: int) -> None:
        """Number a change of a text."""
        self._revision += 1
        self._revisions[row] = self._revision

    def _set(self, row: int, answer: Answer | None) -> None:
        """Change the answer of a text, None: none, in the file too; or leave all as it is."""
        before = dict(self.answers)
        if answer is None:
            del self.answers[row]
        else:
            self.answers[row] = answer
        try:
            self._write()
        except BaseException:
            self.answers = before
            raise
        self._history.append(_Change(row, before.get(row)))
        self._to_learn.append(row)
        self._mark(row)
        self._take(row)
        self._changed.notify_all()

    def _write(self) -> None:
        self._file.write((self._texts[row], answer) for row, answer in self.answers.items())

    def _take(self, row: int) -> None:
        """Take a text out of those that wait."""
        self._skipped.pop(row, None)
        self._ahead = deque(item for item in self._ahead if item[0] != row)

    def _ask(self, row: int, reason: str) -> None:
        """Make a text the current one; the one before comes after it."""
        if self._current is not None and self._current[0] != row:
            self._ahead.appendleft(self._current)
        self._take(row)
        self._current = row, reason
        self._mark(row)

    def _next(self, after: int | None = None) -> None:
        """Go on to the next question, unless another text than `after` is the current one."""
        if self._current is not None and self._current[0] != after:
            return
        self._current = None
        self._changed.wait_for(lambda: self._ended or self._ahead or self._exhausted, _PATIENCE)
        if self._current is not None or self._ended:
            return  # another window has gone on in the meantime
        if self._ahead:
            self._current = self._ahead.popleft()
        elif self._skipped:
            self._current = next(iter(self._skipped)), "skipped"
            self._take(self._current[0])
        self._changed.notify_all()

    def _state(self, message: str = "") -> dict[str, Any]:
        """Return what the page shows.

        Args:
            message: what a person should know about what was just done.
        """
        counts, judged = self.counts(), self.judgement
        # A new class whose labels were all undone is not shown.
        shown = [name for name in self._names if name in self._given or counts[name]]
        suspects = [
            {
                "row": row,
                "text": cut(" ".join(" / ".join(self._texts[row]).split()), _SHOWN),
                "label": self.answers[row].labels[0],
                "other": other,
                "probability": probability,
            }
            for row, other, probability in judged.suspects
            if row in self.answers and row not in self._confirmed
            if self.answers[row].labels[0] != other
        ]
        return {
            "revision": self._revision,
            "message": message,
            "kind": self.kind,
            "labels": [{"name": name, "count": counts[name]} for name in shown if name != NONE],
            "none": sum(answer.names in ((), (NONE,)) for answer in self.answers.values()),
            "question": self._question(self._current),
            # For the page to show at once, while the answer is sent.
            "next": self._question(self._ahead[0] if self._ahead else None),
            "labelled": len(self.answers),
            "total": len(self._texts),
            "skipped": len(self._skipped),
            "file": str(self._file.path),
            "vectors": self._computed,
            "undo": bool(self._history),
            "judges": judged.judges,
            "accuracy": judged.accuracy,
            "curve": judged.curve,
            "outlook": judged.outlook,
            "may_stop": judged.may_stop,
            "comparison": judged.comparison,
            "suspects": suspects[:_SUSPECTS],
        }

    def _question(self, asked: tuple[int, str] | None) -> dict[str, Any] | None:
        if asked is None:
            return None
        row, reason = asked
        given, texts = self.answers.get(row, self._drafts.get(row)), self._texts[row]
        values = None
        if given is not None:
            values = {"labels": given.labels, "spans": given.spans, "note": given.note}
        question = {"row": row, "texts": texts, "reason": reason, "given": values}
        if self.kind == "spans":
            question["words"] = split_words(texts[0])
        return question


class EndedError(Exception):
    """Labelling has ended."""
