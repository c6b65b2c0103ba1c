"""Every variant with every task, by its users' way: vocabulary, store, pre-training, fine-tuning,
answers; what is saved is loaded, answers the same, and computes the same in transformers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertine
import tagged
import toys
from bertine.cli import main
from bertine.interop.family import config_to_huggingface
from bertine.modeldir import load_model, save_model
from bertine.rng import generator
from bertine.training.finetuning.frozen_head import fits_alone

from .parity import inputs
from .variants import VARIANTS, Variant

LENGTH = 64


def run(*arguments: object) -> None:
    """Run a command of ``bertine``."""
    assert main([str(argument) for argument in arguments]) == 0


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


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with toys.one_thread():
        yield


@dataclass(frozen=True)
class Home:
    """What a variant's tests begin with."""

    variant: Variant
    folder: Path

    @property
    def pretrained(self) -> Path:
        return self.folder / "run" / "model"


@pytest.fixture(scope="module", params=VARIANTS)
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Make a vocabulary of the variant's kind, a store, and a pre-trained model."""
    variant = VARIANTS[request.param]
    folder = tmp_path_factory.mktemp(variant.model_type)
    corpus = toys.write_corpus(folder / "corpus.txt")
    kind, size = variant.family.tokenizer, 320
    run("vocab", corpus, "--kind", kind, "--vocab-size", size, "--out", folder / "vocab")
    run("prepare", corpus, "--tokenizer", folder / "vocab", "--out", folder / "store")
    config = variant.family.presets[variant.preset].replace(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH + 2,
        initializer_range=0.2,
    )
    (folder / "config.json").write_text(json.dumps(config_to_huggingface(config)))
    run(
        *("pretrain", folder / "store", "--model", folder / "config.json"),
        *("--out", folder / "run", "--steps", 6, "--batch-size", 8, "--max-seq-length", 48),
        *("--learning-rate", 1e-3, "--precision", "fp32"),
    )
    return Home(variant, folder)


@pytest.fixture(scope="module", params=TASKS)
def finetuned(request: pytest.FixtureRequest, home: Home) -> tuple[TaskCase, Path]:
    case = TASKS[request.param]
    data = case.write(home.folder / f"{request.param}-{case.file}")
    out = home.folder / f"run-{request.param}"
    run(
        *("finetune", case.task, "--model", home.pretrained, "--data", data, "--out", out),
        *("--epochs", 1, "--batch-size", 16, "--max-length", 48, "--learning-rate", 1e-3),
        *("--no-frozen", "--precision", "fp32", *case.options),
    )
    return case, out / "model"


