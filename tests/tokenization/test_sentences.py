"""Sentences: where they end, and that no text is lost on the way."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.tokenization import sentences
from bertine.tokenization.sentences import LANGUAGES, check_language, split_sentences


def test_english_with_abbreviations_and_quotes():
    text = 'Dr. Smith paid $3.50. "Really?" she asked. He left at 5 p.m. and slept.'
    assert split_sentences(text) == [
        "Dr. Smith paid $3.50.",
        '"Really?" she asked.',
        "He left at 5 p.m. and slept.",
    ]


@pytest.mark.parametrize("language", ["zh", "zh-Hans", "ZH_TW", "en"])
def test_chinese(language):
    assert split_sentences("我们走吧。你好！什么？好", language) == [
        "我们走吧。",
        "你好！",
        "什么？",
        "好",
    ]


def test_other_languages_have_their_own_abbreviations_and_marks():
    assert split_sentences("Das ist z.B. so. Gut.", "de") == ["Das ist z.B. so.", "Gut."]
    assert split_sentences("यह है। वह भी।", "hi") == ["यह है।", "वह भी।"]


def test_a_line_end_always_ends_a_sentence():
    text = "A heading\n\nno mark at the end\r\nMr.\nSmith"
    assert split_sentences(text) == ["A heading", "no mark at the end", "Mr.", "Smith"]


@pytest.mark.parametrize("language", ["xx", "", "klingon", "日本", "-"])
def test_unknown_languages_are_split_like_english(language):
    assert split_sentences("One. Two! Three?", language) == ["One.", "Two!", "Three?"]


@pytest.mark.parametrize("language", ["xx", "", "klingon", "sv", "english", "日本"])
def test_a_language_without_rules_is_refused_with_those_there_are(language):
    with pytest.raises(BertineError) as raised:
        check_language(language)
    message = str(raised.value)
    assert repr(language) in message
    assert "\n" not in message
    assert ", ".join(LANGUAGES) in message


def test_a_related_language_is_split_as_is_said():
    assert check_language("cs") == "sentences of 'cs' are split by the rules of 'sk'"
    probe = "To je napr. tak. A tzv. vec. Nie? Áno! यह है। ՀՀ։ Τι; Ναι. bzw. so. Sr. Gómez."
    for known, codes in sentences._RELATIVES.items():
        for code in codes.split():
            assert split_sentences(probe, code) == split_sentences(probe, known), code


def test_a_long_document_is_taken_in_pieces():
    text = "Here we go. There \r\n it ends.\n" * 20_000
    assert split_sentences(text) == ["Here we go.", "There", "it ends."] * 20_000
    assert split_sentences("\n" * 200_000 + "One. Two.") == ["One.", "Two."]


def test_very_long_sentences_are_quick():
    started = time.process_time()
    assert len(split_sentences("word " * 200_000)) == 1
    assert split_sentences("x" * 1_000_000) == ["x" * 1_000_000]
    assert len(split_sentences("Short one. " * 50_000)) == 50_000
    assert time.process_time() - started < 10  # minutes, if it were quadratic


def test_a_lone_surrogate_is_replaced():
    assert split_sentences("One\ud800. Two.") == ["One\ufffd.", "Two."]


def test_a_library_that_fails_or_changes_text_costs_only_the_split(monkeypatch):
    class PanicException(BaseException):
        pass

    def panics(language, text):
        raise PanicException

    monkeypatch.setattr(sentences.sentencex, "segment", panics)
    assert split_sentences("One. Two.\nThree.") == ["One. Two.", "Three."]
    monkeypatch.setattr(sentences.sentencex, "segment", lambda language, text: ["One."])
    assert split_sentences("One. Two.") == ["One. Two."]

    def interrupted(language, text):
        raise KeyboardInterrupt

    monkeypatch.setattr(sentences.sentencex, "segment", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split_sentences("One. Two.")


MARKS = st.sampled_from(list(".!?。！？…।\"'“”‘’()[]«» \n\t\r\u2028\x85AaMr1"))


@settings(max_examples=400, deadline=None)
@given(
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), MARKS), max_size=120),
    st.sampled_from(["en", "zh", "ja", "fr", "de", "hi", "ar", "am", "my", "th", "xx"]),
)
def test_no_text_is_lost_or_changed(text, language):
    found = split_sentences(text, language)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(s and s == s.strip() and "\n" not in s for s in found)
