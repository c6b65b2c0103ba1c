"""The scores of fine-tuning on the page of a run: of each task its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toys
from bertine import report
from bertine.core.errors import BertineError
from bertine.core.scores import score_text
from bertine.data.entities import Counts
from bertine.reports.plots import scatter
from bertine.tasks.multi_label import MultiLabelReport
from bertine.tasks.report import ClassificationReport
from bertine.tasks.span_scores import SpanReport
from bertine.tasks.tagged_words import TaggingReport
from bertine.tasks.whole_text import Score, TextRegression
from reports.run_pages import (
    finetuning,
    page_of,
    titles,
    words,
    write_finetuning,
)
from reports.test_html import HOSTILE, Page


def test_a_finetuning_run(tmp_path: Path) -> None:
    run = write_finetuning(tmp_path / "run")
    assert "87.5" not in words(run)  # not finished: no scores.json yet
    assert "80.00%" in words(run)
    scores = finetuning(["yes", "no"], [[5071, 2], [3, 914]])
    (run / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
    shown = words(run)
    for text in (
        *("Fine-tuning: run", "The task 'text'", "3,200 labelled examples", "87.50%", "-0.1250"),
        *("the most frequent class alone: 35.2%", "5,071", "914", "5,990 examples of dev.tsv"),
        *("epoch", "3 texts were cut", "Matthews"),
    ):
        assert text in shown, text
    assert "Confusion matrix of the saved model: 5,985 of 5,990 examples right" in shown
    assert titles(run)[:3] == ["Loss", "Accuracy", "Matthews"]
    rows = page_of(run).split("<tbody>")[2].split("</tbody>")[0]
    assert [row.split("<")[0] for row in rows.split('<td class="number">')[1:]] == [
        *("1", "100", "80.00%", "-0.1000", "0.6000"),
        *("2", "200", "80.00%", "-0.1000", "0.6000"),
    ]


def test_the_scores_that_a_task_is_judged_by_head_the_page(tmp_path: Path) -> None:
    run = write_finetuning(tmp_path / "run", labels_and_columns={"metrics": ["matthews"]})
    metrics = {"accuracy": 0.875, "macro_f1": 0.75, "loss": 0.5, "matthews": 0.625}
    final = {"scores": [], "final": {"metrics": metrics}}
    (run / "scores.json").write_text(json.dumps(final), encoding="utf-8")
    head = words(run).split("Diagnosis")[0]
    places = [head.index(score) for score in ("0.6250", "87.50%", "75.00%")]
    assert places == sorted(places)
    assert "0.5000" not in head  # the fourth of them


def test_accuracies_of_different_things_are_not_drawn_over_each_other(tmp_path: Path) -> None:
    """In training that of decisions on single labels, in validation that of whole examples."""
    run = write_finetuning(tmp_path / "many", labels_and_columns={"name": "multi-label"})
    assert titles(run)[:4] == ["Loss", "Right decisions", "Accuracy", "Matthews"]
    shown = words(run)
    assert "one for each label of an example" in shown
    assert "Validation examples of which all labels are right." in shown
    assert "Words with the right tag." in words(
        write_finetuning(tmp_path / "words", labels_and_columns={"name": "tagging"})
    )


def test_a_weighted_loss_is_told_from_that_on_the_validation_examples(tmp_path: Path) -> None:
    shown = words(write_finetuning(tmp_path / "focal", focal_gamma=2.0))
    assert "In training it is weighted (focal_gamma), in validation not" in shown
    assert "is weighted" not in words(write_finetuning(tmp_path / "plain"))


def test_of_hundreds_of_classes_the_file_has_the_confusions(tmp_path: Path) -> None:
    names = tuple(f"c{number}" for number in range(2_000))
    counts = {(7, 9): 3, (7, 7): 1, (1, 1): 90}
    told = ClassificationReport(names, {"accuracy": 0.9}, counts).to_dict()
    shown = words(write_final(tmp_path / "run", told))
    assert "c7 c9 3 75.0%" in shown
    assert "2,000 classes; those confused most often." in shown


def write_final(folder: Path, final: dict[str, Any], worst: Any = None) -> Path:
    run = write_finetuning(folder)
    (run / "scores.json").write_text(json.dumps({"scores": [], "final": final}), encoding="utf-8")
    if worst is not None:
        (run / "worst.json").write_text(json.dumps(worst), encoding="utf-8")
    return run


def cells(folder: Path, table: int) -> list[list[str]]:
    """The rows of a table of the page, the header first."""
    page = page_of(folder)
    part = page.split("<table")[table + 1].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", part, flags=re.S)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.S)]
        for row in rows
    ]


def test_the_confusion_is_a_table_of_shares(tmp_path: Path) -> None:
    labels, matrix = ["yes", "no", "never"], [[30, 10, 0], [2, 5, 3], [0, 0, 0]]
    told = ClassificationReport(tuple(labels), {"accuracy": 0.7}, toys.counts_of(matrix)).to_dict()
    run = write_final(tmp_path / "run", told)
    assert cells(run, 0) == [
        ["actual ╲ predicted", *labels],
        ["yes", "30", "10", "0"],
        ["no", "2", "5", "3"],
        ["never", "0", "0", "0"],
    ]
    page = page_of(run)
    shares = re.findall(r'class="number (right|wrong)" style="--share: ([\d.]+)%"', page)
    assert [float(share) for _, share in shares] == [75, 25, 0, 20, 50, 30, 0, 0, 0]
    assert [kind for kind, _ in shares][:4] == ["right", "wrong", "wrong", "wrong"]
    assert cells(run, 1) == [
        ["label", "precision", "recall", "F1", "examples", "predicted"],
        ["yes", "93.75%", "75.00%", "83.33%", "40", "32"],
        ["no", "33.33%", "50.00%", "40.00%", "10", "15"],
        ["never", "0.00%", "0.00%", "0.00%", "0", "3"],
    ]


def test_thirty_classes_are_a_table_and_more_are_not(tmp_path: Path) -> None:
    for size, shown in ((30, True), (31, False)):
        matrix = [[int(i == j) for j in range(size)] for i in range(size)]
        names = tuple(f"c{i}" for i in range(size))
        told = ClassificationReport(names, {"accuracy": 1.0}, toys.counts_of(matrix)).to_dict()
        run = write_final(tmp_path / str(size), told)
        assert ("Confusion matrix" in words(run)) is shown
        assert "c29 100.00% 100.00% 100.00% 1 1" in words(run)


def test_many_labels_and_types_have_tables(tmp_path: Path) -> None:
    truth = np.array([[1, 1], [0, 1], [1, 0]], dtype=bool)
    answers = np.array([[1, 0], [0, 1], [0, 0]], dtype=bool)
    one = ClassificationReport(("no", "yes"), {"accuracy": 0.5, "f1": 0.0}, {(0, 0): 1, (0, 1): 1})
    run = write_final(tmp_path / "one", one.to_dict())
    assert "The score F1 is that of the class 'yes'." in words(run)
    many = MultiLabelReport.of(("a", "b"), truth, answers, answers * 0.8 + 0.1)
    run = write_final(tmp_path / "many", many.to_dict())
    assert cells(run, 0)[1] == ["a", "100.00%", "50.00%", "66.67%", "2", "1"]
    types = {"city": Counts(3, 4, 6), "": Counts(0, 0, 1)}
    told = TaggingReport.of(types, entities=True, right=20, num_words=30, num_sentences=5)
    run = write_final(tmp_path / "types", told.to_dict())
    assert "The score F1 is that of the class" not in words(run)
    assert cells(run, 0) == [
        ["label", "precision", "recall", "F1", "actual", "predicted"],
        ["city", "75.00%", "50.00%", "60.00%", "6", "4"],
        ["(no type)", "0.00%", "0.00%", "0.00%", "1", "0"],
    ]


def test_questions_with_and_without_an_answer_are_told_apart(tmp_path: Path) -> None:
    metrics = {"exact_match": 0.5, "f1": 0.625}
    metrics |= {"has_answer_exact_match": 0.25, "has_answer_f1": 0.5}
    both = metrics | {"no_answer_exact_match": 0.75, "no_answer_f1": 0.75}
    run = write_final(tmp_path / "both", SpanReport(both, 20, 12).to_dict())
    assert cells(run, 0) == [
        ["questions", "exact match", "F1", "number"],
        ["all", "50.00%", "62.50%", "20"],
        ["with an answer", "25.00%", "50.00%", "12"],
        ["without", "75.00%", "75.00%", "8"],
    ]
    plain = SpanReport({"exact_match": 0.5, "f1": 0.625}, 20, 20).to_dict()
    assert "with an answer" not in words(write_final(tmp_path / "v1", plain))


def test_a_regression_is_drawn(tmp_path: Path) -> None:
    task = TextRegression()
    truth = np.linspace(-5, 5, 2500)
    answers = [Score(float(value) * 0.9) for value in truth]
    told = task.report(answers, [str(value) for value in truth]).to_dict()
    assert 800 <= len(told["points"]) <= 1000
    assert told["points"][0] == [-5.0, -4.5]
    run = write_final(tmp_path / "run", told)
    assert titles(run)[0] == "Predicted and actual scores"
    values = (24267.3546, 9999.5, 0.12345, None)
    shown = [score_text("mean_squared_error", value) for value in values]
    assert shown == ["24,267", "9999.5000", "0.1235", "-"]
    assert f"{len(told['points'])} of 2,500 examples" in words(run)
    assert b"nothing logged" in scatter([])
    assert scatter([(1.0, 1.0)])  # one value has no spread


def test_the_worst_predicted_are_on_the_page_as_text(tmp_path: Path) -> None:
    examples = [
        {"index": 3, "texts": [HOSTILE, "b"], "label": HOSTILE, "answer": "no", "loss": 7.25},
        {"index": 1, "texts": ["plain"], "label": "yes", "answer": HOSTILE, "loss": 0.5},
    ]
    worst = {"num_examples": 1234, "mean_loss": 0.125, "examples": examples}
    run = write_final(tmp_path / "run", {"metrics": {"accuracy": 0.5}}, worst)
    page = Page(page_of(run))
    assert "img" not in {tag for tag, _ in page.tags}
    page.check_scripts()
    assert "The 2 of 1,234 validation examples with the highest loss" in page.words
    assert "the mean of all is 0.125" in page.words
    assert page.words.index("7.250") < page.words.index("0.500")


def test_what_was_predicted_rightly_is_not_among_the_worst(tmp_path: Path) -> None:
    def example(text: str, answer: str) -> dict[str, Any]:
        return {"texts": [text], "label": "a", "answer": answer, "loss": 1.0, "index": 0}

    examples = [example("a wrong one", "b"), example("a right one", "a")]
    for kept in (examples, examples[1:]):
        folder = tmp_path / str(len(kept))
        worst = {"num_examples": 9, "mean_loss": 0.5, "examples": kept}
        run = write_final(folder, {"metrics": {"accuracy": 0.5}}, worst)
        page = words(run)
        assert "The 1 of 9" in page
        assert ("a right one" in page) == (len(kept) == 1)
        assert ("of those predicted wrongly" in page) == (len(kept) == 2)
        assert ("All of them are predicted rightly." in page) == (len(kept) != 2)


def write_worst(folder: Path, example: dict[str, Any], name: str, columns: list[str]) -> str:
    """The page of a run of task `name` with one bad example."""
    run = write_final(
        folder,
        {"metrics": {"f1": 0.5}},
        {"num_examples": 9, "mean_loss": 0.5, "examples": [{"index": 3, "loss": 2.5, **example}]},
    )
    begun = json.loads((run / "run.json").read_text(encoding="utf-8"))
    begun["settings"]["labels_and_columns"] = {"name": name, "text_columns": columns}
    (run / "run.json").write_text(json.dumps(begun), encoding="utf-8")
    return page_of(run)


def test_the_worst_predicted_show_entities_and_where_they_are(tmp_path: Path) -> None:
    marks = [
        {"text": 0, "begin": 0, "end": 4, "label": "person", "of": "label"},
        {"text": 0, "begin": 0, "end": 4, "label": "person", "of": "answer"},
        {"text": 0, "begin": 8, "end": 12, "label": "city", "of": "answer"},
    ]
    example = {
        **{"texts": ["Paul in Rome"], "label": "Paul: person", "answer": "Rome: city"},
        **{"file": "data/dev.conll", "line": 1170, "marks": marks},
    }
    page = write_worst(tmp_path / "run", example, "tagging", ["words"])
    paul = '<mark class="right">Paul&nbsp;<small>person</small></mark> in '
    assert f'<span class="side">actual</span> {paul}Rome' in page
    rome = '<mark class="wrong">Rome&nbsp;<small>city</small></mark>'
    assert f'<span class="side">predicted</span> {paul}{rome}' in page
    assert "Paul: person" not in page  # the marks say it
    assert "dev.conll, line 1,170" in page


def test_chinese_sentences_are_shown_without_spaces_and_their_marks_move_along(
    tmp_path: Path,
) -> None:
    marks = [{"text": 0, "begin": 2, "end": 5, "label": "地", "of": "label"}]
    example = {"texts": ["在 北 京 的 IBM 公 司"], "label": "北 京: 地", "answer": "(none)"}
    page = write_worst(tmp_path / "run", {**example, "marks": marks}, "tagging", ["words"])
    assert '在<mark class="right">北京&nbsp;<small>地</small></mark>的 IBM 公司' in page
    assert '<span class="side">predicted: none</span> 在北京的 IBM 公司' in page
    # A text of the user's own is left as it is.
    page = write_worst(tmp_path / "own", example, "text", ["words"])
    assert "在 北 京 的 IBM 公 司" in page


def test_the_worst_predicted_say_what_words_add(tmp_path: Path) -> None:
    explained = {"index": 3, "answer": "dish", "unit": "log-odds", "words": []}
    explained["words"] = [{"word": "<warm>", "contribution": 2.0}]
    example = {"texts": ["a warm cat"], "label": "animal", "answer": "dish"}
    write_worst(tmp_path / "run", example, "text", ["text"])
    file = tmp_path / "run" / "explained.json"
    file.write_text(json.dumps({"examples": [explained]}), encoding="utf-8")
    page = page_of(tmp_path / "run")
    assert "what words add to the log-odds of dish: &lt;warm&gt; +2.00" in page
    file.write_text(json.dumps({"examples": [{"index": 3}]}), encoding="utf-8")
    with pytest.raises(BertineError, match=r"explained.json: damaged"):
        page_of(tmp_path / "run")


def test_answers_are_marked_in_their_passage(tmp_path: Path) -> None:
    actual = {"text": 1, "begin": 0, "end": 3, "label": "", "of": "label"}
    guess = {"text": 1, "begin": 8, "end": 12, "label": "", "of": "answer"}
    example = {"texts": ["who?", "Ada met Paul"], "label": "Ada", "answer": "Paul"}
    columns = ["question", "context"]
    page = write_worst(tmp_path / "apart", {**example, "marks": [actual, guess]}, "spans", columns)
    assert '<span class="side">question</span> who?' in page
    ada = '<mark class="right">Ada&nbsp;<small>actual</small></mark>'
    paul = '<mark class="wrong">Paul&nbsp;<small>predicted</small></mark>'
    assert f'<span class="side">context</span> {ada} met {paul}' in page
    assert '<span>actual <b class="right">Ada</b></span>' not in page  # the mark says it
    none = {**example, "answer": "(none)", "marks": [actual]}
    page = write_worst(tmp_path / "none", none, "spans", columns)
    assert '<span>predicted <b class="wrong">(none)</b></span>' in page
    guess |= {"begin": 0, "end": 7}
    page = write_worst(tmp_path / "over", {**example, "marks": [actual, guess]}, "spans", columns)
    both = '<mark class="right">Ada&nbsp;<small>both</small></mark>'
    assert f'{both}<mark class="wrong"> met&nbsp;<small>predicted</small></mark> Paul' in page


def test_the_counts_of_the_data_are_on_the_page(tmp_path: Path) -> None:
    run = write_final(tmp_path / "run", {"metrics": {"accuracy": 0.5}})
    part = {
        "examples": 1089,
        "labels": {"joy": 900, "love": 189},
        "lengths": {"median": 17, "p95": 30, "longest": 41},
    }
    data = {
        "train": part,
        "validation": {**part, "examples": 121, "in_training": 7},
        "findings": ["odd"],
    }
    (run / "data.json").write_text(json.dumps(data), encoding="utf-8")
    said = words(run)
    for figure in ("1,089", "121", "900", "17", "also in training", "Odd."):
        assert figure in said
    (run / "data.json").write_text("[]", encoding="utf-8")
    with pytest.raises(BertineError, match=r"data\.json: damaged"):
        report(run)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("worst.json", []),
        ("worst.json", {"examples": [], "mean_loss": 1.0, "num_examples": float("inf")}),
        ("scores.json", {"final": {"per_label": {"a": {}}}}),
    ],
)
def test_damaged_scores_are_told(tmp_path: Path, file: str, content: Any) -> None:
    run = write_final(tmp_path / "run", {})
    (run / file).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BertineError, match=rf"{file}: damaged"):
        report(run)


def test_the_epoch_is_told_whose_model_was_saved_where_it_is_not_the_last(tmp_path: Path) -> None:
    run = write_finetuning(tmp_path / "run")
    for step, said in ((100, True), (200, False)):
        scores = finetuning(["yes", "no"], [[5, 2], [3, 9]]) | {"step": step}
        (run / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
        assert ("after each epoch. The saved model is the one after epoch 1." in words(run)) is said
