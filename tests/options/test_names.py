"""Messages name an option as the user writes it: `--resume` in a shell, `resume=True` in Python."""

from __future__ import annotations

import ast
import inspect
import os
import re
from pathlib import Path

import pytest

import bertine
import toys
from bertine.cli import COMMANDS, main
from bertine.core.errors import BertineError
from bertine.core.names import on_the_command_line, option, shell_option, text_option
from bertine.tasks.spans import SpanExtraction


def test_an_option_is_named_as_the_user_writes_it() -> None:
    before = dict(os.environ)
    calls = [("resume", True), ("quotes", False), ("precision", "fp32"), ("workers", 0)]
    python = [option(*call) for call in calls]
    assert python == ["resume=True", "quotes=False", "precision='fp32'", "workers=0"]
    assert option("held_out") == "held_out"
    with on_the_command_line():
        shell = [option(*call) for call in calls]
        assert shell == ["--resume", "--no-quotes", "--precision fp32", "--workers 0"]
        assert option("held_out") == "--held-out"
    assert dict(os.environ) == before


def test_the_columns_of_the_texts_are_named_by_how_many_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the guides write them: `--text-column review`, `--text-columns question answer`."""
    assert text_option() == text_option(2) == "text_columns"
    with on_the_command_line():
        assert (text_option(), text_option(2)) == ("--text-column", "--text-columns")
    assert shell_option("text_columns", ["a"]) == shell_option("text_columns", "a")
    assert shell_option("text_columns", "a") == "--text-column"
    assert shell_option("text_columns", ("a", "b")) == "--text-columns"
    assert shell_option("choice_columns", ["a"]) == "--choice-columns"
    data = tmp_path / "my.csv"
    data.write_text("words,kind\na,b\n", encoding="utf-8")
    model = toys.write_model(tmp_path / "model")
    given = ["finetune", "text", "--model", str(model), "--data", str(data), "--out", "o"]
    assert main(given) == 2
    assert "holds the text; name it with --text-column; the col" in capsys.readouterr().err
    assert main([*given, "--text-columns", "words", "kind", "--label-column", "kind"]) == 2
    assert "name another one (--text-columns, --label-column)" in capsys.readouterr().err
    assert "[--text-column NAME [NAME ...]]" in COMMANDS["finetune"].of_kind("text").help(
        everything=False
    )


def test_a_message_from_python_and_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    given = {"model": "no-model", "data": "no.csv", "out": str(tmp_path)}
    with pytest.raises(BertineError, match="add resume=True to go on with it"):
        bertine.finetune("text", **given)  # type: ignore[arg-type]
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    assert main(["finetune", "text", *words]) == 2
    assert "add --resume to go on with it" in capsys.readouterr().err


def test_every_option_that_a_message_names_is_one() -> None:
    source = Path(bertine.__file__).parent
    named = {
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"\{option\('(\w+)'", file.read_text(encoding="utf-8"))
    }
    verbs = [
        getattr(bertine, name) for name in set(bertine.__all__) - {"__version__", "BertineError"}
    ]
    assert named <= {name for verb in verbs for name in inspect.signature(verb).parameters}
    assert "resume" in named


#: What belongs to the command line alone, and what writes whole commands, for shells.
_COMMAND_LINE = (
    *("commands/", "contrib/commands.py", "cli.py", "config_file.py", "launch.py", "reports/"),
    *("contrib/demo/result.py", "training/lr_find.py", "training/finetuning/learner.py"),
    "contrib/static_vectors/distill.py",
)


@pytest.mark.slow
def test_messages_name_options_as_they_are_written_where_they_are_read() -> None:
    """No text names an option of the shell without the parameter of Python, unless it is a whole
    command."""
    source = Path(bertine.__file__).parent
    known = {
        text
        for command in COMMANDS.values()
        for action in command.parser().options()
        for text in action.option_strings
        if text.startswith("--")
    }
    wrong = []
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(source).as_posix()
        if name.startswith(_COMMAND_LINE) or name == "core/names.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        documents = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if id(node) in documents or "bertine " in node.value:
                continue
            if node.value == SpanExtraction.example:  # a part of a command
                continue
            for flag in known & set(re.findall(r"--[a-z][a-z-]+", node.value)):
                parameter = flag[2:].replace("-", "_").removeprefix("no_")
                if not re.search(rf"\b{parameter}\b", node.value.replace(flag, "")):
                    wrong.append(f"{name}:{node.lineno}: {flag}")
    assert not wrong, "\n".join(wrong)
