"""Detect the encoding of a file that is not UTF-8 throughout, and text that was encoded twice.

A UTF-8 file may have a few damaged bytes; a file in another encoding has no damage, but none of its
letters beyond ASCII is UTF-8. So the whole file is used: its words are priced in every encoding,
and also as damaged UTF-8, and the cheapest encoding is the file's.
"""

from __future__ import annotations

import codecs
import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from encodings.aliases import aliases
from functools import cached_property
from typing import Any

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.text import briefly

# Names of encodings.

#: Byte order marks, and the encodings that they tell; that of UTF-32 begins with that of UTF-16.
MARKS = {
    "utf-8": b"\xef\xbb\xbf",
    "utf-32-le": b"\xff\xfe\0\0",
    "utf-32-be": b"\0\0\xfe\xff",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "gb18030": b"\x84\x31\x95\x33",
}
#: Encodings with a mark.
_MARKED = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
#: Encodings by whose names programs, above all on Windows, call one that has more characters.
_LARGER = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "cp950",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}


def find_codec(name: str) -> tuple[str, bool]:
    """Return Python's codec for the name of an encoding, and whether the name asks for a byte order
    mark.

    Raises:
        BertineError: there is no such encoding of text.
    """
    try:
        "".encode(name)
        codec = codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        near = difflib.get_close_matches(name.lower(), {*aliases, *aliases.values()}, 1)
        hint = f"did you mean {near[0]}" if near else "there are utf-8, cp1252, gb18030, …"
        raise BertineError(f"the encoding {briefly(name)} is not known ({hint})") from error
    return _MARKED.get(codec) or _LARGER.get(codec, codec), codec in _MARKED


def kept_bytes(codec: str) -> str:
    """Return the error handler that keeps bytes which are not of an encoding, from it to UTF-8 and
    back. In UTF-16 and UTF-32 only halves of pairs can be kept."""
    return "surrogatepass" if codec.startswith(("utf-16", "utf-32")) else "surrogateescape"


# Encodings other than UTF-8, and how well their characters fit a word.
#
# Every encoding decodes almost any bytes to some text; the right one gives the letters that its
# languages use most. So the price of a word in an encoding is the number of bits that its
# characters take by Zipf's law: few for a frequent letter, many for a rare one, for a sign inside a
# word, or for a capital after a small letter.

