"""Texts of which a vocabulary knows little, and empty ones.

What it has no pieces for becomes the unknown piece, ``[UNK]``: Chinese, Thai and emoji are all the
same to an English model, which answers without a word of complaint. Vocabularies of bytes know
every text. Of an empty text, or one of which normalization leaves nothing, there is nothing to say.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bertine.core.console import plural, visible
from bertine.data.examples import Examples
from bertine.data.lines import first_numbers
from bertine.tasks.answer import Answer
from bertine.tasks.base import Features
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram_files import SPACE

#: The share of unknown pieces from which on it is said of texts, where they are at least so many or
#: a text is mostly unknown; and from which on that is flagged.
MANY, LEAST, MOSTLY = 0.03, 10, 0.5
#: Texts with unknown pieces that are looked into, how much of each, and the characters of them that
#: are looked up and shown.
_TEXTS, _LENGTH, _LOOKED_UP, _SHOWN = 200, 2000, 200, 5
#: Pieces of an input at most that has nothing but special tokens.
_NOTHING = 4
#: Texts, or features of them, that are looked at together.
_TOGETHER = 4096
#: Lines of texts that are mostly unknown that are kept, to be named.
_LINES = 100
#: What scripts are called, by the first word of the names of their characters, where that is not
#: what people call them.
_SCRIPTS = {"CJK": "Chinese", "HANGUL": "Korean", "HIRAGANA": "Japanese", "KATAKANA": "Japanese"}
#: A character that every vocabulary with Chinese has, and the model that comes with the package.
_CHINESE, _CHINESE_MODEL = "的", "bertine-zh"


def mostly_unknown(features: Sequence[Features], tokenizer: Tokenizer) -> dict[int, float]:
    """Find the share of unknown pieces of each text of which these are most, by its row."""
    unk = tokenizer.unk_token_id
    if unk is None or not any((feature.input_ids == unk).any() for feature in features):
        return {}
    pieces, unknown = _tally(features, tokenizer)
    rows = np.flatnonzero(unknown > MOSTLY * pieces)
    return dict(zip(rows.tolist(), (unknown[rows] / pieces[rows]).tolist(), strict=True))


def _tally(features: Sequence[Features], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Count the pieces of the text of each row, special tokens and lone spaces left out, and the
    unknown ones among them."""
    unk = tokenizer.unk_token_id
    nothing = [*tokenizer.special_ids - {unk}]
    if tokenizer.keeps_spaces and (space := tokenizer.token_to_id(SPACE)) is not None:
        nothing.append(space)
    pieces: list[np.ndarray] = []
    unknown: list[np.ndarray] = []
    for start in range(0, len(features), _TOGETHER):
        some = [feature.input_ids for feature in features[start : start + _TOGETHER]]
        ids = np.concatenate(some)
        ends = np.cumsum([0, *map(len, some)])
        for counts, which in ((pieces, ~np.isin(ids, nothing)), (unknown, ids == unk)):
            counts.append(np.diff(np.concatenate([[0], np.cumsum(which)])[ends]))
    rows = [feature.row for feature in features]
    return np.bincount(rows, np.concatenate(pieces)), np.bincount(rows, np.concatenate(unknown))


def empty_rows(
    texts: Sequence[Sequence[str]], features: Sequence[Features], tokenizer: Tokenizer
) -> set[int]:
    """Find the rows without any text: neither of the two of a pair.

    Args:
        texts: of each row.
        features: one or more of each row.
        tokenizer: that made them.
    """
    empty = {row for row, parts in enumerate(texts) if not any(part.strip() for part in parts)}
    special = tokenizer.special_ids - {tokenizer.unk_token_id}
    short = [each for each in features if len(each.input_ids) <= _NOTHING]
    nothing = {each.row for each in short if special.issuperset(each.input_ids.tolist())}
    if nothing - empty:  # all features of a row have nothing but special tokens
        short_ones = {id(each) for each in short if each.row in nothing}
        nothing -= {each.row for each in features if id(each) not in short_ones}
    return empty | nothing


def with_flags(
    answers: list[Any],
    texts: Sequence[Sequence[str]],
    features: Sequence[Features],
    tokenizer: Tokenizer,
) -> list[Any]:
    """Return `answers` with the share of unknown pieces where it is of a text that is mostly
    unknown, and marked where there is no text; the arguments are those of :func:`empty_rows`."""
    for row in empty_rows(texts, features, tokenizer):
        if isinstance(answers[row], Answer):
            answers[row] = replace(answers[row], empty=True)
    for row, share in mostly_unknown(features, tokenizer).items():
        if isinstance(answers[row], Answer):
            answers[row] = replace(answers[row], unknown=share)
    return answers


