"""The command line: help, mistakes, what goes where, exit statuses."""

from __future__ import annotations

import argparse
import inspect
import io
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bertine
from bertine.cli import COMMANDS, main, parse_arguments, with_name_joined
from bertine.commands.parser import Switch, real, whole
from bertine.core.errors import BertineError
from cli_calls import ENOUGH, VERBS, error_line

BERTINE = [sys.executable, "-m", "bertine"]
# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_tells_every_argument(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help-all"]) == 0
    text = capsys.readouterr().out
    for action in COMMANDS[name].parser().options():
        shown = action.option_strings or [str(action.metavar)]
        assert all(option in text for option in shown)
        assert action.help, f"{name} {shown}"


KINDS = [(name, kind) for name, command in COMMANDS.items() for kind in command.kinds]


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "") for name, command in COMMANDS.items() if command.common and not command.kinds]
    + KINDS,
)
def test_short_help_has_the_common_options(
    name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = COMMANDS[name].of_kind(kind)
    known = {option for action in command.parser().options() for option in action.option_strings}
    common = set(command.common.split())
    assert known | {"--config"} >= common or kind  # of a command with kinds: see below
    assert main([name, *([kind] if kind else []), "--help"]) == 0
    text = capsys.readouterr().out
    for option in common & known:
        assert option in text
    for line in command.examples.splitlines():
        assert line in text
        written, *rest = with_name_joined(shlex.split(line)[1:])
        assert written == name
        parse_arguments(command, rest[1:] if kind else rest)
    assert f"more options: bertine {command.name} --help-all" in text
    assert len(text.splitlines()) < 80
    for action in command.parser().options():
        assert not action.required or {*action.option_strings, action.metavar} & set(text.split())


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].kinds])
def test_help_lists_the_kinds(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = COMMANDS[name]
    parsers = {kind: command.of_kind(kind).parser() for kind in command.kinds}
    known = {flag for p in parsers.values() for a in p.options() for flag in a.option_strings}
    assert known | {"--config"} >= set(command.common.split())
    for line in command.examples.splitlines():
        written, *rest = shlex.split(line)[2:]
        parse_arguments(command.of_kind(written), rest)
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    for kind, line in COMMANDS[name].kinds.items():
        assert re.search(rf"^  {kind} +{re.escape(line)}$", text, re.MULTILINE)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_kind_has_its_own_options_alone(name: str, kind: str) -> None:
    """The parser names the kinds that have an option; a configuration file is read like it."""
    parser = COMMANDS[name].of_kind(kind).parser()
    known = {action.dest for action in COMMANDS[name].parser().options()}
    own = {action.dest for action in parser.options()}
    assert own < known
    assert own | {*parser.elsewhere} | {*parser.decided} | parser.left_out >= known
    for option, there in parser.elsewhere.items():
        assert kind not in there.kinds
        with pytest.raises(BertineError, match=rf"for .*{there.kinds[0]}.*, but this is 'bertine"):
            parser.refuse_elsewhere(option)


def test_a_configuration_file_of_all_tasks_fits_that_of_one(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("task: spans\nmodel: m\ndata: d\nout: o\nepochs: 2\n")
    of_all = parse_arguments(COMMANDS["finetune"], ["--config", str(file)])
    assert (of_all["task"], of_all["epochs"]) == ("spans", 2)
    of_one = parse_arguments(COMMANDS["finetune"].of_kind("text"), ["--config", str(file)])
    assert (of_one["task"], of_one["epochs"]) == ("text", 2)
    with pytest.raises(BertineError, match=r"^--doc-stride is for spans and squad, but this is"):
        parse_arguments(COMMANDS["finetune"].of_kind("text"), ["--doc-stride", "3"])
    file.write_text("model: m\ndata: d\nout: o\nthreshold: 0.5\nword_column:\n")  # as they are
    assert "threshold" not in parse_arguments(
        COMMANDS["finetune"].of_kind("text"), ["--config", str(file)]
    )
    file.write_text("doc_stride: 3\n")
    with pytest.raises(
        BertineError, match=r"run\.yaml: doc_stride is for spans and squad, but this"
    ):
        parse_arguments(COMMANDS["finetune"].of_kind("text"), ["--config", str(file)])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_speaks_of_no_option_that_there_is_not(name: str) -> None:
    """Commands borrow arguments of each other, and their help; of another one it may speak by its
    name."""
    parser = COMMANDS[name].parser()
    for action in parser.options():
        own = re.sub(r"'bertine [^']*'", "", action.help or "")
        for option in re.findall(r"(?<!\w)--[a-z][a-z-]*", own):
            assert option in parser._option_string_actions, action.option_strings


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_overview_tells_every_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
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
        elif parameter.name not in given and parameter.default is not inspect.Parameter.empty:
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
    kind = (
        f" {ENOUGH[name][0]}"
        if ENOUGH[name][:1] and ENOUGH[name][0] in COMMANDS[name].kinds
        else ""
    )
    assert captured.err.startswith(f"{name}{kind}: ") == (
        name not in ("demo", "predict", "explain", "generate")
    )


def test_what_differs_from_the_defaults_is_shown_on_stderr(
    called: list[tuple[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["vocab", "my books", "b.txt", "--out", "v", "--vocab-size", "8e3", "--cased"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "corpus=['my books', b.txt] out=v vocab_size=8000 lowercase=false" in shown
    assert called[0][1]["corpus"] == [Path("my books"), Path("b.txt")]
    assert called[0][1]["lowercase"] is False
    assert "max_word" not in shown
    assert "min_frequency" not in shown


def test_embed_reads_what_is_piped_in(
    called: list[tuple[str, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ["embed", "m", "--output", "v.npy"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("a text\n"))
    assert main(arguments) == 0
    assert called[0][1]["input"] == "-"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    capsys.readouterr()
    assert "nothing to embed; give --input FILE" in error_line(capsys, *arguments)


def test_predict_takes_the_names_of_squads_tools() -> None:
    def values(*options: str) -> dict[str, Any]:
        return parse_arguments(COMMANDS["predict"], ["m", *options])

    usual = values("--input", "d.json", "--output", "o.json")
    assert usual["all_probabilities"] is False
    assert values("--data", "d.json", "--out", "o.json") == usual
    best = {**usual, "all_probabilities": True}
    for option in ("--nbest", "--all-probabilities"):
        assert values("--data", "d.json", "--out", "o.json", option) == best


def test_what_follows_a_list_of_numbers_is_read() -> None:
    """Of other lists nobody can tell where they end: the line says what to do."""
    parse = COMMANDS["distill"].parser().parse
    first = ["store", "--teacher", "t", "--layers", "0", "2", "4", "--out", "o"]
    for words in (
        ["--teacher", "t", "--layers", "0", "2", "4", "store", "--out", "o"],
        ["--out", "o", "--teacher", "t", "--layers", "0", "2", "4", "store"],
    ):
        assert parse(words) == parse(first)
    with pytest.raises(BertineError, match="layers: 'x' is not a whole number"):
        parse([*first[:3], "--layers", "0", "x", "--out", "o"])
    with pytest.raises(BertineError, match=r"layers: '1\.5' is not a whole number"):
        parse(["--layers", "0", "1.5", "--out", "o"])
    parse = COMMANDS["check-labels"].parser().parse
    with pytest.raises(BertineError, match=r"missing: DATA; .*\(is it 'd'\? --text-column takes"):
        parse(["--model", "m", "--out", "o", "--text-column", "a", "b", "d"])
    with pytest.raises(BertineError, match=r"^missing: --out; see 'bertine check-labels --help'$"):
        parse(["d", "--model", "m", "--text-column", "a", "b"])


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


# Mistakes


@pytest.mark.parametrize("text", ["", "x", "-0.1", "1.01", "nan", "inf"])
def test_not_a_share(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        real(0, 1)(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pretrian"], "unknown command 'pretrian' (did you mean 'pretrain'?)"),
        (["--vers"], "unknown option '--vers' (did you mean '--version'?)"),
        (["vocab"], "missing: CORPUS, --out; see 'bertine vocab --help'"),
        (["vocab", "a", "--ot", "v"], "unknown option '--ot' (did you mean '--out'?)"),
        (["vocab", "a", "--out", "v", "--vocab_size", "9"], "(did you mean '--vocab-size'?)"),
        (["vocab", "a", "--out"], "--out: expected one argument"),
        (["vocab", "a", "--out", "v", "--vocab-size", "many"], "'many' is not a whole number"),
        (["vocab", "a", "--out", "v", "--vocab-size", "0"], "--vocab-size: 0 is below 1"),
        (["vocab", "a", "--out", "v", "--vocab", "9"], "unknown option '--vocab'"),
        (["inspect", "a", "b"], "unexpected argument 'b'"),
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


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*BERTINE, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.slow
def test_the_backend_of_a_notebook_does_not_matter(tmp_path: Path) -> None:
    """A notebook tells the programs it starts to plot with a package that they may not have."""
    (tmp_path / "run.json").write_text('{"settings": {}, "environment": {}}')
    environment = {**os.environ, "MPLBACKEND": "module://of_a_notebook"}
    done = subprocess.run(
        [sys.executable, "-m", "bertine", "report", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").is_file()