#: Letters of languages by approximate frequency: German, French, Spanish, Portuguese, Italian,
#: Scandinavian and Icelandic, all of them.
_WEST = (
    "äüöß",
    "éèàêçâîôùûïëœ",
    "áíóéñúü",
    "ãçáéêíóõâúàô",
    "èàùòìé",
    "äöåøæéü",
    "íáðóéúöæþý",
    "éäüöàèßçêáóíñãåôâøúîæëùïòìœðþý",
)
#: Polish, Czech and Slovak, Hungarian, Romanian, those of former Yugoslavia.
_CENTRAL = ("łąęóśżćńź", "íáéěřčšžýůúňťďóäôľĺŕ", "áéőöóíüűú", "ăîâşţ", "čšžćđ")
_BALTIC = ("ėšųįžąčūę", "āīēšūņļķģčž", "äõüöšž")
_TURKISH = ("ıüğşöçİâîû",)
_CYRILLIC = "оеаинтсрвлкмдпуяызьбгчйхжшюцщэфёъіїєґўјљњћђџ"
_GREEK = "αοιετσνηυρπκλμωςίόθήγδάέχύφώβξζψϊϋΐΰ"
_HEBREW = "יוהלארתבמשנכעדחקפסטגצםזןךףץ"
_ARABIC = "ايلمنوترهبدسعفقكحجشةصخطضذزظغثأإىئءآؤپچژگ"
_THAI = "านรอกเง่มยล้วดทสตัะปบิีคหุูแจพชขใไ็์ืำโผซณถธภศษญฐๆฟฉฮฤึ๊๋"
_JAPANESE = (
    "日本人年大一国会中生月時行出見上者分間事自前社学後長今子気地手場合部方入高小同思東目力話二山名内十何"
    "体性動市新対女明電来金品届配送物商買使注文返信良悪早遅対応的不用家感私最当度通回無立点安全多少々度"
    "心残念質値段店員味美海外料理面白楽映画作字読書音声客発着箱開取付色形型式便利満足期待買購評価星普"
)
_SIMPLIFIED = (
    "的一是不了在有人我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过后作里"
    "用道行所然家种事成方多经去法学如都同现当没动面起看定天分还进好小部其些主样心前已从无物很快太差错买"
    "东西质量服务喜欢客货速递价格便宜满意商品卖店送收再次等给真的话点开本新手机问题高低最色号包装退换态度"
    "文类别名标签情感正负内容词句电影书酒房间早餐味吃菜老板推荐非常感觉比较还行一般今实使机意长公司理性只"
    "想外总它爱第什么怎两三四五六七八九十"
)
_TRADITIONAL = (
    "的一是不了在有人我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過後作裡"
    "用道行所然家種事成方多經去法學如都同現當沒動面起看定天分還進好小部其些主樣心前已從無物很快太差錯買"
    "東西質量服務喜歡客貨速遞價格便宜滿意商品賣店送收再次等給真話點開本新手機問題高低最色號包裝退換態度文"
    "類別名標籤情感正負內容詞句電影書房間早餐味吃菜老闆推薦非常覺比較般今實使長公司理性只想外總它愛第什麼"
)
_KOREAN = (
    "이다는에의가고을하지도로기나한은서사들리어아자인를그대해수시정라있스일으보부제주전상여게만구비원과우니"
    "장마소드안요면거동조성공오국위계신세연선유었내화데렇습개때러없했문생것분미치영네와중적발재할모음관단진"
    "무추트합학간방양결말입반실강된같못더물품좋은싫빠르배송늦너맛없점질격값샀최악굿짱별불만족감경체험파민호"
)
#: Signs in texts of all these languages, the frequent ones first; and those that may be between two
#: letters.
_SIGNS = "’“”–‘…—„«»€°£•´\xa0§©®™·№¿¡º½ªµ²³±×¼¾¢¥‚‹›†‡¦¨¬¯¶¸¹÷‰"
_INSIDE = "’´·\xa0–—…‘"
_CJK_SIGNS = "，。、！？：；“”（）《》「」…—·・ー～【】『』‘’％　"

#: Bits of: an invalid character, a letter that the language hardly uses, a capital, a capital after
#: a small letter, two adjacent letters beyond ASCII where those are rare, a word of only such
#: letters, letters of two alphabets in a word, an East Asian character between ASCII letters.
_WRONG, _RARE, _CAPITAL, _INNER_CAPITAL = 20.0, 12.0, 2.0, 6.0
_TWO_ACCENTS, _ALL_ACCENTS, _TWO_SCRIPTS, _INSIDE_A_WORD = 8.0, 10.0, 10.0, 8.0


#: Words are cut to this number of bytes.
LONGEST_WORD = 60


