"""Tables and texts in many encodings, kinds, lengths, line ends and ways to quote."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from bertine.data.examples import read_examples
from bertine.data.tables import Table
from bertine.data.tagged_sentences import read_sentences
from bertine.inference.answer_files import TextReport
from bertine.tokenization.documents import Corpus
from mistakes.odd.languages import CODECS, ENGLISH, PHRASES
from mistakes.odd_files import Answer, Case

KINDS = ("csv", "csv", "tsv", "semicolon", "jsonl", "json", "txt", "conll", "corpus")
LABELS = ("good", "bad", "fine")
#: Rows, and which of them are not English.
LENGTHS = (3, 4, 8, 40, 300, 2000)
PLACES = ("all", "all", "half", "some", "last", "end", "label", "header")
Rows = list[tuple[str, str]]


def draw(draw: Random, folder: Path) -> Case:
    """Draw a table or a text, and an encoding that can write it."""
    encoding = draw.choice(["utf-8"] * 14 + [*CODECS])
    language = draw.choice(CODECS[encoding])
    kind, length, place = draw.choice(KINDS), draw.choice(LENGTHS), draw.choice(PLACES)
    rows = _rows(draw, language, length, place)
    ends = draw.choice(("LF", "LF", "CRLF", "CR", "no last", "blank lines", "blank end", "^Z"))
    plain = encoding == "utf-8"
    layout = draw.choice(_LAYOUTS[kind]) if plain or draw.random() < 0.3 else _LAYOUTS[kind][0]
    if layout == "separators in text" and not encoding.startswith("utf"):
        layout = "plain"  # that has none of them
    if ends == "blank lines" and (kind in ("txt", "corpus", "conll") or "newline" in layout):
        ends = "LF"  # they say something there
    header = draw.choice(PHRASES[language]).replace(",", "") if place == "header" else "id"
    text, content = _WRITERS[kind](draw, rows, layout, header)
    text = _with_ends(draw, text, ends)
    if ends == "CRLF" and layout == "newline inside":  # in cells, too
        content = [(row[0].replace("\n", "\r\n"), row[1]) for row in content]
    path = folder / f"data.{_SUFFIX[kind]}"
    path.write_bytes(_encoded(draw, text, encoding))
    under = f"{encoding}" if not plain else f"utf-8 {kind} {layout}"
    choices = {
        "kind": under,
        "file": kind,
        "language": language,
        "rows": str(length),
        "place": place,
        "ends": ends,
        "layout": layout,
    }
    return Case(choices, lambda: _READERS[kind](path), content)


def _rows(draw: Random, language: str, length: int, place: str) -> Rows:
    """Draw texts with labels, of which some are of a language."""
    foreign, rows = PHRASES[language], []
    for number in range(length):
        odd = {
            "all": True,
            "half": number % 2 == 0,
            "some": draw.random() < 0.1,
            "last": number == length - 1,
        }.get(place, False)
        parts = [draw.choice(foreign if odd else ENGLISH) for _ in range(draw.choice((1, 1, 2, 3)))]
        label = LABELS[number % 3]
        if place == "label" and number % 3 == 0:
            label = foreign[0].split()[0].strip(",“”?¿")
        rows.append((" ".join(parts), label))
    if place == "end":
        rows[-1] = (rows[-1][0] + " " + foreign[0].split()[-1], rows[-1][1])
    return rows


# How rows are written: each returns the text of the file, and what the clean twin of it holds.

Written = tuple[str, list[Any]]
_CSV = (
    "plain",
    "all quoted",
    "quotes inside",
    "newline inside",
    "separator inside",
    "sep=",
    "index column",
    "unnamed column",
    "empty columns",
    "header case",
    "header blanks",
    "header quoted",
    "separators in text",
    "blanks after commas",
    "single quotes",
)
_LAYOUTS = {
    "csv": _CSV,
    "semicolon": _CSV,
    "tsv": (
        "plain",
        "all quoted",
        "quotes inside",
        "newline inside",
        "tab inside",
        "index column",
        "empty columns",
        "header blanks",
        "header case",
    ),
    "jsonl": ("plain", "escaped", "other keys first", "null label", "blanks", "nested"),
    "json": ("plain", "pretty", "escaped", "in data", "records of pandas", "columns of pandas"),
    "txt": ("plain", "blanks around", "separators in text"),
    "corpus": ("plain", "blanks around", "separators in text"),
    "conll": ("plain", "tabs"),
}
_SUFFIX = {"semicolon": "csv", "corpus": "txt", "conll": "conll"} | {
    kind: kind for kind in ("csv", "tsv", "jsonl", "json", "txt")
}
#: What ends a line for some programs, and not here.
_NO_LINE_ENDS = ("\u2028", "\x85", "\x0b", "\x0c", "\u2029")


def _changed(draw: Random, rows: Rows, layout: str, delimiter: str) -> Rows:
    """Put into texts what has to be quoted."""
    inside = {
        "quotes inside": ' the "best" one',
        "newline inside": "\nand more",
        "separator inside": f"{delimiter} and more",
        "tab inside": "\tand more",
        "separators in text": draw.choice(_NO_LINE_ENDS) + "and more",
        "single quotes": " 'tis 'so'",
    }.get(layout, "")
    if not inside:
        return rows
    return [
        (text + inside if number % 3 == 0 else text, label)
        for number, (text, label) in enumerate(rows)
    ]


def _table(delimiter: str) -> Callable[[Random, Rows, str, str], Written]:
    def written(draw: Random, rows: Rows, layout: str, header: str) -> Written:
        rows = _changed(draw, rows, layout, delimiter)
        if delimiter == "," and layout == "plain":
            rows = [(text.replace(",", " "), label) for text, label in rows]
        names = ["text", "label", header]
        table = [[text, label, str(number)] for number, (text, label) in enumerate(rows)]
        if layout == "header case":
            names = draw.choice((["Text", "Label", "Id"], ["TEXT", "LABEL", "ID"]))
        elif layout == "header blanks":
            names = [" text", "label ", header]
        elif layout in ("index column", "unnamed column"):
            name = "Unnamed: 0" if layout == "index column" and draw.random() < 0.5 else ""
            names = [name, *names]
            table = [[str(number), *row] for number, row in enumerate(table)]
        elif layout == "empty columns":
            count = draw.choice((1, 3))
            names += [""] * count
            table = [row + [""] * count for row in table]
        out = io.StringIO()
        quoting = csv.QUOTE_ALL if layout == "all quoted" else csv.QUOTE_MINIMAL
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting)
        writer.writerow(names)
        writer.writerows(table)
        text = out.getvalue()
        if layout == "header quoted":
            first, rest = text.split("\n", 1)
            text = delimiter.join(f'"{name}"' for name in first.split(delimiter)) + "\n" + rest
        if layout == "sep=":
            text = f"sep={delimiter}\n" + text
        if layout == "blanks after commas":
            lines = [f"{delimiter} ".join(row) for row in [names, *table]]
            if all(delimiter not in cell and '"' not in cell for row in table for cell in row):
                text = "\n".join(lines) + "\n"
        return text, [*rows]

    return written


def _jsonl(draw: Random, rows: Rows, layout: str, header: str) -> Written:
    lines, content = [], list[Any](rows)
    for number, (text, label) in enumerate(rows):
        row: dict[str, object] = {"text": text, "label": label, header: number}
        if layout == "other keys first":
            row = {header: number, "label": label, "text": text}
        if layout == "nested":
            row["meta"] = {"text": "no", "label": ["x"]}
        if layout == "null label" and number == 1:
            row["label"] = None
            content.remove((text, label))
        line = json.dumps(row, ensure_ascii=layout == "escaped")
        lines.append(f"  {line} " if layout == "blanks" else line)
    return "\n".join(lines) + "\n", content


def _json(draw: Random, rows: Rows, layout: str, header: str) -> Written:
    objects = [{"text": text, "label": label, header: n} for n, (text, label) in enumerate(rows)]
    value: object = objects
    if layout == "in data":
        value = {"data": objects}
    elif layout == "columns of pandas":
        value = {k: {str(n): row[k] for n, row in enumerate(objects)} for k in objects[0]}
    elif layout == "records of pandas":
        return json.dumps(objects, ensure_ascii=False, separators=(",", ":")), [*rows]
    indent = 2 if layout == "pretty" else None
    return json.dumps(value, ensure_ascii=layout == "escaped", indent=indent) + "\n", [*rows]


def _lines(draw: Random, rows: Rows, layout: str, header: str) -> Written:
    texts = [text for text, _ in _changed(draw, rows, layout, ",")]
    if layout == "blanks around":
        texts = [f"  {text} " for text in texts]
    return "\n".join(texts) + "\n", [*texts]


def _documents(draw: Random, rows: Rows, layout: str, header: str) -> Written:
    text, texts = _lines(draw, rows, layout, header)
    return text.replace("\n", "\n\n"), texts


def _columns(draw: Random, rows: Rows, layout: str, header: str) -> Written:
    sign = "\t" if layout == "tabs" else " "
    sentences, blocks = list[Any](), []
    for text, label in rows:
        words = text.split()
        tags = ["B-" + label, *["O"] * (len(words) - 1)]
        sentences.append((tuple(words), tuple(tags)))
        blocks.append("".join(f"{w}{sign}{t}\n" for w, t in zip(words, tags, strict=True)))
    return "\n".join(blocks), sentences


_WRITERS: dict[str, Callable[[Random, Rows, str, str], Written]] = {
    "csv": _table(","),
    "semicolon": _table(";"),
    "tsv": _table("\t"),
    "jsonl": _jsonl,
    "json": _json,
    "txt": _lines,
    "corpus": _documents,
    "conll": _columns,
}


def _with_ends(draw: Random, text: str, ends: str) -> str:
    """Give a text other ends of lines, or of the file."""
    if ends == "CRLF":
        return text.replace("\n", "\r\n")
    if ends == "CR":
        return text.replace("\n", "\r")
    if ends == "blank lines":
        return text.replace("\n", "\n\n")
    if ends == "no last":
        return text.rstrip("\n")
    if ends == "blank end":
        return text + "\n" * draw.choice((1, 3)) + draw.choice(("", "  \n"))
    if ends == "^Z":
        return text + "\x1a"
    return text


def _encoded(draw: Random, text: str, encoding: str) -> bytes:
    if encoding == "utf-16-be with a mark":
        return b"\xfe\xff" + text.encode("utf-16-be")
    if encoding.startswith("double "):
        codec = encoding.removeprefix("double ")
        if codec == "cp1252":  # with the five characters that it lacks as browsers read them
            twice = "".join(
                bytes([b]).decode("cp1252", "ignore") or chr(b) for b in text.encode("utf-8")
            )
        else:
            twice = text.encode("utf-8").decode(codec, "replace")
        return twice.encode("utf-8")
    if encoding == "stray bytes":
        raw = text.encode("utf-8")
        for _ in range(draw.choice((1, 2, 3))):
            at = draw.randrange(len(raw))
            raw = raw[:at] + bytes([draw.randrange(0x80, 0x100)]) + raw[at:]
        if raw.decode("utf-8", "ignore").encode() == raw:  # by chance they are a character
            raw += b"\xff"
        return raw
    return text.encode(encoding, "ignore")


# How they are read: what the verbs call.


def _read_table(path: Path) -> Answer:
    examples = read_examples(path)
    return Answer([(item.texts[0], item.label) for item in examples.items], examples.notes)


def _read_lines(path: Path) -> Answer:
    with Table(path) as table:
        texts = [row.values["text"] for row in table]
        report = TextReport(rows=len(texts))  # as `predict` says
        report.count_empty(at for at, text in enumerate(texts, 1) if not text.strip())
        notes = report.warnings()
        return Answer(texts, [*table.stats.notes(table.name), *notes])


def _read_documents(path: Path) -> Answer:
    corpus = Corpus([path])
    texts: Sequence[str] = [document.text for document in corpus]
    return Answer([text.strip("\n") for text in texts], corpus.stats.lines()[1:])


def _read_words(path: Path) -> Answer:
    sentences = read_sentences(path)
    return Answer([(item.words, item.tags) for item in sentences.items], sentences.notes)


_READERS: dict[str, Callable[[Path], Answer]] = {
    **dict.fromkeys(("csv", "semicolon", "tsv", "jsonl", "json"), _read_table),
    "txt": _read_lines,
    "corpus": _read_documents,
    "conll": _read_words,
}
