"""The page of a run: whatever the run has left so far is on it, and nothing breaks it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toys
from bertine import finetune, pretrain, report
from bertine.errors import BertineError
from bertine.reports.plots import curve, scatter
from bertine.reports.scores import score_text
from bertine.tasks.entities import Counts
from bertine.tasks.multi_label_report import MultiLabelReport
from bertine.tasks.regression import Score, TextRegression
from bertine.tasks.report import ClassificationReport
from bertine.tasks.span_report import SpanReport
from bertine.tasks.tagging_report import TaggingReport
from reports.test_html import HOSTILE, Page

SETTINGS: dict[str, Any] = {
    "unigram_entropy": 6.25,
    "num_tokens": 1_234_567,
    "batch_size": 32,
    "steps": 1000,
    "learning_rate": 1e-3,
    "warmup_steps": 10,
    "schedule": "linear",
    "max_grad_norm": 1.0,
    "mask_split": [0.8, 0.1, 0.1],
    "log_every": 10,
    "dropout": None,
    "architecture": {"hidden_size": 128, "num_hidden_layers": 2},
}


def line(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "loss": 4.5 + 20 / step,
        "mlm_loss": 4.0 + 20 / step,
        "nsp_loss": 0.5,
        "mlm_accuracy": 0.25,
        "nsp_accuracy": 0.625,
        "tokens_per_second": 12_345.0,
        "unigram_entropy": 6.25,
        "learning_rate": 1e-3 * (1 - step / 1000),
        "grad_norm": 1.5,
        "tokens": 1000 * step,
        "elapsed": step / 10,
    }


def write_run(
    folder: Path, log: list[dict[str, Any]], settings: dict[str, Any] | None = None, tail: str = ""
) -> Path:
    folder.mkdir(parents=True)
    environment = {"bertine": "0.1.0", "torch": "2.13.0", "threads": 2}
    begun = {"settings": SETTINGS if settings is None else settings, "environment": environment}
    (folder / "run.json").write_text(json.dumps(begun), encoding="utf-8")
    lines = "".join(json.dumps(one) + "\n" for one in log)
    (folder / "log.jsonl").write_text(lines + tail, encoding="utf-8")
    return folder


def sample(probability: float, truth: str = "cat", text: str = "the [MASK] sleeps.") -> dict:
    guesses = [{"token": "the", "probability": 0.5}, {"token": truth, "probability": probability}]
    return {"text": text, "truth": truth, "truth_probability": probability, "guesses": guesses}


def write_samples(folder: Path, lines: list[tuple[int, list[dict[str, Any]]]]) -> None:
    text = "".join(json.dumps({"step": step, "samples": each}) + "\n" for step, each in lines)
    (folder / "samples.jsonl").write_text(text, encoding="utf-8")


def words(folder: Path) -> str:
    """The text of a run's page, which must be well-formed."""
    return Page(report(folder).path.read_text(encoding="utf-8")).words


def titles(folder: Path) -> list[str]:
    """The titles of the plots."""
    page = report(folder).path.read_text(encoding="utf-8")
    return [part.split("</h3>")[0] for part in page.split("<h3>")[1:]]


def test_a_finished_pretraining_run(tmp_path: Path) -> None:
    held = {"eval_mlm_loss": 4.125, "eval_mlm_perplexity": 61.87, "eval_nsp_accuracy": 0.61}
    log = [line(step) for step in range(10, 1001, 10)]
    log += [{"step": step, **held, "eval_mlm_count": 31_000} for step in (500, 1000)]
    run = write_run(tmp_path / "run", log)
    (run / "model").mkdir()
    write_samples(run, [(step, [sample(step / 2000)]) for step in range(100, 1001, 100)])
    shown = words(run)
    for text in (
        *("Pre-training: run", "2 layers of 128", "1.2M tokens", "all 1,000 steps are done"),
        *("nats; unigram entropy 6.25", "25.0%", "62.5%", "61.9", "MLM loss 4.125", "1.0M"),
        *("Nothing stands out", "held-out", "31,000 masked tokens", "61.87", "1 min 40 s"),
        *("the [MASK] sleeps.", "There stood: cat", "step 100", "step 1,000", "cat 50%"),
        *("right for 0 of 1", "learning_rate 0.001", "hidden_size 128", "torch 2.13.0"),
        *("0.8, 0.1, 0.1", "not set", "unigram entropy 6.25", "clipped to 1", "linear, 10 steps"),
    ):
        assert text in shown, text
    assert titles(run) == [
        *("MLM loss", "MLM accuracy", "NSP loss", "NSP accuracy", "Loss"),
        *("Learning rate", "Gradient norm", "Speed"),
    ]


