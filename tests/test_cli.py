"""The command line: help, mistakes, configuration files, what goes where, exit statuses."""

from __future__ import annotations

import argparse
import inspect
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertine
from bertine.cli import main, parse_arguments
from bertine.commands import COMMANDS
from bertine.commands.arguments import Switch, real, whole
from bertine.commands.finetune import TASK_NAMES
from bertine.commands.pretrain import OBJECTIVE_NAMES
from bertine.config_file import recipes
from bertine.errors import BertineError
from bertine.objectives import OBJECTIVES
from bertine.tasks import DATA_SETS, TASKS

BERTINE = [sys.executable, "-m", "bertine"]
#: The least that each command wants to hear.
ENOUGH = {
    "demo": [],
    "vocab": ["a.txt", "--out", "v"],
    "prepare": ["a.txt", "--tokenizer", "v", "--out", "s"],
    "inspect": ["s"],
    "pretrain": ["s", "--model", "bert-tiny", "--out", "r"],
    "finetune": ["text", "--model", "m", "--data", "d", "--out", "o"],
    "search": ["text", "--model", "m", "--data", "d", "--out", "o"],
    "lr-find": ["text", "--model", "m", "--data", "d", "--out", "o"],
    "report": ["r"],
    "evaluate": ["m", "--data", "d"],
    "predict": ["m", "--input", "-"],
    "fill-mask": ["m", "a [MASK]"],
    "embed": ["m", "--input", "-", "--output", "v.npy"],
    "similar": ["a query", "--in", "t.txt", "--model", "m"],
    "export": ["m", "--output", "o"],
    "serve": ["m"],
    "glue-submission": ["m", "--data", "d", "--out", "s.zip"],
    "feature-based": ["m", "--data", "d", "--out", "o"],
}


#: The function that each command stands for, as `bertine` exposes it.
VERBS = {
    "demo": "run_demo",
    "vocab": "train_vocab",
    "prepare": "prepare",
    "inspect": "inspect",
    "pretrain": "pretrain",
    "finetune": "finetune",
    "search": "search",
    "lr-find": "lr_find",
    "report": "report",
    "evaluate": "evaluate",
    "predict": "predict",
    "fill-mask": "fill_mask",
    "embed": "embed",
    "similar": "similar",
    "export": "export",
    "serve": "serve",
    "glue-submission": "glue_submission",
    "feature-based": "feature_based",
}


class Report:
    """A result as the verbs return them."""

    ok = True

    def lines(self) -> list[str]:
        return ["first result", "second result"]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Put a recorder in the place of every verb."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def recorder(verb: str) -> Callable[..., Report]:
        def record(**values: Any) -> Report:
            calls.append((verb, values))
            return Report()

        return record

    for verb in VERBS.values():
        monkeypatch.setitem(vars(bertine), verb, recorder(verb))
    return calls


