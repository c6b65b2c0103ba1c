"""Every variant with every task, by its users' way, from a pre-trained model to answers: what is
fine-tuned is saved, what is saved is loaded, answers the same, and computes the same in
transformers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertine
import tagged
import toys
from bertine.datasets.labelled import read_evaluation
from bertine.inference.compute.choosing import why_not_int8
from bertine.modeldir import load_model
from bertine.rng import generator
from tolerance import network_terms, tolerance

from .conftest import Home, Once, Run
from .conftest import bertine as command
from .parity import inputs, padded_left
from .variants import VARIANTS


def write_table(path: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])
    return path


def rows_of(make: Callable[[int, str, str], tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Make 48 rows, each of its number and two sentences."""
    draw = generator(0, "matrix rows")
    topics = list(toys.TOPICS)
    rows = []
    for number in range(48):
        first, second = (
            toys.sentence(topics[draw.integers(8)], toys.ADJECTIVES[draw.integers(4)])
            for _ in range(2)
        )
        rows.append(make(number, first, second))
    return rows


def numbers(path: Path) -> Path:
    return write_table(
        path, ("text", "label"), rows_of(lambda n, a, b: (a, str(1.0 + a.count("o") + n % 2)))
    )


def label_sets(path: Path) -> Path:
    return write_table(
        path, ("text", "label"), rows_of(lambda n, a, b: (a, "old|cat" if n % 3 else "cat"))
    )


def choices(path: Path) -> Path:
    header = ("context", "choice0", "choice1", "label")
    return write_table(path, header, rows_of(lambda n, a, b: (a, a, b, str(n % 2))))


def questions(path: Path) -> Path:
    def row(number: int, first: str, second: str) -> tuple[str, ...]:
        words = first.split()
        return (f"what {words[3]} ?", f"{second} {first}", " ".join(words[1:3]))

    return write_table(path, ("question", "context", "answer"), rows_of(row))


@dataclass(frozen=True)
class TaskCase:
    """A fine-tuning task.

    Attributes:
        task: its name on the command line.
        write: writes its labelled file.
        file: the name of the file.
        options: that say how it is read.
        auto: transformers' class that opens the model.
        texts: inputs as a program gives them.
    """

    task: str
    write: Callable[[Path], Path]
    file: str
    options: tuple[str, ...]
    auto: str
    texts: tuple[Any, ...]

    @property
    def head(self) -> str:
        """The head that it needs."""
        own = {"choice": "choice", "spans": "spans", "tagging": "token_classifier"}
        return own.get(self.task, "classifier")


_ONE = ("the old cat sleeps in the sofa .", "the soup boils .", "a warm cake")
_TWO = tuple(zip(_ONE, reversed(_ONE), strict=True))
_SPANS = ("--max-question-length", "12")
TASKS = {
    "text": TaskCase("text", toys.write_labelled, "t.csv", (), "SequenceClassification", _ONE),
    "pair": TaskCase("text", toys.write_pairs, "p.csv", (), "SequenceClassification", _TWO),
    "regression": TaskCase("regression", numbers, "r.csv", (), "SequenceClassification", _ONE),
    "multi-label": TaskCase("multi-label", label_sets, "m.csv", (), "SequenceClassification", _ONE),
    "choice": TaskCase(
        "choice", choices, "c.csv", (), "MultipleChoice", ((_ONE[0], _ONE[1], _ONE[2]),)
    ),
    "spans": TaskCase("spans", questions, "s.csv", _SPANS, "QuestionAnswering", _TWO),
    "tagging": TaskCase(
        "tagging", tagged.write_columns, "g.conll", (), "TokenClassification", _ONE
    ),
}


@pytest.fixture(scope="module", params=TASKS)
def finetuned(request: pytest.FixtureRequest, home: Home, once: Once) -> tuple[TaskCase, Path]:
    case = TASKS[request.param]
    if case.head not in home.variant.family.config.heads:
        pytest.skip("its models have no head for this task")

    def finetune(folder: Path) -> None:
        data = case.write(folder / case.file)
        out = folder / "run"
        command(
            *("finetune", case.task, "--model", home.pretrained, "--data", data, "--out", out),
            *("--epochs", 1, "--batch-size", 16, "--max-length", 48, "--learning-rate", 1e-3),
            *("--no-frozen", "--precision", "fp32", *case.options),
        )

    folder = once(f"{home.variant.model_type}-{request.param}", finetune)
    return case, folder / "run" / "model"


