"""Folders of tokenizers with odd files.

The clean twin is what `transformers` reads, or the plain form of a vocab.txt that says the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from bertine.tokenization.tokenizer import Tokenizer
from mistakes.odd.models import TEXTS, silenced, sound
from mistakes.odd.tokenizer_files import BESIDE, JSONS, VOCABULARIES, Files
from mistakes.odd_files import Answer, Case


def _write_tokenizer(
    folder: Path, vocabulary: bytes | None, files: Files, saved: Any = None
) -> Path:
    folder.mkdir(parents=True)
    if vocabulary is not None:
        (folder / "vocab.txt").write_bytes(vocabulary)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    if saved is not None:
        (folder / "tokenizer.json").write_text(json.dumps(saved))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


def _ids(folder: Path) -> Any:
    return [each.input_ids for each in Tokenizer.load(folder).encode_batch(TEXTS)]


def _their_ids(folder: Path) -> Any:
    import transformers

    with silenced():
        try:
            theirs = transformers.AutoTokenizer.from_pretrained(folder)
            return [theirs(text)["input_ids"] for text in TEXTS]
        except BaseException:
            return None


def draw(draw: Random, folder: Path) -> Case:
    """Draw the files of a tokenizer: an odd vocab.txt, odd files beside a plain one, or an odd
    tokenizer.json with or without others."""
    what = draw.choice(("vocabulary", "beside", "beside", "json", "json"))
    where = folder / "odd"
    if what == "vocabulary":
        kind = draw.choice([*VOCABULARIES])
        files = BESIDE[draw.choice(("cased", "uncased"))]
        odd = _write_tokenizer(where, VOCABULARIES[kind], files)
        same = kind in (
            "CRLF",
            "byte order mark",
            "no last newline",
            "blank end",
            "blank lines",
            "CRLF, mark",
            "CR",
            "blanks behind",
            "tabs behind",
            "counts behind",
            "UTF-16",
            "latin-1",
            "quoted",
        )
        twin = (
            _ids(_write_tokenizer(folder / "clean", VOCABULARIES["plain"], files)) if same else None
        )
        shown = ""
    else:
        shown = draw.choice([*BESIDE])
        files, saved = BESIDE[shown], None
        kind = shown
        if what == "json":
            kind = draw.choice([*JSONS])
            saved = json.loads((sound() / "tokenizer.json").read_text())
            JSONS[kind](saved)
            if draw.random() < 0.5:
                shown, files = "cased", BESIDE["cased"]
        odd = _write_tokenizer(
            where, None if saved and draw.random() < 0.5 else VOCABULARIES["plain"], files, saved
        )
        twin = None
    if what == "json" and kind == "no added tokens":  # which name themselves, in brackets
        saved["added_tokens"] = json.loads((sound() / "tokenizer.json").read_text())["added_tokens"]
        theirs = _their_ids(_write_tokenizer(folder / "named", VOCABULARIES["plain"], files, saved))
    else:
        theirs = None if twin else _their_ids(odd)
    if twin is None and theirs is None:
        twin = _ids(_write_tokenizer(folder / "clean", VOCABULARIES["plain"], BESIDE["cased"]))
    choices = {
        "kind": f"{what} {kind}",
        "beside": shown,
        "twin": "ours" if theirs is None else "theirs",
    }
    return Case(choices, lambda: Answer(_ids(odd)), theirs if twin is None else twin)