@dataclass(frozen=True)
class Encoding:
    """An encoding, and the usual characters of texts of one language in it.

    Attributes:
        codec: Python's name.
        name: the name in messages.
        usual: its letters or characters, the most frequent one first.
        prior: bits added against it, so that one odd byte does not make a text of a rare kind.
        latin: whether its letters are mixed with those of ASCII.
        wide: for East Asia: the codec and the first bytes of its more frequent characters.
    """

    codec: str
    name: str
    usual: str = field(repr=False)
    prior: float = 30.0
    latin: bool = False
    wide: tuple[str, int, int] | None = None

    @cached_property
    def _bits(self) -> dict[str, float]:
        base = 3.2 if self.wide else 1.5
        bits = {sign: 5 + math.log2(rank + 2) / 2 for rank, sign in enumerate(_SIGNS)}
        if self.wide:
            bits |= dict.fromkeys(_CJK_SIGNS, 4.5)
        for rank, letter in enumerate(dict.fromkeys(self.usual)):
            bits[letter] = base + math.log2(rank + 2)
            if len(letter.upper()) == 1:
                bits.setdefault(letter.upper(), bits[letter])
        if not self.wide:
            # The last byte is a letter only in Cyrillic; in damaged files it is frequent.
            last = b"\xff".decode(self.codec, "replace")
            if self.latin or not last.isalpha():
                bits[last] = _WRONG
        return bits

    def price(self, word: bytes) -> tuple[float, int, int]:
        """Return the bits of a word, its number of characters beyond ASCII, and the number of those
        that no text of this kind would have in that place."""
        text = word.decode(self.codec, "replace")
        if self.wide and text.endswith("\ufffd") and len(word) >= LONGEST_WORD:
            text = text[:-1]  # cut in the middle of a character
        bits, beyond, wrong = 0.0, 0, 0
        for at, character in enumerate(text):
            if character.isascii():
                continue
            beyond += 1
            price = self._bits.get(character)
            if price is None:
                price = self._unusual_wide(character) if self.wide else _unusual(character)
            price += self._between(text, at) if self.wide else self._neighbours(text, at)
            bits += price
            wrong += price >= _WRONG
        if self.latin and beyond > 1 and not any(c.isascii() and c.isalpha() for c in text):
            bits += _ALL_ACCENTS
        return bits, beyond, wrong

    def _unusual_wide(self, character: str) -> float:
        """Return the bits of a character that is not one of the usual ones."""
        if not self.wide or character == "\ufffd" or "\ue000" <= character <= "\uf8ff":
            return _WRONG
        if self.usual is _JAPANESE and "\u3040" <= character <= "\u30ff":
            return 5.5
        codec, first, last = self.wide
        try:
            frequent = first <= character.encode(codec)[0] <= last
        except UnicodeEncodeError:
            frequent = False
        return 13.0 if frequent else 18.0

    @staticmethod
    def _between(text: str, at: int) -> float:
        """Return the bits for ASCII letters on both sides of an East Asian character."""
        extra = text[max(0, at - 1) : at], text[at + 1 : at + 2]
        return _INSIDE_A_WORD * all(other.isascii() and other.isalpha() for other in extra)

    def _neighbours(self, text: str, at: int) -> float:
        """Return the bits for the neighbours of a character."""
        character = text[at]
        before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
        if not _is_letter(character):
            inside = before.isalpha() and after.isalpha() and character not in _INSIDE
            return _WRONG if inside else 0.0
        bits = 0.0
        if character.isupper() and not before.isupper():
            bits = _INNER_CAPITAL if before.islower() else _CAPITAL
        if self.latin:
            return bits + _TWO_ACCENTS * (before.isalpha() and not before.isascii())
        mixed = sum(other.isalpha() and other.isascii() for other in (before, after))
        return bits + _TWO_SCRIPTS * mixed


def _unusual(character: str) -> float:
    """Return the bits of a letter that is not one of the usual ones."""
    return _RARE if character != "\ufffd" and _is_letter(character) else _WRONG


def _is_letter(character: str) -> bool:
    return character.isalpha() or unicodedata.category(character)[0] == "M"


