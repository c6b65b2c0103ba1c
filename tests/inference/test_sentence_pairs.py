"""Pre-trained models asked about a pair answer as transformers: is B next, is the order right?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertine
import toys
from bertine.cli import main
from bertine.hub.model_directory import save_model
from bertine.models.heads import Model
from bertine.objectives.losses import MlmNsp, MlmSop
from hub.models import scrambled

#: Of several lengths; of the last ones more is cut than either text has pieces to spare.
PAIRS = [
    ("the old cat sleeps", "the cat sleeps in the sofa ."),
    ("soup", "the warm soup boils in the pot ."),
    (toys.corpus_text(1, 9), "a cow grazes"),
    (toys.corpus_text(1, 7), toys.corpus_text(1, 5, seed=3)),
]


def pretrained(folder: Path, order: bool) -> Path:
    """A BERT, or with `order` an ALBERT, as pre-training saves it, at most 64 pieces long."""
    sizes = {"max_position_embeddings": 64, "vocab_size": toys.tokenizer().vocab_size}
    config: Any = toys.config(**sizes)
    if order:
        sizes |= {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = bertine.preset("albert-base", **sizes, embedding_size=8, intermediate_size=16)
    heads = (MlmSop if order else MlmNsp).heads(config)
    save_model(folder, scrambled(Model(config, heads)), toys.tokenizer())
    return folder


def chances(logits: torch.Tensor) -> list[float]:
    return [float(row[0]) for row in logits.softmax(-1)]


def encoded(folder: Path) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(
        *map(list, zip(*PAIRS, strict=True)),
        padding=True,
        truncation=True,
        max_length=64,
        return_tensors="pt",
    )


@torch.inference_mode()
def test_the_next_sentence_is_as_likely_as_in_transformers(tmp_path: Path) -> None:
    ours = pretrained(tmp_path / "ours", order=False)
    predictor = bertine.Predictor.load(ours, "cpu", "fp32")
    theirs = transformers.BertForNextSentencePrediction.from_pretrained(ours)
    expected = chances(theirs(**encoded(ours)).logits)
    assert len(encoded(ours)["input_ids"][0]) == 64
    answers = predictor.predict(PAIRS)
    assert [answer.probabilities["IsNext"] for answer in answers] == pytest.approx(
        expected, abs=1e-6
    )
    assert [answer.label for answer in answers] == [
        "IsNext" if chance > 0.5 else "NotNext" for chance in expected
    ]


@pytest.mark.parametrize("name", ["BertForNextSentencePrediction", "BertForPreTraining"])
def test_folders_of_transformers_are_asked_alike(name: str, tmp_path: Path) -> None:
    ours = pretrained(tmp_path / "ours", order=False)
    getattr(transformers, name).from_pretrained(ours).save_pretrained(tmp_path / name)
    transformers.AutoTokenizer.from_pretrained(ours).save_pretrained(tmp_path / name)
    answers, theirs = (
        bertine.Predictor.load(folder, "cpu", "fp32").predict(PAIRS)
        for folder in (ours, tmp_path / name)
    )
    assert [answer.numbers for answer in theirs] == [answer.numbers for answer in answers]


@torch.inference_mode()
def test_the_order_is_as_likely_as_in_transformers(tmp_path: Path) -> None:
    folder = pretrained(tmp_path / "albert", order=True)
    theirs = transformers.AlbertForPreTraining.from_pretrained(folder)
    expected = chances(theirs(**encoded(folder)).sop_logits)
    answers = bertine.Predictor.load(folder, "cpu", "fp32").predict(PAIRS)
    assert [answer.probabilities["InOrder"] for answer in answers] == pytest.approx(
        expected, abs=1e-6
    )
    assert {answer.label for answer in answers} <= {"InOrder", "Swapped"}


def test_a_saved_predictor_is_still_a_pretrained_model(tmp_path: Path) -> None:
    predictor = bertine.Predictor.load(pretrained(tmp_path / "bert", order=False), "cpu", "fp32")
    predictor.save(tmp_path / "again")
    again = bertine.Predictor.load(tmp_path / "again", "cpu", "fp32")
    assert again.predict_one(PAIRS[0]).numbers == predictor.predict_one(PAIRS[0]).numbers
    assert bertine.fill_mask(tmp_path / "again", "the [MASK] cat")


def test_pairs_and_files_of_them_are_answered_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(pretrained(tmp_path / "bert", order=False))
    assert main(["predict", folder, *PAIRS[0], "--precision", "fp32"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["probability_IsNext"] + answer["probability_NotNext"] == pytest.approx(1)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in PAIRS[:2]))
    assert main(["predict", folder, "--input", str(pairs), "--text-columns", "a", "b"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "a,b,label,probability,probability_IsNext,probability_NotNext"
    assert len(rows) == 3


def test_models_without_such_a_head_say_which_have_one(tmp_path: Path) -> None:
    with pytest.raises(bertine.BertineError, match=r"BERT, MobileBERT, ALBERT; .*mlm-nsp"):
        bertine.predict("bertine-en", texts=("a", "b"))
    folder = pretrained(tmp_path / "bert", order=False)
    with pytest.raises(bertine.BertineError, match="takes 2 for each answer"):
        bertine.predict(folder, texts="one text")
