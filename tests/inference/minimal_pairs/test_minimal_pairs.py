"""Minimal pairs: the probabilities are those of transformers, the files those of BLiMP."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertine
import roberta
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.families.bart import PRESETS as BART
from bertine.families.electra import PRESETS as ELECTRA
from bertine.families.gpt import PRESETS
from bertine.families.roberta import PRESETS as ROBERTA
from bertine.families.xlnet import PRESETS as XLNET
from bertine.hub.model_directory import save_model
from bertine.inference.minimal_pairs import scoring
from bertine.inference.minimal_pairs.evaluate_pairs import (
    MinimalPairsReport,
    holds_pairs,
    judge_pairs,
    open_log_probability,
    read_pairs,
)
from bertine.models.heads import Model, new_head
from bertine.objectives.losses import Clm
from bertine.tokenization.tokenizer import Tokenizer

TEXTS = ["the cat sat on the mat.", "a dog", "very good film, very bad dogs ran", "cat"]


def masked_sum(twin: transformers.PreTrainedModel, words: Tokenizer, text: str) -> float:
    """Salazar et al. 2020, equation 1, a piece at a time."""
    ids = words.encode(text).input_ids
    total = 0.0
    for at in range(1, len(ids) - 1):
        hidden = torch.tensor([ids])
        hidden[0, at] = words.mask_token_id
        with torch.no_grad():
            total += float(twin(hidden).logits[0, at].double().log_softmax(-1)[ids[at]])
    return total


def test_masked_models_as_in_transformers(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_TEXTS", 3)
    monkeypatch.setattr(scoring, "_LOGITS", 200)
    twin = transformers.AutoModelForMaskedLM.from_pretrained(pretrained).eval()
    words = Tokenizer.load(pretrained)
    found = open_log_probability(pretrained)(TEXTS)
    expected = [masked_sum(twin, words, text) for text in TEXTS]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_masked_model_without_token_types(tmp_path: Path) -> None:
    """RoBERTa, with its own special tokens and no second type."""
    words = Tokenizer.load(roberta.write_vocabulary(tmp_path / "vocab"))
    config = ROBERTA["roberta-base"].replace(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=0.3,
    )
    folder = tmp_path / "model"
    torch.manual_seed(3)
    save_model(folder, Model(config, new_head(config, "mlm")), words)
    twin = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert open_log_probability(folder)(TEXTS) == pytest.approx(
        [masked_sum(twin, words, text) for text in TEXTS], rel=1e-5
    )


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt")
    corpus = toys.write_corpus(folder / "corpus.txt")
    bertine.train_vocab(corpus, out=folder / "vocab", kind="word-bpe", vocab_size=80)
    words = Tokenizer.load(folder / "vocab")
    config = PRESETS["gpt-tiny"].replace(
        vocab_size=words.vocab_size + 3,
        hidden_size=32,
        intermediate_size=128,
        num_attention_heads=2,
        max_position_embeddings=24,
        initializer_range=0.4,
    )
    torch.manual_seed(2)
    save_model(folder / "model", Model(config, Clm.heads(config)), words)
    return folder / "model"


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xlnet")
    corpus = toys.write_corpus(folder / "corpus.txt")
    kinds: Any = {"kind": "unigram", "special_tokens": "xlnet"}
    bertine.train_vocab(corpus, out=folder / "vocab", vocab_size=120, **kinds)
    words = Tokenizer.load(folder / "vocab")
    config = XLNET["xlnet-tiny"].replace(
        vocab_size=words.vocab_size,
        pad_token_id=words.pad_token_id,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        initializer_range=0.4,
    )
    torch.manual_seed(4)
    save_model(folder / "model", Model(config, new_head(config, "plm")), words)
    return folder / "model"


ODD = ["the old cat sleeps in the sofa .", "bread", "a small dog barks in the garden ."]


def test_an_xlnet_guesses_each_piece_last_as_in_transformers(xlnet: Path) -> None:
    twin = transformers.XLNetLMHeadModel.from_pretrained(xlnet).eval()
    words = Tokenizer.load(xlnet)
    expected = []
    for text in ODD:
        whole = words.encode(text)
        row, types = torch.tensor([whole.input_ids]), torch.tensor([whole.token_type_ids])
        assert types[0, -1] == 2, "<cls> is of a segment of its own"
        length, total = row.shape[1], 0.0
        for place in range(length - 2):
            hidden = torch.zeros(1, length, length)
            hidden[:, :, place] = 1
            chosen = torch.zeros(1, 1, length)
            chosen[0, 0, place] = 1
            with torch.no_grad():
                logits = twin(
                    row, token_type_ids=types, perm_mask=hidden, target_mapping=chosen
                ).logits[0, 0]
            total += float(logits.double().log_softmax(-1)[row[0, place]])
        expected.append(total)
    scorer = open_log_probability(xlnet)
    assert scorer(ODD) == pytest.approx(expected, rel=1e-5)
    assert np.concatenate([scorer([text]) for text in ODD]) == pytest.approx(expected, rel=1e-5)


def test_models_that_read_forward_as_in_transformers(
    gpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_LOGITS", 200)
    twin = transformers.OpenAIGPTLMHeadModel.from_pretrained(gpt).eval()
    words = Tokenizer.load(gpt)
    texts = ["the old cat sleeps in the sofa .", "bread", "a small dog barks in the garden ."]
    expected = []
    for text in texts:
        ids = torch.tensor(words.encode_plain([f". {text}"]))
        with torch.no_grad():
            logs = twin(ids).logits[0].double().log_softmax(-1)
        expected.append(float(logs[:-1].gather(1, ids[0, 1:, None]).sum()))
    # Together and each alone.
    scorer = open_log_probability(gpt)
    assert scorer(texts) == pytest.approx(expected, rel=1e-5)
    assert np.concatenate([scorer([text]) for text in texts]) == pytest.approx(expected, rel=1e-5)


def test_before_a_sentence_stands_what_training_had_there(gpt: Path, tmp_path: Path) -> None:
    """A model that has always seen a special token first is lost without it."""
    store = tmp_path / "store"
    bertine.prepare(gpt.parent / "corpus.txt", tokenizer=gpt, out=store)
    with toys.one_thread():
        run = bertine.pretrain(
            store,
            model=gpt,
            out=tmp_path / "run",
            steps=2,
            batch_size=4,
            max_seq_length=16,
            input_format="doc-sentences",
        )
    words = Tokenizer.load(run.model)
    twin = transformers.OpenAIGPTLMHeadModel.from_pretrained(run.model).eval()
    text = "the old cat sleeps in the sofa ."
    ids = torch.tensor([[*words.template.running.before, *words.encode_plain([text])[0]]])
    assert len(words.template.running.before) == 1
    with torch.no_grad():
        logs = twin(ids).logits[0].double().log_softmax(-1)
    expected = float(logs[:-1].gather(1, ids[0, 1:, None]).sum())
    assert open_log_probability(run.model)([text]) == pytest.approx([expected], rel=1e-5)


@pytest.mark.slow
def test_a_bart_writes_what_is_hidden_as_in_transformers(tmp_path: Path) -> None:
    words = Tokenizer.load(roberta.write_vocabulary(tmp_path / "vocab"))
    config = BART["bart-tiny"].replace(
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=16,
        decoder_attention_heads=2,
        decoder_ffn_dim=16,
        initializer_range=0.3,
    )
    config = config.for_vocabulary(
        words.vocab_size,
        pad=words.pad_token_id,
        first=words.template.first_id,
        last=words.template.last_id,
    )
    torch.manual_seed(5)
    save_model(tmp_path / "model", Model(config, new_head(config, "lm")), words)
    twin = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "model").eval()
    expected, several = [], 0
    for text in TEXTS:
        row = words.encode(text).input_ids
        starts = [at for at in range(1, len(row) - 1) if at == 1 or not words.continues[row[at]]]
        several += len(row) - 2 - len(starts)
        total = 0.0
        for begin, end in zip(starts, [*starts[1:], len(row) - 1], strict=True):
            read = torch.tensor([[*row[:begin], words.mask_token_id, *row[end:]]])
            with torch.no_grad():
                # Labels are put one place later behind the start token there too.
                logs = twin(read, labels=torch.tensor([row])).logits[0].double().log_softmax(-1)
            total += sum(float(logs[at, row[at]]) for at in range(begin, end))
        expected.append(total)
    assert several, "words of more pieces than one"
    scorer = open_log_probability(tmp_path / "model")
    assert scorer(TEXTS) == pytest.approx(expected, rel=1e-5)
    assert np.concatenate([scorer([text]) for text in TEXTS]) == pytest.approx(expected, rel=1e-5)


def test_a_discriminator_scores_replaced_tokens_as_in_transformers(
    pretrained: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Tokenizer.load(pretrained)
    config = ELECTRA["electra-small"].replace(
        vocab_size=words.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=0.4,
    )
    torch.manual_seed(6)
    save_model(tmp_path / "model", Model(config, new_head(config, "rtd")), words)
    twin = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "model").eval()
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            logits = twin(torch.tensor([words.encode(text).input_ids])).logits[0]
        expected.append(float((1 - logits.double().sigmoid())[1:-1].log().sum()))
    assert open_log_probability(tmp_path / "model")(TEXTS) == pytest.approx(expected, rel=1e-5)
    assert main(["evaluate", str(tmp_path / "model"), "--data", str(folder)]) == 0
    assert "\nreplaced-token scores" in capsys.readouterr().out


def pair(good: str, bad: str, **others: str) -> str:
    return json.dumps({"sentence_good": good, "sentence_bad": bad, **others}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two paradigms of two phenomena, one compressed, beside files of other columns."""
    path = tmp_path / "pairs"
    path.mkdir()
    first = "".join(
        pair(f"the cat {verb} .", f"the the {verb} .", UID="one", linguistics_term="A")
        for verb in ("sat", "ran")
    )
    with lzma.open(path / "one.jsonl.xz", "wt") as file:
        file.write(first)
    (path / "two.jsonl").write_text(
        pair("a dog", "a dog", UID="two", linguistics_term="B")
        + pair("a dog sat", "a sat dog", UID="two", linguistics_term="B")
    )
    (path / "summary.jsonl").write_text('{"UID": "one", "lstm": 0.9}\n')
    (path / "README.md").write_text("pairs")
    return path