#: Python's name, the name in messages, the languages, and the bits against it.
_LATIN: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("cp1252", "cp1252", _WEST, 0.0),
    ("iso8859-15", "ISO-8859-15", _WEST, 6.0),
    ("cp1250", "cp1250", _CENTRAL, 6.0),
    ("iso8859-2", "ISO-8859-2", _CENTRAL, 10.0),
    ("cp1254", "cp1254", _TURKISH, 8.0),
    ("cp1257", "cp1257", _BALTIC, 8.0),
    ("mac-roman", "Mac Roman", _WEST, 10.0),
    ("cp850", "cp850", _WEST, 10.0),
    ("cp852", "cp852", _CENTRAL, 14.0),
)
ENCODINGS: Sequence[Encoding] = (
    *(
        Encoding(codec, name, usual, prior, latin=True)
        for codec, name, languages, prior in _LATIN
        for usual in languages
    ),
    Encoding("cp1251", "cp1251", _CYRILLIC),
    Encoding("koi8-r", "KOI8-R", _CYRILLIC),
    Encoding("koi8-u", "KOI8-U", _CYRILLIC, 34.0),
    Encoding("cp866", "cp866", _CYRILLIC),
    Encoding("iso8859-5", "ISO-8859-5", _CYRILLIC, 34.0),
    Encoding("mac-cyrillic", "Mac Cyrillic", _CYRILLIC, 40.0),
    Encoding("cp1253", "cp1253", _GREEK, 34.0),
    Encoding("cp1255", "cp1255", _HEBREW),
    Encoding("cp1256", "cp1256", _ARABIC),
    Encoding("cp874", "cp874", _THAI),
    Encoding("gb18030", "GB18030 (GBK)", _SIMPLIFIED, 10.0, wide=("gb2312", 0xB0, 0xD7)),
    Encoding("cp950", "Big5", _TRADITIONAL, 10.0, wide=("big5", 0xA4, 0xC6)),
    Encoding("cp932", "Shift-JIS", _JAPANESE, 10.0, wide=("euc_jp", 0xB0, 0xCF)),
    Encoding("euc_jp", "EUC-JP", _JAPANESE, 10.0, wide=("euc_jp", 0xB0, 0xCF)),
    Encoding("cp949", "EUC-KR", _KOREAN, 10.0, wide=("euc_kr", 0xB0, 0xC8)),
)


REPLACEMENT = "\ufffd"
#: The escape sequence of East Asian encodings in ASCII bytes (ISO-2022), and their names by the
#: bytes after it.
ESCAPE = b"\x1b$"
_ESCAPED = {b"B": "ISO-2022-JP", b"@": "ISO-2022-JP", b")C": "ISO-2022-KR", b")A": "ISO-2022-CN"}
#: Words are the bytes between characters that are not part of another one in any encoding: space,
#: digits, quotes, commas.
_WORDS = re.compile(rb"[\x40-\xff]+")
#: Bytes of different words that are kept, for words in UTF-8 and for others; bytes examined.
_KEPT, _LOOKED_AT = 1 << 14, 1 << 17
#: The beginning of a file, which is enough to detect UTF-16.
_HEAD = 1 << 13
#: Bits for a byte that is not UTF-8, and for valid characters of two to four bytes.
_DAMAGE, _VALID = 20.0, {2: 5.0, 3: 9.0, 4: 12.0}
#: Least share of a text's characters in UTF-16 that must be usual in some language; that of a short
#: text; the share of printable characters in UTF-32; and that of ASCII in UTF-16 from which on any
#: character of East Asia is usual, if lines end in ASCII too.
_KNOWN, _KNOWN_FEW, _KNOWN_ALL, _ASCII = 0.4, 0.75, 0.9, 0.2
#: The first words, and how many times the least bits for them, and these more, are too many.
_FIRST_WORDS, _FAR, _FAR_BITS = 60, 1.6, 150.0
#: Bits against an East Asian encoding without a single usual character.
_NONE_USUAL = 20.0
#: Most characters of a text, as a share, that may be wrong in its encoding.
_WRONG_SHARE = 1 / 15
#: Most bits of a character beyond ASCII, on average, in an encoding of letters. There is doubt
#: about one with more: signs and rare letters may be any text, above all one of East Asia.
_MOST_BITS = 7.0
#: A second encoding is named, too, if it is worse by at most these bits, or this share of the bits
#: of the words that it decodes differently.
_CLOSE, _CLOSE_SHARE = 14.0, 0.1
#: Most damaged characters that count as few, and their largest share of the text.
FEW, FEW_OF_TEXT = 3, 1 / 1000
#: If no other encoding gives a better text, damaged characters count as few up to this share of
#: those beyond ASCII; if there are no others, of all characters.
_FEW_BEYOND, _FEW_OF_ALL = 0.25, 0.12
#: Fewest damaged characters needed to name their encoding if others are UTF-8.
_TELLING = 10
#: CESU-8, which old databases and Java write for an emoji: its two surrogates, each encoded as a
#: character. It is damaged UTF-8, not another encoding.
_SURROGATES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")


