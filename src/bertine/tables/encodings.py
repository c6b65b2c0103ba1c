"""Tell in which encoding a file is that is not UTF-8 throughout, from all of its bytes.

A few bytes of a UTF-8 file may be damaged; a file in another encoding is damaged nowhere, though
none of its letters is UTF-8. Which it is, the whole file tells: its words are priced in every
encoding (:mod:`bertine.tables.alphabets`), as UTF-8 with its damage too, and the cheapest one is
that of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bertine.tables.alphabets import ENCODINGS, LONGEST_WORD, Encoding

_REPLACEMENT = "\ufffd"
#: How encodings of East Asia in bytes of ASCII begin other characters (ISO-2022), and the names of
#: those by what follows.
ESCAPE = b"\x1b$"
_ESCAPED = {b"B": "ISO-2022-JP", b"@": "ISO-2022-JP", b")C": "ISO-2022-KR", b")A": "ISO-2022-CN"}
#: Words are what stands between characters that are a part of no other one in any encoding: space,
#: digits, quotes, commas.
_WORDS = re.compile(rb"[\x40-\xff]+")
#: Of words in UTF-8, and of others, so many bytes of different ones are kept, among so many.
_KEPT, _LOOKED_AT = 1 << 14, 1 << 17
#: The beginning of a file, which tells UTF-16.
_HEAD = 1 << 13
#: Bits for a byte that is not UTF-8, and for characters of two to four bytes that are.
_DAMAGE, _VALID = 20.0, {2: 5.0, 3: 9.0, 4: 12.0}
#: The share of a text's characters in UTF-16 that is usual in some language; of a short one's; and
#: of one's in UTF-32 that can be printed.
_KNOWN, _KNOWN_FEW, _KNOWN_ALL = 0.4, 0.75, 0.9
#: Bits that speak against an encoding of East Asia without a single usual character.
_NONE_USUAL = 20.0
#: Of the characters of a text so many may be none that its encoding would have there.
_WRONG_SHARE = 1 / 15
#: Another encoding is named besides, where it is worse by so many bits, or that share of them.
_CLOSE, _CLOSE_SHARE = 8.0, 0.05
#: So many damaged characters are few in a text of so many times as many, whatever they are.
_FEW, _FEW_OF_TEXT = 3, 1 / 1000
#: If no other encoding gives a better text, damaged characters are few, too, up to this share of
#: those beyond ASCII; where there are no others, of all.
_FEW_BEYOND, _FEW_OF_ALL = 0.25, 0.12
#: So many are needed to say what they look like, where others are UTF-8.
_TELLING = 10
#: What old databases and Java write in UTF-8's place for an emoji: its two surrogates, each as if
#: it were a character. They are damaged UTF-8, and nothing else.
_SURROGATES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


@dataclass(frozen=True)
class Finding:
    """What a file is that is not UTF-8.

    Attributes:
        encodings: that fit, the best one first; none, where none of those known here does.
        mixed: UTF-8 in some places and not in others; `encodings` fit the others.
        damaged, beyond: how many characters are not UTF-8, and how many are not ASCII.
        example: a word by which the encodings differ.
    """

    encodings: tuple[Encoding, ...]
    mixed: bool
    damaged: int
    beyond: int
    example: bytes = b""

    def __str__(self) -> str:
        if not self.encodings:
            return "none known here"
        names = [encoding.name for encoding in self.encodings]
        if len(names) > 1:
            read = (self.example.decode(e.codec, "replace") for e in self.encodings)
            names = [f"{name} ({word!r})" for name, word in zip(names, read, strict=True)]
        return " or ".join(names)


@dataclass
class _Evidence:
    """What the bytes of a file tell: counts of all of it, and some of its words."""

    characters: int = 0
    beyond: int = 0
    damaged: int = 0
    head: bytes = b""
    escaped: str = ""
    valid_words: dict[bytes, None] = field(default_factory=dict)
    other_words: dict[bytes, None] = field(default_factory=dict)
    _room: list[int] = field(default_factory=lambda: [_KEPT, _KEPT])
    _looked_at: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def enough(self) -> bool:
        """Whether more of the file would not change the answer."""
        return bool(self.escaped) or (self._room[1] <= 0 and self.damaged > self.beyond / 2)

    def add(self, block: bytes) -> None:
        """Count a part of the file that ends where a line does."""
        if len(self.head) < _HEAD:
            self.head += block[: _HEAD - len(self.head)]
        if block.isascii():
            self.characters += len(block)
            if ESCAPE in block:
                behind = block.partition(ESCAPE)[2]
                self.escaped = next((n for b, n in _ESCAPED.items() if behind.startswith(b)), "")
            return
        text = block.decode("utf-8", "replace")
        damaged = text.count(_REPLACEMENT) - block.count(_REPLACEMENT.encode())
        self.characters += len(text)
        self.beyond += len(text) - len(text.encode("ascii", "ignore"))
        self.damaged += damaged
        if self._room[0] > 0 or (damaged and self._room[1] > 0):
            for match in _WORDS.finditer(_SURROGATES.sub(b"", block) if damaged else block):
                word = match[0][:LONGEST_WORD]
                if not word.isascii():
                    self._keep(word)

    def _keep(self, word: bytes) -> None:
        # A longer one is cut, perhaps within its last character.
        end = 3 if len(word) == LONGEST_WORD else 0
        try:
            word.decode("utf-8")
            valid = True
        except UnicodeDecodeError as error:
            valid = error.start >= len(word) - end and error.reason == "unexpected end of data"
        words, at = (self.valid_words, 0) if valid else (self.other_words, 1)
        self._looked_at[at] += 1
        if self._looked_at[at] == _LOOKED_AT:
            self._room[at] = 0
        if self._room[at] > 0 and word not in words:
            words[word] = None
            self._room[at] -= len(word)


def other_encoding(blocks: Iterable[bytes]) -> Finding | None:
    """Tell in which encoding a file is; None: in UTF-8, and at most a few bytes are damaged.

    Args:
        blocks: all of its bytes, in parts that end where lines do.
    """
    evidence = _Evidence()
    for block in blocks:
        evidence.add(block)
        if evidence.enough:
            break
    if evidence.escaped:
        escaped = Encoding(evidence.escaped.lower(), evidence.escaped, "")
        return Finding((escaped,), False, 0, 0)
    if wide := _of_two_bytes(evidence.head):
        return Finding((wide,), False, evidence.damaged, evidence.beyond)
    if evidence.damaged <= _FEW and evidence.damaged <= evidence.characters * _FEW_OF_TEXT:
        return None
    if not evidence.other_words:
        return None  # nothing but surrogates
    words = [*evidence.valid_words, *evidence.other_words]
    fitting, example = _fitting(words)
    if fitting:
        return Finding(fitting, False, evidence.damaged, evidence.beyond, example)
    valid = evidence.beyond - evidence.damaged
    share = evidence.damaged / (evidence.beyond if valid else evidence.characters)
    if evidence.damaged <= _FEW or share <= (_FEW_BEYOND if valid else _FEW_OF_ALL):
        return None
    fitting, example = (), b""
    if evidence.damaged >= _TELLING:
        fitting, example = _fitting([*evidence.other_words])
    if not fitting and evidence.damaged <= evidence.characters * _FEW_OF_TEXT:
        return None
    return Finding(fitting, bool(valid), evidence.damaged, evidence.beyond, example)


def _fitting(words: list[bytes]) -> tuple[tuple[Encoding, ...], bytes]:
    """Find the encodings that give a better text than UTF-8 with damaged bytes, the best one first,
    and a word that they read differently."""
    most = sum(map(_price_in_utf8, words))
    prices: list[tuple[float, Encoding]] = []
    for encoding in ENCODINGS:
        price, beyond, wrong = encoding.prior, 0, 0
        for word in words:
            bits, characters, misplaced = encoding.price(word)
            price, beyond, wrong = price + bits, beyond + characters, wrong + misplaced
            if price > most:
                break
        if encoding.wide and not _has_usual(encoding, words):
            price += _NONE_USUAL
        if price <= most and wrong <= beyond * _WRONG_SHARE:
            prices.append((price, encoding))
    if not prices:
        return (), b""
    prices.sort(key=lambda pair: pair[0])
    lowest, best = prices[0]
    for price, encoding in prices[1:]:
        if price > lowest + max(_CLOSE, _CLOSE_SHARE * lowest):
            break
        if encoding.codec == best.codec:
            continue  # in another language
        for word in words:
            if word.decode(best.codec, "replace") != word.decode(encoding.codec, "replace"):
                return (best, encoding), word
    return (best,), b""


def _has_usual(encoding: Encoding, words: Sequence[bytes]) -> bool:
    """Tell whether a character of some word is usual in an encoding."""
    usual = {*encoding.usual}
    return any(not usual.isdisjoint(word.decode(encoding.codec, "replace")) for word in words)


def _price_in_utf8(word: bytes) -> float:
    bits = 0.0
    for character in word.decode("utf-8", "replace"):
        if character == _REPLACEMENT:
            bits += _DAMAGE
        elif not character.isascii():
            bits += _VALID[len(character.encode())]
    return bits


def _of_two_bytes(head: bytes) -> Encoding | None:
    """Tell UTF-16 or UTF-32 without a mark by the beginning of a file: it has NULs, and read so
    nearly all is usual."""
    if b"\0" not in head:
        return None
    usual = {character for encoding in ENCODINGS for character in encoding.usual}
    for codec in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        text = head[: len(head) // 4 * 4].decode(codec, "replace")
        # Hardly any four bytes are a character of UTF-32, but any two are one of UTF-16.
        every = codec.startswith("utf-32")
        known = sum(
            c in "\r\n\t"
            or (
                (c.isprintable() and c != _REPLACEMENT)
                and (every or c.isascii() or c in usual or "\u3000" <= c <= "\u30ff")
            )
            for c in text
        )
        least = _KNOWN_ALL if every else _KNOWN_FEW if len(text) < 32 else _KNOWN
        if known > least * len(text) > 0:
            name = codec[:6].upper()
            marked = head.startswith((b"\xff\xfe", b"\xfe\xff"))
            return Encoding(codec, name if marked else f"{name} without a mark", "")
    return None
