"""Probabilities that mean something: how far they are off, and a temperature that is fitted."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertine
import toys
from bertine import BertineError
from bertine.cli import main
from bertine.hub.model_directory import load_model
from bertine.tasks.base import Features
from bertine.tasks.calibration import Decisions, Reliability, calibrate, calibration_error
from bertine.tasks.multi_label import MultiLabel


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(exp / exp.sum(-1, keepdims=True))


def drawn(temperature: float, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose right answers are drawn by their softmax at a temperature."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 3, (count, 4))
    right = [draw.choice(4, p=row) for row in softmax(logits / temperature)]
    return logits, np.array(right)


def test_the_error_is_how_far_probabilities_are_off() -> None:
    # Of three answers at 0.9 two are right, of two at 0.6 one.
    chances, right = np.array([0.9] * 3 + [0.6] * 2), np.array([1, 1, 0, 1, 0]).astype(bool)
    assert calibration_error(chances, right) == pytest.approx((abs(2.7 - 2) + abs(1.2 - 1)) / 5)
    found = Reliability.of(chances, right.tolist())
    assert found.bins == [
        (pytest.approx(0.6), pytest.approx(0.5), 2),
        (pytest.approx(0.9), pytest.approx(2 / 3), 3),
    ]
    assert found.coverage[-1] == (1.0, pytest.approx(0.6), pytest.approx(0.6))
    shares = [share for share, _, _ in found.coverage]
    assert shares == sorted(set(shares))
    json.dumps(found.to_dict())


@pytest.mark.parametrize("count", [200, 5000])
def test_exact_probabilities_are_off_by_chance_alone(count: int) -> None:
    errors, expected = [], []
    for seed in range(10):
        logits, right = drawn(1.0, count, seed)
        table = softmax(logits)
        found = Reliability.of(table.max(1), (table.argmax(1) == right).tolist())
        errors.append(found.error)
        expected.append(found.error_by_chance)
    assert np.mean(errors) == pytest.approx(np.mean(expected), rel=0.25)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_of_drawn_answers_is_found(temperature: float) -> None:
    logits, right = drawn(temperature, 4000)
    found = calibrate(Decisions.of(list(logits), right.tolist()))
    assert found is not None
    assert found.temperature == pytest.approx(temperature, rel=0.08)
    assert found.error_after < 0.03
    if temperature > 2:
        assert found.error_before > 0.1


def test_few_examples_fit_none_and_right_ones_fit_no_certainty() -> None:
    logits, right = drawn(2.0, 49)
    assert calibrate(Decisions.of(list(logits), right.tolist())) is None
    # All are right: the best temperature would be 0.
    best = logits.argmax(1)
    found = calibrate(Decisions.of([*logits, *logits], [*best.tolist(), *best.tolist()]))
    assert found is not None
    assert 0.2 <= found.temperature < 1


def test_answers_may_have_different_numbers_of_choices() -> None:
    logits, right = drawn(2.0, 400)
    narrow = [row[:2] for row in logits]
    other = [int(row.argmax()) for row in narrow]
    found = calibrate(Decisions.of([*logits, *narrow], [*right.tolist(), *other]))
    assert found is not None
    assert np.isfinite([found.temperature, found.error_before, found.error_after]).all()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples without a doubt, and others of which a fifth has a wrong label: who has learned the
    first is too sure of the second."""
    folder = tmp_path_factory.mktemp("labelled")
    for name, rows, seed in (("train", 160, 0), ("dev", 120, 1)):
        path = toys.write_labelled(folder / f"{name}.csv", rows=rows, seed=seed)
        with open(path, encoding="utf-8", newline="") as file:
            header, *lines = list(csv.reader(file))
        labels = sorted({line[1] for line in lines})
        for number, line in enumerate(lines):
            if name == "dev" and number % 5 == 0:
                line[1] = labels[line[1] == labels[0]]
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *lines])
    return folder


SETTINGS: dict[str, Any] = {
    "epochs": 12,
    "learning_rate": 2e-3,
    "frozen": False,
    "baselines": False,
    "save_best": False,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, data: Path) -> dict[bool, Any]:
    folder = tmp_path_factory.mktemp("runs")
    model = toys.write_model(folder / "model")
    with toys.one_thread():
        return {
            wanted: bertine.finetune(
                "text",
                model=model,
                data=data,
                out=folder / str(wanted),
                calibrate=wanted,
                **SETTINGS,
            )
            for wanted in (True, False)
        }