@dataclass(frozen=True)
class Finding:
    """The encoding of a file that is not UTF-8.

    Attributes:
        encodings: those that fit, the best one first; empty if no known encoding fits.
        mixed: UTF-8 in some places only; `encodings` fit the others.
        damaged, beyond: number of characters that are not UTF-8, and of those that are not ASCII.
        example: a word that the encodings decode differently.
        sure: whether it is without doubt the one in `encodings`.
    """

    encodings: tuple[Encoding, ...]
    mixed: bool
    damaged: int
    beyond: int
    example: bytes = b""
    sure: bool = False

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
    """The evidence in a file's bytes: counts over all of it, and some of its words."""

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
        """Count a block of the file that ends at a line end."""
        if len(self.head) < _HEAD:
            self.head += block[: _HEAD - len(self.head)]
        if block.isascii():
            self.characters += len(block)
            if ESCAPE in block:
                behind = block.partition(ESCAPE)[2]
                self.escaped = next((n for b, n in _ESCAPED.items() if behind.startswith(b)), "")
            return
        text = block.decode("utf-8", "replace")
        damaged = text.count(REPLACEMENT) - block.count(REPLACEMENT.encode())
        self.characters += len(text)
        self.beyond += len(text) - len(text.encode("ascii", "ignore"))
        self.damaged += damaged
        if self._room[0] > 0 or (damaged and self._room[1] > 0):
            for match in _WORDS.finditer(_SURROGATES.sub(b"", block) if damaged else block):
                word = match[0][:LONGEST_WORD]
                if not word.isascii():
                    self._keep(word)

    def _keep(self, word: bytes) -> None:
        # A longer word is cut, perhaps in the middle of a character.
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
    """Detect the encoding of a file; None if it is UTF-8 with at most a few damaged bytes.

    Args:
        blocks: all of its bytes, in blocks that end at line ends.
    """
    evidence = _Evidence()
    for block in blocks:
        evidence.add(block)
        if evidence.enough:
            break
    if evidence.escaped:
        escaped = Encoding(evidence.escaped.lower(), evidence.escaped, "")
        return Finding((escaped,), False, 0, 0, sure=True)
    if wide := _of_two_bytes(evidence.head):
        return Finding((wide,), False, evidence.damaged, evidence.beyond, sure=True)
    if evidence.damaged <= FEW and evidence.damaged <= evidence.characters * FEW_OF_TEXT:
        return None
    if not evidence.other_words:
        return None  # only surrogates
    words = [*evidence.valid_words, *evidence.other_words]
    fitting, example, sure = _fitting(words)
    if fitting:
        return Finding(fitting, False, evidence.damaged, evidence.beyond, example, sure)
    valid = evidence.beyond - evidence.damaged
    share = evidence.damaged / (evidence.beyond if valid else evidence.characters)
    if evidence.damaged <= FEW or share <= (_FEW_BEYOND if valid else _FEW_OF_ALL):
        return None
    fitting, example = (), b""
    if evidence.damaged >= _TELLING:
        fitting, example, _ = _fitting([*evidence.other_words])
    if not fitting and evidence.damaged <= evidence.characters * FEW_OF_TEXT:
        return None
    return Finding(fitting, bool(valid), evidence.damaged, evidence.beyond, example)


def _fitting(words: list[bytes]) -> tuple[tuple[Encoding, ...], bytes, bool]:
    """Find the encodings that give a better text than UTF-8 with damaged bytes, the best one first,
    a word that they decode differently, and whether there is no doubt about a single one."""
    most = sum(map(_price_in_utf8, words))
    prices: list[tuple[float, Encoding]] = []
    odd: set[Encoding] = set()
    # Most are far too expensive after a few words.
    first = [
        sum((encoding.price(word)[0] for word in words[:_FIRST_WORDS]), encoding.prior)
        for encoding in ENCODINGS
    ]
    for encoding, begun in zip(ENCODINGS, first, strict=True):
        if begun > _FAR * min(first) + _FAR_BITS:
            continue
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
            if not encoding.wide and price - encoding.prior > _MOST_BITS * beyond:
                odd.add(encoding)
    if not prices:
        return (), b"", False
    prices.sort(key=lambda pair: pair[0])
    lowest, best = prices[0]
    for price, encoding in prices[1:]:
        if price > lowest + max(_CLOSE, _CLOSE_SHARE * lowest):
            break
        if encoding.codec == best.codec:
            continue  # in another language
        other = [
            word
            for word in words
            if word.decode(best.codec, "replace") != word.decode(encoding.codec, "replace")
        ]
        bits = sum(best.price(word)[0] for word in other)
        if other and price <= lowest + max(_CLOSE, _CLOSE_SHARE * bits):
            return (best, encoding), other[0], False
    return (best,), b"", best not in odd


