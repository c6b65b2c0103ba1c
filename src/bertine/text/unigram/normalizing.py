"""What a Unigram tokenizer does to a text before it looks for pieces, as parts of a
tokenizer.json: made for ALBERT, XLM-R and new vocabularies, and checked where a file has them."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.terminal.text import shortened
from bertine.text.unigram.charsmap import check_charsmap
from bertine.text.unigram.layouts import SPACE

#: The regular expressions that files have: several spaces in a row, and other white space.
_SPACES = " {2,}"
_EXPRESSIONS = (_SPACES, r"\s{2,}|[\n\r\t]")

#: Steps that have no settings.
PLAIN = {"NFC", "NFD", "NFKC", "NFKD", "Nmt", "StripAccents", "Lowercase"}

#: Steps of a normalization.
_MOST_STEPS = 32
#: What to do with a file that does something else.
_HINT = "give a tokenizer as ALBERT or XLM-R have it"

Part = dict[str, Any]


def _replace(old: str, new: str) -> Part:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def albert_steps(charsmap: bytes, *, lowercase: bool, strip_accents: bool) -> Part:
    """Return ALBERT's normalization (google-research/albert, ``tokenization.py``,
    ``preprocess_text``; then sentencepiece's own).

    Args:
        charsmap: the table of sentencepiece; empty: NFKC, which it is for nearly all characters.
        lowercase: one case.
        strip_accents: remove accents.
    """
    steps = [_replace("``", '"'), _replace("''", '"')]
    if not charsmap:
        steps.append({"type": "Nmt"})
    if strip_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        steps.append({"type": "Lowercase"})
    steps.append(_precompiled(charsmap) if charsmap else {"type": "NFKC"})
    steps.append({"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "})
    return {"type": "Sequence", "normalizers": steps}


def plain_steps(charsmap: bytes, *, lowercase: bool = False) -> Part | None:
    """Return the normalization of XLM-R, CamemBERT and DeBERTa-v3: sentencepiece's own.

    Args:
        charsmap: the table of sentencepiece; empty: characters stay as they are.
        lowercase: one case, before that.
    """
    table = _precompiled(charsmap) if charsmap else None
    if not lowercase:
        return table
    steps = [{"type": "Lowercase"}, *([table] if table else [])]
    return {"type": "Sequence", "normalizers": steps}


def _precompiled(charsmap: bytes) -> Part:
    text = base64.b64encode(charsmap).decode("ascii")
    return {"type": "Precompiled", "precompiled_charsmap": text}


def word_splitting() -> Part:
    """Return the division into words: at white space, with ``▁`` in front of each."""
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}


def steps_of(normalizer: Part | None) -> list[Part]:
    """Return the single steps of a normalization."""
    if normalizer is None:
        return []
    if normalizer.get("type") == "Sequence":
        return list(normalizer["normalizers"])
    return [normalizer]


def check_normalizer(file: Path, normalizer: Any) -> None:
    """Refuse a normalization with steps that are not known: they may make any text longer without
    end, or take any time.

    Raises:
        BertineError: there is such a step.
    """
    if normalizer is None:
        return
    steps = [normalizer]
    if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence":
        steps = normalizer.get("normalizers", [])
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise BertineError(
            f"{file}: its normalizer must be a list of at most {_MOST_STEPS} steps; {_HINT}"
        )
    for step in steps:
        kind = step.get("type") if isinstance(step, dict) else None
        if not isinstance(kind, str):
            kind = None
        if kind in PLAIN or (kind == "Replace" and _may_replace(step)):
            continue
        if kind == "Strip" and all(
            isinstance(step.get(name), bool) for name in ("strip_left", "strip_right")
        ):
            continue
        if kind != "Precompiled":
            raise BertineError(
                f"{file}: its normalizer has the step {shortened(str(kind or 'missing'), 80)}, "
                f"which Bertine does not know in this form; {_HINT}"
            )
        text = step.get("precompiled_charsmap")
        try:
            raw = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
        except (binascii.Error, ValueError) as error:
            raise BertineError(
                f"{file}: precompiled_charsmap is not base64; copy or download it again"
            ) from error
        check_charsmap(raw, file)


def _may_replace(step: Part) -> bool:
    """Tell whether a replacement makes no text longer."""
    pattern, content = step.get("pattern"), step.get("content")
    if not isinstance(pattern, dict) or len(pattern) != 1 or not isinstance(content, str):
        return False
    ((kind, old),) = pattern.items()
    if kind == "Regex":
        return old in _EXPRESSIONS and content in (" ", SPACE)
    return kind == "String" and isinstance(old, str) and 0 < len(content) <= len(old)


def keeps_to_words(normalizer: Part | None) -> bool:
    """Tell whether a word is normalized alike wherever it stands between spaces. To strip a text
    changes no word: one is put a space in front of anyway."""
    for step in steps_of(normalizer):
        if step["type"] == "Replace":
            pattern = step["pattern"]
            if pattern.get("Regex") in _EXPRESSIONS and step["content"] == " ":
                continue
            if any(c.isspace() or c == SPACE for c in pattern.get("String", " ") + step["content"]):
                return False
    return True


def check_pre_tokenizer(file: Path, part: Any) -> None:
    """Refuse a division into words that is neither at white space nor at ``▁`` alone.

    Raises:
        BertineError: it is another one.
    """
    parts = part
    if isinstance(part, dict):
        parts = part.get("pretokenizers") if part.get("type") == "Sequence" else [part]
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        parts = []
    kinds = [part.get("type") for part in parts]
    if kinds not in (["WhitespaceSplit", "Metaspace"], ["Metaspace"]):
        raise BertineError(
            f"{file}: its pre_tokenizer is {shortened(_kinds(kinds), 80)}, not WhitespaceSplit "
            f"and Metaspace; {_HINT}"
        )
    space = parts[-1]
    if (
        space.get("replacement", SPACE) != SPACE
        or space.get("prepend_scheme", "always") != "always"
        or space.get("add_prefix_space", True) is not True
        or space.get("split", True) is not True
    ):
        raise BertineError(
            f"{file}: its Metaspace must put {SPACE} in front of every word and split there; "
            f"{_HINT}"
        )


def _kinds(kinds: list[Any]) -> str:
    return " and ".join(str(kind) for kind in kinds) or "missing"
