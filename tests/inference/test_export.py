"""What is exported gives transformers' outputs for any size, and runs without Bertine."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
import torch
import transformers

import bertine.hub.export as graph_module
import bertine.inference.export_graph as writing_module
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.core.task_info import TaskInfo
from bertine.data.examples import Example, Examples
from bertine.families.bert import BertConfig
from bertine.hub.export import INPUTS, torch_runner
from bertine.hub.model_directory import save_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.export import export
from bertine.inference.export_graph import ExportReport
from bertine.inference.predict import predict
from bertine.inference.predictor import Predictor, onnx_runner
from bertine.models.heads import ClassificationHead, Model, SpanHead
from bertine.options.vectors import AnyVectors
from bertine.tasks import task_class
from bertine.tasks.classification import TextClassification
from bertine.tokenization.tokenizer import Tokenizer
from tolerance import assert_close, network_terms, tolerance

from .conftest import WORDS

#: Of the model that is exported.
TERMS = network_terms(2, 32)

pytestmark = pytest.mark.slow  # an export takes seconds

ROOT = Path(__file__).resolve().parents[2]
LABELS = ("fear", "joy", "love")
#: Of each task: its head, and transformers' class and its outputs.
TASKS: dict[str, tuple[str, int, str, tuple[str, ...]]] = {
    "text": ("classifier", 3, "BertForSequenceClassification", ("logits",)),
    "regression": ("classifier", 1, "BertForSequenceClassification", ("logits",)),
    "tagging": ("token_classifier", 3, "BertForTokenClassification", ("logits",)),
    "choice": ("choice", 1, "BertForMultipleChoice", ("logits",)),
    "spans": ("spans", 2, "BertForQuestionAnswering", ("start_logits", "end_logits")),
}


#: Exporting takes seconds, so the tests share what they only read.
Exported = Callable[..., tuple[Path, ExportReport]]


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, config: BertConfig, tokenizer: Tokenizer
) -> Callable[[str], Path]:
    @cache
    def write(task: str) -> Path:
        path = tmp_path_factory.mktemp("models") / task
        name, outputs, _, _ = TASKS[task]
        torch.manual_seed(7)
        head = SpanHead(config) if task == "spans" else ClassificationHead(config, outputs)
        model = Model(config, {name: head}, add_pooler=task != "tagging")
        labels = LABELS if outputs == 3 else ()
        save_model(path, model, tokenizer, task=TaskInfo(task, labels, max_length=24))
        return path

    return write


@pytest.fixture(scope="module")
def exported(trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Exported:
    @cache
    def write(task: str, format: str = "onnx") -> tuple[Path, ExportReport]:
        folder = tmp_path_factory.mktemp("exported") / "out"
        int8 = task == "text" and format == "onnx"
        return folder, export(trained(task), folder, format=format, int8=int8)

    return write


def batches(config: BertConfig) -> list[dict[str, np.ndarray]]:
    """One sequence of two tokens; several with padding; one of all positions."""
    draw = np.random.default_rng(0)
    found = []
    for lengths in ((2,), (4, 19, 3, 7), (config.max_position_embeddings,)):
        shape = (len(lengths), max(lengths))
        mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
        ids = draw.integers(5, 20, shape) * mask
        types = draw.integers(0, 2, shape) * mask
        found.append(dict(zip(INPUTS, (ids, mask, types), strict=True)))
    return found


def theirs(path: Path, task: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What transformers' class gives for the directory."""
    _, _, name, outputs = TASKS[task]
    model = getattr(transformers, name).from_pretrained(path).eval()
    tensors = {key: torch.from_numpy(value) for key, value in inputs.items()}
    if task == "choice":
        tensors = {key: value[:, None] for key, value in tensors.items()}
    with torch.no_grad():
        found = model(**tensors)
    return [found[output].numpy() for output in outputs]


def same(ours: list[Any], expected: list[np.ndarray], mask: np.ndarray) -> None:
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        assert a.shape == b.shape
        if b.shape[:2] == mask.shape:
            a, b = a[mask == 1], b[mask == 1]
        assert_close(a, b, terms=TERMS)


@pytest.mark.parametrize("task", TASKS)
def test_onnx_gives_transformers_outputs(
    trained: Callable[[str], Path], exported: Exported, config: BertConfig, task: str
) -> None:
    path, (folder, report) = trained(task), exported(task)
    run = onnx_runner(folder / "model.onnx")
    for inputs in batches(config):
        same(list(run(inputs)), theirs(path, task, inputs), inputs["attention_mask"])
    about = json.loads((folder / "export.json").read_text())
    assert (about["task"], about["max_length"], about["opset"]) == (task, 24, 18)
    assert list(about["outputs"]) == list(TASKS[task][3])
    near = report.differences["model.onnx"]
    assert near.largest < tolerance(near.scale, terms=TERMS)
    graph = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(graph, full_check=True)
    assert (graph.ir_version, graph.opset_import[0].version) == (8, 18)
    axes = {tuple(a.dim_param for a in i.type.tensor_type.shape.dim) for i in graph.graph.input}
    assert axes == {("batch", "length")}