def _has_usual(encoding: Encoding, words: Sequence[bytes]) -> bool:
    """Return whether some word has a usual character of an encoding."""
    usual = {*encoding.usual}
    return any(not usual.isdisjoint(word.decode(encoding.codec, "replace")) for word in words)


def _price_in_utf8(word: bytes) -> float:
    bits = 0.0
    for character in word.decode("utf-8", "replace"):
        if character == REPLACEMENT:
            bits += _DAMAGE
        elif not character.isascii():
            bits += _VALID[len(character.encode())]
    return bits


def _of_two_bytes(head: bytes) -> Encoding | None:
    """Detect UTF-16 or UTF-32 without a mark from the beginning of a file: it has NULs, and decoded
    that way nearly all characters are usual."""
    if b"\0" not in head:
        return None
    usual = {character for encoding in ENCODINGS for character in encoding.usual}
    for codec in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        text = head[: len(head) // 4 * 4].decode(codec, "replace")
        # Hardly any four bytes are a character of UTF-32, but any two are one of UTF-16.
        every = codec.startswith("utf-32")
        shown = [c for c in text if c in "\r\n\t" or (c.isprintable() and c != REPLACEMENT)]
        ascii = [c for c in shown if c.isascii()]
        known = sum(every or c.isascii() or c in usual or "\u3000" <= c <= "\u30ff" for c in shown)
        least = _KNOWN_ALL if every else _KNOWN_FEW if len(text) < 32 else _KNOWN
        # If lines end in ASCII, with a NUL beside each character, any of East Asia is usual.
        asian = len(ascii) > _ASCII * len(text) and 2 * ascii.count("\n") > head.count(b"\n")
        written = asian * sum(c.isascii() or c >= "\u3000" for c in shown)
        if known > least * len(text) > 0 or written > _KNOWN_ALL * len(text):
            return Encoding(codec, f"{codec[:6].upper()} without a mark", "")
    return None


# Text encoded twice: UTF-8 that a program decoded in another encoding and wrote as UTF-8 again,
# ``GrÃ¼ÃŸe`` for ``Grüße``.
#
# Every byte is valid, so no decoder reports an error. A word counts if undoing the second encoding
# gives letters that some language uses.

#: The encodings in which UTF-8 was decoded by mistake.
_CODECS = ("cp1252", "cp1250", "cp1251", "mac-roman")
#: Signs after a capital or a root: one such pair in a word proves nothing.
_BEHIND = "…”’“‘»«›‹•≤≥®"
#: Characters of formulas, which would decode to ù in Mac Roman.
_FORMULA = "√π"
#: First bytes of the characters beyond ASCII, and their continuation bytes.
_FIRST, _FURTHER = range(0xC2, 0xF5), range(0x80, 0xC0)
#: Places of a text that are tried: in a text encoded twice, the first ones are such words.
_TRIED = 1000
#: Characters of a word that are examined before and after a place.
_LONGEST = 100
_WORD = re.compile(r"[^\x00-\x20]+")


def _bytes_of(codec: str) -> Mapping[str, int]:
    """Return the bytes of the characters of an encoding; bytes that it lacks are kept as they are,
    as programs do."""
    shown = ((byte, bytes([byte]).decode(codec, "ignore")) for byte in range(256))
    latin = {chr(byte): byte for byte in range(0x80, 0xA0)} if codec == "cp1252" else {}
    return latin | {character: byte for byte, character in shown if character}


_TABLES = {codec: _bytes_of(codec) for codec in _CODECS}


def _pair(table: Mapping[str, int]) -> str:
    first, further = (
        re.escape("".join(c for c, byte in table.items() if byte in wanted))
        for wanted in (_FIRST, _FURTHER)
    )
    return f"[{first}][{further}]"


_SUSPECT = re.compile("|".join(_pair(table) for table in _TABLES.values()))
_LETTERS = {c for encoding in ENCODINGS for c in encoding.usual + encoding.usual.upper()}


def twice_encoded(text: str) -> tuple[str, str] | None:
    """Return the first word of a text that was encoded twice, and its original; None if there is
    none."""
    if text.isascii():
        return None
    at = 0
    for _ in range(_TRIED):
        suspect = _SUSPECT.search(text, at)
        if suspect is None:
            break
        # The word may begin before the two characters, neither of which is a blank.
        start = max(0, suspect.start() - _LONGEST)
        words = _WORD.finditer(text, start, suspect.end() + _LONGEST)
        word = next(word for word in words if word.end() > suspect.start())
        if before := _undone(word[0]):
            return word[0], before
        at = max(word.end(), suspect.end())
    return None


def _may_be_meant(pair: re.Match[str]) -> bool:
    """Return whether two characters are a letter or a root and a sign that ends a word."""
    inside = pair.string[pair.start() - 1 : pair.start()], pair.string[pair.end() : pair.end() + 1]
    return pair[0][1] in _BEHIND and not all(map(str.isalpha, inside))


def _undone(word: str) -> str | None:
    """Undo the second encoding of a word; None if it was not encoded twice."""
    pairs = [*_SUSPECT.finditer(word.replace(_FORMULA, ""))]
    if not pairs or (len(pairs) == 1 and _may_be_meant(pairs[0])):
        return None
    for codec, table in _TABLES.items():
        try:
            before = bytes(ord(c) if c < "\x80" else table[c] for c in word).decode("utf-8")
        except (KeyError, UnicodeDecodeError):
            continue
        usual = all(c.isascii() or c in _LETTERS or c >= "\u0900" for c in before)
        # Elsewhere two adjacent letters may be one such character.
        if usual and (codec == "cp1252" or sum(map(str.isalpha, before)) > 1):
            return before
    return None


@dataclass
class Fixes:
    """Counts of damage to text that a :class:`~bertine.data.streams.TextDecoder` fixes, or leaves.

    Attributes:
        invalid_utf8: byte sequences that are not UTF-8, or of the encoding that is read (and lone
            surrogates from JSON escapes), each replaced by U+FFFD.
        encoding: the encoding that they are not in.
        nul: NUL bytes, removed.
        twice: number of rows or documents with text that was encoded twice, one such word, and its
            original.
    """

    invalid_utf8: int = 0
    encoding: str = "UTF-8"
    nul: int = 0
    twice: tuple[int, str, str] = (0, "", "")

    def count_twice(self, values: Iterable[Any]) -> None:
        """Count a row or document if one of its values is a text that was encoded twice."""
        for value in values:
            if isinstance(value, str) and (result := twice_encoded(value)):
                self.twice = (self.twice[0] + 1, *(self.twice[1:] if self.twice[0] else result))
                return

    def fix_notes(self, unit: str) -> list[str]:
        """Return a line for each kind of damage; `unit` names what a text is: row or document."""
        notes = []
        if self.invalid_utf8:
            notes.append(
                f"{plural(self.invalid_utf8, 'byte', 'that is', 'that are')} not valid "
                f"{self.encoding} (the file has another encoding or is damaged) "
                f"{'was' if self.invalid_utf8 == 1 else 'were'} replaced by U+FFFD"
            )
        if self.nul:
            notes.append(f"{plural(self.nul, 'NUL byte', 'was', 'were')} removed")
        if self.twice[0]:
            count, word, before = self.twice
            notes.append(
                f"{plural(count, unit, 'holds', 'hold')} text that was encoded twice "
                f"({briefly(word)} for {briefly(before)}), and is read as it stands; mend the "
                "file, as ftfy does"
            )
        return notes
