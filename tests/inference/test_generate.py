"""Texts that a model writes, as users ask for them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertine
import roberta
import toys
from bertine.core.errors import BertineError
from bertine.core.task_info import TaskInfo
from bertine.hub.model_directory import load_model, save_model
from bertine.inference.generate import IncrementalDecoder, one_line
from bertine.models.family import family_of
from bertine.models.heads import Model, new_head
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.vocab import train_vocab

PROMPTS = ["the old cat", "soup", "in the garden the small dog"]


@pytest.fixture(scope="module")
def written_by(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT with random weights and a vocabulary of its kind."""
    home = tmp_path_factory.mktemp("gpt")
    corpus = toys.write_corpus(home / "corpus.txt")
    train_vocab([corpus], home / "vocab", kind="word-bpe", vocab_size=320)
    tokenizer = Tokenizer.load(home / "vocab")
    config = toys.config_for("clm").replace(vocab_size=tokenizer.vocab_size + 5)
    torch.manual_seed(0)
    model = Model(config, new_head(config, "lm"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    save_model(home / "model", model, tokenizer)
    return home / "model"


def written_by_theirs(model: Any, ids: torch.Tensor, never: list[int], **options: int) -> Any:
    """The prompt and ten tokens that a model of transformers goes on with."""
    return model.generate(
        ids,
        max_new_tokens=10,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
        suppress_tokens=never,
        **options,
    )[0]


def test_the_text_is_that_of_transformers(written_by: Path) -> None:
    """Their tokens, decoded by their tokenizer; special tokens and rows without a piece left
    out."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(written_by)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(written_by).eval()
    ours = bertine.Tokenizer.load(written_by)
    never = sorted({*ours.special_ids, *range(ours.vocab_size, ours.vocab_size + 5)})
    for options in ({}, {"num_beams": 3, "no_repeat_ngram_size": 2}):
        named = {"beams": options.get("num_beams", 1)}
        named["no_repeat_ngram_size"] = options.get("no_repeat_ngram_size", 0)
        found = bertine.generate(written_by, PROMPTS, max_new_tokens=10, **named)  # type: ignore[arg-type]
        for prompt, item in zip(PROMPTS, found, strict=True):
            ids = torch.tensor([ours.encode_plain([prompt])[0]])
            tokens = written_by_theirs(theirs, ids, never, **options)
            expected = tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
            assert item.whole == (expected,)
            assert item.whole[0].startswith(prompt)
            assert item.texts[0] == expected[len(prompt) :]


def test_before_a_prompt_stands_what_training_had_there(written_by: Path, tmp_path: Path) -> None:
    """A model that has always seen a special token first goes on worse without it."""
    folder, loaded = tmp_path / "model", load_model(written_by)
    task = TaskInfo("pretraining", training={"input_format": "doc-sentences"})
    save_model(folder, loaded.model, loaded.tokenizer, task=task)
    ours = bertine.Tokenizer.load(folder)
    before = ours.template.running.before
    assert len(before) == 1
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    never = sorted({*ours.special_ids, *range(ours.vocab_size, ours.vocab_size + 5)})
    ids = torch.tensor([[*before, *ours.encode_plain([PROMPTS[0]])[0]]])
    tokens = written_by_theirs(theirs, ids, never)
    (found,) = bertine.generate(folder, PROMPTS[:1], max_new_tokens=10)
    whole = transformers.AutoTokenizer.from_pretrained(folder).decode(
        tokens[1:], clean_up_tokenization_spaces=False
    )
    assert found.whole == (whole,)
    longest = loaded.config.longest_input
    with pytest.raises(BertineError, match=f"give {longest - 2} or fewer"):
        bertine.generate(folder, PROMPTS[:1], max_new_tokens=longest)


def test_a_file_of_prompts(written_by: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "prompts.csv", tmp_path / "written.csv"
    data.write_text(
        "text,generated\n" + "\n".join(f"{prompt},{n}" for n, prompt in enumerate(PROMPTS))
    )
    options = {"sample": True, "sequences": 2, "seed": 5, "max_new_tokens": 6}
    report = bertine.generate(written_by, input=data, output=out, show_progress=False, **options)
    assert report.lines()[0].startswith("wrote texts for 3 prompts in ")
    rows = out.read_text().splitlines()
    assert rows[0] == "text,generated,generated_1,generated_2"
    in_memory = bertine.generate(written_by, PROMPTS, **options)
    assert rows[1:] == [
        f"{prompt},{n},{item.texts[0]},{item.texts[1]}"
        for n, (prompt, item) in enumerate(zip(PROMPTS, in_memory, strict=True))
    ]
    assert len({text for item in in_memory for text in item.texts}) == 6
    lines = tmp_path / "written.txt"
    bertine.generate(written_by, PROMPTS[:2], output=lines, **options)
    both = bertine.generate(written_by, PROMPTS[:2], **options)
    assert lines.read_text().splitlines() == [text for item in both for text in item.whole]
    rows_as_json = tmp_path / "written.jsonl"
    bertine.generate(written_by, input=data, output=rows_as_json, max_new_tokens=2)
    first = json.loads(rows_as_json.read_text().splitlines()[0])
    # The name is taken by a column of the input.
    assert list(first) == ["text", "generated", "model_generated"]


def test_what_is_cut_unknown_and_empty_is_counted(
    written_by: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "prompts.jsonl"
    prompts = ["the cat " * 30, " ", "the \u4e2d"]
    data.write_text("".join(json.dumps({"text": prompt}) + "\n" for prompt in prompts))
    found = bertine.generate(written_by, input=data, max_new_tokens=10, show_progress=False)
    assert found[1].texts == ()
    assert found[2].whole[0].startswith("the \u4e2d ")
    told = capsys.readouterr().err
    assert "1 of 3 prompts were longer than the 30 tokens that there is room for" in told
    assert "(30 tokens)" in told
    assert "1 token of the prompts unknown to the vocabulary" in told
    assert "1 prompt is empty; nothing was written" in told
    end = bertine.generate(written_by, "the cat " * 15, max_new_tokens=10)
    assert found[0].texts == end[0].texts


def test_text_comes_as_soon_as_it_is_sure(written_by: Path) -> None:
    heard: list[str] = []
    (item,) = bertine.generate(written_by, PROMPTS[0], max_new_tokens=8, on_text=heard.append)
    assert "".join(heard) == item.whole[0] + "\n"
    assert len([part for part in heard if part]) == 10
    heard.clear()
    (item,) = bertine.generate(
        written_by, PROMPTS[0], beams=2, sequences=2, max_new_tokens=9, on_text=heard.append
    )
    assert heard == [f"{text}\n" for text in item.whole]


def test_characters_come_whole(tmp_path: Path) -> None:
    """Bytes of a character are pieces of their own in byte-level BPE."""
    tokenizer = Tokenizer.load(roberta.write_vocabulary(tmp_path / "vocab"))
    text = " \u732b \U0001f408 \u00e9t\u00e9"
    tokens = tokenizer.encode_plain([text])[0]
    assert len(tokens) > len(text)
    growing = IncrementalDecoder(tokenizer)
    parts = [growing.add(token) for token in tokens]
    assert "".join(parts) + growing.rest() == text
    assert not any("\ufffd" in part for part in parts)
    unfinished = IncrementalDecoder(tokenizer)
    assert [unfinished.add(token) for token in tokens[1:3]] == ["", ""]
    assert set(unfinished.rest()) == {"\ufffd"}


@pytest.mark.slow
def test_a_terminal_hears_it_token_by_token(written_by: Path) -> None:
    """Nothing is taken back: no cursor moves, no line comes twice."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bertine", "generate", str(written_by), PROMPTS[0]]
    with subprocess.Popen(
        [*command, "--max-new-tokens", "6"], stdout=theirs, stderr=subprocess.PIPE
    ):
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
    os.close(ours)
    (item,) = bertine.generate(written_by, PROMPTS[0], max_new_tokens=6)
    assert shown.decode() == item.whole[0] + "\r\n"


def test_lines_hold_one_text_each(written_by: Path) -> None:
    assert one_line("the cat \n\n sleeps\u2028in") == "the cat sleeps in"
    found = bertine.generate(written_by, PROMPTS, max_new_tokens=3)
    assert found.lines() == [item.whole[0] for item in found]


def bart(folder: Path) -> tuple[Model, Tokenizer]:
    """A BART with random weights."""
    corpus = toys.write_corpus(folder / "corpus.txt")
    train_vocab([corpus], folder / "vocab", kind="byte-bpe", vocab_size=300)
    tokenizer = Tokenizer.load(folder / "vocab")
    config = (
        family_of("bart")
        .presets["bart-tiny"]
        .replace(
            vocab_size=tokenizer.vocab_size,
            hidden_size=16,
            num_attention_heads=2,
            decoder_attention_heads=2,
            max_position_embeddings=40,
        )
    )
    torch.manual_seed(1)
    model = Model(config, new_head(config, "lm"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model, tokenizer


@pytest.mark.takes(2)
@pytest.mark.parametrize("forced", [{}, {"forced_bos_token_id": 0}, {"forced_eos_token_id": None}])
def test_a_model_that_reads_a_text_and_writes_another(
    tmp_path: Path, forced: dict[str, int | None]
) -> None:
    """With the tokens that transformers' generation_config.json forces, or those of config.json."""
    model, tokenizer = bart(tmp_path)
    save_model(tmp_path / "bart", model, tokenizer)
    if forced:
        usual = {"forced_eos_token_id": 2, "decoder_start_token_id": 2, "eos_token_id": 2}
        path = tmp_path / "bart" / "generation_config.json"
        path.write_text(json.dumps({**usual, "pad_token_id": 1, **forced}))
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "bart").eval()
    texts = ["The old cat sleeps.", "Rice"]
    found = bertine.generate(tmp_path / "bart", texts, max_new_tokens=8, beams=2)
    for text, item in zip(texts, found, strict=True):
        ids = torch.tensor([tokenizer.encode(text).input_ids])
        tokens = theirs.generate(ids, max_new_tokens=8, num_beams=2, do_sample=False)[0]
        assert item.texts == (tokenizer.decode(tokens.tolist()),)
        assert item.whole == (item.texts[0].strip(),)
    heard: list[str] = []
    bertine.generate(tmp_path / "bart", texts[0], max_new_tokens=8, on_text=heard.append)
    assert len("".join(heard).strip()) > 0
    with pytest.raises(BertineError, match=r"texts\[1\] has nothing to go on from"):
        bertine.generate(tmp_path / "bart", ["Rice", ""], max_new_tokens=8)
    with pytest.raises(BertineError, match="places for 40 tokens; give 40 or fewer"):
        bertine.generate(tmp_path / "bart", "Rice", max_new_tokens=41)


@pytest.mark.takes(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"beams": 1},
        {"beams": 3, "length_penalty": 2.0, "no_repeat_ngram_size": 2},
        {"beams": 2, "length_penalty": -1.0},
        {"beams": 1, "no_repeat_ngram_size": 1},
        None,
    ],
)
def test_transformers_writes_the_same_without_being_told(
    tmp_path: Path, settings: dict[str, Any] | None
) -> None:
    """As the model was fine-tuned to write; of a pre-trained one (None) as ``generate`` does."""
    model, tokenizer = bart(tmp_path)
    task = None
    if settings is not None:
        settings = {"max_target_length": 9, **settings}
        task = TaskInfo("seq2seq", text_columns=("text",), max_length=40, settings=settings)
    folder = tmp_path / "bart"
    save_model(folder, model, tokenizer, task=task)
    texts = ["The old cat sleeps.", "Rice"]
    if task is None:
        ours = [item.whole[0] for item in bertine.generate(folder, texts)]
    else:
        ours = [a.text for a in bertine.Predictor.load(folder, "cpu", "fp32").predict(texts)]
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    encode = transformers.AutoTokenizer.from_pretrained(folder)
    ids = theirs.generate(**encode(texts, padding=True, return_tensors="pt"))
    assert [text.strip() for text in encode.batch_decode(ids, skip_special_tokens=True)] == ours


def test_transformers_goes_on_the_same_without_being_told(written_by: Path, tmp_path: Path) -> None:
    loaded = load_model(written_by)
    config = loaded.config.replace(max_position_embeddings=64)
    model = Model(config, new_head(config, "lm"))
    save_model(tmp_path / "gpt", model, loaded.tokenizer)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "gpt").eval()
    encode = transformers.AutoTokenizer.from_pretrained(tmp_path / "gpt")
    (found,) = bertine.generate(tmp_path / "gpt", PROMPTS[0])
    ids = encode(PROMPTS[0], add_special_tokens=False, return_tensors="pt")["input_ids"]
    (tokens,) = theirs.generate(ids)
    assert found.whole == (encode.decode(tokens, clean_up_tokenization_spaces=False),)
