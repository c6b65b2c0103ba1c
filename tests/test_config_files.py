"""Configuration files of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertine.cli import COMMANDS, parse_arguments, recipes
from cli_calls import ENOUGH, error_line


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "some.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_a_config_file_gives_every_kind_of_argument(config: Callable[[str], str]) -> None:
    path = config(
        "store: s\nmodel: bert-mini\nout: run\nsteps: 1e3\nbatch-size: 64\n"
        "learning_rate: 1e-3\nbias_correction: false\nresume: true\nwarmup_steps: null\n"
    )
    values = parse_arguments(COMMANDS["pretrain"], ["--config", path])
    assert values["store"] == Path("s")
    assert values["model"] == "bert-mini"
    assert values["steps"] == 1000
    assert values["batch_size"] == 64
    assert values["learning_rate"] == 1e-3
    assert values["bias_correction"] is False
    assert values["resume"] is True
    assert values["warmup_steps"] is None
    assert values["max_seq_length"] == 128
    assert "config" not in values


def test_the_command_line_wins_wherever_config_stands(config: Callable[[str], str]) -> None:
    path = config("corpus: [a, b]\nout: v\nvocab_size: 100\nlowercase: false\n")
    command = COMMANDS["vocab"]
    for arguments in (
        ["--config", path, "c", "--vocab-size", "7", "--lowercase"],
        ["c", "--vocab-size", "7", "--lowercase", "--config", path],
        ["c", "--vocab-size", "7", "--lowercase", f"--config={path}"],
    ):
        values = parse_arguments(command, arguments)
        assert values["corpus"] == [Path("c")]
        assert values["vocab_size"] == 7
        assert values["lowercase"] is True
        assert values["out"] == Path("v")
    assert parse_arguments(command, ["--config", path])["corpus"] == [Path("a"), Path("b")]


def test_a_later_config_file_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("path: a\nseed: 1\n")
    second.write_text("seed: 2\n")
    arguments = ["--config", str(first), "--config", str(second)]
    values = parse_arguments(COMMANDS["inspect"], arguments)
    assert values["path"] == Path("a")
    assert values["seed"] == 2


def test_one_column_or_two(config: Callable[[str], str]) -> None:
    command = COMMANDS["finetune"]
    for text, columns in (("tweet", ["tweet"]), ("[premise, 2]", ["premise", "2"])):
        path = config(f"text_columns: {text}\n")
        values = parse_arguments(command, [*ENOUGH["finetune"], "--config", path])
        assert values["text_columns"] == columns
    values = parse_arguments(command, [*ENOUGH["finetune"], "--text-column", "tweet"])
    assert values["text_columns"] == ["tweet"]


def test_an_empty_config_file_changes_nothing(config: Callable[[str], str]) -> None:
    path = config("# nothing yet\n")
    with_file = parse_arguments(COMMANDS["inspect"], ["s", "--config", path])
    assert with_file == parse_arguments(COMMANDS["inspect"], ["s"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch_sise: 3", "unknown key 'batch_sise' for 'bertine pretrain' (did you mean 'batch_"),
        (
            "colour: red",
            "unknown key 'colour' for 'bertine pretrain'; its keys are the options of --help-all",
        ),
        ("config: other.yaml", "unknown key 'config'"),
        ("batch_size: some", "batch_size: 'some' is not a whole number"),
        ("batch_size: 0", "batch_size: 0 is below 1"),
        ("batch_size: true", "batch_size is True, but must be one number or text"),
        ("batch_size:", "batch_size has no value"),
        ("resume: 1", "resume is 1, but must be true or false"),
        ("precision: fp8", "precision is 'fp8', but must be one of auto, bf16, fp32"),
        ("dropout: 7", "dropout: 7 is not in the range 0 to 1"),
        ("seed: 1\nseed: 2", "line 2: not valid YAML: 'seed' is given twice"),
        ("batch-size: 1\nbatch_size: 2", "given twice, with dashes and underscores"),
        ("- batch_size", "expected lines such as 'batch_size: 32'"),
        ("a: !!python/object/apply:os.getcwd []", "not valid YAML"),
    ],
)
def test_mistakes_in_a_config_file_name_file_and_key(
    text: str,
    said: str,
    config: Callable[[str], str],
    called: list[tuple[str, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = config(text + "\n")
    line = error_line(capsys, "pretrain", *ENOUGH["pretrain"], "--config", path)
    assert said in line
    assert path in line
    assert called == []


def test_what_is_said_another_way_takes_the_place_of_what_a_file_says(
    config: Callable[[str], str],
) -> None:
    """A recipe for a million steps, for twelve hours in place of that."""
    command = COMMANDS["pretrain"]
    enough = ["store", "--model", "bert-base", "--out", "run", "--config", "paper"]

    def said(*more: str) -> tuple[Any, ...]:
        values = parse_arguments(command, [*enough, *more])
        return tuple(values[n] for n in ("steps", "tokens", "hours", "warmup_steps"))

    assert said() == (1_000_000, None, None, 10_000)
    assert said("--hours", "12") == (None, None, 12, 10_000)
    assert said("--tokens=1e9", "--warmup-ratio", "0.05") == (None, 10**9, None, None)
    assert said("--steps", "5", "--hours", "1") == (5, None, 1, 10_000)
    assert said("--config", config("hours: 3\nwarmup_steps: 7\n")) == (None, None, 3, 7)
    values = parse_arguments(command, [*enough, "--warmup-steps", "5"])
    assert (values["warmup_steps"], values["warmup_ratio"]) == (5, 0.01)
    borrowed = ["text", "--model", "m", "--data", "d", "--out", "o", "--warmup-ratio", "0.2"]
    path = config("warmup_steps: 9\n")
    values = parse_arguments(COMMANDS["search"], [*borrowed, "--config", path])
    assert (values["warmup_steps"], values["warmup_ratio"]) == (None, 0.2)


def test_the_papers_recipe_is_a_configuration_by_name() -> None:
    arguments = ["store", "--model", "bert-base", "--out", "run", "--config", "paper"]
    values = parse_arguments(COMMANDS["pretrain"], [*arguments, "--batch-size", "128"])
    assert values["steps"] == 1_000_000
    assert (values["max_seq_length"], values["long_seq_length"]) == (128, 512)
    assert values["mask_split"] == [0.8, 0.1, 0.1]
    assert values["bias_correction"] is False
    assert values["batch_size"] == 128  # the command line wins
    for name in recipes():
        assert parse_arguments(COMMANDS["pretrain"], [*arguments[:-1], name])


def test_an_option_with_a_list_may_be_given_several_times(config: Callable[[str], str]) -> None:
    """None of the names is lost; those of a configuration file are replaced."""
    command = COMMANDS["finetune"]
    given = ["text", "--model", "m", "--data", "d.csv", "--out", "o"]
    once = parse_arguments(command, [*given, "--text-columns", "a", "b"])
    twice = parse_arguments(command, [*given, "--text-column", "a", "--text-columns", "b"])
    assert once["text_columns"] == twice["text_columns"] == ["a", "b"]
    path = config("text_columns: [x, y]\n")
    for arguments in (["--config", path, *given], [*given, "--config", path]):
        assert parse_arguments(command, arguments)["text_columns"] == ["x", "y"]
        both = parse_arguments(command, [*arguments, "--text-column", "a", "--text-column", "b"])
        assert both["text_columns"] == ["a", "b"]


def test_the_command_line_may_have_other_texts_than_a_file(config: Callable[[str], str]) -> None:
    file = config("texts: [one]\n")

    def texts(*more: str) -> Any:
        return parse_arguments(COMMANDS["predict"], ["model", *more, "--config", file])["texts"]

    assert texts() == ["one"]
    assert texts("two") == ["two"]
    assert texts("two", "three") == ["two", "three"]