def test_training_and_evaluation_of_a_step_are_both_kept(tmp_path: Path) -> None:
    """Two lines of the log have the same step; neither hides the other."""
    log = [line(10), {"step": 10, "eval_mlm_loss": 4.75, "eval_mlm_perplexity": 115.6}]
    shown = words(write_run(tmp_path / "run", log))
    assert "6.000" in shown
    assert "4.7500" in shown


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10), line(20)], tail='{"step": 30, "lo')
    result = report(run)
    assert (result.steps, result.total_steps) == (20, 1000)
    assert result.lines()[0] == "20 of 1,000 steps done"
    assert result.lines()[-1] == f"report: {run / 'report.html'}"
    shown = words(run)
    assert "Not finished: 20 of 1,000 steps" in shown
    assert "--resume" in shown


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    assert "Nothing logged yet" in words(run)
    (run / "log.jsonl").unlink()
    shown = words(run)
    assert "Nothing logged yet" in shown
    assert "Too little has been logged" in shown


def test_an_mlm_only_run_has_no_word_of_nsp(tmp_path: Path) -> None:
    log = [
        {"step": s, "loss": 5.0, "accuracy": 0.2, "eval_loss": 5.5, "learning_rate": 1e-3}
        for s in range(1, 20)
    ]
    run = write_run(tmp_path / "run", log)
    assert titles(run) == ["MLM loss", "MLM accuracy", "Learning rate"]
    assert "MLM loss 5.000" in words(run)
    assert "NSP" not in words(run)


def test_lines_may_lack_anything(tmp_path: Path) -> None:
    log = [{"step": 1}, {"step": 2, "mlm_loss": None}, {"step": 3, "loss": float("nan")}]
    shown = words(write_run(tmp_path / "run", log, settings={}))
    assert "loss is nan at step 3" in shown.lower()


def test_the_diagnosis_is_on_the_page_and_in_the_terminal(tmp_path: Path) -> None:
    log = [{**line(step), "mlm_loss": 6.25} for step in range(10, 1001, 10)]
    run = write_run(tmp_path / "run", log)
    assert "at the unigram entropy 6.25" in words(run)
    assert [finding.kind for finding in report(run).findings] == ["stalled"]
    assert report(run).lines()[1].startswith("warning: MLM loss 6.25 from step")


def finetuning(labels: list[str], confusion: list[list[int]]) -> dict[str, Any]:
    return {
        "scores": [],
        "final": {
            "source": "data/dev.tsv",
            "num_examples": sum(map(sum, confusion)),
            "metrics": {"accuracy": 0.875, "matthews": -0.125, "loss": 0.5},
            "majority_share": 0.352,
            "collapsed": False,
            "labels": labels,
            "confusion": confusion,
            "notes": ["3 texts were cut"],
        },
    }


def write_finetuning(folder: Path) -> Path:
    settings = {"task": "text", "num_examples": 3200, "epochs": 2, "steps": 200, "log_every": 10}
    log: list[dict[str, Any]] = [
        {"step": step, "loss": 1.0, "accuracy": 0.5, "tokens": step, "elapsed": 1.0}
        for step in range(10, 201, 10)
    ]
    log += [
        {"step": step, "eval_accuracy": 0.8, "eval_matthews": -0.1, "eval_loss": 0.6}
        for step in (100, 200)
    ]
    return write_run(folder, log, settings)


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
    assert "Confusion matrix of the last evaluation: 5,985 of 5,990 examples right" in shown
    assert titles(run)[:3] == ["Loss", "Accuracy", "Matthews"]
    rows = report(run).path.read_text(encoding="utf-8").split("<tbody>")[2].split("</tbody>")[0]
    assert [row.split("<")[0] for row in rows.split('<td class="number">')[1:]] == [
        *("1", "100", "80.00%", "-0.1000", "0.6000"),
        *("2", "200", "80.00%", "-0.1000", "0.6000"),
    ]