@pytest.mark.fast_cases(finetuned=("text",))
@pytest.mark.fast_cases(home=("bert",))
def test_answers_are_the_same_in_memory_in_files_and_in_transformers(
    finetuned: tuple[TaskCase, Path], tmp_path: Path, run: Run
) -> None:
    case, folder = finetuned
    predictor = bertine.Predictor.load(folder, "cpu", "fp32")
    task, tokenizer = predictor.task, predictor.tokenizer
    data = case.write(tmp_path / case.file)
    answers = tmp_path / ("answers.conll" if case.task == "tagging" else "answers.jsonl")
    exactly = ("--precision", "fp32")
    details = ("--all-probabilities",) if case.task == "text" else ()
    run("predict", folder, "--input", data, "--output", answers, *details, *exactly)
    assert len(answers.read_text().splitlines()) >= 48
    if case.task == "text":
        check_classified(folder, predictor, [json.loads(line) for line in answers.open()])
    report = bertine.evaluate(folder, data, precision="fp32")
    told = run("evaluate", folder.parent, "--data", data, *exactly)  # a run stands for its model
    assert told.splitlines()[0] == report.lines()[0]
    assert len(list(predictor.predict(list(case.texts)))) == len(case.texts)

    # The same features, by our model and by transformers'.
    (examples,) = read_evaluation(task, data).values()
    features = task.featurize(examples, tokenizer)[:6]
    batch = task.collate(features, tokenizer.pad_token_id)
    loaded = load_model(folder)
    if not VARIANTS[loaded.config.model_type].in_transformers(case.head):
        return
    auto = getattr(transformers, f"AutoModelFor{case.auto}")
    if loaded.config.reads_forward and case.auto == "MultipleChoice":
        auto = transformers.OpenAIGPTDoubleHeadsModel
    theirs, info = auto.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    given = inputs(batch, loaded.config)
    if loaded.config.reads_last:
        given = padded_left(given)
    real = given["attention_mask"].bool()
    if case.auto == "MultipleChoice":
        given = {name: value[None] for name, value in given.items()}
    if auto is transformers.OpenAIGPTDoubleHeadsModel:
        given["mc_token_ids"] = given.pop("attention_mask").sum(-1) - 1
    with torch.inference_mode():
        ours = loaded.model.read(task.head, loaded.model.encode(batch))
        output = theirs.eval()(**given)
    if case.auto == "QuestionAnswering":
        expected = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        logits = output.mc_logits if "mc_logits" in output else output.logits
        expected = logits.T if case.auto == "MultipleChoice" else logits
    if ours.dim() == 3:
        ours, expected = ours[batch.attention_mask], expected[real]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def check_classified(folder: Path, predictor: bertine.Predictor, rows: list[Any]) -> None:
    """The rows of a file are the answers in memory, and what transformers makes of the texts."""
    columns = predictor.task.text_columns
    texts = [tuple(row[column] for column in columns) for row in rows]
    in_memory = predictor.predict([t[0] if len(t) == 1 else t for t in texts])
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    # Where padding is read, an answer is that of the text alone.
    alone = predictor.model.backbone.reads_padding
    logits = []
    for group in [[text] for text in texts] if alone else [texts]:
        encoded = tokenizer(*map(list, zip(*group, strict=True)), padding=True, return_tensors="pt")
        with torch.no_grad():
            logits.append(classifier(**encoded).logits)
    theirs = torch.cat(logits).softmax(-1)
    labels = tuple(classifier.config.id2label.values())
    assert labels == predictor.task.labels
    for row, answer, probabilities in zip(rows, in_memory, theirs.tolist(), strict=True):
        assert row["predicted_label"] == answer.label
        expected = dict(zip(labels, probabilities, strict=True))
        assert answer.probabilities == pytest.approx(expected, abs=1e-5)
        written = {label: row[f"probability_{label}"] for label in labels}
        assert written == pytest.approx(expected, abs=1e-4)


