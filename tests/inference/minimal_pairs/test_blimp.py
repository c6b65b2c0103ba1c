"""``bertine blimp``: the pairs in the package, their means, and words hidden to their end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertine
from bertine.cli import main
from bertine.families.bert import BertConfig
from bertine.hub.model_directory import save_model
from bertine.inference.minimal_pairs import evaluate_pairs as module
from bertine.inference.minimal_pairs.evaluate_pairs import blimp_pairs, open_log_probability
from bertine.models.heads import MlmHead, Model
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer


def pair(good: str, bad: str, paradigm: str, phenomenon: str) -> str:
    row = {"sentence_good": good, "sentence_bad": bad}
    return json.dumps({**row, "UID": paradigm, "linguistics_term": phenomenon}) + "\n"


def rest_of_word_sum(twin: transformers.PreTrainedModel, words: Tokenizer, text: str) -> float:
    """Kauf and Ivanova 2023, PLL-word-l2r, a piece at a time."""
    ids = words.encode(text).input_ids
    pieces = [words.id_to_token(index) for index in ids]
    total = 0.0
    for at in range(1, len(ids) - 1):
        hidden = torch.tensor([ids])
        hidden[0, at] = words.mask_token_id
        for behind in range(at + 1, len(ids) - 1):
            if not pieces[behind].startswith("##"):
                break
            hidden[0, behind] = words.mask_token_id
        with torch.no_grad():
            total += float(twin(hidden).logits[0, at].double().log_softmax(-1)[ids[at]])
    return total


def test_pieces_of_a_word_are_hidden_to_its_end(config: BertConfig, tmp_path: Path) -> None:
    words = Tokenizer.from_vocab([*SPECIAL_TOKENS, "the", "un", "##like", "##ly", "cat", "##s"])
    config = config.replace(vocab_size=words.vocab_size)
    pretrained = tmp_path / "model"
    save_model(pretrained, Model(config, {"mlm": MlmHead(config)}), words)
    twin = transformers.AutoModelForMaskedLM.from_pretrained(pretrained).eval()
    texts = ["unlikely cats", "the unlike the cats", "the cat"]
    pieces = [words.id_to_token(index) for index in words.encode(texts[0]).input_ids]
    assert pieces == ["[CLS]", "un", "##like", "##ly", "cat", "##s", "[SEP]"]
    expected = [rest_of_word_sum(twin, words, text) for text in texts]
    values = open_log_probability(pretrained, masked_pieces="rest-of-word")(texts)
    assert values == pytest.approx(expected, rel=1e-5)
    assert values[0] != pytest.approx(float(open_log_probability(pretrained)(texts[:1])[0]))


class ShorterIsMoreProbable:
    """A way to score sentences that is known by heart."""

    title = "minus the number of characters"

    def __call__(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        return -np.array([len(text) for text in texts], dtype=np.float64)

    def notes(self) -> list[str]:
        return []


@pytest.mark.slow
def test_blimp_is_in_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 67,000 pairs and the 59,875 of BabyLM; the means are those of a count by hand."""
    monkeypatch.setattr(module, "open_log_probability", lambda *_, **__: ShorterIsMoreProbable())
    report = bertine.blimp("any", show_progress=False)
    pairs = blimp_pairs().items
    assert len(pairs) == report.pairs == 67_000
    assert len(report.paradigms) == 67
    assert len(report.phenomena) == 12
    assert report.phenomena["argument_structure"][0] == 9000
    assert {count for count, _ in report.paradigms.values()} == {1000}
    right = [len(one.good) < len(one.bad) for one in pairs]
    ties = sum(len(one.good) == len(one.bad) for one in pairs)
    assert report.ties == ties > 7
    # A thousand each: the mean over the paradigms is that over the pairs.
    assert report.metrics["accuracy"] == pytest.approx(np.mean(right))
    assert report.metrics["paradigm_mean"] == pytest.approx(np.mean(right))
    left_out = json.loads((module._DATA / "babylm_left_out.json").read_text())
    assert sum(map(len, left_out.values())) == 7_125
    means = []
    for paradigm, own in left_out.items():
        kept = [
            good
            for good, one in zip(right, pairs, strict=True)
            if one.paradigm == paradigm and int(one.number) not in own
        ]
        assert len(kept) == 1000 - len(own)
        means.append(np.mean(kept))
    assert report.metrics["babylm_paradigm_mean"] == pytest.approx(np.mean(means))
    lines = "\n".join(report.lines())
    assert "67,000 pairs of BLiMP: accuracy" in lines
    assert f"{ties:,} ties ({ties / 67_000:.2%}), counted as wrong" in lines
    assert "BabyLM's part, 59,875 pairs: mean of 67 paradigms" in lines
    assert "adjunct_island" not in lines
    more = bertine.blimp("any", paradigms=True, show_progress=False)
    assert "adjunct_island" in "\n".join(more.lines())


def test_own_pairs_through_the_command(
    pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        pair("the cat sat", "cat the sat", "order", "words")
        + pair("a dog ran", "a dog a ran", "articles", "words")
        + pair("very good", "very good", "articles", "words")
    )
    assert main(["blimp", str(pretrained), "--data", str(file), "--precision", "fp32"]) == 0
    out = capsys.readouterr().out
    assert f"3 pairs of {file}: accuracy" in out
    assert "1 tie (33.33%), counted as wrong" in out
    assert "BabyLM" not in out
    report = bertine.blimp(pretrained, data=file, precision="fp32", show_progress=False)
    order, articles = (report.paradigms[name][1] for name in ("order", "articles"))
    # Each paradigm counts as much as the other, however many pairs it has.
    assert report.metrics["paradigm_mean"] == pytest.approx((order + articles) / 2)
    assert "phenomenon_mean" not in report.metrics
