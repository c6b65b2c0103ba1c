"""Id for id what `transformers` gives, for the published vocabularies.

Two oracles: ``BertTokenizer``, which stands on the same library as Bertine, and the older
``BertTokenizerLegacy``, written in Python after Google's code, which shares no code with it.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.tokenization.tokenizer import Tokenizer

from .conftest import PUBLISHED

transformers = pytest.importorskip("transformers")
legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")

TEXTS = {
    "english": "The quick brown fox didn't jump over the lazy dog; it cost $3.50 (or so)!",
    "chinese": "我们走吧。你好，世界！中文維基百科是維基百科協作計劃的中文版本。",
    "mixed": "BERT在2018年由Google发布，mit Umläuten, на русском, 日本語のテキスト, 한국어, हिन्दी",
    "accents": "Éclair naïve façade Ångström e\u0301te\u0301 I\u0307stanbul ﬁ Straße ΣΑΣ ﬀ Ǆ ẞ",
    "emoji": "I ❤️ this 😀👩‍👩‍👧‍👦🇫🇷 ok👍🏽",
    "control": "a\u0000b\u0007c\u200bd\ufffde\u00adf\tg\r\nh\u00a0i\u2028j\u3000k\x85l\ufeffl",
    "long word": "x" * 100 + " " + "x" * 101 + " " + "ab" * 5000 + " end",
    "long with accents": "é" * 100 + " " + "e\u0301" * 60 + " " + "e\u0301" * 101,
    "specials": "the [MASK] sat [MASK]. [CLS][SEP] [mask] [ MASK ] x[MASK]y [PAD] [unused1]",
    "punctuation": "...,,,--- a.b.c don't_know #tag @user http://x.org/?q=1&r=2 “quoted” ¿qué? ~`^",
    "empty": "",
    "blank": " \t\n ",
    "numbers": "1,234.56 ½ Ⅷ ② ٣ 100% 3×4=12 ²³",
    "rare planes": "𠀀𪜀𫝀 \U0002f800 \U00020000a 𝔘𝔫𝔦 𐐀 \ue000 \U000f0000",
}


@pytest.fixture(scope="module")
def pairs_of(published):
    """name -> (Bertine's tokenizer, transformers' tokenizer)."""
    return {
        name: (
            Tokenizer.load(folder),
            transformers.BertTokenizer.from_pretrained(folder),
        )
        for name, folder in published.items()
    }


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("kind", TEXTS)
def test_ids_and_offsets_of_texts(pairs_of, name, kind):
    ours, theirs = pairs_of[name]
    text = TEXTS[kind]
    got = ours.encode(text)
    want = theirs(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    assert got.input_ids == want["input_ids"]
    assert got.token_type_ids == want["token_type_ids"]
    assert got.offsets == want["offset_mapping"]
    assert ours.encode_plain([text])[0] == want["input_ids"][1:-1]


@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_of_pairs(pairs_of, name):
    ours, theirs = pairs_of[name]
    texts = list(TEXTS.values())
    others = texts[3:] + texts[:3]
    want = theirs(texts, others, return_offsets_mapping=True)
    got = ours.encode_batch(texts, others)
    assert [e.input_ids for e in got] == want["input_ids"]
    assert [e.token_type_ids for e in got] == want["token_type_ids"]
    assert [e.offsets for e in got] == want["offset_mapping"]


@pytest.mark.takes(2)  # the first one has the categories of all characters computed
@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_on_random_unicode(pairs_of, name):
    ours, theirs = pairs_of[name]
    words = st.sampled_from(
        ["[MASK]", "[SEP]", "the", "un", "##able", " ", "\u0301", "中", "x" * 101]
    )
    anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.one_of(words, anything), max_size=8).map("".join))
    def check(text):
        want = theirs(text, return_offsets_mapping=True)
        got = ours.encode(text)
        assert got.input_ids == want["input_ids"]
        assert got.offsets == want["offset_mapping"]
        assert ours.encode_plain([text])[0] == got.input_ids[1:-1]

    check()


# Where the two implementations of `transformers` themselves differ, Bertine is with the newer one:
# the older one composes accents before it looks a cased word up (NFC), and knows the categories
# of newer versions of Unicode. So: scripts without either.
STABLE = st.one_of(
    st.characters(min_codepoint=32, max_codepoint=126),
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5),
    st.characters(min_codepoint=0x410, max_codepoint=0x44F),
    st.characters(min_codepoint=0x3B1, max_codepoint=0x3C1),
    st.sampled_from("äöüéèñçÀÉ\t\n。，！「」“”—…\u0007\u00a0"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_ids_equal_those_of_the_python_implementation(published, pairs_of, name):
    ours, _ = pairs_of[name]
    theirs = legacy.BertTokenizerLegacy(
        str(published[name] / "vocab.txt"), do_lower_case=PUBLISHED[name]
    )

    @settings(max_examples=150, deadline=None)
    @given(st.text(STABLE, max_size=60))
    def check(text):
        want = theirs.convert_tokens_to_ids(theirs.tokenize(text))
        assert ours.encode_plain([text])[0] == want

    check()
    for kind in ("english", "chinese", "punctuation", "long word", "empty", "blank"):
        want = theirs.convert_tokens_to_ids(theirs.tokenize(TEXTS[kind]))
        assert ours.encode_plain([TEXTS[kind]])[0] == want


@pytest.mark.parametrize("name", PUBLISHED)
def test_transformers_opens_what_is_saved(tmp_path, pairs_of, name):
    ours, published = pairs_of[name]
    ours.save(tmp_path, model_max_length=512)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = list(TEXTS.values())
    assert theirs(texts)["input_ids"] == [e.input_ids for e in ours.encode_batch(texts)]
    assert theirs(texts)["input_ids"] == published(texts)["input_ids"]
    assert theirs.model_max_length == 512
    assert theirs.mask_token_id == ours.mask_token_id


@pytest.mark.slow
def test_we_open_what_transformers_saves(tmp_path, pairs_of):
    for name, (ours, theirs) in pairs_of.items():
        folder = tmp_path / name
        theirs.save_pretrained(folder)
        again = Tokenizer.load(folder)
        assert again.fingerprint == ours.fingerprint
        assert again.encode_plain(list(TEXTS.values())) == ours.encode_plain(list(TEXTS.values()))


def test_decode_equals_transformers(pairs_of):
    for ours, theirs in pairs_of.values():
        for text in TEXTS.values():
            ids = ours.encode(text).input_ids
            for skip in (True, False):
                want = theirs.decode(ids, skip_special_tokens=skip)
                assert ours.decode(ids, skip_special_tokens=skip) == want
