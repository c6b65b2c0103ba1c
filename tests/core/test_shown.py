"""What results look like at a prompt and in a notebook."""

from __future__ import annotations

import html
import pickle
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.core.console import Shown
from bertine.core.errors import BertineError
from bertine.datasets.check import DataReport
from bertine.inference.explaining.explain import Explanations
from bertine.reports.inspect import Inspection
from bertine.tasks.answer import Answer, Answers, WorstExample, WorstExamples
from bertine.tasks.choice import ChoicePrediction
from bertine.tasks.report import ClassificationReport
from bertine.tasks.span_scores import SpanAnswer, SpanPrediction
from bertine.tasks.tagged_words import TaggedText
from bertine.tasks.whole_text import Score

ANSWERS: list[tuple[Answer, str]] = [
    (toys.prediction("joy", {"joy": 0.986, "<fear>": 0.014}), "joy (98.6%)"),
    (Score(3.25), "3.25"),
    (toys.label_set(("a", "b"), {"a": 0.9, "b": 0.6, "c": 0.1}), "a 90.0%, b 60.0%"),
    (toys.label_set((), {"a": 0.2}), "(no label)"),
    (ChoicePrediction(1, (0.4, 0.6), "c"), "c (60.0%)"),
    (
        SpanPrediction("two", 4, 0.7, None, (SpanAnswer("two", 4, 0.7, 1.0, 1.0),)),
        "two (70.0%)",
    ),
    (SpanPrediction("", None, 0.7, 2.0, ()), "(no answer) (70.0%)"),
    (
        TaggedText(
            ("Ada", "Lovelace", "wrote"),
            ("B-person", "I-person", "O"),
            (0.9, 0.8, 1.0),
            "Ada  Lovelace wrote.",
            ((0, 3), (5, 13), (14, 19)),
        ),
        "[Ada  Lovelace: person] wrote.",
    ),
    (
        TaggedText(("in", "Paris", "now"), ("O", "B-place", "O"), (1.0, 0.9, 1.0)),
        "in [Paris: place] now",
    ),
    (
        TaggedText(("在", "北", "京"), ("O", "B-place", "I-place"), (1.0, 0.9, 0.9)),
        "在[北京: place]",
    ),
    (TaggedText(("we", "go"), ("PRON", "VERB"), (1.0, 1.0)), "we/PRON go/VERB"),
]