def test_many_classes_are_told_by_their_worst_confusions(tmp_path: Path) -> None:
    run = write_finetuning(tmp_path / "run")
    matrix = [[0] * 60 for _ in range(60)]
    matrix[7][9] = 77
    matrix[0][0] = 5000
    scores = finetuning([f"class {i}" for i in range(60)], matrix)
    (run / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
    assert "class 7 class 9 77 100.0%" in words(run)
    assert "Confusion matrix" not in words(run)


def test_real_runs(tmp_path: Path) -> None:
    """What `pretrain` and `finetune` write today is what the page reads."""
    store, model = toys.write_store(tmp_path / "store"), toys.write_model(tmp_path / "model")
    toys.write_labelled(tmp_path / "train.csv")
    with toys.one_thread():
        pretrain(store, model=model, out=tmp_path / "a", steps=4, log_every=1, max_seq_length=32)
        finetune("text", model=model, data=tmp_path / "train.csv", out=tmp_path / "b", epochs=1)
    before = {file: file.read_bytes() for file in (tmp_path / "a").glob("*.json*")}
    assert "Finished: all 4 steps" in words(tmp_path / "a")
    shown = words(tmp_path / "b")
    assert "Confusion matrix" in shown
    assert "label precision recall F1 examples found animal" in shown
    assert "Predicted worst" in shown
    assert {file: file.read_bytes() for file in (tmp_path / "a").glob("*.json*")} == before
    # The page in the folder does not stand in the way of going on.
    pretrain(
        store, model=model, out=tmp_path / "a", steps=4, max_seq_length=32, log_every=1, resume=True
    )


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    settings = {**SETTINGS, HOSTILE: HOSTILE, "architecture": {HOSTILE: [HOSTILE]}}
    run = write_run(tmp_path / "run", [{**line(10), f"eval_{HOSTILE}": 1.0}], settings)
    write_samples(run, [(1, [sample(0.5, HOSTILE, f"{HOSTILE} [MASK] {HOSTILE}")])])
    page = Page(report(run).path.read_text(encoding="utf-8"))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]


def test_only_some_times_of_many_are_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    steps = range(10, 10_001, 10)
    write_samples(run, [(step, [sample(0.1), sample(0.2, "dog")]) for step in steps])
    shown = words(run)
    assert shown.count("step ") < 40
    assert "step 10 " in shown
    assert "step 10,000 " in shown


def test_sentences_that_have_changed_are_not_mixed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    write_samples(
        run, [(1, [sample(0.5, text="an old [MASK].")]), (2, [sample(0.5, text="a new [MASK].")])]
    )
    assert "a new" in words(run)
    assert "an old" not in words(run)


def test_out_is_another_file(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    result = report(run, out=tmp_path / "pages" / "page.html")
    assert result.path == tmp_path / "pages" / "page.html"
    assert result.path.is_file()
    assert not (run / "report.html").exists()


def test_mistakes_are_one_line_that_names_the_file(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [line(10)])
    (run / "model").mkdir()
    with pytest.raises(BertineError, match=r"no run\.json; its run is .*run"):
        report(run / "model")
    with pytest.raises(BertineError, match="no such folder"):
        report(tmp_path / "nowhere")
    with pytest.raises(BertineError, match="is a folder"):
        report(run, out=tmp_path)
    for file, text, said in (
        ("samples.jsonl", '{"step": 1, "samples": [{"text": "no mask"}]}\n', "samples.jsonl: dam"),
        ("samples.jsonl", "{}\n", "line 1"),
        ("scores.json", "[]", "scores.json: damaged"),
        ("scores.json", "{", "not valid JSON"),
        ("run.json", "[]", r"run\.json: damaged"),
        ("run.json", '{"settings": 3}', r"run\.json: damaged"),
        ("log.jsonl", "x\n", "line 1"),
    ):
        other = tmp_path / "other"
        shutil.copytree(run, other)
        (other / file).write_text(text)
        with pytest.raises(BertineError, match=said):
            report(other)
        shutil.rmtree(other)


def test_a_long_log_makes_no_large_page_and_loses_no_peak() -> None:
    steps = list(range(1, 200_001))
    values = [1.0] * len(steps)
    values[123_456] = 999.0
    svg = curve([float(step) for step in steps], values)
    assert len(svg) < 200_000
    flat = curve([float(step) for step in steps], [1.0] * len(steps))
    assert b">750<" in svg
    assert b">750<" not in flat


def test_held_out_is_drawn_over_training_with_a_legend() -> None:
    steps = [float(step) for step in range(1, 60)]
    values = [8 - step / 50 for step in steps]
    plain = curve(steps, values)
    both = curve(steps, values, overlay=([20.0, 40.0], [7.5, 7.2]))
    assert b"held-out" in both
    assert b"training" in both
    assert b"held-out" not in plain
    assert curve(steps, values, overlay=None) == plain


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show() -> None:
    assert b"nothing logged yet" in curve([1.0, 2.0], [0.0, 0.0], log_scale=True)
    assert b">100<" in curve([1.0, 2.0, 3.0], [0.0, 1.0, 150.0], log_scale=True)


def write_final(folder: Path, final: dict[str, Any], worst: Any = None) -> Path:
    run = write_finetuning(folder)
    (run / "scores.json").write_text(json.dumps({"scores": [], "final": final}), encoding="utf-8")
    if worst is not None:
        (run / "worst.json").write_text(json.dumps(worst), encoding="utf-8")
    return run


def cells(folder: Path, table: int) -> list[list[str]]:
    """The rows of a table of the page, the header first."""
    page = report(folder).path.read_text(encoding="utf-8")
    part = page.split("<table")[table + 1].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", part, flags=re.S)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.S)]
        for row in rows
    ]


