"""An option is said once, and everything else comes from there."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import MISSING
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertine.commands.parser import Parser, add_options
from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.names import Masking
from bertine.options.declare import OptionGroup, declare, declared, like
from bertine.options.finetuning import FinetuneOptions
from bertine.options.pretraining import PretrainOptions
from bertine.options.training import Notes
from bertine.options.verbs import takes_options


class Cooking(OptionGroup):
    title = "cooking"

    heat: float = declare(0.5, "how hot; see `minutes`", above=0, most=1, free=True)
    minutes: int | None = declare(
        None, "how long", otherwise="until done", least=1, not_in=("try",)
    )
    covered: bool = declare(True, "put the lid on", more="It saves *time*.")
    masking: Masking = declare("dynamic", "of the smell")


class Slow(Cooking):
    heat: float = like(Cooking, "heat", default=0.1, help="how warm")
    name: str = declare(MISSING, "of the dish")


@takes_options()
def cook(pot: str, *, options: Slow) -> Slow:
    """Cook.

    Args:
        pot: to use.
        options: all others.

    Returns:
        What was said.
    """
    return options


def test_a_verb_takes_them_flat_and_gets_them_whole() -> None:
    found = cook("iron", name="soup", minutes=3)
    assert found == Slow(heat=0.1, minutes=3, covered=True, masking="dynamic", name="soup")
    with pytest.raises(TypeError, match="salt"):
        cook("iron", name="soup", salt=1)
    with pytest.raises(TypeError, match="name"):
        cook("iron")
    with pytest.raises(BertineError, match="minutes must be a whole number or None, not 'a' "):
        cook("iron", name="soup", minutes="a")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"heat": 0.0}, r"heat is 0, but must be in \(0, 1\]"),
        ({"heat": float("nan")}, "heat is nan"),
        ({"minutes": 0}, "minutes is 0, but must be at least 1"),
        ({"masking": "none"}, "masking is 'none', but must be one of dynamic, static"),
    ],
)
def test_ranges_and_names_are_checked(given: dict[str, object], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        cook("iron", name="soup", **given)


class Unbounded(OptionGroup):
    count: int | None = declare(None, "things", least=1)
    scale: float = declare(1.0, "that things are divided by", above=0)
    shift: float = declare(0.0, "that is added")
    sizes: Sequence[int] = declare((), "of things", least=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 10**400}, "count is 10.*, but must be from -1,000,000,000 to 1,000,000,000"),
        ({"count": -(10**400)}, "count is -10"),
        ({"scale": 1e300}, r"scale is 1e\+300, but must be from -1,000,000,000 to"),
        ({"scale": 1e-300}, "scale is 1e-300, but must be at least 1e-09"),
        ({"scale": math.inf}, "scale is inf, but must be above 0 and finite"),
        ({"shift": math.nan}, "shift is nan, but must be finite"),
        ({"shift": -1e300}, "from -1,000,000,000 to 1,000,000,000"),
        ({"sizes": [4, 0]}, "sizes is 0, but must be at least 1"),
        ({"sizes": (4, 10**21)}, "sizes is 1000000000000000000000, but"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with_are_refused(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertineError, match=message) as error:
        Unbounded(**given)
    assert "\n" not in str(error.value)
    assert Unbounded(count=10**9, scale=1e-6, shift=-3.0, sizes=[4, 5]).count == 10**9


def test_a_group_is_taken_whole_or_not_at_all() -> None:
    slow = Slow(name="soup", heat=0.3)
    assert Cooking.of(slow) == Cooking(heat=0.3)
    assert Slow.of(Cooking(heat=0.4), name="stew").heat == 0.4
    with pytest.raises(TypeError, match="Slow needs name"):
        Slow.of(Cooking())


def test_the_command_line_is_made_of_them() -> None:
    parser = Parser("bertine cook", "Cook.")
    add_options(parser, Slow)
    assert parser.parse(["--name", "soup"]) == {
        "heat": 0.1,
        "minutes": None,
        "covered": True,
        "masking": "dynamic",
        "name": "soup",
    }
    said = ["--name", "soup", "--heat", "1", "--minutes", "1e1", "--no-covered"]
    assert parser.parse(said)["minutes"] == 10
    assert parser.parse(said)["covered"] is False
    for wrong, message in (
        (["--heat", "2"], "--heat: 2 is not in the range 0 to 1"),
        (["--minutes", "0"], "--minutes: 0 is below 1"),
        (["--masking", "none"], "--masking: invalid choice: 'none'"),
        ([], "missing: --name"),
    ):
        with pytest.raises(BertineError, match=message):
            parser.parse(wrong if not wrong else ["--name", "x", *wrong])
    text = " ".join(parser.format_help().split())
    assert "--minutes N how long (not given: until done)" in text
    assert "cooking:" in text


def test_a_name_is_declared_alike_wherever_it_stands() -> None:
    """finetune and pretrain have the same option under the same name: kind, range, freedom."""
    tune, train = (
        {each.name: each for each in declared(group)}
        for group in (FinetuneOptions, PretrainOptions)
    )
    for name in tune.keys() & train.keys() - {"batch_size"}:
        one, other = tune[name].option, train[name].option
        assert one[5:11] == other[5:11], name
        assert one.free == other.free, name


def test_options_cost_no_heavy_import() -> None:
    code = (
        "import sys, bertine.options.finetuning, bertine.options.pretraining, bertine.options.verbs"
        "\nprint({'torch', 'numpy', 'yaml', 'argparse'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_quiet_verb_prints_no_notes(capsys: pytest.CaptureFixture[str]) -> None:
    @takes_options()
    def speak(*, options: Notes) -> None:
        """Print a note and a warning."""
        logger.info("a note")
        logger.warning("mind this")

    @takes_options()
    def around(*, options: Notes) -> None:
        """Call another verb."""
        speak(quiet=False)

    @takes_options()
    def read(data: object, *, options: Notes) -> None:
        """Read data, which may have anything."""
        assert not options.quiet

    read(SimpleNamespace(quiet=["a", "column"]))
    for verb, quiet, printed in ((speak, False, 2), (speak, True, 1), (around, True, 1)):
        verb(quiet=quiet)
        assert len(capsys.readouterr().err.splitlines()) == printed


def test_the_callers_generators_go_on_as_if_nothing_was_drawn() -> None:
    @takes_options()
    def draw(*, options: Notes) -> None:
        """Seed PyTorch and draw."""
        torch.manual_seed(7)
        torch.rand(3)

    torch.manual_seed(1)
    expected = torch.rand(2).tolist()
    torch.manual_seed(1)
    draw()
    assert torch.rand(2).tolist() == expected
