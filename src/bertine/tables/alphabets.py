"""Encodings that files of text are in besides UTF-8, and how well their characters fit a word.

Every encoding gives some text for almost any bytes; the right one gives the letters that its
languages use most. So a word's price in an encoding is the number of bits in which Zipf's law
writes its characters: few for a frequent letter, many for a rare one, for a sign inside a word or
for a capital behind a small letter.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

#: Letters of languages in the order of how frequent they are, about: German, French, Spanish,
#: Portuguese, Italian, those of Scandinavia and Iceland, all of them.
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
#: Signs that stand in texts of all these languages, the frequent ones first; and those that may
#: stand between two letters.
_SIGNS = "’“”–‘…—„«»€°£•´\xa0§©®™·№¿¡º½ªµ²³±×¼¾¢¥‚‹›†‡¦¨¬¯¶¸¹÷‰"
_INSIDE = "’´·\xa0–—…‘"
_CJK_SIGNS = "，。、！？：；“”（）《》「」…—·・ー～【】『』‘’％　"

#: Bits: for what no text should hold, a letter that a language hardly uses, a capital, one behind a
#: small letter, two letters beyond ASCII side by side where those are few, a word of nothing else,
#: letters of two alphabets in a word, a character of East Asia between letters of ASCII.
_WRONG, _RARE, _CAPITAL, _INNER_CAPITAL = 20.0, 12.0, 2.0, 6.0
_TWO_ACCENTS, _ALL_ACCENTS, _TWO_SCRIPTS, _INSIDE_A_WORD = 8.0, 10.0, 10.0, 8.0


#: Words are cut to so many bytes.
LONGEST_WORD = 60


@dataclass(frozen=True)
class Encoding:
    """An encoding, and the characters that are usual in texts of one language in it.

    Attributes:
        codec: Python's name.
        name: in messages.
        usual: its letters or characters, the most frequent one first.
        prior: bits that speak against it from the start, so that one odd byte does not make a text
            of a rare kind.
        latin: its letters stand among those of ASCII.
        wide: of East Asia: the codec and the first bytes that its more frequent characters have.
    """

    codec: str
    name: str
    usual: str = field(repr=False)
    prior: float = 30.0
    latin: bool = False
    wide: tuple[str, int, int] | None = None

    @property
    def iconv(self) -> str:
        """Its name for the program iconv."""
        return _ICONV.get(self.codec, self.codec.upper())

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
            # The last byte is no letter but in Cyrillic; of damaged files it is a frequent one.
            last = b"\xff".decode(self.codec, "replace")
            if self.latin or not last.isalpha():
                bits[last] = _WRONG
        return bits

    def price(self, word: bytes) -> tuple[float, int, int]:
        """Return the bits of a word, how many characters beyond ASCII it has, and how many of them
        no text of this kind would hold at their place."""
        text = word.decode(self.codec, "replace")
        if self.wide and text.endswith("\ufffd") and len(word) >= LONGEST_WORD:
            text = text[:-1]  # cut within a character
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
        """Return the bits of a character that is not among the usual ones."""
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
        """Return the bits for ASCII's letters on both sides of a character of East Asia."""
        beside = text[max(0, at - 1) : at], text[at + 1 : at + 2]
        return _INSIDE_A_WORD * all(other.isascii() and other.isalpha() for other in beside)

    def _neighbours(self, text: str, at: int) -> float:
        """Return the bits for what a character stands between."""
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
    """Return the bits of a character of an alphabet that is not among the usual ones."""
    return _RARE if character != "\ufffd" and _is_letter(character) else _WRONG


def _is_letter(character: str) -> bool:
    return character.isalpha() or unicodedata.category(character)[0] == "M"


_ICONV = {
    "mac-roman": "MACINTOSH",
    "mac-cyrillic": "MAC-CYRILLIC",
    "euc_jp": "EUC-JP",
    "iso8859-2": "ISO-8859-2",
    "iso8859-15": "ISO-8859-15",
    "iso8859-5": "ISO-8859-5",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32-le": "UTF-32LE",
    "utf-32-be": "UTF-32BE",
}
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
    Encoding("big5", "Big5", _TRADITIONAL, 10.0, wide=("big5", 0xA4, 0xC6)),
    Encoding("cp932", "Shift-JIS", _JAPANESE, 10.0, wide=("euc_jp", 0xB0, 0xCF)),
    Encoding("euc_jp", "EUC-JP", _JAPANESE, 10.0, wide=("euc_jp", 0xB0, 0xCF)),
    Encoding("cp949", "EUC-KR", _KOREAN, 10.0, wide=("euc_kr", 0xB0, 0xC8)),
)
