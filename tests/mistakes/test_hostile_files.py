"""Files that are damaged or made to harm: one line that names the file, in bounded time and memory.

What was met by hand is listed here; `fuzz.py` looks for more, and some of its cases are run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.core.files import read_json
from mistakes.commands import Fails, finetune, one_line, pretrain
from mistakes.fuzz import prepare_case, run_case
from mistakes.targets import UNTRAINED, make_untrained

DEEP = "[" * 100_000
CONFIG: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": 10**9}, "hidden_size is 1000000000, but must be between 1 and"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, but must be"),
    ({"num_hidden_layers": 9_999}, "has 2 layers, but num_hidden_layers in config.json is 9999"),
    ({"hidden_size": 10**6, "num_attention_heads": 1}, "but config.json asks for"),
    ({"hidden_dropout_prob": 1}, "hidden_dropout_prob is 1.0, but must be in [0, 1)"),
    ({"attention_probs_dropout_prob": -0.1}, "attention_probs_dropout_prob is -0.1"),
    ({"layer_norm_eps": -1}, "layer_norm_eps is -1.0"),
    ({"pad_token_id": 10**6}, "pad_token_id is 1000000"),
    ({"hidden_act": ["gelu"]}, "hidden_act is ['gelu'], but must be of type str"),
    ({"problem_type": ["x"]}, "problem_type is ['x'], but must be a text"),
    ({"id2label": {"0": [1], "1": "b"}}, "a label in id2label is neither"),
    ({"model_type": "\x1b[31m\u202e"}, r"model_type is '\x1b[31m\u202e'"),
]
#: In the place of a whole JSON file.
TEXTS = [
    (DEEP, "nested more than 64 deep"),
    ('{"a": ' * 500 + "1" + "}" * 500, "nested more than 64 deep"),
    ('{"a": NaN}', "has the value NaN"),
    ('{"a": 1e999}', "has the number 1e999, which is too large"),
    ('{"a": ' + "9" * 5000 + "}", "has a number of 5000 digits"),
    ('{"a": 1, "a": 2}', "the key 'a' is there twice"),
    ('{"a": "\\ud800"}', r"half a character (\ud800)"),
    ("[]", "must hold a JSON object"),
    ("", "not valid JSON"),
]


def changed(file: Path, changes: dict[str, Any]) -> Path:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}), encoding="utf-8")
    return file


@pytest.fixture
def classifier(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "classifier", tmp_path / "classifier"))


@pytest.mark.parametrize(("changes", "said"), CONFIG)
def test_config_json(
    made: Path, classifier: Path, fails: Fails, changes: dict[str, Any], said: str
) -> None:
    changed(classifier / "config.json", changes)
    message = fails("predict", classifier, "--input", made / "train.csv", "--precision", "fp32")
    assert said in message
    assert str(classifier) in message
    assert len(message) < 5000


@pytest.mark.parametrize(("text", "said"), TEXTS)
def test_json_that_is_none(
    made: Path, classifier: Path, tmp_path: Path, text: str, said: str, fails: Fails
) -> None:
    file = classifier / "config.json"
    file.write_text(text)
    message = fails("predict", classifier, "--input", made / "train.csv")
    assert message.startswith(f"{file}: ")
    assert said in message


def test_a_json_file_without_end(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with open(file, "wb") as handle:
        handle.truncate(10**12)  # takes no place on the disk
    with pytest.raises(BertineError, match=r"config\.json: is larger than 64 MiB"):
        read_json(file)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_length": -5}, "max_length is -5, but must be at least 3"),
        ({"settings": None}, "settings is None"),
        ({"labels": ["a", ["b"]]}, "labels[1] is ['b'], but must be a text"),
    ],
)
def test_bertine_json(
    made: Path, classifier: Path, fails: Fails, changes: dict[str, Any], said: str
) -> None:
    file = changed(classifier / "bertine.json", changes)
    message = fails("predict", classifier, "--input", made / "train.csv")
    assert message.startswith(f"{file}: {said}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value["model"].update(unk_token=3), "unk_token is 3"),
        (lambda value: value["model"]["vocab"].pop("[UNK]"), "lacks the special token [UNK]"),
        (lambda value: value["model"]["vocab"].update(the="x"), "the id of the token 'the' is 'x'"),
        (lambda value: value["model"]["vocab"].update(the=2**32 - 1), "are not 0.."),
        (lambda value: value["model"].update(max_input_chars_per_word=2**40), "max_input_chars"),
        (lambda value: value.update(added_tokens=[{"id": 0}]), "added_tokens must be a list"),
        (lambda value: value.update(model="WordPiece"), "its model is missing, not WordPiece"),
    ],
)
def test_tokenizer_json(made: Path, classifier: Path, fails: Fails, change: Any, said: str) -> None:
    file = classifier / "tokenizer.json"
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))
    message = fails("predict", classifier, "--input", made / "train.csv")
    assert message.startswith(str(file))
    assert said in message


def test_padding_in_a_tokenizer_takes_no_memory(
    made: Path, classifier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library would ask for 40 GB at the first text, and end the process."""
    padding = {"strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    changed(classifier / "tokenizer.json", {"padding": padding})
    assert main(["predict", str(classifier), "--input", str(made / "train.csv")]) == 0


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_waited_for(
    made: Path, classifier: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    file = classifier / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    assert main(["predict", str(classifier), "--input", str(made / "train.csv")]) == 2
    message = one_line(capsys.readouterr().err)
    assert f"is a {kind}, not a regular file" in message


def test_data_that_are_no_file(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "texts.csv"
    os.mkfifo(pipe)
    corpus = tmp_path / "corpus.txt"
    os.mkfifo(corpus)
    vectors = ["--output", tmp_path / "out.npy"]
    run: list[object]
    for run in (
        ["predict", made / "classifier", "--input", pipe],
        ["embed", made / "model", "--input", pipe, *vectors],
        ["embed", made / "model", "--input", "/dev/zero", *vectors],
        finetune(made / "model", pipe, tmp_path / "run"),
        ["predict", made / "classifier", "--input", made / "train.csv", "--config", pipe],
        ["vocab", corpus, "--out", tmp_path / "vocab"],
    ):
        assert main([str(word) for word in run]) == 2
        assert "is a " in one_line(capsys.readouterr().err)


def test_a_pipe_that_is_named_on_purpose(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"text\nthe old cat\n")
    os.close(theirs)
    try:
        command = ["predict", str(made / "classifier"), "--input", f"/dev/fd/{ours}"]
        assert main([*command, "--format", "csv", "--precision", "fp32"]) == 0
    finally:
        os.close(ours)
    assert "the old cat" in capsys.readouterr().out


@pytest.mark.takes(2)
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", ",".join(f"c{i}" for i in range(20_000)), "the header has 20,000 columns"),
        ("a.csv", "text,label\n" + "\n" * 100_100, "100,001 lines are blank"),
        ("a.csv", 'text,label\n"a' + "\nb" * 100_100, "a quoted cell goes on for more than"),
        ("a.jsonl", "{" + ",".join(f'"k{i}": 1' for i in range(50_000)) + "}", "no column 'text'"),
        ("a.jsonl", '{"text": "a"}\n' + "\n" * 100_100, "lines are blank"),
        ("a\u202e\x1b[31m.csv", "text\na,b\n", r"a\u202e\x1b[31m.csv"),
    ],
)
def test_tables(
    made: Path, tmp_path: Path, fails: Fails, name: str, content: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    message = fails("predict", made / "classifier", "--input", path, "--output", tmp_path / "out")
    assert said in message
    assert len(message) < 5000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: &a [*a]\n", "has an alias"),
        ("steps: " + "[" * 5000, "nested more than 16 deep"),
        ("steps: 2024-99-99\n", "not valid YAML"),
        ("steps: " + "9" * 5000 + "\n", "config.yaml: "),
        ("steps: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
        ("? [a, b]\n: 1\n", "found unhashable key"),
    ],
)
def test_yaml(made: Path, tmp_path: Path, fails: Fails, text: str, said: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    command = pretrain(made / "store", made / "model", tmp_path / "run")
    assert said in fails(*command, "--config", file)


def test_a_manifest_that_lies(made: Path, tmp_path: Path, fails: Fails) -> None:
    store = Path(shutil.copytree(made / "store", tmp_path / "store"))
    file = store / "manifest.json"
    sound = file.read_text()
    for changes, said in (
        ({"vocab_size": -1}, "vocab_size is -1, but must be a whole number of at least 0"),
        ({"num_tokens": [3]}, "num_tokens is [3]"),
        ({"shards": [{"file": "../x"}]}, "shards[0].record_batches is missing"),
        ({"token_dtype": "object"}, "damaged"),
    ):
        file.write_text(sound)
        changed(file, changes)
        assert said in fails("inspect", store)
    file.write_text(sound)
    (store / "unigram_counts.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': ((((((\n")
    assert "unigram_counts.npy" in fails("inspect", store)


def test_a_model_larger_than_the_memory(made: Path, tmp_path: Path, fails: Fails) -> None:
    config = json.loads((made / "model" / "config.json").read_text())
    file = tmp_path / "config.json"
    sizes = {"hidden_size": 10**6, "intermediate_size": 4 * 10**6, "num_hidden_layers": 100}
    file.write_text(json.dumps({**config, **sizes}))
    message = fails(*pretrain(made / "store", file, tmp_path / "run"))
    assert message.startswith(f"{file}: a model of ")
    assert "of memory, but this process can have" in message


def test_rows_of_a_terminal_and_of_a_file(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal a text cannot move the cursor; in a pipe it is what it was."""
    path = tmp_path / "a.csv"
    path.write_text("text\nthe \x1b[2J\u202ecat\n")
    command = ["predict", str(made / "classifier"), "--input", str(path), "--precision", "fp32"]
    assert main(command) == 0
    assert "the \x1b[2J\u202ecat" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(command) == 0
    assert r"the \x1b[2J\u202ecat" in capsys.readouterr().out


@pytest.mark.slow
def test_cases_of_the_fuzzer(tmp_path: Path) -> None:
    """A hundred; `python -m mistakes.fuzz` runs thousands, of all tasks."""
    home = tmp_path / "sound"
    home.mkdir()
    make_untrained(home)
    (home / "run-text").mkdir()
    toys.write_classifier(home / "run-text" / "model")
    assert np.load(home / "tables" / "vectors.npy").shape == (24, 32)
    for number in range(100):
        case = tmp_path / f"case-{number}"
        command, damaged = prepare_case(7, number, home, case, UNTRAINED)
        bad, said = run_case(command)
        assert bad is None, f"case {number}, {damaged}: {bad}\n{said}"
