"""From text to answers through the command line, for every model and every task: what is trained
is saved, what is saved is loaded, and what is loaded answers the same, in transformers too."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers

import toys
from bertine import Predictor, fill_mask, load_model
from bertine.cli import main

#: What ``--model`` may be for a new model; a new variant is one line.
MODELS = ("bert-tiny",)


@dataclass(frozen=True)
class TaskCase:
    """A fine-tuning task, and what a row of its predictions is made of."""

    task: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]


#: By name; a new task is one line.
TASKS = {
    "text": TaskCase("text", ("text",), ("animal", "dish")),
    "pair": TaskCase("text", ("premise", "hypothesis"), ("different", "same")),
}
WRITE = {"text": toys.write_labelled, "pair": toys.write_pairs}


def bertine(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with toys.one_thread():
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary, a store and the tasks' data, made of text."""
    home = tmp_path_factory.mktemp("home")
    corpus = toys.write_corpus(home / "corpus.txt")
    bertine("vocab", corpus, "--out", home / "vocab", "--vocab-size", 120)
    bertine("prepare", corpus, "--tokenizer", home / "vocab", "--out", home / "store")
    for name, write in WRITE.items():
        (home / name).mkdir()
        write(home / name / "train.csv")
        write(home / name / "dev.csv", rows=20, seed=1)
    return home


@pytest.fixture(scope="module", params=MODELS)
def pretrained(request: pytest.FixtureRequest, home: Path) -> Path:
    run = home / f"run-{request.param}"
    sizes = ("--steps", 20, "--batch-size", 8, "--max-seq-length", 48)
    rate = ("--learning-rate", 1e-3, "--precision", "fp32")
    bertine("pretrain", home / "store", "--model", request.param, "--out", run, *sizes, *rate)
    return run / "model"


@pytest.fixture(scope="module", params=TASKS)
def finetuned(request: pytest.FixtureRequest, home: Path, pretrained: Path) -> tuple[str, Path]:
    name = request.param
    run = home / f"{pretrained.parent.name}-{name}"
    given = ("--model", pretrained, "--data", home / name, "--out", run)
    recipe = ("--epochs", 2, "--batch-size", 16, "--max-length", 40, "--learning-rate", 1e-3)
    trained = ("--no-frozen", "--precision", "fp32")
    bertine("finetune", TASKS[name].task, *given, *recipe, *trained)
    return name, run / "model"


