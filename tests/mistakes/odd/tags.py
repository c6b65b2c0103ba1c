"""Words with tags: schemes and their spellings, in columns of many kinds and in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bertine.data.entities import encode, entities
from bertine.data.in_memory import as_data
from bertine.data.tagged_sentences import WordColumns, read_sentences
from frames import Dataset
from mistakes.odd_files import Answer, Case

Sentence = tuple[tuple[str, ...], tuple[str, ...]]
TYPES = ("PER", "LOC", "ORG")
NAMES = {
    "PER": ("Ada Lovelace", "Grace", "Alan M Turing"),
    "LOC": ("New York", "Rome", "Rio"),
    "ORG": ("Red Cross", "UN", "Bank of England"),
}
OTHERS = ("saw", "went", "the", "old", "in", ",", "a", "house", "and", "met")
POS = ("NN", "VB", "DT", "JJ", "IN", ".")


def _sentences(draw: Random, count: int) -> list[Sentence]:
    """Draw sentences with IOB2 tags; some entities of a type follow each other."""
    sentences = []
    for number in range(count):
        words: list[str] = []
        tags: list[str] = []
        for _ in range(draw.choice((2, 3, 4))):
            kind = TYPES[number % 3] if not words else draw.choice(TYPES)
            for _ in range(draw.choice((1, 1, 1, 2))):
                parts = draw.choice(NAMES[kind]).split()
                words += parts
                tags += [f"B-{kind}", *[f"I-{kind}"] * (len(parts) - 1)]
            for _ in range(draw.choice((1, 2, 3))):
                words.append(draw.choice(OTHERS))
                tags.append("O")
        sentences.append((tuple(words), tuple(tags)))
    return sentences


# Schemes: from IOB2 to what somebody writes


def _letters(scheme: Any, **changed: str) -> Callable[[Sequence[str]], list[str]]:
    def written(tags: Sequence[str]) -> list[str]:
        found = encode(entities(tags), len(tags), scheme)
        return [tag if tag == "O" else changed.get(tag[0], tag[0]) + tag[1:] for tag in found]

    return written


def _each(change: Callable[[str], str]) -> Callable[[Sequence[str]], list[str]]:
    return lambda tags: [change(tag) for tag in tags]


def _spelled(sign: str, *, type_first: bool = False) -> Callable[[Sequence[str]], list[str]]:
    def change(tag: str) -> str:
        if tag == "O":
            return tag
        letter, kind = tag.split("-")
        return f"{kind}{sign}{letter}" if type_first else f"{letter}{sign}{kind}"

    return _each(change)


def _outside(sign: str) -> Callable[[Sequence[str]], list[str]]:
    return _each(lambda tag: sign if tag == "O" else tag)


def _ends(tags: Sequence[str]) -> list[str]:
    """IOE2: the end of an entity is marked, and not its beginning."""
    found = encode(entities(tags), len(tags), "IOBES")
    return [
        tag if tag == "O" else {"B": "I", "S": "E"}.get(tag[0], tag[0]) + tag[1:] for tag in found
    ]


SCHEMES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "IOB2": list,
    "IOB1": _letters("IOB1"),
    "IOBES": _letters("IOBES"),
    "BILOU": _letters("IOBES", E="L", S="U"),
    "BMES": _letters("IOBES", I="M"),
    "BMEWO": _letters("IOBES", I="M", S="W"),
    "BIO of two": _letters("IOB2"),
    "IOE2": _ends,
    "B_PER": _spelled("_"),
    "B:PER": _spelled(":"),
    "B.PER": _spelled("."),
    "B/PER": _spelled("/"),
    "B|PER": _spelled("|"),
    "BPER": _spelled(""),
    "B PER": _spelled(" "),
    "B--PER": _spelled("--"),
    "PER-B": _spelled("-", type_first=True),
    "PER_B": _spelled("_", type_first=True),
    "b-per": _each(str.lower),
    "b-PER": _each(lambda t: t if t == "O" else t[0].lower() + t[1:]),
    "B-per": _each(lambda t: t[0] + t[1:].lower()),
    "lower o": _outside("o"),
    "0": _outside("0"),
    "_": _outside("_"),
    "-": _outside("-"),
    "OTHER": _outside("OTHER"),
    "OUT": _outside("OUT"),
    "empty": _outside(""),
    "O-": _outside("O-"),
    "none": _outside("None"),
    "*": _outside("*"),
    "no B": _each(lambda t: t if t == "O" else "I" + t[1:]),
    "types alone": _each(lambda t: t if t == "O" else t[2:]),
    "b_per with BILOU": lambda tags: [t.lower().replace("-", "_") for t in SCHEMES["BILOU"](tags)],
    "per-b with BMES": lambda tags: [
        t if t == "O" else f"{t[2:]}-{t[0]}".lower() for t in SCHEMES["BMES"](tags)
    ],
    "blanks": _each(lambda t: f" {t} "),
    "longer types": _each(lambda t: t.replace("-PER", "-PER-S")),
    "underscored types": _each(lambda t: t.replace("PER", "PER_SON")),
    "one mistake": list,
    "one other spelling": list,
    "one empty": list,
    "of numbers": list,
    "of another scheme": list,
}


def _spoiled(draw: Random, scheme: str, rows: list[Sentence]) -> list[Sentence]:
    """Change one tag of all, as a slip does."""
    if scheme not in ("one mistake", "one other spelling", "one empty", "of another scheme"):
        return rows
    number = draw.randrange(len(rows))
    words, tags = rows[number]
    at = draw.choice([at for at, tag in enumerate(tags) if tag != "O"])
    tag = {
        "one mistake": "X-PER",
        "one other spelling": tags[at].replace("-", "_"),
        "one empty": "",
        "of another scheme": "E" + tags[at][1:],
    }[scheme]
    return [*rows[:number], (words, (*tags[:at], tag, *tags[at + 1 :])), *rows[number + 1 :]]


# Columns


def _column_file(
    cells: Callable[[int, str, str], Sequence[str]],
    sign: str = " ",
    *,
    blank: str = "",
    before: str = "",
    head: Callable[[int], str] = lambda number: "",
    end: str = "\n",
    ending: str = ".conll",
) -> Callable[[Path, list[Sentence]], Any]:
    """Return what writes a column file, each line of `cells` (place, word, tag)."""

    def written(folder: Path, rows: list[Sentence]) -> Path:
        blocks = []
        for number, (words, tags) in enumerate(rows):
            lines = [
                sign.join(cells(at, word, tag))
                for at, (word, tag) in enumerate(zip(words, tags, strict=True))
            ]
            blocks.append(head(number) + "".join(line + end for line in lines))
        path = folder / f"train{ending}"
        path.write_bytes((before + f"{blank}{end}".join(blocks)).encode("utf-8"))
        return path

    return written


def _conllu(at: int, word: str, tag: str) -> list[str]:
    return [str(at + 1), word, word.lower(), "NOUN", POS[at % 6], "_", "0", "root", "_", tag]


def _inline(folder: Path, rows: list[Sentence]) -> Path:
    path = folder / "train.txt"
    text = "\n".join(" ".join(f"{w}/{t}" for w, t in zip(*row, strict=True)) for row in rows)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _json(words: str, tags: str, **more: Any) -> Callable[[Path, list[Sentence]], Any]:
    def written(folder: Path, rows: list[Sentence]) -> Path:
        path = folder / "train.jsonl"
        lines = [json.dumps({words: row[0], tags: row[1], **more}) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return written


def _json_list(folder: Path, rows: list[Sentence]) -> Path:
    path = folder / "train.json"
    path.write_text(json.dumps([{"tokens": w, "ner_tags": t} for w, t in rows], indent=1))
    return path


def _pairs(folder: Path, rows: list[Sentence]) -> Path:
    path = folder / "train.jsonl"
    lines = [json.dumps([*zip(*row, strict=True)]) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _spans(folder: Path, rows: list[Sentence]) -> Path:
    path = folder / "train.jsonl"
    lines = []
    for words, tags in rows:
        found = [[e.begin, e.end, e.type] for e in entities(tags)]
        lines.append(json.dumps({"text": " ".join(words), "entities": found}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _numbers(named: bool) -> Callable[[Path, list[Sentence]], Any]:
    """Return what makes a data set with numbers for tags, and their names if they are `named`."""

    def made(folder: Path, rows: list[Sentence]) -> Any:
        names = sorted({tag for _, tags in rows for tag in tags})
        columns: dict[str, list[Any]] = {
            "tokens": [[*words] for words, _ in rows],
            "ner_tags": [[names.index(tag) for tag in tags] for _, tags in rows],
        }
        return as_data(Dataset(columns, **({"ner_tags": names} if named else {})))

    return made


def _parquet(folder: Path, rows: list[Sentence]) -> Path:
    path = folder / "train.parquet"
    table = {"tokens": [[*words] for words, _ in rows], "ner_tags": [[*tags] for _, tags in rows]}
    pq.write_table(pa.table(table), path)
    return path


def _rows_in_memory(folder: Path, rows: list[Sentence]) -> Any:
    return as_data([{"tokens": words, "tags": tags} for words, tags in rows])


def _table(ending: str, sign: str, *, header: bool = True) -> Callable[[Path, list[Sentence]], Any]:
    """Return what writes a table with a row for each word, as spaCy's users and Kaggle have it."""

    def written(folder: Path, rows: list[Sentence]) -> Path:
        lines = [sign.join(("sentence", "word", "tag"))] if header else []
        for number, row in enumerate(rows):
            lines += [f"{number}{sign}{word}{sign}{tag}" for word, tag in zip(*row, strict=True)]
        path = folder / f"train{ending}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return written