class UnknownText:
    """A count of the pieces of texts that the vocabulary does not know.

    Attributes:
        texts: that were read.
        pieces: of them, without special tokens.
        unknown: of these.
        mostly: texts that are mostly unknown.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.texts = self.pieces = self.unknown = self.mostly = 0
        self._lines: list[int] = []
        self._sample: list[str] = []

    @classmethod
    def of(
        cls, examples: Examples[Any], features: Sequence[Features], tokenizer: Tokenizer
    ) -> UnknownText:
        """Count the texts of `examples`, of which `features` were made."""
        unknown = cls(tokenizer)
        unknown.count(features, [item.texts for item in examples.items])
        return unknown

    def count(
        self,
        features: Sequence[Features],
        texts: Sequence[str | Sequence[str]],
        lines: Iterable[int] | None = None,
    ) -> None:
        """Count texts.

        Args:
            features: one or more of each text, whose number their rows are.
            texts: N of them, or what belongs together of each.
            lines: of their source, one for each; None: 1, 2, ….
        """
        before, self.texts = self.texts, self.texts + len(texts)
        if self._tokenizer.unk_token_id is None or not features:
            return
        pieces, unknown = _tally(features, self._tokenizer)
        self.pieces += int(pieces.sum())
        self.unknown += int(unknown.sum())
        some = np.flatnonzero(unknown).tolist()
        if not some:
            return
        numbers = list(range(before + 1, self.texts + 1) if lines is None else lines)
        found = [numbers[row] for row in some if unknown[row] > MOSTLY * pieces[row]]
        self.mostly += len(found)
        self._lines += found[: _LINES - len(self._lines)]
        for row in some[: _TEXTS - len(self._sample)]:
            text = texts[row]
            self._sample.append((text if isinstance(text, str) else " ".join(text))[:_LENGTH])

    def read(self, texts: Sequence[str | Sequence[str]]) -> None:
        """Tokenize texts, or what belongs together of each, and count them."""
        for start in range(0, len(texts), _TOGETHER):
            some = texts[start : start + _TOGETHER]
            joined = [text if isinstance(text, str) else " ".join(text) for text in some]
            encoded = self._tokenizer.encode_arrays(joined)
            features = [Features(ids, types, at) for at, (ids, types, _) in enumerate(encoded)]
            self.count(features, joined)

    @property
    def share(self) -> float:
        """The share of the pieces that is unknown."""
        return self.unknown / max(1, self.pieces)

    def counts(self) -> dict[str, int]:
        """Return what was counted so far, for a process that goes on."""
        return {
            "texts": self.texts,
            "pieces": self.pieces,
            "unknown_pieces": self.unknown,
            "mostly_unknown": self.mostly,
        }

    def go_on(self, counts: Mapping[str, int]) -> None:
        """Take over what an earlier process has counted."""
        self.texts, self.pieces = counts.get("texts", 0), counts.get("pieces", 0)
        self.unknown = counts.get("unknown_pieces", 0)
        self.mostly = counts.get("mostly_unknown", 0)

    def note(self, what: str = "texts") -> str | None:
        """Say that many of the pieces are unknown, what that is, and what kind of model knows it;
        None where they are few. The texts are called `what`."""
        share = self.share
        if share < MANY or (self.unknown < LEAST and not self.mostly):
            return None
        name = self._tokenizer.id_to_token(self._tokenizer.unk_token_id or 0)
        characters = self._characters()
        often = sorted(characters, key=lambda each: (not _script(each), -characters[each]))
        most = ", ".join(map(visible, often[:_SHOWN]))
        shown = f"; most often {most}" if most else ""
        return (
            f"{share:.{0 if share > 0.1 else 1}%} of the pieces of the {what} are unknown to "
            f"the vocabulary (read as {name}{shown}), so texts that differ only in these look the "
            f"same to the model; {self._advice(characters)}"
        )

    def lines_for_answers(self) -> list[str]:
        """Return :meth:`note`, and a line that names the texts that are mostly unknown."""
        note = self.note()
        return [*([note] if note else []), *self._mostly()]

    def _mostly(self) -> list[str]:
        if not self.mostly:
            return []
        one = self.mostly == 1
        where = ""
        if self._lines:
            where = f" ({first_numbers(self._lines, self.mostly, 'line' if one else 'lines')})"
        return [
            f"{self.mostly:,} of {plural(self.texts, 'text')} {'is' if one else 'are'} mostly "
            f"unknown to the vocabulary{where}; what is computed of "
            f"{'it' if one else 'them'} says next to nothing"
        ]

    def _characters(self) -> Counter[str]:
        """Count the characters that are unknown, in some of the texts."""
        met = Counter("".join(self._sample))
        often = [each for each, _ in met.most_common() if not each.isspace()][:_LOOKED_UP]
        # Twice, as inside a word a character may be none of the pieces that it is at its beginning.
        pieces = self._tokenizer.encode_plain([2 * each for each in often])
        unknown = self._tokenizer.unk_token_id
        return Counter(
            {each: met[each] for each, ids in zip(often, pieces, strict=True) if unknown in ids}
        )

    def _advice(self, characters: Counter[str]) -> str:
        """Say what kind of model knows such characters."""
        if not self._sample:  # an earlier process has read them
            return "take a model of their language, or a multilingual one"
        if not characters:
            return "they are very long words, or have parts that it lacks"
        scripts = Counter[str]()
        for each, times in characters.items():
            scripts[_script(each)] += times
        script = scripts.most_common(1)[0][0]
        if script == "Chinese" and 10 * scripts["Japanese"] > scripts["Chinese"]:
            script = "Japanese"
        if not script:
            return "take a model with a vocabulary of bytes (RoBERTa's kind), which knows all signs"
        if script == "Chinese" and self._tokenizer.token_to_id(_CHINESE) is None:
            return f"take a model that knows Chinese, such as {_CHINESE_MODEL}"
        known = "these letters" if script == "Latin" else script
        return f"take a model that knows {known}: a multilingual one, or one of that language"


def _script(character: str) -> str:
    """Return what people call the script of a letter; "" for signs that are of none."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    name = unicodedata.name(character, "").split(" ")[0]
    return _SCRIPTS.get(name, name.capitalize())