def error_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that `arguments` end with; exit status 2 and an empty stdout are checked."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[-1].startswith("bertine: error: ")
    assert sum("error" in line for line in lines) == 1
    return lines[-1]


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_tells_every_argument(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    for action in COMMANDS[name].parser().options():
        shown = action.option_strings or [str(action.metavar)]
        assert all(option in text for option in shown)
        assert action.help, f"{name} {shown}"


def test_overview_tells_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in COMMANDS.values():
        assert f"  {command.name} " in text
        assert command.summary in text


@pytest.mark.parametrize("arguments", [["--help"], ["pretrain", "--help"], ["demo", "--help"]])
def test_help_takes_well_under_a_second(arguments: list[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*BERTINE, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time, not the clock's: other work on the machine is not the command's fault.
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 0.5


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("bertine 0.")


# Arguments and functions


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_are_those_of_the_function(name: str) -> None:
    command = COMMANDS[name]
    parameters = inspect.signature(getattr(bertine, VERBS[name])).parameters
    values = parse_arguments(command, ENOUGH[name])
    given = {a.dest for a in command.parser().options() if a.required or not a.option_strings}
    assert set(values) <= set(parameters)
    for parameter in parameters.values():
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD
        if parameter.name not in values:
            assert parameter.default is not inspect.Parameter.empty, parameter.name
        elif parameter.name not in given:
            default = parameter.default
            shown = str(default) if isinstance(values[parameter.name], Path) else default
            expected = values[parameter.name]
            expected = str(expected) if isinstance(expected, Path) else expected
            assert shown == expected, parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_least_arguments_are_enough(
    name: str, called: list[tuple[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, *ENOUGH[name]]) == 0
    assert [call[0] for call in called] == [VERBS[name]]
    captured = capsys.readouterr()
    # What predict answers is its result, and it writes that itself; what it did is a note.
    results = captured.err if name == "predict" else captured.out
    assert results.endswith("first result\nsecond result\n")
    assert captured.err.startswith(f"{name}: ")


def test_what_was_resolved_is_shown_on_stderr(
    called: list[tuple[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["vocab", "my books", "b.txt", "--out", "v", "--vocab-size", "8e3", "--cased"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "corpus=['my books', b.txt] out=v vocab_size=8000 lowercase=false" in shown
    assert called[0][1]["corpus"] == [Path("my books"), Path("b.txt")]
    assert called[0][1]["lowercase"] is False


def test_every_task_can_be_asked_for() -> None:
    assert set(TASK_NAMES) == {*TASKS, *DATA_SETS}
    assert list(OBJECTIVE_NAMES) == list(OBJECTIVES)


def test_predict_takes_the_names_of_squads_tools() -> None:
    def values(*options: str) -> dict[str, Any]:
        return parse_arguments(COMMANDS["predict"], ["m", *options])

    usual = values("--input", "d.json", "--output", "o.json")
    assert usual["all_probabilities"] is False
    assert values("--data", "d.json", "--out", "o.json") == usual
    best = {**usual, "all_probabilities": True}
    for option in ("--nbest", "--all-probabilities"):
        assert values("--data", "d.json", "--out", "o.json", option) == best


def test_switches_and_their_opposites() -> None:
    def bias_correction(*options: str) -> bool:
        values = parse_arguments(COMMANDS["pretrain"], [*ENOUGH["pretrain"], *options])
        return bool(values["bias_correction"])

    assert bias_correction()
    assert bias_correction("--bias-correction")
    assert not bias_correction("--no-bias-correction")
    assert bias_correction("--no-bias-correction", "--bias-correction")


def test_no_switch_is_on_unless_it_can_be_put_off() -> None:
    for command in COMMANDS.values():
        for action in command.parser().options():
            if isinstance(action, Switch) and action.default:
                assert len(action.option_strings) > 1, action.option_strings


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("1_000", 1000), ("1e6", 10**6), ("2.0", 2)]
)
def test_whole_numbers(text: str, number: int) -> None:
    assert whole(1)(text) == number


@pytest.mark.parametrize("text", ["", "x", "1.5", "0", "-3", "nan", "inf", "1e-4"])
def test_not_whole_numbers_from_one_on(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        whole(1)(text)


@pytest.mark.parametrize("text", ["", "x", "-0.1", "1.01", "nan", "inf"])
def test_not_a_share(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        real(0, 1)(text)


def test_reals_may_be_large_but_not_infinite() -> None:
    assert real()("1e9") == 1e9
    with pytest.raises(argparse.ArgumentTypeError):
        real()("inf")


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no command given"),
        (["pretrian"], "unknown command 'pretrian' (did you mean 'pretrain'?)"),
        (["--vers"], "unknown option '--vers' (did you mean '--version'?)"),
        (["vocab"], "missing: CORPUS, --out; see 'bertine vocab --help'"),
        (["vocab", "a", "--ot", "v"], "unknown option '--ot' (did you mean '--out'?)"),
        (["vocab", "a", "--out", "v", "--vocab_size", "9"], "(did you mean '--vocab-size'?)"),
        (["vocab", "a", "--out", "v", "--vocab-sise=9"], "(did you mean '--vocab-size'?)"),
        (["vocab", "a", "--out"], "--out: expected one argument"),
        (["vocab", "a", "--out", "v", "-q"], "unknown option '-q'"),
        (["vocab", "a", "--out", "v", "--vocab-size", "many"], "'many' is not a whole number"),
        (["vocab", "a", "--out", "v", "--vocab-size", "0"], "--vocab-size: 0 is below 1"),
        (["vocab", "a", "--out", "v", "--vocab", "9"], "unknown option '--vocab'"),
        (["inspect", "a", "b"], "unexpected argument 'b'"),
        (["pretrain", *ENOUGH["pretrain"], "--dropout", "2"], "2 is not in the range 0 to 1"),
        (["pretrain", *ENOUGH["pretrain"], "--precision", "fp8"], "'fp8'"),
        (["finetune", "chess"], "'chess'"),
        (["demo", "--config", "nowhere.yaml"], "nowhere.yaml: No such file"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str],
    said: str,
    called: list[tuple[str, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said in error_line(capsys, *arguments)
    assert called == []


def raise_in_inspect(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(**values: Any) -> None:
        raise error

    monkeypatch.setitem(vars(bertine), "inspect", fail)


def test_a_mistake_found_later_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_in_inspect(monkeypatch, BertineError("data.csv, row 3:\n no label"))
    line = error_line(capsys, "inspect", "s")
    assert line == "bertine: error: data.csv, row 3: no label"


def test_interruption_is_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raise_in_inspect(monkeypatch, KeyboardInterrupt())
    assert main(["inspect", "s"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "bertine: interrupted"


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_inspect(monkeypatch, ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(["inspect", "s"])


def test_missing_folder_from_the_shell() -> None:
    done = subprocess.run(
        [*BERTINE, "inspect", "no-such-folder"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == "bertine: error: no-such-folder: no such folder"
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*BERTINE, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


# Configuration files


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
        ("colour: red", "unknown key 'colour' for 'bertine pretrain'; the keys are store, model"),
        ("config: other.yaml", "unknown key 'config'"),
        ("batch_size: some", "batch_size: 'some' is not a whole number"),
        ("batch_size: 0", "batch_size: 0 is below 1"),
        ("batch_size: true", "batch_size is True, but must be one number or text"),
        ("batch_size: [1, 2]", "batch_size is [1, 2], but must be one number or text"),
        ("batch_size:", "batch_size has no value"),
        ("resume: 1", "resume is 1, but must be true or false"),
        ("precision: fp8", "precision is 'fp8', but must be one of auto, bf16, fp32"),
        ("dropout: 7", "dropout: 7 is not in the range 0 to 1"),
        ("seed: 1\nseed: 2", "line 2: not valid YAML: 'seed' is given twice"),
        ("batch-size: 1\nbatch_size: 2", "given twice, with dashes and underscores"),
        ("- batch_size", "expected lines such as 'batch_size: 32'"),
        ("just text", "expected lines such as 'batch_size: 32'"),
        ("a: [1", "not valid YAML"),
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


def test_a_config_file_that_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.yaml"
    path.write_bytes(b"\xff\xff\xfe\x81")
    line = error_line(capsys, "inspect", "s", "--config", str(path))
    assert "not valid YAML" in line


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
