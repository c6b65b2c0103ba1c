"""Exported models answer here as the models that they were made of, by ONNX Runtime."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertine.errors import BertineError
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.similar import similar
from bertine.inference.export import export
from bertine.inference.predict import predict
from bertine.inference.predictor import Predictor, evaluate
from bertine.modeldir import load_model, save_model
from bertine.models.bert import BertConfig
from bertine.models.model import Model
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.spans.task import SpanExtraction, SpanLimits
from bertine.tasks.tagging.task import Tagging
from bertine.tasks.texts.multi_label import MultiLabel
from bertine.tasks.texts.regression import TextRegression
from bertine.text.tokenizer import Tokenizer

from .test_predictor import random_texts

pytestmark = pytest.mark.slow  # an export takes seconds

TASKS: dict[str, Task[Any]] = {
    "regression": TextRegression(max_length=24),
    "multi-label": MultiLabel(("a", "b", "c"), max_length=24),
    "choice": MultipleChoice(("text",), ("one", "two"), max_length=24),
    "tagging": Tagging(("O", "B-X", "I-X"), max_length=24),
    "spans": SpanExtraction(max_length=24, limits=SpanLimits(max_question_length=8)),
}


@pytest.fixture(scope="module")
def classifier_export(classifier: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "classifier"
    export(classifier, folder, int8=True)
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_every_task_answers_as_the_model(
    name: str, config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = TASKS[name]
    torch.manual_seed(5)
    model = Model(config, task.heads(config), add_pooler=name not in ("tagging", "spans"))
    save_model(tmp_path / "model", model, tokenizer, task=task.task_info())
    export(tmp_path / "model", tmp_path / "out")
    texts = random_texts(30)
    longer = [f"{text} {text} {text}" for text in texts[::-1]]
    given: Any = {
        "choice": [(a, f"{b} cat", f"{a} dog") for a, b in zip(texts, texts[::-1], strict=True)],
        "spans": list(zip(texts, longer, strict=True)),
    }.get(name, texts)
    of_model = Predictor.load(tmp_path / "model", "cpu", "fp32")
    of_export = Predictor.load(tmp_path / "out")
    assert of_export.task == of_model.task
    ours, theirs = of_model.predict(given), of_export.predict(given)
    details = bool(task.output_columns(True) != task.output_columns(False))
    for a, b in zip(ours, theirs, strict=True):
        if name == "tagging":
            assert a.tags == b.tags
            assert a.probabilities == pytest.approx(b.probabilities, abs=1e-4)
        else:
            for x, y in zip(
                task.output_values(a, details), task.output_values(b, details), strict=True
            ):
                if isinstance(x, float):
                    assert x == pytest.approx(y, abs=1e-3)
                elif not isinstance(x, list):
                    assert x == y


def test_files_and_scores(classifier: Path, classifier_export: Path, tmp_path: Path) -> None:
    texts = random_texts(40)
    source = tmp_path / "in.csv"
    exact = Predictor.load(classifier, "cpu", "fp32")
    labels = [each.label for each in exact.predict(texts)]
    rows = [f"{text.replace(',', '.')},{label}" for text, label in zip(texts, labels, strict=True)]
    source.write_text("text,label\n" + "\n".join(rows) + "\n")
    predict(exact, source, tmp_path / "ours.csv")
    report = predict(classifier_export, source, tmp_path / "theirs.csv", show_progress=False)
    assert report.rows == 40
    ours, theirs = (
        [line.split(",") for line in (tmp_path / name).read_text().splitlines()]
        for name in ("ours.csv", "theirs.csv")
    )
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    found = evaluate(exact, source, show_progress=False).metrics
    again = evaluate(classifier_export, source, show_progress=False).metrics
    assert again == pytest.approx(found, abs=1e-4)
    small = Predictor.load(classifier_export, precision="int8")
    assert small.dtype == torch.int8
    assert any(
        "int8 by ONNX Runtime; the same answer as fp32 for" in line for line in small.lines()
    )
    right = [each.label for each in small.predict(texts)]
    assert sum(a == b for a, b in zip(right, labels, strict=True)) >= 36


@pytest.mark.parametrize("pooling", ["mean", "tokens"])
def test_vectors(pretrained: Path, tmp_path: Path, pooling: str) -> None:
    export(pretrained, tmp_path / "out", pooling=pooling, normalize=True)
    texts = ["", *random_texts(20)]
    ours = Embedder.load(
        pretrained, device="cpu", pooling=pooling, normalize=True, precision="fp32"
    )
    theirs = Embedder.load(tmp_path / "out")
    assert theirs.load_lines[0] == ours.load_lines[-1]
    assert theirs.load_lines[1:] == ["computing in fp32 by ONNX Runtime"]
    if pooling == "tokens":
        for a, b in zip(ours.embed_tokens(texts), theirs.embed_tokens(texts), strict=True):
            assert (a.tokens, a.offsets) == (b.tokens, b.offsets)
            np.testing.assert_allclose(a.vectors, b.vectors, atol=1e-4)
        return
    np.testing.assert_allclose(ours.embed(texts), theirs.embed(texts), atol=1e-4)
    (tmp_path / "in.txt").write_text("\n".join(texts[1:]) + "\n")
    found = similar(texts[3], tmp_path / "in.txt", model=tmp_path / "out", show_progress=False)
    assert found.found[0].score == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(BertineError, match="gives vectors"):
        Predictor.load(tmp_path / "out")


def test_mistakes(
    classifier: Path, classifier_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BertineError, match="is exported in fp32 and int8, not bf16"):
        Predictor.load(classifier_export, precision="bf16")
    with pytest.raises(BertineError, match="computed on the CPU here, not on 'cuda'"):
        Predictor.load(classifier_export, "cuda")
    with pytest.raises(BertineError, match="gives logits, not vectors"):
        Embedder.load(classifier_export)
    with pytest.raises(BertineError, match="whose pooling is that of the export"):
        Embedder.load(classifier_export, pooling="mean")
    with pytest.raises(BertineError, match="is an exported model, for predict, evaluate"):
        load_model(classifier_export)
    with pytest.raises(BertineError, match="is no model directory to save"):
        Predictor.load(classifier_export).save(tmp_path / "saved")
    broken = tmp_path / "broken"
    shutil.copytree(classifier_export, broken)
    (broken / "model.int8.onnx").unlink()
    with pytest.raises(BertineError, match=r"model\.int8\.onnx: No such file"):
        Predictor.load(broken, precision="int8")
    (broken / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(BertineError, match=r"model\.onnx: ONNX Runtime cannot read it"):
        Predictor.load(broken)
    about = json.loads((broken / "export.json").read_text())
    (broken / "export.json").write_text(json.dumps(about | {"file": "model.pt2"}))
    with pytest.raises(BertineError, match="was exported for PyTorch"):
        Predictor.load(broken)
    (broken / "export.json").write_text("[]")
    with pytest.raises(BertineError, match=r"export\.json: must hold a JSON object"):
        Predictor.load(broken)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(BertineError, match=r"install .*with: pip install onnx"):
        Predictor.load(classifier_export)
