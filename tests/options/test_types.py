"""A wrong type given from Python ends in one line that names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest

import bertine
from bertine.core.errors import BertineError
from bertine.options.verbs import check_types, resolved_signature

VERBS = sorted(name for name in bertine.__all__ if inspect.isfunction(getattr(bertine, name, None)))
#: Take objects of Python in place of files and numbers, and are no command.
UNCHECKED = {"load_model", "save_model", "preset", "paper_tables"}


@check_types
def plant(
    path: Path | str,
    *,
    rate: float | None = None,
    rows: int = 1,
    deep: bool = False,
    kind: Literal["tree", "bush"] = "tree",
    seeds: Sequence[int] | int | None = None,
    columns: Sequence[str] | str | None = None,
    **others: Any,
) -> str:
    return "planted"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": "5e-5"}, "rate must be a number or None, not '5e-5' (a str); give it without"),
        ({"rate": True}, "rate must be a number or None, not True"),
        ({"rows": 2.0}, "rows must be a whole number, not 2.0 (a float); give 2"),
        ({"rows": None}, "rows must be a whole number, not None"),
        ({"deep": "yes"}, "deep must be True or False, not 'yes'"),
        ({"kind": 3}, "kind must be 'tree' or 'bush', not 3"),
        ({"seeds": [1, "2"]}, "seeds must be a list of whole numbers, a whole number or None"),
        ({"columns": [0]}, "columns must be a list of texts, a text or None, not [0]"),
        ({"path": 7}, "path must be a path, not 7"),
        ({"path": b"garden"}, "path must be a path, not b'garden'"),
    ],
)
def test_a_wrong_type_is_one_line_with_the_arguments_name(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertineError) as caught:
        plant(**{"path": "garden", **arguments})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"rate": 1},
        {"rate": np.float32(0.5)},
        {"rows": np.int64(3)},
        {"deep": np.True_},
        {"kind": "palm"},  # which names there are is the function's to say
        {"seeds": range(3)},
        {"seeds": np.arange(3)},
        {"columns": ("a", "b")},
        {"path": Path("garden")},
        {"wind": object()},
    ],
)
def test_what_stands_for_a_type_is_taken(arguments: dict[str, Any]) -> None:
    assert plant(**{"path": "garden", **arguments}) == "planted"


def test_an_argument_that_is_not_there_is_pythons_own_error() -> None:
    @check_types
    def water(rows: int) -> None: ...

    with pytest.raises(TypeError, match=r"water\(\) got an unexpected keyword argument 'row'"):
        water(row=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^embed\(\) got an unexpected keyword argument 'imput'"):
        bertine.embed("model", input="a.csv", output="b.npy", imput="c")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^embed\(\) missing a required argument: 'input'"):
        bertine.embed("model")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", sorted(set(VERBS) - UNCHECKED))
def test_every_verb_checks_each_argument_that_has_a_simple_type(name: str) -> None:
    """With something that is none of the types, where the others have their defaults."""
    verb: Callable[..., Any] = getattr(bertine, name)
    parameters = resolved_signature(verb).parameters
    needed = {
        each.name: "none" if "str" in str(each.annotation) or "Literal" in str(each.annotation)
        else 1
        for each in parameters.values()
        if each.default is each.empty
    }  # fmt: skip
    checked = [
        each.name
        for each in parameters.values()
        if Any not in (each.annotation, *get_args(each.annotation))  # tables in memory
    ]
    assert {*needed, "model", "device", "out", "path"} & {*checked}
    for argument in checked:
        with pytest.raises(BertineError, match=f"^{argument} must be "):
            verb(**{**needed, argument: object()})


@pytest.mark.parametrize("kind", [bertine.Predictor, bertine.Embedder])
def test_loading_checks_types(kind: Any) -> None:
    with pytest.raises(BertineError, match=r"^model_dir must be a path, not 3"):
        kind.load(3)
    with pytest.raises(BertineError, match=r"^threads must be a whole number or None, not '2'"):
        kind.load("model", threads="2")


@pytest.mark.parametrize("verb", [bertine.search, bertine.lr_find])
def test_arguments_taken_over_from_finetune_are_checked(verb: Callable[..., Any]) -> None:
    with pytest.raises(BertineError, match=r"^weight_decay must be a number, not '1e-2'"):
        verb("text", model="m", data="d.csv", out="o", weight_decay="1e-2")
