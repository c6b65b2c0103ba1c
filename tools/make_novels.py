"""Rebuild the old novels bundled for the README and the tutorials from a collection of books.

    python tools/make_novels.py BOOKS.jsonl.zst [--out src/bertine/contrib/demo/data]

BOOKS.jsonl.zst holds one book a line: ``author``, ``title``, ``year``, ``text`` (paragraphs
separated by blank lines). Written are ``pretraining.jsonl.zst`` (a document a line) and
``LICENSE.md``, which names every book and counts everything that was left out. The same input
gives the same bytes.

The rules, and why:

* English originals only: a translation has a second author, whose rights may last longer.
* Typography (dashes, quotation marks, emphasis, spacing) differs between editions, so it is made
  the same everywhere.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from compressed_rows import read_rows, write_rows

from bertine.core.files import write_text

#: Pre-training: at most this many characters of each book, one unbroken stretch.
EXCERPT = 220_000

#: (author, title).
PRETRAINING: tuple[tuple[str, str], ...] = (
    ("Edith Wharton", "Xingu"),
    ("H.G. Wells", "Men Like Gods"),
    ("H.G. Wells", "The Time Machine"),
    ("H.G. Wells", "The World Set Free"),
    ("Jack London", "The Call of the Wild"),
    ("Jack London", "The Road"),
    ("Jack London", "The Scarlet Plague"),
    ("Jane Austen", "Love and Friendship and Other Early Works"),
    ("Anne Bronte", "Agnes Grey"),
    ("Anthony Trollope", "Barchester Towers"),
    ("Arthur Conan Doyle", "The Hound of the Baskervilles"),
    ("Bram Stoker", "Dracula"),
    ("Charles Dickens", "Great Expectations"),
    ("Charlotte Bronte", "Jane Eyre"),
    ("Elizabeth Gaskell", "Cranford"),
    ("Emily Bronte", "Wuthering Heights"),
    ("Frances Hodgson Burnett", "The Secret Garden"),
    ("G.K. Chesterton", "The Man Who Was Thursday"),
    ("George Eliot", "Silas Marner"),
    ("Henry James", "The Portrait of a Lady"),
    ("Herman Melville", "Moby-Dick"),
    ("Joseph Conrad", "Lord Jim"),
    ("Kate Chopin", "The Awakening"),
    ("Kenneth Grahame", "The Wind in the Willows"),
    ("Mark Twain", "The Adventures of Tom Sawyer"),
    ("Oscar Wilde", "The Picture of Dorian Gray"),
    ("Robert Louis Stevenson", "Treasure Island"),
    ("Stephen Crane", "The Red Badge of Courage"),
    ("Thomas Hardy", "The Mayor of Casterbridge"),
    ("Wilkie Collins", "The Moonstone"),
)

DOCUMENT_CHARACTERS = 10_000

#: The texts are of their time; a demonstration need not repeat these words.
SLURS = re.compile(
    r"\b(?:nigg\w+|coons?|dark(?:y|ies)|dagoe?s?|kikes?|sheen(?:y|ies)|gooks?|squaws?)\b", re.I
)
HEADING = re.compile(
    r"^(?:chapter|book|part|volume|stave|letter|act|scene|section)\b[\s.:]+"
    r"(?:[ivxlcdm]+|\d+|the \w+|one|two|three|four|five|six|seven|eight|nine|ten|last)\b",
    re.I,
)
TERMINAL = tuple(".!?\"'—:;,-)…")
#: Words that begin with an apostrophe, so that the mark before them opens no speech.
CLIPPED = (
    r"(?:tis|twas|twere|twill|twould|em|un|ud|ll|re|ve|im|er|ere|erself|imself|bout|cause|cos|"
    r"cept|fore|gainst|mongst|most|nough|pon|prentice|stead|t|til|till|tween|way)\b"
)


@dataclass
class Book:
    author: str
    title: str
    year: int
    paragraphs: list[str]
    #: How the text was changed or what was left out -> how often.
    counts: Counter[str] = field(default_factory=Counter)


def read_books(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """All books of the collection by (author, title)."""
    return {(row["author"], row["title"].strip()): row for row in read_rows(path)}


def double_quotes(text: str) -> str:
    """Speech in single quotation marks, in double ones; apostrophes stay."""
    text = text.replace('"', "\x00")
    text = re.sub(rf"(?:^|(?<=[\s(—]))'(?!(?i:{CLIPPED}))(?=[\w\x00—])", '"', text, flags=re.M)
    text = re.sub(r"(?<=[,.!?;—])'(?=[\s),;:—\]]|$)", '"', text, flags=re.M)
    return text.replace("\x00", "'")


def same_typography(text: str, counts: Counter[str]) -> str:
    """One way of writing dashes, quotation marks, emphasis, dots and spaces for all editions."""
    text = re.sub("[“”]", '"', text)
    text = re.sub("[‘’]", "'", text)
    text, notes = re.subn(r"\[(?:\d+|[*])\]|\{\d+\}", "", text)
    counts["note marks removed"] += notes
    text = re.sub(r"\*(?: ?\*)+", "", text)
    text, emphasis = re.subn(r"(?<!\w)[_*]+(?=\S)|(?<=\S)[_*]+(?!\w)", "", text)
    counts["emphasis marks removed"] += emphasis
    text = re.sub(r"\s*(?:—|--+)[ \t]*", "—", text)
    text = text.replace("…", "...")
    text = re.sub(r"(?:\. ){2,}\.", "...", text)
    if len(re.findall(r"^'", text, re.M)) > len(re.findall(r'^"', text, re.M)):
        text = double_quotes(text)
        counts["books whose speech was in single quotation marks"] = 1
    return re.sub(r"[^\S\n]+", " ", text)


def clean(row: dict[str, str]) -> Book:
    """Paragraphs of a book, in one typography, without headings and slurs, everything counted.

    An empty string among the paragraphs marks where a heading stood.
    """
    book = Book(row["author"], row["title"].strip(), int(row["year"]), [])
    text = same_typography(row["text"], book.counts)
    for block in re.split(r"\n\s*\n", text):
        kept: list[str] = []
        for line in block.split("\n"):
            line = line.strip()
            if not line:
                continue
            if len(line) < 90 and (HEADING.match(line) or not line.endswith(TERMINAL)):
                # A heading, a signature, a line of verse: short, and no sentence ends there.
                book.counts["headings and other short lines without an end left out"] += 1
                if not kept and book.paragraphs and book.paragraphs[-1]:
                    book.paragraphs.append("")
                continue
            kept.append(line)
        if not kept:
            continue
        paragraph = " ".join(kept)
        if SLURS.search(paragraph):
            book.counts["paragraphs with slurs left out"] += 1
            if book.paragraphs and book.paragraphs[-1]:
                book.paragraphs.append("")
            continue
        book.paragraphs.append(paragraph)
    return book


def documents(book: Book) -> list[str]:
    """An excerpt of at most EXCERPT characters from 3% into the book (after the front matter),
    cut where a chapter ends or, in long chapters, about every DOCUMENT_CHARACTERS."""
    total = sum(map(len, book.paragraphs))
    start, passed = 0, 0
    while total > EXCERPT and passed < 0.03 * total:
        passed += len(book.paragraphs[start])
        start += 1
    result: list[str] = []
    current: list[str] = []
    used = 0
    for paragraph in [*book.paragraphs[start:], ""]:
        size = sum(map(len, current))
        if used + len(paragraph) > EXCERPT:
            paragraph = ""
            used = EXCERPT
        if (not paragraph and size > 2_000) or size > DOCUMENT_CHARACTERS or used >= EXCERPT:
            if current:
                result.append("\n".join(current))
            current = []
        if used >= EXCERPT:
            break
        if paragraph:
            current.append(paragraph)
            used += len(paragraph)
    if current:
        result.append("\n".join(current))
    return result


LICENSE_HEAD = """\
# The old novels