def test_the_head_has_the_temperature(runs: dict[bool, Any], data: Path) -> None:
    calibrated, plain = (load_model(runs[wanted].model) for wanted in (True, False))
    scores = json.loads((runs[True].model.parent / "scores.json").read_text())
    fitted = scores["calibration"]
    assert fitted["num_examples"] == 120
    assert fitted["temperature"] > 1.2
    assert fitted["error_after"] < fitted["error_before"]
    assert calibrated.task is not None
    assert calibrated.task.training["calibration"] == fitted
    ours, theirs = calibrated.model.state_dict(), plain.model.state_dict()
    for name, weights in theirs.items():
        divisor = fitted["temperature"] if name.startswith("heads.classifier.out") else 1.0
        torch.testing.assert_close(ours[name], weights / divisor)
    assert "calibration" not in json.loads((runs[False].model.parent / "scores.json").read_text())


@pytest.mark.slow
def test_a_student_is_calibrated_on_labels_and_not_on_its_teacher(
    runs: dict[bool, Any], data: Path, tmp_path: Path
) -> None:
    teacher, other = runs[False].model, _with_other_dev(data, tmp_path / "other")
    with toys.one_thread():
        distilled = {
            word: bertine.distill(
                source,
                teacher=teacher,
                student=teacher,
                out=tmp_path / word,
                epochs=2,
                learning_rate=1e-4,
                precision="fp32",
                **more,
            )
            for word, source, more in (
                ("with", other, {}),
                ("without", other, {"calibrate": False}),
                ("texts", _texts_of(data / "train.csv", tmp_path), {}),
            )
        }
    fitted = json.loads((tmp_path / "with/scores.json").read_text())["calibration"]
    assert fitted["num_examples"] == 120
    assert fitted["temperature"] > 1.2
    assert distilled["with"].metrics["loss"] < distilled["without"].metrics["loss"]
    for word in ("without", "texts"):
        assert "calibration" not in json.loads((tmp_path / word / "scores.json").read_text())