@pytest.mark.parametrize("task", ["text", "spans"])
def test_programs_of_pytorch_give_transformers_outputs(
    trained: Callable[[str], Path], exported: Exported, config: BertConfig, task: str
) -> None:
    path, (folder, report) = trained(task), exported(task, "torch")
    run = torch_runner(folder / "model.pt2")
    for inputs in batches(config):
        same(list(run(inputs)), theirs(path, task, inputs), inputs["attention_mask"])
    near = report.differences["model.pt2"]
    assert near.largest < tolerance(near.scale, terms=TERMS)


@pytest.mark.parametrize(
    ("pooling", "layer"), [("max", None), ("mean", -2), ("tokens", None)], ids=str
)
def test_vectors_are_pooled_in_the_graph(
    pretrained: Path, tmp_path: Path, pooling: str, layer: int | None
) -> None:
    settings: dict[str, Any] = {"pooling": pooling, "layer": layer, "normalize": True}
    export(pretrained, tmp_path / "out", **settings)
    run = onnx_runner(tmp_path / "out" / "model.onnx")
    embedder = Embedder.load(pretrained, precision="fp32", **settings)
    texts = ["a cat sat on the mat", "", "very good films , very bad films", "dog"]
    batch = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json")).encode_batch(texts)
    parts = ([e.ids for e in batch], [e.attention_mask for e in batch], [e.type_ids for e in batch])
    (found,) = run(dict(zip(INPUTS, map(np.array, parts), strict=True)))
    if pooling == "tokens":
        for row, each in zip(found, embedder.embed_tokens(texts), strict=True):
            assert_close(row[: len(each.tokens)], each.vectors, terms=TERMS)
    else:
        assert_close(found, embedder.embed(texts), terms=TERMS)


