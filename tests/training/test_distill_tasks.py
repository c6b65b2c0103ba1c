"""Distilling on texts of every kind of task: with labels, without, and from a file."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import glue_files
import squad_files
import tagged
import toys
from bertine.errors import BertineError
from bertine.modeldir import load_config
from bertine.records.examples import Examples
from bertine.runs.log import read_log
from bertine.training.distillation.on_task import Distilled

SHORT: dict[str, Any] = {"epochs": 2, "learning_rate": 1e-3, "max_length": 24, "precision": "fp32"}


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers that see words from the first step on."""
    return toys.write_model(
        tmp_path_factory.mktemp("base") / "model",
        num_hidden_layers=4,
        initializer_range=0.2,
        max_position_embeddings=64,
    )


@pytest.fixture(scope="module")
def teacher(base: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuned, and right about nearly everything."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    learner = bertine.finetune(
        "text",
        model=base,
        data=labelled,
        out=out,
        epochs=4,
        learning_rate=2e-3,
        max_length=24,
        precision="fp32",
    )
    assert learner.metrics["accuracy"] > 0.95
    return out


def texts(folder: Path) -> Path:
    return toys.write_labelled(folder / "texts.csv", rows=64)


def pairs(folder: Path) -> Path:
    return toys.write_pairs(folder / "pairs.csv", rows=64)


def scores(folder: Path) -> Path:
    rows = rows_of(texts(folder))
    for number, row in enumerate(rows):
        row["label"] = str(100.0 + 10 * (row["label"] == "dish") + number % 3)
    return write_rows(folder / "scores.csv", rows)


def many(folder: Path) -> Path:
    rows = rows_of(texts(folder))
    for row in rows:
        words = [word for word in toys.ADJECTIVES if word in row["text"]]
        row["label"] = "|".join([row["label"], *words])
    return write_rows(folder / "many.csv", rows)


def choices(folder: Path) -> Path:
    rows = []
    for number, (topic, (verb, place)) in enumerate(list(toys.TOPICS.items()) * 6):
        other = list(toys.TOPICS.values())[(number + 3) % 8][1]
        ends = [place, other] if number % 2 else [other, place]
        row = {"text": f"the {topic} {verb} in the", "choice1": ends[0], "choice2": ends[1]}
        rows.append({**row, "label": str(0 if number % 2 else 1)})
    return write_rows(folder / "choices.csv", rows)


def words(folder: Path) -> Path:
    return tagged.write_columns(folder / "words.conll", count=64)


def questions(folder: Path) -> Path:
    return squad_files.write_squad(folder / "squad", articles=12, dev=4)


