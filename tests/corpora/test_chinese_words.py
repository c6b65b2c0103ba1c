"""Words of Chinese text: found by jieba when a store is prepared, hidden as a whole; and models
that were pre-trained so open as the BERTs that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import bertine
from bertine.cli import main
from bertine.core import errors
from bertine.core.errors import BertineError
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.hub.model_directory import load_model, save_model
from bertine.options.pretraining import InstanceSettings
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

SENTENCES = [
    "我们在自然语言处理实验室研究机器学习。",
    "北京大学的学生喜欢自然语言处理！",
    "他说: deep learning 改变了人工智能。",
]
#: What jieba divides the first of them into.
WORDS = [2, 1, 4, 2, 3, 2, 2, 2, 1]

jieba = pytest.importorskip("jieba")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    characters = sorted({c for text in SENTENCES for c in text if not c.isspace()})
    words = ["deep", "learn", "##ing", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
    Tokenizer.from_vocab([*SPECIAL_TOKENS, *characters, *words]).save(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "zh.txt"
    documents = ["\n".join(SENTENCES[n % 3 :] + SENTENCES[: n % 3]) for n in range(12)]
    file.write_text("\n\n".join(documents), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def stores(
    vocabulary: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TokenStore, TokenStore]:
    """One with words, one without."""
    folder = tmp_path_factory.mktemp("stores")
    for name, options in (("words", {"segmenter": "jieba"}), ("plain", {})):
        bertine.prepare(corpus, tokenizer=vocabulary, out=folder / name, language="zh", **options)
    return TokenStore.open(folder / "words"), TokenStore.open(folder / "plain")


def data_of(store: TokenStore, **settings: Any) -> PretrainingData:
    tokenizer = Tokenizer.load(store.tokenizer_path)
    usual = {"batch_size": 8, "max_seq_length": 64, "input_format": "full-sentences"}
    return PretrainingData(
        store, tokenizer, InstanceSettings(**{**usual, "max_predictions_per_seq": None, **settings})
    )


def test_a_store_with_words_has_the_same_ids(stores: tuple[TokenStore, TokenStore]) -> None:
    words, plain = stores
    words.verify()
    assert (words.segmenter, plain.segmenter) == ("jieba", None)
    assert words.num_tokens == plain.num_tokens
    assert (words.unigram_counts == plain.unigram_counts).all()
    for number in range(words.num_documents):
        one, other = words.document(number), plain.document(number)
        assert one.input_ids.tolist() == other.input_ids.tolist()
        assert one.sentence_lengths.tolist() == other.sentence_lengths.tolist()
    ids, goes_on = words.unmark(words.chunk(0).input_ids[: sum(WORDS)])
    tokenizer = Tokenizer.load(words.tokenizer_path)
    assert "".join(tokenizer.tokens[i] for i in ids) == SENTENCES[0]
    assert goes_on is not None
    assert np.diff([*np.flatnonzero(~goes_on), len(ids)]).tolist() == WORDS
    assert plain.unmark(plain.chunk(0).input_ids)[1] is None


def test_words_of_the_vocabulary_stay_words(stores: tuple[TokenStore, TokenStore]) -> None:
    words, _ = stores
    tokenizer = Tokenizer.load(words.tokenizer_path)
    ids, goes_on = words.unmark(words.chunk(0).input_ids)
    assert goes_on is not None
    ing = tokenizer.token_to_id("##ing")
    assert (ids == ing).any()
    assert goes_on[ids == ing].all()
    assert not goes_on[ids == tokenizer.token_to_id("deep")].any()


def test_batches_are_those_of_the_plain_store(stores: tuple[TokenStore, TokenStore]) -> None:
    """Where single tokens are hidden, with all their random numbers."""
    for step in range(3):
        one, other = (data_of(store).batch(step) for store in stores)
        assert (one.input_ids == other.input_ids).all()
        assert (one.targets["mlm_positions"] == other.targets["mlm_positions"]).all()


def test_words_are_hidden_as_a_whole(stores: tuple[TokenStore, TokenStore]) -> None:
    whole = {"whole_word_mask": True, "mask_split": (1.0, 0.0, 0.0)}
    for store, together in zip(stores, (True, False), strict=True):
        data = data_of(store, **whole)
        parted = 0
        hidden = 0
        for step in range(6):
            batch, instances = data.batch(step), data.instances(step)
            masked = (batch.input_ids == data.corruption.mask_token_id).numpy()  # type: ignore[attr-defined]
            marks = data_of(stores[0]).instances(step)
            for row, (instance, marked) in enumerate(zip(instances, marks, strict=True)):
                place = 1
                assert marked.goes_on is not None
                for segment, goes_on in zip(instance.segments, marked.goes_on, strict=True):
                    here = masked[row, place : place + len(segment)]
                    hidden += int(here.sum())
                    parted += int((goes_on[1:] & (here[1:] != here[:-1])).sum())
                    place += len(segment) + 1
        assert hidden > 100
        assert (parted == 0) == together


def test_copies_are_left_out_with_their_marks(
    vocabulary: Path, corpus: Path, tmp_path: Path
) -> None:
    """Of another file: its part is written anew."""
    again = tmp_path / "again.txt"
    text = corpus.read_text(encoding="utf-8")
    again.write_text(text + "\n\n" + SENTENCES[0], encoding="utf-8")
    bertine.prepare(
        [corpus, again],
        tokenizer=vocabulary,
        out=tmp_path / "store",
        language="zh",
        segmenter="jieba",
        drop_duplicates=True,
        part_bytes=1,
        processes=1,
    )
    store = TokenStore.open(tmp_path / "store")
    store.verify()
    assert store.num_documents == 4


def test_a_model_is_pretrained_and_the_store_inspected(
    stores: tuple[TokenStore, TokenStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config(len(stores[0].unigram_counts))))
    bertine.pretrain(
        stores[0].path,
        model=tmp_path / "config.json",
        out=tmp_path / "run",
        steps=2,
        batch_size=4,
        max_seq_length=32,
        whole_word_mask=True,
    )
    assert load_model(tmp_path / "run" / "model").config.model_type == "bert"
    assert 0 < bertine.evaluate(tmp_path / "run", stores[0].path).metrics["mlm_loss"] < 10
    capsys.readouterr()
    assert main(["inspect", str(stores[0].path), "--num-instances", "1"]) == 0
    assert "自" in capsys.readouterr().out


def test_without_jieba_one_line_says_what_to_install(
    vocabulary: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(
        BertineError, match=r"finding Chinese words needs jieba; .*pip install jieba"
    ):
        bertine.prepare(corpus, tokenizer=vocabulary, out=tmp_path / "s", segmenter="jieba")


def config(vocab_size: int) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
    }


#: Keys of the published files besides the sizes (hfl/chinese-roberta-wwm-ext, hfl/chinese-macbert).
PUBLISHED = {
    "chinese-roberta-wwm-ext": {
        "architectures": ["BertForMaskedLM"],
        "attention_probs_dropout_prob": 0.1,
        "bos_token_id": 0,
        "directionality": "bidi",
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "output_past": True,
        "pad_token_id": 0,
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "type_vocab_size": 2,
    },
    "chinese-macbert": {
        "architectures": ["BertForMaskedLM"],
        "attention_probs_dropout_prob": 0.1,
        "directionality": "bidi",
        "gradient_checkpointing": False,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "type_vocab_size": 2,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_chinese_berts_open(name: str, vocabulary: Path, tmp_path: Path) -> None:
    """Directories as they are published: BERT's keys, names and vocabulary (only a vocab.txt)."""
    tokens = Tokenizer.load(vocabulary).tokens
    values = config(len(tokens)) | PUBLISHED[name]
    settings = {k: v for k, v in values.items() if k not in ("model_type", "architectures")}
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**settings)).eval()
    theirs.save_pretrained(tmp_path / "published")
    (tmp_path / "published" / "config.json").write_text(json.dumps(values))
    (tmp_path / "published" / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    loaded = load_model(tmp_path / "published")
    assert (loaded.config.model_type, set(loaded.model.heads)) == ("bert", {"mlm"})
    assert loaded.report.new == loaded.report.dropped == loaded.report.unexpected == []
    text = "北京大学的[MASK]生"
    pipeline = transformers.FillMaskPipeline(
        model=theirs, tokenizer=transformers.BertTokenizer.from_pretrained(tmp_path / "published")
    )
    filled = bertine.fill_mask(tmp_path / "published", text, top_k=3)
    expected = pipeline(text, top_k=3)
    (ours,) = filled
    assert [c.probability for c in ours.candidates] == pytest.approx(
        [each["score"] for each in expected], abs=1e-6
    )
    save_model(tmp_path / "ours", loaded.model, loaded.tokenizer)
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")
    assert {k: tuple(v.shape) for k, v in again.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