_two = _column_file(lambda at, word, tag: (word, tag))
LAYOUTS: dict[str, Callable[[Path, list[Sentence]], Any]] = {
    "word tag": _two,
    "tabs": _column_file(lambda at, word, tag: (word, tag), "\t"),
    "wide spaces": _column_file(lambda at, word, tag: (word, tag), "   "),
    "CRLF": _column_file(lambda at, word, tag: (word, tag), end="\r\n"),
    "CR": _column_file(lambda at, word, tag: (word, tag), end="\r"),
    "byte order mark": _column_file(lambda at, word, tag: (word, tag), before="\ufeff"),
    "blanks in blank lines": _column_file(lambda at, word, tag: (word, tag), blank="  "),
    "tab in blank lines": _column_file(lambda at, word, tag: (word, tag), "\t", blank="\t"),
    "two blank lines": _column_file(lambda at, word, tag: (word, tag), blank="\n"),
    "blanks at the end": _column_file(lambda at, word, tag: (word, tag + " ")),
    "tab at the end": _column_file(lambda at, word, tag: (word, tag, ""), "\t"),
    "begins with blanks": _column_file(lambda at, word, tag: (word, tag), before="\n\n"),
    "documents": _column_file(
        lambda at, w, t: (w, t), head=lambda n: "-DOCSTART- O\n\n" * (n % 3 == 0)
    ),
    "four columns": _column_file(lambda at, word, tag: (word, POS[at % 6], "I-NP", tag)),
    "four columns, documents": _column_file(
        lambda at, word, tag: (word, POS[at % 6], "B-NP", tag), before="-DOCSTART- -X- O O\n\n"
    ),
    "three columns": _column_file(lambda at, word, tag: (word, POS[at % 6], tag)),
    "index first": _column_file(lambda at, word, tag: (str(at + 1), word, tag), "\t"),
    "index from 0": _column_file(lambda at, word, tag: (str(at), word, tag), "\t"),
    "index, spaces": _column_file(lambda at, word, tag: (str(at + 1), word, tag)),
    "index with dots": _column_file(lambda at, word, tag: (f"{at + 1}.", word, tag), "\t"),
    "GermEval": _column_file(
        lambda at, word, tag: (str(at + 1), word, tag, "O"),
        "\t",
        head=lambda n: f"#\thttp://x/{n} [1]\n",
    ),
    "UNER": _column_file(
        lambda at, word, tag: (str(at + 1), word, tag, "-", "-"),
        "\t",
        head=lambda n: f"# sent_id = {n}\n# text = …\n",
        ending=".iob2",
    ),
    "CoNLL-U": _column_file(_conllu, "\t", head=lambda n: f"# sent_id = {n}\n", ending=".conllu"),
    "CoNLL-U called txt": _column_file(_conllu, "\t", ending=".txt"),
    "comments": _column_file(
        lambda at, w, t: (w, t), head=lambda n: f"# sentence number {n} of all\n"
    ),
    "comments of two words": _column_file(lambda at, w, t: (w, t), head=lambda n: f"# {n}\n"),
    "tag first": _column_file(lambda at, word, tag: (tag, word)),
    "tag first, tabs": _column_file(lambda at, word, tag: (tag, word), "\t"),
    "predicted behind": _column_file(lambda at, word, tag: (word, POS[at % 6], tag, tag)),
    "nothing behind": _column_file(lambda at, word, tag: (word, tag, "_"), "\t"),
    "Wikiann": _column_file(lambda at, word, tag: (f"en:{word}", tag), "\t"),
    "MultiCoNER": _column_file(
        lambda at, w, t: (w, "_", "_", t), head=lambda n: f"# id a-{n}\tdomain=en\n"
    ),
    "no tags": _column_file(lambda at, word, tag: (word,)),
    "commas": _column_file(lambda at, word, tag: (word.replace(",", ";"), tag), ",", ending=".csv"),
    "semicolons": _column_file(lambda at, word, tag: (word, tag), ";"),
    "header": _column_file(lambda at, word, tag: (word, tag), "\t", before="word\ttag\n"),
    "header and blank line": _column_file(
        lambda at, word, tag: (word, tag), "\t", before="word\ttag\n\n"
    ),
    "table": _table(".csv", ","),
    "table of tabs": _table(".tsv", "\t"),
    "table without header": _table(".tsv", "\t", header=False),
    "inline": _inline,
    "pairs": _pairs,
    "spans of characters": _spans,
    "tokens, ner_tags": _json("tokens", "ner_tags", id="7"),
    "words, tags": _json("words", "tags"),
    "tokens, labels": _json("tokens", "labels"),
    "text, label": _json("text", "label"),
    "words, pos_tags too": _json("tokens", "ner_tags", pos_tags=["NN"]),
    "JSON list": _json_list,
    "numbers with names": _numbers(True),
    "numbers": _numbers(False),
    "Parquet": _parquet,
    "rows in memory": _rows_in_memory,
}