class Cells(HTMLParser):
    """The cells of the tables in a piece of HTML, and the names of all its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.elements: set[str] = set()
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.tables[-1][-1][-1] += data


def all_results(base: type[Any] = Shown) -> Iterator[type[Any]]:
    """The classes of results that Bertine has, with all its verbs imported."""
    for name in bertine.__all__:
        getattr(bertine, name)
    classes = [base]
    while classes:
        for each in classes.pop().__subclasses__():
            classes.append(each)
            if each.__module__.startswith("bertine."):
                yield each


def test_no_result_is_shown_by_the_fields_of_a_dataclass() -> None:
    kinds = set(all_results())
    assert len(kinds) > 30
    assert [k.__name__ for k in kinds if "__repr__" in vars(k)] == ["Answer"]
    with_lines = {k.__name__ for k in kinds if k.lines is not Shown.lines}
    assert {"Learner", "SearchResult", "Embedder", "Predictor", "DataReport"} <= with_lines


@pytest.mark.parametrize(("answer", "text"), ANSWERS)
def test_an_answer_is_one_line(answer: Answer, text: str) -> None:
    assert str(answer) == text
    assert repr(answer) == f"<{type(answer).__name__}: {text}>"
    assert html.escape(text) in answer._repr_html_()


def test_a_notebook_shows_what_else_was_likely() -> None:
    labels = {f"label {n}": 1 / 28 for n in range(27)} | {"<fear>": 1 / 28 + 0.01}
    found = Cells(toys.prediction("<fear>", labels)._repr_html_())
    (table,) = found.tables
    assert table[0] == ["<fear>", "4.6%"]
    assert len(table) == 5
    assert "fear" not in found.elements


def test_answers_are_a_list_that_is_shown_as_a_table() -> None:
    one = toys.prediction("joy", {"joy": 0.9, "fear": 0.1})
    other = toys.prediction("fear", {"fear": 0.75})
    answers = Answers([one, other], ["a <b>fine</b> day", ("dark", "night")])
    assert answers == [one, other]
    assert isinstance(answers, list)
    assert pickle.loads(pickle.dumps(answers)) == [one, other]
    assert Cells(answers._repr_html_()).tables == [
        [
            ["answer", "probability", "text"],
            ["joy", "90.0%", "a <b>fine</b> day"],
            ["fear", "75.0%", "dark / night"],
        ]
    ]
    assert str(answers).splitlines()[1] == "joy           90.0%  a <b>fine</b> day"
    assert repr(answers[:1]) == "[<Prediction: joy (90.0%)>]"
    assert str(Answers([])) == "no answers"


def test_of_many_answers_the_first_are_shown() -> None:
    answers = Answers([Score(float(n)) for n in range(10_000)], [str(n) for n in range(10_000)])
    assert len(str(answers).splitlines()) == 52
    assert str(answers).endswith("and 9,950 more answers")
    assert len(answers._repr_html_()) < 30_000


def test_a_report_is_its_lines_and_in_a_notebook_its_tables() -> None:
    report = ClassificationReport(
        ("good", "<script>alert(1)</script>"), {"accuracy": 0.75}, toys.counts_of([[2, 1], [0, 1]])
    )
    assert repr(report).splitlines()[0] == "4 examples: accuracy 75.00%"
    assert "ClassificationReport(" not in repr(report)
    found = Cells(report._repr_html_())
    scores, matrix = found.tables
    assert scores[0] == ["label", "precision", "recall", "f1", "support"]
    assert matrix[1] == ["good", "2", "1"]
    assert found.elements <= {"div", "table", "tr", "td", "th"}
    # Light and dark are the notebook's: nothing here sets a colour of text or ground.
    assert not re.search(r"(?<!-)color:(?! inherit)|background", report._repr_html_())


def test_worst_examples_are_a_table_with_their_places() -> None:
    worst = WorstExample(3, ("so <b>sad</b>",), "joy", "fear", 4.5, "a.csv", 17, 0.011)
    listed = WorstExamples([worst])
    assert str(worst) == "a.csv:17: loss 4.500; label joy (1.1%), answer fear\nso <b>sad</b>"
    assert Cells(listed._repr_html_()).tables[0][1] == [
        *("a.csv:17", "4.500", "1.1%", "joy", "fear", "so <b>sad</b>")
    ]
    assert str(listed).splitlines()[1].startswith("a.csv:17  4.500")
    assert str(WorstExamples()) == "no examples"


def test_texts_from_outside_cannot_move_the_cursor() -> None:
    assert str(Inspection(Path("m"), "a\x1b[2Jb\nc")) == "a\\x1b[2Jb\nc"
    assert "\u202e" not in toys.prediction("\u202eevil", {"\u202eevil": 1.0})._repr_html_()


def test_what_cannot_be_read_any_more_is_said_in_a_line() -> None:
    class Gone(Shown):
        def lines(self) -> list[str]:
            raise BertineError("run: no such folder")

    assert repr(Gone()) == "Gone: run: no such folder"
    assert "Gone: run: no such folder" in Gone()._repr_html_()


def test_the_look_at_the_data_and_explanations_are_short() -> None:
    look = DataReport(
        {"examples": 20, "labels": {"a": 12, "b": 8}}, {"examples": 5}, ["one finding"]
    )
    assert str(look).splitlines() == [
        "20 training examples, 5 validation examples",
        "labels: a 12, b 8",
        "one finding",
    ]
    assert "2 texts have nothing that could be explained" in Explanations(empty=2)._repr_html_()


def test_plain_tags_mark_no_entities() -> None:
    plain = TaggedText(("we", "go"), ("PRON", "VERB"), (1.0, 1.0))
    assert plain.entities == []
    marked = TaggedText(("in", "Paris"), ("O", "B-place"), (1.0, 0.9))
    assert [mention.label for mention in marked.entities] == ["place"]