The texts in `pretraining.jsonl.zst` are **in the public domain in the United States**: every book
was first published before 1926. Every author has been dead for more than 70 years (the latest, H.G.
Wells, died in 1946), so they are free in countries with that term too. All are English originals;
there are no translations. The files may be used, changed and passed on without conditions. The
selection and `LICENSE.md` itself come under the licence of the package (Apache-2.0).

They were made by `tools/make_novels.py` from a collection of 212 public-domain books, one a
line with author, title, year and text; titles and years are that collection's.

* `pretraining.jsonl.zst`: {documents} documents without labels, {megabytes:.1f} MB of text. One
  stretch of at most {excerpt:,} characters (line ends not counted) from each book, from 3% into the
  book where it is longer. A document ends with a chapter or after about {document:,} characters.

What was changed, in all texts: curly quotation marks to straight ones, dashes to `—`, `…` and
`. . .` to `...`, emphasis marks (`_`, `*`) and note marks removed, runs of spaces made one, speech
in single quotation marks to double ones where a book uses single ones (by rule; a few apostrophes
may be wrong). What was left out, with counts for the whole of each book used: see the last table.
The books are of their time: paragraphs with racial slurs were left out, other views of that time
were not.

## Books

| author | title | year | in the package |
|---|---|---|---|
"""


def write_licence(
    path: Path, books: dict[tuple[str, str], Book], rows: list[dict[str, object]]
) -> None:
    lines = []
    for author, title in PRETRAINING:
        mine = [row for row in rows if (row["author"], row["title"]) == (author, title)]
        size = sum(len(str(row["text"])) for row in mine)
        whole = sum(map(len, books[author, title].paragraphs))
        share = "all of it" if size >= 0.97 * whole else f"{size / whole:.0%} of it"
        lines.append(
            f"| {author} | {title} | {books[author, title].year} "
            f"| {size / 1000:.0f},000 characters, {share} |"
        )
    total: Counter[str] = Counter()
    for book in books.values():
        total.update(book.counts)
    changes = "\n".join(f"| {what} | {number:,} |" for what, number in sorted(total.items()))
    head = LICENSE_HEAD.format(
        documents=len(rows),
        megabytes=sum(len(str(row["text"]).encode()) for row in rows) / 1e6,
        excerpt=EXCERPT,
        document=DOCUMENT_CHARACTERS,
    )
    write_text(
        path,
        head + "\n".join(lines) + "\n\n## Changes\n\n| what | times, in all books |\n|---|---|\n"
        f"{changes}\n",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("books", type=Path, help="the collection, BOOKS.jsonl.zst")
    parser.add_argument("--out", type=Path, default=Path("src/bertine/contrib/demo/data"))
    options = parser.parse_args()
    collection = read_books(options.books)
    books = {name: clean(collection[name]) for name in PRETRAINING}
    rows: list[dict[str, object]] = [
        {"author": author, "title": title, "year": books[author, title].year, "text": text}
        for author, title in PRETRAINING
        for text in documents(books[author, title])
    ]
    write_rows(options.out / "pretraining.jsonl.zst", rows)
    write_licence(options.out / "LICENSE.md", books, rows)
    for name in ("pretraining.jsonl.zst", "LICENSE.md"):
        print(f"{options.out / name}: {(options.out / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