KINDS: dict[str, tuple[str, Callable[[Path], Path], dict[str, Any]]] = {
    "text": ("text", texts, {}),
    "pairs": ("text", pairs, {}),
    "regression": ("regression", scores, {}),
    "multi-label": ("multi-label", many, {}),
    "choice": ("choice", choices, {}),
    "tagging": ("tagging", words, {}),
    "spans": ("spans", questions, {"max_length": 60}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_trains_saves_loads_and_predicts(base: Path, tmp_path: Path, kind: str) -> None:
    task, write, more = KINDS[kind]
    data = write(tmp_path)
    options = {**SHORT, **more}
    spans = {"max_question_length": 20} if task == "spans" else {}
    bertine.finetune(task, model=base, data=data, out=tmp_path / "teacher", **options, **spans)  # type: ignore[arg-type]
    result = bertine.distill(
        data,
        teacher=tmp_path / "teacher",
        out=tmp_path / "student",
        hidden_weight=0.1,
        attention_weight=0.1,
        log_every=1,
        **options,
    )
    assert isinstance(result, Distilled)
    log = toys.log(tmp_path / "student")
    losses = [key for key in log[0] if key.endswith("_loss") and not key.startswith("eval")]
    assert losses[1:] == ["soft_loss", "hidden_loss", "attention_loss"]
    lines = "\n".join(result.lines())
    assert "student: " in lines
    assert "times as fast" in lines
    kept = json.loads((tmp_path / "student" / "scores.json").read_text())["teacher"]
    assert kept["metrics"].keys() >= set(result.metric_names)
    assert (kept["agreement"] is None) == (task == "regression")
    loaded = bertine.load_model(tmp_path / "student")
    assert loaded.config.num_hidden_layers == 2
    assert loaded.task is not None
    assert loaded.task.name == task
    known = bertine.load_model(tmp_path / "teacher").task
    assert known is not None
    assert loaded.task.labels == known.labels
    report = bertine.evaluate(tmp_path / "student", data, show_progress=False)
    assert report.metrics.keys() == result.metrics.keys()
    assert result.validate().metrics == result.metrics
    page = bertine.report(tmp_path / "student").path.read_text()
    assert "Beside the teacher" in page


def test_a_teacher_alone_gives_its_answers(teacher: Path, labelled: Path, tmp_path: Path) -> None:
    """A student of all its layers begins as the teacher: no label, no loss."""
    lines = [row["text"] for row in rows_of(labelled / "train.csv")]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n")
    result = bertine.distill(
        tmp_path / "texts.txt",
        teacher=teacher,
        layers=[0, 1, 2, 3],
        out=tmp_path / "run",
        epochs=1,
        learning_rate=1e-7,
        dropout=0.0,
        log_every=1,
        precision="fp32",
    )
    log = toys.log(tmp_path / "run")
    assert all(line["loss"] < 1e-6 for line in log if "loss" in line)
    assert result.metrics["accuracy"] == 1.0
    assert result.teacher.own_labels
    assert result.teacher.unlabelled == len(lines) - 12
    assert "against the teacher's answers" in "\n".join(result.lines())


def test_rows_without_a_label_are_learned_from_the_teacher(
    teacher: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(labelled / "train.csv")
    for number, row in enumerate(rows):
        row["label"] = "" if number % 3 else row["label"]
    data = write_rows(tmp_path / "some.csv", rows)
    result = bertine.distill(data, teacher=teacher, out=tmp_path / "run", **SHORT)
    assert "80 of 116 training examples have no label" in capsys.readouterr().err
    assert (result.teacher.labelled, result.teacher.unlabelled) == (36, 80)
    assert not result.teacher.own_labels


def test_steps_without_a_label_have_no_loss_of_labels(teacher: Path, tmp_path: Path) -> None:
    rows = rows_of(texts(tmp_path))
    for row in rows[2:]:
        row["label"] = ""
    data = write_rows(tmp_path / "few.csv", rows)
    options: dict[str, Any] = {"teacher": teacher, "batch_size": 4, "log_every": 1, **SHORT}
    bertine.distill(data, out=tmp_path / "s", **options)
    lines = [line for line in read_log(tmp_path / "s" / "log.jsonl") if "soft_loss" in line]
    of_labels = [line["classifier_loss"] for line in lines if "classifier_loss" in line]
    assert 0 < len(of_labels) < len(lines)
    assert min(of_labels) > 0.0


def test_labels_alone_are_fine_tuning(
    teacher: Path, base: Path, labelled: Path, tmp_path: Path
) -> None:
    """With all the weight on the labels the run is that of fine-tuning, bit for bit."""
    options = {**SHORT, "seed": 3}
    bertine.distill(
        labelled, teacher=teacher, student=base, label_weight=1.0, out=tmp_path / "a", **options
    )
    bertine.finetune("text", model=base, data=labelled, frozen=False, out=tmp_path / "b", **options)
    ours, theirs = (toys.weights(tmp_path / name / "model") for name in "ab")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_stopped_run_goes_on_with_the_same_answers(
    teacher: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SHORT, "epochs": 3, "log_every": 4, "teacher": teacher}
    bertine.distill(labelled, out=tmp_path / "whole", **options)

    class Stop(Exception):
        pass

    from bertine.training.finetuning import run as finetuning

    judged: list[int] = []
    judge = finetuning._Finetuning._evaluate

    def until(self: Any, display: Any, step: int) -> dict[str, float]:
        judged.append(step)
        if len(judged) == 3:
            raise Stop
        return judge(self, display, step)

    with monkeypatch.context() as patched:
        patched.setattr(finetuning._Finetuning, "_evaluate", until)
        with pytest.raises(Stop):
            bertine.distill(labelled, out=tmp_path / "cut", **options)
    assert (tmp_path / "cut" / "checkpoints").is_dir()

    def asked(*_: Any) -> Any:
        raise AssertionError("the teacher is asked again")

    with monkeypatch.context() as patched:
        patched.setattr("bertine.training.distillation.teachers.ModelTeacher.outputs", asked)
        bertine.distill(labelled, out=tmp_path / "cut", resume=True, **options)
    ours, theirs = (toys.weights(tmp_path / name / "model") for name in ("whole", "cut"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    again = bertine.distill(labelled, out=tmp_path / "cut", resume=True, **options)
    assert again.teacher.metrics


@pytest.mark.parametrize("form", ["columns", "dictionary", "list"])
def test_a_file_of_probabilities_teaches(
    teacher: Path, base: Path, labelled: Path, tmp_path: Path, form: str
) -> None:
    """As `bertine predict` writes it, or in JSON; the student is as good as with the model."""
    train = shutil.copy(labelled / "train.csv", tmp_path / "train.csv")
    file = tmp_path / "theirs.csv"
    bertine.predict(teacher, input=train, output=file, all_probabilities=True)
    more: dict[str, Any] = {}
    if form != "columns":
        answers = [
            {label: float(row[f"probability_{label}"]) for label in ("animal", "dish")}
            for row in rows_of(file)
        ]
        file = tmp_path / "theirs.jsonl"
        values = answers if form == "dictionary" else [list(a.values()) for a in answers]
        more = {} if form == "dictionary" else {"labels": ["animal", "dish"]}
        file.write_text("".join(json.dumps({"probs": value}) + "\n" for value in values))
    result = bertine.distill(
        tmp_path / "train.csv",
        probabilities=file,
        student=base,
        label_weight=0.0,
        out=tmp_path / "run",
        **{**SHORT, "epochs": 4, "learning_rate": 2e-3},
        **more,
    )
    assert result.metrics["accuracy"] > 0.9
    assert result.teacher.metrics["accuracy"] > 0.9
    assert result.teacher.agreement is not None
    assert result.teacher.times_as_fast is None


def test_certain_probabilities_are_labels(base: Path, labelled: Path, tmp_path: Path) -> None:
    """One for the label and nothing for the others: the same losses as with labels."""
    rows = rows_of(labelled / "train.csv")
    soft = [
        {
            "text": row["text"],
            "animal": int(row["label"] == "animal"),
            "dish": int(row["label"] == "dish"),
        }
        for row in rows
    ]
    file = write_rows(tmp_path / "soft.csv", soft)
    options: dict[str, Any] = {**SHORT, "log_every": 1, "split_seed": 1}
    train = shutil.copy(labelled / "train.csv", tmp_path / "train.csv")
    runs = {}
    for name, weight in (("soft", 0.0), ("hard", 1.0)):
        bertine.distill(
            Path(train),
            probabilities=file,
            labels=["animal", "dish"],
            student=base,
            label_weight=weight,
            temperature=1.0,
            out=tmp_path / name,
            **options,
        )
        runs[name] = [line["loss"] for line in toys.log(tmp_path / name) if "loss" in line]
    assert runs["soft"] == pytest.approx(runs["hard"], rel=1e-3, abs=1e-4)


def test_mistakes_are_one_line(teacher: Path, base: Path, labelled: Path, tmp_path: Path) -> None:
    def refused(match: str, data: Path = labelled, **options: Any) -> None:
        with pytest.raises(BertineError, match=match) as error:
            bertine.distill(data, out=tmp_path / "out", **{"epochs": 1, **options})
        assert "\n" not in str(error.value)
        assert not (tmp_path / "out").exists()

    file = write_rows(tmp_path / "p.csv", [{"animal": 0.5, "dish": 0.5}] * 3)
    refused("give one of teacher, a fine-tuned model, and probabilities")
    refused("give one of teacher", teacher=teacher, probabilities=file)
    refused("was not fine-tuned", teacher=base)
    refused("a file has no layers to begin as", probabilities=file)
    known: dict[str, Any] = {"probabilities": file, "student": base, "labels": ["animal", "dish"]}
    refused("has 3 rows of probabilities, but .*train.csv has 120 rows", **known)
    refused("steps is for distilling on a token store", teacher=teacher, steps=3)
    refused("labels is for probabilities", teacher=teacher, labels=["a"])
    refused("the teacher takes 1", teacher=teacher, text_columns=["text", "label"])
    wrong = write_rows(tmp_path / "wrong.csv", [{"text": "the cat", "label": "animol"}] * 20)
    refused("wrong.csv:2: unknown label 'animol'", data=wrong, teacher=teacher)
    rows = rows_of(labelled / "train.csv")
    other = [{"text": row["text"], "animal": 0.5, "dish": 0.5} for row in rows]
    known["probabilities"] = write_rows(tmp_path / "other.csv", other)
    refused("hidden_weight compares layers, which a file has not", hidden_weight=1.0, **known)
    other[4]["text"] = "another"
    write_rows(tmp_path / "other.csv", other)
    refused(r"other.csv:6: has another text than .*train.csv:6", **known)


def test_a_teacher_whose_head_was_fitted_alone_gives_its_layers_and_no_head(
    base: Path, labelled: Path, tmp_path: Path
) -> None:
    """Its head is as large as it must be over vectors that were not trained for it, and stands on a
    layer that makes their mean."""
    bertine.finetune(
        "text", model=base, data=labelled, out=tmp_path / "t", frozen=True, max_length=24
    )
    assert load_config(tmp_path / "t").num_hidden_layers == 5
    bertine.distill(
        labelled, teacher=tmp_path / "t", out=tmp_path / "s", layers=[0, 1, 2, 3], **SHORT
    )
    assert load_config(tmp_path / "s").num_hidden_layers == 4
    assert abs(float(toys.weights(tmp_path / "s" / "model")["classifier.weight"].max())) < 1.0
    with pytest.raises(BertineError, match="names layer 4, but the teacher has 0 to 3"):
        bertine.distill(labelled, teacher=tmp_path / "t", out=tmp_path / "x", layers=[4], **SHORT)


def test_a_run_that_would_never_train_the_head_is_refused(
    teacher: Path, labelled: Path, tmp_path: Path
) -> None:
    options = {"teacher": teacher, "out": tmp_path / "s", "hidden_weight": 1.0, **SHORT}
    with pytest.raises(BertineError, match=r"progressive_steps=500, once for each layer, takes"):
        bertine.distill(labelled, progressive_steps=500, **options)


def test_labels_alone_need_labels(teacher: Path, tmp_path: Path) -> None:
    rows = [{"text": row["text"]} for row in rows_of(texts(tmp_path))]
    with pytest.raises(BertineError, match="label_weight=1 learns from labels alone, but no"):
        bertine.distill(
            write_rows(tmp_path / "bare.csv", rows),
            teacher=teacher,
            out=tmp_path / "s",
            label_weight=1.0,
            **SHORT,
        )


def test_examples_in_memory(teacher: Path, tmp_path: Path) -> None:
    rows = [{"text": toys.sentence(topic, "old")} for topic in toys.TOPICS] * 4
    result = bertine.distill(rows, teacher=teacher, out=tmp_path / "run", **SHORT)
    assert isinstance(result._labelled.validation, Examples)
    assert len(result.predict(["the old cat sleeps"])) == 1


def soft_rows(rows: list[dict[str, str]], high: float) -> list[dict[str, Any]]:
    """The label with this probability, the other one with the rest."""
    return [
        {
            "text": row["text"],
            "probability_animal": high if row["label"] == "animal" else round(1 - high, 6),
            "probability_dish": high if row["label"] == "dish" else round(1 - high, 6),
        }
        for row in rows
    ]


COLUMNS = ["probability_animal", "probability_dish"]


def test_soft_labels_that_are_certain_are_labels(
    base: Path, labelled: Path, tmp_path: Path
) -> None:
    (tmp_path / "soft").mkdir()
    for part in ("train", "dev"):
        rows = rows_of(labelled / f"{part}.csv")
        write_rows(tmp_path / "soft" / f"{part}.csv", soft_rows(rows, 1.0))
    options: dict[str, Any] = {**SHORT, "model": base, "frozen": False, "log_every": 1}
    bertine.finetune("text", data=labelled, out=tmp_path / "a", **options)
    learner = bertine.finetune(
        "text",
        data=tmp_path / "soft",
        out=tmp_path / "b",
        probability_columns=COLUMNS,
        **options,
    )
    hard, soft = (
        [line["loss"] for line in toys.log(tmp_path / name) if "loss" in line] for name in "ab"
    )
    assert soft == pytest.approx(hard, rel=1e-4, abs=1e-6)
    assert (
        learner.metrics["accuracy"]
        == bertine.evaluate(tmp_path / "b", labelled).metrics["accuracy"]
    )
    loaded = bertine.load_model(tmp_path / "b")
    assert loaded.task is not None
    assert loaded.task.labels == ("animal", "dish")


def test_soft_labels_are_learned_as_they_are(base: Path, labelled: Path, tmp_path: Path) -> None:
    """A model that has learned them is as sure as they are."""
    data = write_rows(tmp_path / "soft.csv", soft_rows(rows_of(labelled / "train.csv"), 0.8))
    learner = bertine.finetune(
        "text",
        model=base,
        data=data,
        out=tmp_path / "run",
        probability_columns=COLUMNS,
        epochs=8,
        learning_rate=2e-3,
        max_length=24,
        frozen=False,
    )
    assert learner.metrics["accuracy"] > 0.95
    answers = learner.predict([row["text"] for row in rows_of(labelled / "dev.csv")])
    sure = sum(answer.probability for answer in answers) / len(answers)
    assert sure == pytest.approx(0.8, abs=0.05)


def test_soft_labels_are_not_for_everything(base: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "s.csv", [{"text": "a", "animal": 0.5, "dish": 0.4}] * 4)

    def refused(match: str, task: Any = "text", **options: Any) -> None:
        with pytest.raises(BertineError, match=match):
            bertine.finetune(
                task,
                model=base,
                data=data,
                out=tmp_path / "out",
                probability_columns=["animal", "dish"],
                **options,
            )

    refused("s.csv:2: the columns of the labels sum to 0.9")
    refused("class_weights is for labels, not for probabilities", class_weights="balanced")
    refused("give label_column or probability_columns", label_column="animal")
    refused("probability_columns .* is for text", task="regression")


def test_a_teacher_of_glue_takes_the_official_files(base: Path, tmp_path: Path) -> None:
    data = glue_files.write_glue(tmp_path / "glue")
    teacher = tmp_path / "teacher"
    short = {**SHORT, "epochs": 1}
    bertine.finetune("glue", glue_task="MRPC", model=base, data=data, out=teacher, **short)
    result = bertine.distill(data, teacher=teacher, out=tmp_path / "student", **short)
    assert result.teacher.metrics.keys() >= {"accuracy", "f1"}
    assert "f1" in "\n".join(result.teacher.lines(result.metrics, result.metric_names)).lower()
    assert bertine.load_model(tmp_path / "student").task.dataset == "glue/MRPC"  # type: ignore[union-attr]


def test_the_next_command_is_one_of_distilling(
    teacher: Path, labelled: Path, tmp_path: Path
) -> None:
    """A finding names the user's own command, with options that it has."""
    from bertine.reports.checks.next_command import Asked
    from bertine.runs.files import RunFolder

    bertine.distill(labelled, teacher=teacher, out=tmp_path / "run", **SHORT)
    asked = Asked.of(tmp_path / "run", RunFolder.read(tmp_path / "run").facts())
    command = asked.again(epochs=9, class_weights="balanced")
    words = command.shell.split()
    assert words[:3] == ["bertine", "distill", str(labelled)]
    assert words[words.index("--teacher") + 1] == str(teacher)
    assert words[words.index("--epochs") + 1] == "9"
    assert "--class-weights" not in words
    assert command.python.startswith(f"bertine.distill({str(labelled)!r}, ")
