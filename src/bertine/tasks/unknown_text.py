"""Find texts that are mostly unknown to a vocabulary, and empty ones.

Text without pieces in the vocabulary becomes the unknown piece, ``[UNK]``: Chinese, Thai and emoji
are all the same to an English model, which answers without a warning. Vocabularies of bytes know
every text. An empty text, or one that is empty after normalization, has no meaningful answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bertine.core.console import plural
from bertine.core.text import visible
from bertine.data.examples import Examples
from bertine.data.languages import script_of
from bertine.data.lines import first_numbers
from bertine.tasks.answer import Answer
from bertine.tasks.base import Features
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram_files import SPACE

#: The share of unknown pieces that is reported for texts, the fewest unknown pieces for that
#: (unless a text is mostly unknown), and the share from which a text is flagged as such.
MANY, LEAST, MOSTLY = 0.03, 10, 0.5
#: The most texts with unknown pieces to examine, the most characters of each, the most characters
#: to look up, and the most to show.
_TEXTS, _LENGTH, _LOOKED_UP, _SHOWN = 200, 2000, 200, 5
#: The most pieces of an input with only special tokens.
_NOTHING = 4
#: Texts, or features of them, that are processed together.
_TOGETHER = 4096
#: The most lines of mostly unknown texts to keep, for messages.
_LINES = 100
#: A character of every vocabulary with Chinese, and the model that comes with the package.
_CHINESE, _CHINESE_MODEL = "的", "bertine-zh"


def mostly_unknown(features: Sequence[Features], tokenizer: Tokenizer) -> dict[int, float]:
    """Return the share of unknown pieces of each mostly unknown text, by its row."""
    unk = tokenizer.unk_token_id
    if unk is None or not any((feature.input_ids == unk).any() for feature in features):
        return {}
    pieces, unknown = _tally(features, tokenizer)
    rows = np.flatnonzero(unknown > MOSTLY * pieces)
    return dict(zip(rows.tolist(), (unknown[rows] / pieces[rows]).tolist(), strict=True))


def _tally(features: Sequence[Features], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Count the pieces of each row's text, without special tokens and single spaces, and the
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
    """Find the rows without any text, in pairs without both.

    Args:
        texts: of each row.
        features: one or more for each row.
        tokenizer: the one that made them.
    """
    empty = {row for row, parts in enumerate(texts) if not any(part.strip() for part in parts)}
    special = tokenizer.special_ids - {tokenizer.unk_token_id}
    short = [item for item in features if len(item.input_ids) <= _NOTHING]
    nothing = {item.row for item in short if special.issuperset(item.input_ids.tolist())}
    if nothing - empty:  # all features of a row have only special tokens
        short_ones = {id(item) for item in short if item.row in nothing}
        nothing -= {item.row for item in features if id(item) not in short_ones}
    return empty | nothing


def with_flags(
    answers: list[Any],
    texts: Sequence[Sequence[str]],
    features: Sequence[Features],
    tokenizer: Tokenizer,
) -> list[Any]:
    """Return `answers` with the share of unknown pieces where the text is mostly unknown, and a
    mark where there is no text; the arguments are those of :func:`empty_rows`."""
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
        texts: number of texts.
        pieces: of them, without special tokens.
        unknown: of the pieces.
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
        """Count the texts of `examples`, which have the `features`."""
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
            features: one or more for each text, with its index as their row.
            texts: N of them, or the texts of each example.
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
        result = [numbers[row] for row in some if unknown[row] > MOSTLY * pieces[row]]
        self.mostly += len(result)
        self._lines += result[: _LINES - len(self._lines)]
        for row in some[: _TEXTS - len(self._sample)]:
            text = texts[row]
            self._sample.append((text if isinstance(text, str) else " ".join(text))[:_LENGTH])

    def read(self, texts: Sequence[str | Sequence[str]]) -> None:
        """Tokenize texts, or the texts of each example, and count them."""
        for start in range(0, len(texts), _TOGETHER):
            some = texts[start : start + _TOGETHER]
            joined = [text if isinstance(text, str) else " ".join(text) for text in some]
            encoded = self._tokenizer.encode_arrays(joined)
            features = [Features(ids, types, at) for at, (ids, types, _) in enumerate(encoded)]
            self.count(features, joined)

    @property
    def share(self) -> float:
        """The share of unknown pieces."""
        return self.unknown / max(1, self.pieces)

    def counts(self) -> dict[str, int]:
        """Return the counts so far, for a process that continues."""
        return {
            "texts": self.texts,
            "pieces": self.pieces,
            "unknown_pieces": self.unknown,
            "mostly_unknown": self.mostly,
        }

    def go_on(self, counts: Mapping[str, int]) -> None:
        """Add the counts of an earlier process."""
        self.texts, self.pieces = counts.get("texts", 0), counts.get("pieces", 0)
        self.unknown = counts.get("unknown_pieces", 0)
        self.mostly = counts.get("mostly_unknown", 0)

    def note(self, what: str = "texts") -> str | None:
        """Return a note that many of the pieces are unknown, which characters these are, and which
        model knows them; None if they are few. The texts are called `what`."""
        share = self.share
        if share < MANY or (self.unknown < LEAST and not self.mostly):
            return None
        name = self._tokenizer.id_to_token(self._tokenizer.unk_token_id or 0)
        characters = self._characters()
        often = sorted(
            characters, key=lambda character: (not script_of(character), -characters[character])
        )
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
        """Count the unknown characters in some of the texts."""
        met = Counter("".join(self._sample))
        often = [item for item, _ in met.most_common() if not item.isspace()][:_LOOKED_UP]
        # Twice, since a character may have a piece at the beginning of a word, but not inside.
        pieces = self._tokenizer.encode_plain([2 * item for item in often])
        unknown = self._tokenizer.unk_token_id
        return Counter(
            {item: met[item] for item, ids in zip(often, pieces, strict=True) if unknown in ids}
        )

    def _advice(self, characters: Counter[str]) -> str:
        """Return advice on the kind of model that knows such characters."""
        if not self._sample:  # an earlier process has read them
            return "take a model of their language, or a multilingual one"
        if not characters:
            return "they are very long words, or have parts that it lacks"
        scripts = Counter[str]()
        for item, times in characters.items():
            scripts[script_of(item)] += times
        script = scripts.most_common(1)[0][0]
        if script == "Chinese" and 10 * scripts["Japanese"] > scripts["Chinese"]:
            script = "Japanese"
        if not script:
            return "take a model with a vocabulary of bytes (RoBERTa's kind), which knows all signs"
        if script == "Chinese" and self._tokenizer.token_to_id(_CHINESE) is None:
            return f"take a model that knows Chinese, such as {_CHINESE_MODEL}"
        known = "these letters" if script == "Latin" else script
        return f"take a model that knows {known}: a multilingual one, or one of that language"