#: Of further tasks, as above, with the texts of an example.
ANSWERED: dict[str, tuple[TaskInfo, list[Any]]] = {
    "text": (TaskInfo("text", LABELS), ["the cat", "", "very bad film " * 20]),
    "windows": (
        TaskInfo("text", LABELS, settings={"long_text": "windows"}),
        ["a very bad film and a dog " * 9],
    ),
    "pairs": (TaskInfo("text", LABELS, ("premise", "hypothesis")), [("a cat", "the dog " * 20)]),
    "multi-label": (TaskInfo("multi-label", LABELS), ["the cat", "a very good film"]),
    "regression": (TaskInfo("regression"), ["the cat", "a very good film"]),
    "choice": (
        TaskInfo("choice", text_columns=("given", "first", "second")),
        [("the cat", "a dog", "a mat"), ("the cat", "sat", "good")],
    ),
    "spans": (TaskInfo("spans"), [("the cat", "a cat sat on the mat " * 9)]),
    "tagging": (TaskInfo("tagging", ("O", "B-cat", "I-cat")), ["the cat sat on a mat"]),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_exported_folder_answers_like_its_model(
    name: str, config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    info, texts = ANSWERED[name]
    info = dataclasses.replace(info, max_length=24)
    torch.manual_seed(3)
    heads = task_class(info.name).from_info(info, config).heads(config)
    model = Model(config.replace(initializer_range=0.3), heads)
    save_model(tmp_path / "model", model, tokenizer, task=info)
    export(tmp_path / "model", tmp_path / "out")
    expected = Predictor.load(tmp_path / "model", precision="fp32")
    file, columns = tmp_path / "texts.jsonl", expected.task.text_columns
    rows = [dict(zip(columns, [t] if isinstance(t, str) else t, strict=True)) for t in texts]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = []
    for model_or_folder in (expected, tmp_path / "out"):
        output = tmp_path / "answers.jsonl"
        predict(model_or_folder, file, output, all_probabilities=name != "regression")
        written.append([json.loads(line) for line in output.read_text().splitlines()])
    assert near(written[1], written[0])


def near(ours: Any, expected: Any) -> bool:
    """Whether two JSON values are the same but for rounding."""
    if isinstance(expected, float):
        return bool(ours == pytest.approx(expected, abs=1e-5))
    if isinstance(expected, list | dict):
        pairs = expected.items() if isinstance(expected, dict) else enumerate(expected)
        return len(ours) == len(expected) and all(near(ours[key], value) for key, value in pairs)
    return bool(ours == expected)


def test_an_exported_folder_answers_without_pytorch(exported: Exported) -> None:
    folder, _ = exported("text")
    code = (
        "import sys\nfrom bertine.cli import main\n"
        f"assert main(['predict', {str(folder)!r}, 'the cat', '--precision', 'int8']) == 0\n"
        "assert not {'torch', 'transformers', 'sklearn', 'pyarrow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\tthe cat\n")


def test_what_an_exported_folder_cannot_do(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = exported("text")
    with pytest.raises(BertineError, match=r"explain=True is for the model directory"):
        predict(folder, texts="the cat", explain=True)
    with pytest.raises(BertineError, match=r"answers by the ONNX file of a fine-tuned model"):
        predict(exported("text", "torch")[0], texts="the cat")
    monkeypatch.setattr("bertine.core.errors.find_spec", lambda name: None)
    capsys.readouterr()
    assert main(["predict", str(folder), "the cat"]) == 2
    assert capsys.readouterr().err == (
        "bertine: error: answering by an exported graph needs onnxruntime; install what it needs "
        "with: pip install onnxruntime\n"
    )


def test_int8_is_smaller_and_near(exported: Exported) -> None:
    folder, report = exported("text")
    assert report.sizes["model.int8.onnx"] < report.sizes["model.onnx"]
    near, exact = report.differences["model.int8.onnx"], report.differences["model.onnx"]
    assert exact.largest < near.largest < 0.2 * near.scale
    assert near.same is not None
    assert near.same > 0.8
    assert [line.split(":")[0] for line in report.lines()[1:]] == ["model.onnx", "model.int8.onnx"]
    about = json.loads((folder / "export.json").read_text())
    assert about["differences"]["model.int8.onnx"]["largest"] == near.largest


def test_large_weights_stand_beside_the_graph(
    trained: Callable[[str], Path], exported: Exported, tmp_path: Path, config: BertConfig
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_module, "_ONE_FILE", 0)
        report = export(trained("text"), tmp_path / "out", int8=True)
    names = ("model.onnx", "model.onnx.data")
    graph, weights = ((tmp_path / "out" / name).stat().st_size for name in names)
    assert weights > 4 * graph
    assert report.sizes["model.onnx"] == graph + weights
    run, same_run = (
        onnx_runner(folder / "model.onnx") for folder in (tmp_path / "out", exported("text")[0])
    )
    for inputs in batches(config):
        assert_close(run(inputs)[0], same_run(inputs)[0], terms=TERMS)
    assert report.differences["model.int8.onnx"].largest < 1.0


def test_the_tokenizer_cuts_and_pads(exported: Exported, tokenizer: Tokenizer) -> None:
    folder, _ = exported("text", "torch")
    found = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = ["the cat", "very bad film " * 9]
    for encoding, text in zip(found.encode_batch(texts), texts, strict=True):
        expected = tokenizer.encode(text, max_length=24).input_ids
        assert encoding.ids == expected + [tokenizer.pad_token_id] * (24 - len(expected))
    # Bertine and transformers read the folder's tokenizer as any other.
    assert Tokenizer.load(folder).fingerprint == tokenizer.fingerprint
    # Of a question and its context the context is cut.
    spans = tokenizers.Tokenizer.from_file(str(exported("spans", "torch")[0] / "tokenizer.json"))
    pair = spans.encode("a good cat sat on the mat", "the dog ran " * 9)
    assert pair.tokens[:9] == ["[CLS]", *["a", "good", "cat", "sat", "on", "the", "mat"], "[SEP]"]
    assert len(pair.ids) == 24


@pytest.mark.parametrize("mode", ["tail", "windows"])
def test_what_is_read_of_long_texts(
    mode: str, config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = TextClassification(LABELS, ("text",), "label", 16, long_text=mode)
    model = Model(config, task.heads(config))
    save_model(tmp_path / "model", model, tokenizer, task=task.task_info())
    report = export(tmp_path / "model", tmp_path / "out", format="torch")
    found = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    text = "the cat sat on a mat . very good film ran , the dog sat on the bad mat"
    ids = found.encode(text).ids
    if mode == "tail":
        examples = Examples("input", ("text",), None, [Example((text,), line=1)])
        assert ids == task.featurize(examples, tokenizer)[0].input_ids.tolist()
        assert report.notes == []
    else:
        assert ids == tokenizer.encode(text, max_length=16).input_ids
        assert "read by 'windows'" in report.notes[0]


def test_nothing_of_this_machine_and_no_pickle_is_written(exported: Exported) -> None:
    for name in ("onnx", "torch"):
        folder, _ = exported("text", name)
        for file in folder.iterdir():
            content = file.read_bytes()
            for place in (str(ROOT), str(folder), sys.prefix):
                assert place.encode() not in content, f"{file.name}: {place}"
    with zipfile.ZipFile(exported("text", "torch")[0] / "model.pt2") as archive:
        read = {name: archive.read(name) for name in archive.namelist()}
    assert [content for name, content in read.items() if name.endswith(".pt")] == [b""]
    weights = next(each for name, each in read.items() if name.endswith("weights_config.json"))
    assert {each["use_pickle"] for each in json.loads(weights)["config"].values()} == {False}


def blocks() -> dict[str, str]:
    """The examples of docs/export.md, by the word after ``python``."""
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^```python (\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def run_without_bertine(code: str, folder: Path) -> str:
    hidden = "import sys\nsys.modules['bertine'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", hidden + code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_run_without_bertine(
    trained: Callable[[str], Path], exported: Exported, pretrained: Path, tmp_path: Path
) -> None:
    model = trained("text")
    shutil.copytree(exported("text")[0], tmp_path / "exported")
    shutil.copytree(exported("text", "torch")[0], tmp_path / "exported-torch")
    export(pretrained, tmp_path / "vectors", pooling="mean", normalize=True)
    examples = blocks()
    assert set(examples) == {"onnx", "torch", "vectors"}
    words = [word for word in WORDS if word.isalpha()]
    texts = [f"{a} {b}" for a in words for b in words[:3]]
    expected = [each.label for each in Predictor.load(model, "cpu", "fp32").predict(texts)]
    assert len(set(expected)) > 1
    shown = '["Arrived late, but what a book.", "Never again."]'
    for name in ("onnx", "torch"):
        code = examples[name]
        assert len([line for line in code.splitlines() if line and "import" not in line]) <= 10
        assert shown in code
        found = run_without_bertine(code.replace(shown, repr(texts)), tmp_path)
        assert ast.literal_eval(found) == expected
    assert len(ast.literal_eval(run_without_bertine(examples["onnx"], tmp_path))) == 2
    cosines = np.array(ast.literal_eval(run_without_bertine(examples["vectors"], tmp_path)))
    vectors = Embedder.load(pretrained, normalize=True, precision="fp32").embed(
        ["a cat on a mat", "a dog on a rug", "the price of oil"]
    )
    np.testing.assert_allclose(cosines, vectors @ vectors.T, atol=0.006)
    with pytest.raises(AssertionError, match="bertine"):
        run_without_bertine("import bertine", tmp_path)


def test_missing_packages_are_named_before_anything_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util\n"
        "there = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *a: None if n == 'onnxscript' else there(n, *a)\n"
        "from bertine.cli import main\n"
        f"status = main(['export', {str(tmp_path / 'no-model')!r}, '--output', 'out'])\n"
        "print(status, 'torch' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    *_, error, last = done.stderr.splitlines()
    assert error == (
        "bertine: error: exporting to ONNX needs onnxscript; install what it needs with: pip "
        "install onnx onnxscript onnxruntime; or export a program of PyTorch (--format torch)"
    )
    assert last == "2 False"


def test_mistakes_write_nothing(
    trained: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = trained("text"), tmp_path / "out"
    with pytest.raises(BertineError, match="format 'tf' is not known; choose onnx, torch"):
        export(model, out, format="tf")
    with pytest.raises(BertineError, match="int8 is for the format onnx"):
        export(model, out, format="torch", int8=True)
    with pytest.raises(BertineError, match="max_length is 41, but the model has positions for 40"):
        export(model, out, max_length=41)
    for length in (0, 2):
        with pytest.raises(BertineError, match=f"max_length {length} leaves no room for text"):
            export(model, out, max_length=length)
    with pytest.raises(BertineError, match="is a folder, but not a folder of an exported model"):
        export(model, model)
    monkeypatch.setattr("bertine.core.errors.find_spec", lambda name: None)
    with pytest.raises(BertineError, match=r"needs onnx and onnxscript.*: pip install onnx "):
        export(model, out)
    # A graph that answers otherwise is not handed out.
    for by in (0.1, np.nan):
        monkeypatch.setattr(writing_module, "torch_runner", partial(wrong, by))
        with pytest.raises(BertineError, match="answers otherwise than the model"):
            export(model, out, format="torch")
    assert not out.exists()


def wrong(by: float, path: Path) -> Callable[[Any], list[np.ndarray]]:
    run = torch_runner(path)
    return lambda inputs: [output + by for output in run(inputs)]


def test_where_no_length_is_said_it_is_that_of_the_answers(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """As of a model of transformers: contexts are read in windows of the paper's length."""
    long = dataclasses.replace(config, max_position_embeddings=400)
    for name, head, length in (("spans", SpanHead(long), 384), ("text", None, 400)):
        heads = {"classifier": ClassificationHead(long, 3)} if head is None else {"spans": head}
        save_model(tmp_path / name, Model(long, heads), tokenizer)
        (tmp_path / name / "bertine.json").unlink(missing_ok=True)
        answering = Predictor.load(tmp_path / name, "cpu", "fp32")
        source = writing_module._open(tmp_path / name, AnyVectors(), None)
        assert source.max_length == answering.task.max_length == length