def numbers_of(answer: Any) -> list[float]:
    """The numbers that an answer stands on."""
    if hasattr(answer, "n_best"):
        return [answer.probability]
    if hasattr(answer, "score"):
        return [answer.score]
    found = answer.probabilities
    return list(found.values() if isinstance(found, dict) else found)


@pytest.mark.fast_cases(home=("bert",), finetuned=("text", "tagging"))
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fast_answers_are_close(finetuned: tuple[TaskCase, Path], precision: str) -> None:
    case, folder = finetuned
    try:
        fast = bertine.Predictor.load(folder, "cpu", precision)
    except bertine.BertineError as error:
        # Where 8 bits can be computed, a variant says what keeps it from them.
        if not why_not_int8() and "this machine cannot" in str(error):
            raise
        pytest.skip(str(error))
    exact = bertine.Predictor.load(folder, "cpu", "fp32")
    bound = 0.2 if case.task == "regression" else 0.05
    for ours, theirs in zip(
        fast.predict(list(case.texts)), exact.predict(list(case.texts)), strict=True
    ):
        assert numbers_of(ours) == pytest.approx(numbers_of(theirs), abs=bound)


@pytest.mark.fast_cases(home=("bert",), finetuned=("text", "tagging"))
def test_answers_are_explained(finetuned: tuple[TaskCase, Path]) -> None:
    """A word for each of the text, and of a model that was trained they do not all weigh the
    same."""
    case, folder = finetuned
    if case.task not in ("text", "tagging"):
        pytest.skip("text and tagging stand for all")
    explanation = bertine.Predictor.load(folder, "cpu", "fp32").explain(case.texts[0])
    weights = [word.contribution for word in explanation.words]
    assert len(set(weights)) > 1


@pytest.mark.fast_cases(home=("bert",), finetuned=("text", "tagging"))
def test_a_server_answers_explains_and_shows_attention(
    home: Home, finetuned: tuple[TaskCase, Path]
) -> None:
    pytest.importorskip("fastapi")
    from serving.conftest import running

    case, folder = finetuned
    names = bertine.Predictor.load(folder, "cpu", "fp32").tokenizer.names
    with running({"task": folder, "base": home.masked_lm}) as ask:
        inputs = [list(text) if isinstance(text, tuple) else text for text in case.texts]
        answers = ask("/predict", {"texts": inputs, "model": "task"})
        assert answers.status == 200, answers.body
        assert len(answers.json["predictions"]) == len(inputs)
        assert ask("/explain", {"text": inputs[0], "model": "task"}).json["words"]
        if home.variant.hides:
            listed = {entry["id"]: entry for entry in ask("/v1/models").json["data"]}
            hidden = f"the old {listed['base']['mask']} sleeps"
            filled = ask("/fill-mask", {"model": "base", "texts": [hidden]}).json
            assert len(filled["filled"][0]["masks"]) == 1
        for item in ({"text": _ONE[0]}, {"text": _ONE[0], "pair": "the soup"}):
            answer = ask("/attention", {**item, "model": "base"})
            if not load_model(home.masked_lm).model.backbone.shows_attention:
                assert answer.status == 422
                assert "has no attention" in answer.json["error"]["message"]
                continue
            shown = answer.json["tokens"]
            words = [each["token"] for each in shown if each["end"]]
            assert set(words) <= {*names, *(name[2:] for name in names)}
            assert not words[0].startswith("##"), "no word goes on where a text begins"


#: Variants whose graphs are exported: each has layers of its own. tests/inference exports every
#: kind of head of BERT.
EXPORTED = ("modernbert", "deberta-v2", "xlnet", "bart")


@pytest.mark.slow
def test_graphs_are_exported(finetuned: tuple[TaskCase, Path], home: Home, tmp_path: Path) -> None:
    case, folder = finetuned
    if case != TASKS["text"] or home.variant.model_type not in EXPORTED:
        pytest.skip("texts, with layers of each kind, stand for all")
    pytest.importorskip("onnxruntime")
    report = bertine.export(folder, tmp_path / "graph")
    near = report.differences["model.onnx"]
    assert near.largest < tolerance(near.scale, terms=network_terms(2, 32))