def draw(draw: Random, folder: Path) -> Case:
    """Draw sentences, a scheme of their tags and a kind of file; one of the two is usual."""
    odd_scheme = draw.random() < 0.6
    scheme = draw.choice([*SCHEMES]) if odd_scheme else "IOB2"
    layout = "word tag" if odd_scheme and draw.random() < 0.5 else draw.choice([*LAYOUTS])
    rows = _sentences(draw, draw.choice((3, 12, 60, 200)))
    if scheme == "B PER" and layout in LAYOUTS:
        layout = draw.choice(("tabs", "tokens, ner_tags", "index first"))
    clean = [(words, _meant(scheme, tags)) for words, tags in rows]
    odd = [(words, tuple(SCHEMES[scheme](tags))) for words, tags in rows]
    if scheme == "of numbers":
        odd = [
            (
                words,
                tuple(
                    str(TYPES.index(t[2:]) * 2 + (t[0] == "I") + 1) if t != "O" else "0"
                    for t in tags
                ),
            )
            for words, tags in odd
        ]
    odd = _spoiled(draw, scheme, odd)
    named = draw.choice(
        (None, None, WordColumns(word_column=1, tag_column=2, given=("word_column", "tag_column")))
    )
    choices = {
        "kind": f"tags {scheme}" if odd_scheme else f"columns {layout}",
        "scheme": scheme,
        "layout": layout,
        "sentences": str(len(rows)),
        "named": str(named),
    }
    if layout != "word tag":
        named = None

    def read() -> Answer:
        source = LAYOUTS[layout](folder, odd)
        found = read_sentences(source, columns=named)
        return Answer([(item.words, item.tags) for item in found.items], found.notes)

    return Case(choices, read, clean)


def _meant(scheme: str, tags: Sequence[str]) -> tuple[str, ...]:
    """Return the IOB2 tags that somebody means who writes so: the types as they are written."""
    change = {
        "b-per": str.lower,
        "B-per": str.lower,
        "b_per with BILOU": str.lower,
        "per-b with BMES": str.lower,
        "longer types": lambda kind: kind.replace("PER", "PER-S"),
        "B--PER": lambda kind: f"-{kind}",
        "underscored types": lambda kind: kind.replace("PER", "PER_SON"),
    }.get(scheme, lambda kind: kind)
    if scheme in ("types alone",):
        return tuple(tag if tag == "O" else tag[2:] for tag in tags)
    meant = [tag if tag == "O" else tag[:2] + change(tag[2:]) for tag in tags]
    if scheme == "no B":  # two entities of a type side by side are one
        meant = encode(
            entities(["I" + t[1:] if t != "O" else t for t in meant]), len(meant), "IOB2"
        )
    return tuple(meant)
