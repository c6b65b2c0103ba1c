"""What a student takes from a fine-tuned teacher: its answers, its layers, its head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.hub.model_directory import load_config
from distilling import SHORT, rows_of, write_rows


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
    assert result.teacher.judged_by_teacher
    assert result.teacher.unlabelled == len(lines) - 12
    assert "against the teacher's answers" in "\n".join(result.lines())


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_same_answers(
    teacher: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SHORT, "epochs": 3, "log_every": 4, "teacher": teacher}
    bertine.distill(labelled, out=tmp_path / "whole", **options)

    class Stop(Exception):
        pass

    from bertine.training.finetuning import run

    judged: list[int] = []
    judge = run._Finetuning._evaluate

    def until(self: Any, display: Any, step: int) -> dict[str, float]:
        judged.append(step)
        if len(judged) == 3:
            raise Stop
        return judge(self, display, step)

    with monkeypatch.context() as patched:
        patched.setattr(run._Finetuning, "_evaluate", until)
        with pytest.raises(Stop):
            bertine.distill(labelled, out=tmp_path / "cut", **options)
    assert (tmp_path / "cut" / "checkpoints").is_dir()

    def asked(*_: Any) -> Any:
        raise AssertionError("the teacher is asked again")

    with monkeypatch.context() as patched:
        patched.setattr("bertine.training.distillation.teachers.ModelTeacher.outputs", asked)
        bertine.distill(labelled, out=tmp_path / "cut", resume=True, **options)
    assert toys.same_weights(tmp_path / "whole" / "model", tmp_path / "cut" / "model")
    again = bertine.distill(labelled, out=tmp_path / "cut", resume=True, **options)
    assert again.teacher.metrics


@pytest.mark.slow
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
    refused("has 3 rows, but .*train.csv has 120 rows", **known)
    refused(
        "steps is for lm and vectors, but this is task: .* is no token store",
        teacher=teacher,
        steps=3,
    )
    refused("word_column is for tagging", teacher=teacher, word_column=2)
    refused("has validation examples of its own", teacher=teacher, split_seed=3)
    refused("labels is for probabilities", teacher=teacher, labels=["a"])
    refused("the teacher takes 1", teacher=teacher, text_columns=["text", "label"])
    wrong = write_rows(tmp_path / "wrong.csv", [{"text": "the cat", "label": "animol"}] * 20)
    refused("wrong.csv:2: unknown label 'animol'", data=wrong, teacher=teacher)
    rows = rows_of(labelled / "train.csv")
    other = [{"text": row["text"], "animal": 0.5, "dish": 0.5} for row in rows]
    known["probabilities"] = write_rows(tmp_path / "other.csv", other)
    refused(
        "hidden_weight compares layers, and a file of answers has none", hidden_weight=1.0, **known
    )
    other[4]["text"] = "another"
    write_rows(tmp_path / "other.csv", other)
    refused(r"other.csv:6: has another text than .*train.csv:6", **known)


@pytest.mark.slow
def test_options_that_do_nothing_are_said(
    teacher: Path, base: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(name: str, data: Path, **options: Any) -> set[str]:
        given: dict[str, Any] = {**SHORT, "epochs": 1, **options}
        bertine.distill(data, out=tmp_path / name, **given)
        lines = capsys.readouterr().err.splitlines()
        return {line.partition("warning: ")[2] for line in lines if "does nothing" in line}

    assert said("a", labelled, teacher=teacher, label_weight=1.0, temperature=3.0) == {
        "temperature=3.0 does nothing: label_weight=1 learns from labels alone"
    }
    bare = write_rows(tmp_path / "bare.csv", [{"text": toys.sentence("cat", "old")}] * 20)
    options: dict[str, Any] = {
        "label_weight": 0.2,
        "layer_loss": "mobilebert",
        "token_types": "drop",
    }
    assert said("b", bare, teacher=teacher, student=base, **options) == {
        "label_weight=0.2 does nothing: no training example has a label",
        "layer_loss='mobilebert' does nothing: no layers are compared; give hidden_weight or "
        "attention_weight",
        "token_types='drop' does nothing: the student does not begin as layers of its teacher",
    }
    used = {**options, "attention_weight": 1.0, "student": "distilbert", "temperature": 3.0}
    assert said("c", labelled, teacher=teacher, **used) == set()
    rows = [{"text": f"the old {word}", "label": n} for n, word in enumerate([*toys.TOPICS] * 3)]
    scores = write_rows(tmp_path / "scores.csv", rows)
    bertine.finetune(
        "regression", model=base, data=scores, out=tmp_path / "t", frozen=True, max_length=24
    )
    capsys.readouterr()
    assert said("d", scores, teacher=tmp_path / "t", temperature=3.0) == {
        "temperature=3.0 does nothing: scores are compared as they are"
    }


def test_layers_are_compared_over_the_same_pieces_alone(
    teacher: Path, labelled: Path, tmp_path: Path
) -> None:
    """The line says what differs, and what helps."""

    def refused(match: str, **options: Any) -> None:
        given: dict[str, Any] = {**SHORT, "max_length": None, "hidden_weight": 1.0, **options}
        with pytest.raises(BertineError, match=match):
            bertine.distill(labelled, teacher=teacher, out=tmp_path / "s", **given)

    refused(
        r"the teacher reads up to 24 pieces, the student 16; leave out max_length, or give max_len",
        max_length=16,
    )
    short = {"model_type": "bert", **toys.config(max_position_embeddings=20).to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(short))
    refused(
        "the student has 20 positions, but the teacher reads up to 24 pieces; give a student with "
        "as many, or a teacher that was fine-tuned with max_length=20",
        student=tmp_path / "config.json",
    )
    refused("their vocabularies differ; give a student", student="bertine-en")