def test_pretraining_is_that_of_the_family(home: Home) -> None:
    values = json.loads((home.pretrained / "config.json").read_text())
    assert values["model_type"] == home.variant.model_type
    loaded = load_model(home.pretrained)
    assert set(loaded.model.heads) == set(
        {"mlm-nsp": ("mlm", "nsp"), "mlm": ("mlm",)}[home.variant.family.objectives[0]]
    )
    assert loaded.report.new == loaded.report.dropped == loaded.report.unexpected == []
    theirs, info = getattr(transformers, values["architectures"][0]).from_pretrained(
        home.pretrained, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert theirs.num_parameters() == loaded.model.num_parameters()


def test_masks_are_filled_as_transformers_fills_them(home: Home) -> None:
    mask = load_model(home.pretrained).tokenizer.mask_text
    text = f"the old {mask} barks in the {mask} ."
    ours = bertine.fill_mask(home.pretrained, text, top_k=3)
    pipeline = transformers.pipeline("fill-mask", model=str(home.pretrained), top_k=3)
    for filled, theirs in zip(ours, pipeline(text), strict=True):
        assert [c.probability for c in filled.candidates] == pytest.approx(
            [t["score"] for t in theirs], abs=1e-5
        )


def test_a_directory_of_transformers_is_opened_and_written_back(home: Home, tmp_path: Path) -> None:
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(home.pretrained)
    theirs.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(home.pretrained).save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    text = "The old cat sleeps. Übrigens: naïve 猫 🐱!"
    known = load_model(home.pretrained).tokenizer
    assert loaded.tokenizer.encode(text).input_ids == known.encode(text).input_ids
    assert loaded.tokenizer.fingerprint == known.fingerprint
    save_model(tmp_path / "ours", loaded.model, loaded.tokenizer)
    again, info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not info["missing_keys"]
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    encode = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for texts in ((text,), (text, "and a second one")):
        assert list(loaded.tokenizer.encode(*texts).input_ids) == encode(*texts)["input_ids"]


def test_vectors_are_the_means_of_transformers_states(home: Home) -> None:
    embedder = bertine.Embedder.load(home.pretrained, precision="fp32")
    texts = ["the old cat sleeps in the sofa .", "a soup"]
    vectors = embedder.embed(texts)
    theirs = transformers.AutoModel.from_pretrained(home.pretrained).eval()
    encode = transformers.AutoTokenizer.from_pretrained(home.pretrained)
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            states = theirs(**encode(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0).numpy(), atol=1e-5)


def test_held_out_text_is_scored(home: Home) -> None:
    report = bertine.evaluate(home.pretrained, home.folder / "store")
    assert 0 < report.metrics["mlm_loss"] < 2 * np.log(320)


def test_answers_are_the_same_in_memory_in_files_and_in_transformers(
    finetuned: tuple[TaskCase, Path], tmp_path: Path
) -> None:
    case, folder = finetuned
    predictor = bertine.Predictor.load(folder, "cpu", "fp32")
    task, tokenizer = predictor.task, predictor.tokenizer
    data = case.write(tmp_path / case.file)
    answers = tmp_path / ("answers.conll" if case.task == "tagging" else "answers.jsonl")
    run("predict", folder, "--input", data, "--output", answers)
    assert len(answers.read_text().splitlines()) >= 48
    scores = bertine.evaluate(folder, data)
    assert scores.metrics
    assert len(list(predictor.predict(list(case.texts)))) == len(case.texts)

    # The same features, by our model and by transformers'.
    examples = bertine_examples(folder, data)
    features = task.featurize(examples, tokenizer)[:6]
    batch = task.collate(features, tokenizer.pad_token_id)
    loaded = load_model(folder)
    theirs, info = getattr(transformers, f"AutoModelFor{case.auto}").from_pretrained(
        folder, output_loading_info=True
    )
    assert not info["missing_keys"]
    given = inputs(batch, loaded.config)
    if case.auto == "MultipleChoice":
        given = {name: value[None] for name, value in given.items()}
    with torch.inference_mode():
        ours = loaded.model.read(task.head, loaded.model.encode(batch))
        output = theirs.eval()(**given)
    if case.auto == "QuestionAnswering":
        expected = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        expected = output.logits.T if case.auto == "MultipleChoice" else output.logits
    if ours.dim() == 3:
        ours, expected = ours[batch.attention_mask], expected[batch.attention_mask]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def bertine_examples(folder: Path, data: Path) -> Any:
    """Read the examples of a labelled file as the model's task reads them."""
    from bertine.datasets.labelled import read_evaluation

    predictor = bertine.Predictor.load(folder, "cpu", "fp32")
    (examples,) = read_evaluation(predictor.task, data).values()
    return examples


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fast_answers_are_close(finetuned: tuple[TaskCase, Path], precision: str) -> None:
    case, folder = finetuned
    try:
        fast = bertine.Predictor.load(folder, "cpu", precision)
    except bertine.BertineError as error:
        pytest.skip(str(error))
    exact = bertine.Predictor.load(folder, "cpu", "fp32")
    for ours, theirs in zip(
        fast.predict(list(case.texts)), exact.predict(list(case.texts)), strict=True
    ):
        if case.task == "text":
            assert ours.probability == pytest.approx(theirs.probability, abs=0.05)
        elif case.task == "regression":
            assert ours.score == pytest.approx(theirs.score, abs=0.2)


def test_a_head_alone_is_trained(home: Home, tmp_path: Path) -> None:
    if not fits_alone(load_model(home.pretrained).model):
        pytest.skip("the layers are not BERT's")
    data = toys.write_labelled(tmp_path / "data.csv")
    learner = bertine.finetune(
        "text", model=home.pretrained, data=data, out=tmp_path / "run", frozen=True
    )
    assert learner.validate(data).metrics["accuracy"] > 0.6
    opened = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run" / "model"
    )
    assert opened.config.num_labels == 2


def test_a_server_answers_explains_and_shows_attention(
    home: Home, finetuned: tuple[TaskCase, Path]
) -> None:
    pytest.importorskip("fastapi")
    from serving.conftest import running

    case, folder = finetuned
    names = bertine.Predictor.load(folder, "cpu", "fp32").tokenizer.names
    with running({"task": folder, "base": home.pretrained}) as ask:
        inputs = [list(text) if isinstance(text, tuple) else text for text in case.texts]
        answers = ask("/predict", {"texts": inputs, "model": "task"})
        assert answers.status == 200, answers.body
        assert len(answers.json["predictions"]) == len(inputs)
        assert ask("/explain", {"text": inputs[0], "model": "task"}).json["words"]
        listed = {entry["id"]: entry for entry in ask("/v1/models").json["data"]}
        hidden = f"the old {listed['base']['mask']} sleeps"
        filled = ask("/fill-mask", {"model": "base", "texts": [hidden]}).json
        assert len(filled["filled"][0]["masks"]) == 1
        for item in ({"text": _ONE[0]}, {"text": _ONE[0], "pair": "the soup"}):
            shown = ask("/attention", {**item, "model": "base"}).json["tokens"]
            words = [each["token"] for each in shown if each["end"]]
            assert set(words) <= {*names, *(name[2:] for name in names)}
            assert not words[0].startswith("##"), "no word goes on where a text begins"


def test_graphs_are_exported_and_answers_explained(
    finetuned: tuple[TaskCase, Path], tmp_path: Path
) -> None:
    case, folder = finetuned
    if case.task not in ("text", "tagging"):
        pytest.skip("text and tagging stand for all")
    pytest.importorskip("onnxruntime")
    bertine.export(folder, tmp_path / "graph")
    predictor = bertine.Predictor.load(folder, "cpu", "fp32")
    explanation = predictor.explain(case.texts[0])
    assert explanation.words