def test_a_folder_of_pairs_through_the_command(
    pretrained: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = bertine.evaluate(pretrained, folder, show_progress=False)
    assert isinstance(report, MinimalPairsReport)
    pairs = read_pairs(folder)
    assert [item.where.rsplit("/")[-1] for item in pairs.items] == [
        *("one.jsonl.xz:1", "one.jsonl.xz:2", "two.jsonl:1", "two.jsonl:2")
    ]
    values = open_log_probability(pretrained)
    right = [float(values([item.good])[0]) > float(values([item.bad])[0]) for item in pairs.items]
    assert right[2] is False, "the same sentence twice"
    # As many pairs in each paradigm and phenomenon: the means are the same.
    assert report.metrics == {
        name: pytest.approx(np.mean(right))
        for name in ("accuracy", "paradigm_mean", "phenomenon_mean")
    }
    assert report.ties == 1
    assert report.phenomena == {
        "A": (2, pytest.approx(np.mean(right[:2]))),
        "B": (2, pytest.approx(np.mean(right[2:]))),
    }
    assert report.to_dict()["paradigms"]["two"]["pairs"] == 2
    assert main(["evaluate", str(pretrained), "--data", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"4 pairs of {folder}: accuracy" in out
    assert "1 tie (25.00%), counted as wrong" in out
    assert "1 file of other columns left out" in out
    assert len(read_pairs(folder).sample(1)) == 2


def test_the_order_of_pairs_and_their_company_do_not_matter(gpt: Path, tmp_path: Path) -> None:
    lines = [
        pair(toys.sentence(topic, "old"), toys.sentence(topic, "old").replace("the ", "a ", 1))
        for topic in toys.TOPICS
    ]
    results = []
    for number, order in enumerate((lines, lines[::-1])):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(order))
        pairs = read_pairs(file)
        results.append(judge_pairs(open_log_probability(gpt), pairs, show_progress=False).metrics)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (pair("a dog", " "), r"pairs.jsonl:2: sentence_bad is empty"),
        ('{"sentence_good": "a dog"}\n', r"pairs.jsonl:2: there is no column 'sentence_bad'"),
        (pair("a", "b").replace('"b"', "3"), r"'sentence_bad' is a number, but must be a text"),
        ("{\n", r"pairs.jsonl:2: not valid JSON"),
        (pair("a dog", "cat " * 60), r"'cat cat .*has 60 pieces, but the model takes 38"),
    ],
)
def test_mistakes_in_the_file(pretrained: Path, tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(pair("a dog", "dog a") + line)
    with pytest.raises(BertineError, match=message):
        bertine.evaluate(pretrained, file, show_progress=False)


def test_mistakes_with_the_model(
    pretrained: Path, classifier: Path, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertineError, match="has no head that gives words a probability"):
        bertine.evaluate(classifier, folder)
    with pytest.raises(BertineError, match=r"worst is for labelled .* is a set of minimal pairs"):
        bertine.evaluate(pretrained, folder, worst=3)
    with pytest.raises(BertineError, match=r"text_columns is for .* minimal pairs"):
        bertine.evaluate(pretrained, folder, text_columns="sentence_good")
    (tmp_path / "labelled.jsonl").write_text('{"text": "a", "label": "b"}\n')
    assert not holds_pairs(tmp_path / "labelled.jsonl")
    assert not holds_pairs(tmp_path)
    assert holds_pairs(folder)
    with pytest.raises(BertineError, match="has no file of minimal pairs"):
        read_pairs(tmp_path)


def test_a_model_without_masks_has_no_words_to_hide(
    gpt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(pair("the cat sat", "cat the sat"))
    words = ["--masked-pieces", "rest-of-word"]
    assert main(["blimp", str(gpt), "--data", str(file), *words]) == 2
    assert "--masked-pieces is about models whose pieces are masked in turn" in (
        capsys.readouterr().err
    )
