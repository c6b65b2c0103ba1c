"""Fine-tuning on GLUE's files and on scores: what is trained is saved, loaded, and scores the
same; the whole of GLUE and its table; fresh weights; the leaderboard's files."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.datasets.readers import read_labelled
from bertine.options.data import DataConfig
from bertine.training.finetuning.finetune import GlueReport
from bertine.training.finetuning.learner import Learner
from glue_files import write_glue

QUICK: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 8,
    "max_length": 32,
    "learning_rate": 1e-3,
    "precision": "fp32",
}
ELEVEN = ["CoLA", "SST-2", "MRPC", "STS-B", "MNLI-m", "MNLI-mm", "QNLI", "QQP", "RTE", "WNLI", "AX"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


@pytest.fixture(scope="module")
def everything(
    data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Learner]:
    """The folder of a run over all of GLUE, and its result."""
    out = tmp_path_factory.mktemp("all") / "runs"
    return out, bertine.finetune("glue", glue_task="all", model=model, data=data, out=out, **QUICK)


def test_all_of_glue_is_one_table(everything: tuple[Path, Learner], model: Path) -> None:
    out, result = everything
    scores = {name: run.score for name, run in result.runs.items()}
    assert len(scores) == 9
    assert result.score == pytest.approx(sum(scores.values()) / 9)
    mnli = result.runs["MNLI"].metrics
    assert result.runs["MNLI"].score == pytest.approx(
        (mnli["accuracy"] + mnli["mismatched_accuracy"]) / 2
    )
    mrpc = result.runs["MRPC"].metrics
    assert result.runs["MRPC"].score == pytest.approx((mrpc["f1"] + mrpc["accuracy"]) / 2)
    assert scores["CoLA"] == result.runs["CoLA"].metrics["matthews"]
    lines = result.lines()
    assert lines[0].split()[:3] == ["CoLA", f"{100 * scores['CoLA']:.2f}", "matthews"]
    assert lines[9].split()[:2] == ["average", f"{100 * result.score:.2f}"]
    assert lines[0].endswith("(is the sentence grammatical?)")
    # Nine columns of eight tasks, as in the paper of BERT.
    columns = [
        *(scores[name] for name in ("CoLA", "SST-2", "QNLI", "RTE")),
        *(mnli["accuracy"], mnli["mismatched_accuracy"]),
        *(mrpc["f1"], result.runs["QQP"].metrics["f1"], result.runs["STS-B"].metrics["spearman"]),
    ]
    paper = pytest.approx(sum(columns) / 9)
    assert lines[10].split()[0] == "paper_average"
    assert "of 9 columns" in lines[10]
    table = json.loads((out / "glue.json").read_text())
    assert table["scores"] == {**scores, "average": result.score, "paper_average": paper}
    for name in scores:
        info = json.loads((out / name / "model" / "bertine.json").read_text())
        assert info["dataset"] == f"glue/{name}"


def test_the_paper_s_average_of_its_published_columns_is_the_paper_s() -> None:
    """That of BERT-base in table 1, which has WNLI nowhere and MNLI twice."""
    report = GlueReport(
        {
            "CoLA": {"matthews": 52.1},
            "SST-2": {"accuracy": 93.5},
            "MRPC": {"f1": 88.9, "accuracy": 0},
            "STS-B": {"pearson": 0, "spearman": 85.8},
            "QQP": {"f1": 71.2, "accuracy": 0},
            "MNLI": {"accuracy": 84.6, "mismatched_accuracy": 83.4},
            "QNLI": {"accuracy": 90.5},
            "RTE": {"accuracy": 66.4},
            "WNLI": {"accuracy": 0},
        }
    )
    assert round(report.metrics["paper_average"], 1) == 79.6


def test_what_is_of_one_task_is_not_asked_of_all(
    everything: tuple[Path, Learner], data: Path, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertineError, match=r"take the learner of one, runs\[NAME\] \(CoLA, "):
        everything[1].predict(["a cat"])
    one = read_labelled("glue", data, DataConfig(glue_task="CoLA"))
    with pytest.raises(BertineError, match="is read from its folder"):
        bertine.finetune("glue", glue_task="all", model=model, data=one, out=tmp_path / "o")


def test_finished_tasks_are_not_run_again(
    everything: tuple[Path, Learner],
    data: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, result = everything
    before = (out / "RTE" / "log.jsonl").read_bytes()
    with pytest.raises(BertineError, match="CoLA: holds a run already; add resume=True"):
        bertine.finetune("glue", glue_task="all", model=model, data=data, out=out, **QUICK)
    again = bertine.finetune(
        "glue", glue_task="all", model=model, data=data, out=out, resume=True, **QUICK
    )
    assert (out / "RTE" / "log.jsonl").read_bytes() == before
    assert again.score == pytest.approx(result.score)
    assert again.lines() == result.lines()
    said = capsys.readouterr().err
    assert "CoLA (1 of 9)" in said
    assert "(9 of 9)" in said
    changed = {**QUICK, "learning_rate": 2e-3}
    with pytest.raises(BertineError, match="the run was started with"):
        bertine.finetune(
            "glue", glue_task="all", model=model, data=data, out=out, resume=True, **changed
        )


def test_all_of_glue_is_no_examples_in_memory(data: Path, model: Path, tmp_path: Path) -> None:
    one = read_labelled("glue", data, DataConfig(glue_task="CoLA"))
    with pytest.raises(BertineError, match="is read from its folder"):
        bertine.finetune("glue", glue_task="all", model=model, data=one, out=tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_collapse_is_named_in_the_table(model: Path, tmp_path: Path) -> None:
    data = write_glue(tmp_path / "data", "CoLA")
    train = data / "CoLA" / "train.tsv"
    train.write_text(train.read_text().replace("\t0\t", "\t1\t"))  # nothing but 1 to learn
    given: dict[str, Any] = {"model": model, "data": data, "out": tmp_path / "runs"}
    settings = {**QUICK, "epochs": 3, "learning_rate": 5e-3}
    for resume in (False, True):
        done = bertine.finetune("glue", glue_task="all", resume=resume, **given, **settings)
        assert done.metrics["CoLA"] == 0.0
        assert "CoLA: collapsed to one answer; train it again with another seed" in done.lines()


@pytest.mark.slow
def test_a_run_over_all_goes_on_where_it_stopped(
    everything: tuple[Path, Learner], data: Path, model: Path, tmp_path: Path
) -> None:
    out, result = everything
    stopped = tmp_path / "runs"
    shutil.copytree(out, stopped)
    (stopped / "glue.json").unlink()
    shutil.rmtree(stopped / "RTE" / "model")  # stopped within a task
    shutil.rmtree(stopped / "WNLI")  # and before another
    again = bertine.finetune(
        "glue", glue_task="all", model=model, data=data, out=stopped, resume=True, **QUICK
    )
    assert again.score == pytest.approx(result.score)
    for name in ("RTE", "WNLI"):
        before, after = (toys.weights(folder / name / "model") for folder in (out, stopped))
        assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_model_for_glue_takes_other_tables_too(
    everything: tuple[Path, Learner], tmp_path: Path
) -> None:
    path = tmp_path / "own.csv"
    path.write_text("sentence1,sentence2,label\na cat,a dog,entailment\n", encoding="utf-8")
    report = bertine.evaluate(everything[0] / "RTE", path, show_progress=False)
    assert report.to_dict()["num_examples"] == 1
    path.write_text("sentence1,sentence2,label\na cat,a dog,maybe\n", encoding="utf-8")
    with pytest.raises(BertineError, match="unknown label 'maybe'"):
        bertine.evaluate(everything[0] / "RTE", path, show_progress=False)


@pytest.mark.parametrize("name", ["CoLA", "STS-B", "MNLI"])
def test_evaluate_reads_the_official_files_too(
    name: str, everything: tuple[Path, Learner], data: Path
) -> None:
    out, result = everything
    report = bertine.evaluate(out / name, data, precision="fp32", show_progress=False)
    # After three steps the scores differ by hundred-thousandths: their rounding shows.
    assert report.metrics == pytest.approx(result.runs[name].metrics, abs=2e-3)
    if name == "MNLI":
        ax = data / "diagnostic" / "diagnostic-full.tsv"
        report = bertine.evaluate(out / name, ax, show_progress=False)
        assert "matthews" in report.metrics


def test_the_leaderboards_files(
    everything: tuple[Path, Learner], data: Path, tmp_path: Path
) -> None:
    out, _ = everything
    path = tmp_path / "submission.zip"
    done = bertine.glue_submission(out, data=data, out=path, precision="fp32")
    assert done.missing == []
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(files) == {f"{name}.tsv" for name in ELEVEN}
    three = {"contradiction", "entailment", "neutral"}
    allowed = {
        name: three if name in ("MNLI-m", "MNLI-mm", "AX") else {"0", "1"} for name in ELEVEN
    }
    allowed["RTE"] = allowed["QNLI"] = {"entailment", "not_entailment"}
    for name in ELEVEN:
        header, *rows = files[f"{name}.tsv"].splitlines()
        assert header == "index\tprediction"
        assert [row.split("\t")[0] for row in rows] == [str(number) for number in range(24)]
        answers = [row.split("\t")[1] for row in rows]
        if name == "STS-B":
            assert all(0 <= float(answer) <= 5 for answer in answers)
        else:
            assert set(answers) <= allowed[name]
    # What predict answers is what is handed in.
    predictor = bertine.Predictor.load(out / "RTE", precision="fp32")
    lines = (data / "RTE" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    pairs = [(row.split("\t")[1], row.split("\t")[2]) for row in lines]
    labels = [answer.label for answer in predictor.predict(pairs)]
    assert [row.split("\t")[1] for row in files["RTE.tsv"].splitlines()[1:]] == labels
    first = path.read_bytes()
    bertine.glue_submission(out, data=data, out=path, precision="fp32")
    assert path.read_bytes() == first


def test_a_part_of_the_leaderboard_names_the_rest(
    everything: tuple[Path, Learner], data: Path, tmp_path: Path
) -> None:
    out, _ = everything
    path = tmp_path / "part.zip"
    done = bertine.glue_submission([out / "CoLA", out / "RTE" / "model"], data=data, out=path)
    assert list(done.files) == ["CoLA.tsv", "RTE.tsv"]
    assert "the leaderboard wants eleven files; missing: SST-2.tsv, MRPC.tsv" in "\n".join(
        done.lines()
    )


def test_what_cannot_be_handed_in_is_said(
    everything: tuple[Path, Learner], data: Path, model: Path, tmp_path: Path
) -> None:
    out, _ = everything
    path = tmp_path / "none.zip"
    with pytest.raises(BertineError, match="was not fine-tuned on a task of GLUE"):
        bertine.glue_submission(model, data=data, out=path)
    with pytest.raises(BertineError, match="are both for RTE"):
        bertine.glue_submission([out / "RTE", out / "RTE" / "model"], data=data, out=path)
    with pytest.raises(BertineError, match=r"has no RTE/test.tsv, the test file for RTE.tsv"):
        bertine.glue_submission(out / "RTE", data=tmp_path, out=path)
    shutil.copy(data / "CoLA" / "test.tsv", tmp_path / "test.tsv")
    with pytest.raises(BertineError, match=r"is it the test file for CoLA\.tsv or for SST-2"):
        bertine.glue_submission([out / "CoLA", out / "SST-2"], data=tmp_path, out=path)
    assert not path.exists()


@pytest.mark.slow
def test_fresh_weights_owe_nothing_to_the_model(data: Path, model: Path, tmp_path: Path) -> None:
    other = toys.write_model(tmp_path / "other", seed=5)

    def run(start: Path, name: str, **changes: Any) -> dict[str, torch.Tensor]:
        out = tmp_path / name
        settings = {**QUICK, **changes}
        bertine.finetune("glue", glue_task="RTE", model=start, data=data, out=out, **settings)
        return toys.weights(out / "model")

    fresh = run(model, "a", fresh_weights=True)
    same = run(other, "b", fresh_weights=True)
    assert all(torch.equal(fresh[name], same[name]) for name in fresh)
    for name, changes in (("c", {}), ("d", {"fresh_weights": True, "seed": 1})):
        different = run(model, name, **changes)
        word = "bert.embeddings.word_embeddings.weight"
        assert not torch.equal(fresh[word], different[word])
    begun = tmp_path / "e"
    bertine.finetune("glue", glue_task="RTE", model=model, data=data, out=begun, **QUICK)
    with pytest.raises(BertineError, match="the run was started with fresh_weights = None"):
        bertine.finetune(
            *("glue",),
            **{"glue_task": "RTE", "model": model, "data": data, "out": begun, "resume": True},
            **{**QUICK, "fresh_weights": True},
        )


def write_scored(path: Path, rows: int) -> Path:
    """Animals are worth about 10,000, dishes about 20,000."""
    topics = list(toys.TOPICS)
    lines = ["review,price"]
    for n in range(rows):
        price = (10_000 if n % len(topics) < 4 else 20_000) + 10 * n
        lines.append(f"{toys.sentence(topics[n % len(topics)], 'old')},{price}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.takes(8)
def test_scores_of_ones_own_are_learned_saved_and_predicted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_scored(tmp_path / "prices.csv", 120), tmp_path / "run"
    options = ["--epochs", "10", "--batch-size", "8", "--max-length", "24", "--precision", "fp32"]
    columns = ["--text-column", "review", "--label-column", "price", "--learning-rate", "2e-3"]
    start = ["finetune", "regression", "--model", str(model), "--data", str(data)]
    assert main([*start, "--out", str(out), *columns, *options]) == 0
    assert "always answering the mean" in capsys.readouterr().out
    scores = json.loads((out / "scores.json").read_text())["final"]
    assert scores["num_examples"] == 12  # held out, though every score is there but once
    assert scores["metrics"]["pearson"] > 0.9
    report = bertine.evaluate(out, data, precision="fp32", show_progress=False)
    assert report.metrics["pearson"] > 0.9
    assert report.metrics["mean_absolute_error"] < 2500

    answered = tmp_path / "answered.csv"
    assert main(["predict", str(out), "--input", str(data), "--output", str(answered)]) == 0
    assert answered.read_text().splitlines()[0] == "review,price,score"
    predictor = bertine.Predictor.load(out, precision="fp32")
    texts = ["the old cat sleeps in the sofa .", "the old soup boils in the pot ."]
    low, high = [answer.score for answer in predictor.predict(texts)]
    assert low < 13_000
    assert high > 17_000

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(out / "model").eval()
    assert theirs.config.problem_type == "regression"
    encoded = transformers.AutoTokenizer.from_pretrained(out / "model")(
        texts, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        expected = theirs(**encoded).logits[:, 0].tolist()
    assert [low, high] == pytest.approx(expected, rel=1e-4)

    # What transformers saves of it is a regression as well.
    theirs.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(out / "model").save_pretrained(tmp_path / "theirs")
    loaded = bertine.Predictor.load(tmp_path / "theirs", precision="fp32")
    assert [answer.score for answer in loaded.predict(texts)] == pytest.approx([low, high])


def test_a_regression_can_be_gone_on_with(model: Path, tmp_path: Path) -> None:
    data = write_scored(tmp_path / "prices.csv", 48)
    columns = {"text_columns": "review", "label_column": "price"}
    given: dict[str, Any] = {"data": data, **columns, **QUICK}
    first = bertine.finetune("regression", model=model, out=tmp_path / "a", **given)
    second = bertine.finetune("regression", model=first.model, out=tmp_path / "b", **given)
    # The head that had the scores' mean and scale in it is not trained on as if it had not.
    assert second.metrics["mean_absolute_error"] < 12_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["glue", "--data", "DATA"], "which task of GLUE?"),
        (["glue", "--task", "CoLLA", "--data", "DATA"], "did you mean 'CoLA'"),
        (["glue", "--task", "RTE", "--data", "DATA/CoLA"], "there is no column 'sentence1'"),
        (["glue", "--all", "--data", "DATA/CoLA"], "has no folder of a GLUE task"),
        (["glue", "--task", "AX", "--data", "DATA"], "fine-tune MNLI"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str],
    message: str,
    data: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [word.replace("DATA", str(data)) for word in arguments]
    out = tmp_path / "out"
    assert main(["finetune", *words, "--model", str(model), "--out", str(out)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert errors[0].startswith("bertine: error: ")
    assert message in errors[0]
    assert not out.exists()
