"""Texts of many languages, and the encodings in which they are met."""

from __future__ import annotations

_PHRASES = """
de Die Qualität ist schön|Grüße aus Köln|für mich zu groß|Übung macht müde|der Käse schmeckt
de Straße und Tür|Ärger mit der Prüfung|viel zu spät geöffnet
fr ça a été très décevant|le café était froid|où est la clé ?|très bonne élève
fr à côté de la forêt|un goût de pêche|déjà vu à Noël|l’été prochain
es el niño comió mañana|¿qué pasó aquí?|muy buena atención|la cigüeña voló|está más allá
es el año próximo|un rincón pequeño|también llegó él
pt não gostei muito|ações e emoções|à noite você vem|uma lição difícil|o pão da avó|três irmãos
pt está aí há anos|coração de mãe
pl szybka wysyłka, źle|proszę są świeże|żółta łódź|dziękuję bardzo, pięknie|jeść każdą kość
pl mała książka|później będą|ćma i gęś
cs příště zase|měl jsem děkuji|žluťoučký kůň|velmi špatné, řekl|těší mě|čtyři páry
cs večeře byla dobrá|už nikdy víc
hu nagyon jó és gyors|köszönöm szépen|őszintén rossz|fűszeres étel|szép időnk volt
hu később érkezett|túl drága|minőség elég gyenge
tr çok güzel, teşekkürler|kargo hızlıydı|değil, kötü ürün|İstanbul'da yağmur|ışık çok şık
tr öğle yemeği|üçüncü gün geldi|şeker gibi
ru доставка была долгой|никто не отвечает|очень хорошо|качество плохое|спасибо за помощь
ru это было вчера|большой город|я не знаю
uk доставка була довгою|ніхто не відповідає|дуже добре|якість погана|дякую за допомогу
uk це було вчора|велике місто|їжа смачна
el πολύ καλό προϊόν|ευχαριστώ για όλα|η ποιότητα είναι κακή|δεν ξέρω|άργησε πολύ
el το φαγητό ήταν κρύο|καλημέρα σας|πόσο κάνει
he מוצר מצוין|אני מרוצה מאוד|המשלוח איחר|לא טוב בכלל|תודה רבה|ארוחת ערב|איכות ירודה|שירות מעולה
ar منتج رائع جدا|وسعيد بالشراء|التوصيل كان بطيئا|شكرا لكم|جودة سيئة|الطعام بارد|لا أعرف
ar خدمة ممتازة
ja お届けが遅すぎました|とても良い商品です|配達が遅くて残念|ありがとうございます|品質が悪い
ja また買います|使い方がわからない|値段が高い
ko 배송이 너무 늦어요|정말 좋은 상품입니다|실망했습니다|감사합니다|품질이 나빠요|다시 살게요
ko 맛이 없어요|가격이 비싸요
zh 物流太慢了|等了一个星期|客服也不回复|质量很好|我们都很喜欢|价格便宜|东西不错|下次再来
zh-tw 這個產品的品質很好|我們都很喜歡|物流太慢了|等了一個星期|價格便宜|東西不錯|下次再來
zh-tw 客服不回覆
th สินค้าดีมาก|จัดส่งเร็ว|คุณภาพแย่|ขอบคุณครับ|อาหารเย็น|ราคาแพง|ไม่ชอบเลย|บริการดี
typographic don’t – “hello” he said|it costs £5 … or €6|the “best” café|5 °C at ½
typographic we’ve been there — twice|naïve résumé|the cat’s toy|“no”, she said
emoji so good 😀|I ❤️ it|bad 👎🏽|🎉 party|ok 👍|🇩🇪 flag|tea ☕|🐈 cat
"""


def _by_language() -> dict[str, tuple[str, ...]]:
    """Return the pieces of each language, of which there may be several lines."""
    found: dict[str, tuple[str, ...]] = {}
    for line in _PHRASES.strip().split("\n"):
        language, _, texts = line.partition(" ")
        found[language] = (*found.get(language, ()), *texts.split("|"))
    return found


#: By language: pieces of text as people write them.
PHRASES = _by_language()
ENGLISH = (
    "the cow grazes",
    "a small cat sleeps",
    "soup boils in the pot",
    "bread bakes slowly",
    "we came late",
    "nobody answers here",
    "it was fine",
    "the old dog barks",
)
#: Python's codecs, and the languages of texts that are met in them.
CODECS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "utf-8",
            "utf-8-sig",
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "utf-32",
            "utf-32-le",
            "utf-32-be",
            "utf-16-be with a mark",
            "stray bytes",
            "double cp1252",
            "double latin-1",
        ),
        tuple(PHRASES),
    ),
    "double cp1251": ("ru", "uk"),
    "double mac-roman": ("de", "fr", "es"),
    "cp1252": ("de", "fr", "es", "pt", "typographic"),
    "latin-1": ("de", "fr", "es", "pt"),
    "iso8859-15": ("de", "fr", "es", "pt"),
    "mac-roman": ("de", "fr", "es", "pt", "typographic"),
    "cp850": ("de", "fr", "es"),
    "cp437": ("de", "fr", "es"),
    "cp1250": ("pl", "cs", "hu", "de"),
    "iso8859-2": ("pl", "cs", "hu"),
    "cp852": ("pl", "cs", "hu"),
    "cp1251": ("ru", "uk"),
    "koi8-r": ("ru",),
    "koi8-u": ("uk",),
    "cp866": ("ru",),
    "iso8859-5": ("ru",),
    "mac-cyrillic": ("ru",),
    "cp1253": ("el",),
    "iso8859-7": ("el",),
    "cp1254": ("tr",),
    "iso8859-9": ("tr",),
    "cp1255": ("he",),
    "iso8859-8": ("he",),
    "cp1256": ("ar",),
    "iso8859-6": ("ar",),
    "shift_jis": ("ja",),
    "cp932": ("ja",),
    "euc-jp": ("ja",),
    "iso-2022-jp": ("ja",),
    "euc-kr": ("ko",),
    "cp949": ("ko",),
    "iso-2022-kr": ("ko",),
    "big5": ("zh-tw",),
    "gbk": ("zh", "zh-tw"),
    "gb2312": ("zh",),
    "gb18030": ("zh", "zh-tw"),
    "cp874": ("th",),
}