def test_the_confusion_is_a_table_of_shares(tmp_path: Path) -> None:
    labels, matrix = ["yes", "no", "never"], [[30, 10, 0], [2, 5, 3], [0, 0, 0]]
    told = ClassificationReport(tuple(labels), {"accuracy": 0.7}, matrix).to_dict()
    run = write_final(tmp_path / "run", told)
    assert cells(run, 0) == [
        ["true ╲ predicted", *labels],
        ["yes", "30", "10", "0"],
        ["no", "2", "5", "3"],
        ["never", "0", "0", "0"],
    ]
    page = report(run).path.read_text(encoding="utf-8")
    shares = re.findall(r'class="number (right|wrong)" style="--share: ([\d.]+)%"', page)
    assert [float(share) for _, share in shares] == [75, 25, 0, 20, 50, 30, 0, 0, 0]
    assert [kind for kind, _ in shares][:4] == ["right", "wrong", "wrong", "wrong"]
    assert cells(run, 1) == [
        ["label", "precision", "recall", "F1", "examples", "found"],
        ["yes", "93.75%", "75.00%", "83.33%", "40", "32"],
        ["no", "33.33%", "50.00%", "40.00%", "10", "15"],
        ["never", "0.00%", "0.00%", "0.00%", "0", "3"],
    ]


def test_thirty_classes_are_a_table_and_more_are_not(tmp_path: Path) -> None:
    for size, shown in ((30, True), (31, False)):
        matrix = [[int(i == j) for j in range(size)] for i in range(size)]
        names = tuple(f"c{i}" for i in range(size))
        told = ClassificationReport(names, {"accuracy": 1.0}, matrix).to_dict()
        run = write_final(tmp_path / str(size), told)
        assert ("Confusion matrix" in words(run)) is shown
        assert "c29 100.00% 100.00% 100.00% 1 1" in words(run)


def test_labels_that_are_many_are_told_by_the_most_frequent(tmp_path: Path) -> None:
    matrix = [[i if i == j else 0 for j in range(300)] for i in range(300)]
    names = tuple(f"c{i}" for i in range(300))
    told = ClassificationReport(names, {"accuracy": 1.0}, matrix).to_dict()
    shown = words(write_final(tmp_path / "run", told))
    assert "the 200 most frequent of 300" in shown
    assert "c100 100.00%" in shown
    assert "c99 100.00%" not in shown


def test_many_labels_and_types_have_tables(tmp_path: Path) -> None:
    truth = np.array([[1, 1], [0, 1], [1, 0]], dtype=bool)
    answers = np.array([[1, 0], [0, 1], [0, 0]], dtype=bool)
    many = MultiLabelReport.of(("a", "b"), truth, answers, answers * 0.8 + 0.1)
    run = write_final(tmp_path / "many", many.to_dict())
    assert cells(run, 0)[1] == ["a", "100.00%", "50.00%", "66.67%", "2", "1"]
    types = {"city": Counts(3, 4, 6), "": Counts(0, 0, 1)}
    told = TaggingReport.of(types, entities=True, right=20, num_words=30, num_sentences=5)
    run = write_final(tmp_path / "types", told.to_dict())
    assert cells(run, 0) == [
        ["label", "precision", "recall", "F1", "true", "found"],
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
    assert titles(run)[0] == "Predicted and true scores"
    assert score_text("mean_squared_error", 24267.3546) == "24,267"
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
    page = Page(report(run).path.read_text(encoding="utf-8"))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert "The 2 of 1,234 validation examples with the highest loss" in page.words
    assert "the mean of all is 0.125" in page.words
    assert page.words.index("7.250") < page.words.index("0.500")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("worst.json", []),
        ("worst.json", {"examples": [{"texts": ["a"]}]}),
        ("scores.json", {"final": {"per_label": {"a": {}}}}),
        ("scores.json", {"final": {"points": [1, 2], "num_examples": 2}}),
    ],
)
def test_damaged_scores_are_told(tmp_path: Path, file: str, content: Any) -> None:
    run = write_final(tmp_path / "run", {})
    (run / file).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BertineError, match=rf"{file}: damaged"):
        report(run)