def test_store_and_models_can_be_inspected(
    home: Path,
    pretrained: Path,
    finetuned: tuple[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bertine("inspect", home / "store", "--num-instances", 2, "--max-seq-length", 48)
    shown = capsys.readouterr().out
    assert "[CLS]" in shown
    assert "[MASK→" in shown
    for folder in (pretrained, finetuned[1], finetuned[1].parent):
        bertine("inspect", folder)
        assert "parameters" in capsys.readouterr().out


def test_a_runs_folder_is_a_tokenizer_too(home: Path, pretrained: Path, tmp_path: Path) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    run = pretrained.parent if pretrained.name == "model" else pretrained
    assert (run / "run.json").exists()
    bertine("prepare", corpus, "--tokenizer", run, "--out", tmp_path / "store")
    bertine(
        *("pretrain", tmp_path / "store", "--model", run, "--out", tmp_path / "run"),
        *("--steps", 1, "--batch-size", 2, "--max-seq-length", 24),
    )


def test_masks_are_filled_as_transformers_fills_them(
    pretrained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "the old [MASK] barks in the [MASK] ."
    bertine("fill-mask", pretrained, text, "--top-k", 3)
    shown = capsys.readouterr().out.splitlines()
    ours = fill_mask(pretrained, text, top_k=3)
    assert shown == ours.lines()
    pipeline = transformers.pipeline("fill-mask", model=str(pretrained), top_k=3)
    for mask, theirs in zip(ours, pipeline(text), strict=True):
        assert [c.token for c in mask.candidates] == [t["token_str"] for t in theirs]
        assert [c.probability for c in mask.candidates] == pytest.approx(
            [t["score"] for t in theirs], abs=1e-5
        )


def test_transformers_computes_the_same_pretraining_scores(home: Path, pretrained: Path) -> None:
    theirs, info = transformers.BertForPreTraining.from_pretrained(
        pretrained, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    loaded = load_model(pretrained)
    assert loaded.report.new == loaded.report.dropped == loaded.report.unexpected == []
    encoded = transformers.AutoTokenizer.from_pretrained(pretrained)(
        ["the cow grazes in the meadow ."] * 2,
        ["the bread bakes .", "the warm cow grazes in the meadow ."],
        padding=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        expected = theirs.eval()(**encoded)
        output = loaded.model.backbone(
            encoded["input_ids"], encoded["attention_mask"].bool(), encoded["token_type_ids"]
        )
        real = encoded["attention_mask"].bool()
        decoder = loaded.model.backbone.embeddings.word_embeddings.weight
        scores = loaded.model.heads["mlm"](output.last_hidden_state[real], decoder)
        next_scores = loaded.model.heads["nsp"](output.pooler_output)
    torch.testing.assert_close(scores, expected.prediction_logits[real], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(next_scores, expected.seq_relationship_logits, rtol=1e-4, atol=1e-5)


def test_answers_are_the_same_in_memory_on_disk_and_in_transformers(
    home: Path, finetuned: tuple[str, Path], tmp_path: Path
) -> None:
    name, model = finetuned
    case = TASKS[name]
    source = home / name / "dev.csv"
    answers = tmp_path / "answers.csv"
    bertine(
        *("predict", model, "--input", source, "--output", answers),
        *("--all-probabilities", "--precision", "fp32"),
    )
    with open(answers, encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    with open(source, encoding="utf-8", newline="") as handle:
        given = list(csv.DictReader(handle))
    assert [{k: row[k] for k in given[0]} for row in rows] == given
    texts = [tuple(row[column] for column in case.columns) for row in given]

    predictor = Predictor.load(model, precision="fp32")
    in_memory = predictor.predict([t[0] if len(t) == 1 else t for t in texts])
    assert [row["predicted_label"] for row in rows] == [answer.label for answer in in_memory]

    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    encoded = tokenizer(*map(list, zip(*texts, strict=True)), padding=True, return_tensors="pt")
    with torch.no_grad():
        theirs = classifier(**encoded).logits.softmax(-1)
    assert tuple(classifier.config.id2label.values()) == case.labels
    for row, answer, probabilities in zip(rows, in_memory, theirs.tolist(), strict=True):
        expected = dict(zip(case.labels, probabilities, strict=True))
        assert answer.probabilities == pytest.approx(expected, abs=1e-5)
        written = {label: float(row[f"probability_{label}"]) for label in case.labels}
        assert written == pytest.approx(expected, abs=1e-4)


def test_evaluate_gives_the_score_that_training_ended_with(
    home: Path, finetuned: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    name, model = finetuned
    scores = json.loads((model.parent / "scores.json").read_text())
    bertine("evaluate", model, "--data", home / name, "--precision", "fp32")
    last = scores["scores"][-1]
    expected = f"accuracy {last['accuracy']:.2%}, macro_f1 {last['macro_f1']:.2%}, "
    expected += f"loss {last['loss']:.4f}"
    assert expected in capsys.readouterr().out
    # A run's folder stands for its model.
    bertine("evaluate", model.parent, "--data", home / name / "dev.csv", "--precision", "fp32")
    assert expected in capsys.readouterr().out


def test_a_folder_that_transformers_saved_trains_to_the_same_model(
    home: Path, pretrained: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    transformers.BertForPreTraining.from_pretrained(pretrained).save_pretrained(theirs)
    transformers.AutoTokenizer.from_pretrained(pretrained).save_pretrained(theirs)
    ends = []
    for start in (pretrained, theirs):
        out = tmp_path / f"from-{start.name}"
        given = ("--model", start, "--data", home / "text", "--out", out, "--max-length", 40)
        bertine("finetune", "text", *given, "--epochs", 1)
        ends.append(toys.weights(out / "model"))
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_store_can_be_trained_on_further(home: Path, pretrained: Path, tmp_path: Path) -> None:
    """From the model directory, whose heads go on where they stopped; the folder may be moved."""
    moved = tmp_path / "moved"
    shutil.copytree(pretrained, moved)
    given = ("--model", moved, "--out", tmp_path / "run", "--max-seq-length", 48)
    few = ("--steps", 1, "--batch-size", 2, "--learning-rate", 0)
    bertine("pretrain", home / "store", *given, *few)
    before, after = toys.weights(pretrained), toys.weights(tmp_path / "run" / "model")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
