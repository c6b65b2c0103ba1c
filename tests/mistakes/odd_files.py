"""Make thousands of inputs that are readable but odd, read them, and report what is silently wrong.

    PYTHONPATH=src:tests python -m mistakes.odd_files --cases 5000 --seed 0

What `fuzz.py` damages is wrong for certain; what is made here has a meaning, written as people
and other programs write it. Every case has a clean twin (UTF-8 csv with plain labels, words with
IOB2 tags, the `config.json` of today), and is read through the functions that the verbs use. It
ends well where it gives the same as its twin, is refused in an error of ours, or gives something
else and says so. Every case is a function of the seed and its number: `--only 123` shows one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bertine.core.errors import BertineError

#: How a case can end, the bad ways last.
OUTCOMES = ("same", "refused", "said", "SILENT", "TRACEBACK")
BAD = frozenset(OUTCOMES[3:])
#: What notes speak of that changes nothing of the content: no excuse for a difference.
_BESIDE_THE_POINT = (
    *("blank line", "one training example each", "training examples:", "labels are uneven"),
    *("of their training examples", "repeats the text", "repeat the text"),
)


@dataclass
class Answer:
    """What a reading gives: its content, to be compared, and the notes that a user would see."""

    content: Any
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """An odd input.

    Attributes:
        choices: what was drawn, by name; the first is what the case is counted under.
        read: reads the odd form. It may refuse it.
        clean: the content that the clean form gives.
        alike: tells whether a content is that of the clean form.
    """

    choices: Mapping[str, str]
    read: Callable[[], Answer]
    clean: Any
    alike: Callable[[Any, Any], bool] = lambda odd, clean: bool(odd == clean)


@dataclass(frozen=True)
class Result:
    """The end of a case: one of :data:`OUTCOMES`, and what there is to see of it."""

    outcome: str
    shown: str


#: Draws a case, whose files are written into a folder.
Draw = Callable[[Random, Path], Case]


def run(case: Case) -> Result:
    """Read an odd input and compare."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            answer = case.read()
    except BertineError as error:
        return Result("refused", str(error))
    except Exception as error:  # whatever it is, a user would see a traceback
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Result("TRACEBACK", f"{type(error).__name__} at {where}: {error}")
    if case.alike(answer.content, case.clean):
        return Result("same", "")
    notes = [*answer.notes, *printed.getvalue().splitlines()]
    notes = [note for note in notes if not any(part in note for part in _BESIDE_THE_POINT)]
    if notes:
        return Result("said", "; ".join(notes))
    return Result("SILENT", _difference(answer.content, case.clean))


def _difference(odd: Any, clean: Any) -> str:
    """Write the first place where two contents differ."""
    if isinstance(odd, list) and isinstance(clean, list):
        if len(odd) != len(clean):
            return f"{len(odd)} instead of {len(clean)}: {odd[:2]!r:.150} … {odd[-1:]!r:.100}"
        at = next(
            (
                at
                for at, pair in enumerate(zip(odd, clean, strict=True))
                if len({*map(repr, pair)}) > 1
            ),
            0,
        )
        return f"[{at}] {odd[at]!r:.150} instead of {clean[at]!r:.150}"
    return f"{odd!r:.300} instead of {clean!r:.300}"


def dimensions() -> Mapping[str, tuple[int, Draw]]:
    """Return what draws the cases of each dimension, and its share of a hundred."""
    from mistakes.odd import configs, labels, tables, tags, tokenizers

    return {
        "tables": (36, tables.draw),
        "labels": (24, labels.draw),
        "tags": (20, tags.draw),
        "configs": (12, configs.draw),
        "tokenizers": (8, tokenizers.draw),
    }


def make(seed: int, number: int, folder: Path, only: str | None = None) -> tuple[str, Case]:
    """Make a case, and say of which dimension it is; `only` of one of them."""
    draw = Random(f"{seed}-{number}")
    shares = dimensions()
    name = only or draw.choices([*shares], [share for share, _ in shares.values()])[0]
    folder.mkdir(parents=True, exist_ok=True)
    return name, shares[name][1](draw, folder)


@dataclass
class Tally:
    """Counts of what was run."""

    #: (dimension, what it is counted under, outcome) → cases.
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    #: Cases that ended badly, by number.
    bad: dict[int, tuple[Mapping[str, str], Result]] = field(default_factory=dict)

    def lines(self, fine: bool = False) -> list[str]:
        """Return a table of the counts; `fine`: of every kind within a dimension as well."""
        kinds = sorted({(d, k) for d, k, _ in self.counts}) if fine else []
        rows: list[tuple[str, str | None]] = []
        for dimension in dict.fromkeys(d for d, _, _ in sorted(self.counts)):
            rows.append((dimension, None))
            rows += [(d, k) for d, k in kinds if d == dimension]
        head = f"{'':44}" + "".join(f"{name:>11}" for name in OUTCOMES)
        lines = [head]
        for dimension, kind in rows:
            numbers = [
                sum(
                    n
                    for (d, k, o), n in self.counts.items()
                    if d == dimension and kind in (None, k) and o == outcome
                )
                for outcome in OUTCOMES
            ]
            name = dimension if kind is None else f"  {kind}"
            lines.append(f"{name[:44]:44}" + "".join(f"{n or '·':>11}" for n in numbers))
        total = [sum(n for (_, _, o), n in self.counts.items() if o == out) for out in OUTCOMES]
        return [*lines, f"{'all':44}" + "".join(f"{n:>11}" for n in total)]


def run_cases(
    seed: int, numbers: range, folder: Path, only: str | None = None, show: int = 0
) -> Tally:
    """Run cases, each in a folder of its own; print the first `show` bad ones of a kind."""
    tally = Tally()
    shown: Counter[str] = Counter()
    for number in numbers:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            dimension, case = make(seed, number, Path(scratch), only)
            result = run(case)
        kind = next(iter(case.choices.values()))
        tally.counts[dimension, kind, result.outcome] += 1
        if result.outcome in BAD:
            tally.bad[number] = case.choices, result
            shown[kind] += 1
            if shown[kind] <= show:
                print(
                    f"case {number} ({dimension}): {dict(case.choices)}\n  {result.outcome}: "
                    f"{result.shown[:500]}",
                    flush=True,
                )
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dimension", choices=[*dimensions()], help="of this one alone")
    parser.add_argument("--show", type=int, default=2, help="cases that are printed of each kind")
    parser.add_argument("--only", type=int, help="run this case alone and say what became of it")
    parser.add_argument("--keep", type=Path, help="with --only: leave its files in this folder")
    options = parser.parse_args()
    if options.only is not None:
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.keep or Path(scratch)
            dimension, case = make(options.seed, options.only, folder, options.dimension)
            result = run(case)
            print(f"{dimension}: {dict(case.choices)}\n{result.outcome}: {result.shown}")
        return 1 if result.outcome in BAD else 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        numbers = range(options.first, options.cases)
        tally = run_cases(options.seed, numbers, Path(scratch), options.dimension, options.show)
    print("\n".join(tally.lines(fine=True)))
    print(f"{len(numbers)} cases (seed {options.seed}) in {time.monotonic() - began:.0f} s")
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())
