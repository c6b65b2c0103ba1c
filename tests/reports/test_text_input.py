"""A text as a model reads it: the table, its page, attention, and what is refused; and sizes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.cells import cell_len

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.families.presets import PRESETS, PUBLISHED, preset
from bertine.hub.model_directory import load_model, save_model
from bertine.models.heads import Model
from bertine.objectives import objective
from bertine.reports.text_input import TextInput
from bertine.serving.attention import AttentionQuestion, AttentionReader

TEXTS = (toys.sentence("cat", "old"), "the soup")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("text") / "model")


def read(model: Path | str, *texts: str, **options: object) -> TextInput:
    result = bertine.inspect(model, text=texts, **options)
    assert isinstance(result, TextInput)
    return result


def test_the_table_has_a_line_for_each_token(model: Path) -> None:
    result = read(model, "the cat", "the soup")
    tokenizer = load_model(model).tokenizer
    ids = [str(tokenizer.token_to_id(piece)) for piece in ("[CLS]", "the", "cat", "[SEP]", "soup")]
    cls, the, cat, sep, soup = ids
    assert [line.split() for line in result.lines()[1:9]] == [
        ["piece", "id", "segment", "position"],
        ["[CLS]", cls, "0", "0"],
        ["the", the, "0", "1"],
        ["cat", cat, "0", "2"],
        ["[SEP]", sep, "0", "3"],
        ["the", the, "1", "4"],
        ["soup", soup, "1", "5"],
        ["[SEP]", sep, "1", "6"],
    ]
    assert re.search(r"^cost: [\d.]+ ms .*, weights .*core", result.lines()[-1])
    assert result.to_dict()["tokens"][2]["piece"] == "cat"


def test_chinese_columns_stand_below_each_other() -> None:
    lines = read("bertine-zh", "我的狗很可爱", "企鹅不擅长飞行", mask=True, seed=2).lines()
    ends = {cell_len(re.match(r"\S+ +\S+", line)[0]) for line in lines[1:18]}  # type: ignore[index]
    assert len(ends) == 1


def test_rotary_positions_are_no_column(tmp_path: Path) -> None:
    config = preset("modern-tiny").replace(vocab_size=toys.tokenizer().vocab_size)
    save_model(tmp_path, Model(config, objective("mlm").heads(config)), toys.tokenizer())
    lines = read(tmp_path, "the cat", "the soup").lines()
    assert lines[1].split() == ["piece", "id"]
    assert "positions: rotary" in "\n".join(lines)


def test_masks_are_those_of_pre_training(model: Path) -> None:
    text = " ".join(toys.sentence(topic, "warm") for topic in toys.TOPICS)[:150]
    changes = Counter[str]()
    for seed in range(40):
        tokens = read(model, text, mask=True, seed=seed).tokens
        changes.update(token.change for token in tokens)
    asked = sum(changes.values()) - changes[""]
    assert asked / sum(changes.values()) == pytest.approx(0.15, abs=0.03)
    assert changes["masked"] / asked == pytest.approx(0.8, abs=0.09)
    assert {*changes} == {"", "masked", "replaced", "kept"}


def test_attention_is_that_of_the_server(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = read(model, *TEXTS, attention=True, html=page)
    loaded = load_model(model)
    reader = AttentionReader(loaded.model, loaded.tokenizer, None, 64)
    assert list(result.attention) == ["layer 1, mean of 2 heads", "layer 2, mean of 2 heads"]
    for layer, weights in enumerate(result.attention.values()):
        expected = reader(AttentionQuestion(*TEXTS, layer=layer))["attention"]
        np.testing.assert_allclose(weights, expected, atol=1e-4)
    one = read(model, *TEXTS, attention=True, layer=2, head=1).attention
    expected = reader(AttentionQuestion(*TEXTS, layer=1, head=0))["attention"]
    np.testing.assert_allclose(one["layer 2, head 1"], expected, atol=1e-4)
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 3
    assert "attends to (layer 2, mean of 2 heads)" in html


def test_long_texts_go_on_below_and_say_what_is_cut_off(model: Path, tmp_path: Path) -> None:
    result = read(model, "cat " * 99, mask=True, html=tmp_path / "page.html")
    most = load_model(model).config.longest_input
    assert len(result.tokens) == most
    assert f"{101 - most} pieces are cut off" in "\n".join(result.lines())
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    width = re.search(r'viewBox="0 0 ([\d.]+)', html)
    assert width is not None
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', html)
    assert max(float(x) + float(wide) for x, _, wide in boxes) <= float(width[1])
    assert len({y for _, y, _ in boxes}) > 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"text": ["a", "b", "c"]}, "takes one text or two"),
        ({"text": [" "]}, "none of them empty"),
        ({"text": ["a"], "num_instances": 9}, "num_instances is for a store"),
        ({"text": ["a"], "layer": 1}, "layer is for attention"),
        ({"text": ["a"], "seed": 4}, "seed is for a store, or a text with masks"),
        ({"text": ["a"], "attention": True, "layer": 3}, "layer is 3, but the model has 2 layers"),
        ({"mask": True}, "is a model, but mask is for a text"),
        ({"presets": True, "ngrams": 2}, "all presets are shown, but ngrams is for a store"),
    ],
)
def test_what_has_no_effect_is_refused(model: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(BertineError, match=said):
        bertine.inspect(model, **options)


def test_a_model_of_single_texts_takes_no_pair(tmp_path: Path) -> None:
    folder = toys.write_model(tmp_path / "model", type_vocab_size=1)
    with pytest.raises(BertineError, match="reads one text at a time"):
        read(folder, *TEXTS)


def test_sizes_are_shown_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = {line.split()[0]: line.split() for line in bertine.inspect(presets=True).lines()}
    assert {*PRESETS} < {*rows}
    assert rows["bert-base"][-2:] == ["109,482,240", "110M"]
    assert [rows[f"albert-{size}"][-1] for size in ("base", "large", "xlarge", "xxlarge")] == [
        *("12M", "18M", "60M", "235M")
    ]
    for name, paper in PUBLISHED.items():  # papers round, or count heads
        assert PRESETS[name].num_parameters == pytest.approx(float(paper[:-1]) * 1e6, rel=0.06)
    for name in ("bert-base", "albert-large", "bart-base", "xlnet-base-cased"):
        lines = bertine.inspect(name).lines()
        counts = [int(line.split()[-1].replace(",", "")) for line in lines if line[0] == " "]
        assert sum(counts) == PRESETS[name].num_parameters
    toys.write_model(Path("bert-base"))  # a folder comes first
    assert bertine.inspect("bert-base").lines()[0] == "model: bert-base"


def test_without_a_path_it_is_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, kernel = bertine.inspect().lines()
    assert re.match(r"machine: .*\d cores?, [\d.]+ GB of memory; no GPU", machine)
    assert re.match(r"layers in 8 bits: (Bertine's kernel|PyTorch's products \()", kernel)
    gpu = SimpleNamespace(name="NVIDIA X", total_memory=24 * 10**9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: gpu)
    assert bertine.inspect().lines()[0].startswith("machine: GPU NVIDIA X, 24.0 GB; ")
