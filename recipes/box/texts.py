"""Draw texts of the length of sentences from books and articles, and ask a teacher for vectors.

A student learns vectors from what people write and ask for: mostly single sentences, some of two
or three, clauses and titles. Articles that the demo asks about are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import bertine
from bertine.core.console import logger, progress
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file
from bertine.core.rng import generator
from bertine.data.streams import open_stream
from bertine.inference.embedding.vectors import unit
from bertine.tokenization.sentences import split_sentences

#: The demo's own data: its articles may not be read.
_DEMO = Path(__file__).parents[2] / "src/bertine/contrib/demo/data"
#: How often a text has one, two and three sentences.
_SENTENCES = (0.8, 0.13, 0.07)
#: One sentence in this many also gives one of its clauses.
_CLAUSES = 6
#: The fewest and the most characters of a text, by language.
_LENGTHS = {"en": (12, 400), "zh": (4, 160)}
#: The usual number of characters of a text.
_USUAL = {"en": 135, "zh": 30}
#: From this many characters on, a part of a document is drawn, not all of it or nothing.
_BOOK = 200_000
#: Texts whose vectors are computed at once.
_CHUNK = 10_000
_CLAUSE_ENDS = re.compile(r"[,;:，、；：]\s*")


def draw_texts(corpus: Sequence[Path], file: Path, count: int, language: str, seed: int) -> int:
    """Write about `count` different texts of `corpus` in random order, one a line.

    Args:
        corpus: JSON lines with ``title`` and ``text``, compressed or not.
        file: what is written, whole or not at all.
        count: paragraphs are drawn so that about so many come out; fewer where the corpus has
            fewer.
        language: "en" or "zh".
        seed: of the draw.

    Returns:
        How many were written.

    Raises:
        BertineError: a file cannot be read, or a line is no such document.
    """
    demo, texts = _demo_titles(), dict[str, None]()
    size = sum(len(text) for path in corpus for _, text in _documents(path))
    least, most = _LENGTHS[language]
    # Somewhat more than needed, since texts repeat.
    share = min(1.0, 1.2 * count * _USUAL[language] / max(1, size))
    left_out = 0
    for path in corpus:
        for number, (title, text) in enumerate(_documents(path)):
            if title in demo and path.name.startswith("wiki"):
                left_out += 1
                continue
            draws = generator(seed, f"texts of {path.name}", number)
            texts[title] = None
            paragraphs = [part for part in text.split("\n") if part.strip()]
            for paragraph in np.array(paragraphs, object)[draws.random(len(paragraphs)) < share]:
                for found in _texts(paragraph, language, draws):
                    if least <= len(found) <= most:
                        texts[found] = None
    order = generator(seed, "order of texts").permutation(len(texts))[:count]
    listed = list(texts)
    with atomic_file(file) as at, open(at, "w", encoding="utf-8") as out:
        out.writelines(f"{listed[number]}\n" for number in order)
    logger.info(
        f"{len(order):,} texts of {size:,} characters; {left_out:,} articles of the demo "
        "are left out"
    )
    return len(order)


def draw_running(corpus: Sequence[Path], file: Path, share: float, seed: int) -> None:
    """Write a part of `corpus`, JSON lines with ``text``: some of the articles, and a part of each
    book.

    Args:
        corpus, file, seed: as in :func:`draw_texts`.
        share: of all characters, roughly.

    Raises:
        BertineError: as :func:`draw_texts`.
    """
    demo = _demo_titles()
    with atomic_file(file) as at, open(at, "w", encoding="utf-8") as out:
        for path in corpus:
            draws = generator(seed, f"running text of {path.name}")
            for title, text in _documents(path):
                begin, luck = draws.random(2)
                if title in demo and path.name.startswith("wiki"):
                    continue
                if len(text) > _BOOK:
                    size = int(share * len(text))
                    start = int(begin * (len(text) - size))
                    text = text[start : start + size]
                elif luck >= share:
                    continue
                out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def _texts(paragraph: str, language: str, draws: np.random.Generator) -> Iterator[str]:
    """Yield the texts of a paragraph."""
    sentences = [one for part in split_sentences(paragraph, language) if (one := part.strip())]
    at = 0
    while at < len(sentences):
        size = 1 + int(draws.choice(len(_SENTENCES), p=_SENTENCES))
        yield ("" if language == "zh" else " ").join(sentences[at : at + size])
        if not draws.integers(_CLAUSES):
            clauses = [part for part in _CLAUSE_ENDS.split(sentences[at]) if part]
            yield clauses[int(draws.integers(len(clauses)))] if clauses else ""
        at += size


def _documents(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each document."""
    with open_stream(path) as stream:
        for number, line in enumerate(stream.reader, 1):
            try:
                document = json.loads(line)
                yield document["title"].replace("\n", " "), document["text"]
            except (ValueError, TypeError, KeyError, AttributeError):
                raise BertineError(
                    f"{path}: line {number} is no document; each must be a JSON object with "
                    "'title' and 'text'"
                ) from None


def _demo_titles() -> set[str]:
    titles = set()
    for name, key in (("articles", "title"), ("subjects", "article")):
        with open_stream(_DEMO / f"{name}.jsonl.zst") as stream:
            titles |= {json.loads(line)[key] for line in stream.reader}
    return titles


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, as hex digits."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_vectors(teacher: Path, texts: Path, file: Path, less_mean: bool) -> None:
    """Write the teacher's vectors of `texts`, of length 1, as a ``.npy`` fp16 [N, D].

    Args:
        teacher: a model directory; it computes in 8 bits, which changes cosines by a thousandth.
        texts: one a line.
        file: what is written, whole or not at all.
        less_mean: subtract the mean of all vectors. Those of E5 point in nearly one direction; a
            student of what they do not share has cosines from -1 to 1.

    Raises:
        BertineError: the teacher cannot be opened; the disk is full.
    """
    embedder = bertine.Embedder.load(teacher, precision="int8")
    lines = texts.read_text(encoding="utf-8").splitlines()
    vectors = np.empty((len(lines), embedder.dimensions), np.float32)
    with progress() as bar:
        job = bar.add_task("ask the teacher", total=len(lines))
        for start in range(0, len(lines), _CHUNK):
            part = lines[start : start + _CHUNK]
            vectors[start : start + len(part)] = unit(embedder(part))
            bar.advance(job, len(part))
    if less_mean:
        vectors -= vectors.mean(0)
    with atomic_file(file) as at, open(at, "wb") as out:
        np.save(out, unit(vectors).astype(np.float16))
