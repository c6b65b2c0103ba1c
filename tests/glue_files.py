"""Tiny files in GLUE's official layouts, of toy sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import toys

TOPICS = list(toys.TOPICS)


def _pair(number: int) -> tuple[str, str, bool]:
    """Two sentences, and whether they are about the same topic."""
    same = number % 2 == 0
    first = TOPICS[number % len(TOPICS)]
    second = first if same else TOPICS[(number + 3) % len(TOPICS)]
    # Quotes are characters, unescaped and uneven.
    return f'"{toys.sentence(first, "old")}', toys.sentence(second, "warm"), same


def _entailed(same: bool) -> str:
    return "entailment" if same else "not_entailment"


def _three(number: int) -> str:
    return ("neutral", "entailment", "contradiction")[number % 3]


def _cola(n: int) -> str:
    return f"gj04\t{n % 2}\t{'' if n % 2 else '*'}\t{_pair(n)[0]}"


def _sst(n: int) -> str:
    return f"{_pair(n)[0]} \t{n % 2}"


def _mrpc(n: int) -> str:
    a, b, same = _pair(n)
    return f"{int(same)}\t{n}\t{n + 1}\t{a}\t{b}"


def _stsb(n: int) -> str:
    a, b, same = _pair(n)
    score = 4 + n % 5 / 5 if same else n % 5 / 5
    return f"{n}\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\t{a}\t{b}\t{score:.3f}"


def _qqp(n: int) -> str:
    a, b, same = _pair(n)
    return f"{n}\t{n}\t{n + 1}\t{a}\t{b}\t{int(same)}"


def _mnli(n: int, labels: int) -> str:
    a, b, _ = _pair(n)
    given = "\t".join([_three(n)] * (labels + 1))
    return f"{n}\t{n}\t{n}n\tfiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\t{a}\t{b}\t{given}"


def _nli(n: int) -> str:
    a, b, same = _pair(n)
    return f"{n}\t{a}\t{b}\t{_entailed(same)}"


def _wnli(n: int) -> str:
    a, b, same = _pair(n)
    return f"{n}\t{a}\t{b}\t{int(same)}"


def _test_of(columns: int) -> Callable[[int], str]:
    """Rows of a test file: an index, `columns` cells, the text or texts."""

    def row(n: int) -> str:
        a, b, _ = _pair(n)
        return "\t".join([str(n), *["x"] * columns, a, b])

    return row


_PARSES = "sentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
_MNLI = f"index\tpromptID\tpairID\tgenre\t{_PARSES}\tsentence1\tsentence2"
_STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"

Row = Callable[[int], str]
#: For each task: file → (header, row).
LAYOUTS: dict[str, dict[str, tuple[str, Row]]] = {
    "CoLA": {
        "train.tsv": ("", _cola),
        "dev.tsv": ("", _cola),
        "test.tsv": ("index\tsentence", lambda n: f"{n}\t{_pair(n)[0]}"),
    },
    "SST-2": {
        "train.tsv": ("sentence\tlabel", _sst),
        "dev.tsv": ("sentence\tlabel", _sst),
        "test.tsv": ("index\tsentence", lambda n: f"{n}\t{_pair(n)[0]}"),
    },
    "MRPC": {
        "train.tsv": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", _mrpc),
        "dev.tsv": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", _mrpc),
        "test.tsv": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", _test_of(2)),
    },
    "STS-B": {
        "train.tsv": (f"{_STSB}\tscore", _stsb),
        "dev.tsv": (f"{_STSB}\tscore", _stsb),
        "test.tsv": (_STSB, _test_of(6)),
    },
    "QQP": {
        "train.tsv": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", _qqp),
        "dev.tsv": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", _qqp),
        "test.tsv": ("id\tquestion1\tquestion2", _test_of(0)),
    },
    "MNLI": {
        "train.tsv": (f"{_MNLI}\tlabel1\tgold_label", lambda n: _mnli(n, 1)),
        "dev_matched.tsv": (
            f"{_MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
            lambda n: _mnli(n, 5),
        ),
        "dev_mismatched.tsv": (
            f"{_MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
            lambda n: _mnli(n + 1, 5),
        ),
        "test_matched.tsv": (_MNLI, _test_of(7)),
        "test_mismatched.tsv": (_MNLI, _test_of(7)),
    },
    "QNLI": {
        "train.tsv": ("index\tquestion\tsentence\tlabel", _nli),
        "dev.tsv": ("index\tquestion\tsentence\tlabel", _nli),
        "test.tsv": ("index\tquestion\tsentence", _test_of(0)),
    },
    "RTE": {
        "train.tsv": ("index\tsentence1\tsentence2\tlabel", _nli),
        "dev.tsv": ("index\tsentence1\tsentence2\tlabel", _nli),
        "test.tsv": ("index\tsentence1\tsentence2", _test_of(0)),
    },
    "WNLI": {
        "train.tsv": ("index\tsentence1\tsentence2\tlabel", _wnli),
        "dev.tsv": ("index\tsentence1\tsentence2\tlabel", _wnli),
        "test.tsv": ("index\tsentence1\tsentence2", _test_of(0)),
    },
    "diagnostic": {
        "diagnostic.tsv": ("index\tsentence1\tsentence2", _test_of(0)),
        "diagnostic-full.tsv": (
            "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\t"
            "Hypothesis\tLabel",
            lambda n: "\t".join(["", "x", "", "", "News", *_pair(n)[:2], _three(n)]),
        ),
    },
}


def write_glue(
    folder: Path, *tasks: str, rows: int = 24, end: str = "\n", but: tuple[str, ...] = ()
) -> Path:
    """The files of `tasks` (all of them when none is named) in `folder`; lines end with `end`.
    Files called as in `but` are left out."""
    for task in tasks or LAYOUTS:
        (folder / task).mkdir(parents=True)
        for name, (header, row) in LAYOUTS[task].items():
            if name not in but:
                lines = [*([header] if header else []), *map(row, range(rows))]
                text = "".join(line + end for line in lines)
                (folder / task / name).write_text(text, encoding="utf-8", newline="")
    return folder
