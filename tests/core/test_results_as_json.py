"""Results as JSON: what is written follows from the fields of a class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bertine.core.console import ReportOf
from bertine.core.strict_json import Jsonable, Readable
from core.test_shown import all_results


@dataclass(frozen=True)
class Part(Jsonable):
    name: str
    share: float
    texts: tuple[str, ...] = ()

    json_keys = ("name", "part=share", "texts?")
    json_digits = 2


@dataclass(repr=False)
class Whole(ReportOf[Part]):
    parts: list[Part]
    metrics: Mapping[str, float]
    out: Path = Path("run")
    best: Part | None = None
    _hidden: int = 0

    holds = "parts"

    def lines(self) -> list[str]:
        return [f"{len(self)} parts", *(part.name for part in self)]

    def count(self) -> int:
        return len(self)


@dataclass
class Read(Readable):
    name: str
    size: int | None
    score: float
    shares: dict[str, float] = field(default_factory=dict)
    sure: bool = True
    parts: tuple[tuple[str, ...], ...] = ()


WHOLE = Whole([Part("a", 0.12345, ("x",)), Part("b", 1.0)], {"f1": 0.5}, best=Part("c", 0.0))


def test_a_report_is_a_sequence_and_prints_itself() -> None:
    assert [part.name for part in WHOLE] == ["a", "b"]
    assert (len(WHOLE), WHOLE[1]) == (2, Part("b", 1.0))
    assert str(WHOLE) == "2 parts\na\nb"


def test_what_is_written_is_read_again() -> None:
    one = Read("a", None, 1.0, {"f1": 0.5}, sure=False, parts=(("x",), ()))
    assert Read.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert Read.from_dict({"name": "a", "size": 3, "score": 2, "new key": 1}) == Read("a", 3, 2.0)
    assert type(Read.from_dict({"name": "a", "size": 3, "score": 2}).score) is float


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "much"}, "score is 'much', but must be a number"),
        ({"size": True}, "size is True, but must be a whole number"),
        ({"name": None}, "name is None, but must be a text"),
        ({"shares": {"a": []}}, r"shares.a is \[\], but must be a number"),
        ({"sure": 1}, "sure is 1, but must be true or false"),
        ({"parts": [["a"], "b"]}, r"parts\[1\] is 'b', but must be a list"),
    ],
)
def test_another_type_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}$"):
        Read.from_dict({"name": "a", "size": None, "score": 0.5, **change})
    with pytest.raises(ValueError, match=r"^score is missing$"):
        Read.from_dict({"name": "a", "size": None})


def test_declarations_name_attributes() -> None:
    for kind in all_results(Jsonable):
        known = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
        names = {entry.rpartition("=")[2].strip("*?").partition(".")[0] for entry in kind.json_keys}
        assert names <= known, kind