def _with_other_dev(data: Path, folder: Path) -> Path:
    """Write the data with validation texts that the teacher has not seen."""
    shutil.copytree(data, folder)
    header, *rows = (folder / "dev.csv").read_text(encoding="utf-8").splitlines()
    lines = [header, *(row.replace(" .,", " . .,") for row in rows)]
    assert lines[1] != rows[0]
    (folder / "dev.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _texts_of(table: Path, folder: Path) -> Path:
    """Write the texts of a `table` alone, four times, so that 50 of them are held out."""
    with open(table, encoding="utf-8", newline="") as file:
        texts = [row[0] for row in csv.reader(file)][1:]
    path = folder / "texts.txt"
    lines = [f"{text} {number}" for number in range(4) for text in texts]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_scores_are_those_of_the_model_that_is_saved(runs: dict[bool, Any], data: Path) -> None:
    for run in runs.values():
        again = bertine.evaluate(run.model, data / "dev.csv", precision="fp32")
        assert again.metrics == pytest.approx(run.metrics, abs=1e-5)
        assert any(line.startswith("probabilities are ") for line in again.lines())
        assert "Are probabilities right?" in report_of(run)
    assert runs[True].metrics["accuracy"] == runs[False].metrics["accuracy"]
    assert runs[True].metrics["loss"] < runs[False].metrics["loss"]
    assert "A temperature of" in report_of(runs[True])


def report_of(run: Any) -> str:
    return str((run.model.parent / "report.html").read_text())


def test_transformers_gives_the_same_probabilities(runs: dict[bool, Any]) -> None:
    texts = ["the old cat sleeps in the sofa .", "the soup boils ."]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(runs[True].model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(runs[True].model)
    answers = bertine.Predictor.load(runs[True].model, precision="fp32").predict(texts)
    for text, answer in zip(texts, answers, strict=True):
        with torch.no_grad():
            logits = model.eval()(**tokenizer(text, return_tensors="pt")).logits[0]
        theirs = logits.softmax(-1).tolist()
        assert list(answer.probabilities.values()) == pytest.approx(theirs, abs=1e-4)


def test_unsure_answers_are_left_open(runs: dict[bool, Any], data: Path, tmp_path: Path) -> None:
    out, plain = tmp_path / "answers.csv", tmp_path / "plain.csv"
    bertine.predict(runs[True].model, data / "dev.csv", plain, precision="fp32")
    with open(plain, encoding="utf-8", newline="") as file:
        every = list(csv.DictReader(file))
    chances = sorted({float(row["probability"]) for row in every})
    bound = (chances[len(chances) // 2 - 1] + chances[len(chances) // 2]) / 2
    report = bertine.predict(
        runs[True].model, data / "dev.csv", out, abstain_below=bound, precision="fp32"
    )
    with open(out, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    open_ones = [row for row in rows if not row["predicted_label"]]
    assert 0 < len(open_ones) < len(rows)
    for row, other in zip(rows, every, strict=True):
        sure = float(other["probability"]) >= bound
        assert row["predicted_label"] == (other["predicted_label"] if sure else "")
        assert row["probability"] == other["probability"]
    assert f"{len(open_ones)} of 120 have no answer" in "\n".join(report.lines())
    # In Python the best guess is there all the same.
    sure = bertine.Predictor.load(runs[True].model, precision="fp32").abstaining(1.0)
    answer = sure.predict("the soup boils .")
    assert answer.abstains
    assert answer.label in answer.probabilities
    assert answer.to_json(False)["label"] is None
    assert "no answer" in str(answer)


def test_sets_of_labels_hold_the_right_one(
    runs: dict[bool, Any], data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "answers.csv"
    with open(data / "dev.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for run in runs.values():
        # The bounds are of these very examples: so many of them are in their sets at least, but
        # for the folds of the temperature.
        for coverage in (0.8, 0.95):
            bertine.predict(run.model, data / "dev.csv", out, coverage=coverage, precision="fp32")
            with open(out, encoding="utf-8", newline="") as file:
                answered = list(csv.DictReader(file))
            inside = [
                row["label"] in found["label_set"].split("|")
                for row, found in zip(rows, answered, strict=True)
            ]
            assert sum(inside) / len(inside) >= coverage - 0.03
            report = bertine.evaluate(
                run.model, data / "dev.csv", coverage=coverage, precision="fp32"
            )
            assert report.metrics["coverage"] == pytest.approx(sum(inside) / len(inside))
            sizes = [len(found["label_set"].split("|")) for found in answered]
            assert report.metrics["mean_set_size"] == pytest.approx(sum(sizes) / len(sizes))
    with pytest.raises(BertineError, match=r"coverage is 0.3"):
        bertine.predict(runs[True].model, data / "dev.csv", out, coverage=0.3)


def test_costs_decide_and_are_reported(
    runs: dict[bool, Any], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = bertine.Predictor.load(runs[True].model, precision="fp32").task.labels
    costs = tmp_path / "costs.csv"
    rows = [[0.0 if true == guess else 1.0 for guess in labels] for true in labels]
    for row in rows[1:]:
        row[0] = 20.0  # the first label wrongly given
    lines = [
        f"{true},{','.join(map(str, row))},0.9" for true, row in zip(labels, rows, strict=True)
    ]
    costs.write_text("\n".join([f"true,{','.join(labels)},(no answer)", *lines]), encoding="utf-8")
    command = ["evaluate", str(runs[True].model), "--data", str(data / "dev.csv")]
    assert main([*command, "--cost-matrix", str(costs)]) == 0
    assert "with the answers of least expected cost" in capsys.readouterr().out
    report = bertine.evaluate(runs[True].model, data / "dev.csv", cost_matrix=costs)
    assert report.metrics["mean_cost"] <= report.metrics["most_probable_mean_cost"]
    out = tmp_path / "answers.csv"
    bertine.predict(runs[True].model, data / "dev.csv", out, cost_matrix=costs)
    bertine.predict(runs[True].model, data / "dev.csv", tmp_path / "plain.csv")
    with open(out, encoding="utf-8") as one, open(tmp_path / "plain.csv", encoding="utf-8") as two:
        given, usual = list(csv.DictReader(one)), list(csv.DictReader(two))
    names = [name for name in given[0] if name.endswith("label") and name != "label"]
    first = [sum(row[names[0]] == labels[0] for row in table) for table in (given, usual)]
    assert first[0] <= first[1]
    with pytest.raises(BertineError, match="both decide what is left open"):
        bertine.predict(runs[True].model, texts="a", cost_matrix=costs, abstain_below=0.5)


def test_what_cannot_abstain_says_so(tmp_path: Path) -> None:
    model = toys.write_model(tmp_path / "model")
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("text,label\n" + "".join(f"the cat {n},{n}.5\n" for n in range(30)))
    run = bertine.finetune(
        "regression", model=model, data=numbers, out=tmp_path / "run", epochs=1, baselines=False
    )
    with pytest.raises(BertineError, match="abstain_below is for models that choose one label"):
        bertine.predict(run.model, texts=["a"], abstain_below=0.5)


def write_rows(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.takes(2)
@pytest.mark.parametrize("task", ["multi-label", "choice"])
def test_other_tasks_are_calibrated_too(task: str, tmp_path: Path) -> None:
    topics = list(toys.TOPICS)
    texts = [
        toys.sentence(topics[n % 8], toys.ADJECTIVES[n // 8 % 4]).replace(",", " ")
        for n in range(160)
    ]
    if task == "choice":
        header = "context,choice0,choice1,label"
        rows = [
            f"{a},{a},{b},{n % 2}"
            for n, (a, b) in enumerate(zip(texts, texts[1:] + texts, strict=False))
        ]
    else:
        header = "text,label"
        rows = [f"{a},{'old|cat' if n % 3 else 'cat'}" for n, a in enumerate(texts)]
    data = tmp_path / "data"
    data.mkdir()
    write_rows(data / "train.csv", header, rows[:90])
    write_rows(data / "dev.csv", header, rows[90:])
    with toys.one_thread():
        run = bertine.finetune(
            task, model=toys.write_model(tmp_path / "model"), data=data, out=tmp_path / "run",
            **{**SETTINGS, "epochs": 4},
        )  # fmt: skip
    fitted = json.loads((tmp_path / "run/scores.json").read_text())["calibration"]
    assert fitted["num_examples"] == 70
    again = bertine.evaluate(run.model, data / "dev.csv", precision="fp32")
    assert again.metrics == pytest.approx(run.metrics, abs=1e-5)


def test_a_threshold_that_was_chosen_keeps_its_meaning() -> None:
    labels = MultiLabel(("a", "b"), threshold=0.5)
    features = [Features(np.zeros(3), np.zeros(3), row, np.array([1.0, 0.0])) for row in range(60)]
    outputs = [np.array([2.0, -1.0])] * 60
    found = labels.decisions(outputs, features)
    assert found is not None
    assert found.logits.shape == (120, 2)
    assert len(set(found.examples.tolist())) == 60
    assert replace(labels, threshold=0.2).decisions(outputs, features) is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_that_are_none_fit_none(wrong: float) -> None:
    logits, right = drawn(1.0, 80)
    logits[3, 1] = wrong
    assert calibrate(Decisions.of(list(logits), right.tolist())) is None
    # Nor do they stand in the way of a report.
    found = Reliability.of([wrong, 0.5, 0.5], [True, True, False])
    assert found.error == 0
    assert [count for _, _, count in found.bins] == [2]
    assert Reliability.of([wrong], [True]).bins == []


def test_what_does_not_help_is_not_taken() -> None:
    """Of probabilities that are right, a temperature of 60 examples is mostly noise."""
    taken = 0
    for seed in range(40):
        logits, right = drawn(1.0, 60, seed)
        found = calibrate(Decisions.of(list(logits), right.tolist()))
        assert found is not None
        taken += found.helps
    assert taken < 20
    logits, right = drawn(3.0, 60)
    found = calibrate(Decisions.of(list(logits), right.tolist()))
    assert found is not None
    assert found.helps


def test_a_bound_is_a_probability(runs: dict[bool, Any]) -> None:
    predictor = bertine.Predictor.load(runs[True].model, precision="fp32")
    for below, told in ((1.5, "abstain_below is 1.5, but must be from 0 to 1"), ("a", "below")):
        with pytest.raises(BertineError, match=told):
            predictor.abstaining(below)  # type: ignore[arg-type]
    assert not predictor.abstaining(1.0).abstaining(0).predict("the soup boils .").abstains
